package webhook

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/recovered"
	"github.com/classbind/classbind/webhook/onedefault"
)

// TestGuardLeavesAlone has a row for each guard clause, in their order. A later clause would also catch each row, so a clause that moves
// fails the test.
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
			request: newGuardRequest(sqlClasses, "", object("gold", "", "")),
			want:    "NotDefault",
		},
		"DefaultNoMore": {
			reason:  "We should let a class be default no more, before we know any other.",
			request: newGuardRequest(sqlClasses, silverMarked, silver),
			want:    "NotDefault",
		},
		"DefaultAlready": {
			reason:  "We should leave a class alone that was default before, so that two that there are can be mended.",
			request: newGuardRequest(sqlClasses, silverMarked, silverMarked),
			want:    "DefaultAlready",
		},
		"DefaultAlreadyByPath": {
			reason:  "We should read the old object where the kind says.",
			request: newGuardRequest(pathClasses, pathMarked, pathMarked),
			want:    "DefaultAlready",
		},
		"DefaultAlreadyWithAMalformedWeight": {
			reason:  "We should leave a weight alone that was malformed before.",
			request: newGuardRequest(sqlClasses, malformed, malformed),
			want:    "DefaultAlready",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newAPIServer()
			s.classes["sqlclasses.example.org//gold"] = object("gold", marked, "")
			response := mustReview(t, s.guard(selector.NewInventory()).Review, tc.request)
			assert.Equal(t, &admissionv1.AdmissionResponse{Allowed: true, AuditAnnotations: map[string]string{"reason": tc.want}}, response, tc.reason)
			assert.Empty(t, s.Done, "We should look at no Lease.")
		})
	}
}

// TestGuardAdmits a default class, from what the inventory, the API server and the Leases say of others.
func TestGuardAdmits(t *testing.T) {
	creation := newGuardRequest(sqlClasses, "", silverMarked)
	created := []*coordinationv1.Lease{newLease(claimKindName, "sqlclasses.example.org/silver", "silver-1", "")}
	updated := []*coordinationv1.Lease{newLease(claimKindName, "sqlclasses.example.org/silver", "silver-1", "10")}
	goldKnown, awsKnown := index(sqlClasses, "gold @default=true"), index(rdsClasses, "gold @default=true")
	for name, tc := range map[string]struct {
		reason  string
		request *admissionv1.AdmissionRequest
		known   []*inventory.Classes
		there   func(*apiServer)
		want    []*coordinationv1.Lease // in the order in which they are taken
	}{
		"Creation": {reason: "We should record who is created as default.", request: creation, want: created},
		"Update": {
			reason:  "We should record the version of the old object: the new one has what its author wrote, or none.",
			request: newGuardRequest(sqlClasses, silver, strings.Replace(silverMarked, `"resourceVersion":"10",`, "", 1)),
			want:    updated,
		},
		"Namespaced": {
			reason:  "We should record the namespace of a class that has one.",
			request: newGuardRequest(rdsClasses, "", object("gold", markedInAWS, "")),
			want:    []*coordinationv1.Lease{newLease(claimKindName, "rdsclasses.example.org/aws/gold", "gold-1", "")},
		},
		"SeveralClaimKinds": {
			reason:  "We should take the Leases of all claim kinds in the order of their names.",
			request: newGuardRequest(pathClasses, "", pathMarked),
			want: []*coordinationv1.Lease{
				newLease(otherClaimKindName, "pathclasses.example.org/path", "path-1", ""),
				newLease(claimKindName, "pathclasses.example.org/path", "path-1", ""),
			},
		},
		"OtherBeingDeleted": {
			reason:  "We should not count a default that is being deleted, whoever names it.",
			request: creation, want: created, known: []*inventory.Classes{goldKnown},
			there: func(s *apiServer) {
				s.classes["sqlclasses.example.org//gold"] = object("gold", marked+beingDeleted, "")
				s.holds(claimKindName, "sqlclasses.example.org/gold", "gold-1", "")
			},
		},
		"OtherOfAKindThatIsGone": {
			reason:  "We should not count a class whose kind is registered no more.",
			request: creation, want: created, known: []*inventory.Classes{awsKnown},
			there: func(s *apiServer) {
				delete(s.kinds, rdsClasses.Name)
				s.classes["rdsclasses.example.org/aws/gold"] = object("gold", markedInAWS, "")
				s.holds(claimKindName, "rdsclasses.example.org/aws/gold", "gold-1", "10")
			},
		},
		"OtherOfAKindThatServesOthers": {
			reason:  "We should not count a class whose kind serves the claim kind no more.",
			request: creation, want: created, known: []*inventory.Classes{awsKnown},
			there: func(s *apiServer) {
				elsewhere := *rdsClasses
				elsewhere.ClaimKinds = []string{otherClaimKindName}
				s.kinds[rdsClasses.Name] = &elsewhere
				s.classes["rdsclasses.example.org/aws/gold"] = object("gold", markedInAWS, "")
				s.holds(claimKindName, "rdsclasses.example.org/aws/gold", "gold-1", "")
			},
		},
	} {
		inDryRunToo(t, name, tc.request, func(t *testing.T, request *admissionv1.AdmissionRequest) {
			s := newAPIServer()
			if tc.there != nil {
				tc.there(s)
			}
			held, gets, writes := s.held(), []string(nil), []string(nil)
			for _, l := range tc.want {
				verb := "create "
				if s.All[l.Name] != nil {
					verb = "update "
				}
				gets = append(gets, "get "+l.Name)
				if request.DryRun == nil {
					writes = append(writes, verb+l.Name)
					held[l.Name] = l
				}
			}
			response := mustReview(t, s.stores(request).guard(newInventory(newClaimKind(), tc.known...)).Review, request)
			assert.Equal(t, &admissionv1.AdmissionResponse{Allowed: true, AuditAnnotations: map[string]string{"reason": "OneDefault"}}, response, tc.reason)
			require.Len(t, s.Done, len(gets)+len(writes))
			assert.ElementsMatch(t, gets, s.Done[:len(gets)], "We should read each Lease first.")
			assert.Equal(t, writes, slices.Clip(append([]string(nil), s.Done[len(gets):]...)), "We should then write each, in their order, but for a dry run.")
			assert.Equal(t, held, s.held(), tc.reason)
		})
	}
}

