package onedefault

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/webhook/exploretest"
)

// The exploration runs every interleaving of a few requests on a model of an API server. Each request that makes a class default takes an
// Attempt through its operations, one per transition. It is then in flight until its write is stored, fails, or finds another version and
// is reviewed again. A class may be default already, and move to other seats, or take more. Disturbances come at any moment: un-defaults,
// deletions, other updates, the end of the replica in the middle of an attempt, and forged reviews, which say anything and are never
// stored.
//
// Time and sightings are modelled by what a replica may believe when it reads a Lease: that the window of a write is over, unless the write
// may really yet be stored; and that the holder was seen stored, if it ever was.

const window = 90 * time.Second

// rules of the protocol that the exploration can switch off, to show that it would notice. They are broken around the Attempt, not in it.
type rules struct {
	precondition, takeOutPrecondition bool // of the write of a Lease
	uid                               bool // of a class, as it is read
	window, landed                    bool
	all                               bool // writes of the holder are kept
	ownOnly                           bool // is taken out
	sameClass                         bool // is asked of a holder beside the uid
	defaultAlready                    bool // in a seat writes nothing there
	thatSeatAlone                     bool // is where a class is default already
	thisSeat                          bool // is the one in which a class is in the way
	moves                             bool // are reviewed, of classes that are default already

	collectPrecondition, collectWindow, collectUnused bool // of a Lease that the leader deletes
}

var allRules = rules{true, true, true, true, true, true, true, true, true, true, true, true, true, true, true}

// kind of request.
type kind byte

const (
	create    kind = 'C' // a default class
	update    kind = 'U' // an existing class to be default
	move      kind = 'M' // an existing class to be default elsewhere
	undefault kind = 'N'
	remove    kind = 'D'
	touch     kind = 'T' // an update that is no concern of ours
	plain     kind = 'P' // the creation of a class that is not default
	forge     kind = 'F' // a forged review of the class, of any form
	echo      kind = 'E' // a forged review of the update of what is stored
	invent    kind = 'I' // a forged review of the creation of what is not stored
	collect   kind = 'L' // of the Lease of a seat, by the leader
)

// script is a request for a class, or a collection of a Lease.
type script struct {
	kind  kind
	class int // or seat
}

// object is a stored class; uid 0 means none.
type object struct {
	uid, version int
	// seats whose default it is.
	seats seatSet
}

// seatSet has a bit for each seat.
type seatSet byte

const onX, onY seatSet = 1, 2

var seatX, seatY = inventory.Seat{ClaimKind: "x"}, inventory.Seat{ClaimKind: "y", Namespace: "team", Partition: "p"}

func place(s inventory.Seat) int { return int(s.ClaimKind[0] - 'x') }

func (s seatSet) list() (all []inventory.Seat) {
	for _, seat := range []inventory.Seat{seatX, seatY} {
		if s&(1<<place(seat)) != 0 {
			all = append(all, seat)
		}
	}
	return all
}

// taking has the seats that each class takes.
type taking []seatSet

const (
	notBegun = iota
	attempting
	inFlight
	collecting
	deleting
	ended
)

type process struct {
	state   int
	attempt Attempt
	// seats that the class is to have when the request is stored.
	seats seatSet
	// abandoned, because the API server did not answer.
	abandoned bool
	// lease that the collector has read.
	lease Lease
}

// with the next step of its attempt.
func (p *process) with(a Attempt) process {
	return process{state: attempting, abandoned: p.abandoned, attempt: a, seats: p.seats}
}

type world struct {
	objects []object
	leases  [2]Lease
	// writes of each Lease, which make its versions.
	writes    [2]int
	processes []process
	version   int // last resourceVersion and uid
	uid       int
	landed    uint64 // uids that were ever stored, as bits
}

type exploration struct {
	rules  rules
	taking taking
	// elsewhere are the seats to which classes move.
	elsewhere taking
	scripts   []script
	known     map[inventory.Seat][]Class
	// accidents end attempts at any moment: replicas are killed, answers lost.
	accidents bool

	double *world
	// left is what a refused request left in flight.
	left error
	ends []world
}

