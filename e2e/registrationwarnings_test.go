package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/controlplane"
)

// TestRegistrationWarnings applies registrations with kubectl, first as a dry run, to a cluster that has claims and classes
// of the group %[1]s, and classes and others of bare.%[1]s, which classbind may not read.
func TestRegistrationWarnings(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	w.awaitReviewed(t)
	const label = ": label a ClusterRole that allows list and watch with classbind.io/aggregate-to-classbind=true"
	const permit = "apply the ClusterRole of the registration, or run: kubectl create clusterrole classbind-%[1]s --verb=get,list,watch --resource=%[1]s && " +
		"kubectl label clusterrole classbind-%[1]s classbind.io/aggregate-to-classbind=true"
	forbidden := func(kind, verb string) string {
		return fmt.Sprintf("%s is forbidden: classbind may not %s it", kind, verb)
	}
	const notCounted = "the claims of each class are not counted, so only those bound in the last 40 seconds count, and no class is deleted whose ClassKind has spec.onDelete Deny: "
	const notInstalled = "the API server serves no such resource: install its CRD, or correct the name, which is <plural>.<group>"
	for name, tc := range map[string]struct {
		reason string
		before string // what is registered already
		// claimKind claims.%[1]s, or classKind classes.%[1]s, or a manifest
		claimKind, classKind, manifest string
		want                           []string
		refused                        string
	}{
		"Right": {
			reason: "We should say nothing where nothing is wrong.", before: classKind("classes.%[1]s", "{claimKinds: [{name: claims.%[1]s}]}"),
			claimKind: "{whenUnmatched: BindLater, classes: {kinds: [{name: classes.%[1]s}], related: [{name: plan, resource: classes.%[1]s, nameExpression: claim.spec.plan}]}}",
		},
		"RightClassKind": {reason: "We should say nothing of a class kind either.", before: claimKind("claims.%[1]s", "{}"), classKind: "{claimKinds: [{name: claims.%[1]s}]}"},
		"NotServedYet":   {reason: "We should wait for the ClassKind, which is the next document of most files.", claimKind: "{}"},
		"PathMisspelt": {
			reason: "We should say which field may be meant.", claimKind: "{reference: {path: .spec.clasRef}}",
			want: []string{"claims.%[1]s: no claim is bound, because the API server would remove the reference to its class: reference.path: the schema has no field .spec.clasRef " +
				"(did you mean .spec.classRef?): correct spec.reference.path and spec.reference.form, or the schema"},
		},
		"FormPruned": {
			reason: "We should say which form fits.", claimKind: "{reference: {path: .spec.classRef, form: TypedLocalObjectReference}}",
			want: []string{"claims.%[1]s: no claim is bound, because the API server would remove fields of the reference to its class: " +
				"reference.form TypedLocalObjectReference: the schema has no field .spec.classRef.apiGroup: set spec.reference.form to ObjectReference"},
		},
		"VersionNotServed": {
			reason: "We should say which versions there are.", claimKind: "{claims: {version: v2}}",
			want: []string{`claims.%[1]s: the paths cannot be compared with the schema of the claims: the API server does not serve the version for which the paths are written, "v2", but v1: ` +
				"write the paths for one of these, and set spec.claims.version to it"},
		},
		"NotInstalled": {
			reason: "We should say that there are no such claims.", manifest: claimKind("absents.%[1]s", "{}"),
			want: []string{"absents.%[1]s: the paths cannot be compared with the schema of the claims: " + notInstalled},
		},
		"NotPatched": {
			reason: "We should say which right late binding lacks.", claimKind: "{whenUnmatched: BindLater, claims: {resource: others.bare.%[1]s}}",
			want: []string{"claims.%[1]s: claims without a class are not bound later: " + forbidden("others.bare.%[1]s", "list") +
				": label a ClusterRole that allows list, watch and, for BindLater, patch with classbind.io/aggregate-to-classbind=true"},
		},
		"NotCounted": {
			reason: "We should say which right a strategy lacks.", claimKind: "{choice: {strategy: LeastClaims}, claims: {resource: others.bare.%[1]s}}",
			want: []string{"claims.%[1]s: " + notCounted + forbidden("others.bare.%[1]s", "list") +
				": label a ClusterRole that allows list, watch and, for BindLater, patch with classbind.io/aggregate-to-classbind=true"},
		},
		"NotCountedForDeletions": {
			reason: "We should say which right the refusal of deletions lacks.", before: claimKind("claims.%[1]s", "{claims: {resource: others.bare.%[1]s}}"),
			classKind: "{onDelete: Deny, claimKinds: [{name: claims.%[1]s}]}",
			want: []string{"classes.%[1]s: " + notCounted + forbidden("others.bare.%[1]s", "list") +
				": label a ClusterRole that allows list, watch and, for BindLater, patch with classbind.io/aggregate-to-classbind=true"},
		},
		"Related": {
			reason:    "We should say what of the related objects cannot be read.",
			claimKind: "{classes: {related: [{name: a, resource: absents.%[1]s, nameExpression: claim.spec.a}, {name: b, resource: others.bare.%[1]s, nameExpression: claim.spec.b}, {name: c, resource: classes.%[1]s, version: v7, nameExpression: claim.spec.c}]}}",
			want: []string{
				`claims.%[1]s: the API server serves no "absents.%[1]s": to expressions, the related object is absent`,
				`claims.%[1]s: "classes.%[1]s/v7": the API server does not serve this version, "v7": set the version in spec.classes.related to one that is served, or leave it out`,
				`claims.%[1]s: "others.bare.%[1]s": ` + forbidden("others.bare.%[1]s", "list") + label,
			},
		},
		"Unregistered": {
			reason: "We should say so: the other may come later.", claimKind: "{classes: {kinds: [{name: absents.%[1]s}]}}",
			want: []string{`claims.%[1]s: spec.classes.kinds has names that no ClassKind has: "absents.%[1]s": correct the name, which is <plural>.<group>, or create the ClassKind`},
		},
		"Conflict": {
			reason: "We should say which of the two is served.", before: claimKind("a.claims.%[1]s", "{claims: {resource: claims.%[1]s}}"), claimKind: "{}",
			want: []string{`claims.%[1]s: claim kind "claims.%[1]s" binds no claim: "a.claims.%[1]s", whose name comes first, binds claims of "claims.%[1]s" by the same reference, spec.classRef: ` +
				"set another spec.reference, or delete one of the two"},
		},
		"ConflictOfOther": {
			reason: "We should say which other one is served no more.", before: claimKind("z.claims.%[1]s", "{claims: {resource: claims.%[1]s}}"), claimKind: "{}",
			want: []string{`claims.%[1]s: claim kind "z.claims.%[1]s" binds no claim: "claims.%[1]s", whose name comes first, binds claims of "claims.%[1]s" by the same reference, spec.classRef: ` +
				"set another spec.reference, or delete one of the two"},
		},
		"ClassesUnread": {
			reason: "We should say which classes cannot be read.", before: classKind("classes.bare.%[1]s", "{claimKinds: [{name: claims.%[1]s}]}"), claimKind: "{}",
			want: []string{`claims.%[1]s: claims are decided on without the classes of "classes.bare.%[1]s": ` + forbidden("classes.bare.%[1]s", "list") + ": " + fmt.Sprintf(permit, "classes.bare.%[1]s")},
		},
		"ClassKindNotInstalled": {
			reason: "We should say that there are no such classes.", before: claimKind("claims.%[1]s", "{}"), manifest: classKind("absents.%[1]s", "{claimKinds: [{name: claims.%[1]s}]}"),
			want: []string{"absents.%[1]s: " + notInstalled},
		},
		"ClassKindNotPermitted": {
			reason: "We should say what lets classbind read them.", before: claimKind("claims.%[1]s", "{}"), manifest: classKind("classes.bare.%[1]s", "{claimKinds: [{name: claims.%[1]s}]}"),
			want: []string{"classes.bare.%[1]s: " + forbidden("classes.bare.%[1]s", "list") + ": " + fmt.Sprintf(permit, "classes.bare.%[1]s")},
		},
		"ClaimKindUnregistered": {
			reason: "We should say so: the other may come later.", classKind: "{claimKinds: [{name: absents.%[1]s}]}",
			want: []string{`classes.%[1]s: spec.claimKinds has names that no ClaimKind has: "absents.%[1]s": correct the name, which is <plural>.<group>, or create the ClaimKind`},
		},
		"Several": {
			reason: "We should say all of it.", claimKind: "{selector: {path: .spec.absent}, classes: {kinds: [{name: absents.%[1]s}]}}",
			want: []string{
				"claims.%[1]s: no claim is bound: selector.path: the schema has no field .spec.absent: correct the ClaimKind, or the schema",
				`claims.%[1]s: spec.classes.kinds has names that no ClassKind has: "absents.%[1]s": correct the name, which is <plural>.<group>, or create the ClassKind`,
			},
		},
		"ExpressionInvalid": {
			reason: "We should refuse what can never work.", claimKind: `{claims: {when: "true &&\nclaim.spec ++"}}`,
			refused: `spec.claims.when: Invalid value: "true &&\\nclaim.spec ++": line 2, column 13: `,
		},
		"ClassExpressionInvalid": {
			reason: "We should refuse it of a class kind, too.", classKind: "{fits: [{name: Size, expression: claim.size ++}]}",
			refused: `spec.fits[Size].expression: Invalid value: "claim.size ++": line 1, column 13: `,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			group := strings.ToLower(name) + ".warn.test"
			in := func(text string) string { return strings.ReplaceAll(text, "%[1]s", group) }
			w.apply(t, fmt.Sprintf(schemaOfClaims, group, "plan: {type: string}\n              a: {type: string}\n              b: {type: string}\n              c: {type: string}\n              "+wholeReference))
			w.resources(t, "Class classes."+group+" Cluster", "Class classes.bare."+group+" Cluster", "Other others.bare."+group+" Namespaced")
			w.apply(t, strings.ReplaceAll(lateVendor(group), "\n  name: ", "\n  name: warn-")+in(tc.before))
			manifest := in(tc.manifest)
			if tc.claimKind != "" {
				manifest = claimKind("claims."+group, in(tc.claimKind))
			} else if tc.classKind != "" {
				manifest = classKind("classes."+group, in(tc.classKind))
			}
			var want strings.Builder
			for _, warning := range tc.want {
				want.WriteString("Warning: " + in(warning) + "\n")
			}
			if tc.before != "" { // A replica hears of it a moment later, and of the right to read it.
				eventually(t, func(c *attempt) {
					_, stderr, _ := w.Kubectl(t.Context(), strings.NewReader(manifest), "apply", "--dry-run=server", "-f", "-")
					require.Equal(c, want.String(), stderr)
				})
			}
			for _, o := range [][]string{{"--dry-run=server"}, nil} {
				_, stderr, err := w.Kubectl(t.Context(), strings.NewReader(manifest), append([]string{"apply", "-f", "-"}, o...)...)
				if tc.refused != "" {
					require.Error(t, err, tc.reason)
					assert.Contains(t, stderr, tc.refused, tc.reason)
					continue
				}
				require.NoError(t, err, tc.reason)
				assert.Equal(t, want.String(), stderr, tc.reason)
			}
		})
	}
}

