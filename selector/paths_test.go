package selector

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/openapi"
)

const (
	aText      = `{type: string}`
	aReference = `{type: object, properties: {apiVersion: {type: string}, kind: {type: string}, name: {type: string}, namespace: {type: string}}}`
	aSelector  = `{type: object, properties: {matchLabels: {type: object, additionalProperties: {type: string}}, matchExpressions: {type: ` +
		`array, items: {type: object}}}}`
	anything = `{type: object, x-kubernetes-preserve-unknown-fields: true}`
)

// specOf makes the schema of a spec from fields, each NAME: SCHEMA.
func specOf(fields ...string) string {
	return fmt.Sprintf("{type: object, properties: {spec: {type: object, properties: {%s}}}}", strings.Join(fields, ", "))
}

// texts is a reference that has these texts.
func texts(names ...string) string {
	return "classRef: {type: object, properties: {" + strings.Join(names, ": "+aText+", ") + ": " + aText + "}}"
}

func schemaOfCRD(t *testing.T, root string) *openapi.Schema {
	t.Helper()
	crd, err := yaml.YAMLToJSON([]byte("spec: {versions: [{name: v1alpha1}, {name: v1, schema: {openAPIV3Schema: " + root + "}}]}"))
	require.NoError(t, err)
	s, err := openapi.OfCRD(crd, "v1")
	require.NoError(t, err)
	return s
}

