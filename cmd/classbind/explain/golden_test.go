package explain

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/cmd/classbind/exit"
)

var update = flag.Bool("update", false, "write the output of this build into testdata as what is wanted")

// result is the result of a command as a shell sees it.
type result struct {
	stdout, stderr string
	status         int
}

func run(t *testing.T, in string, args ...string) result {
	t.Helper()
	return execute(t, newCommand(func() uint64 { return 1 }), in, args...)
}

func execute(t *testing.T, c *cobra.Command, in string, args ...string) result {
	t.Helper()
	var stdout, stderr strings.Builder
	c.SilenceErrors, c.SilenceUsage = true, true // Like the root command.
	c.SetArgs(append([]string{}, args...))       // With nil, cobra would take the arguments of the test.
	c.SetIn(strings.NewReader(in))
	c.SetOut(&stdout)
	c.SetErr(&stderr)
	err := c.ExecuteContext(t.Context())
	r := result{stdout: stdout.String(), stderr: stderr.String()}
	if err != nil {
		var e *exit.Error
		require.ErrorAs(t, err, &e, "We should say with which status we end.")
		r.status = e.Status
		r.stderr += "error: " + err.Error() + "\n" // As main prints it.
	}
	return r
}

// explained runs the command, and returns the only item of its report, too.
func explained(t *testing.T, args ...string) (result, Item) {
	t.Helper()
	got := run(t, "", append([]string{"-f", "claim.yaml", "--classes", "classes.yaml", "-o", "json"}, args...)...)
	report := Report{}
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &report), got.stderr)
	require.Len(t, report.Items, 1)
	return got, report.Items[0]
}

// TestGolden runs a case for each folder of testdata, which has a claim, classes, the expected output and, in args.txt, arguments if it
// needs more. All cases share the registrations.
func TestGolden(t *testing.T) {
	folders, err := filepath.Glob("testdata/*/claim.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, folders)
	for _, file := range folders {
		dir := filepath.Dir(file)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Chdir(dir)
			args := []string{"-f", "claim.yaml", "--classes", "classes.yaml", "--classes", "../registered.yaml"}
			if more, err := os.ReadFile("args.txt"); err == nil {
				args = append(args, strings.Fields(string(more))...)
			}
			people := run(t, "", args...)
			programs := run(t, "", append(args, "-o", "json")...)
			assert.Equal(t, people.status, programs.status, "We should exit with the same status for people and programs.")
			assertGolden(t, "out.txt", fmt.Sprintf("%s%sexit status %d\n", people.stdout, people.stderr, people.status))
			assertGolden(t, "out.json", programs.stdout)
		})
	}
}

func assertGolden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o600))
	}
	want, err := os.ReadFile(file) //nolint:gosec // It is in testdata.
	require.NoError(t, err, "Make it with: go test ./cmd/classbind/explain -update")
	assert.Equal(t, string(want), got, "We should print what we did; if it is meant to change: go test ./cmd/classbind/explain -update")
}
