package selector

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/classbind/classbind/api/v1alpha1"
)

const (
	aText      = `{type: string}`
	aReference = `{type: object, properties: {apiVersion: {type: string}, kind: {type: string}, name: {type: string}, namespace: {type: string}}}`
	aSelector  = `{type: object, properties: {matchLabels: {type: object, additionalProperties: {type: string}}, matchExpressions: {type: array, items: {type: object}}}}`
	anything   = `{type: object, x-kubernetes-preserve-unknown-fields: true}`
)

// specOf makes the schema of a spec from fields, each NAME: SCHEMA.
func specOf(fields ...string) string {
	return fmt.Sprintf("{type: object, properties: {spec: {type: object, properties: {%s}}}}", strings.Join(fields, ", "))
}

func schemaOfCRD(t *testing.T, root string) *Schema {
	t.Helper()
	crd, err := yaml.YAMLToJSON([]byte("spec: {versions: [{name: v1alpha1}, {name: v1, schema: {openAPIV3Schema: " + root + "}}]}"))
	require.NoError(t, err)
	s, err := SchemaOfCRD(crd, "v1")
	require.NoError(t, err)
	return s
}

func TestCheckPaths(t *testing.T) {
	cluster, namespaced := newKind("as.example.org", "A"), newKind("bs.example.org", "B")
	namespaced.Namespaced = true
	selectable := "classSelector: " + aSelector
	fits := specOf("classRef: "+aReference, selectable)
	for name, tc := range map[string]struct {
		reason  string
		schema  string
		spec    func(*v1alpha1.ClaimKindSpec)
		kinds   []*ClassKind
		problem string
		pruned  bool
		unknown string
		absent  []string

		kindPruned bool
	}{
		"Fits": {reason: "We should find nothing wrong with what is there", schema: fits},
		"ReferenceMistyped": {
			reason: "We should see that a reference would be removed for a typing error in its path",
			schema: fits, spec: func(s *v1alpha1.ClaimKindSpec) { s.Reference.Path = ".spec.clasRef" },
			problem: "reference.path: the schema has no field .spec.clasRef", pruned: true,
		},
		"ParentMistyped": {
			reason: "We should name the field that is missing, not what would be below it",
			schema: fits, spec: func(s *v1alpha1.ClaimKindSpec) { s.Reference.Path = ".sepc.classRef.of" },
			problem: "reference.path: the schema has no field .sepc", pruned: true,
		},
		"NoSpec": {
			reason: "We should see that a CRD without fields keeps none",
			schema: "{type: object}", problem: "reference.path: the schema has no field .spec", pruned: true, absent: []string{".spec.classSelector"},
		},
		"NameLost": {
			reason:  "We should see that a reference would keep all but the name",
			schema:  specOf("classRef: {type: object, properties: {apiVersion: "+aText+", kind: "+aText+", id: "+aText+"}}", selectable),
			problem: "reference.form ObjectReference: the schema has no field .spec.classRef.name", pruned: true,
		},
		"KindLost": {
			reason: "We should tell of a field that would be removed, though the reference is clear where there is one class kind",
			schema: specOf("classRef: {type: object, properties: {apiVersion: "+aText+", name: "+aText+"}}", selectable), kinds: []*ClassKind{cluster},
			problem: "reference.form ObjectReference: the schema has no field .spec.classRef.kind", kindPruned: true,
		},
		"KindLostAmongSeveral": {
			reason: "We should not have a newcomer stop the claims of others, because their references lose the kind",
			schema: specOf("classRef: {type: object, properties: {apiVersion: "+aText+", name: "+aText+"}}", selectable), kinds: []*ClassKind{cluster, namespaced},
			problem: "reference.form ObjectReference: the schema has no field .spec.classRef.kind", kindPruned: true,
			spec: func(s *v1alpha1.ClaimKindSpec) { s.ClassNamespaces.From = v1alpha1.FromAll }, // The newcomer's namespace would be lost, too.
		},
		"NamespaceNotWritten": {
			reason: "We should not miss the namespace of classes that have none",
			schema: specOf("classRef: {type: object, properties: {apiVersion: "+aText+", kind: "+aText+", name: "+aText+"}}", selectable), kinds: []*ClassKind{cluster},
		},
		"NamespaceLost": {
			reason:  "We should bind no claim to a class of a namespace that its reference does not tell",
			schema:  specOf("classRef: {type: object, properties: {apiVersion: "+aText+", kind: "+aText+", name: "+aText+"}}", selectable),
			spec:    func(s *v1alpha1.ClaimKindSpec) { s.ClassNamespaces.From = v1alpha1.FromAll },
			kinds:   []*ClassKind{namespaced},
			problem: "reference.form ObjectReference: the schema has no field .spec.classRef.namespace", pruned: true,
		},
		"OwnNamespaceLost": {
			reason:  "We should bind a claim to a class of its own namespace, which is the one that is meant",
			schema:  specOf("classRef: {type: object, properties: {apiVersion: "+aText+", kind: "+aText+", name: "+aText+"}}", selectable),
			kinds:   []*ClassKind{namespaced},
			problem: "reference.form ObjectReference: the schema has no field .spec.classRef.namespace",
		},
		"FieldRequired": {
			reason:  "We should see that the API server would refuse a reference for a field that no form has",
			schema:  specOf("classRef: {type: object, required: [group, kind, name, scope], properties: {apiVersion: "+aText+", kind: "+aText+", name: "+aText+", namespace: "+aText+", group: "+aText+", scope: {type: string, default: all}}}", selectable),
			problem: "reference.form ObjectReference: the schema requires .spec.classRef.group, which the reference does not have: the API server refuses claims with such a reference",
		},
		"NamespaceRequired": {
			reason: "We should see which class kind has no namespace that the reference could tell",
			schema: specOf("classRef: {type: object, required: [name, namespace], properties: {apiVersion: "+aText+", kind: "+aText+", name: "+aText+", namespace: "+aText+"}}", selectable),
			kinds:  []*ClassKind{cluster, namespaced},
			problem: `reference.form ObjectReference: the schema requires .spec.classRef.namespace, which the reference to a class of "as.example.org" does not have: ` +
				"the API server refuses claims with such a reference",
		},
		"KindNotAllowed": {
			reason: "We should see which values the API server would refuse",
			schema: specOf("classRef: {type: object, properties: {apiVersion: {type: string, pattern: ^other}, kind: {type: string, enum: [B, 7]}, name: {type: string, pattern: ^no}, namespace: {type: string, pattern: '('}}}", selectable),
			kinds:  []*ClassKind{cluster, namespaced},
			problem: `reference.form ObjectReference: the schema does not allow "example.org/v1" in .spec.classRef.apiVersion; reference.form ObjectReference: the schema does not allow "A" in .spec.classRef.kind: ` +
				"the API server refuses claims with such a reference",
		},
		"NameRequired": {
			reason: "We should find nothing wrong with what the form writes",
			schema: specOf("classRef: {type: object, required: [name], properties: {name: {type: string, pattern: ^no}}}", selectable), kinds: []*ClassKind{cluster},
			spec: func(s *v1alpha1.ClaimKindSpec) { s.Reference.Form = v1alpha1.LocalObjectReference },
		},
		"NamePattern": {
			reason: "We should not hold against a name what is not known of it", kinds: []*ClassKind{cluster},
			schema: specOf("className: {type: string, pattern: ^no}", selectable), spec: func(s *v1alpha1.ClaimKindSpec) { s.Reference.Form, s.Reference.Path = v1alpha1.Name, ".spec.className" },
		},
		"TextForAnObject": {
			reason: "We should see that the API server would refuse an object, which is not to remove it",
			schema: specOf("classRef: "+aText, selectable), problem: "reference.form ObjectReference: must be of type object, and is of type string: .spec.classRef",
		},
		"ObjectForAName": {
			reason: "We should see that the API server would refuse a text",
			schema: fits, spec: func(s *v1alpha1.ClaimKindSpec) { s.Reference.Form = v1alpha1.Name },
			problem: "reference.path: must be of type string, and is of type object: .spec.classRef",
		},
		"Name": {
			reason: "We should take a text for a name",
			schema: specOf("className: "+aText, selectable), spec: func(s *v1alpha1.ClaimKindSpec) { s.Reference.Form, s.Reference.Path = v1alpha1.Name, ".spec.className" },
		},
		"ListOnTheWay": {
			reason:  "We should find nothing in a list",
			schema:  specOf("listeners: {type: array, items: {type: object, properties: {classRef: "+aReference+"}}}", selectable),
			spec:    func(s *v1alpha1.ClaimKindSpec) { s.Reference.Path = ".spec.listeners.classRef" },
			problem: "reference.path: must be of type object, and is of type array: .spec.listeners",
		},
		"Preserved": {
			reason: "We should not know of what may be anything", schema: anything,
			unknown: "reference.path: the schema does not say what may be in .spec",
		},
		"PreservedReference": {
			reason: "We should not know of a reference that may be anything", schema: specOf("classRef: "+anything, selectable),
			unknown: "reference.form ObjectReference: the schema does not say what may be in .spec.classRef.apiVersion",
		},
		"PreservedAround": {
			reason:  "We should know a field that is described among others that are not",
			schema:  "{type: object, x-kubernetes-preserve-unknown-fields: true, properties: {spec: {type: object, properties: {classSelector: " + aSelector + "}}}}",
			problem: "reference.path: the schema has no field .spec.classRef", pruned: true,
		},
		"AnyKey": {
			reason: "We should find a field in a map",
			schema: "{type: object, properties: {spec: {type: object, additionalProperties: " + aText + "}}}",
			spec: func(s *v1alpha1.ClaimKindSpec) {
				s.Reference.Form, s.Reference.Path, s.ClassSelector.Path = v1alpha1.Name, ".spec.class", ".metadata.selector"
			},
			unknown: "classSelector.path: the schema does not say what may be in .metadata.selector.matchLabels",
		},
		"SelectorMistyped": {
			reason: "We should see that no claim would keep its selector",
			schema: fits, spec: func(s *v1alpha1.ClaimKindSpec) { s.ClassSelector.Path = ".spec.classselector" },
			problem: "classSelector.path: the schema has no field .spec.classselector",
		},
		"NoSelectorField": {
			reason: "We should not ask for the field that is read by default: any claim has the annotation",
			schema: specOf("classRef: " + aReference), absent: []string{".spec.classSelector"},
		},
		"SelectorIsAText": {
			reason: "We should see that no claim could have a selector",
			schema: specOf("classRef: "+aReference, "classSelector: "+aText), problem: "classSelector.path: must be of type object, and is of type string: .spec.classSelector",
		},
		"SelectorOfLabelsAlone": {
			reason: "We should be content with one kind of requirements",
			schema: specOf("classRef: "+aReference, "classSelector: {type: object, properties: {matchLabels: {type: object, additionalProperties: "+aText+"}}}"),
		},
		"SelectorOfExpressionsAlone": {
			reason: "We should be content with the other kind", schema: specOf("classRef: "+aReference, "classSelector: {type: object, properties: {matchExpressions: {type: array}}}"),
		},
		"SelectorOfNothing": {
			reason: "We should see that no claim would keep what it asks for", schema: specOf("classRef: "+aReference, "classSelector: {type: object, properties: {labels: {type: object}}}"),
			problem: "classSelector.path: the schema has no field .spec.classSelector.matchLabels",
		},
		"ExpressionsAreNoList": {
			reason:  "We should look at both kinds of requirements",
			schema:  specOf("classRef: "+aReference, "classSelector: {type: object, properties: {matchLabels: {type: object}, matchExpressions: {type: object}}}"),
			problem: "classSelector.path: must be of type array, and is of type object: .spec.classSelector.matchExpressions",
		},
		"SkipMistyped": {
			reason: "We should see that no claim would ever be skipped",
			schema: fits, spec: func(s *v1alpha1.ClaimKindSpec) { s.SkipIfSet = []v1alpha1.Place{{Path: ".spec.volumname"}} },
			problem: "skipIfSet: the schema has no field .spec.volumname",
		},
		"SkipByMetadata": {
			reason: "We should not look for metadata in a CRD: the API server knows it",
			schema: "{type: object, properties: {metadata: {type: object}, spec: {type: object, properties: {classRef: " + aReference + "}}}}", absent: []string{".spec.classSelector"},
			spec: func(s *v1alpha1.ClaimKindSpec) { s.SkipIfSet = []v1alpha1.Place{{Path: ".metadata.labels.skip"}} },
		},
		"Embedded": {
			reason: "We should not look for metadata in an object within a claim", schema: specOf("template: {type: object, x-kubernetes-embedded-resource: true, properties: {metadata: {type: object}}}", "classRef: "+aReference),
			spec: func(s *v1alpha1.ClaimKindSpec) {
				s.SkipIfSet = []v1alpha1.Place{{Path: ".spec.template.metadata.name"}}
			},
			unknown: "skipIfSet: the schema does not say what may be in .spec.template.metadata", absent: []string{".spec.classSelector"},
		},
		"SkipByDefault": {
			reason: "We should not ask for the field by which claims are skipped by default",
			schema: fits, spec: func(s *v1alpha1.ClaimKindSpec) { s.SkipIfSet = []v1alpha1.Place{{Path: ".spec.resourceRef"}} }, absent: []string{".spec.resourceRef"},
		},
		"NotASchema": {
			reason: "We should not know where a vendor wrote something else", schema: specOf("classRef: {type: [object, string]}", selectable),
			unknown: "reference.path: the schema does not say what may be in .spec.classRef",
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := &v1alpha1.ClaimKind{ObjectMeta: metav1.ObjectMeta{Name: "claims.example.org"}, Spec: v1alpha1.ClaimKindSpec{
				Reference: v1alpha1.Reference{Path: ".spec.classRef"}, ClassSelector: v1alpha1.ClassSelector{Path: ".spec.classSelector"},
				ClassNamespaces: v1alpha1.ClassNamespaces{From: v1alpha1.FromSameAsClaim},
			}}
			if tc.spec != nil {
				tc.spec(&k.Spec)
			}
			var classes []*Classes
			for _, kind := range tc.kinds {
				classes = append(classes, NewClasses(kind, nil))
			}
			view := NewView(NewClaimKind(k), classes)
			check := view.Kind.CheckPaths(schemaOfCRD(t, tc.schema))
			reason, problem := view.PathsProblem(check)
			switch {
			case tc.kindPruned:
				assert.Equal(t, v1alpha1.ReasonKindPruned, reason, tc.reason)
				tc.problem = "claims are offered the classes of one class kind, because the API server would remove the kind from a reference: " + tc.problem
			case !tc.pruned:
				assert.Equal(t, map[bool]string{true: v1alpha1.ReasonPathsInvalid}[tc.problem != ""], reason, tc.reason)
			default:
				assert.Equal(t, v1alpha1.ReasonReferencePruned, reason, tc.reason)
				tc.problem = "no claim is bound, because the API server would remove the reference to its class: " + tc.problem +
					": correct spec.reference.path and spec.reference.form, or the schema"
			}
			assert.Equal(t, tc.problem, problem, tc.reason)
			assert.Equal(t, tc.unknown, check.Unknown, tc.reason)
			assert.Equal(t, tc.absent, check.Absent, tc.reason)
		})
	}
}

