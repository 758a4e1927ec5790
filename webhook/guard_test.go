package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/selector"
)

// TestGuardLeavesAlone has a row for each guard clause, in their order. Each row
// would also be caught by a clause after it, so a clause that moves shows.
func TestGuardLeavesAlone(t *testing.T) {
	malformed := object("gold", `,"annotations":{"default":"true","weight":"much"}`, "")
	for name, tc := range map[string]struct {
		reason  string
		request *admissionv1.AdmissionRequest
		want    string
	}{
		"Deletion": {
			reason:  "We should leave a deletion alone, which has no object.",
			request: newGuardRequest(sqlClasses, "", "", func(r *admissionv1.AdmissionRequest) { r.Operation = admissionv1.Delete }),
			want:    "NotACreationOrUpdate",
		},
		"Subresource": {
			reason:  "We should leave a subresource alone, whose object may be of another kind.",
			request: newGuardRequest(sqlClasses, `{}`, `{}`, func(r *admissionv1.AdmissionRequest) { r.SubResource = "scale" }),
			want:    "NotACreationOrUpdate",
		},
		"NotRegistered": {
			reason:  "We should leave classes alone whose kind is registered no more, whatever they look like.",
			request: newGuardRequest(sqlClasses, "", "", func(r *admissionv1.AdmissionRequest) { r.Resource.Resource = "others" }),
			want:    "NotRegistered",
		},
		"BeingDeleted": {
			reason:  "We should leave a class alone that is being deleted, so that its finalizers can be removed, whatever it looks like.",
			request: newGuardRequest(sqlClasses, silver, object("silver", beingDeleted+`,"annotations":{"default":"true","weight":"much"}`, "")),
			want:    "BeingDeleted",
		},
		"NotDefault": {
			reason:  "We should leave a class alone that is not marked, before we know any other.",
			request: newGuardRequest(sqlClasses, "", object("gold", "", "")), want: "NotDefault",
		},
		"DefaultNoMore": {
			reason:  "We should let a class be default no more, before we know any other.",
			request: newGuardRequest(sqlClasses, silverMarked, silver), want: "NotDefault",
		},
		"DefaultAlready": {
			reason:  "We should leave a class alone that was default before, so that two that there are can be mended.",
			request: newGuardRequest(sqlClasses, silverMarked, silverMarked), want: "DefaultAlready",
		},
		"DefaultAlreadyByPath": {
			reason:  "We should read the old object where the kind says.",
			request: newGuardRequest(pathClasses, pathMarked, pathMarked), want: "DefaultAlready",
		},
		"DefaultAlreadyWithAMalformedWeight": {
			reason:  "We should leave a weight alone that was malformed before.",
			request: newGuardRequest(sqlClasses, malformed, malformed), want: "DefaultAlready",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newAPIServer()
			s.classes["sqlclasses.example.org//gold"] = object("gold", marked, "")
			response, err := s.guard(selector.NewInventory()).Review(t.Context(), tc.request)
			require.NoError(t, err, tc.reason)
			assert.Equal(t, &admissionv1.AdmissionResponse{Allowed: true, AuditAnnotations: map[string]string{"reason": tc.want}}, response, tc.reason)
			assert.Empty(t, s.done, "We should look at no Lease.")
		})
	}
}

