package selector

import (
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/inventory"
)

// FuzzAmounts compares all that is calculated of amounts with whole numbers of any size.
func FuzzAmounts(f *testing.F) {
	edges := []int64{0, 1, 10, v1beta1.MaxUsage, math.MaxInt64 - v1beta1.MaxUsage, math.MaxInt64 - 1, math.MaxInt64}
	for i, a := range edges {
		for j, b := range edges {
			f.Add(a, b, edges[(i+j)%len(edges)], edges[(i*j)%len(edges)], edges[(3*i+j)%len(edges)], edges[j%4])
		}
	}
	f.Add(int64(0), int64(math.MaxInt64), int64(0), int64(0), int64(10), int64(v1beta1.MaxUsage))
	f.Fuzz(func(t *testing.T, used, reserved, namespaceUsed, namespaceReserved, limit, usage int64) {
		for _, n := range []*int64{&used, &reserved, &namespaceUsed, &namespaceReserved, &limit, &usage} {
			*n &= math.MaxInt64
		}
		usage %= v1beta1.MaxUsage + 1
		sum := func(all ...int64) *big.Int {
			n := new(big.Int)
			for _, a := range all {
				n.Add(n, big.NewInt(a))
			}
			return n
		}
		fits := func(limit int64, n *big.Int) bool {
			return limit == inventory.Unlimited || n.Cmp(big.NewInt(limit)) <= 0
		}
		r := Taken{Used: used, Reserved: reserved, NamespaceUsed: namespaceUsed, NamespaceReserved: namespaceReserved}
		for _, in := range []inventory.Capacity{
			{Total: limit, PerNamespace: inventory.Unlimited}, {Total: inventory.Unlimited, PerNamespace: limit},
		} {
			want := fits(in.Total, sum(used, reserved, usage)) && fits(in.PerNamespace, sum(namespaceUsed, namespaceReserved, usage))
			require.Equal(t, want, r.Fits(&in, usage), "%+v in %+v, and %d more", r, in, usage)
			if want {
				continue
			}
			require.NotContains(t, r.text(&in, usage, "memory", "team"), " -", "We should print no sum that has overflown.")
		}
		taken := sum(used, reserved)
		if !taken.IsInt64() {
			taken.SetInt64(math.MaxInt64)
		}
		require.Equal(t, taken.Int64(), r.All())
	})
}

func TestAmountOfManyClaims(t *testing.T) {
	for _, usage := range []int64{0, 1, 1<<chunkBits - 1, 1 << chunkBits, v1beta1.MaxUsage - 1, v1beta1.MaxUsage} {
		a, want := amount{}, new(big.Int)
		for range 5000 { // Twice as many as wrap an int64 around.
			a.add(1, usage)
			want.Add(want, big.NewInt(usage))
			if want.Cmp(big.NewInt(math.MaxInt64-v1beta1.MaxUsage)) < 0 {
				require.Equal(t, want.Int64(), a.load())
			} else {
				require.Greater(t, a.load(), int64(math.MaxInt64-2*v1beta1.MaxUsage), "A sum that is too large should not begin anew.")
			}
		}
		for range 5000 {
			a.add(-1, usage)
		}
		assert.Zero(t, a.load(), "What is taken off again should leave nothing.")
	}
}

// TestAmountsAreAddedInOnePlace finds a sum, difference or product of amounts that is not checked.
func TestAmountsAreAddedInOnePlace(t *testing.T) {
	amounts := regexp.MustCompile(`^(Used|Reserved|NamespaceUsed|NamespaceReserved|Usage|usage|used|reserved|PerNamespace|All)$`)
	checked := map[string]bool{"plus": true, "add": true} // See FuzzAmounts and TestAmountOfManyClaims.
	found := 0
	for _, root := range []string{".", "../controller/latebinding/classes.go"} {
		require.NoError(t, filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			require.NoError(t, err)
			for _, d := range file.Decls {
				of, is := d.(*ast.FuncDecl)
				ast.Inspect(d, func(n ast.Node) bool {
					var operands []ast.Expr
					switch n := n.(type) {
					case *ast.BinaryExpr:
						if n.Op == token.ADD || n.Op == token.SUB || n.Op == token.MUL {
							operands = []ast.Expr{n.X, n.Y}
						}
					case *ast.AssignStmt:
						if n.Tok == token.ADD_ASSIGN || n.Tok == token.SUB_ASSIGN {
							operands = slices.Concat(n.Lhs, n.Rhs)
						}
					}
					for _, o := range operands {
						name := o
						if s, is := o.(*ast.SelectorExpr); is {
							name = s.Sel
						}
						if id, isName := name.(*ast.Ident); isName && amounts.MatchString(id.Name) {
							found++
							assert.True(t, is && checked[of.Name.Name], "%s: add amounts with plus: %s", path, id.Name)
						}
					}
					return true
				})
			}
			return nil
		}))
	}
	assert.Positive(t, found, "We should find those that are checked.")
}
