package selector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/access"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/fuzztest/cost"
	"github.com/classbind/classbind/selector/inventory"
)

// refusing is a gate that refuses the classes of these names.
func refusing(reason string, names ...string) Test {
	return Test{Reason: reason, Text: "refused by " + reason, Drops: func(_ context.Context, _ Subject, c *inventory.Class) (bool, error) {
		return slices.Contains(names, c.Name), nil
	}}
}

func TestGates(t *testing.T) {
	claims := NewClaimKind(postgres())
	view := NewView(claims, []*inventory.Classes{manyClasses("as.example.org", 3, 3)})
	newer := NewView(claims, []*inventory.Classes{manyClasses("as.example.org", 4, 4)})
	ask := claim.Intake{Claim: claim.Claim{Namespace: "team", Name: "db", Selector: gold}}
	var order []string // without gates
	for _, c := range inOrder(view, ask.Claim, 0) {
		order = append(order, c.Name)
	}
	failed := errors.New("the authorizer does not answer")
	type want struct {
		class, dropped, reason, warning string
		waited                          WaitOutcome
		err                             error
	}
	for name, tc := range map[string]struct {
		why   string
		gates []Test
		newer bool // There is a newer view.
		mode  Mode
		limit time.Duration // of deadline
		want  want
	}{
		"Open": {why: "We should give the first of the order.", gates: []Test{refusing("Full")}, want: want{class: order[0], reason: "MatchingClass"}},
		"First": {
			why:   "We should give the second where the first is refused.",
			gates: []Test{refusing("Full", order[0])},
			want:  want{class: order[1], dropped: "Full=1", reason: "MatchingClass"},
		},
		"FirstTwo": {
			why:   "We should go down the order.",
			gates: []Test{refusing("Full", order[0], order[1])},
			want:  want{class: order[2], dropped: "Full=2", reason: "MatchingClass"},
		},
		"Each": {
			why:   "We should ask every gate.",
			gates: []Test{refusing("Full", order[0]), refusing("Forbidden", order[1], order[0])},
			want:  want{class: order[2], dropped: "Full=1,Forbidden=1", reason: "MatchingClass"},
		},
		"All": {
			why:   "We should say how many were refused.",
			gates: []Test{refusing("Full", order...)},
			want:  want{dropped: "Full=3", reason: "NoMatchingClass", warning: "dropped: 3 refused by Full"},
		},
		"AllKnown": {
			why:   "We should take new classes where all known ones are refused.",
			gates: []Test{refusing("Full", order...)},
			newer: true,
			want:  want{class: "class-003", dropped: "Full=3", reason: "MatchingClass", waited: WaitFound},
		},
		"AllNewer": {
			why:   "We should report those that are newer.",
			gates: []Test{refusing("Full", append(slices.Clone(order), "class-003")...)},
			newer: true,
			want:  want{dropped: "Full=4", reason: "NoMatchingClass", warning: "dropped: 4 refused by Full", waited: WaitNone},
		},
		"LateAll": {
			why:   "We should wait for nothing later.",
			gates: []Test{refusing("Full", order...)},
			newer: true,
			mode:  Mode{Stored: true},
			want:  want{dropped: "Full=3", reason: "NoMatchingClass", warning: "dropped: 3 refused by Full"},
		},
		"Fails": {
			why:   "We should decide nothing where a gate has no answer.",
			gates: []Test{{Drops: func(context.Context, Subject, *inventory.Class) (bool, error) { return false, failed }}},
			want:  want{err: failed},
		},
		"OutOfTime": {
			why:   "We should not ask on after the deadline.",
			gates: []Test{slow(order[0])},
			limit: time.Millisecond,
			want:  want{err: context.DeadlineExceeded},
		},
		"NeverAsked": {
			why:   "We should not ask about a class that would not be drawn.",
			gates: []Test{only(t, order[0])},
			want:  want{class: order[0], reason: "MatchingClass"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := Decider{Gates: tc.gates, Deadline: func(context.Context) time.Time {
					return time.Now().Add(cmp.Or(tc.limit, time.Hour))
				}}
				if tc.newer {
					d.Waits = waitsFor(newer)
				}
				got, err := d.Decide(t.Context(), view, ask, tc.mode)
				if tc.want.err != nil {
					require.ErrorIs(t, err, tc.want.err, tc.why)
					return
				}
				require.NoError(t, err, tc.why)
				class := ""
				if got.Class != nil {
					class = got.Class.Name
				}
				assert.Equal(t, tc.want.class, class, tc.why)
				assert.Equal(t, tc.want.dropped, got.DroppedText(), tc.why)
				assert.Equal(t, tc.want.reason, got.Reason(), tc.why)
				assert.Equal(t, tc.want.waited, got.Waited, tc.why)
				assert.Contains(t, got.Warning(), tc.want.warning, tc.why)
				assert.Equal(t, tc.want.warning == "", got.Warning() == "", tc.why)
			})
		})
	}
}

