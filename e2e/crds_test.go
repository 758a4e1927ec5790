package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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

// The versions of a CRD that is not a module's. Those of modules begin with a v.
const (
	commitVersion = "commit " // and the commit
	ourVersion    = "a CRD of ours"
)

// crd is the CRD of a kind: the project's own, or one of ours of the same shape.
type crd struct {
	version  string // of the project
	manifest string
}

type crdSource struct {
	modules map[string]string // the version of each folder
	folder  string            // of the CRDs that no module publishes, or empty
	shapes  map[string]string // CRDs of ours by their names
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
	s := &crdSource{modules: map[string]string{}, shapes: map[string]string{}}
	for _, module := range downloaded(t, "crds", slices.Collect(maps.Keys(crdModules))...) {
		s.modules[filepath.Join(module.Dir, filepath.FromSlash(crdModules[module.Path]))] = module.Version
	}
	require.Len(t, s.modules, len(crdModules))

	if s.folder = os.Getenv("CRDS"); s.folder != "" {
		require.DirExists(t, s.folder)
	} else if beside := filepath.Join("..", "..", "shared", "crds"); isDir(beside) {
		s.folder = beside
	}
	shapes := must(filepath.Glob(filepath.Join("crds", "shapes", "*.yaml")))(t)
	for _, file := range shapes {
		for _, object := range objectsOf(t, file) {
			s.shapes[object.GetName()] = manifestOf(t, object)
		}
	}
	return s
}

func isDir(path string) bool {
	found, err := os.Stat(path)
	return err == nil && found.IsDir()
}

// find the CRD of a kind, <plural>.<group>: in a module, in the folder, or else among ours. The
// project is one of the table in the folder's README. Kubernetes' own kinds have none.
func (s *crdSource) find(t *testing.T, name, project string) (found crd, ok bool) {
	plural, group, _ := strings.Cut(name, ".")
	file := group + "_" + plural + ".yaml"
	for dir, version := range s.modules {
		if found := readCRD(t, filepath.Join(dir, file)); found != "" {
			return crd{version, found}, true
		}
	}
	if s.folder != "" {
		if found := readCRD(t, filepath.Join(s.folder, file)); found != "" {
			return crd{s.commit(t, project), found}, true
		}
	}
	if s.shapes[name] == "" {
		return crd{}, false
	}
	t.Logf("%s: neither a module nor the folder has its CRD: it is one of ours of the same shape", name)
	return crd{ourVersion, s.shapes[name]}, true
}

// commit of the project from which the folder has its CRDs.
func (s *crdSource) commit(t *testing.T, project string) string {
	readme := must(os.ReadFile(filepath.Join(s.folder, "README.md")))(t)
	row := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(project) + ` \| (\w+) \| (\S+) \|$`).FindStringSubmatch(string(readme))
	require.NotNil(t, row, "We should find %s in the folder's README.", project)
	return commitVersion + row[1] + " of " + row[2]
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
