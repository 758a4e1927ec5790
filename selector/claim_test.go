package selector

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
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
	type want struct {
		selector string // "nil" for none
		settled  string
		errs     []fieldFailed
		message  string // within the errors
	}
	cases := map[string]struct {
		reason string
		claim  string
		want   want
	}{
		"NoSpec": {
			reason: "We should take a claim without a spec for one without an opinion",
			claim:  `{metadata: {name: db}}`,
			want:   want{selector: "nil"},
		},
		"SpecIsNull": {
			reason: "We should take null for absent",
			claim:  `{spec: null, metadata: null}`,
			want:   want{selector: "nil"},
		},
		"SelectorIsNull": {
			reason: "We should take null for absent",
			claim:  `{spec: {classSelector: null, classRef: null, resourceRef: null}, metadata: {annotations: null}}`,
			want:   want{selector: "nil"},
		},
		"EmptySelector": {
			reason: "We should tell an empty selector, which selects everything, from none",
			claim:  `{spec: {classSelector: {}}}`,
			want:   want{selector: ""},
		},
		"EmptyParts": {
			reason: "We should take null parts of a selector for absent ones, as the API server does",
			claim:  `{spec: {classSelector: {matchLabels: null, matchExpressions: []}}}`,
			want:   want{selector: ""},
		},
		"LabelsAndExpressions": {
			reason: "We should require labels and expressions",
			claim: `{spec: {classSelector: {matchLabels: {tier: gold}, matchExpressions: [
				{key: region, operator: In, values: [us, eu]}, {key: engine, operator: NotIn, values: [mysql]},
				{key: ssd, operator: Exists}, {key: beta, operator: DoesNotExist, values: []}]}}}`,
			want: want{selector: "!beta,engine notin (mysql),region in (eu,us),ssd,tier=gold"},
		},
		"ClassReferenceIsAnEmptyString": {
			reason: "We should take an empty string for set: a claim that wants no class says so with it",
			claim:  `{spec: {classRef: ""}}`,
			want:   want{selector: "nil", settled: "spec.classRef"},
		},
		"ClassReferenceIsAnEmptyObject": {
			reason: "We should take an empty object for set",
			claim:  `{spec: {classRef: {}}}`,
			want:   want{selector: "nil", settled: "spec.classRef"},
		},
		"SkipIfSetIsFalse": {
			reason: "We should take any value but null for set",
			claim:  `{spec: {resourceRef: false}}`,
			want:   want{selector: "nil", settled: "spec.resourceRef"},
		},
		"SettledWithMalformedSelector": {
			reason: "We should not judge the selector of a claim that is not ours to bind",
			claim:  `{spec: {classRef: {name: gold}, classSelector: gold}}`,
			want:   want{selector: "nil", settled: "spec.classRef"},
		},
		"OperatorUnknown": {
			reason: "We should name the operator",
			claim:  `{spec: {classSelector: {matchExpressions: [{key: a, operator: Exists}, {key: tier, operator: Foo}]}}}`,
			want:   want{errs: []fieldFailed{{"spec.classSelector.matchExpressions[1].operator", invalid}}, message: "Foo"},
		},
		"OperatorInLowerCase": {
			reason: "We should refuse the operators of the other syntax",
			claim:  `{spec: {classSelector: {matchExpressions: [{key: tier, operator: in, values: [gold]}]}}}`,
			want:   want{errs: []fieldFailed{{"spec.classSelector.matchExpressions[0].operator", invalid}}},
		},
		"OperatorAbsent": {
			reason: "We should ask for the operator",
			claim:  `{spec: {classSelector: {matchExpressions: [{key: tier, values: [gold]}]}}}`,
			want:   want{errs: []fieldFailed{{"spec.classSelector.matchExpressions[0].operator", invalid}}},
		},
		"InWithoutValues": {
			reason: "We should ask for the values",
			claim:  `{spec: {classSelector: {matchExpressions: [{key: tier, operator: In}]}}}`,
			want:   want{errs: []fieldFailed{{"spec.classSelector.matchExpressions[0].values", required}}},
		},
		"NotInWithEmptyValues": {
			reason: "We should ask for the values",
			claim:  `{spec: {classSelector: {matchExpressions: [{key: tier, operator: NotIn, values: []}]}}}`,
			want:   want{errs: []fieldFailed{{"spec.classSelector.matchExpressions[0].values", required}}},
		},
		"ExistsWithValues": {
			reason: "We should not pass over values that the author meant",
			claim:  `{spec: {classSelector: {matchExpressions: [{key: tier, operator: Exists, values: [gold]}]}}}`,
			want:   want{errs: []fieldFailed{{"spec.classSelector.matchExpressions[0].values", forbidden}}},
		},
		"DoesNotExistWithValues": {
			reason: "We should not pass over values that the author meant",
			claim:  `{spec: {classSelector: {matchExpressions: [{key: tier, operator: DoesNotExist, values: [gold]}]}}}`,
			want:   want{errs: []fieldFailed{{"spec.classSelector.matchExpressions[0].values", forbidden}}},
		},
		"ExpressionWithoutKey": {
			reason: "We should ask for the key",
			claim:  `{spec: {classSelector: {matchExpressions: [{operator: Exists}]}}}`,
			want: want{errs: []fieldFailed{ // One that it is empty, one that its form is wrong.
				{"spec.classSelector.matchExpressions[0].key", invalid},
				{"spec.classSelector.matchExpressions[0].key", invalid},
			}},
		},
		"ExpressionWithInvalidValue": {
			reason: "We should name the value that no label can have",
			claim:  `{spec: {classSelector: {matchExpressions: [{key: tier, operator: In, values: [gold, "not a label"]}]}}}`,
			want:   want{errs: []fieldFailed{{"spec.classSelector.matchExpressions[0].values[1]", invalid}}, message: "not a label"},
		},
		"SeveralErrors": {
			reason: "We should name all of them at once",
			claim:  `{spec: {classSelector: {matchExpressions: [{key: a, operator: Foo}, {key: b, operator: In}]}}}`,
			want: want{errs: []fieldFailed{
				{"spec.classSelector.matchExpressions[0].operator", invalid},
				{"spec.classSelector.matchExpressions[1].values", required},
			}},
		},
		"UnknownField": {
			reason: "We should not pass over a field: the selector would be wider than was meant",
			claim:  `{spec: {classSelector: {matchLabel: {tier: gold}}}}`,
			want:   want{errs: []fieldFailed{{"spec.classSelector", invalid}}, message: `unknown field "matchLabel"`},
		},
		"UnknownFieldInAnotherCase": {
			reason: "We should read names as the API server does, by their case",
			claim:  `{spec: {classSelector: {matchlabels: {tier: gold}}}}`,
			want:   want{errs: []fieldFailed{{"spec.classSelector", invalid}}, message: `unknown field "matchlabels"`},
		},
		"UnknownFieldInExpression": {
			reason: "We should say where the unknown field is",
			claim:  `{spec: {classSelector: {matchExpressions: [{key: tier, operator: In, values: [gold], value: x}]}}}`,
			want:   want{errs: []fieldFailed{{"spec.classSelector.matchExpressions[0]", invalid}}, message: `unknown field "value"`},
		},
		"MatchLabelsIsAList": {
			reason: "We should say which field has the wrong type",
			claim:  `{spec: {classSelector: {matchLabels: [gold]}}}`,
			want:   want{errs: []fieldFailed{{"spec.classSelector.matchLabels", wrongType}}, message: "must be an object"},
		},
		"MatchLabelsHasANumber": {
			reason: "We should refuse what no label can be, not convert it",
			claim:  `{spec: {classSelector: {matchLabels: {cores: 8}}}}`,
			want:   want{errs: []fieldFailed{{"spec.classSelector.matchLabels[cores]", wrongType}}, message: "must be a string"},
		},
		"MatchLabelsHasAnInvalidKey": {
			reason: "We should name the labels",
			claim:  `{spec: {classSelector: {matchLabels: {"not a key": gold}}}}`,
			want:   want{errs: []fieldFailed{{"spec.classSelector.matchLabels", invalid}}, message: "not a key"},
		},
		"MatchLabelsHasAnInvalidValue": {
			reason: "We should name the labels",
			claim:  `{spec: {classSelector: {matchLabels: {tier: "-gold-"}}}}`,
			want:   want{errs: []fieldFailed{{"spec.classSelector.matchLabels", invalid}}, message: "-gold-"},
		},
		"MatchExpressionsIsAnObject": {
			reason: "We should say which field has the wrong type",
			claim:  `{spec: {classSelector: {matchExpressions: {key: tier, operator: Exists}}}}`,
			want:   want{errs: []fieldFailed{{"spec.classSelector.matchExpressions", wrongType}}, message: "must be a list"},
		},
		"ExpressionIsAString": {
			reason: "We should say which expression has the wrong type",
			claim:  `{spec: {classSelector: {matchExpressions: [{key: tier, operator: Exists}, tier]}}}`,
			want:   want{errs: []fieldFailed{{"spec.classSelector.matchExpressions[1]", wrongType}}, message: "must be an object"},
		},
		"KeyIsANumber": {
			reason: "We should say which field has the wrong type",
			claim:  `{spec: {classSelector: {matchExpressions: [{key: 8, operator: Exists}]}}}`,
			want:   want{errs: []fieldFailed{{"spec.classSelector.matchExpressions[0].key", wrongType}}, message: "must be a string"},
		},
		"OperatorIsABoolean": {
			reason: "We should say which field has the wrong type",
			claim:  `{spec: {classSelector: {matchExpressions: [{key: tier, operator: true}]}}}`,
			want:   want{errs: []fieldFailed{{"spec.classSelector.matchExpressions[0].operator", wrongType}}, message: "must be a string"},
		},
		"ValuesIsAString": {
			reason: "We should say which field has the wrong type",
			claim:  `{spec: {classSelector: {matchExpressions: [{key: tier, operator: In, values: gold}]}}}`,
			want:   want{errs: []fieldFailed{{"spec.classSelector.matchExpressions[0].values", wrongType}}, message: "must be a list"},
		},
		"ValueIsANumber": {
			reason: "We should refuse what no label can be, not convert it",
			claim:  `{spec: {classSelector: {matchExpressions: [{key: tier, operator: In, values: [gold, 8]}]}}}`,
			want:   want{errs: []fieldFailed{{"spec.classSelector.matchExpressions[0].values[1]", wrongType}}, message: "must be a string"},
		},
		"SelectorIsAString": {
			reason: "We should not take the annotation's syntax in the field",
			claim:  `{spec: {classSelector: tier=gold}}`,
			want:   want{errs: []fieldFailed{{"spec.classSelector", wrongType}}},
		},
		"SelectorIsAList": {
			reason: "We should ask for an object",
			claim:  `{spec: {classSelector: [{matchLabels: {tier: gold}}]}}`,
			want:   want{errs: []fieldFailed{{"spec.classSelector", wrongType}}},
		},
		"SelectorIsANumber": {
			reason: "We should ask for an object",
			claim:  `{spec: {classSelector: 3}}`,
			want:   want{errs: []fieldFailed{{"spec.classSelector", wrongType}}},
		},
		"SpecIsAString": {
			reason: "We should name the field that is no object, not the one that cannot be in it",
			claim:  `{spec: gold}`,
			want:   want{errs: []fieldFailed{{"spec", wrongType}}},
		},
		"SpecIsAList": {
			reason: "We should name the field that is no object, not the one that cannot be in it",
			claim:  `{spec: []}`,
			want:   want{errs: []fieldFailed{{"spec", wrongType}}},
		},
		"Annotation": {
			reason: "We should read the annotation as kubectl reads its --selector",
			claim:  `{metadata: {annotations: {classbind.io/class-selector: "tier=gold, region in (us,eu), !beta, cores>4"}}}`,
			want:   want{selector: "!beta,cores>4,region in (eu,us),tier=gold"},
		},
		"AnnotationIsEmpty": {
			reason: "We should ask for the selector, not take a template's unset value for that of everything",
			claim:  `{metadata: {annotations: {classbind.io/class-selector: ""}}}`,
			want:   want{errs: []fieldFailed{{annotated, required}}, message: "leave the annotation out if the claim has none"},
		},
		"AnnotationIsBlank": {
			reason: "We should not take blanks for the selector of everything either",
			claim:  `{metadata: {annotations: {classbind.io/class-selector: " \t\n"}}}`,
			want:   want{errs: []fieldFailed{{annotated, required}}, message: "leave the annotation out if the claim has none"},
		},
		"AnnotationAndNullField": {
			reason: "We should take null for absent",
			claim:  `{spec: {classSelector: null}, metadata: {annotations: {classbind.io/class-selector: tier=gold}}}`,
			want:   want{selector: "tier=gold"},
		},
		"AnnotationAndField": {
			reason: "We should not guess which of two is meant",
			claim:  `{spec: {classSelector: {}}, metadata: {annotations: {classbind.io/class-selector: tier=gold}}}`,
			want:   want{errs: []fieldFailed{{annotated, forbidden}}, message: "spec.classSelector"},
		},
		"AnnotationIsMalformed": {
			reason: "We should name the annotation",
			claim:  `{metadata: {annotations: {classbind.io/class-selector: "tier in"}}}`,
			want:   want{errs: []fieldFailed{{annotated, invalid}}, message: "tier in"},
		},
		"AnnotationHasAnInvalidValue": {
			reason: "We should name the annotation",
			claim:  `{metadata: {annotations: {classbind.io/class-selector: tier=-gold-}}}`,
			want:   want{errs: []fieldFailed{{annotated, invalid}}, message: "-gold-"},
		},
		"AnnotationHasAnInvalidKey": {
			reason: "We should name the part that is wrong, rather than <nil>",
			claim:  `{metadata: {annotations: {classbind.io/class-selector: "-tier=gold"}}}`,
			want:   want{errs: []fieldFailed{{annotated, invalid}}, message: `selector: Invalid value: "-tier"`},
		},
		"AnnotationHasNUL": {
			reason: "We should not pass over what follows it, for the selector would be a wider one",
			claim:  `{metadata: {annotations: {classbind.io/class-selector: "tier=gold \0,region=eu"}}}`,
			want:   want{errs: []fieldFailed{{annotated, invalid}}, message: "at byte 10"},
		},
		"AnnotationIsANumber": {
			reason: "We should refuse what no annotation can be",
			claim:  `{metadata: {annotations: {classbind.io/class-selector: 3}}}`,
			want:   want{errs: []fieldFailed{{annotated, wrongType}}},
		},
		"AnnotationsIsAList": {
			reason: "We should name the field that is no object",
			claim:  `{metadata: {annotations: [classbind.io/class-selector]}}`,
			want:   want{errs: []fieldFailed{{"metadata.annotations", wrongType}}},
		},
	}
	kind := NewClaimKind(postgres())
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := kind.Read("team", "db", decode(t, tc.claim))
			assert.Equal(t, tc.want.errs, failed(got.Problems), tc.reason)
			if len(tc.want.errs) > 0 {
				assert.Nil(t, got.Selector, tc.reason)
				require.ErrorContains(t, got.Problems.ToAggregate(), tc.want.message, tc.reason)
				return
			}
			text := "nil"
			if got.Selector != nil {
				text = got.Selector.String()
			}
			assert.Equal(t, tc.want.selector, text, tc.reason)
			assert.Equal(t, tc.want.settled, got.SettledBy, tc.reason)
			assert.Equal(t, "team/db", got.Namespace+"/"+got.Name, tc.reason)
		})
	}
}

