package selector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/access"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/inventory"
)

// authorizer allows classes by name to each user, and remembers for which it was asked.
type authorizer struct {
	allowed map[string][]string
	asked   []string
}

func (a *authorizer) gate() Gate {
	return Gate{
		Of: func(k *ClaimKind) bool { return k.Use != "" }, Reason: "NotAllowed", Text: "not allowed for the claim",
		Admits: func(_ context.Context, _ Mode, v *View, c claim.Claim, class *inventory.Class) (bool, error) {
			a.asked = append(a.asked, class.Name)
			return slices.Contains(a.allowed[v.Kind.UserOf(c).String()], class.Name), nil
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

func usedBy(subject v1beta1.UseSubject) *v1beta1.ClaimKind {
	k := postgres()
	k.Spec.Classes.Use = &v1beta1.Use{Subject: subject}
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
		"OneOfMany":    {why: "We should ask about the one that a role allows.", allowed: named(7, 8), roles: "all", class: "class-007", asked: 1},
		"Other":        {why: "We should honour another authorizer.", allowed: named(0, 800), roles: "none", class: "class-", asked: v1beta1.MaxUnlikelyRefusals},
		"NoRole":       {why: "We should not ask about all where no role allows one.", allowed: nil, roles: "none", asked: v1beta1.MaxUnlikelyRefusals, warning: `no class that namespace "team" may use matches the selector "tier=gold", nor any other that is known; classbind classes postgresqlinstances.database.crossplane.io shows all that a claim can get with -n team`},
		"RolesUnknown": {why: "We should go down the order where no role is known.", allowed: named(0, 500), class: "class-", asked: v1beta1.MaxRefusals},
		"TooMany":      {why: "We should not say that there is none where we did not ask about all.", allowed: nil, asked: v1beta1.MaxRefusals + 1, err: "too many of the classes that match are not allowed to check the others"},
		"Usable":       {why: "We should tell what the claim may use.", allowed: []string{"class-998", "class-999"}, roles: "all", asked: v1beta1.MaxUnlikelyRefusals + 2, warning: `no class that namespace "team" may use matches the selector "tier=gold": it may use as.example.org/class-998, as.example.org/class-999; classbind classes`},
	} {
		t.Run(name, func(t *testing.T) {
			view := newView(NewClaimKind(usedBy(v1beta1.UseByNamespace)), []*inventory.Classes{manyClasses("as.example.org", 1000, 990)})
			a := &authorizer{allowed: map[string][]string{team: tc.allowed, `namespace "other"`: named(0, 1000)}}
			d := Decider{Gates: []Gate{a.gate()}}
			switch tc.roles {
			case "all":
				d.Grants = a.grants()
			case "none":
				d.Grants = a.grants(team)
			}
			got, err := d.Decide(t.Context(), view, claim.Intake{Claim: claim.Claim{Namespace: "team", Name: "db", Selector: gold}}, Admit)
			assert.LessOrEqual(t, len(a.asked), tc.asked, tc.why)
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err, tc.why)
				assert.NotContains(t, err.Error(), "990", "We should not tell how many there are.")
				return
			}
			require.NoError(t, err, tc.why)
			if tc.class == "" {
				require.Nil(t, got.Class, tc.why)
				assert.Contains(t, got.Warning(), tc.warning, tc.why)
				assert.NotContains(t, got.Warning(), "990", "We should not tell how many there are.")
				return
			}
			require.NotNil(t, got.Class, tc.why)
			assert.Contains(t, tc.allowed, got.Class.Name, tc.why)
			assert.Empty(t, got.Warning())
		})
	}
}

// Of each namespace, the shares among what it may use follow the weights.
func TestUseKeepsTheOdds(t *testing.T) {
	k := usedBy(v1beta1.UseByNamespace)
	view := weighed(k, map[string]int64{"as/one": 1, "as/two": 2, "bs/three": 3, "bs/four": 4})
	a := &authorizer{allowed: map[string][]string{`namespace "a"`: {"one", "three"}, `namespace "b"`: {"two", "three", "four"}}}
	for _, d := range []Decider{{Gates: []Gate{a.gate()}, Grants: a.grants()}, {Gates: []Gate{a.gate()}}} {
		for namespace, want := range map[string]map[string]float64{
			"a": {"as/one": 1. / 4, "bs/three": 3. / 4}, "b": {"as/two": 2. / 9, "bs/three": 3. / 9, "bs/four": 4. / 9},
		} {
			got := map[string]int{}
			for i := range claims {
				c := nthClaim(i)
				c.Namespace = namespace
				decision, err := d.Decide(t.Context(), view, claim.Intake{Claim: c}, DryRun)
				require.NoError(t, err)
				got[decision.Class.String()]++
			}
			assertShares(t, got, want, "We should draw by weight among those that the namespace may use.")
		}
	}
}

