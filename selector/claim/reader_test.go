package claim

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/fields"
	"github.com/classbind/classbind/selector/rules"
	"github.com/classbind/classbind/selector/selectortest"
)

func TestRead(t *testing.T) {
	const (
		annotated = "metadata.annotations[classbind.io/class-selector]"
		invalid   = field.ErrorTypeInvalid
		wrongType = field.ErrorTypeTypeInvalid
		required  = field.ErrorTypeRequired
		forbidden = field.ErrorTypeForbidden
	)
	one := func(at string, kind field.ErrorType) []fieldFailed { return []fieldFailed{{at, kind}} }
	cases := map[string]struct {
		reason   string
		claim    string
		selector string // "nil" for none
		settled  string
		errs     []fieldFailed
		message  string // within the errors
	}{
		"NoSpec":        {reason: "We should take a claim without a spec for one without an opinion", claim: `{metadata: {name: db}}`, selector: "nil"},
		"EmptySelector": {reason: "We should distinguish an empty selector, which selects everything, from none", claim: `{spec: {classSelector: {}}}`, selector: ""},
		"LabelsAndExpressions": {
			reason: "We should require labels and expressions",
			claim: `{spec: {classSelector: {matchLabels: {tier: gold}, matchExpressions: [
				{key: region, operator: In, values: [us, eu]}, {key: engine, operator: NotIn, values: [mysql]},
				{key: ssd, operator: Exists}, {key: beta, operator: DoesNotExist, values: []}]}}}`,
			selector: "!beta,engine notin (mysql),region in (eu,us),ssd,tier=gold",
		},
		"ClassReferenceIsAnEmptyString": {
			reason:   "We should take an empty string for set: a claim that wants no class says so with it",
			claim:    `{spec: {classRef: ""}}`,
			selector: "nil",
			settled:  "spec.classRef",
		},
		"ClassReferenceIsAnEmptyObject": {reason: "We should take an empty object for none", claim: `{spec: {classRef: {}}}`, selector: "nil"},
		"SkipIfSetIsFalse": {
			reason:   "We should take any value but null for set",
			claim:    `{spec: {resourceRef: false}}`,
			selector: "nil",
			settled:  "spec.resourceRef",
		},
		"SettledWithMalformedSelector": {
			reason:   "We should not judge the selector of a claim that is not ours to bind",
			claim:    `{spec: {classRef: {name: gold}, classSelector: gold}}`,
			selector: "nil",
			settled:  "spec.classRef",
		},
		"OperatorUnknown": {
			reason:  "We should name the operator",
			claim:   `{spec: {classSelector: {matchExpressions: [{key: a, operator: Exists}, {key: tier, operator: Foo}]}}}`,
			errs:    one("spec.classSelector.matchExpressions[1].operator", invalid),
			message: "Foo",
		},
		"InWithoutValues": {
			reason: "We should ask for the values",
			claim:  `{spec: {classSelector: {matchExpressions: [{key: tier, operator: In}]}}}`,
			errs:   one("spec.classSelector.matchExpressions[0].values", required),
		},
		"ExistsWithValues": {
			reason: "We should not pass over values that the author meant",
			claim:  `{spec: {classSelector: {matchExpressions: [{key: tier, operator: Exists, values: [gold]}]}}}`,
			errs:   one("spec.classSelector.matchExpressions[0].values", forbidden),
		},

		"ExpressionWithInvalidValue": {
			reason: "We should name the value that no label can have",
			claim:  `{spec: {classSelector: {matchExpressions: [{key: tier, operator: In, values: [gold, "not a label"]}]}}}`,
			errs:   one("spec.classSelector.matchExpressions[0].values[1]", invalid), message: "not a label",
		},
		"SeveralErrors": {
			reason: "We should name all of them at once", claim: `{spec: {classSelector: {matchExpressions: [{key: a, operator: Foo}, {key: b, operator: In}]}}}`,
			errs: []fieldFailed{{"spec.classSelector.matchExpressions[0].operator", invalid}, {"spec.classSelector.matchExpressions[1].values", required}},
		},
		"UnknownField": {
			reason:  "We should not pass over a field: the selector would be wider than was meant",
			claim:   `{spec: {classSelector: {matchLabel: {tier: gold}}}}`,
			errs:    one("spec.classSelector", invalid),
			message: `unknown field "matchLabel"`,
		},

		"MatchLabelsHasANumber": {
			reason:  "We should refuse what no label can be, not convert it",
			claim:   `{spec: {classSelector: {matchLabels: {cores: 8}}}}`,
			errs:    one("spec.classSelector.matchLabels[cores]", wrongType),
			message: "must be a string",
		},
		"MatchLabelsHasAnInvalidValue": {
			reason:  "We should name the labels",
			claim:   `{spec: {classSelector: {matchLabels: {tier: "-gold-"}}}}`,
			errs:    one("spec.classSelector.matchLabels", invalid),
			message: "-gold-",
		},
		"ValueIsANumber": {
			reason: "We should refuse what no label can be, not convert it",
			claim:  `{spec: {classSelector: {matchExpressions: [{key: tier, operator: In, values: [gold, 8]}]}}}`,
			errs:   one("spec.classSelector.matchExpressions[0].values[1]", wrongType), message: "must be a string",
		},
		"SelectorIsAString": {
			reason: "We should not take the annotation's syntax in the field",
			claim:  `{spec: {classSelector: tier=gold}}`,
			errs:   one("spec.classSelector", wrongType),
		},
		"SpecIsAString": {
			reason: "We should name the field that is no object, not the one that cannot be in it",
			claim:  `{spec: gold}`,
			errs:   one("spec", wrongType),
		},
		"Annotation": {
			reason:   "We should read the annotation as kubectl reads its --selector",
			claim:    `{metadata: {annotations: {classbind.io/class-selector: "tier=gold, region in (us,eu), !beta, cores>4"}}}`,
			selector: "!beta,cores>4,region in (eu,us),tier=gold",
		},
		"AnnotationIsEmpty": {
			reason: "We should ask for the selector, not take a template's unset value for that of everything",
			claim:  `{metadata: {annotations: {classbind.io/class-selector: ""}}}`,
			errs:   []fieldFailed{{annotated, required}}, message: "leave the annotation out if the claim has none",
		},

		"AnnotationAndNullField": {
			reason:   "We should take null for absent",
			claim:    `{spec: {classSelector: null}, metadata: {annotations: {classbind.io/class-selector: tier=gold}}}`,
			selector: "tier=gold",
		},
		"AnnotationAndField": {
			reason:  "We should not guess which of two is meant",
			claim:   `{spec: {classSelector: {}}, metadata: {annotations: {classbind.io/class-selector: tier=gold}}}`,
			errs:    []fieldFailed{{annotated, forbidden}},
			message: "spec.classSelector",
		},
		"AnnotationIsMalformed": {
			reason:  "We should name the annotation",
			claim:   `{metadata: {annotations: {classbind.io/class-selector: "tier in"}}}`,
			errs:    []fieldFailed{{annotated, invalid}},
			message: "tier in",
		},
		"AnnotationHasAnInvalidKey": {
			reason:  "We should name the part that is wrong, rather than <nil>",
			claim:   `{metadata: {annotations: {classbind.io/class-selector: "-tier=gold"}}}`,
			errs:    []fieldFailed{{annotated, invalid}},
			message: `selector: Invalid value: "-tier"`,
		},
		"AnnotationHasNUL": {
			reason:  "We should not pass over what follows it, for the selector would be a wider one",
			claim:   `{metadata: {annotations: {classbind.io/class-selector: "tier=gold \0,region=eu"}}}`,
			errs:    []fieldFailed{{annotated, invalid}},
			message: "at byte 10",
		},
		"AnnotationIsANumber": {
			reason: "We should refuse what no annotation can be",
			claim:  `{metadata: {annotations: {classbind.io/class-selector: 3}}}`,
			errs:   []fieldFailed{{annotated, wrongType}},
		},
		"AnnotationsIsAList": {
			reason: "We should name the field that is no object",
			claim:  `{metadata: {annotations: [classbind.io/class-selector]}}`,
			errs:   one("metadata.annotations", wrongType),
		},
	}
	reader := readerOf()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := reader.Read("team", "db", decode(t, tc.claim))
			assert.Equal(t, tc.errs, failed(got.Problems), tc.reason)
			if len(tc.errs) > 0 {
				assert.Nil(t, got.Selector, tc.reason)
				require.ErrorContains(t, got.Problems.ToAggregate(), tc.message, tc.reason)
				return
			}
			text := "nil"
			if got.Selector != nil {
				text = got.Selector.String()
			}
			assert.Equal(t, tc.selector, text, tc.reason)
			assert.Equal(t, tc.settled, got.SettledBy, tc.reason)
			assert.Equal(t, "team/db", got.Namespace+"/"+got.Name, tc.reason)
		})
	}
}