func TestReadOtherPaths(t *testing.T) {
	k := postgres()
	k.Spec.Reference.Path, k.Spec.Selector.Path = ".spec.template.class", ".selector"
	k.Spec.Claims.SkipIfSet = []v1beta1.Place{{Path: ".spec.source.ref"}, {Path: ".spec.resourceRef"}}
	cases := map[string]struct {
		reason, claim     string
		selector, settled string
		errs              []fieldFailed
	}{
		"Selector": {
			reason: "We should read the selector where the kind says", claim: `{selector: {matchLabels: {tier: gold}}}`, selector: "tier=gold",
		},
		"Settled": {
			reason: "We should name the path that is set", claim: `{spec: {source: {ref: x}}}`, settled: "spec.source.ref",
		},
		"ParentIsNull": {
			reason: "We should take null for absent on the way to a field", claim: `{spec: {source: null, resourceRef: x}}`, settled: "spec.resourceRef",
		},
		"ParentIsNoObject": {
			reason: "We should name the parent that is no object", claim: `{spec: {template: x}}`,
			errs: []fieldFailed{{"spec.template", field.ErrorTypeTypeInvalid}},
		},
		"ParentIsNoObjectInASettledClaim": {
			reason: "We should leave a settled claim alone, whatever else is in it", claim: `{spec: {source: x, resourceRef: y}}`,
			settled: "spec.resourceRef",
		},
		"MalformedSelector": {
			reason: "We should name the field where the kind says", claim: `{selector: {matchExpressions: [{key: a, operator: In}]}}`,
			errs: []fieldFailed{{"selector.matchExpressions[0].values", field.ErrorTypeRequired}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := NewClaimKind(k).Read("", "db", decode(t, tc.claim))
			assert.Equal(t, tc.errs, failed(got.Problems), tc.reason)
			assert.Equal(t, tc.settled, got.SettledBy, tc.reason)
			if tc.selector != "" {
				require.NotNil(t, got.Selector, tc.reason)
				assert.Equal(t, tc.selector, got.Selector.String(), tc.reason)
			}
		})
	}
}

