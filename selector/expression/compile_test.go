package expression

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/selector/fields"
)

func compiled(t *testing.T, text string, result Result) *Expression {
	t.Helper()
	e, err := Compile(text, result, everything)
	require.NoError(t, err, text)
	return e
}

func TestCompileErrors(t *testing.T) {
	ofClaim := Scope{Variables: []string{Claim, Related}, Related: []string{"plan"}}
	ofClass := Scope{Variables: []string{Class}}
	for name, tc := range map[string]struct {
		reason string
		text   string
		result Result
		scope  Scope
		want   string
		caret  string
	}{
		"Syntax": {
			"We should show the end of an expression that is not complete",
			"claim.spec.x +", Text, ofClaim, "line 1, column 15: mismatched input '<EOF>'", "claim.spec.x +\n              ^",
		},
		"Chain": {
			"We should refuse a chain whose syntax tree would have 2^30 nodes", "claim.?a" + strings.Repeat(".optMap(a, a)", 30), Bool, ofClaim,
			"line 1, column 29: optMap must follow a shorter expression: use has() and ?: instead; " +
				"line 1, column 81: optMap must follow a shorter expression: use has() and ?: instead; " +
				"line 1, column 133: optMap must follow a shorter expression: use has() and ?: instead", "",
		},
		"OptionalElement": {
			"We should refuse an optional element of a list, at which CEL's validator panics", "[?claim.spec.x].size() > 0", Bool, ofClaim,
			"line 1, column 1: cannot be checked: leave out optional elements, such as [?claim.spec.x]", "[?claim.spec.x].size() > 0\n^",
		},
		"SecondLine": {
			"We should show the line of the error alone", "true &&\n\tclaim.spec.a + 'ä' + 1 + claim.b == 2", Bool, ofClaim,
			"line 2, column 21: found no matching overload for '_+_' applied to '(string, int)'", "\tclaim.spec.a + 'ä' + 1 + claim.b == 2\n\t                   ^",
		},
		"Unknown": {
			"We should say which variables there are", "klass.driver == 'a'", Bool, ofClaim,
			"line 1, column 1: there is no variable or function klass; the variables here are claim, related",
			"klass.driver == 'a'\n^",
		},
		"Several": {
			"We should show the first error, and others after it", "a && 'b' + 1 == c", Bool, ofClass,
			"line 1, column 1: there is no variable or function a; the variable here is class; line 1, column 10: found no matching overload for '_+_' " +
				"applied to '(string, int)'; line 1, column 17: there is no variable or function c; the variable here is class", "a && 'b' + 1 == c\n^",
		},
		"OutOfScope": {
			"We should refuse a variable that has no value here", "class.a && claim.a", Bool, ofClass,
			"line 1, column 12: claim cannot be used here; the variable here is class",
			"class.a && claim.a\n           ^",
		},
		"NoVariables": {
			"We should say that there are none", "claim.a", Bool,
			Scope{},
			"line 1, column 1: claim cannot be used here; there are no variables here",
			"claim.a\n^",
		},
		"Whole": {"We should hold fields only", "'a' in class", Bool, ofClass, "line 1, column 8: name a field of class", "'a' in class\n       ^"},
		"WholeByKey": {
			"We should hold fields only", "claim[claim.spec.x] == 1", Bool, ofClaim, "line 1, column 1: name a field of claim",
			"claim[claim.spec.x] == 1\n^",
		},
		"WholeRelated": {
			"We should hold fields only", "related.plan == null", Bool, ofClaim, "line 1, column 1: name a field of related.plan",
			"related.plan == null\n^",
		},
		"AnyRelated": {
			"We should know which object it is", "related[claim.a].b", Bool, ofClaim, "line 1, column 1: name a field of related",
			"related[claim.a].b\n^",
		},
		"UnknownRelated": {
			"We should say which related objects there are", "related.plna.spec.x", Text, ofClaim,
			"line 1, column 1: there is no related.plna here; there is related.plan",
			"related.plna.spec.x\n^",
		},
		"NoRelated": {
			"We should say that there are none", "related.plan.spec.x", Text,
			Scope{Variables: []string{Related}},
			"line 1, column 1: there is no related.plan here", "related.plan.spec.x\n^",
		},
		"Bool": {"We should check the type", "size(claim.a)", Bool, ofClaim, "line 1, column 1: must be true or false, is of type int", "size(claim.a)\n^"},
		"Text": {"We should check the type", "[claim.a]", Text, ofClaim, "line 1, column 1: must be a text, is of type list(dyn)", "[claim.a]\n^"},
		"Number": {
			"We should check the type", "string(class.a)", Number, ofClass, "line 1, column 1: must be a number, is of type string",
			"string(class.a)\n^",
		},
		"Selector": {
			"We should check the type", "{'a': 1}", Selector, ofClaim,
			"line 1, column 1: must be a text, or a map of texts, is of type map(string, int)",
			"{'a': 1}\n^",
		},
		"Optional": {
			"We should not take a value that may be none", "class.?a", Text, ofClass,
			"line 1, column 1: must be a text, is of type optional_type(dyn)",
			"class.?a\n^",
		},
		"Dot": {
			"We should know which variable it is", "[1].all(class, .class.a)", Bool, ofClass,
			"line 1, column 17: write class without a dot before it", "[1].all(class, .class.a)\n                ^",
		},
		"Regex": {
			"We should check constants", "class.a.matches('[')", Bool, ofClass, "line 1, column 17: invalid matches argument",
			"class.a.matches('[')\n                ^",
		},
		"Pattern": {
			"We should not compile patterns of claims", "'a'.find(claim.a) == ''", Bool, ofClaim,
			"line 1, column 9: the pattern of find must be a constant text",
			"",
		},
		"Global": {
			"We should not compile patterns of claims", "'a'.findAll(claim.a) == []", Bool, ofClaim,
			"line 1, column 12: the pattern of findAll must be a constant text",
			"",
		},
		"Replacement": {
			"We should not make a long text of two", "claim.a.replace('a', claim.a)", Text, ofClaim,
			"line 1, column 16: the replacement of replace must be a constant text",
			"",
		},
		"Separator": {
			"We should not make a long text of two", "claim.a.join(claim.b)", Text, ofClaim,
			"line 1, column 13: the separator of join must be a constant text",
			"",
		},
		"Format": {
			"We should not take a format of claims", "claim.a.format([1])", Text, ofClaim,
			"line 1, column 15: the format of format must be a constant text",
			"",
		},
		"TooNew": {
			"We should refuse what Kubernetes 1.31 does not have", "class.a.sort() == []", Bool, ofClass,
			"line 1, column 13: there is no variable or function sort; the variable here is class",
			"class.a.sort() == []\n            ^",
		},
		"Namespace": {
			"We should name the variable as its author does", "namespaceObject + 1", Number, everything,
			"line 1, column 1: name a field of namespaceObject", "namespaceObject + 1\n^",
		},
		"Empty": {"We should refuse nothing", "", Bool, ofClass, "line 1, column 1: mismatched input '<EOF>'", "\n^"},
		"TooLong": {
			"We should bound the work", strings.Repeat("1", 2049), Bool, ofClass,
			"line 1, column 1: must be at most 2048 characters, has 2049",
			strings.Repeat("1", 97) + "...\n^",
		},
		"TooNested": {
			"We should bound the work", strings.Repeat("(", 1000) + "1" + strings.Repeat(")", 1000), Bool, ofClass,
			"line 1, column 1: is too costly to compile, with those before it: make them shorter, with fewer loops, lists or maps in each other, and " +
				"fewer repetitions, categories like \\pL and ranges after (?i) in patterns",
			"",
		},
		"Undeclared": {
			"We should not let the parts of a comprehension out", "[1].all(x, true) && x", Bool, ofClass,
			"line 1, column 21: there is no variable or function x; the variable here is class",
			"",
		},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := Compile(tc.text, tc.result, tc.scope)
			assert.Nil(t, e)
			failed := (*Error)(nil)
			require.ErrorAs(t, err, &failed, tc.reason)
			assert.Equal(t, tc.want, failed.Error(), tc.reason)
			if tc.caret != "" {
				assert.Equal(t, tc.caret, failed.Caret(), tc.reason)
			}
		})
	}
}

