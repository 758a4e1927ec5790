package webhookconfig

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/inventory"
)

// celEnvironment is that of an API server's webhooks or policies, as far as ours need it.
type celEnvironment struct{ *cel.Env }

func newEnvironment(t *testing.T) celEnvironment {
	t.Helper()
	env, err := cel.NewEnv(cel.Variable("object", cel.DynType), cel.Variable("oldObject", cel.DynType), cel.Variable("request", cel.DynType),
		cel.ASTValidators(cel.ValidateHomogeneousAggregateLiterals())) // As the API server.
	require.NoError(t, err)
	return celEnvironment{env}
}

func (e celEnvironment) compile(t *testing.T, expression string) cel.Program {
	t.Helper()
	ast, issues := e.Compile(expression)
	require.NoError(t, issues.Err(), expression)
	program, err := e.Program(ast)
	require.NoError(t, err, expression)
	return program
}

// conditions are match conditions that an API server has compiled.
func (e celEnvironment) conditions(t *testing.T, all []admissionregistrationv1.MatchCondition) conditions {
	t.Helper()
	var c conditions
	for _, condition := range all {
		c = append(c, e.compile(t, condition.Expression))
	}
	return c
}

type conditions []cel.Program

// hold reports whether the API server would call us: all conditions are true. It is an error if one fails, and none is false.
func (all conditions) hold(variables map[string]any) (called bool, failure error) {
	for _, c := range all {
		switch out, _, err := c.Eval(variables); {
		case err != nil:
			failure = err
		case out.Value() == false:
			return false, nil
		}
	}
	return failure == nil, failure
}

func object(t *testing.T, text string) (object map[string]any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text), &object))
	return object
}

