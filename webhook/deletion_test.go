package webhook

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/fuzztest/cost"
	"github.com/classbind/classbind/selector/inventory"
)

// newDeletion knows the class kinds of the tests, and claims by their class.
func newDeletion(claims map[string]map[string]int64, complete bool) *Deletion {
	kinds := newAPIServer().kinds
	return &Deletion{
		ClassKind: func(name string) *inventory.ClassKind { return kinds[name] },
		Claims:    func(c *inventory.Class) (map[string]int64, bool) { return claims[c.String()], complete },
	}
}

func newDeletionRequest(kind *inventory.ClassKind, class string, change ...func(*admissionv1.AdmissionRequest)) *admissionv1.AdmissionRequest {
	return newGuardRequest(kind, class, "", append([]func(*admissionv1.AdmissionRequest){func(r *admissionv1.AdmissionRequest) {
		r.Operation, r.Object = admissionv1.Delete, runtime.RawExtension{}
	}}, change...)...)
}

func TestDeletion(t *testing.T) {
	many := map[string]int64{"most.example.org": 90}
	for i := range v1beta1.MaxErrors + 4 {
		many[fmt.Sprintf("k%02d.example.org", i)] = 2
	}
	cordoned := `,"annotations":{"classbind.io/cordoned":"true"}`
	const way = "; to keep new claims from a class before you delete it: kubectl annotate sqlclasses.example.org silver classbind.io/cordoned=true"
	const stay = "; create the class again, or delete these claims and create them again"
	for name, tc := range map[string]struct {
		reason     string
		claims     map[string]int64 // of SQLClass/silver
		incomplete bool
		request    *admissionv1.AdmissionRequest // nil means the deletion of SQLClass/silver
		want       string                        // the reason in the annotations
		warning    string
	}{
		"Claims": {
			reason: "We should say whose class is gone, and what to do about it.", claims: map[string]int64{"sqls.example.org": 12}, want: "HasClaims",
			warning: `claims still refer to the class "SQLClass/silver": 12 claims of sqls.example.org` + stay + way,
		},
		"OneClaim": {
			reason: "We should count in plain English.", claims: map[string]int64{"sqls.example.org": 1}, want: "HasClaims",
			warning: `claims still refer to the class "SQLClass/silver": 1 claim of sqls.example.org` + stay + way,
		},
		"Kinds": {
			reason: "We should name the kind with the most claims first.", claims: map[string]int64{"a.example.org": 1, "b.example.org": 3, "c.example.org": 1}, want: "HasClaims",
			warning: `claims still refer to the class "SQLClass/silver": 3 claims of b.example.org, 1 claim of a.example.org, 1 claim of c.example.org` + stay + way,
		},
		"ManyKinds": {
			reason: "We should not name more kinds than anybody reads.", claims: many, want: "HasClaims",
			warning: `claims still refer to the class "SQLClass/silver": 90 claims of most.example.org, 2 claims of k00.example.org, 2 claims of k01.example.org, 2 claims of k02.example.org, ` +
				`2 claims of k03.example.org, 2 claims of k04.example.org, 2 claims of k05.example.org, 2 claims of k06.example.org, 2 claims of k07.example.org, 2 claims of k08.example.org, ` +
				`10 of other kinds` + stay + way,
		},
		"AtLeast": {
			reason: "We should not pretend to know all claims.", claims: map[string]int64{"sqls.example.org": 12}, incomplete: true, want: "HasClaims",
			warning: `claims still refer to the class "SQLClass/silver": at least 12 claims of sqls.example.org` + stay + way,
		},
		"NotCounted": {reason: "We should say nothing of claims that we do not know.", incomplete: true, want: "NoClaims"},
		"NoClaims":   {reason: "We should say nothing where nobody has the class.", want: "NoClaims"},
		"Cordoned": {
			reason: "We should not advise what was done.", claims: map[string]int64{"sqls.example.org": 12},
			request: newDeletionRequest(sqlClasses, object("silver", cordoned, "")), want: "HasClaims",
			warning: `claims still refer to the class "SQLClass/silver": 12 claims of sqls.example.org` + stay,
		},
		"DryRun": {
			reason: "We should warn of what a deletion would do.", claims: map[string]int64{"sqls.example.org": 12},
			request: newDeletionRequest(sqlClasses, silver, func(r *admissionv1.AdmissionRequest) { r.DryRun = new(true) }), want: "HasClaims",
			warning: `claims still refer to the class "SQLClass/silver": 12 claims of sqls.example.org` + stay + way,
		},
		"OneOfMany": {
			reason: "We should read the name in the class: deletecollection gives it nowhere else.", claims: map[string]int64{"sqls.example.org": 12},
			request: newDeletionRequest(sqlClasses, silver, func(r *admissionv1.AdmissionRequest) { r.Name = "" }), want: "HasClaims",
			warning: `claims still refer to the class "SQLClass/silver": 12 claims of sqls.example.org` + stay + way,
		},
		"Another": {
			reason: "We should not take one class for another.", claims: map[string]int64{"sqls.example.org": 12},
			request: newDeletionRequest(sqlClasses, object("gold", "", "")), want: "NoClaims",
		},
		"AnotherKind": {
			reason: "We should not take one kind for another.", claims: map[string]int64{"sqls.example.org": 12},
			request: newDeletionRequest(pathClasses, silver), want: "NoClaims",
		},
		"Update": {
			reason: "We should leave alone what is no deletion.", claims: map[string]int64{"sqls.example.org": 12},
			request: newGuardRequest(sqlClasses, silver, silver), want: "NotADeletion",
		},
		"Subresource": {
			reason: "We should leave a subresource alone, whose object may be of another kind.", claims: map[string]int64{"sqls.example.org": 12},
			request: newDeletionRequest(sqlClasses, "{}", func(r *admissionv1.AdmissionRequest) { r.SubResource = "scale" }), want: "NotADeletion",
		},
		"NotRegistered": {
			reason:  "We should leave classes alone whose kind we do not watch, whatever they look like.",
			request: newDeletionRequest(sqlClasses, "{}", func(r *admissionv1.AdmissionRequest) { r.Resource.Resource = "others" }), want: "NotRegistered",
		},
	} {
		t.Run(name, func(t *testing.T) {
			request := tc.request
			if request == nil {
				request = newDeletionRequest(sqlClasses, silver)
			}
			d := newDeletion(map[string]map[string]int64{"SQLClass/silver": tc.claims}, !tc.incomplete)
			response, err := d.Review(t.Context(), request)
			require.NoError(t, err, tc.reason)
			assert.True(t, response.Allowed, "We should never refuse a deletion.")
			assert.Equal(t, tc.want, response.AuditAnnotations["reason"], tc.reason)
			assert.Equal(t, tc.warning, strings.Join(response.Warnings, "\n"), tc.reason)
			assert.Equal(t, tc.want == "HasClaims", response.AuditAnnotations["claims"] != "", "We should say the number in the audit log, too.")
		})
	}
}