// TestGuardRefuses a second default, and says what to do.
func TestGuardRefuses(t *testing.T) {
	const (
		message = `%s.example.org "%s" is forbidden: "%s" is the default class for "postgresqlinstances.database.example.org" already: ` +
			`to move the default, %s: classbind set-default %s --for postgresqlinstances.database.example.org%[7]s; to take it from "%[3]s" only, run: %[6]s`
		unmarkGold = "kubectl annotate sqlclasses.example.org gold default-"
		unmarkPath = `kubectl patch pathclasses.example.org path --type json --patch '[{"op":"remove","path":"/spec/isDefault"}]'`
	)
	pathHolds := func(s *apiServer) {
		s.classes["pathclasses.example.org//path"] = pathMarked
		s.holds(claimKindName, "pathclasses.example.org/path", "path-1", "9")
	}
	goldHolds := func(s *apiServer) {
		s.classes["sqlclasses.example.org//gold"] = object("gold", marked, "")
		s.holds(claimKindName, "sqlclasses.example.org/gold", "gold-1", "")
	}
	update := newGuardRequest(sqlClasses, silver, silverMarked)
	type want struct{ resource, name, other, first, class, unmark, inTheWay, more string }
	for name, tc := range map[string]struct {
		reason  string
		request *admissionv1.AdmissionRequest
		known   []*inventory.Classes
		there   func(*apiServer)
		want    want
	}{
		"Update": {
			reason:  "We should name the default, and the commands that move it and that take it away.",
			request: update,
			there:   goldHolds,
			want:    want{"sqlclasses", "silver", "SQLClass/gold", "run", "sqlclasses.example.org/silver", unmarkGold, "sqlclasses.example.org/gold", ""},
		},
		"Creation": {
			reason:  "We should say that a class has to be there before the default can be moved to it.",
			request: newGuardRequest(sqlClasses, "", silverMarked), there: goldHolds,
			want: want{
				"sqlclasses", "silver", "SQLClass/gold", "create this class without its mark, then run", "sqlclasses.example.org/silver", unmarkGold,
				"sqlclasses.example.org/gold", "",
			},
		},
		"ToANamespace": {
			reason:  "We should name the namespace of a class that is to become default.",
			request: newGuardRequest(rdsClasses, object("bronze", `,"namespace":"aws"`, ""), object("bronze", markedInAWS, "")), there: goldHolds,
			want: want{"rdsclasses", "bronze", "SQLClass/gold", "run", "rdsclasses.example.org/bronze --namespace aws", unmarkGold, "sqlclasses.example.org/gold", ""},
		},
		"FromANamespaceWithoutALease": {
			reason:  "We should count a default that no Lease knows, and name its namespace.",
			request: newGuardRequest(rdsClasses, object("bronze", `,"namespace":"aws"`, ""), object("bronze", markedInAWS, "")),
			known:   []*inventory.Classes{index(rdsClasses, "gold @default=true")},
			there:   func(s *apiServer) { s.classes["rdsclasses.example.org/aws/gold"] = object("gold", markedInAWS, "") },
			want: want{
				"rdsclasses", "bronze", "RDSClass/aws/gold", "run", "rdsclasses.example.org/bronze --namespace aws",
				"kubectl annotate rdsclasses.example.org gold --namespace aws default-",
				"rdsclasses.example.org/aws/gold", "",
			},
		},
		"FromAField": {
			reason:  "We should say how to remove a field, where that is the mark, however long ago it was set.",
			request: update, there: pathHolds,
			want: want{
				"sqlclasses", "silver", "PathClass/path", "run", "sqlclasses.example.org/silver", unmarkPath, "pathclasses.example.org/path",
				" --leave-without-default " + otherClaimKindName,
			},
		},
		"ForOneOfSeveralClaimKinds": {
			reason:  "We should refuse a class for the sake of one of its claim kinds, and leave the Leases of the others as they were.",
			request: newGuardRequest(pathClasses, path, pathMarked),
			there: func(s *apiServer) {
				goldHolds(s)
				s.holds(otherClaimKindName, "sqlclasses.example.org/long-gone", "long-gone-1", "1")
			},
			want: want{"pathclasses", "path", "SQLClass/gold", "run", "pathclasses.example.org/path", unmarkGold, "sqlclasses.example.org/gold", ""},
		},
	} {
		inDryRunToo(t, name, tc.request, func(t *testing.T, request *admissionv1.AdmissionRequest) {
			s := newAPIServer()
			tc.there(s)
			held := s.held()
			response := mustReview(t, s.stores(request).guard(newInventory(newClaimKind(), tc.known...)).Review, request)
			w := tc.want
			assert.Equal(t, forbidden(
				fmt.Sprintf(message, w.resource, w.name, w.other, w.first, w.class, w.unmark, w.more),
				metav1.StatusDetails{Group: "example.org", Kind: w.resource, Name: w.name},
				map[string]string{"reason": "SecondDefault", "inTheWay": w.inTheWay},
			), response, tc.reason)
			assert.Equal(t, held, s.held(), "We should leave all Leases as they were.")
			wrote := slices.ContainsFunc(s.Done, func(operation string) bool { return !strings.HasPrefix(operation, "get ") })
			assert.False(t, wrote, "We should write nothing.")
		})
	}
}

