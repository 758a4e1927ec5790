package onedefault

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
)

// The exploration runs every interleaving of a few requests on a model of an
// API server: each request that makes a class default takes an Attempt through
// its operations, one a transition, and is then in flight until its write is
// stored, fails, or finds another version and is asked about again. What ends a
// default, or disturbs, comes between at any moment: un-defaults, deletions,
// other updates, and the end of the replica in the middle of an attempt.
//
// Time is modelled simply: a Lease ages by one window, and only while nothing
// that was admitted under it is in flight.

const window = 90 * time.Second

var epoch = time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)

// rules of the protocol that the exploration can do without, to show that it
// would notice. They are broken around the Attempt, not in it.
type rules struct{ precondition, putBackPrecondition, uid, newestBase, window bool }

var allRules = rules{precondition: true, putBackPrecondition: true, uid: true, newestBase: true, window: true}

// kind of request.
type kind byte

const (
	create    kind = 'C' // a default class
	update    kind = 'U' // an existing class to be default
	undefault kind = 'N'
	remove    kind = 'D'
	touch     kind = 'T' // an update that is no concern of ours
)

// script is what is asked of a class.
type script struct {
	kind  kind
	class int
}

// object is a stored class; uid 0, none.
type object struct {
	uid, version int
	def          bool
}

// serving has the claim kinds that each class serves.
type serving [][]string

const (
	notBegun = iota
	attempting
	inFlight
	ended
)

type process struct {
	state   int
	attempt Attempt
	// abandoned, because the API server did not answer.
	abandoned bool
}

type world struct {
	objects   []object
	leases    [2]Lease
	processes []process
	version   int // last resourceVersion and uid
	uid       int
}

type exploration struct {
	rules   rules
	serving serving
	scripts []script
	known   map[string][]Class
	// accidents end attempts at any moment: replicas are killed, answers lost.
	accidents bool

	seen   map[string]struct{}
	stack  []world
	double *world
	ends   []world
}

var names = []Class{{Kind: "a", Name: "a"}, {Kind: "b", Name: "b"}, {Kind: "c", Name: "c"}, {Kind: "d", Name: "d"}}

func place(claimKind string) int { return int(claimKind[0] - 'x') }

func (w world) clone() world {
	w.objects = append([]object(nil), w.objects...)
	w.processes = append([]process(nil), w.processes...)
	return w
}

// key has all that tells one state from another.
func (w *world) key(b []byte) []byte {
	number := func(n int) { b = append(strconv.AppendInt(b, int64(n), 36), ' ') }
	holder := func(h Holder) { b = append(append(append(append(b, h.Kind...), h.UID...), '@'), h.Base...) }
	lease := func(l Lease) {
		b = append(append(b, l.Version...), ':')
		holder(l.Holder)
		if l.Written.Equal(epoch) {
			b = append(b, '*')
		}
		b = append(b, '|')
	}
	for _, o := range w.objects {
		number(o.uid)
		number(o.version)
		if o.def {
			b = append(b, '!')
		}
	}
	for _, l := range w.leases {
		lease(l)
	}
	for _, p := range w.processes {
		number(p.state)
		if p.abandoned {
			b = append(b, '#')
		}
		if p.state == attempting || p.state == inFlight {
			holder(p.attempt.request.Holder)
			number(int(p.attempt.phase))
			number(p.attempt.at)
			lease(p.attempt.lease)
			number(len(p.attempt.check))
			for _, l := range p.attempt.taken {
				lease(l)
			}
		}
	}
	number(w.version)
	number(w.uid)
	return b
}

// run returns how many states there are.
func (e *exploration) run(objects []object) int {
	e.seen, e.double, e.ends = map[string]struct{}{}, nil, nil
	start := world{objects: objects, version: 12, uid: 3, processes: make([]process, len(e.scripts))}
	e.known = map[string][]Class{}
	for i, o := range objects { // Those that no Lease knows.
		if o.def {
			for _, k := range e.serving[i] {
				e.known[k] = append(e.known[k], names[i])
			}
		}
	}
	e.stack = append(e.stack[:0], start)
	var buffer []byte
	for len(e.stack) > 0 && e.double == nil {
		w := e.stack[len(e.stack)-1]
		e.stack = e.stack[:len(e.stack)-1]
		buffer = w.key(buffer[:0])
		if _, ok := e.seen[string(buffer)]; ok {
			continue
		}
		e.seen[string(buffer)] = struct{}{}
		if e.doubleDefault(&w) {
			e.double = &w
			break
		}
		e.expand(&w)
	}
	return len(e.seen)
}