func TestGuardRefusesMalformedWeights(t *testing.T) {
	weighing := func(weight string) string {
		return object("silver", fmt.Sprintf(`,"annotations":{"default":"true","weight":%q}`, weight), "")
	}
	half := object("path", "", `,"spec":{"weight":1.5}`)
	annotation, field := "metadata.annotations[weight]", "spec.weight"
	for name, tc := range map[string]struct {
		reason  string
		request *admissionv1.AdmissionRequest
		want    string // the field
	}{
		"Created":          {"We should refuse to create a class with a malformed weight.", newGuardRequest(sqlClasses, "", weighing("much")), annotation},
		"CreatedByPath":    {"We should name the field whose weight is malformed.", newGuardRequest(pathClasses, "", half), field},
		"Added":            {"We should refuse to give a class a malformed weight.", newGuardRequest(sqlClasses, silverMarked, weighing("much")), annotation},
		"AddedByPath":      {"We should refuse to give a class a malformed weight.", newGuardRequest(pathClasses, path, half), field},
		"Spoilt":           {"We should refuse to spoil a weight.", newGuardRequest(sqlClasses, weighing("1"), weighing("much")), annotation},
		"SpoiltAnotherWay": {"We should refuse to put one malformed weight in the place of another.", newGuardRequest(sqlClasses, weighing("more"), weighing("much")), annotation},
		"Unchanged":        {"We should let a class be updated whose weight was malformed before.", newGuardRequest(sqlClasses, weighing("much"), weighing("much")), ""},
		"UnchangedByPath":  {"We should let a class be updated whose weight was malformed before.", newGuardRequest(pathClasses, half, half), ""},
		"Mended":           {"We should let a malformed weight be mended.", newGuardRequest(sqlClasses, weighing("much"), weighing("1")), ""},
		"Removed":          {"We should let a malformed weight be removed.", newGuardRequest(sqlClasses, weighing("much"), silverMarked), ""},
		"Elsewhere":        {"We should read where the kind says, and nowhere else.", newGuardRequest(pathClasses, "", weighing("much")), ""},
	} {
		t.Run(name, func(t *testing.T) {
			response, err := newAPIServer().guard(selector.NewInventory()).Review(t.Context(), tc.request)
			require.NoError(t, err, tc.reason)
			assert.Equal(t, tc.want == "", response.Allowed, tc.reason)
			if tc.want == "" {
				return
			}
			message := map[string]string{
				annotation: `SQLClass.example.org "silver" is invalid: metadata.annotations[weight]: Invalid value: "much": must be an integer from 0 to 1000000`,
				field:      `PathClass.example.org "path" is invalid: spec.weight: Invalid value: 1.5: must be an integer from 0 to 1000000`,
			}[tc.want]
			assert.Equal(t, message, response.Result.Message, tc.reason)
			assert.EqualValues(t, http.StatusUnprocessableEntity, response.Result.Code, tc.reason)
			assert.Equal(t, metav1.StatusReasonInvalid, response.Result.Reason, tc.reason)
			require.Len(t, response.Result.Details.Causes, 1, tc.reason)
			assert.Equal(t, tc.want, response.Result.Details.Causes[0].Field, tc.reason)
			assert.Equal(t, map[string]string{"reason": "MalformedWeight"}, response.AuditAnnotations, tc.reason)
		})
	}
}