// TestGuardRefusesForNow waits for what is in flight, for 310 ms of synctest time.
func TestGuardRefusesForNow(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		age    time.Duration // of what is in flight
		want   int32
	}{
		"JustNow":      {reason: "We should say how long it may yet take, once we have waited a little.", want: 90},
		"Fraction":     {reason: "We should have nobody come back too early.", age: 30400 * time.Millisecond, want: 60},
		"WholeSeconds": {reason: "We should not add a second to whole ones.", age: 29500 * time.Millisecond, want: 60},
		"LastMoment":   {reason: "We should not say that there is no need to wait.", age: 89400 * time.Millisecond, want: 1},
	} {
		inBubble(t, name, func(t *testing.T) {
			s := newAPIServer()
			s.holds(claimKindName, "sqlclasses.example.org/gold", "gold-1", "")
			request := newGuardRequest(sqlClasses, silver, silverMarked)
			guard := s.stores(request).guard(newInventory(newClaimKind()))
			if tc.age > 0 { // It saw the Lease this long ago.
				over, cancel := context.WithCancel(t.Context())
				cancel()
				_, err := guard.Review(over, request)
				require.NoError(t, err)
				time.Sleep(tc.age)
			}
			response := mustReview(t, guard.Review, request)
			assert.Equal(t, forbidden(
				`sqlclasses.example.org "silver" is forbidden: "sqlclasses.example.org/gold" is being made the default class for `+
					`"postgresqlinstances.database.example.org" and may yet be stored: try again in `+strconv.Itoa(int(tc.want))+` s`,
				metav1.StatusDetails{Group: "example.org", Kind: "sqlclasses", Name: "silver", RetryAfterSeconds: tc.want},
				map[string]string{"reason": "DefaultInFlight", "inTheWay": "sqlclasses.example.org/gold"},
			), response, tc.reason)
		})
	}
}

func TestGuardOfRegisteredClaimKinds(t *testing.T) {
	s := newAPIServer()
	onlyOther := selector.NewInventory()
	onlyOther.Open()
	request := newGuardRequest(pathClasses, path, pathMarked)
	response := mustReview(t, s.stores(request).guard(onlyOther).Review, request)
	assert.True(t, response.Allowed)
	assert.Equal(
		t, []string{"get " + leaseOf(otherClaimKindName), "create " + leaseOf(otherClaimKindName)}, s.Done,
		"We should take no Lease of a claim kind that is not registered.",
	)

	response = mustReview(t, s.guard(onlyOther).Review, newGuardRequest(sqlClasses, silver, silverMarked))
	assert.Equal(t, untouched("NoClaimKind"), response, "We should leave a class alone that serves no registered claim kind.")
}

// Otherwise every made-up namespace would leave a Lease.
func TestGuardOfAMadeUpNamespace(t *testing.T) {
	s, inventory := newAPIServer(), newInventory(newClaimKind(), index(rdsClasses))
	creation := newGuardRequest(rdsClasses, "", object("gold", `,"namespace":"made-up"`+marked, ""))
	creation.Namespace = "made-up"
	response := mustReview(t, s.guard(inventory).Review, creation)
	assert.Equal(t, refusal(http.StatusNotFound, metav1.StatusReasonNotFound,
		`namespaces "made-up" not found`,
		metav1.StatusDetails{Kind: "namespaces", Name: "made-up"}, map[string]string{"reason": "NoNamespace"},
	), response, "We should answer as the API server would.")
	assert.Empty(t, s.Done, "We should not ask for a Lease.")
}

// TestGuardCannotAnswer has a row for each of the guard's questions that may fail.
func TestGuardCannotAnswer(t *testing.T) {
	refused := errors.New("connection refused")
	const (
		unreadable = `cannot determine whether "sqlclasses.example.org/gold" is a default class: ` +
			`connection refused; try again`
	)
	update := newGuardRequest(pathClasses, path, pathMarked)
	knowsNothing := func(registered bool, err error) func(*Guard) {
		return func(g *Guard) {
			g.Snapshot, g.ClaimKind = func() selector.Snapshot { return selector.Snapshot{} }, asClaimKind(registered, err)
		}
	}
	// at calls then at the nth operation of that name.
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
		there   func(*apiServer)
		change  func(*Guard)
		want    string
	}{
		"Closed": {
			reason:  "We should not decide before we know all classes, not even that one is there already.",
			request: newGuardRequest(pathClasses, "", pathMarked), there: func(s *apiServer) { s.classes["pathclasses.example.org//path"] = path },
			change: func(g *Guard) { g.Snapshot = selector.NewInventory().Snapshot },
			want:   "not all registered classes have been listed yet; try again in a moment",
		},
		"NotHeardOf": {
			reason:  "We should not pass over a claim kind that we are about to hear of.",
			request: update,
			change:  knowsNothing(true, nil),
			want:    `claim kind "mysqlinstances.database.example.org" is not registered on this replica yet; try again in a moment`,
		},
		"ClaimKind": {
			reason:  "We should not pass over a claim kind of which we cannot tell.",
			request: update,
			change:  knowsNothing(false, refused),
			want:    "connection refused",
		},
		"Namespace": {
			reason:  "We should not go on where we cannot determine whether a namespace is there.",
			request: newGuardRequest(rdsClasses, "", object("gold", markedInAWS, "")),
			there:   at(1, "get namespace", "aws", fail),
			want:    "connection refused",
		},
		"ClassKind": {
			reason:  "We should not leave a class alone of whose kind we cannot determine whether it is registered.",
			request: update,
			there:   at(1, "get class kind", pathClasses.Name, fail),
			want:    "connection refused",
		},
		"MalformedLease": {
			reason:  "We should say what to do about a Lease that somebody spoilt, and not take it for free.",
			request: update, there: func(s *apiServer) { s.All[leaseOf(claimKindName)].Annotations = map[string]string{} },
			want: `cannot get the Lease of claim kind "postgresqlinstances.database.example.org": somebody else changed it (holderIdentity ` +
				`"sqlclasses.example.org/gold"): kubectl delete lease default.postgresqlinstances.database.example.org --namespace `,
		},
		"ClassKindOfTheOther": {
			reason:  "We should not pass over another whose kind we cannot get.",
			request: update,
			there:   at(1, "get class kind", sqlClasses.Name, fail),
			want:    unreadable,
		},
		"Other": {
			reason:  "We should not pass over another that we cannot get.",
			request: update,
			there:   at(1, "get class", "gold", fail),
			want:    unreadable,
		},
		"ClassKindForTheText": {
			reason:  "We should not refuse without a way out.",
			request: update,
			there:   at(2, "get class kind", sqlClasses.Name, fail),
			want:    "connection refused",
		},
		"ClassKindForTheTextIsGone": {
			reason:  "We should not refuse for the sake of a class whose kind was deleted while we looked.",
			request: update, want: `class kind "sqlclasses.example.org" was just deleted; try again`,
			there: at(1, "get class", "gold", func(s *apiServer) error {
				delete(s.kinds, sqlClasses.Name)
				return nil
			}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newAPIServer()
			s.classes["sqlclasses.example.org//gold"] = object("gold", marked, "")
			s.holds(claimKindName, "sqlclasses.example.org/gold", "gold-1", "9")
			if tc.there != nil {
				tc.there(s)
			}
			held, guard := s.held(), s.stores(tc.request).guard(newInventory(newClaimKind(), index(pathClasses, "path")))
			if tc.change != nil {
				tc.change(guard)
			}
			response, err := guard.Review(t.Context(), tc.request)
			require.EqualError(t, err, tc.want, tc.reason)
			assert.Nil(t, response, "We should leave it to the failurePolicy.")
			assert.False(t, isBadRequest(err), "We should not lay our fault at the caller's door.")
			assert.Equal(t, held, s.held(), "We should leave nothing in flight.")
		})
	}
}

