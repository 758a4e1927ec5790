package selector

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
)

// probe is a field of a claim that counts the evaluations of the expressions that compare it with the id of a class.
type probe struct {
	types.String
	evaluations map[string]int
}

func (p probe) Equal(id ref.Val) ref.Val {
	p.evaluations[fmt.Sprint(p.Value(), " for ", id.Value())]++
	return types.False
}

// outcome of a decision: what is registered, which classes there are, who may use them, and what the claim asks for.
type outcome struct {
	claims, classes string
	names           []string
	roles           string // known or unknown, empty without a gate
	allowed         []string
	selects, waits  bool
}

func (o outcome) String() string {
	return fmt.Sprintf("claims=%s/classes=%v/roles=%s/allowed=%v/selects=%t/waits=%t", o.claims, o.names, o.roles, o.allowed, o.selects, o.waits)
}

// eachOutcome visits what may become of a claim of a kind with expressions of all sorts that look at classes.
func eachOutcome(visit func(outcome)) {
	fit := `fits: [{name: Fits, expression: "(claim.spec.fit != class.spec.id) == class.spec.good"}]`
	var claims []string
	for _, choice := range []string{`{}`, `{strategy: RoundRobin}`, `{strategy: LowestScore, score: "claim.spec.score != class.spec.id ? class.spec.size : 0"}`} {
		for _, more := range []string{
			`whenUnmatched: Deny`, `whenUnmatched: BindLater, selector: {whenAbsent: DefaultIfAny}`, `selector: {whenAbsent: Any}`,
			`claims: {when: "claim.spec.when != 'no'"}`, `claims: {when: "claim.spec.fit.nothing"}`,
		} {
			claims = append(claims, fmt.Sprintf(`{%s, choice: %s, classes: {%s}}`, more, choice, fit))
		}
	}
	partition := `{classes: {partition: {claim: "claim.spec.zone", class: "class.spec.zone"}, ` + fit + `}}`
	linked := `{fits: [{name: Linked, expression: "(claim.spec.linked != class.spec.id) == class.spec.fine"}]}`
	for _, claims := range append(claims, partition) {
		for _, names := range [][]string{nil, {"good"}, {"bad", "good", "other"}, {"bad", "broken", "unlinked", "cordoned", "weightless"}} {
			for _, selects := range []bool{false, true} {
				o := outcome{claims: claims, classes: linked, names: names, selects: selects}
				visit(o)
				o.waits = true
				visit(o)
				for _, o.roles = range []string{"known", "unknown"} {
					for _, o.allowed = range [][]string{nil, {"other"}, {"good", "bad"}} {
						visit(o)
					}
				}
			}
		}
	}
}

// decider of an outcome, its view and the claim. It counts the turns and deadlines that are taken and not given back.
func (o outcome) decider(t *testing.T, taken *int) (*Decider, *View, claim.Intake, map[string]int) {
	t.Helper()
	evaluations := map[string]int{}
	world := newExpressive(specs(o.claims, o.classes))
	for _, name := range o.names {
		spec := map[string]any{"id": name, "good": name != "bad", "fine": name != "unlinked", "size": int64(len(name)), "zone": "z"}
		if name == "broken" {
			delete(spec, "good")
		}
		annotations := []string{"example.org/default", "true"}
		switch name {
		case "cordoned":
			annotations = append(annotations, v1beta1.CordonedAnnotation, "true")
		case "weightless":
			annotations = append(annotations, "example.org/weight", "0")
		}
		world.with(name, spec, annotations...)
	}
	world.indexed = true
	d := &Decider{
		Costly: func(context.Context, string) (func(), error) { *taken++; return func() { *taken-- }, nil },
	}
	if o.roles != "" {
		world.claims.Spec.Classes.Use = &v1beta1.Use{Subject: v1beta1.UseByNamespace}
		a := &authorizer{allowed: map[string][]string{`namespace "team"`: o.allowed}}
		if d.Gates = []Test{a.gate()}; o.roles == "known" {
			d.Grants = a.grants()
		}
	}
	if o.waits {
		d.Waits = NewInventory().Waits
	}
	spec := map[string]any{"zone": "z", "when": "", "fit": "", "linked": "", "score": ""}
	if o.selects {
		all(spec)
	}
	view := outdated(world.view())
	in := view.Kind.Reader.Read("team", "db", map[string]any{"metadata": map[string]any{"name": "db", "namespace": "team"}, "spec": spec})
	for _, name := range []string{"when", "fit", "linked", "score"} {
		in.Object["spec"].(map[string]any)[name] = probe{types.String(name), evaluations}
	}
	return d, view, in, evaluations
}