func TestCheckPaths(t *testing.T) {
	cluster, namespaced := newKind("as.example.org", "A"), newKind("bs.example.org", "B")
	namespaced.Namespaced = true
	selectable := "classSelector: " + aSelector
	const whole, part = "the reference to its class", "fields of the reference to its class"
	fits := specOf("classRef: "+aReference, selectable)
	for name, tc := range map[string]struct {
		reason               string
		schema               string
		path, selector, skip v1beta1.FieldPath // where they are not the defaults
		place                v1beta1.Place
		form                 v1beta1.ReferenceForm
		from                 v1beta1.ClassNamespacesFrom
		kinds                []*inventory.ClassKind
		problem              string
		pruned               string
		refused              bool
		all                  bool // class kinds are
		remedy               string
		unknown              string
		absent               []string
	}{
		"Fits": {reason: "We should find nothing wrong with what is there", schema: fits},
		"ReferenceMistyped": {
			reason:  "We should see that a reference would be removed for a typing error in its path",
			schema:  fits,
			path:    ".spec.clasRef",
			problem: "reference.path: the schema has no field .spec.clasRef (did you mean .spec.classRef?)",
			pruned:  whole,
		},
		"ParentMistyped": {
			reason:  "We should name the field that is missing, not what would be below it",
			schema:  fits,
			path:    ".sepc.classRef.of",
			problem: "reference.path: the schema has no field .sepc (did you mean .spec?)",
			pruned:  whole,
		},
		"NoSpec": {
			reason:  "We should see that a CRD without fields keeps none",
			schema:  "{type: object}",
			problem: "reference.path: the schema has no field .spec",
			pruned:  whole,
			absent:  []string{".spec.classSelector"},
		},
		"NameLost": {
			reason:  "We should see that a reference would keep all but the name",
			schema:  specOf(texts("apiVersion", "kind", "id"), selectable),
			problem: "reference.form ObjectReference: the schema has no field .spec.classRef.name",
			pruned:  part,
		},
		"KindLost": {
			reason: "We should bind no claim whose reference loses its kind, though it is clear where there is one class kind",
			schema: specOf(texts("apiVersion", "name"), selectable), kinds: []*inventory.ClassKind{cluster},
			problem: "reference.form ObjectReference: the schema has no field .spec.classRef.kind",
			pruned:  part,
			remedy:  "set spec.reference.form to LocalObjectReference",
		},
		"KindAndNamespaceLost": {
			reason: "We should name all that would be removed",
			schema: specOf(texts("apiVersion", "name"), selectable),
			kinds:  []*inventory.ClassKind{cluster, namespaced},
			problem: "reference.form ObjectReference: the schema has no field .spec.classRef.kind; reference.form ObjectReference: the schema has no " +
				"field .spec.classRef.namespace",
			pruned: part,
			from:   v1beta1.FromAll, remedy: "correct spec.reference.path and spec.reference.form, or the schema, or set spec.classes.namespaces.from to SameAsClaim",
		},
		"NamespaceNotWritten": {
			reason: "We should not miss the namespace of classes that have none",
			schema: specOf(texts("apiVersion", "kind", "name"), selectable),
			kinds:  []*inventory.ClassKind{cluster},
		},
		"NamespaceLost": {
			reason: "We should bind no claim to a class of a namespace that its reference does not tell",
			schema: specOf(texts("apiVersion", "kind", "name"), selectable),
			from:   v1beta1.FromAll, problem: "reference.form ObjectReference: the schema has no field .spec.classRef.namespace", pruned: part,
			remedy: "correct spec.reference.path and spec.reference.form, or the schema, or set spec.classes.namespaces.from to SameAsClaim",
		},
		"OwnNamespaceLost": {
			reason: "We should bind a claim to a class of its own namespace, which is the one that is meant",
			schema: specOf(texts("apiVersion", "kind", "name"), selectable),
			kinds:  []*inventory.ClassKind{namespaced},
		},
		"FieldRequired": {
			reason: "We should see that the API server would refuse a reference for a field that no form has",
			schema: specOf("classRef: {type: object, required: [group, kind, name, scope], properties: {apiVersion: "+aText+", kind: "+aText+", name: "+aText+
				", namespace: "+aText+", group: "+aText+", scope: {type: string, default: all}}}", selectable),
			problem: "reference.form ObjectReference: the schema requires .spec.classRef.group, which the reference does not have",
			remedy:  "set spec.reference.form to GroupKindReference",
		},
		"NamespaceRequired": {
			reason: "We should see which class kind has no namespace that the reference could tell",
			schema: specOf(
				"classRef: {type: object, required: [name, namespace], properties: {apiVersion: "+aText+", kind: "+aText+", name: "+aText+", namespace: "+aText+"}}",
				selectable,
			),
			kinds:   []*inventory.ClassKind{cluster, namespaced},
			problem: `reference.form ObjectReference: the schema requires .spec.classRef.namespace, which the reference to a class of "as.example.org" does not have`,
			refused: true,
		},
		"KindNotAllowed": {
			reason: "We should see which values the API server would refuse",
			schema: specOf("classRef: {type: object, properties: {apiVersion: {type: string, pattern: ^other}, kind: {type: string, enum: [B, 7]}, "+
				"name: {type: string, pattern: ^no}, namespace: {type: string, pattern: '('}}}", selectable),
			kinds: []*inventory.ClassKind{cluster, namespaced},
			problem: `reference.form ObjectReference: the schema does not allow "example.org/v1" in .spec.classRef.apiVersion; reference.form ` +
				`ObjectReference: the schema does not allow "A" in .spec.classRef.kind`,
			refused: true,
			all:     true,
		},
		"NameRequired": {
			reason: "We should find nothing wrong with what the form writes",
			schema: specOf("classRef: {type: object, required: [name], properties: {name: {type: string, pattern: ^no}}}", selectable),
			kinds:  []*inventory.ClassKind{cluster},
			form:   v1beta1.LocalObjectReference,
		},
		"NamePattern": {
			reason: "We should not hold against a name what is not known of it",
			kinds:  []*inventory.ClassKind{cluster},
			schema: specOf("className: {type: string, pattern: ^no}", selectable),
			form:   v1beta1.Name,
			path:   ".spec.className",
		},
		"TextForAnObject": {
			reason: "We should see that the API server would refuse an object, which is not to remove it",
			schema: specOf("classRef: "+aText, selectable), problem: "reference.form ObjectReference: must be of type object, and is of type string: .spec.classRef",
			remedy: "set spec.reference.form to Name",
		},
		"ObjectForAName": {
			reason:  "We should see that the API server would refuse a text",
			schema:  fits,
			form:    v1beta1.Name,
			problem: "reference.form Name: must be of type string, and is of type object: .spec.classRef",
			remedy:  "set spec.reference.form to ObjectReference",
		},
		"Name": {reason: "We should take a text for a name", schema: specOf("className: "+aText, selectable), form: v1beta1.Name, path: ".spec.className"},
		"ListOnTheWay": {
			reason: "We should say that a path leads through a list",
			schema: specOf("listeners: {type: array, items: {type: object, properties: {classRef: "+aReference+"}}}", selectable),
			path:   ".spec.listeners.classRef", problem: "reference.path: a path cannot lead through a list, such as .spec.listeners",
		},
		"ListOnTheWayOfSkipIfSet": {
			reason: "We should look at every path",
			schema: specOf("classRef: "+aReference, selectable, "listeners: {type: array, items: {type: object, properties: {name: "+aText+"}}}"),
			skip:   ".spec.listeners.name", problem: "claims.skipIfSet: a path cannot lead through a list, such as .spec.listeners",
		},
		"ListOfReferences": {
			reason:  "We should not take a list of references for one",
			schema:  specOf("classRefs: {type: array, items: "+aReference+"}", selectable),
			path:    ".spec.classRefs",
			problem: "reference.form ObjectReference: a path cannot lead through a list, such as .spec.classRefs", remedy: correctReference,
		},
		"NumberInAReference": {
			reason:  "We should see that the API server would refuse a text in a field of the form",
			schema:  specOf("classRef: {type: object, properties: {apiVersion: "+aText+", kind: "+aText+", name: {type: integer}, namespace: "+aText+"}}", selectable),
			problem: "reference.form ObjectReference: must be of type string, and is of type integer: .spec.classRef.name", remedy: correctReference,
		},
		"ExternalSecret": {
			reason:  "We should bind no claim whose reference loses group and namespace, and say which form fits",
			schema:  specOf("secretStoreRef: {type: object, properties: {kind: {type: string, enum: [A, ClusterA]}, name: "+aText+"}}", selectable),
			path:    ".spec.secretStoreRef",
			problem: "reference.form ObjectReference: the schema has no field .spec.secretStoreRef.apiVersion",
			pruned:  part,
			remedy:  "set spec.reference.form to KindReference",
		},
		"Label": {
			reason: "We should ask no schema for a label",
			schema: specOf(selectable),
			place:  v1beta1.Place{Label: "example.org/queue"},
			form:   v1beta1.Name,
		},
		"LabelOfAnotherForm": {
			reason:  "We should see that a label is no object",
			schema:  specOf(selectable),
			place:   v1beta1.Place{Annotation: "example.org/queue"},
			problem: "reference.form ObjectReference: a label or an annotation is a string: set spec.reference.form to Name",
		},
		"Preserved": {
			reason:  "We should not know of what may be anything",
			schema:  anything,
			unknown: "reference.path: the schema does not say what may be in .spec",
		},
		"PreservedReference": {
			reason:  "We should not know of a reference that may be anything",
			schema:  specOf("classRef: "+anything, selectable),
			unknown: "reference.form ObjectReference: the schema does not say what may be in .spec.classRef.apiVersion",
		},
		"PreservedAround": {
			reason:  "We should know a field that is described among others that are not",
			schema:  "{type: object, x-kubernetes-preserve-unknown-fields: true, properties: {spec: {type: object, properties: {classSelector: " + aSelector + "}}}}",
			problem: "reference.path: the schema has no field .spec.classRef", pruned: whole,
		},
		"AnyKey": {
			reason: "We should find a field in a map", schema: "{type: object, properties: {spec: {type: object, additionalProperties: " + aText + "}}}",
			form:     v1beta1.Name,
			path:     ".spec.class",
			selector: ".metadata.selector",
			unknown:  "selector.path: the schema does not say what may be in .metadata.selector.matchLabels",
		},
		"SelectorMistyped": {
			reason:   "We should see that no claim would keep its selector",
			schema:   fits,
			selector: ".spec.classselector",
			problem:  "selector.path: the schema has no field .spec.classselector (did you mean .spec.classSelector?)",
		},
		"NoSelectorField": {
			reason: "We should not ask for the field that is read by default: any claim has the annotation",
			schema: specOf("classRef: " + aReference),
			absent: []string{".spec.classSelector"},
		},
		"SelectorIsAText": {
			reason:  "We should see that no claim could have a selector",
			schema:  specOf("classRef: "+aReference, "classSelector: "+aText),
			problem: "selector.path: must be of type object, and is of type string: .spec.classSelector",
		},
		"SelectorOfLabelsAlone": {
			reason: "We should be content with one kind of requirements",
			schema: specOf("classRef: "+aReference, "classSelector: {type: object, properties: {matchLabels: {type: object, additionalProperties: "+aText+"}}}"),
		},
		"SelectorOfExpressionsAlone": {
			reason: "We should be content with the other kind",
			schema: specOf("classRef: "+aReference, "classSelector: {type: object, properties: {matchExpressions: {type: array}}}"),
		},
		"SelectorOfNothing": {
			reason:  "We should see that no claim would keep what it asks for",
			schema:  specOf("classRef: "+aReference, "classSelector: {type: object, properties: {labels: {type: object}}}"),
			problem: "selector.path: the schema has no field .spec.classSelector.matchLabels",
		},
		"ExpressionsAreNoList": {
			reason:  "We should look at both kinds of requirements",
			schema:  specOf("classRef: "+aReference, "classSelector: {type: object, properties: {matchLabels: {type: object}, matchExpressions: {type: object}}}"),
			problem: "selector.path: must be of type array, and is of type object: .spec.classSelector.matchExpressions",
		},
		"SkipMistyped": {
			reason:  "We should see that no claim would ever be skipped",
			schema:  fits,
			skip:    ".spec.volumname",
			problem: "claims.skipIfSet: the schema has no field .spec.volumname",
		},
		"SkipByMetadata": {
			reason: "We should not look for metadata in a CRD: the API server knows it",
			schema: "{type: object, properties: {metadata: {type: object}, spec: {type: object, properties: {classRef: " + aReference + "}}}}",
			absent: []string{".spec.classSelector"},
			skip:   ".metadata.labels.skip",
		},
		"Embedded": {
			reason:  "We should not look for metadata in an object within a claim",
			schema:  specOf("template: {type: object, x-kubernetes-embedded-resource: true, properties: {metadata: {type: object}}}", "classRef: "+aReference),
			skip:    ".spec.template.metadata.name",
			unknown: "claims.skipIfSet: the schema does not say what may be in .spec.template.metadata",
			absent:  []string{".spec.classSelector"},
		},
		"SkipByDefault": {
			reason: "We should not ask for the field by which claims are skipped by default",
			schema: fits,
			skip:   ".spec.resourceRef",
			absent: []string{".spec.resourceRef"},
		},
		"NotASchema": {
			reason:  "We should not know where a vendor wrote something else",
			schema:  specOf("classRef: {type: [object, string]}", selectable),
			unknown: "reference.path: the schema does not say what may be in .spec.classRef",
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := &v1beta1.ClaimKind{ObjectMeta: metav1.ObjectMeta{Name: "claims.example.org"}, Spec: v1beta1.ClaimKindSpec{
				Reference: v1beta1.Reference{Place: cmp.Or(tc.place, v1beta1.Place{Path: cmp.Or(tc.path, ".spec.classRef")}), Form: tc.form},
				Selector:  v1beta1.ClassSelector{Path: cmp.Or(tc.selector, ".spec.classSelector")},
				Classes:   v1beta1.Classes{Namespaces: v1beta1.ClassNamespaces{From: cmp.Or(tc.from, v1beta1.FromSameAsClaim)}},
			}}
			if tc.skip != "" {
				k.Spec.Claims.SkipIfSet = []v1beta1.Place{{Path: tc.skip}}
			}
			var classes []*inventory.Classes
			for _, kind := range tc.kinds {
				classes = append(classes, inventory.NewClasses(kind, nil))
			}
			view := NewView(NewClaimKind(k), classes)
			check := CheckPaths(view.Kind, schemaOfCRD(t, tc.schema))
			reason, problem := view.PathsProblem(check)
			want, wantText := "", ""
			switch {
			case tc.refused:
				reasons := map[bool]string{false: v1beta1.ReasonReferenceRefused, true: v1beta1.ReasonAllReferencesRefused}
				want, wantText = reasons[tc.all], tc.problem+": the API server refuses claims with such a reference"
			case tc.pruned != "":
				want = v1beta1.ReasonReferencePruned
				wantText = "no claim is bound, because the API server would remove " + tc.pruned + ": " + tc.problem + ": " + cmp.Or(tc.remedy, correctReference)
			case tc.problem != "":
				want = v1beta1.ReasonPathsInvalid
				wantText = "no claim is bound: " + tc.problem + ": " + cmp.Or(tc.remedy, "correct the ClaimKind, or the schema")
			}
			assert.Equal(t, want, reason, tc.reason)
			assert.Equal(t, wantText, problem, tc.reason)
			assert.Equal(t, tc.unknown, check.Unknown, tc.reason)
			assert.Equal(t, tc.absent, check.Absent, tc.reason)
		})
	}
}