// A default that a claim may not use is none for it.
func TestUseOfDefaults(t *testing.T) {
	own, all := newKind("as.example.org", "A"), newKind("bs.example.org", "B")
	own.Namespaced = true
	mark := map[string]string{defaultAnnotation: "true"}
	kind := NewClaimKind(usedBy(v1beta1.UseByNamespace))
	view := newView(kind, []*inventory.Classes{
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
				d := Decider{Gates: []Gate{a.gate()}, Grants: grants}
				got, err := d.Decide(t.Context(), view, claim.Intake{Claim: claim.Claim{Namespace: "team", Name: "db"}}, Admit)
				require.NoError(t, err)
				if tc.want == "" {
					require.Nil(t, got.Class)
					assert.Equal(t, `this claim of "`+kind.Name+`" has no class selector, and no class that namespace "team" may use is the default for it, nor any other that is known; classbind classes `+kind.Name+` shows all that a claim can get with -n team`, got.Warning(), "We should name none that it may not use.")
					return
				}
				require.NotNil(t, got.Class)
				assert.Equal(t, tc.want, got.Class.Name)
				assert.Empty(t, got.Warning(), "We should not name others that are marked default.")
			})
		}
	}
}

// Who asks is the claim's requester, or its namespace where nobody knows who asked.
func TestUserOf(t *testing.T) {
	ann := &access.Subject{User: "ann"}
	c := claim.Claim{Namespace: "team"}
	asked := c
	asked.Requester = ann
	assert.Nil(t, NewClaimKind(postgres()).UserOf(asked), "We should ask for no right where a kind does not.")
	assert.Equal(t, `namespace "team"`, NewClaimKind(usedBy(v1beta1.UseByNamespace)).UserOf(asked).String())
	assert.Equal(t, `user "ann"`, NewClaimKind(usedBy(v1beta1.UseByRequester)).UserOf(asked).String())
	assert.Equal(t, `namespace "team"`, NewClaimKind(usedBy(v1beta1.UseByRequester)).UserOf(c).String())
}

// Where nobody knows whether a claim may use a class, it gets none, and the error names none.
func TestUseFails(t *testing.T) {
	view := newView(NewClaimKind(usedBy(v1beta1.UseByNamespace)), []*inventory.Classes{manyClasses("as.example.org", 3, 3)})
	d := Decider{Gates: []Gate{{Of: func(k *ClaimKind) bool { return k.Use != "" }, Text: "not allowed", Admits: func(context.Context, Mode, *View, claim.Claim, *inventory.Class) (bool, error) {
		return false, errors.New("no answer")
	}}}}
	got, err := d.Decide(t.Context(), view, claim.Intake{Claim: nthClaim(1)}, Admit)
	require.EqualError(t, err, "cannot tell which classes are not allowed: no answer")
	assert.Nil(t, got.Class)
}

// A name that who reads claims looks for in several kinds may mean the class of each of them.
func TestUsesOfOneName(t *testing.T) {
	k := usedBy(v1beta1.UseByNamespace)
	k.Spec.Reference.Form = v1beta1.Name
	k.Spec.Classes.Precedence = v1beta1.PrecedenceListed
	k.Spec.Classes.Kinds = []v1beta1.ClassKindLink{{Name: "as.example.org"}, {Name: "bs.example.org"}}
	as, bs := newKind("as.example.org", "A"), newKind("bs.example.org", "B")
	as.Namespaced = true
	c := bs.NewClass(&metav1.ObjectMeta{Name: "x"}, nil)
	view := newView(NewClaimKind(k), []*inventory.Classes{inventory.NewClasses(as, nil), inventory.NewClasses(bs, []*inventory.Class{c})})
	assert.ElementsMatch(t, []access.Class{{Resource: bs.Resource(), Name: "x"}, {Resource: as.Resource(), Namespace: "team", Name: "x"}}, view.Uses("team", c))
}

