package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector"
)

const claimKindName = "postgresqlinstances.database.example.org"

// newClaimKind has the defaults that the schema gives it, but for what is changed.
func newClaimKind(change ...func(*v1alpha1.ClaimKindSpec)) *selector.ClaimKind {
	k := &v1alpha1.ClaimKind{
		ObjectMeta: metav1.ObjectMeta{Name: claimKindName},
		Spec: v1alpha1.ClaimKindSpec{
			Paths:          v1alpha1.ClaimPaths{ClassSelector: ".spec.classSelector", ClassRef: ".spec.classRef", SkipIfSet: []v1alpha1.FieldPath{".spec.resourceRef"}},
			ClassRefFormat: v1alpha1.ObjectReference, Strategy: v1alpha1.WeightedRandom, Seed: v1alpha1.SeedClaim, WhenUnmatched: v1alpha1.Admit,
		},
	}
	for _, f := range change {
		f(&k.Spec)
	}
	return selector.NewClaimKind(k)
}

func newClassKind(plural, kind string, namespaced bool) *selector.ClassKind {
	return selector.NewClassKind(&v1alpha1.ClassKind{
		ObjectMeta: metav1.ObjectMeta{Name: plural + ".example.org"},
		Spec: v1alpha1.ClassKindSpec{
			ClaimKinds: []string{claimKindName},
			Default:    v1alpha1.Source{Annotation: "default"}, Weight: v1alpha1.Source{Annotation: "weight"},
		},
	}, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: kind}, namespaced)
}

var (
	sqlClasses = newClassKind("sqlclasses", "SQLClass", false)
	rdsClasses = newClassKind("rdsclasses", "RDSClass", true)
)

// index of classes, each a name and then "key=value" labels and "@key=value" annotations.
func index(kind *selector.ClassKind, classes ...string) *selector.Index {
	all := make([]*selector.Class, len(classes))
	for i, text := range classes {
		fields := strings.Fields(text)
		m := &metav1.ObjectMeta{Name: fields[0], Labels: map[string]string{}, Annotations: map[string]string{}}
		if kind.Namespaced {
			m.Namespace = "aws"
		}
		for _, f := range fields[1:] {
			key, value, _ := strings.Cut(f, "=")
			if annotation, ok := strings.CutPrefix(key, "@"); ok {
				m.Annotations[annotation] = value
			} else {
				m.Labels[key] = value
			}
		}
		all[i] = kind.NewClass(m, nil)
	}
	return selector.NewIndex(kind, all)
}

func newInventory(kind *selector.ClaimKind, classes ...*selector.Index) *selector.Inventory {
	i := selector.NewInventory()
	i.SetClaimKind(kind)
	for _, x := range classes {
		i.SetClasses(x)
	}
	i.Open()
	return i
}

// newBinder has no live read: a test that needs one replaces it.
func newBinder(t *testing.T, i *selector.Inventory) *Binder {
	t.Helper()
	return &Binder{
		Snapshot: i.Snapshot,
		Live: func(context.Context, *selector.View, selector.Claim) (*selector.View, error) {
			assert.Fail(t, "We should not read the API server for a claim that the snapshot has a class for.")
			return nil, errors.New("no live read")
		},
		Fresh: func() uint64 { return 1 },
	}
}

// asLive answers every live read with the same view.
func asLive(v *selector.View) func(context.Context, *selector.View, selector.Claim) (*selector.View, error) {
	return func(context.Context, *selector.View, selector.Claim) (*selector.View, error) { return v, nil }
}

func newRequest(object string, change ...func(*admissionv1.AdmissionRequest)) *admissionv1.AdmissionRequest {
	group, resource := "database.example.org", "postgresqlinstances"
	r := &admissionv1.AdmissionRequest{
		UID:       types.UID("5e1f"),
		Kind:      metav1.GroupVersionKind{Group: group, Version: "v1", Kind: "PostgreSQLInstance"},
		Resource:  metav1.GroupVersionResource{Group: group, Version: "v1", Resource: resource},
		Namespace: "team-a", Name: "db",
		Operation: admissionv1.Create,
		Object:    runtime.RawExtension{Raw: []byte(object)},
	}
	for _, f := range change {
		f(r)
	}
	return r
}