// TestImmutable has rules of a schema that refuse a reference which is added to a stored claim, and others that do not.
func TestImmutable(t *testing.T) {
	const with = "{type: object, x-kubernetes-validations: [{rule: %q, message: closed}], properties: {spec: {type: object, " +
		"x-kubernetes-validations: [{rule: %q}, {rule: %q, message: %q}], " +
		"properties: {classRef: {type: object, x-kubernetes-validations: [{rule: %q}], properties: {name: {type: string}}}, classSelector: " + aSelector + "}}}}"
	const other = "self.size > 0"
	for name, tc := range map[string]struct {
		reason                string
		root, spec, reference string
		want                  string
	}{
		"None":      {"We should promise what nothing refuses.", other, other, other, ""},
		"Spec":      {"We should know that the spec may not change.", other, "self == oldSelf", other, ".spec: may not"},
		"Turned":    {"We should know it in either order.", other, " oldSelf==self", other, ".spec: may not"},
		"Root":      {"We should know that the claim may not change.", "self == oldSelf", other, other, ".: closed"},
		"SpecOfAll": {"We should know a rule of what is above.", "self.spec == oldSelf.spec", other, other, ".: closed"},
		"COSI":      {"We should know a rule against a field that is added.", other, "has(oldSelf.classRef) == has(self.classRef)", other, ".spec: may not"},
		"Other":     {"We should not take a rule for another field for one.", other, "has(oldSelf.size) == has(self.size)", other, ""},
		"Once":      {"We should write what may be written once.", other, "!has(oldSelf.classRef) || has(self.classRef)", other, ""},
		"Reference": {"We should know that a rule of a field does not apply until there is one.", other, other, "self == oldSelf", ""},
	} {
		t.Run(name, func(t *testing.T) {
			k := postgres()
			k.Spec.WhenUnmatched, k.Spec.Reference.Form = v1beta1.BindLater, v1beta1.LocalObjectReference
			kind := NewClaimKind(k)
			check := CheckPaths(kind, schemaOfCRD(t, fmt.Sprintf(with, tc.root, other, tc.spec, "may not", tc.reference)))
			assert.Equal(t, tc.want, check.Immutable, tc.reason)
			kind.SetPaths(check)
			view := NewView(kind, nil)
			d := decided(t, new(Decider), view, kind.Reader.Read("default", "claim", map[string]any{"spec": map[string]any{"classSelector": map[string]any{}}}), Mode{})
			warning := d.Warning()
			assert.Equal(t, tc.want == "", strings.Contains(warning, "it will be bound when a class matches"), "%s: %s", tc.reason, warning)
			assert.Equal(t, tc.want != "", strings.Contains(
				warning, "; it cannot be bound later, because the schema refuses that ("+tc.want+"): create it again",
			), "%s: %s", tc.reason, warning)
		})
	}
}

