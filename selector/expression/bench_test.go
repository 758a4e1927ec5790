package expression

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/selector/fields"
)

var benchmarkScope = Scope{Variables: []string{Claim, Class}}

func benchmarkClass(i int) map[string]any {
	return map[string]any{
		"metadata": map[string]any{"name": "class-" + strconv.Itoa(i), "labels": map[string]any{"tier": "gold", "region": "eu-1"}},
		"driver":   "ebs.csi.aws.com",
		"spec":     map[string]any{"price": 12.5 + float64(i), "size": map[string]any{"max": int64(100 + i)}, "modes": []any{"ReadWriteOnce", "ReadWriteMany"}},
	}
}

// worst are loops, what they make, and patterns that cost the most CPU for what they pay. TestPrices has each function.
var worst = []string{
	"claim.list.exists(x, class.list.exists(y, x == y))",
	"claim.list.exists(x, x in class.list)",
	"claim.list.filter(x, false).size() == 1",
	"claim.bools.filter(x, x).size() == 1",
	"claim.bools.exists_one(x, x)",
	"claim.list.map(x, [x, x, x, x, x]).size() == 1",
	"claim.list.map(x, {x: x}).size() == 1",
	"claim.list.map(x, {'a': x, 'b': x, 'c': x, 'd': x}).size() == 1",
	"claim.list.all(x, claim.long != claim.long + 'a')",
	"claim.list.all(x, class.map.exists(k, true))",
	"claim.list.all(x, {'b': x, 'a': x, 'c': x}.exists(k, true))",
	"claim.list.all(x, class.map.all(k, class.map[k] == class.map))",
	"claim.list.map(x, claim.list) == claim.list.map(x, claim.list)",
	"claim.list.all(x, claim.long.matches('^(a|b|ab)*c?$') || true)",
	"claim.list.all(x, claim.short.matches('^[a-z]+$'))",
	"claim.list.all(x, claim.long.find('(a?){50}b') == '')",
	"claim.list.all(x, claim.long.findAll('a').size() == 1 || true)",
	"claim.list.all(x, claim.medium.matches('^(a|b|ab)*c?$') || true)",
	"claim.list.all(x, claim.medium.find('(a?){50}b') == '')",
	"claim.list.all(x, claim.medium.find('(a|aa|aaa|[a-c]+d)+b') == '')",
	"claim.list.all(x, claim.medium.matches('[a-z]{100}b') || true)",
	"claim.list.all(x, claim.short.find('(a?){50}b') == '')",
	"claim.list.all(x, claim.medium.findAll('a').size() == 1 || true)",
	"claim.list.all(x, claim.medium.findAll('').size() == 1 || true)",
	"claim.list.all(x, '%s'.format([claim.medium]) != '')",
	"claim.list.all(x, '%s'.format([claim.modes]) != '')",
	"claim.list.all(x, '%s %s'.format([claim.list, claim.long]) != '')",
	"claim.list.all(x, '%s'.format([class.map]) != '')",
	"claim.list.all(x, claim.list + claim.list == claim.list + claim.list)",
	"claim.list.all(x, (claim.list + claim.list + claim.list + claim.list)[900] != 'zz')",
	"claim.list.all(x, claim[?'none'].orValue('a') == 'a')",
	"claim.list.all(x, claim.?list.hasValue())",
	"claim.list.all(x, x.a == 1 || true)",
	"claim.list.all(x, class.deep.a.b.c.d.e.f.g == 1)",
	"claim.list.all(x, claim.number == 1 ? true : claim.number > 2)",
	"claim.list.all(x, claim.nested == class.nested)",
	"claim.list.exists(x, x.startsWith('b') && x.endsWith('c') && x.contains('d'))",
	"claim.list.all(x, claim.long < claim.long + 'b')",
	"claim.list.map(x, claim.long + x).size() > 0",
	"claim.list.all(x, claim.list.exists(y, y > x))",
}

// worstInput has values as long as they may be.
func worstInput() *Input {
	list, bools, nested := []any{}, []any{}, []any{}
	entries := map[string]any{}
	for i := range 1000 {
		list = append(list, "aaa"+string(rune('a'+i%26))+string(rune('a'+i/26%26)))
		bools = append(bools, false)
		nested = append(nested, []any{})
		entries["key-"+list[i].(string)] = int64(i)
	}
	deep := any(int64(1))
	for _, name := range []string{"g", "f", "e", "d", "c", "b", "a"} {
		deep = map[string]any{name: deep}
	}
	values := map[string]any{
		"list": list, "bools": bools, "nested": nested, "map": entries, "deep": deep, "modes": list[:20],
		"long": strings.Repeat("a", 16000), "medium": strings.Repeat("a", 200), "short": "abc", "number": int64(12345),
	}
	var paths []fields.Path
	for name := range values {
		paths = append(paths, fields.Path{name})
	}
	return &Input{Claim: values, Class: NewFields(paths...).Project(values)}
}

// BenchmarkUnits measures what a unit of cost is worth: ns/unit should be under 50 for each.
func BenchmarkUnits(b *testing.B) {
	in := worstInput()
	for _, text := range worst {
		b.Run(text, func(b *testing.B) {
			e, err := Compile(text, Bool, benchmarkScope)
			require.NoError(b, err)
			spent := uint64(0)
			for b.Loop() {
				budget := Budget{maxCost}
				_, _ = e.eval(in, &budget)
				spent += maxCost - budget.Left
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(spent), "ns/unit")
		})
	}
}
