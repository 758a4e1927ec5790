package webhook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/fuzztest/cost"
	"github.com/classbind/classbind/selector/fuzztest/reference"
	"github.com/classbind/classbind/selector/inventory"
)

// costlyFits walk lists and maps of the claim and of the class, and call what costs the most for a string.
var costlyFits = []string{
	"claim.spec.a.exists(z, z in class.spec.list)",
	"claim.spec.a.all(x, class.spec.list.exists(y, x == y))",
	"claim.spec.a == class.spec.list",
	"claim.spec.a.map(x, claim.spec.a) == class.spec.list.map(x, class.spec.list)",
	"claim.spec.b.matches('^([a-z]+[0-9]?)*$') && class.spec.text.matches('(a|aa|b)+c')",
	"claim.spec.b.split('').all(c, class.spec.text.contains(c))",
	"claim.spec.b.replace('a', 'bcd').indexOf(class.spec.text) < 0",
	"'%s %s'.format([claim.spec.a, class.spec.map]) != claim.spec.b",
	"class.spec.map.all(k, class.spec.map[k] == claim.spec.a || claim.spec.b.startsWith(k))",
	"claim.spec.a.all(q, quantity(q).isLessThan(quantity(class.spec.size)))",
	"sets.contains(class.spec.list, claim.spec.a) || sets.intersects(claim.spec.a, class.spec.list)",
	"claim.spec.a.map(x, {x: class.spec.list}).size() > class.spec.list.size()",
	"claim.spec.a.sum() < class.spec.list.size() || claim.spec.a.isSorted()",
	"claim.spec.n > 1 || claim.spec.n * 3 == class.spec.n + 1",
	"claim.spec.a.all(t, timestamp(t).getHours(claim.spec.b) > class.spec.n)",
	"url(claim.spec.b).getQuery() == class.spec.map || claim.spec.b.findAll('.').size() > class.spec.n",
}

// fitsWorld has 10,000 classes, some of them with fields as long as they may be, and a claim kind for each of costlyFits: one that draws,
// and one that scores.
var fitsWorld = sync.OnceValue(func() *world {
	w := &world{inventory: selector.NewInventory()}
	list, entries := make([]any, 990), map[string]any{}
	for i := range list {
		list[i] = fmt.Sprintf("a%d", i)
		entries[fmt.Sprintf("key-%d", i)] = ""
	}
	classKind := &v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: "fits." + worldGroup}}
	var kinds []*v1beta1.ClaimKind
	for i, fit := range costlyFits {
		spec := v1beta1.ClaimKindSpec{
			Reference:     v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.classRef"}, Form: v1beta1.ObjectReference},
			Selector:      v1beta1.ClassSelector{Path: ".spec.classSelector", WhenAbsent: v1beta1.NoSelectorAny},
			Classes:       v1beta1.Classes{Fits: []v1beta1.Fit{{Name: "Fit", Expression: v1beta1.Expression(fit)}}},
			WhenUnmatched: v1beta1.Deny,
		}
		scored := spec
		scored.Choice.Strategy, scored.Classes.Fits, scored.Choice.Score = v1beta1.LowestScore, nil, v1beta1.Expression("("+fit+") ? 1 : 2")
		for name, spec := range map[string]v1beta1.ClaimKindSpec{fmt.Sprintf("fits%d", i): spec, fmt.Sprintf("scores%d", i): scored} {
			k := &v1beta1.ClaimKind{ObjectMeta: metav1.ObjectMeta{Name: name + "." + worldGroup}, Spec: spec}
			kinds = append(kinds, k)
			classKind.Spec.ClaimKinds = append(classKind.Spec.ClaimKinds, v1beta1.ClaimKindLink{Name: k.Name})
			w.inventory.SetClaimKind(selector.NewClaimKind(k, classKind))
		}
	}
	compiled := inventory.NewClassKind(classKind, schema.GroupVersionKind{Group: worldGroup, Version: "v1", Kind: "Fit"}, false, kinds...)
	var classes []*inventory.Class
	for i := range 10_000 {
		spec := map[string]any{"list": list[:i%7], "map": map[string]any{"a": "b"}, "text": "aab", "size": "10Gi", "n": int64(i % 5)}
		if i%100 == 0 {
			spec = map[string]any{"list": list, "map": entries, "text": strings.Repeat("a", 16_000), "size": strings.Repeat("9", 60), "n": int64(i)}
		}
		classes = append(classes, compiled.NewClass(&metav1.ObjectMeta{Name: fmt.Sprintf("class-%05d", i)}, map[string]any{"spec": spec}))
	}
	w.inventory.SetClasses(inventory.NewClasses(compiled, classes))
	w.inventory.Open()
	return w
})

