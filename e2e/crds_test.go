package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/classbind/classbind/selector/expression"
	paths "github.com/classbind/classbind/selector/fields"
	"github.com/classbind/classbind/selector/openapi"
)

// crdModules are the modules that publish CRDs, which e2e/crds requires, with the folder of the CRDs in each.
var crdModules = map[string]string{
	"github.com/cert-manager/cert-manager":                     "deploy/crds",
	"github.com/kubernetes-csi/external-snapshotter/client/v8": "config/crd",
	"github.com/vmware-tanzu/velero":                           "config/crd/v1/bases",
	"sigs.k8s.io/cluster-api":                                  "core/config/crd/bases",
	"sigs.k8s.io/gateway-api":                                  "config/crd/standard",
	"sigs.k8s.io/karpenter":                                    "pkg/apis/crds",
}

// ourVersion is that of a CRD of ours. Those of modules begin with a v, and those of the projects' files with commit.
const ourVersion = "a CRD of ours"

// crd is the CRD of a kind: the project's own, or one of ours of the same shape.
type crd struct {
	version  string // of the project
	manifest string
}

type crdSource struct {
	modules map[string]string // the version of each folder
	files   map[string]crd    // those in the repository, by their names
}

type module struct{ Path, Version, Dir string }

// downloaded modules, of the versions that the module in a folder requires.
func downloaded(t *testing.T, folder string, paths ...string) (modules []module) {
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"mod", "download", "-json"}, paths...)...) //nolint:gosec // The tests name the modules.
	cmd.Dir = folder
	out, err := cmd.Output()
	require.NoError(t, err, "We should get %v: %s", paths, out)
	for all := json.NewDecoder(bytes.NewReader(out)); all.More(); {
		modules = append(modules, module{})
		require.NoError(t, all.Decode(&modules[len(modules)-1]))
	}
	return modules
}

func newCRDSource(t *testing.T) *crdSource {
	s := &crdSource{modules: map[string]string{}, files: map[string]crd{}}
	for _, module := range downloaded(t, "crds", slices.Collect(maps.Keys(crdModules))...) {
		s.modules[filepath.Join(module.Dir, filepath.FromSlash(crdModules[module.Path]))] = module.Version
	}
	require.Len(t, s.modules, len(crdModules))

	s.read(t, "shapes", func(string) string { return ourVersion })
	readme := string(must(os.ReadFile(filepath.Join("crds", "projects", "README.md")))(t))
	s.read(t, "projects", func(file string) string {
		row := regexp.MustCompile(`(?m)^\| .` + regexp.QuoteMeta(file) + `. \| [^|]+ \| (commit \w+ of \S+) \|$`).FindStringSubmatch(readme)
		require.NotNil(t, row, "We should find the origin of %s in the README.", file)
		return row[1]
	})
	return s
}

// read the CRDs in a folder of e2e/crds, each file of one version.
func (s *crdSource) read(t *testing.T, folder string, version func(file string) string) {
	for _, file := range must(filepath.Glob(filepath.Join("crds", folder, "*.yaml")))(t) {
		for _, object := range objectsOf(t, file) {
			require.NotContains(t, s.files, object.GetName())
			s.files[object.GetName()] = crd{version(filepath.Base(file)), manifestOf(t, object)}
		}
	}
}

// find the CRD of a kind, <plural>.<group>: in a module, or in the repository. Kubernetes' own kinds have none.
func (s *crdSource) find(t *testing.T, name string) (found crd, ok bool) {
	plural, group, _ := strings.Cut(name, ".")
	for dir, version := range s.modules {
		if found := readCRD(t, filepath.Join(dir, group+"_"+plural+".yaml")); found != "" {
			return crd{version, found}, true
		}
	}
	found, ok = s.files[name]
	return found, ok
}

// readCRD without the webhook that converts its objects, which is not there. It is empty where there is no such file.
func readCRD(t *testing.T, file string) string {
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	objects := objectsOf(t, file)
	require.Len(t, objects, 1, file)
	unstructured.RemoveNestedField(objects[0].Object, "spec", "conversion")
	return manifestOf(t, objects[0])
}

func objectsOf(t *testing.T, file string) []*unstructured.Unstructured {
	text, err := os.ReadFile(file) //nolint:gosec // The test names the file.
	require.NoError(t, err)
	return documents(t, string(text))
}

// typedKinds have real CRDs, and the versions to read of them.
var typedKinds = map[string]string{
	"certificates.cert-manager.io": "v1", "issuers.cert-manager.io": "v1", "gateways.gateway.networking.k8s.io": "v1",
	"httproutes.gateway.networking.k8s.io": "v1", "nodepools.karpenter.sh": "v1", "nodeclaims.karpenter.sh": "v1",
	"clusters.cluster.x-k8s.io": "v1beta2", "machinedeployments.cluster.x-k8s.io": "v1beta2",
	"volumesnapshots.snapshot.storage.k8s.io": "v1", "volumesnapshotcontents.snapshot.storage.k8s.io": "v1",
}