// TestReadAsWritten has expressions say the same of what is read of a claim as of all of it.
func TestReadAsWritten(t *testing.T) {
	parts := []string{`null`, `1`, `1e300`, `true`, `"text"`, `[]`, `["b"]`, `[{"b":1}]`, `{}`}
	for _, below := range parts {
		parts = append(parts, `{"b":`+below+`}`)
	}
	claims := []string{`{}`, `{"spec":{}}`, `{"metadata":{"labels":{"b":"1"}},"spec":null}`, `{"spec":1}`, `{"spec":[]}`}
	for _, part := range parts {
		claims = append(claims, `{"metadata":{"labels":{}},"spec":{"a":`+part+`}}`)
	}
	for _, text := range []v1beta1.Expression{
		"has(claim.spec.a.b)", "has(claim.spec) && has(claim.spec.a) && has(claim.spec.a.b)", "claim.spec.a.b == 1", "claim.spec.a.b == null",
		"claim.?spec.?a.?b.orValue('none') == 'none'", "claim.spec.a.exists(k, k == 'b')", "size(claim.spec.a) > 0",
		"claim.spec.a.b.b == 1 || claim.metadata.labels.b == '1'",
		"has(claim.metadata.labels.b)",
	} {
		reader := readerOf(func(s *v1beta1.ClaimKindSpec) { s.Claims.When = text })
		require.NotNil(t, reader.bindWhen, text)
		said := map[string]bool{}
		for _, raw := range claims {
			var whole map[string]any
			require.NoError(t, json.Unmarshal([]byte(raw), &whole))
			read, err := reader.DecodeValid([]byte(raw))
			require.NoError(t, err)
			want, wantErr := reader.bindWhen.Bool(&expression.Input{Claim: whole}, &expression.Budget{Left: v1beta1.MaxExpressionCost})
			got, gotErr := reader.bindWhen.Bool(&expression.Input{Claim: read}, &expression.Budget{Left: v1beta1.MaxExpressionCost})
			assert.Equal(t, wantErr == nil, gotErr == nil, "%s of %s: %v, %v", text, raw, wantErr, gotErr)
			assert.False(t, gotErr != nil && strings.Contains(gotErr.Error(), "selector"), "%s of %s: %v", text, raw, gotErr)
			assert.Equal(t, want, got, "We should read of %s all that %q looks at.", raw, text)
			said[fmt.Sprint(want, wantErr != nil)] = true
		}
		assert.Greater(t, len(said), 1, "We should try claims of which %q says something else.", text)
	}
}

