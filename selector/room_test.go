package selector

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/inventory"
)

func TestRoomFits(t *testing.T) {
	const unlimited = inventory.Unlimited
	for name, tc := range map[string]struct {
		reason string
		room   Taken
		in     inventory.Capacity
		usage  int64
		fits   bool
	}{
		"Empty":   {"A claim should fit into an empty class.", Taken{}, inventory.Capacity{Total: 10, PerNamespace: unlimited}, 10, true},
		"Last":    {"The last place should be given.", Taken{Used: 7, Reserved: 2}, inventory.Capacity{Total: 10, PerNamespace: unlimited}, 1, true},
		"Full":    {"A full class should take none.", Taken{Used: 10}, inventory.Capacity{Total: 10, PerNamespace: unlimited}, 1, false},
		"Nothing": {"A claim that uses nothing should fit into a full class.", Taken{Used: 10}, inventory.Capacity{Total: 10, PerNamespace: unlimited}, 0, true},
		"Unlimited": {
			"A class without a limit should take all.",
			Taken{Used: unlimited},
			inventory.Capacity{Total: unlimited, PerNamespace: unlimited},
			v1beta1.MaxUsage, true,
		},
		"Overflow": {"A sum that overflows should be full.", Taken{Used: -5}, inventory.Capacity{Total: 10, PerNamespace: unlimited}, 1, false},
		"PerNamespace": {
			"A namespace should have no more than its share.",
			Taken{NamespaceUsed: 1, NamespaceReserved: 1},
			inventory.Capacity{Total: 10, PerNamespace: 2},
			1, false,
		},
		"LimitOfAll": {"A namespace should have no more than is left.", Taken{Used: 10, NamespaceUsed: 1}, inventory.Capacity{Total: 10, PerNamespace: 2}, 1, false},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, tc.fits, tc.room.Fits(&tc.in, tc.usage), tc.reason) })
	}
}

func TestUsage(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		usage  v1beta1.Expression
		spec   map[string]any
		want   int64
		err    string
	}{
		"None":    {reason: "A claim should use nothing that its kind does not name.", want: 0},
		"Number":  {reason: "We should take a number.", usage: "claim.spec.nodes * 2", spec: map[string]any{"nodes": int64(3)}, want: 6},
		"Field":   {reason: "We should take a quantity.", usage: "claim.spec.storage", spec: map[string]any{"storage": "10Gi"}, want: 10 << 30},
		"Rounded": {reason: "We should round up.", usage: "claim.spec.cpu", spec: map[string]any{"cpu": "1500m"}, want: 2},
		"Zero":    {reason: "A claim may use nothing.", usage: "claim.spec.nodes", spec: map[string]any{"nodes": int64(0)}, want: 0},
		"Most":    {reason: "A claim may use that much.", usage: "claim.spec.nodes", spec: map[string]any{"nodes": int64(v1beta1.MaxUsage)}, want: v1beta1.MaxUsage},
		"TooLarge": {
			reason: "A claim should use no more.",
			usage:  "claim.spec.nodes",
			spec:   map[string]any{"nodes": int64(v1beta1.MaxUsage) + 1},
			err:    "must not be more than 9007199254740992",
		},
		"Huge": {
			reason: "We should not overflow.",
			usage:  "claim.spec.nodes",
			spec:   map[string]any{"nodes": "900000000000000000000"},
			err:    "must not be more than 9007199254740992",
		},
		"Negative": {reason: "A claim should give nothing back.", usage: "claim.spec.nodes", spec: map[string]any{"nodes": int64(-1)}, err: "must not be negative"},
		"Text": {
			reason: "We should take no other text.",
			usage:  "claim.spec.storage",
			spec:   map[string]any{"storage": "much"},
			err:    "must be a number or a quantity, such as 50 or 10Ti",
		},
		"Absent": {reason: "We should guess nothing.", usage: "claim.spec.storage", spec: map[string]any{}, err: "no such key: storage"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newExpressive(func(s *v1beta1.ClaimKindSpec, _ *v1beta1.ClassKindSpec) {
				if tc.usage != "" {
					s.Classes.Usage = []v1beta1.Usage{{Name: "storage", Expression: tc.usage}}
				}
			}).with("a", nil)
			kind := e.view().Kind
			require.Nil(t, kind.fault, tc.reason)
			if tc.spec == nil {
				tc.spec = map[string]any{}
			}
			if tc.err != "" {
				tc.want = 1
			}
			got, err := new(Decider).UsageOf(t.Context(), e.view(), claim.Claim{Object: map[string]any{"spec": tc.spec}})
			require.NoError(t, err, "A claim that is stored should count in any case.")
			assert.Equal(t, claim.Usage{tc.want}, got, tc.reason)

			d := e.decided(t, all(tc.spec))
			assert.Equal(t, claim.Usage{tc.want}, d.Claim.Usage, tc.reason)
			if tc.err != "" {
				require.Len(t, d.Claim.Problems, 1, tc.reason)
				assert.Contains(t, d.Claim.Problems[0].Error(), "the expression spec.classes.usage[storage].expression of claim kind", tc.reason)
				assert.Contains(t, d.Claim.Problems[0].Error(), tc.err, tc.reason)
			} else {
				assert.Equal(t, "Pool/a", d.Class.String(), tc.reason)
			}
			in := kind.Reader.Read("team", "claim", map[string]any{"spec": all(tc.spec)})
			stored, err := kind.Reader.Ask(in).Claim("team", "claim")
			require.NoError(t, err)
			d = decided(t, new(Decider), e.view(), claim.Intake{Claim: stored}, Mode{Stored: true})
			assert.NotNil(t, d.Class, "A claim that is stored should wait for no other expression.")
			assert.Equal(t, claim.Usage{tc.want}, d.Claim.Usage, "We should keep what the expression looks at.")
		})
	}
	for _, variable := range []string{"class.spec.size", "request.userInfo.username"} {
		assert.NotNil(t, kindOf(spec(`{classes: {usage: [{name: a, expression: `+variable+`}]}}`)).fault, "A claim that is stored should show its usage.")
	}
}

