package capacity

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/webhook/exploretest"
)

// The exploration runs every interleaving of a few requests on a model of an API server: creations, growth and other updates of claims,
// deletions, forged reviews, two leaders that recount, a capacity that is lowered, and ledgers that somebody deletes. A request asks for
// its ledgers, one read and one write after the other. It is then in flight until its write is stored, fails, or finds another version and
// is reviewed again. Replicas die between any two steps.
//
// Time is modelled by what a leader may believe: that the window of a reservation is over, unless the write may really yet be stored. A
// leader's view of the claims is any version that was, and never goes back. That of the next leader may be behind.

// protocol has the rules that the exploration can switch off, to show that it would notice. They are broken around the Ledger, not in it.
type protocol struct {
	precondition        bool // of the write of a reservation
	recountPrecondition bool // of the write of a recount
	monotonic           bool // are the views of one ledger, whoever leads
	base                bool // of an update is to be passed by the view that shows it
	unseen              bool // reservations are kept
	window              bool // of a reservation is waited for
	live                bool // is read whether a write was stored before its reservation ends
	renewed             bool // is the reservation of a write that asks again
	difference          bool // is reserved by an update that grows
	all                 bool // ledgers of a claim are asked
	closed              bool // is a ledger that was deleted
	complete            bool // is the list by which a ledger opens
}

var wholeProtocol = protocol{true, true, true, true, true, true, true, true, true, true, true, true}

type kind byte

const (
	create kind = 'C' // a claim that uses 1 of its ledgers
	grow   kind = 'G' // a claim from 1 to 2
	shrink kind = 'S' // a claim to 1
	touch  kind = 'T' // an update that uses no more
	remove kind = 'D'
	forge  kind = 'F' // a review of a creation that is under way or made up
	echo   kind = 'E' // a review of the growth of the claim as it is stored
	leader kind = 'L' // recounts a ledger twice
	lower  kind = 'W' // the leader writes a capacity that is less by one, with its recount
	lose   kind = 'X' // somebody deletes a ledger, and the leader makes it again
)

// script is a request for a claim, or what happens to a ledger.
type script struct {
	kind kind
	of   int
}

// stored claim; uid 0 means none.
type stored struct{ uid, version, usage int }

const (
	notBegun = iota
	reading
	writing
	inFlight
	leading
	dropping
	counting
	ended
)

type process struct {
	state  int
	write  selector.Write
	uid    int
	amount int64 // to reserve
	usage  int   // of the claim once it is stored
	at     int   // index of the ledger
	rounds int
	view   int
	ledger Ledger // as it was read
	over   map[Reservation]bool
	turn   int64 // of its reservation, which begins the window
}

type world struct {
	history   [][]stored // of the claims, the last is now
	ledgers   [2]Ledger
	processes []process
	uid       int
}

type exploration struct {
	rules   protocol
	scripts []script
	// uses has the ledgers that each claim uses.
	uses  [][]int
	dies  bool
	over  string
	stuck string
	ends  int
}

const claimKind = "claims.example.org"

func (w *world) now() []stored { return w.history[len(w.history)-1] }

func (w world) clone() world {
	w.history = slices.Clone(w.history)
	w.processes = slices.Clone(w.processes)
	return w
}

// set a claim to be stored so.
func (w *world) set(i int, s stored) {
	next := slices.Clone(w.now())
	if s.uid != 0 {
		s.version = len(w.history)
	}
	next[i] = s
	w.history = append(w.history, next)
}

// key has everything that distinguishes states.
func (w *world) key(k *exploretest.Key) {
	ledger := func(l *Ledger) {
		k.Text(l.Version)
		k.Flag(l.Open)
		k.Number(int(l.Limits.Total), int(l.Used), int(l.Counted[claimKind]), len(l.Reservations)) //nolint:gosec // They are small.
		for _, r := range l.Reservations {
			k.Text(r.Name, r.UID, r.Base)
			k.Number(int(r.Amount), int(r.Turn))
		}
	}
	k.Number(w.uid, len(w.history))
	for _, claims := range w.history {
		for _, c := range claims {
			k.Number(c.uid, c.version, c.usage)
		}
	}
	for i := range w.ledgers {
		ledger(&w.ledgers[i])
	}
	for i := range w.processes {
		p := &w.processes[i]
		if k.Number(p.state); p.state == notBegun || p.state == ended {
			continue
		}
		over := 0
		for j, r := range p.ledger.Reservations {
			if p.over[r] {
				over |= 1 << j
			}
		}
		k.Text(p.write.Name, p.write.UID, p.write.Base)
		k.Number(int(p.amount), p.usage, p.at, p.rounds, p.view, over, int(p.turn))
		if p.state == writing || p.state == counting || p.state == dropping {
			ledger(&p.ledger)
		}
	}
}