// claimSpecs are changes to a claim kind in which conditions differ.
func claimSpecs() map[string]func(*v1beta1.ClaimKindSpec) {
	reference := func(r v1beta1.Reference) func(*v1beta1.ClaimKindSpec) {
		return func(s *v1beta1.ClaimKindSpec) { s.Reference = r }
	}
	return map[string]func(*v1beta1.ClaimKindSpec){
		"Defaults":      func(*v1beta1.ClaimKindSpec) {},
		"NameOrEmpty":   reference(v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.ref"}, Form: v1beta1.Name}),
		"ObjectOrEmpty": reference(v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.ref"}}),
		"Parent": reference(v1beta1.Reference{
			Place:            v1beta1.Place{Path: ".spec.ref.name"},
			Form:             v1beta1.Name,
			WhenParentAbsent: v1beta1.LeaveClaimAlone,
		}),
		"Label":             reference(v1beta1.Reference{Place: v1beta1.Place{Label: "example.org/class"}, Form: v1beta1.Name, WhenEmpty: v1beta1.LeaveEmptyAlone}),
		"AnnotationOrEmpty": reference(v1beta1.Reference{Place: v1beta1.Place{Annotation: "example.org/class"}, Form: v1beta1.Name}),
		"Parts": reference(v1beta1.Reference{Parts: []v1beta1.ReferencePart{
			{Is: v1beta1.KindPart, Place: v1beta1.Place{Path: ".spec.classRef"}, Default: "Class"},
			{Is: v1beta1.NamePart, Place: v1beta1.Place{Path: ".spec.ref"}},
		}}),
		"PartsOrLeaveEmpty": reference(v1beta1.Reference{WhenEmpty: v1beta1.LeaveEmptyAlone, Parts: []v1beta1.ReferencePart{
			{Is: v1beta1.NamePart, Place: v1beta1.Place{Path: ".spec.ref"}},
			{Is: v1beta1.NamespacePart, Place: v1beta1.Place{Path: ".spec.classRef"}},
		}}),
		"List":  reference(v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.ref"}, List: v1beta1.ListWhenAbsent, Form: v1beta1.KindReference}),
		"Names": reference(v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.ref"}, List: v1beta1.ListWhenAbsent, Form: v1beta1.Name}),
		"Flag": reference(v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.ref"}, Parts: []v1beta1.ReferencePart{
			{Is: v1beta1.NamePart, Place: v1beta1.Place{Path: ".spec.ref.name"}},
			{Is: v1beta1.FlagPart, Place: v1beta1.Place{Path: ".spec.ref.more"}, Of: "Class", Default: "Other"},
		}}),
		"Skip": func(s *v1beta1.ClaimKindSpec) {
			s.Claims.SkipIfSet = []v1beta1.Place{{Annotation: "example.org/class"}, {Label: "example.org/class"}, {Path: ".spec.ref"}}
		},
	}
}

// TestConditionsAgree has conditions and the reader judge the same claims: the API server calls us for
// those, and only those, that the reader does not leave alone. It refuses those that we refuse for claims.when.
func TestConditionsAgree(t *testing.T) {
	env := newEnvironment(t)
	leavesAlone := func(r v1beta1.Reference, by v1beta1.ClassSelector) func(*v1beta1.ClaimKindSpec) {
		return func(s *v1beta1.ClaimKindSpec) {
			s.Selector.WhenAbsent, s.Selector, s.Reference = v1beta1.NoSelectorLeaveAlone, by, r
		}
	}
	bindWhen := func(e v1beta1.Expression) func(*v1beta1.ClaimKindSpec) {
		return func(s *v1beta1.ClaimKindSpec) {
			s.Reference, s.Claims.When, s.Claims.SkipIfSet = v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.ref"}}, e, []v1beta1.Place{
				{Annotation: "example.org/class"},
			}
		}
	}
	classRef := v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.classRef"}, WhenEmpty: v1beta1.LeaveEmptyAlone}
	kinds := claimSpecs()
	maps.Copy(kinds, map[string]func(*v1beta1.ClaimKindSpec){
		"Name": func(s *v1beta1.ClaimKindSpec) {
			s.Reference = v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.ref"}, Form: v1beta1.Name, WhenEmpty: v1beta1.LeaveEmptyAlone}
		},
		"Object": func(s *v1beta1.ClaimKindSpec) {
			s.Reference = v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.ref"}, WhenEmpty: v1beta1.LeaveEmptyAlone}
		},
		"TopLevelOrEmpty": func(s *v1beta1.ClaimKindSpec) {
			s.Reference = v1beta1.Reference{Place: v1beta1.Place{Path: ".spec"}, Form: v1beta1.LocalObjectReference, WhenParentAbsent: v1beta1.LeaveClaimAlone}
		},
		"ParentOrEmpty": func(s *v1beta1.ClaimKindSpec) {
			s.Reference = v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.ref.name"}, WhenParentAbsent: v1beta1.LeaveClaimAlone}
		},
		"PartsBegun": func(s *v1beta1.ClaimKindSpec) {
			s.Reference = v1beta1.Reference{WhenAbsent: v1beta1.LeaveAbsentAlone, Parts: []v1beta1.ReferencePart{
				{Is: v1beta1.NamePart, Place: v1beta1.Place{Annotation: "example.org/class"}},
				{Is: v1beta1.KindPart, Place: v1beta1.Place{Annotation: "example.org/kind"}, Default: "Class"},
			}}
		},
		"Keywords": func(s *v1beta1.ClaimKindSpec) { // A field may have the name of a CEL keyword, or a dash.
			s.Claims.SkipIfSet = []v1beta1.Place{{Path: ".in"}, {Path: ".namespace"}, {Path: ".a-b"}, {Path: ".spec.ref"}}
		},
		"Selector": leavesAlone(classRef, v1beta1.ClassSelector{Path: ".spec.ref.name"}),
		"SelectorAnnotation": leavesAlone(v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.classRef"}},
			v1beta1.ClassSelector{Path: ".spec.ref", Annotation: "example.org/class"}),
		"SelectorExpression": leavesAlone(classRef, v1beta1.ClassSelector{Path: ".spec.ref.name", Expression: "claim.metadata.name"}),
		"BindWhen":           bindWhen("has(claim.spec.resourceRef) && claim.spec.resourceRef == false"), // It asks for the reference, too.
		"BindWhenDecides":    bindWhen("claim.spec.ref == 'gold'"),
		"BindWhenBelow":      bindWhen("claim.spec.ref.name == ''"),
		"BindWhenComment":    bindWhen("claim.spec.ref == 'gold' // or not"),
		"BindWhenUntyped":    bindWhen("claim.spec.ref"),
	})
	claims := conditionClaims()
	for name, change := range kinds {
		t.Run(name, func(t *testing.T) {
			k := claimKind("claims.example.org", func(k *v1beta1.ClaimKind) { change(&k.Spec) })
			kind, plain, count := selector.NewClaimKind(&k), k.Spec.Claims.When == "", map[string]int{}
			all := env.conditions(t, matchConditions(claim.MatchConditions(&k)))
			unset := conditions{env.compile(t, claim.ReferenceIsUnset(&k, "object", false))}
			old := conditions{env.compile(t, claim.ReferenceIsUnset(&k, "oldObject", true))}
			holds := func(c conditions, variables map[string]any) bool {
				t.Helper()
				is, err := c.hold(variables)
				require.NoError(t, err, "%v: no condition may fail, or the API server goes by the failure policy.", variables)
				return is
			}
			for i, text := range claims {
				if !plain && i%7 != 0 { // Not all are needed.
					continue
				}
				o := object(t, text)
				read, err := kind.Reader.DecodeValid([]byte(text))
				require.NoError(t, err)
				called, failure := all.hold(map[string]any{"object": o, "oldObject": nil, "request": map[string]any{"operation": "CREATE"}})
				in := kind.Reader.Read("team", "db", read)
				if !plain {
					switch {
					case failure != nil:
						count["fails"]++
						assert.NotEmpty(t, in.Problems, "%s: %v", text, failure)
					case called:
						count["called"]++
						assert.Empty(t, in.LeftAlone, text)
					default:
						count["left alone"]++
						assert.False(t, in.LeftAlone == "" && len(in.Problems) == 0, text)
					}
					continue
				}
				require.NoError(t, failure, text)
				if called && in.LeftAlone == claim.Settled { // See TestEmptyAndSelected.
					assert.False(t, kind.Reader.Reference.NamesClass(read), "We should cost a claim that names its class no call: %s", text)
					continue
				}
				count[fmt.Sprint("called: ", called)]++
				if !assert.Equal(t, in.LeftAlone == "", called, "%s: %q", text, in.LeftAlone) {
					return
				}
				assert.Equal(t, kind.Reader.Reference.HasReference(read), !holds(unset, map[string]any{"object": o, "oldObject": nil}), text)
				r, err := kind.Reader.Restore([]byte(text), []byte(`{"metadata":{},"spec":{}}`))
				require.NoError(t, err)
				if r.Reason != claim.ParentAbsent {
					assert.Equal(t, r.Reason == claim.NotBound, holds(old, map[string]any{"oldObject": o}), "%s: %s", text, r.Reason)
				}
			}
			assert.True(t, holds(old, map[string]any{"oldObject": nil}), "We should take the old object of a creation for one without a reference.")
			assert.Len(t, count, map[bool]int{true: 2, false: 3}[plain], "We should try claims of each sort: %v", count)
		})
	}
}

// TestEmptyAndSelected has the API server call us for a claim whose empty reference is on purpose only if it has a class selector, too: then we
// warn. What names its class costs no call, because most such claims were bound by their selector before.
func TestEmptyAndSelected(t *testing.T) {
	const by = `{"matchLabels":{"tier":"gold"}}`
	env := newEnvironment(t)
	for name, tc := range map[string]struct {
		reason         string
		reference      v1beta1.Reference
		claim          string
		called, warned bool
	}{
		"Name": {
			reason: "We should warn of a selector beside an empty name.",
			claim:  `{"metadata":{},"spec":{"ref":"","classSelector":` + by + `}}`,
			called: true,
			warned: true,
		},
		"Annotation": {
			reason: "We should warn of a selector in the annotation.",
			claim:  `{"metadata":{"annotations":{"classbind.io/class-selector":"tier=gold"}},"spec":{"ref":""}}`,
			called: true,
			warned: true,
		},
		"Malformed": {
			reason: "We should warn of a selector that cannot be parsed.",
			claim:  `{"metadata":{"annotations":{"classbind.io/class-selector":"tier in"}},"spec":{"ref":""}}`,
			called: true,
			warned: true,
		},
		"SelectorEmpty": {
			reason: "We should not warn of a selector that asks for nothing.",
			claim:  `{"metadata":{},"spec":{"ref":"","classSelector":{}}}`,
			called: true,
		},
		"NoSelector": {
			reason: "We should not be called for an empty name alone.",
			claim:  `{"metadata":{},"spec":{"ref":""}}`,
		},
		"Named": {
			reason: "We should not be called for a claim that names its class.",
			claim:  `{"metadata":{},"spec":{"ref":"gold","classSelector":` + by + `}}`,
		},
		"Skipped": {
			reason: "We should not be called for a claim that another field settles.",
			claim:  `{"metadata":{},"spec":{"ref":"","resourceRef":{},"classSelector":` + by + `}}`,
			warned: true, // By explain.
		},
		"Object": {
			reason:    "We should warn of a selector beside a reference that is filled in another way.",
			reference: v1beta1.Reference{Form: v1beta1.LocalObjectReference},
			claim:     `{"metadata":{},"spec":{"ref":{"more":1},"classSelector":` + by + `}}`,
			called:    true,
			warned:    true,
		},
		"ObjectNamed": {
			reason:    "We should not be called for an object with a name.",
			reference: v1beta1.Reference{Form: v1beta1.LocalObjectReference},
			claim:     `{"metadata":{},"spec":{"ref":{"name":"gold"},"classSelector":` + by + `}}`,
		},
		"Bound": {
			reason:    "We should bind a claim whose empty reference counts as absent, by its selector.",
			reference: v1beta1.Reference{Form: v1beta1.Name, WhenEmpty: v1beta1.BindEmpty},
			claim:     `{"metadata":{},"spec":{"ref":"","classSelector":` + by + `}}`,
			called:    true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := claimKind("claims.example.org", func(k *v1beta1.ClaimKind) {
				k.Spec.Reference = tc.reference
				k.Spec.Reference.Path, k.Spec.Selector.Path = ".spec.ref", ".spec.classSelector"
				k.Spec.Reference.Form = cmp.Or(tc.reference.Form, v1beta1.Name)
				k.Spec.Reference.WhenEmpty = cmp.Or(tc.reference.WhenEmpty, v1beta1.LeaveEmptyAlone)
				k.Spec.Claims.SkipIfSet = []v1beta1.Place{{Path: ".spec.resourceRef"}}
			})
			all := env.conditions(t, matchConditions(claim.MatchConditions(&k)))
			for operation, old := range map[string]any{"CREATE": nil, "UPDATE": object(t, tc.claim)} {
				called, err := all.hold(map[string]any{
					"object": object(t, tc.claim), "oldObject": old, "request": map[string]any{"operation": operation},
				})
				require.NoError(t, err)
				assert.Equal(t, tc.called && operation == "CREATE", called, "%s %s", operation, tc.reason)
			}
			kind := selector.NewClaimKind(&k)
			read, err := kind.Reader.DecodeValid([]byte(tc.claim))
			require.NoError(t, err)
			assert.Equal(t, tc.warned, kind.Reader.Read("team", "db", read).Ignored != "", tc.reason)
		})
	}
}

