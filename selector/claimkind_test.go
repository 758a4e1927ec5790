package selector

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/inventory"
)

// enumerated calls a function with each field of a schema that is an enumeration: its path, and an object that has
// nothing but a value there.
func enumerated(s *apiextensionsv1.JSONSchemaProps, path string, around func(value any) any, call func(path string, object func(value any) any)) {
	if len(s.Enum) > 0 {
		call(path, around)
	}
	for name := range s.Properties {
		enumerated(new(s.Properties[name]), path+"."+name, func(value any) any {
			object := map[string]any{name: value}
			for _, required := range s.Required {
				switch {
				case required == name:
				case s.Properties[required].Type == "object":
					object[required] = map[string]any{}
				default:
					object[required] = "a"
				}
			}
			return around(object)
		}, call)
	}
	if s.Items != nil {
		enumerated(s.Items.Schema, path+"[0]", func(value any) any { return around([]any{value}) }, call)
	}
}

// TestWhenAbsent has claims without a selector, for each value of that choice, and what may be wrong with the default class.
func TestWhenAbsent(t *testing.T) {
	text, err := os.ReadFile("../deploy/crd/classbind.io_claimkinds.yaml")
	require.NoError(t, err)
	crd := &apiextensionsv1.CustomResourceDefinition{}
	require.NoError(t, yaml.Unmarshal(text, crd))
	spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	outcomes := map[string]string{ // of a class without a mark, and of default classes: one that fits, another driver's, ...
		"Default": "told bound told told told told", "DefaultIfAny": "silent bound silent told told told",
		"Only": "bound bound told told told told", "Any": "bound bound told told told told", "LeaveAlone": "silent silent silent silent silent silent",
	}
	for _, value := range spec.Properties["selector"].Properties["whenAbsent"].Enum {
		absent := strings.Trim(string(value.Raw), `"`)
		var got []string
		for _, tc := range []struct {
			driver      any
			annotations []string
		}{
			{"a", nil},
			{"a", []string{"example.org/default", "true"}},
			{"b", []string{"example.org/default", "true"}},
			{nil, []string{"example.org/default", "true"}},
			{"a", []string{"example.org/default", "true", v1beta1.CordonedAnnotation, "true"}},
			{"a", []string{"example.org/default", "true", "example.org/weight", "0"}},
		} {
			e := newExpressive(
				specs(`{selector: {whenAbsent: `+absent+`}, classes: {fits: [{name: Driver, expression: "claim.spec.driver + '' == class.spec.driver + ''"}]}}`, `{}`),
			)
			d := e.with("class", map[string]any{"driver": tc.driver}, tc.annotations...).decided(t, map[string]any{"driver": "a"})
			switch warning := d.Warning(); {
			case d.Class != nil:
				got = append(got, "bound")
			case d.Drawn() && warning != "":
				got = append(got, "told")
				assert.Equal(t, tc.annotations == nil, strings.Contains(warning, "mark a class default"), "We should not advise to mark a second one: %s", warning)
			default:
				got = append(got, "silent")
			}
		}
		assert.Equal(t, outcomes[absent], strings.Join(got, " "), absent)
		delete(outcomes, absent)
	}
	assert.Empty(t, outcomes)
}

// TestEnumerationsAreOpen gives each field of a ClaimKind that is an enumeration a value of a later release.
func TestEnumerationsAreOpen(t *testing.T) {
	text, err := os.ReadFile("../deploy/crd/classbind.io_claimkinds.yaml")
	require.NoError(t, err)
	crd := &apiextensionsv1.CustomResourceDefinition{}
	require.NoError(t, yaml.Unmarshal(text, crd))
	spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	fields := 0
	enumerated(&spec, "spec", func(value any) any { return value }, func(path string, object func(value any) any) {
		fields++
		k := postgres()
		k.Spec = v1beta1.ClaimKindSpec{}
		text, err := json.Marshal(object("FromALaterRelease"))
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, &k.Spec))
		view := NewView(NewClaimKind(k), []*inventory.Classes{inventory.NewClasses(newKind("as.example.org", "Class"), nil)})
		require.NotNil(t, view.Fault, path)
		assert.Equal(t, v1beta1.ReasonUnknownValue, view.Fault.Reason, path)
		assert.Contains(t, view.Fault.Text, `has the `+strings.TrimPrefix(path, "spec.")+` "FromALaterRelease"`)
		assert.Contains(t, view.Fault.Text, "set "+path+" to one of ")
	})
	assert.GreaterOrEqual(t, fields, 13, "We should find them.")
}