const (
	wantsGold = `{"spec":{"classSelector":{"matchLabels":{"tier":"gold"}}}}`
	malformed = `"classSelector":{"matchExpressions":[{"key":"tier","operator":"Foo"}]}`
)

// TestReviewGuards has a row for each guard clause, in their order. Each row
// would also be caught by the guard after it, so a guard that moves shows.
func TestReviewGuards(t *testing.T) {
	closed := selector.NewInventory()
	closed.SetClaimKind(newClaimKind())
	served := newInventory(newClaimKind(), index(sqlClasses, "gold tier=gold @default=true"))
	retired := newInventory(newClaimKind())
	retired.DeleteClaimKind(claimKindName)
	ambiguous := newInventory(newClaimKind(func(s *v1alpha1.ClaimKindSpec) { s.ClassRefFormat = v1alpha1.Name }),
		index(sqlClasses, "gold"), index(rdsClasses, "gold"))

	type want struct {
		untouched string
		err       string
		status    int
	}
	for name, tc := range map[string]struct {
		reason    string
		inventory *selector.Inventory
		request   *admissionv1.AdmissionRequest
		want      want
	}{
		"NotACreation": {
			reason:    "We should leave an update alone, even before we know any class.",
			inventory: closed,
			request:   newRequest("", func(r *admissionv1.AdmissionRequest) { r.Operation = admissionv1.Update }),
			want:      want{untouched: "NotACreation"},
		},
		"Subresource": {
			reason:    "We should leave a subresource alone, even before we know any class.",
			inventory: closed,
			request:   newRequest("", func(r *admissionv1.AdmissionRequest) { r.SubResource = "scale" }),
			want:      want{untouched: "NotACreation"},
		},
		"Closed": {
			reason:    "We should not decide on part of the classes.",
			inventory: closed,
			request:   newRequest(""),
			want:      want{err: "not all registered classes have been listed yet; try again in a moment"},
		},
		"Unknown": {
			reason:    "We should not decide on a kind that another replica may know already.",
			inventory: served,
			request:   newRequest("", func(r *admissionv1.AdmissionRequest) { r.Resource.Resource = "mysqlinstances" }),
			want:      want{err: `claim kind "mysqlinstances.database.example.org" is not registered here, or not yet`},
		},
		"Retired": {
			reason:    "We should leave claims alone whose kind is registered no more.",
			inventory: retired,
			request:   newRequest(""),
			want:      want{untouched: "NotRegistered"},
		},
		"Ambiguous": {
			reason:    "We should not write a reference that may mean two classes.",
			inventory: ambiguous,
			request:   newRequest(""),
			want: want{err: `claim kind "postgresqlinstances.database.example.org" has class kinds ["rdsclasses.example.org" "sqlclasses.example.org"], ` +
				`which a reference of the form Name cannot tell apart: set spec.classRefFormat to ObjectReference or TypedLocalObjectReference, or leave one class kind`},
		},
		"NoObject": {
			reason:    "We should tell a caller that sends no object.",
			inventory: served,
			request:   newRequest(""),
			want:      want{err: "request.object: must be an object: unexpected end of JSON input", status: http.StatusBadRequest},
		},
		"NotAnObject": {
			reason:    "We should tell a caller that sends something else.",
			inventory: served,
			request:   newRequest(`["db"]`),
			want:      want{err: "request.object: must be an object: json: cannot unmarshal array into Go value of type map[string]interface {}", status: http.StatusBadRequest},
		},
		"BeingDeleted": {
			reason:    "We should leave a claim alone that is being deleted, whatever it asks for.",
			inventory: served,
			request:   newRequest(`{"metadata":{"deletionTimestamp":"2020-01-01T00:00:00Z"},"spec":{` + malformed + `}}`),
			want:      want{untouched: "BeingDeleted"},
		},
		"Explicit": {
			reason:    "We should leave an explicit claim alone, whatever its selector says.",
			inventory: served,
			request:   newRequest(`{"spec":{"classRef":{"name":"mine"},` + malformed + `}}`),
			want:      want{untouched: "Settled"},
		},
		"ExplicitAndEmpty": {
			reason:    "We should leave a claim alone whose reference is set to nothing: it wants no class.",
			inventory: served,
			request:   newRequest(`{"spec":{"classRef":{}}}`),
			want:      want{untouched: "Settled"},
		},
		"Static": {
			reason:    "We should leave a static claim alone.",
			inventory: served,
			request:   newRequest(`{"spec":{"resourceRef":{"name":"mine"}}}`),
			want:      want{untouched: "Settled"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			response, err := newBinder(t, tc.inventory).Review(t.Context(), tc.request)
			if tc.want.err != "" {
				require.EqualError(t, err, tc.want.err, tc.reason)
				bad := &badRequest{}
				assert.Equal(t, tc.want.status != 0, errors.As(err, &bad), "%s Whose fault is it? %s", tc.reason, err)
				assert.Equal(t, tc.want.status, bad.status, tc.reason)
				assert.Nil(t, response, tc.reason)
				return
			}
			require.NoError(t, err, tc.reason)
			assert.Equal(t, &admissionv1.AdmissionResponse{
				Allowed: true, AuditAnnotations: map[string]string{"reason": tc.want.untouched},
			}, response, tc.reason)
		})
	}
}

