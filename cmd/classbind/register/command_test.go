package register

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/cmd/classbind/explain"
	"github.com/classbind/classbind/cmd/classbind/world"
)

// published has CRDs of projects, and shapes others of ours.
const (
	published = "../../../e2e/crds/projects"
	shapes    = "../../../e2e/crds/shapes"
)

func execute(t *testing.T, args ...string) (string, error) {
	t.Helper()
	c, out := NewCommand(), &strings.Builder{}
	c.SetArgs(args)
	c.SetOut(out)
	c.SetErr(out)
	c.SilenceErrors, c.SilenceUsage = true, true
	err := c.ExecuteContext(t.Context())
	return out.String(), err
}

func TestRegister(t *testing.T) {
	const sure, guess = false, true
	for name, tc := range map[string]struct {
		reason  string
		args    string
		path    v1beta1.FieldPath
		form    v1beta1.ReferenceForm
		guesses bool
		want    []string
	}{
		"Name": {
			reason: "We should find a field that is called as the Kind, with Name.",
			args:   "BucketClaim BucketClass", path: ".spec.bucketClassName", form: v1beta1.Name, guesses: sure,
			want: []string{"# The preset object-storage registers these claims"},
		},
		"Required": {
			reason: "We should refuse claims without a class where their schema does.",
			args:   "bucketaccesses BucketAccessClass", path: ".spec.bucketAccessClassName", form: v1beta1.Name, guesses: sure,
			want: []string{"whenUnmatched: Deny", "# The schema requires the reference"},
		},
		"KindsByEnum": {
			reason: "We should know a field whose schema names the Kinds.",
			args:   "externalsecrets.external-secrets.io SecretStore ClusterSecretStore", path: ".spec.secretStoreRef", form: v1beta1.KindReference, guesses: sure,
			want: []string{"- secretstores\n  - clustersecretstores\n"},
		},
		"DefaultOfSchema": {
			reason: "We should count the default of a schema as no reference.",
			args:   "buckets.s3.aws.m.upbound.io providerconfigs.aws.m.upbound.io ClusterProviderConfig", path: ".spec.providerConfigRef", form: v1beta1.KindReference,
			want: []string{"when: claim.spec.?providerConfigRef.name.orValue('') in ['', 'default']", "# The schema has a default, \"default\""},
		},
		"Company": {
			reason: "We should leave to the author what only an author can give.",
			args:   "clusters.postgresql.cnpg.io ImageCatalog ClusterImageCatalog", path: ".spec.imageCatalogRef", form: v1beta1.TypedLocalObjectReference,
			want: []string{"whenAbsent: LeaveAlone", "# The schema requires major in the reference"},
		},
		"OwnSelector": {
			reason: "We should read the selector that claims have beside the reference.",
			args:   "databases.platform.example.org Composition", path: ".spec.crossplane.compositionRef", form: v1beta1.LocalObjectReference,
			want: []string{"path: .spec.crossplane.compositionSelector"},
		},
		"PartOfTheKind": {
			reason:  "We should say that a part of the Kind is a guess.",
			args:    "VirtualMachine VirtualMachineInstancetype VirtualMachineClusterInstancetype",
			path:    ".spec.instancetype",
			form:    v1beta1.KindReference,
			guesses: guess,
		},
		"NoSuffix": {
			reason:  "We should take the end of a word for no suffix.",
			args:    "VirtualMachine VirtualMachinePreference VirtualMachineClusterPreference",
			path:    ".spec.preference",
			form:    v1beta1.KindReference,
			guesses: guess,
		},
		"Named": {
			reason: "We should take the field that the user names.",
			args:   "VirtualMachine VirtualMachinePreference VirtualMachineClusterPreference --path .spec.preference",
			path:   ".spec.preference",
			form:   v1beta1.KindReference,
		},
		"Identifier": {
			reason:  "We should find a name that is called an id.",
			args:    "SFServiceInstance SFCluster",
			path:    ".spec.clusterId",
			form:    v1beta1.Name,
			guesses: guess,
		},
		"ConfusedKinds": {
			reason:  "We should take the order of the kinds for that in which a name is looked for.",
			args:    "InferenceService ServingRuntime ClusterServingRuntime --path .spec.predictor.model.runtime",
			path:    ".spec.predictor.model.runtime",
			form:    v1beta1.Name,
			guesses: guess,
			want:    []string{"# A guess: a reference of the form Name, which cannot distinguish a ServingRuntime from a ClusterServingRuntime", "precedence: Listed"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			args := strings.Fields(tc.args)
			out, err := execute(t, append(args, "--offline", shapes, "--offline", published)...)
			require.NoError(t, err)
			assert.Equal(t, tc.guesses, strings.Contains(out, "# A guess"), "%s\n%s", tc.reason, out)
			for _, want := range tc.want {
				assert.Contains(t, out, want, tc.reason)
			}
			documents := strings.Split(out, "---\n")
			k, role := v1beta1.ClaimKind{}, rbacv1.ClusterRole{}
			require.NoError(t, yaml.UnmarshalStrict([]byte(documents[len(documents)-1]), &k))
			require.NoError(t, yaml.UnmarshalStrict([]byte(documents[0]), &role))
			assert.Equal(t, tc.path, k.Spec.Reference.Path, tc.reason)
			assert.Equal(t, tc.form, k.Spec.Reference.Form, tc.reason)
			assert.Len(t, documents, len(k.Spec.Classes.Kinds)+2, "We should print a ClassKind for each kind of class.")
			assert.Equal(t, "true", role.Labels[v1beta1.AggregateLabel])
			explained(t, out, k)
		})
	}
}

