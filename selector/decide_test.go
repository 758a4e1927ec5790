package selector

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/selectortest"
)

// golden is a case's want.yaml.
type golden struct {
	// Reason is a sentence: We should ...
	Reason string `json:"reason"`
	// Settled and Errors say why no class is chosen for a claim.
	Settled string        `json:"settled"`
	Errors  []field.Error `json:"errors"`
	// Candidates are the classes that fresh seeds draw, sorted.
	Candidates []string `json:"candidates"`
	// Class is the one that the claim's identity draws, now and in every release
	// to come: a claim that GitOps creates again gets what it had.
	Class     string `json:"class"`
	Reference any    `json:"reference"`
	Decision  string `json:"decision"`
	Dropped   string `json:"dropped"`
	Warning   string `json:"warning"`
}

// TestChoose takes each folder of testdata as a case: a claim, the classes that exist,
// and what is wanted. The registrations are the same for all cases.
func TestChoose(t *testing.T) {
	views := registered(t)
	folders, err := filepath.Glob("testdata/*/want.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, folders)

	for _, file := range folders {
		dir := filepath.Dir(file)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			var want golden
			require.NoError(t, yaml.UnmarshalStrict(read(t, file), &want))

			object := unstructured.Unstructured{Object: documents(t, filepath.Join(dir, "claim.yaml"))[0]}
			resource, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
			kind := views[resource.GroupResource().String()]
			require.NotNil(t, kind, "claim kind %s is in testdata/registered.yaml", resource.GroupResource())
			view := kind(documents(t, filepath.Join(dir, "classes.yaml")))

			claim := view.Kind.Reader.Read(object.GetNamespace(), object.GetName(), object.Object)
			require.Len(t, claim.Problems, len(want.Errors), want.Reason)
			for i, e := range want.Errors {
				got := field.Error{Field: claim.Problems[i].Field, Type: claim.Problems[i].Type}
				assert.Equal(t, e, got, want.Reason)
			}
			assert.Equal(t, want.Settled, claim.SettledBy, want.Reason)
			if len(claim.Problems) > 0 || claim.LeftAlone != "" {
				return
			}

			got := choose(view, claim.Claim, 0)
			assert.Equal(t, want.Decision, got.Reason(), want.Reason)
			assert.Equal(t, want.Dropped, got.DroppedText(), want.Reason)
			assert.Equal(t, want.Warning, got.Warning(), want.Reason)
			assert.Equal(t, len(want.Candidates), got.Candidates, want.Reason)
			if want.Class == "" {
				assert.Nil(t, got.Class, want.Reason)
			} else {
				require.NotNil(t, got.Class, want.Reason)
				assert.Equal(t, want.Class, got.Class.String(), want.Reason)
				assert.Equal(t, want.Reference, referenceTo(view.Kind, got.Class), want.Reason)
			}
			assert.Equal(t, want.Candidates, drawn(view, claim.Claim), want.Reason)
		})
	}
}

// referenceTo a class, as claims of the kind have it.
func referenceTo(k *ClaimKind, c *inventory.Class) any {
	parts := map[string]any{}
	for i, text := range k.Reader.Reference.Written(c.Target()) {
		switch form := k.Reader.Reference.Form; {
		case text == "":
		case form.IsObject:
			parts[form.Parts[i].Field()] = text
		default:
			return text
		}
	}
	return parts
}

