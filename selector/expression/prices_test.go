package expression

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/decls"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/fuzztest/cost"
)

// longTexts are the strings that functions take the longest to go through, each as long as a field may be, and some that they accept.
func longTexts() []string {
	long := func(prefix, part string) string {
		return prefix + strings.Repeat(part, (v1beta1.MaxExpressionValueBytes-100)/len(part))
	}
	return []string{
		long("", "a"), long("", "1"), long("", "0"), long("0.", "3"), long("1e", "9"), long("", "ä"), long("", "\xff"), long("", "%41"),
		long("", " "), long("", "A"), long("", `"`),
		long("https://e.org?", "a=b&"), long("https://e.org/", "%41"), long("https://e.org/", "ä"), long("", "1h"),
		long("2024-02-03T04:05:06.", "7") + "Z", long("", "a."),
		"", "abc", "1.5", "12345", "2024-02-03T04:05:06.789Z", "1h2m3.5s", "10.0.0.1", "2001:db8::/32", "Europe/Paris", strings.Repeat("9", 60), "dns1123Label", "%s",
	}
}

// longestOf a type are values for which functions may take the longest. Nothing is constructed for types that no expression can get.
func longestOf(t *testing.T, is *cel.Type) (all []ref.Val) {
	made := func(call string) ref.Val {
		in := &Input{Claim: map[string]any{"query": longTexts()[11], "path": longTexts()[12]}}
		v, err := compiledIn(t, env(), call, nil).eval(in)
		require.NoError(t, err, call)
		return v
	}
	list := func(of ref.Val, n int) ref.Val {
		values := make([]any, n)
		for i := range values {
			values[i] = of
		}
		return adapter{}.NativeToValue(values)
	}
	switch is.Kind() {
	case types.StringKind:
		for _, text := range longTexts() {
			all = append(all, types.String(text))
		}
	case types.BytesKind:
		for _, text := range longTexts()[:7] {
			all = append(all, types.Bytes(text))
		}
	case types.BoolKind:
		all = append(all, types.True)
	case types.IntKind:
		all = append(all, types.Int(1), types.Int(0), types.Int(-1), types.Int(math.MaxInt64), types.Int(8000))
	case types.UintKind:
		all = append(all, types.Uint(math.MaxUint64))
	case types.DoubleKind:
		all = append(all, types.Double(math.MaxFloat64), types.Double(math.SmallestNonzeroFloat64), types.Double(math.NaN()), types.Double(0.5))
	case types.DurationKind:
		all = append(all, made("duration('2562047h47m16.854775807s')"))
	case types.TimestampKind:
		all = append(all, made("timestamp('2024-02-03T04:05:06.789Z')"))
	case types.ListKind:
		for _, of := range longestOf(t, is.Parameters()[0]) {
			n := v1beta1.MaxExpressionElements
			if text, isText := of.Value().(string); isText && len(text) > 100 {
				of = types.String(text[:14])
			} else if isText && text == "" {
				all = append(all, list(types.String(longTexts()[0]), 1))
			}
			if b, isBytes := of.(types.Bytes); isBytes {
				of = b[:14]
			}
			all = append(all, list(of, n))
		}
		if len(all) > 8 {
			all = all[len(all)-8:]
		}
	case types.MapKind:
		entries := map[string]any{longTexts()[0][:10_000]: nil}
		for i := range 980 {
			entries[fmt.Sprint("key", i)] = int64(i)
		}
		all = append(all, adapter{}.NativeToValue(entries), adapter{}.NativeToValue(map[string]any{"": longTexts()[5]}))
		if is.Parameters()[0].Kind() == types.StringKind {
			all = append(all, longSelectors()...)
		}
	case types.DynKind, types.TypeParamKind:
		for _, of := range []*cel.Type{
			cel.StringType, cel.BytesType, cel.IntType, cel.ListType(cel.StringType), cel.ListType(cel.IntType),
			cel.MapType(cel.StringType, cel.DynType),
		} {
			values := longestOf(t, of)
			all = append(all, values[:min(len(values), 6)]...)
		}
		all = append(all, types.NullValue, made("url(claim.query)"), made("optional.of(claim.query)"))
	case types.OpaqueKind:
		if is.TypeName() == "optional_type" {
			for _, of := range longestOf(t, is.Parameters()[0]) {
				all = append(all, types.OptionalOf(of))
			}
			return append(all, types.OptionalNone)
		}
		return append(all, opaques(made)[is.TypeName()]...)
	default:
	}
	return all
}

