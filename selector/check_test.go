package selector

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
)

// TestCheckLists checks all classes that a list of references names, but for those that it named before.
func TestCheckLists(t *testing.T) {
	v := weighed(postgres(func(s *v1beta1.ClaimKindSpec) {
		s.Reference = v1beta1.Reference{
			Place: v1beta1.Place{Path: ".spec.refs"}, List: v1beta1.ListWhenAbsent, Form: v1beta1.KindReference, Explicit: v1beta1.CheckExplicit,
		}
	}), map[string]int64{"as/one": 1, "as/two": 1})
	const one, two, none = "{kind: as, name: one}", "{kind: as, name: two}", "{kind: as, name: none}"
	numbered := func(n int) (all string) {
		for i := range n {
			all += fmt.Sprintf("{kind: as, name: n%d}, ", i)
		}
		return all
	}
	for reason, tc := range map[string]struct {
		refs   string
		before string
		want   string // of the refusal, empty if the claim is let through
	}{
		"We should let classes pass that are there.":  {refs: one + ", " + two},
		"We should check the second element.":         {refs: one + ", " + none, want: `.spec.refs[1] names the class "as/none", which is not there`},
		"We should not check what was there before.":  {refs: none + ", " + two, before: none},
		"We should check what is new beside that.":    {refs: one + ", " + none, before: one, want: `"as/none", which is not there`},
		"We should not check a part of a long list.":  {refs: numbered(v1beta1.MaxListedReferences + 1), want: "more than 8 different classes"},
		"We should count equal elements once.":        {refs: strings.Repeat(one+", ", v1beta1.MaxListedReferences+1)},
		"We should check as many as can be.":          {refs: numbered(v1beta1.MaxListedReferences), want: `"as/n0", which is not there`},
		"We should check the kind of a class, too.":   {refs: "{kind: bs, name: one}", want: `.spec.refs[0] names the class "bs/one", which is of a kind`},
		"We should refuse an element without a name.": {refs: one + ", {kind: as}", want: `.spec.refs[1] names the class "as/", which is not there`},
	} {
		read := func(refs string) map[string]any { return decode(t, "{spec: {refs: ["+refs+"]}}") }
		var before []claim.Target
		if tc.before != "" {
			before, _, _ = v.Kind.Reader.Reference.Named(read(tc.before))
		}
		object := read(tc.refs)
		_, refused, err := new(Decider).Check(t.Context(), v, v.Kind.Reader.ReadNamed("team", "a", object), object, before)
		require.NoError(t, err)
		if tc.want == "" {
			assert.Nil(t, refused, reason)
		} else if assert.NotNil(t, refused, reason) {
			assert.Contains(t, refused.Error(), tc.want, reason)
		}
	}
}

// TestCheckWithin checks the classes that the elements of lists in a list name, and binds no such claim.
func TestCheckWithin(t *testing.T) {
	v := weighed(postgres(func(s *v1beta1.ClaimKindSpec) {
		s.Reference = v1beta1.Reference{
			Place: v1beta1.Place{Path: ".spec.requests"}, List: v1beta1.ListCheckOnly, Form: v1beta1.Name, Explicit: v1beta1.CheckExplicit,
			Within: []v1beta1.ElementPath{".exactly.class", ".firstAvailable[*].class"},
		}
	}), map[string]int64{"as/one": 1, "as/two": 1})
	for reason, tc := range map[string]struct{ requests, want string }{
		"We should let classes pass that are there.": {requests: "{exactly: {class: one}}, {firstAvailable: [{class: two}, {class: one}]}"},
		"We should check the second request.": {
			requests: "{exactly: {class: one}}, {exactly: {class: none}}",
			want:     `.spec.requests[1].exactly.class names the class "class/none", which is not there`,
		},
		"We should check the second alternative.": {
			requests: "{exactly: {class: one}}, {firstAvailable: [{class: one}, {class: none}]}",
			want:     `.spec.requests[1].firstAvailable[1].class names the class "class/none", which is not there`,
		},
		"We should have nothing to check without requests.": {},
	} {
		object := decode(t, "{spec: {requests: ["+tc.requests+"]}}")
		_, refused, err := new(Decider).Check(t.Context(), v, v.Kind.Reader.ReadNamed("team", "a", object), object, nil)
		require.NoError(t, err)
		if tc.want == "" {
			assert.Nil(t, refused, reason)
		} else if assert.NotNil(t, refused, reason) {
			assert.Equal(t, tc.want, refused.Error(), reason)
		}
		decision, err := new(Decider).Decide(t.Context(), v, v.Kind.Reader.Read("team", "a", object), Mode{})
		require.NoError(t, err)
		assert.Equal(t, claim.CheckOnly, decision.Claim.LeftAlone, reason)
	}
}
