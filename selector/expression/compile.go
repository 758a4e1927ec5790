// Package expression compiles and evaluates the CEL expressions of registrations, in the environment in which Kubernetes evaluates its own.
package expression

import (
	"fmt"
	"regexp/syntax"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/fields"
	"github.com/classbind/classbind/selector/truncate"
)

const (
	// maxCharacters of an expression, as in the schema of v1beta1.Expression.
	maxCharacters = 2048
	// maxDepth of an expression. The time to check the types in it grows with a power of it: here, it is at most 0.3 s.
	maxDepth = 100
	// maxErrors of an expression that are shown.
	maxErrors = 3
	// maxCost of one evaluation. It is the budget of a class, so that the last evaluation
	// of a claim exceeds the claim's budget by a tenth at most.
	maxCost = v1beta1.MaxClassExpressionCost
)

// env is that of Kubernetes 1.31, the oldest that we support: an expression may become a match condition there.
var env = sync.OnceValue(func() *cel.Env {
	base := environment.MustBaseEnvSet(version.MajorMinor(1, 31)).NewExpressionsEnv()
	options := []cel.EnvOption{
		cel.CustomTypeAdapter(adapter{}),
		cel.ParserRecursionLimit(maxDepth),
		cel.EnableMacroCallTracking(), // For the text of a part.
		shortChains(base),
		labelSelectors(),
	}
	for _, name := range variables {
		options = append(options, cel.Variable(name, cel.DynType))
	}
	e, err := base.Extend(slices.Concat(options, quantities())...)
	if err != nil {
		panic(err) // It depends on nothing but this function.
	}
	return e
})

// With returns the condition in CEL that is true if the expression is, with a value as a variable. What the author wrote stays as it is.
func (e *Expression) With(variable, value string) string {
	return fmt.Sprintf("[%s].all(%s, (%s\n))", value, variable, e.text) // It may end in a comment.
}

// Compile an expression. The error is an *Error.
func Compile(text string, result Result, scope Scope) (*Expression, error) {
	return CompileWithin(text, result, scope, &Budget{v1beta1.MaxCompileCost})
}

// CompileWithin compiles an expression of several, which pay for it from the same budget.
func CompileWithin(text string, result Result, scope Scope, budget *Budget) (*Expression, error) {
	if n := utf8.RuneCountInString(text); n > maxCharacters {
		start := truncate.String(text, v1beta1.MaxShownBytes)
		return nil, &Error{1, 1, fmt.Sprintf("must be at most %d characters, has %d", maxCharacters, n), start}
	}
	if budget.take(parseCost(text)) != nil {
		return nil, tooDear(text)
	}
	parsed, issues := env().Parse(text)
	if len(issues.Errors()) > 0 { // The text of all is 45 MB for 2,000 characters.
		_ = budget.take(malformedCost) // The parser looks for what is meant.
		return nil, newError(text, issues, scope)
	}
	if budget.take(compileCost(parsed.NativeRep(), budget.Left)) != nil {
		return nil, tooDear(text)
	}
	if err := newSearch(parsed.NativeRep(), scope).err; err != nil {
		err.Source = text
		return nil, err
	}
	checked, err := check(env(), parsed, text, scope)
	if err != nil {
		return nil, err
	}
	return compile(text, checked.NativeRep(), result, scope)
}

func tooDear(text string) *Error {
	return &Error{
		1, 1, "is too costly to compile, with those before it: make them shorter, " +
			"with fewer loops, lists or maps in each other, and fewer repetitions, categories like \\pL and ranges after (?i) in patterns",
		text,
	}
}

const (
	// compileNode is what a part of an expression costs to compile, beside a square of the loops, lists and maps around it: its type is
	// made of theirs. patternState is what a state of a pattern costs.
	compileNode, patternState = 4, 4
	// malformedCost is that of an expression that CEL cannot parse.
	malformedCost = v1beta1.MaxCompileCost / 3
)

// parseCost of a text: a byte costs more within many brackets, whose macros are copied into each other.
func parseCost(text string) (cost uint64) {
	within := uint64(0)
	for _, c := range []byte(text) {
		switch c {
		case '(', '[', '{':
			within++
		case ')', ']', '}':
			within = max(within, 1) - 1
		}
		cost += 1 + within*within/32
	}
	return cost
}

