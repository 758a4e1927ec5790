package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/rules"
)

// newRegistrationRequest creates a registration with a spec, or updates it from another one.
func newRegistrationRequest(resource, spec, before string, change ...func(*admissionv1.AdmissionRequest)) *admissionv1.AdmissionRequest {
	object := func(spec string) runtime.RawExtension {
		return runtime.RawExtension{Raw: []byte(`{"metadata":{"name":"golds.example.org"},"spec":` + spec + `}`)}
	}
	r := &admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, Name: "golds.example.org", Object: object(spec),
		Kind:     metav1.GroupVersionKind{Group: "classbind.io", Version: "v1beta1", Kind: "Kind"},
		Resource: metav1.GroupVersionResource{Group: "classbind.io", Version: "v1beta1", Resource: resource},
	}
	if before != "" {
		r.Operation, r.OldObject = admissionv1.Update, object(before)
	}
	for _, c := range change {
		c(r)
	}
	return r
}

func TestReviewOfRegistrations(t *testing.T) {
	many := make([]string, 6)
	for i := range many {
		many[i] = strings.Repeat("x", 900)
	}
	fits := func(n int) string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprintf(`{"name":"F%d","expression":"true"}`, i)
		}
		return "[" + strings.Join(all, ",") + "]"
	}
	const broken = `{"claims":{"when":"claim ++"}}`
	for name, tc := range map[string]struct {
		reason   string
		request  *admissionv1.AdmissionRequest
		problems []string
		warnings []string
		refused  string // the message; then the status is 422
		audit    string
		bad      string // the answer to what no API server sends
	}{
		"Right": {reason: "We should say nothing where nothing is wrong.", request: newRegistrationRequest("claimkinds", "{}", ""), audit: "Reviewed"},
		"Problems": {
			reason:   "We should name the registration.",
			request:  newRegistrationRequest("claimkinds", "{}", ""),
			problems: []string{"a", "b"},
			warnings: []string{"golds.example.org: a", "golds.example.org: b"},
			audit:    "Reviewed",
		},
		"ClassKind": {
			reason:   "We should ask about the right kind.",
			request:  newRegistrationRequest("classkinds", "{}", ""),
			problems: []string{"a"},
			warnings: []string{"golds.example.org: a"},
			audit:    "Reviewed",
		},
		"Long": {
			reason:   "We should cut off a warning, lest the API server cut off all.",
			request:  newRegistrationRequest("claimkinds", "{}", ""),
			problems: []string{strings.Repeat("x", 2000)},
			warnings: []string{"golds.example.org: " + strings.Repeat("x", 1002) + "..."},
			audit:    "Reviewed",
		},
		"Many": {
			reason: "We should say how many we leave out.", request: newRegistrationRequest("claimkinds", "{}", ""), problems: many,
			warnings: []string{
				"golds.example.org: " + many[0], "golds.example.org: " + many[0], "golds.example.org: " + many[0],
				"golds.example.org: 3 more: see its conditions",
			},
			audit: "Reviewed",
		},
		"Expression": {
			reason:  "We should refuse what can never work.",
			request: newRegistrationRequest("claimkinds", broken, ""),
			refused: `spec.claims.when: Invalid value: "claim ++": line 1, column `,
			audit:   v1beta1.ReasonInvalidExpression,
		},
		"ExpressionOfClasses": {
			reason: "We should refuse it of classes, too.", request: newRegistrationRequest("classkinds", `{"offerWhen":"claim.spec"}`, ""),
			refused: "spec.offerWhen: Invalid value: \"claim.spec\": line 1, column 1: claim cannot be used here; the variable here is class",
			audit:   v1beta1.ReasonInvalidExpression,
		},
		"ExpressionAsItWas": {
			reason:   "We should let an update pass that leaves it as it was, such as of an older release.",
			request:  newRegistrationRequest("claimkinds", broken, broken),
			problems: []string{"a"},
			warnings: []string{"golds.example.org: a"},
			audit:    "Reviewed",
		},
		"AnotherExpression": {
			reason:  "We should refuse another one that does not compile.",
			request: newRegistrationRequest("claimkinds", `{"claims":{"when":"claim --"}}`, broken),
			refused: `spec.claims.when: Invalid value: "claim --": line 1, column `,
			audit:   v1beta1.ReasonInvalidExpression,
		},
		"AnotherPlace": {
			reason:  "We should not take it for the same at another place.",
			request: newRegistrationRequest("claimkinds", `{"selector":{"expression":"claim ++"}}`, broken),
			refused: `spec.selector.expression: `,
			audit:   v1beta1.ReasonInvalidExpression,
		},
		"Status": {
			reason:  "We should leave the status alone.",
			request: newRegistrationRequest("claimkinds", broken, "{}", func(r *admissionv1.AdmissionRequest) { r.SubResource = "status" }),
			audit:   "NotARegistration",
		},
		"Deletion": {
			reason:  "We should leave deletions alone.",
			request: newRegistrationRequest("claimkinds", broken, "", func(r *admissionv1.AdmissionRequest) { r.Operation = admissionv1.Delete }),
			audit:   "NotARegistration",
		},
		"Others": {reason: "We should leave other kinds alone.", request: newRegistrationRequest("otherkinds", broken, ""), audit: "NotARegistration"},
		"TooManyFits": {
			reason:  "We should not compile more than a registration may have.",
			request: newRegistrationRequest("claimkinds", `{"classes":{"fits":`+fits(9)+`}}`, ""),
			bad:     "must have at most 8 fits, as many related objects, 4 quantities and 64 links",
		},
		"TooManyFitsOfClasses": {
			reason:  "We should not do so for classes either.",
			request: newRegistrationRequest("classkinds", `{"fits":`+fits(9)+`}`, ""),
			bad:     "must have at most 8 fits, as many related objects, 4 quantities and 64 links",
		},
		"TooManyQuantities": {
			reason: "We should not compile more expressions of a usage.",
			request: newRegistrationRequest("claimkinds", `{"classes":{"usage":[`+strings.Repeat(`{"name":"a","expression":"1"},`, v1beta1.MaxQuantities)+
				`{"name":"b","expression":"1"}]}}`, ""),
			bad: "must have at most 8 fits, as many related objects, 4 quantities and 64 links",
		},
		"TooManyQuantitiesOfClasses": {
			reason:  "We should not do so for a capacity either.",
			request: newRegistrationRequest("classkinds", `{"capacity":[`+strings.Repeat(`{"name":"a"},`, v1beta1.MaxQuantities)+`{"name":"b"}]}`, ""),
			bad:     "must have at most 8 fits, as many related objects, 4 quantities and 64 links",
		},
		"MostFits": {
			reason:  "We should take as many as the CRD.",
			request: newRegistrationRequest("classkinds", `{"fits":`+fits(8)+`}`, ""),
			audit:   "Reviewed",
		},
		"Malformed": {reason: "We should not panic.", request: newRegistrationRequest("claimkinds", `[]`, ""), bad: "request.object: "},
	} {
		t.Run(name, func(t *testing.T) {
			r := NewRegistration(
				func(_ context.Context, k *v1beta1.ClaimKind) []string {
					assert.Equal(t, "golds.example.org", k.Name)
					return tc.problems
				},
				func(_ context.Context, k *v1beta1.ClassKind) []string {
					assert.Equal(t, "golds.example.org", k.Name)
					return tc.problems
				})
			got, err := r.Review(t.Context(), tc.request)
			if tc.bad != "" {
				require.ErrorContains(t, err, tc.bad, tc.reason)
				assert.True(t, isBadRequest(err), tc.reason)
				return
			}
			require.NoError(t, err, tc.reason)
			assert.Equal(t, tc.refused == "", got.Allowed, tc.reason)
			assert.Equal(t, tc.warnings, got.Warnings, tc.reason)
			assert.Equal(t, tc.audit, got.AuditAnnotations["reason"], tc.reason)
			if tc.refused != "" {
				assert.Contains(t, got.Result.Message, tc.refused, tc.reason)
				assert.Equal(t, int32(http.StatusUnprocessableEntity), got.Result.Code, tc.reason)
			}
		})
	}
}