// TestRefusedIsShort however much a vendor requires.
func TestRefusedIsShort(t *testing.T) {
	fields := make([]string, 1000)
	for i := range fields {
		fields[i] = fmt.Sprintf("f%d%s", i, strings.Repeat("x", 1000))
	}
	view := NewView(NewClaimKind(postgres()), nil)
	check := view.Kind.CheckPaths(schemaOfCRD(t, specOf("classRef: {type: object, required: ["+strings.Join(fields, ", ")+"], x-kubernetes-preserve-unknown-fields: true}")))
	_, problem := view.PathsProblem(check)
	assert.Equal(t, v1alpha1.MaxErrors, strings.Count(problem, "the schema requires .spec.classRef.f"))
	assert.Less(t, len(problem), 3000)
}

func TestSchemaOfOpenAPI(t *testing.T) {
	const document = `{components: {schemas: {
  claim: {type: object, x-kubernetes-group-version-kind: [{group: "", version: v1, kind: PersistentVolumeClaim}], properties: {
    metadata: {allOf: [{$ref: "#/components/schemas/meta"}]}, spec: {default: {}, allOf: [{$ref: "#/components/schemas/spec"}]}}},
  meta: {type: object, properties: {labels: {type: object, additionalProperties: {type: string}}}},
  spec: {type: object, properties: {storageClassName: {type: string}, round: {$ref: "#/components/schemas/round"}, gone: {$ref: "#/components/schemas/gone"}, free: {type: object},
    more: {type: object, properties: {a: {type: string}}, allOf: [{$ref: "#/components/schemas/meta"}]}, either: {type: object, properties: {a: {type: string}}, oneOf: [{}]}}},
  round: {$ref: "#/components/schemas/round"}}}}`
	json, err := yaml.YAMLToJSON([]byte(document))
	require.NoError(t, err)
	kind := schema.GroupVersionKind{Version: "v1", Kind: "PersistentVolumeClaim"}
	s, err := SchemaOfOpenAPI(json, kind)
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		reason string
		at     v1alpha1.FieldPath
		want   error
	}{
		"Referred": {"We should follow a reference.", ".spec.storageClassName", nil},
		"Missing":  {"We should see what the API server does not know.", ".spec.storageClasName", errMissing},
		"Metadata": {"We should know metadata where it is described.", ".metadata.label", errMissing},
		"Label":    {"We should find a key in a map.", ".metadata.labels.any", nil},
		"Circle":   {"We should not run in a circle.", ".spec.round.x", errUnknown},
		"Dangling": {"We should not know what a reference to nothing means.", ".spec.gone", errUnknown},
		"AllOf":    {"We should not miss a field that another schema may add.", ".spec.more.labels", errUnknown},
		"OneOf":    {"We should not miss a field of an alternative.", ".spec.either.b", errUnknown},
		"Free":     {"We should not know of an object that an API server may read in its own way.", ".spec.free.x", errUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			assert.ErrorIs(t, s.at(newPath(tc.at)).err, tc.want, tc.reason)
		})
	}
	kind.Kind = "Pod"
	_, err = SchemaOfOpenAPI(json, kind)
	require.ErrorIs(t, err, ErrNoSchema, "We should not take another kind's schema.")
	_, err = SchemaOfOpenAPI([]byte("<html>"), kind)
	require.ErrorContains(t, err, "cannot read the OpenAPI document")
}

