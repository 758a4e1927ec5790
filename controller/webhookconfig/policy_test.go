package webhookconfig

import (
	"encoding/json"
	"reflect"
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

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/selector"
)

// policyEnvironment is that of an API server's policies, as far as ours need it.
type policyEnvironment struct{ *cel.Env }

func newPolicyEnvironment(t *testing.T) policyEnvironment {
	t.Helper()
	env, err := environment.MustBaseEnvSet(version.MajorMinor(1, 36)).NewExpressionsEnv().Extend(
		cel.Variable("object", cel.DynType), cel.Variable("params", cel.DynType),
		common.ResolverEnvOption(&mutation.DynamicTypeResolver{}))
	require.NoError(t, err)
	return policyEnvironment{env}
}

func (e policyEnvironment) compile(t *testing.T, expression string) cel.Program {
	t.Helper()
	ast, issues := e.Compile(expression)
	require.NoError(t, issues.Err(), expression)
	program, err := e.Program(ast)
	require.NoError(t, err, expression)
	return program
}

// policy is one that an API server has compiled.
type policy struct {
	conditions []cel.Program
	patch      cel.Program
}

func (e policyEnvironment) policy(t *testing.T, s *admissionregistrationv1.MutatingAdmissionPolicySpec) (p policy) {
	t.Helper()
	for _, c := range s.MatchConditions {
		p.conditions = append(p.conditions, e.compile(t, c.Expression))
	}
	require.Len(t, s.Mutations, 1)
	p.patch = e.compile(t, s.Mutations[0].JSONPatch.Expression)
	return p
}

// holds reports whether all conditions are true. One that fails leads to us.
func (p policy) holds(object, params map[string]any) bool {
	for _, c := range p.conditions {
		out, _, err := c.Eval(map[string]any{"object": object, "params": params})
		if err != nil || out.Value() != true {
			return false
		}
	}
	return true
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
		o := native.(*mutation.JSONPatchVal) //nolint:forcetypeassert // It was converted to it.
		operations = append(operations, map[string]any{"op": o.Op, "path": o.Path, "value": plain(t, o.Val)})
	}
	text, err := json.Marshal(operations)
	require.NoError(t, err)
	return string(text)
}