// invented is a uid that no class ever has.
const invented = 60

var names = []Class{{Kind: "a", Name: "a"}, {Kind: "b", Name: "b"}, {Kind: "c", Name: "c"}, {Kind: "d", Name: "d"}}

func (w world) clone() world {
	w.objects, w.processes = slices.Clone(w.objects), slices.Clone(w.processes)
	return w
}

// key has everything that distinguishes states.
func (w *world) key(k *exploretest.Key) {
	pending := func(all []Pending) {
		for _, p := range all {
			k.Text(p.ID)
			k.Flag(p.Left > 0)
		}
	}
	lease := func(l *Lease) {
		k.Text(l.Version, l.Holder.Kind, string(l.Holder.UID))
		k.Flag(l.Landed)
		pending(l.Pending)
	}
	for _, o := range w.objects {
		k.Number(o.uid, o.version, int(o.seats))
	}
	for i := range w.leases {
		k.Number(w.writes[i])
		lease(&w.leases[i])
	}
	for i := range w.processes {
		p := &w.processes[i]
		k.Number(p.state)
		k.Flag(p.abandoned)
		if p.state == collecting || p.state == deleting {
			lease(&p.lease)
			continue
		}
		if p.state != attempting && p.state != inFlight {
			continue
		}
		a := &p.attempt
		k.Number(int(p.seats))
		k.Text(a.request.Kind, string(a.request.UID), a.request.Base)
		if p.state == inFlight {
			continue
		}
		k.Number(int(a.phase), len(a.request.Seats), len(a.toRead))
		k.Flag(a.refusal != nil)
		for i := range a.seats {
			s := &a.seats[i]
			k.Flag(s.known, s.wrote, s.toWrite)
			lease(&s.lease)
			k.Text("]")
			pending(s.inFlight)
		}
		if len(a.toRead) > 0 {
			for _, r := range a.read {
				k.Text(r.class.Kind, string(r.live.UID), r.live.Version)
				for _, s := range r.live.Seats {
					k.Text(s.ClaimKind)
				}
			}
		}
	}
	k.Number(w.version, w.uid, int(w.landed)) //nolint:gosec // It has a bit for each of few uids.
}

// run explores all states, and returns how many there are.
func (e *exploration) run(objects []object) int {
	e.double, e.left, e.ends = nil, nil, nil
	start := world{objects: objects, version: 12, uid: 3, processes: make([]process, len(e.scripts))}
	e.known = map[inventory.Seat][]Class{}
	for i, o := range objects { // Those that no Lease knows.
		start.landed |= 1 << o.uid
		for _, s := range o.seats.list() {
			e.known[s] = append(e.known[s], names[i])
		}
	}
	return exploretest.Run(start, (*world).key, func(w *world, add func(world)) bool {
		if doubleDefault(w) {
			e.double = w
			return false
		}
		e.expand(w, add)
		return true
	})
}

func doubleDefault(w *world) bool {
	taken := seatSet(0)
	for _, o := range w.objects {
		if o.seats&taken != 0 {
			return true
		}
		taken |= o.seats
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
		case undefault, remove, touch, plain:
			e.other(w, i, push)
		case collect:
			e.collect(w, i, push)
		default:
			e.admission(w, i, push)
		}
	}
	if over {
		e.ends = append(e.ends, *w)
	}
}

type pusher func(process, func(*world))

// other runs a request that does not reach the guard.
func (e *exploration) other(w *world, i int, push pusher) {
	s, o := e.scripts[i], w.objects[e.scripts[i].class]
	if (o.uid == 0) == (s.kind == plain) && (s.kind != undefault || o.seats != 0) {
		push(process{state: ended}, func(n *world) {
			n.version++
			after := object{uid: o.uid, version: n.version}
			switch s.kind {
			case touch:
				after.seats = o.seats
			case remove:
				after = object{}
			case plain:
				n.uid++
				after.uid = n.uid
				n.landed |= 1 << n.uid
			default:
			}
			n.objects[s.class] = after
		})
	}
	push(process{state: ended}, nil)
}