// FuzzDecode proves that it makes no difference whether the whole claim is decoded.
func FuzzDecode(f *testing.F) {
	for _, claim := range []string{
		`{}`, `null`, `[]`, `{"spec":null,"metadata":1}`, `{"spec":{"classSelector":{"matchLabels":{"tier":"gold"}}}}`, `{"spec":{"classRef":{"name":"gold"}}}`,
		`{"spec":{"template":{"class":{"kind":"Gold","apiVersion":"v1/a","name":"a"}}},"selector":{"matchExpressions":[{"key":"a","operator":"In","values":["b"]}]}}`,
		`{"metadata":{"generateName":"a","deletionTimestamp":"b","annotations":{"classbind.io/class-selector":"tier in (gold)"}}}`,
		`{"spec":{"classSelector":{"matchLabels":{"a":8}}},"selector":{"matchLabels":{"a":1.5}}}`, `{"spec":{"source":"a","resourceRef":1}}`,
		`{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"a"},"annotations":{"example.org/class":"","kubernetes.io/ingress.class":null}},"spec":{"className":""}}`,
		`{"spec":{"ref":{"name":"","kind":5,"apiVersion":"v1"},"topology":{"classRef":{}}}}`, `{"spec":{"ref":{"name":[],"namespace":"a"},"topology":1}}`,
		`{"sp\u0065c":{"classRef":"\ud800"},"spec":{"classSelector":{}}}`, `{"spec":{"a":1,"a":2,"classRef":1,"classRef":null}}`, `{"selector":-0,"spec":1E2}`,
	} {
		f.Add([]byte(claim))
	}
	readers := []*Reader{
		readerOf(), readerOf(byLabel), readerOf(byAnnotation), readerOf(byName), readerOf(byObject), readerOf(belowTopology),
		readerOf(func(s *v1beta1.ClaimKindSpec) {
			s.Reference = v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.template.class"}, Form: v1beta1.TypedLocalObjectReference}
			s.Selector.Path = ".selector"
			s.Claims.SkipIfSet = []v1beta1.Place{{Path: ".spec.source.ref"}, {Path: ".spec.resourceRef"}, {Path: ".spec.source"}}
		}),
		readerOf(func(s *v1beta1.ClaimKindSpec) {
			s.Selector.WhenAbsent, s.Selector.Annotation = v1beta1.NoSelectorLeaveAlone, "example.org/class"
			s.Claims.SkipIfSet = []v1beta1.Place{{Annotation: ingressClass}, {Label: queueLabel}}
		}),
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, r := range readers {
			got, err := r.DecodeValid(raw)
			if err != nil || !jsontext.Value(raw).IsValid() {
				continue
			}
			var whole map[string]any
			if err := json.Unmarshal(raw, &whole); err != nil {
				require.ErrorContains(t, err, "cannot unmarshal number", "We should not read what is no JSON.")
				continue // The error is in a part that we do not read.
			}
			assert.Equal(t, r.Reference.HasReference(whole), r.Reference.HasReference(got))
			claim, want := r.Read("team", "db", got), r.Read("team", "db", whole)
			if len(want.GenerateName) > v1beta1.MaxNameBytes {
				want.GenerateName = "" // It is not read.
			}
			if len(raw) > v1beta1.MaxSelectorBytes { // Only one of them knows how much too long a selector is.
				claim.Problems, want.Problems = nil, nil
			}
			assert.Equal(t, want, claim)
		}
	})
}