// TestLacks refuses a claim that would be stored without what its schema requires.
func TestLacks(t *testing.T) {
	bindLater := func(k *v1beta1.ClaimKind) { k.Spec.WhenUnmatched = v1beta1.BindLater }
	for name, tc := range map[string]struct {
		reason   string
		required []v1beta1.FieldPath
		change   func(*v1beta1.ClaimKind)
		claim    string
		mode     Mode
		want     string
		denied   bool
		warning  string
	}{
		"Reference": {
			reason:   "We should refuse a claim without a reference that is required.",
			required: []v1beta1.FieldPath{".spec", ".spec.classRef", ".spec.classRef.name"},
			claim:    "spec: {}",
			want:     ".spec.classRef",
			denied:   true,
			warning:  "mark a class default; the schema of its kind requires .spec.classRef",
		},
		"BindLater": {
			reason:   "We should not say that it will be bound.",
			required: []v1beta1.FieldPath{".spec.classRef"},
			change:   bindLater,
			claim:    "spec: {}",
			want:     ".spec.classRef",
			denied:   true,
			warning:  "mark a class default; the schema of its kind requires .spec.classRef",
		},
		"Parent": {
			reason:   "We should name the first field that is absent.",
			required: []v1beta1.FieldPath{".spec", ".spec.classRef"},
			claim:    "{}",
			want:     ".spec",
			denied:   true,
			warning:  "; the schema of its kind requires .spec",
		},
		"ParentMayLack": {
			reason:   "We should admit a claim that lacks a parent of what is required, which may lack.",
			required: []v1beta1.FieldPath{".spec.classRef"},
			claim:    "{}",
		},
		"Optional": {
			reason:   "We should admit a claim whose reference may lack.",
			required: []v1beta1.FieldPath{".spec", ".spec.classRef.name"},
			claim:    "spec: {}",
		},
		"Deny": {
			reason: "We should refuse what the registration refuses.",
			change: func(k *v1beta1.ClaimKind) { k.Spec.WhenUnmatched = v1beta1.Deny },
			claim:  "spec: {}",
			denied: true,
		},
		"Bound": {
			reason:   "We should admit a claim that gets its reference.",
			required: []v1beta1.FieldPath{".spec.classRef"},
			claim:    "spec: {classSelector: {}}",
		},
		"LeftAlone": {
			reason:   "We should not judge a claim that is not ours to bind.",
			required: []v1beta1.FieldPath{".spec.classRef"},
			claim:    "spec: {resourceRef: {}}",
		},
		"Later": {
			reason:   "We should go on with a claim that is stored without.",
			required: []v1beta1.FieldPath{".spec.classRef"},
			change:   bindLater,
			claim:    "spec: {}",
			mode:     Mode{Stored: true},
			warning:  "it will be bound when a class matches",
		},
		"Preview": {
			reason:   "We should report what becomes of a claim that waits.",
			required: []v1beta1.FieldPath{".spec", ".spec.classRef"},
			change:   bindLater,
			claim:    "spec: {}",
			mode:     Mode{Stored: true, DryRun: true},
			warning:  "it will be bound when a class matches",
		},
		"CannotBind": {reason: "We should promise nothing where late binding does not work.", change: func(k *v1beta1.ClaimKind) {
			bindLater(k)
			k.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionLateBinding, Status: metav1.ConditionFalse}}
		}, claim: "spec: {}", warning: "mark a class default"},
		"DryRun": {
			reason:   "We should refuse a dry run as well.",
			required: []v1beta1.FieldPath{".spec.classRef"},
			claim:    "spec: {}",
			mode:     Mode{DryRun: true},
			want:     ".spec.classRef",
			denied:   true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := postgres()
			if tc.change != nil {
				tc.change(k)
			}
			view := NewView(withPaths(k, PathsCheck{Required: tc.required}), []*inventory.Classes{manyClasses("as.example.org", 1, 1)})
			in := view.Kind.Reader.Read("team", "db", decode(t, tc.claim))
			d := decided(t, new(Decider), view, in, tc.mode)
			assert.Equal(t, tc.want, d.Lacks, tc.reason)
			if !tc.mode.Stored {
				e, err := new(Decider).Explain(t.Context(), view, in)
				require.NoError(t, err)
				assert.Equal(t, tc.want, e.Decision.Lacks, "We should explain the same.")
			}
			assert.Equal(t, tc.denied, d.Denied(), tc.reason)
			if tc.warning != "" {
				assert.Regexp(t, regexp.QuoteMeta(tc.warning)+"$", d.Warning(), tc.reason)
			}
		})
	}
}

