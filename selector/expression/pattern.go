package expression

import (
	"regexp"
	"regexp/syntax"
	"strconv"
	"unicode/utf8"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apiserver/pkg/cel/library"
)

const (
	// categoryCost is what a category of characters, such as \pL, costs to parse: it has hundreds of ranges.
	categoryCost = 200
	// foldsPerUnit are the characters of a range that a unit pays for if the pattern ignores case: the parser goes through each.
	foldsPerUnit = 6
	// lastFold is the last character that has a case.
	lastFold = 0x1E943
)

// rangeEnd is what may be the end of a range in a pattern: a number, another escape, or a character.
var rangeEnd = regexp.MustCompile(`-(?:\\x(?:\{([0-9A-Fa-f]+)|([0-9A-Fa-f]{2}))|(\\)|([^-]))`)

// parsePatternCost of a pattern, from its text. A range pays as if it began at 0, because only the parser knows where it begins.
func parsePatternCost(pattern string) (cost uint64) {
	cost = categoryCost * uint64(len(isCategory.FindAllString(pattern, -1)))
	if !ignoresCase.MatchString(pattern) {
		return cost
	}
	for _, end := range rangeEnd.FindAllStringSubmatch(pattern, -1) {
		last := uint64(lastFold)
		switch character, _ := utf8.DecodeRuneInString(end[4]); {
		case end[1]+end[2] != "":
			if n, err := strconv.ParseUint(end[1]+end[2], 16, 31); err == nil {
				last = n
			}
		case end[3] != "": // It is octal, if it is a number.
			last = 0o777
		case character >= 0: // As each is.
			last = uint64(character)
		}
		cost += 1 + min(last, lastFold)/foldsPerUnit
	}
	return cost
}

// newMatch is a call with a pattern that is compiled once, and whose states each byte may visit.
func newMatch(r *interpreter.RegexOptimization, call interpreter.InterpretableCall, pattern string) (interpreter.InterpretableV2, error) {
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, err
	}
	args := call.Args()
	perByte := states(parsed) / statesPerUnit
	if r == library.FindAllRegexOptimization {
		perByte += matchCost
	}
	args[0] = newString(args[0], perByte)
	return r.Factory(withArgs{call, args}, pattern)
}

// newMatchOfAny is a call of matches with a pattern that is a value, which is compiled for the call, and pays for that before.
func newMatchOfAny(call interpreter.InterpretableCall, text, pattern interpreter.InterpretableV2) interpreter.InterpretableV2 {
	return metered{call, func(frame *interpreter.ExecutionFrame) ref.Val {
		values := []ref.Val{text.Exec(frame), pattern.Exec(frame)}
		for _, v := range values {
			if types.IsUnknownOrError(v) {
				return v
			}
		}
		s, isText := values[0].(types.String)
		p, isPattern := values[1].(types.String)
		if !isText || !isPattern {
			return types.LabelErrNode(call.ID(), types.NewErr("no such overload: matches"))
		}
		return types.LabelErrNode(call.ID(), matchAny(activationOf(frame), string(s), string(p)))
	}}
}

const (
	// maxPattern is how many bytes a pattern that is a value may have.
	maxPattern = 256
	// patternByteCost is what a byte of it costs to parse, and stateCost what a state costs to compile.
	patternByteCost, stateCost = 20, 20
)

var (
	// ignoresCase finds a flag, for which the parser goes through all characters of a range, and isCategory a class with hundreds of
	// ranges.
	ignoresCase = regexp.MustCompile(`\(\?[a-zA-Z-]*i`)
	isCategory  = regexp.MustCompile(`\\[pP]`)
)

func matchAny(a *activation, text, pattern string) ref.Val {
	if len(pattern) > maxPattern || ignoresCase.MatchString(pattern) || isCategory.MatchString(pattern) {
		return types.NewErr(invalidPattern)
	}
	a.take(1 + patternByteCost*uint64(len(pattern)))
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return types.NewErr(invalidPattern)
	}
	n := states(parsed)
	a.take(stateCost*n + uint64(len(text)+1)*(1+n/statesPerUnit))
	compiled, err := regexp.Compile(pattern)
	if err != nil {
		return types.NewErr(invalidPattern)
	}
	return types.Bool(compiled.MatchString(text))
}

// states of a pattern, at most. They are counted before they are made.
func states(of *syntax.Regexp) uint64 {
	n := uint64(1 + len(of.Rune)/rangesPerState)
	if of.Op == syntax.OpLiteral {
		n = uint64(len(of.Rune))
	}
	for _, part := range of.Sub {
		n += states(part)
	}
	if of.Op == syntax.OpRepeat {
		n *= uint64(max(of.Min+1, of.Max)) //nolint:gosec // They are at most 1,000.
	}
	return n
}
