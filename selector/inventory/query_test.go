package inventory

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
)

// A query matches the same classes as its selector, however many labels, terms and
// values there are.
func TestQueryMatchesAsItsSelector(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8)) //nolint:gosec // It has to be reproducible.
	for range 300 {
		set := labels.Set{}
		for range random.IntN(100) {
			set[fmt.Sprint("k", random.IntN(100))] = fmt.Sprint(random.IntN(40))
		}
		l := NewLabels(set)
		for key := range 100 {
			key := fmt.Sprint("k", key)
			want, has := set[key]
			got, exists := l.Lookup(key)
			require.Equal(t, want, got)
			require.Equal(t, has, exists)
		}
		for range 20 {
			var terms []string
			for range 1 + random.IntN(4) {
				values := make([]string, 1+random.IntN(60))
				for i := range values {
					values[i] = fmt.Sprint(random.IntN(60))
				}
				term := []string{"k%d in (%s)", "k%d notin (%s)"}[random.IntN(2)]
				if simple := random.IntN(6); simple < 4 {
					term = []string{"k%d>%s", "k%d<%s", "k%d=%s", "k%d!=%s"}[simple]
					values = values[:1]
				}
				terms = append(terms, fmt.Sprintf(term, random.IntN(100), strings.Join(values, ",")))
			}
			s, err := labels.Parse(strings.Join(terms, ","))
			require.NoError(t, err)
			q := newQuery(s, &queryRoom{})
			q.resolve()
			assert.Equal(t, s.Matches(set), !q.nothing && q.matches(l), "We should match as %q does: %s", s, set)
		}
	}
}
