package selector

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/inventory"
)

// onlyKind gives claims without a selector the only class. Every test of a class matters to its claims.
func onlyKind(t *testing.T) (*v1beta1.ClaimKind, *v1beta1.ClassKind) {
	k, of := postgres(), &v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: "pools.example.org"}}
	specs(`{
		selector: {whenAbsent: Only},
		classes: {fits: [{name: Size, expression: "class.spec.size >= claim.spec.size"}]},
		choice: {strategy: HighestScore, score: "class.spec.score"},
	}`, `{
		default: {annotation: example.org/default}, weight: {annotation: example.org/weight}, capacity: [{name: claims}],
		fits: [{name: Linked, expression: "claim.spec.size != 1 || class.spec.linked"}],
	}`)(&k.Spec, &of.Spec)
	of.Spec.ClaimKinds = []v1beta1.ClaimKindLink{{Name: k.Name}}
	require.NotEmpty(t, NewClaimKind(k, of).tests)
	return k, of
}

// TestOnly has, for each test of a class, a second class that it drops. The first class is then the only one, unless the second has no room:
// other claims fill a class, and must not decide what this one gets.
func TestOnly(t *testing.T) {
	type want struct {
		class, reason string
		// alone is the reason where the second class is the only one that there is.
		alone, warning string
	}
	onlyFirst := want{class: "first", reason: "OnlyClass", alone: "NoDefaultClass"}
	drop := func(text string) want {
		w := onlyFirst
		w.warning = text
		return w
	}
	for dropped, tc := range map[string]struct {
		reason   string
		claims   func(*v1beta1.ClaimKindSpec)
		given    *claim.Given
		annotate []string
		spec     map[string]any
		change   func(*inventory.Class)
		want     want
	}{
		"None": {
			reason: "We should give the default class where two are offered, and none where neither is marked.",
			want:   want{reason: "NoDefaultClass", alone: "OnlyClass", warning: "there is not exactly one class for it, and no class is marked default"},
		},
		"Default": {
			reason:   "We should give the default class where two are offered.",
			annotate: []string{"example.org/default", "true"},
			want:     want{class: "second", reason: "DefaultClass", alone: "OnlyClass"},
		},
		"TooManyLabels": {
			reason: "We should not count a class that no selector matches.",
			change: func(c *inventory.Class) { c.TooManyLabels = true },
			want:   drop("no class is marked default"),
		},
		"OtherReference": {
			reason: "We should not count a class that the author has ruled out.",
			given:  &claim.Given{Kind: "First"},
			want:   drop("no class is marked default"),
		},
		"NameTooLong": {
			reason: "We should not count a class that the reference cannot name.",
			claims: spec(`{reference: {path: "", label: example.org/class, form: Name}}`),
			change: func(c *inventory.Class) { c.Name = strings.Repeat("n", 64) },
			want:   drop("no class is marked default"),
		},
		"NotOffered": {
			reason: "We should not count a class that its kind does not offer.",
			change: func(c *inventory.Class) { c.NotOffered = true },
			want:   drop("no class is marked default"),
		},
		"Shadowed": {
			reason: "We should not count a class whose name means the first.",
			claims: spec(`{
				reference: {path: .spec.ref, form: LocalObjectReference},
				classes: {precedence: Listed, kinds: [{name: firsts.example.org}, {name: pools.example.org}]},
			}`),
			change: func(c *inventory.Class) { c.Name = "first" },
			want:   want{class: "first", reason: "OnlyClass", alone: "OnlyClass"},
		},
		"Terminating": {
			reason: "We should not count a class that is being deleted.",
			change: func(c *inventory.Class) { c.Terminating = true },
			want:   drop("no class is marked default"),
		},
		"Cordoned": {
			reason:   "We should not count a cordoned class: an admin takes it out of use.",
			annotate: []string{v1beta1.CordonedAnnotation, "true"},
			want:     drop("no class is marked default"),
		},
		"WeightZero": {
			reason:   "We should not count a class of weight 0.",
			annotate: []string{"example.org/weight", "0"},
			want:     drop("no class is marked default"),
		},
		"Full": {
			reason:   "We should count a full class.",
			annotate: []string{"classbind.io/capacity", "0"},
			want: want{
				reason: "NoDefaultClass", alone: "NoMatchingClass",
				warning: `has no class selector, and the only class that it is offered, "Pool/second", cannot serve it`,
			},
		},
		"Size": {
			reason: "We should not count a class that does not fit.",
			spec:   map[string]any{"size": int64(1), "score": int64(1), "linked": true},
			want:   drop("no class is marked default"),
		},
		"Linked": {
			reason: "We should not count a class that does not fit by its kind.",
			spec:   map[string]any{"size": int64(9), "score": int64(1), "linked": false},
			want:   drop("no class is marked default"),
		},
		"ExpressionError": {
			reason: "We should not count a class that cannot be judged: it goes to no claim.",
			spec:   map[string]any{"score": int64(1), "linked": true},
			want:   drop("no class is marked default"),
		},
		"TooCostly": {
			reason: "We should not count a class that costs too much: it pays for itself.",
			claims: func(s *v1beta1.ClaimKindSpec) {
				s.Classes.Fits[0].Expression += " && class.spec.?many.orValue([]).all(a, class.spec.many.all(b, a <= b || a >= claim.spec.size))"
			},
			spec: map[string]any{"size": int64(9), "score": int64(1), "linked": true, "many": slices.Repeat([]any{int64(1)}, v1beta1.MaxExpressionElements/2)},
			want: drop("no class is marked default"),
		},
		"NoScore": {
			reason: "We should not count a class without a score.",
			spec:   map[string]any{"size": int64(9), "linked": true},
			want:   drop("no class is marked default"),
		},
	} {
		t.Run(dropped, func(t *testing.T) {
			k, of := onlyKind(t)
			if tc.claims != nil {
				tc.claims(&k.Spec)
			}
			good := map[string]any{"size": int64(9), "score": int64(2), "linked": true}
			newView := func(both bool) *View {
				firstOf := of.DeepCopy()
				firstOf.Name = "firsts.example.org"
				firsts := inventory.NewClassKind(firstOf, groupVersionKind("First"), false, k)
				seconds := inventory.NewClassKind(of, groupVersionKind("Pool"), false, k)
				annotations := map[string]string{}
				for pair := range slices.Chunk(tc.annotate, 2) {
					annotations[pair[0]] = pair[1]
				}
				content := map[string]any{"spec": good}
				if tc.spec != nil {
					content = map[string]any{"spec": tc.spec}
				}
				second := seconds.NewClass(&metav1.ObjectMeta{Name: "second", Annotations: annotations}, content)
				if tc.change != nil {
					tc.change(second)
				}
				all := []*inventory.Classes{inventory.NewClasses(seconds, []*inventory.Class{second})}
				if both {
					first := firsts.NewClass(&metav1.ObjectMeta{Name: "first"}, map[string]any{"spec": good})
					all = append(all, inventory.NewClasses(firsts, []*inventory.Class{first}))
				}
				return NewView(NewClaimKind(k, of, firstOf), all)
			}
			decideOn := func(v *View) Decision {
				require.Nil(t, v.Fault)
				in := v.Kind.Reader.Read("team", "db", decode(t, `{spec: {size: 2}}`))
				if dropped == "Linked" {
					in = v.Kind.Reader.Read("team", "db", decode(t, `{spec: {size: 1}}`))
				}
				require.Empty(t, in.Problems)
				in.Given = tc.given
				d := decided(t, new(Decider), v, in, Mode{DryRun: true})
				e, err := new(Decider).Explain(t.Context(), v, in)
				require.NoError(t, err)
				assert.Equal(t, d.Class, e.Decision.Class, "We should explain what we do.")
				assert.Equal(t, d.Warning(), e.Decision.Warning(), "We should explain what we do.")
				if d.Only() && d.Class != nil && len(v.All) > 1 {
					assert.Len(t, e.Candidates, 1)
					require.Len(t, e.Dropped, 1, "We should say why the other does not count.")
					assert.Equal(t, dropped, e.Dropped[0].Reason)
				}
				return d
			}
			got := decideOn(newView(true))
			if tc.want.class == "" {
				assert.Nil(t, got.Class, tc.reason)
			} else if assert.NotNil(t, got.Class, tc.reason) {
				assert.Equal(t, tc.want.class, got.Class.Name, tc.reason)
			}
			assert.Equal(t, tc.want.reason, got.Reason(), tc.reason)
			if dropped == "None" {
				assert.Contains(t, got.Warning(), tc.want.warning)
			}
			alone := decideOn(newView(false))
			assert.Equal(t, tc.want.alone, alone.Reason(), "%s The second is the only class here.", tc.reason)
			if dropped != "None" && tc.want.warning != "" {
				assert.Contains(t, alone.Warning(), tc.want.warning, tc.reason)
			}
		})
	}
}