// TestRefusedIsShort however much a vendor requires.
func TestRefusedIsShort(t *testing.T) {
	fields := make([]string, 1000)
	for i := range fields {
		fields[i] = fmt.Sprintf("f%d%s", i, strings.Repeat("x", 1000))
	}
	view := NewView(kindOf(spec(`{reference: {whenEmpty: LeaveAlone}}`)), nil)
	check := CheckPaths(view.Kind, schemaOfCRD(
		t, specOf("classRef: {type: object, required: ["+strings.Join(fields, ", ")+"], x-kubernetes-preserve-unknown-fields: true}"),
	))
	_, problem := view.PathsProblem(check)
	assert.Equal(t, v1beta1.MaxErrors, strings.Count(problem, "the schema requires .spec.classRef.f"))
	assert.Less(t, len(problem), 3000)
}

// TestVersions prune by the version that is stored, which need not be the one that registrations are written for.
func TestVersions(t *testing.T) {
	const with, without = `{type: object, properties: {spec: {type: object, properties: {classRef: ` + aReference + `, classSelector: ` + aSelector + `}}}}`,
		`{type: object, properties: {spec: {type: object, properties: {classSelector: ` + aSelector + `}}}}`
	noKind := strings.Replace(with, "kind: {type: string}, ", "", 1)
	for name, tc := range map[string]struct {
		reason, preferred, stored, conversion string
		wantReason, wantText                  string
	}{
		"Kept": {
			"We should look at the version that the registration is written for.",
			without, with, "None", v1beta1.ReasonPathsInvalid, "reference.path: the schema has no field .spec.classRef",
		},
		"Lost": {
			"We should bind none that are stored without.", with, without, "None", v1beta1.ReasonReferencePruned,
			"reference.path: the schema of the version that is stored has no field .spec.classRef",
		},
		"NameLost": {
			"We should bind none that are stored without the name.", with, strings.Replace(with, "name: {type: string}, ", "", 1), "None",
			v1beta1.ReasonReferencePruned,
			"reference.form ObjectReference: the schema of the version that is stored has no field .spec.classRef.name",
		},
		"KindLost": {
			"We should bind none that are stored without the kind.", with, noKind, "None", v1beta1.ReasonReferencePruned,
			"the schema of the version that is stored has no field .spec.classRef.kind",
		},
		"Converted": {"We should not guess what a webhook makes of a reference.", with, without, "Webhook", "", ""},
		"ConvertedLost": {
			"We should bind none by a path that leads nowhere.", without, with, "Webhook", v1beta1.ReasonPathsInvalid,
			"reference.path: the schema has no field .spec.classRef",
		},
	} {
		t.Run(name, func(t *testing.T) {
			crd, err := yaml.YAMLToJSON([]byte(fmt.Sprintf("spec: {conversion: {strategy: %s}, versions: [{name: v1, storage: true, schema: "+
				"{openAPIV3Schema: %s}}, {name: v2, schema: {openAPIV3Schema: %s}}]}",
				tc.conversion, tc.stored, tc.preferred)))
			require.NoError(t, err)
			s, err := openapi.OfCRD(crd, "v2")
			require.NoError(t, err)
			view := NewView(NewClaimKind(postgres()), nil)
			reason, text := view.PathsProblem(CheckPaths(view.Kind, s))
			assert.Equal(t, tc.wantReason, reason, tc.reason)
			assert.Contains(t, text, tc.wantText, tc.reason)
		})
	}
}

