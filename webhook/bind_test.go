package webhook

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector"
)

// TestReviewGuards has a row for each guard clause, in their order. Each row
// would also be caught by the guard after it, so a guard that moves shows.
func TestReviewGuards(t *testing.T) {
	closed := selector.NewInventory()
	closed.SetClaimKind(newClaimKind())
	served := newInventory(newClaimKind(), index(sqlClasses, "gold tier=gold @default=true"))
	retired := newInventory(newClaimKind())
	retired.DeleteClaimKind(claimKindName)
	pinned := selector.NewInventory()
	pin := func(k *v1alpha1.ClaimKind) *v1alpha1.ClaimKind {
		k.Status.Version = "v1beta1"
		return k
	}
	pinned.SetClaimKind(selector.NewClaimKind(pin(claimKindOf(claimKindName))))
	pinned.Open()
	faulty := newInventory(newClaimKind(func(s *v1alpha1.ClaimKindSpec) { s.Seed = "Moon" }), index(sqlClasses, "gold"))

	type want struct {
		untouched string
		err       string
		status    int
	}
	for name, tc := range map[string]struct {
		reason     string
		inventory  *selector.Inventory
		registered func(context.Context, string) (*v1alpha1.ClaimKind, error)
		request    *admissionv1.AdmissionRequest
		claimKind  string // in the path; without it, that of the resource
		want       want
	}{
		"NotACreation": {
			reason:    "We should leave a deletion alone, even before we know any class.",
			inventory: closed,
			request:   newRequest("", func(r *admissionv1.AdmissionRequest) { r.Operation = admissionv1.Delete }),
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
			reason:     "We should not decide on a kind that another replica may know already.",
			inventory:  served,
			registered: asClaimKind(true, nil),
			request:    newRequest("", func(r *admissionv1.AdmissionRequest) { r.Resource.Resource = "mysqlinstances" }),
			want:       want{err: `claim kind "mysqlinstances.database.example.org" is not registered on this replica yet; try again in a moment`},
		},
		"NeverRegistered": {
			reason:     "We should leave claims alone whose kind is not registered.",
			inventory:  served,
			registered: asClaimKind(false, nil),
			request:    newRequest("", func(r *admissionv1.AdmissionRequest) { r.Resource.Resource = "mysqlinstances" }),
			want:       want{untouched: "NotRegistered"},
		},
		"OtherResource": {
			reason:     "We should leave claims alone that are not those of the registration.",
			inventory:  served,
			registered: asClaimKind(true, nil),
			request:    newRequest(wantsGold, func(r *admissionv1.AdmissionRequest) { r.Resource.Resource = "mysqlinstances" }),
			claimKind:  claimKindName,
			want:       want{untouched: "NotRegistered"},
		},
		"OtherVersion": {
			reason:    "We should not read a claim by paths that are written for another version, and say what helps.",
			inventory: pinned,
			registered: func(context.Context, string) (*v1alpha1.ClaimKind, error) {
				return pin(claimKindOf(claimKindName)), nil
			},
			request: newRequest(wantsGold),
			want: want{err: `claim kind "postgresqlinstances.database.example.org": its paths are written for version "v1beta1" of postgresqlinstances.database.example.org, ` +
				`and the API server sends these claims as "v1": write the paths for a version that is served, and set spec.version to it`},
		},
		"MalformedName": {
			reason:    "We should ask nobody for a name that no ClaimKind can have.",
			inventory: served,
			request:   newRequest(wantsGold),
			claimKind: "A b",
			want:      want{err: "path: must be /bind/NAME, where NAME is that of a ClaimKind", status: http.StatusBadRequest},
		},
		"NotToldWhether": {
			reason:     "We should not say that a kind is not registered when we could not ask.",
			inventory:  served,
			registered: asClaimKind(false, errors.New("connection refused")),
			request:    newRequest("", func(r *admissionv1.AdmissionRequest) { r.Resource.Resource = "mysqlinstances" }),
			want:       want{err: "connection refused"},
		},
		"Retired": {
			reason:     "We should leave claims alone whose kind is registered no more.",
			inventory:  retired,
			registered: asClaimKind(false, nil),
			request:    newRequest(""),
			want:       want{untouched: "NotRegistered"},
		},
		"Back": {
			reason:     "We should not decide on a kind that was registered again a moment ago.",
			inventory:  retired,
			registered: asClaimKind(true, nil),
			request:    newRequest(""),
			want:       want{err: `claim kind "postgresqlinstances.database.example.org" is not registered on this replica yet; try again in a moment`},
		},
		"Faulty": {
			reason:    "We should not bind by a registration that we do not understand.",
			inventory: faulty,
			request:   newRequest(wantsGold),
			want: want{err: `claim kind "postgresqlinstances.database.example.org" has the seed "Moon", which this release of classbind does not know: ` +
				`set spec.seed to one of Claim, Request, or upgrade classbind`},
		},
		"NoObject": {
			reason:    "We should tell a caller that sends no object.",
			inventory: served,
			request:   newRequest(""),
			want:      want{err: "request.object: must be set", status: http.StatusBadRequest},
		},
		"NotAnObject": {
			reason:    "We should tell a caller that sends something else.",
			inventory: served,
			request:   newRequest(`["db"]`),
			want:      want{err: "request.object: must be an object", status: http.StatusBadRequest},
		},
		"BeingDeleted": {
			reason:    "We should leave a claim alone that is being deleted, whatever it asks for.",
			inventory: served,
			request:   newRequest(`{"metadata":{"deletionTimestamp":"2020-01-01T00:00:00Z"},"spec":{` + mistyped + `}}`),
			want:      want{untouched: "BeingDeleted"},
		},
		"Explicit": {
			reason:    "We should leave an explicit claim alone, whatever its selector says.",
			inventory: served,
			request:   newRequest(`{"spec":{"classRef":{"name":"mine"},` + mistyped + `}}`),
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
			synctest.Test(t, func(t *testing.T) { // It may wait.
				binder := newBinder(t, tc.inventory)
				named := cmp.Or(tc.claimKind, tc.request.Resource.Resource+".database.example.org")
				if tc.registered != nil {
					binder.ClaimKind = func(ctx context.Context, claimKind string) (*v1alpha1.ClaimKind, error) {
						assert.Equal(t, named, claimKind, "We should ask for the ClaimKind that the path names.")
						return tc.registered(ctx, claimKind)
					}
				}
				begin := time.Now()
				response, _, err := binder.Review(t.Context(), named, tc.request)
				if tc.want.err != "" {
					require.EqualError(t, err, tc.want.err, tc.reason)
					bad := &badRequest{}
					assert.Equal(t, tc.want.status != 0, errors.As(err, &bad), "%s Whose fault is it? %s", tc.reason, err)
					assert.Equal(t, tc.want.status, bad.status, tc.reason)
					assert.Nil(t, response, tc.reason)
					return
				}
				require.NoError(t, err, tc.reason)
				assert.Zero(t, time.Since(begin), "We should not keep a claim waiting that we leave alone.")
				assert.Equal(t, &admissionv1.AdmissionResponse{
					Allowed: true, AuditAnnotations: map[string]string{"reason": tc.want.untouched},
				}, response, tc.reason)
			})
		})
	}
}