// longSelectors are the label selectors, and the labels, that take the longest to read.
func longSelectors() (all []ref.Val) {
	labels, values, requirements := map[string]any{}, []any{}, []any{}
	for i := range 980 {
		labels[fmt.Sprintf("k%d", i)] = "v"
		values = append(values, fmt.Sprintf("v%d", i))
		if i < 240 {
			requirements = append(requirements, map[string]any{"key": fmt.Sprintf("k%d", i), "operator": "In", "values": []any{"v"}})
		}
	}
	long := strings.Repeat(strings.Repeat("a", 62)+".", 4)[:251] + "/" + strings.Repeat("b", 63)
	for _, one := range []map[string]any{
		labels,
		{"matchLabels": labels},
		{"matchExpressions": requirements},
		{"matchExpressions": []any{map[string]any{"key": long, "operator": "NotIn", "values": values}}},
		{"matchExpressions": []any{map[string]any{"key": longTexts()[0], "operator": "Exists"}}},
		{"matchLabels": map[string]any{"a": longTexts()[6]}},
		{},
		{"unknown": "a"},
	} {
		all = append(all, adapter{}.NativeToValue(one))
	}
	return all
}

// opaques are the values of Kubernetes' own types, none of those that are made of an authorizer.
func opaques(made func(string) ref.Val) map[string][]ref.Val {
	all := map[string][]ref.Val{
		"kubernetes.URL": {made("url(claim.query)"), made("url(claim.path)")}, "net.IP": {made("ip('2001:db8::1')")}, "net.CIDR": {made("cidr('2001:db8::/32')")},
		"kubernetes.Quantity":                 {made("quantity('" + strings.Repeat("9", 60) + ".5')"), made("quantity('1Ei')")},
		"kubernetes.authorization.Authorizer": nil, "kubernetes.authorization.PathCheck": nil, "kubernetes.authorization.ResourceCheck": nil,
		"kubernetes.authorization.GroupCheck": nil, "kubernetes.authorization.Decision": nil,
	}
	for name, f := range env().Functions() {
		if o := f.OverloadDecls()[0]; o.ResultType().TypeName() == "kubernetes.NamedFormat" {
			all["kubernetes.NamedFormat"] = append(all["kubernetes.NamedFormat"], made(name+"()"))
		}
	}
	return all
}

// testProgram is of an expression of any environment, in which arguments are fields of the claim.
type testProgram struct {
	*program
	text string
}

func (p testProgram) eval(in *Input) (ref.Val, error) {
	v, _, err := p.program.eval(in, plenty)
	return v, err
}

// compiledIn an environment, with the parameters as fields of the claim that have their types.
func compiledIn(t *testing.T, in *cel.Env, text string, params []*cel.Type) testProgram {
	options := make([]cel.EnvOption, len(params))
	for i, is := range params {
		options[i] = cel.Variable(fmt.Sprint("arg", i), is)
	}
	extended, err := in.Extend(options...)
	require.NoError(t, err)
	checked, issues := extended.Compile(text)
	require.NoError(t, issues.Err(), text)
	tree := checked.NativeRep()
	last := ast.MaxID(tree)
	walk(tree, func(e ast.NavigableExpr) {
		if e.Kind() == ast.IdentKind && strings.HasPrefix(e.AsIdent(), "arg") {
			last++
			delete(tree.ReferenceMap(), e.ID())
			factory := ast.NewExprFactory()
			e.SetKindCase(factory.NewSelect(e.ID(), factory.NewIdent(last, Claim), e.AsIdent()))
		}
	})
	p, err := newProgram(tree)
	require.NoError(t, err, text)
	return testProgram{p, text}
}