// withPaths compiles a claim kind whose paths were compared.
func withPaths(k *v1beta1.ClaimKind, c PathsCheck) *ClaimKind {
	kind := NewClaimKind(k)
	kind.SetPaths(c)
	return kind
}

// TestSetPaths has claims refused by what the schema says, whatever the status.
func TestSetPaths(t *testing.T) {
	k := postgres()
	k.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionPathsValid, Status: metav1.ConditionFalse, Reason: v1beta1.ReasonReferencePruned}}
	faultOf := func(c PathsCheck) *inventory.Fault { return NewView(withPaths(k, c), nil).Fault }
	assert.Nil(t, faultOf(PathsCheck{}), "We should act on no status.")
	assert.Equal(t, inventory.Faultf(
		v1beta1.ReasonReferencePruned, "%s",
		`claim kind "`+k.Name+`": no claim is bound, because the API server would remove it: no field: mend it`,
	),
		faultOf(PathsCheck{Problems: []string{"no field"}, pruned: "it", remedy: "mend it"}), "We should bind no claim that would lose its reference.")
	assert.Equal(t, v1beta1.ReasonPathsInvalid, faultOf(PathsCheck{Problems: []string{"no field"}}).Reason, "We should bind none by a path that leads nowhere.")
	assert.Nil(
		t, faultOf(PathsCheck{required: []*claim.Part{{Role: v1beta1.KindPart}}, Unknown: "all"}),
		"We should bind claims of other class kinds, and those whose schema nobody knows.",
	)
	k.Spec.Choice.Strategy = "Newest"
	assert.Equal(t, v1beta1.ReasonUnknownValue, faultOf(PathsCheck{Problems: []string{"no field"}}).Reason, "We should say first what we do not know.")
}