// TestGuardAdmits a default class, from what the inventory, the API server and the Leases say of others.
func TestGuardAdmits(t *testing.T) {
	creation, update := newGuardRequest(sqlClasses, "", silverMarked), newGuardRequest(sqlClasses, silver, silverMarked)
	created := []*coordinationv1.Lease{newLease(claimKindName, "sqlclasses.example.org/silver", "silver-1", "", now)}
	updated := []*coordinationv1.Lease{newLease(claimKindName, "sqlclasses.example.org/silver", "silver-1", "10", now)}
	goldKnown, awsKnown := index(sqlClasses, "gold @default=true"), index(rdsClasses, "gold @default=true")
	for name, tc := range map[string]struct {
		reason  string
		request *admissionv1.AdmissionRequest
		known   []*selector.Classes
		there   func(*apiServer)
		want    []*coordinationv1.Lease // in the order in which they are taken
	}{
		"Creation": {
			reason:  "We should record who is created as default, when, and for how long that may be in flight.",
			request: creation, want: created,
		},
		"Update": {
			reason:  "We should record the version of the old object: the new one has what its author wrote, or none.",
			request: newGuardRequest(sqlClasses, silver, strings.Replace(silverMarked, `"resourceVersion":"10",`, "", 1)), want: updated,
		},
		"Namespaced": {
			reason:  "We should record the namespace of a class that has one.",
			request: newGuardRequest(rdsClasses, "", object("gold", markedInAWS, "")),
			want:    []*coordinationv1.Lease{newLease(claimKindName, "rdsclasses.example.org/aws/gold", "gold-1", "", now)},
		},
		"SeveralClaimKinds": {
			reason:  "We should take the Leases of all claim kinds in the order of their names.",
			request: newGuardRequest(pathClasses, "", pathMarked),
			want: []*coordinationv1.Lease{
				newLease(otherClaimKindName, "pathclasses.example.org/path", "path-1", "", now),
				newLease(claimKindName, "pathclasses.example.org/path", "path-1", "", now),
			},
		},
		"AskedAgain": {
			reason:  "We should admit a class again of which the API server asks again, with a newer version.",
			request: update, want: updated,
			there: func(s *apiServer) { s.holds(claimKindName, "sqlclasses.example.org/silver", "silver-1", "9", now) },
		},
		"KnownItself": {
			reason:  "We should not count a class against itself that our cache has as default already.",
			request: update, want: updated, known: []*selector.Classes{index(sqlClasses, "silver @default=true")},
			there: func(s *apiServer) { s.classes["sqlclasses.example.org//silver"] = silverMarked },
		},
		"OtherBeingDeleted": {
			reason:  "We should not count a default that is being deleted, whoever names it.",
			request: creation, want: created, known: []*selector.Classes{goldKnown},
			there: func(s *apiServer) {
				s.classes["sqlclasses.example.org//gold"] = object("gold", marked+beingDeleted, "")
				s.holds(claimKindName, "sqlclasses.example.org/gold", "gold-1", "", now)
			},
		},
		"OtherDefaultNoMore": {
			reason:  "We should believe the API server, rather than our cache, that a class is default no more.",
			request: creation, want: created, known: []*selector.Classes{goldKnown},
			there: func(s *apiServer) { s.classes["sqlclasses.example.org//gold"] = object("gold", "", "") },
		},
		"OtherGone": {
			reason:  "We should believe the API server, rather than our cache, that a class is gone.",
			request: creation, want: created, known: []*selector.Classes{goldKnown, awsKnown},
		},
		"OtherNotStored": {
			reason:  "We should pass over a creation that did not land within its window.",
			request: creation, want: created,
			there: func(s *apiServer) {
				s.holds(claimKindName, "sqlclasses.example.org/gold", "gold-1", "", now.Add(-90*time.Second))
			},
		},
		"OtherOfAKindThatIsGone": {
			reason:  "We should not count a class whose kind is registered no more.",
			request: creation, want: created, known: []*selector.Classes{awsKnown},
			there: func(s *apiServer) {
				delete(s.kinds, rdsClasses.Name)
				s.classes["rdsclasses.example.org/aws/gold"] = object("gold", markedInAWS, "")
				s.holds(claimKindName, "rdsclasses.example.org/aws/gold", "gold-1", "10", now)
			},
		},
		"OtherOfAKindThatServesOthers": {
			reason:  "We should not count a class whose kind serves the claim kind no more.",
			request: creation, want: created, known: []*selector.Classes{awsKnown},
			there: func(s *apiServer) {
				elsewhere := *rdsClasses
				elsewhere.ClaimKinds = []string{otherClaimKindName}
				s.kinds[rdsClasses.Name] = &elsewhere
				s.classes["rdsclasses.example.org/aws/gold"] = object("gold", markedInAWS, "")
				s.holds(claimKindName, "rdsclasses.example.org/aws/gold", "gold-1", "", now)
			},
		},
	} {
		inDryRunToo(t, name, tc.request, func(t *testing.T, request *admissionv1.AdmissionRequest) {
			s := newAPIServer()
			if tc.there != nil {
				tc.there(s)
			}
			held, done := s.held(), []string(nil)
			for _, l := range tc.want {
				verb := "create "
				if s.leases[l.Name] != nil {
					verb = "update "
				}
				done = append(done, "get "+l.Name)
				if request.DryRun == nil {
					done = append(done, verb+l.Name)
					held[l.Name] = l
				}
			}
			response, err := s.guard(newInventory(newClaimKind(), tc.known...)).Review(t.Context(), request)
			require.NoError(t, err, tc.reason)
			assert.Equal(t, &admissionv1.AdmissionResponse{Allowed: true, AuditAnnotations: map[string]string{"reason": "OneDefault"}}, response, tc.reason)
			assert.Equal(t, done, s.done, "We should read each Lease and, but for a dry run, write it.")
			assert.Equal(t, held, s.held(), tc.reason)
		})
	}
}