func TestGuardRefusesWhatIsNoClass(t *testing.T) {
	const (
		name, uid, namespace = ": must have the name of a class", ": must have a uid", ": must have a namespace as classes of its kind have"
		notBefore            = ": must be what the object was, with its resourceVersion"
	)
	long := strings.Repeat("a", 1<<20)
	called := func(name, uid string) *admissionv1.AdmissionRequest {
		return newGuardRequest(sqlClasses, "", fmt.Sprintf(`{"metadata":{"name":%q,"uid":%q,"annotations":{"default":"true"}}}`, name, uid))
	}
	for name, tc := range map[string]struct {
		reason  string
		request *admissionv1.AdmissionRequest
		want    string
	}{
		"NoObject": {"We should answer a caller that sends no object.", newGuardRequest(sqlClasses, "", ""), "request.object: must be an object"},
		"NotAnObject": {
			"We should answer a caller that sends something else.", newGuardRequest(sqlClasses, "", `["gold"]`),
			"request.object: must be an object",
		},
		"Null":   {"We should answer a caller that sends nothing.", newGuardRequest(sqlClasses, "", "null"), "request.object: must be an object"},
		"NoName": {"We should answer a caller that names no class.", called("", "gold-1"), "request.object" + name},
		"LongName": {
			"We should record no name that cannot be.", called(long, "gold-1"),
			"request.object: metadata.name: must be a text, and no longer than a name may be",
		},
		"PathName": {"We should record no name that we could not read from a Lease.", called("a/b/c", "gold-1"), "request.object" + name},
		"NoUID":    {"We should record no class that we could not distinguish from another.", called("gold", ""), "request.object" + uid},
		"LongUID": {
			"We should record no uid that cannot be.", called("gold", long),
			"request.object: metadata.uid: must be a text, and no longer than a name may be",
		},
		"StrangeUID": {"We should record no uid that cannot be.", called("gold", "a b\n"), "request.object" + uid},
		"Namespace": {
			"We should not take a class for one in a namespace whose kind has none.",
			newGuardRequest(sqlClasses, "", object("gold", markedInAWS, "")), "request.object" + namespace,
		},
		"NoNamespace": {
			"We should ask for the namespace of a class.", newGuardRequest(rdsClasses, "", object("gold", marked, "")),
			"request.object" + namespace,
		},
		"NotANamespace": {
			"We should record no namespace that cannot be.", newGuardRequest(rdsClasses, "", object("gold", `,"namespace":"a.b"`+marked, "")),
			"request.object" + namespace,
		},
		"NoOldObject": {
			"We should answer a caller that sends no old object.", newGuardRequest(sqlClasses, "null", silverMarked),
			"request.oldObject: must be an object",
		},
		"OldIsNone": {
			"We should answer a caller that sends something else.", newGuardRequest(sqlClasses, `"gold"`, silverMarked),
			"request.oldObject: must be an object",
		},
		"OldIsAnother": {
			"We should not take another class for what it was.", newGuardRequest(sqlClasses, object("gold", "", ""), silverMarked),
			"request.oldObject" + notBefore,
		},
		"OldHasAnotherUID": {
			"We should not take another class for what it was.",
			newGuardRequest(sqlClasses, strings.Replace(silver, "silver-1", "silver-0", 1), silverMarked), "request.oldObject" + notBefore,
		},
		"OddVersion": {
			"We should record no text that no API server has for a version.",
			newGuardRequest(sqlClasses, strings.Replace(silver, `"resourceVersion":"10"`, `"resourceVersion":"<10>"`, 1), silverMarked),
			"request.oldObject" + notBefore,
		},
		"NoVersion": {
			"We should not take an update for a creation.",
			newGuardRequest(sqlClasses, strings.Replace(silver, `"resourceVersion":"10"`, `"generation":1`, 1), silverMarked),
			"request.oldObject" + notBefore,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newAPIServer()
			response, err := s.guard(newInventory(newClaimKind())).Review(t.Context(), tc.request)
			require.EqualError(t, err, tc.want, tc.reason)
			require.True(t, isMalformed(err), tc.reason)
			assert.Nil(t, response, tc.reason)
			assert.Empty(t, s.Done, tc.reason)
		})
	}
}

