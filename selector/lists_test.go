package selector

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/rules"
	"github.com/classbind/classbind/selector/selectortest"
)

// TestRelatedLists has claims see all objects of a namespace that a selector selects.
func TestRelatedLists(t *testing.T) {
	const open = "related.plans.all(p, p.spec.?closed.orValue('') != class.metadata.name)"
	const expires, expired = "selector: {}, validUntil: object.spec.until", "{closed: a, until: '2001-01-01T00:00:00Z'}"
	for name, tc := range map[string]struct {
		reason        string
		related, when string
		cluster       bool
		plans         []relatedContent
		want, problem string
		isFault       bool
		unplaced      bool // The claim has no namespace.
	}{
		"None":  {reason: "A list without objects should be empty.", related: "selector: {}", want: "a"},
		"One":   {reason: "We should see an object.", related: "selector: {}", plans: []relatedContent{item("team", "p", "spec: {closed: a}")}},
		"Other": {reason: "We should see no other namespace.", related: "selector: {}", plans: []relatedContent{item("teams", "p", "spec: {closed: a}")}, want: "a"},
		"All": {
			reason:  "We should see all objects.",
			related: "selector: {}",
			plans:   []relatedContent{item("team", "p", "spec: {}"), item("team", "q", "spec: {closed: b}"), item("team", "r", "spec: {closed: a}")},
		},
		"Labels": {
			reason:  "We should see those with a label.",
			related: "selector: {matchLabels: {tier: gold}, matchExpressions: [{key: old, operator: DoesNotExist}]}",
			plans: []relatedContent{
				item("team", "p", "spec: {closed: a}"),
				{types.NamespacedName{Namespace: "team", Name: "q"}, "{metadata: {name: q, labels: {tier: iron}}, spec: {closed: a}}"},
				{types.NamespacedName{Namespace: "team", Name: "r"}, "{metadata: {name: r, labels: {tier: gold, old: ''}}, spec: {closed: a}}"},
			},
			want: "a",
		},
		"Label": {
			reason:  "We should see one with a label at which nothing else looks.",
			related: "selector: {matchLabels: {tier: gold}}",
			plans:   []relatedContent{{types.NamespacedName{Namespace: "team", Name: "q"}, "{metadata: {name: q, labels: {tier: gold}}, spec: {closed: a}}"}},
		},
		"Namespace": {
			reason:  "We should look in the namespace of an expression.",
			related: "selector: {}, namespaceExpression: claim.spec.from",
			plans:   []relatedContent{item("other", "p", "spec: {closed: a}")},
		},
		"Cluster": {
			reason:  "We should see all objects of a kind without namespaces.",
			related: "selector: {}",
			cluster: true,
			plans:   []relatedContent{item("", "p", "spec: {closed: a}")},
		},
		"Expired": {
			reason:  "We should not see an expired object.",
			related: expires,
			plans:   many("team", v1beta1.MaxRelatedSelected-v1beta1.MaxRelatedListed, expired),
			want:    "a",
		},
		"TooManyExpired": {
			reason:  "We should go through no more than the limit.",
			related: expires,
			plans:   many("team", v1beta1.MaxRelatedSelected+1, expired),
			problem: "(1001, with those that are expired): delete some",
		},
		"Long": {
			reason:  "We should see as many as a list may have.",
			related: expires,
			plans:   append(many("team", v1beta1.MaxRelatedListed, "{until: ''}"), item("team", "q", "spec: "+expired)),
			want:    "a",
		},
		"TooLong": {
			reason:  "We should decide by no part of a list.",
			related: "selector: {}",
			plans:   many("team", v1beta1.MaxRelatedListed+1, "{}"),
			problem: `selects more than 64 plans.example.org of namespace "team" (65, with`,
		},
		"TooLongElsewhere": {
			reason:  "The author of the claim should not be at fault for another namespace.",
			related: "selector: {}, namespaceExpression: claim.spec.from",
			plans:   many("other", 70, "{}"),
			problem: `of namespace "other" (70, with`,
			isFault: true,
		},
		"TooLongCluster": {
			reason:  "Nor should he for objects without a namespace.",
			related: "selector: {}",
			cluster: true,
			plans:   many("", 70, "{}"),
			problem: "selects more than 64 plans.example.org (70, with",
			isFault: true,
		},
		"NoNamespace": {
			reason:   "We should take no list for empty of which no namespace is known.",
			related:  "selector: {}",
			unplaced: true,
			problem:  "spec.classes.related[plans].namespaceExpression: must be set",
			isFault:  true,
		},
		"Names": {
			reason:  "An object may be named by a list before it.",
			related: "selector: {}}, {name: named, resource: others.example.org, nameExpression: 'related.plans.map(p, p.spec.name)[0]'",
			when:    "!has(related.named)",
			plans:   []relatedContent{item("team", "p", "spec: {name: b}")},
			want:    "a",
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newExpressive(func(s *v1beta1.ClaimKindSpec, _ *v1beta1.ClassKindSpec) {
				related := "{classes: {related: [{name: plans, resource: plans.example.org, " + tc.related + "}]}}"
				selectortest.Spec(related)(s)
				s.Claims.When = v1beta1.Expression(tc.when)
				s.Classes.Fits = []v1beta1.Fit{{Name: "Open", Expression: open}}
			}).with("a", map[string]any{})
			view := e.view()
			require.Nil(t, view.Fault)
			view = withRelated(t, view, !tc.cluster, tc.plans...)
			in := view.Kind.Reader.Read(map[bool]string{false: "team"}[tc.unplaced], "db", map[string]any{"spec": all(map[string]any{"from": "other"})})
			for _, mode := range []Mode{{}, {Stored: true}} {
				d, err := new(Decider).Decide(t.Context(), view, in, mode)
				if tc.isFault {
					require.ErrorAs(t, err, new(*inventory.Fault), tc.reason)
					require.ErrorContains(t, err, tc.problem, tc.reason)
					continue
				}
				require.NoError(t, err, tc.reason)
				if tc.problem != "" {
					require.NotEmpty(t, d.Claim.Problems, tc.reason)
					assert.Contains(t, d.Claim.Problems[0].Error(), tc.problem, tc.reason)
					continue
				}
				require.Empty(t, d.Claim.Problems, tc.reason)
				got := ""
				if d.Class != nil {
					got = d.Class.Name
				}
				assert.Equal(t, tc.want, got, tc.reason)
			}
		})
	}
}