func TestWatchesClaims(t *testing.T) {
	serving := func(onDelete v1beta1.OnDelete) *v1beta1.ClassKind {
		return &v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: "golds.example.org"}, Spec: v1beta1.ClassKindSpec{OnDelete: onDelete}}
	}
	warns := serving(v1beta1.WarnOfDeletion)
	for name, tc := range map[string]struct {
		reason           string
		unmatched        v1beta1.WhenUnmatched
		strategy         v1beta1.Strategy
		serving          []*v1beta1.ClassKind
		counted, watched bool
	}{
		"Neither":     {reason: "We should watch no claims for nothing.", serving: []*v1beta1.ClassKind{warns, serving(v1beta1.AllowDeletion), serving("")}},
		"BindLater":   {reason: "We should watch claims to bind them.", unmatched: v1beta1.BindLater, watched: true},
		"LeastClaims": {reason: "We should watch claims for a strategy.", strategy: v1beta1.LeastClaims, counted: true, watched: true},
		"Deny": {
			reason:  "We should watch claims for one class kind of several.",
			serving: []*v1beta1.ClassKind{warns, serving(v1beta1.DenyDeletion)},
			counted: true,
			watched: true,
		},
		"LaterRelease": {
			reason:  "We should take a value that we do not know for Deny.",
			serving: []*v1beta1.ClassKind{serving("FromALaterRelease")},
			counted: true,
			watched: true,
		},
		"LaterAndDeny": {
			reason:    "We should count claims that are watched anyway.",
			unmatched: v1beta1.BindLater,
			serving:   []*v1beta1.ClassKind{serving(v1beta1.DenyDeletion)},
			counted:   true,
			watched:   true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := postgres()
			k.Spec.WhenUnmatched, k.Spec.Choice.Strategy = tc.unmatched, tc.strategy
			kind, alone := NewClaimKind(k, tc.serving...), NewClaimKind(k)
			assert.Equal(t, []bool{tc.counted, tc.watched}, []bool{kind.Counted, kind.Watched}, tc.reason)
			assert.Equal(t, kind.Counted == alone.Counted, kind.Same(alone), "We should compile a claim kind again once its claims are to be counted.")
		})
	}
}

