package controller

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/classbind/classbind/selector"
)

const (
	// groupBytes are held of each distinct selector of a namespace, beside its text:
	// the group, its place in the map of its namespace, and its set of claims.
	groupBytes = 384
	// namespaceShare of the memory for selectors is one namespace's at most.
	namespaceShare = 4
)

// waitingClaim has no class and could have one.
type waitingClaim struct {
	namespace *namespace
	group     *group
	uid       types.UID
	name      string
	version   string
	// since when it waits to be told that there is no class, in ns since 1970.
	since int64
	// in which lines of its namespace it stands.
	in [lines]bool
	// parents of the class reference that it has.
	parents int8
	// written says that this version of it was bound, told that its author knows
	// that there is no class, and gone that it waits no more.
	written, told, gone bool
}

// group of the claims of a namespace that have the same candidates. Of their
// selector the text is held, and parsed when a view is asked: parsed, it takes up to
// thirty times as much.
type group struct {
	namespace *namespace
	ask       selector.Ask
	claims    map[*waitingClaim]struct{}
	// matched says whether they had a candidate in the view.
	matched bool
	view    *selector.View
	// failed says that it made us panic: it is not asked again.
	failed bool
	// held says that it is one of its namespace's groups, and dropped that its text was given up.
	held, dropped bool
}

// groupCost is what a group counts for, in bytes: at least what it takes, and at
// most twice that.
func groupCost(ask selector.Ask) int64 { return groupBytes + int64(len(ask)) + int64(len(ask))/4 }

// line of claims of a namespace. A claim stands in each at most once.
type line int

const (
	// lineFresh: claims that are new, or those whose group is matched now, and have yet to be given out to be bound.
	lineFresh line = iota
	// lineUntold: claims that wait to be told that there is no class.
	lineUntold
	// lineUnread: claims whose selector is not held, and that have yet to be read under the present view.
	lineUnread

	lines = 3
)

// namespace of claims that wait.
type namespace struct {
	name    string
	waiting int
	// bound says whether its claims are, once that has been asked.
	bound, asked bool
	groups       map[selector.Ask]*group
	// bytes that the groups count for.
	bytes int64
	// beyond has the claims whose selectors are not held.
	beyond *group
	lines  [lines][]*waitingClaim
}

// enqueue a claim, unless it stands in the line already. A line is at most twice
// as long as there are claims, however fast its author creates and deletes them.
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

// first in a line, nil if there is none.
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

// dequeue the first in a line, nil if there is none.
func (n *namespace) dequeue(l line) *waitingClaim {
	c := n.first(l)
	if c != nil {
		c.in[l] = false
		n.lines[l][0] = nil
		n.lines[l] = n.lines[l][1:]
	}
	return c
}

// clear a line.
func (n *namespace) clear(l line) {
	for _, c := range n.lines[l] {
		c.in[l] = false
	}
	n.lines[l] = nil
}

// each claim of a namespace.
func (n *namespace) each(visit func(*waitingClaim)) {
	for _, g := range n.groups {
		for c := range g.claims {
			visit(c)
		}
	}
	for c := range n.beyond.claims {
		visit(c)
	}
}

// room for the selectors of the claims of one kind that wait, in bytes. A claim
// whose selector finds no room waits without it, and is read again when its turn
// comes. Which groups there are, its user locks.
type room struct {
	most, used int64
	namespaces map[string]*namespace
}

// group of a namespace with this ask, and the one of the claims beyond the room
// where there is none for it, or where the claims of the namespace are not bound.
func (r *room) group(n *namespace, ask selector.Ask) *group {
	if g := n.groups[ask]; g != nil {
		return g
	}
	if n.asked && !n.bound || !r.makeRoom(n, groupCost(ask)) {
		return n.beyond
	}
	return r.hold(n, ask)
}

func (r *room) hold(n *namespace, ask selector.Ask) *group {
	g := &group{namespace: n, ask: ask, claims: map[*waitingClaim]struct{}{}, held: true}
	n.groups[ask] = g
	n.bytes += groupCost(ask)
	r.used += groupCost(ask)
	return g
}

// makeRoom for a namespace that has less than its share. Where there is none
// left, the namespaces that have more than it give up some of theirs.
func (r *room) makeRoom(n *namespace, bytes int64) bool {
	if n.bytes+bytes > r.most/namespaceShare {
		return false
	}
	for r.used+bytes > r.most {
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

// spare says whether there is room that nobody has to give up.
func (r *room) spare(n *namespace, bytes int64) bool {
	return n.bytes+bytes <= r.most/namespaceShare && r.used+bytes <= r.most
}

// resize what all may have.
func (r *room) resize(most int64) {
	r.most = most
	for _, n := range r.namespaces {
		r.shrink(n, most/namespaceShare)
	}
	for _, n := range r.namespaces {
		if r.used <= most {
			return
		}
		r.shrink(n, most/int64(len(r.namespaces)))
	}
}

// shrink a namespace to so many bytes: the claims of some groups go beyond.
func (r *room) shrink(n *namespace, to int64) {
	for _, g := range n.groups {
		if n.bytes <= to {
			return
		}
		for c := range g.claims {
			c.group = n.beyond
			n.beyond.claims[c] = struct{}{}
			n.enqueue(lineUnread, c)
		}
		r.forget(g)
		g.ask, g.claims, g.dropped = "", nil, true
	}
}

// forget a group.
func (r *room) forget(g *group) {
	g.held = false
	delete(g.namespace.groups, g.ask)
	g.namespace.bytes -= groupCost(g.ask)
	r.used -= groupCost(g.ask)
}

// vacate what has no claims any more.
func (r *room) vacate(n *namespace) {
	if n.waiting == 0 && len(n.groups) == 0 && r.namespaces[n.name] == n {
		delete(r.namespaces, n.name)
	}
}

// wait to be told that there is no class. Those who stand in the line already keep
// their time: it is the first of the line that the others wait for.
func (c *waitingClaim) wait(now time.Time) {
	if !c.in[lineUntold] {
		c.since = now.UnixNano()
	}
	c.namespace.enqueue(lineUntold, c)
}