// compileCost of a parsed expression, in units of a microsecond and 2 KiB at most. A byte of its text costs one, too. No pattern is
// parsed that costs more than is left.
func compileCost(tree *ast.AST, left uint64) (cost uint64) {
	walk(tree, func(e ast.NavigableExpr) {
		within := uint64(0)
		for above := parentOf(e); above != nil; above = parentOf(above) {
			switch above.Kind() {
			case ast.ComprehensionKind, ast.ListKind, ast.MapKind:
				within++
			default:
			}
		}
		cost += compileNode + within*within/4
		if e.Kind() != ast.CallKind || !slices.Contains([]string{"matches", "find", "findAll"}, e.AsCall().FunctionName()) {
			return
		}
		for _, arg := range e.AsCall().Args() {
			text, isText := arg.AsLiteral().(types.String)
			if arg.Kind() != ast.LiteralKind || !isText {
				continue
			}
			if cost += parsePatternCost(string(text)); cost > left {
				return
			}
			if pattern, err := syntax.Parse(string(text), syntax.Perl); err == nil {
				cost += patternState * states(pattern)
			}
		}
	})
	return cost
}

// check the types of an expression. The validator of literals panics at an optional value of type dyn.
func check(in *cel.Env, parsed *cel.Ast, text string, scope Scope) (checked *cel.Ast, err error) {
	defer func() {
		if recover() != nil {
			err = &Error{1, 1, "cannot be checked: leave out optional elements, such as [?claim.spec.x]", text}
		}
	}()
	checked, issues := in.Check(parsed)
	if len(issues.Errors()) > 0 {
		return nil, newError(text, issues, scope)
	}
	return checked, nil
}

var compilations atomic.Uint64

// Compilations are how many expressions and parts of them this process has compiled.
func Compilations() uint64 { return compilations.Load() }

// compile an expression whose types are checked.
func compile(text string, checked *ast.AST, result Result, scope Scope) (*Expression, error) {
	if t := checked.GetType(checked.Expr().ID()); !result.is(t) {
		return nil, &Error{1, 1, "must be " + result.words() + ", is of type " + t.String(), text}
	}
	s := newSearch(checked, scope)
	e := &Expression{text: text, result: result, scope: scope, ast: checked, looks: s.fieldRefs()}
	if len(s.found) == 1 && s.found[0].isPlain {
		e.plain = &s.found[0].field
	}
	compilations.Add(1)
	program, err := newProgram(checked)
	if err != nil {
		return nil, &Error{1, 1, truncate.String(err.Error(), v1beta1.MaxMessageBytes), text}
	}
	e.program = program
	return e, nil
}

// is reports whether an expression of this type may have the result. The type dyn is known only when the expression is evaluated.
func (r Result) is(t *cel.Type) bool {
	switch kind := t.Kind(); {
	case r == anything, kind == types.DynKind, kind == types.AnyKind:
		return true
	case kind == types.MapKind && r == Selector:
		return Text.is(t.Parameters()[0]) && Text.is(t.Parameters()[1])
	default:
		return slices.Contains(results[r].kinds, kind)
	}
}

// words for the result in an error.
func (r Result) words() string { return results[r].words }

var results = [...]struct {
	words string
	kinds []types.Kind
}{
	Bool:     {"true or false", []types.Kind{types.BoolKind}},
	Text:     {"a text", []types.Kind{types.StringKind}},
	Number:   {"a number", []types.Kind{types.IntKind, types.UintKind, types.DoubleKind}},
	Amount:   {"a number or a quantity", []types.Kind{types.StringKind, types.IntKind, types.UintKind, types.DoubleKind}},
	Selector: {"a text, or a map of texts", []types.Kind{types.StringKind}}, // A map of texts: see is.
	Time:     {"a time, or a text", []types.Kind{types.StringKind, types.TimestampKind}},
	anything: {"a value", nil},
}

func newError(text string, issues *cel.Issues, scope Scope) *Error {
	all := issues.Errors()
	slices.SortStableFunc(all, func(a, b *common.Error) int {
		if a.Location.Line() != b.Location.Line() {
			return a.Location.Line() - b.Location.Line()
		}
		return a.Location.Column() - b.Location.Column()
	})
	var result *Error
	for i, one := range all[:min(len(all), maxErrors)] {
		e := &Error{max(one.Location.Line(), 1), max(one.Location.Column()+1, 1), words(one.Message, scope), text}
		if i == 0 {
			result = e
		} else {
			result.Text += "; " + e.Error()
		}
	}
	return result
}

// words of an error, without what only the authors of CEL understand.
func words(message string, scope Scope) string {
	message = strings.TrimPrefix(message, "Syntax error: ")
	if before, _, ok := strings.Cut(message, " expecting {"); ok {
		message = before
	}
	if name, ok := strings.CutPrefix(message, "undeclared reference to '"); ok {
		name, _, _ = strings.Cut(name, "'")
		message = "there is no variable or function " + name + "; " + scope.words()
	}
	return truncate.String(message, 2*v1beta1.MaxShownBytes)
}

