package main

import (
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/cmd/classbind/exit"
)

// cells of testdata/commands.tsv, by command and column. Each is yes, or why the command differs.
func cells(t *testing.T) map[string]map[string]string {
	t.Helper()
	text, err := os.ReadFile("testdata/commands.tsv")
	require.NoError(t, err)
	all := map[string]map[string]string{}
	var columns []string
	for line := range strings.Lines(string(text)) {
		row := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if columns == nil {
			columns = row
			continue
		}
		require.Len(t, row, len(columns), row[0])
		all[row[0]] = map[string]string{}
		for i, column := range columns[1:] {
			all[row[0]][column] = row[i+1]
		}
	}
	return all
}

// TestMatrix has what all commands have in common, without a cluster. What needs one is in e2e, in TestCommands.
func TestMatrix(t *testing.T) {
	const kind = "databases.example.org"
	// rest is what a command needs, and named what it needs beside an object.
	rest := map[string][]string{
		"explain": {kind + "/a"}, "classes": {kind}, "register": {kind, "classes.example.org"}, "check": {"--rules"}, "bind": {kind},
		"simulate": {"--remove", "class/a"}, "set-default": {"class/a"}, "chooser check": {"localhost:1"},
	}
	needs := map[string]string{"chooser check": "cannot read the client certificate: "} // needs has the errors without what is no cluster.
	named := map[string][]string{"simulate": {"--remove", "class/b"}, "set-default": {"--for", kind}}
	table := cells(t)
	root := newCommand("classbind")
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for name, c := range leaves(root, "") {
		row, known := table[name]
		require.True(t, known, "Add a row to testdata/commands.tsv: %s", name)
		delete(table, name)
		if row["exit 2"] != "yes" {
			continue
		}
		execute := func(args ...string) error {
			_, err := run(t, append(strings.Fields(name), args...)...)
			return err
		}
		begins := func(t *testing.T, args ...string) { // It gets so far that it looks for a cluster, or needs none.
			t.Helper()
			err := execute(args...)
			want := needs[name]
			if row["no cluster"] == "yes" {
				want = "cannot find a cluster: "
			}
			if want != "" {
				require.ErrorContains(t, err, want, "%v", args)
				return
			}
			require.NoError(t, err, "%v", args)
		}
		is := func(column string) bool { return row[column] == "yes" }
		flag := func(shorthand, long string) bool {
			return shorthand != "" && c.Flags().ShorthandLookup(shorthand) != nil || c.Flags().Lookup(long) != nil
		}
		for column, test := range map[string]func(t *testing.T){
			"KIND/NAME": func(t *testing.T) {
				args := append([]string{kind + "/a"}, named[name]...)
				if is("KIND/NAME") {
					begins(t, args...)
				} else {
					assert.NotContains(t, mustFail(t, execute(args...)), "cannot find a cluster", "We should refuse it before.")
				}
			},
			"KIND NAME": func(t *testing.T) {
				if is("KIND NAME") {
					begins(t, append([]string{kind, "a"}, named[name]...)...)
				}
			},
			"-n": func(t *testing.T) {
				require.Equal(t, is("-n"), flag("n", "namespace"))
				if is("-n") {
					begins(t, append(rest[name], "-n", "team")...)
					assert.Contains(t, mustFail(t, execute(append(rest[name], "-n", "a/b")...)), "--namespace=")
				}
			},
			"-f": func(t *testing.T) {
				require.Equal(t, is("-f"), flag("f", "filename"))
				assert.Equal(t, flag("f", "filename") || flag("", "offline"), flag("R", "recursive"), "-R should go with all flags of files.")
				if is("-f") {
					assert.Contains(t, mustFail(t, execute("-f", "absent.yaml")), "absent.yaml")
				}
			},
			"-o json": func(t *testing.T) {
				require.Equal(t, is("-o json"), flag("o", "output"))
				if is("-o json") {
					begins(t, append(rest[name], "-o", "json")...)
					assert.Contains(t, mustFail(t, execute(append(rest[name], "-o", "xml")...)), `--output="xml": must be `)
				}
			},
			"--as": func(t *testing.T) {
				for long := range strings.FieldsSeq("as as-group as-uid user token context cluster server request-timeout kubeconfig") {
					require.Equal(t, is("--as"), flag("", long) && name != "serve", long)
				}
				if is("--as") {
					begins(t, append(rest[name], "--as", "jane", "--as-group", "a", "--user", "b", "--token", "c", "--request-timeout", "1s")...)
				}
			},
			"exit 2": func(t *testing.T) {
				err := execute(append(rest[name], "--no-such-flag")...)
				mustFail(t, err)
				assert.Equal(t, exit.Failed, exit.Status(err))
			},
			"no cluster": func(t *testing.T) {
				begins(t, rest[name]...)
				if is("no cluster") {
					assert.Equal(t, exit.Failed, exit.Status(execute(rest[name]...)))
				}
			},
			"examples": func(t *testing.T) {
				assert.NotEmpty(t, c.Example, "An example should say how the command goes.")
				plugin, _, err := newCommand("kubectl-classbind").Find(strings.Fields(name))
				require.NoError(t, err)
				assert.Contains(t, plugin.Example, "kubectl classbind "+name, "As a plugin, the examples should work as they are.")
				assert.NotContains(t, strings.ReplaceAll(plugin.Example, "kubectl classbind", ""), "classbind "+name)
			},
			"-v": func(t *testing.T) {
				assert.Equal(t, name != "serve", c.InheritedFlags().Lookup("v") != nil || c.Flags().Lookup("v") != nil)
			},
		} {
			t.Run(name+"/"+column, func(t *testing.T) {
				t.Setenv("KUBECONFIG", "")
				t.Setenv("HOME", t.TempDir())
				t.Setenv("KUBERNETES_SERVICE_HOST", "")
				test(t)
			})
		}
	}
	assert.Empty(t, table, "There should be no row without a command.")
}

// leaves are all commands that do something, by their path below the root. Those below completion are cobra's.
func leaves(c *cobra.Command, path string) map[string]*cobra.Command {
	all := map[string]*cobra.Command{}
	for _, sub := range c.Commands() {
		name := strings.TrimSpace(path + " " + sub.Name())
		if sub.HasSubCommands() && name != "completion" {
			maps.Copy(all, leaves(sub, name))
			continue
		}
		all[name] = sub
	}
	return all
}

func mustFail(t *testing.T, err error) string {
	t.Helper()
	require.Error(t, err)
	return err.Error()
}

// TestPanic ends a command in an error, and not in a stack.
func TestPanic(t *testing.T) {
	for level, stack := range map[string]bool{"0": false, "1": true} {
		var b strings.Builder
		c := newCommand("classbind")
		c.SetArgs([]string{"version", "-v", level})
		c.SetOut(&b)
		c.SetErr(&b)
		version, _, err := c.Find([]string{"version"})
		require.NoError(t, err)
		version.RunE = func(*cobra.Command, []string) error { panic("fell") }
		err = execute(t.Context(), c)
		require.ErrorContains(t, err, "panic: fell; this is a mistake in classbind: run the command again with -v=1")
		assert.Equal(t, exit.Failed, exit.Status(err))
		assert.Equal(t, stack, strings.Contains(b.String(), "goroutine"), b.String())
	}
	setLogs(0, nil)
}