// collect does the next step of what Cluster.Collect does with the Lease of a seat.
func (e *exploration) collect(w *world, i int, push pusher) {
	p, k := &w.processes[i], e.scripts[i].class
	switch p.state {
	case notBegun:
		for _, l := range e.sightings(w, &w.leases[k]) {
			if l.Version != "" {
				push(process{state: collecting, lease: l}, nil)
			}
		}
		push(process{state: ended}, nil)
	case collecting:
		now, lease := Live{}, p.lease
		if lease.Holder.UID != "" && e.rules.collectUnused {
			now = e.live(w, nil, lease.Holder.Class)
		}
		lease.Pending = slices.Clone(lease.Pending)
		for i := range lease.Pending {
			if !e.rules.collectWindow {
				lease.Pending[i].Left = 0
			}
		}
		next := process{state: ended}
		if lease.unused(now, func(s inventory.Seat) bool { return place(s) == k }) {
			next = process{state: deleting, lease: Lease{Version: lease.Version}}
		}
		push(next, nil)
	default:
		push(process{state: ended}, func(n *world) {
			if !e.rules.collectPrecondition || w.leases[k].Version == p.lease.Version {
				n.leases[k] = Lease{}
			}
		})
	}
}

func (e *exploration) admission(w *world, i int, push pusher) {
	switch w.processes[i].state {
	case notBegun:
		if e.forged(i) {
			push(process{state: ended}, nil)
			e.forge(w, i, push)
		} else {
			e.begin(w, i, push)
		}
	case attempting:
		e.step(w, i, push)
	case inFlight:
		e.store(w, i, push)
	}
}

// attempt to take seats. The class is to have them when the request is stored.
func (e *exploration) attempt(i, uid int, base string, take, have seatSet) process {
	class := e.scripts[i].class
	r := &Request{Holder: Holder{Class: names[class], UID: types.UID(strconv.Itoa(uid))}, Base: base, Seats: take.list(), Known: e.known}
	return process{state: attempting, attempt: Begin(r, strconv.Itoa(i)+"@"+base), seats: have}
}

// begin a request that the API server asks us about, or one that takes no seat.
func (e *exploration) begin(w *world, i int, push pusher) {
	s, o := e.scripts[i], w.objects[e.scripts[i].class]
	have := e.taking[s.class]
	if s.kind == move {
		have = e.elsewhere[s.class]
	}
	take := have &^ o.seats
	switch {
	case s.kind == create:
		push(e.attempt(i, w.uid+1, "", have, have), func(n *world) { n.uid++ })
	case o.uid == 0 || have == o.seats:
		push(process{state: ended}, nil)
	case take == 0 || o.seats != 0 && !e.rules.moves: // It is stored at once, or what it was admitted on has changed.
		push(process{state: ended}, func(n *world) {
			n.version++
			n.objects[s.class] = object{uid: o.uid, version: n.version, seats: have}
		})
	default:
		push(e.attempt(i, o.uid, strconv.Itoa(o.version), take, have), nil)
	}
}

func (e *exploration) forged(i int) bool {
	k := e.scripts[i].kind
	return k == forge || k == echo || k == invent
}

// forge a review with any uid that is stored, in flight or made up; of a creation, or of an update from any version.
func (e *exploration) forge(w *world, i int, push pusher) {
	o := w.objects[e.scripts[i].class]
	seats := e.taking[e.scripts[i].class]
	if e.elsewhere != nil {
		seats |= e.elsewhere[e.scripts[i].class]
	}
	switch e.scripts[i].kind {
	case echo:
		push(e.attempt(i, o.uid, strconv.Itoa(o.version), seats, 0), nil)
		return
	case invent:
		push(e.attempt(i, invented, "", seats, 0), nil)
		return
	default:
	}
	uids := map[int]bool{invented: true}
	for _, o := range w.objects {
		uids[o.uid] = true
	}
	for j := range w.processes {
		if p := &w.processes[j]; p.state == attempting || p.state == inFlight {
			uid, _ := strconv.Atoi(string(p.attempt.request.UID))
			uids[uid] = true
		}
	}
	delete(uids, 0)
	version := o.version
	for uid := range uids {
		for _, base := range []string{"", strconv.Itoa(version), strconv.Itoa(version - 1), strconv.Itoa(w.version + 1)} {
			push(e.attempt(i, uid, base, seats, 0), nil)
		}
	}
}