// slow refuses a class after its context has ended.
func slow(name string) Test {
	return Test{Drops: func(ctx context.Context, _ Subject, c *inventory.Class) (bool, error) {
		<-ctx.Done()
		return c.Name == name, nil
	}}
}

// only fails the test if it is asked about another class.
func only(t *testing.T, name string) Test {
	return Test{Drops: func(_ context.Context, _ Subject, c *inventory.Class) (bool, error) {
		assert.Equal(t, name, c.Name)
		return false, nil
	}}
}

// inOrder are all candidates in the order of the draw: a gate refuses each of them.
func inOrder(view *View, asking claim.Claim, fresh uint64) (classes []*inventory.Class) {
	d := Decider{Fresh: func() uint64 { return fresh }, Gates: []Test{{Drops: func(_ context.Context, _ Subject, c *inventory.Class) (bool, error) {
		classes = append(classes, c)
		return true, nil
	}}}}
	if _, err := d.Decide(context.Background(), view, claim.Intake{Claim: asking}, Mode{DryRun: true}); err != nil {
		panic(err)
	}
	return classes
}

// The order of the draw begins with the class that is drawn. Without it, the rest is in the order in which it would be drawn.
func TestOrderIsTheDraw(t *testing.T) {
	for i := range 2000 {
		random := rand.New(rand.NewPCG(9, uint64(i))) //nolint:gosec // It has to be reproducible.
		weights := map[string]int64{}
		for n := range random.IntN(12) {
			weights[fmt.Sprintf("%s/class-%d", []string{"as", "bs", "cs"}[random.IntN(3)], n)] = []int64{0, 1, 5, 5, maxWeight}[random.IntN(5)]
		}
		k := postgres()
		k.Spec.Choice.Strategy = []v1beta1.Strategy{v1beta1.Random, v1beta1.WeightedRandom, v1beta1.HighestWeight}[i%3]
		k.Spec.Choice.Seed.From = []v1beta1.SeedSource{v1beta1.SeedClaim, v1beta1.SeedRequest}[i%2]
		view, asking, fresh := weighed(k, weights), nthClaim(i), random.Uint64()
		var gone []string
		all := inOrder(view, asking, fresh)
		for n, c := range all {
			d := Decider{Fresh: func() uint64 { return fresh }, Gates: []Test{{Drops: func(_ context.Context, _ Subject, c *inventory.Class) (bool, error) {
				return slices.Contains(gone, c.String()+c.Kind.Name), nil
			}}}}
			got := decided(t, &d, view, claim.Intake{Claim: asking}, Mode{DryRun: true})
			require.Same(t, c, got.Class, "We should draw candidate %d of %d after those before it (%d)", n, len(all), i)
			gone = append(gone, c.String()+c.Kind.Name)
		}
		require.Len(t, all, choose(view, asking, fresh).Candidates, "We should come to every candidate once (%d)", i)
	}
}