// TestOnlyIsForEachTest keeps a new test of a class from being forgotten in TestOnly.
func TestOnlyIsForEachTest(t *testing.T) {
	var reasons []string
	for i := range cheapTests {
		reasons = append(reasons, cheapTests[i].Reason)
	}
	k, of := onlyKind(t)
	for _, test := range NewClaimKind(k, of).tests {
		reasons = append(reasons, test.Reason)
	}
	slices.Sort(reasons)
	assert.Equal(t, []string{
		"Cordoned", "ExpressionError", "Full", "Linked", "NameTooLong", "NoScore", "NotOffered", "OtherReference", "Shadowed", "Size",
		"Terminating", "TooCostly", "TooManyLabels", "WeightZero",
	}, slices.Compact(reasons), "TestOnly should have a row for each.")
}

// TestOnlyOfMany finds the second class without judging the rest, and leaves enough of the budget for the default class.
func TestOnlyOfMany(t *testing.T) {
	e := newExpressive(specs(
		`{selector: {whenAbsent: Only}, classes: {fits: [{name: Long, expression: "claim.spec.text.matches('(a|b)*c') == class.spec.fits"}]}}`, `{}`))
	e.withMany(3000, "pool-%04d", map[string]any{"fits": false})
	e.with("zz-default", map[string]any{"fits": false}, "example.org/default", "true")
	d := e.decided(t, map[string]any{"text": strings.Repeat("ab", 500)})
	require.NotNil(t, d.Class, d.Warning())
	assert.Equal(t, "zz-default", d.Class.Name, "We should give the default, however many there are.")
	assert.Equal(t, "DefaultClass", d.Reason())
	assert.Equal(t, 1, d.Candidates, "We should not count the others.")
}

