package claim

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/fields"
)

func TestReference(t *testing.T) {
	fast := func(group, version, kind, namespace string) Target {
		return Target{GroupVersionKind: schema.GroupVersionKind{Group: group, Version: version, Kind: kind}, Namespace: namespace, Name: "fast"}
	}
	cluster, core := fast("storage.k8s.io", "v1", "StorageClass", ""), fast("", "v1", "Node", "")
	namespaced := fast("example.org", "v1beta1", "QueueClass", "team")
	for name, tc := range map[string]struct {
		reason string
		format v1beta1.ReferenceForm
		class  Target
		want   string
	}{
		"ObjectReference": {
			reason: "We should name version, kind and name, and no uid",
			format: v1beta1.ObjectReference,
			class:  cluster,
			want:   `{"apiVersion":"storage.k8s.io/v1","kind":"StorageClass","name":"fast"}`,
		},
		"ObjectReferenceWithNamespace": {
			reason: "We should name the namespace of a class that has one",
			format: v1beta1.ObjectReference,
			class:  namespaced,
			want:   `{"apiVersion":"example.org/v1beta1","kind":"QueueClass","namespace":"team","name":"fast"}`,
		},
		"ObjectReferenceOfTheCoreGroup": {
			reason: "We should write a core version without a group",
			format: v1beta1.ObjectReference,
			class:  core,
			want:   `{"apiVersion":"v1","kind":"Node","name":"fast"}`,
		},
		"TypedLocalObjectReference": {
			reason: "We should name the group without its version",
			format: v1beta1.TypedLocalObjectReference,
			class:  namespaced,
			want:   `{"apiGroup":"example.org","kind":"QueueClass","name":"fast"}`,
		},
		"TypedLocalObjectReferenceOfTheCoreGroup": {
			reason: "We should leave out the core group, as Kubernetes does",
			format: v1beta1.TypedLocalObjectReference,
			class:  core,
			want:   `{"kind":"Node","name":"fast"}`,
		},
		"TypedObjectReference": {
			reason: "We should name the group without its version, and the namespace",
			format: v1beta1.TypedObjectReference,
			class:  namespaced,
			want:   `{"apiGroup":"example.org","kind":"QueueClass","namespace":"team","name":"fast"}`,
		},
		"GroupKindReference": {
			reason: "We should name the group in a field of that name",
			format: v1beta1.GroupKindReference,
			class:  namespaced,
			want:   `{"group":"example.org","kind":"QueueClass","name":"fast"}`,
		},
		"KindReference": {
			reason: "We should name the Kind alone",
			format: v1beta1.KindReference,
			class:  namespaced,
			want:   `{"kind":"QueueClass","name":"fast"}`,
		},
		"NamespacedReference": {
			reason: "We should name the namespace without the kind",
			format: v1beta1.NamespacedReference,
			class:  namespaced,
			want:   `{"namespace":"team","name":"fast"}`,
		},
		"NamespacedReferenceOfAClassWithoutNamespace": {
			reason: "We should leave out what the class does not have",
			format: v1beta1.NamespacedReference,
			class:  cluster,
			want:   `{"name":"fast"}`,
		},
		"LocalObjectReference": {
			reason: "We should name the class alone",
			format: v1beta1.LocalObjectReference,
			class:  cluster,
			want:   `{"name":"fast"}`,
		},
		"Name": {reason: "We should write a string", format: v1beta1.Name, class: cluster, want: `"fast"`},
	} {
		t.Run(name, func(t *testing.T) {
			r := readerOf(func(s *v1beta1.ClaimKindSpec) { s.Reference.Form = tc.format })
			in := r.Read("team", "mine", map[string]any{"spec": map[string]any{}})
			patch := string(r.Reference.Patch(&in, tc.class, "", nil))
			assert.JSONEq(t, `[{"op":"add","path":"/spec/classRef","value":`+tc.want+`}]`, patch, tc.reason)
		})
	}
}

const (
	queueLabel   = "kueue.x-k8s.io/queue-name"
	ingressClass = "kubernetes.io/ingress.class"
)

func withReference(r v1beta1.Reference) func(*v1beta1.ClaimKindSpec) {
	return func(s *v1beta1.ClaimKindSpec) { s.Reference = r }
}

