package latebinding

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/fair"
)

// seenVersion is what binding reads of a claim that waits for a class, as it was seen.
type seenVersion struct {
	uid                      types.UID
	namespace, name, version string
	ask                      claim.Ask
	parents                  int8 // how many fields that lead to the class reference it has
	annotated                bool // It has annotations.
}

// weight is how many claims it counts for.
func (v *seenVersion) weight() int { return 1 + len(v.ask)/v1beta1.WaitingClaimBytes }

// waitingClaim is a claim without a class that could have one.
type waitingClaim struct {
	seenVersion
	of         *namespace
	since      int64 // when it began to wait for its event, in ns since 1970
	due        bool  // It is in the line of what a round looks at.
	unnotified bool  // It is in the line for its event.
	matched    bool  // It has a class, and is in the hands of a writer.
	notYet     bool  // claims.when was false when it was looked at, so no event reports that it waits.
	full       bool  // Classes had no room for it, or its chooser gave it none.
	failed     bool  // Its selector caused a panic: it is not looked at again.
	written    bool  // This version was bound.
	notified   bool  // It got its event that there is no class.
	warned     bool  // It got the event that its reference was refused or removed.
	refused    bool  // The API server refused to add the reference to its class.
}

// namespace has the waiting claims of one namespace that are held.
type namespace struct {
	name              string
	claims            map[types.UID]*waitingClaim
	weight            int
	selected, checked bool // by the ClaimKind, once checked is true
}

// counts reports whether its claims count as waiting.
func (n *namespace) counts() bool { return n.selected || !n.checked }

// waitingClaims are held up to a limit. Beyond it, the namespace that holds the most gives up some of its own.
type waitingClaims struct {
	namespaces    map[string]*namespace
	selects       *claim.Namespaces // the namespaces that the ClaimKind selects
	limit, weight int
	selected      int // how many are held, without those of namespaces that are not selected
	refused       int // how many of those that are held are refused by the API server
	// left is how many wait and are not held, as far as is known. Partial reports whether there may be some.
	left    int
	partial bool

	// The lines of a binder, in which namespaces take turns. There are none while binds is false.
	binds           bool
	due, unnotified fair.Queue[*waitingClaim]
}

func (s *waitingClaims) find(namespace string, uid types.UID) *waitingClaim {
	if n := s.namespaces[namespace]; n != nil {
		return n.claims[uid]
	}
	return nil
}

func (s *waitingClaims) each(visit func(*waitingClaim)) {
	for _, n := range s.namespaces {
		for _, c := range n.claims {
			visit(c)
		}
	}
}

func (s *waitingClaims) namespaceOf(name string) *namespace {
	n := s.namespaces[name]
	if n == nil {
		n = &namespace{name: name, claims: map[types.UID]*waitingClaim{}}
		n.selected, n.checked = s.selects.Known(name)
		s.namespaces[name] = n
	}
	return n
}

// hold a claim, and report whether there is room. One that has a class may take the place of others of its namespace that have none.
func (s *waitingClaims) hold(c *waitingClaim) bool {
	n := s.namespaceOf(c.namespace)
	defer s.vacate(n)
	for s.weight+c.weight() > s.limit {
		largest := n
		for _, other := range s.namespaces {
			if other.weight > largest.weight {
				largest = other
			}
		}
		own := largest.weight <= n.weight+c.weight()
		if own && !c.matched || !s.giveUp(map[bool]*namespace{true: n, false: largest}[own], own) {
			return false
		}
	}
	c.of, c.matched = n, false
	n.claims[c.uid] = c
	n.weight += c.weight()
	s.weight += c.weight()
	if n.counts() {
		s.selected++
	}
	s.offer(c)
	return true
}

// giveUp has a namespace hold one claim less, which sweeps find. Unmatched, it must have no class.
func (s *waitingClaims) giveUp(n *namespace, unmatched bool) bool {
	for _, c := range n.claims {
		if !unmatched || !c.matched {
			s.release(c)
			s.miss(c.namespace)
			return true
		}
	}
	return false
}

// miss counts a claim that waits and is not held.
func (s *waitingClaims) miss(namespace string) {
	if s.partial = true; s.counts(namespace) {
		s.left++
	}
}

// counts reports whether the claims of a namespace count as waiting.
func (s *waitingClaims) counts(namespace string) bool {
	if n := s.namespaces[namespace]; n != nil {
		return n.counts()
	}
	selected, known := s.selects.Known(namespace)
	return selected || !known
}

// release a claim that is held.
func (s *waitingClaims) release(c *waitingClaim) {
	n := c.of
	s.setRefused(c, false)
	if c.due {
		s.due.Remove(n.name, c)
	}
	if c.unnotified {
		s.unnotified.Remove(n.name, c)
	}
	delete(n.claims, c.uid)
	n.weight -= c.weight()
	s.weight -= c.weight()
	if n.counts() {
		s.selected--
	}
	s.vacate(n)
}

func (s *waitingClaims) vacate(n *namespace) {
	if len(n.claims) == 0 {
		delete(s.namespaces, n.name)
	}
}

// setRefused records whether the API server refuses to bind a claim.
func (s *waitingClaims) setRefused(c *waitingClaim, is bool) {
	if c.refused != is {
		c.refused = is
		s.refused += map[bool]int{true: 1, false: -1}[is]
	}
}

// offer has the next round look at a claim. One for which no class can help waits for its event alone.
func (s *waitingClaims) offer(c *waitingClaim) {
	switch {
	case !s.binds, !c.of.selected, c.due, c.written:
	case c.failed, c.ask.Problem() != "":
		s.awaitNotice(c, time.Now())
	default:
		c.due = true
		s.due.Push(c.namespace, c)
	}
}

// awaitNotice puts a claim in the line for its event. A claim that stands there already keeps its time.
func (s *waitingClaims) awaitNotice(c *waitingClaim, since time.Time) {
	if s.binds && !c.unnotified && !c.notified {
		c.unnotified, c.since = true, since.UnixNano()
		s.unnotified.Push(c.namespace, c)
	}
}

// takeDue returns some of the claims that a round is to look at: one of each namespace, then a second of each, and so on.
func (s *waitingClaims) takeDue(most int) (due []seenVersion) {
	for len(due) < most {
		_, c, ok := s.due.Pop(nil)
		if !ok {
			break
		}
		if c.due = false; c.of.selected && (!c.matched || c.full) {
			due = append(due, c.seenVersion)
		}
	}
	return due
}

// takeUnnotified returns a claim that has waited long enough for its event.
func (s *waitingClaims) takeUnnotified(now time.Time) (seenVersion, bool) {
	for {
		_, c, ok := s.unnotified.Pop(func(_ string, c *waitingClaim) bool { return now.Sub(time.Unix(0, c.since)) >= noticeDelay })
		if !ok {
			return seenVersion{}, false
		}
		c.unnotified = false
		if c.of.selected && !c.notified && !c.matched && !c.notYet && !c.written {
			return c.seenVersion, true
		}
	}
}

// unchecked returns the namespaces whose labels matter and are not checked yet, or, with again, all whose labels matter.
func (s *waitingClaims) unchecked(again bool) (names []string) {
	for name, n := range s.namespaces {
		if _, known := s.selects.Known(name); !known && (again || !n.checked) {
			names = append(names, name)
		}
	}
	return names
}