// step does the next operation of an attempt. Operations that could be done at once are done in their order: each rule is about one Lease
// and the classes that it names, so the order among several seats does not matter.
func (e *exploration) step(w *world, i int, push pusher) {
	p := &w.processes[i]
	ops := p.attempt.Next()
	if ops == nil {
		e.over(w, i, push)
		return
	}
	op := ops[0]
	if e.accidents {
		push(process{state: ended}, nil) // The replica is killed.
	}
	if e.accidents && !p.abandoned && p.attempt.phase != takingOut {
		push(process{state: attempting, abandoned: true, attempt: p.attempt.Abandon(), seats: p.seats}, nil)
	}
	switch op.Kind {
	case ReadLease:
		for _, l := range e.sightings(w, &w.leases[place(op.Seat)]) {
			if !e.rules.sameClass && l.Holder.UID == p.attempt.request.UID {
				l.Holder.Class = p.attempt.request.Class
			}
			push(p.with(p.attempt.Done(op, Result{Lease: l})), nil)
		}
	case ReadClass:
		push(p.with(p.attempt.Done(op, Result{Live: e.live(w, &p.attempt, op.Class)})), nil)
	default:
		e.write(w, p, op, push)
	}
}

// over ends an attempt that has its answer.
func (e *exploration) over(w *world, i int, push pusher) {
	p := &w.processes[i]
	refusal := p.attempt.Refusal()
	if refusal == nil && !p.abandoned && !e.forged(i) {
		push(process{state: inFlight, attempt: p.attempt, seats: p.seats}, nil)
		return
	}
	push(process{state: ended}, nil)
	if refusal == nil && !p.abandoned {
		return
	}
	for k := range w.leases {
		if w.leases[k].has(p.attempt.id) && !p.abandoned {
			e.left = fmt.Errorf("%v left its write in flight: %+v", e.scripts[i], w.leases[k])
		}
	}
	if refusal != nil && refusal.Reason == Changed && (e.scripts[i].kind == update || e.scripts[i].kind == move) {
		push(process{}, nil) // The API server reads the object again, and asks again.
	}
}

// store what was admitted, or not.
func (e *exploration) store(w *world, i int, push pusher) {
	s, p, o := e.scripts[i], &w.processes[i], w.objects[e.scripts[i].class]
	over := process{state: ended}
	push(over, nil) // Another webhook refuses it, or a quota.
	uid, _ := strconv.Atoi(string(p.attempt.request.UID))
	stored := func(n *world) {
		n.version++
		n.objects[s.class] = object{uid: uid, version: n.version, seats: p.seats}
		n.landed |= 1 << uid
	}
	switch {
	case s.kind == create && o.uid == 0:
		push(over, stored)
	case s.kind == create:
	case o.uid == uid && strconv.Itoa(o.version) == p.attempt.request.Base:
		push(over, stored)
	default:
		push(process{}, nil) // The API server reads the object again, and asks again.
	}
}

// sightings are what replicas may believe of a Lease: those that have just seen it, those that have seen the holder stored, and those that
// have seen it for so long that all windows that can be over are over.
func (e *exploration) sightings(w *world, l *Lease) []Lease {
	if len(l.Pending) == 0 {
		return []Lease{*l}
	}
	fresh, aged := *l, *l
	uid, _ := strconv.Atoi(string(l.Holder.UID))
	aged.Landed = w.landed&(1<<uid) != 0 || !e.rules.landed
	fresh.Pending, aged.Pending = nil, nil
	over := false
	for _, p := range l.Pending {
		p.Left = window
		fresh.Pending = append(fresh.Pending, p)
		if !e.rules.window || !w.underWay(p.ID) {
			p.Left, over = 0, true
		}
		aged.Pending = append(aged.Pending, p)
	}
	all := []Lease{fresh}
	if aged.Landed {
		fresh.Landed = true
		all = append(all, fresh)
	}
	if over {
		all = append(all, aged)
	}
	return all
}