func TestViewLeavesOut(t *testing.T) {
	const as, bs, cs = "as.example.org", "bs.example.org", "cs.example.org"
	for name, tc := range map[string]struct {
		reason string
		format v1beta1.ReferenceForm
		all    []string          // the class kinds that are registered, in this order
		kinds  map[string]string // where it is not Class
		want   []string          // the class kinds that are offered
		forms  string            // that would help
	}{
		"ReferenceNamesTheKind": {
			reason: "We should offer several class kinds where the reference can distinguish them",
			format: v1beta1.TypedLocalObjectReference,
			all:    []string{as, bs},
			want:   []string{as, bs},
		},
		"OneKind": {reason: "We should offer one class kind whatever the reference", format: v1beta1.Name, all: []string{as}, want: []string{as}},
		"FirstByName": {
			reason: "We should offer the class kind whose name comes first",
			format: v1beta1.Name,
			all:    []string{as, bs, cs},
			want:   []string{as},
			forms:  "ObjectReference, TypedObjectReference, TypedLocalObjectReference, GroupKindReference",
		},
		"Restored": {
			reason: "We should offer the same where a restore creates them in another order",
			format: v1beta1.LocalObjectReference,
			all:    []string{cs, bs, as},
			want:   []string{as},
			forms:  "ObjectReference, TypedObjectReference, TypedLocalObjectReference, GroupKindReference",
		},
		"KindsAlone": {
			reason: "We should offer class kinds that the Kind tells apart",
			format: v1beta1.KindReference,
			all:    []string{as, bs},
			kinds:  map[string]string{bs: "ClusterClass"},
			want:   []string{as, bs},
		},
		"SameKind": {
			reason: "We should offer the first of those with the same Kind, and all others",
			format: v1beta1.KindReference, all: []string{cs, bs, as}, kinds: map[string]string{cs: "ClusterClass"}, want: []string{as, cs},
			forms: "ObjectReference, TypedObjectReference, TypedLocalObjectReference, GroupKindReference",
		},
		"OtherKinds": {
			reason: "We should advise the Kind where that is enough",
			format: v1beta1.NamespacedReference,
			all:    []string{as, bs},
			kinds:  map[string]string{bs: "ClusterClass"},
			want:   []string{as},
			forms:  "ObjectReference, TypedObjectReference, TypedLocalObjectReference, GroupKindReference, KindReference",
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := postgres()
			k.Spec.Reference.Form = tc.format
			var all []*inventory.Classes
			for _, name := range tc.all {
				kind := newKind(name, cmp.Or(tc.kinds[name], "Class"))
				all = append(all, inventory.NewClasses(kind, []*inventory.Class{kind.NewClass(&metav1.ObjectMeta{Name: "gold"}, nil)}))
			}
			view := NewView(NewClaimKind(k), all)
			require.Nil(t, view.Fault, tc.reason)
			var got []string
			for _, classes := range view.Classes {
				got = append(got, classes.Kind.Name)
			}
			assert.Equal(t, tc.want, got, tc.reason)
			assert.Equal(t, len(tc.want), view.Len(), tc.reason)
			assert.Len(t, view.LeftOut, len(tc.all)-len(tc.want), tc.reason)
			for _, leftOut := range view.LeftOut {
				fault := view.FaultOf(leftOut.Name)
				require.NotNil(t, fault, tc.reason)
				assert.Equal(t, v1beta1.ReasonAmbiguousReference, fault.Reason)
				assert.Equal(t, fmt.Sprintf("the classes of %q are not offered to claims of %q: a reference of the form %s cannot distinguish them from "+
					"those of %q, whose name comes first: "+
					"set spec.reference.form of the ClaimKind to one that can (%s), or let one class kind serve it",
					leftOut.Name, k.Name, tc.format, tc.want[0], tc.forms), fault.Text)
			}
			assert.Nil(t, view.FaultOf(tc.want[0]), tc.reason)
		})
	}
}

