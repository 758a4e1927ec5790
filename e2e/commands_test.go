package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/e2e/controlplane"
)

// commandCells are the rows of the table of all commands: by command and column, yes, or why the command differs. The cells that need no
// cluster are tested beside the command, in TestMatrix.
func commandCells(t *testing.T) map[string]map[string]string {
	text := must(os.ReadFile("../cmd/classbind/testdata/commands.tsv"))(t)
	cells, columns := map[string]map[string]string{}, []string(nil)
	for line := range strings.Lines(string(text)) {
		row := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if columns == nil {
			columns = row
			continue
		}
		cells[row[0]] = map[string]string{}
		for i, column := range columns {
			cells[row[0]][column] = row[i]
		}
	}
	return cells
}

// commandCase has the arguments of a command in a cluster with the samples.
type commandCase struct {
	fine, finds []string // They end with 0 and 1.
	// forbidden is what a stranger may not read: a part of the error. Without one, the command says less, and ends with 0 or 1.
	forbidden string
	// object is in another namespace than that of the context.
	object [2]string
	more   []string
}

// TestCommands has all commands against a real API server: each cell of the table that needs one.
func TestCommands(t *testing.T) {
	t.Parallel()
	notInPods(t, "The commands need the kubeconfig of an admin.")
	w, _ := servedWorld(t, controlplane.Options{})
	w.applySamples(t)
	dir := commandFolder(t, w)
	const lists, claim = "cannot list ClaimKinds", "PostgreSQLInstance"
	lost := write(t, claimWithout("lost"))
	cases := map[string]commandCase{
		"explain": {
			fine: []string{claim + "/gitlab-database", "-n", "acme-team"}, finds: []string{"-f", lost}, forbidden: lists,
			object: [2]string{claim, "gitlab-database"},
		},
		"classes":  {fine: []string{claim, "-n", "acme-team"}, finds: []string{"persistentvolumeclaims"}, forbidden: lists},
		"status":   {forbidden: lists},
		"kinds":    {},
		"version":  {},
		"register": {fine: []string{"PersistentVolumeClaim", "StorageClass"}, finds: []string{"ConfigMap", "StorageClass"}},
		"check":    {fine: []string{"-f", dir + "/deploy/samples/crossplane/kinds.yaml"}, finds: []string{"-f", dir + "/wrong.yaml"}},
		"simulate": {
			fine:  []string{"-f", dir + "/new-class.yaml", claim},
			finds: []string{"--remove", "CloudSQLInstanceClass/gitlab-experimental", "--remove", "RDSInstanceClass/gitlab-experimental"}, forbidden: lists,
		},
		"bind": {
			fine: []string{claim, "-n", "acme-team"}, finds: []string{"RedisCluster", "-A", "--dry-run"}, forbidden: lists,
			object: [2]string{claim, "gitlab-database"},
		},
		"set-default": {
			fine: []string{"RDSInstanceClass/gitlab-experimental", "--for", samplePostgres + "," + sampleMySQL, "--dry-run"}, forbidden: lists,
			object: [2]string{"RDSInstanceClass", "gitlab-experimental"}, more: []string{"--for", samplePostgres + "," + sampleMySQL, "--dry-run"},
		},
	}
	stranger := must(w.plane.UserKubeconfig("matrix-stranger"))(t)
	cells := commandCells(t)
	each := func(column string, test func(t *testing.T, name string, c commandCase)) {
		for name, row := range cells {
			if row[column] == "yes" && row["exit 0"] == "yes" {
				t.Run(name+"/"+column, func(t *testing.T) { test(t, name, cases[name]) })
			}
		}
	}
	run := func(name string, args ...string) (out, stderr string, exit int) {
		return w.classbind(t, append([]string{name}, args...)...)
	}
	admin := func(name string, args ...string) (out, stderr string, exit int) {
		if cells[name]["no cluster"] == "yes" {
			args = append(args, "--kubeconfig="+w.plane.Kubeconfig)
		}
		return run(name, args...)
	}
	each("exit 0", func(t *testing.T, name string, c commandCase) {
		out, stderr, exit := admin(name, c.fine...)
		assert.Zero(t, exit, "%s%s", out, stderr)
	})
	each("-o json", func(t *testing.T, name string, c commandCase) {
		out, stderr, _ := admin(name, append(c.fine, "-o", "json")...)
		require.NotEmpty(t, out, stderr)
		for decoder := json.NewDecoder(strings.NewReader(out)); decoder.More(); {
			object := struct{ APIVersion, Kind string }{}
			require.NoError(t, decoder.Decode(&object), "%s%s", out, stderr)
			assert.NotEmpty(t, object.APIVersion+object.Kind, "%s: We should say what it is.", out)
		}
	})
	each("KIND NAME", func(t *testing.T, name string, c commandCase) {
		more := slices.Concat(c.more, []string{"-n", "acme-team"})
		slash, stderr, status := admin(name, append([]string{c.object[0] + "/" + c.object[1]}, more...)...)
		require.Zero(t, status, "%s%s", slash, stderr)
		apart, stderr, status := admin(name, append(c.object[:], more...)...)
		require.Zero(t, status, "%s%s", apart, stderr)
		assert.Equal(t, slash, apart)
		assert.NotEmpty(t, slash)
	})
	each("--as", func(t *testing.T, name string, c commandCase) {
		out, stderr, exit := admin(name, append(c.fine, "--as=matrix-stranger")...)
		c.strange(t, out, stderr, exit)
	})
	each("no rights", func(t *testing.T, name string, c commandCase) {
		out, stderr, exit := run(name, append(c.fine, "--kubeconfig="+stranger)...)
		c.strange(t, out, stderr, exit)
	})
	w.apply(t, claimKind("persistentvolumeclaims", "{reference: {path: .spec.storageClassName, form: Name}}")) // No ClassKind serves it.
	eventually(t, func(c *attempt) {
		_, exit, stderr := w.status(c, w.plane.Kubeconfig)
		require.Equal(c, 1, exit, stderr)
	})
	each("exit 1", func(t *testing.T, name string, c commandCase) {
		out, stderr, exit := admin(name, c.finds...)
		assert.Equal(t, 1, exit, "%s%s", out, stderr)
	})
	w.kubectl(t, "delete", "claimkind", "persistentvolumeclaims")
	each("examples", func(t *testing.T, name string, _ commandCase) { w.examples(t, name, dir) })
}

