package latebinding

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/classbind/classbind/selector"
)

// boundClaims are the claims of one kind that have a class.
type boundClaims struct {
	// tally counts them by class. Nil counts none.
	tally  *selector.Tally
	counts map[types.UID]classCounts
}

// classCounts are the counts that a bound claim is part of.
type classCounts [2]*selector.Count

func (c classCounts) unbind() {
	for _, count := range c {
		if count != nil {
			count.Unbind()
		}
	}
}

// put counts a bound claim.
func (b boundClaims) put(seen *claimSeen) {
	before, known := b.counts[seen.uid]
	var counts classCounts
	if b.tally != nil {
		counts = classCounts{b.tally.Bind(seen.classes[0]), b.tally.Bind(seen.classes[1])}
		if !known {
			defer b.tally.Seen(seen.namespace, seen.name, seen.generateName, seen.classes)
		}
	}
	before.unbind()
	b.counts[seen.uid] = counts
}

// remove takes a claim off the counts.
func (b boundClaims) remove(uid types.UID) {
	b.counts[uid].unbind()
	delete(b.counts, uid)
}
