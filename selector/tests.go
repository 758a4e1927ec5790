package selector

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/rules"
)

// Test is one question about a class that a claim asks for: may the claim have it? Tests are cheap (the table), judged (they evaluate
// expressions), or gates (they ask others). Each walk over them is that of firstDrop.
type Test struct {
	// Reason is one word, for programs. Text reads after a number of classes, and after "is".
	Reason, Text string
	// Of reports whether the test matters to the claims of a kind. Nil is true of all.
	Of func(*ClaimKind) bool
	// Drops reports whether the claim may not have the class. An error drops it, too: a class that cannot be judged goes to no claim. The
	// error of a gate ends the decision, because the answer is unknown then. A gate may ask others until the context ends, and may be asked
	// about a class again; to explain a decision, several goroutines call it at once.
	Drops func(context.Context, Subject, *inventory.Class) (bool, error)

	// drawOnly keeps a class from the draw alone: a claim may name it. Names are looked for in the order of the kinds, so the class of one
	// is not shadowed by what is known.
	drawOnly bool
	// at is the position among the tests of a claim kind.
	at int
}

// isOf reports whether the test matters to the claims of a kind.
func (t *Test) isOf(k *ClaimKind) bool { return t.Of == nil || t.Of(k) }

// firstDrop returns the first of some tests that drops a class, nil if none does, and its error.
func firstDrop(ctx context.Context, tests []Test, claim Subject, c *inventory.Class) (*Test, error) {
	for i := range tests {
		if !tests[i].isOf(claim.View.Kind) {
			continue
		}
		if dropped, err := tests[i].Drops(ctx, claim, c); dropped || err != nil {
			return &tests[i], err
		}
	}
	return nil, nil
}

// cheapTests run in this order. The first that drops a class gives the reason. A class over the limit of labels has none here, so the tests
// below do not see it. A new test is a new row.
var cheapTests = [...]Test{
	{
		Reason: "TooManyLabels", Text: "over the limit of labels", drawOnly: true,
		Drops: has(func(c *inventory.Class) bool { return c.TooManyLabels }),
	},
	{
		Reason: claim.OtherReference, Text: "of another group, kind or namespace than the class reference of the claim says",
		Of: func(k *ClaimKind) bool { return len(k.Reader.Reference.Form.Parts) > 1 }, // Beside the name, there is nothing to say.
		Drops: func(_ context.Context, claim Subject, c *inventory.Class) (bool, error) {
			return claim.Given != nil && !claim.Given.AgreesWith(c.Target()), nil
		},
	},
	{
		Reason: "NameTooLong", Text: "of a name that is too long for a label",
		Of: func(k *ClaimKind) bool {
			return k.Reader.Reference.Path.IsKey() && k.Reader.Reference.Path[1] == "labels"
		},
		Drops: has(func(c *inventory.Class) bool { return len(c.Name) > validation.LabelValueMaxLength }),
	},
	{
		Reason: "NotOffered", Text: "not offered by their kind",
		Drops: func(_ context.Context, _ Subject, c *inventory.Class) (bool, error) {
			if c.NotOffered && c.OfferErr != nil {
				return true, errors.New(c.OfferErr.Detail)
			}
			return c.NotOffered, nil
		},
	},
	{
		Reason: reasonShadowed, Text: "of a name that means a class of another kind", drawOnly: true,
		Of: func(k *ClaimKind) bool { return len(k.Demand.Precedence) > 0 },
		Drops: func(_ context.Context, claim Subject, c *inventory.Class) (bool, error) {
			return claim.View.isShadowed(claim.Namespace, c), nil
		},
	},
	{Reason: "Terminating", Text: "being deleted", Drops: has(func(c *inventory.Class) bool { return c.Terminating })},
	{Reason: reasonCordoned, Text: "cordoned", Drops: has(func(c *inventory.Class) bool { return c.Cordoned })},
	{
		Reason: reasonWeightZero, Text: "of weight 0", drawOnly: true,
		Of:    func(k *ClaimKind) bool { return k.Strategy.Weighted },
		Drops: has(func(c *inventory.Class) bool { return c.Weight == 0 }),
	},
	{
		Reason: reasonFull, Text: "full",
		Of: func(k *ClaimKind) bool { return k.Limited },
		Drops: func(_ context.Context, claim Subject, c *inventory.Class) (bool, error) {
			return !claim.every && !claim.View.Kind.hasRoom(&claim.Claim, c), nil
		},
	},
}