// TestGuardDoesNotBelieve what a review says of a class that it can read.
func TestGuardDoesNotBelieve(t *testing.T) {
	update := newGuardRequest(sqlClasses, silver, silverMarked)
	for name, tc := range map[string]struct {
		reason string
		stored string
	}{
		"Gone":       {"We should not believe that there is a class to update.", ""},
		"AnotherUID": {"We should not believe which class there is.", strings.Replace(silver, "silver-1", "silver-0", 1)},
		"Newer":      {"We should not believe a version that is there no more.", strings.Replace(silver, `"10"`, `"11"`, 1)},
		"Older":      {"We should not believe a version that is not there yet.", strings.Replace(silver, `"10"`, `"9"`, 1)},
	} {
		inDryRunToo(t, name, update, func(t *testing.T, request *admissionv1.AdmissionRequest) {
			s := newAPIServer()
			if tc.stored != "" {
				s.classes["sqlclasses.example.org//silver"] = tc.stored
			}
			response := mustReview(t, s.guard(newInventory(newClaimKind())).Review, request)
			assert.Equal(t, refusal(http.StatusConflict, metav1.StatusReasonConflict,
				`Operation cannot be fulfilled on sqlclasses.example.org "silver": the object has been modified; please apply your changes to the latest `+
					`version and try again`,
				metav1.StatusDetails{Group: "example.org", Kind: "sqlclasses", Name: "silver"}, map[string]string{"reason": "Conflict"},
			), response, "We should answer as the API server would: %s", tc.reason)
			assert.Empty(t, s.All, "We should hold no Lease for what cannot be stored.")
		})
	}
}

func TestGuardOfAMissingClassKind(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(*v1beta1.ClaimKindSpec)
		fault  string
	}{
		"Alone": {
			reason: "We should not decide without classes that may be default.",
			change: func(*v1beta1.ClaimKindSpec) {},
			fault:  v1beta1.ReasonClassKindMissing,
		},
		"UnknownValue": {
			reason: "We should not decide without them where no claim can be bound for another reason.",
			change: func(s *v1beta1.ClaimKindSpec) { s.Choice.Strategy = "Cheapest" },
			fault:  v1beta1.ReasonUnknownValue,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newAPIServer()
			i := newInventory(newClaimKind(tc.change), index(sqlClasses), index(pathClasses))
			i.SetMissing(rdsClasses.Name, rdsClasses.ClaimKinds, "no answer")
			for range 2 { // The second time, the view is changed and not rebuilt.
				require.Equal(t, tc.fault, i.Snapshot()[claimKindName].Fault.Reason, tc.reason)
				_, err := s.guard(i).Review(t.Context(), newGuardRequest(sqlClasses, "", silverMarked))
				require.EqualError(t, err, `cannot determine whether "postgresqlinstances.database.example.org" has a default class: the classes of `+
					`"rdsclasses.example.org", which were offered to claims of "postgresqlinstances.database.example.org" before, are not known yet (to go `+
					`on without them, run: kubectl annotate classkind rdsclasses.example.org classbind.io/ignored=true): no answer`, tc.reason)
				assert.Empty(t, s.Done)
				i.SetClasses(index(sqlClasses, "gold"))
			}
			i.Ignore(rdsClasses.Name, rdsClasses.ClaimKinds)
			_, err := s.guard(i).Review(t.Context(), newGuardRequest(sqlClasses, "", silverMarked))
			require.ErrorContains(
				t, err, "one of them may be the default: remove the annotation classbind.io/ignored of the ClassKind, or delete the ClassKind",
				"We should keep one default, though claims are bound without them.",
			)
			i.SetClasses(index(rdsClasses))
			request := newGuardRequest(sqlClasses, "", silverMarked)
			response := mustReview(t, s.stores(request).guard(i).Review, request)
			assert.True(t, response.Allowed, "We should decide when all classes are known, whatever else is wrong.")
		})
	}
}

func TestGuardSaysWhy(t *testing.T) {
	var lines []string
	log := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
	review := func(s *apiServer, request *admissionv1.AdmissionRequest) {
		t.Helper()
		_, err := s.stores(request).guard(newInventory(newClaimKind())).Review(logr.NewContext(t.Context(), log), request)
		require.NoError(t, err)
	}
	busy := newAPIServer()
	busy.classes["sqlclasses.example.org//gold"] = object("gold", marked, "")
	busy.holds(claimKindName, "sqlclasses.example.org/gold", "gold-1", "")

	review(busy, newGuardRequest(sqlClasses, "", silver))
	assert.Empty(t, lines, "We should not log what is no concern of ours.")
	review(busy, newGuardRequest(pathClasses, path, pathMarked, func(r *admissionv1.AdmissionRequest) { r.DryRun = new(true) }))
	review(newAPIServer(), newGuardRequest(rdsClasses, "", object("gold", markedInAWS, "")))
	require.Len(t, lines, 2, "We should log one line a decision.")
	for i, parts := range [][]string{
		{
			`"class"="PathClass/path"`, `"requestUID"="5e1f"`, `"operation"="UPDATE"`, `"allowed"=false`, `"reason"="SecondDefault"`,
			`"inTheWay"="sqlclasses.example.org/gold"`, `"dryRun"=true`,
		},
		{`"class"="RDSClass/aws/gold"`, `"operation"="CREATE"`, `"allowed"=true`, `"reason"="OneDefault"`, `"inTheWay"=""`, `"dryRun"=false`},
	} {
		for _, part := range parts {
			assert.Contains(t, lines[i], part, "We should say why in our log.")
		}
	}
}

