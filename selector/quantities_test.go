package selector

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/rules"
)

// quantitiesKinds have a capacity of memory, cpu and claims, and claims that use memory and cpu.
var quantitiesKinds = specs(
	`{classes: {usage: [{name: cpu, expression: claim.spec.cpu}, {name: memory, expression: claim.spec.memory}]}}`,
	`{capacity: [{name: memory, total: {path: .spec.memory}}, {name: cpu, total: {path: .spec.cpu}, perNamespace: {path: .spec.share}}, {name: claims}]}`,
)

func TestQuantities(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		class  map[string]any
		// annotation is the capacity of claims.
		annotation string
		// room has memory, cpu and claims.
		room Room
		uses map[string]any
		// want is empty if there is room.
		want string
	}{
		"Empty": {
			reason:     "A claim should fit into an empty class.",
			class:      map[string]any{"memory": "10Gi", "cpu": int64(4)},
			annotation: "1",
			uses:       map[string]any{"memory": "10Gi", "cpu": "3500m"},
		},
		"Memory": {
			reason: "A class should have no room that is short of one quantity.",
			class:  map[string]any{"memory": int64(10), "cpu": int64(4)},
			room:   Room{{Used: 5, Reserved: 3}, {Used: 1}, {Used: 7}},
			uses:   map[string]any{"memory": int64(4), "cpu": int64(1)},
			want:   "full: 8 of 10 memory, 3 of them reserved, and this claim uses 4",
		},
		"NoneOfTheFull": {
			reason: "A claim should fit that uses nothing of the full quantity.",
			class:  map[string]any{"memory": int64(10), "cpu": int64(4)},
			room:   Room{{Used: 10}, {Used: 1}},
			uses:   map[string]any{"memory": int64(0), "cpu": int64(3)},
		},
		"PerNamespace": {
			reason: "A namespace should have no more of a quantity than its share.",
			class:  map[string]any{"memory": int64(10), "cpu": int64(4), "share": int64(2)},
			room:   Room{{}, {Used: 2, NamespaceUsed: 1, NamespaceReserved: 1}},
			uses:   map[string]any{"memory": int64(1), "cpu": int64(1)},
			want:   `full: 2 of 2 cpu for namespace "team", 1 of them reserved`,
		},
		"Claims": {
			reason:     "Each claim should use 1 of the quantity claims.",
			class:      map[string]any{},
			annotation: "7",
			room:       Room{{Used: 1000}, {Used: 1000}, {Used: 7}},
			uses:       map[string]any{"memory": int64(1), "cpu": int64(1)},
			want:       "full: 7 of 7 claims",
		},
		"Several": {
			reason:     "We should name each quantity that is short.",
			class:      map[string]any{"memory": int64(10), "cpu": int64(4)},
			annotation: "0",
			room:       Room{{Used: 9}, {Used: 1}},
			uses:       map[string]any{"memory": int64(2), "cpu": int64(1)},
			want:       "full: 9 of 10 memory, and this claim uses 2; 0 of 0 claims",
		},
		"Malformed": {
			reason: "A malformed capacity should hold nothing of its quantity.",
			class:  map[string]any{"memory": "much", "cpu": int64(4)},
			uses:   map[string]any{"memory": int64(1), "cpu": int64(1)},
			want: `full: its capacity of memory is malformed: spec.memory: Invalid value: "much": ` +
				`must be a number or a quantity, such as 50 or 10Ti, and counts as 0`,
		},
		"Negative": {
			reason: "A negative capacity should hold nothing of its quantity.",
			class:  map[string]any{"memory": int64(1), "cpu": int64(-4)},
			uses:   map[string]any{"memory": int64(1), "cpu": int64(1)},
			want:   `full: its capacity of cpu is malformed: spec.cpu: Invalid value: -4: must not be negative, and counts as 0`,
		},
		"MalformedUnused": {
			reason: "A malformed capacity should not matter to a claim that uses nothing of it.",
			class:  map[string]any{"memory": "much", "cpu": int64(4)},
			uses:   map[string]any{"memory": int64(0), "cpu": int64(1)},
		},
		"Overflow": {
			reason: "A sum that overflows should be full.",
			class:  map[string]any{"memory": int64(math.MaxInt64 - 1)},
			room:   Room{{Used: math.MaxInt64 - 10, Reserved: 10}},
			uses:   map[string]any{"memory": int64(1), "cpu": int64(0)},
			want:   "full: 9223372036854775807 of 9223372036854775806 memory, 10 of them reserved",
		},
		"Missing": {
			reason: "A class without values should have no limit.",
			class:  map[string]any{},
			room:   Room{{Used: math.MaxInt64}, {Used: math.MaxInt64}, {Used: math.MaxInt64}},
			uses:   map[string]any{"memory": int64(v1beta1.MaxUsage), "cpu": int64(v1beta1.MaxUsage)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newExpressive(quantitiesKinds)
			if tc.annotation == "" {
				e.with("a", tc.class)
			} else {
				e.with("a", tc.class, v1beta1.CapacityAnnotation, tc.annotation)
			}
			v := e.view()
			v.Kind.Room = func(string, *inventory.Class) Room { return tc.room }
			in := v.Kind.Reader.Read("team", "db", map[string]any{"spec": all(tc.uses)})
			got, err := new(Decider).Explain(t.Context(), v, in)
			require.NoError(t, err, tc.reason)
			if tc.want == "" {
				assert.NotNil(t, got.Decision.Class, tc.reason)
				return
			}
			require.Len(t, got.Dropped, 1, tc.reason)
			assert.Equal(t, tc.want, got.Dropped[0].Text, tc.reason)
		})
	}
}

