package expression

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/classbind/classbind/selector/fields"
)

var (
	everything = Scope{Variables: variables, Related: []string{"plan"}}
	plenty     = uint64(1_000_000)
)

// said is the outcome of an evaluation.
type said struct {
	value any
	err   string
}

func (e *Expression) says(in *Input) said {
	v, err := e.Value(in, &Budget{plenty})
	if err != nil {
		return said{err: err.Error()}
	}
	return said{value: v}
}

// projected holds of an input what an expression looks at.
func (e *Expression) projected(in *Input) *Input {
	p := *in
	p.Claim = NewFields(e.Looks(Claim)...).Project(in.Claim.(map[string]any))
	p.Class = NewFields(e.Looks(Class)...).Project(in.Class.Whole())
	p.Namespace = NewFields(e.Looks(Namespace)...).Project(in.Namespace.(map[string]any))
	p.Related = map[string]any{}
	for name, related := range in.Related {
		var below []fields.Path
		for _, path := range e.Looks(Related) {
			if path[0] == name {
				below = append(below, path[1:])
			}
		}
		p.Related[name] = NewFields(below...).Project(related.(map[string]any))
	}
	return &p
}

// checkExpression proves of an expression that evaluations agree: over projections, without
// the program of CEL, term by term, and as a match condition.
func checkExpression(t *testing.T, text string, in *Input) {
	e, err := Compile(text, anything, everything)
	if err != nil {
		compileErr := (*Error)(nil)
		require.ErrorAs(t, err, &compileErr, text)
		require.Contains(t, compileErr.Caret(), "^", text)
		return
	}
	want := e.says(in)
	require.Equal(t, want, e.says(in), "%q should say the same each time.", text)
	require.Equal(t, want, e.says(e.projected(in)), "We should hold all that %q looks at.", text)

	if e.plain != nil {
		program := *e
		program.plain = nil
		require.Equal(t, want, program.says(in), "We should answer %q as CEL does.", text)
	}
	if terms := e.Terms(); len(terms) > 1 {
		together := said{value: true}
		for _, term := range terms {
			require.True(t, NewFields(e.Looks(Claim)...).Covers(term.Looks(Claim)...), text)
			switch holds, err := term.Bool(in, &Budget{plenty}); {
			case err != nil && together.value == true:
				together = said{err: err.Error()}
			case err == nil && !holds:
				together = said{value: false}
			}
			checkEquality(t, term, in)
		}
		require.Equal(t, want.err == "", together.err == "", text)
		require.Equal(t, want.value, together.value, "The terms of %q should say the same.", text)
	}
	checkCondition(t, e, in, want)
}

func checkEquality(t *testing.T, term *Expression, in *Input) {
	path, value, ok := term.Equality()
	if !ok {
		return
	}
	class, err := Compile(path.In(Class), anything, everything)
	require.NoError(t, err)
	_, want := term.Value(in, &Budget{plenty})
	_, classErr := class.Value(in, &Budget{plenty})
	_, valueErr := value.Value(in, &Budget{plenty})
	require.Equal(t, want == nil, classErr == nil && valueErr == nil, term.String())
}

// conditionEnv has the claim as match conditions do, and the other variables as they are.
var conditionEnv = sync.OnceValue(func() *cel.Env {
	base := environment.MustBaseEnvSet(version.MajorMinor(1, 31)).NewExpressionsEnv()
	e, err := base.Extend(cel.CustomTypeAdapter(adapter{}),
		cel.Variable("object", cel.DynType), cel.Variable(Class, cel.DynType), cel.Variable(Namespace, cel.DynType))
	if err != nil {
		panic(err)
	}
	return e
})

func checkCondition(t *testing.T, e *Expression, in *Input, want said) {
	isCondition := Bool.is(e.ast.GetType(e.ast.Expr().ID()))
	if !isCondition || e.Uses(Request) || e.Uses(Related) || !e.IsPortable() || strings.Contains(want.err, "cost") {
		return
	}
	condition := e.With(Claim, "object")
	compiled, issues := conditionEnv().Compile(condition)
	require.NoError(t, issues.Err(), condition)
	program, err := conditionEnv().Program(compiled)
	require.NoError(t, err)
	got, _, err := program.Eval(map[string]any{"object": in.Claim, Class: in.Class.Whole(), Namespace: in.Namespace})
	if _, isBool := want.value.(bool); !isBool {
		require.Error(t, err, condition)
		return
	}
	require.NoError(t, err, condition)
	require.Equal(t, want.value, got.Value(), condition)
}

