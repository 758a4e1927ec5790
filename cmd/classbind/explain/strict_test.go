package explain

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/api/v1alpha1"
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
			reason: "We should leave alone a kind of another group.", claim: typed("example.org/v1", "exmaple.org/v1"), outcome: "LeftAlone", code: "NotRegistered",
		},
		"ShortKind": {
			reason: "We should not take one short name for another.", claim: typed("Database", "VM"), outcome: "Unmatched", code: "NotRegistered",
		},
		"OtherKind": {
			reason: "We should not say that all is well where a ClaimKind may be that of the claim.", claim: typed("Database", "Queue"), outcome: "Unmatched", code: "NotRegistered",
		},
		"ClassKind": {
			reason: "We should leave alone a class, whatever it resembles.", claim: typed("Database", "Databasese"), outcome: "LeftAlone", code: "NotRegistered",
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
		"OtherFields": {
			reason: "We should not take the fields of other controllers for typing errors.", claim: claim(`{"classSelector": {}, "claimRef": {"name": "a"}, "resourceRefs": []}`),
		},
		"Labels":         {reason: "We should let a map have any key.", claim: claim(`{"classSelector": {"matchLabels": {"tier": "gold"}}}`), crd: true},
		"Embedded":       {reason: "We should let an embedded object have its kind and metadata.", claim: claim(`{"classSelector": {}, "template": {"apiVersion": "v1", "kind": "A", "metadata": {"name": "a"}, "size": 1}}`), crd: true},
		"Preserved":      {reason: "We should let an object have any field that is preserved.", claim: claim(`{"classSelector": {}, "classRef": {"anything": 1}}`), crd: true, outcome: "LeftAlone", code: "Settled"},
		"RealField":      {reason: "We should not take a field of the schema for a typing error.", claim: claim(`{"classSelector": {}, "classSelection": "a"}`), crd: true},
		"BothWithoutCRD": {reason: "We should not take a field for a typing error of one that is there, too.", claim: claim(`{"classSelector": {}, "classSelectors": 1}`)},
	} {
		t.Run(name, func(t *testing.T) {
			classes := documents(claimKind, classKind, goldClass, `{"apiVersion": "classbind.io/v1alpha1", "kind": "ClassKind", "metadata": {"name": "databaseses.example.org"}}`,
				`{"apiVersion": "classbind.io/v1alpha1", "kind": "ClaimKind", "metadata": {"name": "dbs.example.org"}}`)
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
				assert.Equal(t, map[bool]int{true: exitUnmatched}[tc.outcome == "Unmatched"], got.status, tc.reason)
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

func TestStrictKeepsTheFirstKind(t *testing.T) {
	t.Chdir(write(t, map[string]string{
		"claims.yaml": documents(goldClaim, strings.ReplaceAll(strings.ReplaceAll(goldClaim, "Database", "DataBase"), "example.org/v1", "example.org/v2")), "classes.yaml": documents(claimKind, classKind, goldClass),
	}))
	got := run(t, "", "-f", "claims.yaml", "--classes", "classes.yaml")
	assert.Contains(t, got.stdout, "Database default/mine: bound to ", "We should not refuse a claim for a typing error in another one.")
	assert.Contains(t, got.stdout, "did you mean example.org/v1 Database of databases.example.org?", "We should know the kind by the first claim.")
	assert.Equal(t, exitFailed, got.status)
}

func TestExplainLeavesOutUnservedClasses(t *testing.T) {
	const crd = `{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "fastclasses.example.org"},
		"spec": {"group": "example.org", "scope": "Cluster", "names": {"kind": "FastClass"}, "versions": [{"name": "v1", "served": true}, {"name": "v2", "served": false}]}}`
	typed := func(from, to string) string { return strings.ReplaceAll(goldClass, from, to) }
	for name, tc := range map[string]struct {
		reason string
		object string
		crd    bool
		note   string // empty if there is none
		bound  bool
	}{
		"Class":          {"We should offer a class.", goldClass, true, "", true},
		"OtherKind":      {"We should say nothing of other objects.", typed("FastClass", "Queue"), true, "", false},
		"OtherGroup":     {"We should say nothing of objects of other groups.", typed("example.org", "example.net"), true, "", false},
		"Claim":          {"We should say nothing of a claim.", goldClaim, true, "", false},
		"Version":        {"We should not offer a class of a version that is served no more.", typed("org/v1", "org/v2"), true, `FastClass "gold" is left out: the CRD "fastclasses.example.org" does not serve the version "v2": set apiVersion to example.org/v1`, false},
		"UnknownVersion": {"We should believe a version that we cannot check.", typed("org/v1", "org/v2"), false, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			objects := documents(claimKind, classKind, tc.object, strings.ReplaceAll(classKind, "fastclasses", "databasess"))
			if tc.crd {
				objects = documents(objects, crd)
			}
			t.Chdir(write(t, map[string]string{"claim.yaml": goldClaim, "classes.yaml": objects}))
			got := run(t, "", "-f", "claim.yaml", "--classes", "classes.yaml")
			assert.Equal(t, tc.bound, got.status == 0, "%s: %s", tc.reason, got.stdout)
			assert.Contains(t, got.stderr, tc.note, tc.reason)
			assert.Equal(t, tc.note != "", strings.Contains(got.stderr, "note: classes.yaml, document 3: "), tc.reason)
		})
	}
}

// values is a claim kind whose schema has one of each sort of restriction.
const values = `{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "databases.example.org"},
	"spec": {"group": "example.org", "scope": "Namespaced", "names": {"plural": "databases", "kind": "Database"}, "versions": [
		{"name": "v1", "served": true, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": ` + valuesSchema + `}}]}}`

const valuesSchema = `{"type": "object", "required": ["spec"],
	"x-kubernetes-group-version-kind": [{"group": "example.org", "version": "v1", "kind": "Database"}],
	"x-kubernetes-validations": [{"rule": "self.metadata.name != 'forbidden'", "message": "this name is taken"}],
	"properties": {
		"metadata": {"type": "object"},
		"status": {"type": "object", "required": ["phase"], "properties": {"phase": {"type": "string"}}},
		"spec": {"type": "object", "required": ["engine"],
			"x-kubernetes-validations": [
				{"rule": "!has(self.min) || !has(self.max) || self.min <= self.max", "message": "min must not be above max", "fieldPath": ".min"},
				{"rule": "self.size != 13", "messageExpression": "'no size of ' + string(self.size)"},
				{"rule": "!has(oldSelf.engine) || self.engine == oldSelf.engine", "message": "the engine does not change"},
				{"rule": "!has(self.classRef) || self.classRef.name != 'bad'", "message": "not this class", "reason": "FieldValueForbidden"}],
			"properties": {
				"classSelector": {"type": "object", "properties": {"matchLabels": {"type": "object", "additionalProperties": {"type": "string"}}}},
				"classRef": {"type": "object", "required": ["name"], "properties": {
					"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "name": {"type": "string"}, "since": {"type": "string", "default": "now"}}},
				"engine": {"type": "string", "enum": ["postgres", "mysql"]},
				"size": {"type": "integer", "default": 1, "maximum": 99},
				"zone": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5},
				"min": {"type": "integer"}, "max": {"type": "integer"},
				"users": {"type": "array", "maxItems": 5000, "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
				"pairs": {"type": "array", "items": {"type": "integer"}, "x-kubernetes-validations": [{"rule": "self.all(x, self.all(y, x + y > 0))"}]}}}}}`

func TestStrictValues(t *testing.T) {
	claim := func(metadata, spec string) string {
		return `{"apiVersion": "example.org/v1", "kind": "Database", "metadata": ` + metadata + `, "spec": ` + spec + `}`
	}
	gold := func(more string) string {
		return claim(`{"name": "mine"}`, `{"engine": "mysql", "classSelector": {"matchLabels": {"tier": "gold"}}`+more+`}`)
	}
	for name, tc := range map[string]struct {
		reason  string
		claim   string
		crd     string // values unless set
		classes string // goldClass unless set
		args    []string
		outcome string // Bound unless set
		code    string // Invalid unless set
		want    []string
		notes   string
	}{
		"Right":    {reason: "We should explain a claim without a mistake.", claim: gold("")},
		"Type":     {reason: "We should refuse a wrong type.", claim: gold(`, "size": "big"`), want: []string{`spec.size FieldValueTypeInvalid Invalid value: "string": spec.size in body must be of type integer: "string"`}, notes: "the rules (CEL) of the schema are not checked before these errors are corrected"},
		"Required": {reason: "We should refuse a claim without a field that it needs.", claim: claim(`{"name": "mine"}`, `{}`), want: []string{"spec.engine FieldValueRequired Required value: set it"}, notes: "the rules (CEL)"},
		"Enum":     {reason: "We should say which values there are.", claim: claim(`{"name": "mine"}`, `{"engine": "oracle"}`), want: []string{`spec.engine FieldValueNotSupported Unsupported value: "oracle": supported values: "postgres", "mysql"`}, notes: "the rules (CEL)"},
		"Pattern":  {reason: "We should say the pattern.", claim: gold(`, "zone": "B"`), want: []string{`spec.zone FieldValueInvalid Invalid value: "B": spec.zone in body should match '^[a-z]+$'`}},
		"Length":   {reason: "We should say how long a text may be.", claim: gold(`, "zone": "abcdef"`), want: []string{"spec.zone FieldValueTooLong Too long: may not be more than 5 bytes"}, notes: "the rules (CEL)"},
		"Maximum":  {reason: "We should say what is too much.", claim: gold(`, "size": 100`), want: []string{"spec.size FieldValueInvalid Invalid value: 100: spec.size in body should be less than or equal to 99"}},
		"Set":      {reason: "We should refuse what is there twice in a set.", claim: gold(`, "users": ["a", "a"]`), want: []string{`spec.users[1] FieldValueDuplicate Duplicate value: "a"`}},
		"Several":  {reason: "We should say everything at once.", claim: gold(`, "zone": "B", "size": 100`), want: []string{"spec.size ", "spec.zone "}},
		"Rule":     {reason: "We should evaluate the rules of a schema.", claim: gold(`, "min": 2, "max": 1`), want: []string{"spec.min FieldValueInvalid Invalid value: min must not be above max"}},
		"RuleWithPattern": {
			reason: "We should evaluate the rules as the API server does, if a value of the right type is wrong.", claim: gold(`, "min": 2, "max": 1, "zone": "B"`),
			want: []string{"spec.min FieldValueInvalid Invalid value: min must not be above max", "spec.zone FieldValueInvalid "},
		},
		"Message": {reason: "We should have a rule's expression write its message.", claim: gold(`, "size": 13`), want: []string{"spec FieldValueInvalid Invalid value: no size of 13"}},
		"RuleOfTheWhole": {
			reason: "We should not call the whole claim <nil>.", claim: claim(`{"name": "forbidden"}`, `{"engine": "mysql"}`), want: []string{" FieldValueInvalid Invalid value: this name is taken"},
		},
		"Cost": {
			reason: "We should not evaluate a rule for ever.", claim: gold(`, "pairs": [1` + strings.Repeat(", 1", 3000) + `]`),
			want: []string{"spec.pairs FieldValueInvalid Invalid value: \"array\": 'operation cancelled: actual cost limit exceeded': no further validation rules will be run"},
		},
		"NewerRule": {
			reason: "We should not refuse a claim for a rule that this library does not know.", claim: gold(""),
			crd:   strings.ReplaceAll(values, "self.size != 13", "self.size.inventedLater()"),
			notes: "a rule (CEL) of the schema at spec is not checked: rule compile error: ",
		},
		"Many": {
			reason: "We should bound the errors.", claim: gold(`, "users": [1` + strings.Repeat(", 1", 20) + `]`), notes: "the rules (CEL)",
			want: append(slices.Repeat([]string{"spec.users["}, 9), " FieldValueTooMany there are more errors than these 9: correct them, and try again"),
		},
		"Unknown": {
			reason: "We should bound the unknown fields, too.", code: "UnknownField",
			claim: gold(`, "a": 1, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1, "g": 1, "h": 1, "i": 1, "j": 1, "k": 1`),
			want:  append(slices.Repeat([]string{"spec."}, 9), " FieldValueTooMany there are more errors"),
		},
		"LongName": {
			reason: "We should shorten the name of a field.", claim: gold(`, "` + strings.Repeat("x", 1000) + `": 1`), code: "UnknownField",
			want: []string{"spec.xxx"},
		},
		"Long": {
			reason: "We should shorten what is long.", claim: claim(`{"name": "mine"}`, `{"engine": "`+strings.Repeat("x", 10_000)+`"}`),
			want: []string{`spec.engine FieldValueNotSupported Unsupported value: "xxx`}, notes: "the rules (CEL)",
		},
		"Default":           {reason: "We should fill in defaults before we evaluate rules.", claim: claim(`{"name": "mine"}`, `{"engine": "mysql", "size": null}`), outcome: "Unmatched"},
		"DefaultOfClassRef": {reason: "We should decide on a claim with its defaults, as the server does.", claim: gold(""), crd: strings.ReplaceAll(values, `"since": {"type": "string", "default": "now"}}`, `"since": {"type": "string"}}, "default": {"name": "gold"}`), outcome: "LeftAlone"},
		"RequiredClassRef": {
			reason: "We should validate a claim with the reference that it gets.", claim: gold(""), crd: strings.ReplaceAll(values, `["engine"]`, `["engine", "classRef"]`),
		},
		"RequiredClassRefUnmatched": {
			reason: "We should say that classbind refuses a claim that the schema refuses without a class.", claim: strings.ReplaceAll(gold(""), "gold", "lead"), crd: strings.ReplaceAll(values, `["engine"]`, `["engine", "classRef"]`),
			outcome: "Unmatched",
		},
		"RequiredClassRefDenied": {
			reason: "We should say that classbind refuses a claim before the API server would.", claim: strings.ReplaceAll(gold(""), "gold", "lead"), crd: strings.ReplaceAll(values, `["engine"]`, `["engine", "classRef"]`),
			classes: goldClass + "\n---\n" + `{"apiVersion": "classbind.io/v1alpha1", "kind": "ClassKind", "metadata": {"name": "others.example.org"}}`, args: []string{"Deny"}, outcome: "Unmatched",
		},
		"ClassThatARuleForbids": {
			reason: "We should evaluate rules about the reference.", claim: gold(""), classes: strings.ReplaceAll(goldClass, `"name": "gold"`, `"name": "bad"`),
			want: []string{"spec FieldValueForbidden Forbidden: not this class"},
		},
		"LeftAlone": {
			reason: "We should validate a claim that is left alone.", claim: claim(`{"name": "mine"}`, `{"engine": "mysql", "classRef": {"kind": "a"}}`), want: []string{"spec.classRef.name FieldValueRequired Required value: set it"}, notes: "the rules (CEL)",
		},
		"Status":       {reason: "We should not look at a status that nobody can set.", claim: strings.Replace(gold(""), `"spec"`, `"status": {"phase": 1}, "spec"`, 1)},
		"GenerateName": {reason: "We should let the API server make up a name.", claim: strings.Replace(gold(""), `"name"`, `"generateName"`, 1)},
		"NoName":       {reason: "We should know that a claim needs a name.", claim: claim(`{}`, `{"engine": "mysql"}`), want: []string{"metadata.name FieldValueRequired Required value: name or generateName is required"}, notes: "the rules (CEL)"},
		"Name":         {reason: "We should know what a name may be.", claim: claim(`{"name": "My_DB"}`, `{"engine": "mysql"}`), want: []string{`metadata.name FieldValueInvalid Invalid value: "My_DB": a lowercase RFC 1123 subdomain`}},
		"Label":        {reason: "We should know what a label may be.", claim: claim(`{"name": "mine", "labels": {"a": "b c"}}`, `{"engine": "mysql"}`), want: []string{`metadata.labels FieldValueInvalid Invalid value: "b c": a valid label`}},
		"LabelType":    {reason: "We should know that labels are texts.", claim: claim(`{"name": "mine", "labels": {"a": true}}`, `{"engine": "mysql"}`), want: []string{"metadata FieldValueInvalid Invalid value: "}},
		"MetadataField": {
			reason: "We should know the fields of metadata.", claim: claim(`{"name": "mine", "lables": {"a": "b"}}`, `{"engine": "mysql"}`), code: "UnknownField",
			want: []string{"metadata.lables FieldUnknown the schema has no such field"},
		},
		"NotStructural": {
			reason: "We should say that a schema is of no use.", claim: gold(""), crd: strings.Replace(values, `"pattern"`, `"$ref": "#/a", "pattern"`, 1),
			notes: "the fields of the claim are not checked against the schema: CRD \"databases.example.org\": version \"v1\": the schema is not structural",
		},
		"Preserving": {
			reason: "We should know nothing of a kind that preserves all unknown fields.", claim: gold(`, "anything": 1`), crd: strings.Replace(values, `"scope"`, `"preserveUnknownFields": true, "scope"`, 1),
		},
	} {
		t.Run(name, func(t *testing.T) {
			registered := strings.Replace(claimKind, "}}", `}, "spec": {"whenUnmatched": "`+cmp.Or(strings.Join(tc.args, ""), "Admit")+`"}}`, 1)
			t.Chdir(write(t, map[string]string{"claim.yaml": tc.claim, "classes.yaml": documents(registered, classKind, cmp.Or(tc.classes, goldClass), cmp.Or(tc.crd, values))}))
			got := run(t, "", "-f", "claim.yaml", "--classes", "classes.yaml", "-o", "json")
			var report Report
			require.NoError(t, json.Unmarshal([]byte(got.stdout), &report), got.stderr)
			item := report.Items[0]
			assert.Contains(t, strings.Join(item.Notes, "\n"), tc.notes, tc.reason)
			if tc.notes == "" {
				assert.Empty(t, item.Notes, tc.reason)
			}
			if tc.want == nil {
				assert.Equal(t, cmp.Or(tc.outcome, "Bound"), string(item.Outcome), "%s: %s", tc.reason, item.Message)
				return
			}
			require.Equal(t, "Malformed", string(item.Outcome), tc.reason)
			assert.Equal(t, cmp.Or(tc.code, "Invalid"), item.Reason, tc.reason)
			assert.Equal(t, exitFailed, got.status, "We should exit with the status of a malformed claim.")
			require.Len(t, item.Errors, len(tc.want), "%s: %v", tc.reason, item.Errors)
			for n, e := range item.Errors {
				assert.Contains(t, e.Field+" "+e.Reason+" "+e.Message, tc.want[n], tc.reason)
				assert.LessOrEqual(t, len(e.Field), v1alpha1.MaxMessageBytes, "We should shorten what is long.")
				assert.LessOrEqual(t, len(e.Message), v1alpha1.MaxMessageBytes, "We should shorten what is long.")
			}
			assert.NotContains(t, got.stdout, "<nil>", "We should not call the whole claim <nil>.")
			assert.Contains(t, item.Message, "--strict=false explains the claim as it is", "We should say how to go on.")
		})
	}
}

// builtIn is a document as the API server publishes it of its own kinds.
const builtIn = `{"components": {"schemas": {
	"Claim": {"type": "object", "x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "Claim"}], "required": ["never"], "properties": {
		"metadata": {"allOf": [{"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}], "default": {}},
		"spec": {"description": "A spec.", "allOf": [{"$ref": "#/components/schemas/Spec"}]},
		"raw": {"$ref": "#/components/schemas/Raw"}, "list": {"type": "array", "items": {"$ref": "#/components/schemas/Spec"}},
		"map": {"type": "object", "additionalProperties": {"$ref": "#/components/schemas/Spec"}},
		"loop": {"$ref": "#/components/schemas/Loop"}, "lost": {"$ref": "#/components/schemas/Lost"}, "many": {"$ref": "#/components/schemas/D0"}}},
	"Spec": {"type": "object", "properties": {"storageClassName": {"type": "string"}, "template": {"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}}},
	"Raw": {"type": "object"},
	"Loop": {"type": "object", "properties": {"loop": {"$ref": "#/components/schemas/Loop"}}}%s}}}`

func TestSchemaOfBuiltIn(t *testing.T) {
	kind := schema.GroupVersionKind{Version: "v1", Kind: "Claim"}
	s, err := schemaOfOpenAPI(fmt.Appendf(nil, builtIn, ""), kind)
	require.NoError(t, err)
	claim := object{
		"apiVersion": "v1", "kind": "Claim", "metadata": object{"name": "a", "lables": object{}}, "raw": object{"a": int64(1)}, "lost": object{"a": int64(1)},
		"loop": object{"loop": object{"a": int64(1)}, "a": int64(1)}, "list": []any{object{"a": int64(1)}}, "map": object{"any": object{"storageclassName": "a"}},
		"spec": object{"storageClassname": int64(1), "template": object{"name": "a"}},
	}
	var got []string
	for _, e := range s.decode(claim) {
		assert.Equal(t, "FieldUnknown", e.Reason)
		got = append(got, e.Field+" "+e.Message)
	}
	const remove = " the schema has no such field, and the API server does not store it: correct or remove it"
	assert.Equal(t, []string{
		"list[0].a" + remove, "loop.a" + remove, "map.any.storageclassName the schema has no such field: did you mean map.any.storageClassName?",
		"spec.storageClassname the schema has no such field: did you mean spec.storageClassName?", "metadata.lables" + remove,
	}, got, "We should follow references, and believe what we cannot check.")
	errs, notes := s.validate(t.Context(), claim)
	assert.Empty(t, errs, "We should leave the values of such a kind to the API server.")
	assert.Empty(t, notes)

	var doubling strings.Builder // Each level refers to the next one twice.
	for n := range 100 {
		fmt.Fprintf(&doubling, `, "D%d": {"type": "object", "properties": {"a": {"$ref": "#/components/schemas/D%[2]d"}, "b": {"$ref": "#/components/schemas/D%[2]d"}}}`, n, n+1)
	}
	s, err = schemaOfOpenAPI(fmt.Appendf(nil, builtIn, doubling.String()), kind)
	require.NoError(t, err, "We should not follow references for ever.")
	assert.Len(t, s.decode(object{"apiVersion": "v1", "kind": "Claim", "many": object{"a": object{"c": int64(1)}}}), 1, "We should know what we followed.")

	_, err = schemaOfOpenAPI(fmt.Appendf(nil, builtIn, ""), kind.GroupKind().WithVersion("v2"))
	require.Error(t, err, "We should say that there is no schema.")
}

func TestResembles(t *testing.T) {
	for name, tc := range map[string]struct {
		a, b string
		want bool
	}{
		"Same":       {"classRef", "classRef", false},
		"Case":       {"classref", "classRef", true},
		"LeftOut":    {"clasRef", "classRef", true},
		"Swapped":    {"calssRef", "classRef", true},
		"Two":        {"clasSelctor", "classSelector", true},
		"Three":      {"clsSelctor", "classSelector", false},
		"TwoOfNine":  {"dtabses", "databases", false},
		"TwoOfTen":   {"dtastors", "datastores", true},
		"TwoOfEight": {"claimRef", "classRef", false},
		"Short":      {"spce", "spec", true},
		"ShortTwo":   {"spe", "specs", false},
		"Shorter":    {"vms", "vm", false},
		"ShortCase":  {"DBS", "dbs", true},
		"Other":      {"class", "classRef", false},
		"Empty":      {"", "a", false},
		"OtherClass": {"redisclasses", "redisclusters", false},
		"ClassName":  {"className", "classRef", false},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, tc.want, resembles(tc.a, tc.b), "%q and %q", tc.a, tc.b) })
	}
}