// TestRoomOfQuantities has two claim kinds that name the quantities of one class kind in another order, and not all of them.
func TestRoomOfQuantities(t *testing.T) {
	w := newLimitedWorld(v1beta1.ObjectReference, v1beta1.WeightedRandom, 10)
	spec := crossplaneClassKind()
	spec.ClaimKinds = []v1beta1.ClaimKindLink{{Name: w.first.Kind.Name}, {Name: w.second.Kind.Name}}
	spec.Capacity = []v1beta1.Capacity{{Name: "memory"}, {Name: v1beta1.ClaimsQuantity}, {Name: "cpu"}, {Name: "licenses"}}
	ck := &v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: "golds.example.org"}, Spec: spec}
	kind := inventory.NewClassKind(ck, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Gold"}, false)
	gold := kind.NewClass(&metav1.ObjectMeta{
		Name:        "gold",
		Labels:      map[string]string{"all": "yes"},
		Annotations: map[string]string{"classbind.io/capacity-memory": "20"},
	}, nil)
	assert.EqualValues(t, 20, gold.Capacity[0].Total, "A quantity should have an annotation by its name.")
	view := func(name string, usage ...v1beta1.Usage) *View {
		k := postgres()
		k.Name, k.Spec.Classes.Usage = name, usage
		v := NewView(NewClaimKind(k, ck), []*inventory.Classes{inventory.NewClasses(kind, []*inventory.Class{gold})})
		v.Kind.Tally, v.Kind.Room = &Tally{}, w.Room
		w.Snapshot[name] = v
		return v
	}
	memory, cpu := v1beta1.Usage{Name: "memory", Expression: "claim.spec.memory"}, v1beta1.Usage{Name: "cpu", Expression: "claim.spec.cpu"}
	first, second := view(w.first.Kind.Name, cpu, memory), view(w.second.Kind.Name, memory)

	count := w.store(first, "a", "one", gold, 2, 7)
	other := w.store(second, "b", "one", gold, 4)
	assert.Equal(t, Room{{Used: 11, NamespaceUsed: 7}, {Used: 2, NamespaceUsed: 1}, {Used: 2, NamespaceUsed: 2}}, w.Room("a", gold))
	assert.Equal(t, Room{{Used: 11, NamespaceUsed: 4}, {Used: 2, NamespaceUsed: 1}, {Used: 2}}, w.Room("b", gold))
	in := first.Kind.Reader.Read("c", "one", map[string]any{"spec": all(map[string]any{"memory": int64(5), "cpu": int64(1)})})
	require.NotNil(t, decided(t, new(Decider), first, in, Mode{}).Class)
	assert.Equal(t, Taken{Used: 11, Reserved: 5, NamespaceReserved: 5}, w.Room("c", gold)[0], "We should reserve by quantity.")
	assert.Equal(t, Taken{Used: 2, Reserved: 1, NamespaceReserved: 1}, w.Room("c", gold)[1])

	freed := w.Freed(first)
	first.Kind.Tally.Change(count, claim.Usage{2, 7}, claim.Usage{3, 9})
	assert.Equal(t, freed, w.Freed(first), "A claim that uses more should make no room.")
	first.Kind.Tally.Change(count, claim.Usage{3, 9}, claim.Usage{3, 1})
	assert.NotEqual(t, freed, w.Freed(first), "A claim that uses less should make room.")
	assert.Equal(t, Taken{Used: 5, NamespaceUsed: 1, Reserved: 5}, w.Room("a", gold)[0])
	first.Kind.Tally.Unbind(count, claim.Usage{3, 1})
	second.Kind.Tally.Unbind(other, claim.Usage{4})
	first.Kind.Tally.Expire(roomTime)
	assert.Equal(t, Room{}, w.Room("a", gold), "What is taken off again should leave nothing.")
}