func (e *exploration) run(claims []stored, capacity int64) int {
	e.over, e.stuck, e.ends = "", "", 0
	start := world{history: [][]stored{claims}, processes: make([]process, len(e.scripts)), uid: len(claims)}
	for k := range start.ledgers {
		start.ledgers[k] = Ledger{
			Version: "1", Open: true, Limits: Limits{capacity, inventory.Unlimited}, Used: e.used(claims, k), Counted: map[string]uint64{},
		}
	}
	return exploretest.Run(start, (*world).key, func(w *world, add func(world)) bool {
		e.expand(w, add)
		return e.over == "" && e.stuck == ""
	})
}

func (e *exploration) used(claims []stored, k int) (total int64) {
	for i, c := range claims {
		if c.uid != 0 && slices.Contains(e.uses[i], k) {
			total += int64(c.usage)
		}
	}
	return total
}

// committed is what the claims use, and would use if all were stored that may yet be.
func (e *exploration) committed(w *world, k int) int64 {
	claims := slices.Clone(w.now())
	made := map[int]stored{}
	for i := range w.processes {
		p := &w.processes[i]
		if p.state != inFlight && p.state != reading && p.state != writing || e.isForged(i) || !p.admittedTo(e, i, k) {
			continue
		}
		c := e.scripts[i].of
		if p.write.Base == "" {
			made[p.uid] = stored{uid: p.uid, usage: p.usage} // Claims of one name are stored one after the other, at most.
		} else if claims[c].uid == p.uid && strconv.Itoa(claims[c].version) == p.write.Base {
			claims[c].usage = max(claims[c].usage, p.usage)
		}
	}
	total := e.used(claims, k)
	for uid, c := range made {
		if !slices.ContainsFunc(claims, func(s stored) bool { return s.uid == uid }) {
			total += int64(c.usage)
		}
	}
	return total
}

// admittedTo reports whether a request has asked this ledger and was not refused.
func (p *process) admittedTo(e *exploration, i, k int) bool {
	uses := e.uses[e.scripts[i].of]
	at := slices.Index(uses, k)
	return at >= 0 && (p.state == inFlight || at < p.at)
}

func (e *exploration) isForged(i int) bool {
	return e.scripts[i].kind == forge || e.scripts[i].kind == echo
}

// mayLand reports whether a write may yet be stored, as far as the window of this reservation tells.
func (e *exploration) mayLand(w *world, r Reservation) bool {
	for i := range w.processes {
		p := &w.processes[i]
		if (p.state == inFlight || p.state == reading || p.state == writing) && p.write == r.Write && p.turn <= r.Turn && !e.isForged(i) {
			return true
		}
	}
	return false
}

func (e *exploration) expand(w *world, add func(world)) {
	over := true
	for i := range w.processes {
		if w.processes[i].state == ended {
			continue
		}
		over = false
		push := func(next process, change func(*world)) {
			n := w.clone()
			if change != nil {
				change(&n)
			}
			n.processes[i] = next
			add(n)
		}
		switch e.scripts[i].kind {
		case remove, shrink, touch:
			e.other(w, i, push)
		case leader, lower, lose:
			e.lead(w, i, push)
		default:
			e.request(w, i, push)
		}
	}
	if over {
		e.ends++
		e.finish(*w)
	}
}

type pusher func(process, func(*world))

// other runs a request that needs no reservation.
func (e *exploration) other(w *world, i int, push pusher) {
	s := e.scripts[i]
	if c := w.now()[s.of]; c.uid != 0 {
		switch s.kind {
		case remove:
			c = stored{}
		case shrink:
			c.usage = 1
		default:
		}
		push(process{state: ended}, func(n *world) { n.set(s.of, c) })
	}
	push(process{state: ended}, nil)
}