// TestConflict registers claim kinds of one resource, in the inventory and in a list.
func TestConflict(t *testing.T) {
	const volumes = "persistentvolumeclaims"
	kind := func(name, resource string, path v1beta1.FieldPath) v1beta1.ClaimKind {
		k := *postgres()
		k.Name, k.Spec.Claims.Resource, k.Spec.Reference.Path = name, resource, path
		return k
	}
	created := func(k v1beta1.ClaimKind, second int64) v1beta1.ClaimKind {
		k.CreationTimestamp = metav1.Unix(second, 0)
		return k
	}
	a, b := kind("a", volumes, ".spec.storageClassName"), kind("b", volumes, ".spec.storageClassName")
	c, dotted := kind("c", volumes, ".spec.storageClassName"), kind("b.a", volumes, ".spec.storageClassName")
	attributes := kind("attributes", volumes, ".spec.volumeAttributesClassName")
	unnamed := kind(volumes, "", ".spec.storageClassName")
	other := kind("other", "volumes.example.org", ".spec.storageClassName")
	for name, tc := range map[string]struct {
		reason string
		kinds  []v1beta1.ClaimKind
		want   map[string]string // for which the others are served
	}{
		"Alone":          {"We should serve the only one.", []v1beta1.ClaimKind{a}, nil},
		"OtherReference": {"We should serve both references of a resource.", []v1beta1.ClaimKind{a, attributes}, nil},
		"OtherResource":  {"We should serve both resources.", []v1beta1.ClaimKind{a, other}, nil},
		"FirstByName":    {"We should serve the first by name, and name it.", []v1beta1.ClaimKind{b, a}, map[string]string{"b": "a"}},
		"FirstOfThree":   {"We should name the first to all others.", []v1beta1.ClaimKind{c, a, b}, map[string]string{"b": "a", "c": "a"}},
		"ByBytes":        {"We should compare the bytes of names.", []v1beta1.ClaimKind{dotted, b}, map[string]string{"b.a": "b"}},
		"Created": {
			"We should serve the first by name that was created first.",
			[]v1beta1.ClaimKind{created(a, 1), created(b, 2)},
			map[string]string{"b": "a"},
		},
		"Restored": {
			"We should serve the same where a restore creates them in another order.",
			[]v1beta1.ClaimKind{created(a, 2), created(b, 1)},
			map[string]string{"b": "a"},
		},
		"ResourceIsTheName": {"We should take the name for the resource where none is set.", []v1beta1.ClaimKind{a, unnamed}, map[string]string{volumes: "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			inventory := NewInventory()
			inventory.Open()
			for i := range tc.kinds {
				inventory.SetClaimKind(NewClaimKind(&tc.kinds[i]))
			}
			for i := range tc.kinds {
				k := &tc.kinds[i]
				view, first := inventory.Snapshot()[k.Name], tc.want[k.Name]
				assert.Equal(t, first != "", view.Conflict != nil, tc.reason)
				assert.Nil(t, view.Fault, "We should bind claims where the leader has us asked.")
				assert.Equal(t, view.Conflict, ConflictOf(k, tc.kinds), "We should see the same in a list.")
				if first != "" {
					assert.Contains(t, view.Conflict.Text, `claim kind "`+k.Name+`" binds no claim: "`+first+`", whose name comes first`, tc.reason)
				}
			}
		})
	}

	inventory := NewInventory()
	inventory.Open()
	inventory.SetClaimKind(NewClaimKind(&a))
	inventory.SetClaimKind(NewClaimKind(&b))
	require.NotNil(t, inventory.Snapshot()["b"].Conflict)
	inventory.DeleteClaimKind("a")
	assert.Nil(t, inventory.Snapshot()["b"].Conflict, "We should serve the other when the first goes.")
	inventory.SetClaimKind(NewClaimKind(&a))
	require.NotNil(t, inventory.Snapshot()["b"].Conflict, "We should not serve it when the first comes after it.")
	moved := a
	moved.Spec.Reference.Path = ".spec.volumeAttributesClassName"
	inventory.SetClaimKind(NewClaimKind(&moved))
	assert.Nil(t, inventory.Snapshot()["b"].Conflict, "We should serve the other when the first takes another reference.")
}