// A claim may match any number of classes that its author may not use.
func TestRefusalsAreBounded(t *testing.T) {
	view := NewView(NewClaimKind(postgres()), []*inventory.Classes{manyClasses("as.example.org", 10_000, 10_000)})
	asked := 0
	d := Decider{Gates: []Test{{Text: "forbidden", Drops: func(context.Context, Subject, *inventory.Class) (bool, error) {
		asked++
		return true, nil
	}}}}
	allocated := cost.Allocated(func() {
		asked = 0
		got, err := d.Decide(t.Context(), view, claim.Intake{Claim: nthClaim(1)}, Mode{})
		require.ErrorContains(t, err, "so many of the classes that match are not allowed", "We should not say that there is no class.")
		assert.Nil(t, got.Class)
	})
	assert.Equal(t, v1beta1.MaxRefusals+1, asked, "We should not ask about all.")
	assert.LessOrEqual(t, allocated, uint64(1<<20), "We should keep to what a review may allocate.")
}

// A strategy commits the class that the gates admit, and no other.
func TestGatesComeBeforeTheCommit(t *testing.T) {
	view := NewView(kindOf(spec(`{choice: {strategy: RoundRobin}}`)), []*inventory.Classes{manyClasses("as.example.org", 3, 3)})
	d := Decider{Gates: []Test{refusing("Full", "class-001")}}
	got := map[string]int{}
	for i := range 10 {
		decision := decided(t, &d, view, claim.Intake{Claim: nthClaim(i)}, Mode{})
		got[decision.Class.Name]++
	}
	assert.Equal(t, map[string]int{"class-000": 5, "class-002": 5}, got, "We should take turns among the classes that are admitted.")
	d.Gates = nil
	decision := decided(t, &d, view, claim.Intake{Claim: nthClaim(11)}, Mode{})
	assert.Equal(t, "class-001", decision.Class.Name, "We should not take the turn of a class that was refused.")
}

func TestModes(t *testing.T) {
	for _, mode := range allModes {
		t.Run(fmt.Sprintf("%+v", mode), func(t *testing.T) {
			kind := kindOf(spec(`{choice: {strategy: LeastClaims}}`))
			kind.Tally = &Tally{}
			view := NewView(kind, []*inventory.Classes{manyClasses("as.example.org", 1, 1)})
			d := Decider{Waits: NewInventory().Waits}
			got := decided(t, &d, view, claim.Intake{Claim: nthClaim(1)}, mode)
			assert.Equal(t, !mode.DryRun, kind.Tally.claims(kind.Demand.CountedAs(got.Class)) == 1, "We should count a claim only where the decision counts.")
			got = decided(t, &d, outdated(NewView(kind, nil)), claim.Intake{Claim: nthClaim(1)}, mode)
			assert.Equal(t, !mode.Stored, got.Waited == WaitNone, "We should wait only while a claim is created.")
		})
	}
}

func TestExplainRefusals(t *testing.T) {
	view := NewView(NewClaimKind(postgres()), []*inventory.Classes{manyClasses("as.example.org", 3, 3)})
	first := choose(view, nthClaim(1), 0).Class
	d := Decider{Gates: []Test{refusing("Full", first.Name)}}
	e, err := d.Explain(t.Context(), view, claim.Intake{Claim: nthClaim(1)})
	require.NoError(t, err)
	assert.Equal(t, []Drop{{ClassName: NameOf(first), Class: first, Reason: "Full", Text: "refused by Full"}}, e.Dropped, "We should report what a gate refused.")
	assert.Len(t, e.Candidates, 2, "We should not offer it.")
	assert.Equal(t, Odds{1, 2}, e.Candidates[0].Odds, "We should give the odds among those that are left.")

	last := inOrder(view, nthClaim(1), 0)[2]
	d.Gates = []Test{refusing("Full", last.Name)}
	e, err = d.Explain(t.Context(), view, claim.Intake{Claim: nthClaim(1)})
	require.NoError(t, err)
	assert.Same(t, first, e.Decision.Class)
	assert.Equal(
		t, []Drop{{ClassName: NameOf(last), Class: last, Reason: "Full", Text: "refused by Full"}}, e.Dropped,
		"We should ask about those, too, that would not be drawn.",
	)
	assert.Len(t, e.Candidates, 2)
	assert.Empty(t, e.Decision.Refused, "We should count only those before the class.")
}

