package v1beta1

import (
	"flag"
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write to the documents what they have from the code")

const (
	securityFile = "../../docs/security.md"
	limitsFile   = "../../docs/api-reference.md"
	tableBegin   = "<!-- limits, from api/v1beta1/limits.go by make generate -->\n"
	tableEnd     = "<!-- end of limits -->\n"
)

// TestSecurity proves that docs/api-reference.md, to which docs/security.md leads, has the same limits as the code.
func TestSecurity(t *testing.T) {
	assertGenerated(t, limitsFile, tableBegin, tableEnd, limitsText+limitsTable(t))
}

const limitsText = `
classbind checks each limit before the work that it bounds. The last rows limit requests by a key: the namespace of the claims, where a row
says nothing else. A request beyond the first two numbers waits its turn until its deadline, and gets 503. One beyond the next two gets 503
at once, or 429 if its own key is the cause.

`

// assertGenerated proves that a document has this between two comments, or writes it there.
func assertGenerated(t *testing.T, path, begin, end, generated string) {
	t.Helper()
	text, err := os.ReadFile(path) //nolint:gosec // One of our documents.
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(text), begin)
	require.True(t, found)
	_, after, found := strings.Cut(rest, end)
	require.True(t, found)
	want := before + begin + generated + end + after
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(want), 0o644)) //nolint:gosec // A document.
		return
	}
	assert.Equal(t, want, string(text), "We should have in %s what the code has: make generate.", path)
}

// TestSecurityNamesTests proves that every test that the page names exists.
func TestSecurityNamesTests(t *testing.T) {
	tests := source(t, "../..")
	text, err := os.ReadFile(securityFile)
	require.NoError(t, err)
	names := regexp.MustCompile("`((?:Test|Fuzz)\\w+)`").FindAllStringSubmatch(string(text), -1)
	require.NotEmpty(t, names)
	for _, name := range names {
		//nolint:testifylint // It would print all tests.
		assert.True(t, strings.Contains(tests, "\nfunc "+name[1]+"("), "We should have %s, which %s names.", name[1], securityFile)
	}
}

// limitsTable returns a table with a row for each constant and limiter in limits.go: its name, its numbers and its comment.
func limitsTable(t *testing.T) string {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "limits.go", nil, parser.ParseComments)
	require.NoError(t, err)
	config := types.Config{Importer: onlyTime{}}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	limits, err := config.Check("limits", files, []*ast.File{file}, info)
	require.NoError(t, err)
	var table strings.Builder
	table.WriteString("| limit | number | |\n|---|---|---|\n")
	for _, declaration := range file.Decls {
		block, ok := declaration.(*ast.GenDecl)
		if !ok || block.Tok != token.CONST && block.Tok != token.VAR {
			continue
		}
		for _, spec := range block.Specs {
			limit := spec.(*ast.ValueSpec)
			require.Len(t, limit.Names, 1)
			name := limit.Names[0].Name
			comment := strings.Join(strings.Fields(limit.Doc.Text()), " ")
			require.True(t, strings.HasPrefix(comment, name+" "), "We should have a comment on %s.", name)
			value := ""
			if c, ok := limits.Scope().Lookup(name).(*types.Const); ok {
				value = number(t, name, types.TypeAndValue{Type: c.Type(), Value: c.Val()})
			} else {
				value = limiter(t, name, limit.Values[0].(*ast.CompositeLit), info)
			}
			fmt.Fprintf(&table, "| `%s` | %s | %s |\n", name, value, strings.TrimPrefix(comment, name+" "))
		}
	}
	return table.String()
}

// limiter formats the fields of a Limiter.
func limiter(t *testing.T, name string, literal *ast.CompositeLit, info *types.Info) string {
	t.Helper()
	texts := []string{"%s at once", "%s of one key", "%s with those that wait", "%s of one key", "rests %s times as long", "at most %s"}
	for i, field := range literal.Elts {
		if named, ok := field.(*ast.KeyValueExpr); ok {
			field = named.Value
		}
		texts[i] = fmt.Sprintf(texts[i], number(t, name, info.Types[field]))
	}
	return strings.Join(texts[:len(literal.Elts)], ", ")
}

// number formats a constant as a reader would write it.
func number(t *testing.T, name string, c types.TypeAndValue) string {
	t.Helper()
	n, exact := constant.Int64Val(c.Value)
	require.True(t, exact, "%s: must be a whole number", name)
	switch {
	case strings.HasSuffix(c.Type.String(), "Duration"):
		return time.Duration(n).String()
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprint(n>>20, " MiB")
	case n >= 1<<10 && n%(1<<10) == 0 && strings.Contains(name, "Byte"):
		return fmt.Sprint(n>>10, " KiB")
	}
	return fmt.Sprint(n)
}

// onlyTime imports the part of package time that limits.go uses, without its source.
type onlyTime struct{}

func (onlyTime) Import(path string) (*types.Package, error) {
	if path != "time" {
		return nil, fmt.Errorf("cannot import %q: limits.go has no more than package time", path)
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "time.go", `package time

type Duration int64

const (
	Millisecond Duration = 1e6
	Second               = 1000 * Millisecond
	Minute               = 60 * Second
	Hour                 = 60 * Minute
)
`, 0)
	if err != nil {
		return nil, err
	}
	return (&types.Config{}).Check("time", files, []*ast.File{file}, nil)
}
