package selector

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
)

// ofVolumes is the seed of the sample for the volumes of a StatefulSet.
const ofVolumes = "claim.metadata.name.matches('-[0-9]+$') ? claim.metadata.name.find('^.*-') : ''"

// grouped is a view of three classes with the weights 1, 2 and 7, in which the seed is the value of an expression.
func grouped(seed v1beta1.Expression) *View {
	return weighed(postgres(func(s *v1beta1.ClaimKindSpec) {
		s.Choice.Seed = v1beta1.Seed{From: v1beta1.SeedExpression, Expression: seed}
	}), map[string]int64{"as/one": 1, "bs/two": 2, "bs/seven": 7})
}

func groupedClaim(t *testing.T, v *View, namespace, name, metadata string) claim.Intake {
	t.Helper()
	in := v.Kind.Reader.Read(namespace, name, decode(t, fmt.Sprintf(`{metadata: {%s}, spec: {classSelector: {matchLabels: {tier: gold}}}}`, metadata)))
	require.Empty(t, in.Problems)
	return in
}

// TestGroups draws for groups of claims: at their creation, later and again, on any replica and in any order.
func TestGroups(t *testing.T) {
	type member struct {
		group string
		n     int
	}
	var members []member
	for i := range 200 {
		for n := range 5 {
			members = append(members, member{fmt.Sprintf("data-set%d-", i), n})
		}
	}
	random := rand.New(rand.NewPCG(34, 4)) //nolint:gosec // It has to be reproducible.
	classes := map[string]string{}
	for round, mode := range []Mode{{}, {DryRun: true}, {Stored: true}, {}} {
		replicas := [3]*View{grouped(ofVolumes), grouped(ofVolumes), grouped(ofVolumes)}
		random.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
		for _, m := range members {
			d, view := Decider{Fresh: random.Uint64}, replicas[random.IntN(len(replicas))]
			name := fmt.Sprint(m.group, m.n)
			in := groupedClaim(t, view, "team", name, "name: "+name)
			if mode.Stored { // Late binding holds what a claim asks for as a string.
				kept, err := view.Kind.Reader.Ask(in).Claim("team", name)
				require.NoError(t, err)
				in = claim.Intake{Claim: kept}
			}
			got := decided(t, &d, view, in, mode)
			require.NotNil(t, got.Class)
			if classes[m.group] == "" {
				classes[m.group] = got.Class.String()
			}
			require.Equal(t, classes[m.group], got.Class.String(), "We should give %s the class of its group in round %d.", name, round)
			e, err := d.Explain(t.Context(), view, in)
			require.NoError(t, err)
			require.True(t, e.Reproducible, "We should know that the group always draws alike.")
			require.Equal(t, got.Class.String(), e.Decision.Class.String())
		}
	}
	require.Len(t, classes, 200)
	counts := map[string]int{}
	for _, class := range classes {
		counts[class]++
	}
	assertShares(t, counts, map[string]float64{"as/one": 0.1, "bs/two": 0.2, "bs/seven": 0.7}, "We should give groups shares by weight")
}

func TestSeed(t *testing.T) {
	const byLabel = "claim.metadata.labels.app"
	for name, tc := range map[string]struct {
		reason string
		seed   v1beta1.Expression
		// metadata of two claims, which have the same namespace unless the row has another for the second.
		metadata  func(i int) (first, second string)
		namespace string
		alike     bool
		problem   string
	}{
		"Label": {
			reason:   "We should draw alike for one label, whatever the names.",
			seed:     byLabel,
			metadata: func(i int) (string, string) { return label(i, "name: a"), label(i, "name: b") },
			alike:    true,
		},
		"Labels": {
			reason:   "We should draw apart for two labels.",
			seed:     byLabel,
			metadata: func(i int) (string, string) { return label(i, "name: a"), label(-i-1, "name: a") },
		},
		"NoName": {
			reason:   "We should draw alike for claims whose names the API server makes up.",
			seed:     byLabel,
			metadata: func(i int) (string, string) { return label(i, "generateName: a-"), label(i, "generateName: b-") },
			alike:    true,
		},
		"Namespaces": {
			reason:    "We should draw apart for two namespaces.",
			seed:      byLabel,
			metadata:  func(i int) (string, string) { return label(i, "name: a"), label(i, "name: a") },
			namespace: "other",
		},
		"NoGroup": {
			reason:   "We should draw apart for claims without a group.",
			seed:     ofVolumes,
			metadata: func(i int) (string, string) { return fmt.Sprintf("name: a%d", i), fmt.Sprintf("name: b%d", i) },
		},
		"NoGroupAgain": {
			reason:   "We should draw by the claim's identity where it has no group.",
			seed:     ofVolumes,
			metadata: func(i int) (string, string) { return fmt.Sprintf("name: a%d", i), fmt.Sprintf("name: a%d", i) },
			alike:    true,
		},
		"Absent": {
			reason:   "We should refuse a claim that lacks what the seed looks at.",
			seed:     byLabel,
			metadata: func(int) (string, string) { return "name: a, labels: {b: c}", "name: a" },
			problem: `metadata.labels[app]: Invalid value: the expression spec.choice.seed.expression of claim kind ` +
				`"postgresqlinstances.database.crossplane.io" fails: no such key: app`,
		},
		"Number": {
			reason:   "We should refuse a claim whose seed is no string.",
			seed:     "claim.metadata.generation",
			metadata: func(int) (string, string) { return "generation: 1", "generation: 1" },
			problem:  "must be a text, is of type int",
		},
		"Long": {
			reason:   "We should refuse a claim whose seed is too long.",
			seed:     byLabel + " + " + byLabel,
			metadata: func(int) (string, string) { return longLabel, longLabel },
			problem:  "it is longer than 16384 bytes",
		},
	} {
		t.Run(name, func(t *testing.T) {
			v, same := grouped(tc.seed), 0
			for i := range 40 {
				first, second := tc.metadata(i)
				a := decided(t, &Decider{Fresh: rand.Uint64}, v, groupedClaim(t, v, "team", metadataName(first), first), Mode{})
				if tc.problem != "" {
					require.Len(t, a.Claim.Problems, 1, tc.reason)
					require.Contains(t, a.Claim.Problems[0].Error(), tc.problem, tc.reason)
					assert.Equal(t, "MalformedClaim", a.Reason())
					continue
				}
				namespace := "team" + tc.namespace
				b := decided(t, &Decider{Fresh: rand.Uint64}, v, groupedClaim(t, v, namespace, metadataName(second), second), Mode{})
				if a.Class == b.Class {
					same++
				}
			}
			if tc.problem == "" {
				assert.Equal(t, tc.alike, same == 40, "%s %d of 40 are alike.", tc.reason, same)
			}
		})
	}
}