// tenants is a world where each tenant has a default class, which must be a database.
type tenants struct {
	*apiServer
	claims  *v1beta1.ClaimKind
	classes *v1beta1.ClassKind
}

func newTenants(change ...func(*v1beta1.ClassKindSpec)) *tenants {
	w := &tenants{apiServer: newAPIServer(), claims: newRegistration(func(s *v1beta1.ClaimKindSpec) {
		s.Classes.Partition = &v1beta1.Partition{Claim: "claim.metadata.namespace", Class: "class.spec.tenant"}
		s.Classes.Fits = []v1beta1.Fit{{Name: "Database", Expression: "class.spec.database && class.metadata.name == claim.spec.name"}}
	})}
	w.classes = &v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: "tenantclasses.example.org"}, Spec: v1beta1.ClassKindSpec{
		ClaimKinds: []v1beta1.ClaimKindLink{{Name: claimKindName}}, Default: v1beta1.Source{Annotation: "default"}, Weight: v1beta1.Source{Annotation: "weight"},
	}}
	for _, f := range change {
		f(&w.classes.Spec)
	}
	w.kinds[w.classes.Name] = w.kind(w.claims)
	return w
}

func (w *tenants) kind(claimKinds ...*v1beta1.ClaimKind) *inventory.ClassKind {
	return inventory.NewClassKind(w.classes, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "TenantClass"}, false, claimKinds...)
}

// inventory of the class gold, if it is stored.
func (w *tenants) inventory(t *testing.T) *selector.Inventory {
	t.Helper()
	kind, all := w.kinds[w.classes.Name], []*inventory.Class(nil)
	_, gold, err := w.class(t.Context(), kind, "", "gold")
	require.NoError(t, err)
	if gold != nil {
		all = append(all, gold)
	}
	return newInventory(selector.NewClaimKind(w.claims, w.classes), inventory.NewClasses(kind, all))
}

// tenantClass has fields of its spec as JSON.
func tenantClass(name, metadata, spec string) string {
	return object(name, metadata, `,"spec":{`+spec+`}`)
}

func partitionLease(partition string) string {
	return onedefault.LeaseName(inventory.Seat{ClaimKind: claimKindName, Partition: partition})
}

// TestGuardOfSeats moves a class between the partitions of tenants a and b. The class gold is the default of b.
func TestGuardOfSeats(t *testing.T) {
	const (
		inA, inB, inC = `"tenant":"a","database":true`, `"tenant":"b","database":true`, `"tenant":"c","database":true`
		nowhere       = `"database":true`
		unfit         = `"tenant":"b","database":false`
		weighed       = `,"annotations":{"default":"true","weight":"2"}`
	)
	silver := func(metadata, spec string) string { return tenantClass("silver", metadata, spec) }
	taken := `tenantclasses.example.org "silver" is forbidden: "TenantClass/gold" is the default class for ` +
		`"postgresqlinstances.database.example.org" in partition "b" already: `
	type want struct {
		reason, lease, message, warning string
		code                            int32
	}
	for name, tc := range map[string]struct {
		reason        string
		before, after string
		want          want
	}{
		"CreatedInTheSame": {
			"We should let a partition have one default, and name it.", "", silver(marked, inB),
			want{reason: "SecondDefault", code: http.StatusForbidden, message: taken + "to move the default, create this class without its mark, then run: " +
				"classbind set-default tenantclasses.example.org/silver --for postgresqlinstances.database.example.org; " +
				`to take it from "TenantClass/gold" only, run: kubectl annotate tenantclasses.example.org gold default-`},
		},
		"MarkedAndMoved": {
			"We should take the seat of the new object.", silver("", inB), silver(marked, inA),
			want{reason: "OneDefault", lease: partitionLease("a")},
		},
		"Moved": {
			"We should take a move to another partition for becoming default there.",
			silver(marked, inA), silver(marked, inC),
			want{reason: "OneDefault", lease: partitionLease("c")},
		},
		"MovedToTheSame": {
			"We should refuse a move to a partition that has a default; set-default would leave the class where it is.", silver(marked, inA), silver(marked, inB),
			want{
				reason:  "SecondDefault",
				code:    http.StatusForbidden,
				message: taken + `to take it from "TenantClass/gold", run: ` + "kubectl annotate tenantclasses.example.org gold default-; then try again",
			},
		},
		"Stays": {
			"We should leave a default alone that stays in its seat, even if there are two.",
			silver(marked, inB), silver(weighed, inB+`,"more":1`),
			want{reason: "DefaultAlready"},
		},
		"ServesNobody": {"We should leave a class alone that serves nobody.", "", silver(marked, unfit), want{reason: "NoClaimKind"}},
		"Unknown": {
			"We should refuse a default nobody knows for whom.", "", silver(marked, nowhere),
			want{reason: "SeatUnknown", code: http.StatusUnprocessableEntity, message: `TenantClass.example.org "silver" is invalid: metadata.name: Invalid value: ` +
				`it cannot become default, because the claims that it would serve cannot be determined: the expression spec.classes.partition.class of claim kind ` +
				`"postgresqlinstances.database.example.org" fails for "TenantClass/silver": no such key: tenant`},
		},
		"UnknownFit": {
			"We should refuse a default if it cannot be determined whether it serves.",
			"", silver(marked, `"tenant":"a"`),
			want{reason: "SeatUnknown", code: http.StatusUnprocessableEntity, message: "the expression spec.classes.fits[Database].expression fails"},
		},
		"KnownNoMore": {
			"We should let a default lose its seat, and say so.", silver(marked, inB), silver(marked, nowhere),
			want{reason: "DefaultAlready", warning: "the class is marked default, but is the default of no claims, because its partition is unknown: " +
				`the expression spec.classes.partition.class of claim kind "postgresqlinstances.database.example.org" fails for "TenantClass/silver": no such key: tenant`},
		},
	} {
		var request *admissionv1.AdmissionRequest
		w := newTenants()
		request = newGuardRequest(w.kinds[w.classes.Name], tc.before, tc.after)
		inDryRunToo(t, name, request, func(t *testing.T, request *admissionv1.AdmissionRequest) {
			w := newTenants()
			w.apiServer.classes["tenantclasses.example.org//gold"] = tenantClass("gold", marked, inB)
			response := mustReview(t, w.stores(request).guard(w.inventory(t)).Review, request)
			assert.Equal(t, tc.want.reason, response.AuditAnnotations["reason"], "%s: %+v", tc.reason, response.Result)
			assert.Equal(t, tc.want.code == 0, response.Allowed, tc.reason)
			assert.Equal(t, tc.want.code != 0, guardOutcomes[tc.want.reason] != "" && tc.want.reason != "OneDefault", "We should count what is refused.")
			if tc.want.code != 0 {
				assert.Equal(t, tc.want.code, response.Result.Code, tc.reason)
				assert.Contains(t, response.Result.Message, tc.want.message, tc.reason)
			}
			if tc.want.warning != "" {
				assert.Equal(t, []string{tc.want.warning}, response.Warnings, tc.reason)
			} else {
				assert.Empty(t, response.Warnings, tc.reason)
			}
			held := w.held()
			if tc.want.lease == "" || request.DryRun != nil {
				assert.Empty(t, held, "We should take no seat.")
				return
			}
			require.Contains(t, held, tc.want.lease, tc.reason)
			assert.Len(t, held, 1, tc.reason)
			assert.Equal(t, "tenantclasses.example.org/silver", *held[tc.want.lease].Spec.HolderIdentity)
		})
	}
}

