package selector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/inventory"
)

// waitsFor have this newer view.
func waitsFor(newer *View) *Waits {
	return newWaits(func() Snapshot { return Snapshot{newer.Kind.Name: newer} })
}

// outdated is a view that has been replaced.
func outdated(v *View) *View {
	v.replaced = make(chan struct{})
	close(v.replaced)
	return v
}

// withClass changes a class of an inventory: its tier is gold if its name begins so.
func withClass(i *Inventory, kind *inventory.ClassKind, name, version string, annotations map[string]string) {
	labels := map[string]string{"tier": strings.TrimRight(name, "-0123456789"), "version": version}
	class := kind.NewClass(&metav1.ObjectMeta{Name: name, Labels: labels, Annotations: annotations}, nil)
	i.ChangeClass(i.classes[kind.Name].With(class), "", name)
}

// TestWaits has a claim that no known class matches, and a change of the inventory while it waits.
func TestWaits(t *testing.T) {
	kind := newKind("as.example.org", "A", databases, queues)
	add := func(name string, annotations map[string]string) step {
		return func(i *Inventory) { withClass(i, kind, name, "1", annotations) }
	}
	comes, cordoned := add("gold", nil), add("gold", map[string]string{v1beta1.CordonedAnnotation: "true"})
	needless := spec(`{selector: {whenAbsent: DefaultIfAny}}`)
	const soon, whole = 100 * time.Millisecond, v1beta1.MaxClassWait
	const broken = `no known class is left for the claim, and the API server no longer reports the classes of "as.example.org": connection refused`
	type want struct {
		after time.Duration
		class string
		draws int
		err   string
	}
	for name, tc := range map[string]struct {
		why   string
		kind  func(*v1beta1.ClaimKindSpec)
		none  bool // It asks for no class; else for gold.
		mode  Mode
		limit time.Duration // of the context, an hour unless set
		ends  bool          // The watch of the classes ends before the claim comes.
		at    time.Duration // when the inventory changes, soon unless set
		do    []step        // one every millisecond
		want  want
	}{
		"Nothing":      {why: "We should answer when it has waited.", want: want{after: whole, draws: 1}},
		"DryRun":       {why: "We should answer a dry run in the same way.", mode: Mode{DryRun: true}, want: want{after: whole, draws: 1}},
		"NeedsNone":    {why: "We should not have a claim wait that needs no class.", kind: needless, none: true, want: want{draws: 1}},
		"NeedsDefault": {why: "We should have a claim wait for a default class that it needs.", none: true, want: want{after: whole, draws: 1}},
		"NeedlessAsks": {why: "We should have a claim wait that asks for a class.", kind: needless, want: want{after: whole, draws: 1}},
		"Stored":       {why: "We should not wait for a claim that is stored.", mode: Mode{Stored: true}, want: want{draws: 1}},
		"OutOfTime":    {why: "We should wait no longer than the review has time.", limit: soon, want: want{after: soon, draws: 1}},
		"Comes":        {why: "We should bind it to a class as soon as it comes.", do: []step{comes}, want: want{after: soon, class: "gold", draws: 2}},
		"DryRunComes": {
			why:  "We should answer a dry run in the same way.",
			mode: Mode{DryRun: true},
			do:   []step{comes},
			want: want{after: soon, class: "gold", draws: 2},
		},
		"ComesLast": {
			why:  "We should see what came in the last pause.",
			at:   whole - 2*time.Millisecond,
			do:   []step{add("silver", nil), comes},
			want: want{after: whole, class: "gold", draws: 3},
		},
		"ComesTooLate": {why: "We should answer without what came later.", at: whole + 1, do: []step{comes}, want: want{after: whole, draws: 1}},
		"ComesBefore":  {why: "We should see what came before it waited.", at: -1, do: []step{comes}, want: want{class: "gold", draws: 2}},
		"DoesNotMatch": {
			why:  "We should go on waiting where other classes come.",
			do:   []step{add("silver-1", nil), add("silver-2", nil)},
			want: want{after: whole, draws: 3},
		},
		"Cordoned": {why: "We should go on waiting where it cannot get the class.", do: []step{cordoned}, want: want{after: whole, draws: 2}},
		"Uncordoned": {
			why:  "We should bind it once it can get the class.",
			do:   []step{cordoned, comes},
			want: want{after: soon + v1beta1.MinClassWaitPause, class: "gold", draws: 3},
		},
		"Listed":  {why: "We should see the classes of a new list.", do: []step{set(kind.Name, "silver", databases)}, want: want{after: whole, draws: 2}},
		"Deleted": {why: "We should answer when its kind is registered no more.", do: []step{retireDatabases}, want: want{after: soon, draws: 1}},
		"Changed": {
			why:  "We should answer when its kind is registered anew: by that, it may ask for something else.",
			do:   []step{register(databases)},
			want: want{after: soon, draws: 1},
		},
		"OtherKind": {
			why:  "We should not mind what happens to claims of another kind.",
			do:   []step{register(queues), set("qs", "gold", queues)},
			want: want{after: whole, draws: 1},
		},
		"Withheld": {
			why:  "We should not answer once classes are missing.",
			do:   []step{func(i *Inventory) { i.Withhold(kind.Name, []string{databases}, "no answer") }},
			want: want{after: soon, draws: 1, err: "not known yet"},
		},
		"Broken": {
			why:  "We should not say that there is no class which the watch does not show.",
			ends: true,
			want: want{after: whole, draws: 1, err: broken},
		},
		"BrokenDryRun": {
			why:  "We should answer a dry run in the same way.",
			ends: true,
			mode: Mode{DryRun: true},
			want: want{after: whole, draws: 1, err: broken},
		},
		"BrokenComes":     {why: "We should bind it to what is known.", ends: true, do: []step{comes}, want: want{after: soon, class: "gold", draws: 2}},
		"BrokenNeedsNone": {why: "We should block no claim that needs no class.", ends: true, kind: needless, none: true, want: want{draws: 1}},
		"BrokenStored":    {why: "We should leave it to the watch when a claim is bound later.", ends: true, mode: Mode{Stored: true}, want: want{draws: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := postgres()
				k.Name = databases
				if tc.kind != nil {
					tc.kind(&k.Spec)
				}
				i, draws := NewInventory(), 0
				i.SetClaimKind(NewClaimKind(k))
				i.SetClasses(inventory.NewClasses(kind, nil))
				i.Open()
				view := i.Snapshot()[databases]
				change := func() {
					for _, do := range tc.do {
						do(i)
						time.Sleep(time.Millisecond)
					}
				}
				if tc.at < 0 {
					change()
				} else {
					go func() { time.Sleep(max(tc.at, soon)); change() }()
				}
				ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(tc.limit, time.Hour))
				defer cancel()
				in := claim.Intake{Claim: claim.Claim{Namespace: "team", Name: "db", Selector: gold}}
				if tc.none {
					in.Selector = nil
				}
				d := &Decider{Waits: i.Waits, Now: time.Now, Fresh: func() uint64 { draws++; return 0 }}
				if tc.ends {
					d.Broken = func(string) error { return errors.New("connection refused") }
				}
				began := time.Now()
				got, err := d.Decide(ctx, view, in, tc.mode)
				after, class := time.Since(began), ""
				if got.Class != nil {
					class = got.Class.Name
				}
				if tc.want.err != "" {
					require.ErrorContains(t, err, tc.want.err, tc.why)
				} else {
					require.NoError(t, err, tc.why)
				}
				assert.Equal(t, tc.want, want{after, class, draws, tc.want.err}, tc.why)
				assert.Equal(t, class != "" || tc.want.after > 0, got.Waited != NotWaited, tc.why)
				time.Sleep(time.Second) // The changes end.
				began = time.Now()
				_, err = d.Explain(t.Context(), view, in)
				require.NoError(t, err)
				assert.Zero(t, time.Since(began), "We should explain from what is known.")
			})
		})
	}
}

