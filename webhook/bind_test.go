package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1beta1"
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
	pin := func(k *v1beta1.ClaimKind) *v1beta1.ClaimKind {
		k.Spec.Claims.Version = "v1beta1"
		return k
	}
	pinned.SetClaimKind(selector.NewClaimKind(pin(claimKindOf(claimKindName))))
	pinned.Open()
	faulty := newInventory(newClaimKind(func(s *v1beta1.ClaimKindSpec) { s.Choice.Seed = "Moon" }), index(sqlClasses, "gold"))

	type want struct {
		untouched string
		err       string
		status    int
	}
	unregistered, registered := asClaimKind(false, nil), asClaimKind(true, nil)
	other := newRequest(wantsGold, func(r *admissionv1.AdmissionRequest) { r.Resource.Resource = "mysqlinstances" })
	deletion := newRequest("", func(r *admissionv1.AdmissionRequest) { r.Operation = admissionv1.Delete })
	subresource := newRequest("", func(r *admissionv1.AdmissionRequest) { r.SubResource = "scale" })
	const notYet = `claim kind "%s" is not registered on this replica yet; try again in a moment`
	for name, tc := range map[string]struct {
		reason     string
		inventory  *selector.Inventory // served unless set
		registered func(context.Context, string) (*v1beta1.ClaimKind, error)
		request    *admissionv1.AdmissionRequest // newRequest(wantsGold) unless set
		claimKind  string                        // in the path; without it, that of the resource
		want       want
	}{
		"NotACreation": {
			reason:    "We should leave a deletion alone, even before we know any class.",
			inventory: closed, request: deletion, want: want{untouched: "NotACreation"},
		},
		"Subresource": {
			reason:    "We should leave a subresource alone, even before we know any class.",
			inventory: closed, request: subresource, want: want{untouched: "NotACreation"},
		},
		"Closed": {
			reason:    "We should not decide on part of the classes.",
			inventory: closed, want: want{err: "not all registered classes have been listed yet; try again in a moment"},
		},
		"Unknown": {
			reason:  "We should not decide on a kind that another replica may know already.",
			request: other, registered: registered, want: want{err: fmt.Sprintf(notYet, "mysqlinstances.database.example.org")},
		},
		"NeverRegistered": {
			reason:  "We should leave claims alone whose kind is not registered.",
			request: other, registered: unregistered, want: want{untouched: "NotRegistered"},
		},
		"OtherResource": {
			reason:  "We should leave claims alone that are not those of the registration.",
			request: other, registered: registered, claimKind: claimKindName, want: want{untouched: "NotRegistered"},
		},
		"OtherVersion": {
			reason:    "We should not read a claim by paths that are written for another version, and say what helps.",
			inventory: pinned,
			registered: func(context.Context, string) (*v1beta1.ClaimKind, error) {
				return pin(claimKindOf(claimKindName)), nil
			},
			want: want{err: `claim kind "postgresqlinstances.database.example.org": its paths are written for version "v1beta1" of postgresqlinstances.database.example.org, ` +
				`and the API server sends these claims as "v1": write the paths for a version that is served, and set spec.claims.version to it`},
		},
		"MalformedName": {
			reason:    "We should ask nobody for a name that no ClaimKind can have.",
			claimKind: "A b", want: want{err: "path: must be /bind/NAME, where NAME is that of a ClaimKind", status: http.StatusBadRequest},
		},
		"NotToldWhether": {
			reason:  "We should not say that a kind is not registered when we could not ask.",
			request: other, registered: asClaimKind(false, errors.New("connection refused")), want: want{err: "connection refused"},
		},
		"Retired": {
			reason:    "We should leave claims alone whose kind is registered no more.",
			inventory: retired, registered: unregistered, want: want{untouched: "NotRegistered"},
		},
		"Back": {
			reason:    "We should not decide on a kind that was registered again a moment ago.",
			inventory: retired, registered: registered, want: want{err: fmt.Sprintf(notYet, claimKindName)},
		},
		"Faulty": {
			reason:    "We should not bind by a registration that we do not understand.",
			inventory: faulty,
			want: want{err: `claim kind "postgresqlinstances.database.example.org" has the choice.seed "Moon", which this release of classbind does not know: ` +
				`set spec.choice.seed to one of Claim, Request, or upgrade classbind`},
		},
		"NoObject": {
			reason:  "We should tell a caller that sends no object.",
			request: newRequest(""), want: want{err: "request.object: must be set", status: http.StatusBadRequest},
		},
		"NotAnObject": {
			reason:  "We should tell a caller that sends something else.",
			request: newRequest(`["db"]`), want: want{err: "request.object: must be an object", status: http.StatusBadRequest},
		},
		"BeingDeleted": {
			reason:  "We should leave a claim alone that is being deleted, whatever it asks for.",
			request: newRequest(`{"metadata":{"deletionTimestamp":"2020-01-01T00:00:00Z"},"spec":{` + mistyped + `}}`),
			want:    want{untouched: "BeingDeleted"},
		},
		"Explicit": {
			reason:  "We should leave an explicit claim alone, whatever its selector says.",
			request: newRequest(`{"spec":{"classRef":{"name":"mine"},` + mistyped + `}}`), want: want{untouched: "Settled"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // It may wait.
				binder := newBinder(t, cmp.Or(tc.inventory, served))
				request := cmp.Or(tc.request, newRequest(wantsGold))
				named := cmp.Or(tc.claimKind, request.Resource.Resource+".database.example.org")
				if tc.registered != nil {
					binder.ClaimKind = func(ctx context.Context, claimKind string) (*v1beta1.ClaimKind, error) {
						assert.Equal(t, named, claimKind, "We should ask for the ClaimKind that the path names.")
						return tc.registered(ctx, claimKind)
					}
				}
				begin := time.Now()
				response, _, err := binder.Review(t.Context(), named, request)
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
					kind = newClaimKind(func(s *v1beta1.ClaimKindSpec) { s.Choice.Seed = "Moon" })
				}
				if tc.heardOf > 0 {
					time.AfterFunc(tc.heardOf, func() { inventory.SetClaimKind(kind) })
				}
				ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(tc.timeout, v1beta1.WebhookTimeoutSeconds*time.Second))
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

// TestReviewRefusesMalformedClaims with all that the selector package finds wrong.
func TestReviewRefusesMalformedClaims(t *testing.T) {
	binder := newBinder(t, newInventory(newClaimKind(), index(sqlClasses, "gold tier=gold @default=true")))
	response, err := byResource(binder)(t.Context(), newRequest(`{"spec":{`+mistyped+`}}`))
	require.NoError(t, err)
	assert.False(t, response.Allowed)
	assert.Empty(t, response.Patch)
	assert.Equal(t, map[string]string{"reason": "MalformedClaim"}, response.AuditAnnotations)
	status := response.Result
	require.NotNil(t, status)
	assert.Equal(t, metav1.StatusFailure, status.Status)
	assert.EqualValues(t, http.StatusUnprocessableEntity, status.Code)
	assert.Equal(t, metav1.StatusReasonInvalid, status.Reason)
	const field = "spec.classSelector.matchExpressions[0].operator"
	assert.True(t, strings.HasPrefix(status.Message, `PostgreSQLInstance.database.example.org "db" is invalid: `+field+": "), status.Message)
	require.Len(t, status.Details.Causes, 1)
	assert.Equal(t, field, status.Details.Causes[0].Field)
	assert.Equal(t, metav1.CauseTypeFieldValueInvalid, status.Details.Causes[0].Type)
}

// TestReviewInConflict has a replica that knows two ClaimKinds with the same reference. The
// leader has the API server ask by the entry of one of them, and may know better which.
func TestReviewInConflict(t *testing.T) {
	const second = "z-second"
	later := newRegistration(func(s *v1beta1.ClaimKindSpec) { s.Claims.Resource = claimKindName })
	later.Name = second
	golds := newClassKind("golds", "Gold", false)
	golds.ClaimKinds = []string{second}
	inventory := newInventory(newClaimKind(), index(sqlClasses, "gold tier=gold"))
	inventory.SetClaimKind(selector.NewClaimKind(later))
	inventory.SetClasses(index(golds, "gold tier=gold"))
	require.NotNil(t, inventory.Snapshot()[second].Conflict)
	for claimKind, kind := range map[string]string{claimKindName: sqlClasses.GroupVersionKind.Kind, second: "Gold"} {
		response, _, err := newBinder(t, inventory).Review(t.Context(), claimKind, newRequest(wantsGold))
		require.NoError(t, err)
		assert.Equal(t, "MatchingClass", response.AuditAnnotations["reason"])
		assert.Contains(t, string(response.Patch), `"`+kind+`"`, "We should bind a claim by the ClaimKind whose entry asks.")
	}
}
