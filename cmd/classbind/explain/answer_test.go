package explain

import (
	"cmp"
	"fmt"
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
		reason, claim     string
		crd               bool
		outcome           string // Bound unless set
		code, field, want string
	}{
		"Right": {reason: "We should explain a claim without a mistake.", claim: goldClaim, crd: true},
		"Group": {
			reason:  "We should leave alone a kind of another group.",
			claim:   typed("example.org/v1", "exmaple.org/v1"),
			outcome: "LeftAlone",
			code:    "NotRegistered",
		},
		"OtherKind": {
			reason:  "We should not say that all is well where a ClaimKind may be that of the claim.",
			claim:   typed("Database", "Queue"),
			outcome: "Unmatched",
			code:    "NotRegistered",
		},
		"Kind": {
			reason:  "We should refuse a kind that looks like a typing error.",
			claim:   typed(`"Database"`, `"Databse"`),
			crd:     true,
			outcome: "Malformed",
			code:    "UnknownKind",
			field:   "kind",
			want:    "no ClaimKind registers this kind: did you mean Database?",
		},
		"ClassKind": {
			reason:  "We should leave alone a class, whatever it resembles.",
			claim:   typed("Database", "Databasese"),
			outcome: "LeftAlone",
			code:    "NotRegistered",
		},
		"Version": {
			reason:  "We should refuse a version that nobody serves.",
			claim:   typed("example.org/v1", "example.org/v9"),
			crd:     true,
			outcome: "Malformed",
			code:    "UnknownVersion",
			field:   "apiVersion",
			want:    `the CRD "databases.example.org" does not serve the version "v9": set apiVersion to example.org/v1`,
		},
		"VersionWithoutSchema": {reason: "We should believe what we cannot check.", claim: typed("example.org/v1", "example.org/v9")},
		"Field": {
			reason:  "We should not bind to the default a claim whose selector the API server drops.",
			claim:   typed("classSelector", "classselector"),
			crd:     true,
			outcome: "Malformed",
			code:    "UnknownField",
			field:   "spec.classselector",
			want:    "the schema has no such field: did you mean spec.classSelector?",
		},
		"FieldWithoutSchema": {
			reason:  "We should know the fields that the ClaimKind reads.",
			claim:   typed("classSelector", "clasSelector"),
			outcome: "Malformed",
			code:    "UnknownField",
			field:   "spec.clasSelector",
			want:    "did you mean spec.classSelector?",
		},
		"Annotation": {
			reason:  "We should see a typing error in classbind's own annotation.",
			claim:   `{"apiVersion": "example.org/v1", "kind": "Database", "metadata": {"name": "mine", "annotations": {"classbind.io/class-selctor": "tier=gold"}}}`,
			outcome: "Malformed",
			code:    "UnknownField",
			field:   "metadata.annotations.classbind.io/class-selctor",
			want:    "did you mean metadata.annotations.classbind.io/class-selector?",
		},
		"AnyField": {
			reason:  "We should refuse a field that resembles none.",
			claim:   claim(`{"classSelector": {}, "size": 3}`),
			crd:     true,
			outcome: "Malformed",
			code:    "UnknownField",
			field:   "spec.size",
			want:    "correct or remove it",
		},
		"Nested": {
			reason: "We should refuse a field in a list.", claim: claim(`{"classSelector": {"matchExpressions": [{"key": "tier", "operater": "Exists"}]}}`), crd: true,
			outcome: "Malformed",
			code:    "UnknownField",
			field:   "spec.classSelector.matchExpressions[0].operater",
			want:    "did you mean spec.classSelector.matchExpressions[0].operator?",
		},
		"OtherFields": {
			reason: "We should not take the fields of other controllers for typing errors.",
			claim:  claim(`{"classSelector": {}, "claimRef": {"name": "a"}, "resourceRefs": []}`),
		},
	} {
		t.Run(name, func(t *testing.T) {
			classes := documents(claimKind, classKind, goldClass, `{"apiVersion": "classbind.io/v1beta1", "kind": "ClassKind", "metadata": {"name": `+
				`"databaseses.example.org"}}`,
				`{"apiVersion": "classbind.io/v1beta1", "kind": "ClaimKind", "metadata": {"name": "dbs.example.org"}}`)
			if tc.crd {
				classes = documents(classes, databaseCRD)
			}
			got, item := explained(t, tc.claim, classes)
			if tc.outcome == "" {
				tc.outcome, tc.code = "Bound", item.Reason
			}
			require.Equal(t, tc.outcome, string(item.Outcome), "%s: %s", tc.reason, item.Message)
			assert.Equal(t, tc.code, item.Reason, tc.reason)
			if tc.outcome != "Malformed" {
				assert.Equal(t, map[bool]int{true: exit.Found}[tc.outcome == "Unmatched"], got.status, tc.reason)
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
	other := strings.ReplaceAll(strings.ReplaceAll(goldClaim, "Database", "DataBase"), "example.org/v1", "example.org/v2")
	got := offline(t, documents(goldClaim, other), documents(claimKind, classKind, goldClass))
	assert.Contains(t, got.stdout, "Database default/mine: bound to ", "We should not refuse a claim for a typing error in another one.")
	assert.Contains(t, got.stdout, "DataBase mine: left alone", "We should know the kind by the first claim.")
	assert.Zero(t, got.status)
}

// TestDecode has claims as the API server reads them.
func TestDecode(t *testing.T) {
	const crd = `{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "databases.example.org"},
		"spec": {"group": "example.org", "scope": "Namespaced", "names": {"plural": "databases", "kind": "Database"}, "versions": [
			{"name": "v1", "served": true, "schema": {"openAPIV3Schema": {"type": "object", "properties": {"metadata": {"type": "object"},
			"spec": {"type": "object", "properties": {
				"classSelector": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
				"classRef": {"type": "object", "properties": {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "name": {"type": "string"},
				"since": {"type": "string", "default": "now"}}}}}}}}}]}}`
	gold := func(more string) string { return strings.Replace(goldClaim, `"spec": {`, `"spec": {`+more, 1) }
	metadata := func(more string) string { return strings.Replace(goldClaim, `"name"`, more+`, "name"`, 1) }
	for name, tc := range map[string]struct {
		reason, claim string
		crd           string // crd unless set
		outcome       string // Bound unless set
		want          []string
		notes         string
	}{
		"Many": {
			reason:  "We should bound the unknown fields.",
			claim:   gold(`"a": 1, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1, "g": 1, "h": 1, "i": 1, "j": 1, "k": 1, `),
			outcome: "Malformed",
			want:    slices.Repeat([]string{"spec."}, v1beta1.MaxErrors),
		},
		"MetadataField": {
			reason:  "We should know the fields of metadata.",
			claim:   metadata(`"lables": {"a": "b"}`),
			outcome: "Malformed",
			want:    []string{"metadata.lables FieldUnknown the schema has no such field"},
		},
		"Default": {
			reason:  "We should decide on a claim with its defaults, as the server does.",
			claim:   goldClaim,
			crd:     strings.ReplaceAll(crd, `"now"}}}`, `"now"}}, "default": {"name": "gold"}}`),
			outcome: "LeftAlone",
		},
		"NotStructural": {
			reason: "We should say that a schema is of no use.", claim: goldClaim, crd: strings.Replace(crd, `"type": "string"`, `"$ref": "#/a", "type": "string"`, 1),
			notes: "the fields of the claim are not checked against the schema: CRD \"databases.example.org\": version \"v1\": the schema is not structural",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, item := explained(t, tc.claim, documents(claimKind, classKind, goldClass, cmp.Or(tc.crd, crd)))
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

const usualClass = `{"apiVersion": "example.org/v1", "kind": "FastClass", "metadata": {"name": "usual", "annotations": ` +
	`{"resourceclass.crossplane.io/is-default-class": "true"}}}`

func TestExplainReferences(t *testing.T) {
	const queue = `{"label": "kueue.x-k8s.io/queue-name", "form": "Name"}`
	for name, tc := range map[string]struct {
		reason                        string
		spec                          string // of the ClaimKind
		metadata                      string // of the claim, beside its name
		claim                         string // its spec
		args                          []string
		outcome, code, message, notes string
	}{
		"Label": {
			reason: "We should say where the reference is.", spec: `{"reference": ` + queue + `}`, metadata: `, "labels": {"kueue.x-k8s.io/queue-name": "mine"}`,
			outcome: "LeftAlone",
			code:    "Settled",
			message: "metadata.labels[kueue.x-k8s.io/queue-name] is set",
			notes:   `its class "fastclasses.example.org/mine" is not there`,
		},
		"LabelMisspelt": {
			reason:   "We should look for a misspelt label, which no schema can find.",
			spec:     `{"reference": ` + queue + `}`,
			metadata: `, "labels": {"kueue.x-k8s.io/queue-nam": "mine"}`,
			outcome:  "Malformed",
			code:     "UnknownField",
			message:  "did you mean metadata.labels.kueue.x-k8s.io/queue-name?",
		},
		"Annotation": {
			reason:   "We should name the annotation that the kind has.",
			spec:     `{"selector": {"annotation": "example.org/select"}}`,
			claim:    `{}`,
			metadata: `, "annotations": {"classbind.io/class-selector": "a=b", "example.org/select": "a in"}`,
			outcome:  "Malformed", code: "MalformedClaim", message: "metadata.annotations[example.org/select]",
		},
		"Given": {
			reason:  "We should say why a class is not for the claim.",
			spec:    `{"reference": {"path": ".spec.ref"}}`,
			claim:   `{"ref": {"kind": "SlowClass"}, "classSelector": {}}`,
			outcome: "Unmatched", code: "NoMatchingClass", message: "dropped: 1 of another group, kind or namespace than the class reference of the claim says",
		},
		"EmptyNameIsSet": {
			reason:  "We should take an empty name for one.",
			spec:    `{"reference": {"path": ".spec.ref", "form": "Name", "whenEmpty": "LeaveAlone"}}`,
			claim:   `{"ref": ""}`,
			outcome: "LeftAlone",
			code:    "Settled",
			message: "spec.ref is set",
		},
		"Parent": {
			reason:  "We should say what is absent.",
			spec:    `{"reference": {"path": ".spec.topology.classRef", "whenParentAbsent": "LeaveAlone"}}`,
			claim:   `{}`,
			outcome: "LeftAlone",
			code:    "ParentAbsent",
			message: "the parent of .spec.topology.classRef is absent, and whenParentAbsent is LeaveAlone",
		},
		"NoSelector": {
			reason:  "We should say what is absent.",
			spec:    `{"selector": {"whenAbsent": "LeaveAlone"}}`,
			claim:   `{}`,
			outcome: "LeftAlone",
			code:    "NoSelector",
			message: "the claim has no class selector, and selector.whenAbsent is LeaveAlone",
		},
		"Any": {
			reason:  "We should say why the claim gets any class.",
			spec:    `{"selector": {"whenAbsent": "Any"}}`,
			claim:   `{}`,
			outcome: "Bound",
			code:    "AnyClass",
			message: "the only class that is there, and a claim without a class selector gets any, because selector.whenAbsent is Any",
		},
	} {
		t.Run(name, func(t *testing.T) {
			claim := fmt.Sprintf(`{"apiVersion": "example.org/v1", "kind": "Database", "metadata": {"name": "mine"%s}, "spec": %s}`, tc.metadata, cmp.Or(tc.claim, "{}"))
			kind := fmt.Sprintf(`{"apiVersion": "classbind.io/v1beta1", "kind": "ClaimKind", "metadata": {"name": "databases.example.org"}, "spec": %s}`, tc.spec)
			_, item := explained(t, claim, documents(kind, classKind, usualClass), tc.args...)
			assert.Equal(t, tc.outcome, string(item.Outcome), tc.reason)
			assert.Equal(t, tc.code, item.Reason, tc.reason)
			assert.Contains(t, item.Message, tc.message, tc.reason)
			assert.Contains(t, fmt.Sprint(item.Notes), tc.notes, tc.reason)
		})
	}
}

func TestExplainCountsClaims(t *testing.T) {
	second := `{"apiVersion": "classbind.io/v1beta1", "kind": "ClaimKind", "metadata": {"name": "second"}, "spec": {"claims": {"resource": ` +
		`"databases.example.org"}, "reference": {"path": ".spec.second"}, "selector": {"annotation": "example.org/second"}}}`
	got := offline(t, `{"apiVersion": "example.org/v1", "kind": "Database", "metadata": {"name": "mine"}, "spec": {}}`, documents(
		claimKind, second, classKind, usualClass,
	))
	assert.Contains(t, got.stdout, "by databases.example.org: bound to FastClass/usual")
	assert.Contains(t, got.stdout, "by second: no class")
	assert.Equal(t, 1, got.status, "We should say that a class is missing, though there is one.")
	assert.Contains(t, got.stderr, "error: the claim gets no class")
}

// TestExplainNotRegistered explains a claim of a kind of Kubernetes that no ClaimKind registers, beside one of its group.
func TestExplainNotRegistered(t *testing.T) {
	got := offline(t, `{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "mine"}}`,
		`{"apiVersion": "classbind.io/v1beta1", "kind": "ClaimKind", "metadata": {"name": "ingresses.networking.k8s.io"}}`)
	assert.Contains(t, got.stdout, "no ClaimKind registers this kind\n",
		"We should leave it alone: no CRD could tell more of its group.")
	assert.Zero(t, got.status)
}

// TestUnboundKeepsTheAuthors explains bound claims as if they were created now, whose authors gave a part of the reference.
func TestUnboundKeepsTheAuthors(t *testing.T) {
	const kinds = `{"apiVersion": "classbind.io/v1beta1", "kind": "ClaimKind", "metadata": {"name": "databases.example.org"}, "spec": ` +
		`{"reference": {"path": ".spec.ref", "whenAbsent": "LeaveAlone"}}}`
	slow := strings.NewReplacer("FastClass", "SlowClass", "fastclasses", "slowclasses", "usual", "late", `"true"`, `"false"`).Replace
	managed := func(manager, fields string) string {
		return fmt.Sprintf(
			`, "managedFields": [{"manager": %q, "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:ref": {%s}}}}]`,
			manager, fields,
		)
	}
	for name, tc := range map[string]struct {
		reason, managed, ref string
		candidates           int
		note                 string
	}{
		"Given":     {reason: "We should keep the kind of which the author says that it counts.", managed: managed("kubectl-create", `"f:kind": {}`), candidates: 1},
		"BoundLate": {reason: "We should take away what late binding wrote.", managed: managed("classbind", `"f:kind": {}, "f:name": {}`), candidates: 2},
		"Others": {
			reason:     "We should keep what no class has, and say what we do not know.",
			ref:        `, "major": 16`,
			candidates: 2,
			note:       "what the author wrote of .spec.ref is not known",
		},
	} {
		t.Run(name, func(t *testing.T) {
			claim := fmt.Sprintf(`{"apiVersion": "example.org/v1", "kind": "Database", "metadata": {"name": "mine"%s}, "spec": {"classSelector": {}, `+
				`"ref": {"kind": "SlowClass", "name": "late"%s}}}`, tc.managed, tc.ref)
			files := documents(kinds, classKind, slow(classKind), usualClass, slow(usualClass))
			_, item := explained(t, claim, files, "--unbound")
			assert.Equal(t, Bound, item.Outcome, item.Message)
			assert.Len(t, item.Explanation.Candidates, tc.candidates, tc.reason)
			assert.Contains(t, fmt.Sprint(item.Notes), tc.note, tc.reason)
			assert.Equal(t, tc.note != "", strings.Contains(fmt.Sprint(item.Notes), "not known"), "%s %v", tc.reason, item.Notes)
		})
	}
}