// TestGuardRefuses a second default, and says what to do.
func TestGuardRefuses(t *testing.T) {
	const (
		message = `%s.example.org "%s" is forbidden: "%s" is the default class for "postgresqlinstances.database.example.org" already: ` +
			`to move the default, %s: classbind set-default %s --for postgresqlinstances.database.example.org; to take it from "%[3]s" and no more, run: %[6]s`
		unmarkGold = "kubectl annotate sqlclasses.example.org gold default-"
	)
	goldHolds := func(s *apiServer) {
		s.classes["sqlclasses.example.org//gold"] = object("gold", marked, "")
		s.holds(claimKindName, "sqlclasses.example.org/gold", "gold-1", "", now)
	}
	update := newGuardRequest(sqlClasses, silver, silverMarked)
	type want struct{ resource, name, other, first, class, unmark, inTheWay string }
	for name, tc := range map[string]struct {
		reason  string
		request *admissionv1.AdmissionRequest
		known   []*selector.Classes
		there   func(*apiServer)
		want    want
	}{
		"Update": {
			reason:  "We should name the default, and the commands that move it and that take it away.",
			request: update, there: goldHolds,
			want: want{"sqlclasses", "silver", "SQLClass/gold", "run", "sqlclasses.example.org/silver", unmarkGold, "sqlclasses.example.org/gold"},
		},
		"Creation": {
			reason:  "We should say that a class has to be there before the default can be moved to it.",
			request: newGuardRequest(sqlClasses, "", silverMarked), there: goldHolds,
			want: want{"sqlclasses", "silver", "SQLClass/gold", "create this class without its mark, then run", "sqlclasses.example.org/silver", unmarkGold, "sqlclasses.example.org/gold"},
		},
		"ToANamespace": {
			reason:  "We should name the namespace of a class that is to become default.",
			request: newGuardRequest(rdsClasses, object("bronze", `,"namespace":"aws"`, ""), object("bronze", markedInAWS, "")), there: goldHolds,
			want: want{"rdsclasses", "bronze", "SQLClass/gold", "run", "rdsclasses.example.org/aws/bronze", unmarkGold, "sqlclasses.example.org/gold"},
		},
		"FromANamespaceWithoutALease": {
			reason:  "We should count a default that no Lease knows, and name its namespace.",
			request: update, known: []*selector.Classes{index(rdsClasses, "gold @default=true")},
			there: func(s *apiServer) { s.classes["rdsclasses.example.org/aws/gold"] = object("gold", markedInAWS, "") },
			want: want{
				"sqlclasses", "silver", "RDSClass/aws/gold", "run", "sqlclasses.example.org/silver",
				"kubectl annotate rdsclasses.example.org gold --namespace aws default-", "rdsclasses.example.org/aws/gold",
			},
		},
		"FromAField": {
			reason:  "We should say how to remove a field, where that is the mark, however long ago it was set.",
			request: update,
			there: func(s *apiServer) {
				s.classes["pathclasses.example.org//path"] = pathMarked
				s.holds(claimKindName, "pathclasses.example.org/path", "path-1", "9", now.Add(-time.Hour))
			},
			want: want{
				"sqlclasses", "silver", "PathClass/path", "run", "sqlclasses.example.org/silver",
				`kubectl patch pathclasses.example.org path --type json --patch '[{"op":"remove","path":"/spec/isDefault"}]'`, "pathclasses.example.org/path",
			},
		},
		"ForOneOfSeveralClaimKinds": {
			reason:  "We should refuse a class for the sake of one of its claim kinds, and leave the Leases of the others as they were.",
			request: newGuardRequest(pathClasses, path, pathMarked),
			there: func(s *apiServer) {
				goldHolds(s)
				s.holds(otherClaimKindName, "sqlclasses.example.org/long-gone", "long-gone-1", "1", now.Add(-time.Hour))
			},
			want: want{"pathclasses", "path", "SQLClass/gold", "run", "pathclasses.example.org/path", unmarkGold, "sqlclasses.example.org/gold"},
		},
	} {
		inDryRunToo(t, name, tc.request, func(t *testing.T, request *admissionv1.AdmissionRequest) {
			s := newAPIServer()
			tc.there(s)
			held := s.held()
			response, err := s.guard(newInventory(newClaimKind(), tc.known...)).Review(t.Context(), request)
			require.NoError(t, err, tc.reason)
			w := tc.want
			assert.Equal(t, &admissionv1.AdmissionResponse{
				Result: &metav1.Status{
					Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
					Message: fmt.Sprintf(message, w.resource, w.name, w.other, w.first, w.class, w.unmark),
					Details: &metav1.StatusDetails{Group: "example.org", Kind: w.resource, Name: w.name},
				},
				AuditAnnotations: map[string]string{"reason": "SecondDefault", "inTheWay": w.inTheWay},
			}, response, tc.reason)
			assert.Equal(t, held, s.held(), "We should leave all Leases as they were.")
			wrote := slices.ContainsFunc(s.done, func(operation string) bool { return !strings.HasPrefix(operation, "get ") })
			assert.False(t, wrote && request.DryRun != nil, "We should write nothing in a dry run, not even to put it back.")
		})
	}
}

