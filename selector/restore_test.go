package selector

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/fields"
)

// bindDefaults binds a claim for which the schema has filled in a class.
func bindDefaults(s *v1beta1.ClaimKindSpec) { s.Claims.When = "claim.spec.classRef.name == 'default'" }

// annotates claims with the decisions that bind them.
func annotates(s *v1beta1.ClaimKindSpec) { s.Choice.Annotate = v1beta1.AnnotateDecision }

func TestRestore(t *testing.T) {
	const (
		gold  = `{"apiVersion":"example.org/v1","kind":"SQLClass","name":"gold"}`
		bound = `{"spec":{"classRef":` + gold + `}}`
	)
	add := func(path, value string) string { return `[{"op":"add","path":"` + path + `","value":` + value + `}]` }
	for name, tc := range map[string]struct {
		reason     string
		change     func(*v1beta1.ClaimKindSpec)
		before     string
		now        string
		want       string
		patch      string
		isMistaken bool
	}{
		"Removed":       {reason: "We should put back what the update removes.", before: bound, now: `{"spec":{}}`, want: claim.Restored, patch: add("/spec/classRef", gold)},
		"Null":          {reason: "We should put back what the update sets to null.", before: bound, now: `{"spec":{"classRef":null}}`, want: claim.Restored, patch: add("/spec/classRef", gold)},
		"NoParent":      {reason: "We should create the parents that the update removes.", before: bound, now: `{}`, want: claim.Restored, patch: add("/spec", `{"classRef":`+gold+`}`)},
		"OtherFields":   {reason: "We should put back the whole value, whatever is in it.", before: `{"spec":{"classRef":{"name":"gold","uid":"1","more":[{"a":null}]}}}`, now: `{"spec":{"size":1}}`, want: claim.Restored, patch: add("/spec/classRef", `{"name":"gold","uid":"1","more":[{"a":null}]}`)},
		"NoName":        {reason: "We should put back no class where there was none.", before: `{"spec":{"classRef":{}}}`, now: `{"spec":{}}`, want: claim.NotBound},
		"HalfOfNothing": {reason: "We should not put back half a reference.", before: `{"spec":{"classRef":{"kind":"SQLClass"}}}`, now: `{"spec":{}}`, want: claim.NotBound},
		"Half":          {reason: "We should complete a reference that has lost its name.", before: bound, now: `{"spec":{"classRef":{"apiVersion":"example.org/v1","kind":"SQLClass"}}}`, want: claim.Restored, patch: add("/spec/classRef/name", `"gold"`)},
		"HalfIsEmpty":   {reason: "We should complete a reference that has lost its fields.", before: bound, now: `{"spec":{"classRef":{}}}`, want: claim.Restored, patch: add("/spec/classRef/apiVersion", `"example.org/v1"},{"op":"add","path":"/spec/classRef/kind","value":"SQLClass"},{"op":"add","path":"/spec/classRef/name","value":"gold"`)},
		"HalfWithMore":  {reason: "We should complete a reference whose other fields are not ours.", before: `{"spec":{"classRef":{"kind":"SQLClass","name":"gold","major":16}}}`, now: `{"spec":{"classRef":{"kind":"SQLClass","major":17}}}`, want: claim.Restored, patch: add("/spec/classRef/name", `"gold"`)},
		"HalfOfOther":   {reason: "We should not mix two references.", before: bound, now: `{"spec":{"classRef":{"kind":"RDSClass"}}}`, want: claim.OtherReference},
		"OtherWay":      {reason: "We should let an author refer in another way.", before: bound, now: `{"spec":{"classRef":{"kind":"SQLClass","external":"projects/x"}}}`, want: claim.OtherReference},
		"Twice":         {reason: "We should take the last of several fields of a name, as the API server does.", before: `{"spec":{"classRef":{"name":"silver"}},"spec":{"classRef":` + gold + `}}`, now: `{}`, want: claim.Restored, patch: add("/spec", `{"classRef":`+gold+`}`)},
		"Selector":      {reason: "We should not look at what the claim asks for: it has its class.", before: bound, now: `{"spec":{"classSelector":5}}`, want: claim.Restored, patch: add("/spec/classRef", gold)},
		"Changed":       {reason: "We should allow another reference.", before: bound, now: `{"spec":{"classRef":{"name":"silver"}}}`, want: claim.Settled},
		"Kept":          {reason: "We should leave alone an update that keeps the reference.", before: bound, now: bound, want: claim.Settled},
		"Provisioned":   {reason: "We should put it back where a controller settled the claim after we bound it.", before: `{"spec":{"classRef":{"kind":"Gold","name":"gold"},"resourceRef":{}}}`, now: `{"spec":{"resourceRef":{}}}`, want: claim.Restored, patch: `[{"op":"add","path":"/spec/classRef","value":{"kind":"Gold","name":"gold"}}]`},
		"Static":        {reason: "We should leave alone a claim that is settled otherwise now.", before: bound, now: `{"spec":{"resourceRef":{}}}`, want: claim.Settled},
		"NotBound":      {reason: "We should bind nothing in an update.", before: `{"spec":{}}`, now: `{"spec":{}}`, want: claim.NotBound},
		"BeingDeleted":  {reason: "We should leave alone a claim that is being deleted.", before: bound, now: `{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"}}`, want: claim.BeingDeleted},
		"SpecIsText":    {reason: "We should leave to the schema what is no object.", before: bound, now: `{"spec":"text"}`, want: claim.Malformed},
		"Allowed": {
			reason: "We should do nothing where this is allowed.", before: bound, now: `{"spec":{}}`, want: claim.UnbindAllowed,
			change: func(s *v1beta1.ClaimKindSpec) { s.Reference.OnUnbind = v1beta1.AllowUnbind },
		},
		"Name": {
			reason: "We should put back a text, with its escapes.", before: `{"spec":{"classRef":"g\u006fld"}}`, now: `{"spec":{}}`, want: claim.Restored, patch: add("/spec/classRef", `"g\u006fld"`),
			change: func(s *v1beta1.ClaimKindSpec) { s.Reference.Form = v1beta1.Name },
		},
		"EmptyName": {
			reason: "We should replace an empty text that counts as none.", before: `{"spec":{"classRef":"gold"}}`, now: `{"spec":{"classRef":""}}`, want: claim.Restored, patch: add("/spec/classRef", `"gold"`),
			change: func(s *v1beta1.ClaimKindSpec) {
				s.Reference.Form, s.Reference.WhenEmpty = v1beta1.Name, v1beta1.BindEmpty
			},
		},
		"Label": {
			reason: "We should put back a label, whose key has a slash.", before: `{"metadata":{"labels":{"example.org/class":"gold"}}}`, now: `{"metadata":{"labels":{"a":"b"}}}`, want: claim.Restored,
			patch: add("/metadata/labels/example.org~1class", `"gold"`),
			change: func(s *v1beta1.ClaimKindSpec) {
				s.Reference = v1beta1.Reference{Place: v1beta1.Place{Label: "example.org/class"}, Form: v1beta1.Name}
			},
		},
		"MissingFields": {
			reason: "We should put back the fields that a reference without a name lacks.", before: bound, now: `{"spec":{"classRef":{"kind":"SQLClass","name":""}}}`, want: claim.Restored,
			patch:  `[{"op":"add","path":"/spec/classRef/apiVersion","value":"example.org/v1"},{"op":"add","path":"/spec/classRef/name","value":"gold"}]`,
			change: func(s *v1beta1.ClaimKindSpec) { s.Reference.WhenEmpty = v1beta1.BindEmpty },
		},
		"LongFields": {
			reason: "We should put back a name that is longer than what we read of a claim.", before: `{"spec":{"classRef":{"name":"` + strings.Repeat("a", 8<<10) + `"}}}`, now: `{"spec":{"classRef":{}}}`, want: claim.Restored,
			patch:  add("/spec/classRef/name", `"`+strings.Repeat("a", 8<<10)+`"`),
			change: func(s *v1beta1.ClaimKindSpec) { s.Reference.WhenEmpty = v1beta1.BindEmpty },
		},
		"OtherKind": {
			reason: "We should not mix two references.", before: bound, now: `{"spec":{"classRef":{"kind":"RDSClass"}}}`, want: claim.OtherReference,
			change: func(s *v1beta1.ClaimKindSpec) { s.Reference.WhenEmpty = v1beta1.BindEmpty },
		},
		"WasEmpty": {
			reason: "We should not take an empty reference for one.", before: `{"spec":{"classRef":{"name":""}}}`, now: `{"spec":{}}`, want: claim.NotBound,
			change: func(s *v1beta1.ClaimKindSpec) { s.Reference.WhenEmpty = v1beta1.BindEmpty },
		},
		"ParentWanted": {
			reason: "We should leave alone a claim without the parent, where that wants no class.", before: bound, now: `{}`, want: claim.ParentAbsent,
			change: func(s *v1beta1.ClaimKindSpec) { s.Reference.WhenParentAbsent = v1beta1.LeaveClaimAlone },
		},
		"NoSelector": {
			reason: "We should keep a claim bound that has no selector, where none would be bound without one.", before: bound, now: `{"spec":{}}`, want: claim.Restored, patch: add("/spec/classRef", gold),
			change: func(s *v1beta1.ClaimKindSpec) { s.Selector.WhenAbsent = v1beta1.NoSelectorLeaveAlone },
		},
		"Longest": {
			reason: "We should put back a reference up to the limit.", before: `{"spec":{"classRef":"` + strings.Repeat("a", v1beta1.MaxReferenceBytes-2) + `"}}`, now: `{"spec":{}}`, want: claim.Restored,
			patch: add("/spec/classRef", `"`+strings.Repeat("a", v1beta1.MaxReferenceBytes-2)+`"`),
		},
		"TooLong": {reason: "We should put back no longer one.", before: `{"spec":{"classRef":"` + strings.Repeat("a", v1beta1.MaxReferenceBytes-1) + `"}}`, now: `{"spec":{}}`, want: claim.ReferenceTooLong},
		"Default": {
			reason: "We should put back what a default of the schema took the place of, and all of it.", want: claim.Restored, patch: add("/spec/classRef", gold),
			before: bound, now: `{"spec":{"classRef":{"name":"default","namespace":"a"}}}`, change: bindDefaults,
		},
		"DefaultAlone": {
			reason: "We should not take a default of the schema for a class that we gave.", want: claim.NotBound,
			before: `{"spec":{"classRef":{"name":"default"}}}`, now: `{"spec":{"classRef":{"name":"default"},"size":1}}`, change: bindDefaults,
		},
		"OtherThanDefault": {
			reason: "We should allow another reference.", want: claim.Settled,
			before: bound, now: `{"spec":{"classRef":{"name":"silver"}}}`, change: bindDefaults,
		},
		"RemovedForDefault": {
			reason: "We should put back a reference where claims.when cannot be evaluated without one.", want: claim.Restored, patch: add("/spec/classRef", gold),
			before: bound, now: `{"spec":{}}`, change: bindDefaults,
		},
		"DefaultText": {
			reason: "We should replace a text that counts as none.", want: claim.Restored, patch: add("/spec/classRef", `"gold"`),
			before: `{"spec":{"classRef":"gold"}}`, now: `{"spec":{"classRef":"default"}}`,
			change: func(s *v1beta1.ClaimKindSpec) {
				s.Reference.Form, s.Claims.When = v1beta1.Name, "!has(claim.spec.classRef) || claim.spec.classRef == 'default'"
			},
		},
		"DefaultOfNamespace": {
			reason: "We should go by the terms that need nothing but the claim.", want: claim.Restored, patch: add("/spec/classRef", gold),
			before: bound, now: `{"spec":{"classRef":{"name":"default"}}}`,
			change: func(s *v1beta1.ClaimKindSpec) {
				s.Claims.When = "claim.spec.classRef.name == 'default' && namespace.metadata.labels.tenant == 'a' && request.userInfo.username == 'b'"
			},
		},
		"Delayed": {
			reason: "We should keep a claim bound whatever claims.when says of other fields.", want: claim.Restored, patch: add("/spec/classRef", gold),
			before: bound, now: `{"spec":{}}`,
			change: func(s *v1beta1.ClaimKindSpec) { s.Claims.When = "claim.spec.ready" },
		},
		"Decision": {
			reason: "We should put back the annotation that says why, too.", change: annotates, want: claim.Restored,
			before: `{"metadata":{"annotations":{"classbind.io/decision":"why"}},"spec":{"classRef":` + gold + `}}`, now: `{"metadata":{"annotations":{"a":"b"}},"spec":{}}`,
			patch: `[{"op":"add","path":"/spec/classRef","value":` + gold + `},{"op":"add","path":"/metadata/annotations/classbind.io~1decision","value":"why"}]`,
		},
		"DecisionAlone": {
			reason: "We should make the annotations that the update removes.", change: annotates, want: claim.Restored,
			before: `{"metadata":{"annotations":{"classbind.io/decision":"why"}},"spec":{"classRef":` + gold + `}}`, now: `{"spec":{"classRef":{"apiVersion":"example.org/v1","kind":"SQLClass"}}}`,
			patch: `[{"op":"add","path":"/spec/classRef/name","value":"gold"},{"op":"add","path":"/metadata/annotations","value":{"classbind.io/decision":"why"}}]`,
		},
		"DecisionKept": {
			reason: "We should leave an annotation that the update has.", change: annotates, want: claim.Restored, patch: add("/spec/classRef", gold),
			before: `{"metadata":{"annotations":{"classbind.io/decision":"why"}},"spec":{"classRef":` + gold + `}}`, now: `{"metadata":{"annotations":{"classbind.io/decision":"edited"}},"spec":{}}`,
		},
		"NeverAnnotated": {reason: "We should make up no reason.", change: annotates, before: bound, now: `{"spec":{}}`, want: claim.Restored, patch: add("/spec/classRef", gold)},
		"OldIsNone":      {reason: "We should refuse a review whose old object is none.", before: `[]`, now: `{}`, isMistaken: true},
		"ThisIsNone":     {reason: "We should refuse a review whose object is none.", before: `{}`, now: `1`, isMistaken: true},
		"NothingLeft":    {reason: "We should put back a reference into an empty object.", before: bound, now: `{"spec":null}`, want: claim.Restored, patch: add("/spec", `{"classRef":`+gold+`}`)},
	} {
		t.Run(name, func(t *testing.T) {
			k := &v1beta1.ClaimKind{ObjectMeta: metav1.ObjectMeta{Name: "claims.example.org"}, Spec: v1beta1.ClaimKindSpec{
				Claims:    v1beta1.Claims{SkipIfSet: []v1beta1.Place{{Path: ".spec.resourceRef"}}},
				Reference: v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.classRef"}, Form: v1beta1.ObjectReference},
				Selector:  v1beta1.ClassSelector{Path: ".spec.classSelector"},
			}}
			if tc.change != nil {
				tc.change(&k.Spec)
			}
			kind := NewClaimKind(k)
			got, err := kind.Restore([]byte(tc.before), []byte(tc.now))
			if tc.isMistaken {
				require.ErrorIs(t, err, fields.ErrNotObject, tc.reason)
				return
			}
			require.NoError(t, err, tc.reason)
			assert.Equal(t, tc.want, got.Reason, tc.reason)
			if tc.patch == "" {
				assert.Empty(t, got.Patch, tc.reason)
			} else {
				assert.Equal(t, tc.patch, string(got.Patch), tc.reason)
			}
			warned := got.Reason == claim.Restored || got.Reason == claim.ReferenceTooLong
			assert.Equal(t, warned, got.Warning(kind.Reader) != "", "We should tell the author what he may not expect, and nothing else.")
			assert.Less(t, len(got.Warning(kind.Reader)), 512, "We should be brief.")
		})
	}
}