func TestCompileResults(t *testing.T) {
	for result, texts := range map[Result][]string{
		Bool: {"true", "claim.a", "claim.a == 1"}, Text: {"'a'", "claim.a", "claim.a + 'b'"}, Number: {"1", "1u", "1.5", "claim.a * 2"},
		Selector: {"'a=b'", "{'a': claim.b}", "{'a': 'b'}", "{}", "claim.a", "dyn(1)"},
	} {
		for _, text := range texts {
			compiled(t, text, result)
		}
	}
}

func TestLooks(t *testing.T) {
	for text, want := range map[string]map[string][]fields.Path{
		"1 == 1":                                                          {},
		"claim.a.b == class.c":                                            {Claim: {{"a", "b"}}, Class: {{"c"}}},
		"claim.a['x/y'].b == 1":                                           {Claim: {{"a", "x/y", "b"}}},
		"claim['a'][?'b'].?c == claim.?a.b":                               {Claim: {{"a", "b"}}},
		"claim.a[0].b == 1":                                               {Claim: {{"a"}}},
		"claim.a[class.b].c == 1":                                         {Claim: {{"a"}}, Class: {{"b"}}},
		"claim.a.b == 1 && claim.a == 2":                                  {Claim: {{"a"}}},
		"claim.b == claim.a && claim.b == 1":                              {Claim: {{"a"}, {"b"}}},
		"has(claim.a.b)":                                                  {Claim: {{"a", "b"}}},
		"has(claim.a) && has(claim.a.b) && claim.a.b.c == 1":              {Claim: {{"a", "b", "c"}}},
		"has(claim.a) && claim.a == 1":                                    {Claim: {{"a"}}},
		"'a' in claim.b":                                                  {Claim: {{"b"}}},
		"class.a.all(x, x.b == claim.c)":                                  {Class: {{"a"}}, Claim: {{"c"}}},
		"claim.a.all(class, class.b)":                                     {Claim: {{"a"}}},
		"claim.a.all(claim, claim.b) && claim.c":                          {Claim: {{"a"}, {"c"}}},
		"claim.claim.map(claim, claim.a).all(claim, claim.b)":             {Claim: {{"claim"}}},
		"claim.a.startsWith(class.b)":                                     {Claim: {{"a"}}, Class: {{"b"}}},
		"{claim.a: [class.b]}.c == (claim.d ? claim.e : -claim.f)":        {Claim: {{"a"}, {"d"}, {"e"}, {"f"}}, Class: {{"b"}}},
		"namespaceObject.metadata.labels.tenant == request.userInfo.name": {Namespace: {{"metadata", "labels", "tenant"}}, Request: {{"userInfo", "name"}}},
		"has(related.plan)":                                               {Related: {{"plan", "metadata", "name"}}},
		"has(related.plan) && related.plan.a == 1":                        {Related: {{"plan", "a"}, {"plan", "metadata", "name"}}},
		"related['plan'].?a.orValue(1) == 1":                              {Related: {{"plan", "a"}}},
		"related.?plan.metadata.labels.a == optional.none()":              {Related: {{"plan", "metadata", "labels", "a"}}},
		"claim.metadata.namespace == 'namespace' /* no */":                nil,
		"claim.namespace == 'namespace.a' // namespace.b":                 {Claim: {{"namespace"}}},
		"claim. // a\n namespace == namespaceObject . a":                  {Claim: {{"namespace"}}, Namespace: {{"a"}}},
		"[1].exists(namespaceObject, dyn(namespaceObject) == claim.?namespaceObject.?a.b)": {Claim: {{"namespaceObject", "a", "b"}}},
		"claim.anamespace == namespaces.a":                                                 nil,
		"claim.a?namespaceObject.a:namespaceObject.b":                                      {Claim: {{"a"}}, Namespace: {{"a"}, {"b"}}},
		"claim.a.filter(x, [x].exists(class, class == claim.b)) == []":                     {Claim: {{"a"}, {"b"}}},
	} {
		e, err := Compile(text, anything, everything)
		if want == nil {
			require.Error(t, err, text)
			continue
		}
		require.NoError(t, err, text)
		for _, variable := range variables {
			assert.Equal(t, want[variable], e.Looks(variable), "%s: %s", text, variable)
			assert.Equal(t, want[variable] != nil, e.Uses(variable), "%s: %s", text, variable)
		}
		assert.Equal(t, text, e.String())
	}
}

