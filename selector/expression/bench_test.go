package expression

import (
	"strconv"
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

func BenchmarkEvaluate(b *testing.B) {
	for _, text := range []string{
		"class.driver == claim.spec.driver",
		"class.spec.size.max >= claim.spec.size && class.spec.price < 100.0",
		"class.spec.modes.exists(m, m == claim.spec.mode)",
		"claim.spec.mode in class.spec.modes",
		"class.spec.price",
	} {
		b.Run(text, func(b *testing.B) {
			e, err := Compile(text, anything, benchmarkScope)
			require.NoError(b, err)
			claim := map[string]any{"spec": map[string]any{"driver": "ebs.csi.aws.com", "size": int64(50), "mode": "ReadWriteMany"}}
			in := &Input{Claim: claim, Class: NewFields(e.Looks(Class)...).Project(benchmarkClass(1))}
			b.ReportAllocs()
			for b.Loop() {
				budget := Budget{1000}
				if _, err := e.eval(in, &budget); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkCompile(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Compile("class.spec.modes.exists(m, m == claim.spec.mode) && class.driver == claim.spec.driver", Bool, benchmarkScope); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkProject(b *testing.B) {
	fields := NewFields(fields.Path{"driver"}, fields.Path{"spec", "price"}, fields.Path{"spec", "size", "max"}, fields.Path{"metadata", "labels", "tier"})
	content := benchmarkClass(1)
	b.ReportAllocs()
	for b.Loop() {
		fields.Project(content)
	}
}
