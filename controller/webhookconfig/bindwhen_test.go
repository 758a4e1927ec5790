package webhookconfig

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	admissionregistrationac "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/selector"
)

// newAPIServer returns a function that reports whether the API server would call us: all
// conditions are true. It is an error if one fails, and none is false.
func newAPIServer(t *testing.T, k *v1alpha1.ClaimKind) func(variables map[string]any) (called bool, failure error) {
	t.Helper()
	env, err := cel.NewEnv(cel.Variable("object", cel.DynType), cel.Variable("oldObject", cel.DynType), cel.Variable("request", cel.DynType),
		cel.ASTValidators(cel.ValidateHomogeneousAggregateLiterals())) // As the API server.
	require.NoError(t, err)
	var conditions []cel.Program
	for _, c := range claimConditions(k) {
		ast, issues := env.Compile(*c.Expression)
		require.NoError(t, issues.Err(), *c.Expression)
		require.Equal(t, cel.BoolType, ast.OutputType(), "The API server takes nothing else.")
		program, err := env.Program(ast)
		require.NoError(t, err)
		conditions = append(conditions, program)
	}
	return func(variables map[string]any) (called bool, failure error) {
		for _, c := range conditions {
			switch out, _, err := c.Eval(variables); {
			case err != nil:
				failure = err
			case out.Value() == false:
				return false, nil
			}
		}
		return failure == nil, failure
	}
}

// TestConditionsAgreeOnBindWhen has conditions and the reader judge the same claims: the API
// server calls us for those that we do not leave alone, and refuses those that we refuse.
func TestConditionsAgreeOnBindWhen(t *testing.T) {
	for name, tc := range map[string]struct {
		reason   string
		bindWhen v1alpha1.Expression
	}{
		"Other":   {"We should ask for the reference, too.", "has(claim.spec.resourceRef) && claim.spec.resourceRef == false"},
		"Decides": {"We should not ask for the reference.", "claim.spec.ref == 'gold'"},
		"Below":   {"We should not ask for the reference.", "claim.spec.ref.name == ''"},
		"Comment": {"We should end a comment.", "claim.spec.ref == 'gold' // or not"},
		"Untyped": {"We should have a condition of the right type.", "claim.spec.ref"},
	} {
		t.Run(name, func(t *testing.T) {
			k := controllertest.NewClaimKind("claims.example.org")
			k.Spec.Reference, k.Spec.BindWhen = v1alpha1.Reference{Path: ".spec.ref"}, tc.bindWhen
			k.Spec.SkipIfSet = []v1alpha1.Place{{Annotation: "example.org/class"}}
			kind, asks := selector.NewClaimKind(k), newAPIServer(t, k)
			count := map[string]int{}
			for i, claim := range conditionClaims() {
				if i%7 != 0 { // Not all are needed.
					continue
				}
				var object map[string]any
				require.NoError(t, json.Unmarshal([]byte(claim), &object))
				read, err := kind.Decode([]byte(claim))
				require.NoError(t, err)
				called, failure := asks(map[string]any{"object": object, "oldObject": nil, "request": map[string]any{"operation": "CREATE"}})
				in := kind.Read("team", "db", read)
				switch {
				case failure != nil:
					count["fails"]++
					assert.NotEmpty(t, in.Problems, "%s: %v", claim, failure)
				case called:
					count["called"]++
					assert.Empty(t, in.LeftAlone, claim)
				default:
					count["left alone"]++
					assert.False(t, in.LeftAlone == "" && len(in.Problems) == 0, claim)
				}
			}
			assert.Len(t, count, 3, "We should try claims of each sort: %v", count)
		})
	}
}

// TestUpdatesThatUnbind has conditions and Restore judge the same updates.
func TestUpdatesThatUnbind(t *testing.T) {
	var specs []string
	for _, ref := range []string{``, `"ref":null`, `"ref":{}`, `"ref":{"name":"default"}`, `"ref":{"name":"gold"}`, `"ref":{"name":"silver"}`, `"ref":"default"`, `"ref":{"kind":"Class"}`, `"ref":{"kind":"Class","name":"gold","more":1}`, `"ref":{"more":1}`} {
		specs = append(specs, `{"metadata":{},"spec":{`+ref+`}}`)
	}
	specs = append(specs, `{"metadata":{}}`, `{"metadata":{},"spec":5}`, `{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"},"spec":{}}`)
	for name, tc := range map[string]struct {
		reason   string
		bindWhen v1alpha1.Expression
	}{
		"None":      {"We should go by the reference alone.", ""},
		"Other":     {"We should go by the reference alone.", "claim.spec.ready"},
		"Decides":   {"We should be called for a reference that may count as none.", "claim.spec.ref.name == 'default'"},
		"Namespace": {"We should be called for it where the API server cannot evaluate bindWhen, too.", "claim.spec.ref.name == 'default' && namespace.metadata.name == 'team'"},
	} {
		t.Run(name, func(t *testing.T) {
			k := controllertest.NewClaimKind("claims.example.org")
			k.Spec.Reference, k.Spec.BindWhen = v1alpha1.Reference{Path: ".spec.ref"}, tc.bindWhen
			kind, asks := selector.NewClaimKind(k), newAPIServer(t, k)
			restored := 0
			for _, before := range specs {
				for _, now := range specs {
					var old, object map[string]any
					require.NoError(t, json.Unmarshal([]byte(before), &old))
					require.NoError(t, json.Unmarshal([]byte(now), &object))
					called, failure := asks(map[string]any{"object": object, "oldObject": old, "request": map[string]any{"operation": "UPDATE"}})
					require.NoError(t, failure, "No update may fail, or nobody could even delete an old claim: %s %s", before, now)
					r, err := kind.Restore([]byte(before), []byte(now))
					require.NoError(t, err)
					if r.Reason == selector.Restored {
						restored++
						assert.True(t, called, "%s: %s %s", tc.reason, before, now)
					}
					if r.Reason == selector.NotBound || before == now {
						assert.False(t, before == now && called, "We should not be called for nothing: %s %s", before, now)
					}
				}
			}
			assert.Positive(t, restored)
		})
	}
}

