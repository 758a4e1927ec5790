package claim

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/classbind/classbind/api/v1beta1"
)

// References that have no form with a name.
var (
	byFlag = v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.workflowTemplateRef"}, Parts: []v1beta1.ReferencePart{
		{Is: v1beta1.NamePart, Place: v1beta1.Place{Path: ".spec.workflowTemplateRef.name"}},
		{
			Is:    v1beta1.FlagPart,
			Place: v1beta1.Place{Path: ".spec.workflowTemplateRef.clusterScope"},
			Of:    "ClusterWorkflowTemplate", Default: "WorkflowTemplate",
		},
	}}
	bySource = v1beta1.Reference{Parts: []v1beta1.ReferencePart{
		{Is: v1beta1.NamePart, Place: v1beta1.Place{Path: ".spec.source"}},
		{Is: v1beta1.NamespacePart, Place: v1beta1.Place{Path: ".spec.sourceNamespace"}},
	}}
	byIssuer = v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.issuerRef"}, Parts: []v1beta1.ReferencePart{
		{Is: v1beta1.GroupPart, Place: v1beta1.Place{Path: ".spec.issuerRef.group"}, Default: "cert-manager.io"},
		{Is: v1beta1.KindPart, Place: v1beta1.Place{Path: ".spec.issuerRef.kind"}, Default: "Issuer"},
		{Is: v1beta1.NamePart, Place: v1beta1.Place{Path: ".spec.issuerRef.name"}},
	}}
	byAnnotations = v1beta1.Reference{Parts: []v1beta1.ReferencePart{
		{Is: v1beta1.NamePart, Place: v1beta1.Place{Annotation: "cert-manager.io/issuer"}},
		{Is: v1beta1.KindPart, Place: v1beta1.Place{Annotation: "cert-manager.io/issuer-kind"}, Default: "Issuer"},
		{Is: v1beta1.GroupPart, Place: v1beta1.Place{Annotation: "cert-manager.io/issuer-group"}, Default: "cert-manager.io"},
	}}
)

// References in a list.
var (
	byList = v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.parentRefs"}, List: v1beta1.ListWhenAbsent, Parts: []v1beta1.ReferencePart{
		{Is: v1beta1.KindPart, Place: v1beta1.Place{Path: ".spec.parentRefs.kind"}, Default: "Gateway"},
		{Is: v1beta1.NamePart, Place: v1beta1.Place{Path: ".spec.parentRefs.name"}},
	}}
	byDevices = v1beta1.Reference{
		Place: v1beta1.Place{Path: ".spec.devices.requests"}, List: v1beta1.ListCheckOnly, Form: v1beta1.Name,
		Within: []v1beta1.ElementPath{".exactly.deviceClassName", ".firstAvailable[*].deviceClassName", ".others[*]"},
	}
	byNames = v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.locations"}, List: v1beta1.ListWhenAbsent, Form: v1beta1.Name}
)

func targetOf(group, kind, namespace string) Target {
	return Target{GroupVersionKind: schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind}, Namespace: namespace, Name: "fast"}
}

func decoded(t *testing.T, text string) (object map[string]any) {
	t.Helper()
	require.NoError(t, yaml.Unmarshal([]byte(text), &object))
	return object
}

// withKind is a copy of a claim with its kind.
func withKind(object map[string]any) map[string]any {
	u := unstructured.Unstructured{Object: runtime.DeepCopyJSON(object)}
	u.SetAPIVersion("example.org/v1")
	u.SetKind("Claim")
	return u.Object
}

