package explain

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// hostile clears the screen, begins a line that a CI system takes for a command, and turns around what follows.
const hostile = "\x1b[2J\r\n::error::pwned\u009b1m\u202e\u200b\u2028"

// spoil makes every string of an object hostile, except those that say what it is, by one way to its value after the other.
func spoil(value any, spoiled func(any), replace func(any)) {
	switch v := value.(type) {
	case string:
		replace(v + hostile)
		spoiled(nil)
		replace(v)
	case map[string]any:
		for name, child := range v {
			spoil(child, spoiled, func(to any) { v[name] = to })
			delete(v, name)
			v[name+hostile] = child
			spoiled(nil)
			delete(v, name+hostile)
			v[name] = child
		}
	case []any:
		for i := range v {
			spoil(v[i], spoiled, func(to any) { v[i] = to })
		}
	}
}

// TestHostileFiles has each name and each value of claims and classes hostile in turn.
func TestHostileFiles(t *testing.T) {
	read := func(text string) (object map[string]any) {
		require.NoError(t, json.Unmarshal([]byte(text), &object))
		return object
	}
	registered := []map[string]any{
		read(`{"apiVersion": "classbind.io/v1beta1", "kind": "ClassKind", "metadata": {"name": "fastclasses.example.org"}, "spec": {"claimKinds": ` +
			`[{"name": "claims.example.org"}]}}`),
		read(`{"apiVersion": "classbind.io/v1beta1", "kind": "ClaimKind", "metadata": {"name": "claims.example.org"}, "spec": {"claims": {"when": ` +
			`"claim.spec.zone != 'x'"}, "reference": {"path": ".spec.classRef"}, "selector": {"path": ".spec.classSelector"}, "classes": ` +
			`{"partition": {"claim": "claim.spec.zone", "class": "class.spec.zone"}, "fits": [{"name": "zone", "expression": "class.spec.zone == ` +
			`claim.spec.zone && class.spec.sizes[claim.spec.size] > 1"}]}, "whenUnmatched": "Deny"}}`),
	}
	class := read(`{"apiVersion": "example.org/v1", "kind": "FastClass", "metadata": {"name": "usual", "labels": {"tier": "gold"},
		"annotations": {"resourceclass.crossplane.io/is-default-class": "true", "resourceclass.crossplane.io/weight": "3"}},
		"spec": {"zone": "a", "sizes": {"big": 2}}}`)
	var claims []map[string]any
	for _, spec := range []string{
		`{"zone": "a", "size": "big", "classSelector": {"matchLabels": {"tier": "gold"}}}`,
		`{"zone": "a", "size": "none", "classSelector": {"matchLabels": {"tier": "iron"}}}`,
		`{"zone": "b", "size": "big"}`, `{"zone": "a", "classRef": {"kind": "FastClass", "name": "gone"}}`,
		`{"zone": "a", "classSelector": {"matchExpressions": [{"key": "tier", "operator": "Is"}]}}`,
	} {
		claims = append(claims, map[string]any{
			"apiVersion": "example.org/v1",
			"kind":       "Claim",
			"metadata":   map[string]any{"name": "db", "namespace": "team"},
			"spec":       read(spec),
		})
	}
	file := filepath.Join(t.TempDir(), "classes.json")
	shown := 0
	check := func(args ...string) {
		t.Helper()
		list, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": append(slices.Clone(registered), class)})
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(file, bytes.ReplaceAll(list, []byte("\u009b"), []byte(`\u009b`)), 0o600)) // YAML does not allow it.
		for _, claim := range claims {
			in, err := json.Marshal(claim)
			require.NoError(t, err)
			r := run(t, strings.ReplaceAll(string(in), "\u009b", `\u009b`), append(args, "-f", "-", "--offline", file)...)
			for _, out := range []string{r.stdout, r.stderr} {
				hidden := func(c rune) bool { return c != '\n' && !strconv.IsPrint(c) }
				require.False(t, strings.ContainsFunc(out, hidden), "We should print nothing that a terminal obeys: %q", out)
				assert.NotContains(t, "\n"+out, "\n::", "We should begin every line.")
				if strings.Contains(out, "::error::pwned") {
					shown++
				}
			}
		}
	}
	for _, args := range [][]string{nil, {"-o", "json"}} {
		for _, claim := range claims {
			all := claims
			claims = []map[string]any{claim}
			spoil(claim, func(any) { check(args...) }, func(any) {})
			claims = all
		}
		spoil(class, func(any) { check(args...) }, func(any) {})
	}
	assert.Greater(t, shown, 50, "We should show much of what is hostile.")
}