func TestUpdatesThatUnbind(t *testing.T) {
	var specs []string
	for _, ref := range []string{
		``, `"ref":null`, `"ref":{}`, `"ref":{"name":"default"}`, `"ref":{"name":"gold"}`, `"ref":{"name":"silver"}`, `"ref":"default"`,
		`"ref":{"kind":"Class"}`, `"ref":{"kind":"Class","name":"gold","more":1}`, `"ref":{"more":1}`,
	} {
		specs = append(specs, `{"metadata":{},"spec":{`+ref+`}}`)
	}
	specs = append(specs, `{"metadata":{}}`, `{"metadata":{},"spec":5}`, `{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"},"spec":{}}`)
	for name, tc := range map[string]struct {
		reason   string
		bindWhen v1beta1.Expression
	}{
		"None":    {"We should go by the reference alone.", ""},
		"Other":   {"We should go by the reference alone.", "claim.spec.ready"},
		"Decides": {"We should be called for a reference that may count as none.", "claim.spec.ref.name == 'default'"},
		"Namespace": {
			"We should be called for it where the API server cannot evaluate claims.when, too.",
			"claim.spec.ref.name == 'default' && namespaceObject.metadata.name == 'team'",
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := claimKind("claims.example.org", func(k *v1beta1.ClaimKind) {
				k.Spec.Reference, k.Spec.Claims.When = v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.ref"}}, tc.bindWhen
			})
			kind, all := selector.NewClaimKind(&k), newEnvironment(t).conditions(t, matchConditions(claim.MatchConditions(&k)))
			restored := 0
			for _, before := range specs {
				for _, now := range specs {
					called, failure := all.hold(map[string]any{"object": object(t, now), "oldObject": object(t, before), "request": map[string]any{"operation": "UPDATE"}})
					require.NoError(t, failure, "No update may fail, or nobody could even delete an old claim: %s %s", before, now)
					r, err := kind.Reader.Restore([]byte(before), []byte(now))
					require.NoError(t, err)
					if r.Reason == claim.Restored {
						restored++
						assert.True(t, called, "%s: %s %s", tc.reason, before, now)
					}
					assert.False(t, before == now && called, "We should not be called for nothing: %s %s", before, now)
				}
			}
			assert.Positive(t, restored)
		})
	}
}

