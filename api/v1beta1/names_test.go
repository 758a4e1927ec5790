package v1beta1

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	namesFile  = "../../docs/api-reference.md"
	namesBegin = "<!-- names, from the code by make generate -->\n"
	namesEnd   = "<!-- end of names -->\n"
)

// TestNames proves that docs/api-reference.md has every name on which others may rely, as the code has it.
func TestNames(t *testing.T) { assertGenerated(t, namesFile, namesBegin, namesEnd, namesTable(t)) }

// TestAnnotations proves that all keys of ours are known, so that no new one counts as a mistake.
func TestAnnotations(t *testing.T) {
	var keys []string
	for _, d := range constants(t, "names.go") {
		if sortOf(d.identifier) == "Annotations" && strings.HasPrefix(d.value, AnnotationPrefix) {
			keys = append(keys, d.value)
		}
	}
	require.ElementsMatch(t, keys, Annotations)
}

// namedThing is a row of the table.
type namedThing struct{ name, meaning string }

// namesTable has a table for each sort of name.
func namesTable(t *testing.T) string {
	t.Helper()
	sorts := map[string][]namedThing{}
	add := func(sort string, d declared) {
		before := sorts[sort]
		if last := len(before) - 1; last >= 0 && d.shares { // One comment is about both.
			if before[last].name != d.value {
				before[last].name += "`, `" + d.value
			}
			return
		}
		sorts[sort] = append(before, namedThing{d.value, d.comment})
	}
	for _, d := range constants(t, "names.go") {
		// What replicas write for each other is not for others, and a number is no name.
		if !ownNotes.MatchString(d.comment) && !d.isNumber && d.identifier != "ManagedBy" {
			add(sortOf(d.identifier), d)
		}
	}
	for _, d := range constants(t, "../../cmd/classbind/exit/exit.go") {
		add("Exit statuses", d)
	}
	sorts["Metrics"] = metrics(t)
	var text strings.Builder
	for _, sort := range []string{"Annotations", "Labels", "Objects and paths", "Conditions", "Reasons", "Events", "Metrics", "Exit statuses"} {
		require.NotEmpty(t, sorts[sort], sort)
		fmt.Fprintf(&text, "\n### %s\n\n| name | meaning |\n|---|---|\n", sort)
		for _, n := range sorts[sort] {
			fmt.Fprintf(&text, "| `%s` | %s |\n", n.name, strings.ReplaceAll(n.meaning, "|", "\\|"))
		}
	}
	return text.String() + "\n"
}

func sortOf(identifier string) string {
	switch {
	case strings.HasPrefix(identifier, "Condition"):
		return "Conditions"
	case strings.HasPrefix(identifier, "Reason"):
		return "Reasons"
	case strings.HasPrefix(identifier, "Event") && identifier != "EventController":
		return "Events"
	case strings.HasSuffix(identifier, "Annotation"):
		return "Annotations"
	case strings.HasSuffix(identifier, "Label"):
		return "Labels"
	}
	return "Objects and paths"
}

var ownNotes = regexp.MustCompile(`Written and read by|read by every replica`)

// declared is a constant with a literal value.
type declared struct {
	identifier, value, comment string
	// shares the comment with the constant before it.
	shares, isNumber bool
}

// constants of a file, each with its own comment, or with that of those before it.
func constants(t *testing.T, path string) (all []declared) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
	require.NoError(t, err)
	for _, declaration := range file.Decls {
		block, ok := declaration.(*ast.GenDecl)
		if !ok || block.Tok != token.CONST {
			continue
		}
		comment := ""
		for _, spec := range block.Specs {
			s := spec.(*ast.ValueSpec)
			literal, ok := s.Values[0].(*ast.BasicLit)
			require.True(t, ok, "%s: must be a literal", s.Names[0].Name)
			value := literal.Value
			if literal.Kind == token.STRING {
				value, err = strconv.Unquote(value)
				require.NoError(t, err)
			}
			if s.Doc != nil {
				comment = strings.Join(strings.Fields(s.Doc.Text()), " ")
			}
			require.NotEmpty(t, comment, s.Names[0].Name)
			all = append(all, declared{s.Names[0].Name, value, comment, s.Doc == nil, literal.Kind == token.INT})
		}
	}
	// A comment names the constants that it is about: the table has their values instead.
	for i, c := range all {
		for _, other := range all {
			c.comment = regexp.MustCompile(`\b`+other.identifier+`\b`).ReplaceAllLiteralString(c.comment, "`"+other.value+"`")
		}
		if i == len(all)-1 || !all[i+1].shares {
			c.comment = regexp.MustCompile("^`"+regexp.QuoteMeta(c.value)+"`,? ").ReplaceAllLiteralString(c.comment, "")
		}
		all[i].comment = strings.ReplaceAll(c.comment, "``", "`")
	}
	return all
}

// metrics of the product, by name.
func metrics(t *testing.T) (all []namedThing) {
	t.Helper()
	text := func(e ast.Expr) string {
		var value strings.Builder
		ast.Inspect(e, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok {
				part, err := strconv.Unquote(l.Value)
				require.NoError(t, err)
				value.WriteString(part)
			}
			return true
		})
		return value.String()
	}
	for _, folder := range []string{"../../cmd", "../../controller", "../../webhook", "../../certs"} {
		require.NoError(t, filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			require.NoError(t, err)
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.CallExpr:
					if f, ok := n.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "NewDesc" {
						all = append(all, namedThing{text(n.Args[0]), text(n.Args[1])})
					}
				case *ast.CompositeLit:
					if f, ok := n.Type.(*ast.SelectorExpr); ok && strings.HasSuffix(f.Sel.Name, "Opts") {
						m := namedThing{}
						for _, e := range n.Elts {
							switch kv := e.(*ast.KeyValueExpr); kv.Key.(*ast.Ident).Name {
							case "Name":
								m.name = text(kv.Value)
							case "Help":
								m.meaning = text(kv.Value)
							}
						}
						if strings.HasPrefix(m.name, "classbind_") {
							all = append(all, m)
						}
					}
				}
				return true
			})
			return nil
		}))
	}
	for i := range all {
		all[i].meaning = strings.ReplaceAll(all[i].meaning, "%d", fmt.Sprint(MaxClassSeries))
	}
	slices.SortFunc(all, func(a, b namedThing) int { return strings.Compare(a.name, b.name) })
	return all
}