// TestExplainDefaultsOfSeats has a default of the claim's namespace and one of all.
func TestExplainDefaultsOfSeats(t *testing.T) {
	k := postgres()
	k.Spec.Classes.Use = &v1beta1.Use{Subject: v1beta1.UseByNamespace}
	marked := map[string]string{defaultAnnotation: "true"}
	kind, all := newKind("as.example.org", "Own", k.Name), newKind("bs.example.org", "All", k.Name)
	kind.Namespaced = true
	view := NewView(NewClaimKind(k), []*inventory.Classes{
		inventory.NewClasses(kind, []*inventory.Class{kind.NewClass(&metav1.ObjectMeta{Namespace: "team", Name: "own", Annotations: marked}, nil)}),
		inventory.NewClasses(all, []*inventory.Class{all.NewClass(&metav1.ObjectMeta{Name: "all", Annotations: marked}, nil)}),
	})
	for name, tc := range map[string]struct {
		why, refused, class, dropped string
	}{
		"Own": {why: "We should offer the namespace's default alone.", class: "own", dropped: "NotOfNamespace"},
		"All": {why: "We should take the next where the claim may not use its own.", refused: "own", class: "all", dropped: "Full"},
	} {
		d := Decider{Gates: []Test{refusing("Full", tc.refused)}}
		e, err := d.Explain(t.Context(), view, claim.Intake{Claim: claim.Claim{Namespace: "team", Name: "db"}})
		require.NoError(t, err, name)
		require.Len(t, e.Candidates, 1, tc.why)
		assert.Equal(t, tc.class, e.Candidates[0].Name, tc.why)
		assert.Same(t, e.Decision.Class, e.Candidates[0].Class, tc.why)
		require.Len(t, e.Dropped, 1, tc.why)
		assert.Equal(t, tc.dropped, e.Dropped[0].Reason, tc.why)
	}
}

// A command may take its time, as no server may.
func TestPatience(t *testing.T) {
	view := NewView(NewClaimKind(postgres()), []*inventory.Classes{manyClasses("as.example.org", 300, 300)})
	d := Decider{Patient: true, Gates: []Test{{Text: "forbidden", Drops: func(_ context.Context, _ Subject, c *inventory.Class) (bool, error) {
		return c.Name != "class-042", nil
	}}}}
	for i := range 10 {
		got := decided(t, &d, view, claim.Intake{Claim: nthClaim(i)}, Mode{Stored: true})
		assert.Equal(t, "class-042", got.Class.Name)
	}
}

// A gate that fails on a newer view, or in a second draw, leaves no class behind.
func TestGateFailsLate(t *testing.T) {
	failed := errors.New("the authorizer does not answer")
	kind := kindOf(spec(`{choice: {strategy: RoundRobin}}`))
	view := NewView(kind, []*inventory.Classes{manyClasses("as.example.org", 2, 2)})
	asked := 0
	d := Decider{
		Gates: []Test{{Text: "full", Drops: func(_ context.Context, c Subject, class *inventory.Class) (bool, error) {
			if asked++; asked == 1 { // Another claim takes the turn.
				require.True(t, kind.memory.commit(c.Namespace, class, kind.memory.rank(c.Namespace, class)))
				return false, nil
			}
			return false, failed
		}}},
		Waits: waitsFor(view),
	}
	got, err := d.Decide(t.Context(), view, claim.Intake{Claim: nthClaim(1)}, Mode{})
	require.ErrorIs(t, err, failed)
	require.ErrorContains(t, err, "which classes are full", "We should say what could not be told.")
	assert.Nil(t, got.Class, "We should not have a class of a draw that did not count.")

	got, err = d.Decide(t.Context(), outdated(NewView(kind, nil)), claim.Intake{Claim: nthClaim(1)}, Mode{})
	require.ErrorIs(t, err, failed)
	assert.Nil(t, got.Class)
}