func (e *exploration) doubleDefault(w *world) bool {
	count := [2]int{}
	for i, o := range w.objects {
		if o.def {
			for _, k := range e.serving[i] {
				count[place(k)]++
			}
		}
	}
	return count[0] > 1 || count[1] > 1
}

func (e *exploration) expand(w *world) {
	for k := range w.leases {
		if w.leases[k].Holder.UID != "" && w.leases[k].Written.Equal(epoch) && (!e.rules.window || !e.underWay(w, k)) {
			n := w.clone()
			n.leases[k].Written = epoch.Add(-window)
			e.stack = append(e.stack, n)
		}
	}
	over := true
	for i := range w.processes {
		if w.processes[i].state == ended {
			continue
		}
		over = false
		switch e.scripts[i].kind {
		case create, update:
			e.admission(w, i)
		default:
			e.other(w, i)
		}
	}
	if over {
		e.ends = append(e.ends, *w)
	}
}

// underWay says whether anything that has written the Lease may yet be stored.
func (e *exploration) underWay(w *world, lease int) bool {
	for i := range w.processes {
		p := &w.processes[i]
		for at, k := range e.serving[e.scripts[i].class] {
			if place(k) == lease && (p.state == inFlight || p.state == attempting && at < len(p.attempt.taken)) {
				return true
			}
		}
	}
	return false
}

// other is a request that we are not asked about.
func (e *exploration) other(w *world, i int) {
	s, o := e.scripts[i], w.objects[e.scripts[i].class]
	if o.uid != 0 && (s.kind != undefault || o.def) {
		n := w.clone()
		n.version++
		after := object{uid: o.uid, version: n.version, def: o.def && s.kind == touch}
		if s.kind == remove {
			after = object{}
		}
		n.objects[s.class] = after
		n.processes[i] = process{state: ended}
		e.stack = append(e.stack, n)
	}
	n := w.clone()
	n.processes[i] = process{state: ended}
	e.stack = append(e.stack, n)
}

func (e *exploration) admission(w *world, i int) {
	s, p, o := e.scripts[i], &w.processes[i], w.objects[e.scripts[i].class]
	push := func(next process, change func(*world)) {
		n := w.clone()
		if change != nil {
			change(&n)
		}
		n.processes[i] = next
		e.stack = append(e.stack, n)
	}
	over := process{state: ended}
	switch p.state {
	case notBegun:
		request := &Request{Holder: Holder{Class: names[s.class]}, ClaimKinds: e.serving[s.class], Known: e.known, Window: window}
		switch {
		case s.kind == create:
			request.UID = types.UID(strconv.Itoa(w.uid + 1))
		case o.uid == 0 || o.def:
			push(over, nil)
			return
		default:
			request.UID, request.Base = types.UID(strconv.Itoa(o.uid)), strconv.Itoa(o.version)
		}
		push(process{state: attempting, attempt: Begin(request)}, func(n *world) {
			if s.kind == create {
				n.uid++
			}
		})
	case attempting:
		op := p.attempt.Next()
		if op.Kind == Done {
			if p.abandoned || p.attempt.Refusal() != nil {
				push(over, nil)
			} else {
				push(process{state: inFlight, attempt: p.attempt}, nil)
			}
			return
		}
		if e.accidents {
			push(over, nil) // The replica is killed.
		}
		if e.accidents && !p.abandoned {
			push(process{state: attempting, abandoned: true, attempt: p.attempt.Abandon()}, nil)
		}
		goOn := func(a Attempt) process { return process{state: attempting, abandoned: p.abandoned, attempt: a} }
		switch op.Kind {
		case ReadLease:
			push(goOn(p.attempt.LeaseRead(w.leases[place(op.ClaimKind)], epoch)), nil)
		case ReadClass:
			push(goOn(p.attempt.ClassRead(e.live(w, p.attempt, op))), nil)
		default:
			e.write(w, p, op, push)
		}
	case inFlight:
		push(over, nil) // Another webhook refuses it, or a quota.
		if s.kind == create {
			if o.uid != 0 {
				push(over, nil)
				return
			}
			uid, _ := strconv.Atoi(string(p.attempt.request.UID))
			push(over, func(n *world) { n.version++; n.objects[s.class] = object{uid: uid, version: n.version, def: true} })
			return
		}
		if strconv.Itoa(o.uid) == string(p.attempt.request.UID) && strconv.Itoa(o.version) == p.attempt.request.Base {
			push(over, func(n *world) { n.version++; n.objects[s.class] = object{uid: o.uid, version: n.version, def: true} })
			return
		}
		push(process{}, nil) // The API server reads the object again, and asks again.
	}
}