// TestExpressionTypes checks 500 generated expressions over real schemas. One that is called wrong fails for an object that
// the schema allows, although no field is absent. So one that succeeds for all objects is not called wrong.
func TestExpressionTypes(t *testing.T) {
	t.Parallel()
	notInPods(t, "It needs Go, and no cluster.")
	crds := newCRDSource(t)
	wrong, succeeding := 0, 0
	for i, name := range slices.Sorted(maps.Keys(typedKinds)) {
		found, ok := crds.find(t, name)
		require.True(t, ok, name)
		text := must(yaml.YAMLToJSON([]byte(found.manifest)))(t)
		schema := must(openapi.OfCRD(text, typedKinds[name]))(t, name)
		g := &typedGenerator{rand.New(rand.NewPCG(1, uint64(i))), schema} //nolint:gosec // The same expressions each time.
		var objects []any
		for range 100 {
			objects = append(objects, g.object(paths.Path{}, 0))
		}
		for tried := 0; tried < 500/len(typedKinds); {
			of := g.formula("claim", paths.Path{"spec"})
			e, err := expression.Compile(of, expression.Bool, expression.Scope{Variables: []string{expression.Claim}})
			if err != nil {
				continue // CEL knows without a schema that it is wrong.
			}
			tried++
			failed := slices.ContainsFunc(objects, func(o any) bool {
				_, err := e.Bool(&expression.Input{Claim: o}, &expression.Budget{Left: 1 << 40})
				return err != nil
			})
			err = e.CheckTypes(openapi.Types{expression.Claim: {schema}}.TypeOf)
			if err != nil {
				wrong++
				assert.True(t, failed, "%s: %s is called wrong, and succeeds: %v", name, of, err)
			} else if !failed {
				succeeding++
			}
		}
	}
	t.Logf("%d expressions are called wrong, and %d succeed", wrong, succeeding)
	assert.Greater(t, min(wrong, succeeding), 50, "We should try expressions that are wrong, and some that are right.")
}

// typedGenerator makes objects that a schema allows, with each field that it has, and expressions over them.
type typedGenerator struct {
	*rand.Rand
	schema *openapi.Schema
}

func oneOf[T any](g *typedGenerator, all ...T) T { return all[g.IntN(len(all))] }

func (g *typedGenerator) object(p paths.Path, depth int) any {
	s := g.schema.At(p).Schema
	switch {
	case depth > 10:
		return nil
	case s.IntOrString:
		return oneOf[any](g, int64(1), "a")
	case s.Type == "string":
		return oneOf[any](g, "", "a", "b")
	case s.Type == "integer":
		return oneOf[any](g, int64(0), int64(1), int64(2))
	case s.Type == "number":
		return oneOf[any](g, 0.5, 1.5)
	case s.Type == "boolean":
		return g.IntN(2) == 0
	case s.Type == "array":
		return []any{g.object(p.Below(paths.Element), depth+1), g.object(p.Below(paths.Element), depth+1)}
	}
	object := map[string]any{}
	for name := range s.Properties {
		object[name] = g.object(p.Below(name), depth+1)
	}
	if len(s.AdditionalProperties) > 0 && json.Valid(s.AdditionalProperties) {
		object["a"] = g.object(p.Below(paths.Element), depth+1)
	}
	return object
}

// formula over what is below a variable, whose fields have this path.
func (g *typedGenerator) formula(variable string, at paths.Path) string {
	names := slices.Sorted(maps.Keys(g.schema.At(at).Schema.Properties))
	there := at.Below(oneOf(g, names...)).In(variable)
	switch g.IntN(5) { // Nothing hides an error, as false does from the other side of &&.
	case 0:
		return fmt.Sprintf("(%s) && has(%s)", g.atom(variable, at), there)
	case 1:
		return fmt.Sprintf("!has(%s) || (%s)", there, g.atom(variable, at))
	case 2:
		return fmt.Sprintf("!(%s)", g.atom(variable, at))
	}
	return g.atom(variable, at)
}

// atom asks for one field, which may not be there.
func (g *typedGenerator) atom(variable string, at paths.Path) string {
	text := variable
	if variable == "claim" {
		text = at.In(variable)
	}
	for {
		s := g.schema.At(at).Schema
		if s.Type == "array" && g.schema.At(at.Below(paths.Element)).Err == nil && g.IntN(2) == 0 {
			element := "e" + fmt.Sprint(len(at))
			return fmt.Sprintf("%s.exists(%s, %s)", text, element, g.atom(element, at.Below(paths.Element)))
		}
		names := slices.Sorted(maps.Keys(s.Properties))
		if len(names) == 0 || g.IntN(10) == 0 {
			break
		}
		name := names[g.IntN(len(names))]
		misspelt := g.IntN(8) == 0
		if misspelt {
			name += "s"
		}
		parent := text
		text += paths.Path{name}.In("")
		if misspelt && g.IntN(3) == 0 {
			return fmt.Sprintf("%q in %s || has(%s)", name, parent, text)
		}
		if at = at.Below(name); misspelt {
			break
		}
	}
	literal := oneOf(g, "'a'", "1", "true", "1.5")
	return fmt.Sprintf(oneOf(g, "%[1]s == %[2]s", "%[1]s != %[2]s", "%[1]s < %[2]s", "%[1]s + %[2]s == %[2]s", "%[1]s.startsWith('a')",
		"string(%[1]s) == 'a'", "%[1]s in [%[2]s]", "has(%[1]s)", "has(%[1]s) && %[1]s == %[2]s", "(%[1]s == %[2]s ? %[1]s : %[2]s) == %[2]s",
		"[%[1]s].size() == 1", "!has(%[1]s) || %[1]s > %[2]s"), text, literal)
}
