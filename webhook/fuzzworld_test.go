package webhook

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/fuzztest/reference"
	"github.com/classbind/classbind/selector/inventory"
)

// plainClass is a class as the reference implementation has it.
type plainClass struct {
	group, kind, plural, namespace, name string
	labels                               map[string]string
	weight                               int64
	isDefault, cordoned, terminating     bool
}

// world has the classes for fuzzed reviews: class kinds of both scopes, whose classes
// differ in everything that a filter or a selector looks at.
type world struct {
	claimKinds map[string]v1beta1.ClaimKindSpec // by plural
	// from which namespaces the claims of a kind are offered classes: All, the claim's
	// own, or one by its name.
	from      map[string]string
	classes   []plainClass
	inventory *selector.Inventory
	tally     selector.Tally
}

// The claim kinds of a world, by their plural.
var worldClaimKinds = []string{"weighteds", "heaviests", "randoms", "denieds", "waitings", "leasts", "turns", "locals"}

const worldGroup = "fuzz.example.org"

// newWorld of so many classes.
func newWorld(classes int) *world {
	w := &world{claimKinds: map[string]v1beta1.ClaimKindSpec{}, from: map[string]string{}, inventory: selector.NewInventory()}
	random := rand.New(rand.NewPCG(7, 8)) //nolint:gosec // It has to be reproducible.
	for i := range classes {
		w.classes = append(w.classes, randomClass(random, i, classes))
	}
	for _, plural := range worldClaimKinds {
		w.register(plural)
	}
	for i, plural := range []string{"as", "bs", "cs"} {
		kind := inventory.NewClassKind(&v1beta1.ClassKind{
			ObjectMeta: metav1.ObjectMeta{Name: plural + "." + worldGroup},
			Spec: v1beta1.ClassKindSpec{
				ClaimKinds: servedBy(plural),
				Default:    v1beta1.Source{Annotation: "default"}, Weight: v1beta1.Source{Annotation: "weight"},
			},
		}, schema.GroupVersionKind{Group: worldGroup, Version: "v1", Kind: string(rune('A' + i))}, plural == "cs")
		var of []*inventory.Class
		for i := range w.classes {
			if w.classes[i].plural == plural {
				of = append(of, kind.NewClass(w.classes[i].meta(), nil))
			}
		}
		w.inventory.SetClasses(inventory.NewClasses(kind, of))
	}
	w.inventory.Open()
	return w
}

// servedBy returns the claim kinds that a class kind serves: all, except that only the
// namespaced class kind serves the one whose reference names no kind.
func servedBy(classKind string) (links []v1beta1.ClaimKindLink) {
	for _, plural := range worldClaimKinds {
		if plural != "locals" || classKind == "cs" {
			links = append(links, v1beta1.ClaimKindLink{Name: plural + "." + worldGroup})
		}
	}
	return links
}

func (w *world) register(plural string) {
	spec := v1beta1.ClaimKindSpec{
		Claims:        v1beta1.Claims{SkipIfSet: []v1beta1.Place{{Path: ".spec.resourceRef"}}},
		Reference:     v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.classRef"}, Form: v1beta1.ObjectReference},
		Selector:      v1beta1.ClassSelector{Path: ".spec.classSelector"},
		Choice:        v1beta1.Choice{Strategy: v1beta1.WeightedRandom, Seed: v1beta1.SeedClaim},
		WhenUnmatched: v1beta1.Admit,
	}
	from, names := "SameAsClaim", ""
	switch plural {
	case "heaviests":
		spec.Choice.Strategy, from = v1beta1.HighestWeight, "All"
	case "randoms":
		spec.Choice.Strategy = v1beta1.Random
	case "denieds":
		spec.WhenUnmatched, from = v1beta1.Deny, "All"
	case "waitings":
		spec.WhenUnmatched, spec.Reference.Form = v1beta1.BindLater, v1beta1.TypedLocalObjectReference
	case "leasts":
		spec.Choice.Strategy = v1beta1.LeastClaims
	case "turns":
		spec.Choice.Strategy = v1beta1.RoundRobin
	case "locals":
		spec.Reference.Form, from, names = v1beta1.LocalObjectReference, "Names", `"team-a"`
	}
	w.from[plural] = from
	if err := json.Unmarshal(fmt.Appendf(nil, `{"classes": {"namespaces": {"from":%q,"names":[%s]}}}`, from, names), &spec); err != nil {
		panic(err)
	}
	name := plural + "." + worldGroup
	w.claimKinds[plural] = spec
	kind := selector.NewClaimKind(&v1beta1.ClaimKind{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec})
	if kind.Strategy.Counted {
		kind.Tally = &w.tally
	}
	w.inventory.SetClaimKind(kind)
}

