package selector

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/fields"
	"github.com/classbind/classbind/selector/inventory"
)

const (
	queueLabel   = "kueue.x-k8s.io/queue-name"
	ingressClass = "kubernetes.io/ingress.class"
)

func withReference(r v1beta1.Reference) func(*v1beta1.ClaimKindSpec) {
	return func(s *v1beta1.ClaimKindSpec) { s.Reference = r }
}

// The kinds of claims that the tests of references read.
var (
	byLabel       = withReference(v1beta1.Reference{Place: v1beta1.Place{Label: queueLabel}, Form: v1beta1.Name})
	byAnnotation  = withReference(v1beta1.Reference{Place: v1beta1.Place{Annotation: "example.org/class"}, Form: v1beta1.Name, WhenEmpty: v1beta1.BindEmpty})
	byName        = withReference(v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.className"}, Form: v1beta1.Name, WhenEmpty: v1beta1.BindEmpty})
	byObject      = withReference(v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.ref"}, Form: v1beta1.ObjectReference, WhenEmpty: v1beta1.BindEmpty})
	belowTopology = withReference(v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.topology.classRef"}, Form: v1beta1.LocalObjectReference, WhenParentAbsent: v1beta1.LeaveClaimAlone})
)

// kindOf claims whose registration differs from the CRD's defaults.
func kindOf(changes ...func(*v1beta1.ClaimKindSpec)) *ClaimKind {
	k := postgres()
	for _, change := range changes {
		change(&k.Spec)
	}
	return NewClaimKind(k)
}

func TestReadReference(t *testing.T) {
	const wrongType = field.ErrorTypeTypeInvalid
	leaveAlone := func(s *v1beta1.ClaimKindSpec) { s.Selector.WhenAbsent = v1beta1.NoSelectorLeaveAlone }
	skips := func(s *v1beta1.ClaimKindSpec) {
		s.Claims.SkipIfSet = []v1beta1.Place{{Annotation: ingressClass}, {Label: "skip"}}
	}
	defaults := func(*v1beta1.ClaimKindSpec) {}
	long := strings.Repeat("x", v1beta1.MaxNameBytes+1)
	for name, tc := range map[string]struct {
		reason    string
		kind      func(*v1beta1.ClaimKindSpec)
		claim     string
		leftAlone string
		settled   string
		given     *claim.Given
		errs      []fieldFailed
	}{
		"Label":              {reason: "We should take the label for the reference.", kind: byLabel, claim: `{metadata: {labels: {kueue.x-k8s.io/queue-name: q}}}`, leftAlone: claim.Settled, settled: "metadata.labels[kueue.x-k8s.io/queue-name]"},
		"EmptyLabel":         {reason: "We should take an empty label for set, unless the kind says otherwise.", kind: byLabel, claim: `{metadata: {labels: {kueue.x-k8s.io/queue-name: ""}}}`, leftAlone: claim.Settled, settled: "metadata.labels[kueue.x-k8s.io/queue-name]"},
		"OtherLabel":         {reason: "We should take no other label for the reference.", kind: byLabel, claim: `{metadata: {labels: {queue-name: q}, annotations: {kueue.x-k8s.io/queue-name: q}}}`},
		"NoLabels":           {reason: "We should read a claim without labels.", kind: byLabel, claim: `{metadata: {labels: null}}`},
		"Annotation":         {reason: "We should take the annotation for the reference.", kind: byAnnotation, claim: `{metadata: {annotations: {example.org/class: c}}}`, leftAlone: claim.Settled, settled: "metadata.annotations[example.org/class]"},
		"EmptyAnnotation":    {reason: "We should take an empty annotation for none where the kind says so.", kind: byAnnotation, claim: `{metadata: {annotations: {example.org/class: ""}}}`},
		"SkipByAnnotation":   {reason: "We should leave alone an Ingress with the old annotation.", kind: skips, claim: `{metadata: {annotations: {kubernetes.io/ingress.class: nginx}}}`, leftAlone: claim.Settled, settled: "metadata.annotations[kubernetes.io/ingress.class]"},
		"SkipByEmpty":        {reason: "We should take an empty annotation to skip by for set.", kind: skips, claim: `{metadata: {annotations: {kubernetes.io/ingress.class: ""}}}`, leftAlone: claim.Settled, settled: "metadata.annotations[kubernetes.io/ingress.class]"},
		"SkipByLabel":        {reason: "We should leave alone a claim with the label.", kind: skips, claim: `{metadata: {labels: {skip: "1"}}}`, leftAlone: claim.Settled, settled: "metadata.labels[skip]"},
		"Name":               {reason: "We should take a name for set.", kind: byName, claim: `{spec: {className: gold}}`, leftAlone: claim.Settled, settled: "spec.className"},
		"EmptyName":          {reason: "We should take the empty name that typed clients send for none.", kind: byName, claim: `{spec: {className: ""}}`},
		"NameIsANumber":      {reason: "We should leave a value of another type to the schema.", kind: byName, claim: `{spec: {className: 5}}`, leftAlone: claim.Settled, settled: "spec.className"},
		"NameIsAnObject":     {reason: "We should leave a value of another type to the schema.", kind: byName, claim: `{spec: {className: {}}}`, leftAlone: claim.Settled, settled: "spec.className"},
		"LongName":           {reason: "We should take a name for set, however long.", kind: byName, claim: `{spec: {className: ` + strings.Repeat(long, 10) + `}}`, leftAlone: claim.Settled, settled: "spec.className"},
		"Object":             {reason: "We should take an object with a name for set.", kind: byObject, claim: `{spec: {ref: {name: gold, kind: 5}}}`, leftAlone: claim.Settled, settled: "spec.ref"},
		"ObjectOfALongName":  {reason: "We should take a name for set, however long.", kind: byObject, claim: `{spec: {ref: {name: ` + strings.Repeat(long, 10) + `}}}`, leftAlone: claim.Settled, settled: "spec.ref"},
		"EmptyObject":        {reason: "We should take an empty object for none.", kind: byObject, claim: `{spec: {ref: {}}}`},
		"NullObject":         {reason: "We should take null for absent.", kind: byObject, claim: `{spec: {ref: null}}`},
		"ObjectIsText":       {reason: "We should leave a value of another type to the schema, even if it is empty.", kind: byObject, claim: `{spec: {ref: ""}}`, leftAlone: claim.Settled, settled: "spec.ref"},
		"EmptyNames":         {reason: "We should take empty fields for none.", kind: byObject, claim: `{spec: {ref: {name: "", kind: "", apiVersion: null, namespace: ""}}}`},
		"Kind":               {reason: "We should keep the kind that the author set.", kind: byObject, claim: `{spec: {ref: {kind: Gold, name: null, other: 5}}}`, given: &claim.Given{Kind: "Gold"}},
		"Group":              {reason: "We should keep the group without its version.", kind: byObject, claim: `{spec: {ref: {apiVersion: example.org/v1}}}`, given: &claim.Given{HasGroup: true, Group: "example.org"}},
		"CoreGroup":          {reason: "We should tell the core's group from none.", kind: byObject, claim: `{spec: {ref: {apiVersion: v1}}}`, given: &claim.Given{HasGroup: true}},
		"Namespace":          {reason: "We should keep the namespace that the author set.", kind: byObject, claim: `{spec: {ref: {namespace: team}}}`, given: &claim.Given{Namespace: "team"}},
		"NameOfAWrongType":   {reason: "We should say which field has the wrong type.", kind: byObject, claim: `{spec: {ref: {name: 5}}}`, errs: []fieldFailed{{"spec.ref.name", wrongType}}},
		"NameIsAList":        {reason: "We should say which field has the wrong type.", kind: byObject, claim: `{spec: {ref: {name: [gold]}}}`, errs: []fieldFailed{{"spec.ref.name", wrongType}}},
		"KindOfAWrongType":   {reason: "We should say which field has the wrong type.", kind: byObject, claim: `{spec: {ref: {kind: true}}}`, errs: []fieldFailed{{"spec.ref.kind", wrongType}}},
		"LongKind":           {reason: "We should keep no more of a claim than a name may have.", kind: byObject, claim: `{spec: {ref: {kind: ` + long + `}}}`, errs: []fieldFailed{{"spec.ref.kind", field.ErrorTypeTooLong}}},
		"LongerKind":         {reason: "We should not even read what is longer.", kind: byObject, claim: `{spec: {ref: {kind: ` + strings.Repeat(long, 10) + `}}}`, errs: []fieldFailed{{"spec.ref.kind", field.ErrorTypeTooLong}}},
		"WrongTypeButSkip":   {reason: "We should leave a settled claim alone, whatever else is in it.", kind: byObject, claim: `{spec: {ref: {name: 5}, resourceRef: x}}`, leftAlone: claim.Settled, settled: "spec.resourceRef"},
		"Half":               {kind: defaults, reason: "We should take an object without a name for none, and keep what its author set.", claim: `{spec: {classRef: {apiVersion: sql.example.org/v1, kind: SQLClass}}}`, given: &claim.Given{HasGroup: true, Group: "sql.example.org", Kind: "SQLClass"}},
		"HalfWithEmptyName":  {kind: defaults, reason: "We should take an empty name for none.", claim: `{spec: {classRef: {kind: SQLClass, name: "", apiVersion: null}}}`, given: &claim.Given{Kind: "SQLClass"}},
		"NothingIsSaid":      {kind: defaults, reason: "We should leave a claim alone that asks for no class.", claim: `{spec: {classRef: {apiVersion: "", name: ""}}}`, leftAlone: claim.Settled, settled: "spec.classRef"},
		"OtherWay":           {kind: defaults, reason: "We should leave a claim alone that may refer to its class in another way.", claim: `{spec: {classRef: {kind: SQLClass, external: projects/x}}}`, leftAlone: claim.Settled, settled: "spec.classRef"},
		"OtherWayIsNull":     {kind: defaults, reason: "We should not judge fields that we do not know.", claim: `{spec: {classRef: {kind: SQLClass, external: null}}}`, leftAlone: claim.Settled, settled: "spec.classRef"},
		"NoNameInTheForm":    {reason: "We should leave an object to the schema where a name belongs.", kind: byName, claim: `{spec: {className: {kind: SQLClass}}}`, leftAlone: claim.Settled, settled: "spec.className"},
		"Parent":             {reason: "We should bind a claim with the parent.", kind: belowTopology, claim: `{spec: {topology: {version: v1}}}`},
		"EmptyParent":        {reason: "We should take an empty parent for one.", kind: belowTopology, claim: `{spec: {topology: {}}}`},
		"NoParent":           {reason: "We should leave alone a Cluster without a topology.", kind: belowTopology, claim: `{spec: {}}`, leftAlone: claim.ParentAbsent},
		"NullParent":         {reason: "We should take null for absent.", kind: belowTopology, claim: `{spec: {topology: null}}`, leftAlone: claim.ParentAbsent},
		"NoGrandparent":      {reason: "We should leave alone a claim without all that.", kind: belowTopology, claim: `{}`, leftAlone: claim.ParentAbsent},
		"ParentIsText":       {reason: "We should say what is wrong with a parent.", kind: belowTopology, claim: `{spec: {topology: x}}`, errs: []fieldFailed{{"spec.topology", wrongType}}},
		"GrandparentIsText":  {reason: "We should leave alone what has no parent, and leave the rest to the schema.", kind: belowTopology, claim: `{spec: x}`, leftAlone: claim.ParentAbsent},
		"NoSelector":         {reason: "We should leave alone a claim without a selector where its kind says so.", kind: leaveAlone, claim: `{spec: {classSelector: null}}`, leftAlone: claim.NoSelector},
		"Selector":           {reason: "We should bind a claim with a selector.", kind: leaveAlone, claim: `{spec: {classSelector: {}}}`},
		"SelectorIsWrong":    {reason: "We should say what is wrong with a selector.", kind: leaveAlone, claim: `{spec: {classSelector: gold}}`, errs: []fieldFailed{{"spec.classSelector", wrongType}}},
		"SelectorAnnotation": {reason: "We should bind a claim with a selector in the annotation.", kind: leaveAlone, claim: `{metadata: {annotations: {classbind.io/class-selector: tier=gold}}}`},
		"SpecIsText":         {reason: "We should leave alone what has no selector, and leave the rest to the schema.", kind: leaveAlone, claim: `{spec: x}`, leftAlone: claim.NoSelector},
		"Deleted":            {reason: "We should say first that it is being deleted.", kind: belowTopology, claim: `{metadata: {deletionTimestamp: "2026-01-01T00:00:00Z"}}`, leftAlone: claim.BeingDeleted},
	} {
		t.Run(name, func(t *testing.T) {
			kind, object := kindOf(tc.kind), decode(t, tc.claim)
			raw, err := json.Marshal(object)
			require.NoError(t, err)
			planned, err := kind.DecodeValid(raw)
			require.NoError(t, err)
			for _, object := range []map[string]any{object, planned} {
				got := kind.Read("team", "db", object)
				assert.Equal(t, tc.leftAlone, got.LeftAlone, tc.reason)
				assert.Equal(t, tc.settled, got.SettledBy, tc.reason)
				assert.Equal(t, tc.given, got.Given, tc.reason)
				assert.Equal(t, tc.errs, failed(got.Problems), tc.reason)
				_, bound := kind.BoundTo("team", object)
				has := got.LeftAlone == claim.Settled && got.SettledBy == kind.ClassRef.String()
				assert.Equal(t, has, bound, "We should count what has a reference.")
				assert.Equal(t, has, kind.HasReference(object), "We should say what has a reference.")
			}
		})
	}
}

func TestReadOtherAnnotation(t *testing.T) {
	kind := kindOf(func(s *v1beta1.ClaimKindSpec) { s.Selector.Annotation = "example.org/selector" })
	got := kind.Read("team", "db", decode(t, `{metadata: {annotations: {example.org/selector: tier=gold, classbind.io/class-selector: tier=iron}}}`))
	require.Empty(t, got.Problems)
	assert.Equal(t, "tier=gold", got.Selector.String(), "We should read the annotation that the kind names, and no other.")

	got = kind.Read("team", "db", decode(t, `{metadata: {annotations: {example.org/selector: "tier in"}}}`))
	assert.Equal(t, []fieldFailed{{"metadata.annotations[example.org/selector]", field.ErrorTypeInvalid}}, failed(got.Problems))

	d := choose(newView(kind, []*inventory.Classes{inventory.NewClasses(newKind("as.example.org", "A"), nil)}), claim.Claim{Name: "db"}, 0)
	assert.Contains(t, d.Warning(), "the annotation example.org/selector", "We should tell the author to use that annotation.")
}

func TestPointer(t *testing.T) {
	assert.Equal(t, "/a~1b/c~0d/~01", fields.Path{"a/b", "c~d", "~1"}.Pointer(), "We should escape as RFC 6901 says.")
}

// TestPatchOfReference applies the patches with the library that the API server uses.
func TestPatchOfReference(t *testing.T) {
	typed := withReference(v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.ref"}, Form: v1beta1.TypedLocalObjectReference, WhenEmpty: v1beta1.BindEmpty})
	namespaced := inventory.NewClassKind(&v1beta1.ClassKind{Spec: crossplaneClassKind()},
		metav1.SchemeGroupVersion.WithKind("Gold"), true)
	for name, tc := range map[string]struct {
		reason, claim, want string
		kind                func(*v1beta1.ClaimKindSpec)
	}{
		"Label":         {reason: "We should add a label beside others, and escape its key.", kind: byLabel, claim: `{metadata: {labels: {a: b}}}`, want: `{metadata: {labels: {a: b, kueue.x-k8s.io/queue-name: gold}}}`},
		"FirstLabel":    {reason: "We should add the labels if there are none.", kind: byLabel, claim: `{metadata: {name: db}}`, want: `{metadata: {name: db, labels: {kueue.x-k8s.io/queue-name: gold}}}`},
		"NullLabels":    {reason: "We should put labels in the place of null.", kind: byLabel, claim: `{metadata: {labels: null}}`, want: `{metadata: {labels: {kueue.x-k8s.io/queue-name: gold}}}`},
		"Annotation":    {reason: "We should replace an empty annotation.", kind: byAnnotation, claim: `{metadata: {annotations: {example.org/class: "", a: b}}}`, want: `{metadata: {annotations: {example.org/class: gold, a: b}}}`},
		"Name":          {reason: "We should replace an empty name.", kind: byName, claim: `{spec: {className: "", a: b}}`, want: `{spec: {className: gold, a: b}}`},
		"NoObject":      {reason: "We should add the whole reference where there is none.", kind: byObject, claim: `{spec: {}}`, want: `{spec: {ref: {apiVersion: meta.k8s.io/v1, kind: Gold, namespace: team, name: gold}}}`},
		"EmptyObject":   {reason: "We should add all fields to an empty object.", kind: byObject, claim: `{spec: {ref: {}}}`, want: `{spec: {ref: {apiVersion: meta.k8s.io/v1, kind: Gold, namespace: team, name: gold}}}`},
		"OtherFields":   {reason: "We should keep the other fields of the object.", kind: byObject, claim: `{spec: {ref: {name: "", uid: "1", optional: true}}}`, want: `{spec: {ref: {apiVersion: meta.k8s.io/v1, kind: Gold, namespace: team, name: gold, uid: "1", optional: true}}}`},
		"GivenFields":   {reason: "We should keep what the author set, and the version above all.", kind: byObject, claim: `{spec: {ref: {apiVersion: meta.k8s.io/v0, kind: Gold, namespace: team}}}`, want: `{spec: {ref: {apiVersion: meta.k8s.io/v0, kind: Gold, namespace: team, name: gold}}}`},
		"EmptyAndNull":  {reason: "We should fill in what is empty or null.", kind: byObject, claim: `{spec: {ref: {apiVersion: "", kind: null, name: null}}}`, want: `{spec: {ref: {apiVersion: meta.k8s.io/v1, kind: Gold, namespace: team, name: gold}}}`},
		"FieldsOfAForm": {reason: "We should write no other fields than those of the form.", kind: typed, claim: `{spec: {ref: {apiVersion: x/v1, name: ""}}}`, want: `{spec: {ref: {apiVersion: x/v1, apiGroup: meta.k8s.io, kind: Gold, name: gold}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			kind := kindOf(tc.kind)
			claim, err := json.Marshal(decode(t, tc.claim))
			require.NoError(t, err)
			object, err := kind.DecodeValid(claim)
			require.NoError(t, err)
			in := kind.Read("team", "db", object)
			require.Empty(t, in.Problems)
			require.Empty(t, in.LeftAlone)
			d := Decision{View: newView(kind, nil), Claim: in, Class: &inventory.Class{Kind: namespaced, Namespace: "team", Name: "gold"}}
			patch, err := jsonpatch.DecodePatch(d.Patch())
			require.NoError(t, err)
			patched, err := patch.Apply(claim)
			require.NoError(t, err)
			want, err := json.Marshal(decode(t, tc.want))
			require.NoError(t, err)
			assert.JSONEq(t, string(want), string(patched), tc.reason)

			object, err = kind.DecodeValid(patched)
			require.NoError(t, err)
			assert.True(t, kind.HasReference(object), "We should read what we wrote.")
			assert.True(t, kind.NamesClass(object), "We should read what we wrote.")
		})
	}
}

// TestLongNamesAreNoLabels keeps a claim from a class for which the API server would refuse it.
func TestLongNamesAreNoLabels(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		kind    func(*v1beta1.ClaimKindSpec)
		length  int
		dropped string
	}{
		"Longest":    {"We should offer a class whose name a label may have.", byLabel, 63, ""},
		"TooLong":    {"We should not offer a class whose name no label may have.", byLabel, 64, "NameTooLong=1"},
		"Annotation": {"We should offer any class where the name is in an annotation.", byAnnotation, 64, ""},
	} {
		as := newKind("as.example.org", "A")
		class := as.NewClass(&metav1.ObjectMeta{Name: strings.Repeat("a", tc.length)}, nil)
		d := choose(newView(kindOf(tc.kind), []*inventory.Classes{inventory.NewClasses(as, []*inventory.Class{class})}), claim.Claim{Name: "db", Selector: labels.Everything()}, 0)
		assert.Equal(t, tc.dropped, d.DroppedText(), "%s: %s", name, tc.reason)
		assert.Equal(t, tc.dropped == "", d.Class != nil, "%s: %s", name, tc.reason)
	}
}

// TestAnyRoundRobin has claims without an opinion go round over all classes, as those of
// Service Fabrik do over its clusters.
func TestAnyRoundRobin(t *testing.T) {
	kind := kindOf(func(s *v1beta1.ClaimKindSpec) {
		s.Selector.WhenAbsent, s.Choice.Strategy = v1beta1.NoSelectorAny, v1beta1.RoundRobin
	})
	as, bs := newKind("as.example.org", "A"), newKind("bs.example.org", "B")
	view := newView(kind, []*inventory.Classes{
		inventory.NewClasses(as, []*inventory.Class{{Kind: as, Name: "a", Default: true, Place: 1, DrawHash: 1}, {Kind: as, Name: "b", Place: 2, DrawHash: 2}}),
		inventory.NewClasses(bs, []*inventory.Class{{Kind: bs, Name: "c", Place: 3, DrawHash: 3}}),
	})
	got := map[string]int{}
	for range 9 {
		d, err := (&Decider{}).Decide(t.Context(), view, claim.Intake{Claim: claim.Claim{Name: "db"}}, Admit)
		require.NoError(t, err)
		require.NotNil(t, d.Class)
		assert.Equal(t, "AnyClass", d.Reason())
		assert.Empty(t, d.Warning(), "We should not warn of several defaults a claim that gets any class.")
		got[d.Class.String()]++
	}
	assert.Equal(t, map[string]int{"A/a": 3, "A/b": 3, "B/c": 3}, got, "We should give each class its turn.")
}
