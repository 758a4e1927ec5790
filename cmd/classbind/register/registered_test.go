package register

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/classbind/classbind/cmd/classbind/exit"
	"github.com/classbind/classbind/selector/fields"
)

// TestRegistered has registrations in the files beside the CRDs.
func TestRegistered(t *testing.T) {
	const (
		claimKind = "apiVersion: classbind.io/v1beta1\nkind: ClaimKind\nmetadata: {name: %NAME}\nspec: {claims: {resource: %RESOURCE}, " +
			"reference: {path: %PATH, form: Name}}\n"
		classKind = "apiVersion: classbind.io/v1beta1\nkind: ClassKind\nmetadata: {name: bucketclasses.objectstorage.k8s.io}\nspec: {weight: {path: .w}}\n"
		claims    = "bucketclaims.objectstorage.k8s.io"
	)
	registered := func(name, path string) string {
		return strings.NewReplacer("%NAME", name, "%RESOURCE", claims, "%PATH", path).Replace(claimKind)
	}
	for name, tc := range map[string]struct {
		reason  string
		files   []string
		args    string
		want    []string
		without string
		err     string
		failed  bool // failed reports whether the error is no finding.
	}{
		"OtherReference": {
			reason: "We should leave the ClaimKind of another reference as it is, and share no annotation with it.",
			files:  []string{registered(claims, ".spec.existingBucketName")},
			args:   "BucketClaim BucketClass",
			want: []string{
				"kind: ClaimKind\nmetadata:\n  name: bucketclassname." + claims,
				"  claims:\n    resource: " + claims,
				"  selector:\n    annotation: classbind.io/bucketclassname-selector",
				"name: classbind-bucketclassname." + claims,
				"# Another ClaimKind, or that of a preset, has the name " + claims,
				"  - name: bucketclassname." + claims, // of the ClassKind, with those of the preset
				"  - name: bucketclaims.objectstorage.k8s.io",
			},
		},
		"OtherNameOfTheResource": {
			reason: "We should share no annotation with a ClaimKind of another name, either.",
			files:  []string{registered("other."+claims, ".spec.existingBucketName")},
			args:   "BucketClaim BucketClass",
			want:   []string{"name: bucketclassname." + claims, "annotation: classbind.io/bucketclassname-selector"},
		},
		"SameReference": {
			reason: "We should refuse what would be a conflict.",
			files:  []string{registered("mine", ".spec.bucketClassName")},
			args:   "BucketClaim BucketClass",
			err:    `the ClaimKind "mine" registers this reference of ` + claims + " already: add the kinds of classes to its spec.classes.kinds, or delete it",
		},
		"BothNames": {
			reason: "We should replace no ClaimKind.",
			files:  []string{registered(claims, ".spec.existingBucketName"), registered("bucketclassname."+claims, ".spec.protocol")},
			args:   "BucketClaim BucketClass",
			err:    "the names " + claims + " and bucketclassname." + claims + " are taken",
		},
		"ClassKind": {
			reason:  "We should leave out a ClassKind that is in the files.",
			files:   []string{classKind},
			args:    "BucketClaim BucketClass",
			want:    []string{"# The ClassKind bucketclasses.objectstorage.k8s.io is registered already, and stays as it is."},
			without: "kind: ClassKind",
		},
		"ClassKindOfPreset": {
			reason: "We should print the ClassKind of a preset with all that it says, and one claim kind more.",
			args:   "deploy sc --annotation example.org/class",
			want: []string{
				"  claimKinds:\n  - name: persistentvolumeclaims\n  - name: deployments.apps\n  default:\n    annotation: storageclass.kubernetes.io/is-default-class",
				"  reference:\n    annotation: example.org/class\n    form: Name\n",
			},
		},
		"ClaimKindOfPreset": {
			reason: "We should not replace the ClaimKind of a preset with one of another reference.",
			args:   "clusters.postgresql.cnpg.io StorageClass --annotation example.org/storage",
			want:   []string{"name: storage.clusters.postgresql.cnpg.io", "resource: clusters.postgresql.cnpg.io"},
		},
		"ExactKind": {
			reason: "We should prefer a Kind to the short name of another one.",
			files:  []string{crdOf("Shelf", "shelves", "", ""), crdOf("Rack", "racks", "Shelf", "shelfName: {type: string}")},
			args:   "Rack Shelf",
			want:   []string{"name: racks.example.org", "- name: shelves.example.org"},
		},
		"EnumOfOthers": {
			reason: "We should refuse a kind that the schema excludes.",
			args:   "externalsecrets.external-secrets.io SecretStore BucketClass",
			err:    ".spec.secretStoreRef is for other kinds, such as SecretStore",
		},
		"OneOfTheKinds": {
			reason: "We should refuse a field that is tied to one of the kinds alone.",
			args:   "BucketClaim BucketClass SecretStore",
			err:    "no field of " + claims + " has a name or a schema that refers to BucketClass, SecretStore",
		},
		"KeyOfLabel": {
			reason: "We should refuse what is no key.",
			args:   "BucketClaim BucketClass --label a/b/c",
			err:    `"a/b/c" is no key of a label or an annotation: `,
			failed: true,
		},
		"TwoPlaces": {
			reason: "We should take one place.",
			args:   "BucketClaim BucketClass --label a --path .spec.a",
			err:    "none of the others can be",
			failed: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(folder, "kinds.yaml"), []byte(strings.Join(tc.files, "---\n")+"\n"), 0o600))
			out, err := execute(t, append(strings.Fields(tc.args), "--offline", shapes, "--offline", published, "--offline", folder)...)
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err, tc.reason)
				assert.Empty(t, out, "We should print nothing that could be applied.")
				assert.Equal(t, tc.failed, exit.Status(err) == exit.Failed, tc.reason)
				return
			}
			require.NoError(t, err, tc.reason)
			for _, want := range tc.want {
				assert.Contains(t, out, want, tc.reason)
			}
			if tc.without != "" {
				assert.NotContains(t, out, tc.without, tc.reason)
			}
		})
	}
}

