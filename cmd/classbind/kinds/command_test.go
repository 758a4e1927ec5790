package kinds

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/cmd/classbind/explain"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/controller/status"
	"github.com/classbind/classbind/deploy/kinds"
	"github.com/classbind/classbind/selector/inventory"
)

// folder of the presets.
const folder = "../../../deploy/kinds"

// execute a command as a shell does.
func execute(t *testing.T, c *cobra.Command, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, notes strings.Builder
	c.SetArgs(append([]string{}, args...)) // With nil, cobra would take the arguments of the test.
	c.SetOut(&out)
	c.SetErr(&notes)
	c.SilenceErrors, c.SilenceUsage = true, true
	err = c.ExecuteContext(t.Context())
	return out.String(), notes.String(), err
}

func TestList(t *testing.T) {
	out, _, err := execute(t, NewCommand())
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	assert.Regexp(t, `^NAME +SUMMARY +NEEDS +CLAIM KINDS$`, lines[0])
	var names []string
	for _, line := range lines[1:] {
		columns := regexp.MustCompile(` {3,}`).Split(line, -1)
		assert.True(t, len(line) < strings.Index(lines[0], "NEEDS") || line[strings.Index(lines[0], "CLAIM KINDS")-1] == ' ', "We should align the columns: %s", line)
		names = append(names, columns[0])
		assert.LessOrEqual(t, len(columns[1]), 70, "We should say what %s does in a short line.", columns[0])
	}
	assert.Equal(t, []string{
		"argo-cd", "cert-manager", "cloudnative-pg", "cluster-api", "cluster-api-ipam", "crossplane-packages",
		"external-secrets", "flux", "gateway-api", "ingress", "jobset", "karpenter", "kserve", "kubeflow-trainer", "kubevirt", "kueue", "kueue-queues",
		"object-storage", "persistent-volumes", "tekton", "velero", "volume-snapshots",
	}, names, "We should list every preset.")
	assert.Contains(t, out, " A Gateway gets a GatewayClass  ", "We should say it in the words of its README.")
	assert.Regexp(t, `(?m)^kueue .* kueue-queues +jobs\.batch$`, out, "We should name what a preset needs.")
	assert.Contains(t, out, " volumesnapshots.snapshot.storage.k8s.io,volumegroupsnapshots.groupsnapshot.storage.k8s.io\n", "We should name all claim kinds.")
}

func TestPrint(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, args string
		want         string // files, without .yaml
		notes        string
	}{
		"One": {
			"We should print what the kustomization has, comments included.",
			"gateway-api",
			"gateway-api/clusterrole gateway-api/claimkinds gateway-api/classkinds",
			"",
		},
		"Several": {
			"We should print several as one stream, each of them once.", "ingress gateway-api ingress",
			"gateway-api/clusterrole gateway-api/claimkinds gateway-api/classkinds ingress/clusterrole ingress/claimkinds ingress/classkinds",
			"",
		},
		"Examples": {
			"We should print classes before claims, and no registration.",
			"gateway-api --examples", "gateway-api/example/classes gateway-api/example/claims", "",
		},
		"ExamplesWithRelated": {
			"We should print what claims name before the claims.", "volume-snapshots --examples",
			"volume-snapshots/example/classes volume-snapshots/example/related volume-snapshots/example/claims",
			"",
		},
		"Whole": {
			"We should print what another needs before it, and say nothing where all are printed.",
			"kueue jobset kueue-queues",
			"kueue-queues/clusterrole kueue-queues/classkinds jobset/claimkinds kueue/claimkinds",
			"",
		},
		"Needs": {
			"We should name what it needs, and what becomes of that.", "kueue", "kueue/claimkinds",
			"note: kueue needs kueue-queues, too, which other presets also need: apply both, and delete kueue-queues last\n",
		},
		"Needed": {
			"We should name those that need it.", "kueue-queues kueue",
			"kueue-queues/clusterrole kueue-queues/classkinds kueue/claimkinds",
			"note: kueue-queues is also for jobset: delete it last\n",
		},
		"ExamplesOfNeeded": {
			"We should print the classes that the claims of another get.",
			"kueue kueue-queues --examples", "kueue-queues/example/classes kueue/example/claims",
			"note: kueue-queues is also for jobset: delete it last\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var want []string
			for file := range strings.FieldsSeq(tc.want) {
				text, err := kinds.Files.ReadFile(file + ".yaml")
				require.NoError(t, err)
				want = append(want, string(text))
			}
			out, notes, err := execute(t, NewCommand(), strings.Fields(tc.args)...)
			require.NoError(t, err)
			assert.Equal(t, strings.Join(want, "---\n"), out, tc.reason)
			assert.Equal(t, tc.notes, notes, tc.reason)
		})
	}
}

