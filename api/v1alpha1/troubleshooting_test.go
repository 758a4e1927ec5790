package v1alpha1

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTroubleshooting finds each condition, each reason, each event and each alert in
// docs/troubleshooting.md.
func TestTroubleshooting(t *testing.T) {
	b, err := os.ReadFile("../../docs/troubleshooting.md")
	require.NoError(t, err)
	page := string(b)
	file, err := parser.ParseFile(token.NewFileSet(), "names.go", nil, 0)
	require.NoError(t, err)
	words := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 || !regexp.MustCompile(`^(Condition|Reason|Event)[A-Z]`).MatchString(spec.Names[0].Name) {
			return true
		}
		literal, ok := spec.Values[0].(*ast.BasicLit)
		if !ok || strings.HasPrefix(spec.Names[0].Name, "EventController") {
			return true
		}
		word, err := strconv.Unquote(literal.Value)
		require.NoError(t, err)
		words++
		assert.Regexp(t, "(?m)^\\|[^|]*`"+word+"`", page, "We should say what %s means.", spec.Names[0].Name)
		return true
	})
	assert.Greater(t, words, 40, "We should find them.")

	rules, err := os.ReadFile("../../deploy/components/monitoring/prometheusrule.yaml")
	require.NoError(t, err)
	alerts := regexp.MustCompile(`- alert: (\w+)`).FindAllSubmatch(rules, -1)
	assert.Greater(t, len(alerts), 10, "We should find them.")
	for _, alert := range alerts {
		assert.Contains(t, page, "\n### "+string(alert[1])+"\n", "We should say what to do about %s.", alert[1])
		assert.Contains(t, string(rules), "/docs/troubleshooting.md#"+strings.ToLower(string(alert[1]))+"\n", "We should link %s to that.", alert[1])
	}
}
