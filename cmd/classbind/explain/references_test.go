package explain

import (
	"cmp"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestExplainReferences(t *testing.T) {
	const queue = `{"label": "kueue.x-k8s.io/queue-name", "form": "Name"}`
	usual := `{"apiVersion": "example.org/v1", "kind": "FastClass", "metadata": {"name": "usual", "annotations": {"resourceclass.crossplane.io/is-default-class": "true"}}}`
	for name, tc := range map[string]struct {
		reason         string
		spec           string // of the ClaimKind
		metadata       string // of the claim, beside its name
		claim          string // its spec
		args           []string
		outcome, code  string
		message, notes string
	}{
		"Label": {
			reason: "We should say where the reference is.", spec: `{"reference": ` + queue + `}`, metadata: `, "labels": {"kueue.x-k8s.io/queue-name": "mine"}`,
			outcome: "LeftAlone", code: "Settled", message: "metadata.labels[kueue.x-k8s.io/queue-name] is set; --unbound explains", notes: `its class "fastclasses.example.org/mine" is not there`,
		},
		"LabelUnbound": {
			reason: "We should explain the claim without its label.", spec: `{"reference": ` + queue + `}`, metadata: `, "labels": {"kueue.x-k8s.io/queue-name": "mine"}`, args: []string{"--unbound"},
			outcome: "Bound", code: "DefaultClass", message: "the only class that is marked default",
		},
		"LabelMisspelt": {
			reason: "We should look for a misspelt label, which no schema can find.", spec: `{"reference": ` + queue + `}`, metadata: `, "labels": {"kueue.x-k8s.io/queue-nam": "mine"}`,
			outcome: "Malformed", code: "UnknownField", message: "did you mean metadata.labels.kueue.x-k8s.io/queue-name?",
		},
		"SkipIfSet": {
			reason: "We should say which annotation is set.", spec: `{"claims": {"skipIfSet": [{"annotation": "kubernetes.io/ingress.class"}]}}`, metadata: `, "annotations": {"kubernetes.io/ingress.class": "nginx"}`,
			outcome: "LeftAlone", code: "Settled", message: "metadata.annotations[kubernetes.io/ingress.class] is set",
		},
		"Annotation": {
			reason: "We should name the annotation that the kind has.", spec: `{"selector": {"annotation": "example.org/select"}}`, claim: `{}`, metadata: `, "annotations": {"classbind.io/class-selector": "a=b", "example.org/select": "a in"}`,
			outcome: "Malformed", code: "MalformedClaim", message: "metadata.annotations[example.org/select]",
		},
		"Given": {
			reason: "We should say why a class is not for the claim.", spec: `{"reference": {"path": ".spec.ref", "whenEmpty": "Bind"}}`, claim: `{"ref": {"kind": "SlowClass"}, "classSelector": {}}`,
			outcome: "Unmatched", code: "NoMatchingClass", message: "dropped: 1 of another group, kind or namespace than the class reference of the claim says",
		},
		"GivenUnbound": {
			reason: "We should keep what the author has set of an empty reference.", spec: `{"reference": {"path": ".spec.ref", "whenEmpty": "Bind"}}`, claim: `{"ref": {"kind": "SlowClass", "name": ""}, "classSelector": {}}`, args: []string{"--unbound"},
			outcome: "Unmatched", code: "NoMatchingClass", message: "dropped: 1 of another group, kind or namespace than the class reference of the claim says",
		},
		"EmptyName":      {reason: "We should take an empty name for none.", spec: `{"reference": {"path": ".spec.ref", "form": "Name", "whenEmpty": "Bind"}}`, claim: `{"ref": ""}`, outcome: "Bound", code: "DefaultClass", message: "the only class that is marked default"},
		"EmptyNameIsSet": {reason: "We should take an empty name for one.", spec: `{"reference": {"path": ".spec.ref", "form": "Name"}}`, claim: `{"ref": ""}`, outcome: "LeftAlone", code: "Settled", message: "spec.ref is set"},
		"Parent": {
			reason: "We should say what is absent.", spec: `{"reference": {"path": ".spec.topology.classRef", "whenParentAbsent": "LeaveAlone"}}`, claim: `{}`,
			outcome: "LeftAlone", code: "ParentAbsent", message: "the parent of .spec.topology.classRef is absent, and whenParentAbsent is LeaveAlone",
		},
		"NoSelector": {reason: "We should say what is absent.", spec: `{"selector": {"whenAbsent": "LeaveAlone"}}`, claim: `{}`, outcome: "LeftAlone", code: "NoSelector", message: "the claim has no class selector, and selector.whenAbsent is LeaveAlone"},
		"Any": {
			reason: "We should say why the claim gets any class.", spec: `{"selector": {"whenAbsent": "Any"}}`, claim: `{}`,
			outcome: "Bound", code: "AnyClass", message: "the only class that is there, and a claim without a class selector gets any, because selector.whenAbsent is Any",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(write(t, map[string]string{
				"claim.yaml": fmt.Sprintf(`{"apiVersion": "example.org/v1", "kind": "Database", "metadata": {"name": "mine"%s}, "spec": %s}`, tc.metadata, cmp.Or(tc.claim, "{}")),
				"classes.yaml": documents(fmt.Sprintf(`{"apiVersion": "classbind.io/v1beta1", "kind": "ClaimKind", "metadata": {"name": "databases.example.org"}, "spec": %s}`, tc.spec),
					classKind, usual),
			}))
			_, item := explained(t, tc.args...)
			assert.Equal(t, tc.outcome, string(item.Outcome), tc.reason)
			assert.Equal(t, tc.code, item.Reason, tc.reason)
			assert.Contains(t, item.Message, tc.message, tc.reason)
			assert.Contains(t, fmt.Sprint(item.Notes), tc.notes, tc.reason)
		})
	}
}

