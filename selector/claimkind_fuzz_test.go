package selector

import (
	"encoding/json"
	"regexp"
	"slices"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/fuzztest/cost"
)

// FuzzClaimKind compiles a registration that another release wrote, or an API
// server that checked nothing, and reads, binds and patches a claim of it.
func FuzzClaimKind(f *testing.F) {
	claim := []byte(`{"metadata":{"name":"db","annotations":{"a.b":"c"}},"spec":{"classSelector":{"matchLabels":{"a":"1"}},"a":{"b":7},"c":null}}`)
	for _, spec := range []string{
		`{}`, `null`, `{"reference":{"path":".spec.classRef","form":"ObjectReference"},"classSelector":{"path":".spec.classSelector"},"skipIfSet":[{"path":".spec.resourceRef"}],"strategy":"WeightedRandom","seed":"Claim","whenUnmatched":"Admit"}`,
		`{"reference":{"path":".","form":"Name"},"classSelector":{"path":""},"strategy":"RoundRobin"}`, `{"reference":{"path":".spec.a.b.c"},"skipIfSet":[{"path":""},{"path":".."},{"path":"spec"},{"path":".spec.a.b"},{"label":"a/b"},{"annotation":"c/d"}],"strategy":"LeastClaims","whenUnmatched":"BindLater"}`,
		`{"reference":{"form":"TypedLocalObjectReference"},"strategy":"HighestWeight","whenUnmatched":"Deny","seed":"Request"}`, `{"reference":{"form":"LocalObjectReference"},"strategy":"Random"}`,
		`{"reference":{"label":"a.b/c","form":"Name"},"whenNoSelector":"Any"}`, `{"reference":{"annotation":"d","form":"Name","emptyIsUnset":true},"classSelector":{"annotation":"a.b"}}`,
		`{"reference":{"path":".spec.a","emptyIsUnset":true}}`, `{"reference":{"path":".spec.c.d","whenParentAbsent":"LeaveAlone"}}`, `{"whenNoSelector":"LeaveAlone"}`, `{"whenNoSelector":"Never"}`, `{"reference":{"whenParentAbsent":"Ask"}}`,
		`{"reference":{"form":"Later"},"strategy":"Random"}`, `{"strategy":"External"}`, `{"strategy":"Random","whenUnmatched":"Ask"}`, `{"strategy":"Random","seed":"Lunar"}`, `{"classNamespaces":{"from":"Selector"}}`, `{"failurePolicy":"Retry"}`, `{"reference":{"path":".spec.c.\"x\u0000<"}}`,
	} {
		f.Add([]byte(spec), claim, byte(2))
	}
	f.Add([]byte(`{}`), claim, byte(0))
	kinds := []*ClassKind{newKind("as.example.org", "A"), newKind("bs.example.org", "B")}
	var offered []*Classes
	for _, kind := range kinds {
		offered = append(offered, NewClasses(kind, []*Class{kind.NewClass(&metav1.ObjectMeta{Name: "x", Labels: map[string]string{"a": "1"}, Annotations: map[string]string{defaultAnnotation: "true"}}, nil)}))
	}
	meter := cost.NewMeter(f)
	f.Fuzz(func(t *testing.T, spec, claim []byte, classKinds byte) {
		registration := &v1alpha1.ClaimKind{ObjectMeta: metav1.ObjectMeta{Name: "claims.example.org"}}
		if json.Unmarshal(spec, &registration.Spec) != nil || !isValid(claim) {
			return // The API server stores no such object.
		}
		var v *View
		meter.Measure(t, len(spec), func() {
			v = NewView(NewClaimKind(registration), slices.Clone(offered[:int(classKinds)%3]))
		}, spec, claim, classKinds)
		if known := knownValues(&registration.Spec); !known && v.Fault == nil {
			t.Errorf("We should take for a fault a value that this release does not know: %+v", registration.Spec)
		} else if v.Fault != nil {
			return
		}
		object, err := v.Kind.DecodeValid(claim)
		if err != nil {
			return
		}
		c := v.Kind.Read("n", "db", object)
		_, bound := v.Kind.BoundTo("n", object)
		if c.LeftAlone != "" || bound || len(c.Problems) > 0 {
			return
		}
		decision := choose(v, c.Claim, 1)
		decision.Claim = c
		_ = decision.Warning()
		if decision.Class == nil || !admissible(&registration.Spec) {
			return
		}
		patch, err := jsonpatch.DecodePatch(decision.Patch())
		if err != nil {
			t.Fatal(err)
		}
		patched, err := patch.Apply(claim)
		if err != nil {
			t.Fatalf("We should make a patch that fits the claim: %v", err)
		}
		if object, err = v.Kind.DecodeValid(patched); err != nil {
			t.Fatal(err)
		}
		if _, bound = v.Kind.BoundTo("n", object); !bound {
			t.Errorf("We should bind the claim: %s", patched)
		}
	})
}

// pathPattern and keyPattern are those of the schema.
var (
	pathPattern = regexp.MustCompile(`^([.][A-Za-z_][A-Za-z0-9_-]*){1,10}$`)
	keyPattern  = regexp.MustCompile(`^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)
)

// knownValues reports whether this release knows all values of the enums. An absent value
// is the default.
func knownValues(s *v1alpha1.ClaimKindSpec) bool {
	_, strategy := strategies[s.Strategy]
	form := slices.ContainsFunc(claim.Forms, func(f claim.Form) bool { return f.Name == s.Reference.Form })
	return (form || s.Reference.Form == "") && (strategy || s.Strategy == "") &&
		slices.Contains([]v1alpha1.Seed{"", v1alpha1.SeedClaim, v1alpha1.SeedRequest}, s.Seed) &&
		slices.Contains([]v1alpha1.WhenUnmatched{"", v1alpha1.Admit, v1alpha1.Deny, v1alpha1.BindLater}, s.WhenUnmatched) &&
		slices.Contains([]v1alpha1.WhenNoSelector{"", v1alpha1.NoSelectorDefault, v1alpha1.NoSelectorAny, v1alpha1.NoSelectorLeaveAlone}, s.WhenNoSelector) &&
		slices.Contains([]v1alpha1.WhenParentAbsent{"", v1alpha1.CreateParent, v1alpha1.LeaveClaimAlone}, s.Reference.WhenParentAbsent) &&
		slices.Contains([]v1alpha1.ClassNamespacesFrom{"", v1alpha1.FromSameAsClaim, v1alpha1.FromAll, v1alpha1.FromNames}, s.ClassNamespaces.From) &&
		slices.Contains([]v1alpha1.FailurePolicy{"", v1alpha1.Fail, v1alpha1.Ignore}, s.FailurePolicy)
}

// admissible reports whether the schema allows the path of the reference: only then is it
// sure to fit into a patch.
func admissible(s *v1alpha1.ClaimKindSpec) bool {
	place := s.Reference.Place()
	key := (place.Path == "" && s.Reference.Form == v1alpha1.Name) && keyPattern.MatchString(string(place.Label+place.Annotation))
	return (key || place.Label+place.Annotation == "" && pathPattern.MatchString(string(place.Path))) && pathPattern.MatchString(string(s.ClassSelector.Path))
}