func TestPolicyDefault(t *testing.T) {
	const mark, weight = "example.org/default", "example.org/weight"
	marked := []string{mark, "true"}
	type class struct {
		namespace   string
		annotations []string
		labels      int
	}
	for name, tc := range map[string]struct {
		reason  string
		claims  func(*v1beta1.ClaimKindSpec)
		kind    func(*v1beta1.ClassKindSpec)
		classes []class
		want    string // the reason why there is none; empty, there is one
	}{
		"One":  {reason: "We should let the API server give the only default.", classes: []class{{annotations: marked}, {}}},
		"None": {reason: "We should need a default.", classes: []class{{}}, want: v1beta1.ReasonNoDefault},
		"Several": {
			reason:  "We should draw among several.",
			classes: []class{{annotations: marked}, {annotations: marked}},
			want:    v1beta1.ReasonSeveralDefaults,
		},
		"Cordoned": {
			reason:  "We should offer no cordoned class.",
			classes: []class{{annotations: append([]string{v1beta1.CordonedAnnotation, "true"}, marked...)}},
			want:    v1beta1.ReasonDefaultCordoned,
		},
		"Weightless": {
			reason:  "We should offer no class of weight 0.",
			classes: []class{{annotations: append([]string{weight, "0"}, marked...)}},
			want:    v1beta1.ReasonWeightZero,
		},
		"WeightlessRandom": {
			reason:  "We should offer it where weights do not count.",
			claims:  spec(`{choice: {strategy: Random}}`),
			classes: []class{{annotations: append([]string{weight, "0"}, marked...)}},
		},
		"TooManyLabels": {
			reason:  "We should offer no class whose labels are not held.",
			classes: []class{{annotations: marked, labels: 2 * v1beta1.MaxClassLabels}},
			want:    v1beta1.ReasonNeedsWebhook,
		},
		"RoundRobin": {
			reason:  "We should know which class we gave last.",
			claims:  spec(`{choice: {strategy: RoundRobin}}`),
			classes: []class{{annotations: marked}},
			want:    v1beta1.ReasonNeedsWebhook,
		},
		"Annotate": {
			reason:  "We should tell the time, which the API server does not.",
			claims:  spec(`{choice: {annotate: Decision}}`),
			classes: []class{{annotations: marked}},
			want:    v1beta1.ReasonNeedsWebhook,
		},
		"LeastClaims": {
			reason:  "We should not need to choose from one.",
			claims:  spec(`{choice: {strategy: LeastClaims}}`),
			classes: []class{{annotations: marked}},
		},
		"Any": {
			reason:  "We should draw among all.",
			claims:  spec(`{selector: {whenAbsent: Any}}`),
			classes: []class{{annotations: marked}},
			want:    v1beta1.ReasonNeedsWebhook,
		},
		"LeaveAlone": {
			reason:  "We should leave them alone.",
			claims:  spec(`{selector: {whenAbsent: LeaveAlone}}`),
			classes: []class{{annotations: marked}},
			want:    v1beta1.ReasonNeedsWebhook,
		},
		"Score": {
			reason:  "We should see an expression fail.",
			claims:  spec(`{choice: {strategy: LowestScore, score: "class.spec.size"}}`),
			classes: []class{{annotations: marked}},
			want:    v1beta1.ReasonNeedsWebhook,
		},
		"Partition": {
			reason:  "We should see which partition a claim is in.",
			claims:  spec(`{classes: {partition: {claim: "claim.spec.zone", class: "class.spec.zone"}}}`),
			classes: []class{{annotations: marked}},
			want:    v1beta1.ReasonNeedsWebhook,
		},
		"OfferWhen": {
			reason:  "We should see whether the class is offered.",
			kind:    func(s *v1beta1.ClassKindSpec) { s.OfferWhen = "class.metadata.name != ''" },
			classes: []class{{annotations: marked}},
			want:    v1beta1.ReasonNeedsWebhook,
		},
		"DefaultExpression": {
			reason: "We should see which class is default.",
			kind: func(s *v1beta1.ClassKindSpec) {
				s.Default = v1beta1.Source{Expression: "class.metadata.name == 'c0'"}
			},
			classes: []class{{}}, want: v1beta1.ReasonNeedsWebhook,
		},
		"WeightExpression": {
			reason:  "We should see what a class weighs.",
			kind:    func(s *v1beta1.ClassKindSpec) { s.Weight = v1beta1.Source{Expression: "1"} },
			classes: []class{{annotations: marked}},
			want:    v1beta1.ReasonNeedsWebhook,
		},
		"OwnNamespace": {
			reason:  "We should have a default for each namespace.",
			classes: []class{{namespace: "a", annotations: marked}},
			want:    v1beta1.ReasonNeedsWebhook,
		},
		"AllNamespaces": {
			reason:  "We should have one for all of them.",
			claims:  spec(`{classes: {namespaces: {from: All}}}`),
			classes: []class{{namespace: "a", annotations: marked}},
		},
		"NamedNamespace": {
			reason:  "We should count no default that is not offered.",
			claims:  spec(`{classes: {namespaces: {from: Names, names: ["a"]}}}`),
			classes: []class{{namespace: "a", annotations: marked}, {namespace: "b", annotations: marked}},
		},
		"Fault": {
			reason:  "We should not bind by a registration that we do not understand.",
			claims:  spec(`{choice: {seed: {from: "Dice"}}}`),
			classes: []class{{annotations: marked}},
			want:    v1beta1.ReasonUnknownValue,
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newExpressive(func(s *v1beta1.ClaimKindSpec, k *v1beta1.ClassKindSpec) {
				if tc.claims != nil {
					tc.claims(s)
				}
				if tc.kind != nil {
					tc.kind(k)
				}
			})
			kind := inventory.NewClassKind(e.kind, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Pool"}, tc.classes[0].namespace != "", e.claims)
			var all []*inventory.Class
			for i, c := range tc.classes {
				meta := &metav1.ObjectMeta{Namespace: c.namespace, Name: "c" + string(rune('0'+i)), Annotations: map[string]string{}, Labels: map[string]string{}}
				for i := 0; i < len(c.annotations); i += 2 {
					meta.Annotations[c.annotations[i]] = c.annotations[i+1]
				}
				for i := range c.labels {
					meta.Labels["label"+string(rune('a'+i/26))+string(rune('a'+i%26))] = "x"
				}
				all = append(all, kind.NewClass(meta, map[string]any{"metadata": map[string]any{"name": meta.Name}}))
			}
			class, fault := NewView(NewClaimKind(e.claims, e.kind), []*inventory.Classes{inventory.NewClasses(kind, all)}).PolicyDefault(t.Context())
			if tc.want == "" {
				assert.Nil(t, fault, tc.reason)
				assert.Same(t, all[0], class, tc.reason)
				return
			}
			if assert.NotNil(t, fault, tc.reason) {
				assert.Equal(t, tc.want, fault.Reason, "%s: %s", tc.reason, fault.Text)
			}
			assert.Nil(t, class, tc.reason)
		})
	}
}

