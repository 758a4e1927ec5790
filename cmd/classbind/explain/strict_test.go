package explain

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// databaseCRD serves v1 and v1beta1, and has a schema of v1 alone.
const databaseCRD = `{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "databases.example.org"},
	"spec": {"group": "example.org", "scope": "Namespaced", "names": {"plural": "databases", "kind": "Database"}, "versions": [
		{"name": "v1", "served": true, "schema": {"openAPIV3Schema": ` + databaseSchema + `}},
		{"name": "v1beta1", "served": true}, {"name": "v1alpha1", "served": false}]}}`

const databaseSchema = `{"type": "object", "x-kubernetes-group-version-kind": [{"group": "example.org", "version": "v1", "kind": "Database"}], "properties": {
	"metadata": {"type": "object"},
	"spec": {"type": "object", "properties": {
		"classSelector": {"type": "object", "properties": {
			"matchLabels": {"type": "object", "additionalProperties": {"type": "string"}},
			"matchExpressions": {"type": "array", "items": {"type": "object", "properties": {"key": {"type": "string"}, "operator": {"type": "string"}}}}}},
		"classRef": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
		"classSelection": {"type": "string"},
		"template": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"size": {"type": "integer"}}},
		"closed": {"type": "object"}}}}}`

func TestStrict(t *testing.T) {
	claim := func(spec string) string {
		return `{"apiVersion": "example.org/v1", "kind": "Database", "metadata": {"name": "mine"}, "spec": ` + spec + `}`
	}
	typed := func(from, to string) string { return strings.ReplaceAll(goldClaim, from, to) }
	for name, tc := range map[string]struct {
		reason  string
		claim   string
		crd     bool
		outcome string // Bound unless set
		code    string
		field   string
		want    string
	}{
		"Right":              {reason: "We should explain a claim without a mistake.", claim: goldClaim, crd: true},
		"RightWithoutSchema": {reason: "We should explain a claim without a mistake.", claim: goldClaim},
		"Kind": {
			reason: "We should not leave alone a kind with a typing error.", claim: typed("Database", "Databse"),
			outcome: "Malformed", code: "UnknownKind", field: "kind", want: "no ClaimKind registers example.org/v1 Databse: did you mean databases.example.org? Correct apiVersion and kind, or register the kind",
		},
		"KindOfASchema": {
			reason: "We should name the kind that we know.", claim: typed("Database", "Databasse"), crd: true,
			outcome: "Malformed", code: "UnknownKind", field: "kind", want: "did you mean example.org/v1 Database of databases.example.org?",
		},
		"Case": {
			reason: "We should not leave alone a kind in another case.", claim: typed("Database", "database"), crd: true,
			outcome: "Malformed", code: "UnknownKind", field: "kind", want: "did you mean example.org/v1 Database of databases.example.org?",
		},
		"Group": {
			reason: "We should not leave alone a kind of a group with a typing error.", claim: typed("example.org/v1", "exmaple.org/v1"),
			outcome: "Malformed", code: "UnknownKind", field: "kind", want: "did you mean databases.example.org?",
		},
		"OtherKind": {
			reason: "We should leave alone a kind that resembles none.", claim: typed("Database", "Queue"), outcome: "LeftAlone", code: "NotRegistered",
		},
		"ClassKind": {
			reason: "We should leave alone a class, whatever it resembles.", claim: typed("Database", "Databases"), outcome: "LeftAlone", code: "NotRegistered",
		},
		"Version": {
			reason: "We should refuse a version that nobody serves.", claim: typed("example.org/v1", "example.org/v9"), crd: true,
			outcome: "Malformed", code: "UnknownVersion", field: "apiVersion", want: `the CRD "databases.example.org" does not serve the version "v9": set apiVersion to example.org/v1`,
		},
		"VersionNoMore": {
			reason: "We should refuse a version that is served no more.", claim: typed("example.org/v1", "example.org/v1alpha1"), crd: true,
			outcome: "Malformed", code: "UnknownVersion", field: "apiVersion", want: `does not serve the version "v1alpha1"`,
		},
		"VersionWithoutSchema": {reason: "We should believe what we cannot check.", claim: typed("example.org/v1", "example.org/v9")},
		"Field": {
			reason: "We should not bind to the default a claim whose selector the API server drops.", claim: typed("classSelector", "classselector"), crd: true,
			outcome: "Malformed", code: "UnknownField", field: "spec.classselector", want: "the schema has no such field: did you mean spec.classSelector?",
		},
		"FieldWithoutSchema": {
			reason: "We should know the fields that the ClaimKind reads.", claim: typed("classSelector", "clasSelector"),
			outcome: "Malformed", code: "UnknownField", field: "spec.clasSelector", want: "did you mean spec.classSelector? Nothing is at spec.classSelector",
		},
		"ParentWithoutSchema": {
			reason: "We should know the fields that the ClaimKind reads, and their parents.", claim: typed(`"spec"`, `"Spec"`),
			outcome: "Malformed", code: "UnknownField", field: "Spec", want: "did you mean spec? Nothing is at spec.class",
		},
		"FieldOfTheVersion": {
			reason: "We should know the fields that the ClaimKind reads, where a version has no schema.", claim: strings.ReplaceAll(typed("classSelector", "clasSelector"), "org/v1", "org/v1beta1"), crd: true,
			outcome: "Malformed", code: "UnknownField", field: "spec.clasSelector", want: "did you mean spec.classSelector?",
		},
		"Annotation": {
			reason:  "We should see a typing error in classbind's own annotation.",
			claim:   `{"apiVersion": "example.org/v1", "kind": "Database", "metadata": {"name": "mine", "annotations": {"classbind.io/class-selctor": "tier=gold"}}}`,
			outcome: "Malformed", code: "UnknownField", field: "metadata.annotations.classbind.io/class-selctor", want: "did you mean metadata.annotations.classbind.io/class-selector?",
		},
		"AnyField": {
			reason: "We should refuse a field that resembles none.", claim: claim(`{"classSelector": {}, "size": 3}`), crd: true,
			outcome: "Malformed", code: "UnknownField", field: "spec.size", want: "correct or remove it",
		},
		"AnyFieldWithoutSchema": {reason: "We should believe what we cannot check.", claim: claim(`{"classSelector": {}, "size": 3}`)},
		"Nested": {
			reason: "We should refuse a field in a list.", claim: claim(`{"classSelector": {"matchExpressions": [{"key": "tier", "operater": "Exists"}]}}`), crd: true,
			outcome: "Malformed", code: "UnknownField", field: "spec.classSelector.matchExpressions[0].operater", want: "did you mean spec.classSelector.matchExpressions[0].operator?",
		},
		"Closed": {
			reason: "We should know that the API server drops all of an object without properties.", claim: claim(`{"classSelector": {}, "closed": {"a": 1}}`), crd: true,
			outcome: "Malformed", code: "UnknownField", field: "spec.closed.a", want: "correct or remove it",
		},
		"Labels":         {reason: "We should let a map have any key.", claim: claim(`{"classSelector": {"matchLabels": {"tier": "gold"}}}`), crd: true},
		"Embedded":       {reason: "We should let an embedded object have its kind and metadata.", claim: claim(`{"classSelector": {}, "template": {"kind": "A", "metadata": {"name": "a"}, "size": 1}}`), crd: true},
		"Preserved":      {reason: "We should let an object have any field that is preserved.", claim: claim(`{"classSelector": {}, "classRef": {"anything": 1}}`), crd: true, outcome: "LeftAlone", code: "Settled"},
		"RealField":      {reason: "We should not take a field of the schema for a typing error.", claim: claim(`{"classSelector": {}, "classSelection": "a"}`), crd: true},
		"BothWithoutCRD": {reason: "We should not take a field for a typing error of one that is there, too.", claim: claim(`{"classSelector": {}, "classSelectors": 1}`)},
	} {
		t.Run(name, func(t *testing.T) {
			classes := documents(claimKind, classKind, goldClass, `{"apiVersion": "classbind.io/v1alpha1", "kind": "ClassKind", "metadata": {"name": "databaseses.example.org"}}`)
			if tc.crd {
				classes = documents(classes, databaseCRD)
			}
			t.Chdir(write(t, map[string]string{"claim.yaml": tc.claim, "classes.yaml": classes}))
			got := run(t, "", "-f", "claim.yaml", "--classes", "classes.yaml", "-o", "json")
			var report Report
			require.NoError(t, json.Unmarshal([]byte(got.stdout), &report), got.stderr)
			item := report.Items[0]
			if tc.outcome == "" {
				tc.outcome, tc.code = "Bound", item.Reason
			}
			require.Equal(t, tc.outcome, string(item.Outcome), "%s: %s", tc.reason, item.Message)
			assert.Equal(t, tc.code, item.Reason, tc.reason)
			if tc.outcome != "Malformed" {
				assert.Zero(t, got.status, tc.reason)
				return
			}
			assert.Equal(t, exitFailed, got.status, "We should exit with the status of a malformed claim.")
			require.Len(t, item.Errors, 1, "We should say it once.")
			assert.Equal(t, tc.field, item.Errors[0].Field, tc.reason)
			assert.Contains(t, item.Errors[0].Message, tc.want, tc.reason)
			assert.Contains(t, item.Message, "--strict=false explains the claim as it is", "We should say how to go on.")

			lenient := run(t, "", "-f", "claim.yaml", "--classes", "classes.yaml", "--strict=false")
			assert.NotContains(t, lenient.stdout, "mistaken", "We should explain it as it is with --strict=false.")
		})
	}
}