// TestTurn of a costly decision, which asks others in between.
func TestTurn(t *testing.T) {
	running := 0
	out := outside{decider: &Decider{Costly: func(context.Context, string) (func(), error) {
		running++
		return func() { running-- }, nil
	}}}
	require.NoError(t, out.enter(t.Context()))
	require.NoError(t, out.enter(t.Context()))
	assert.Equal(t, 1, running, "We should take one turn.")
	_, cancel := out.context(t.Context())
	defer cancel()
	assert.Zero(t, running, "We should keep nobody waiting for what others answer.")
	require.NoError(t, out.enter(t.Context()))
	out.leave()
	assert.Zero(t, running)
}

// authorizer allows classes by name to each user, and remembers for which it was asked.
type authorizer struct {
	allowed map[string][]string

	mu    sync.Mutex
	asked []string
}

func (a *authorizer) gate() Test {
	return Test{
		Of: func(k *ClaimKind) bool { return k.Use != "" }, Reason: "NotAllowed", Text: "not allowed for the claim",
		Drops: func(_ context.Context, c Subject, class *inventory.Class) (bool, error) {
			a.mu.Lock()
			a.asked = append(a.asked, class.Name)
			a.mu.Unlock()
			return !slices.Contains(a.allowed[c.View.Kind.UserOf(c.Claim).String()], class.Name), nil
		},
	}
}

// grants are roles that allow as much, but nothing for these users.
func (a *authorizer) grants(but ...string) func() *access.Grants {
	var roles []access.Role
	var bindings []access.Binding
	for user, names := range a.allowed {
		if len(but) > 0 && user == but[0] {
			continue
		}
		var namespace string
		_, _ = fmt.Sscanf(user, "namespace %q", &namespace)
		roles = append(roles, access.NewRole("", user, []rbacv1.PolicyRule{{
			Verbs: []string{"use"}, APIGroups: []string{"example.org"}, Resources: []string{"*"}, ResourceNames: names,
		}}))
		bindings = append(bindings, access.NewBinding("", user, []rbacv1.Subject{{
			Kind: rbacv1.GroupKind, Name: "system:serviceaccounts:" + namespace,
		}}, rbacv1.RoleRef{Kind: "ClusterRole", Name: user}))
	}
	g := access.NewGrants(roles, bindings)
	return func() *access.Grants { return g }
}

func usedByNamespaces() *v1beta1.ClaimKind {
	k := postgres()
	k.Spec.Classes.Use = &v1beta1.Use{Subject: v1beta1.UseByNamespace}
	return k
}

func TestUse(t *testing.T) {
	const team = `namespace "team"`
	named := func(from, to int) (names []string) {
		for i := from; i < to; i++ {
			names = append(names, fmt.Sprintf("class-%03d", i))
		}
		return names
	}
	for name, tc := range map[string]struct {
		why     string
		allowed []string
		roles   string // "all" that allow as much, "none" of the namespace, or not known
		class   string
		asked   int // at most
		warning string
		err     string
	}{
		"OneOfMany": {why: "We should ask about the one that a role allows.", allowed: named(7, 8), roles: "all", class: "class-007", asked: 1},
		"Other":     {why: "We should honour another authorizer.", allowed: named(0, 800), roles: "none", class: "class-", asked: v1beta1.MaxUnlikelyRefusals},
		"NoRole": {
			why:     "We should not ask about all where no role allows one.",
			allowed: nil,
			roles:   "none",
			asked:   v1beta1.MaxUnlikelyRefusals,
			warning: `no class that namespace "team" may use matches the selector "tier=gold", nor any other that is known; classbind classes ` +
				`postgresqlinstances.database.crossplane.io shows all that a claim can get with -n team`,
		},
		"RolesUnknown": {why: "We should go down the order where no role is known.", allowed: named(0, 500), class: "class-", asked: v1beta1.MaxRefusals},
		"TooMany": {
			why:     "We should not say that there is none where we did not ask about all.",
			allowed: nil,
			asked:   v1beta1.MaxRefusals + 1,
			err:     "so many of the classes that match are not allowed that the others were not checked",
		},
		"Usable": {
			why:     "We should report what the claim may use.",
			allowed: []string{"class-998", "class-999"},
			roles:   "all",
			asked:   v1beta1.MaxUnlikelyRefusals + 2,
			warning: `no class that namespace "team" may use matches the selector "tier=gold": it may use as.example.org/class-998, ` +
				`as.example.org/class-999; classbind classes`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			view := NewView(NewClaimKind(usedByNamespaces()), []*inventory.Classes{manyClasses("as.example.org", 1000, 990)})
			a := &authorizer{allowed: map[string][]string{team: tc.allowed, `namespace "other"`: named(0, 1000)}}
			d := Decider{Gates: []Test{a.gate()}}
			switch tc.roles {
			case "all":
				d.Grants = a.grants()
			case "none":
				d.Grants = a.grants(team)
			}
			got, err := d.Decide(t.Context(), view, claim.Intake{Claim: claim.Claim{Namespace: "team", Name: "db", Selector: gold}}, Mode{})
			assert.LessOrEqual(t, len(a.asked), tc.asked, tc.why)
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err, tc.why)
				assert.NotContains(t, err.Error(), "990", "We should not report how many there are.")
				return
			}
			require.NoError(t, err, tc.why)
			if tc.class == "" {
				require.Nil(t, got.Class, tc.why)
				assert.Contains(t, got.Warning(), tc.warning, tc.why)
				assert.NotContains(t, got.Warning(), "990", "We should not report how many there are.")
				return
			}
			require.NotNil(t, got.Class, tc.why)
			assert.Contains(t, tc.allowed, got.Class.Name, tc.why)
			assert.Empty(t, got.Warning())
		})
	}
}