// TestGuardRefusesForNow waits for what is in flight, in the time of a bubble, for 310 ms.
func TestGuardRefusesForNow(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		base    string
		age     time.Duration // of what is in flight
		timeout time.Duration
		want    int32
	}{
		"JustNow":      {reason: "We should say how long it may yet take, once we have waited a little.", want: 90},
		"Update":       {reason: "We should wait for an update whose version the API server still has.", base: "10", want: 90},
		"Fraction":     {reason: "We should have nobody come back too early.", age: 30400 * time.Millisecond, want: 60},
		"WholeSeconds": {reason: "We should not add a second to whole ones.", age: 29500 * time.Millisecond, want: 60},
		"LastMoment":   {reason: "We should not say that there is no need to wait.", age: 89400 * time.Millisecond, want: 1},
		"NoTime":       {reason: "We should wait for no longer than the API server does.", age: 29900 * time.Millisecond, timeout: 25 * time.Millisecond, want: 61},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newAPIServer()
				s.holds(claimKindName, "rdsclasses.example.org/aws/gold", "gold-1", tc.base, time.Now().Add(-tc.age))
				if tc.base != "" {
					s.classes["rdsclasses.example.org/aws/gold"] = object("gold", `,"namespace":"aws"`, "")
				}
				guard := s.guard(newInventory(newClaimKind()))
				guard.Now = time.Now
				ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(tc.timeout, time.Hour))
				defer cancel()
				response, err := guard.Review(ctx, newGuardRequest(sqlClasses, silver, silverMarked))
				require.NoError(t, err, tc.reason)
				assert.Equal(t, &admissionv1.AdmissionResponse{
					Result: &metav1.Status{
						Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
						Message: `sqlclasses.example.org "silver" is forbidden: "rdsclasses.example.org/aws/gold" is being made the default class for ` +
							`"postgresqlinstances.database.example.org" and may yet be stored: try again in ` + strconv.Itoa(int(tc.want)) + ` s`,
						Details: &metav1.StatusDetails{Group: "example.org", Kind: "sqlclasses", Name: "silver", RetryAfterSeconds: tc.want},
					},
					AuditAnnotations: map[string]string{"reason": "DefaultInFlight", "inTheWay": "rdsclasses.example.org/aws/gold"},
				}, response, tc.reason)
			})
		})
	}
}