// A field that a claim repeats is made once.
func TestRepetitionsAreMadeOnce(t *testing.T) {
	for name, one := range map[string]string{
		"Objects":   `"spec":{"classRef":{"name":1}},"spec":1`,
		"Selectors": `"spec":{"classSelector":{"matchExpressions":[{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}]}}`,
		"Names":     `"\u0061":0`,
	} {
		raw := []byte(`{` + one + string(bytes.Repeat([]byte(","+one), 10_000)) + `}`)
		reader := readerOf()
		_, err := reader.DecodeValid(raw)
		require.NoError(t, err)
		allocs := testing.AllocsPerRun(1, func() { _, _ = reader.DecodeValid(raw) })
		assert.Less(t, allocs, 100.0, "We should allocate little for %s.", name)
	}
}

// TestAskKeepsTheClaim keeps late binding, which holds the Ask alone, from losing what a
// claim asks for: also a field of Claim that somebody adds.
func TestAskKeepsTheClaim(t *testing.T) {
	identity := map[string]bool{ // It is not known later, or evaluated again.
		"Namespace": true, "Name": true, "GenerateName": true, "Request": true, "Requester": true, "Usage": true, "Group": true,
	}
	kept := map[string]bool{}
	reader := readerOf(withReference(v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.classRef"}, Form: v1beta1.ObjectReference}),
		spec(`{classes: {fits: [{name: "Size", expression: "class.spec.size == claim.spec.size"}]}}`))
	for _, text := range []string{
		`{spec: {classRef: {}}}`, `{spec: {classRef: {kind: "a\"=@", apiVersion: v1}}}`,
		`{spec: {classRef: {kind: A, apiVersion: a/v1, namespace: "b "}, classSelector: {matchLabels: {tier: gold}}}}`,
		`{}`, `{spec: {classSelector: {}}}`, `{spec: {classSelector: {matchLabels: {tier: gold, env: ""}}}}`,
		`{spec: {classSelector: {matchExpressions: [{key: a, operator: NotIn, values: [x, "v"]}, {key: b, operator: Exists}]}}}`,
		`{metadata: {annotations: {classbind.io/class-selector: "cores>4,!spot,zone in (a,b)"}}}`,
	} {
		in := reader.Read("team", "db", decode(t, text))
		require.Empty(t, in.Problems)
		require.NotNil(t, in.Object)
		got, err := reader.Ask(in).Claim("team", "db")
		require.NoError(t, err)
		require.NotNil(t, got.Object)
		assert.Equal(t, describe(in.Claim), describe(got), text)
		for f, value := range reflect.ValueOf(got).Fields() {
			if !value.IsZero() {
				kept[f.Name] = true
			}
		}
	}
	for f := range reflect.TypeFor[Claim]().Fields() {
		assert.True(t, identity[f.Name] || kept[f.Name], "We should keep %s in the Ask.", f.Name)
	}
}

func describe(c Claim) any {
	s := c.Selector
	c.Selector, c.Object = nil, nil
	if s == nil {
		return c
	}
	return [...]any{c, s.String()}
}

// TestAskKeepsFields has expressions see the same of a claim that waits as of one that is created.
func TestAskKeepsFields(t *testing.T) {
	reader := readerOf(spec(`{classes: {fits: [{name: "All", expression: "[class.a, claim.spec.size, claim.spec.more.a, claim.metadata.labels].size() > 0"}]}}`))
	for text, want := range map[string]string{
		`{}`: `{}`,
		`{"spec":{"other":1},"metadata":{"name":"db","uid":"1"}}`:             `{"metadata":{},"spec":{}}`,
		`{"spec":{"size":null,"more":{"b":1}}}`:                               `{"spec":{"more":{},"size":null}}`,
		`{"spec":{"size":1,"more":5}}`:                                        `{"spec":{"more":5,"size":1}}`,
		`{"spec":{"more":null}}`:                                              `{"spec":{"more":null}}`,
		`{"spec":{"more":[{"a":1}]}}`:                                         `{"spec":{"more":[]}}`,
		`{"spec":{"size":1.0,"more":{"a":[1e300,-2.50,true,{}]}}}`:            `{"spec":{"more":{"a":[1e+300,-2.5,true,{}]},"size":1.0}}`,
		`{"spec":{"size":9007199254740993}}`:                                  `{"spec":{"size":9007199254740993}}`,
		`{"metadata":{"labels":{"b":"<é\u0022","a":"="}},"spec":{}}`:          `{"metadata":{"labels":{"a":"=","b":"<é\""}},"spec":{}}`,
		`{"spec":{"size":2,"classSelector":{"matchLabels":{"tier":"gold"}}}}`: `{"spec":{"size":2}}=tier=gold`,
	} {
		object, err := reader.DecodeValid([]byte(text))
		require.NoError(t, err)
		in := reader.Read("team", "db", object)
		require.Empty(t, in.Problems)
		ask := reader.Ask(in)
		assert.Equal(t, Ask(want), ask, text)
		got, err := ask.Claim("team", "db")
		require.NoError(t, err)
		assert.Equal(t, ask, reader.Ask(Intake{Claim: got}), "We should read what we wrote.")
	}
	assert.NotEqual(t, reader.Ask(reader.Read("", "", map[string]any{"spec": map[string]any{"size": 1.0}})),
		reader.Ask(reader.Read("", "", map[string]any{"spec": map[string]any{"size": int64(1)}})), "We should keep numbers apart that expressions keep apart.")
}

// TestDeepFieldsAreTooLong has a field refused that would lose a part.
func TestDeepFieldsAreTooLong(t *testing.T) {
	reader := readerOf(spec(`{classes: {fits: [{name: "All", expression: "has(claim.spec.more)"}]}}`))
	for depth, problems := range map[int]int{fields.MaxExpressionDepth - 1: 0, fields.MaxExpressionDepth: 1} {
		object, err := reader.DecodeValid([]byte(`{"spec":{"more":` + strings.Repeat(`{"a":`, depth) + `1` + strings.Repeat(`}`, depth) + `}}`))
		require.NoError(t, err)
		in := reader.Read("team", "db", object)
		assert.Len(t, in.Problems, problems, "%d levels", depth)
		assert.NotContains(t, reader.Ask(in).Problem(), "selector.", "We should not show our types.")
	}
}

func TestReads(t *testing.T) {
	k := selectortest.ClaimKind(spec(`{claims: {resource: claims.example.org}}`))
	claims := func(group, version, resource string) metav1.GroupVersionResource {
		return metav1.GroupVersionResource{Group: group, Version: version, Resource: resource}
	}
	unpinned := NewReader(k, rules.NewForClaims(k))
	k.Status.Version = "v1"
	assert.True(t, unpinned.Reads(claims("example.org", "v2", "claims")), "We should read every version until one is known, and act on no status.")
	assert.False(t, unpinned.Reads(claims("example.org", "v2", "others")))
	assert.False(t, unpinned.Reads(claims("example.net", "v2", "claims")))
	k.Spec.Claims.Version = "v2"
	pinned := NewReader(k, rules.NewForClaims(k))
	assert.True(t, pinned.Reads(claims("example.org", "v2", "claims")))
	assert.False(t, pinned.Reads(claims("example.org", "v1", "claims")), "We should read the version of the spec alone.")
}

// What the tests of claims share with those of the engine.
var decode, spec = selectortest.Decode, selectortest.Spec

type fieldFailed struct {
	Field string
	Type  field.ErrorType
}

func failed(errs field.ErrorList) (all []fieldFailed) {
	for _, err := range errs {
		all = append(all, fieldFailed{err.Field, err.Type})
	}
	return all
}

// readerOf claims whose registration differs from the CRD's defaults.
func readerOf(changes ...func(*v1beta1.ClaimKindSpec)) *Reader {
	k := selectortest.ClaimKind(changes...)
	return NewReader(k, rules.NewForClaims(k))
}