func TestReviewRefusesMalformedClaims(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		object string
		field  string
		cause  metav1.CauseType
	}{
		"UnknownOperator": {
			reason: "We should name the operator that there is not.",
			object: `{"spec":{` + malformed + `}}`,
			field:  "spec.classSelector.matchExpressions[0].operator", cause: metav1.CauseTypeFieldValueInvalid,
		},
		"InWithoutValues": {
			reason: "We should name the values that are missing.",
			object: `{"spec":{"classSelector":{"matchExpressions":[{"key":"a","operator":"Exists"},{"key":"b","operator":"In"}]}}}`,
			field:  "spec.classSelector.matchExpressions[1].values", cause: metav1.CauseTypeFieldValueRequired,
		},
		"UnknownField": {
			reason: "We should refuse a misspelt selector, which would select more than was meant.",
			object: `{"spec":{"classSelector":{"matchLabel":{"tier":"gold"}}}}`,
			field:  "spec.classSelector", cause: metav1.CauseTypeFieldValueInvalid,
		},
		"SelectorTwice": {
			reason: "We should not choose between a field and an annotation.",
			object: `{"metadata":{"annotations":{"classbind.io/class-selector":"tier=gold"}},"spec":{"classSelector":{}}}`,
			field:  "metadata.annotations[classbind.io/class-selector]", cause: metav1.CauseTypeForbidden,
		},
		"MalformedAnnotation": {
			reason: "We should name the annotation that cannot be read.",
			object: `{"metadata":{"annotations":{"classbind.io/class-selector":"tier in (gold"}}}`,
			field:  "metadata.annotations[classbind.io/class-selector]", cause: metav1.CauseTypeFieldValueInvalid,
		},
		"SpecIsNoObject": {
			reason: "We should name what stands where an object should.",
			object: `{"spec":"gold"}`,
			field:  "spec", cause: metav1.CauseTypeTypeInvalid,
		},
	} {
		t.Run(name, func(t *testing.T) {
			binder := newBinder(t, newInventory(newClaimKind(), index(sqlClasses, "gold tier=gold @default=true")))
			response, err := binder.Review(t.Context(), newRequest(tc.object))
			require.NoError(t, err, tc.reason)
			assert.False(t, response.Allowed, tc.reason)
			assert.Empty(t, response.Patch, tc.reason)
			assert.Equal(t, map[string]string{"reason": "MalformedClaim"}, response.AuditAnnotations, tc.reason)

			status := response.Result
			require.NotNil(t, status, tc.reason)
			assert.Equal(t, metav1.StatusFailure, status.Status, tc.reason)
			assert.EqualValues(t, http.StatusUnprocessableEntity, status.Code, tc.reason)
			assert.Equal(t, metav1.StatusReasonInvalid, status.Reason, tc.reason)
			assert.True(t, strings.HasPrefix(status.Message, `PostgreSQLInstance.database.example.org "db" is invalid: `+tc.field+": "), "%s Got: %s", tc.reason, status.Message)
			require.Len(t, status.Details.Causes, 1, tc.reason)
			assert.Equal(t, tc.field, status.Details.Causes[0].Field, tc.reason)
			assert.Equal(t, tc.cause, status.Details.Causes[0].Type, tc.reason)
		})
	}
}

