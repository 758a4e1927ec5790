package register

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/cmd/classbind/explain"
)

// schemas are those of real projects. See the README there.
const schemas = "testdata/crds"

// answer is a row of testdata/answers.yaml.
type answer struct {
	Args    string                  `json:"args"`
	Path    string                  `json:"path"`
	Form    v1beta1.ReferenceForm   `json:"form"`
	Parts   []v1beta1.ReferencePart `json:"parts"`
	Also    []string                `json:"also"`
	Refused string                  `json:"refused"`
}

func answers(t *testing.T) (all []answer) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "answers.yaml"))
	require.NoError(t, err)
	require.NoError(t, yaml.UnmarshalStrict(text, &all))
	return all
}

// TestProjects compares what the command prints for kinds of real projects with the right answers.
func TestProjects(t *testing.T) {
	right, refused := 0, 0
	for _, want := range answers(t) {
		byItself := !strings.Contains(want.Args, "--")
		t.Run(want.Args, func(t *testing.T) {
			args := strings.Fields(want.Args)
			files := filesOf(t, args)
			out, err := execute(t, append(args, files...)...)
			if want.Refused != "" {
				require.ErrorContains(t, err, want.Refused, "We should refuse what no form can write:\n%s", out)
				assert.Empty(t, out, "We should print nothing that could be applied.")
				if byItself {
					refused++
				}
				return
			}
			require.NoError(t, err)
			documents := strings.Split(out, "---\n")
			k := v1beta1.ClaimKind{}
			require.NoError(t, yaml.UnmarshalStrict([]byte(documents[len(documents)-1]), &k))
			at := string(k.Spec.Reference.Path)
			if at == "" {
				at = strings.Join(k.Spec.Reference.Names(), ".")
			}
			assert.Equal(t, want.Path, at, out)
			assert.Equal(t, want.Form, k.Spec.Reference.Form, out)
			assert.Equal(t, want.Parts, k.Spec.Reference.Parts, out)
			for _, also := range want.Also {
				assert.Contains(t, out, also)
			}
			assert.Empty(t, faults(t, out, files), "We should print registrations that become ready: %s", out)
			if byItself && !t.Failed() {
				right++
			}
		})
	}
	assert.GreaterOrEqual(t, right, 28, "We should be right where a form can write the reference.")
	assert.GreaterOrEqual(t, right+refused, 40, "We should be tested with enough kinds.")
	t.Logf("right: %d, refused with the field: %d, of %d", right, refused, len(answers(t)))
}

// filesOf kinds, as flags: to read all of them for each row takes minutes.
func filesOf(t *testing.T, kinds []string) (flags []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(schemas, "*.yaml"))
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file) //nolint:gosec // The test names the folder.
		require.NoError(t, err)
		if slices.ContainsFunc(kinds, func(kind string) bool {
			return regexp.MustCompile(`(?m)(kind|name): ` + regexp.QuoteMeta(kind) + `([,}]|$)`).Match(text)
		}) {
			flags = append(flags, "--offline", file)
		}
	}
	if flags == nil { // Both are Kubernetes' own.
		flags = []string{"--offline", filepath.Join(schemas, "jobset.yaml")}
	}
	return flags
}

// faults that classbind check finds in what was printed, beside the CRDs.
func faults(t *testing.T, printed string, files []string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kinds.yaml")
	require.NoError(t, os.WriteFile(file, []byte(printed), 0o600))
	c, out := explain.NewCheckCommand(), &strings.Builder{}
	c.SetArgs(append([]string{"-f", file, "-o", "json"}, files...))
	c.SetOut(out)
	c.SetErr(out)
	c.SilenceErrors, c.SilenceUsage = true, true
	if c.ExecuteContext(t.Context()) == nil {
		return ""
	}
	return out.String()
}