// plain is a text, or an object of them.
func plain(t *testing.T, value ref.Val) any {
	t.Helper()
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
	env := newPolicyEnvironment(t)
	kinds := map[string]func(*v1alpha1.ClaimKindSpec){
		"Defaults": func(*v1alpha1.ClaimKindSpec) {},
		"Unskipped": func(s *v1alpha1.ClaimKindSpec) {
			s.SkipIfSet = nil
		},
		"NameOrEmpty": func(s *v1alpha1.ClaimKindSpec) {
			s.Reference = v1alpha1.Reference{Path: ".spec.ref", Form: v1alpha1.Name, EmptyIsUnset: true}
		},
		"ObjectOrEmpty": func(s *v1alpha1.ClaimKindSpec) {
			s.Reference = v1alpha1.Reference{Path: ".spec.ref", EmptyIsUnset: true}
		},
		"TopLevel": func(s *v1alpha1.ClaimKindSpec) {
			s.Reference = v1alpha1.Reference{Path: ".spec", Form: v1alpha1.TypedObjectReference}
			s.SkipIfSet = nil
		},
		"Deep": func(s *v1alpha1.ClaimKindSpec) {
			s.Reference = v1alpha1.Reference{Path: ".spec.ref.name.class", Form: v1alpha1.NamespacedReference}
		},
		"Parent": func(s *v1alpha1.ClaimKindSpec) {
			s.Reference = v1alpha1.Reference{Path: ".spec.ref.name", Form: v1alpha1.Name, WhenParentAbsent: v1alpha1.LeaveClaimAlone}
		},
		"Label": func(s *v1alpha1.ClaimKindSpec) {
			s.Reference = v1alpha1.Reference{Label: "example.org/class", Form: v1alpha1.Name}
		},
		"AnnotationOrEmpty": func(s *v1alpha1.ClaimKindSpec) {
			s.Reference = v1alpha1.Reference{Annotation: "example.org/class", Form: v1alpha1.Name, EmptyIsUnset: true}
		},
		"Skip": func(s *v1alpha1.ClaimKindSpec) {
			s.SkipIfSet = []v1alpha1.Place{{Annotation: "example.org/class"}, {Label: "example.org/class"}, {Path: ".spec.ref"}}
		},
		"Selector": func(s *v1alpha1.ClaimKindSpec) {
			s.ClassSelector = v1alpha1.ClassSelector{Path: ".spec.ref.name", Annotation: "a"}
		},
		"GroupKind": func(s *v1alpha1.ClaimKindSpec) { s.Reference.Form = v1alpha1.GroupKindReference },
		"Kind":      func(s *v1alpha1.ClaimKindSpec) { s.Reference.Form = v1alpha1.KindReference },
	}
	claims := conditionClaims()
	for name, change := range kinds {
		t.Run(name, func(t *testing.T) {
			k := controllertest.NewClaimKind("claims.example.org")
			k.Spec.ClassSelector.Path = ".spec.classSelector"
			change(&k.Spec)
			class, params := newDefault(t, &v1alpha1.ClassKindSpec{Default: v1alpha1.Source{Annotation: "default"}},
				`{"metadata":{"namespace":"shared","name":"gold","annotations":{"default":"true"}}}`)
			view := selector.NewView(selector.NewClaimKind(k), []*selector.Classes{selector.NewClasses(class.Kind, []*selector.Class{class})})
			spec := policySpec(k, view.Kind, class, &admissionregistrationv1.MutatingWebhook{})
			p := env.policy(t, &spec)
			count := map[bool]int{}
			for _, claim := range claims {
				var object map[string]any
				require.NoError(t, json.Unmarshal([]byte(claim), &object))
				read, err := view.Kind.Decode([]byte(claim))
				require.NoError(t, err)
				in := view.Kind.Read("team", "db", read)
				unopinionated := in.LeftAlone == "" && len(in.Problems) == 0 && in.Selector == nil && in.Given == nil
				holds := p.holds(object, params)
				count[holds]++
				if !unopinionated {
					assert.False(t, holds, "We should decide on %s.", claim)
					continue
				}
				if !holds {
					assert.True(t, k.Spec.Reference.Form != v1alpha1.Name && strings.Contains(claim, `"ref":{`), "We should leave %s to the policy.", claim)
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
func newDefault(t *testing.T, spec *v1alpha1.ClassKindSpec, text string) (*selector.Class, map[string]any) {
	t.Helper()
	var object map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &object))
	meta := &metav1.PartialObjectMetadata{}
	require.NoError(t, json.Unmarshal([]byte(text), meta))
	spec.ClaimKinds = []string{"claims.example.org"}
	kind := selector.NewClassKind(&v1alpha1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: "classes.example.org"}, Spec: *spec},
		schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Class"}, meta.Namespace != "")
	return kind.NewClass(meta, object), object
}

// TestPolicyOffers has the policy and classbind judge the same classes: where the policy gives
// a class to a claim, it is a default that we would give.
func TestPolicyOffers(t *testing.T) {
	env := newPolicyEnvironment(t)
	k := controllertest.NewClaimKind("claims.example.org")
	for name, source := range map[string]struct{ mark, weight v1alpha1.Source }{
		"Annotations": {v1alpha1.Source{Annotation: "mark"}, v1alpha1.Source{Annotation: "weight"}},
		"Paths":       {v1alpha1.Source{Path: ".spec.mark"}, v1alpha1.Source{Path: ".spec.weight"}},
		"Mixed":       {v1alpha1.Source{Path: ".mark"}, v1alpha1.Source{Annotation: "weight"}},
	} {
		for _, strategy := range []v1alpha1.Strategy{v1alpha1.WeightedRandom, v1alpha1.Random} {
			t.Run(name+string(strategy), func(t *testing.T) {
				k.Spec.Strategy = strategy
				claimKind := selector.NewClaimKind(k)
				count := map[bool]int{}
				var p *policy
				for _, text := range offeredClasses() {
					class, object := newDefault(t, &v1alpha1.ClassKindSpec{Default: source.mark, Weight: source.weight}, text)
					if p == nil {
						spec := policySpec(k, claimKind, class, &admissionregistrationv1.MutatingWebhook{})
						p = new(env.policy(t, &spec))
					}
					view := selector.NewView(claimKind, []*selector.Classes{selector.NewClasses(class.Kind, []*selector.Class{class})})
					due, _ := view.PolicyDefault()
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
		var set []string
		for _, f := range fields {
			if f != `` {
				set = append(set, f)
			}
		}
		return "{" + strings.Join(set, ",") + "}"
	}
	for _, mark := range values {
		for _, weight := range values {
			for _, more := range []string{``, `"deletionTimestamp":"2026-01-01T00:00:00Z"`} {
				for _, cordoned := range []string{``, `"true"`, `"false"`} {
					annotations := object(with(v1alpha1.CordonedAnnotation, cordoned), asText(with("mark", mark)), asText(with("weight", weight)))
					fields := object(with("mark", mark), with("weight", weight))
					classes = append(classes, object(`"metadata":`+object(`"name":"gold"`, `"annotations":`+annotations, more), with("mark", mark), `"spec":`+fields))
				}
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
