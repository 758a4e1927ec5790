package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/inventory"
)

// newDeletion knows the class kinds of the tests, and claims by their class.
func newDeletion(claims map[string]map[string]int64, complete bool) *Deletion {
	var missing error
	if !complete {
		missing = errors.New("not listed yet")
	}
	return &Deletion{
		ClassKind: newAPIServer().classKind,
		Claims:    func(c *inventory.Class) (map[string]int64, error) { return claims[c.String()], missing },
	}
}

func newDeletionRequest(kind *inventory.ClassKind, class string, change ...func(*admissionv1.AdmissionRequest)) *admissionv1.AdmissionRequest {
	return newGuardRequest(kind, class, "", append([]func(*admissionv1.AdmissionRequest){func(r *admissionv1.AdmissionRequest) {
		r.Operation, r.Object = admissionv1.Delete, runtime.RawExtension{}
	}}, change...)...)
}

func TestDeletion(t *testing.T) {
	const deny, later = v1beta1.DenyDeletion, v1beta1.OnDelete("FromALaterRelease")
	const still = `claims still refer to the class "SQLClass/silver": `
	const stay = "; create the class again, or delete these claims and create them again"
	const remedy = `; delete these claims first, or set spec.onDelete of the ClassKind "sqlclasses.example.org" to Warn`
	const refusal = `sqlclasses.example.org "silver" is forbidden: ` + still + "12 claims of sqls.example.org" + remedy
	const unknown = `cannot determine whether claims refer to the class "SQLClass/silver" (to delete it nevertheless, set spec.onDelete of the ` +
		`ClassKind "sqlclasses.example.org" to Warn): not listed yet`
	many := map[string]int64{"most.example.org": 90}
	for i := range v1beta1.MaxErrors + 4 {
		many[fmt.Sprintf("k%02d.example.org", i)] = 2
	}
	twelve, none := map[string]int64{"sqls.example.org": 12}, map[string]int64{}
	const twelveWarned = still + "12 claims of sqls.example.org" + stay
	for name, tc := range map[string]struct {
		reason           string
		onDelete         v1beta1.OnDelete
		claims           map[string]int64 // of SQLClass/silver, twelve unless set
		incomplete       bool
		request          *admissionv1.AdmissionRequest // the deletion of SQLClass/silver unless set
		unread           error                         // why the class kind cannot be read
		want             string                        // the reason in the annotations
		warning, refusal string
		err              string
	}{
		"Claims": {reason: "We should say whose class is gone, and what to do about it.", want: "HasClaims", warning: twelveWarned},
		"Kinds": {
			reason:  "We should name the kind with the most claims first.",
			claims:  map[string]int64{"a.example.org": 1, "b.example.org": 3, "c.example.org": 1},
			want:    "HasClaims",
			warning: still + "3 claims of b.example.org, 1 claim of a.example.org, 1 claim of c.example.org" + stay,
		},
		"ManyKinds": {
			reason: "We should not name more kinds than anybody reads.", claims: many, want: "HasClaims",
			warning: still + "90 claims of most.example.org, 2 claims of k00.example.org, 2 claims of k01.example.org, 2 claims of k02.example.org, " +
				"2 claims of k03.example.org, 2 claims of k04.example.org, 2 claims of k05.example.org, 2 claims of k06.example.org, 2 claims of " +
				"k07.example.org, 2 claims of k08.example.org, " +
				"10 of other kinds" + stay,
		},
		"AtLeast": {
			reason:     "We should not pretend to know all claims.",
			incomplete: true,
			want:       "HasClaims",
			warning:    still + "at least 12 claims of sqls.example.org" + stay,
		},
		"NotCounted": {reason: "We should say nothing of claims that we do not know.", claims: none, incomplete: true, want: "NoClaims"},
		"NoClaims":   {reason: "We should say nothing where nobody has the class.", claims: none, want: "NoClaims"},
		"OneOfMany": {
			reason:  "We should read the name in the class: deletecollection gives it nowhere else.",
			request: newDeletionRequest(sqlClasses, silver, func(r *admissionv1.AdmissionRequest) { r.Name = "" }),
			want:    "HasClaims",
			warning: twelveWarned,
		},
		"Another":     {reason: "We should not take one class for another.", request: newDeletionRequest(sqlClasses, object("gold", "", "")), want: "NoClaims"},
		"AnotherKind": {reason: "We should not take one kind for another.", request: newDeletionRequest(pathClasses, silver), want: "NoClaims"},
		"Update":      {reason: "We should leave alone what is no deletion.", request: newGuardRequest(sqlClasses, silver, silver), want: "NotADeletion"},
		"Subresource": {
			reason:  "We should leave a subresource alone, whose object may be of another kind.",
			request: newDeletionRequest(sqlClasses, "{}", func(r *admissionv1.AdmissionRequest) { r.SubResource = "scale" }),
			want:    "NotADeletion",
		},
		"NotRegistered": {
			reason: "We should leave classes alone whose kind we do not watch, whatever they look like.", want: "NotRegistered",
			request: newDeletionRequest(sqlClasses, "{}", func(r *admissionv1.AdmissionRequest) { r.Resource.Resource = "others" }),
		},

		"Allow": {reason: "We should say nothing where nobody wants to hear it.", onDelete: v1beta1.AllowDeletion, want: "DeletionAllowed"},
		"Deny":  {reason: "We should refuse, with the number and the way out.", onDelete: deny, want: "HasClaims", refusal: refusal},
		"DenyAtLeast": {
			reason:     "We should refuse as soon as we know of a claim.",
			onDelete:   deny,
			incomplete: true,
			want:       "HasClaims",
			refusal:    strings.Replace(refusal, "12 claims", "at least 12 claims", 1),
		},
		"DenyNoClaims":   {reason: "We should let go what nobody has.", onDelete: deny, claims: none, want: "NoClaims"},
		"DenyNotCounted": {reason: "We should never let go what somebody may have.", onDelete: deny, claims: none, incomplete: true, err: unknown},
		"LaterRelease":   {reason: "We should take a value that we do not know for Deny.", onDelete: later, want: "HasClaims", refusal: refusal},
		"ClassKindUnknown": {
			reason:   "We should never let go what somebody may have.",
			onDelete: deny,
			claims:   none,
			unread:   errors.New("no answer"),
			err:      "no answer",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.claims == nil {
				tc.claims = twelve
			}
			d := newDeletion(map[string]map[string]int64{"SQLClass/silver": tc.claims}, !tc.incomplete)
			if tc.onDelete != "" {
				kind := *sqlClasses
				kind.OnDelete = tc.onDelete
				d.ClassKind = func(context.Context, string) (*inventory.ClassKind, error) { return &kind, tc.unread }
			}
			response, err := d.Review(t.Context(), cmp.Or(tc.request, newDeletionRequest(sqlClasses, silver)))
			if tc.err != "" {
				require.EqualError(t, err, tc.err, tc.reason)
				assert.False(t, isBadRequest(err), "We should answer 503.")
				return
			}
			require.NoError(t, err, tc.reason)
			assert.Equal(t, tc.refusal == "", response.Allowed, tc.reason)
			if !response.Allowed {
				assert.EqualValues(t, http.StatusForbidden, response.Result.Code)
				assert.Equal(t, tc.refusal, response.Result.Message, tc.reason)
			}
			assert.Equal(t, tc.want, response.AuditAnnotations["reason"], tc.reason)
			assert.Equal(t, tc.warning, strings.Join(response.Warnings, "\n"), tc.reason)
			assert.Equal(t, tc.want == "HasClaims", response.AuditAnnotations["claims"] != "", "We should say the number in the audit log, too.")
		})
	}
}

