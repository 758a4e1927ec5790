package webhook

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/classbind/classbind/selector/fuzztest/reference"
)

// BenchmarkWorst measures the slowest reviews that make fuzz has found, and known
// attacks, with 10,000 classes.
func BenchmarkWorst(b *testing.B) {
	w := largeWorld()
	list := func(n int, element func(i int) string) string {
		elements := make([]string, n)
		for i := range elements {
			elements[i] = element(i)
		}
		return `{"matchExpressions":[` + strings.Join(elements, ",") + `]}`
	}
	bodies := map[string]string{}
	for name, object := range hostileObjects() {
		bodies[name] = (&fuzzedClaim{namespace: "team-a", name: "db"}).reviewOf(object)
	}
	for name, c := range map[string]fuzzedClaim{
		"everything":    {selector: `{}`},
		"exclusions=1":  {annotation: "!e"},
		"exclusions=64": {selector: list(64, func(i int) string { return fmt.Sprintf(`{"key":"e%d","operator":"DoesNotExist"}`, i) })},
		"longkeys=64": {selector: list(64, func(i int) string {
			return fmt.Sprintf(`{"key":"%skey-9%02d","operator":"NotIn","values":["x"]}`, reference.LongPrefix, i)
		})},
		"values=1024":    {selector: `{"matchExpressions":[{"key":"a","operator":"NotIn","values":["` + strings.Repeat(`3","`, 1023) + `3"]}]}`},
		"selector=2MB":   {selector: list(50_000, func(int) string { return `{"key":"a","operator":"In","values":["1"]}` })},
		"escaped=750KiB": {selector: `{"matchLabels":{"a":"` + strings.Repeat(`\u003c`, 750<<10) + `"}}`},
	} {
		c.namespace, c.name = "team-a", "db"
		bodies[name] = c.review()
	}
	for _, name := range slices.Sorted(maps.Keys(bodies)) {
		b.Run(name, func(b *testing.B) {
			p, body := newPost(byResource(w.binder())), bodies[name]
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				p.ask(body)
			}
			b.ReportMetric(float64(len(body)), "input-B")
		})
	}
}