// TestCheckConditions has writes of claims; we are to check those that name another class than before.
func TestCheckConditions(t *testing.T) {
	const gold = `{"metadata":{},"spec":{"ref":{"kind":"Class","name":"gold"}}}`
	for name, tc := range map[string]struct {
		reason, before, now string
		want                bool
	}{
		"Created": {"We should check what a new claim names.", `null`, gold, true},
		"Unbound": {"We should not check a claim that names nothing.", `null`, `{"metadata":{},"spec":{}}`, false},
		"Begun":   {"We should not check a reference without a name.", `null`, `{"metadata":{},"spec":{"ref":{"kind":"Class"}}}`, false},
		"Same": {
			"We should let pass what does not touch the reference.", gold,
			`{"metadata":{"labels":{"a":"b"}},"spec":{"ref":{"kind":"Class","name":"gold"}}}`, false,
		},
		"Changed": {"We should check another class.", gold, `{"metadata":{},"spec":{"ref":{"kind":"Class","name":"lead"}}}`, true},
		"Added":   {"We should check the first class.", `{"metadata":{}}`, gold, true},
		"Removed": {"We should not check what is gone.", gold, `{"metadata":{},"spec":{}}`, false},
		"Skipped": {"We should not check a claim that is not ours.", `null`, `{"metadata":{},"spec":{"ref":{"name":"gold"},"volume":"v"}}`, false},
		"Deleting": {
			"We should not keep a claim from going.", `{"metadata":{}}`,
			`{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"},"spec":{"ref":{"name":"gold"}}}`, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := claimKind("claims.example.org", func(k *v1beta1.ClaimKind) {
				k.Spec.Reference = v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.ref"}}
				k.Spec.Claims.SkipIfSet = []v1beta1.Place{{Path: ".spec.volume"}}
			})
			variables := map[string]any{"object": object(t, tc.now), "oldObject": nil, "request": map[string]any{"operation": "CREATE"}}
			if tc.before != "null" {
				variables["oldObject"], variables["request"] = object(t, tc.before), map[string]any{"operation": "UPDATE"}
			}
			called, failure := newEnvironment(t).conditions(t, matchConditions(claim.CheckConditions(&k))).hold(variables)
			require.NoError(t, failure, tc.reason)
			assert.Equal(t, tc.want, called, tc.reason)
		})
	}
}