// TestFittingForm proposes a form of reference for a field that has none of the registration.
func TestFittingForm(t *testing.T) {
	for name, tc := range map[string]struct {
		schema string
		from   v1beta1.ClassNamespacesFrom
		want   v1beta1.ReferenceForm
	}{
		"Object":              {"apiVersion kind name namespace", v1beta1.FromAll, v1beta1.ObjectReference},
		"ObjectWithout":       {"apiVersion kind name", v1beta1.FromSameAsClaim, v1beta1.ObjectReference},
		"Typed":               {"apiGroup kind name namespace", v1beta1.FromAll, v1beta1.TypedObjectReference},
		"TypedLocal":          {"apiGroup kind name", v1beta1.FromSameAsClaim, v1beta1.TypedLocalObjectReference},
		"GroupKind":           {"group kind name", v1beta1.FromSameAsClaim, v1beta1.GroupKindReference},
		"Kind":                {"kind name", v1beta1.FromSameAsClaim, v1beta1.KindReference},
		"Namespaced":          {"name namespace", v1beta1.FromSameAsClaim, v1beta1.NamespacedReference},
		"NamespacedOfAll":     {"name namespace kind", v1beta1.FromAll, v1beta1.NamespacedReference},
		"Local":               {"name other", v1beta1.FromSameAsClaim, v1beta1.LocalObjectReference},
		"NoneWithANamespace":  {"name", v1beta1.FromAll, ""},
		"Begun":               {"name other!", v1beta1.FromSameAsClaim, v1beta1.LocalObjectReference},
		"NoneWithoutTheOther": {"kind name group! namespace!", v1beta1.FromSameAsClaim, ""},
		"Name":                {"", v1beta1.FromSameAsClaim, v1beta1.Name},
	} {
		t.Run(name, func(t *testing.T) {
			field := aText
			if tc.schema != "" {
				var properties, required []string
				for name := range strings.FieldsSeq(tc.schema) {
					name, isRequired := strings.CutSuffix(name, "!")
					properties = append(properties, name+": "+aText)
					if isRequired {
						required = append(required, name)
					}
				}
				field = fmt.Sprintf("{type: object, properties: {%s}, required: [%s]}", strings.Join(properties, ", "), strings.Join(required, ", "))
			}
			kind := kindOf(func(s *v1beta1.ClaimKindSpec) { s.Classes.Namespaces.From = tc.from })
			got := formRemedy(kind, schemaOfCRD(t, specOf("classRef: "+field)))
			if tc.want == "" {
				assert.Contains(t, got, "correct spec.reference.path")
				return
			}
			assert.Equal(t, "set spec.reference.form to "+string(tc.want), got)
		})
	}
}