func TestPrintFails(t *testing.T) {
	for _, args := range [][]string{nil, {"ingress"}} {
		c := NewCommand()
		c.SetOut(broken{})
		c.SetArgs(args)
		c.SilenceErrors, c.SilenceUsage = true, true
		require.ErrorContains(t, c.ExecuteContext(t.Context()), "cannot print: broken pipe", "We should not succeed with half of it.")
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestComplete(t *testing.T) {
	presets, err := readPresets()
	require.NoError(t, err)
	offered, directive := complete(nil, []string{"gateway-api"}, "")
	assert.Equal(t, cobra.ShellCompDirectiveNoFileComp, directive, "We should offer no files.")
	assert.Contains(t, offered, "ingress\tAn Ingress gets an IngressClass")
	assert.Len(t, offered, len(presets)-1, "We should offer those that are not named yet.")
}

// TestPresets reads every preset as the API server and kubectl would.
func TestPresets(t *testing.T) {
	presets, err := readPresets()
	require.NoError(t, err)
	require.NotEmpty(t, presets)
	objects := map[string]string{}
	for _, p := range presets {
		t.Run(p.name, func(t *testing.T) {
			readable(t, p)
			hasFiles(t, p)
			registers(t, p)
			if len(p.users) > 0 {
				assert.Empty(t, p.claimKinds, "We should bind no claims for those who want another preset that needs it.")
			} else {
				exemplifies(t, p)
			}
			for _, example := range []bool{false, true} {
				text, err := manifestOf([]preset{p}, example)
				if len(p.users) == 0 || !example { // Those who need it may have the examples.
					require.NoError(t, err)
				}
				for _, o := range objectsOf(t, text) {
					object := fmt.Sprintf("%s %s %s", o.GroupVersionKind().GroupKind(), o.Namespace, o.Name)
					assert.Empty(t, objects[object], "We should have %s in one preset: another would change it, and take it along.", object)
					objects[object] = p.name
				}
			}
		})
	}
}

// hasFiles checks that each file is used.
func hasFiles(t *testing.T, p preset) {
	t.Helper()
	var got []string
	require.NoError(t, fs.WalkDir(kinds.Files, p.name, func(file string, d fs.DirEntry, err error) error {
		if !d.IsDir() {
			got = append(got, strings.TrimPrefix(file, p.name+"/"))
		}
		return err
	}))
	files := []string{"README.md"}
	for _, file := range slices.Sorted(slices.Values(append([]string{"claimkinds.yaml", "classkinds.yaml", "clusterrole.yaml"}, exampleFiles...))) {
		if slices.Contains(got, file) {
			files = append(files, file)
		}
	}
	assert.Equal(t, append(files, "kustomization.yaml"), got)
}

// readable checks the README.
func readable(t *testing.T, p preset) {
	t.Helper()
	text, err := kinds.Files.ReadFile(path.Join(p.name, "README.md"))
	require.NoError(t, err)
	readme := string(text)
	assert.True(
		t, strings.HasPrefix(readme, "# "+p.summary+"\n\n    classbind kinds "+strings.Join(append(p.needs, p.name), " ")+" "),
		"We should begin with what it does and the command.",
	)
	assert.Contains(t, readme, "\nNot bound", "We should say what is not bound.")
}

// registers checks the registrations and the role.
func registers(t *testing.T, p preset) {
	t.Helper()
	text, err := manifestOf([]preset{p}, false)
	require.NoError(t, err)
	claimKinds := map[string]v1beta1.ClaimKind{}
	var classKinds []v1beta1.ClassKind
	var role *rbacv1.ClusterRole
	for document := range strings.SplitSeq(string(text), "---\n") {
		meta := metav1.TypeMeta{}
		require.NoError(t, yaml.Unmarshal([]byte(document), &meta))
		switch meta.Kind {
		case "ClaimKind":
			k := v1beta1.ClaimKind{}
			require.NoError(t, yaml.UnmarshalStrict([]byte(document), &k))
			claimKinds[k.Name] = k
		case "ClassKind":
			k := v1beta1.ClassKind{}
			require.NoError(t, yaml.UnmarshalStrict([]byte(document), &k))
			classKinds = append(classKinds, k)
		case "ClusterRole":
			require.Nil(t, role, "We should need one role.")
			role = &rbacv1.ClusterRole{}
			require.NoError(t, yaml.UnmarshalStrict([]byte(document), role))
		default:
			t.Errorf("We should have no %s.", meta.Kind)
		}
	}
	want := map[string][]string{}
	served := map[string]bool{}
	for _, k := range classKinds {
		want[k.Name] = []string{"get", "list", "watch"}
		for _, c := range k.Spec.ClaimKinds {
			assert.Contains(t, claimKinds, c.Name, "We should have the claim kinds of %s.", k.Name)
			served[c.Name] = true
		}
	}
	for name, k := range claimKinds {
		for _, c := range k.Spec.Classes.Kinds {
			served[name] = served[name] || len(p.needs) > 0 || want[c.Name] != nil
		}
		assert.True(t, served[name], "We should have classes for %s.", name)
		for _, related := range k.Spec.Classes.Related {
			want[related.Resource] = []string{"get", "list", "watch"}
		}
		switch {
		case k.Spec.WhenUnmatched == v1beta1.BindLater:
			want[k.Resource()] = []string{"list", "watch", "patch"}
		case k.Spec.Choice.Strategy == v1beta1.LeastClaims:
			want[k.Resource()] = []string{"list", "watch"}
		}
	}
	if role == nil {
		role = &rbacv1.ClusterRole{}
	} else {
		assert.Equal(t, "classbind-"+p.name, role.Name)
		assert.Equal(t, map[string]string{"classbind.io/aggregate-to-classbind": "true"}, role.Labels)
	}
	got := map[string][]string{}
	for _, rule := range role.Rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				got[schema.GroupResource{Group: group, Resource: resource}.String()] = rule.Verbs
			}
		}
	}
	assert.Equal(t, want, got, "We should let classbind do what these kinds need, and no more.")

	// explain reads registrations as the API server does, with the schema and the rules of our CRDs.
	if len(claimKinds) == 0 { // explain asks for one. Another preset has those of this.
		return
	}
	_, _, err = execute(t, explain.NewCommand(), "--filename=testdata/unregistered.yaml", "--offline="+filepath.Join(folder, p.name))
	require.NoError(t, err, "The API server should take the registrations.")
}