// callOf an overload, as an expression has it.
func callOf(function string, o *decls.OverloadDecl) string {
	args := make([]string, len(o.ArgTypes()))
	for i := range args {
		args[i] = fmt.Sprint("arg", i)
	}
	symbol := strings.ReplaceAll(function, "_", "")
	switch {
	case function == operators.Conditional:
		return "(arg0 ? arg1 : arg2)"
	case function == operators.Index:
		return "arg0[arg1]"
	case function == operators.OptIndex:
		return "arg0[?arg1]"
	case function == operators.OptSelect:
		return "arg0.?a"
	case function == operators.In:
		return "(arg0 in arg1)"
	case !strings.HasPrefix(function, "_") && o.IsMemberFunction():
		return args[0] + "." + function + "(" + strings.Join(args[1:], ", ") + ")"
	case len(args) == 1 && strings.ContainsAny(symbol, "!-"):
		return "(" + symbol + "arg0)"
	case len(args) == 2 && strings.HasPrefix(function, "_"):
		return "(arg0 " + symbol + " arg1)"
	default:
		return function + "(" + strings.Join(args, ", ") + ")"
	}
}

// unwritable are functions that no expression can name: how the macros say them, and former names.
var unwritable = []string{operators.NotStrictlyFalse, "__not_strictly_false__", "_in_", "in"}

// excess of the CPU of a program over what it pays, and both. What is dear is repeated by a loop of the program itself.
func excess(p testProgram, args []ref.Val) (times float64, took time.Duration, spent uint64) {
	fields := map[string]any{"times": make([]any, 1)}
	for i, v := range args {
		fields[fmt.Sprint("arg", i)] = v
	}
	in := &Input{Claim: fields}
	_, spent, _ = p.program.eval(in, maxCost)
	const enough = 4000
	fields["times"] = make([]any, min(max(enough/spent, 1), v1beta1.MaxExpressionElements))
	_, spent, _ = p.program.eval(in, maxCost)
	paid := float64(50 * spent)
	took = cost.LeastCPU(15, time.Duration(slack*paid), func() { _, _, _ = p.program.eval(in, maxCost) })
	if float64(took) > slack*paid {
		paid *= slowdown()
	}
	return float64(took) / paid, took, spent
}

// slowdown is how many times as long as on the machine of the prices a loop takes here and now that is like what evaluating is made of:
// calls of interfaces, and values in memory. Others on this machine share its caches, which its CPU time does not show.
func slowdown() float64 {
	const usual = 30 * time.Microsecond
	values := make([]ref.Val, 10_000)
	for i := range values {
		values[i] = types.String(strconv.Itoa(i))
	}
	took := cost.LeastCPU(15, usual, func() {
		for _, v := range values {
			if v.Equal(values[0]) == types.NullValue {
				panic("no value is equal to another type's")
			}
		}
	})
	return max(1, float64(took)/float64(usual))
}

// slack is by how much a unit may be exceeded on a machine that does other things, too.
const slack = 2.5

// TestPrices calls every overload of the environment with the longest values of its types, and of any types.
func TestPrices(t *testing.T) {
	overloads, most, dearest := 0, 0.0, ""
	for function, f := range env().Functions() {
		if slices.Contains(unwritable, function) {
			continue
		}
		for i, o := range f.OverloadDecls() {
			overloads++
			kinds := 2
			if testing.Short() && i > 0 {
				kinds = 1 // The price of the function is the same for each of its overloads.
			}
			for _, dynamic := range []bool{false, true}[:kinds] {
				if times, call := highestPrice(t, function, o, dynamic); times > most {
					most, dearest = times, call
				}
			}
		}
	}
	t.Logf("%d overloads cost at most %.0f ns a unit: %s", overloads, 50*most, dearest)
}

