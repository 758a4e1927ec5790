package webhook

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
)

// newUpdate from one object to another.
func newUpdate(before, object string) *admissionv1.AdmissionRequest {
	return newRequest(object, func(r *admissionv1.AdmissionRequest) {
		r.Operation, r.OldObject.Raw = admissionv1.Update, []byte(before)
	})
}

const boundToGold = `{"spec":{"classRef":{"name":"gold"}}}`

func TestReviewOfUpdates(t *testing.T) {
	missing := newInventory(newClaimKind())
	missing.SetMissing("sqlclasses.example.org", []string{claimKindName}, "not listed yet")
	for name, tc := range map[string]struct {
		reason    string
		inventory *selector.Inventory
		request   *admissionv1.AdmissionRequest
		want      string
		patch     string
		counted   string
	}{
		"Unbound": {
			reason: "We should put back the reference.", inventory: newInventory(newClaimKind(), index(sqlClasses, "silver @default=true")),
			request: newUpdate(boundToGold, `{"spec":{}}`), want: claim.Restored,
			patch: `[{"op":"add","path":"/spec/classRef","value":{"name":"gold"}}]`, counted: "restored",
		},
		"ClassesMissing": {
			reason: "We should need no class for that.", inventory: missing,
			request: newUpdate(boundToGold, `{"spec":{}}`), want: claim.Restored,
			patch: `[{"op":"add","path":"/spec/classRef","value":{"name":"gold"}}]`, counted: "restored",
		},
		"NeverBound": {
			reason: "We should bind no claim that is updated.", inventory: newInventory(newClaimKind(), index(sqlClasses, "silver @default=true")),
			request: newUpdate(`{}`, `{}`), want: claim.NotBound, counted: "untouched",
		},
		"Changed": {
			reason: "We should allow another class.", inventory: newInventory(newClaimKind()),
			request: newUpdate(boundToGold, `{"spec":{"classRef":{"name":"silver"}}}`), want: claim.Settled, counted: "untouched",
		},
		"Allowed": {
			reason:    "We should leave a claim alone for which the API server still has an entry from before.",
			inventory: newInventory(newClaimKind(func(s *v1beta1.ClaimKindSpec) { s.Reference.OnUnbind = v1beta1.AllowUnbind })),
			request:   newUpdate(boundToGold, `{}`), want: claim.UnbindAllowed, counted: "untouched",
		},
	} {
		inDryRunToo(t, name, tc.request, func(t *testing.T, request *admissionv1.AdmissionRequest) {
			binder := newBinder(t, tc.inventory)
			binder.Metrics = NewMetrics(tc.inventory.Snapshot)
			got, err := byResource(binder)(t.Context(), request)
			require.NoError(t, err, tc.reason)
			assert.True(t, got.Allowed, tc.reason)
			assert.Equal(t, map[string]string{"reason": tc.want}, got.AuditAnnotations, tc.reason)
			assert.Equal(t, tc.patch, string(got.Patch), tc.reason)
			assert.Equal(t, tc.patch != "", len(got.Warnings) == 1, "We should tell the author of what we keep, and of nothing else.")
			want := map[string]float64{}
			if request.DryRun == nil {
				want[fmt.Sprintf(decided, tc.counted)] = 1
			}
			assert.Equal(t, want, counted(t, binder.Metrics), tc.reason)
		})
	}
}

func TestReviewOfMalformedUpdates(t *testing.T) {
	binder := newBinder(t, newInventory(newClaimKind()))
	for name, tc := range map[string]struct{ reason, before, object, want string }{
		"NoOldObject":  {"We should refuse an update without the old object.", ``, `{}`, "request.oldObject: must be set"},
		"OldIsAList":   {"We should say which of the two is wrong.", `[]`, `{}`, "request.oldObject: must be an object"},
		"ObjectIsText": {"We should say which of the two is wrong.", `{}`, `"text"`, "request.object: must be an object"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := byResource(binder)(t.Context(), newUpdate(tc.before, tc.object))
			bad := (*badRequest)(nil)
			require.ErrorAs(t, err, &bad, tc.reason)
			assert.Equal(t, http.StatusBadRequest, bad.status, tc.reason)
			assert.Equal(t, tc.want, bad.text, tc.reason)
		})
	}
}