func TestGuardOfRegisteredClaimKinds(t *testing.T) {
	s := newAPIServer()
	onlyOther := selector.NewInventory()
	onlyOther.Open()
	response, err := s.guard(onlyOther).Review(t.Context(), newGuardRequest(pathClasses, path, pathMarked))
	require.NoError(t, err)
	assert.True(t, response.Allowed)
	assert.Equal(t, []string{"get " + otherClaimKindName, "create " + otherClaimKindName}, s.done, "We should take no Lease of a claim kind that nobody registered.")

	response, err = s.guard(onlyOther).Review(t.Context(), newGuardRequest(sqlClasses, silver, silverMarked))
	require.NoError(t, err)
	assert.Equal(t, untouched("NoClaimKind"), response, "We should leave a class alone that serves no registered claim kind.")
}

func TestGuardOfAClaimKindNotHeardOf(t *testing.T) {
	for name, tc := range map[string]struct {
		reason     string
		registered bool
		err        error
		want       string
	}{
		"NotHeardOf":  {"We should not pass over a claim kind that we are about to hear of.", true, nil, "is not registered on this replica yet"},
		"NotAnswered": {"We should not pass over a claim kind of which we cannot tell.", false, errors.New("connection refused"), "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newAPIServer()
			guard := s.guard(newInventory(newClaimKind()))
			guard.Snapshot = func() selector.Snapshot { return selector.Snapshot{} }
			guard.Registered = func(context.Context, string) (bool, error) { return tc.registered, tc.err }
			_, err := guard.Review(t.Context(), newGuardRequest(sqlClasses, silver, silverMarked))
			require.ErrorContains(t, err, tc.want, tc.reason)
			assert.Empty(t, s.done, "We should touch no Lease.")
		})
	}
}

func TestGuardRefusesASecondCreation(t *testing.T) {
	s := newAPIServer()
	s.holds(claimKindName, "sqlclasses.example.org/silver", "silver-0", "", now)
	known := newInventory(newClaimKind())
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	response, err := s.guard(known).Review(ctx, newGuardRequest(sqlClasses, "", silverMarked))
	require.NoError(t, err)
	assert.Contains(t, response.Result.Message, `an earlier request to make "sqlclasses.example.org/silver" the default class`, "We should not speak of the class as of another.")

	s.classes["sqlclasses.example.org//silver"] = strings.ReplaceAll(silverMarked, "silver-1", "silver-0")
	response, err = s.guard(known).Review(t.Context(), newGuardRequest(sqlClasses, "", silverMarked))
	require.NoError(t, err)
	assert.Equal(t, metav1.StatusReasonAlreadyExists, response.Result.Reason, "We should answer as the API server would, and not advise to take the mark from the class itself.")
}

func TestGuardRefusesWhatIsThereAlready(t *testing.T) {
	s := newAPIServer()
	s.classes["sqlclasses.example.org//silver"] = silver
	known := newInventory(newClaimKind(), index(sqlClasses, "silver"))
	response, err := s.guard(known).Review(t.Context(), newGuardRequest(sqlClasses, "", silverMarked))
	require.NoError(t, err)
	assert.Equal(t, &admissionv1.AdmissionResponse{
		Result: &metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusConflict, Reason: metav1.StatusReasonAlreadyExists,
			Message: `sqlclasses.example.org "silver" already exists`,
			Details: &metav1.StatusDetails{Group: "example.org", Kind: "sqlclasses", Name: "silver"},
		},
		AuditAnnotations: map[string]string{"reason": "AlreadyExists"},
	}, response, "We should answer as the API server would.")
	assert.Empty(t, s.done, "We should hold no Lease for what cannot be stored.")

	delete(s.classes, "sqlclasses.example.org//silver")
	response, err = s.guard(known).Review(t.Context(), newGuardRequest(sqlClasses, "", silverMarked))
	require.NoError(t, err)
	assert.True(t, response.Allowed, "We should admit a class that was deleted a moment ago.")
}