// words say which variables there are.
func (s Scope) words() string {
	switch len(s.Variables) {
	case 0:
		return "there are no variables here"
	case 1:
		return "the variable here is " + s.Variables[0]
	default:
		return "the variables here are " + strings.Join(s.Variables, ", ")
	}
}

// Variables of expressions.
const (
	Claim     = "claim"
	Class     = "class"
	Namespace = "namespaceObject"
	Request   = "request"
	Related   = "related"
	// ClassRelated objects are those that the class names, as Related are those that the claim names.
	ClassRelated = "classRelated"
	// RelatedObject is the related object itself.
	RelatedObject = "object"
)

// variables of expressions, in the order in which they are shown.
var variables = []string{Claim, Class, Namespace, Request, Related, ClassRelated, RelatedObject}

// hasObjects reports whether the fields of a variable are related objects.
func hasObjects(variable string) bool { return variable == Related || variable == ClassRelated }

// Result is the type that an expression must have.
type Result int8

// The types of results.
const (
	Bool Result = iota
	Text
	Number
	// Amount is a number, or a text that is a quantity.
	Amount
	// Selector is a text, or a map of texts.
	Selector
	// Time is a timestamp, or a text that is one in RFC 3339. An empty text is the zero time.
	Time
	// anything is the result of a part of an expression.
	anything
)

// Scope is what an expression may use.
type Scope struct {
	// Variables that it may use.
	Variables []string
	// Related are the names that may follow "related.", and ClassRelated those after "classRelated.", nil for any: class kinds have
	// their own.
	Related, ClassRelated []string
	// Lists are those of Related that are lists of objects.
	Lists []string
}

// Expression is compiled. It is immutable.
type Expression struct {
	text    string
	result  Result
	scope   Scope
	ast     *ast.AST
	looks   map[string][]fields.Path
	program *program
	// plain is an expression that is only a field, which needs no program.
	plain *field
}

// field of a variable.
type field struct {
	variable string
	path     fields.Path
}

// String is the expression as it was written, and a part of one as CEL writes it.
func (e *Expression) String() string { return e.text }

// Looks lists what the expression looks at in a variable, each path once, none below another. A path in Related or ClassRelated starts with
// the name of the object, and is never only that name: an expression that only asks whether there is the object looks at its metadata.name.
// After the name of a list comes fields.Element.
func (e *Expression) Looks(variable string) []fields.Path { return e.looks[variable] }

// Uses reports whether it looks at a variable at all.
func (e *Expression) Uses(variable string) bool { return len(e.looks[variable]) > 0 }

// UsesClass reports whether it looks at the class, or at an object that the class names.
func (e *Expression) UsesClass() bool { return e.Uses(Class) || e.Uses(ClassRelated) }

// What follows keeps values of claims and classes from functions whose cost cannot be computed from the length of their arguments.

// maxMappedNodes are how many nodes of the syntax tree optMap and optFlatMap may follow. The
// macros write what they follow twice, so a chain of n would have 2^n times as many.
const maxMappedNodes = 40

// shortChains limits what the macros of optional values follow.
func shortChains(base *cel.Env) cel.EnvOption {
	var macros []cel.Macro
	for _, m := range base.Macros() {
		if name := m.Function(); name == "optMap" || name == "optFlatMap" {
			macros = append(macros, cel.ReceiverMacro(name, m.ArgCount(),
				func(factory cel.MacroExprFactory, target ast.Expr, args []ast.Expr) (ast.Expr, *cel.Error) {
					nodes := 0
					ast.PreOrderVisit(target, ast.NewExprVisitor(func(ast.Expr) { nodes++ }))
					if nodes > maxMappedNodes {
						return nil, factory.NewError(target.ID(), name+" must follow a shorter expression: use has() and ?: instead")
					}
					return m.Expander()(factory, target, args)
				}))
		}
	}
	return cel.Macros(macros...)
}

// mustBeConstant returns the part of a call that must be a constant, nil if there is none, and
// what it is: a text that is put into another one many times, or a pattern that may match many times.
func mustBeConstant(call ast.CallExpr) (part ast.Expr, what string) {
	all := call.Args()
	if call.IsMemberFunction() {
		all = append([]ast.Expr{call.Target()}, all...)
	}
	at := 1
	switch call.FunctionName() {
	case "find", "findAll":
		what = "pattern"
	case "join":
		what = "separator"
	case "replace":
		at, what = 2, "replacement"
	case "format":
		at, what = 0, "format"
	}
	if what == "" || at >= len(all) || all[at].Kind() == ast.LiteralKind {
		return nil, ""
	}
	return all[at], what
}
