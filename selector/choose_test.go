package selector

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/access"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/inventory"
)

const external = `choice: {strategy: External, external: {host: "chooser.example.org:443",
	fields: {claim: [{path: .spec.size}, {annotation: a/b}], class: [{path: .metadata.name}, {path: .spec.price}]}}}`

// chosen is a world with a chooser, and the classes a, b and c.
func chosen(claims, classes string) *expressive {
	e := newExpressive(specs("{"+external+", "+claims+"}", classes))
	for _, name := range []string{"a", "b", "c"} {
		e.with(name, map[string]any{"price": int64(len(e.classes)), "secret": "x", "capacity": int64(10)})
	}
	return e
}

func namesOf(classes []*inventory.Class) (names []string) {
	for _, c := range classes {
		names = append(names, c.Name)
	}
	return names
}

func TestChooser(t *testing.T) {
	view := chosen("", "{}").view()
	in := view.Kind.Reader.Read("team", "db", map[string]any{"spec": all(map[string]any{"size": int64(3)})})
	drawn := decided(t, new(Decider), view, in, Mode{DryRun: true})
	require.Equal(t, ChooserNotAsked, drawn.Choice.Outcome, "A Decider without choosers should say so.")
	explained, err := new(Decider).Explain(t.Context(), newExpressive(specs("{"+external+"}", "{}")).with("a", nil).view(), in)
	require.NoError(t, err)
	assert.False(t, explained.Reproducible, "It should not know what the only candidate depends on.")
	first := drawn.Class.Name
	others := slices.DeleteFunc([]string{"a", "b", "c"}, func(name string) bool { return name == first })

	for name, tc := range map[string]struct {
		reason         string
		order          []string
		exclusive      bool
		answer         Answer // if there is no order
		claims         string
		full           []string
		gates          []Test
		class, warning string
		err            string
	}{
		"First": {
			reason: "We should give the class that the chooser names first.",
			order:  []string{others[1], first, others[0]},
			class:  others[1],
		},
		"Twice": {
			reason: "The first place of a class should count.",
			order:  []string{others[0], others[1], others[0]},
			class:  others[0],
		},
		"Rest": {
			reason: "Classes that are not named should follow in the order of the draw.",
			order:  []string{others[0]},
			full:   []string{others[0]},
			class:  first,
		},
		"Exclusive": {
			reason:    "A class that is not named should not be given, if the chooser says so.",
			order:     []string{others[0]},
			exclusive: true,
			full:      []string{others[0]},
			warning:   "gives this claim only classes without room",
		},
		"None": {
			reason:  "The chooser should be able to give no class, and to say why.",
			answer:  Answer{Outcome: ChooserNone, Message: "too\nlate " + strings.Repeat("x", 300)},
			warning: `the chooser of claim kind "postgresqlinstances.database.crossplane.io" gives this claim no class: "too\\nlate xxx`,
		},
		"NoneLater": {
			reason:  "A claim that may be bound later should wait.",
			answer:  Answer{Outcome: ChooserNone},
			claims:  "whenUnmatched: BindLater",
			warning: "gives this claim no class; it will be bound when a class matches",
		},
		"NoOpinion": {
			reason: "Without an opinion, the draw should decide.",
			answer: Answer{Outcome: ChooserNoOpinion},
			class:  first,
		},
		"Draw": {
			reason:  "Without an answer, the draw should decide, and a warning say so.",
			answer:  Answer{Outcome: ChooserUnavailable, Unavailable: "Timeout"},
			class:   first,
			warning: "is unavailable (Timeout), so that the class was drawn without it",
		},
		"DrawFull": {
			reason:  "A claim whose classes others took meanwhile should not be said to have one.",
			answer:  Answer{Outcome: ChooserUnavailable, Unavailable: "Timeout"},
			full:    []string{"a", "b", "c"},
			warning: "other claims took the room of all classes that are left",
		},
		"OwnNamespace": {
			reason: "A claim in the namespace of the chooser should be drawn without a warning.",
			answer: Answer{Outcome: ChooserUnavailable, Unavailable: v1beta1.ReasonOwnNamespace},
			class:  first,
		},
		"Gate": {
			reason: "A class that the claim may not use should not be given.",
			order:  []string{others[0], others[1]},
			gates:  []Test{refusing("NotAllowed", others[0])},
			class:  others[1],
		},
	} {
		t.Run(name, func(t *testing.T) {
			view := chosen(tc.claims, `{capacity: [{name: claims, total: {path: ".spec.capacity"}}]}`).view()
			asked := 0
			d := Decider{Gates: tc.gates, Choose: func(_ context.Context, q *Question) Answer {
				asked++
				assert.Equal(t, first, q.Candidates[0].Name, "The candidates should be in the order of the draw.")
				view.Kind.Room = func(_ string, c *inventory.Class) (r Room) { // Others take it meanwhile.
					if slices.Contains(tc.full, c.Name) {
						r[0].Used = 10
					}
					return r
				}
				a := tc.answer
				if tc.order != nil {
					a.Outcome, a.Exclusive = ChooserOrdered, tc.exclusive
				}
				for _, name := range tc.order {
					if i := slices.IndexFunc(q.Candidates, func(c *inventory.Class) bool { return c.Name == name }); i >= 0 {
						a.Order = append(a.Order, q.Candidates[i])
					}
				}
				return a
			}}
			d.Waits = waitsFor(outdated(view))
			got := decided(t, &d, view, in, Mode{})
			assert.Equal(t, got.Class == nil && tc.answer.Outcome != ChooserNone, IsFull(&got), "A claim without room should wait for it.")
			assert.Equal(t, tc.answer.Outcome == ChooserNone, got.Reason() == "NoClassByChooser", "The audit log should say who gave none.")
			assert.Equal(t, 1, asked, "The chooser should be asked once.")
			if tc.class == "" {
				assert.Nil(t, got.Class, tc.reason)
			} else {
				require.NotNil(t, got.Class, tc.reason)
				assert.Equal(t, tc.class, got.Class.Name, tc.reason)
			}
			if tc.warning == "" {
				assert.Empty(t, got.Warning(), tc.reason)
			}
			assert.Contains(t, got.Warning(), tc.warning, tc.reason)
			assert.Less(t, len(got.Warning()), 600, "A message of a chooser should be cut.")
		})
	}
}