// TestGuardCannotAnswer has a row for each of the guard's questions that may fail.
func TestGuardCannotAnswer(t *testing.T) {
	refused := errors.New("connection refused")
	const unreadable = `cannot tell whether "sqlclasses.example.org/gold" is the default of claim kind "postgresqlinstances.database.example.org": ` +
		`connection refused; let classbind read it, or delete the ClassKind "sqlclasses.example.org"`
	creation, update := newGuardRequest(pathClasses, "", pathMarked), newGuardRequest(pathClasses, path, pathMarked)
	// at the nth operation of that name.
	at := func(n int, operation, name string, then func(*apiServer) error) func(*apiServer) {
		return func(s *apiServer) {
			s.fail = func(o, of string) error {
				if o != operation || of != name {
					return nil
				}
				if n--; n != 0 {
					return nil
				}
				return then(s)
			}
		}
	}
	fail := func(*apiServer) error { return refused }
	for name, tc := range map[string]struct {
		reason  string
		request *admissionv1.AdmissionRequest
		closed  bool
		there   func(*apiServer)
		want    string
	}{
		"Closed": {
			reason:  "We should not decide before we know all classes, not even that one is there already.",
			request: creation, closed: true, there: func(s *apiServer) { s.classes["pathclasses.example.org//path"] = path },
			want: "not all registered classes have been listed yet; try again in a moment",
		},
		"ClassKind": {
			reason:  "We should not leave a class alone of whose kind we cannot tell whether it is registered.",
			request: update, there: at(1, "get class kind", pathClasses.Name, fail), want: "connection refused",
		},
		"WhetherItIsThere": {
			reason:  "We should not go on where we cannot tell whether the class is there already.",
			request: creation, there: at(1, "get class", "path", fail), want: "connection refused",
		},
		"FirstLease": {
			reason:  "We should not go on without the first Lease.",
			request: update, there: at(1, "get lease", otherClaimKindName, fail),
			want: `cannot get the Lease of claim kind "mysqlinstances.database.example.org": connection refused`,
		},
		"FirstLeaseNotWritten": {
			reason:  "We should not admit what we could not record.",
			request: update, there: at(1, "create lease", otherClaimKindName, fail),
			want: `cannot write the Lease of claim kind "mysqlinstances.database.example.org": connection refused`,
		},
		"SecondLease": {
			reason:  "We should not go on without the second Lease.",
			request: update, there: at(1, "get lease", claimKindName, fail),
			want: `cannot get the Lease of claim kind "postgresqlinstances.database.example.org": connection refused`,
		},
		"MalformedLease": {
			reason:  "We should say what to do about a Lease that somebody spoilt, and not take it for free.",
			request: update, there: func(s *apiServer) { s.leases[claimKindName].Annotations = nil },
			want: `cannot get the Lease of claim kind "postgresqlinstances.database.example.org": it is not as classbind writes it (holderIdentity "sqlclasses.example.org/gold"): kubectl delete lease postgresqlinstances.database.example.org --namespace `,
		},
		"ClassKindOfTheOther": {
			reason:  "We should not pass over another whose kind we cannot get.",
			request: update, there: at(1, "get class kind", sqlClasses.Name, fail), want: unreadable,
		},
		"Other": {
			reason:  "We should not pass over another that we cannot get.",
			request: update, there: at(1, "get class", "gold", fail), want: unreadable,
		},
		"ClassKindForTheText": {
			reason:  "We should not refuse without a way out.",
			request: update, there: at(2, "get class kind", sqlClasses.Name, fail), want: "connection refused",
		},
		"ClassKindForTheTextIsGone": {
			reason:  "We should not refuse for the sake of a class whose kind was deleted while we looked.",
			request: update, want: `class kind "sqlclasses.example.org" was deleted a moment ago; try again`,
			there: at(1, "get class", "gold", func(s *apiServer) error {
				delete(s.kinds, sqlClasses.Name)
				return nil
			}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newAPIServer()
			s.classes["sqlclasses.example.org//gold"] = object("gold", marked, "")
			s.holds(claimKindName, "sqlclasses.example.org/gold", "gold-1", "", now.Add(-time.Hour))
			tc.there(s)
			held, inventory := s.held(), newInventory(newClaimKind(), index(pathClasses, "path"))
			if tc.closed {
				inventory = selector.NewInventory()
			}
			response, err := s.guard(inventory).Review(t.Context(), tc.request)
			require.EqualError(t, err, tc.want, tc.reason)
			assert.Nil(t, response, "We should leave it to the failurePolicy.")
			bad := (*badRequest)(nil)
			assert.NotErrorAs(t, err, &bad, "We should not lay our fault at the caller's door.")
			assert.Equal(t, held, s.held(), "We should put back all Leases that we took.")
		})
	}
}