// strange is what a command says to somebody without rights.
func (c commandCase) strange(t *testing.T, out, stderr string, exit int) {
	if c.forbidden == "" {
		return // Discovery and schemas are for everybody.
	}
	assert.Equal(t, 2, exit, "%s%s", out, stderr)
	assert.Contains(t, stderr, c.forbidden, "We should say what may not be read.")
	assert.Contains(t, stderr, `"matrix-stranger"`, "We should say who may not.")
}

func claimWithout(tier string) string {
	return fmt.Sprintf("{apiVersion: database.crossplane.io/v1alpha1, kind: PostgreSQLInstance, metadata: {name: lost, namespace: acme-team}, "+
		"spec: {classSelector: {matchLabels: {tier: %s}}}}", tier)
}

// commandFolder has the files that the examples of the helps name.
func commandFolder(t *testing.T, w *world) string {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(dir, "deploy"), os.DirFS(w.deploy)))
	newClass := "{apiVersion: database.aws.crossplane.io/v1alpha2, kind: RDSInstanceClass, metadata: {name: new, labels: {tier: new}}}\n"
	for name, text := range map[string]string{
		"claim.yaml": claimWithout("new"), "new-class.yaml": newClass, "classes.yaml": newClass, "changed/classes.yaml": newClass,
		"wrong.yaml": "apiVersion: classbind.io/v1beta1\nkind: ClaimKind\nmetadata: {name: as.example.org}\nspec: {clams: {}}\n",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

// examples of a command's help run, and end with 0, or with 1 where they find something.
func (w *world) examples(t *testing.T, name, dir string) {
	help, _, _ := w.classbind(t, name, "--help")
	_, text, found := strings.Cut(help, "\nExamples:\n")
	require.True(t, found, help)
	text, _, _ = strings.Cut(text, "\n\n"+"Flags:")
	text = strings.ReplaceAll(text, "\\\n", " ")
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		cmd := exec.CommandContext(t.Context(), "sh", "-c", line) //nolint:gosec // It runs the commands that classbind prints.
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "KUBECONFIG="+w.plane.Kubeconfig, "GORACE=atexit_sleep_ms=0",
			"PATH="+filepath.Dir(command)+":"+w.plane.Assets+":"+os.Getenv("PATH"))
		out, _ := cmd.CombinedOutput()
		assert.LessOrEqual(t, cmd.ProcessState.ExitCode(), 1, "%s: %s", line, out)
		assert.NotContains(t, string(out), "error: panic", line)
	}
}