// randomClass has labels of few keys and values, so that selectors match them. Some
// classes have many labels whose keys take long to compare.
func randomClass(random *rand.Rand, i, of int) plainClass {
	plural := []string{"as", "as", "bs", "cs"}[random.IntN(4)]
	c := plainClass{
		group: worldGroup, kind: strings.ToUpper(plural[:1]), plural: plural, name: fmt.Sprintf("class-%05d", i),
		labels: map[string]string{}, weight: int64(random.IntN(4)),
		isDefault: random.IntN(of) < 4, cordoned: random.IntN(16) == 0, terminating: random.IntN(16) == 0,
	}
	if plural == "cs" {
		c.namespace = []string{"team-a", "team-b", "n"}[random.IntN(3)]
	}
	for _, key := range []string{"a", "b", "c", "d"} {
		if random.IntN(3) > 0 {
			c.labels[key] = []string{"", "1", "2", "3", "x"}[random.IntN(5)]
		}
	}
	c.labels["tier"] = []string{"gold", "silver"}[random.IntN(2)]
	more := 4
	if i%10 == 0 {
		more = 50
	}
	for j := range more {
		c.labels[fmt.Sprintf("%skey-%03d", reference.LongPrefix, j)] = strings.Repeat("v", 60) + strconv.Itoa(i%7)
	}
	return c
}

func (c *plainClass) meta() *metav1.ObjectMeta {
	m := &metav1.ObjectMeta{Namespace: c.namespace, Name: c.name, Labels: c.labels, Annotations: map[string]string{"weight": strconv.FormatInt(c.weight, 10)}}
	if c.isDefault {
		m.Annotations["default"] = "true"
	}
	if c.cordoned {
		m.Annotations[v1beta1.CordonedAnnotation] = "true"
	}
	if c.terminating {
		m.DeletionTimestamp = &metav1.Time{Time: time.Unix(1_800_000_000, 0)}
	}
	return m
}

// The worlds are made once: one for the reference implementation, and one to measure
// in.
var (
	smallWorld = sync.OnceValue(func() *world { return newWorld(60) })
	largeWorld = sync.OnceValue(func() *world { return newWorld(10_000) })
)

// check what holds for every answer, whatever is asked.
func (a *post) check(t *testing.T, length int) {
	t.Helper()
	const most = 32 << 10
	switch body := a.answers.body.String(); {
	case a.status >= 500:
		t.Errorf("We should not take for ours a fault that is its author's: %d %s", a.status, short(body))
	case a.status == http.StatusOK && !strings.HasPrefix(body, `{"kind":"AdmissionReview"`):
		t.Errorf("We should answer with a review: %s", short(body))
	case len(body) > most:
		t.Errorf("We should answer in short, and not in %d bytes to %d: %s", len(body), length, short(body))
	case a.logged.longest > most:
		t.Errorf("We should log a line that is short, and not of %d bytes for %d", a.logged.longest, length)
	}
}

func short(text string) string { return text[:min(len(text), 1000)] }

// lineWriter keeps the length of the longest line.
type lineWriter struct{ longest int }

func (w *lineWriter) Write(p []byte) (int, error) {
	w.longest = max(w.longest, len(p))
	return len(p), nil
}

// offers reports whether claims of a kind and a namespace are offered a class.
func (w *world) offers(claimKind, namespace string, c *plainClass) bool {
	switch {
	case claimKind == "locals" && c.plural != "cs":
		return false
	case c.namespace == "", w.from[claimKind] == "All":
		return true
	case w.from[claimKind] == "Names":
		return c.namespace == "team-a"
	}
	return c.namespace == namespace
}
