package selector

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/selectortest"
)

// market is an Inventory of classes that name their price, and maybe more.
type market struct {
	*Inventory
	t       *testing.T
	claims  *ClaimKind
	kind    *inventory.ClassKind
	classes *inventory.Classes
}

// newMarket of these registrations, whose related objects are of the namespaced kind prices.
func newMarket(t *testing.T, claims, classes string) *market {
	t.Helper()
	claimKind, classKind := selectortest.ClaimKind(), &v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: "pools.example.org"}}
	selectortest.Specs(claims, classes)(&claimKind.Spec, &classKind.Spec)
	classKind.Spec.ClaimKinds = []v1beta1.ClaimKindLink{{Name: claimKind.Name}}
	gvk := schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Pool"}
	m := &market{Inventory: NewInventory(), t: t, claims: NewClaimKind(claimKind, classKind)}
	m.kind = inventory.NewClassKind(classKind, gvk, true, claimKind)
	require.Nil(t, m.claims.fault)
	require.Nil(t, m.kind.Fault)
	m.SetClaimKind(m.claims)
	for _, k := range m.kind.RelatedKinds() {
		m.SetRelated(inventory.NewObjects(k, true, nil))
	}
	m.classes = inventory.NewClasses(m.kind, nil)
	m.SetClasses(m.classes)
	m.Open()
	return m
}

// class of this name in the namespace of the claims, with this spec.
func (m *market) class(name, spec string) {
	m.t.Helper()
	content := decode(m.t, "{spec: "+spec+"}")
	m.classes = m.classes.With(m.kind.NewClass(&metav1.ObjectMeta{Namespace: "team", Name: name}, content))
	m.ChangeClass(m.classes, "team", name)
}

// price of this name, in a namespace, with this spec; empty deletes it.
func (m *market) price(namespace, name, spec string) {
	m.t.Helper()
	known := m.related[m.kind.Related[0].Kind.Key()].objects
	if spec == "" {
		m.ChangeRelated(known.Without(namespace, name), namespace, name)
		return
	}
	fields := known.Kind.Fields.Project(decode(m.t, "{metadata: {name: "+name+"}, spec: "+spec+"}"))
	m.ChangeRelated(known.With(namespace, name, fields), namespace, name)
}

// gets is the name of the class that a claim for any class gets now, empty if there is none.
func (m *market) gets() string {
	m.t.Helper()
	view := m.Snapshot()[m.claims.Name]
	require.Nil(m.t, view.Fault)
	in := view.Kind.Reader.Read("team", "db", map[string]any{"spec": map[string]any{"classSelector": map[string]any{}}})
	d, err := new(Decider).Decide(m.t.Context(), view, in, Mode{})
	require.NoError(m.t, err)
	require.Empty(m.t, d.Claim.Problems)
	if d.Class == nil {
		return ""
	}
	return d.Class.Name
}

const related = `related: [{name: price, resource: prices.example.org, nameExpression: class.spec.price}]`

