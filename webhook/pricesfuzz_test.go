package webhook

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/decls"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
)

var (
	fuzzedReviews       = flag.Int("reviews", 2000, "how many reviews to make up and measure")
	fuzzedRegistrations = flag.Int("registrations", 100, "how many registrations to make up and measure")
)

// overload of a function of the environment, and how it is written: with a %s for each argument.
type overload struct {
	function, format string
	*decls.OverloadDecl
}

// overloads by the type of their result, sorted: a seed always makes the same of them. Quantities are classbind's own, with the same types.
var overloads = sync.OnceValue(func() map[string][]overload {
	operators := map[string]string{
		"@in": "(%s in %s)", "_?_:_": "(%s ? %s : %s)", "_[_]": "(%s)[%s]", "_[?_]": "(%s)[?%s]", "!_": "!(%s)", "-_": "-(%s)",
		"_?._": "(%[1]s).?a", "@not_strictly_false": "[%s].all(y, y)", "in": "(%s in %s)",
	}
	all := map[string][]overload{}
	for name, f := range environment.MustBaseEnvSet(version.MajorMinor(1, 31)).NewExpressionsEnv().Functions() {
		for _, o := range f.OverloadDecls() {
			args := strings.TrimSuffix(strings.Repeat("%s, ", len(o.ArgTypes())), ", ")
			format, isOperator := operators[name]
			switch {
			case isOperator:
			case strings.HasPrefix(name, "_") && strings.HasSuffix(name, "_") && len(o.ArgTypes()) == 2:
				format = "(%s " + strings.ReplaceAll(strings.Trim(name, "_"), "%", "%%") + " %s)"
			case o.IsMemberFunction():
				format = "(%s)." + name + "(" + strings.TrimPrefix(strings.TrimPrefix(args, "%s"), ", ") + ")"
			default:
				format = name + "(" + args + ")"
			}
			all[typeName(o.ResultType())] = append(all[typeName(o.ResultType())], overload{name, format, o})
			all["dyn"] = append(all["dyn"], overload{name, format, o})
		}
	}
	for _, of := range all {
		slices.SortFunc(of, func(a, b overload) int { return strings.Compare(a.ID()+a.format, b.ID()+b.format) })
	}
	return all
})

func typeName(is *cel.Type) string {
	if is.Kind() == cel.DynKind || is.Kind() == cel.TypeParamKind {
		return "dyn"
	}
	return is.TypeName()
}

// inventor makes up expressions over all overloads, and what they look at.
type inventor struct{ *rand.Rand }

func (r inventor) one(of ...string) string { return of[r.IntN(len(of))] }

func (r inventor) leaf(of string) string {
	switch of {
	case "bool":
		return r.one("true", "claim.spec.n > 1", "has(class.spec.text)")
	case "int":
		return r.one("claim.spec.n", "class.spec.n", "0", "-1", "1000")
	case "string":
		return r.one("claim.spec.b", "class.spec.text", "'1'", "'%s'")
	case "list":
		return r.one("claim.spec.a", "class.spec.list", "[claim.spec.b]")
	case "map":
		return r.one("class.spec.map", "{claim.spec.b: claim.spec.a}")
	default:
		return r.one("claim.spec.n", "claim.spec.b", "class.spec.text", "claim.spec.a", "class.spec.list", "class.spec.map", "class.spec.size", "x")
	}
}

func (r inventor) expression(of string, depth int) string {
	candidates := overloads()[of]
	if len(candidates) == 0 || depth <= 0 || r.IntN(8) == 0 {
		return r.leaf(of)
	}
	if (of == "bool" || of == "list") && r.IntN(4) == 0 {
		macro := map[string][]string{"bool": {"all", "exists", "exists_one"}, "list": {"map", "filter"}}[of]
		return fmt.Sprintf("%s.%s(x, %s)", r.expression("list", depth-1), r.one(macro...), r.expression("bool", depth-1))
	}
	return r.call(candidates[r.IntN(len(candidates))], depth)
}