func TestRequired(t *testing.T) {
	const deep = ".a.b.c.d.e.f.g.h.i.j"
	inside := func(path v1beta1.FieldPath, schema string) string {
		for _, name := range slices.Backward(path.Names()) {
			schema = fmt.Sprintf("{type: object, required: [%s], properties: {%s: %s}}", name, name, schema)
		}
		return schema
	}
	const reference = `{type: object, required: [name, scope], properties: {kind: {type: string}, name: {type: string}, scope: {type: string, default: all}}}`
	for name, tc := range map[string]struct {
		reason, schema string
		reference      v1beta1.Reference
		want           []v1beta1.FieldPath
	}{
		"Gateway": {
			"We should report each field on the way.", inside(".spec.gatewayClassName", aText),
			v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.gatewayClassName"}, Form: v1beta1.Name, WhenEmpty: v1beta1.LeaveEmptyAlone},
			[]v1beta1.FieldPath{".spec", ".spec.gatewayClassName"},
		},
		"Fields": {
			"We should report the fields of the form, but not one that has a default.",
			specOf("ref: " + reference),
			v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.ref"}, Form: v1beta1.KindReference, WhenEmpty: v1beta1.LeaveEmptyAlone},
			[]v1beta1.FieldPath{".spec.ref.name"},
		},
		"Default": {
			"We should not report a parent that the API server fills in.",
			`{type: object, required: [spec], properties: {spec: {type: object, default: {}, required: [ref], properties: {ref: ` + reference + `}}}}`,
			v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.ref"}, Form: v1beta1.KindReference, WhenEmpty: v1beta1.LeaveEmptyAlone},
			[]v1beta1.FieldPath{".spec.ref", ".spec.ref.name"},
		},
		"EmptyName": {
			"We should not report a text that may be empty, where that counts as no reference.",
			inside(".spec.ref", aText),
			v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.ref"}, Form: v1beta1.Name},
			[]v1beta1.FieldPath{".spec"},
		},
		"EmptyNameOfField": {
			"We should report an object that is required, and not a text in it that may be empty.",
			inside(".spec.ref.name", aText),
			v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.ref"}, Form: v1beta1.LocalObjectReference},
			[]v1beta1.FieldPath{".spec", ".spec.ref"},
		},
		"NoEmptyName": {
			"We should report a text that must not be empty.", inside(".spec.ref", `{type: string, minLength: 1}`),
			v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.ref"}, Form: v1beta1.Name},
			[]v1beta1.FieldPath{".spec", ".spec.ref"},
		},
		"None": {
			"We should report nothing that may be absent.", specOf("ref: " + aText),
			v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.ref"}, Form: v1beta1.Name},
			nil,
		},
		"Label": {
			"We should know that a label may be absent.", inside(".spec.ref", aText),
			v1beta1.Reference{Place: v1beta1.Place{Label: "ref"}, Form: v1beta1.Name},
			nil,
		},
		"Deep": {
			"We should report no path that the status does not take.", inside(deep, reference),
			v1beta1.Reference{Place: v1beta1.Place{Path: deep}, Form: v1beta1.KindReference},
			[]v1beta1.FieldPath{".a", ".a.b", ".a.b.c", ".a.b.c.d", ".a.b.c.d.e", ".a.b.c.d.e.f", ".a.b.c.d.e.f.g", ".a.b.c.d.e.f.g.h", ".a.b.c.d.e.f.g.h.i", deep},
		},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.want, CheckPaths(kindOf(func(s *v1beta1.ClaimKindSpec) { s.Reference = tc.reference }), schemaOfCRD(t, tc.schema)).Required, tc.reason)
		})
	}
}