func TestTerms(t *testing.T) {
	for text, want := range map[string][]string{
		"claim.a == 1": {"claim.a == 1"},
		" (claim.a) && ((class.b == 1 && claim.c)) ":            {"claim.a", "class.b == 1", "claim.c"},
		"claim.a && claim.b || claim.c":                         {"claim.a && claim.b || claim.c"},
		"claim.a && (claim.b || claim.c)":                       {"claim.a", "claim.b || claim.c"},
		"claim.a ? claim.b : claim.c && claim.d":                {"claim.a ? claim.b : claim.c && claim.d"},
		"claim.?a.orValue(true) && claim[?'b'].orValue(true)":   {"claim.?a.orValue(true)", `claim[?"b"].orValue(true)`},
		"claim.a.all(x, x && claim.b) && claim.c == 'a && b'":   {"claim.a.all(x, x && claim.b)", `claim.c == "a && b"`},
		"claim.a == '''it's && ' && '''&& r'\\' != \"\\\" &&\"": {`claim.a == "it's && ' && "`, `"\\" != "\" &&"`},
		"claim.a // it's ( && \n && claim.b":                    {"claim.a", "claim.b"},
		"!(claim.a && claim.b)":                                 {"!(claim.a && claim.b)"},
		"(claim.a && claim.b) == (claim.c && claim.d)":          {"(claim.a && claim.b) == (claim.c && claim.d)"},
		"has(claim.a) && claim.a.b == namespaceObject.c":        {"has(claim.a)", "claim.a.b == namespaceObject.c"},
	} {
		var got []string
		for _, term := range compiled(t, text, Bool).Terms() {
			got = append(got, term.String())
		}
		if len(want) == 1 {
			assert.Equal(t, []string{text}, got, "We should leave what is no conjunction as it is.")
			continue
		}
		assert.Equal(t, want, got, text)
	}
	presence := compiled(t, "has(class.a) && class.a.b == 1", Bool).Terms()[0]
	assert.Equal(t, []fields.Path{{"a", "b"}}, presence.Looks(Class), "We should hold no more for a term than for the whole.")
}