// TestOptional has claims of kinds that ask for less than a class for each.
func TestOptional(t *testing.T) {
	const required = `{type: object, properties: {spec: {type: object, properties: {ref: {type: object, required: [name, major], properties: ` +
		`{name: {type: string}, major: {type: integer}}}}}}}`
	optional := spec(`{selector: {whenAbsent: DefaultIfAny}, whenUnmatched: Deny}`)
	company := spec(`{reference: {path: ".spec.ref", form: LocalObjectReference}, selector: {whenAbsent: Any}}`)
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
		"Unneeded": {reason: "We should tell nobody that a claim gets no class that it does without.", kind: optional, claim: `{spec: {}}`},
		"Selected": {
			reason:  "We should refuse a claim that asks for a class.",
			kind:    optional,
			claim:   `{spec: {classSelector: {matchLabels: {a: b}}}}`,
			denied:  true,
			warning: "matches the selector",
		},
		"Begun": {
			reason:  "We should refuse a claim that says of which kind its class is.",
			kind:    optional,
			claim:   `{spec: {classRef: {kind: B}}}`,
			denied:  true,
			warning: "no class is marked default",
		},
		"Company": {reason: "We should add the name to what only the author can give.", kind: company, claim: `{spec: {ref: {major: 16}}}`, class: "A/a"},
		"NoCompany": {
			reason:  "We should refuse a claim that lacks what only its author can give.",
			kind:    company,
			claim:   `{spec: {}}`,
			problem: "spec.ref.major: Required value: the schema requires it beside the name of a class, and only the author of the claim can give it",
		},
		"AbsentAlone": {
			reason:    "We should leave alone a claim without a reference where its kind says so.",
			kind:      begun,
			claim:     `{spec: {}}`,
			leftAlone: claim.ReferenceAbsent,
		},
		"NullAlone":    {reason: "We should take null for none.", kind: begun, claim: `{spec: {ref: null}}`, leftAlone: claim.ReferenceAbsent},
		"AbsentNeeded": {reason: "We should bind a claim that began its reference.", kind: begun, claim: `{spec: {ref: {}}}`, class: "A/a"},
	} {
		t.Run(name, func(t *testing.T) {
			kind := kindOf(tc.kind)
			if kind.Reader.Reference.Path.String() == "spec.ref" {
				kind.SetPaths(CheckPaths(kind, schemaOfCRD(t, required)))
			}
			classes := newKind("as.example.org", "A")
			d, err := new(Decider).Decide(t.Context(), NewView(kind, []*inventory.Classes{
				inventory.NewClasses(classes, []*inventory.Class{{Kind: classes, Name: "a", Weight: 1}}),
			}),
				kind.Reader.Read("team", "db", decode(t, tc.claim)), Mode{})
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

// TestPrecedence has two class kinds whose classes a reference cannot distinguish.
func TestPrecedence(t *testing.T) {
	local, shared := newKind("zlocals.example.org", "Local"), newKind("ashared.example.org", "Shared")
	local.Namespaced = true
	in := func(kind *inventory.ClassKind, namespace, name string) *inventory.Class {
		return &inventory.Class{Kind: kind, Namespace: namespace, Name: name, Weight: 1}
	}
	for name, tc := range map[string]struct {
		reason string
		listed bool
		kinds  []string // the listed ones, if not both
		form   v1beta1.ReferenceForm
		locals []*inventory.Class
		unread []UnreadKind
		want   []string
	}{
		"ByName": {
			reason: "We should offer the classes of one kind where nobody says more.",
			locals: []*inventory.Class{in(local, "team", "b")},
			want:   []string{"Shared/a"},
		},
		"Listed": {
			reason: "We should offer the classes of all kinds that are listed.",
			listed: true,
			locals: []*inventory.Class{in(local, "team", "b")},
			want:   []string{"Local/team/b", "Shared/a"},
		},
		"Shadowed": {
			reason: "We should not offer a class whose name means another.",
			listed: true,
			locals: []*inventory.Class{in(local, "team", "a")},
			want:   []string{"Local/team/a"},
		},
		"Elsewhere": {
			reason: "We should offer it to claims for which the name means nothing else.",
			listed: true,
			locals: []*inventory.Class{in(local, "other", "a")},
			want:   []string{"Shared/a"},
		},
		"Unread": {reason: "We should not offer it while nobody knows what the name means.", listed: true, unread: []UnreadKind{{Name: local.Name}}},
		"NotListed": {
			reason: "We should take a kind that is not listed for the last.",
			listed: true,
			kinds:  []string{local.Name},
			unread: []UnreadKind{{Name: local.Name}},
		},
		"KindNamed": {
			reason: "We should not wait for a kind that the reference does not name.",
			listed: true,
			form:   v1beta1.KindReference,
			unread: []UnreadKind{{Name: local.Name}},
			want:   []string{"Shared/a"},
		},
		"SameKindNamed": {
			reason: "We should wait for a kind that may have the same Kind in another group.",
			listed: true,
			form:   v1beta1.KindReference,
			kinds:  []string{"ashared.other.org", shared.Name},
			unread: []UnreadKind{{Name: "ashared.other.org"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			kind := kindOf(func(s *v1beta1.ClaimKindSpec) {
				s.Reference.Form, s.Selector.WhenAbsent = cmp.Or(tc.form, v1beta1.LocalObjectReference), v1beta1.NoSelectorAny
				s.Classes.Kinds = []v1beta1.ClassKindLink{{Name: local.Name}, {Name: shared.Name}}
				if tc.kinds != nil {
					s.Classes.Kinds = nil
					for _, kind := range tc.kinds {
						s.Classes.Kinds = append(s.Classes.Kinds, v1beta1.ClassKindLink{Name: kind})
					}
				}
				if tc.listed {
					s.Classes.Precedence = v1beta1.PrecedenceListed
				}
			})
			all := []*inventory.Classes{inventory.NewClasses(shared, []*inventory.Class{in(shared, "", "a")})}
			if tc.unread == nil {
				all = append(all, inventory.NewClasses(local, tc.locals))
			}
			view := NewView(kind, all)
			view.Unread = tc.unread
			e, err := new(Decider).Explain(t.Context(), view, kind.Reader.Read("team", "db", decode(t, `{spec: {}}`)))
			require.NoError(t, err)
			var got []string
			for _, c := range e.Candidates {
				got = append(got, c.Class.String())
			}
			assert.ElementsMatch(t, tc.want, got, tc.reason)
			if tc.listed && tc.form == "" {
				named := map[string]any{"spec": map[string]any{"classRef": map[string]any{"name": "a"}}}
				class, _ := kind.Demand.ClassOf(all, "team", named)
				want := in(shared, "", "a").String()
				if name == "Shadowed" {
					want = "Local/team/a"
				}
				assert.Equal(t, want, class.String(), "We should find the class that a name means.")
			}
		})
	}
}

// TestDecisionAnnotation applies what annotates a claim with the library that the API server uses.
func TestDecisionAnnotation(t *testing.T) {
	const record = `{\"reason\":\"AnyClass\",\"class\":\"Class/a\",\"strategy\":\"WeightedRandom\",\"candidates\":1}`
	inAnnotation := spec(`{reference: {path: "", annotation: example.org/class, form: Name}}`)
	inSpec := spec(`{reference: {path: .spec.class, form: Name}}`)
	for name, tc := range map[string]struct {
		reason    string
		reference func(*v1beta1.ClaimKindSpec)
		annotate  v1beta1.Annotate
		object    string
		want      string
	}{
		"None": {"We should annotate no claim unless its kind says so.", inSpec, v1beta1.AnnotateNothing, `{"spec":{}}`, `{"spec":{"class":"a"}}`},
		"First": {
			"We should make the annotations.", inSpec, v1beta1.AnnotateDecision, `{"metadata":{},"spec":{}}`,
			`{"metadata":{"annotations":{"classbind.io/decision":"` + record + `"}},"spec":{"class":"a"}}`,
		},
		"Null": {
			"We should take null for none.", inSpec, v1beta1.AnnotateDecision, `{"metadata":{"annotations":null}}`,
			`{"metadata":{"annotations":{"classbind.io/decision":"` + record + `"}},"spec":{"class":"a"}}`,
		},
		"Others": {
			"We should keep the others.", inSpec, v1beta1.AnnotateDecision, `{"metadata":{"annotations":{"a":"b"}}}`,
			`{"metadata":{"annotations":{"a":"b","classbind.io/decision":"` + record + `"}},"spec":{"class":"a"}}`,
		},
		"Forged": {
			"We should replace what an author made up.", inSpec, v1beta1.AnnotateDecision,
			`{"metadata":{"annotations":{"classbind.io/decision":"x"}}}`,
			`{"metadata":{"annotations":{"classbind.io/decision":"` + record + `"}},"spec":{"class":"a"}}`,
		},
		"InAnnotation": {
			"We should keep a reference that is an annotation.", inAnnotation, v1beta1.AnnotateDecision, `{"metadata":{}}`,
			`{"metadata":{"annotations":{"example.org/class":"a","classbind.io/decision":"` + record + `"}}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			kind := kindOf(tc.reference, func(s *v1beta1.ClaimKindSpec) {
				s.Selector.WhenAbsent, s.Choice.Annotate = v1beta1.NoSelectorAny, tc.annotate
			})
			classes := inventory.NewClassKind(&v1beta1.ClassKind{}, schema.GroupVersionKind{Kind: "Class"}, false)
			view := NewView(kind, []*inventory.Classes{inventory.NewClasses(classes, []*inventory.Class{{Kind: classes, Name: "a", Weight: 1}})})
			object, err := kind.Reader.DecodeValid([]byte(tc.object))
			require.NoError(t, err)
			at, patches := time.Date(2026, 1, 2, 4, 4, 5, 6, time.FixedZone("", 3600)), map[string]bool{}
			d := Decision{}
			for _, mode := range []Mode{{DryRun: true}, {}} {
				d = decided(t, &Decider{Now: func() time.Time { at = at.Add(time.Hour); return at }}, view, kind.Reader.Read("", "mine", object), mode)
				patches[string(d.Patch())] = true
			}
			assert.Len(t, patches, 1, "A tool that compares a dry run with the result should find no difference.")
			patch, err := jsonpatch.DecodePatch(d.Patch())
			require.NoError(t, err)
			patched, err := patch.Apply([]byte(tc.object))
			require.NoError(t, err, tc.reason)
			assert.JSONEq(t, tc.want, string(patched), tc.reason)
		})
	}
}

func TestWarningNamesTheAnnotation(t *testing.T) {
	view := NewView(kindOf(spec(`{selector: {annotation: "example.org/selector"}}`)), []*inventory.Classes{
		inventory.NewClasses(newKind("as.example.org", "A"), nil),
	})
	d := choose(view, claim.Claim{Name: "db"}, 0)
	assert.Contains(t, d.Warning(), "the annotation example.org/selector", "We should tell the author to use that annotation.")
}

// registered returns, for each claim kind of testdata/registered.yaml, a function that makes a view of classes.
func registered(t *testing.T) map[string]func(classes []map[string]any) *View {
	t.Helper()
	served := map[string]struct { // by the API server
		schema.GroupVersionKind
		namespaced bool
	}{
		"cloudsqlinstanceclasses.database.gcp.crossplane.io": {
			schema.GroupVersionKind{Group: "database.gcp.crossplane.io", Version: "v1alpha1", Kind: "CloudSQLInstanceClass"}, false,
		},
		"rdsinstanceclasses.database.aws.crossplane.io": {
			schema.GroupVersionKind{Group: "database.aws.crossplane.io", Version: "v1alpha1", Kind: "RDSInstanceClass"}, false,
		},
		"databaseclasses.example.org":   {schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "DatabaseClass"}, true},
		"queueclasses.example.org":      {schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "QueueClass"}, true},
		"storageclasses.storage.k8s.io": {schema.GroupVersionKind{Group: "storage.k8s.io", Version: "v1", Kind: "StorageClass"}, false},
	}
	var classKinds []*inventory.ClassKind
	views := map[string]func([]map[string]any) *View{}
	for _, registration := range documents(t, "testdata/registered.yaml") {
		text, err := json.Marshal(registration)
		require.NoError(t, err)
		switch registration["kind"] {
		case "ClassKind":
			k := &v1beta1.ClassKind{Spec: crossplaneClassKind()}
			require.NoError(t, yaml.UnmarshalStrict(text, k))
			gvk := served[k.Name]
			require.NotEmpty(t, gvk.Kind, k.Name)
			classKinds = append(classKinds, inventory.NewClassKind(k, gvk.GroupVersionKind, gvk.namespaced))
		case "ClaimKind":
			k := postgres()
			require.NoError(t, yaml.UnmarshalStrict(text, k))
			views[k.Name] = func(objects []map[string]any) *View {
				var offered []*inventory.Classes
				for _, ck := range classKinds {
					if !slices.Contains(ck.ClaimKinds, k.Name) {
						continue
					}
					var classes []*inventory.Class
					for _, o := range objects {
						if u := (&unstructured.Unstructured{Object: o}); u.GroupVersionKind() == ck.GroupVersionKind {
							classes = append(classes, ck.NewClass(u, o))
						}
					}
					offered = append(offered, inventory.NewClasses(ck, classes))
				}
				return NewView(NewClaimKind(k), offered)
			}
		}
	}
	return views
}

// drawn returns the classes that a claim like this one can get.
func drawn(view *View, claim claim.Claim) []string {
	claim.Name = "" // generated, so that the seed is fresh
	seen := map[*inventory.Class]bool{}
	var classes []*inventory.Class
	for seed := range uint64(1000) {
		if c := choose(view, claim, seed).Class; c != nil && !seen[c] {
			seen[c] = true
			classes = append(classes, c)
		}
	}
	return names(classes)
}

// nameOf a class, empty for none.
func nameOf(c *inventory.Class) string {
	if c == nil {
		return ""
	}
	return c.String()
}

func names(classes []*inventory.Class) []string {
	var all []string
	for _, c := range classes {
		all = append(all, c.String())
	}
	slices.Sort(all)
	return all
}

// encoded is a reference as the claim's author sees it.
// documents of a YAML file, as the webhook would decode them.
func documents(t *testing.T, file string) []map[string]any {
	t.Helper()
	var objects []map[string]any
	for text := range bytes.SplitSeq(read(t, file), []byte("\n---\n")) {
		if o := decode(t, string(text)); len(o) > 0 {
			objects = append(objects, o)
		}
	}
	return objects
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	content, err := os.ReadFile(file) //nolint:gosec // The tests name the files.
	require.NoError(t, err)
	return content
}

// choose a class for a claim, without any effect.
func choose(view *View, claim claim.Claim, fresh uint64) Decision {
	return mustDecide(view, claim, fresh, time.Time{}, Mode{DryRun: true})
}

func decide(view *View, claim claim.Claim, fresh uint64, now time.Time) Decision {
	return mustDecide(view, claim, fresh, now, Mode{})
}

// withFacts decides as Decide does, without waiting, and returns what expressions say, too.
func withFacts(t *testing.T, view *View, in claim.Intake, mode Mode) (Decision, *facts) {
	t.Helper()
	d := new(Decider)
	out := &outside{decider: d}
	decision, facts, err := d.resolve(t.Context(), out, view, in, mode)
	require.NoError(t, err)
	if decision.Drawn() {
		require.NoError(t, d.draw(t.Context(), out, &decision, facts, mode))
	}
	return decision, facts
}

func mustDecide(view *View, c claim.Claim, fresh uint64, now time.Time, mode Mode) Decision {
	d := Decider{Fresh: func() uint64 { return fresh }, Now: func() time.Time { return now }}
	decision, err := d.Decide(context.Background(), view, claim.Intake{Claim: c}, mode)
	if err != nil {
		panic(err)
	}
	return decision
}

// decided is a decision without an error.
func decided(t *testing.T, d *Decider, view *View, in claim.Intake, mode Mode) Decision {
	t.Helper()
	decision, err := d.Decide(t.Context(), view, in, mode)
	require.NoError(t, err)
	return decision
}

func explain(view *View, c claim.Claim, fresh uint64) Explanation {
	d := Decider{Fresh: func() uint64 { return fresh }}
	e, err := d.Explain(context.Background(), view, claim.Intake{Claim: c})
	if err != nil {
		panic(err)
	}
	return e
}

const (
	maxWeight = 1_000_000

	defaultAnnotation = "resourceclass.crossplane.io/is-default-class"
	weightAnnotation  = "resourceclass.crossplane.io/weight"
)

// newKind is a cluster-scoped ClassKind with the CRD's defaults.
func newKind(name, kind string, claimKinds ...string) *inventory.ClassKind {
	k := &v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: crossplaneClassKind()}
	for _, name := range claimKinds {
		k.Spec.ClaimKinds = append(k.Spec.ClaimKinds, v1beta1.ClaimKindLink{Name: name})
	}
	return inventory.NewClassKind(k, schema.ParseGroupResource(name).WithVersion("v1").GroupVersion().WithKind(kind), false)
}

// crossplaneClassKind is the CRD's defaults.
func crossplaneClassKind() v1beta1.ClassKindSpec {
	return v1beta1.ClassKindSpec{
		Default: v1beta1.Source{Annotation: defaultAnnotation},
		Weight:  v1beta1.Source{Annotation: weightAnnotation},
	}
}

var (
	someKeys   = []string{"a", "b", "c", "d"}
	someValues = []string{"", "1", "2", "3", "x"}
)

func randomLabels(random *rand.Rand) labels.Set {
	set := labels.Set{}
	for _, key := range someKeys {
		if random.IntN(3) > 0 {
			set[key] = someValues[random.IntN(len(someValues))]
		}
	}
	return set
}

// What the engine's tests share with those of its parts.
var (
	postgres, decode  = selectortest.ClaimKind, selectortest.Decode
	spec, specs, fits = selectortest.Spec, selectortest.Specs, selectortest.Fits
)

// kindOf claims whose registration differs from the CRD's defaults.
func kindOf(changes ...func(*v1beta1.ClaimKindSpec)) *ClaimKind {
	return NewClaimKind(postgres(changes...))
}