// TestPathsWithin compares references within the elements of a list with the schema.
func TestPathsWithin(t *testing.T) {
	schema := specOf("requests: {type: array, items: {type: object, properties: {exactly: {type: object, properties: {class: " + aText +
		"}}, any: {type: array, items: {type: object, properties: {class: " + aText + "}}}, count: {type: integer}}}}")
	for reason, tc := range map[string]struct {
		within  v1beta1.ElementPath
		problem string
	}{
		"We should find a field of an element.":             {within: ".exactly.class"},
		"We should find a field of an element of its list.": {within: ".any[*].class"},
		"We should miss a field.": {
			within:  ".exactly.clas",
			problem: "reference.form Name: the schema has no field .spec.requests.[].exactly.clas",
		},
		"We should know the type of the field.": {
			within:  ".count",
			problem: "reference.form Name: must be of type string, and is of type integer: .spec.requests.[].count",
		},
	} {
		k := &v1beta1.ClaimKind{ObjectMeta: metav1.ObjectMeta{Name: "claims.example.org"}, Spec: v1beta1.ClaimKindSpec{
			Reference: v1beta1.Reference{
				Place: v1beta1.Place{Path: ".spec.requests"}, Form: v1beta1.Name, List: v1beta1.ListCheckOnly,
				Within: []v1beta1.ElementPath{".exactly.class", tc.within},
			},
			Selector: v1beta1.ClassSelector{Path: ".spec.classSelector"},
		}}
		c := CheckPaths(NewClaimKind(k), schemaOfCRD(t, schema))
		if tc.problem == "" {
			assert.Empty(t, c.Problems, reason)
		} else if assert.Len(t, c.Problems, 1, reason) {
			assert.Contains(t, c.Problems[0], tc.problem, reason)
		}
		assert.Empty(t, c.Unknown, reason)
		assert.Empty(t, c.Required, reason)
	}
}