// TestOnlyOfUsable counts the classes that a claim may use, and says nothing of others.
func TestOnlyOfUsable(t *testing.T) {
	const team = `namespace "team"`
	hidden := make([]string, 30)
	for i := range hidden {
		hidden[i] = fmt.Sprintf("hidden-%02d", i)
	}
	for name, tc := range map[string]struct {
		reason       string
		may          []string
		roles        bool
		judges       bool
		mode         Mode
		class, want  string
		warning      string
		mostQuestion int
	}{
		"One": {
			reason:       "We should give the only class that the claim may use.",
			may:          []string{"gold"},
			roles:        true,
			class:        "gold",
			want:         "OnlyClass",
			mostQuestion: 2 + v1beta1.MaxUnlikelyRefusals,
		},
		"OneJudged": {
			reason:       "We should give it where expressions decide, too.",
			may:          []string{"gold"},
			roles:        true,
			judges:       true,
			class:        "gold",
			want:         "OnlyClass",
			mostQuestion: 2 + v1beta1.MaxUnlikelyRefusals,
		},
		"OneOfAnotherAuthorizer": {
			reason:       "We should find the only one where no role names it.",
			may:          []string{"hidden-00"},
			class:        "hidden-00",
			want:         "OnlyClass",
			mostQuestion: 40,
		},
		"Two": {
			reason:       "We should give none of two.",
			may:          []string{"gold", "hidden-07"},
			roles:        true,
			want:         "NoDefaultClass",
			warning:      `no class is the only one that namespace "team" may use or the default for it: it may use Class/gold, Class/hidden-07;`,
			mostQuestion: 40,
		},
		"None": {
			reason:       "We should give none to a claim that may use none.",
			roles:        true,
			want:         "NoDefaultClass",
			warning:      `no class is the only one that namespace "team" may use or the default for it`,
			mostQuestion: len(hidden) + 1 + v1beta1.MaxAllowedShown,
		},
		"Preview": {
			reason: "We should not pass over a claim that waits, where no gate is asked.",
			may:    []string{"gold"},
			mode:   Mode{Stored: true, DryRun: true},
			want:   "OnlyClass",
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := usedByNamespaces()
			k.Spec.Selector.WhenAbsent = v1beta1.NoSelectorOnly
			if tc.judges {
				k.Spec.Classes.Fits = []v1beta1.Fit{{Name: "Named", Expression: "class.metadata.name != claim.spec.name"}}
			}
			of := newKind("as.example.org", "Class")
			if tc.judges {
				ck := &v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: "as.example.org"}, Spec: crossplaneClassKind()}
				of = inventory.NewClassKind(ck, groupVersionKind("Class"), false, k)
			}
			var classes []*inventory.Class
			for _, name := range append([]string{"gold"}, hidden...) {
				classes = append(classes, of.NewClass(&metav1.ObjectMeta{Name: name}, map[string]any{"metadata": map[string]any{"name": name}}))
			}
			view := NewView(NewClaimKind(k), []*inventory.Classes{inventory.NewClasses(of, classes)})
			require.Nil(t, view.Fault)
			a := &authorizer{allowed: map[string][]string{team: tc.may}}
			d := Decider{}
			if tc.mode != (Mode{Stored: true, DryRun: true}) {
				d.Gates = []Test{a.gate()}
			}
			if tc.roles {
				d.Grants = a.grants()
			}
			in := view.Kind.Reader.Read("team", "db", decode(t, `{spec: {name: other}}`))
			got := decided(t, &d, view, in, tc.mode)
			if tc.class != "" {
				require.NotNil(t, got.Class, tc.reason)
				assert.Equal(t, tc.class, got.Class.Name, tc.reason)
			}
			assert.Equal(t, tc.want, got.Reason(), tc.reason)
			assert.LessOrEqual(t, len(a.asked), max(tc.mostQuestion, 0), "We should ask few questions: %v", a.asked)
			if got.Class == nil {
				assert.Contains(t, got.Warning(), tc.warning, tc.reason)
			}
			for _, name := range hidden {
				assert.True(t, slices.Contains(tc.may, name) || !strings.Contains(got.Warning(), name), "We should not name %s: %s", name, got.Warning())
			}
			assert.NotRegexp(t, `\b3[01]\b`, got.Warning(), "We should not say how many there are.")
			assert.NotRegexp(t, `\b3[01]\b|\b29\b`, got.DroppedText())
		})
	}
}

