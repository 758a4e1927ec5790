package selector

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/inventory"
)

// TestOptional has claims of kinds that ask for less than a class for each.
func TestOptional(t *testing.T) {
	const required = `{type: object, properties: {spec: {type: object, properties: {ref: {type: object, required: [name, major], properties: {name: {type: string}, major: {type: integer}}}}}}}`
	optional := func(s *v1beta1.ClaimKindSpec) {
		s.Selector.WhenAbsent, s.WhenUnmatched = v1beta1.NoSelectorDefaultIfAny, v1beta1.Deny
	}
	company := func(s *v1beta1.ClaimKindSpec) {
		s.Reference = v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.ref"}, Form: v1beta1.LocalObjectReference, WhenEmpty: v1beta1.BindEmpty}
		s.Selector.WhenAbsent = v1beta1.NoSelectorAny
	}
	begun := func(s *v1beta1.ClaimKindSpec) {
		company(s)
		s.Reference.WhenAbsent = v1beta1.LeaveAbsentAlone
	}
	for name, tc := range map[string]struct {
		reason    string
		kind      func(*v1beta1.ClaimKindSpec)
		claim     string
		leftAlone string
		denied    bool
		warning   string
		problem   string
		class     string
	}{
		"Unneeded":     {reason: "We should tell nobody that a claim gets no class that it does without.", kind: optional, claim: `{spec: {}}`},
		"Selected":     {reason: "We should refuse a claim that asks for a class.", kind: optional, claim: `{spec: {classSelector: {matchLabels: {a: b}}}}`, denied: true, warning: "matches the selector"},
		"Begun":        {reason: "We should refuse a claim that says of which kind its class is.", kind: optional, claim: `{spec: {classRef: {kind: B}}}`, denied: true, warning: "no class is marked default"},
		"Company":      {reason: "We should add the name to what only the author can give.", kind: company, claim: `{spec: {ref: {major: 16}}}`, class: "A/a"},
		"NoCompany":    {reason: "We should refuse a claim that lacks what only its author can give.", kind: company, claim: `{spec: {}}`, problem: "spec.ref.major: Required value: the schema requires it beside the name of a class, and only the author of the claim can give it"},
		"AbsentAlone":  {reason: "We should leave alone a claim without a reference where its kind says so.", kind: begun, claim: `{spec: {}}`, leftAlone: claim.ReferenceAbsent},
		"NullAlone":    {reason: "We should take null for none.", kind: begun, claim: `{spec: {ref: null}}`, leftAlone: claim.ReferenceAbsent},
		"AbsentNeeded": {reason: "We should bind a claim that began its reference.", kind: begun, claim: `{spec: {ref: {}}}`, class: "A/a"},
	} {
		t.Run(name, func(t *testing.T) {
			kind := kindOf(tc.kind)
			if kind.EmptyIsUnset {
				kind.SetPaths(CheckPaths(kind, schemaOfCRD(t, required)))
			}
			classes := newKind("as.example.org", "A")
			d, err := new(Decider).Decide(t.Context(), newView(kind, []*inventory.Classes{inventory.NewClasses(classes, []*inventory.Class{{Kind: classes, Name: "a", Weight: 1}})}),
				kind.Read("team", "db", decode(t, tc.claim)), Admit)
			require.NoError(t, err, tc.reason)
			assert.Equal(t, tc.leftAlone, d.Claim.LeftAlone, tc.reason)
			assert.Equal(t, tc.denied, d.Denied(), tc.reason)
			switch {
			case tc.problem != "":
				require.Len(t, d.Claim.Problems, 1, tc.reason)
				assert.Equal(t, tc.problem, d.Claim.Problems[0].Error(), tc.reason)
			case tc.warning != "":
				assert.Contains(t, d.Warning(), tc.warning, tc.reason)
			case tc.leftAlone == "":
				assert.Empty(t, d.Warning(), tc.reason)
			}
			if tc.class == "" {
				assert.Nil(t, d.Class, tc.reason)
			} else {
				assert.Equal(t, tc.class, d.Class.String(), tc.reason)
			}
		})
	}
}

// TestPrecedence has two class kinds whose classes a reference cannot tell apart.
func TestPrecedence(t *testing.T) {
	local, shared := newKind("zlocals.example.org", "Local"), newKind("ashared.example.org", "Shared")
	local.Namespaced = true
	in := func(kind *inventory.ClassKind, namespace, name string) *inventory.Class {
		return &inventory.Class{Kind: kind, Namespace: namespace, Name: name, Weight: 1}
	}
	for name, tc := range map[string]struct {
		reason string
		listed bool
		locals []*inventory.Class
		unread []UnreadKind
		want   []string
	}{
		"ByName":    {reason: "We should offer the classes of one kind where nobody says more.", locals: []*inventory.Class{in(local, "team", "b")}, want: []string{"Shared/a"}},
		"Listed":    {reason: "We should offer the classes of all kinds that are listed.", listed: true, locals: []*inventory.Class{in(local, "team", "b")}, want: []string{"Local/team/b", "Shared/a"}},
		"Shadowed":  {reason: "We should not offer a class whose name means another.", listed: true, locals: []*inventory.Class{in(local, "team", "a")}, want: []string{"Local/team/a"}},
		"Elsewhere": {reason: "We should offer it to claims for which the name means nothing else.", listed: true, locals: []*inventory.Class{in(local, "other", "a")}, want: []string{"Shared/a"}},
		"Unread":    {reason: "We should not offer it while nobody knows what the name means.", listed: true, unread: []UnreadKind{{Name: local.Name}}},
	} {
		t.Run(name, func(t *testing.T) {
			kind := kindOf(func(s *v1beta1.ClaimKindSpec) {
				s.Reference.Form, s.Selector.WhenAbsent = v1beta1.LocalObjectReference, v1beta1.NoSelectorAny
				s.Classes.Kinds = []v1beta1.ClassKindLink{{Name: local.Name}, {Name: shared.Name}}
				if tc.listed {
					s.Classes.Precedence = v1beta1.PrecedenceListed
				}
			})
			all := []*inventory.Classes{inventory.NewClasses(local, tc.locals), inventory.NewClasses(shared, []*inventory.Class{in(shared, "", "a")})}
			view := newView(kind, all)
			view.Unread = tc.unread
			e, err := new(Decider).Explain(t.Context(), view, kind.Read("team", "db", decode(t, `{spec: {}}`)))
			require.NoError(t, err)
			var got []string
			for _, c := range e.Candidates {
				got = append(got, c.Class.String())
			}
			assert.ElementsMatch(t, tc.want, got, tc.reason)
			if tc.listed {
				named := map[string]any{"spec": map[string]any{"classRef": map[string]any{"name": "a"}}}
				class, _ := kind.ClassOf(all, "team", named)
				want := in(shared, "", "a").String()
				if name == "Shadowed" {
					want = "Local/team/a"
				}
				assert.Equal(t, want, class.String(), "We should find the class that a name means.")
			}
		})
	}
}
