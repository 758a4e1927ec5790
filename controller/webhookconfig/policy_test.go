package webhookconfig

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/mutation"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
)

// newPolicyEnvironment is that of an API server's policies, as far as ours need it.
func newPolicyEnvironment(t *testing.T) celEnvironment {
	t.Helper()
	env, err := environment.MustBaseEnvSet(version.MajorMinor(1, 36)).NewExpressionsEnv().Extend(
		cel.Variable("object", cel.DynType), cel.Variable("params", cel.DynType),
		common.ResolverEnvOption(&mutation.DynamicTypeResolver{}))
	require.NoError(t, err)
	return celEnvironment{env}
}

// policy is one that an API server has compiled.
type policy struct {
	conditions
	patch cel.Program
}

func newPolicy(t *testing.T, s *admissionregistrationv1.MutatingAdmissionPolicySpec) policy {
	t.Helper()
	env := newPolicyEnvironment(t)
	require.Len(t, s.Mutations, 1)
	return policy{env.conditions(t, s.MatchConditions), env.compile(t, s.Mutations[0].JSONPatch.Expression)}
}

// holds reports whether all conditions are true. One that fails leads to us.
func (p policy) holds(object, params map[string]any) bool {
	holds, _ := p.hold(map[string]any{"object": object, "params": params})
	return holds
}

// patched is the JSON Patch.
func (p policy) patched(t *testing.T, object, params map[string]any) string {
	t.Helper()
	out, _, err := p.patch.Eval(map[string]any{"object": object, "params": params})
	require.NoError(t, err)
	var operations []map[string]any
	list, ok := out.(traits.Lister)
	require.True(t, ok)
	for i := list.Iterator(); i.HasNext().Value() == true; {
		native, err := i.Next().ConvertToNative(reflect.TypeFor[*mutation.JSONPatchVal]())
		require.NoError(t, err)
		o := native.(*mutation.JSONPatchVal) // It was converted to it.
		operations = append(operations, map[string]any{"op": o.Op, "path": o.Path, "value": plain(t, o.Val)})
	}
	text, err := json.Marshal(operations)
	require.NoError(t, err)
	return string(text)
}

// plain is a value as JSON has it.
func plain(t *testing.T, value ref.Val) any {
	t.Helper()
	if list, ok := value.(traits.Lister); ok {
		var all []any
		for i := list.Iterator(); i.HasNext().Value() == true; {
			all = append(all, plain(t, i.Next()))
		}
		return all
	}
	m, ok := value.(traits.Mapper)
	if !ok {
		return value.Value()
	}
	object := map[string]any{}
	for i := m.Iterator(); i.HasNext().Value() == true; {
		name := i.Next()
		text, ok := name.Value().(string)
		require.True(t, ok)
		object[text] = plain(t, m.Get(name))
	}
	return object
}

// TestPolicyAgrees has the policy and classbind judge the same claims: the policy is for those
// without an opinion, and gives them the reference that we would. It may leave more to us.
func TestPolicyAgrees(t *testing.T) {
	kinds := claimSpecs()
	maps.Copy(kinds, map[string]func(*v1beta1.ClaimKindSpec){
		"Unskipped": func(s *v1beta1.ClaimKindSpec) { s.Claims.SkipIfSet = nil },
		"TopLevel": func(s *v1beta1.ClaimKindSpec) {
			s.Reference, s.Claims.SkipIfSet = v1beta1.Reference{Place: v1beta1.Place{Path: ".spec"}, Form: v1beta1.TypedObjectReference}, nil
		},
		"Deep": func(s *v1beta1.ClaimKindSpec) {
			s.Reference = v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.ref.name.class"}, Form: v1beta1.NamespacedReference}
		},
		"Selector": func(s *v1beta1.ClaimKindSpec) {
			s.Selector = v1beta1.ClassSelector{Path: ".spec.ref.name", Annotation: "a"}
		},
		"GroupKind": func(s *v1beta1.ClaimKindSpec) { s.Reference.Form = v1beta1.GroupKindReference },
		"Kind":      func(s *v1beta1.ClaimKindSpec) { s.Reference.Form = v1beta1.KindReference },
	})
	claims := conditionClaims()
	for name, change := range kinds {
		t.Run(name, func(t *testing.T) {
			k := controllertest.NewClaimKind("claims.example.org")
			k.Spec.Selector.Path = ".spec.classSelector"
			change(&k.Spec)
			class, params := newDefault(t, &v1beta1.ClassKindSpec{Default: v1beta1.Source{Annotation: "default"}},
				`{"metadata":{"namespace":"shared","name":"gold","annotations":{"default":"true"}}}`)
			view := selector.NewView(selector.NewClaimKind(k), []*inventory.Classes{inventory.NewClasses(class.Kind, []*inventory.Class{class})})
			spec := policySpec(k, view.Kind, class, &admissionregistrationv1.MutatingWebhook{})
			p := newPolicy(t, &spec)
			count := map[bool]int{}
			for _, claim := range claims {
				object := object(t, claim)
				read, err := view.Kind.Reader.DecodeValid([]byte(claim))
				require.NoError(t, err)
				in := view.Kind.Reader.Read("team", "db", read)
				unopinionated := in.LeftAlone == "" && len(in.Problems) == 0 && in.Selector == nil && in.Given == nil
				holds := p.holds(object, params)
				count[holds]++
				if !unopinionated {
					assert.False(t, holds, "We should decide on %s.", claim)
					continue
				}
				if !holds {
					assert.Len(t, view.Kind.Reader.Reference.Path, in.Parents, "We should leave %s to the policy.", claim)
					continue
				}
				d := &selector.Decision{View: view, Claim: in, Class: class}
				if !assert.JSONEq(t, string(d.Patch()), p.patched(t, object, params), claim) {
					return
				}
			}
			assert.Positive(t, count[true], "We should try claims without an opinion.")
			assert.Positive(t, count[false], "We should try others.")
		})
	}
}