func TestOrderMatters(t *testing.T) {
	ref := func(path v1beta1.FieldPath) func(*v1beta1.ClaimKindSpec) {
		return func(s *v1beta1.ClaimKindSpec) { s.Reference.Path = path }
	}
	for name, tc := range map[string]struct {
		reason string
		other  func(*v1beta1.ClaimKindSpec)
		want   bool
	}{
		"Apart": {reason: "We should let two references of a claim be.", other: ref(".spec.otherRef")},
		"Others": {
			reason: "We should not care about other claims.",
			other:  func(s *v1beta1.ClaimKindSpec) { ref(".spec.resourceRef")(s); s.Claims.Resource = "others.example.org" },
		},
		"Skipped":    {reason: "We should leave a claim alone that the other kind has bound.", other: ref(".spec.resourceRef"), want: true},
		"InSelector": {reason: "We should heed the selector that the other kind writes.", other: ref(".spec.classSelector.matchLabels"), want: true},
		"Skips": {
			reason: "We should let the other kind come first if it leaves alone what we bind.", want: true,
			other: func(s *v1beta1.ClaimKindSpec) {
				ref(".spec.otherRef")(s)
				s.Claims.SkipIfSet = []v1beta1.Place{{Path: ".spec.classRef"}}
			},
		},
		"Expression": {
			reason: "We should let the other kind come first if an expression looks at what we bind.", want: true,
			other: func(s *v1beta1.ClaimKindSpec) {
				ref(".spec.otherRef")(s)
				s.Claims.When = "has(claim.spec.classRef)"
			},
		},
		"Conflict": {reason: "We should not care about a kind that binds nothing.", other: func(*v1beta1.ClaimKindSpec) {}},
	} {
		t.Run(name, func(t *testing.T) {
			newKind := func(name string) *v1beta1.ClaimKind {
				return &v1beta1.ClaimKind{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.ClaimKindSpec{
					Claims:    v1beta1.Claims{Resource: "claims.example.org", SkipIfSet: []v1beta1.Place{{Path: ".spec.resourceRef"}}},
					Reference: v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.classRef"}},
					Selector:  v1beta1.ClassSelector{Path: ".spec.classSelector"},
				}}
			}
			other := newKind("b")
			tc.other(&other.Spec)
			inventory := NewInventory()
			inventory.SetClaimKind(NewClaimKind(newKind("a")))
			inventory.SetClaimKind(NewClaimKind(other))
			inventory.Open()
			snapshot := inventory.Snapshot()
			fault := snapshot.OrderMatters(snapshot["a"].Kind)
			assert.Equal(t, tc.want, fault != nil, tc.reason)
		})
	}
}