// TestSchemaReferences reads a schema as the API server publishes those of its own kinds.
func TestSchemaReferences(t *testing.T) {
	components := map[string]any{
		"Claim": map[string]any{"properties": map[string]any{
			"spec": map[string]any{"description": "A spec.", "allOf": []any{map[string]any{"$ref": "#/components/schemas/Spec"}}},
			"raw":  map[string]any{"$ref": "#/components/schemas/Raw"}, "loop": map[string]any{"$ref": "#/components/schemas/Loop"},
		}},
		"Spec": map[string]any{"properties": map[string]any{"storageClassName": map[string]any{"type": "string"}}},
		"Raw":  map[string]any{"type": "object"},
		"Loop": map[string]any{"$ref": "#/components/schemas/Loop"},
	}
	s := objectSchema{node: map[string]any{"$ref": "#/components/schemas/Claim"}, components: components}
	got := s.unknownFields(map[string]any{
		"apiVersion": "v1", "kind": "Claim", "metadata": map[string]any{"anything": 1}, "raw": map[string]any{"a": 1}, "loop": map[string]any{"a": 1},
		"spec": map[string]any{"storageClassname": "a", "storageClassName": "b"},
	})
	assert.Equal(t, []FieldError{{Field: "spec.storageClassname", Reason: "FieldUnknown", Message: "the schema has no such field: did you mean spec.storageClassName?"}}, got)
	many := map[string]any{}
	for name := range strings.SplitSeq("abcdefghij", "") {
		many[name] = 1
	}
	assert.Len(t, s.unknownFields(map[string]any{"spec": many}), maxRows, "We should name a few.")
}

func TestResembles(t *testing.T) {
	for name, tc := range map[string]struct {
		a, b string
		want bool
	}{
		"Same":          {"classRef", "classRef", false},
		"Case":          {"classref", "classRef", true},
		"Left out":      {"clasRef", "classRef", true},
		"Swapped":       {"calssRef", "classRef", true},
		"Two":           {"clasSelctor", "classSelector", true},
		"Three":         {"clsSelctor", "classSelector", false},
		"Short":         {"spce", "spec", true},
		"ShortTwo":      {"spe", "specs", false},
		"Other":         {"class", "classRef", false},
		"Empty":         {"", "a", true},
		"OtherClass":    {"redisclasses", "redisclusters", false},
		"ClassName":     {"className", "classRef", false},
		"OtherProvider": {"databases.aws.example.org", "databases.gcp.example.org", false},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, tc.want, resembles(tc.a, tc.b), "%q and %q", tc.a, tc.b) })
	}
}