// A default that a claim may not use does not count for it.
func TestUseOfDefaults(t *testing.T) {
	own, all := newKind("as.example.org", "A"), newKind("bs.example.org", "B")
	own.Namespaced = true
	mark := map[string]string{defaultAnnotation: "true"}
	kind := NewClaimKind(usedByNamespaces())
	view := NewView(kind, []*inventory.Classes{
		inventory.NewClasses(own, []*inventory.Class{own.NewClass(&metav1.ObjectMeta{Namespace: "team", Name: "own", Annotations: mark}, nil)}),
		inventory.NewClasses(all, []*inventory.Class{
			all.NewClass(&metav1.ObjectMeta{Name: "all", Annotations: mark}, nil), all.NewClass(&metav1.ObjectMeta{Name: "more", Annotations: mark}, nil),
		}),
	})
	for name, tc := range map[string]struct {
		allowed []string
		want    string
	}{
		"Own": {[]string{"own", "all", "more"}, "own"}, "All": {[]string{"all"}, "all"}, "OneOfTwo": {[]string{"more"}, "more"}, "None": {nil, ""},
	} {
		a := &authorizer{allowed: map[string][]string{`namespace "team"`: tc.allowed}}
		for _, grants := range []func() *access.Grants{nil, a.grants(), a.grants(`namespace "team"`)} {
			t.Run(name, func(t *testing.T) {
				d := Decider{Gates: []Test{a.gate()}, Grants: grants}
				got := decided(t, &d, view, claim.Intake{Claim: claim.Claim{Namespace: "team", Name: "db"}}, Mode{})
				if tc.want == "" {
					require.Nil(t, got.Class)
					others := ", nor any other that is known"
					if grants == nil {
						others = ""
					}
					assert.Equal(t, `this claim of "`+kind.Name+`" has no class selector, and no class that namespace "team" may use is the default for it`+others+
						`; classbind classes `+kind.Name+` shows all that a claim can get with -n team`, got.Warning(), "We should name none that it may not use.")
					return
				}
				require.NotNil(t, got.Class)
				assert.Equal(t, tc.want, got.Class.Name)
				assert.Empty(t, got.Warning(), "We should not name others that are marked default.")
			})
		}
	}
}

