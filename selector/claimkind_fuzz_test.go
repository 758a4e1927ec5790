package selector

import (
	"encoding/json"
	"regexp"
	"slices"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/fuzztest/cost"
	"github.com/classbind/classbind/selector/inventory"
)

// FuzzClaimKind compiles a registration that another release wrote, or an API
// server that checked nothing, and reads, binds and patches a claim of it.
func FuzzClaimKind(f *testing.F) {
	claim := []byte(`{"metadata":{"name":"db","annotations":{"a.b":"c"}},"spec":{"classSelector":{"matchLabels":{"a":"1"}},"a":{"b":7},"c":null}}`)
	for _, spec := range []string{
		`{}`, `null`, `{"claims": {"skipIfSet": [{"path":".spec.resourceRef"}]}, "reference": {"path":".spec.classRef","form":"ObjectReference"}, "selector": {"path":".spec.classSelector"}, "choice": {"strategy": "WeightedRandom", "seed": "Claim"}, "whenUnmatched": "Admit"}`,
		`{"reference": {"path":".","form":"Name"}, "selector": {"path":""}, "choice": {"strategy": "RoundRobin"}}`, `{"claims": {"skipIfSet": [{"path":""},{"path":".."},{"path":"spec"},{"path":".spec.a.b"},{"label":"a/b"},{"annotation":"c/d"}]}, "reference": {"path":".spec.a.b.c"}, "choice": {"strategy": "LeastClaims"}, "whenUnmatched": "BindLater"}`,
		`{"reference": {"form":"TypedLocalObjectReference"}, "choice": {"strategy": "HighestWeight", "seed": "Request"}, "whenUnmatched": "Deny"}`, `{"reference": {"form":"LocalObjectReference"}, "choice": {"strategy": "Random"}}`,
		`{"reference": {"label":"a.b/c","form":"Name"}, "selector": {"whenAbsent": "Any"}}`, `{"reference": {"annotation":"d","form":"Name","whenEmpty": "Bind"}, "selector": {"annotation":"a.b"}}`,
		`{"reference": {"path":".spec.a","whenEmpty": "Bind"}}`, `{"reference": {"path":".spec.c.d","whenParentAbsent":"LeaveAlone"}}`, `{"selector": {"whenAbsent": "LeaveAlone"}}`, `{"selector": {"whenAbsent": "Never"}}`, `{"reference": {"whenParentAbsent":"Ask"}}`,
		`{"reference": {"form":"Later"}, "choice": {"strategy": "Random"}}`, `{"choice": {"strategy": "External"}}`, `{"choice": {"strategy": "Random"}, "whenUnmatched": "Ask"}`, `{"choice": {"strategy": "Random", "seed": "Lunar"}}`, `{"classes": {"namespaces": {"from":"Selector"}}}`, `{"admission": {"failurePolicy": "Retry"}}`, `{"reference": {"path":".spec.c.\"x\u0000<"}}`,
	} {
		f.Add([]byte(spec), claim, byte(2))
	}
	f.Add([]byte(`{}`), claim, byte(0))
	kinds := []*inventory.ClassKind{newKind("as.example.org", "A"), newKind("bs.example.org", "B")}
	var offered []*inventory.Classes
	for _, kind := range kinds {
		offered = append(offered, inventory.NewClasses(kind, []*inventory.Class{kind.NewClass(&metav1.ObjectMeta{Name: "x", Labels: map[string]string{"a": "1"}, Annotations: map[string]string{defaultAnnotation: "true"}}, nil)}))
	}
	meter := cost.NewMeter(f)
	f.Fuzz(func(t *testing.T, spec, claim []byte, classKinds byte) {
		registration := &v1beta1.ClaimKind{ObjectMeta: metav1.ObjectMeta{Name: "claims.example.org"}}
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

// knownValues reports whether this release knows all values of the enums. An absent value is the default.
func knownValues(s *v1beta1.ClaimKindSpec) bool {
	_, strategy := strategies[s.Choice.Strategy]
	form := slices.ContainsFunc(claim.Forms, func(f claim.Form) bool { return f.Name == s.Reference.Form })
	return (form || s.Reference.Form == "") && (strategy || s.Choice.Strategy == "") &&
		slices.Contains([]v1beta1.Seed{"", v1beta1.SeedClaim, v1beta1.SeedRequest}, s.Choice.Seed) &&
		slices.Contains([]v1beta1.WhenUnmatched{"", v1beta1.Admit, v1beta1.Deny, v1beta1.BindLater}, s.WhenUnmatched) &&
		slices.Contains([]v1beta1.WhenAbsent{"", v1beta1.NoSelectorDefault, v1beta1.NoSelectorAny, v1beta1.NoSelectorLeaveAlone}, s.Selector.WhenAbsent) &&
		slices.Contains([]v1beta1.WhenParentAbsent{"", v1beta1.CreateParent, v1beta1.LeaveClaimAlone}, s.Reference.WhenParentAbsent) &&
		slices.Contains([]v1beta1.ClassNamespacesFrom{"", v1beta1.FromSameAsClaim, v1beta1.FromAll, v1beta1.FromNames}, s.Classes.Namespaces.From) &&
		slices.Contains([]v1beta1.FailurePolicy{"", v1beta1.Fail, v1beta1.Ignore}, s.Admission.FailurePolicy)
}

// admissible reports whether the schema allows the path of the reference: only then is it sure to fit into a patch.
func admissible(s *v1beta1.ClaimKindSpec) bool {
	place := s.Reference.Place
	key := (place.Path == "" && s.Reference.Form == v1beta1.Name) && keyPattern.MatchString(string(place.Label+place.Annotation))
	return (key || place.Label+place.Annotation == "" && pathPattern.MatchString(string(place.Path))) && pathPattern.MatchString(string(s.Selector.Path))
}