// maker makes objects and expressions of few names, so that expressions often find a field.
type maker struct{ *rand.Rand }

func (m maker) one(of ...string) string { return of[m.IntN(len(of))] }

func (m maker) object(depth int) map[string]any {
	o := map[string]any{}
	for _, name := range []string{"a", "b", "c/d", "namespace"} {
		if m.IntN(4) > 0 {
			o[name] = m.value(depth - 1)
		}
	}
	return o
}

func (m maker) value(depth int) any {
	n := 9
	if depth <= 0 {
		n = 5
	}
	switch m.IntN(n) {
	case 0:
		return nil
	case 1:
		return m.one("", "a", "b", "ä\"'")
	case 2:
		return int64(m.IntN(3))
	case 3:
		return float64(m.IntN(3)) / 2
	case 4:
		return m.IntN(2) == 0
	case 5:
		list := []any{}
		for range m.IntN(3) {
			list = append(list, m.value(depth-1))
		}
		return list
	default:
		return m.object(depth)
	}
}

func (m maker) path(inner []string) string {
	b := strings.Builder{}
	b.WriteString(m.one(append([]string{"claim", "class", "claim", "class", "related.plan", "namespaceObject"}, inner...)...))
	for range 1 + m.IntN(3) {
		b.WriteString(m.one(".a", ".b", ".a", ".b", "['a']", "['c/d']", ".?a", "[?'b']", ".namespace", "[0]", "[?0]", "[claim.a]"))
	}
	return b.String()
}

func (m maker) expression(depth int, inner ...string) string {
	if depth <= 0 {
		return m.one("1", "'a'", "true", "null", "0.5", "[1, 2]", "{'a': 1}", "{'b': 2, 'a': 1}", m.path(inner), m.path(inner), m.path(inner), m.path(inner),
			"has("+m.path(inner)+".a)", "has("+m.path(inner)+".b)", "has(related.plan)", "r'\\\"&&'", `"""a" && '"""`)
	}
	x := func() string { return m.expression(depth-1, inner...) }
	in := func(name string) string { return m.expression(depth-1, append(inner, name)...) }
	name := m.one("x", "claim", "class", "object", "oldObject", "a", "object_", "namespaceObject")
	switch m.IntN(13) {
	case 12:
		return fmt.Sprintf("labelSelectorMatches(%s, %s)", x(), m.one(m.path(inner), "{'a': 'b'}"))
	case 0, 1, 2, 3:
		return x() + " && " + x()
	case 4:
		return x() + " == " + x()
	case 5:
		return "(" + x() + " // && ' )\n)"
	case 6:
		return x() + m.one(" || ", " != ", " < ", " + ", " in ", " >= ") + x()
	case 7:
		return fmt.Sprintf("%s.%s(%s, %s)", m.path(inner), m.one("all", "exists", "exists_one", "filter"), name, in(name))
	case 8:
		return fmt.Sprintf("%s.map(%s, %s, %s)", m.path(inner), name, in(name), in(name))
	case 9:
		return m.one("!", "size", "string", "dyn") + "(" + x() + ")"
	case 10:
		return "(" + x() + " ? " + x() + " : " + x() + ")"
	default:
		return m.path(inner) + m.one(".orValue(", ".startsWith(", ".contains(") + x() + ")"
	}
}

func (m maker) input() *Input {
	in := &Input{Claim: m.object(4), Class: wholeObject(m.object(4)), Namespace: m.object(2), Request: m.object(2), Related: map[string]any{}}
	if m.IntN(2) == 0 {
		in.Related["plan"] = m.object(3)
	}
	return in
}

// wholeObject is an object of which all fields are held.
func wholeObject(content map[string]any) *Object {
	var paths []fields.Path
	for name := range content {
		paths = append(paths, fields.Path{name})
	}
	return NewFields(paths...).Project(content)
}

func TestEvaluationsAgree(t *testing.T) {
	for seed := range uint64(300) {
		m := maker{rand.New(rand.NewPCG(seed, 1))} //nolint:gosec // It makes test data.
		text := m.expression(1 + m.IntN(4))
		for range 5 {
			checkExpression(t, text, m.input())
		}
	}
}