// TestGuardOfDefaultExpressions moves classes by a field that the mark is made of.
func TestGuardOfDefaultExpressions(t *testing.T) {
	w := newTenants(func(s *v1beta1.ClassKindSpec) {
		s.Default = v1beta1.Source{Expression: "class.spec.tier == 'standard'"}
	})
	class := func(name, tier string) string {
		return tenantClass(name, "", fmt.Sprintf(`"tenant":"a","database":true,"tier":%q`, tier))
	}
	w.apiServer.classes["tenantclasses.example.org//gold"] = class("gold", "standard")
	kind, guard := w.kinds[w.classes.Name], w.guard(w.inventory(t))
	review := func(before, after string) *admissionv1.AdmissionResponse {
		request := newGuardRequest(kind, before, after)
		w.stores(request)
		response := mustReview(t, guard.Review, request)
		return response
	}
	refused := review(class("silver", "other"), class("silver", "standard"))
	assert.Equal(t, "SecondDefault", refused.AuditAnnotations["reason"], "We should refuse a class that becomes default by any field.")
	assert.True(t, strings.HasSuffix(refused.Result.Message, `in partition "a" already: to take it from "TenantClass/gold", run: `+
		`kubectl edit tenantclasses.example.org gold, and change what spec.default.expression of class kind "tenantclasses.example.org" looks at; then try again`),
		"We should say what to change: %s", refused.Result.Message)

	failed := review(class("silver", "standard"), tenantClass("silver", "", `"tenant":"a","database":true`))
	assert.Equal(t, "NotDefault", failed.AuditAnnotations["reason"], "We should count an error as false.")
	require.Len(t, failed.Warnings, 1)
	assert.Contains(t, failed.Warnings[0], "no such key: tier", "We should say that it does.")
}

// TestGuardOfWeightExpressions creates a class before it has a status.
func TestGuardOfWeightExpressions(t *testing.T) {
	w := newTenants(func(s *v1beta1.ClassKindSpec) {
		s.Weight = v1beta1.Source{Expression: "class.status.free"}
	})
	kind, guard := w.kinds[w.classes.Name], w.guard(w.inventory(t))
	silver := tenantClass("silver", "", `"tenant":"a","database":true`)
	response := mustReview(t, guard.Review, newGuardRequest(kind, "", silver))
	assert.True(t, response.Allowed, "We should not ask an author for a status: %v", response.Result)
	require.Len(t, response.Warnings, 1)
	assert.Contains(t, response.Warnings[0], "spec.weight.expression of class kind tenantclasses.example.org fails: no such key: status, and counts as 1")

	response = mustReview(t, guard.Review, newGuardRequest(kind, silver, silver))
	assert.Empty(t, response.Warnings, "We should not repeat it.")
}

// TestGuardOfUnreadFields does not judge a class that was read without what the expressions of a new ClaimKind look at.
func TestGuardOfUnreadFields(t *testing.T) {
	w := newTenants()
	i := w.inventory(t)
	w.kinds[w.classes.Name] = w.kind() // It does not know the ClaimKind yet.
	request := newGuardRequest(w.kinds[w.classes.Name], "", tenantClass("silver", marked, `"tenant":"a","database":true`))
	_, err := w.guard(i).Review(t.Context(), request)
	require.ErrorContains(t, err, "are being read again", "We should not take a field for absent that we did not read.")
	assert.Empty(t, w.Done)

	request = newGuardRequest(w.kinds[w.classes.Name], tenantClass("silver", marked, `"tenant":"a","database":true`), tenantClass(
		"silver", marked, `"tenant":"b","database":true`,
	))
	_, err = w.stores(request).guard(i).Review(t.Context(), request)
	require.ErrorContains(t, err, "are being read again", "We should not take a field for unchanged that we did not read.")
}

// leased is a world in which the class gold is the default of partition b, and was that of other partitions before.
type leased struct {
	*tenants
	inventory *selector.Inventory
	guard     *Guard
}