// TestTermsOfAnyText has expressions whose terms CEL writes in a way that it would not take.
func TestTermsOfAnyText(t *testing.T) {
	for name, text := range map[string]string{
		"Longer":  "claim.n in [" + strings.Repeat("1,", 990) + "1]&&claim.b",
		"Deeper":  "(" + strings.Repeat("claim.b?claim.b:", 60) + "claim.b) && claim.b",
		"Escaped": "claim.a == 'namespac\\x5f' && claim.b",
	} {
		t.Run(name, func(t *testing.T) {
			terms := compiled(t, text, Bool).Terms()
			require.Len(t, terms, 2, "We should split what was accepted.")
			in, budget := Input{Claim: map[string]any{"a": "namespac_", "b": true, "n": int64(1)}}, Budget{Left: 100_000}
			for _, term := range terms {
				ok, err := term.Bool(&in, &budget)
				require.NoError(t, err)
				assert.True(t, ok, "We should not change what a term says: %s", term)
			}
		})
	}
}

func TestEquality(t *testing.T) {
	for text, want := range map[string]struct {
		path  fields.Path
		value string
	}{
		"class.a.b == claim.c":                    {fields.Path{"a", "b"}, "claim.c"},
		"('x' + claim.c==(class['a/b'].c))":       {fields.Path{"a/b", "c"}, `"x" + claim.c`},
		"class.a == (claim.b == claim.c)":         {fields.Path{"a"}, "claim.b == claim.c"},
		"class.a == related.plan.x // == class.b": {fields.Path{"a"}, "related.plan.x"},
		"class.a == 'x == y'":                     {fields.Path{"a"}, `"x == y"`},
		"class.a == claim.b[0]":                   {fields.Path{"a"}, "claim.b[0]"},
		"class.a == class.b":                      {},
		"class.a[0] == claim.b":                   {},
		"class.?a == claim.b":                     {},
		"class.a == claim.?b":                     {},
		"class.a == [claim.b]":                    {},
		"class.a == 1 && class.b == 2":            {},
		"class.a != claim.b":                      {},
		"(class.a == claim.b) == claim.c":         {},
		"claim.a == claim.b":                      {},
		"!(class.a == claim.b)":                   {},
		"has(class.a) == claim.b":                 {},
	} {
		path, value, ok := compiled(t, text, Bool).Equality()
		assert.Equal(t, want.path != nil, ok, text)
		if ok && assert.NotNil(t, want.path, text) {
			assert.Equal(t, want.path, path, text)
			assert.Equal(t, want.value, value.String(), text)
		}
	}
}