// TestParts binds claims whose reference is a list of parts, reads them, has an update take the reference out, and unbinds them.
func TestParts(t *testing.T) {
	for name, tc := range map[string]struct {
		reason    string
		reference v1beta1.Reference
		claim     string
		class     Target
		want      string
		reads     Target // with the defaults of the parts
	}{
		"FlagIsTrue": {
			reason:    "We should set the flag for the kind that it means.",
			reference: byFlag,
			claim:     `{spec: {}}`,
			class:     targetOf("argoproj.io", "ClusterWorkflowTemplate", ""),
			want:      `{spec: {workflowTemplateRef: {name: fast, clusterScope: true}}}`,
			reads:     targetOf("", "ClusterWorkflowTemplate", ""),
		},
		"FlagIsAbsent": {
			reason:    "We should leave the flag out for the other kind.",
			reference: byFlag,
			claim:     `{spec: {workflowTemplateRef: {}}}`,
			class:     targetOf("argoproj.io", "WorkflowTemplate", ""),
			want:      `{spec: {workflowTemplateRef: {name: fast}}}`,
			reads:     targetOf("", "WorkflowTemplate", ""),
		},
		"FlagIsGiven": {
			reason:    "We should keep the flag that the author set.",
			reference: byFlag,
			claim:     `{spec: {workflowTemplateRef: {clusterScope: true}}}`,
			class:     targetOf("argoproj.io", "ClusterWorkflowTemplate", ""),
			want:      `{spec: {workflowTemplateRef: {name: fast, clusterScope: true}}}`,
			reads:     targetOf("", "ClusterWorkflowTemplate", ""),
		},
		"AmongOthers": {
			reason:    "We should write name and namespace beside the fields of the author.",
			reference: bySource,
			claim:     `{spec: {channel: stable}}`,
			class:     targetOf("operators.coreos.com", "CatalogSource", "olm"),
			want:      `{spec: {channel: stable, source: fast, sourceNamespace: olm}}`,
			reads:     targetOf("", "", "olm"),
		},
		"NoParent": {
			reason:    "We should create the object that has the parts.",
			reference: bySource,
			claim:     `{metadata: {labels: {mine: kept}}}`,
			class:     targetOf("operators.coreos.com", "CatalogSource", "olm"),
			want:      `{metadata: {labels: {mine: kept}}, spec: {source: fast, sourceNamespace: olm}}`,
			reads:     targetOf("", "", "olm"),
		},
		"NamespaceIsGiven": {
			reason:    "We should keep the namespace that the author set.",
			reference: bySource,
			claim:     `{spec: {sourceNamespace: olm}}`,
			class:     targetOf("operators.coreos.com", "CatalogSource", "olm"),
			want:      `{spec: {source: fast, sourceNamespace: olm}}`,
			reads:     targetOf("", "", "olm"),
		},
		"Defaults": {
			reason:    "We should write the parts that have a default, too.",
			reference: byIssuer,
			claim:     `{spec: {}}`,
			class:     targetOf("cert-manager.io", "Issuer", ""),
			want:      `{spec: {issuerRef: {group: cert-manager.io, kind: Issuer, name: fast}}}`,
			reads:     targetOf("cert-manager.io", "Issuer", ""),
		},
		"Annotations": {
			reason:    "We should write each part to its annotation.",
			reference: byAnnotations,
			claim:     `{metadata: {annotations: {mine: kept}}}`,
			class:     targetOf("cert-manager.io", "ClusterIssuer", ""),
			want: `{metadata: {annotations: {mine: kept, cert-manager.io/issuer: fast, cert-manager.io/issuer-kind: ClusterIssuer,
				cert-manager.io/issuer-group: cert-manager.io}}}`,
			reads: targetOf("cert-manager.io", "ClusterIssuer", ""),
		},
		"List": {
			reason:    "We should write a list with one element.",
			reference: byList,
			claim:     `{spec: {hostnames: [a.test]}}`,
			class:     targetOf("gateway.networking.k8s.io", "Gateway", ""),
			want:      `{spec: {hostnames: [a.test], parentRefs: [{kind: Gateway, name: fast}]}}`,
			reads:     targetOf("", "Gateway", ""),
		},
		"EmptyList": {
			reason:    "We should take an empty list for an absent one.",
			reference: byList,
			claim:     `{spec: {hostnames: [a.test], parentRefs: []}}`,
			class:     targetOf("gateway.networking.k8s.io", "Gateway", ""),
			want:      `{spec: {hostnames: [a.test], parentRefs: [{kind: Gateway, name: fast}]}}`,
			reads:     targetOf("", "Gateway", ""),
		},
		"Names": {
			reason:    "We should write a list with one name.",
			reference: byNames,
			claim:     `{metadata: {labels: {mine: kept}}}`,
			class:     targetOf("velero.io", "VolumeSnapshotLocation", ""),
			want:      `{metadata: {labels: {mine: kept}}, spec: {locations: [fast]}}`,
			reads:     targetOf("", "", ""),
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := readerOf(withReference(tc.reference))
			object := decoded(t, tc.claim)
			before, err := json.Marshal(object)
			require.NoError(t, err)
			read, err := r.DecodeValid(before)
			require.NoError(t, err)
			in := r.Read("team", "mine", read)
			require.Empty(t, in.LeftAlone, tc.reason)
			require.Empty(t, in.Problems, tc.reason)
			require.True(t, in.Given == nil || in.Given.AgreesWith(tc.class), "%s: %v", tc.reason, in.Given)
			patched := func(raw, patch []byte) []byte {
				p, err := jsonpatch.DecodePatch(patch)
				require.NoError(t, err)
				raw, err = p.Apply(raw)
				require.NoError(t, err)
				return raw
			}
			after := patched(before, r.Reference.Patch(&in, tc.class, "", nil))
			want, err := json.Marshal(decoded(t, tc.want))
			require.NoError(t, err)
			require.JSONEq(t, string(want), string(after), tc.reason)

			bound, err := r.DecodeValid(after)
			require.NoError(t, err)
			to, ok := r.Reference.RefersTo(bound)
			assert.True(t, ok, tc.reason)
			tc.reads.Version = ""
			assert.Equal(t, tc.reads, to, tc.reason)
			assert.Equal(t, Settled, r.Read("team", "mine", bound).LeftAlone, tc.reason)

			restoration, err := r.Restore(after, before)
			require.NoError(t, err)
			assert.Equal(t, Restored, restoration.Reason, tc.reason)
			assert.JSONEq(t, string(after), string(patched(before, restoration.Patch)), "We should put the reference back.")

			has := decoded(t, string(after))
			assert.True(t, r.Reference.Unbind(has, managedBy(t, withKind(object), withKind(has))["created"]), tc.reason)
			assert.Equal(t, in.Given, r.Read("team", "mine", has).Given, "We should take out what classbind wrote.")
			assert.Empty(t, r.Read("team", "mine", has).LeftAlone)
		})
	}
}