// The kinds of claims that the tests of references read.
var (
	byLabel       = withReference(v1beta1.Reference{Place: v1beta1.Place{Label: queueLabel}, Form: v1beta1.Name, WhenEmpty: v1beta1.LeaveEmptyAlone})
	byAnnotation  = withReference(v1beta1.Reference{Place: v1beta1.Place{Annotation: "example.org/class"}, Form: v1beta1.Name})
	byName        = withReference(v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.className"}, Form: v1beta1.Name})
	byObject      = withReference(v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.ref"}, Form: v1beta1.ObjectReference})
	belowTopology = withReference(v1beta1.Reference{
		Place:            v1beta1.Place{Path: ".spec.topology.classRef"},
		Form:             v1beta1.LocalObjectReference,
		WhenParentAbsent: v1beta1.LeaveClaimAlone,
	})
)

func TestReadReference(t *testing.T) {
	const wrongType = field.ErrorTypeTypeInvalid
	leaveAlone := spec(`{selector: {whenAbsent: LeaveAlone}}`)
	skips := func(s *v1beta1.ClaimKindSpec) {
		s.Claims.SkipIfSet = []v1beta1.Place{{Annotation: ingressClass}, {Label: "skip"}}
	}
	emptyIsOne := spec(`{reference: {whenEmpty: LeaveAlone}}`)
	long := strings.Repeat("x", v1beta1.MaxNameBytes+1)
	for name, tc := range map[string]struct {
		reason    string
		kind      func(*v1beta1.ClaimKindSpec)
		claim     string
		leftAlone string
		settled   string
		given     *Given
		errs      []fieldFailed
	}{
		"Label": {
			reason:    "We should take the label for the reference.",
			kind:      byLabel,
			claim:     `{metadata: {labels: {kueue.x-k8s.io/queue-name: q}}}`,
			leftAlone: Settled,
			settled:   "metadata.labels[kueue.x-k8s.io/queue-name]",
		},
		"EmptyLabel": {
			reason:    "We should take an empty label for set, unless the kind says otherwise.",
			kind:      byLabel,
			claim:     `{metadata: {labels: {kueue.x-k8s.io/queue-name: ""}}}`,
			leftAlone: Settled,
			settled:   "metadata.labels[kueue.x-k8s.io/queue-name]",
		},
		"Annotation": {
			reason:    "We should take the annotation for the reference.",
			kind:      byAnnotation,
			claim:     `{metadata: {annotations: {example.org/class: c}}}`,
			leftAlone: Settled,
			settled:   "metadata.annotations[example.org/class]",
		},
		"EmptyAnnotation": {
			reason: "We should take an empty annotation for none where the kind says so.",
			kind:   byAnnotation,
			claim:  `{metadata: {annotations: {example.org/class: ""}}}`,
		},
		"SkipByAnnotation": {
			reason:    "We should leave alone an Ingress with the old annotation.",
			kind:      skips,
			claim:     `{metadata: {annotations: {kubernetes.io/ingress.class: nginx}}}`,
			leftAlone: Settled,
			settled:   "metadata.annotations[kubernetes.io/ingress.class]",
		},
		"SkipByLabel": {
			reason:    "We should leave alone a claim with the label.",
			kind:      skips,
			claim:     `{metadata: {labels: {skip: "1"}}}`,
			leftAlone: Settled,
			settled:   "metadata.labels[skip]",
		},
		"Name": {
			reason:    "We should take a name for set.",
			kind:      byName,
			claim:     `{spec: {className: gold}}`,
			leftAlone: Settled,
			settled:   "spec.className",
		},
		"EmptyName": {reason: "We should take the empty name that typed clients send for none.", kind: byName, claim: `{spec: {className: ""}}`},
		"NameIsANumber": {
			reason:    "We should leave a value of another type to the schema.",
			kind:      byName,
			claim:     `{spec: {className: 5}}`,
			leftAlone: Settled,
			settled:   "spec.className",
		},
		"LongName": {
			reason:    "We should take a name for set, however long.",
			kind:      byName,
			claim:     `{spec: {className: ` + strings.Repeat(long, 10) + `}}`,
			leftAlone: Settled,
			settled:   "spec.className",
		},
		"Object": {
			reason:    "We should take an object with a name for set.",
			kind:      byObject,
			claim:     `{spec: {ref: {name: gold, kind: 5}}}`,
			leftAlone: Settled,
			settled:   "spec.ref",
		},
		"EmptyObject": {reason: "We should take an empty object for none.", kind: byObject, claim: `{spec: {ref: {}}}`},
		"ObjectIsText": {
			reason:    "We should leave a value of another type to the schema, even if it is empty.",
			kind:      byObject,
			claim:     `{spec: {ref: ""}}`,
			leftAlone: Settled,
			settled:   "spec.ref",
		},
		"Kind": {
			reason: "We should keep the kind that the author set.",
			kind:   byObject,
			claim:  `{spec: {ref: {kind: Gold, name: null, other: 5}}}`,
			given:  &Given{Kind: "Gold"},
		},
		"Group": {
			reason: "We should keep the group without its version.",
			kind:   byObject,
			claim:  `{spec: {ref: {apiVersion: example.org/v1}}}`,
			given:  &Given{HasGroup: true, Group: "example.org"},
		},
		"CoreGroup": {
			reason: "We should tell the core's group from none.",
			kind:   byObject,
			claim:  `{spec: {ref: {apiVersion: v1}}}`,
			given:  &Given{HasGroup: true},
		},
		"Namespace": {
			reason: "We should keep the namespace that the author set.",
			kind:   byObject,
			claim:  `{spec: {ref: {namespace: team}}}`,
			given:  &Given{Namespace: "team"},
		},
		"NameOfAWrongType": {
			reason: "We should say which field has the wrong type.",
			kind:   byObject,
			claim:  `{spec: {ref: {name: 5}}}`,
			errs:   []fieldFailed{{"spec.ref.name", wrongType}},
		},
		"KindOfAWrongType": {
			reason: "We should say which field has the wrong type.",
			kind:   byObject,
			claim:  `{spec: {ref: {kind: true}}}`,
			errs:   []fieldFailed{{"spec.ref.kind", wrongType}},
		},
		"LongKind": {
			reason: "We should keep no more of a claim than a name may have.",
			kind:   byObject,
			claim:  `{spec: {ref: {kind: ` + long + `}}}`,
			errs:   []fieldFailed{{"spec.ref.kind", field.ErrorTypeTooLong}},
		},
		"WrongTypeButSkip": {
			reason:    "We should leave a settled claim alone, whatever else is in it.",
			kind:      byObject,
			claim:     `{spec: {ref: {name: 5}, resourceRef: x}}`,
			leftAlone: Settled,
			settled:   "spec.resourceRef",
		},
		"Half": {
			kind:   emptyIsOne,
			reason: "We should take an object without a name for none, and keep what its author set.",
			claim:  `{spec: {classRef: {apiVersion: sql.example.org/v1, kind: SQLClass}}}`,
			given:  &Given{HasGroup: true, Group: "sql.example.org", Kind: "SQLClass"},
		},
		"NothingIsSaid": {
			kind:      emptyIsOne,
			reason:    "We should leave a claim alone that asks for no class.",
			claim:     `{spec: {classRef: {apiVersion: "", name: ""}}}`,
			leftAlone: Settled,
			settled:   "spec.classRef",
		},
		"OtherWay": {
			kind:      emptyIsOne,
			reason:    "We should leave a claim alone that may refer to its class in another way.",
			claim:     `{spec: {classRef: {kind: SQLClass, external: projects/x}}}`,
			leftAlone: Settled,
			settled:   "spec.classRef",
		},
		"Parent":   {reason: "We should bind a claim with the parent.", kind: belowTopology, claim: `{spec: {topology: {version: v1}}}`},
		"NoParent": {reason: "We should leave alone a Cluster without a topology.", kind: belowTopology, claim: `{spec: {}}`, leftAlone: ParentAbsent},
		"ParentIsText": {
			reason: "We should say what is wrong with a parent.",
			kind:   belowTopology,
			claim:  `{spec: {topology: x}}`,
			errs:   []fieldFailed{{"spec.topology", wrongType}},
		},
		"GrandparentIsText": {
			reason:    "We should leave alone what has no parent, and leave the rest to the schema.",
			kind:      belowTopology,
			claim:     `{spec: x}`,
			leftAlone: ParentAbsent,
		},
		"NoSelector": {
			reason:    "We should leave alone a claim without a selector where its kind says so.",
			kind:      leaveAlone,
			claim:     `{spec: {classSelector: null}}`,
			leftAlone: NoSelector,
		},
		"Selector": {reason: "We should bind a claim with a selector.", kind: leaveAlone, claim: `{spec: {classSelector: {}}}`},
		"SelectorIsWrong": {
			reason: "We should say what is wrong with a selector.",
			kind:   leaveAlone,
			claim:  `{spec: {classSelector: gold}}`,
			errs:   []fieldFailed{{"spec.classSelector", wrongType}},
		},
		"SelectorAnnotation": {
			reason: "We should bind a claim with a selector in the annotation.",
			kind:   leaveAlone,
			claim:  `{metadata: {annotations: {classbind.io/class-selector: tier=gold}}}`,
		},
		"SpecIsText": {
			reason:    "We should leave alone what has no selector, and leave the rest to the schema.",
			kind:      leaveAlone,
			claim:     `{spec: x}`,
			leftAlone: NoSelector,
		},
		"Deleted": {
			reason:    "We should say first that it is being deleted.",
			kind:      belowTopology,
			claim:     `{metadata: {deletionTimestamp: "2026-01-01T00:00:00Z"}}`,
			leftAlone: BeingDeleted,
		},
	} {
		t.Run(name, func(t *testing.T) {
			reader, object := readerOf(tc.kind), decode(t, tc.claim)
			raw, err := json.Marshal(object)
			require.NoError(t, err)
			planned, err := reader.DecodeValid(raw)
			require.NoError(t, err)
			for _, object := range []map[string]any{object, planned} {
				got := reader.Read("team", "db", object)
				assert.Equal(t, tc.leftAlone, got.LeftAlone, tc.reason)
				assert.Equal(t, tc.settled, got.SettledBy, tc.reason)
				assert.Equal(t, tc.given, got.Given, tc.reason)
				assert.Equal(t, tc.errs, failed(got.Problems), tc.reason)
				_, bound := reader.Reference.BoundTo("team", object)
				has := got.LeftAlone == Settled && got.SettledBy == reader.Reference.Path.String()
				assert.Equal(t, has, bound, "We should count what has a reference.")
				assert.Equal(t, has, reader.Reference.HasReference(object), "We should say what has a reference.")
			}
		})
	}
}

func TestReadOtherAnnotation(t *testing.T) {
	reader := readerOf(spec(`{selector: {annotation: "example.org/selector"}}`))
	got := reader.Read("team", "db", decode(t, `{metadata: {annotations: {example.org/selector: tier=gold, classbind.io/class-selector: tier=iron}}}`))
	require.Empty(t, got.Problems)
	assert.Equal(t, "tier=gold", got.Selector.String(), "We should read the annotation that the kind names, and no other.")

	got = reader.Read("team", "db", decode(t, `{metadata: {annotations: {example.org/selector: "tier in"}}}`))
	assert.Equal(t, []fieldFailed{{"metadata.annotations[example.org/selector]", field.ErrorTypeInvalid}}, failed(got.Problems))
}

// TestPatchOfReference applies the patches with the library that the API server uses.
func TestPatchOfReference(t *testing.T) {
	typed := withReference(v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.ref"}, Form: v1beta1.TypedLocalObjectReference})
	gold := Target{GroupVersionKind: metav1.SchemeGroupVersion.WithKind("Gold"), Namespace: "team", Name: "gold"}
	for name, tc := range map[string]struct {
		reason, claim, want string
		kind                func(*v1beta1.ClaimKindSpec)
	}{
		"Label": {
			reason: "We should add a label beside others, and escape its key.",
			kind:   byLabel,
			claim:  `{metadata: {labels: {a: b}}}`,
			want:   `{metadata: {labels: {a: b, kueue.x-k8s.io/queue-name: gold}}}`,
		},
		"FirstLabel": {
			reason: "We should add the labels if there are none.",
			kind:   byLabel,
			claim:  `{metadata: {name: db}}`,
			want:   `{metadata: {name: db, labels: {kueue.x-k8s.io/queue-name: gold}}}`,
		},
		"NullLabels": {
			reason: "We should put labels in the place of null.",
			kind:   byLabel,
			claim:  `{metadata: {labels: null}}`,
			want:   `{metadata: {labels: {kueue.x-k8s.io/queue-name: gold}}}`,
		},
		"Annotation": {
			reason: "We should replace an empty annotation.",
			kind:   byAnnotation,
			claim:  `{metadata: {annotations: {example.org/class: "", a: b}}}`,
			want:   `{metadata: {annotations: {example.org/class: gold, a: b}}}`,
		},
		"Name": {reason: "We should replace an empty name.", kind: byName, claim: `{spec: {className: "", a: b}}`, want: `{spec: {className: gold, a: b}}`},
		"NoObject": {
			reason: "We should add the whole reference where there is none.",
			kind:   byObject,
			claim:  `{spec: {}}`,
			want:   `{spec: {ref: {apiVersion: meta.k8s.io/v1, kind: Gold, namespace: team, name: gold}}}`,
		},
		"EmptyObject": {
			reason: "We should add all fields to an empty object.",
			kind:   byObject,
			claim:  `{spec: {ref: {}}}`,
			want:   `{spec: {ref: {apiVersion: meta.k8s.io/v1, kind: Gold, namespace: team, name: gold}}}`,
		},
		"OtherFields": {
			reason: "We should keep the other fields of the object.",
			kind:   byObject,
			claim:  `{spec: {ref: {name: "", uid: "1", optional: true}}}`,
			want:   `{spec: {ref: {apiVersion: meta.k8s.io/v1, kind: Gold, namespace: team, name: gold, uid: "1", optional: true}}}`,
		},
		"GivenFields": {
			reason: "We should keep what the author set, and the version above all.",
			kind:   byObject,
			claim:  `{spec: {ref: {apiVersion: meta.k8s.io/v0, kind: Gold, namespace: team}}}`,
			want:   `{spec: {ref: {apiVersion: meta.k8s.io/v0, kind: Gold, namespace: team, name: gold}}}`,
		},
		"EmptyAndNull": {
			reason: "We should fill in what is empty or null.",
			kind:   byObject,
			claim:  `{spec: {ref: {apiVersion: "", kind: null, name: null}}}`,
			want:   `{spec: {ref: {apiVersion: meta.k8s.io/v1, kind: Gold, namespace: team, name: gold}}}`,
		},
		"FieldsOfAForm": {
			reason: "We should write no other fields than those of the form.",
			kind:   typed,
			claim:  `{spec: {ref: {apiVersion: x/v1, name: ""}}}`,
			want:   `{spec: {ref: {apiVersion: x/v1, apiGroup: meta.k8s.io, kind: Gold, name: gold}}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			reader := readerOf(tc.kind)
			claim, err := json.Marshal(decode(t, tc.claim))
			require.NoError(t, err)
			object, err := reader.DecodeValid(claim)
			require.NoError(t, err)
			in := reader.Read("team", "db", object)
			require.Empty(t, in.Problems)
			require.Empty(t, in.LeftAlone)
			patch, err := jsonpatch.DecodePatch(reader.Reference.Patch(&in, gold, "", nil))
			require.NoError(t, err)
			patched, err := patch.Apply(claim)
			require.NoError(t, err)
			want, err := json.Marshal(decode(t, tc.want))
			require.NoError(t, err)
			assert.JSONEq(t, string(want), string(patched), tc.reason)

			object, err = reader.DecodeValid(patched)
			require.NoError(t, err)
			assert.True(t, reader.Reference.HasReference(object), "We should read what we wrote.")
			assert.True(t, reader.Reference.NamesClass(object), "We should read what we wrote.")
		})
	}
}

// bindDefaults binds a claim for which the schema has filled in a class.
func bindDefaults(s *v1beta1.ClaimKindSpec) { s.Claims.When = "claim.spec.classRef.name == 'default'" }

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
		"Removed": {
			reason: "We should put back what the update removes.",
			before: bound,
			now:    `{"spec":{}}`,
			want:   Restored,
			patch:  add("/spec/classRef", gold),
		},
		"Null": {
			reason: "We should put back what the update sets to null.",
			before: bound,
			now:    `{"spec":{"classRef":null}}`,
			want:   Restored,
			patch:  add("/spec/classRef", gold),
		},
		"NoParent": {
			reason: "We should create the parents that the update removes.",
			before: bound,
			now:    `{}`,
			want:   Restored,
			patch:  add("/spec", `{"classRef":`+gold+`}`),
		},
		"OtherFields": {
			reason: "We should put back the whole value, whatever is in it.",
			before: `{"spec":{"classRef":{"name":"gold","uid":"1","more":[{"a":null}]}}}`,
			now:    `{"spec":{"size":1}}`,
			want:   Restored,
			patch:  add("/spec/classRef", `{"name":"gold","uid":"1","more":[{"a":null}]}`),
		},
		"NoName": {reason: "We should put back no class where there was none.", before: `{"spec":{"classRef":{}}}`, now: `{"spec":{}}`, want: NotBound},
		"HalfOfNothing": {
			reason: "We should not put back half a reference.",
			before: `{"spec":{"classRef":{"kind":"SQLClass"}}}`,
			now:    `{"spec":{}}`,
			want:   NotBound,
		},
		"Half": {
			reason: "We should complete a reference that has lost its name.",
			before: bound,
			now:    `{"spec":{"classRef":{"apiVersion":"example.org/v1","kind":"SQLClass"}}}`,
			want:   Restored,
			patch:  add("/spec/classRef/name", `"gold"`),
		},
		"HalfIsEmpty": {
			reason: "We should complete a reference that has lost its fields.",
			before: bound,
			now:    `{"spec":{"classRef":{}}}`,
			want:   Restored,
			patch: add(
				"/spec/classRef/apiVersion",
				`"example.org/v1"},{"op":"add","path":"/spec/classRef/kind","value":"SQLClass"},{"op":"add","path":"/spec/classRef/name","value":"gold"`,
			),
		},
		"HalfWithMore": {
			reason: "We should complete a reference whose other fields are not ours.",
			before: `{"spec":{"classRef":{"kind":"SQLClass","name":"gold","major":16}}}`,
			now:    `{"spec":{"classRef":{"kind":"SQLClass","major":17}}}`,
			want:   Restored,
			patch:  add("/spec/classRef/name", `"gold"`),
		},
		"HalfOfOther": {reason: "We should not mix two references.", before: bound, now: `{"spec":{"classRef":{"kind":"RDSClass"}}}`, want: OtherReference},
		"OtherWay": {
			reason: "We should let an author refer in another way.",
			before: bound,
			now:    `{"spec":{"classRef":{"kind":"SQLClass","external":"projects/x"}}}`,
			want:   OtherReference,
			change: spec(`{reference: {whenEmpty: LeaveAlone}}`),
		},
		"Selector": {
			reason: "We should not look at what the claim asks for: it has its class.",
			before: bound,
			now:    `{"spec":{"classSelector":5}}`,
			want:   Restored,
			patch:  add("/spec/classRef", gold),
		},
		"Changed": {reason: "We should allow another reference.", before: bound, now: `{"spec":{"classRef":{"name":"silver"}}}`, want: Settled},
		"Kept":    {reason: "We should leave alone an update that keeps the reference.", before: bound, now: bound, want: Settled},
		"Provisioned": {
			reason: "We should put it back where a controller settled the claim after we bound it.",
			before: `{"spec":{"classRef":{"kind":"Gold","name":"gold"},"resourceRef":{}}}`,
			now:    `{"spec":{"resourceRef":{}}}`,
			want:   Restored,
			patch:  `[{"op":"add","path":"/spec/classRef","value":{"kind":"Gold","name":"gold"}}]`,
		},
		"Static":   {reason: "We should leave alone a claim that is settled otherwise now.", before: bound, now: `{"spec":{"resourceRef":{}}}`, want: Settled},
		"NotBound": {reason: "We should bind nothing in an update.", before: `{"spec":{}}`, now: `{"spec":{}}`, want: NotBound},
		"BeingDeleted": {
			reason: "We should leave alone a claim that is being deleted.",
			before: bound,
			now:    `{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"}}`,
			want:   BeingDeleted,
		},
		"SpecIsText": {reason: "We should leave to the schema what is no object.", before: bound, now: `{"spec":"text"}`, want: Malformed},
		"Allowed": {
			reason: "We should do nothing where this is allowed.",
			before: bound,
			now:    `{"spec":{}}`,
			want:   UnbindAllowed,
			change: spec(`{reference: {onUnbind: Allow}}`),
		},
		"Name": {
			reason: "We should put back a string that was escaped.",
			before: `{"spec":{"classRef":"g\u006fld"}}`,
			now:    `{"spec":{}}`,
			want:   Restored,
			patch:  add("/spec/classRef", `"gold"`),
			change: spec(`{reference: {form: Name}}`),
		},
		"EmptyName": {
			reason: "We should replace an empty text that counts as none.",
			before: `{"spec":{"classRef":"gold"}}`,
			now:    `{"spec":{"classRef":""}}`,
			want:   Restored,
			patch:  add("/spec/classRef", `"gold"`),
			change: spec(`{reference: {form: Name}}`),
		},
		"Label": {
			reason: "We should put back a label, whose key has a slash.",
			before: `{"metadata":{"labels":{"example.org/class":"gold"}}}`,
			now:    `{"metadata":{"labels":{"a":"b"}}}`,
			want:   Restored,
			patch:  add("/metadata/labels/example.org~1class", `"gold"`), change: spec(`{reference: {path: "", label: "example.org/class", form: Name}}`),
		},
		"MissingFields": {
			reason: "We should put back the fields that a reference without a name lacks.",
			before: bound,
			now:    `{"spec":{"classRef":{"kind":"SQLClass","name":""}}}`,
			want:   Restored,
			patch:  `[{"op":"add","path":"/spec/classRef/apiVersion","value":"example.org/v1"},{"op":"add","path":"/spec/classRef/name","value":"gold"}]`,
		},
		"LongFields": {
			reason: "We should put back a name that is longer than what we read of a claim.",
			before: `{"spec":{"classRef":{"name":"` + strings.Repeat("a", 8<<10) + `"}}}`,
			now:    `{"spec":{"classRef":{}}}`,
			want:   Restored,
			patch:  add("/spec/classRef/name", `"`+strings.Repeat("a", 8<<10)+`"`),
		},
		"OtherKind": {reason: "We should not mix two references.", before: bound, now: `{"spec":{"classRef":{"kind":"RDSClass"}}}`, want: OtherReference},
		"WasEmpty":  {reason: "We should not take an empty reference for one.", before: `{"spec":{"classRef":{"name":""}}}`, now: `{"spec":{}}`, want: NotBound},
		"ParentWanted": {
			reason: "We should leave alone a claim without the parent, where that wants no class.",
			before: bound,
			now:    `{}`,
			want:   ParentAbsent,
			change: spec(`{reference: {whenParentAbsent: LeaveAlone}}`),
		},
		"NoSelector": {
			reason: "We should keep a claim bound that has no selector, where none would be bound without one.",
			before: bound,
			now:    `{"spec":{}}`,
			want:   Restored,
			patch:  add("/spec/classRef", gold),
			change: spec(`{selector: {whenAbsent: LeaveAlone}}`),
		},
		"Longest": {
			reason: "We should put back a reference up to the limit.",
			before: `{"spec":{"classRef":"` + strings.Repeat("a", v1beta1.MaxReferenceBytes-2) + `"}}`,
			now:    `{"spec":{}}`,
			want:   Restored,
			patch:  add("/spec/classRef", `"`+strings.Repeat("a", v1beta1.MaxReferenceBytes-2)+`"`),
		},
		"TooLong": {
			reason: "We should put back no longer one.",
			before: `{"spec":{"classRef":"` + strings.Repeat("a", v1beta1.MaxReferenceBytes-1) + `"}}`,
			now:    `{"spec":{}}`,
			want:   ReferenceTooLong,
		},
		"Default": {
			reason: "We should put back what a default of the schema took the place of, and all of it.",
			want:   Restored,
			patch:  add("/spec/classRef", gold),
			before: bound,
			now:    `{"spec":{"classRef":{"name":"default","namespace":"a"}}}`,
			change: bindDefaults,
		},
		"DefaultAlone": {
			reason: "We should not take a default of the schema for a class that we gave.",
			want:   NotBound,
			before: `{"spec":{"classRef":{"name":"default"}}}`,
			now:    `{"spec":{"classRef":{"name":"default"},"size":1}}`,
			change: bindDefaults,
		},
		"OtherThanDefault": {
			reason: "We should allow another reference.",
			want:   Settled,
			before: bound,
			now:    `{"spec":{"classRef":{"name":"silver"}}}`,
			change: bindDefaults,
		},
		"RemovedForDefault": {
			reason: "We should put back a reference where claims.when cannot be evaluated without one.",
			want:   Restored,
			patch:  add("/spec/classRef", gold),
			before: bound,
			now:    `{"spec":{}}`,
			change: bindDefaults,
		},
		"DefaultText": {
			reason: "We should replace a text that counts as none.", want: Restored, patch: add("/spec/classRef", `"gold"`),
			before: `{"spec":{"classRef":"gold"}}`, now: `{"spec":{"classRef":"default"}}`,
			change: spec(`{reference: {form: Name}, claims: {when: "!has(claim.spec.classRef) || claim.spec.classRef == 'default'"}}`),
		},
		"DefaultOfNamespace": {
			reason: "We should go by the terms that need nothing but the claim.", want: Restored, patch: add("/spec/classRef", gold),
			before: bound, now: `{"spec":{"classRef":{"name":"default"}}}`,
			change: spec(
				`{claims: {when: "claim.spec.classRef.name == 'default' && namespaceObject.metadata.labels.tenant == 'a' && request.userInfo.username == 'b'"}}`,
			),
		},
		"Delayed": {
			reason: "We should keep a claim bound whatever claims.when says of other fields.",
			want:   Restored,
			patch:  add("/spec/classRef", gold),
			before: bound,
			now:    `{"spec":{}}`,
			change: spec(`{claims: {when: "claim.spec.ready"}}`),
		},
		"Decision": {
			reason: "We should put back the annotation that says why, too.", change: spec(`{choice: {annotate: Decision}}`), want: Restored,
			before: `{"metadata":{"annotations":{"classbind.io/decision":"why"}},"spec":{"classRef":` + gold + `}}`,
			now:    `{"metadata":{"annotations":{"a":"b"}},"spec":{}}`,
			patch:  `[{"op":"add","path":"/spec/classRef","value":` + gold + `},{"op":"add","path":"/metadata/annotations/classbind.io~1decision","value":"why"}]`,
		},
		"DecisionAlone": {
			reason: "We should make the annotations that the update removes.", change: spec(`{choice: {annotate: Decision}}`), want: Restored,
			before: `{"metadata":{"annotations":{"classbind.io/decision":"why"}},"spec":{"classRef":` + gold + `}}`,
			now:    `{"spec":{"classRef":{"apiVersion":"example.org/v1","kind":"SQLClass"}}}`,
			patch:  `[{"op":"add","path":"/spec/classRef/name","value":"gold"},{"op":"add","path":"/metadata/annotations","value":{"classbind.io/decision":"why"}}]`,
		},
		"DecisionKept": {
			reason: "We should leave an annotation that the update has.",
			change: spec(`{choice: {annotate: Decision}}`),
			want:   Restored,
			patch:  add("/spec/classRef", gold),
			before: `{"metadata":{"annotations":{"classbind.io/decision":"why"}},"spec":{"classRef":` + gold + `}}`,
			now:    `{"metadata":{"annotations":{"classbind.io/decision":"edited"}},"spec":{}}`,
		},
		"NeverAnnotated": {
			reason: "We should make up no reason.",
			change: spec(`{choice: {annotate: Decision}}`),
			before: bound,
			now:    `{"spec":{}}`,
			want:   Restored,
			patch:  add("/spec/classRef", gold),
		},
		"OldIsNone":  {reason: "We should refuse a review whose old object is none.", before: `[]`, now: `{}`, isMistaken: true},
		"ThisIsNone": {reason: "We should refuse a review whose object is none.", before: `{}`, now: `1`, isMistaken: true},
		"NothingLeft": {
			reason: "We should put back a reference into an empty object.",
			before: bound,
			now:    `{"spec":null}`,
			want:   Restored,
			patch:  add("/spec", `{"classRef":`+gold+`}`),
		},
	} {
		t.Run(name, func(t *testing.T) {
			reader := readerOf()
			if tc.change != nil {
				reader = readerOf(tc.change)
			}
			got, err := reader.Restore([]byte(tc.before), []byte(tc.now))
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
			warned := got.Reason == Restored || got.Reason == ReferenceTooLong
			assert.Equal(t, warned, got.Warning(reader) != "", "We should tell the author what he may not expect, and nothing else.")
			assert.Less(t, len(got.Warning(reader)), 512, "We should be brief.")
		})
	}
}