// A name that who reads claims looks for in several kinds may mean the class of each of them.
func TestUsesOfOneName(t *testing.T) {
	k := usedByNamespaces()
	k.Spec.Reference.Form = v1beta1.Name
	k.Spec.Classes.Precedence = v1beta1.PrecedenceListed
	k.Spec.Classes.Kinds = []v1beta1.ClassKindLink{{Name: "as.example.org"}, {Name: "bs.example.org"}}
	as, bs := newKind("as.example.org", "A"), newKind("bs.example.org", "B")
	as.Namespaced = true
	c := bs.NewClass(&metav1.ObjectMeta{Name: "x"}, nil)
	view := NewView(NewClaimKind(k), []*inventory.Classes{inventory.NewClasses(as, nil), inventory.NewClasses(bs, []*inventory.Class{c})})
	assert.ElementsMatch(t, []access.Class{{Resource: bs.Resource(), Name: "x"}, {Resource: as.Resource(), Namespace: "team", Name: "x"}}, view.Uses("team", c))
}

// A default that a claim may not use is no reason to warn a claim that needs none.
func TestUseOfDefaultIfAny(t *testing.T) {
	k := usedByNamespaces()
	k.Spec.Selector.WhenAbsent, k.Spec.WhenUnmatched = v1beta1.NoSelectorDefaultIfAny, v1beta1.Deny
	of := newKind("as.example.org", "A")
	hidden := of.NewClass(&metav1.ObjectMeta{Name: "hidden", Annotations: map[string]string{defaultAnnotation: "true"}}, nil)
	a := &authorizer{}
	d := Decider{Gates: []Test{a.gate()}}
	got := decided(t, &d, NewView(NewClaimKind(k), []*inventory.Classes{inventory.NewClasses(of, []*inventory.Class{hidden})}), claim.Intake{
		Claim: claim.Claim{Namespace: "team", Name: "db"},
	}, Mode{})
	assert.Nil(t, got.Class)
	assert.False(t, got.Denied(), "We should not refuse it for a default that it may not use.")
	assert.Empty(t, got.Warning(), "We should not report one.")
	assert.Len(t, a.asked, 1, "We should not ask what else it may use.")
}

// However many defaults of one seat a claim may not use, those of the next are asked about.
func TestUseOfManySeats(t *testing.T) {
	own, all := newKind("as.example.org", "A"), newKind("bs.example.org", "B")
	own.Namespaced = true
	mark := map[string]string{defaultAnnotation: "true"}
	var owned []*inventory.Class
	for i := range 3 * v1beta1.MaxUnlikelyRefusals {
		owned = append(owned, own.NewClass(&metav1.ObjectMeta{Namespace: "team", Name: fmt.Sprint("own-", i), Annotations: mark}, nil))
	}
	view := NewView(NewClaimKind(usedByNamespaces()), []*inventory.Classes{
		inventory.NewClasses(own, owned), inventory.NewClasses(all, []*inventory.Class{all.NewClass(&metav1.ObjectMeta{Name: "all", Annotations: mark}, nil)}),
	})
	a := &authorizer{allowed: map[string][]string{`namespace "team"`: {"all"}}}
	d := Decider{Gates: []Test{a.gate()}, Grants: a.grants()}
	got := decided(t, &d, view, claim.Intake{Claim: claim.Claim{Namespace: "team", Name: "db"}}, Mode{})
	require.NotNil(t, got.Class)
	assert.Equal(t, "all", got.Class.Name)
	assert.Len(t, a.asked, v1beta1.MaxUnlikelyRefusals+1)
}

// An authorizer that fails for what else a claim may use does not make it fail.
func TestUsableIsNotNeeded(t *testing.T) {
	view := NewView(NewClaimKind(usedByNamespaces()), []*inventory.Classes{manyClasses("as.example.org", 3, 0)})
	d := Decider{Gates: []Test{{Of: func(k *ClaimKind) bool { return k.Use != "" }, Drops: func(context.Context, Subject, *inventory.Class) (bool, error) {
		return false, errors.New("no answer")
	}}}}
	got := decided(t, &d, view, claim.Intake{Claim: claim.Claim{Namespace: "team", Name: "db", Selector: gold}}, Mode{})
	assert.Contains(t, got.Warning(), `matches the selector "tier=gold"; classbind classes`, "We should not say what we do not know.")
}