// TestDefaultsOfParts reads references that leave parts to the program that reads the claims.
func TestDefaultsOfParts(t *testing.T) {
	for name, tc := range map[string]struct {
		reference v1beta1.Reference
		claim     string
		want      Target
	}{
		"Issuer":        {byIssuer, `{spec: {issuerRef: {name: fast}}}`, targetOf("cert-manager.io", "Issuer", "")},
		"Empty":         {byIssuer, `{spec: {issuerRef: {name: fast, group: ""}}}`, targetOf("cert-manager.io", "Issuer", "")},
		"ClusterIssuer": {byIssuer, `{spec: {issuerRef: {name: fast, kind: ClusterIssuer}}}`, targetOf("cert-manager.io", "ClusterIssuer", "")},
		"FlagIsFalse":   {byFlag, `{spec: {workflowTemplateRef: {name: fast, clusterScope: false}}}`, targetOf("", "WorkflowTemplate", "")},
		"Annotation":    {byAnnotations, `{metadata: {annotations: {cert-manager.io/issuer: fast}}}`, targetOf("cert-manager.io", "Issuer", "")},
	} {
		to, ok := readerOf(withReference(tc.reference)).Reference.RefersTo(decoded(t, tc.claim))
		tc.want.Version = ""
		assert.True(t, ok, name)
		assert.Equal(t, tc.want, to, name)
	}
}