// TestDeletionRefusesWhatNoAPIServerSends has the answers to made-up reviews.
func TestDeletionRefusesWhatNoAPIServerSends(t *testing.T) {
	const class = "request.oldObject: "
	for name, tc := range map[string]struct {
		reason, object, want string
	}{
		"NoObject":    {"We should refuse a deletion of nothing.", "", class},
		"NotAnObject": {"We should refuse what is no object.", `[]`, class},
		"NoName":      {"We should refuse a class without a name.", object("", "", ""), class + "must have the name of a class"},
		"LongName":    {"We should refuse a name that is longer than any.", object(strings.Repeat("n", 300), "", ""), class + "must have the name of a class"},
		"Path":        {"We should refuse a name that no class has.", object("a/b", "", ""), class + "must have the name of a class"},
		"Namespace": {
			"We should refuse a namespace where classes have none.", object("silver", `,"namespace":"a"`, ""),
			class + "must have a namespace as classes of its kind have",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newDeletion(nil, true).Review(t.Context(), newDeletionRequest(sqlClasses, tc.object))
			require.ErrorContains(t, err, tc.want, tc.reason)
			require.True(t, isMalformed(err), "We should take it for the fault of who sent it.")
		})
	}
}

// FuzzDeletion posts any bytes to /deletion, where every class has claims.
func FuzzDeletion(f *testing.F) {
	deleted := strings.NewReplacer(`"object":`, `"oldObject":`, `"oldObject":`, `"object":`, `"CREATE"`, `"DELETE"`, `"UPDATE"`, `"DELETE"`)
	for _, c := range guardSeeds() {
		f.Add([]byte(deleted.Replace(c.review())))
	}
	api := newPlainAPI(largeWorld())
	fuzzBodies(f, (&Deletion{
		ClassKind: func(_ context.Context, name string) (*inventory.ClassKind, error) { return api.kinds[name], nil },
		Claims: func(*inventory.Class) (map[string]int64, error) {
			return map[string]int64{"claims." + worldGroup: 3}, nil
		},
	}).Review, func() {})
}