// A claim never goes without because not all classes could be judged: it gets the one that it may use, or an error.
func TestUseBesideCostlyExpressions(t *testing.T) {
	world := newExpressive(specs(`{classes: {use: {subject: Namespace}, fits: [{name: "Size", expression: "claim.spec.n.all(a, a < class.spec.size)"}]}}`, `{}`))
	numbers := make([]any, 200)
	for i := range numbers {
		numbers[i] = int64(i)
	}
	world.withMany(100, "class-%03d", map[string]any{"size": int64(1000)})
	view, bound := world.view(), 0
	for i := range 40 {
		a := &authorizer{allowed: map[string][]string{`namespace "team"`: {fmt.Sprintf("class-%03d", i)}}}
		object := map[string]any{"spec": map[string]any{"n": numbers, "classSelector": map[string]any{}}}
		got, err := (&Decider{Gates: []Test{a.gate()}}).Decide(t.Context(), view, view.Kind.Reader.Read("team", fmt.Sprint("db-", i), object), Mode{})
		switch {
		case err != nil:
			require.ErrorContains(t, err, "cost too much CPU for so many classes")
		case len(got.Claim.Problems) > 0:
			require.ErrorContains(t, got.Claim.Problems.ToAggregate(), "cost")
		default:
			require.NotNil(t, got.Class, "We should not say that there is none.")
			bound++
		}
	}
	assert.Positive(t, bound, "We should come to some.")
}

// What no role allows costs a claim nothing once enough of it was refused: it learns of none.
func TestUnlikelyClassesAreNotJudged(t *testing.T) {
	world := newExpressive(specs(`{classes: {use: {subject: Namespace}, fits: [{name: "Size", expression: "claim.spec.n.all(a, a < class.spec.size)"}]}}`, `{}`))
	world.withMany(1000, "class-%03d", map[string]any{"size": int64(1000)})
	view := world.view()
	d := Decider{Gates: []Test{(&authorizer{}).gate()}, Grants: func() *access.Grants { return access.NewGrants(nil, nil) }}
	object := map[string]any{"spec": map[string]any{"n": []any{int64(1), int64(2), int64(3)}, "classSelector": map[string]any{}}}
	got := decided(t, &d, view, view.Kind.Reader.Read("team", "db", object), Mode{})
	assert.Nil(t, got.Class)
	assert.Zero(t, got.Unjudged)
	assert.Len(t, got.Refused, v1beta1.MaxUnlikelyRefusals)
}

// A test that fails for one class drops that class, and says so.
func TestFilterFailsForOneClass(t *testing.T) {
	kind := NewClaimKind(postgres())
	kind.free = len(kind.tests) + 1
	kind.tests = append(kind.tests, Test{Reason: "Unfit", Text: "unfit", at: len(
		kind.tests,
	), Drops: func(_ context.Context, _ Subject, c *inventory.Class) (bool, error) {
		if c.Name == "class-001" {
			return false, errors.New("no such field: spec.size")
		}
		return c.Name == "class-002", nil
	}})
	view := NewView(kind, []*inventory.Classes{manyClasses("as.example.org", 4, 4)})
	got := choose(view, nthClaim(1), 0)
	assert.Equal(t, 2, got.Candidates, "We should offer the others.")
	assert.Equal(t, "Unfit=2", got.DroppedText(), "We should drop a class that cannot be judged.")
	require.EqualError(t, got.DropErr, "no such field: spec.size")

	alone := NewView(kind, []*inventory.Classes{manyClasses("as.example.org", 4, 4).Without("", "class-000").Without("", "class-003")})
	unmatched := choose(alone, nthClaim(1), 0)
	assert.Contains(t, unmatched.Warning(), "dropped: 2 unfit; the first error: no such field: spec.size", "We should report what is wrong with it.")
	texts := map[string]string{}
	for _, d := range explain(alone, nthClaim(1), 0).Dropped {
		texts[d.Class.Name] = d.Text
	}
	assert.Equal(t, map[string]string{"class-001": "unfit: no such field: spec.size", "class-002": "unfit"}, texts, "We should report which class is broken.")
}