// TestRegistrationReviewsTakeTurns has as many reviews wait as may.
func TestRegistrationReviewsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		running, leave := atomic.Int32{}, make(chan struct{})
		r := NewRegistration(func(context.Context, *v1beta1.ClaimKind) []string {
			running.Add(1)
			<-leave
			return nil
		}, nil)
		answers := make(chan error, v1beta1.RegistrationReviews.Waiting+1)
		for range v1beta1.RegistrationReviews.Waiting + 1 {
			go func() {
				_, err := r.Review(t.Context(), newRegistrationRequest("claimkinds", "{}", ""))
				answers <- err
			}()
		}
		synctest.Wait()
		require.Len(t, answers, 1)
		require.ErrorIs(t, <-answers, errTooManyRegistrations, "We should not have more wait than may.")
		assert.EqualValues(t, v1beta1.RegistrationReviews.InFlight, running.Load(), "We should not run more at once than may.")
		close(leave)
		for range v1beta1.RegistrationReviews.Waiting {
			require.NoError(t, <-answers, "We should answer all that waited.")
		}
	})
}

// dearRegistrations have as many expressions as may be, all of which take long or much memory to compile.
func dearRegistrations() map[string]string {
	long := func(before, part, after string) string {
		return before + strings.Repeat(part, (2000-len(before)-len(after))/len(part)) + after
	}
	nested := func(n int, open, inner, shut string) string {
		return strings.Repeat(open, n) + inner + strings.Repeat(shut, n)
	}
	all := map[string]string{}
	for name, expression := range map[string]string{
		"Patterns": long("claim.a.matches('", "a{1000}", "')"), "ManyPatterns": long("", "claim.a.matches('a{1000}')||", "true"),
		"Optional":  long("claim.a.matches('", "(a?){999}", "')"),
		"Classes":   long("claim.a.matches('", `\\pL`, "')"),
		"Folded":    long("claim.a.matches('(?i)", `[\\pL\\pN]`, "')"),
		"List":      long("size([", "1,", "1])==1"),
		"Map":       long("size({", "'a':1,", "'b':1})==1"),
		"And":       long("", "claim.a && ", "true"),
		"Not":       long("", "!", "true"),
		"Maps":      nested(45, "claim.a.map(x,", "1", ")") + "==1",
		"Optionals": nested(40, "claim.?a.optMap(x,", "1", ")") + ".hasValue()",
		"Chain":     "claim.a" + nested(40, ".map(x,x)", "", "") + ".size()==1",
		"Lists":     nested(40, "[", "1", "]") + "==[]",
		"Keys":      nested(45, "{claim.a:", "1", "}") + "=={}",
		"Unmatched": long("", "[", ""),
		"Sums":      long("", "[[1]]+", "[]==[]"),
		"Deep":      nested(14, "claim.a.exists(x, [", "{'a': 1} == {}", "] == [])"), "Mistakes": long("", "'a'.getMonth('b') && ", "true"),
	} {
		quoted, _ := json.Marshal(expression)
		text, fits, related := string(quoted), make([]string, 8), make([]string, 8)
		for i := range 8 {
			fits[i] = fmt.Sprintf(`{"name":"F%d","expression":%s}`, i, text)
			related[i] = fmt.Sprintf(`{"name":"r%d","resource":"as.b.c","nameExpression":%s,"namespaceExpression":%s}`, i, text, text)
		}
		all[name] = fmt.Sprintf(`{"claims":{"when":%[1]s},"selector":{"expression":%[1]s},"choice":{"score":%[1]s},"classes":{"usage":%[1]s,`+
			`"partition":{"claim":%[1]s,"class":%[1]s},"fits":[%[2]s],"related":[%[3]s]}}`, text, strings.Join(fits, ","), strings.Join(related, ","))
	}
	return all
}

// newCompiling reviews registrations as the product does, which compiles them again for what it warns of.
func newCompiling() *Registration {
	return NewRegistration(
		func(_ context.Context, k *v1beta1.ClaimKind) []string {
			return []string{fmt.Sprint(selector.NewClaimKind(k).Rules.Invalid)}
		},
		func(_ context.Context, k *v1beta1.ClassKind) []string {
			return []string{fmt.Sprint(rules.NewForClasses(k).Invalid)}
		})
}

// TestPricesOfRegistrations has those that anyone may send who reaches the port.
func TestPricesOfRegistrations(t *testing.T) {
	for name, spec := range dearRegistrations() {
		t.Run(name, func(t *testing.T) {
			request, m := newRegistrationRequest("claimkinds", spec, spec), measured{}
			m.add(t, len(spec), func() { _, _ = newCompiling().Review(t.Context(), request) })
			t.Log(&m)
		})
	}
}
