package webhookconfig

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/controllertest"
)

// refusing is an API server that does not know a word in an expression.
type refusing struct {
	*controllertest.Cached
	word    string
	refused int
	// isVague says nothing of the expression.
	isVague bool
}

func (c *refusing) Apply(ctx context.Context, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
	if err := c.Cached.Apply(ctx, o, options...); err != nil {
		return err
	}
	configuration := c.Applied[len(c.Applied)-1]
	var errs field.ErrorList
	for i, e := range configuration.Webhooks {
		for j, condition := range e.MatchConditions {
			if strings.Contains(condition.Expression, c.word) {
				at := field.NewPath("webhooks").Index(i).Child("matchConditions").Index(j).Child("expression")
				if c.isVague {
					errs = append(errs, field.InternalError(at, errors.New("no CEL")))
					continue
				}
				errs = append(errs, field.Invalid(at, condition.Expression, "compilation failed: undeclared reference"))
			}
		}
	}
	if len(errs) == 0 {
		return nil
	}
	c.refused, c.Applied = c.refused+1, c.Applied[:len(c.Applied)-1]
	return apierrors.NewInvalid(schema.GroupKind{Kind: "MutatingWebhookConfiguration"}, configuration.Name, errs)
}

func TestRefusedCondition(t *testing.T) {
	bindWhen := func(e v1beta1.Expression) func(*v1beta1.ClaimKind) {
		return func(k *v1beta1.ClaimKind) { k.Spec.Claims.When = e }
	}
	c := &controllertest.Cached{Configuration: configurationWith(v1beta1.LastConfiguration), ClaimKinds: []v1beta1.ClaimKind{
		claimKind("a.example.org", bindWhen("claim.spec.a == 'new \"words\"'")), claimKind("b.example.org", bindWhen("claim.spec.a == 'old'")), claimKind("c.example.org"),
	}}
	w := newConfigurator(t, c, newCA(t))
	old := &refusing{Cached: c, word: "new"}
	w.Client = old
	conditions := func() map[string]bool {
		t.Helper()
		require.NotEmpty(t, c.Applied)
		has := map[string]bool{}
		for _, e := range c.Applied[len(c.Applied)-1].Webhooks {
			has[strings.TrimSuffix(e.Name, v1beta1.BindSuffix)] = slices.ContainsFunc(e.MatchConditions, isBindWhen)
		}
		return has
	}

	assert.Positive(t, roundOfClaims(t, w).RequeueAfter, "We should try again without the expression.")
	assert.Empty(t, c.Applied)
	assert.Empty(t, w.claims.Problem(), "We should not tell the other kinds.")

	for range 2 {
		assert.Zero(t, roundOfClaims(t, w).RequeueAfter)
		assert.Equal(t, map[string]bool{"a.example.org": false, "b.example.org": true, "c.example.org": false}, conditions(),
			"We should have an entry for each, and be called for every claim of that kind.")
		assert.Equal(t, 1, old.refused, "We should not send again what was refused.")
	}

	old.word = "other"
	c.ClaimKinds[0].Spec.Claims.When = "claim.spec.b"
	roundOfClaims(t, w)
	assert.True(t, conditions()["a.example.org"], "We should try another expression.")

	old.word, old.isVague = ".b", true
	roundOfClaims(t, w)
	assert.Len(t, w.refused, 2, "We should leave out all if we cannot tell which.")

	clear(w.refused)
	old.word, old.isVague = "request.operation", false
	roundOfClaims(t, w)
	assert.Len(t, w.refused, 2)
	_, err := w.reconcile(t.Context(), &w.claims, w.writeClaims)
	require.Error(t, err, "We should not leave out a condition of our own.")
}