func newLeased(t *testing.T) *leased {
	t.Helper()
	w := newTenants()
	w.apiServer.classes["tenantclasses.example.org//gold"] = tenantClass("gold", marked, `"tenant":"b","database":true`)
	i := w.inventory(t)
	return &leased{w, i, w.guard(i)}
}

// holds the Lease of a partition, and this replica has seen it.
func (w *leased) holds(t *testing.T, partition string) {
	t.Helper()
	l := newLease(claimKindName, "tenantclasses.example.org/gold", "gold-1", "10")
	l.Name, l.UID = partitionLease(partition), "lease-uid"
	w.Put(l)
	require.NoError(t, w.guard.cluster(w.inventory.Snapshot()).Collect(t.Context(), l.Name))
	w.Done = nil
}

// operations returns what was done with Leases.
func (w *leased) operations() []string {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	return slices.Clone(w.Done)
}

func (w *leased) left() []string {
	w.Mu.Lock()
	defer w.Mu.Unlock()
	return slices.Sorted(maps.Keys(w.All))
}

// TestCollectLeases of partitions that a class has left.
func TestCollectLeases(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(*leased)
		want   []string
	}{
		"Left": {"We should delete the Leases of seats without a default, and no other.", func(*leased) {}, []string{partitionLease("b")}},
		"Unheard": {"We should keep the Leases of a claim kind that we have not heard of yet.", func(w *leased) {
			w.guard.ClaimKind = asClaimKind(true, nil)
			w.guard.Snapshot = func() selector.Snapshot { return selector.Snapshot{} }
		}, []string{partitionLease("a"), partitionLease("b")}},
		"Unread": {"We should keep the Leases of a claim kind if we cannot ask whether it is registered.", func(w *leased) {
			w.guard.ClaimKind = asClaimKind(false, errors.New("no answer"))
			w.guard.Snapshot = func() selector.Snapshot { return selector.Snapshot{} }
		}, []string{partitionLease("a"), partitionLease("b")}},
		"NoClaimKind": {"We should delete the Leases of a claim kind that is registered no more.", func(w *leased) {
			w.guard.Snapshot = func() selector.Snapshot { return selector.Snapshot{} }
		}, []string{}},
		"Missing": {"We should keep the Leases of a claim kind of which we do not know all classes.", func(w *leased) {
			w.inventory.SetMissing("silverclasses.example.org", []string{claimKindName}, "no answer")
		}, []string{partitionLease("a"), partitionLease("b")}},
		"Ignored": {"We should keep the Leases of a claim kind while classes of it are ignored.", func(w *leased) {
			w.inventory.Ignore("silverclasses.example.org", []string{claimKindName})
		}, []string{partitionLease("a"), partitionLease("b")}},
		"NotStarted": {"We should keep all Leases before we know anything.", func(w *leased) {
			w.guard.Snapshot = func() selector.Snapshot { return nil }
		}, []string{partitionLease("a"), partitionLease("b")}},
	} {
		inBubble(t, name, func(t *testing.T) {
			w := newLeased(t)
			w.holds(t, "a")
			w.holds(t, "b")
			tc.change(w)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() { assert.NoError(t, w.guard.CollectLeases(ctx)) }()
			time.Sleep(w.guard.Window - time.Second)
			synctest.Wait()
			assert.Empty(t, w.operations(), "We should not even read a Lease whose write may be in flight.")
			time.Sleep(time.Minute)
			synctest.Wait()
			assert.ElementsMatch(t, tc.want, w.left(), tc.reason)
			if name == "Left" {
				assert.NotContains(t, w.operations(), "get "+partitionLease("b"), "We should read no Lease of a default: there may be thousands.")
			}
		})
	}
}

// TestPanicsAreNotTheEnd has a bug in what is asked about one class, of several that are asked about at once.
func TestPanicsAreNotTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLeased(t)
		for _, partition := range []string{"a", "c", "d"} {
			w.holds(t, partition)
		}
		time.Sleep(w.guard.Window)
		class, poisoned := w.guard.Class, true
		w.guard.Class = func(ctx context.Context, kind *inventory.ClassKind, namespace, name string) (metav1.Object, *inventory.Class, error) {
			if poisoned {
				poisoned = false
				panic("a poisoned class")
			}
			return class(ctx, kind, namespace, name)
		}
		before := recovered.Panics()
		w.guard.collectLeases(t.Context())
		assert.Len(t, w.left(), 1, "We should go on with the next Lease.")
		w.guard.collectLeases(t.Context())
		assert.Empty(t, w.left(), "We should look at it again.")
		assert.Equal(t, before+1, recovered.Panics(), "We should count it.")
	})
	s := newAPIServer()
	before := recovered.Panics()
	guard := s.guard(newInventory(newClaimKind(), index(sqlClasses)))
	guard.Class = func(context.Context, *inventory.ClassKind, string, string) (metav1.Object, *inventory.Class, error) {
		panic("a poisoned class")
	}
	_, err := guard.Review(t.Context(), newGuardRequest(sqlClasses, "", silverMarked))
	require.ErrorIs(t, err, recovered.ErrPanic, "We should answer 503 where a goroutine of the protocol fails.")

	w := posted(&Handler{Review: func(context.Context, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		panic("a poisoned claim")
	}}, goodReview)
	assert.Equal(t, http.StatusServiceUnavailable, w.Code, "We should answer, so that failurePolicy decides.")
	assert.Contains(t, w.Body.String(), "panic: a poisoned claim")
	assert.Equal(t, before+2, recovered.Panics(), "We should count both.")
}

func TestCollectLeasesByAndBy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newLeased(t)
		for n := range v1beta1.MaxLeasesCollected + 1 {
			w.holds(t, strconv.Itoa(n))
		}
		time.Sleep(w.guard.Window)
		w.guard.collectLeases(t.Context())
		assert.Len(t, w.All, 1, "We should leave some for the next round.")
		w.guard.collectLeases(t.Context())
		assert.Empty(t, w.All)
	})
}