func (e *exploration) request(w *world, i int, push pusher) {
	s, p, c := e.scripts[i], w.processes[i], w.now()[e.scripts[i].of]
	switch p.state {
	case notBegun:
		e.begin(w, i, push)
	case reading:
		p.ledger, p.state = w.ledgers[e.uses[s.of][p.at]], writing
		push(p, nil)
		if e.dies {
			push(process{state: ended}, nil)
		}
	case writing:
		e.reserve(w, i, push)
	case inFlight:
		push(process{state: ended}, nil) // Another webhook refuses it, or a quota.
		switch {
		case e.isForged(i):
		case p.write.Base == "" && c.uid == 0, p.write.Base != "" && c.uid == p.uid && strconv.Itoa(c.version) == p.write.Base:
			push(process{state: ended}, func(n *world) { n.set(s.of, stored{uid: p.uid, usage: p.usage}) })
		case p.write.Base != "" && c.uid == p.uid:
			push(process{}, nil) // The API server reads the claim again, and asks again.
		}
	}
}

func (e *exploration) begin(w *world, i int, push pusher) {
	s, c := e.scripts[i], w.now()[e.scripts[i].of]
	created := func(uid int) process {
		return process{state: reading, uid: uid, usage: 1, amount: 1, write: selector.Write{ClaimKind: claimKind, Name: strconv.Itoa(s.of), UID: strconv.Itoa(uid)}}
	}
	switch {
	case s.kind == create:
		push(created(w.uid+1), func(n *world) { n.uid++ })
	case s.kind == forge: // Of a claim that nobody creates, or of one that somebody does.
		for uid := w.uid; uid <= w.uid+1; uid++ {
			push(created(uid), nil)
		}
	case c.uid == 0 || c.usage != 1:
		push(process{state: ended}, nil)
	default:
		p := created(c.uid)
		p.write.Base, p.usage = strconv.Itoa(c.version), 2
		if !e.rules.difference {
			p.amount = 0
		}
		push(p, nil)
	}
}

// reserve in the ledger that was read.
func (e *exploration) reserve(w *world, i int, push pusher) {
	p := w.processes[i]
	uses := e.uses[e.scripts[i].of]
	k := uses[p.at]
	if e.dies {
		push(process{state: ended}, nil)
	}
	next, now := p.ledger, w.ledgers[k]
	found := slices.ContainsFunc(next.Reservations, func(r Reservation) bool { return r.Write == p.write })
	refusal := next.Reserve(p.write, p.amount)
	if refusal == nil {
		p.turn = next.Reservations[len(next.Reservations)-1].Turn
	}
	if found && !e.rules.renewed && refusal == nil {
		next, p.turn = p.ledger, math.MaxInt64
	}
	stale := now.Version != p.ledger.Version
	switch {
	case stale && (refusal != nil || e.rules.precondition): // It is read again.
		p.state = reading
		push(p, nil)
		return
	case refusal != nil:
		e.refused(w, i, k, refusal)
		push(process{state: ended}, nil)
		return
	}
	p.at++
	p.state, p.ledger = reading, Ledger{}
	if p.at == len(uses) || !e.rules.all {
		p.state = inFlight
	}
	next.Version = after(now)
	written := func(n *world) { n.ledgers[k] = next }
	n := w.clone()
	n.processes[i] = p
	written(&n)
	if got := e.committed(&n, k); !e.isForged(i) && got > now.Limits.Total {
		e.over = fmt.Sprintf("%v: %d of %d in ledger %d: %+v", e.scripts, got, now.Limits.Total, k, n)
	}
	push(p, written)
	if e.dies { // It is written, and the answer is lost.
		push(process{state: ended}, written)
	}
}

func after(l Ledger) string {
	n, _ := strconv.Atoi(l.Version)
	return strconv.Itoa(n + 1)
}

// refused must not be while there is room, nothing is in flight and the leader has counted.
func (e *exploration) refused(w *world, i, k int, refusal *Refusal) {
	for j := range w.processes {
		if s := w.processes[j].state; j != i && s != notBegun && s != ended {
			return
		}
	}
	l := &w.ledgers[k]
	quiet := l.Open && len(l.Reservations) == 0 && int(l.Counted[claimKind]) == len(w.history)-1 //nolint:gosec // It is small.
	if quiet && e.used(w.now(), k)+w.processes[i].amount <= l.Limits.Total {
		e.stuck = fmt.Sprintf("%v: refused (%v) with room in %+v", e.scripts, refusal, w)
	}
}