func (r inventor) call(o overload, depth int) string {
	args := make([]any, len(o.ArgTypes()))
	for i, is := range o.ArgTypes() {
		switch isPattern := slices.Contains([]string{"matches", "find", "findAll"}, o.function); {
		case isPattern && i == 1:
			args[i] = r.one("'(a|b|ab)*c'", "'(a?){50}b'", "'[a-z]{100}b'", `'\\pL+'`, "''", "'a{900}'")
		case o.function == "join" && i == 1, o.function == "replace" && i == 2:
			args[i] = "'bcd'"
		case o.function == "format" && i == 0:
			args[i] = r.one("'%s'", "'%s %d'", "'%.9f'", "'%x'")
		default:
			args[i] = r.expression(typeName(is), depth-1)
		}
	}
	return fmt.Sprintf(o.format, args...)
}

// fit is a conjunction of terms that call something, these overloads first, some of them for each element of a list.
func (r inventor) fit(calls ...overload) v1beta1.Expression {
	terms := make([]string, 1+r.IntN(3))
	for i := range terms {
		depth := 1 + r.IntN(4)
		called := r.expression("dyn", depth)
		if i < len(calls) {
			called = r.call(calls[i], depth)
		}
		terms[i] = r.one("claim.spec.a", "class.spec.list", "[1]") + r.one(".all", ".exists") + "(x, optional.of(" + called + ").hasValue() || true)"
	}
	return v1beta1.Expression(strings.Join(terms, " && "))
}

// fitOf an overload compiles and calls it, or may where the type of an argument is not known before.
func (r inventor) fitOf(o overload) (fit v1beta1.Fit, ok bool) {
	for range 200 {
		fit = v1beta1.Fit{Name: "Fit", Expression: r.fit(o)}
		if checked, issues := untyped().Compile(string(fit.Expression)); issues.Err() == nil {
			for _, called := range checked.NativeRep().ReferenceMap() {
				if slices.Contains(called.OverloadIDs, o.ID()) && len(selector.NewClaimKind(fuzzedKind(fit)).Rules.Invalid) == 0 {
					return fit, true
				}
			}
		}
	}
	return fit, false
}

var untyped = sync.OnceValue(func() *cel.Env {
	e, _ := environment.MustBaseEnvSet(version.MajorMinor(1, 31)).NewExpressionsEnv().Extend(
		cel.Variable("claim", cel.DynType), cel.Variable("class", cel.DynType),
	)
	return e
})

func TestInventorCallsEachOverload(t *testing.T) {
	r, formerly := inventor{rand.New(rand.NewPCG(53, 51))}, "__not_strictly_false__" //nolint:gosec // It has to be reproducible.
	for _, o := range overloads()["dyn"] {
		_, ok := r.fitOf(o)
		assert.Equal(t, o.function != formerly, ok, "We should call %s, which no expression can by a former name.", o.ID())
	}
}

// texts that functions accept, or go through for long.
func (r inventor) text() string {
	n := []int{1, 1, 1, 100, 16_000}[r.IntN(5)]
	part := r.one("a", "1", "0.3", "ä", "%41", "a=b&", "1h", "Europe/Paris", "10.0.0.1", "2024-02-03T04:05:06Z", "https://e.org?a=b&", " ")
	return r.one("", "", "0.", "https://e.org?", "-") + strings.Repeat(part, max(n/len(part), 1))
}