// TestCountsOfNewCapacity has claims that were counted before their class kind had a capacity.
func TestCountsOfNewCapacity(t *testing.T) {
	classKind := func(capacity ...v1beta1.Capacity) *v1beta1.ClassKind {
		return &v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: "golds.example.org"}, Spec: v1beta1.ClassKindSpec{Capacity: capacity}}
	}
	k, tally := postgres(), &Tally{}
	k.Spec.Classes.Usage = []v1beta1.Usage{{Name: "memory", Expression: "claim.spec.memory"}}
	before, after := NewClaimKind(k, classKind()), NewClaimKind(k, classKind(v1beta1.Capacity{Name: "memory"}))
	old := tally.Bind(7, before.ShareOf("a", claim.Usage{5}))
	count := tally.Bind(7, after.ShareOf("a", claim.Usage{5}))
	tally.Unbind(old, claim.Usage{5})
	used, _ := tally.find(7).taken(0)
	assert.EqualValues(t, 5, used, "A claim should count for the capacity once its class kind has one.")
	claims, _ := tally.find(7).taken(-1)
	assert.EqualValues(t, 1, claims, "It should count once.")
	tally.Unbind(count, claim.Usage{5})
	assert.Nil(t, tally.find(7))
}

func TestUsageOfRelated(t *testing.T) {
	e := newExpressive(specs(
		`{classes: {related: [{name: plan, resource: plans.example.org, nameExpression: claim.spec.plan, namespaceExpression: "'plans'"}],
			usage: [{name: memory, expression: related.plan.spec.memory}, {name: cpu, expression: "int(namespaceObject.metadata.labels.cpu)"}]}}`,
		`{capacity: [{name: memory, total: {path: .spec.memory}}, {name: cpu}]}`,
	)).with("small", map[string]any{"memory": "5Gi"}).with("large", map[string]any{"memory": "20Gi"})
	objects := func(v *View, memory string) *View {
		var all []*inventory.Objects
		for _, kind := range v.Kind.RelatedKinds() {
			name, content := types.NamespacedName{Namespace: "plans", Name: "gold"}, map[string]any{"spec": map[string]any{"memory": memory}}
			if kind.Resource == "namespaces" {
				name, content = types.NamespacedName{Name: "team"}, map[string]any{"metadata": map[string]any{"labels": map[string]any{"cpu": "3"}}}
			}
			all = append(all, inventory.NewObjects(kind, kind.Resource != "namespaces", map[types.NamespacedName]*expression.Object{
				name: kind.Fields.Project(content),
			}))
		}
		return v.WithRelated(all)
	}
	v := objects(e.view(), "10Gi")
	in := v.Kind.Reader.Read("team", "db", map[string]any{"spec": all(map[string]any{"plan": "gold"})})
	d := decided(t, new(Decider), v, in, Mode{})
	assert.Equal(t, "Pool/large", d.Class.String(), "We should use what the plan says.")
	assert.Equal(t, claim.Usage{10 << 30, 3}, d.Claim.Usage)

	kept, err := claim.AskOfUsage(v.Kind.Rules.UsageLooks, in.Object).Claim("team", "")
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		reason string
		view   *View
		want   claim.Usage
	}{
		"Same":    {"What is kept of a claim should be enough.", v, claim.Usage{10 << 30, 3}},
		"Changed": {"We should see that the plan changed.", objects(v, "1Gi"), claim.Usage{1 << 30, 3}},
		"Absent":  {"What fails should count as 1.", v.WithRelated(nil), claim.Usage{1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			usage, err := new(Decider).UsageOf(t.Context(), tc.view, kept)
			require.NoError(t, err, tc.reason)
			assert.Equal(t, tc.want, usage, tc.reason)
			assert.Equal(t, name == "Same", v.SameRelated(tc.view), tc.reason)
		})
	}
	reads := &Decider{Related: func(_ context.Context, _ string, kind *rules.Kind, namespace, name string) (*expression.Object, error) {
		return v.Related(kind.Key()).Find(namespace, name), nil
	}}
	usage, err := reads.UsageOf(t.Context(), v.WithRelated(nil), kept)
	require.NoError(t, err)
	assert.Equal(t, claim.Usage{1, 1}, usage, "We should read nothing for a claim that is counted by a replica.")
	reads.Patient = true
	usage, err = reads.UsageOf(t.Context(), v.WithRelated(nil), kept)
	require.NoError(t, err)
	assert.Equal(t, claim.Usage{10 << 30, 3}, usage, "A command should read what claims name.")
	long := map[string]any{"spec": map[string]any{"plan": string(make([]byte, v1beta1.MaxRecountedBytes))}}
	assert.Empty(t, claim.AskOfUsage(v.Kind.Rules.UsageLooks, long), "We should keep no more of a claim than the limit.")
}