// A default that a claim may not use is no reason to tell a claim that needs none of anything.
func TestUseOfDefaultIfAny(t *testing.T) {
	k := usedBy(v1beta1.UseByNamespace)
	k.Spec.Selector.WhenAbsent, k.Spec.WhenUnmatched = v1beta1.NoSelectorDefaultIfAny, v1beta1.Deny
	of := newKind("as.example.org", "A")
	hidden := of.NewClass(&metav1.ObjectMeta{Name: "hidden", Annotations: map[string]string{defaultAnnotation: "true"}}, nil)
	a := &authorizer{}
	d := Decider{Gates: []Gate{a.gate()}}
	got, err := d.Decide(t.Context(), newView(NewClaimKind(k), []*inventory.Classes{inventory.NewClasses(of, []*inventory.Class{hidden})}), claim.Intake{Claim: claim.Claim{Namespace: "team", Name: "db"}}, Admit)
	require.NoError(t, err)
	assert.Nil(t, got.Class)
	assert.False(t, got.Denied(), "We should not refuse it for a default that it may not use.")
	assert.Empty(t, got.Warning(), "We should not tell of one.")
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
	view := newView(NewClaimKind(usedBy(v1beta1.UseByNamespace)), []*inventory.Classes{
		inventory.NewClasses(own, owned), inventory.NewClasses(all, []*inventory.Class{all.NewClass(&metav1.ObjectMeta{Name: "all", Annotations: mark}, nil)}),
	})
	a := &authorizer{allowed: map[string][]string{`namespace "team"`: {"all"}}}
	d := Decider{Gates: []Gate{a.gate()}, Grants: a.grants()}
	got, err := d.Decide(t.Context(), view, claim.Intake{Claim: claim.Claim{Namespace: "team", Name: "db"}}, Admit)
	require.NoError(t, err)
	require.NotNil(t, got.Class)
	assert.Equal(t, "all", got.Class.Name)
	assert.Len(t, a.asked, v1beta1.MaxUnlikelyRefusals+1)
}

// An authorizer that fails for what else a claim may use does not make it fail.
func TestUsableIsNotNeeded(t *testing.T) {
	view := newView(NewClaimKind(usedBy(v1beta1.UseByNamespace)), []*inventory.Classes{manyClasses("as.example.org", 3, 0)})
	d := Decider{Gates: []Gate{{Of: func(k *ClaimKind) bool { return k.Use != "" }, Admits: func(context.Context, Mode, *View, claim.Claim, *inventory.Class) (bool, error) {
		return false, errors.New("no answer")
	}}}}
	got, err := d.Decide(t.Context(), view, claim.Intake{Claim: claim.Claim{Namespace: "team", Name: "db", Selector: gold}}, Admit)
	require.NoError(t, err)
	assert.Contains(t, got.Warning(), `matches the selector "tier=gold"; classbind classes`, "We should not say what we do not know.")
}

// A claim never goes without because not all classes could be judged: it gets the one that it may use, or an error.
func TestUseBesideCostlyExpressions(t *testing.T) {
	world := newExpressive(func(s *v1beta1.ClaimKindSpec, _ *v1beta1.ClassKindSpec) {
		s.Classes.Use = &v1beta1.Use{Subject: v1beta1.UseByNamespace}
		s.Classes.Fits = []v1beta1.Fit{{Name: "Size", Expression: "claim.spec.n.all(a, a < class.spec.size)"}}
	})
	numbers := make([]any, 200)
	for i := range numbers {
		numbers[i] = int64(i)
	}
	for i := range 100 {
		world.with(fmt.Sprintf("class-%03d", i), map[string]any{"size": int64(1000)})
	}
	view, bound := world.view(), 0
	for i := range 40 {
		a := &authorizer{allowed: map[string][]string{`namespace "team"`: {fmt.Sprintf("class-%03d", i)}}}
		object := map[string]any{"spec": map[string]any{"n": numbers, "classSelector": map[string]any{}}}
		got, err := (&Decider{Gates: []Gate{a.gate()}}).Decide(t.Context(), view, view.Kind.Read("team", fmt.Sprint("db-", i), object), Admit)
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

// What no role allows costs a claim nothing once enough of it was refused: it is told that there is none.
func TestUnlikelyClassesAreNotJudged(t *testing.T) {
	world := newExpressive(func(s *v1beta1.ClaimKindSpec, _ *v1beta1.ClassKindSpec) {
		s.Classes.Use = &v1beta1.Use{Subject: v1beta1.UseByNamespace}
		s.Classes.Fits = []v1beta1.Fit{{Name: "Size", Expression: "claim.spec.n.all(a, a < class.spec.size)"}}
	})
	for i := range 1000 {
		world.with(fmt.Sprintf("class-%03d", i), map[string]any{"size": int64(1000)})
	}
	view := world.view()
	d := Decider{Gates: []Gate{(&authorizer{}).gate()}, Grants: func() *access.Grants { return access.NewGrants(nil, nil) }}
	object := map[string]any{"spec": map[string]any{"n": []any{int64(1), int64(2), int64(3)}, "classSelector": map[string]any{}}}
	got, err := d.Decide(t.Context(), view, view.Kind.Read("team", "db", object), Admit)
	require.NoError(t, err)
	assert.Nil(t, got.Class)
	assert.Zero(t, got.Unjudged)
	assert.Len(t, got.Refused, v1beta1.MaxUnlikelyRefusals)
}
