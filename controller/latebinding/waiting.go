package latebinding

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/classbind/classbind/selector/claim"
)

const (
	// groupBytes is what each distinct selector of a namespace takes beside its text:
	// the group, and its place in the map of its namespace.
	groupBytes     = 192
	namespaceShare = 4 // One namespace gets at most this part of the memory for selectors.
)

// seenVersion is what a write needs to know of a claim, as it was seen.
type seenVersion struct {
	uid           types.UID
	name, version string
	parents       int8 // how many fields that lead to the class reference it has
	annotated     bool // It has annotations.
}

// waitingClaim is a claim without a class that could have one.
type waitingClaim struct {
	seenVersion
	namespace *namespace
	group     *group    // nil if its selector is not held: it must be read to know what it asks for
	since     time.Time // when it began to wait for its event
	given     int       // the last turn in which it was given out to be bound: see claimState.turnOf
	written   bool      // This version was bound.
	notified  bool      // It got its event, or is about to.
}

// group has the claims of a namespace that have the same candidates. It holds the text of their selector, and parses it when needed:
// parsed, it takes up to thirty times as much.
type group struct {
	namespace *namespace
	ask       claim.Ask
	claims    int
	asked     bool // The answer is that of the present view.
	turn      int  // counts how often the claims began to have a candidate
	answer
}

// answer of a view about a group.
type answer struct {
	matched bool // The claims have a candidate.
	notYet  bool // claims.when is false for them, so nobody is told that they wait.
	full    bool // Classes have no room for them.
	failed  bool // Its selector caused a panic: it is not asked about again.
}

// groupCost is what a group counts for, in bytes: between one and two times the memory that it takes.
func groupCost(ask claim.Ask) int64 { return groupBytes + int64(len(ask)) + int64(len(ask))/4 }

// namespace has the groups of one namespace.
type namespace struct {
	name              string
	waiting           int
	selected, checked bool // by the ClaimKind, once checked is true
	groups            map[claim.Ask]*group
	bytes             int64 // that the groups count for
}

// room is the memory for the selectors of one kind's waiting claims, in bytes. A claim
// whose selector finds no room waits without it, and is read again when its turn comes.
type room struct {
	limit, used int64
	selects     *claim.Namespaces // the namespaces that the ClaimKind selects
	namespaces  map[string]*namespace
}

func (r *room) namespaceOf(name string) *namespace {
	n := r.namespaces[name]
	if n == nil {
		n = &namespace{name: name, groups: map[claim.Ask]*group{}}
		n.selected, n.checked = r.selects.Known(name)
		r.namespaces[name] = n
	}
	return n
}

// unchecked returns the namespaces whose labels matter and are not checked yet, or, with again, all whose labels matter.
func (r *room) unchecked(again bool) (names []string) {
	for name, n := range r.namespaces {
		if _, known := r.selects.Known(name); !known && (again || !n.checked) {
			names = append(names, name)
		}
	}
	return names
}

// group returns the group of a namespace with this ask, nil if there is no room for a new one, or if the namespace is not selected.
func (r *room) group(n *namespace, ask claim.Ask) *group {
	if g := n.groups[ask]; g != nil {
		return g
	}
	bytes := groupCost(ask)
	if n.checked && !n.selected || n.bytes+bytes > r.limit/namespaceShare || r.used+bytes > r.limit {
		return nil
	}
	g := &group{namespace: n, ask: ask}
	n.groups[ask] = g
	n.bytes += bytes
	r.used += bytes
	return g
}

// disband forgets a group without claims.
func (r *room) disband(g *group) {
	if n := g.namespace; g.claims == 0 && n.groups[g.ask] == g {
		delete(n.groups, g.ask)
		n.bytes -= groupCost(g.ask)
		r.used -= groupCost(g.ask)
	}
}

// vacate forgets a namespace without claims.
func (r *room) vacate(n *namespace) {
	if n.waiting == 0 && len(n.groups) == 0 && r.namespaces[n.name] == n {
		delete(r.namespaces, n.name)
	}
}

// eachGroup calls a function with each group of all namespaces.
func (r *room) eachGroup(call func(*group)) {
	for _, n := range r.namespaces {
		for _, g := range n.groups {
			call(g)
		}
	}
}