// highestPrice is how many times 50 ns a unit of an overload is worth.
func highestPrice(t *testing.T, function string, o *decls.OverloadDecl, dynamic bool) (worst float64, said string) {
	params := slices.Clone(o.ArgTypes())
	values := make([][]ref.Val, len(params))
	call := callOf(function, o)
	for i, is := range params {
		if values[i] = longestOf(t, is); len(values[i]) == 0 {
			values[i] = []ref.Val{types.String(longTexts()[0])} // No expression has a value of this type.
			dynamic = true
		}
		if (i > 0 || testing.Short()) && len(values[i]) > 12 {
			values[i] = slices.Concat(values[i][:6], values[i][len(values[i])-6:])
		}
		if is.Kind() == types.TypeParamKind || is.Kind() == types.ListKind || is.Kind() == types.MapKind {
			params[i] = cel.DynType
		}
	}
	if dynamic {
		for i := range params {
			params[i] = cel.DynType
		}
	}
	for i := range params {
		if part := constantOf(function, i); part != "" {
			call = strings.ReplaceAll(call, fmt.Sprint("arg", i), part)
			values[i] = values[i][:1]
		}
	}
	p := compiledIn(t, env(), "claim.times.all(t, optional.of("+call+").hasValue() || true)", params)
	eachOf(values, func(args []ref.Val) {
		if times, took, spent := excess(p, args); times > worst {
			worst, said = times, fmt.Sprintf("%s took %v for %d units of %.60q", call, took, spent, fmt.Sprint(args))
		}
	})
	assert.LessOrEqual(t, worst, slack, "%s (dynamic: %v) should pay for what it does: %s", o.ID(), dynamic, said)
	return worst, said
}

// TestPricesOfPatterns has matches compile the patterns, and go through the strings, that take the longest for what they pay.
func TestPricesOfPatterns(t *testing.T) {
	p := compiledIn(t, env(), "claim.times.all(t, optional.of(arg0.matches(arg1)).hasValue() || true)", []*cel.Type{cel.DynType, cel.DynType})
	for _, pattern := range []string{
		"",
		"^[a-z]+$",
		"(a|b|ab)*c",
		"[a-z]{100}b",
		"((a*)*)*b",
		"(a{10}){10}",
		"a{300}",
		strings.Repeat("(", 100) + strings.Repeat(")*", 50) + strings.Repeat(")", 50),
		strings.Repeat("(a|b)?", 42),
		strings.Repeat("[^a]", 64),
		strings.Repeat(`\W`, 128),
		strings.Repeat("[[:^alpha:]]", 21),
		strings.Repeat(".", 256),
		strings.Repeat("a|", 127) + "b",
		strings.Repeat("[a-z]|", 42),
		strings.Repeat("[a-\\x{1E943}]", 18),
		strings.Repeat("é", 128),
		"(",
		"a{1001}",
		strings.Repeat("a?", 128),
		strings.Repeat("x*", 30) + "y",
		"^(?:a|aa|aaa)*$",
		strings.Repeat(`\b`, 128),
		strings.Repeat("a", 256),
		"(?s)" + strings.Repeat(".*", 100),
	} {
		for _, text := range []string{"", "namespace-of-a-team", strings.Repeat("a", 63), longTexts()[0], longTexts()[5], longTexts()[6]} {
			times, took, spent := excess(p, []ref.Val{types.String(text), types.String(pattern)})
			assert.LessOrEqual(t, times, slack, "%.40q.matches(%.60q) should pay for what it does: it took %v for %d units", text, pattern, took, spent)
		}
	}
}