// exemplifies checks the objects of the example.
func exemplifies(t *testing.T, p preset) {
	t.Helper()
	text, err := manifestOf([]preset{p}, true)
	require.NoError(t, err)
	objects := objectsOf(t, text)
	for _, name := range []string{"by-selector", "by-default"} {
		assert.True(t, slices.ContainsFunc(objects, func(o metav1.PartialObjectMetadata) bool { return o.Name == name }),
			"We should have a claim %s.", name)
	}
}

// objectsOf a YAML stream.
func objectsOf(t *testing.T, text []byte) (objects []metav1.PartialObjectMetadata) {
	t.Helper()
	for document := range strings.SplitSeq(string(text), "---\n") {
		object := metav1.PartialObjectMetadata{}
		require.NoError(t, yaml.Unmarshal([]byte(document), &object))
		if object.Kind != "" {
			objects = append(objects, object)
		}
	}
	return objects
}

// TestOrder applies what the command prints, in that order, on the check of registrations: of each preset, and of all at once. Nothing warns
// of what comes later.
func TestOrder(t *testing.T) {
	presets, err := readPresets()
	require.NoError(t, err)
	var all []string
	var outputs [][]string
	for _, p := range presets {
		all, outputs = append(all, p.name), append(outputs, []string{p.name})
	}
	for _, names := range append(outputs, all) {
		out, _, err := execute(t, NewCommand(), names...)
		require.NoError(t, err)
		cached := &controllertest.Cached{}
		registrations, err := registry.NewRegistration(controllertest.NewAPIServer(t, nil), cached, cached)
		require.NoError(t, err)
		check, warnings, registered := status.Preview{Registration: registrations, Cache: cached, Live: cached}, []string(nil), []string(nil)
		for document := range strings.SplitSeq(out, separator) {
			o := metav1.TypeMeta{}
			require.NoError(t, yaml.Unmarshal([]byte(document), &o))
			switch o.Kind {
			case "ClaimKind":
				k := v1beta1.ClaimKind{}
				require.NoError(t, yaml.UnmarshalStrict([]byte(document), &k))
				warnings = append(warnings, check.ClaimKind(t.Context(), &k)...)
				cached.ClaimKinds, registered = append(cached.ClaimKinds, k), append(registered, k.Name)
			case "ClassKind":
				k := v1beta1.ClassKind{}
				require.NoError(t, yaml.UnmarshalStrict([]byte(document), &k))
				warnings = append(warnings, check.ClassKind(t.Context(), &k)...)
				cached.ClassKinds, registered = append(cached.ClassKinds, k), append(registered, k.Name)
			}
		}
		for _, warning := range warnings {
			for _, own := range registered {
				assert.False(t, strings.Contains(warning, "has names that no") && strings.Contains(warning, strconv.Quote(own)), "%s: %s", names, warning)
			}
		}
	}
}