// explained has explain read what was printed, and the CRDs: it finds no fault in either.
func explained(t *testing.T, printed string, k v1beta1.ClaimKind) {
	t.Helper()
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "kinds.yaml"), []byte(printed), 0o600))
	read, err := world.ReadKinds(t.Context(), world.Files{}, []string{shapes, published})
	require.NoError(t, err)
	claim := map[string]any{"metadata": map[string]any{"name": "claim"}, "spec": map[string]any{}}
	if k.Spec.Reference.WhenAbsent == v1beta1.LeaveAbsentAlone {
		claim["spec"] = map[string]any{k.Spec.Reference.Names()[1]: map[string]any{}}
	}
	if names := k.Spec.Reference.Names(); k.Spec.Reference.WhenParentAbsent == v1beta1.LeaveClaimAlone {
		require.NoError(t, unstructured.SetNestedMap(claim, map[string]any{}, names[:len(names)-1]...))
	}
	for _, crd := range read.CRDs {
		if crd.Name == k.Resource() {
			claim["apiVersion"], claim["kind"] = crd.GroupVersion().String(), crd.Kind
		}
	}
	text, err := json.Marshal(claim)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "claim.json")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	c, out := explain.NewCommand(), &strings.Builder{}
	c.SetArgs([]string{"-f", file, "--offline", folder, "--offline", shapes, "--offline", published, "-o", "json"})
	c.SetOut(out)
	c.SetErr(out)
	c.SilenceErrors, c.SilenceUsage = true, true
	_ = c.ExecuteContext(t.Context()) // There is no class.
	var report struct {
		Items []struct{ Outcome string }
	}
	require.NoError(t, json.Unmarshal([]byte(out.String()), &report), out)
	require.Len(t, report.Items, 1)
	assert.Equal(t, "Unmatched", report.Items[0].Outcome, "We should print registrations that have no fault: %s", out)
}

func TestRefuses(t *testing.T) {
	for name, tc := range map[string]struct{ reason, args, want string }{
		"NoClass": {"We should ask for both sides.", "BucketClaim", "name one kind of claims, and then its kinds of classes"},
		"Typo":    {"We should name what may be meant.", "BucketClaim BucketClas", `"BucketClas": there is no such kind: did you mean BucketClass?`},
		"Absent":  {"We should say what helps.", "Shelf BucketClass", `"Shelf": there is no such kind: name the file of its CRD`},
		"Second":  {"We should look for each.", "BucketClaim BucketClass Nothing", `"Nothing": there is no such kind`},
		"NoField": {
			"We should say what is wrong with the field.", "BucketClaim BucketClass --path .spec.bucketClas",
			"--path=\".spec.bucketClas\": no form of reference fits the schema of bucketclaims.objectstorage.k8s.io: reference.path: the schema has no field",
		},
		"Label": {
			"We should say that labels are not in a schema.", "JobSet LocalQueue",
			"name the field with --path, or name a label or an annotation with --label",
		},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := execute(t, append(strings.Fields(tc.args), "--offline", shapes, "--offline", published)...)
			require.ErrorContains(t, err, tc.want, tc.reason)
			assert.Empty(t, out, "We should print nothing that could be applied.")
		})
	}
}