func TestClaimKindRevision(t *testing.T) {
	k := postgres()
	k.UID, k.Generation, k.ResourceVersion = "5e1f", 7, "1000"
	assert.Equal(t, inventory.Revision{UID: "5e1f", Generation: 7}, NewClaimKind(k).Revision, "We should tell from which revision it was compiled")
}

func TestSeed(t *testing.T) {
	const fresh = 42
	cases := map[string]struct {
		reason string
		seed   v1beta1.Seed
		claim  claim.Claim
		fresh  bool
	}{
		"Claim":         {reason: "We should seed with the claim's identity", seed: v1beta1.SeedClaim, claim: claim.Claim{Namespace: "team", Name: "db"}},
		"Request":       {reason: "We should seed afresh where the kind asks for it", seed: v1beta1.SeedRequest, claim: claim.Claim{Namespace: "team", Name: "db"}, fresh: true},
		"GeneratedName": {reason: "We should not give all claims of a namespace that have no name yet one class", seed: v1beta1.SeedClaim, claim: claim.Claim{Namespace: "team"}, fresh: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			k := postgres()
			k.Spec.Choice.Seed = tc.seed
			got := NewClaimKind(k).Seed(tc.claim, fresh)
			assert.Equal(t, tc.fresh, got == fresh, tc.reason)
		})
	}

	seeds := map[uint64]bool{}
	for _, kind := range []string{"as.example.org", "bs.example.org"} {
		for _, c := range []claim.Claim{{Name: "db"}, {Name: "db2"}, {Namespace: "team", Name: "db"}, {Namespace: "other", Name: "db"}} {
			seeds[(&ClaimKind{Demand: inventory.Demand{Reader: &claim.Reader{Name: kind}}}).Seed(c, fresh)] = true
		}
	}
	assert.Len(t, seeds, 8, "We should tell claims apart by kind, namespace and name")
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

