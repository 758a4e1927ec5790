package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSubjects has make check's script look at the commits of a repository made for it.
func TestSubjects(t *testing.T) {
	t.Parallel()
	const script = "e2e/release/subjects"
	content, err := os.ReadFile(filepath.Join(root, script))
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		reason, subject string
		// after the commits, what happens to the repository.
		after string
		want  string
		fails bool
	}{
		"Right":   {reason: "We should accept 72 columns.", subject: strings.Repeat("ü", 72)},
		"Saying":  {reason: "We should accept a word that begins alike.", subject: "Saying less helps"},
		"TooLong": {reason: "We should refuse 73 columns.", subject: strings.Repeat("ü", 73), want: "the subject has 73 columns", fails: true},
		"Say":     {reason: `We should refuse "Say".`, subject: "Say what is wrong", want: `the subject begins with "Say"`, fails: true},
		"Shallow": {
			reason: "We should say that a shallow clone is not checked.", subject: "Say what is wrong",
			after: `echo $(git rev-parse HEAD) > .git/shallow && git reflog expire --expire=now --all && git prune --expire=now`, want: "skipped: ",
		},
		"NoGit": {reason: "We should say that a tree without git is not checked.", subject: "Say what is wrong", after: "rm -rf .git", want: "skipped: "},
		"Elsewhere": {
			reason: "We should refuse a commit of another branch, after which we would check nothing.", subject: "Add a file",
			after: "git checkout --quiet --orphan other && git commit --quiet --allow-empty --message=Other", want: "is no ancestor of this commit", fails: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			run := func(command string) (string, error) {
				c := exec.CommandContext(t.Context(), "bash", "-ec", command) //nolint:gosec // The command is the test's own.
				c.Dir = dir
				c.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir), "SUBJECT="+tc.subject,
					"GIT_AUTHOR_NAME=a", "GIT_COMMITTER_NAME=a", "EMAIL=a@example.org")
				out, err := c.CombinedOutput()
				return string(out), err
			}
			require.NoError(t, os.MkdirAll(filepath.Join(dir, ".ci"), 0o700))
			require.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(script)), 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(dir, script), content, 0o700)) //nolint:gosec // It is to be executed.
			out, err := run(`git init --quiet .
git commit --quiet --allow-empty --message='Say what was wrong before'
git rev-parse HEAD > .ci/subjects-since
git commit --quiet --allow-empty --message="$SUBJECT"
` + tc.after)
			require.NoError(t, err, out)

			out, err = run(script)
			assert.Equal(t, tc.fails, err != nil, "%s\n%s", tc.reason, out)
			assert.Contains(t, out, tc.want, tc.reason)
		})
	}
}