// TestClassConditions has updates of a class; we are to be asked about some.
func TestClassConditions(t *testing.T) {
	env := newEnvironment(t)
	const marked = `{"default":true,"spec":{"weight":5},"metadata":{"annotations":{"e.org/default":"true","weight":"5"}}}`
	updates := map[string]struct {
		before, now string
		marked      bool // and not newly so
		want        bool
	}{
		"Created":   {before: `null`, now: marked, want: true},
		"Plain":     {before: `null`, now: `{"metadata":{}}`},
		"NotOurs":   {before: `null`, now: `{"default":null,"spec":5,"metadata":{"annotations":{"default":"true"}}}`},
		"Unchanged": {before: marked, now: marked, marked: true},
		"Marked":    {before: `{"metadata":{}}`, now: `{"default":"yes","metadata":{"annotations":{"e.org/default":"yes"}}}`, want: true},
		"Unmarked":  {before: marked, now: `{"default":false,"spec":{},"metadata":{"annotations":{"e.org/default":"false"}}}`},
		"Weight": {
			before: `{"spec":{"weight":4},"metadata":{"annotations":{"weight":"4"}}}`,
			now:    `{"spec":{"weight":5},"metadata":{"annotations":{"weight":"5"}}}`,
			want:   true,
		},
		"SameWeight": {
			before: `{"spec":{"weight":5},"metadata":{"annotations":{"weight":"5"}}}`,
			now:    `{"spec":{"weight":5},"metadata":{"annotations":{"weight":"5"}}}`,
		},
		"Cordoned": {before: `{"metadata":{}}`, now: `{"metadata":{"annotations":{"classbind.io/cordoned":"true"}}}`},
		"Uncordoned": {
			before: `{"metadata":{"annotations":{"classbind.io/cordoned":"true"}}}`,
			now:    `{"metadata":{"annotations":{"classbind.io/cordoned":"false"}}}`,
		},
		"Mistyped": {before: `{"metadata":{}}`, now: `{"metadata":{"annotations":{"classbind.io/cordoned":"yes"}}}`, want: true},
		"Odd":      {before: `{"metadata":[],"spec":1}`, now: `{"metadata":"","spec":[]}`},
	}
	const deleted = `{"default":true,"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z","annotations":{"e.org/default":"true"}}}`
	annotations := v1beta1.ClassKindSpec{Default: v1beta1.Source{Annotation: "e.org/default"}, Weight: v1beta1.Source{Annotation: "weight"}}
	paths := v1beta1.ClassKindSpec{Default: v1beta1.Source{Path: ".default"}, Weight: v1beta1.Source{Path: ".spec.weight"}}
	withFits, expression, weight := paths, paths, paths
	withFits.Fits = []v1beta1.Fit{{Name: "A", Expression: "class.a"}}
	expression.Default, weight.Weight = v1beta1.Source{Expression: "class.a"}, v1beta1.Source{Expression: "class.a"}
	partition := v1beta1.ClaimKindSpec{Classes: v1beta1.Classes{Partition: &v1beta1.Partition{Claim: "''", Class: "class.zone"}}}
	for name, tc := range map[string]struct {
		reason string
		spec   v1beta1.ClassKindSpec
		claims v1beta1.ClaimKindSpec
		moves  bool
		always bool
	}{
		"Annotations": {reason: "We should ask for annotations by their keys, slashes included.", spec: annotations},
		"Paths":       {reason: "We should ask for fields.", spec: paths},
		"Partitions": {
			reason: "We should be asked about every update of a class that is marked: it may move to another partition.",
			spec:   paths,
			claims: partition,
			moves:  true,
		},
		"Fits": {
			reason: "We should be asked about every update of a class that is marked: it may serve other claims.",
			spec:   paths,
			claims: v1beta1.ClaimKindSpec{Classes: v1beta1.Classes{Fits: withFits.Fits}},
			moves:  true,
		},
		"OwnFits":           {reason: "We should be asked the same where the class kind has the condition.", spec: withFits, moves: true},
		"DefaultExpression": {reason: "We should be asked about every class where any field may be the mark.", spec: expression, always: true},
		"WeightExpression":  {reason: "We should be asked about every class where any field may be the weight.", spec: weight, always: true},
	} {
		t.Run(name, func(t *testing.T) {
			tc.spec.ClaimKinds = controllertest.Links("claims.e.org")
			served := claimKind("claims.e.org", func(k *v1beta1.ClaimKind) { k.Spec = tc.claims })
			others := claimKind("others.e.org", func(k *v1beta1.ClaimKind) { k.Spec = partition })
			all := env.conditions(t, classConditions(&v1beta1.ClassKind{Spec: tc.spec}, []v1beta1.ClaimKind{served, others}))
			for update, u := range updates {
				called, err := all.hold(map[string]any{"object": object(t, u.now), "oldObject": object(t, u.before)})
				require.NoError(t, err, update)
				assert.Equal(t, u.want || tc.always || tc.moves && u.marked, called, "%s (%s)", tc.reason, update)
			}
			called, err := all.hold(map[string]any{"object": object(t, deleted), "oldObject": nil})
			require.NoError(t, err)
			assert.False(t, called, "We should not be asked about a class that is being deleted.")
		})
	}
}

