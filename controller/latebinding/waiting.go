package latebinding

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
)

const (
	// groupBytes is what each distinct selector of a namespace takes beside its text:
	// the group, its place in the map of its namespace, and its set of claims.
	groupBytes     = 384
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
	group     *group
	since     int64       // when it began to wait for its event, in ns since 1970
	in        [lines]bool // in which lines of its namespace it stands
	written   bool        // This version was bound.
	notified  bool        // It got its event, or is about to.
	gone      bool        // It does not wait any more.
	refused   bool        // The API server refused to add the reference to its class.
	told      bool        // It got the event that its reference was refused or removed, or is about to.
}

// group has the claims of a namespace that have the same candidates. It holds the text of their selector, and parses it when needed:
// parsed, it takes up to thirty times as much.
type group struct {
	namespace *namespace
	ask       claim.Ask
	claims    map[*waitingClaim]struct{}
	view      *selector.View
	matched   bool // They had a candidate in the view.
	notYet    bool // claims.when was false for them in the view, so nobody is told that they wait.
	full      bool // Classes had no room for them in the view.
	failed    bool // Its selector caused a panic: it is not asked about again.
	held      bool // It is in its namespace's groups.
	dropped   bool // Its text was given up.
}

// groupCost is what a group counts for, in bytes: between one and two times the memory that it takes.
func groupCost(ask claim.Ask) int64 { return groupBytes + int64(len(ask)) + int64(len(ask))/4 }

// line is a queue of a namespace's claims. A claim stands in each at most once.
type line int

const (
	lineFresh      line = iota // new claims, and claims whose group matches now, which have yet to be given out to be bound
	lineUnnotified             // claims that wait for the event that there is no class
	lineUnread                 // claims whose selector is not held, and that have yet to be read under the present view

	lines = 3
)

// namespace has the waiting claims of one namespace.
type namespace struct {
	name              string
	waiting           int
	selected, checked bool // by the ClaimKind, once checked is true
	groups            map[claim.Ask]*group
	bytes             int64  // that the groups count for
	overflow          *group // the claims whose selectors are not held
	lines             [lines][]*waitingClaim
}

// enqueue adds a claim, unless it stands in the line already. A line has at most about twice
// as many entries as there are claims, however fast an author creates and deletes them.
func (n *namespace) enqueue(l line, c *waitingClaim) {
	if c.in[l] || c.gone {
		return
	}
	if len(n.lines[l]) > 2*n.waiting+16 {
		n.lines[l] = slices.DeleteFunc(n.lines[l], func(c *waitingClaim) bool { return c.gone })
	}
	c.in[l] = true
	n.lines[l] = append(n.lines[l], c)
}

func (n *namespace) first(l line) *waitingClaim {
	for len(n.lines[l]) > 0 {
		if c := n.lines[l][0]; !c.gone {
			return c
		}
		n.lines[l][0] = nil
		n.lines[l] = n.lines[l][1:]
	}
	n.lines[l] = nil
	return nil
}

func (n *namespace) dequeue(l line) *waitingClaim {
	c := n.first(l)
	if c != nil {
		c.in[l] = false
		n.lines[l][0] = nil
		n.lines[l] = n.lines[l][1:]
	}
	return c
}

func (n *namespace) clear(l line) {
	for _, c := range n.lines[l] {
		c.in[l] = false
	}
	n.lines[l] = nil
}

func (n *namespace) each(visit func(*waitingClaim)) {
	for _, g := range n.groups {
		for c := range g.claims {
			visit(c)
		}
	}
	for c := range n.overflow.claims {
		visit(c)
	}
}

// room is the memory for the selectors of one kind's waiting claims, in bytes. A claim
// whose selector finds no room waits without it, and is read again when its turn comes.
type room struct {
	limit, used int64
	selects     *claim.Namespaces // the namespaces that the ClaimKind selects
	namespaces  map[string]*namespace
	freed       uint64 // Snapshot.Freed when the claims that wait for room in a class were last asked about
}

func (r *room) namespaceOf(name string) *namespace {
	n := r.namespaces[name]
	if n == nil {
		n = &namespace{name: name, groups: map[claim.Ask]*group{}}
		n.overflow = &group{namespace: n, claims: map[*waitingClaim]struct{}{}}
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

// group returns the group of a namespace with this ask. It returns overflow if there
// is no room for a new one, or if the namespace is not selected.
func (r *room) group(n *namespace, ask claim.Ask) *group {
	if g := n.groups[ask]; g != nil {
		return g
	}
	if n.checked && !n.selected || !r.makeRoom(n, groupCost(ask)) {
		return n.overflow
	}
	g := &group{namespace: n, ask: ask, claims: map[*waitingClaim]struct{}{}, held: true}
	n.groups[ask] = g
	n.bytes += groupCost(ask)
	r.used += groupCost(ask)
	return g
}

// makeRoom reports whether a namespace below its share can have more bytes. If none are left, namespaces with more give up some of theirs.
func (r *room) makeRoom(n *namespace, bytes int64) bool {
	if n.bytes+bytes > r.limit/namespaceShare {
		return false
	}
	for r.used+bytes > r.limit {
		largest := n
		for _, other := range r.namespaces {
			if other.bytes > largest.bytes {
				largest = other
			}
		}
		if largest.bytes < n.bytes+bytes {
			return false
		}
		r.shrink(largest, largest.bytes*7/8)
	}
	return true
}

func (r *room) resize(limit int64) {
	r.limit = limit
	for _, n := range r.namespaces {
		r.shrink(n, limit/namespaceShare)
	}
	for _, n := range r.namespaces {
		if r.used <= limit {
			return
		}
		r.shrink(n, limit/int64(len(r.namespaces)))
	}
}

// shrink reduces a namespace to so many bytes: the claims of some groups move to overflow.
func (r *room) shrink(n *namespace, to int64) {
	for _, g := range n.groups {
		if n.bytes <= to {
			return
		}
		for c := range g.claims {
			c.group = n.overflow
			n.overflow.claims[c] = struct{}{}
			n.enqueue(lineUnread, c)
		}
		r.forget(g)
		g.ask, g.claims, g.dropped = "", nil, true
	}
}

func (r *room) forget(g *group) {
	g.held = false
	delete(g.namespace.groups, g.ask)
	g.namespace.bytes -= groupCost(g.ask)
	r.used -= groupCost(g.ask)
}

func (r *room) disband(g *group) {
	if g.held && len(g.claims) == 0 {
		r.forget(g)
	}
}

func (r *room) vacate(n *namespace) {
	if n.waiting == 0 && len(n.groups) == 0 && r.namespaces[n.name] == n {
		delete(r.namespaces, n.name)
	}
}

// awaitNotice puts a claim in the line for its event. A claim that stands there already
// keeps its time, because those behind wait for the first.
func (c *waitingClaim) awaitNotice(now time.Time) {
	if !c.in[lineUnnotified] {
		c.since = now.UnixNano()
	}
	c.namespace.enqueue(lineUnnotified, c)
}
