package kinds

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/classbind/classbind/api/v1beta1"
)

var update = flag.Bool("update", false, "write the marks of the presets")

var mark = regexp.MustCompile(regexp.QuoteMeta(v1beta1.PresetAnnotation) + `: ([^@\s}]+@[0-9a-f]*)`)

// TestMarks proves that each object of a preset has a mark that changes with it, and that none sets the default of whenEmpty.
func TestMarks(t *testing.T) {
	files, err := fs.Glob(Files, "*/*.yaml")
	require.NoError(t, err)
	for _, file := range files {
		if path.Base(file) == "kustomization.yaml" {
			continue
		}
		text, err := os.ReadFile(file) //nolint:gosec // It is ours.
		require.NoError(t, err)
		assert.NotContains(t, string(text), "whenEmpty: "+string(v1beta1.BindEmpty), "%s: this is the default.", file)
		documents := bytes.SplitAfter(text, []byte("\n---\n"))
		for i, document := range documents {
			object := map[string]any{}
			require.NoError(t, yaml.Unmarshal(bytes.TrimSuffix(document, []byte("---\n")), &object), file)
			delete(object, "metadata")
			content, err := json.Marshal(object)
			require.NoError(t, err)
			want := fmt.Sprintf("%s@%x", path.Dir(file), sha256.Sum256(content))[:len(path.Dir(file))+9]
			found := mark.FindSubmatchIndex(document)
			require.NotNil(t, found, "%s: each object should have the annotation %s.", file, v1beta1.PresetAnnotation)
			if *update {
				documents[i] = []byte(strings.Replace(string(document), string(document[found[2]:found[3]]), want, 1))
				continue
			}
			assert.Equal(t, want, string(document[found[2]:found[3]]), "%s: run make generate.", file)
		}
		if *update {
			require.NoError(t, os.WriteFile(file, bytes.Join(documents, nil), 0o600)) //nolint:gosec // It is ours.
		}
	}
}