func TestChooserFails(t *testing.T) {
	view := chosen("", "{}").view()
	view.Kind.External.WhenUnavailable = v1beta1.UnavailableFail
	in := view.Kind.Reader.Read("team", "db", map[string]any{"spec": all(map[string]any{})})
	answer := Answer{Outcome: ChooserUnavailable, Unavailable: v1beta1.ReasonOwnNamespace}
	d := Decider{Choose: func(context.Context, *Question) Answer { return answer }}
	assert.NotNil(t, decided(t, &d, view, in, Mode{}).Class, "A claim in the chooser's own namespace should never fail for it.")
	answer = Answer{Outcome: ChooserUnavailable, Unavailable: "Busy", OwnDoing: true}
	_, err := d.Decide(t.Context(), view, in, Mode{})
	require.ErrorIs(t, err, ErrOwnDoing, "What a namespace causes should not be an outage.")
	require.ErrorContains(t, err, "is unavailable (Busy) because of other claims of the same namespace or author; try again in a moment")
	answer.OwnDoing = false
	_, err = d.Decide(t.Context(), view, in, Mode{})
	require.NotErrorIs(t, err, ErrOwnDoing)
	require.EqualError(t, err, `the chooser of claim kind "postgresqlinstances.database.crossplane.io" is unavailable (Busy); try again in a moment`)
	view.Kind.External.WhenUnavailable = v1beta1.UnavailableDraw
	_, err = d.Decide(t.Context(), view, in, Mode{Stored: true})
	require.Error(t, err, "A claim that is stored should wait for its turn.")
	assert.NotNil(t, decided(t, &d, view, in, Mode{}).Class)
}

func TestQuestion(t *testing.T) {
	e := chosen("classes: {use: {subject: Namespace}, fits: [{name: Fit, expression: class.spec.price < 100}]}", "{}")
	for i := range 150 {
		e.with(fmt.Sprintf("many-%03d", i), map[string]any{"price": int64(i)})
	}
	e.with("gone", map[string]any{"price": int64(1)}, v1beta1.CordonedAnnotation, "true")
	view := e.view()
	in := view.Kind.Reader.Read("team", "db", map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{"a/b": "c", "d": "e"}}, "spec": all(map[string]any{"size": int64(3), "hidden": true}),
	})
	d := Decider{Gates: []Test{refusing("NotAllowed", "a", "b")}}
	d.Choose = func(_ context.Context, q *Question) Answer {
		assert.JSONEq(t, `{"metadata": {"annotations": {"a/b": "c"}}, "spec": {"size": 3}}`, q.Claim, "We should send what the registration names.")
		assert.Equal(t, "team", q.Namespace)
		assert.True(t, q.DryRun, "A dry run should be asked as such.")
		names := namesOf(q.Candidates)
		assert.Len(t, names, v1beta1.MaxChooserCandidates)
		for _, hidden := range []string{"a", "b", "gone", "many-100", "many-149"} {
			assert.NotContains(t, names, hidden, "The chooser should not learn of a class that the claim may not have.")
		}
		price, _ := q.Candidates[0].Fields.Lookup([]string{"spec", "price"})
		assert.JSONEq(t, fmt.Sprintf(`{"metadata": {"name": %q}, "spec": {"price": %d}}`, names[0], price),
			q.Kind.Rules.Shown.Class(q.Candidates[0].Fields, 100))
		return Answer{Outcome: ChooserNoOpinion}
	}
	got := decided(t, &d, view, in, Mode{DryRun: true})
	require.NotNil(t, got.Class)
	assert.Empty(t, got.Warning())

	d.Choose = func(context.Context, *Question) Answer {
		assert.Fail(t, "A claim without a candidate should ask no chooser.")
		return Answer{}
	}
	d.Gates = []Test{{Reason: "NotAllowed", Drops: func(context.Context, Subject, *inventory.Class) (bool, error) { return true, nil }}}
	none := view.Kind.Reader.Read("team", "db", map[string]any{"spec": map[string]any{
		"classSelector": map[string]any{"matchLabels": map[string]any{"all": "no"}},
	}})
	assert.Nil(t, decided(t, &d, view, none, Mode{}).Class)
}