func TestGuardRefusesWhatIsNoClass(t *testing.T) {
	const incomplete = ": must have a name and a uid"
	for name, tc := range map[string]struct {
		reason  string
		request *admissionv1.AdmissionRequest
		want    string
	}{
		"NoObject":    {"We should tell a caller that sends no object.", newGuardRequest(sqlClasses, "", ""), "request.object: must be an object: unexpected end of JSON input"},
		"NotAnObject": {"We should tell a caller that sends something else.", newGuardRequest(sqlClasses, "", `["gold"]`), "request.object: must be an object: json: cannot unmarshal array into Go value of type map[string]interface {}"},
		"Null":        {"We should tell a caller that sends nothing.", newGuardRequest(sqlClasses, "", "null"), "request.object" + incomplete},
		"NoName":      {"We should tell a caller that names no class.", newGuardRequest(sqlClasses, "", `{"metadata":{"uid":"gold-1"}}`), "request.object" + incomplete},
		"NoUID":       {"We should record no class that we could not tell from another.", newGuardRequest(sqlClasses, "", `{"metadata":{"name":"gold"}}`), "request.object" + incomplete},
		"NoOldObject": {"We should tell a caller that sends no old object.", newGuardRequest(sqlClasses, "null", silverMarked), "request.oldObject" + incomplete},
		"OldIsNone":   {"We should tell a caller that sends something else.", newGuardRequest(sqlClasses, `"gold"`, silverMarked), "request.oldObject: must be an object: json: cannot unmarshal string into Go value of type map[string]interface {}"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newAPIServer()
			response, err := s.guard(newInventory(newClaimKind())).Review(t.Context(), tc.request)
			require.EqualError(t, err, tc.want, tc.reason)
			bad := (*badRequest)(nil)
			require.ErrorAs(t, err, &bad, tc.reason)
			assert.Equal(t, http.StatusBadRequest, bad.status, tc.reason)
			assert.Nil(t, response, tc.reason)
			assert.Empty(t, s.done, tc.reason)
		})
	}
}

func TestGuardSaysWhy(t *testing.T) {
	var lines []string
	log := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
	review := func(s *apiServer, request *admissionv1.AdmissionRequest) {
		t.Helper()
		_, err := s.guard(newInventory(newClaimKind())).Review(logr.NewContext(t.Context(), log), request)
		require.NoError(t, err)
	}
	busy := newAPIServer()
	busy.classes["sqlclasses.example.org//gold"] = object("gold", marked, "")
	busy.holds(claimKindName, "sqlclasses.example.org/gold", "gold-1", "", now)

	review(busy, newGuardRequest(sqlClasses, "", silver))
	assert.Empty(t, lines, "We should not log what is no concern of ours.")
	review(busy, newGuardRequest(pathClasses, path, pathMarked, func(r *admissionv1.AdmissionRequest) { r.DryRun = new(true) }))
	review(newAPIServer(), newGuardRequest(rdsClasses, "", object("gold", markedInAWS, "")))
	require.Len(t, lines, 2, "We should log one line a decision.")
	for i, parts := range [][]string{
		{`"class"="PathClass/path"`, `"requestUID"="5e1f"`, `"operation"="UPDATE"`, `"allowed"=false`, `"reason"="SecondDefault"`, `"inTheWay"="sqlclasses.example.org/gold"`, `"dryRun"=true`},
		{`"class"="RDSClass/aws/gold"`, `"operation"="CREATE"`, `"allowed"=true`, `"reason"="OneDefault"`, `"inTheWay"=""`, `"dryRun"=false`},
	} {
		for _, part := range parts {
			assert.Contains(t, lines[i], part, "We should say why in our log.")
		}
	}
}