// TestPricesOfFuzzedReviews makes up claims, and the expressions that judge classes for them, from a seed.
func TestPricesOfFuzzedReviews(t *testing.T) {
	const ofKind, classes = 500, 200
	m, next := measured{}, 0
	var asked *post
	for i := 0; i < *fuzzedReviews; i++ {
		r := inventor{rand.New(rand.NewPCG(uint64(i), 51))} //nolint:gosec // It has to be reproducible.
		if i%ofKind == 0 {
			w, fits := &world{inventory: selector.NewInventory()}, []v1beta1.Fit{}
			for ; len(fits) < 4; next++ {
				all := overloads()["dyn"]
				if fit, ok := r.fitOf(all[next%len(all)]); ok {
					fit.Name = fmt.Sprint("Fit", len(fits))
					fits = append(fits, fit)
				}
			}
			k := fuzzedKind(fits...)
			classKind := &v1beta1.ClassKind{
				ObjectMeta: metav1.ObjectMeta{Name: "fits." + worldGroup},
				Spec:       v1beta1.ClassKindSpec{ClaimKinds: []v1beta1.ClaimKindLink{{Name: k.Name}}},
			}
			of := inventory.NewClassKind(classKind, schema.GroupVersionKind{Group: worldGroup, Version: "v1", Kind: "Fit"}, false, k)
			var all []*inventory.Class
			for n := range classes {
				list := make([]any, []int{1, 3, 990}[r.IntN(3)])
				for j := range list {
					list[j] = fmt.Sprint("a", j)
				}
				spec := map[string]any{"list": list, "map": map[string]any{"a": r.text()}, "text": r.text(), "size": "10Gi", "n": int64(n)}
				all = append(all, of.NewClass(&metav1.ObjectMeta{Name: fmt.Sprintf("class-%05d", n)}, map[string]any{"spec": spec}))
			}
			w.inventory.SetClaimKind(selector.NewClaimKind(k, classKind))
			w.inventory.SetClasses(inventory.NewClasses(of, all))
			w.inventory.Open()
			asked = newPost(byResource(w.binder()))
		}
		element, _ := json.Marshal(r.text())
		if len(element) > 1000 {
			element = element[len(element)-2:]
			element[0] = '"'
		}
		text, _ := json.Marshal(r.text())
		body := fitReview(string(element), string(text), byte(r.IntN(3)*r.IntN(80)), 0) //nolint:gosec // It is at most 158.
		require.True(t, m.add(t, len(body), func() { asked.ask(body) }), "review %d", i)
	}
	t.Logf("Reviews: %s; fits aim at %d of %d overloads", &m, min(next, len(overloads()["dyn"])), len(overloads()["dyn"]))
}

func fuzzedKind(fits ...v1beta1.Fit) *v1beta1.ClaimKind {
	return &v1beta1.ClaimKind{ObjectMeta: metav1.ObjectMeta{Name: "fits0." + worldGroup}, Spec: v1beta1.ClaimKindSpec{
		Reference: v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.classRef"}, Form: v1beta1.ObjectReference},
		Selector:  v1beta1.ClassSelector{Path: ".spec.classSelector", WhenAbsent: v1beta1.NoSelectorAny},
		Classes:   v1beta1.Classes{Fits: fits}, WhenUnmatched: v1beta1.Deny,
	}}
}

// TestPricesOfFuzzedRegistrations makes up expressions of registrations from a seed, and repeats parts of them.
func TestPricesOfFuzzedRegistrations(t *testing.T) {
	m := measured{}
	for i := range *fuzzedRegistrations {
		r := inventor{rand.New(rand.NewPCG(uint64(i), 52))} //nolint:gosec // It has to be reproducible.
		field := func() string {
			text := string(r.fit())
			switch n := r.IntN(60); r.IntN(5) {
			case 0:
				open, shut := r.one("claim.a.map(x,", "claim.?a.optMap(x,", "[", "{claim.a:", "!("), ")"
				shut = map[string]string{"[": "]", "{": "}"}[open[:1]] + map[bool]string{true: shut}[strings.Contains(open, "(")]
				text = strings.Repeat(open, n) + text + strings.Repeat(shut, n)
			case 1:
				text = strings.Repeat(text[:min(len(text), 2000/(n+1))]+r.one(" && ", " + ", ",", "||"), n+1)
			case 2:
				text = "claim.a.matches('" + strings.Repeat(r.one("a{1000}", `\\pL`, "(a?){30}", "(?i)[a-z]", "(a|b|(c|d)*)+"), n*4) + "')"
			}
			quoted, _ := json.Marshal(text[:min(len(text), 2048)])
			return string(quoted)
		}
		parts := make([]string, r.IntN(9))
		for n := range parts {
			parts[n] = fmt.Sprintf(`{"name":"F%d","expression":%s}`, n, field())
		}
		spec, resource := fmt.Sprintf(`{"claims":{"when":%s},"selector":{"expression":%s},"classes":{"usage":%s,"fits":[%s]},"choice":{"score":%s}}`,
			field(), field(), field(), strings.Join(parts, ","), field()), "claimkinds"
		if r.IntN(3) == 0 {
			spec, resource = fmt.Sprintf(
				`{"offerWhen":%s,"weight":{"expression":%s},"default":{"expression":%s},"fits":[%s]}`, field(), field(), field(),
				strings.Join(parts, ","),
			), "classkinds"
		}
		request := newRegistrationRequest(resource, spec, r.one("", spec))
		require.True(t, m.add(t, len(spec), func() { _, _ = newCompiling().Review(t.Context(), request) }), "registration %d: %s", i, spec)
	}
	t.Logf("Registrations: %s", &m)
}