// FuzzFits puts values that expressions walk into a claim, and measures what that costs with 10,000 classes.
func FuzzFits(f *testing.F) {
	for which := range byte(2 * len(costlyFits)) { //nolint:gosec // There are few.
		f.Add([]byte(`["a1","a2"]`), []byte(`"aab"`), byte(1), which)
		if !cost.Fuzzing() && !testing.Short() {
			for _, element := range []string{`""`, `"a98"`, `"zz"`, "[]", "{}", "1", `"1e3"`, `"9999999999999999999999999999"`, `"2024-01-01T00:00:00Z"`} {
				f.Add([]byte(element), []byte(`"`+strings.Repeat("a", 16_000)+`"`), byte(250), which)
				f.Add([]byte(element), []byte(`"Europe/Paris"`), byte(40), which)
				f.Add([]byte(element), []byte(`"http://a?`+strings.Repeat("a=b&", 3_900)+`"`), byte(9), which)
			}
		}
	}
	meter, w := cost.NewMeter(f).OfCPU(), fitsWorld()
	binder := w.binder()
	asked := newPost(byResource(binder))
	f.Fuzz(func(t *testing.T, element, text []byte, times, which byte) {
		body := fitReview(string(element), string(text), times, which)
		meter.Measure(t, len(body), func() { asked.ask(body) }, element, text, times, which)
		asked.checkFit(t, len(body))
		w.tally.Expire(time.Now().Add(time.Hour))
	})
}

// fitReview is a claim with lists of an element, which one of costlyFits walks, and a text, both JSON.
func fitReview(element, text string, times, which byte) string {
	i := int(which) / 2 % len(costlyFits)
	plural := fmt.Sprintf([]string{"fits%d", "scores%d"}[which%2], i)
	a := "[" + strings.TrimSuffix(strings.Repeat(element+",", 4*int(times)), ",") + "]"
	return fmt.Sprintf(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","kind":{"group":%q,"version":"v1","kind":"Fit"},`+
		`"resource":{"group":%q,"version":"v1","resource":%q},"name":"db","namespace":"team-a","operation":"CREATE","object":{"metadata":{"name":"db"},`+
		`"spec":{"a":%s,"b":%s,"n":%d}}}}`, worldGroup, worldGroup, plural, a, text, times)
}

// checkFit does what check does, but takes it that one claim may be too much for 10,000 classes.
func (a *post) checkFit(t *testing.T, length int) {
	t.Helper()
	if a.status != http.StatusServiceUnavailable || !strings.Contains(a.answers.body.String(), "cost too much CPU for so many classes") {
		a.check(t, length)
	}
}

// plainClass is a class as the reference implementation has it.
type plainClass struct {
	group, kind, plural, namespace, name string
	labels                               map[string]string
	weight                               int64
	isDefault, cordoned, terminating     bool
}