func TestReviewBinds(t *testing.T) {
	format := func(f v1alpha1.ClassRefFormat) func(*v1alpha1.ClaimKindSpec) {
		return func(s *v1alpha1.ClaimKindSpec) { s.ClassRefFormat = f }
	}
	classRef := func(p v1alpha1.FieldPath) func(*v1alpha1.ClaimKindSpec) {
		return func(s *v1alpha1.ClaimKindSpec) { s.Paths.ClassRef = p }
	}
	gold := index(sqlClasses, "gold tier=gold @default=true")
	core := selector.NewClassKind(&v1alpha1.ClassKind{
		ObjectMeta: metav1.ObjectMeta{Name: "volumes"}, Spec: v1alpha1.ClassKindSpec{ClaimKinds: []string{claimKindName}},
	}, schema.GroupVersionKind{Version: "v1", Kind: "Volume"}, false)
	for name, tc := range map[string]struct {
		reason  string
		kind    *selector.ClaimKind
		classes *selector.Index
		object  string
		want    string
	}{
		"ObjectReference": {
			reason: "We should write group, version, kind and name, and no uid.",
			kind:   newClaimKind(), classes: gold, object: wantsGold,
			want: `[{"op":"add","path":"/spec/classRef","value":{"apiVersion":"example.org/v1","kind":"SQLClass","name":"gold"}}]`,
		},
		"ObjectReferenceToANamespace": {
			reason: "We should write the namespace of a class that has one.",
			kind:   newClaimKind(), classes: index(rdsClasses, "gold tier=gold"), object: wantsGold,
			want: `[{"op":"add","path":"/spec/classRef","value":{"apiVersion":"example.org/v1","kind":"RDSClass","namespace":"aws","name":"gold"}}]`,
		},
		"ObjectReferenceToTheCoreGroup": {
			reason: "We should write the version alone for a class of the core group.",
			kind:   newClaimKind(), classes: index(core, "gold tier=gold"), object: wantsGold,
			want: `[{"op":"add","path":"/spec/classRef","value":{"apiVersion":"v1","kind":"Volume","name":"gold"}}]`,
		},
		"TypedLocalObjectReference": {
			reason: "We should write the group without its version.",
			kind:   newClaimKind(format(v1alpha1.TypedLocalObjectReference)), classes: gold, object: wantsGold,
			want: `[{"op":"add","path":"/spec/classRef","value":{"apiGroup":"example.org","kind":"SQLClass","name":"gold"}}]`,
		},
		"LocalObjectReference": {
			reason: "We should write an object with the name alone.",
			kind:   newClaimKind(format(v1alpha1.LocalObjectReference)), classes: gold, object: wantsGold,
			want: `[{"op":"add","path":"/spec/classRef","value":{"name":"gold"}}]`,
		},
		"Name": {
			reason: "We should write the name as a string.",
			kind:   newClaimKind(format(v1alpha1.Name)), classes: gold, object: wantsGold,
			want: `[{"op":"add","path":"/spec/classRef","value":"gold"}]`,
		},
		"Default": {
			reason: "We should give an unopinionated claim the default class.",
			kind:   newClaimKind(format(v1alpha1.Name)), classes: gold, object: `{"spec":{"engine":"15"}}`,
			want: `[{"op":"add","path":"/spec/classRef","value":"gold"}]`,
		},
		"NullReference": {
			reason: "We should count a null reference as absent.",
			kind:   newClaimKind(format(v1alpha1.Name)), classes: gold, object: `{"spec":{"classRef":null,"resourceRef":null}}`,
			want: `[{"op":"add","path":"/spec/classRef","value":"gold"}]`,
		},
		"NoSpec": {
			reason: "We should add the spec that is missing.",
			kind:   newClaimKind(format(v1alpha1.Name)), classes: gold, object: `{}`,
			want: `[{"op":"add","path":"/spec","value":{"classRef":"gold"}}]`,
		},
		"NullSpec": {
			reason: "We should put an object in the place of null.",
			kind:   newClaimKind(format(v1alpha1.Name)), classes: gold, object: `{"spec":null}`,
			want: `[{"op":"add","path":"/spec","value":{"classRef":"gold"}}]`,
		},
		"MissingParents": {
			reason: "We should add the missing parents, and only them.",
			kind:   newClaimKind(format(v1alpha1.Name), classRef(".spec.parameters.class.ref")), classes: gold, object: `{"spec":{"parameters":{"size":1}}}`,
			want: `[{"op":"add","path":"/spec/parameters/class","value":{"ref":"gold"}}]`,
		},
		"TopLevel": {
			reason: "We should write a reference that is a field of the claim itself.",
			kind:   newClaimKind(format(v1alpha1.Name), classRef(".className")), classes: gold, object: `{}`,
			want: `[{"op":"add","path":"/className","value":"gold"}]`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			response, err := newBinder(t, newInventory(tc.kind, tc.classes)).Review(t.Context(), newRequest(tc.object))
			require.NoError(t, err, tc.reason)
			assert.True(t, response.Allowed, tc.reason)
			assert.Equal(t, tc.want, string(response.Patch), tc.reason)
			require.NotNil(t, response.PatchType, tc.reason)
			assert.Equal(t, admissionv1.PatchTypeJSONPatch, *response.PatchType, tc.reason)
			assert.Empty(t, response.Warnings, tc.reason)
		})
	}
}