func TestFull(t *testing.T) {
	e := newExpressive(specs(`{}`, `{capacity: [{name: claims, total: {path: ".spec.capacity"}}]}`)).with("a", map[string]any{
		"capacity": int64(10),
	}).with("b", map[string]any{"capacity": int64(10)}).with("c", nil)
	v := e.view()
	require.True(t, v.Kind.Limited)
	assert.True(t, v.Kind.Watched)
	used := map[string]int64{"a": 10, "b": 9, "c": 1000}
	v.Kind.Room = func(namespace string, c *inventory.Class) Room {
		assert.Equal(t, "team", namespace)
		return Room{{Used: used[c.Name]}}
	}
	in := v.Kind.Reader.Read("team", "claim", map[string]any{"spec": all(map[string]any{})})
	decide := func() Decision {
		d := decided(t, new(Decider), v, in, Mode{DryRun: true})
		return d
	}
	d := decide()
	assert.Equal(t, 2, d.Candidates)
	assert.Equal(t, "Full=1", d.DroppedText())
	used["b"] = 10
	assert.Equal(t, "Pool/c", decide().Class.String(), "A class without a limit should take all.")
	v.Kind.Room = nil
	assert.Equal(t, 3, decide().Candidates, "All should fit where it is not known how much is taken.")

	for _, f := range NewClaimKind(postgres(), &v1beta1.ClassKind{}).tests {
		assert.NotEqual(t, reasonFull, f.Reason, "A kind without a capacity should have no such test.")
	}
	assert.False(t, v.Kind.Same(NewClaimKind(e.claims)), "A kind should be another one with a capacity.")
	assert.True(t, v.Kind.Same(e.view().Kind))
}

// limitedWorld has two claim kinds that share classes with these capacities, 0 for none, and for each namespace 3, as one replica knows them.
type limitedWorld struct {
	Snapshot
	first, second *View
	classes       []*inventory.Class
}

func newLimitedWorld(form v1beta1.ReferenceForm, strategy v1beta1.Strategy, capacities ...int64) *limitedWorld {
	spec := crossplaneClassKind()
	spec.ClaimKinds = []v1beta1.ClaimKindLink{{Name: postgres().Name}, {Name: "others.example.org"}, {Name: "absents.example.org"}}
	spec.Capacity = []v1beta1.Capacity{{Name: v1beta1.ClaimsQuantity, PerNamespace: &v1beta1.Source{Annotation: "share"}}}
	ck := &v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: "golds.example.org"}, Spec: spec}
	kind := inventory.NewClassKind(ck, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Gold"}, false)
	w := &limitedWorld{Snapshot: Snapshot{}}
	for i, capacity := range capacities {
		annotations := map[string]string{"share": "3"}
		if capacity > 0 {
			annotations[v1beta1.CapacityAnnotation] = fmt.Sprint(capacity)
		}
		w.classes = append(w.classes, kind.NewClass(&metav1.ObjectMeta{Name: fmt.Sprintf("gold-%d", i), Annotations: annotations}, nil))
	}
	for i, form := range []v1beta1.ReferenceForm{form, v1beta1.ObjectReference} {
		k := postgres()
		k.Name = spec.ClaimKinds[i].Name
		k.Spec.Choice.Strategy, k.Spec.Reference.Form = strategy, form
		v := NewView(NewClaimKind(k, ck), []*inventory.Classes{inventory.NewClasses(kind, w.classes)})
		v.Kind.Tally, v.Kind.Room = &Tally{}, w.Room
		w.Snapshot[k.Name] = v
	}
	w.first, w.second = w.Snapshot[spec.ClaimKinds[0].Name], w.Snapshot[spec.ClaimKinds[1].Name]
	return w
}