// awaitReviewed waits until the API server asks about registrations.
func (w *world) awaitReviewed(t *testing.T) {
	w.awaitRefused(t, strings.TrimPrefix(claimKind("claims.reviewed.test", "{claims: {when: 'claim ++'}}"), "---\n"), v1beta1.RegistrationEntry, "We should be asked.")
}

// noWarnings checks that registrations are right, once all that they need is there.
func (w *world) noWarnings(t *testing.T, objects []*unstructured.Unstructured) {
	for _, object := range objects {
		if object.GroupVersionKind().Group != v1beta1.GroupVersion.Group {
			continue
		}
		eventually(t, func(c *attempt) { // The roles are aggregated a moment later.
			var text []string
			require.NoError(c, w.Patch(context.WithValue(t.Context(), warnings{}, &text), object.DeepCopy(),
				client.RawPatch(types.MergePatchType, []byte(metadataPatch("labels", "applied=again"))), client.DryRunAll))
			require.Empty(c, text, "We should not warn of what is right.")
		})
	}
}

// TestRegistrationsWithoutClassbind has no replica while registrations are applied, and one while they are mended.
func TestRegistrationsWithoutClassbind(t *testing.T) {
	t.Parallel()
	const name = "claims.alone.test"
	w := newWorld(t, controlplane.Options{})
	r := w.serve(t)
	w.awaitReviewed(t)
	require.NoError(t, r.Stop())
	broken := strings.TrimPrefix(claimKind(name, "{claims: {when: 'claim ++'}}"), "---\n")
	_, told, err := w.create(t, broken)
	require.NoError(t, err, "We should stop no registration while we are down.")
	assert.Empty(t, told)

	w.serve(t)
	w.awaitReviewed(t)
	k, text := &v1beta1.ClaimKind{ObjectMeta: metav1.ObjectMeta{Name: name}}, []string(nil)
	require.NoError(t, w.Patch(context.WithValue(t.Context(), warnings{}, &text), k, client.RawPatch(types.MergePatchType, []byte(metadataPatch("labels", "mended=no")))),
		"We should not refuse what an update leaves as it was.")
	require.NotEmpty(t, text)
	assert.Contains(t, text[0], "claims.alone.test: spec.claims.when: line 1, column 8: ", "We should say so all the same.")
	err = w.patch(t, "claimkinds.classbind.io", name, `{"spec":{"claims":{"when":"claim ++ 1 ++"}}}`)
	assert.True(t, apierrors.IsInvalid(err), "We should refuse another one that does not compile: %v", err)
	require.NoError(t, w.patch(t, "claimkinds.classbind.io", name, `{"spec":{"claims":{"when":"true"}}}`))
}
