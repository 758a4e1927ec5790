package fields

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// A path may be part of another, in any order.
func TestReadPlan(t *testing.T) {
	set := func(fields map[string]*Plan) *Plan { return &Plan{fields: fields, as: AsSet} }
	parent := func(fields map[string]*Plan) *Plan { return &Plan{fields: fields} }
	deep := parent(map[string]*Plan{"a": parent(map[string]*Plan{"b": parent(map[string]*Plan{"c": set(nil)}), "d": set(nil)}), "e": set(nil)})
	both := parent(map[string]*Plan{"a": set(map[string]*Plan{"b": set(nil)})})
	for name, tc := range map[string]struct {
		reason string
		paths  []Path
		want   *Plan
	}{
		"Apart":      {"We should read each.", []Path{{"a", "b", "c"}, {"a", "d"}, {"e"}}, deep},
		"Again":      {"We should read each once.", []Path{{"a", "b", "c"}, {"e"}, {"a", "d"}, {"a", "b", "c"}}, deep},
		"OuterFirst": {"We should read what is asked for of a value that is asked for, too.", []Path{{"a"}, {"a", "b"}}, both},
		"OuterLast":  {"We should read what is asked for of a value that is asked for, too.", []Path{{"a", "b"}, {"a"}}, both},
	} {
		t.Run(name, func(t *testing.T) {
			got := &Plan{}
			for _, p := range tc.paths {
				got.Add(p, AsSet, 0)
			}
			assert.Equal(t, tc.want, got, tc.reason)
		})
	}
}