// named claim of a namespace that takes any class.
func claimOf(namespace, name string) claim.Intake {
	return claim.Intake{Claim: claim.Claim{Namespace: namespace, Name: name, Selector: labels.Everything()}}
}

var roomTime = time.Unix(1000, 0)

func (w *limitedWorld) admit(t *testing.T, v *View, namespace, name string) *inventory.Class {
	t.Helper()
	d := decided(t, &Decider{Now: func() time.Time { return roomTime }}, v, claimOf(namespace, name), Mode{})
	return d.Class
}

// store a claim, as the watch shows it.
func (w *limitedWorld) store(v *View, namespace, name string, c *inventory.Class, usage ...int64) *Count {
	class, of := v.Kind.Demand.CountedAs(c), claim.Usage{}
	copy(of[:], usage)
	defer v.Kind.Tally.Seen(namespace, name, "", [2]uint64{class})
	return v.Kind.Tally.Bind(class, v.Kind.ShareOf(namespace, of))
}

func TestRoomOfClaims(t *testing.T) {
	for _, strategy := range []v1beta1.Strategy{v1beta1.WeightedRandom, v1beta1.LeastClaims, v1beta1.RoundRobin, v1beta1.HighestWeight} {
		for _, form := range []v1beta1.ReferenceForm{v1beta1.ObjectReference, v1beta1.KindReference, v1beta1.Name} {
			t.Run(string(strategy)+string(form), func(t *testing.T) {
				w := newLimitedWorld(form, strategy, 4)
				gold := w.classes[0]
				require.NotNil(t, w.admit(t, w.first, "a", "one"))
				assert.Equal(t, Room{{Reserved: 1, NamespaceReserved: 1}}, w.Room("a", gold), "We should reserve once.")
				assert.Equal(t, Room{{Reserved: 1}}, w.Room("b", gold))
				count := w.store(w.first, "a", "one", gold)
				assert.Equal(t, Room{{Used: 1, NamespaceUsed: 1}}, w.Room("a", gold), "A claim that is seen should count once.")
				require.NotNil(t, w.admit(t, w.second, "a", "one"), "A claim of another kind may have the same name.")
				require.NotNil(t, w.admit(t, w.second, "a", "two"))
				assert.Equal(t, Room{{Used: 1, Reserved: 2, NamespaceUsed: 1, NamespaceReserved: 2}}, w.Room("a", gold), "Both kinds should share the class.")
				assert.Nil(t, w.admit(t, w.first, "a", "three"), "A namespace should get no more than its part.")
				require.NotNil(t, w.admit(t, w.first, "b", "one"))
				assert.Nil(t, w.admit(t, w.second, "b", "two"), "A full class should go to no claim of either kind.")

				freed := w.Freed(w.second)
				w.first.Kind.Tally.Unbind(count, claim.Usage{})
				w.first.Kind.Tally.Free()
				assert.NotEqual(t, freed, w.Freed(w.second), "We should notify claims of the other kind that there may be room.")
				require.NotNil(t, w.admit(t, w.second, "b", "two"), "A deleted claim should make room.")
				for _, v := range w.Snapshot {
					v.Kind.Tally.Expire(roomTime.Add(InFlightWindow - 1))
				}
				assert.EqualValues(t, 4, w.Room("a", gold)[0].Reserved, "We should wait for claims to be stored.")
				freed = w.Freed(w.first)
				for _, v := range w.Snapshot {
					v.Kind.Tally.Expire(roomTime.Add(InFlightWindow))
				}
				assert.Equal(t, Room{}, w.Room("a", gold), "Claims that were never stored should make room.")
				assert.NotEqual(t, freed, w.Freed(w.first))
			})
		}
	}
}

// TestRoomAtOnce lets claims of two kinds race for the last places.
func TestRoomAtOnce(t *testing.T) {
	w := newLimitedWorld(v1beta1.ObjectReference, v1beta1.WeightedRandom, 20, 30)
	var bound atomic.Int64
	var group sync.WaitGroup
	for i := range 200 {
		v := []*View{w.first, w.second}[i%2]
		group.Go(func() {
			if d, err := new(Decider).Decide(t.Context(), v, claimOf(fmt.Sprint("team-", i/3), fmt.Sprint("claim-", i)), Mode{}); err == nil && d.Class != nil {
				bound.Add(1)
			}
		})
	}
	group.Wait()
	assert.EqualValues(t, 50, bound.Load(), "Claims of one replica should get what the classes hold, and no more.")
	assert.Equal(t, Room{{Reserved: 20}}, w.Room("", w.classes[0]))
	assert.Equal(t, Room{{Reserved: 30}}, w.Room("", w.classes[1]))
}