// refusing is an API server that does not know a word in an expression.
type refusing struct {
	*controllertest.Cached
	word    string
	refused int
	// isVague says nothing of the expression.
	isVague bool
}

func (c *refusing) Apply(ctx context.Context, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
	configuration, ok := o.(*admissionregistrationac.MutatingWebhookConfigurationApplyConfiguration)
	if !ok {
		return c.Cached.Apply(ctx, o, options...)
	}
	var errs field.ErrorList
	for i, e := range configuration.Webhooks {
		for j, condition := range e.MatchConditions {
			if strings.Contains(*condition.Expression, c.word) {
				at := field.NewPath("webhooks").Index(i).Child("matchConditions").Index(j).Child("expression")
				if c.isVague {
					errs = append(errs, field.InternalError(at, errors.New("no CEL")))
					continue
				}
				errs = append(errs, field.Invalid(at, *condition.Expression, "compilation failed: undeclared reference"))
			}
		}
	}
	if len(errs) == 0 {
		return c.Cached.Apply(ctx, o, options...)
	}
	c.refused++
	return apierrors.NewInvalid(schema.GroupKind{Kind: "MutatingWebhookConfiguration"}, *configuration.Name, errs)
}

func TestRefusedCondition(t *testing.T) {
	c := &controllertest.Cached{Configuration: &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.LastConfiguration}}}
	inventory := selector.NewInventory()
	for name, bindWhen := range map[string]v1alpha1.Expression{
		"a.example.org": "claim.spec.a == 'new \"words\"'", "b.example.org": "claim.spec.a == 'old'", "c.example.org": "",
	} {
		k := controllertest.NewClaimKind(name)
		k.Spec.BindWhen = bindWhen
		c.ClaimKinds = append(c.ClaimKinds, *k)
		inventory.SetClaimKind(selector.NewClaimKind(k))
	}
	inventory.Open()
	ca := newCA(t)
	w := newConfigurator(t, c, secrets{"own/classbind-ca": {"ca.crt": ca}}, inventory, nil, ca)
	old := &refusing{Cached: c, word: "new"}
	w.Client = old
	conditions := func() map[string]bool {
		t.Helper()
		require.NotEmpty(t, c.Applied)
		has := map[string]bool{}
		for _, e := range c.Applied[len(c.Applied)-1].Webhooks {
			has[strings.TrimSuffix(*e.Name, v1alpha1.BindSuffix)] = slices.ContainsFunc(e.MatchConditions, isBindWhen)
		}
		return has
	}

	result, err := w.reconcile(t.Context(), &w.claims, w.writeClaims)
	require.NoError(t, err)
	assert.Empty(t, c.Applied)
	assert.Positive(t, result.RequeueAfter, "We should try again without the expression.")
	assert.Empty(t, w.claims.Problem(), "We should not tell the other kinds.")

	for range 2 {
		result, err = w.reconcile(t.Context(), &w.claims, w.writeClaims)
		require.NoError(t, err)
		assert.Zero(t, result.RequeueAfter)
		assert.Equal(t, map[string]bool{"a.example.org": false, "b.example.org": true, "c.example.org": false}, conditions(),
			"We should have an entry for each, and be called for every claim of that kind.")
		assert.Equal(t, 1, old.refused, "We should not send again what was refused.")
	}

	old.word = "other"
	c.ClaimKinds[slices.IndexFunc(c.ClaimKinds, func(k v1alpha1.ClaimKind) bool { return k.Name == "a.example.org" })].Spec.BindWhen = "claim.spec.b"
	_, err = w.reconcile(t.Context(), &w.claims, w.writeClaims)
	require.NoError(t, err)
	assert.True(t, conditions()["a.example.org"], "We should try another expression.")

	old.word, old.isVague = ".b", true
	_, err = w.reconcile(t.Context(), &w.claims, w.writeClaims)
	require.NoError(t, err)
	assert.Len(t, w.refused, 2, "We should leave out all if we cannot tell which.")

	clear(w.refused)
	old.word, old.isVague = "request.operation", false
	_, err = w.reconcile(t.Context(), &w.claims, w.writeClaims)
	require.NoError(t, err)
	assert.Len(t, w.refused, 2)
	_, err = w.reconcile(t.Context(), &w.claims, w.writeClaims)
	require.Error(t, err, "We should not leave out a condition of our own.")
}
