package selector

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/fuzztest/cost"
	"github.com/classbind/classbind/selector/fuzztest/reference"
	"github.com/classbind/classbind/selector/inventory"
)

// FuzzClaimKind compiles a registration that another release wrote, or an API
// server that checked nothing, and reads, binds and patches a claim of it.
func FuzzClaimKind(f *testing.F) {
	claim := []byte(`{"metadata":{"name":"db","annotations":{"a.b":"c"}},"spec":{"classSelector":{"matchLabels":{"a":"1"}},"a":{"b":7},"c":null}}`)
	for _, spec := range []string{
		`{}`, `null`,
		`{"claims": {"skipIfSet": [{"path":".spec.resourceRef"}]}, "reference": {"path":".spec.classRef","form":"ObjectReference"}, "selector": ` +
			`{"path":".spec.classSelector"}, "choice": {"strategy": "WeightedRandom", "seed": {"from": "Claim"}}, "whenUnmatched": "Admit"}`,
		`{"reference": {"path":".","form":"Name"}, "selector": {"path":""}, "choice": {"strategy": "RoundRobin"}}`,
		`{"claims": {"skipIfSet": [{"path":""},{"path":".."},{"path":"spec"},{"path":".spec.a.b"},{"label":"a/b"},{"annotation":"c/d"}]}, ` +
			`"reference": {"path":".spec.a.b.c"}, "choice": {"strategy": "LeastClaims"}, "whenUnmatched": "BindLater"}`,
		`{"reference": {"form":"TypedLocalObjectReference"}, "choice": {"strategy": "HighestWeight", "seed": {"from": "Request"}}, "whenUnmatched": "Deny"}`,
		`{"reference": {"form":"LocalObjectReference"}, "choice": {"strategy": "Random"}}`,
		`{"reference": {"label":"a.b/c","form":"Name","whenEmpty": "LeaveAlone"}, "selector": {"whenAbsent": "Any"}}`,
		`{"reference": {"annotation":"d","form":"Name"}, "selector": {"annotation":"a.b"}}`,
		`{"reference": {"path":".spec.a","whenEmpty": "LeaveAlone"}}`, `{"reference": {"path":".spec.c.d","whenParentAbsent":"LeaveAlone"}}`,
		`{"selector": {"whenAbsent": "LeaveAlone"}}`, `{"selector": {"whenAbsent": "Never"}}`, `{"reference": {"whenParentAbsent":"Ask"}}`,
		`{"reference": {"form":"Later"}, "choice": {"strategy": "Random"}}`, `{"choice": {"strategy": "External"}}`,
		`{"choice": {"strategy": "Random"}, "whenUnmatched": "Ask"}`, `{"choice": {"strategy": "Random", "seed": {"from": "Lunar"}}}`,
		`{"classes": {"namespaces": {"from":"Selector"}}}`, `{"admission": {"failurePolicy": "Retry"}}`,
		`{"reference": {"path":".spec.c.\"x\u0000<"}}`,
	} {
		f.Add([]byte(spec), claim, byte(2))
	}
	f.Add([]byte(`{}`), claim, byte(0))
	kinds := []*inventory.ClassKind{newKind("as.example.org", "A"), newKind("bs.example.org", "B")}
	var offered []*inventory.Classes
	for _, kind := range kinds {
		offered = append(offered, inventory.NewClasses(kind, []*inventory.Class{
			kind.NewClass(&metav1.ObjectMeta{Name: "x", Labels: map[string]string{"a": "1"}, Annotations: map[string]string{defaultAnnotation: "true"}}, nil),
		}))
	}
	meter := cost.NewMeter(f)
	f.Fuzz(func(t *testing.T, spec, claim []byte, classKinds byte) {
		registration := &v1beta1.ClaimKind{ObjectMeta: metav1.ObjectMeta{Name: "claims.example.org"}}
		if json.Unmarshal(spec, &registration.Spec) != nil || !jsontext.Value(claim).IsValid() {
			return // The API server stores no such object.
		}
		var v *View
		meter.Measure(t, len(spec), func() {
			v = NewView(NewClaimKind(registration), slices.Clone(offered[:int(classKinds)%3]))
		}, spec, claim, classKinds)
		if v.Fault != nil {
			return
		}
		object, err := v.Kind.Reader.DecodeValid(claim)
		if err != nil {
			return
		}
		c := v.Kind.Reader.Read("n", "db", object)
		_, bound := v.Kind.Reader.Reference.BoundTo("n", object)
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
		if object, err = v.Kind.Reader.DecodeValid(patched); err != nil {
			t.Fatal(err)
		}
		if _, bound = v.Kind.Reader.Reference.BoundTo("n", object); !bound {
			t.Errorf("We should bind the claim: %s", patched)
		}
	})
}