const (
	reasonCordoned   = "Cordoned"
	reasonWeightZero = "WeightZero"
	reasonShadowed   = "Shadowed"
	reasonFull       = "Full"
)

// Two reasons without a test: a class costs too much to judge, or a fit has no result for it, which does not mean false. reasonNoScore
// drops those for which the score has none.
const (
	reasonCostly  = "TooCostly"
	reasonFailed  = "ExpressionError"
	failedText    = "not judged, because an expression fails"
	reasonNoScore = "NoScore"
)

// has drops the classes that have a property.
func has(property func(*inventory.Class) bool) func(context.Context, Subject, *inventory.Class) (bool, error) {
	return func(_ context.Context, _ Subject, c *inventory.Class) (bool, error) { return property(c), nil }
}

// compileTests for the claims of a kind: the cheap ones, then those that evaluate expressions: the fits of the kind and of its class kinds,
// and the score. Between them are two that only count: what costs too much, and what fails.
func (k *ClaimKind) compileTests() {
	for _, t := range cheapTests {
		if t.isOf(k) {
			t.Of = nil // It is known now.
			k.tests = append(k.tests, t)
		}
	}
	k.free = len(k.tests)
	judged := []Test{{Reason: reasonCostly, Text: "too costly to judge"}, {Reason: reasonFailed, Text: failedText}}
	for _, f := range k.Rules.Fits {
		judged = append(judged, Test{
			Reason: f.Name, Text: f.Text,
			Drops: func(_ context.Context, claim Subject, c *inventory.Class) (bool, error) {
				return claim.facts.drops(f, c)
			},
		})
	}
	for _, f := range k.Rules.LinkedFits {
		judged = append(judged, linkedTest(f))
	}
	if k.Rules.Score != nil {
		judged = append(judged, Test{
			Reason: reasonNoScore, Text: "without a score", drawOnly: true,
			Drops: func(_ context.Context, claim Subject, _ *inventory.Class) (bool, error) {
				err := claim.facts.rank(k)
				return err != nil, err
			},
		})
	}
	if len(judged) > 2 {
		k.tests = append(k.tests, judged...)
	}
	for i := range k.tests {
		k.tests[i].at = i
	}
}

// linkedTest is for the fits of class kinds that have this name.
func linkedTest(of rules.LinkedFit) Test {
	drops := func(_ context.Context, claim Subject, c *inventory.Class) (bool, error) {
		for _, f := range c.Kind.ForClaims.Fits {
			if f.Name == of.Name {
				if dropped, err := claim.facts.drops(f, c); dropped || err != nil {
					return true, err
				}
			}
		}
		return false, nil
	}
	return Test{Reason: of.Name, Text: of.Text, Drops: drops}
}

// cheap tests evaluate nothing, and judged ones evaluate expressions. costly and failed are the two that only count.
func (k *ClaimKind) cheap() []Test  { return k.tests[:k.free] }
func (k *ClaimKind) judged() []Test { return k.tests[k.free+2:] }
func (k *ClaimKind) costly() *Test  { return &k.tests[k.free] }
func (k *ClaimKind) failed() *Test  { return &k.tests[k.free+1] }

// judges reports whether there are tests that evaluate expressions.
func (k *ClaimKind) judges() bool { return k.free < len(k.tests) }

// firstDrop returns the first test of a kind that drops a class, nil if none does. It waits for no turn.
func (k *ClaimKind) firstDrop(ctx context.Context, claim Subject, c *inventory.Class) (by *Test, err error) {
	if by, err = firstDrop(ctx, k.cheap(), claim, c); by == nil && k.judges() {
		by, err = k.judge(ctx, claim, c)
	}
	return by, err
}
