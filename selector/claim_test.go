package selector

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
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
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/fields"
	"github.com/classbind/classbind/selector/inventory"
)

// fieldFailed is what of a field's error is for programs.
type fieldFailed struct {
	Field string          `json:"field"`
	Type  field.ErrorType `json:"type"`
}

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
		"ClassReferenceIsAnEmptyString": {reason: "We should take an empty string for set: a claim that wants no class says so with it", claim: `{spec: {classRef: ""}}`, selector: "nil", settled: "spec.classRef"},
		"ClassReferenceIsAnEmptyObject": {reason: "We should take an empty object for none", claim: `{spec: {classRef: {}}}`, selector: "nil"},
		"SkipIfSetIsFalse":              {reason: "We should take any value but null for set", claim: `{spec: {resourceRef: false}}`, selector: "nil", settled: "spec.resourceRef"},
		"SettledWithMalformedSelector":  {reason: "We should not judge the selector of a claim that is not ours to bind", claim: `{spec: {classRef: {name: gold}, classSelector: gold}}`, selector: "nil", settled: "spec.classRef"},
		"OperatorUnknown":               {reason: "We should name the operator", claim: `{spec: {classSelector: {matchExpressions: [{key: a, operator: Exists}, {key: tier, operator: Foo}]}}}`, errs: one("spec.classSelector.matchExpressions[1].operator", invalid), message: "Foo"},
		"InWithoutValues":               {reason: "We should ask for the values", claim: `{spec: {classSelector: {matchExpressions: [{key: tier, operator: In}]}}}`, errs: one("spec.classSelector.matchExpressions[0].values", required)},
		"ExistsWithValues":              {reason: "We should not pass over values that the author meant", claim: `{spec: {classSelector: {matchExpressions: [{key: tier, operator: Exists, values: [gold]}]}}}`, errs: one("spec.classSelector.matchExpressions[0].values", forbidden)},

		"ExpressionWithInvalidValue": {
			reason: "We should name the value that no label can have", claim: `{spec: {classSelector: {matchExpressions: [{key: tier, operator: In, values: [gold, "not a label"]}]}}}`,
			errs: one("spec.classSelector.matchExpressions[0].values[1]", invalid), message: "not a label",
		},
		"SeveralErrors": {
			reason: "We should name all of them at once", claim: `{spec: {classSelector: {matchExpressions: [{key: a, operator: Foo}, {key: b, operator: In}]}}}`,
			errs: []fieldFailed{{"spec.classSelector.matchExpressions[0].operator", invalid}, {"spec.classSelector.matchExpressions[1].values", required}},
		},
		"UnknownField": {reason: "We should not pass over a field: the selector would be wider than was meant", claim: `{spec: {classSelector: {matchLabel: {tier: gold}}}}`, errs: one("spec.classSelector", invalid), message: `unknown field "matchLabel"`},

		"MatchLabelsHasANumber":        {reason: "We should refuse what no label can be, not convert it", claim: `{spec: {classSelector: {matchLabels: {cores: 8}}}}`, errs: one("spec.classSelector.matchLabels[cores]", wrongType), message: "must be a string"},
		"MatchLabelsHasAnInvalidValue": {reason: "We should name the labels", claim: `{spec: {classSelector: {matchLabels: {tier: "-gold-"}}}}`, errs: one("spec.classSelector.matchLabels", invalid), message: "-gold-"},
		"ValueIsANumber": {
			reason: "We should refuse what no label can be, not convert it", claim: `{spec: {classSelector: {matchExpressions: [{key: tier, operator: In, values: [gold, 8]}]}}}`,
			errs: one("spec.classSelector.matchExpressions[0].values[1]", wrongType), message: "must be a string",
		},
		"SelectorIsAString": {reason: "We should not take the annotation's syntax in the field", claim: `{spec: {classSelector: tier=gold}}`, errs: one("spec.classSelector", wrongType)},
		"SpecIsAString":     {reason: "We should name the field that is no object, not the one that cannot be in it", claim: `{spec: gold}`, errs: one("spec", wrongType)},
		"Annotation":        {reason: "We should read the annotation as kubectl reads its --selector", claim: `{metadata: {annotations: {classbind.io/class-selector: "tier=gold, region in (us,eu), !beta, cores>4"}}}`, selector: "!beta,cores>4,region in (eu,us),tier=gold"},
		"AnnotationIsEmpty": {
			reason: "We should ask for the selector, not take a template's unset value for that of everything", claim: `{metadata: {annotations: {classbind.io/class-selector: ""}}}`,
			errs: []fieldFailed{{annotated, required}}, message: "leave the annotation out if the claim has none",
		},

		"AnnotationAndNullField":    {reason: "We should take null for absent", claim: `{spec: {classSelector: null}, metadata: {annotations: {classbind.io/class-selector: tier=gold}}}`, selector: "tier=gold"},
		"AnnotationAndField":        {reason: "We should not guess which of two is meant", claim: `{spec: {classSelector: {}}, metadata: {annotations: {classbind.io/class-selector: tier=gold}}}`, errs: []fieldFailed{{annotated, forbidden}}, message: "spec.classSelector"},
		"AnnotationIsMalformed":     {reason: "We should name the annotation", claim: `{metadata: {annotations: {classbind.io/class-selector: "tier in"}}}`, errs: []fieldFailed{{annotated, invalid}}, message: "tier in"},
		"AnnotationHasAnInvalidKey": {reason: "We should name the part that is wrong, rather than <nil>", claim: `{metadata: {annotations: {classbind.io/class-selector: "-tier=gold"}}}`, errs: []fieldFailed{{annotated, invalid}}, message: `selector: Invalid value: "-tier"`},
		"AnnotationHasNUL":          {reason: "We should not pass over what follows it, for the selector would be a wider one", claim: `{metadata: {annotations: {classbind.io/class-selector: "tier=gold \0,region=eu"}}}`, errs: []fieldFailed{{annotated, invalid}}, message: "at byte 10"},
		"AnnotationIsANumber":       {reason: "We should refuse what no annotation can be", claim: `{metadata: {annotations: {classbind.io/class-selector: 3}}}`, errs: []fieldFailed{{annotated, wrongType}}},
		"AnnotationsIsAList":        {reason: "We should name the field that is no object", claim: `{metadata: {annotations: [classbind.io/class-selector]}}`, errs: one("metadata.annotations", wrongType)},
	}
	kind := NewClaimKind(postgres())
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := kind.Reader.Read("team", "db", decode(t, tc.claim))
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