func TestExplainCountsClaims(t *testing.T) {
	t.Chdir(write(t, map[string]string{
		"claim.yaml": `{"apiVersion": "example.org/v1", "kind": "Database", "metadata": {"name": "mine"}, "spec": {}}`,
		"classes.yaml": documents(
			claimKind, `{"apiVersion": "classbind.io/v1beta1", "kind": "ClaimKind", "metadata": {"name": "second"}, "spec": {"claims": {"resource": "databases.example.org"}, "reference": {"path": ".spec.second"}, "selector": {"annotation": "example.org/second"}}}`,
			classKind,
			`{"apiVersion": "example.org/v1", "kind": "FastClass", "metadata": {"name": "usual", "annotations": {"resourceclass.crossplane.io/is-default-class": "true"}}}`),
	}))
	got := run(t, "", "-f", "claim.yaml", "--classes", "classes.yaml")
	assert.Contains(t, got.stdout, "by databases.example.org: bound to FastClass/usual")
	assert.Contains(t, got.stdout, "by second: no class")
	assert.Equal(t, 1, got.status, "We should say that a class is missing, though there is one.")
	assert.Contains(t, got.stderr, "error: 1 of 1 claims without a class")
}

// TestExplainNotRegistered explains a claim of a kind of Kubernetes that no ClaimKind registers, beside one of its group.
func TestExplainNotRegistered(t *testing.T) {
	t.Chdir(write(t, map[string]string{
		"claim.yaml": `{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "mine"}}`,
		"kinds.yaml": `{"apiVersion": "classbind.io/v1beta1", "kind": "ClaimKind", "metadata": {"name": "ingresses.networking.k8s.io"}}`,
	}))
	got := run(t, "", "-f", "claim.yaml", "--classes", "kinds.yaml")
	assert.Contains(t, got.stdout, "no ClaimKind registers this kind, but of the same group ingresses.networking.k8s.io\n",
		"We should leave it alone: no CRD could tell more of its group.")
	assert.Zero(t, got.status)
}