// TestChooserAskedOnce has a claim wait for a class that its chooser then does not give it.
func TestChooserAskedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		newer := chosen("", "{}").view()
		empty := NewView(newer.Kind, []*inventory.Classes{inventory.NewClasses(newer.All[0].Kind, nil)})
		asked := 0
		d := Decider{Waits: newWaits(func() Snapshot { // The classes change all the time.
			return Snapshot{newer.Kind.Name: outdated(NewView(newer.Kind, newer.All))}
		}), Choose: func(context.Context, *Question) Answer {
			asked++
			return Answer{Outcome: ChooserNone}
		}}
		in := empty.Kind.Reader.Read("team", "db", map[string]any{"spec": all(map[string]any{})})
		got := decided(t, &d, outdated(empty), in, Mode{})
		assert.Nil(t, got.Class)
		assert.Equal(t, ChooserNone, got.Choice.Outcome)
		assert.Equal(t, 1, asked)
	})
}

// TestSlowGate has a gate that takes all of the time after the second class.
func TestSlowGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		view := chosen("classes: {use: {subject: Namespace}}", "{}").view()
		in := view.Kind.Reader.Read("team", "db", map[string]any{"spec": all(map[string]any{})})
		asked, slowFrom := 0, 2
		gate := Test{Reason: "NotAllowed", Drops: func(ctx context.Context, _ Subject, _ *inventory.Class) (bool, error) {
			if asked++; asked > slowFrom {
				<-ctx.Done()
				return true, ctx.Err()
			}
			return false, nil
		}}
		began := time.Now()
		d := Decider{Gates: []Test{gate}, Deadline: func(context.Context) time.Time { return began.Add(10 * time.Second) }}
		d.Choose = func(ctx context.Context, q *Question) Answer {
			until, _ := ctx.Deadline()
			assert.Equal(t, view.Kind.External.Wait(), time.Until(until), "The chooser should have its time.")
			assert.Len(t, q.Candidates, 2, "It should be asked about those that are known to be allowed.")
			return Answer{Outcome: ChooserOrdered, Order: q.Candidates[1:]}
		}
		assert.NotNil(t, decided(t, &d, view, in, Mode{}).Class)
		asked, slowFrom, began = 0, 0, time.Now()
		_, err := d.Decide(t.Context(), view, in, Mode{})
		require.ErrorIs(t, err, context.DeadlineExceeded, "Without one, the claim should not be said to have no class.")
	})
}

func TestShown(t *testing.T) {
	view := chosen("", "{}").view()
	d := Decider{Choose: func(_ context.Context, q *Question) Answer {
		return Answer{Outcome: ChooserNone, Message: q.Claim + " for " + q.Key}
	}}
	for name, tc := range map[string]struct {
		reason    string
		content   map[string]any
		namespace string
		want      string
	}{
		"Namespace": {
			reason:    "We should show what is named alone, with what is HTML as it is.",
			content:   map[string]any{"metadata": map[string]any{"annotations": map[string]any{"a/b": "<&>"}}, "spec": all(map[string]any{"x": "y"})},
			namespace: "team",
			want:      `{"metadata":{"annotations":{"a/b":"<&>"}}} for team`,
		},
		"NoNamespace": {
			reason:  "We should have the author stand for a claim without a namespace.",
			content: map[string]any{"spec": all(map[string]any{"size": int64(3)})},
			want:    `{"spec":{"size":3}} for ann`,
		},
		"Long": {
			reason: "We should refuse a claim with long fields.",
			content: map[string]any{
				"metadata": map[string]any{"annotations": map[string]any{"a/b": strings.Repeat("\x01", 11_000)}}, "spec": all(map[string]any{}),
			},
			want: "reads, [metadata.annotations[a/b] spec.size], must not have more than 65536 bytes together",
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := view.Kind.Reader.Read(tc.namespace, "db", tc.content)
			in.Requester = access.NewSubject(&authenticationv1.UserInfo{Username: "ann"})
			got := decided(t, &d, view, in, Mode{})
			assert.Equal(t, name == "Long", !got.Drawn(), tc.reason)
			assert.Contains(t, got.Choice.Message+got.Warning(), tc.want, tc.reason)
			view.Kind.External.Service, in.Namespace = &v1beta1.ChooserService{Namespace: "own"}, "own"
			got = decided(t, &d, view, in, Mode{})
			assert.True(t, got.Drawn(), "Claims of its own namespace should never fail for a chooser.")
			view.Kind.External.Service, in.Namespace = nil, tc.namespace
			without := decided(t, new(Decider), view, in, Mode{Stored: true, DryRun: true})
			assert.Equal(t, name == "Long", !without.Drawn(), "We should know that without a chooser.")
		})
	}
}