func TestSchemaOfCRD(t *testing.T) {
	_, err := SchemaOfCRD([]byte(`{"spec":{"versions":[{"name":"v1"}]}}`), "v1")
	require.ErrorIs(t, err, ErrNoSchema, "We should not take a CRD without a schema for one that keeps nothing.")
	_, err = SchemaOfCRD([]byte(`[]`), "v1")
	require.ErrorContains(t, err, "cannot read the CRD")
	s, err := SchemaOfCRD([]byte(`{"spec":{"preserveUnknownFields":true,"versions":[{"name":"v1","schema":{"openAPIV3Schema":{"type":"object"}}}]}}`), "v1")
	require.NoError(t, err)
	assert.ErrorIs(t, s.at(path{"spec"}).err, errUnknown, "We should not miss a field where the CRD keeps all of them.")
}

func TestSchemaTooDeep(t *testing.T) {
	const levels = 20_000
	root := strings.Repeat(`{"properties":{"spec":`, levels) + "{}" + strings.Repeat("}}", levels)
	_, err := SchemaOfCRD([]byte(`{"spec":{"versions":[{"name":"v1","schema":{"openAPIV3Schema":`+root+`}}]}}`), "v1")
	require.ErrorContains(t, err, "exceeded max depth", "We should not follow a vendor down.")
}

