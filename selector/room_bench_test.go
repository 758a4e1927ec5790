package selector

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkRoom decides on claims whose classes have a capacity of one quantity, with an expression for how much a claim uses.
func BenchmarkRoom(b *testing.B) {
	e := newExpressive(specs(`{classes: {usage: [{name: memory, expression: claim.spec.size}]}}`, `{capacity: [{name: memory, total: {path: ".spec.capacity"}}]}`))
	for i := range 1000 {
		e.with(fmt.Sprint("class-", i), map[string]any{"capacity": int64(1 << 60)})
	}
	v := e.view()
	v.Kind.Tally, v.Kind.Room = &Tally{}, Snapshot{v.Kind.Name: v}.Room
	in := v.Kind.Reader.Read("team", "db", map[string]any{"spec": all(map[string]any{"size": int64(3)})})
	for name, mode := range map[string]Mode{"DryRun": {DryRun: true}, "Commit": {}} {
		b.Run(name+"/classes=1000", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				d, err := new(Decider).Decide(b.Context(), v, in, mode)
				if err != nil || d.Class == nil {
					require.NoError(b, err)
				}
			}
		})
	}
}