// fill a class with stored claims.
func (w *limitedWorld) fill(v *View, namespace string, c *inventory.Class, claims int) {
	for i := range claims {
		w.store(v, namespace, fmt.Sprint(c.Name, i), c)
	}
}

func TestLeastClaimsByShare(t *testing.T) {
	w := newLimitedWorld(v1beta1.ObjectReference, v1beta1.LeastClaims, 10, 100)
	w.fill(w.second, "x", w.classes[0], 2)
	w.fill(w.second, "x", w.classes[1], 15)
	assert.Same(t, w.classes[1], w.admit(t, w.first, "a", "one"), "We should give the class of which the smaller share is used.")
	w.fill(w.second, "y", w.classes[1], 10)
	assert.Same(t, w.classes[0], w.admit(t, w.first, "a", "two"))
	w = newLimitedWorld(v1beta1.ObjectReference, v1beta1.LeastClaims, 10, 0)
	w.fill(w.second, "x", w.classes[0], 1)
	w.fill(w.second, "x", w.classes[1], 1000)
	assert.Same(t, w.classes[1], w.admit(t, w.first, "a", "one"), "Nothing should be a share of a class without a limit.")
}

// TestCheckOfBound has the check of the class that a claim was given a moment before.
func TestCheckOfBound(t *testing.T) {
	w := newLimitedWorld(v1beta1.ObjectReference, v1beta1.WeightedRandom, 1)
	check := func(name, generateName string) *Refused {
		object := map[string]any{
			"metadata": map[string]any{"generateName": generateName},
			"spec":     map[string]any{"classRef": map[string]any{"apiVersion": "example.org/v1", "kind": "Gold", "name": "gold-0"}},
		}
		in := w.first.Kind.Reader.ReadNamed("a", name, object)
		_, refused, err := new(Decider).Check(t.Context(), w.first, in, object, nil)
		require.NoError(t, err)
		return refused
	}
	assert.Nil(t, check("other", ""), "There is room.")
	require.NotNil(t, w.admit(t, w.first, "a", "one"))
	assert.Nil(t, check("one", ""), "A claim that was given the class should have it.")
	if refused := check("other", ""); assert.NotNil(t, refused) {
		assert.Equal(t, reasonFull, refused.Reason)
		assert.EqualError(t, refused, `it names the class "Gold/gold-0", which is full`)
	}
	w = newLimitedWorld(v1beta1.ObjectReference, v1beta1.WeightedRandom, 1)
	in := claimOf("a", "")
	in.GenerateName = "db-"
	decided(t, new(Decider), w.first, in, Mode{})
	assert.Nil(t, check("db-x7f2k", "db-"), "A claim should be known by the beginning of its name.")
	assert.NotNil(t, check("db-x7f2k", ""))
}

func TestFullText(t *testing.T) {
	w := newLimitedWorld(v1beta1.ObjectReference, v1beta1.WeightedRandom, 50, 50, 50)
	w.fill(w.first, "x", w.classes[0], 50)
	w.fill(w.second, "x", w.classes[1], 48)
	for i := range 2 {
		k, namespace := w.first.Kind, fmt.Sprint(i)
		k.Tally.reserve(claimOf(namespace, "b").Claim, k.Demand.CountedAs(w.classes[1]), k.ShareOf(namespace, claim.Usage{}), roomTime)
	}
	w.fill(w.second, "a", w.classes[2], 3)
	e, err := new(Decider).Explain(t.Context(), w.first, claimOf("a", "b"))
	require.NoError(t, err)
	var texts []string
	for _, d := range e.Dropped {
		texts = append(texts, d.Name+" is "+d.Text)
	}
	assert.Equal(t, []string{
		"gold-0 is full: 50 of 50 claims", "gold-1 is full: 50 of 50 claims, 2 of them reserved", `gold-2 is full: 3 of 3 claims for namespace "a"`,
	}, texts)
	assert.True(t, IsFull(&e.Decision))
	assert.Contains(t, e.Decision.Warning(), "dropped: 3 full): wait until a class has room, or change the selector")
	defaults := w.first.Classes[0].All()
	assert.Equal(t, `the ClassKind "golds.example.org" has a capacity, and only classbind knows whether the default class has room`, classNeedsWebhook(
		defaults[0], true,
	))
}