// pathPattern and keyPattern are those of the schema.
var (
	pathPattern = regexp.MustCompile(`^([.][A-Za-z_][A-Za-z0-9_-]*){1,10}$`)
	keyPattern  = regexp.MustCompile(`^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)
)

// admissible reports whether the schema allows the path of the reference: only then is it sure to fit into a patch.
func admissible(s *v1beta1.ClaimKindSpec) bool {
	place := s.Reference.Place
	key := (place.Path == "" && s.Reference.Form == v1beta1.Name) && keyPattern.MatchString(string(place.Label+place.Annotation))
	return (key || place.Label+place.Annotation == "" && pathPattern.MatchString(string(place.Path))) && pathPattern.MatchString(string(s.Selector.Path))
}

// fuzzedWorld has classes with labels of few keys and values, so that selectors match
// them, and the same labels by the names of the classes.
type fuzzedWorld struct {
	indexed, changed *View
	labels           map[string]labels.Set
}

func newFuzzedWorld() fuzzedWorld {
	random := rand.New(rand.NewPCG(9, 10)) //nolint:gosec // It has to be reproducible.
	kind, world := newKind("as.example.org", "A"), fuzzedWorld{labels: map[string]labels.Set{}}
	classes := inventory.NewClasses(kind, nil)
	for i := range 50 {
		name, set := fmt.Sprintf("class-%02d", i), randomLabels(random)
		world.labels[name] = set
		classes = classes.With(kind.NewClass(&metav1.ObjectMeta{Name: name, Labels: set}, nil))
	}
	world.indexed = NewView(NewClaimKind(postgres()), []*inventory.Classes{inventory.NewClasses(kind, classes.All())})
	world.changed = NewView(NewClaimKind(postgres()), []*inventory.Classes{classes})
	return world
}

// selectorAttacks are pieces of JSON and of text that took long when repeated.
var selectorAttacks = map[string][]string{
	"field": {`{}`, `{"key":"","operator":""}`, `{"key":"a","operator":"DoesNotExist"}`, `{"key":"a","operator":"In","values":["1"]}`, `null`, `[[]]`, `"<"`},
	"text":  {"!a,", "a,", "a=1,", "a in (1),", "a>1,", "(", "!", "<", " ", "a notin (x,", "\xff"},
}

// FuzzClassSelector reads the field of a claim from JSON.
func FuzzClassSelector(f *testing.F) {
	for _, field := range []string{
		`null`, `{}`, `[]`, `1e999`, `{"matchLabels":{"a":"1"}}`, `{"matchLabels":{"a":null},"matchExpressions":null}`,
		`{"matchLabels":{"a":"1"},"matchLabels":{"b":"2"}}`,
		`{"matchLabels":{"A":"1"},"MatchLabels":{}}`, `{"matchExpressions":[null]}`,
		`{"matchExpressions":[{"key":"a","operator":"In","values":["1","x",null]},{"key":"b","operator":"Exists"}]}`,
		`{"matchExpressions":[{"key":"a","operator":"NotIn","values":["1"]},{"key":"c","operator":"DoesNotExist","values":[]}]}`,
		`{"matchExpressions":[{"key":"a","operator":"Gt","values":["1"]}]}`,
		`{"matchLabels":{"a/b/c":"1"}}`, `{"matchLabels":{"example.org/a":"-"}}`, `{"matchLabels":{"\ud800":"\u003c"}}`, `{"matchExpressions":{"0":{}}}`,
	} {
		f.Add([]byte(field))
	}
	for _, unit := range selectorAttacks["field"] {
		for _, n := range cost.Sizes() {
			f.Add([]byte(`{"matchExpressions":[` + strings.Repeat(unit+",", n) + unit + `]}`))
		}
	}
	fuzzSelector(f, func(text string) (string, any, map[string]string, bool) {
		var value any
		text = reference.SelectorJSON(text)
		if err := json.Unmarshal([]byte(text), &value); err != nil || strings.Contains(text, `\u`) {
			return `{"spec":{"classSelector":` + text + `}}`, nil, nil, false // Half a surrogate is read differently.
		}
		return `{"spec":{"classSelector":` + text + `}}`, value, nil, true
	})
}

// FuzzClassSelectorText reads the annotation of a claim.
func FuzzClassSelectorText(f *testing.F) {
	for _, text := range []string{
		"", " ", "a", "!a", "a=1", "a==1", "a!=1", "a in (1,x)", "a notin (1,,2)", "a>1,a<3", "a in ()", "a,b,!c,d!=x", "example.org/a=1",
		"a=1,", ",a=1", "a = 1 , b", "a in (1", "a b", "a=\u2028", "in in (in)", "notin", "a=1 \x00,b=2",
	} {
		f.Add([]byte(text))
	}
	for _, unit := range selectorAttacks["text"] {
		for _, n := range cost.Sizes() {
			f.Add([]byte(strings.Repeat(unit, n)))
		}
	}
	fuzzSelector(f, func(text string) (string, any, map[string]string, bool) {
		quoted, _ := json.Marshal(text)
		_ = json.Unmarshal(quoted, &text) // As it is without invalid UTF-8.
		return `{"metadata":{"annotations":{"` + v1beta1.ClassSelectorAnnotation + `":` + string(quoted) + `}}}`, nil, map[string]string{
			v1beta1.ClassSelectorAnnotation: text,
		}, true
	})
}

// fuzzSelector makes a claim of the text of its selector. If certain, the reference reads it, too.
func fuzzSelector(f *testing.F, claimOf func(text string) (object string, field any, annotations map[string]string, certain bool)) {
	f.Helper()
	meter := cost.NewMeter(f)
	world := newFuzzedWorld()
	kind := world.indexed.Kind
	f.Fuzz(func(t *testing.T, text []byte) {
		object, field, annotations, certain := claimOf(string(text))
		raw := []byte(object)
		if !jsontext.Value(raw).IsValid() {
			return
		}
		var (
			got     claim.Claim
			refused string
		)
		meter.Measure(t, len(raw), func() {
			var decoded map[string]any
			var err error
			if decoded, err = kind.Reader.DecodeValid(raw); err != nil {
				got, refused = claim.Claim{}, err.Error()
				return
			}
			in := kind.Reader.Read("n", "db", decoded)
			got, refused = in.Claim, ""
			if len(in.Problems) > 0 {
				refused = in.Problems.ToAggregate().Error()
			}
		}, text)
		if len(refused) > 16<<10 {
			t.Errorf("We should say in short what is wrong, and not in %d bytes to %d: %.500s", len(refused), len(raw), refused)
		}
		if t.Failed() || !certain {
			return
		}
		want, err := reference.Of(field, annotations)
		switch {
		case refused != "":
			if err == nil && !want.MayBeRefused {
				t.Errorf("We should take a selector that Kubernetes takes: %s", refused)
			}
			return
		case err != nil:
			t.Errorf("We should refuse a selector that Kubernetes refuses, or that is too large: %+v", got)
			return
		case (got.Selector == nil) != (want.Selector == nil):
			t.Errorf("We should see whether there is a selector: %v and not %v", want.Selector, got.Selector)
			return
		case want.Selector == nil:
			return
		}
		for name, v := range map[string]*View{"indexed": world.indexed, "changed": world.changed} {
			wanted, found := world.selected(want.Selector), asked(v, got)
			if !slices.Equal(wanted, found) {
				t.Errorf("We should find the classes that match %q, %s: %q and not %q", want.Selector, name, wanted, found)
			}
		}
	})
}

// selected asks for each class by itself whether it matches.
func (w *fuzzedWorld) selected(s labels.Selector) (found []string) {
	for _, name := range slices.Sorted(maps.Keys(w.labels)) {
		if s.Matches(w.labels[name]) {
			found = append(found, name)
		}
	}
	return found
}

func asked(v *View, c claim.Claim) (found []string) {
	v.each(Subject{Claim: c, View: v}, func(c *inventory.Class, _ int8) bool {
		found = append(found, c.Name)
		return true
	})
	slices.Sort(found)
	return found
}