// postgres is a ClaimKind as the API server would have filled it in.
func postgres() *v1beta1.ClaimKind {
	return &v1beta1.ClaimKind{
		ObjectMeta: metav1.ObjectMeta{Name: "postgresqlinstances.database.crossplane.io"},
		Spec:       crossplaneClaimKind(),
	}
}

// crossplaneClaimKind is the CRD's defaults.
func crossplaneClaimKind() v1beta1.ClaimKindSpec {
	return v1beta1.ClaimKindSpec{
		Claims:        v1beta1.Claims{SkipIfSet: []v1beta1.Place{{Path: ".spec.resourceRef"}}},
		Reference:     v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.classRef"}, Form: v1beta1.ObjectReference},
		Selector:      v1beta1.ClassSelector{Path: ".spec.classSelector"},
		Choice:        v1beta1.Choice{Strategy: v1beta1.WeightedRandom, Seed: v1beta1.SeedClaim},
		WhenUnmatched: v1beta1.Admit,
	}
}

func failed(errs field.ErrorList) []fieldFailed {
	var all []fieldFailed
	for _, err := range errs {
		all = append(all, fieldFailed{err.Field, err.Type})
	}
	return all
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
		"claim.?spec.?a.?b.orValue('none') == 'none'", "claim.spec.a.exists(k, k == 'b')", "size(claim.spec.a) > 0", "claim.spec.a.b.b == 1 || claim.metadata.labels.b == '1'",
		"has(claim.metadata.labels.b)",
	} {
		registered := postgres()
		registered.Spec.Claims.When = text
		kind := NewClaimKind(registered)
		require.Nil(t, NewClaimKind(registered).fault, text)
		bindWhen := kind.Rules.BindWhen
		said := map[string]bool{}
		for _, raw := range claims {
			var whole map[string]any
			require.NoError(t, json.Unmarshal([]byte(raw), &whole))
			read, err := kind.Reader.DecodeValid([]byte(raw))
			require.NoError(t, err)
			want, wantErr := bindWhen.Bool(&expression.Input{Claim: whole}, &expression.Budget{Left: v1beta1.MaxExpressionCost})
			got, gotErr := bindWhen.Bool(&expression.Input{Claim: read}, &expression.Budget{Left: v1beta1.MaxExpressionCost})
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
	other := postgres()
	other.Spec.Reference = v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.template.class"}, Form: v1beta1.TypedLocalObjectReference}
	other.Spec.Selector.Path = ".selector"
	other.Spec.Claims.SkipIfSet = []v1beta1.Place{{Path: ".spec.source.ref"}, {Path: ".spec.resourceRef"}, {Path: ".spec.source"}}
	kinds := []*ClaimKind{
		NewClaimKind(postgres()), NewClaimKind(other), kindOf(byLabel), kindOf(byAnnotation), kindOf(byName), kindOf(byObject), kindOf(belowTopology),
		kindOf(func(s *v1beta1.ClaimKindSpec) {
			s.Selector.WhenAbsent, s.Selector.Annotation = v1beta1.NoSelectorLeaveAlone, "example.org/class"
			s.Claims.SkipIfSet = []v1beta1.Place{{Annotation: ingressClass}, {Label: queueLabel}}
		}),
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, k := range kinds {
			got, err := k.Reader.DecodeValid(raw)
			if err != nil || !isValid(raw) {
				continue
			}
			var whole map[string]any
			if err := json.Unmarshal(raw, &whole); err != nil {
				require.ErrorContains(t, err, "cannot unmarshal number", "We should not read what is no JSON.")
				continue // The error is in a part that we do not read.
			}
			assert.Equal(t, k.Reader.Reference.HasReference(whole), k.Reader.Reference.HasReference(got))
			claim, want := k.Reader.Read("team", "db", got), k.Reader.Read("team", "db", whole)
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

// isValid reports whether the decoder of reviews lets such a claim through.
func isValid(raw []byte) bool { return jsontext.Value(raw).IsValid() }

// A field that a claim repeats is made once.
func TestRepetitionsAreMadeOnce(t *testing.T) {
	for name, one := range map[string]string{
		"Objects":   `"spec":{"classRef":{"name":1}},"spec":1`,
		"Selectors": `"spec":{"classSelector":{"matchExpressions":[{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}]}}`,
		"Names":     `"\u0061":0`,
	} {
		raw := []byte(`{` + one + string(bytes.Repeat([]byte(","+one), 10_000)) + `}`)
		kind := NewClaimKind(postgres())
		_, err := kind.Reader.DecodeValid(raw)
		require.NoError(t, err)
		allocs := testing.AllocsPerRun(1, func() { _, _ = kind.Reader.DecodeValid(raw) })
		assert.Less(t, allocs, 100.0, "We should allocate little for %s.", name)
	}
}

// TestOptional has claims of kinds that ask for less than a class for each.
func TestOptional(t *testing.T) {
	const required = `{type: object, properties: {spec: {type: object, properties: {ref: {type: object, required: [name, major], properties: {name: {type: string}, major: {type: integer}}}}}}}`
	optional := spec(`{selector: {whenAbsent: DefaultIfAny}, whenUnmatched: Deny}`)
	company := spec(`{reference: {path: ".spec.ref", form: LocalObjectReference}, selector: {whenAbsent: Any}}`)
	begun := func(s *v1beta1.ClaimKindSpec) {
		company(s)
		s.Reference.WhenAbsent = v1beta1.LeaveAbsentAlone
	}
	for name, tc := range map[string]struct {
		reason    string
		kind      func(*v1beta1.ClaimKindSpec)
		claim     string
		leftAlone string
		denied    bool
		warning   string
		problem   string
		class     string
	}{
		"Unneeded":     {reason: "We should not warn that a claim gets no class that it does without.", kind: optional, claim: `{spec: {}}`},
		"Selected":     {reason: "We should refuse a claim that asks for a class.", kind: optional, claim: `{spec: {classSelector: {matchLabels: {a: b}}}}`, denied: true, warning: "matches the selector"},
		"Begun":        {reason: "We should refuse a claim that says of which kind its class is.", kind: optional, claim: `{spec: {classRef: {kind: B}}}`, denied: true, warning: "no class is marked default"},
		"Company":      {reason: "We should add the name to what only the author can give.", kind: company, claim: `{spec: {ref: {major: 16}}}`, class: "A/a"},
		"NoCompany":    {reason: "We should refuse a claim that lacks what only its author can give.", kind: company, claim: `{spec: {}}`, problem: "spec.ref.major: Required value: the schema requires it beside the name of a class, and only the author of the claim can give it"},
		"AbsentAlone":  {reason: "We should leave alone a claim without a reference where its kind says so.", kind: begun, claim: `{spec: {}}`, leftAlone: claim.ReferenceAbsent},
		"NullAlone":    {reason: "We should take null for none.", kind: begun, claim: `{spec: {ref: null}}`, leftAlone: claim.ReferenceAbsent},
		"AbsentNeeded": {reason: "We should bind a claim that began its reference.", kind: begun, claim: `{spec: {ref: {}}}`, class: "A/a"},
	} {
		t.Run(name, func(t *testing.T) {
			kind := kindOf(tc.kind)
			if kind.Reader.Reference.Path.String() == "spec.ref" {
				kind.SetPaths(CheckPaths(kind, schemaOfCRD(t, required)))
			}
			classes := newKind("as.example.org", "A")
			d, err := new(Decider).Decide(t.Context(), NewView(kind, []*inventory.Classes{inventory.NewClasses(classes, []*inventory.Class{{Kind: classes, Name: "a", Weight: 1}})}),
				kind.Reader.Read("team", "db", decode(t, tc.claim)), Mode{})
			require.NoError(t, err, tc.reason)
			assert.Equal(t, tc.leftAlone, d.Claim.LeftAlone, tc.reason)
			assert.Equal(t, tc.denied, d.Denied(), tc.reason)
			switch {
			case tc.problem != "":
				require.Len(t, d.Claim.Problems, 1, tc.reason)
				assert.Equal(t, tc.problem, d.Claim.Problems[0].Error(), tc.reason)
			case tc.warning != "":
				assert.Contains(t, d.Warning(), tc.warning, tc.reason)
			case tc.leftAlone == "":
				assert.Empty(t, d.Warning(), tc.reason)
			}
			if tc.class == "" {
				assert.Nil(t, d.Class, tc.reason)
			} else {
				assert.Equal(t, tc.class, d.Class.String(), tc.reason)
			}
		})
	}
}

// TestPrecedence has two class kinds whose classes a reference cannot distinguish.
func TestPrecedence(t *testing.T) {
	local, shared := newKind("zlocals.example.org", "Local"), newKind("ashared.example.org", "Shared")
	local.Namespaced = true
	in := func(kind *inventory.ClassKind, namespace, name string) *inventory.Class {
		return &inventory.Class{Kind: kind, Namespace: namespace, Name: name, Weight: 1}
	}
	for name, tc := range map[string]struct {
		reason string
		listed bool
		kinds  []string // the listed ones, if not both
		form   v1beta1.ReferenceForm
		locals []*inventory.Class
		unread []UnreadKind
		want   []string
	}{
		"ByName":        {reason: "We should offer the classes of one kind where nobody says more.", locals: []*inventory.Class{in(local, "team", "b")}, want: []string{"Shared/a"}},
		"Listed":        {reason: "We should offer the classes of all kinds that are listed.", listed: true, locals: []*inventory.Class{in(local, "team", "b")}, want: []string{"Local/team/b", "Shared/a"}},
		"Shadowed":      {reason: "We should not offer a class whose name means another.", listed: true, locals: []*inventory.Class{in(local, "team", "a")}, want: []string{"Local/team/a"}},
		"Elsewhere":     {reason: "We should offer it to claims for which the name means nothing else.", listed: true, locals: []*inventory.Class{in(local, "other", "a")}, want: []string{"Shared/a"}},
		"Unread":        {reason: "We should not offer it while nobody knows what the name means.", listed: true, unread: []UnreadKind{{Name: local.Name}}},
		"NotListed":     {reason: "We should take a kind that is not listed for the last.", listed: true, kinds: []string{local.Name}, unread: []UnreadKind{{Name: local.Name}}},
		"KindNamed":     {reason: "We should not wait for a kind that the reference does not name.", listed: true, form: v1beta1.KindReference, unread: []UnreadKind{{Name: local.Name}}, want: []string{"Shared/a"}},
		"SameKindNamed": {reason: "We should wait for a kind that may have the same Kind in another group.", listed: true, form: v1beta1.KindReference, kinds: []string{"ashared.other.org", shared.Name}, unread: []UnreadKind{{Name: "ashared.other.org"}}},
	} {
		t.Run(name, func(t *testing.T) {
			kind := kindOf(func(s *v1beta1.ClaimKindSpec) {
				s.Reference.Form, s.Selector.WhenAbsent = cmp.Or(tc.form, v1beta1.LocalObjectReference), v1beta1.NoSelectorAny
				s.Classes.Kinds = []v1beta1.ClassKindLink{{Name: local.Name}, {Name: shared.Name}}
				if tc.kinds != nil {
					s.Classes.Kinds = nil
					for _, kind := range tc.kinds {
						s.Classes.Kinds = append(s.Classes.Kinds, v1beta1.ClassKindLink{Name: kind})
					}
				}
				if tc.listed {
					s.Classes.Precedence = v1beta1.PrecedenceListed
				}
			})
			all := []*inventory.Classes{inventory.NewClasses(shared, []*inventory.Class{in(shared, "", "a")})}
			if tc.unread == nil {
				all = append(all, inventory.NewClasses(local, tc.locals))
			}
			view := NewView(kind, all)
			view.Unread = tc.unread
			e, err := new(Decider).Explain(t.Context(), view, kind.Reader.Read("team", "db", decode(t, `{spec: {}}`)))
			require.NoError(t, err)
			var got []string
			for _, c := range e.Candidates {
				got = append(got, c.Class.String())
			}
			assert.ElementsMatch(t, tc.want, got, tc.reason)
			if tc.listed && tc.form == "" {
				named := map[string]any{"spec": map[string]any{"classRef": map[string]any{"name": "a"}}}
				class, _ := kind.Demand.ClassOf(all, "team", named)
				want := in(shared, "", "a").String()
				if name == "Shadowed" {
					want = "Local/team/a"
				}
				assert.Equal(t, want, class.String(), "We should find the class that a name means.")
			}
		})
	}
}

// TestAskKeepsTheClaim keeps late binding, which holds the Ask alone, from losing what a
// claim asks for: also a field of Claim that somebody adds.
func TestAskKeepsTheClaim(t *testing.T) {
	identity := map[string]bool{"Namespace": true, "Name": true, "GenerateName": true, "Request": true, "Requester": true, "Usage": true} // It is not known later.
	kept := map[string]bool{}
	kind := kindOf(withReference(v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.classRef"}, Form: v1beta1.ObjectReference}),
		spec(`{classes: {fits: [{name: "Size", expression: "class.spec.size == claim.spec.size"}]}}`))
	for _, text := range []string{
		`{spec: {classRef: {}}}`, `{spec: {classRef: {kind: "a\"=@", apiVersion: v1}}}`,
		`{spec: {classRef: {kind: A, apiVersion: a/v1, namespace: "b "}, classSelector: {matchLabels: {tier: gold}}}}`,
		`{}`, `{spec: {classSelector: {}}}`, `{spec: {classSelector: {matchLabels: {tier: gold, env: ""}}}}`,
		`{spec: {classSelector: {matchExpressions: [{key: a, operator: NotIn, values: [x, "v"]}, {key: b, operator: Exists}]}}}`,
		`{metadata: {annotations: {classbind.io/class-selector: "cores>4,!spot,zone in (a,b)"}}}`,
	} {
		in := kind.Reader.Read("team", "db", decode(t, text))
		require.Empty(t, in.Problems)
		require.NotNil(t, in.Object)
		got, err := kind.Reader.Ask(in).Claim("team", "db")
		require.NoError(t, err)
		require.NotNil(t, got.Object)
		assert.Equal(t, describe(in.Claim), describe(got), text)
		for f, value := range reflect.ValueOf(got).Fields() {
			if !value.IsZero() {
				kept[f.Name] = true
			}
		}
	}
	for f := range reflect.TypeFor[claim.Claim]().Fields() {
		assert.True(t, identity[f.Name] || kept[f.Name], "We should keep %s in the Ask.", f.Name)
	}
}

func describe(c claim.Claim) any {
	s := c.Selector
	c.Selector, c.Object = nil, nil
	if s == nil {
		return c
	}
	return [...]any{c, s.String()}
}

// TestAskKeepsFields has expressions see the same of a claim that waits as of one that is created.
func TestAskKeepsFields(t *testing.T) {
	kind := kindOf(spec(`{classes: {fits: [{name: "All", expression: "[class.a, claim.spec.size, claim.spec.more.a, claim.metadata.labels].size() > 0"}]}}`))
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
		object, err := kind.Reader.DecodeValid([]byte(text))
		require.NoError(t, err)
		in := kind.Reader.Read("team", "db", object)
		require.Empty(t, in.Problems)
		ask := kind.Reader.Ask(in)
		assert.Equal(t, claim.Ask(want), ask, text)
		got, err := ask.Claim("team", "db")
		require.NoError(t, err)
		assert.Equal(t, ask, kind.Reader.Ask(claim.Intake{Claim: got}), "We should read what we wrote.")
	}
	assert.NotEqual(t, kind.Reader.Ask(kind.Reader.Read("", "", map[string]any{"spec": map[string]any{"size": 1.0}})),
		kind.Reader.Ask(kind.Reader.Read("", "", map[string]any{"spec": map[string]any{"size": int64(1)}})), "We should keep numbers apart that expressions keep apart.")
}

// TestDeepFieldsAreTooLong has a field refused that would lose a part.
func TestDeepFieldsAreTooLong(t *testing.T) {
	kind := kindOf(spec(`{classes: {fits: [{name: "All", expression: "has(claim.spec.more)"}]}}`))
	for depth, problems := range map[int]int{fields.MaxExpressionDepth - 1: 0, fields.MaxExpressionDepth: 1} {
		object, err := kind.Reader.DecodeValid([]byte(`{"spec":{"more":` + strings.Repeat(`{"a":`, depth) + `1` + strings.Repeat(`}`, depth) + `}}`))
		require.NoError(t, err)
		in := kind.Reader.Read("team", "db", object)
		assert.Len(t, in.Problems, problems, "%d levels", depth)
		assert.NotContains(t, kind.Reader.Ask(in).Problem(), "selector.", "We should not show our types.")
	}
}

// TestExpressionsAgreeLater has claims with fields of every sort decided on when they are created, and later from their Ask.
func TestExpressionsAgreeLater(t *testing.T) {
	worlds := map[string]func(*v1beta1.ClaimKindSpec, *v1beta1.ClassKindSpec){
		"Fits":     fits("claim.spec.b >= class.spec.size", "!has(claim.spec.c) || claim.spec.c.size() > 0"),
		"Below":    fits("class.spec.size == 1 || has(claim.spec.c.a) || has(claim.spec.c.name)", "!has(claim.spec.b) || has(claim.spec.b.a)"),
		"Equality": fits("class.spec.size == claim.spec.b"),
		"Score":    specs(`{choice: {strategy: HighestScore, score: "class.spec.price * double(claim.spec.b)"}}`, `{}`),
		"Selector": specs(`{selector: {expression: "has(claim.spec.c) ? 'all=' + string(claim.spec.c) : claim.metadata.labels"}}`, `{}`),
		"Partition": func(s *v1beta1.ClaimKindSpec, k *v1beta1.ClassKindSpec) {
			s.Classes.Partition = &v1beta1.Partition{Claim: "string(claim.spec.c)", Class: "class.spec.tier"}
			k.Default = v1beta1.Source{Expression: "class.spec.size > 0"}
		},
		"BindWhen":  specs(`{claims: {when: "claim.spec.classRef.name == 'a'"}}`, `{}`),
		"ClassKind": specs(`{}`, `{fits: [{name: "Size", expression: "claim.spec.b + 1 > class.spec.size"}]}`),
	}
	values := []string{`null`, `1`, `1.0`, `2`, `2.5`, `1e3`, `9007199254740993`, `"yes"`, `""`, `"é\u0022"`, `true`, `[]`, `[1,1.0]`, `{}`, `{"name":"a"}`}
	r := rand.New(rand.NewPCG(17, 5)) //nolint:gosec // It has to be reproducible.
	fields := func(names ...string) string {
		var all []string
		for _, name := range names {
			if r.IntN(4) > 0 {
				all = append(all, fmt.Sprintf("%q:%s", name, values[r.IntN(len(values))]))
			}
		}
		return "{" + strings.Join(all, ",") + "}"
	}
	for name, change := range worlds {
		t.Run(name, func(t *testing.T) {
			world := newExpressive(change).with("a", map[string]any{"size": int64(1), "price": 0.5, "tier": "yes"}).
				with("b", map[string]any{"size": int64(2), "price": 1.5, "tier": ""}).with("c", map[string]any{"size": 2.5, "price": 1.0, "tier": "1"})
			view, classes := world.view(), map[string]int{}
			require.Nil(t, view.Fault)
			for range 1500 {
				spec := fields("b", "c", "classRef")
				if r.IntN(3) > 0 {
					spec = strings.Replace(spec, "{", `{"classSelector":{"matchLabels":{"all":"yes"}},`, 1)
					spec = strings.Replace(spec, ",}", "}", 1)
				}
				text := fmt.Sprintf(`{"metadata":{"name":"db","labels":{"all":%q}},"spec":%s}`, []string{"yes", "no"}[r.IntN(2)], spec)
				object, err := view.Kind.Reader.DecodeValid([]byte(text))
				require.NoError(t, err, text)
				in := view.Kind.Reader.Read("team", "db", object)
				if in.LeftAlone != "" || len(in.Problems) > 0 {
					continue
				}
				ask := view.Kind.Reader.Ask(in)
				now := decided(t, new(Decider), view, in, Mode{})
				waiting, err := ask.Claim("team", "db")
				require.NoError(t, err, text)
				later := decided(t, new(Decider), view, claim.Intake{Claim: waiting, Parents: in.Parents}, Mode{Stored: true})
				describe := func(d *Decision) string {
					return fmt.Sprint(d.Class, d.Candidates, d.DroppedText(), d.Reason(), d.Claim.Problems, d.Given())
				}
				classes[fmt.Sprint(now.Class)]++
				if strings.Contains(describe(&now), "is a list") && strings.Contains(describe(&later), "wrong type") {
					continue // Of a list, later says the same in other words.
				}
				if !assert.Equal(t, describe(&now), describe(&later), "%s: %s", text, ask) {
					return
				}
			}
			assert.Greater(t, len(classes), 1, "We should try claims that get different classes, or none: %v", classes)
		})
	}
}
