package webhook

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestConnectionsMakeRoom(t *testing.T) {
	const (
		unreviewed = 'u'
		answering  = 'a'
	)
	for name, tc := range map[string]struct {
		reason string
		open   string // the one idle the longest first
		closed int    // its index; -1, none
	}{
		"ManyUnreviewed": {"We should close the oldest unreviewed one, where these hold more than a quarter.", "rruurrur", 2},
		"FewUnreviewed":  {"We should leave a new connection the time for a review.", "urrrrrru", 1},
		"AllReviewed":    {"We should close the one that has been idle the longest.", "rrrrrrrr", 0},
		"Answering":      {"We should close none that is being answered.", "aaaraaru", 3},
		"NoneReviewed":   {"We should close an unreviewed one where all others are being answered.", "aaaaaaua", 6},
		"AllAnswering":   {"We should close none where all are being answered.", "aaaaaaaa", -1},
		"OnlyUnreviewed": {"We should close the oldest.", "uuuuuuuu", 0},
	} {
		t.Run(name, func(t *testing.T) {
			l := newConnections(nil, len(tc.open))
			closed := map[*connection]int{nil: -1}
			for i, state := range tc.open {
				c := &connection{listener: l}
				c.idleSince.Store(int64(i))
				c.reviewed.Store(state != unreviewed)
				c.answering.Store(state == answering)
				l.open[c] = struct{}{}
				closed[c] = i
			}
			assert.Equal(t, tc.closed, closed[l.leastUseful()], tc.reason)
		})
	}
}