// TestUsageOfLists proves that a list which is too long changes nothing that stored claims use of a class.
func TestUsageOfLists(t *testing.T) {
	view := newExpressive(specs(`{classes: {
  related: [
    {name: lists, resource: plans.example.org, selector: {}},
    {name: plan, resource: others.example.org, nameExpression: "'p0'"},
    {name: named, resource: others.example.org, nameExpression: "related.lists.map(l, l.metadata.name)[0]"}],
  usage: [
    {name: size, expression: related.plan.spec.size},
    {name: part, expression: "related.lists.map(l, l.spec.size).size()"},
    {name: late, expression: "has(related.named) ? 7 : 3"}]}}`, `{capacity: [{name: size}, {name: part}, {name: late}]}`)).view()
	require.Nil(t, view.Fault)
	in := view.Kind.Reader.Read("team", "db", map[string]any{"spec": all(map[string]any{})})
	for n, want := range map[int]claim.Usage{
		v1beta1.MaxRelatedListed: {500, v1beta1.MaxRelatedListed, 7}, v1beta1.MaxRelatedListed + 1: {500, claim.Unknown, claim.Unknown},
	} {
		usage, err := new(Decider).UsageOf(t.Context(), withRelated(t, view, true, many("team", n, "{size: 500}")...), in.Claim)
		require.NoError(t, err)
		assert.Equal(t, want, usage, "We should know what %d objects do not change, and no more.", n)
	}
}