// TestWaitsAreBounded has more claims wait than may.
func TestWaitsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		most, share := v1beta1.ClassWaits.InFlight, v1beta1.ClassWaits.PerKey
		i := NewInventory()
		i.SetClaimKind(claimKindOf(databases))
		i.Open()
		d := &Decider{Waits: i.Waits}
		refused := func(namespace string, n int) int {
			var refused atomic.Int64
			for range n {
				go func() {
					in := claim.Intake{Claim: claim.Claim{Namespace: namespace, Selector: gold}}
					got, err := d.Decide(t.Context(), i.Snapshot()[databases], in, Mode{})
					assert.NoError(t, err)
					if got.Waited == WaitRefused && assert.Contains(t, got.Warning(), "no class for this claim", "We should answer as if it had waited.") {
						refused.Add(1)
					}
				}()
			}
			synctest.Wait()
			return int(refused.Load())
		}
		assert.Equal(t, 3, refused("hostile", share+3), "We should have as many wait as one namespace may.")
		assert.Equal(t, 0, refused("honest", most-share), "We should have those of others wait.")
		assert.Equal(t, 1, refused("third", 1), "We should answer the next at once.")
		time.Sleep(v1beta1.MaxClassWait + 1)
		assert.Equal(t, 0, refused("third", 1), "We should have the next wait when these have been answered.")
		time.Sleep(time.Second)
	})
}