// TestDeletionRefusesWhatNoAPIServerSends has the answers to whoever makes up a review.
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
		"Namespace":   {"We should refuse a namespace where classes have none.", object("silver", `,"namespace":"a"`, ""), class + "must have a namespace as classes of its kind have"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newDeletion(nil, true).Review(t.Context(), newDeletionRequest(sqlClasses, tc.object))
			require.ErrorContains(t, err, tc.want, tc.reason)
			bad := (*badRequest)(nil)
			require.ErrorAs(t, err, &bad, "We should take it for the fault of who sent it.")
			assert.Equal(t, http.StatusBadRequest, bad.status)
		})
	}
}

// FuzzDeletion posts any bytes to /deletion, where every class has claims.
func FuzzDeletion(f *testing.F) {
	deleted := strings.NewReplacer(`"object":`, `"oldObject":`, `"oldObject":`, `"object":`, `"CREATE"`, `"DELETE"`, `"UPDATE"`, `"DELETE"`)
	for _, c := range guardSeeds() {
		f.Add([]byte(deleted.Replace(c.review())))
	}
	f.Add([]byte(wholeReview))
	meter, api := cost.NewMeter(f), newPlainAPI(largeWorld())
	d := &Deletion{
		ClassKind: func(name string) *inventory.ClassKind { return api.kinds[name] },
		Claims: func(*inventory.Class) (map[string]int64, bool) {
			return map[string]int64{"claims." + worldGroup: 3}, true
		},
	}
	a := newPost(d.Review)
	f.Fuzz(func(t *testing.T, body []byte) {
		text := string(body)
		meter.Measure(t, len(text), func() { a.ask(text) }, body)
		a.check(t, len(text))
		if strings.Contains(a.answers.body.String(), `"allowed":false`) {
			t.Errorf("We should refuse no deletion: %s", short(a.answers.body.String()))
		}
	})
}