// TestSchemaDecodesOnce a level, however many paths lead through it.
func TestSchemaDecodesOnce(t *testing.T) {
	s := schemaOfCRD(t, specOf("a: "+aText, "b: "+aText))
	require.NoError(t, s.at(path{"spec", "a"}).err)
	s.root = nil
	require.NoError(t, s.at(path{"spec", "b"}).err, "We should remember what is around it.")
}

// TestVersions prune by the version that is stored, which need not be the one that
// registrations are written for.
func TestVersions(t *testing.T) {
	const with, without = `{type: object, properties: {spec: {type: object, properties: {classRef: ` + aReference + `, classSelector: ` + aSelector + `}}}}`,
		`{type: object, properties: {spec: {type: object, properties: {classSelector: ` + aSelector + `}}}}`
	noKind := strings.Replace(with, "kind: {type: string}, ", "", 1)
	for name, tc := range map[string]struct {
		reason, preferred, stored, conversion string
		wantReason, wantText                  string
	}{
		"Kept":          {"We should bind claims that are stored with their reference.", without, with, "None", v1alpha1.ReasonPathsInvalid, "reference.path: the schema has no field .spec.classRef"},
		"Lost":          {"We should bind none that are stored without.", with, without, "None", v1alpha1.ReasonReferencePruned, "reference.path: the schema of the version that is stored has no field .spec.classRef"},
		"NameLost":      {"We should bind none that are stored without the name.", with, strings.Replace(with, "name: {type: string}, ", "", 1), "None", v1alpha1.ReasonReferencePruned, "reference.form ObjectReference: the schema of the version that is stored has no field .spec.classRef.name"},
		"KindLost":      {"We should offer one class kind.", with, noKind, "None", v1alpha1.ReasonKindPruned, "the schema has no field .spec.classRef.kind"},
		"Converted":     {"We should not guess what a webhook makes of a reference.", with, without, "Webhook", "", ""},
		"ConvertedLost": {"We should tell of a path that leads nowhere, and go on.", without, with, "Webhook", v1alpha1.ReasonPathsInvalid, "reference.path: the schema has no field .spec.classRef"},
	} {
		t.Run(name, func(t *testing.T) {
			crd, err := yaml.YAMLToJSON([]byte(fmt.Sprintf("spec: {conversion: {strategy: %s}, versions: [{name: v1, storage: true, schema: {openAPIV3Schema: %s}}, {name: v2, schema: {openAPIV3Schema: %s}}]}",
				tc.conversion, tc.stored, tc.preferred)))
			require.NoError(t, err)
			s, err := SchemaOfCRD(crd, "v2")
			require.NoError(t, err)
			view := NewView(NewClaimKind(postgres()), nil)
			reason, text := view.PathsProblem(view.Kind.CheckPaths(s))
			assert.Equal(t, tc.wantReason, reason, tc.reason)
			assert.Contains(t, text, tc.wantText, tc.reason)
		})
	}
}

