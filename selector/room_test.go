package selector

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/inventory"
)

func TestRoomFits(t *testing.T) {
	const unlimited = inventory.Unlimited
	for name, tc := range map[string]struct {
		reason string
		room   Room
		in     inventory.Capacity
		usage  int64
		fits   bool
	}{
		"Empty":            {"A claim should fit into an empty class.", Room{}, inventory.Capacity{Total: 10, PerNamespace: unlimited}, 10, true},
		"Last":             {"The last place should be given.", Room{Used: 7, Reserved: 2}, inventory.Capacity{Total: 10, PerNamespace: unlimited}, 1, true},
		"Full":             {"A full class should take none.", Room{Used: 10}, inventory.Capacity{Total: 10, PerNamespace: unlimited}, 1, false},
		"Reserved":         {"What is reserved should count.", Room{Used: 7, Reserved: 3}, inventory.Capacity{Total: 10, PerNamespace: unlimited}, 1, false},
		"TooLarge":         {"A claim that needs more than is left should not fit.", Room{Used: 7}, inventory.Capacity{Total: 10, PerNamespace: unlimited}, 4, false},
		"Nothing":          {"A claim that uses nothing should fit into a full class.", Room{Used: 10}, inventory.Capacity{Total: 10, PerNamespace: unlimited}, 0, true},
		"Over":             {"Nothing should fit into a class that holds too much.", Room{Used: 12}, inventory.Capacity{Total: 10, PerNamespace: unlimited}, 0, false},
		"Malformed":        {"A malformed capacity should hold nothing.", Room{}, inventory.Capacity{PerNamespace: unlimited}, 1, false},
		"Unlimited":        {"A class without a limit should take all.", Room{Used: unlimited}, inventory.Capacity{Total: unlimited, PerNamespace: unlimited}, v1beta1.MaxUsage, true},
		"Overflow":         {"A sum that overflows should be full.", Room{Used: -5}, inventory.Capacity{Total: 10, PerNamespace: unlimited}, 1, false},
		"Closed":           {"A closed class should take none.", Room{Closed: "it is recounted"}, inventory.Capacity{Total: unlimited, PerNamespace: unlimited}, 0, false},
		"PerNamespace":     {"A namespace should have no more than its share.", Room{NamespaceUsed: 1, NamespaceReserved: 1}, inventory.Capacity{Total: 10, PerNamespace: 2}, 1, false},
		"OfOther":          {"A namespace should have its share.", Room{Used: 9, NamespaceUsed: 1}, inventory.Capacity{Total: 10, PerNamespace: 2}, 1, true},
		"LimitOfAll":       {"A namespace should have no more than is left.", Room{Used: 10, NamespaceUsed: 1}, inventory.Capacity{Total: 10, PerNamespace: 2}, 1, false},
		"PerNamespaceOnly": {"The limit of a namespace should count alone.", Room{Used: 50, NamespaceUsed: 2}, inventory.Capacity{Total: unlimited, PerNamespace: 2}, 1, false},
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
		"None":         {reason: "A claim should use 1 without an expression.", want: 1},
		"Number":       {reason: "We should take a number.", usage: "claim.spec.nodes * 2", spec: map[string]any{"nodes": int64(3)}, want: 6},
		"Field":        {reason: "We should take a quantity.", usage: "claim.spec.storage", spec: map[string]any{"storage": "10Gi"}, want: 10 << 30},
		"Rounded":      {reason: "We should round up.", usage: "claim.spec.cpu", spec: map[string]any{"cpu": "1500m"}, want: 2},
		"Fraction":     {reason: "We should round up.", usage: "claim.spec.share", spec: map[string]any{"share": 0.1}, want: 1},
		"Zero":         {reason: "A claim may use nothing.", usage: "claim.spec.nodes", spec: map[string]any{"nodes": int64(0)}, want: 0},
		"Most":         {reason: "A claim may use that much.", usage: "claim.spec.nodes", spec: map[string]any{"nodes": int64(v1beta1.MaxUsage)}, want: v1beta1.MaxUsage},
		"TooLarge":     {reason: "A claim should use no more.", usage: "claim.spec.nodes", spec: map[string]any{"nodes": int64(v1beta1.MaxUsage) + 1}, err: "must not be more than 9007199254740992"},
		"Huge":         {reason: "We should not overflow.", usage: "claim.spec.nodes", spec: map[string]any{"nodes": "900000000000000000000"}, err: "must not be more than 9007199254740992"},
		"Negative":     {reason: "A claim should give nothing back.", usage: "claim.spec.nodes", spec: map[string]any{"nodes": int64(-1)}, err: "must not be negative"},
		"NegativeHuge": {reason: "We should not overflow.", usage: "claim.spec.nodes", spec: map[string]any{"nodes": "-900000000000000000000"}, err: "must not be negative"},
		"Text":         {reason: "We should take no other text.", usage: "claim.spec.storage", spec: map[string]any{"storage": "much"}, err: "must be a number or a quantity, such as 50 or 10Ti"},
		"Long":         {reason: "We should parse no long text.", usage: "claim.spec.storage", spec: map[string]any{"storage": "1e999999999"}, err: "must be a number or a quantity, such as 50 or 10Ti"},
		"Bool":         {reason: "We should take nothing else.", usage: "claim.spec.storage", spec: map[string]any{"storage": true}, err: "must be a number, is of type bool"},
		"Absent":       {reason: "We should guess nothing.", usage: "claim.spec.storage", spec: map[string]any{}, err: "no such key: storage"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newExpressive(func(s *v1beta1.ClaimKindSpec, _ *v1beta1.ClassKindSpec) { s.Classes.Usage = tc.usage }).with("a", nil)
			kind := e.view().Kind
			require.Nil(t, kind.fault, tc.reason)
			if tc.spec == nil {
				tc.spec = map[string]any{}
			}
			got, err := kind.UsageOf(map[string]any{"spec": tc.spec}, &expression.Budget{Left: v1beta1.MaxExpressionCost})
			if tc.err == "" {
				require.NoError(t, err, tc.reason)
			} else {
				require.EqualError(t, err, tc.err, tc.reason)
				tc.want = 1
			}
			assert.Equal(t, tc.want, got, tc.reason)

			d, err := e.decide(t, all(tc.spec))
			require.NoError(t, err)
			assert.Equal(t, tc.want, d.Claim.Usage, tc.reason)
			if tc.err != "" {
				require.Len(t, d.Claim.Problems, 1, tc.reason)
				assert.Contains(t, d.Claim.Problems[0].Error(), "the expression spec.classes.usage of claim kind", tc.reason)
				assert.Contains(t, d.Claim.Problems[0].Error(), tc.err, tc.reason)
			} else {
				assert.Equal(t, "Pool/a", d.Class.String(), tc.reason)
			}
			in := kind.Read("team", "claim", map[string]any{"spec": all(tc.spec)})
			stored, err := kind.Ask(in).Claim("team", "claim")
			require.NoError(t, err)
			d, err = new(Decider).Decide(t.Context(), e.view(), claim.Intake{Claim: stored}, Later)
			require.NoError(t, err)
			assert.NotNil(t, d.Class, "A claim that is stored should wait for no other expression.")
			assert.Equal(t, tc.want, d.Claim.Usage, "We should keep what the expression looks at.")
		})
	}
	k := postgres()
	k.Spec.Classes.Usage = "claim.spec.a + namespace.metadata.name"
	assert.NotNil(t, NewClaimKind(k).fault, "A usage should look at nothing but the claim.")
}