// underWay reports whether what an attempt has written may yet be stored.
func (w *world) underWay(id string) bool {
	i, _, _ := strings.Cut(id, "@")
	n, _ := strconv.Atoi(i)
	p := &w.processes[n]
	return p.attempt.id == id && (p.state == inFlight || p.state == attempting && !p.abandoned)
}

// live class, as an attempt reads it, or as it is if the attempt is nil.
func (e *exploration) live(w *world, a *Attempt, class Class) Live {
	for i, c := range names[:len(w.objects)] {
		if c != class || w.objects[i].uid == 0 {
			continue
		}
		o := w.objects[i]
		live := Live{UID: types.UID(strconv.Itoa(o.uid)), Version: strconv.Itoa(o.version), Seats: o.seats.list()}
		if a == nil {
			return live
		}
		own := class == a.request.Class
		switch {
		case own && !e.rules.defaultAlready:
			live.Seats = nil
		case o.seats != 0 && (own && !e.rules.thatSeatAlone || !own && !e.rules.thisSeat):
			live.Seats = a.request.Seats
		}
		for s := range a.seats {
			if h := a.seats[s].lease.Holder; !e.rules.uid && class != a.request.Class && h.Class == class {
				live.UID = h.UID
			}
		}
		return live
	}
	return Live{}
}

func (e *exploration) write(w *world, p *process, op Op, push pusher) {
	k, a := place(op.Seat), p.attempt
	required := e.rules.precondition
	if a.phase == takingOut {
		required = e.rules.takeOutPrecondition
	}
	if required && w.leases[k].Version != op.Lease.Version {
		push(p.with(a.Done(op, Result{})), nil)
		return
	}
	lease := op.Lease
	switch {
	case a.phase == takingOut && !e.rules.ownOnly:
		lease.Holder, lease.Pending = Holder{}, nil
	case a.phase == writing && !e.rules.all:
		lease.Pending = lease.Pending[len(lease.Pending)-1:]
	}
	// Versions of a Lease are its own: a count of its writes makes fewer states than a common one.
	count := w.writes[k] + 1
	if lease.Version = strconv.Itoa(count); lease.Holder.UID == "" {
		lease = Lease{}
	}
	for i, pending := range lease.Pending {
		pending.Left = 0 // Is not stored.
		lease.Pending[i] = pending
	}
	written := func(n *world) { n.leases[k], n.writes[k] = lease, count }
	push(p.with(a.Done(op, Result{Written: true})), written)
	if e.accidents && a.phase == writing { // It is written, and the answer is lost.
		push(process{state: attempting, abandoned: true, attempt: a.Abandon(), seats: p.seats}, written)
	}
}

// stuck makes later requests for a default of each seat, once all windows are over. It is an error if anything but a default of that seat
// stands in the way.
func (e *exploration) stuck(w world) error {
	for _, seat := range []inventory.Seat{seatX, seatY} {
		free := true
		for _, o := range w.objects {
			free = free && !slices.Contains(o.seats.list(), seat)
		}
		a := Begin(&Request{Holder: Holder{Class: Class{Kind: "z", Name: "z"}, UID: "later"}, Seats: []inventory.Seat{seat}, Known: e.known}, "later")
		for steps := 0; a.Next() != nil; steps++ {
			if steps == 100 {
				return errors.New("it does not end")
			}
			switch op := a.Next()[0]; op.Kind {
			case ReadLease:
				all := e.sightings(&w, &w.leases[place(op.Seat)])
				a = a.Done(op, Result{Lease: all[len(all)-1]})
			case ReadClass:
				a = a.Done(op, Result{Live: e.live(&w, &a, op.Class)})
			default:
				a = a.Done(op, Result{Written: true})
			}
		}
		if (a.Refusal() == nil) != free {
			return fmt.Errorf("no default of %+v: %t, refusal: %+v", seat, free, a.Refusal())
		}
	}
	return nil
}
