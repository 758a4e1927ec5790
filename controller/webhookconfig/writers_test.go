package webhookconfig

import (
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/controllertest"
)

// recorder has each write carry the version that was read, and remembers the lines that write.
type recorder struct {
	client.Client
	t     *testing.T
	wrote map[string]bool
}

// record a write from the line of the package that makes it.
func (r recorder) record(version string, err error) {
	pcs := make([]uintptr, 32)
	for frames := goruntime.CallersFrames(pcs[:goruntime.Callers(1, pcs)]); ; {
		frame, more := frames.Next()
		if strings.HasSuffix(filepath.Dir(frame.File), "controller/webhookconfig") && !strings.HasSuffix(frame.File, "_test.go") {
			line := fmt.Sprintf("%s:%d", filepath.Base(frame.File), frame.Line)
			r.wrote[line] = true
			require.NoError(r.t, err)
			assert.NotEmpty(r.t, version, "%s should write only what it has read: another leader may have written since.", line)
			return
		}
		require.True(r.t, more)
	}
}

func versionIn(data []byte, err error) (string, error) {
	var o metav1.PartialObjectMetadata
	if err == nil {
		err = json.Unmarshal(data, &o)
	}
	return o.ResourceVersion, err
}

func (r recorder) Apply(ctx context.Context, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
	r.record(versionIn(json.Marshal(o)))
	return r.Client.Apply(ctx, o, options...)
}

func (r recorder) Patch(ctx context.Context, o client.Object, p client.Patch, options ...client.PatchOption) error {
	r.record(versionIn(p.Data(o)))
	return r.Client.Patch(ctx, o, p, options...)
}

func (r recorder) Update(ctx context.Context, o client.Object, options ...client.UpdateOption) error {
	r.record(o.GetResourceVersion(), nil)
	return r.Client.Update(ctx, o, options...)
}

func (r recorder) Delete(ctx context.Context, o client.Object, options ...client.DeleteOption) error {
	given := client.DeleteOptions{Preconditions: &metav1.Preconditions{}}
	given.ApplyOptions(options)
	r.record(*given.Preconditions.ResourceVersion, nil)
	return r.Client.Delete(ctx, o, options...)
}

// Create fails if there is one.
func (r recorder) Create(ctx context.Context, o client.Object, options ...client.CreateOption) error {
	r.record("new", nil)
	return r.Client.Create(ctx, o, options...)
}

func (r recorder) DeleteAllOf(ctx context.Context, o client.Object, options ...client.DeleteAllOfOption) error {
	r.record("", nil)
	return r.Client.DeleteAllOf(ctx, o, options...)
}

// TestEachWriteCarriesItsVersion makes the package write from each line that it writes from.
func TestEachWriteCarriesItsVersion(t *testing.T) {
	wrote := map[string]bool{}
	record := func(c client.Client) client.Client { return recorder{c, t, wrote} }

	const a = "a.example.org"
	cached := &controllertest.Cached{
		ClaimKinds: []v1beta1.ClaimKind{claimKind(a)}, ClassKinds: []v1beta1.ClassKind{classKind(a, metav1.ConditionTrue)},
		Configuration: configurationWith(v1beta1.LastConfiguration, "gone"+v1beta1.BindSuffix), Guarding: guardingWith(),
	}
	w := newConfigurator(t, cached, newCA(t))
	w.Client = record(cached)
	roundOfClaims(t, w)
	cached.Guarding.Annotations = map[string]string{v1beta1.MemoryAnnotation: "another"}
	require.NoError(t, (&Memory{Registration: w.Registration, Client: w.Client}).write(t.Context()))

	p := newPolicyWorld(t)
	p.writer.Client = record(p.policyServer)
	p.round(t)
	p.Configuration.Webhooks[0].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "b"}}
	p.round(t)
	require.NotEmpty(t, p.did, "We should change the policy.")
	p.ClaimKinds = nil
	p.round(t)

	var writes []string
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	set := token.NewFileSet()
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(set, file, nil, 0)
		require.NoError(t, err)
		ast.Inspect(parsed, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			method, ok := call.Fun.(*ast.SelectorExpr)
			first, isName := call.Args[0].(*ast.Ident)
			if ok && isName && first.Name == "ctx" && slices.Contains([]string{"Apply", "Patch", "Update", "Delete", "Create", "DeleteAllOf"}, method.Sel.Name) {
				writes = append(writes, fmt.Sprintf("%s:%d", file, set.Position(method.Sel.Pos()).Line))
			}
			return true
		})
	}
	require.NotEmpty(t, writes)
	for _, line := range writes {
		assert.True(t, wrote[line], "The test should have %s write.", line)
	}
	assert.Len(t, wrote, len(writes))
}

// TestPoliciesOfOthers has another client change the policy, or remove it, after each write of ours, for ten minutes.
func TestPoliciesOfOthers(t *testing.T) {
	for name, interfere := range map[string]func(*policyWorld){
		"Changed": func(p *policyWorld) {
			policy, _ := p.defaultPolicy()
			policy = policy.DeepCopy()
			policy.Spec.MatchConditions = nil
			policy.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "enforcer", Time: new(metav1.Now()), FieldsV1: metav1.NewFieldsV1(`{"f:spec":{}}`)}}
			p.store(policy)
		},
		"Removed": func(p *policyWorld) { delete(p.stored["MutatingAdmissionPolicyBinding"], policyName) },
	} {
		t.Run(name, func(t *testing.T) {
			p, writes := newPolicyWorld(t), 0
			synctest.Test(t, func(t *testing.T) {
				p.round(t)
				for end := time.Now().Add(10 * time.Minute); time.Now().Before(end); {
					time.Sleep(policyCheckEvery)
					interfere(p)
					p.round(t)
					writes += len(p.did)
					who := map[string]string{"Changed": `the field manager "enforcer" changes`, "Removed": "another client changes"}[name]
					assert.Contains(t, p.outcome(t).Others, who, "We should say who it is.")
				}
				assert.LessOrEqual(t, writes, 12)
				assert.GreaterOrEqual(t, writes, 5, "We should go on putting it back.")
				time.Sleep(v1beta1.MaxDisputePause)
				p.round(t)
				time.Sleep(v1beta1.MaxDisputePause)
				p.round(t)
				assert.Equal(t, PolicyOutcome{Class: "Gold/gold"}, p.outcome(t), "We should no longer speak of it.")
				policy, _ := p.defaultPolicy()
				assert.NotEmpty(t, policy.Spec.MatchConditions)
			})
		})
	}
}

// A leader that was deposed does not put back what it wrote, once another has written.
func TestDeposedLeader(t *testing.T) {
	p := newPolicyWorld(t)
	p.round(t)
	stored, err := p.writer.stored(t.Context())
	require.NoError(t, err)
	policy, _ := p.defaultPolicy()
	newer := policy.DeepCopy()
	newer.Spec.FailurePolicy = new(admissionregistrationv1.Fail)
	p.store(newer)
	for _, o := range stored {
		if o.GetName() == policyName && typeOf(o) == "MutatingAdmissionPolicy" {
			require.Error(t, p.writer.put(t.Context(), o, policy))
			require.Error(t, p.writer.put(t.Context(), nil, policy.DeepCopy()))
		}
	}
	policy, _ = p.defaultPolicy()
	assert.Equal(t, newer, policy, "We should leave it alone.")
}