var longLabel = fmt.Sprintf("name: a, labels: {app: %s}", strings.Repeat("x", 9000))

func label(i int, more string) string { return fmt.Sprintf("labels: {app: app%d}, %s", i, more) }

// metadataName is the name in a claim's metadata, empty with a generateName.
func metadataName(metadata string) string {
	for part := range strings.SplitSeq(metadata, ", ") {
		if name, is := strings.CutPrefix(part, "name: "); is {
			return name
		}
	}
	return ""
}

// TestSeedOfNamed evaluates no seed for a claim that names its class: there is no draw.
func TestSeedOfNamed(t *testing.T) {
	v := weighed(postgres(func(s *v1beta1.ClaimKindSpec) {
		s.Choice.Seed = v1beta1.Seed{From: v1beta1.SeedExpression, Expression: "claim.spec.missing"}
		s.Reference.Explicit = v1beta1.CheckExplicit
	}), map[string]int64{"as/one": 1})
	object := decode(t, `{spec: {classRef: {apiVersion: example.org/v1, kind: as, name: one}}}`)
	in, refused, err := new(Decider).Check(t.Context(), v, v.Kind.Reader.ReadNamed("team", "a", object), object, nil)
	require.NoError(t, err)
	assert.Nil(t, refused)
	assert.Empty(t, in.Problems, "We should not refuse it for its seed.")
}

// TestSeedIsOneOfExpressions keeps an expression of the seed from being forgotten where all expressions of a ClaimKind matter.
func TestSeedIsOneOfExpressions(t *testing.T) {
	v := grouped("related.set.metadata.name + namespaceObject.metadata.labels.tenant + request.userInfo.username")
	require.NotEmpty(t, v.Kind.Rules.Invalid, "We should refuse an object that is not related.")
	k := postgres(func(s *v1beta1.ClaimKindSpec) {
		s.Classes.Related = []v1beta1.Related{{Name: "set", Resource: "statefulsets.apps", NameExpression: "claim.metadata.name"}}
		s.Choice.Seed = v1beta1.Seed{From: v1beta1.SeedExpression, Expression: "related.set.spec.a + namespaceObject.metadata.labels.b + request.userInfo.username"}
	})
	kind := NewClaimKind(k)
	require.Empty(t, kind.Rules.Invalid)
	assert.True(t, k.Spec.HasExpressions())
	assert.False(t, kind.Rules.IsEmpty())
	assert.True(t, kind.Rules.UsesRequest(), "We should read who asks.")
	resources := []string{}
	for _, r := range kind.RelatedKinds() {
		resources = append(resources, r.Resource)
	}
	assert.True(t, slices.Contains(resources, "statefulsets.apps") && slices.Contains(resources, "namespaces"), "We should watch %v.", resources)
	k.Spec.WhenUnmatched = v1beta1.BindLater
	require.Len(t, NewClaimKind(k).Rules.Invalid, 1, "We should not ask who asks for a claim that waits.")
	assert.Contains(t, grouped(ofVolumes).needsWebhook(), "an expression", "We should not leave a claim whose seed fails to a policy.")
}