// TestReviewAwaits a claim kind that the API server knows already, and this replica does not.
func TestReviewAwaits(t *testing.T) {
	notHeardOf := errNotHeardOf(claimKindName).Error()
	bound := `[{"op":"add","path":"/spec/classRef","value":{"apiVersion":"example.org/v1","kind":"SQLClass","name":"gold"}}]`
	for name, tc := range map[string]struct {
		reason  string
		heardOf time.Duration // after the claim was created; 0, never
		fault   bool
		timeout time.Duration
		want    string // the patch, or the error
		after   time.Duration
	}{
		"InAMoment": {
			reason:  "We should bind a claim as soon as we have heard of its kind.",
			heardOf: 50 * time.Millisecond, want: bound, after: 50 * time.Millisecond,
		},
		"InTheLastMoment": {
			reason:  "We should wait while there is a good chance.",
			heardOf: 980 * time.Millisecond, want: bound, after: 980 * time.Millisecond,
		},
		"TooLate": {
			reason:  "We should not keep the API server waiting for longer than a second.",
			heardOf: 1020 * time.Millisecond, want: notHeardOf, after: time.Second,
		},
		"Never": {
			reason: "We should not take a kind that we have not heard of for one that nobody registered.",
			want:   notHeardOf, after: time.Second,
		},
		"NoTime": {
			reason:  "We should wait for no longer than the API server does.",
			heardOf: 200 * time.Millisecond, timeout: 100 * time.Millisecond, want: notHeardOf, after: 100 * time.Millisecond,
		},
		"Fault": {
			reason:  "We should not bind a claim whose registration is at fault, however late we hear of it.",
			heardOf: 50 * time.Millisecond, fault: true, want: "does not know", after: 50 * time.Millisecond,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inventory := selector.NewInventory()
				inventory.SetClasses(index(sqlClasses, "gold tier=gold"))
				inventory.Open()
				binder := newBinder(t, inventory)
				binder.ClaimKind = asClaimKind(true, nil)
				kind := newClaimKind()
				if tc.fault {
					kind = newClaimKind(func(s *v1alpha1.ClaimKindSpec) { s.Seed = "Moon" })
				}
				if tc.heardOf > 0 {
					time.AfterFunc(tc.heardOf, func() { inventory.SetClaimKind(kind) })
				}
				ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(tc.timeout, v1alpha1.WebhookTimeoutSeconds*time.Second))
				defer cancel()
				begin := time.Now()
				response, err := byResource(binder)(ctx, newRequest(wantsGold))
				assert.InDelta(t, tc.after.Seconds(), time.Since(begin).Seconds(), 0.011, tc.reason)
				if tc.want != bound {
					require.ErrorContains(t, err, tc.want, tc.reason)
					assert.Nil(t, response, tc.reason)
					return
				}
				require.NoError(t, err, tc.reason)
				assert.JSONEq(t, tc.want, string(response.Patch), tc.reason)
			})
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
			object: `{"spec":{` + mistyped + `}}`,
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
			response, err := byResource(binder)(t.Context(), newRequest(tc.object))
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
	format := func(f v1alpha1.ReferenceForm) func(*v1alpha1.ClaimKindSpec) {
		return func(s *v1alpha1.ClaimKindSpec) { s.Reference.Form = f }
	}
	classRef := func(p v1alpha1.FieldPath) func(*v1alpha1.ClaimKindSpec) {
		return func(s *v1alpha1.ClaimKindSpec) { s.Reference.Path = p }
	}
	gold := index(sqlClasses, "gold tier=gold @default=true")
	core := selector.NewClassKind(&v1alpha1.ClassKind{
		ObjectMeta: metav1.ObjectMeta{Name: "volumes"}, Spec: v1alpha1.ClassKindSpec{ClaimKinds: []string{claimKindName}},
	}, schema.GroupVersionKind{Version: "v1", Kind: "Volume"}, false)
	for name, tc := range map[string]struct {
		reason  string
		kind    *selector.ClaimKind
		classes *selector.Classes
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
			kind:   newClaimKind(func(s *v1alpha1.ClaimKindSpec) { s.ClassNamespaces.From = v1alpha1.FromAll }), classes: index(rdsClasses, "gold tier=gold"), object: wantsGold,
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
			response, err := byResource(newBinder(t, newInventory(tc.kind, tc.classes)))(t.Context(), newRequest(tc.object))
			require.NoError(t, err, tc.reason)
			assert.True(t, response.Allowed, tc.reason)
			assert.Equal(t, tc.want, string(response.Patch), tc.reason)
			require.NotNil(t, response.PatchType, tc.reason)
			assert.Equal(t, admissionv1.PatchTypeJSONPatch, *response.PatchType, tc.reason)
			assert.Empty(t, response.Warnings, tc.reason)
		})
	}
}

func TestReviewTakesTurns(t *testing.T) {
	inventory := newInventory(newClaimKind(func(s *v1alpha1.ClaimKindSpec) { s.Strategy = v1alpha1.RoundRobin }),
		index(sqlClasses, "a tier=gold", "b tier=gold", "c tier=gold"))
	binder := newBinder(t, inventory)
	dry := func(r *admissionv1.AdmissionRequest) { r.DryRun = new(true) }
	got := map[string]int{}
	for range 9 {
		said, err := byResource(binder)(t.Context(), newRequest(wantsGold, dry))
		require.NoError(t, err)
		again, err := byResource(binder)(t.Context(), newRequest(wantsGold, dry))
		require.NoError(t, err)
		assert.Equal(t, string(said.Patch), string(again.Patch), "We should take no turn in a dry run.")
		response, err := byResource(binder)(t.Context(), newRequest(wantsGold))
		require.NoError(t, err)
		assert.Equal(t, string(said.Patch), string(response.Patch), "We should give what a dry run said is next.")
		got[response.AuditAnnotations["class"]]++
	}
	assert.Equal(t, map[string]int{"SQLClass/a": 3, "SQLClass/b": 3, "SQLClass/c": 3}, got, "We should give each class in turn.")
}