// TestErrorsTellNoValue has expressions fail for values of a class that the author of a claim must not see.
func TestErrorsTellNoValue(t *testing.T) {
	const secret = "p4ss://internal host"
	in := &Input{
		Claim: map[string]any{"spec": map[string]any{"size": "big", "list": []any{"a"}}},
		Class: NewFields(fields.Path{"spec"}).Project(map[string]any{"spec": map[string]any{
			"secret": secret, "number": int64(987654321), "sizes": map[string]any{"small": int64(1)}, "zero": int64(0), "most": int64(9223372036854775807),
		}}),
		Related: map[string]any{},
	}
	for text, want := range map[string]string{ //nolint:gosec // These are expressions, and no credentials.
		"claim.spec[class.spec.secret] == 'a'":                              "no such key",
		"class.spec.sizes[class.spec.secret] == 1":                          "no such key",
		"{'a': 1}[class.spec.secret] == 1":                                  "no such key",
		"class.spec.absent == 1":                                            "no such key: absent",
		"int(class.spec.secret) == 1":                                       "a value cannot be converted or is malformed",
		"double(class.spec.secret) == 1.0":                                  "a value cannot be converted or is malformed",
		"timestamp(class.spec.secret) == timestamp('2026-01-01T00:00:00Z')": "a value cannot be converted or is malformed",
		"duration(class.spec.secret) == duration('1s')":                     "a value cannot be converted or is malformed",
		"quantity(class.spec.secret).isGreaterThan(quantity('1'))":          "the quantity is too long, or out of range",
		"url(class.spec.secret).getHost() == 'a'":                           "a value cannot be converted or is malformed",
		"ip(class.spec.secret).family() == 4":                               "a value cannot be converted or is malformed",
		"cidr(class.spec.secret).prefixLength() == 4":                       "a value cannot be converted or is malformed",
		"claim.spec.list[class.spec.number] == 'a'":                         "an index is out of range",
		"class.spec.number / class.spec.zero == 1":                          "division by zero",
		"class.spec.most + class.spec.number == 1":                          "a number or a time is out of range",
		"class.spec.secret + class.spec.number == 'a'":                      "a value has the wrong type",
		"class.spec.secret.spec == 'a'":                                     "no such key: spec",
		"class.spec.secret":                                                 "must be true or false, is of type string",
	} {
		e, err := Compile(text, Bool, Scope{Variables: []string{Claim, Class}})
		require.NoError(t, err, text)
		_, err = e.Bool(in, &Budget{Left: 1_000_000})
		require.Error(t, err, text)
		assert.Equal(t, want, err.Error(), text)
		assert.NotContains(t, err.Error(), "p4ss", text)
		assert.NotContains(t, err.Error(), "987654321", text)
	}
	e, err := Compile("class.spec.sizes[class.spec.secret] == 1", Bool, Scope{Variables: []string{Class}})
	require.NoError(t, err)
	_, err = e.Bool(in, &Budget{Left: 1_000_000})
	assert.Contains(t, Detail(err), "p4ss", "We should show it to readers of the class.")
}