func (e *exploration) live(w *world, a Attempt, op Op) Live {
	for i, c := range names[:len(w.objects)] {
		if c != op.Class || w.objects[i].uid == 0 {
			continue
		}
		o := w.objects[i]
		live := Live{UID: types.UID(strconv.Itoa(o.uid)), Version: strconv.Itoa(o.version), Default: o.def}
		if !e.rules.uid && c == a.lease.Holder.Class {
			live.UID = a.lease.Holder.UID
		}
		return live
	}
	return Live{}
}

func (e *exploration) write(w *world, p *process, op Op, push func(process, func(*world))) {
	k, a := place(op.ClaimKind), p.attempt
	goOn := func(a Attempt) process { return process{state: attempting, abandoned: p.abandoned, attempt: a} }
	required := e.rules.precondition
	if a.phase == puttingBack {
		required = e.rules.putBackPrecondition
	}
	if required && w.leases[k].Version != op.Lease.Version {
		push(goOn(a.LeaseWritten("")), nil)
		return
	}
	lease := op.Lease
	if !e.rules.newestBase && a.phase == taking {
		lease.Holder.Base = a.request.Base
	}
	// Versions of a Lease are its own: a count of its writes makes fewer states than a common one.
	count, _ := strconv.Atoi(w.leases[k].Version)
	lease.Version = strconv.Itoa(count + 1)
	written := func(n *world) { n.leases[k] = lease }
	push(goOn(a.LeaseWritten(lease.Version)), written)
	if e.accidents && a.phase == taking { // It is written, and the answer is lost.
		push(process{state: attempting, abandoned: true, attempt: a.Abandon()}, written)
	}
}

// stuck says what a later request for a default finds at the end, once all
// windows are over: nothing but a default may stand in its way.
func (e *exploration) stuck(w world) error {
	request := &Request{Holder: Holder{Class: Class{Kind: "z", Name: "z"}, UID: "later"}, ClaimKinds: []string{"x", "y"}, Known: e.known, Window: window}
	free := true
	for i, o := range w.objects {
		free = free && (!o.def || len(e.serving[i]) == 0)
	}
	a := Begin(request)
	for range 100 {
		switch op := a.Next(); op.Kind {
		case ReadLease:
			a = a.LeaseRead(w.leases[place(op.ClaimKind)], epoch.Add(window))
		case ReadClass:
			a = a.ClassRead(e.live(&w, a, op))
		case WriteLease:
			a = a.LeaseWritten("later")
		case Done:
			if (a.Refusal() == nil) != free {
				return fmt.Errorf("no default: %t, refusal: %+v", free, a.Refusal())
			}
			return nil
		}
	}
	return errors.New("it does not end")
}

func combinations(pool []script, n int, visit func([]script)) {
	var rest func(from int, chosen []script)
	rest = func(from int, chosen []script) {
		if len(chosen) == n {
			visit(chosen)
			return
		}
		for i := from; i < len(pool); i++ {
			rest(i, append(slices.Clip(chosen), pool[i]))
		}
	}
	rest(0, nil)
}

type suite struct {
	serving serving
	pool    []script
	initial [][]object
}

const a, b, c, d = 0, 1, 2, 3

