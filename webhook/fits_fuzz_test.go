package webhook

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/fuzztest/cost"
	"github.com/classbind/classbind/selector/inventory"
)

// costlyFits walk lists and maps of the claim and of the class, and call what costs the most for a
// string.
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

// fitsWorld has 10,000 classes, some of them with fields as long as they may be, and a claim kind
// for each of costlyFits: one that draws, and one that scores.
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

// FuzzFits puts values that expressions walk into a claim, and measures what that costs with 10,000
// classes.
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