// TestChooserAtRandom judges 5,000 claims from their history: whatever a chooser answers, each has a class that it may use, that fits it, that
// is not cordoned and that had room.
func TestChooserAtRandom(t *testing.T) {
	e := newExpressive(specs(`{`+external+`, classes: {use: {subject: Namespace}, fits: [{name: Fit, expression: class.spec.price >= claim.spec.size}]}}`,
		`{capacity: [{name: claims, total: {path: ".spec.capacity"}}]}`))
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // A test can be repeated.
	for i := range 40 {
		var annotations []string
		if i%7 == 0 {
			annotations = []string{v1beta1.CordonedAnnotation, "true"}
		}
		e.with(fmt.Sprintf("class-%02d", i), map[string]any{"price": int64(i % 10), "capacity": int64(50 + i)}, annotations...)
	}
	view := e.view()
	used := map[*inventory.Class]int64{}
	view.Kind.Room = func(_ string, c *inventory.Class) Room { return Room{{Used: used[c]}} }
	mayUse := func(namespace string, c *inventory.Class) bool {
		return (len(namespace)+int(c.Weight)+len(c.Name)+int(c.DrawHash%3))%3 != 0
	}
	gate := Test{Reason: "NotAllowed", Drops: func(_ context.Context, claim Subject, c *inventory.Class) (bool, error) {
		return !mayUse(claim.Namespace, c), nil
	}}
	outcomes := map[ChoiceOutcome]int{}
	d := Decider{Gates: []Test{gate}, Choose: func(context.Context, *Question) Answer {
		a := Answer{Outcome: []ChoiceOutcome{ChooserOrdered, ChooserOrdered, ChooserOrdered, ChooserNone, ChooserNoOpinion, ChooserUnavailable}[random.IntN(6)]}
		outcomes[a.Outcome]++
		if a.Outcome == ChooserOrdered {
			a.Exclusive = random.IntN(2) == 0
			for range 1 + random.IntN(5) { // Also classes that the question does not have.
				a.Order = append(a.Order, view.Classes[0].All()[random.IntN(40)])
			}
		}
		return a
	}}
	bound := 0
	for i := range 5000 {
		namespace, size := strings.Repeat("n", 1+i%3), int64(random.IntN(10))
		in := view.Kind.Reader.Read(namespace, fmt.Sprint("claim-", i), map[string]any{"spec": all(map[string]any{"size": size})})
		got := decided(t, &d, view, in, Mode{})
		c := got.Class
		if c == nil {
			continue
		}
		bound++
		used[c]++
		price, _ := c.Fields.Lookup([]string{"spec", "price"})
		limit := c.Capacity[0].Total
		if !mayUse(namespace, c) || c.Cordoned || price.(int64) < size || used[c] > limit {
			require.Fail(t, "A claim should have a class that it may have.", "%s has %s: price %v, %d of %d", in.Name, c, price, used[c], limit)
		}
	}
	assert.Greater(t, bound, 500)
	assert.Len(t, outcomes, 4, "We should have tried every answer.")
}

func BenchmarkChooser(b *testing.B) {
	view := chosen("", "{}").view()
	in := view.Kind.Reader.Read("team", "db", map[string]any{"spec": all(map[string]any{"size": int64(3)})})
	for name, choose := range map[string]func(context.Context, *Question) Answer{
		"NotAsked": nil,
		"Asked": func(_ context.Context, q *Question) Answer {
			return Answer{Outcome: ChooserOrdered, Order: q.Candidates}
		},
	} {
		b.Run(name, func(b *testing.B) {
			d := Decider{Choose: choose}
			for b.Loop() {
				if _, err := d.Decide(b.Context(), view, claim.Intake{Claim: in.Claim}, Mode{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