// TestSampleColumns has the API server's own printer show the classes of the samples: what it shows is what classbind reads.
func TestSampleColumns(t *testing.T) {
	samples := os.DirFS("../../../deploy/samples")
	files, err := fs.Glob(samples, "*/crds/*.yaml")
	require.NoError(t, err)
	shown, classKind := 0, &v1beta1.ClassKind{Spec: v1beta1.ClassKindSpec{
		Default: v1beta1.Source{Annotation: v1beta1.DefaultAnnotation}, Weight: v1beta1.Source{Annotation: v1beta1.WeightAnnotation},
	}}
	kind := inventory.NewClassKind(classKind, schema.GroupVersionKind{}, false)
	for _, file := range files {
		crd := apiextensionsv1.CustomResourceDefinition{}
		text, err := fs.ReadFile(samples, file)
		require.NoError(t, err)
		require.NoError(t, yaml.Unmarshal(text, &crd))
		if crd.Kind != "CustomResourceDefinition" {
			continue
		}
		columns := crd.Spec.Versions[0].AdditionalPrinterColumns
		table, err := tableconvertor.New(columns)
		require.NoError(t, err)
		at := func(name string) int {
			return 1 + slices.IndexFunc(columns, func(c apiextensionsv1.CustomResourceColumnDefinition) bool { return c.Name == name })
		}
		if at("WEIGHT") == 0 {
			continue
		}
		shown++
		for _, annotations := range []map[string]string{
			nil,
			{v1beta1.CrossplaneDefaultAnnotation: "true", v1beta1.CrossplaneWeightAnnotation: "3"},
			{v1beta1.DefaultAnnotation: "true", v1beta1.WeightAnnotation: "9"},
			{v1beta1.DefaultAnnotation: "true", v1beta1.WeightAnnotation: "9", v1beta1.CrossplaneWeightAnnotation: "3"},
		} {
			u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.org/v1", "kind": "Class"}}
			u.SetName("mine")
			u.SetAnnotations(annotations)
			class := kind.NewClass(u, u.Object)
			got, err := table.ConvertToTable(t.Context(), u, nil)
			require.NoError(t, err)
			cells := got.Rows[0].Cells
			assert.Equal(t, class.Default, cells[at("DEFAULT")] == "true", "%s: %v: %v", file, annotations, cells)
			if weight := cells[at("WEIGHT")]; weight != nil || class.Weight != 1 {
				assert.Equal(t, fmt.Sprint(class.Weight), weight, "%s: %v", file, annotations)
			}
		}
	}
	assert.Equal(t, 4, shown)
}