// TestCostOfLists proves that a claim is not at fault for what a list costs.
func TestCostOfLists(t *testing.T) {
	e := newExpressive(func(s *v1beta1.ClaimKindSpec, _ *v1beta1.ClassKindSpec) {
		selectortest.Spec("{classes: {related: [{name: quotas, resource: plans.example.org, selector: {}}]}}")(s)
		s.Classes.Fits = []v1beta1.Fit{{Name: "Quota", Expression: "related.quotas.all(q, q.spec.?hard[?class.metadata.name + " +
			"'.storageclass.storage.k8s.io/requests.storage'].orValue('') != '0') && class.metadata.name == 'none' + " +
			"(related.quotas.exists(q, q.metadata.name == 'x') ? class.metadata.name : '')"}}
	})
	e.withMany(100, "class-%d", map[string]any{})
	view := withRelated(t, e.view(), true, many("team", v1beta1.MaxRelatedListed, "{hard: {pods: '3'}}")...)
	require.Nil(t, view.Fault)
	in := view.Kind.Reader.Read("team", "db", map[string]any{"spec": all(map[string]any{})})
	d, err := new(Decider).Decide(t.Context(), view, in, Mode{})
	assert.Empty(t, d.Claim.Problems, "The claim cannot be shorter.")
	require.ErrorContains(t, err, "cost too much CPU for so many classes", "The registration is at fault.")
}

// relatedContent is an object that is known.
type relatedContent struct {
	types.NamespacedName
	content string
}

func item(namespace, name, content string) relatedContent {
	return relatedContent{types.NamespacedName{Namespace: namespace, Name: name}, "{metadata: {name: " + name + "}, " + content + "}"}
}

func many(namespace string, n int, spec string) (all []relatedContent) {
	for i := range n {
		all = append(all, item(namespace, fmt.Sprint("p", i), "spec: "+spec))
	}
	return all
}

// withRelated returns a view in which each related kind has these objects.
func withRelated(t *testing.T, view *View, namespaced bool, all ...relatedContent) *View {
	t.Helper()
	var objects []*inventory.Objects
	for _, kind := range view.Kind.RelatedKinds() {
		known := inventory.NewObjects(kind, namespaced, nil)
		for _, o := range all {
			known = known.With(o.Namespace, o.Name, kind.Fields.Project(decode(t, o.content)))
		}
		objects = append(objects, known.AsOf(time.Now()))
	}
	return view.WithRelated(objects)
}

// TestSelectorsOfRelated that are no selectors make the registration invalid.
func TestSelectorsOfRelated(t *testing.T) {
	values := strings.Repeat("a, ", v1beta1.MaxRelatedSelectorTerms)
	for selector, want := range map[string]string{
		"{matchExpressions: [{key: a, operator: Near}]}":                          `"Near" is not a valid label selector operator`,
		"{matchLabels: {a b: c}}":                                                 "name part must consist of alphanumeric characters",
		"{matchExpressions: [{key: a, operator: In, values: [" + values + "a]}]}": "must have at most 64 labels, expressions and values, has 66",
	} {
		k := selectortest.ClaimKind()
		selectortest.Spec("{classes: {related: [{name: plans, resource: plans.example.org, selector: " + selector + "}]}}")(&k.Spec)
		invalid := rules.NewForClaims(k).InvalidExpressions()
		require.Len(t, invalid, 1, selector)
		assert.Equal(t, "spec.classes.related[plans].selector", invalid[0].Field, selector)
		assert.Contains(t, invalid[0].Err.Text, want, selector)
	}
}

// TestSelectorsApart proves that an invalid selector, which selects nothing, takes no objects from the kind whose selector selects all.
func TestSelectorsApart(t *testing.T) {
	kindOf := func(selector string) *rules.Kind {
		k := selectortest.ClaimKind()
		selectortest.Spec("{classes: {related: [{name: plans, resource: plans.example.org, selector: " + selector + "}]}}")(&k.Spec)
		return rules.NewForClaims(k).Related[0].Kind
	}
	all := kindOf("{}")
	union := rules.Union(kindOf("{matchExpressions: [{key: a, operator: FromALaterRelease}]}"), all)
	require.Len(t, union, 1)
	known := inventory.NewObjects(union[0], true, nil).With("team", "p", union[0].Fields.Project(map[string]any{}))
	selected, _ := known.Selected(all, "team")
	assert.Len(t, selected, 1)
}