// TestWaitsRest has a storm of changes of a class that a gate refuses, after a time.
func TestWaitsRest(t *testing.T) {
	for took, draws := range map[time.Duration]int{0: 51, 40 * time.Microsecond: 26, time.Millisecond: 3} {
		t.Run(took.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				kind, asked := newKind("as.example.org", "A", databases), 0
				i := NewInventory()
				i.SetClaimKind(claimKindOf(databases))
				i.SetClasses(inventory.NewClasses(kind, nil))
				i.Open()
				withClass(i, kind, "gold", "0", nil)
				began := time.Now()
				go func() {
					for n := 0; time.Since(began) < time.Second; n++ {
						time.Sleep(100 * time.Microsecond)
						withClass(i, kind, "gold", fmt.Sprint(n), nil)
					}
				}()
				d := &Decider{Waits: i.Waits, Now: time.Now, Gates: []Test{{Drops: func(context.Context, Subject, *inventory.Class) (bool, error) {
					asked++
					time.Sleep(took)
					return true, nil
				}}}}
				got := decided(t, d, i.Snapshot()[databases], claim.Intake{Claim: nthClaim(1)}, Mode{})
				assert.Nil(t, got.Class)
				assert.InDelta(t, draws, asked, float64(draws)/3, "We should spend a small part of the time on deciding again.")
				time.Sleep(time.Second) // The storm ends.
			})
		})
	}
}

// TestWaitsJudgeAnew has a class come that fits, beside others whose judgement costs most of what a claim may cost.
func TestWaitsJudgeAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		world := newExpressive(fits("claim.spec.n.all(a, a < class.spec.size)"))
		numbers := make([]any, 60)
		for n := range numbers {
			numbers[n] = int64(n)
		}
		world.withMany(80, "small-%d", map[string]any{"size": int64(59)})
		view, i := world.view(), NewInventory()
		i.SetClaimKind(view.Kind)
		i.SetClasses(view.All[0])
		i.Open()
		in := view.Kind.Reader.Read("team", "db", map[string]any{"metadata": map[string]any{"name": "db"}, "spec": all(map[string]any{"n": numbers})})
		_, facts := withFacts(t, view, in, Mode{})
		require.Less(t, facts.budget.Left, uint64(v1beta1.MaxExpressionCost/2), "A second draw should need more than is left.")
		kind := view.All[0].Kind
		time.AfterFunc(time.Millisecond, func() {
			content := map[string]any{"spec": map[string]any{"size": int64(60)}}
			i.ChangeClass(view.All[0].With(kind.NewClass(&metav1.ObjectMeta{Name: "large", Labels: map[string]string{"all": "yes"}}, content)), "", "large")
		})
		got := decided(t, &Decider{Waits: i.Waits}, i.Snapshot()[view.Kind.Name], in, Mode{})
		require.NotNil(t, got.Class)
		assert.Equal(t, "large", got.Class.Name)
	})
}