var (
	oneClaimKind = suite{
		serving: serving{{"x"}, {"x"}},
		pool: []script{
			{create, a}, {create, b}, {update, a}, {update, b}, {undefault, a}, {remove, a}, {touch, a}, {undefault, b}, {remove, b},
		},
		initial: [][]object{
			{{}, {}},
			{{uid: 1, version: 10}, {}},
			{{uid: 1, version: 10}, {uid: 2, version: 11}},
			{{uid: 1, version: 10, def: true}, {uid: 2, version: 11}}, // made before we were installed
		},
	}
	twoClaimKinds = suite{
		serving: serving{{"x", "y"}, {"x"}, {"y"}, {"x"}},
		pool: []script{
			{create, a}, {create, b}, {create, c}, {update, a}, {update, b}, {update, c}, {undefault, a}, {remove, a}, {touch, a}, {undefault, c},
		},
		initial: [][]object{
			{{}, {}, {}, {}},
			{{uid: 1, version: 10}, {uid: 2, version: 11}, {uid: 3, version: 12}, {}},
			{{uid: 1, version: 10}, {}, {uid: 3, version: 12, def: true}, {}},
		},
	}
)

// requests at once, and one less where there are accidents, too. make race asks for one more.
func requests(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(cmp.Or(os.Getenv("REQUESTS"), "3"))
	require.NoError(t, err, "REQUESTS must be a number of requests.")
	return n
}

func TestEveryInterleaving(t *testing.T) {
	for name, s := range map[string]suite{"OneClaimKind": oneClaimKind, "TwoClaimKinds": twoClaimKinds} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scenarios, states, ends := 0, 0, 0
			for n := 2; n <= requests(t); n++ {
				combinations(s.pool, n, func(scripts []script) {
					for _, objects := range s.initial {
						e := &exploration{rules: allRules, serving: s.serving, scripts: scripts, accidents: n < requests(t)}
						states += e.run(objects)
						if scenarios++; scenarios%100 == 0 {
							t.Logf("%d scenarios, %d states so far", scenarios, states)
						}
						ends += len(e.ends)
						require.Nil(t, e.double, "We should never have two defaults, whatever the order of %v.", scripts)
						for _, w := range e.ends {
							require.NoError(t, e.stuck(w), "We should leave nothing stuck after %v.", scripts)
						}
					}
				})
			}
			t.Logf("%d scenarios, %d states, %d ends", scenarios, states, ends)
		})
	}
}

// TestEveryRuleIsNeeded shows that the exploration finds what each rule prevents.
func TestEveryRuleIsNeeded(t *testing.T) {
	without := func(change func(*rules)) rules {
		r := allRules
		change(&r)
		return r
	}
	for name, tc := range map[string]struct {
		rules   rules
		serving serving
		initial []object
		scripts []script
	}{
		"Precondition": {
			rules:   without(func(r *rules) { r.precondition = false }),
			serving: oneClaimKind.serving, initial: oneClaimKind.initial[0],
			scripts: []script{{create, a}, {create, b}},
		},
		"PutBackPrecondition": {
			rules:   without(func(r *rules) { r.putBackPrecondition = false }),
			serving: twoClaimKinds.serving, initial: twoClaimKinds.initial[2],
			scripts: []script{{update, a}, {touch, a}, {create, b}, {create, d}},
		},
		"UID": {
			rules:   without(func(r *rules) { r.uid = false }),
			serving: oneClaimKind.serving, initial: oneClaimKind.initial[1],
			scripts: []script{{create, a}, {create, b}, {remove, a}},
		},
		"NewestBase": {
			rules:   without(func(r *rules) { r.newestBase = false }),
			serving: oneClaimKind.serving, initial: oneClaimKind.initial[1],
			scripts: []script{{update, a}, {update, a}, {create, b}, {touch, a}},
		},
		"Window": {
			rules:   without(func(r *rules) { r.window = false }),
			serving: oneClaimKind.serving, initial: oneClaimKind.initial[0],
			scripts: []script{{create, a}, {create, b}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := &exploration{rules: tc.rules, serving: tc.serving, scripts: tc.scripts}
			e.run(tc.initial)
			assert.NotNil(t, e.double, "We should find two defaults without this rule.")
			e.rules = allRules
			e.run(tc.initial)
			assert.Nil(t, e.double, "We should find none with it.")
		})
	}
}
