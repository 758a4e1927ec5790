package webhook

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/classbind/classbind/selector"
)

func BenchmarkServeHTTP(b *testing.B) {
	a := postTo(newHandler(io.Discard))
	b.ReportAllocs()
	for b.Loop() {
		a.ask(wholeReview)
	}
	if a.status != http.StatusOK || !strings.Contains(a.answers.body.String(), `"patch"`) {
		b.Fatal(a.status, a.answers.body.String())
	}
}

func BenchmarkDecode(b *testing.B) {
	r := httptest.NewRequest(http.MethodPost, "/bind", nil)
	r.Header.Set("Content-Type", "application/json")
	body := strings.NewReader(wholeReview)
	r.ContentLength = int64(len(wholeReview))
	r.Body = io.NopCloser(body)
	var object runtime.RawExtension
	b.Run("Review", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			body.Reset(wholeReview)
			request, err := decode(nil, r, &reservation{ctx: b.Context()})
			if err != nil {
				b.Fatal(err)
			}
			object = request.Object
		}
	})
	b.Run("Claim", func(b *testing.B) {
		kind := newClaimKind()
		b.ReportAllocs()
		for b.Loop() {
			object, err := kind.Decode(object.Raw)
			if err != nil {
				b.Fatal(err)
			}
			if claim := kind.Read("acme-team", "gitlab-database", object); claim.Selector == nil {
				b.Fatal(claim.Problems)
			}
		}
	})
}

// BenchmarkAnswer to a claim that is bound.
func BenchmarkAnswer(b *testing.B) {
	inventory := newInventory(newClaimKind(), index(sqlClasses, "gold tier=gold"))
	request := newRequest(wantsGold)
	claim := selector.Intake{Claim: selector.Claim{Selector: labels.Everything()}, Parents: 1}
	decision, err := new(selector.Decider).Decide(b.Context(), inventory.Snapshot()[claimKindName], claim, selector.DryRun)
	require.NoError(b, err)
	respond := func() *admissionv1.AdmissionResponse { return answer(request, &decision) }
	b.Run("Respond", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			respond()
		}
	})
	b.Run("Tell", func(b *testing.B) {
		told := verdict{metrics: NewMetrics(inventory.Snapshot), log: newLog(io.Discard), request: request, view: decision.View, decision: decision, response: respond()}
		b.ReportAllocs()
		for b.Loop() {
			told.record()
		}
	})
	b.Run("Encode", func(b *testing.B) {
		response := respond()
		b.ReportAllocs()
		for b.Loop() {
			if _, err := encode(response); err != nil {
				b.Fatal(err)
			}
		}
	})
}