// world has the classes for fuzzed reviews: class kinds of both scopes, whose classes differ in everything that a filter or a selector
// looks at.
type world struct {
	claimKinds map[string]v1beta1.ClaimKindSpec // by plural
	// from which namespaces the claims of a kind are offered classes: All, the claim's own, or one by its name.
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
				Default:    v1beta1.Source{Annotation: "default"},
				Weight:     v1beta1.Source{Annotation: "weight"},
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

// servedBy returns the claim kinds that a class kind serves: all, except that only the namespaced class kind serves the one whose reference
// names no kind.
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
		Choice:        v1beta1.Choice{Strategy: v1beta1.WeightedRandom, Seed: v1beta1.Seed{From: v1beta1.SeedClaim}},
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

// randomClass has labels of few keys and values, so that selectors match them. Some classes have many labels whose keys take long to
// compare.
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

// The worlds are made once: one for the reference implementation, and one to measure in.
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

// binder of a world, in which nothing changes.
func (w *world) binder() *Binder {
	return &Binder{
		Snapshot:  w.inventory.Snapshot,
		ClaimKind: asClaimKind(false, nil),
		Decider:   &selector.Decider{Fresh: func() uint64 { return 1 }, Now: time.Now},
	}
}

// FuzzBind posts any bytes to /bind, with 10,000 classes behind it.
func FuzzBind(f *testing.F) {
	for _, c := range bindSeeds() {
		if body := c.review(); len(body) < 4<<10 || !cost.Fuzzing() {
			f.Add([]byte(body))
		}
	}
	for _, body := range []string{"", "null", "[]", `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":null}`, asUpdate(boundToGold, "{}")} {
		f.Add([]byte(body))
	}
	if !cost.Fuzzing() {
		f.Add(bytes.Repeat([]byte("["), 1<<20))
		f.Add([]byte(`{"kind":"` + strings.Repeat("<", 1<<20) + `"}`))
	}
	w := largeWorld()
	fuzzBodies(f, byResource(w.binder()), func() { w.tally.Expire(time.Now().Add(time.Hour)) })
}

// fuzzBodies posts any bytes, each after a reset.
func fuzzBodies(f *testing.F, review Reviewer, reset func()) {
	f.Helper()
	f.Add([]byte(wholeReview))
	meter, a := cost.NewMeter(f), newPost(review)
	f.Fuzz(func(t *testing.T, body []byte) {
		text := string(body)
		meter.Measure(t, len(text), func() {
			reset()
			a.ask(text)
		}, body)
		a.check(t, len(text))
	})
}

// FuzzBindClaim puts what the author of a claim chooses into a review. It measures the cost with 10,000 classes, and compares the answer
// for 60 classes with the reference.
func FuzzBindClaim(f *testing.F) {
	for _, c := range bindSeeds() {
		if len(c.selector)+len(c.annotation) < 4<<10 || !cost.Fuzzing() {
			f.Add([]byte(c.selector), c.annotation, []byte(c.element), c.times, c.namespace, c.name, c.which)
		}
	}
	meter, large, small := cost.NewMeter(f), largeWorld(), smallWorld()
	crowd, few := newPost(byResource(large.binder())), newPost(byResource(small.binder()))
	f.Fuzz(func(t *testing.T, selector []byte, annotation string, element []byte, times byte, namespace, name string, which byte) {
		c := fuzzedClaim{string(selector), annotation, string(element), times, namespace, name, which}
		body := c.review()
		meter.Measure(t, len(body), func() { crowd.ask(body) }, selector, annotation, element, times, namespace, name, which)
		crowd.check(t, len(body))
		if t.Failed() {
			return
		}
		large.tally.Expire(time.Now().Add(time.Hour))
		small.tally.Expire(time.Now().Add(time.Hour))
		few.ask(body)
		few.check(t, len(body))
		if strings.Contains(c.selector+c.element, `\u`) {
			return // One decoder replaces half a surrogate, the other refuses it.
		}
		want := small.decide(c)
		if got := answered(t, few); !want.allows(got) {
			t.Errorf("We should decide as the reference does: want %v, got %v for %s", want, got, short(body))
		}
	})
}

// fuzzedClaim is what its author chooses.
type fuzzedClaim struct {
	// selector is JSON, or a program.
	selector   string
	annotation string
	// element of the selector's list, or else of the annotation, repeated by times.
	element string
	times   byte

	namespace, name string
	// which claim kind, and other choices.
	which byte
}

const (
	dryRun    = 1 << 5
	generated = 1 << 6
)

func (c *fuzzedClaim) claimKind() string { return worldClaimKinds[int(c.which)%len(worldClaimKinds)] }

// repeated is the element many times: authors can easily make texts long.
func (c *fuzzedClaim) repeated(separator string) string {
	const doubling, most = 240, 128 << 10
	n := 1
	if c.times > doubling {
		n = 1 << (c.times - doubling)
	}
	if most := most / (len(c.element) + 1); n > most {
		n = max(1, most)
	}
	return strings.Repeat(c.element+separator, n-1) + c.element
}

// object of the claim, as JSON.
func (c *fuzzedClaim) object() string {
	spec, metadata := "{}", map[string]any{"namespace": c.namespace}
	switch {
	case c.element == "" && c.selector != "":
		spec = `{"classSelector":` + reference.SelectorJSON(c.selector) + `}`
	case c.element != "" && c.selector != "":
		element := fuzzedClaim{element: reference.RequirementJSON(c.element), times: c.times}
		spec = `{"classSelector":{"matchExpressions":[` + element.repeated(",") + `]}}`
	case c.element != "":
		c.annotation = c.repeated("")
	}
	if c.annotation != "" {
		metadata["annotations"] = map[string]string{v1beta1.ClassSelectorAnnotation: c.annotation}
	}
	if c.which&generated != 0 {
		metadata["generateName"] = c.name
	} else {
		metadata["name"] = c.name
	}
	text, _ := json.Marshal(metadata)
	return `{"metadata":` + string(text) + `,"spec":` + spec + `}`
}

func (c *fuzzedClaim) review() string { return c.reviewOf(c.object()) }

// reviewOf another object than its own.
func (c *fuzzedClaim) reviewOf(object string) string {
	name := c.name
	if c.which&generated != 0 {
		name = ""
	}
	namespace, _ := json.Marshal(c.namespace)
	quoted, _ := json.Marshal(name)
	return fmt.Sprintf(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"5e1f","kind":{"group":%[1]q,`+
		`"version":"v1","kind":"Claim"},`+
		`"resource":{"group":%[1]q,"version":"v1","resource":%[2]q},"name":%[3]s,"namespace":%[4]s,"operation":"CREATE","dryRun":%[5]t,"object":%[6]s}}`,
		worldGroup, c.claimKind(), quoted, namespace, c.which&dryRun != 0, object)
}

// bindSeeds are claims of every outcome, and known attacks.
func bindSeeds() []fuzzedClaim {
	list := func(n int, element string) string {
		return `{"matchExpressions":[` + strings.TrimSuffix(strings.Repeat(element+",", n), ",") + `]}`
	}
	var absent, unequal []string // Each key is another, and long.
	for i := range 64 {
		absent = append(absent, fmt.Sprintf(`{"key":"e%d","operator":"DoesNotExist"}`, i))
		unequal = append(unequal, fmt.Sprintf(`{"key":"%skey-9%02d","operator":"NotIn","values":["x"]}`, reference.LongPrefix, i))
	}
	var seeds []fuzzedClaim
	for which := range byte(len(worldClaimKinds)) { //nolint:gosec // There are few.
		seeds = append(seeds,
			fuzzedClaim{namespace: "team-a", name: "db", which: which},
			fuzzedClaim{selector: `{}`, namespace: "team-a", name: "db", which: which | dryRun},
			fuzzedClaim{selector: `{"matchLabels":{"a":"1","tier":"gold"}}`, namespace: "team-a", name: "db", which: which | generated},
			fuzzedClaim{annotation: "a in (1,2),b!=x,!c", namespace: "team-b", name: "db", which: which},
			fuzzedClaim{selector: "\x00\x01\x02", namespace: "n", name: "db", which: which},
		)
	}
	for _, selector := range []string{
		`null`, `[]`, `7`, `1e999`, `-0`, `"a=1"`, `{"matchLabels":null,"matchExpressions":null}`, `{"matchExpressions":[null]}`, `{"matchLabels":{"a":null}}`,
		`{"matchLabels":{"a":"1","a":"2"}}`, `{"matchLabels":{"a":"1"},"matchLabels":{"b":"2"}}`, `{"unknown":1}`, `{"matchLabels":{"a":1}}`,
		`{"matchExpressions":[{"key":"a","operator":"Foo"}]}`, `{"matchExpressions":[{"key":"a","operator":"In"}]}`,
		`{"matchExpressions":[{"key":"a","operator":"In","values":[null]}]}`,
		strings.Repeat("[", 5000) + strings.Repeat("]", 5000), strings.Repeat(`{"a":`, 9000) + "1" + strings.Repeat("}", 9000),
		list(4000, `{}`), list(3500, `{"key":"","operator":""}`), list(8000, `{"key":"a","operator":"DoesNotExist"}`),
		list(64, `{"key":"a","operator":"DoesNotExist"}`),
		list(2<<20/40, `{"key":"a","operator":"In","values":["1"]}`),
		`{"matchExpressions":[{"key":"a","operator":"In","values":["` + strings.Repeat(`1","`, 500_000) + `"]}]}`,
		list(1, strings.Join(absent, ",")), list(1, strings.Join(unequal, ",")), `{"matchLabels":{"a":"` + strings.Repeat(`\u003c`, 750<<10) + `"}}`,
		`{"matchLabels":{"a":"` + strings.Repeat("<", 750<<10) + `"}}`, `{"` + strings.Repeat("<", 750<<10) + `":1}`, `"` + strings.Repeat("<", 750<<10) + `"`,
	} {
		seeds = append(seeds, fuzzedClaim{selector: selector, namespace: "team-a", name: "db"})
	}
	for _, annotation := range []string{
		" ", "a", "!a", "a>1", "a==1,a=2", "a notin (", "\xff", "a=\u2028", strings.Repeat("!a,", 85_000) + "!a", "a in (" + strings.Repeat("1,", 100_000) + "2)",
		strings.Repeat("a=1,", 1<<19) + "b", strings.Repeat("!a,", 63) + "!a", reference.LongPrefix + "key-049", strings.Repeat("<", 750<<10),
	} {
		seeds = append(seeds, fuzzedClaim{annotation: annotation, namespace: "team-a", name: "db"})
	}
	for _, times := range []byte{0, 246, 250, 255} {
		seeds = append(seeds,
			fuzzedClaim{element: "!a,", times: times, namespace: "team-a", name: "db"},
			fuzzedClaim{selector: "{}", element: "{}", times: times, namespace: "team-a", name: "db"},
			fuzzedClaim{selector: "{}", element: "\x05\x03\x00", times: times, namespace: "team-a", name: "db", which: 3},
			fuzzedClaim{selector: "null", element: `{"key":"","operator":""}`, times: times, namespace: "team-a", name: "db"})
	}
	return append(seeds,
		fuzzedClaim{selector: `{}`, annotation: "a", namespace: "team-a", name: "db"},
		fuzzedClaim{selector: `{}`, namespace: strings.Repeat("n", 300), name: strings.Repeat("<", 300)},
		fuzzedClaim{namespace: strings.Repeat("\xff", 300), name: "db"},
		fuzzedClaim{namespace: "team-a", name: strings.Repeat("\xff", 300)},
		fuzzedClaim{namespace: "team-a", name: strings.Repeat("\xff", 300), which: generated},
		fuzzedClaim{annotation: "a in (" + strings.Repeat(",", 1500) + ")", namespace: "team-a", name: "db"})
}

func answered(t *testing.T, a *post) result {
	t.Helper()
	if a.status >= 400 {
		return result{refused: true}
	}
	var review struct {
		Response struct {
			Allowed          bool
			AuditAnnotations map[string]string
			Patch            []byte
			Status           struct{ Code int }
		}
	}
	require.NoError(t, json.Unmarshal(a.answers.body.Bytes(), &review))
	r := review.Response
	if !r.Allowed && (r.Status.Code < 400 || r.Status.Code >= 500) {
		t.Errorf("We should refuse a claim for what its author did: status %d", r.Status.Code)
	}
	if (r.AuditAnnotations["class"] == "") != (len(r.Patch) == 0) {
		t.Errorf("We should patch the claim that has a class %q, and no other: %s", r.AuditAnnotations["class"], r.Patch)
	}
	return result{refused: !r.Allowed, unmatched: !r.Allowed && r.Status.Code == 403, class: r.AuditAnnotations["class"]}
}