func TestReviewReadsLiveOnAMiss(t *testing.T) {
	kind := newClaimKind()
	inventory := newInventory(kind, index(sqlClasses, "silver tier=silver"))
	binder := newBinder(t, inventory)
	reads := 0
	binder.Live = func(_ context.Context, view *selector.View, claim selector.Claim) (*selector.View, error) {
		reads++
		assert.Same(t, inventory.Snapshot()[claimKindName], view, "We should read the kinds of the view on which we decided.")
		assert.Equal(t, "tier=gold", claim.Selector.String(), "We should read what the claim asks for.")
		return selector.NewView(kind, []*selector.Index{index(sqlClasses, "gold tier=gold")}), nil
	}
	response, err := binder.Review(t.Context(), newRequest(wantsGold))
	require.NoError(t, err)
	assert.Equal(t, 1, reads, "We should read once.")
	assert.JSONEq(t, `[{"op":"add","path":"/spec/classRef","value":{"apiVersion":"example.org/v1","kind":"SQLClass","name":"gold"}}]`, string(response.Patch),
		"We should bind to a class that was created a moment ago.")

	failure := errors.New("connection refused")
	binder.Live = func(context.Context, *selector.View, selector.Claim) (*selector.View, error) { return nil, failure }
	response, err = binder.Review(t.Context(), newRequest(wantsGold))
	require.ErrorIs(t, err, failure, "We should not say that there is no class when we could not look.")
	assert.Nil(t, response)
}