// TestNamed reads all references of a list.
func TestNamed(t *testing.T) {
	name := func(n int) string { return strings.Repeat("{name: a}, ", n) }
	numbered := func(n int) (all []Target) {
		for i := range n {
			all = append(all, Target{Name: fmt.Sprintf("n%d", i)})
		}
		return all
	}
	names := func(n int) (all string) {
		for _, to := range numbered(n) {
			all += to.Name + ", "
		}
		return all
	}
	gateway := Target{GroupVersionKind: schema.GroupVersionKind{Kind: "Gateway"}, Name: "a"}
	for reason, tc := range map[string]struct {
		reference v1beta1.Reference
		claim     string
		want      []Target
		at        []string
		tooMany   bool
	}{
		"We should find no class in a claim without a list.": {reference: byList, claim: `{spec: {}}`},
		"We should find none in an empty list.":              {reference: byList, claim: `{spec: {parentRefs: []}}`},
		"We should find each, with the defaults of its parts.": {
			reference: byList,
			claim:     `{spec: {parentRefs: [{name: a}, {name: b}]}}`,
			want:      []Target{gateway, {GroupVersionKind: gateway.GroupVersionKind, Name: "b"}},
			at:        []string{".spec.parentRefs[0]", ".spec.parentRefs[1]"},
		},
		"We should find equal ones once.": {
			reference: byList,
			claim:     `{spec: {parentRefs: [` + name(2*v1beta1.MaxListedReferences) + `]}}`,
			want:      []Target{gateway},
		},
		"We should find the references within elements.": {
			reference: byDevices,
			claim: `{spec: {devices: {requests: [{exactly: {deviceClassName: a}}, {firstAvailable: [{deviceClassName: a}, {deviceClassName: b}, {}]},
				{others: [c]}, 5, {exactly: null}, {firstAvailable: {}}]}}}`,
			want: []Target{{Name: "a"}, {Name: "b"}, {Name: "c"}},
			at: []string{
				".spec.devices.requests[0].exactly.deviceClassName",
				".spec.devices.requests[1].firstAvailable[1].deviceClassName",
				".spec.devices.requests[2].others[0]",
			},
		},
		"We should find none in a claim without requests.": {reference: byDevices, claim: `{spec: {devices: {}}}`},
		"We should count what is within both lists.": {
			reference: byDevices,
			claim:     `{spec: {devices: {requests: [{exactly: {deviceClassName: a}}, {others: [` + names(v1beta1.MaxListedReferences) + `]}]}}}`,
			tooMany:   true,
		},
		"We should read an element without a name.": {
			reference: byList,
			claim:     `{spec: {parentRefs: [5, {name: a}]}}`,
			want:      []Target{{GroupVersionKind: schema.GroupVersionKind{Kind: "Gateway"}}, gateway},
		},
		"We should find names.": {reference: byNames, claim: `{spec: {locations: [a, b]}}`, want: []Target{{Name: "a"}, {Name: "b"}}},
		"We should check as many as the limit says.": {
			reference: byNames,
			claim:     `{spec: {locations: [` + names(v1beta1.MaxListedReferences) + `]}}`,
			want:      numbered(v1beta1.MaxListedReferences),
		},
		"We should check no longer list in part.": {
			reference: byNames,
			claim:     `{spec: {locations: [` + names(v1beta1.MaxListedReferences+1) + `]}}`,
			tooMany:   true,
		},
		"We should not read a list that is too long.": {
			reference: byNames,
			claim:     `{spec: {locations: [` + strings.Repeat("x", v1beta1.MaxReferenceBytes) + `]}}`,
			tooMany:   true,
		},
		"We should find the only one.": {reference: byIssuer, claim: `{spec: {issuerRef: {name: a, kind: Gateway, group: g}}}`, want: []Target{
			{GroupVersionKind: schema.GroupVersionKind{Group: "g", Kind: "Gateway"}, Name: "a"},
		}},
	} {
		r := readerOf(withReference(tc.reference))
		raw, err := yaml.YAMLToJSON([]byte(tc.claim))
		require.NoError(t, err)
		read, err := r.DecodeValid(raw)
		require.NoError(t, err)
		got, at, ok := r.Reference.Named(read)
		assert.Equal(t, tc.tooMany, !ok, reason)
		assert.True(t, slices.Equal(tc.want, got), "%s: %v", reason, got)
		if tc.at != nil {
			assert.Equal(t, tc.at, at, reason)
		}
		if tc.reference.List == v1beta1.ListCheckOnly {
			assert.Equal(t, CheckOnly, r.Read("team", "a", read).LeftAlone, reason)
			assert.False(t, r.Reference.NamesClass(read), reason)
		}
	}
}

// TestGivenParts reads what authors set of a reference without its name.
func TestGivenParts(t *testing.T) {
	for name, tc := range map[string]struct {
		reference v1beta1.Reference
		claim     string
		want      *Given
		err       string
	}{
		"FlagIsTrue":  {reference: byFlag, claim: `{spec: {workflowTemplateRef: {clusterScope: true}}}`, want: &Given{Kind: "ClusterWorkflowTemplate"}},
		"FlagIsFalse": {reference: byFlag, claim: `{spec: {workflowTemplateRef: {clusterScope: false}}}`, want: &Given{Kind: "WorkflowTemplate"}},
		"FlagIsAbsent": {
			reference: byFlag,
			claim:     `{spec: {workflowTemplateRef: {}}}`,
		},
		"FlagOfAWrongType": {
			reference: byFlag,
			claim:     `{spec: {workflowTemplateRef: {clusterScope: "yes"}}}`,
			err:       "spec.workflowTemplateRef.clusterScope",
		},
		"Namespace": {reference: bySource, claim: `{spec: {sourceNamespace: olm}}`, want: &Given{Namespace: "olm"}},
		"Default":   {reference: byIssuer, claim: `{spec: {issuerRef: {kind: ClusterIssuer}}}`, want: &Given{Kind: "ClusterIssuer"}},
	} {
		in := readerOf(withReference(tc.reference)).Read("team", "mine", decoded(t, tc.claim))
		assert.Equal(t, tc.want, in.Given, name)
		if tc.err != "" {
			require.Len(t, in.Problems, 1, name)
			assert.Equal(t, tc.err, in.Problems[0].Field, name)
		}
	}
}