func TestReferenceFault(t *testing.T) {
	k := postgres()
	k.Generation = 7
	pruned := metav1.Condition{Type: v1alpha1.ConditionPathsValid, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonReferencePruned, Message: "no field", ObservedGeneration: 7}
	k.Status.Conditions = []metav1.Condition{pruned}
	fault := NewView(NewClaimKind(k), nil).Fault
	require.NotNil(t, fault, "We should bind no claim that would lose its reference.")
	assert.Equal(t, Fault{v1alpha1.ReasonReferencePruned, `claim kind "` + k.Name + `": no field`}, *fault)

	k.Generation = 8
	assert.NotNil(t, NewView(NewClaimKind(k), nil).Fault, "We should bind none before somebody has checked the new registration.")
	k.Status.Conditions[0].Reason = v1alpha1.ReasonPathsInvalid
	assert.Nil(t, NewView(NewClaimKind(k), nil).Fault, "We should bind claims that keep their reference.")

	k.Status.Conditions[0].Reason = v1alpha1.ReasonKindPruned
	older, newcomer := newKind("bs.example.org", "B"), newKind("as.example.org", "A")
	newcomer.Created = older.Created.Add(time.Second)
	view := NewView(NewClaimKind(k), []*Classes{NewClasses(older, nil), NewClasses(newcomer, nil)})
	require.Len(t, view.Classes, 1, "We should offer the classes of one kind where references lose the kind.")
	assert.Equal(t, older, view.Classes[0].Kind)
	assert.ErrorContains(t, view.FaultOf(newcomer.Name), "a reference that is stored without its kind cannot tell them from those of \"bs.example.org\"")
}