func TestReviewOfUnmatchedClaims(t *testing.T) {
	deny := func(s *v1alpha1.ClaimKindSpec) { s.WhenUnmatched = v1alpha1.Deny }
	const (
		noMatch = `no class for this claim of "postgresqlinstances.database.example.org" matches the selector "tier=gold" ` +
			`(among 3 classes of sqlclasses.example.org; dropped: 1 cordoned, 1 of weight 0): change the selector, or create or label a class`
		noDefault = `this claim of "postgresqlinstances.database.example.org" has no class selector, and no class is marked default ` +
			`(among 3 classes of sqlclasses.example.org): set spec.classSelector or the annotation classbind.io/class-selector, or mark a class default`
	)
	type want struct {
		allowed bool
		text    string
		audit   map[string]string
	}
	for name, tc := range map[string]struct {
		reason string
		kind   *selector.ClaimKind
		object string
		want   want
	}{
		"AdmitNoMatch": {
			reason: "We should admit the claim and warn what was looked for and what was dropped.",
			kind:   newClaimKind(), object: wantsGold,
			want: want{true, noMatch, map[string]string{"reason": "NoMatchingClass", "candidates": "0", "strategy": "WeightedRandom", "dropped": "Cordoned=1,WeightZero=1"}},
		},
		"AdmitNoDefault": {
			reason: "We should admit the claim and warn that there is no default class.",
			kind:   newClaimKind(), object: `{}`,
			want: want{true, noDefault, map[string]string{"reason": "NoDefaultClass", "candidates": "0", "strategy": "WeightedRandom"}},
		},
		"DenyNoMatch": {
			reason: "We should refuse the claim with what would have been the warning.",
			kind:   newClaimKind(deny), object: wantsGold,
			want: want{false, noMatch, map[string]string{"reason": "NoMatchingClass", "candidates": "0", "strategy": "WeightedRandom", "dropped": "Cordoned=1,WeightZero=1"}},
		},
		"DenyNoDefault": {
			reason: "We should refuse the claim with what would have been the warning.",
			kind:   newClaimKind(deny), object: `{}`,
			want: want{false, noDefault, map[string]string{"reason": "NoDefaultClass", "candidates": "0", "strategy": "WeightedRandom"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			golds := []string{"cordoned tier=gold @classbind.io/cordoned=true", "none tier=gold @weight=0"}
			binder := newBinder(t, newInventory(tc.kind, index(sqlClasses, append(golds, "silver tier=silver")...)))
			// The API server selects, so the live view has the matches alone; the
			// message should still say among how many classes we looked.
			binder.Live = asLive(selector.NewView(tc.kind, []*selector.Index{index(sqlClasses, golds...)}))
			response, err := binder.Review(t.Context(), newRequest(tc.object))
			require.NoError(t, err, tc.reason)
			want := &admissionv1.AdmissionResponse{Allowed: tc.want.allowed, AuditAnnotations: tc.want.audit}
			if tc.want.allowed {
				want.Warnings = []string{tc.want.text}
			} else {
				want.Result = &metav1.Status{
					Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
					Message: `postgresqlinstances.database.example.org "db" is forbidden: ` + tc.want.text,
					Details: &metav1.StatusDetails{Group: "database.example.org", Kind: "postgresqlinstances", Name: "db"},
				}
			}
			assert.Equal(t, want, response, tc.reason)
		})
	}
}

func TestReviewWarnsOfSeveralDefaults(t *testing.T) {
	inventory := newInventory(newClaimKind(func(s *v1alpha1.ClaimKindSpec) { s.Strategy = v1alpha1.HighestWeight }),
		index(sqlClasses, "gold @default=true @weight=2", "silver @default=true"), index(rdsClasses, "bronze @default=true"))
	response, err := newBinder(t, inventory).Review(t.Context(), newRequest(`{}`))
	require.NoError(t, err)
	assert.JSONEq(t, `[{"op":"add","path":"/spec","value":{"classRef":{"apiVersion":"example.org/v1","kind":"SQLClass","name":"gold"}}}]`, string(response.Patch),
		"We should bind the claim all the same.")
	assert.Equal(t, []string{`3 classes are marked default for "postgresqlinstances.database.example.org", of which "SQLClass/gold" was drawn: ` +
		`leave the mark on one of RDSClass/aws/bronze, SQLClass/gold, SQLClass/silver`}, response.Warnings,
		"We should say which, so that an admin can mend it.")
}

func TestReviewSaysWhy(t *testing.T) {
	var lines []string
	log := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
	inventory := newInventory(newClaimKind(), index(sqlClasses, "gold tier=gold", "cordoned tier=gold @classbind.io/cordoned=true"))
	binder := newBinder(t, inventory)

	bound, err := binder.Review(logr.NewContext(t.Context(), log), newRequest(wantsGold))
	require.NoError(t, err)
	assert.Equal(t, map[string]string{
		"class": "SQLClass/gold", "candidates": "1", "dropped": "Cordoned=1", "reason": "MatchingClass", "strategy": "WeightedRandom",
	}, bound.AuditAnnotations, "We should say why in the audit log.")
	require.Len(t, lines, 1, "We should log one line a decision.")
	for _, part := range []string{`"class"="SQLClass/gold"`, `"reason"="MatchingClass"`, `"requestUID"="5e1f"`, `"dryRun"=false`} {
		assert.Contains(t, lines[0], part, "We should say why in our log.")
	}

	before := inventory.Snapshot()
	dry, err := binder.Review(logr.NewContext(t.Context(), log), newRequest(wantsGold, func(r *admissionv1.AdmissionRequest) { r.DryRun = new(true) }))
	require.NoError(t, err)
	assert.Equal(t, bound, dry, "We should answer a dry run as we would the request.")
	assert.Equal(t, before, inventory.Snapshot(), "We should change nothing in a dry run.")
	assert.Contains(t, lines[1], `"dryRun"=true`, "We should tell dry runs apart in the log.")
}

func TestReviewSeedsTheDraw(t *testing.T) {
	const requests = 64
	for name, tc := range map[string]struct {
		reason  string
		kind    *selector.ClaimKind
		request *admissionv1.AdmissionRequest
		several bool
	}{
		"Name": {
			reason: "We should give the same claim the same class at every request.",
			kind:   newClaimKind(), request: newRequest(wantsGold),
		},
		"GenerateName": {
			reason: "We should draw anew for each of the claims that share a generateName.",
			kind:   newClaimKind(), several: true,
			request: newRequest(`{"metadata":{"generateName":"db-"},"spec":{"classSelector":{}}}`, func(r *admissionv1.AdmissionRequest) { r.Name = "" }),
		},
		"SeedRequest": {
			reason: "We should draw anew at every request if the claim kind asks for it.",
			kind:   newClaimKind(func(s *v1alpha1.ClaimKindSpec) { s.Seed = v1alpha1.SeedRequest }), several: true, request: newRequest(wantsGold),
		},
	} {
		t.Run(name, func(t *testing.T) {
			binder := newBinder(t, newInventory(tc.kind, index(sqlClasses, "a tier=gold", "b tier=gold")))
			fresh := uint64(0)
			binder.Fresh = func() uint64 { fresh++; return fresh }
			classes := map[string]int{}
			for range requests {
				response, err := binder.Review(t.Context(), tc.request)
				require.NoError(t, err, tc.reason)
				classes[response.AuditAnnotations["class"]]++
			}
			if tc.several {
				// Of 64 fair draws of two, fewer than 16 of either come once in 60,000
				// runs; the seeds here are always the same.
				for _, class := range []string{"SQLClass/a", "SQLClass/b"} {
					assert.GreaterOrEqual(t, classes[class], 16, fmt.Sprint(tc.reason, classes))
				}
				return
			}
			assert.Len(t, classes, 1, "%s %v", tc.reason, classes)
		})
	}
}