// TestOnlyOverTime waits for no class that would change what a claim gets, and follows the classes.
func TestOnlyOverTime(t *testing.T) {
	k := postgres(spec(`{selector: {whenAbsent: Only}}`))
	of := newKind("as.example.org", "Class")
	class := func(name string) *inventory.Class { return of.NewClass(&metav1.ObjectMeta{Name: name}, nil) }
	classes := inventory.NewClasses(of, nil)
	kind := NewClaimKind(k)
	reasonOf := func() string {
		d := decided(t, new(Decider), NewView(kind, []*inventory.Classes{classes}), claim.Intake{Claim: claim.Claim{Namespace: "team", Name: "db"}}, Mode{})
		return d.Reason()
	}
	assert.Equal(t, "NoDefaultClass", reasonOf())
	classes = classes.With(class("a"))
	assert.Equal(t, "OnlyClass", reasonOf())
	classes = classes.With(class("b"))
	assert.Equal(t, "NoDefaultClass", reasonOf())
	_, fault := NewView(kind, []*inventory.Classes{inventory.NewClasses(of, []*inventory.Class{
		of.NewClass(&metav1.ObjectMeta{Name: "a", Annotations: map[string]string{defaultAnnotation: "true"}}, nil),
	})}).PolicyDefault(t.Context())
	require.NotNil(t, fault, "The API server cannot count classes.")
	assert.Equal(t, v1beta1.ReasonNeedsWebhook, fault.Reason)
	assert.Contains(t, fault.Text, "selector.whenAbsent Only")
}

func groupVersionKind(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: kind}
}
