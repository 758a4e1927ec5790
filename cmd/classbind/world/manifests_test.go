package world

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestKindsOfFiles has everything that a file system has under the name of a manifest, named by itself and in a folder.
func TestKindsOfFiles(t *testing.T) {
	const manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
	elsewhere := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(elsewhere, "b.yaml"), []byte(manifest), 0o600))
	for name, tc := range map[string]struct {
		reason       string
		make         func(path string) error
		alone, among string // what is wrong with it, "" if it is read
	}{
		"File": {"We should read a file.", func(path string) error { return os.WriteFile(path, []byte(manifest), 0o600) }, "", ""},
		"Link": {"We should follow a link to a file of the folder.", func(path string) error { return os.Symlink("a.yaml", path) }, "", ""},
		"LinkUp": {
			"We should follow a link out of the folder only if it is named.",
			func(path string) error { return os.Symlink(filepath.Join(elsewhere, "b.yaml"), path) }, "", "is left out",
		},
		"ToNone": {"We should say that a link leads nowhere.", func(path string) error { return os.Symlink("none", path) }, "no such file", "is left out"},
		"Circle": {"We should not go round.", func(path string) error { return os.Symlink(filepath.Base(path), path) }, "too many levels", "is left out"},
		"FIFO":   {"We should wait for nobody.", func(path string) error { return syscall.Mkfifo(path, 0o600) }, "no regular file", "is left out"},
		"Device": {"We should read no device, which never ends.", func(path string) error { return os.Symlink("/dev/zero", path) }, "no regular file", "is left out"},
		//nolint:noctx // No client connects.
		"Socket": {"We should read no socket.", func(path string) error { _, err := net.Listen("unix", path); return err }, "no regular file", "is left out"},
		"Large": {"We should read within a limit.", func(path string) error {
			f, err := os.Create(path) //nolint:gosec // It is the test's.
			if err == nil {
				err = f.Truncate(maxFileBytes + 1)
			}
			return err
		}, "larger than 32 MiB", "larger than 32 MiB"},
		"FolderLink": {
			"We should read a folder that is named by a link, and follow none in a folder.",
			func(path string) error { return os.Symlink(elsewhere, path) }, "", "is left out",
		},
		"PatchesFIFO": {"We should read no FIFO as a kustomization.", func(path string) error {
			return syscall.Mkfifo(filepath.Join(filepath.Dir(path), "kustomization.yaml"), 0o600)
		}, "no such file", ""},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(folder, "a.yaml"), []byte(manifest), 0o600))
			odd := filepath.Join(folder, "odd.yaml")
			require.NoError(t, tc.make(odd))
			for path, want := range map[string]string{odd: tc.alone, folder: tc.among} {
				var notes bytes.Buffer
				all, err := Files{Progress: &notes, Recursive: true}.Manifests(t.Context(), []string{path})
				if text := notes.String(); err != nil || want != "" {
					if err != nil {
						text += err.Error()
					}
					require.Contains(t, text, want, tc.reason)
					require.NotEmpty(t, want, "%s %v", tc.reason, err)
				}
				assert.Equal(t, err == nil, len(all) > 0, tc.reason)
			}
			if _, err := (Files{Recursive: true}).Objects(t.Context(), []string{folder}); tc.among != "" {
				assert.Error(t, err, "A command that leaves nothing out should fail: "+tc.reason)
			}
		})
	}
}

// TestReadingEnds with the context, where standard input never does.
func TestReadingEnds(t *testing.T) {
	t.Parallel()
	in, writer := io.Pipe() // It gets no data, until the end.
	defer func() { _ = writer.Close() }()
	ctx, stop := context.WithCancel(t.Context())
	stop()
	_, err := Files{In: in, Progress: io.Discard}.Manifests(ctx, []string{stdin})
	require.ErrorIs(t, err, context.Canceled)

	_, err = Files{In: strings.NewReader(strings.Repeat(" ", maxFileBytes+1)), Progress: io.Discard}.Manifests(t.Context(), []string{stdin})
	require.ErrorContains(t, err, "larger than 32 MiB")
}

// TestDefaults states the defaults again, as docs/register-kinds.md does. They agree with the CRD because they are read from it.
func TestDefaults(t *testing.T) {
	for object, want := range map[string]string{
		`{"apiVersion": "classbind.io/v1beta1", "kind": "ClaimKind", "metadata": {"name": "databases.example.org"}}`: `{
			"claims": {"skipIfSet": [{"path": ".spec.resourceRef"}], "namespaceSelector": {}},
			"reference": {"path": ".spec.classRef", "whenEmpty": "Bind", "whenAbsent": "Bind",
				"whenParentAbsent": "Create", "explicit": "Allow", "onUnbind": "Restore"},
			"selector": {"path": ".spec.classSelector", "annotation": "classbind.io/class-selector", "whenAbsent": "Default"},
			"classes": {"precedence": "Name", "namespaces": {"from": "SameAsClaim"}},
			"choice": {"strategy": "WeightedRandom", "seed": {"from": "Claim"}, "annotate": "Nothing"},
			"whenUnmatched": "Admit", "admission": {"defaulting": "Webhook", "order": "Last", "failurePolicy": "Fail"}}`,
		`{"apiVersion": "classbind.io/v1beta1", "kind": "ClassKind", "metadata": {"name": "a.b"}}`: `{"default": {"annotation": ` +
			`"classbind.io/default"}, "weight": {"annotation": "classbind.io/weight"}, "onDelete": "Warn"}`,
	} {
		found, err := ParseManifests([]byte(object))
		require.NoError(t, err)
		schemas, err := ownSchemas()
		require.NoError(t, err)
		errs, ok := schemas[found[0].GroupVersionKind()].Decode(found[0].Object)
		require.True(t, ok && len(errs) == 0, errs)
		got, err := json.Marshal(found[0].Object["spec"])
		require.NoError(t, err)
		assert.JSONEq(t, want, string(got), "We should fill in every default.")
	}
}

// TestFolders reads the folders in a folder only if it is to.
func TestFolders(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.MkdirAll("all/.git", 0o700))
	_, err := Files{Progress: io.Discard}.Manifests(t.Context(), []string{"all"})
	require.EqualError(t, err, `cannot read "all": the folder has no file that ends in .yaml, .yml or .json`, "We should not count hidden folders.")
	require.NoError(t, os.MkdirAll("all/deep", 0o700))
	require.NoError(t, os.WriteFile("all/deep/a.yaml", []byte("{apiVersion: v1, kind: A}"), 0o600))
	_, err = Files{Progress: io.Discard}.Manifests(t.Context(), []string{"all"})
	require.ErrorContains(t, err, "the folder has no file that ends in .yaml, .yml or .json, but 1 folder: -R reads folders, too")

	require.NoError(t, os.WriteFile("all/b.yaml", []byte("{apiVersion: v1, kind: B}"), 0o600))
	var notes strings.Builder
	flat, err := Files{Progress: &notes}.Manifests(t.Context(), []string{"all"})
	require.NoError(t, err)
	assert.Len(t, flat, 1)
	assert.Equal(t, "note: \"all\" has 1 folder, which the command does not read: -R reads folders, too\n", notes.String(), "We should not skip it silently.")

	deep, err := Files{Progress: &notes, Recursive: true}.Manifests(t.Context(), []string{"all"})
	require.NoError(t, err)
	assert.Len(t, deep, 2)
}