// tellAll makes all that is said of a decision.
func tellAll(d *Decision) string {
	return fmt.Sprint(tellAuthor(d), d.DroppedText(), IsFull(d), d.DropErr, d.Given())
}

// tellAuthor makes what the author of the claim can read of it.
func tellAuthor(d *Decision) string {
	text := fmt.Sprint(d.Warning(), d.Reason(), d.Denied(), d.Unneeded(), d.Claim.Problems)
	if d.Class != nil {
		text += fmt.Sprint(d.Record(), string(d.Patch()))
	}
	return text
}

var allModes = []Mode{{}, {DryRun: true}, {Stored: true}, {Stored: true, DryRun: true}}

// TestDecisionsAreDead proves for each outcome and mode that a decision evaluates each expression once for a class at most, that it gives
// back what it took, and that nothing is evaluated or taken for what is said of it.
func TestDecisionsAreDead(t *testing.T) {
	outcomes, judged := 0, 0
	eachOutcome(func(o outcome) {
		taken := 0
		d, view, in, evaluations := o.decider(t, &taken)
		for i := range len(allModes) + 1 {
			mode, explains := Mode{}, i == len(allModes)
			if !explains {
				mode = allModes[i]
			}
			outcomes++
			clear(evaluations)
			var decision Decision
			var err error
			if explains {
				var e Explanation
				e, err = d.Explain(t.Context(), view, in)
				require.Nil(t, e.facts, "We should keep nothing of how we explained it.")
				decision = e.Decision
			} else {
				decision, err = d.Decide(t.Context(), view, in, mode)
			}
			require.NoError(t, err, o)
			require.Zero(t, taken, "%s, mode %v: We should give back each turn", o, mode)
			for of, n := range evaluations {
				if of != "when for no" || !explains { // Explain shows it.
					require.Equal(t, 1, n, "%s, mode %v: We should evaluate %s once", o, mode, of)
				}
				judged++
			}
			before := fmt.Sprint(evaluations)
			require.NotEmpty(t, tellAll(&decision))
			require.Equal(t, before, fmt.Sprint(evaluations), "%s, mode %v: We should evaluate nothing for a text", o, mode)
			require.Zero(t, taken, "%s, mode %v: We should take nothing for a text", o, mode)
		}
	})
	assert.Greater(t, judged, outcomes, "We should have judged something.")
	t.Logf("%d decisions, %d evaluations", outcomes, judged)
}

// TestCostlyDecisionsEnd has the claims that cost the most in each mode, without a class in the end: each gives back its turn.
func TestCostlyDecisionsEnd(t *testing.T) {
	world := newExpressive(fits("claim.spec.n.all(a, class.spec.n.all(b, a + b < 78))"))
	numbers := make([]any, 40)
	for i := range numbers {
		numbers[i] = int64(i)
	}
	for i := range 3 {
		world.with(fmt.Sprint("costly-", i), map[string]any{"n": numbers}, "example.org/default", "true")
	}
	view, taken, took := world.view(), 0, 0
	d := &Decider{Costly: func(context.Context, string) (func(), error) {
		taken++
		took++
		return func() { taken-- }, nil
	}}
	for _, spec := range []map[string]any{{"n": numbers}, all(map[string]any{"n": numbers})} {
		for _, mode := range allModes {
			decision, err := d.Decide(t.Context(), view, view.Kind.Reader.Read("team", "db", map[string]any{"spec": spec}), mode)
			require.NoError(t, err)
			require.Nil(t, decision.Class)
			require.Zero(t, taken, "We should give back the turn.")
			before := took
			require.NotEmpty(t, tellAll(&decision))
			require.Zero(t, taken, "We should take no turn for a text.")
			require.Equal(t, before, took)
			_, err = d.Explain(t.Context(), view, view.Kind.Reader.Read("team", "db", map[string]any{"spec": spec}))
			require.NoError(t, err)
			require.Zero(t, taken)
		}
	}
	assert.Positive(t, took, "These should need a turn.")
}