// TestClassConditionsOfBothMarks has us asked about each update that makes a class the default, by our own
// mark or by that of Crossplane, and about each that has another weight.
func TestClassConditionsOfBothMarks(t *testing.T) {
	k := &v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: "classes.e.org"}, Spec: v1beta1.ClassKindSpec{
		Default: v1beta1.Source{Annotation: v1beta1.DefaultAnnotation}, Weight: v1beta1.Source{Annotation: v1beta1.WeightAnnotation},
	}}
	kind := inventory.NewClassKind(k, metav1.SchemeGroupVersion.WithKind("Class"), false)
	all := newEnvironment(t).conditions(t, classConditions(k, nil))
	type class struct {
		object map[string]any
		known  *inventory.Class
	}
	var classes []class
	for _, own := range []string{"", "true", "false", "yes"} {
		for _, other := range []string{"", "true", "false", "yes"} {
			for _, weight := range [][2]string{{"", ""}, {"", "5"}, {"", "x"}, {"0", "x"}, {"7", "5"}} {
				annotations := map[string]any{}
				for key, value := range map[string]string{
					v1beta1.DefaultAnnotation: own, v1beta1.CrossplaneDefaultAnnotation: other,
					v1beta1.WeightAnnotation: weight[0], v1beta1.CrossplaneWeightAnnotation: weight[1],
				} {
					if value != "" {
						annotations[key] = value
					}
				}
				object := map[string]any{"metadata": map[string]any{"name": "gold", "annotations": annotations}}
				classes = append(classes, class{object, kind.NewClass(&unstructured.Unstructured{Object: object}, object)})
			}
		}
	}
	defaults := 0
	for _, before := range classes {
		for _, now := range classes {
			called, err := all.hold(map[string]any{"object": now.object, "oldObject": before.object})
			require.NoError(t, err)
			if now.known.Default && !before.known.Default {
				defaults++
				assert.True(t, called, "We should be asked where %v becomes %v.", before.object, now.object)
			}
			if now.known.Weight != before.known.Weight && now.known.Weight != 1 || now.known.WeightErr != nil && before.known.WeightErr == nil {
				assert.True(t, called, "We should be asked where %v becomes %v.", before.object, now.object)
			}
			if before.known == now.known {
				assert.False(t, called, "We should not be asked about what stays: %v.", now.object)
			}
		}
	}
	assert.Positive(t, defaults)
}