// newDefault is a class of a kind, and its whole object.
func newDefault(t *testing.T, spec *v1beta1.ClassKindSpec, text string) (*inventory.Class, map[string]any) {
	t.Helper()
	meta := &metav1.PartialObjectMetadata{}
	require.NoError(t, json.Unmarshal([]byte(text), meta))
	spec.ClaimKinds = controllertest.Links("claims.example.org")
	kind := inventory.NewClassKind(&v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: "classes.example.org"}, Spec: *spec},
		schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Class"}, meta.Namespace != "")
	content := object(t, text)
	return kind.NewClass(meta, content), content
}

// TestPolicyOffers has the policy and classbind judge the same classes: where the policy gives
// a class to a claim, it is a default that we would give.
func TestPolicyOffers(t *testing.T) {
	k := controllertest.NewClaimKind("claims.example.org")
	for name, source := range map[string]struct{ mark, weight v1beta1.Source }{
		"Annotations": {v1beta1.Source{Annotation: "mark"}, v1beta1.Source{Annotation: "weight"}},
		"Paths":       {v1beta1.Source{Path: ".spec.mark"}, v1beta1.Source{Path: ".spec.weight"}},
		"Mixed":       {v1beta1.Source{Path: ".mark"}, v1beta1.Source{Annotation: "weight"}},
		"Ours":        {v1beta1.Source{Annotation: v1beta1.DefaultAnnotation}, v1beta1.Source{Annotation: v1beta1.WeightAnnotation}},
	} {
		for _, strategy := range []v1beta1.Strategy{v1beta1.WeightedRandom, v1beta1.Random} {
			t.Run(name+string(strategy), func(t *testing.T) {
				k.Spec.Choice.Strategy = strategy
				claimKind := selector.NewClaimKind(k)
				count := map[bool]int{}
				var p *policy
				for _, text := range offeredClasses() {
					class, object := newDefault(t, &v1beta1.ClassKindSpec{Default: source.mark, Weight: source.weight}, text)
					if p == nil {
						spec := policySpec(k, claimKind, class, &admissionregistrationv1.MutatingWebhook{})
						p = new(newPolicy(t, &spec))
					}
					view := selector.NewView(claimKind, []*inventory.Classes{inventory.NewClasses(class.Kind, []*inventory.Class{class})})
					due, _ := view.PolicyDefault(t.Context())
					holds := p.holds(map[string]any{"metadata": map[string]any{}}, object)
					count[holds]++
					if holds {
						assert.Same(t, class, due, "We should not give %s.", text)
					} else if class.WeightErr == nil && class.MarkErr == nil {
						assert.Nil(t, due, "We should give %s.", text)
					}
				}
				assert.Positive(t, count[true])
				assert.Positive(t, count[false])
			})
		}
	}
}

// offeredClasses have each value in each place that matters.
func offeredClasses() (classes []string) {
	values := []string{``, `null`, `true`, `"true"`, `"false"`, `"yes"`, `0`, `"0"`, `1`, `"1"`, `"1000000"`, `1000001`, `"010"`, `-1`, `"-1"`, `2.5`, `{}`}
	with := func(name, value string) string {
		if value == `` {
			return ``
		}
		return `"` + name + `":` + value
	}
	object := func(fields ...string) string {
		return "{" + strings.Join(slices.DeleteFunc(fields, func(f string) bool { return f == `` }), ",") + "}"
	}
	for _, mark := range values {
		for _, weight := range values {
			for _, more := range []string{``, `"deletionTimestamp":"2026-01-01T00:00:00Z"`} {
				for _, cordoned := range []string{``, `"true"`, `"false"`} {
					annotations := object(with(v1beta1.CordonedAnnotation, cordoned), asText(with("mark", mark)), asText(with("weight", weight)))
					fields := object(with("mark", mark), with("weight", weight))
					classes = append(classes, object(`"metadata":`+object(`"name":"gold"`, `"annotations":`+annotations, more), with("mark", mark), `"spec":`+fields))
				}
			}
		}
	}
	texts := []string{``, `"true"`, `"false"`, `"yes"`, `"0"`, `"7"`}
	for _, ours := range texts {
		for _, theirs := range texts {
			for _, mark := range [][]string{{`"true"`, ``}, {`"false"`, `"true"`}, {ours, theirs}} {
				classes = append(classes, object(`"metadata":`+object(`"name":"gold"`, `"annotations":`+object(
					with(v1beta1.DefaultAnnotation, mark[0]), with(v1beta1.CrossplaneDefaultAnnotation, mark[1]),
					with(v1beta1.WeightAnnotation, ours), with(v1beta1.CrossplaneWeightAnnotation, theirs)))))
			}
		}
	}
	return classes
}

// asText is empty for a field that is no text: an annotation cannot have it.
func asText(field string) string {
	if strings.HasSuffix(field, `"`) {
		return field
	}
	return ``
}