// lead does the next step of a leader: it reads a ledger, then whether writes were stored whose window is over, then writes what its view
// shows.
func (e *exploration) lead(w *world, i int, push pusher) {
	s, p := e.scripts[i], w.processes[i]
	switch p.state {
	case notBegun:
		p.state = leading
		if s.kind != lose {
			push(p, nil)
			return
		}
		push(p, func(n *world) {
			n.ledgers[s.of] = Ledger{Version: after(w.ledgers[s.of]), Limits: w.ledgers[s.of].Limits, Counted: map[string]uint64{}, Open: !e.rules.closed}
		})
	case leading:
		if e.dies || p.rounds == 2 {
			push(process{state: ended}, nil)
		}
		if p.rounds == 2 {
			return
		}
		for view := p.view; view < len(w.history); view++ {
			next := p
			next.view, next.state, next.ledger, next.rounds = view, dropping, w.ledgers[s.of], p.rounds+1
			push(next, nil)
		}
	case dropping:
		p.state, p.over = counting, nil
		push(p, nil)
		over := map[Reservation]bool{}
		for _, r := range p.ledger.Reservations {
			if (!e.rules.window || !e.mayLand(w, r)) && (!e.rules.live || !landed(w.now(), r.Write)) {
				over[r] = true
			}
		}
		if p.over = over; len(over) > 0 {
			push(p, nil)
		}
	case counting:
		e.recount(w, i, push)
	}
}

// landed is what a live read of the claim says of a write.
func landed(now []stored, write selector.Write) bool {
	of, _ := strconv.Atoi(write.Name)
	c := now[of]
	return strconv.Itoa(c.uid) == write.UID && strconv.Itoa(c.version) != write.Base
}

func (e *exploration) recount(w *world, i int, push pusher) {
	s, p := e.scripts[i], w.processes[i]
	k, now := s.of, w.ledgers[s.of]
	next := p.ledger
	view := w.history[p.view]
	count := &Count{Limits: next.Limits, Ended: p.over}
	count.Versions = map[string]uint64{claimKind: uint64(p.view)} //nolint:gosec // It is small.
	shows := func(write selector.Write) bool {
		if !e.rules.unseen {
			return true
		}
		of, _ := strconv.Atoi(write.Name)
		was := slices.ContainsFunc(w.history[:p.view+1], func(all []stored) bool { return strconv.Itoa(all[of].uid) == write.UID })
		c := view[of]
		if strconv.Itoa(c.uid) != write.UID {
			return was // It is gone.
		}
		base, _ := strconv.Atoi(write.Base)
		return !e.rules.base || write.Base == "" || c.version > base
	}
	count.Shown = map[selector.Write]bool{}
	for _, r := range next.Reservations {
		count.Shown[r.Write] = shows(r.Write)
	}
	if !next.Open {
		count.Complete = !e.unreserved(w, k) || !e.rules.window
		if e.rules.complete {
			p.view = len(w.history) - 1
			view, count.Versions[claimKind] = w.now(), uint64(p.view) //nolint:gosec // It is small.
		}
	}
	count.Used = e.used(view, k)
	if s.kind == lower && p.rounds == 1 {
		count.Limits.Total--
	}
	if !e.rules.monotonic {
		next.Counted = nil
	}
	p.ledger, p.over, p.state = Ledger{}, nil, leading
	changed := next.Recount(count)
	if !changed && next.Counted[claimKind] != count.Versions[claimKind] || e.rules.recountPrecondition && now.Version != w.processes[i].ledger.Version {
		push(p, nil)
		return
	}
	next.Version = after(now)
	push(p, func(n *world) { n.ledgers[k] = next })
}

// unreserved reports whether a write may be stored that the ledger does not have.
func (e *exploration) unreserved(w *world, k int) bool {
	for i := range w.processes {
		p := &w.processes[i]
		if p.admittedTo(e, i, k) && p.state != notBegun && p.state != ended && !e.isForged(i) &&
			!slices.ContainsFunc(w.ledgers[k].Reservations, func(r Reservation) bool { return r.Write == p.write }) {
			return true
		}
	}
	return false
}

// finish has a leader recount once all is quiet: then nothing is reserved, and what is used is exact.
func (e *exploration) finish(w world) {
	for k := range w.ledgers {
		l := w.ledgers[k]
		c := &Count{Limits: l.Limits, Ended: map[Reservation]bool{}, Complete: true}
		c.Used, c.Shown = e.used(w.now(), k), map[selector.Write]bool{}
		c.Versions = map[string]uint64{claimKind: uint64(len(w.history) - 1)} //nolint:gosec // It is small.
		for _, r := range l.Reservations {
			c.Shown[r.Write] = landed(w.now(), r.Write)
			c.Ended[r] = !c.Shown[r.Write]
		}
		l.Recount(c)
		if len(l.Reservations) > 0 || l.Used != e.used(w.now(), k) || !l.Open {
			e.stuck = fmt.Sprintf("%v: left %+v", e.scripts, l)
		}
	}
}