// conditionClaims has each value of each place that the kinds look at, beside each of others.
func conditionClaims() (claims []string) {
	values := []string{`null`, `""`, `"gold"`, `5`, `true`, `[]`, `{}`}
	references := append([]string{``, `["gold"]`, `[{"name":"gold"}]`}, values...)
	for _, value := range values {
		references = append(references, fmt.Sprintf(`{"name":%s}`, value), fmt.Sprintf(`{"kind":%s,"name":""}`, value), fmt.Sprintf(`{"name":{"name":%s}}`, value),
			fmt.Sprintf(`{"kind":"Class","more":%s}`, value))
	}
	specs := append([]string{``}, values...)
	for _, reference := range references {
		fields := fmt.Sprintf(`"ref":%s`, reference)
		if reference == `` {
			fields = `"a":1`
		}
		for _, more := range []string{``, `,"classRef":{"name":""}`, `,"classRef":"x"`, `,"resourceRef":false`, `,"resourceRef":null`} {
			specs = append(specs, "{"+fields+more+"}")
		}
	}
	field := func(name, value string) string {
		if value == `` {
			return ``
		}
		return fmt.Sprintf(`,%q:%s`, name, value)
	}
	maps := []string{``, `null`, `{}`, `{"example.org/class":""}`, `{"example.org/class":"gold"}`, `{"a":"b"}`}
	for _, spec := range specs {
		for _, labels := range maps {
			for _, annotations := range maps {
				claims = append(claims, `{"metadata":{"name":"db"`+field("labels", labels)+field("annotations", annotations)+`}`+field("spec", spec)+`}`)
			}
		}
	}
	return claims
}