// FuzzSelector proves that a selector means what its type, read by the API
// machinery's strict decoder, says, and that none is malformed to one alone.
func FuzzSelector(f *testing.F) {
	for _, text := range []string{
		`{}`, `{"matchLabels":null}`, `{"matchLabels":{"tier":"gold"}}`, `{"matchLabels":{"tier":null}}`, `{"matchLabels":{"-":""}}`, `{"matchLabels":{"a":"-"}}`, `{"matchlabels":{}}`,
		`{"matchExpressions":[{"key":"a","operator":"In","values":["b","c"]},{"key":"d","operator":"NotIn","values":["e"]},{"key":"f","operator":"Exists"},{"key":"g","operator":"DoesNotExist","values":[]}]}`,
		`{"matchExpressions":[{"key":"a","operator":"Exists","values":["b"]}]}`, `{"matchExpressions":[{"key":"a","operator":"In"}]}`, `{"matchExpressions":[null]}`,
		`{"matchExpressions":[{"key":"a","operator":"In","values":[null]}]}`, `{"matchExpressions":[{"key":"a","operator":"Foo"}]}`, `{"matchExpressions":{"key":"a"}}`, `{"a":1}`,
	} {
		f.Add([]byte(text))
	}
	at := field.NewPath("spec")
	f.Fuzz(func(t *testing.T, raw []byte) {
		var object map[string]any
		if json.Unmarshal(raw, &object) != nil {
			return
		}
		raw, err := json.Marshal(object) // No name is there twice.
		require.NoError(t, err)
		want := &metav1.LabelSelector{}
		strict, err := kjson.UnmarshalStrict(raw, want)
		wrong := err != nil || len(strict) > 0 || len(metav1validation.ValidateLabelSelector(want, metav1validation.LabelSelectorValidationOptions{}, at)) > 0
		got, errs := claim.ParseSelector(object, at)
		if len(errs) == 1 && (errs[0].Type == field.ErrorTypeTooMany || errs[0].Type == field.ErrorTypeTooLong) {
			return // The API machinery has no limits.
		}
		require.Equal(t, wrong, len(errs) > 0, "%s: %s", raw, errs)
		if !wrong {
			selector, err := metav1.LabelSelectorAsSelector(want)
			require.NoError(t, err)
			assert.Equal(t, selector.String(), got.String())
		}
	})
}
