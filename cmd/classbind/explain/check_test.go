package explain

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/cmd/classbind/exit"
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
		"classRef": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}`

func TestCheck(t *testing.T) {
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
		"Group":              {reason: "We should leave alone a kind of another group.", claim: typed("example.org/v1", "exmaple.org/v1"), outcome: "LeftAlone", code: "NotRegistered"},
		"OtherKind":          {reason: "We should not say that all is well where a ClaimKind may be that of the claim.", claim: typed("Database", "Queue"), outcome: "Unmatched", code: "NotRegistered"},
		"Kind":               {reason: "We should refuse a kind that looks like a typing error.", claim: typed(`"Database"`, `"Databse"`), crd: true, outcome: "Malformed", code: "UnknownKind", field: "kind", want: "no ClaimKind registers this kind: did you mean Database?"},
		"ClassKind":          {reason: "We should leave alone a class, whatever it resembles.", claim: typed("Database", "Databasese"), outcome: "LeftAlone", code: "NotRegistered"},
		"Version": {
			reason: "We should refuse a version that nobody serves.", claim: typed("example.org/v1", "example.org/v9"), crd: true,
			outcome: "Malformed", code: "UnknownVersion", field: "apiVersion", want: `the CRD "databases.example.org" does not serve the version "v9": set apiVersion to example.org/v1`,
		},
		"VersionNoMore":        {reason: "We should refuse a version that is served no more.", claim: typed("example.org/v1", "example.org/v1alpha1"), crd: true, outcome: "Malformed", code: "UnknownVersion", field: "apiVersion", want: `does not serve the version "v1alpha1"`},
		"VersionWithoutSchema": {reason: "We should believe what we cannot check.", claim: typed("example.org/v1", "example.org/v9")},
		"Field": {
			reason: "We should not bind to the default a claim whose selector the API server drops.", claim: typed("classSelector", "classselector"), crd: true,
			outcome: "Malformed", code: "UnknownField", field: "spec.classselector", want: "the schema has no such field: did you mean spec.classSelector?",
		},
		"FieldWithoutSchema":  {reason: "We should know the fields that the ClaimKind reads.", claim: typed("classSelector", "clasSelector"), outcome: "Malformed", code: "UnknownField", field: "spec.clasSelector", want: "did you mean spec.classSelector?"},
		"ParentWithoutSchema": {reason: "We should know the fields that the ClaimKind reads, and their parents.", claim: typed(`"spec"`, `"Spec"`), outcome: "Malformed", code: "UnknownField", field: "Spec", want: "did you mean spec?"},
		"FieldOfTheVersion": {
			reason: "We should know the fields that the ClaimKind reads, where a version has no schema.", claim: strings.ReplaceAll(typed("classSelector", "clasSelector"), "org/v1", "org/v1beta1"), crd: true,
			outcome: "Malformed", code: "UnknownField", field: "spec.clasSelector", want: "did you mean spec.classSelector?",
		},
		"Annotation": {
			reason:  "We should see a typing error in classbind's own annotation.",
			claim:   `{"apiVersion": "example.org/v1", "kind": "Database", "metadata": {"name": "mine", "annotations": {"classbind.io/class-selctor": "tier=gold"}}}`,
			outcome: "Malformed", code: "UnknownField", field: "metadata.annotations.classbind.io/class-selctor", want: "did you mean metadata.annotations.classbind.io/class-selector?",
		},
		"AnyField":              {reason: "We should refuse a field that resembles none.", claim: claim(`{"classSelector": {}, "size": 3}`), crd: true, outcome: "Malformed", code: "UnknownField", field: "spec.size", want: "correct or remove it"},
		"AnyFieldWithoutSchema": {reason: "We should believe what we cannot check.", claim: claim(`{"classSelector": {}, "size": 3}`)},
		"Nested": {
			reason: "We should refuse a field in a list.", claim: claim(`{"classSelector": {"matchExpressions": [{"key": "tier", "operater": "Exists"}]}}`), crd: true,
			outcome: "Malformed", code: "UnknownField", field: "spec.classSelector.matchExpressions[0].operater", want: "did you mean spec.classSelector.matchExpressions[0].operator?",
		},
		"OtherFields":    {reason: "We should not take the fields of other controllers for typing errors.", claim: claim(`{"classSelector": {}, "claimRef": {"name": "a"}, "resourceRefs": []}`)},
		"BothWithoutCRD": {reason: "We should not take a field for a typing error of one that is there, too.", claim: claim(`{"classSelector": {}, "classSelectors": 1}`)},
	} {
		t.Run(name, func(t *testing.T) {
			classes := documents(claimKind, classKind, goldClass, `{"apiVersion": "classbind.io/v1beta1", "kind": "ClassKind", "metadata": {"name": "databaseses.example.org"}}`,
				`{"apiVersion": "classbind.io/v1beta1", "kind": "ClaimKind", "metadata": {"name": "dbs.example.org"}}`)
			if tc.crd {
				classes = documents(classes, databaseCRD)
			}
			t.Chdir(write(t, map[string]string{"claim.yaml": tc.claim, "classes.yaml": classes}))
			got, item := explained(t)
			if tc.outcome == "" {
				tc.outcome, tc.code = "Bound", item.Reason
			}
			require.Equal(t, tc.outcome, string(item.Outcome), "%s: %s", tc.reason, item.Message)
			assert.Equal(t, tc.code, item.Reason, tc.reason)
			if tc.outcome != "Malformed" {
				assert.Equal(t, map[bool]int{true: exit.Unmatched}[tc.outcome == "Unmatched"], got.status, tc.reason)
				return
			}
			assert.Equal(t, exit.Failed, got.status, "We should exit with the status of a malformed claim.")
			require.Len(t, item.Errors, 1, "We should say it once.")
			assert.Equal(t, tc.field, item.Errors[0].Field, tc.reason)
			assert.Contains(t, item.Errors[0].Message, tc.want, tc.reason)
		})
	}
}

func TestTheFirstClaimTellsTheKind(t *testing.T) {
	t.Chdir(write(t, map[string]string{
		"claims.yaml": documents(goldClaim, strings.ReplaceAll(strings.ReplaceAll(goldClaim, "Database", "DataBase"), "example.org/v1", "example.org/v2")), "classes.yaml": documents(claimKind, classKind, goldClass),
	}))
	got := run(t, "", "-f", "claims.yaml", "--classes", "classes.yaml")
	assert.Contains(t, got.stdout, "Database default/mine: bound to ", "We should not refuse a claim for a typing error in another one.")
	assert.Contains(t, got.stdout, "DataBase mine: left alone", "We should know the kind by the first claim.")
	assert.Zero(t, got.status)
}

// TestDecode has claims as the API server reads them.
func TestDecode(t *testing.T) {
	const crd = `{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "databases.example.org"},
		"spec": {"group": "example.org", "scope": "Namespaced", "names": {"plural": "databases", "kind": "Database"}, "versions": [
			{"name": "v1", "served": true, "schema": {"openAPIV3Schema": {"type": "object", "properties": {"metadata": {"type": "object"}, "spec": {"type": "object", "properties": {
				"classSelector": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
				"classRef": {"type": "object", "properties": {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "name": {"type": "string"}, "since": {"type": "string", "default": "now"}}}}}}}}}]}}`
	gold := func(more string) string { return strings.Replace(goldClaim, `"spec": {`, `"spec": {`+more, 1) }
	metadata := func(more string) string { return strings.Replace(goldClaim, `"name"`, more+`, "name"`, 1) }
	for name, tc := range map[string]struct {
		reason  string
		claim   string
		crd     string // crd unless set
		outcome string // Bound unless set
		want    []string
		notes   string
	}{
		"Many":          {reason: "We should bound the unknown fields.", claim: gold(`"a": 1, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1, "g": 1, "h": 1, "i": 1, "j": 1, "k": 1, `), outcome: "Malformed", want: slices.Repeat([]string{"spec."}, v1beta1.MaxErrors)},
		"LongName":      {reason: "We should shorten the name of a field.", claim: gold(`"` + strings.Repeat("x", 1000) + `": 1, `), outcome: "Malformed", want: []string{"spec.xxx"}},
		"MetadataField": {reason: "We should know the fields of metadata.", claim: metadata(`"lables": {"a": "b"}`), outcome: "Malformed", want: []string{"metadata.lables FieldUnknown the schema has no such field"}},
		"LabelType":     {reason: "We should know that labels are texts.", claim: metadata(`"labels": {"a": true}`), outcome: "Malformed", want: []string{"metadata FieldValueInvalid Invalid value: "}},
		"GenerateName":  {reason: "We should let the API server make up a name.", claim: strings.Replace(goldClaim, `"name"`, `"generateName"`, 1)},
		"Default":       {reason: "We should decide on a claim with its defaults, as the server does.", claim: goldClaim, crd: strings.ReplaceAll(crd, `"now"}}}`, `"now"}}, "default": {"name": "gold"}}`), outcome: "LeftAlone"},
		"NotStructural": {
			reason: "We should say that a schema is of no use.", claim: goldClaim, crd: strings.Replace(crd, `"type": "string"`, `"$ref": "#/a", "type": "string"`, 1),
			notes: "the fields of the claim are not checked against the schema: CRD \"databases.example.org\": version \"v1\": the schema is not structural",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(write(t, map[string]string{"claim.yaml": tc.claim, "classes.yaml": documents(claimKind, classKind, goldClass, cmp.Or(tc.crd, crd))}))
			_, item := explained(t)
			assert.Equal(t, cmp.Or(tc.outcome, "Bound"), string(item.Outcome), "%s: %s", tc.reason, item.Message)
			assert.Contains(t, strings.Join(item.Notes, "\n"), tc.notes, tc.reason)
			require.Len(t, item.Errors, len(tc.want), "%s: %v", tc.reason, item.Errors)
			for n, e := range item.Errors {
				assert.Contains(t, e.Field+" "+e.Reason+" "+e.Message, tc.want[n], tc.reason)
				assert.LessOrEqual(t, len(e.Field), v1beta1.MaxMessageBytes, "We should shorten what is long.")
			}
		})
	}
}