// TestPricesOfConstantPatterns compiles the patterns that take the longest for what they pay, each as long as an expression may be.
func TestPricesOfConstantPatterns(t *testing.T) {
	const length = 2000
	for _, part := range []string{ // What is before a ~ is not repeated.
		"a", "a|", "a?", ".*", "[^a]", "[a-z]{9}", `\W`, "é", "(a|b)", `\b`, "[[:^alpha:]]", "[a-\U0001E943]|", `[a-\x{1E943}]`,
		`\pL`, `\PL|`, `[^\pL]`, `[\p{Greek}a]`, `(?i)\pL`, `(?i)[^\pL]`, `(?i)k`, `(?i)k|`, `(?i)[k]`, `(?i)[^a]`,
		`(?i)[B-z]`, `(?i)[~B-z`, `(?i)[~B-\777`, `(?i)[B-\x{ff}]`, `(?i)[~B-\xff`, "(?i)[B-ÿ]", "(?i)[а-я]", "(?i)[ぁ-ゖ]",
		"(?i)[~一-龥", `(?i)[~\d-é-\x{1E943}`,
		"(?i)[~a-\U0001E943", `(?i)[~--\x{1E942}`, "(?i)[a-\U0001E943]", `(?i)[~a-\x{1E943}`, `(?i)[\x{80}-\x{10FFFF}]`,
		`(?s-U:(?mi)[~a-\x{1E943}`, "(?i:[a-\U0001E943])",
	} {
		start, repeated, isStart := strings.Cut(part, "~")
		if !isStart {
			start, repeated = "", part
		}
		for _, times := range []int{1, 10, 50, length / utf8.RuneCountInString(part)} {
			text := "claim.a.matches(r'" + start + strings.Repeat(repeated, times) + "')"
			budget := &Budget{v1beta1.MaxCompileCost}
			_, _ = CompileWithin(text, Bool, Scope{Variables: []string{Claim}}, budget)
			paid := time.Duration(v1beta1.MaxCompileCost-budget.Left) * time.Microsecond
			enough := time.Duration(slack*float64(paid)) + time.Millisecond/2 // That is what the shortest takes on a busy machine.
			took := cost.LeastCPU(10, enough, func() {
				_, _ = CompileWithin(text, Bool, Scope{Variables: []string{Claim}}, &Budget{v1beta1.MaxCompileCost})
			})
			assert.LessOrEqual(t, took, enough, "%q, %d times, should pay for what it takes to compile: it took %v, and paid for %v", part, times, took, paid)
		}
	}
}

// constantOf is what stands for an argument that must be a constant.
func constantOf(function string, i int) string {
	switch {
	case i == 1 && slices.Contains([]string{"matches", "find", "findAll"}, function):
		return "'(a|b|ab)*c'"
	case function == "format" && i == 0:
		return "'%s%s'"
	case function == "join" && i == 1, function == "replace" && i == 2:
		return "'bcd'"
	}
	return ""
}

// eachOf the combinations of values.
func eachOf(values [][]ref.Val, do func([]ref.Val)) {
	args := make([]ref.Val, len(values))
	var choose func(int)
	choose = func(i int) {
		if i == len(values) {
			do(args)
			return
		}
		for _, v := range values[i] {
			args[i] = v
			choose(i + 1)
		}
	}
	choose(0)
}

// TestUnpriced has no expression compile that calls a function of which an overload was not measured.
func TestUnpriced(t *testing.T) {
	extended, err := env().Extend(
		cel.Function("free", cel.Overload("free_lunch", []*cel.Type{cel.StringType}, cel.BoolType)),
		cel.Function("size", cel.Overload("size_free", []*cel.Type{cel.BoolType}, cel.IntType)))
	require.NoError(t, err)
	checked, issues := extended.Compile("free('a')")
	require.NoError(t, issues.Err())
	_, err = newProgram(checked.NativeRep())
	require.EqualError(t, err, "free must not be used here: what it costs is not known")

	assert.NotContains(t, pricesOf(extended.Functions()), "size", "We should measure a new overload of a known function.")
	for name := range env().Functions() {
		assert.Contains(t, prices(), name, "We should measure what it costs.")
	}
}