// TestClassRelated has claims see the objects that classes name as they are now.
func TestClassRelated(t *testing.T) {
	for name, tc := range map[string]struct {
		reason          string
		claims, classes string
		steps           func(m *market)
		want            string
	}{
		"Fit": {
			reason:  "The fit should see the price of each class.",
			claims:  "{}",
			classes: `{` + related + `, fits: [{name: Open, expression: classRelated.price.spec.open}]}`,
			steps:   func(m *market) { m.price("team", "q", "{open: true}"); m.price("team", "p", "{open: false}") },
			want:    "b",
		},
		"Absent": {
			reason:  "A class whose object is absent should not fit.",
			claims:  "{}",
			classes: `{` + related + `, fits: [{name: Open, expression: classRelated.price.spec.open}]}`,
			steps:   func(*market) {},
		},
		"OtherNamespace": {
			reason:  "The object should be in the namespace of the class.",
			claims:  "{}",
			classes: `{` + related + `, fits: [{name: Open, expression: classRelated.price.spec.open}]}`,
			steps:   func(m *market) { m.price("other", "q", "{open: true}") },
		},
		"Namespace": {
			reason: "The registration should say in which namespace the object is.",
			claims: "{}",
			classes: `{related: [{name: price, resource: prices.example.org, nameExpression: class.spec.price,
				namespaceExpression: "'other'"}],
				fits: [{name: Open, expression: classRelated.price.spec.open}]}`,
			steps: func(m *market) { m.price("other", "q", "{open: true}"); m.price("team", "p", "{open: true}") },
			want:  "b",
		},
		"ClaimKindFit": {
			reason:  "The fit of a ClaimKind should see it, too.",
			claims:  `{classes: {fits: [{name: Cheap, expression: classRelated.price.spec.cost < 3}]}}`,
			classes: `{` + related + `}`,
			steps:   func(m *market) { m.price("team", "p", "{cost: 2}"); m.price("team", "q", "{cost: 3}") },
			want:    "a",
		},
		"Score": {
			reason:  "The cheapest class should win.",
			claims:  `{choice: {strategy: LowestScore, score: "has(classRelated.price) ? classRelated.price.spec.cost : 9"}}`,
			classes: `{` + related + `}`,
			steps:   func(m *market) { m.price("team", "p", "{cost: 2}"); m.price("team", "q", "{cost: 1}") },
			want:    "b",
		},
		"ScoreChanges": {
			reason:  "A deleted price should count no longer.",
			claims:  `{choice: {strategy: LowestScore, score: "has(classRelated.price) ? classRelated.price.spec.cost : 9"}}`,
			classes: `{` + related + `}`,
			steps: func(m *market) {
				m.price("team", "p", "{cost: 2}")
				m.price("team", "q", "{cost: 1}")
				m.price("team", "q", "")
			},
			want: "a",
		},
		"OtherKinds": {
			reason:  "The score should drop a class whose kind has no object of the name, unless it asks.",
			claims:  `{choice: {strategy: LowestScore, score: classRelated.offer.spec.cost}}`,
			classes: `{` + related + `}`,
			steps:   func(*market) {},
		},
		"Chain": {
			reason: "An object should be named by the one before it.",
			claims: "{}",
			classes: `{related: [{name: price, resource: prices.example.org, nameExpression: class.spec.price},
				{name: list, resource: prices.example.org, nameExpression: classRelated.price.spec.list + class.spec.suffix}],
				fits: [{name: Open, expression: classRelated.list.spec.open}]}`,
			steps: func(m *market) {
				m.price("team", "p", "{list: list}")
				m.price("team", "q", "{list: none}")
				m.price("team", "list-a", "{open: true}")
			},
			want: "a",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMarket(t, tc.claims, tc.classes)
			m.class("a", "{price: p, suffix: -a}")
			m.class("b", "{price: q, suffix: -b}")
			tc.steps(m)
			assert.Equal(t, tc.want, m.gets(), tc.reason)
		})
	}
}

// TestClassRelatedScope has no expression see the objects that must be as it was when the class was reviewed.
func TestClassRelatedScope(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, classes, problem string
	}{
		"Default": {
			reason:  "A default must not depend on other objects.",
			classes: `{` + related + `, default: {expression: has(classRelated.price)}}`,
			problem: "classRelated cannot be used here",
		},
		"OfferWhen": {
			reason:  "Whether a default takes its seat must not depend on other objects.",
			classes: `{` + related + `, offerWhen: has(classRelated.price)}`,
			problem: "classRelated cannot be used here",
		},
		"Later": {
			reason:  "An object should be named by those before it alone.",
			classes: `{related: [{name: price, resource: prices.example.org, nameExpression: classRelated.price.spec.a}]}`,
			problem: "classRelated cannot be used here",
		},
		"Unknown": {
			reason:  "We should say which objects there are.",
			classes: `{` + related + `, weight: {expression: classRelated.prize.spec.a}}`,
			problem: "there is no classRelated.prize here; there is classRelated.price",
		},
		"Claim": {
			reason:  "A class should not name an object by the claim.",
			classes: `{related: [{name: price, resource: prices.example.org, nameExpression: claim.spec.a}]}`,
			problem: "claim cannot be used here",
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := &v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: "pools.example.org"}}
			selectortest.Specs("{}", tc.classes)(&v1beta1.ClaimKindSpec{}, &k.Spec)
			fault := inventory.NewClassKind(k, schema.GroupVersionKind{Kind: "Pool"}, true).Fault
			require.NotNil(t, fault, tc.reason)
			assert.Contains(t, fault.Text, tc.problem, tc.reason)
		})
	}
}