func TestFull(t *testing.T) {
	e := newExpressive(func(_ *v1beta1.ClaimKindSpec, s *v1beta1.ClassKindSpec) {
		s.Capacity = &v1beta1.Capacity{Total: v1beta1.Source{Path: ".spec.capacity"}}
	}).with("a", map[string]any{"capacity": int64(10)}).with("b", map[string]any{"capacity": int64(10)}).with("c", nil)
	v := e.view()
	require.True(t, v.Kind.Limited)
	assert.True(t, v.Kind.Watched)
	used := map[string]int64{"a": 10, "b": 9, "c": 1000}
	v.Kind.Room = func(namespace string, c *inventory.Class) Room {
		assert.Equal(t, "team", namespace)
		return Room{Used: used[c.Name]}
	}
	in := v.Kind.Read("team", "claim", map[string]any{"spec": all(map[string]any{})})
	decide := func() Decision {
		d, err := new(Decider).Decide(t.Context(), v, in, DryRun)
		require.NoError(t, err)
		return d
	}
	d := decide()
	assert.Equal(t, 2, d.Candidates)
	assert.Equal(t, "Full=1", d.DroppedText())
	used["b"] = 10
	assert.Equal(t, "Pool/c", decide().Class.String(), "A class without a limit should take all.")
	v.Kind.Room = nil
	assert.Equal(t, 3, decide().Candidates, "All should fit where it is not known how much is taken.")

	for _, f := range NewClaimKind(postgres(), &v1beta1.ClassKind{}).filters {
		assert.NotEqual(t, reasonFull, f.reason, "A kind without a capacity should have no such filter.")
	}
	assert.False(t, v.Kind.Same(NewClaimKind(e.claims)), "A kind should be another one with a capacity.")
	assert.True(t, v.Kind.Same(e.view().Kind))
}