// crdOf a kind with a field of its spec.
func crdOf(kind, plural, shortName, field string) string {
	names := ""
	if shortName != "" {
		names = ", shortNames: [" + strings.ToLower(shortName) + "]"
	}
	return "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: " + plural + ".example.org}\n" +
		"spec:\n  group: example.org\n  scope: Namespaced\n  names: {kind: " + kind + ", plural: " + plural + names + "}\n" +
		"  versions:\n  - name: v1\n    served: true\n    storage: true\n" +
		"    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {" + field + "}}}}}\n"
}

// TestBuiltInKinds compares our names and scopes of the built-in kinds with those of the typed clients.
func TestBuiltInKinds(t *testing.T) {
	known := map[schema.GroupVersionKind]kind{}
	for _, gvk := range builtIn() {
		known[gvk] = kindOf(gvk)
	}
	compared, groups := 0, reflect.TypeFor[kubernetes.Interface]()
	for method := range groups.Methods() {
		group := method.Type.Out(0)
		for j := 0; group.Kind() == reflect.Interface && j < group.NumMethod(); j++ {
			resource := group.Method(j)
			if resource.Type.NumOut() != 1 || resource.Type.Out(0).Kind() != reflect.Interface {
				continue
			}
			get, ok := resource.Type.Out(0).MethodByName("Get")
			if !ok {
				continue
			}
			for gvk, of := range scheme.Scheme.AllKnownTypes() {
				k, isKnown := known[gvk]
				if of != get.Type.Out(0).Elem() || !isKnown {
					continue
				}
				plural, _, _ := strings.Cut(k.name, ".")
				assert.Equal(t, strings.ToLower(resource.Name), plural, "We should know the plural of %s.", gvk)
				assert.Equal(t, resource.Type.NumIn() > 0, k.Namespaced, "We should know the scope of %s.", gvk)
				compared++
			}
		}
	}
	assert.Greater(t, compared, 50, "We should compare all of them.")
}

// TestBuiltInSchemas has the paths that the OpenAPI documents of Kubernetes have, too.
func TestBuiltInSchemas(t *testing.T) {
	for _, gvk := range builtIn() {
		s, err := schemaOf(gvk)
		require.NoError(t, err, gvk)
		require.NoError(t, s.At(fields.Path{}).Err, gvk)
	}
	deployment, err := schemaOf(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"})
	require.NoError(t, err)
	for path, want := range map[string]string{
		".spec.replicas":                                        "integer",
		".spec.template.spec.priorityClassName":                 "string",
		".spec.template.spec.nodeSelector":                      "object",
		".spec.template.spec.hostNetwork":                       "boolean",
		".spec.template.spec.volumes":                           "array",
		".spec.strategy.rollingUpdate.maxSurge":                 "string", // or an integer
		".spec.template.spec.containers.[].resources.limits.[]": "string",
	} {
		assert.Equal(t, want, deployment.At(strings.Split(path, ".")[1:]).Schema.Type, path)
	}
	assert.True(t, deployment.Requires(fields.Path{"spec", "template"}), "We should know what is always written.")
	assert.False(t, deployment.Requires(fields.Path{"spec", "replicas"}), "We should know what may be left out.")
}
