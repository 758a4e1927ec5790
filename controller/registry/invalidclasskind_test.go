package registry

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/selector/inventory"
)

// The plans are the classes here.
const claims, plans = "claims.example.org", plansResource

// newInvalidWorld returns a function that registers plans as classes, and waits.
func newInvalidWorld(t *testing.T) (
	w *relatedWorld, classKind func(generation int64, offerWhen v1beta1.Expression, claimKinds ...string),
) {
	t.Helper()
	w = newRelatedWorld(t)
	w.cache.ClaimKinds = []v1beta1.ClaimKind{*controllertest.NewClaimKind(claims)}
	_, err := w.reconcileClaimKind(t.Context(), claims)
	require.NoError(t, err)
	return w, func(generation int64, offerWhen v1beta1.Expression, claimKinds ...string) {
		t.Helper()
		k := v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: plans, UID: "7a", Generation: generation}}
		k.Spec.ClaimKinds, k.Spec.OfferWhen = controllertest.Links(claimKinds...), offerWhen
		w.cache.ClassKinds = []v1beta1.ClassKind{k}
		_, err := w.reconcileClassKind(t.Context(), plans)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		synctest.Wait()
	}
}

// A class kind whose expressions do not compile is not offered, and takes no classes away in silence.
func TestInvalidClassKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, classKind := newInvalidWorld(t)
		classKind(1, "class.", claims)
		state := w.State(plans)
		assert.Equal(t, v1beta1.ReasonInvalidExpression, state.Reason)
		assert.Contains(t, state.Message, "spec.offerWhen: line 1, column 7", "We should say what is wrong, and where.")
		assert.Empty(t, w.fault(claims), "We should go on without classes that were never offered.")

		classKind(2, "", claims)
		assert.Equal(t, v1beta1.ReasonServed, w.State(plans).Reason, "We should offer the classes once that is mended.")

		classKind(3, "class.", claims)
		assert.Nil(t, w.State(plans).Classes)
		assert.Contains(t, w.fault(claims), "spec.offerWhen", "We should bind no claim without classes that were offered before.")
		classKind(4, "class.other.", claims)
		assert.Contains(t, w.fault(claims), "column 13", "We should say what is wrong now.")
		classKind(5, "class.other.", "others.example.org")
		assert.Empty(t, w.fault(claims), "We should go on without classes that are not to be offered any more.")
		classKind(6, "class.", claims)
		assert.NotEmpty(t, w.fault(claims))

		w.cache.ClassKinds = nil
		_, err := w.reconcileClassKind(t.Context(), plans)
		require.NoError(t, err)
		assert.Empty(t, w.fault(claims), "We should go on when it is deleted.")
		w.end()
	})
}

// Claims are not bound without classes that were offered before, whatever the API server says meanwhile.
func TestInvalidClassKindStaysMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, classKind := newInvalidWorld(t)
		classKind(1, "", claims)
		require.Equal(t, v1beta1.ReasonServed, w.State(plans).Reason)
		w.OnChange(t.Context(), func(*inventory.ClassKind) {
			assert.True(t, w.fault(claims) != "" || len(w.Inventory.Snapshot()[claims].Classes) > 0, "We should have the classes, or the fault.")
		})
		classKind(2, "class.", claims)

		w.unanswered(plans, nil, errors.New("connection refused"))
		classKind(3, "class.", claims)
		assert.Contains(t, w.fault(claims), "spec.offerWhen", "We should remember it while the API server does not answer.")

		w.server.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden)
		classKind(4, "", claims)
		assert.NotEmpty(t, w.fault(claims), "We should bind no claim before the classes are known again.")
		classKind(5, "class.", claims)
		assert.Contains(t, w.fault(claims), "spec.offerWhen", "We should remember it while the classes are not listed.")
		w.end()
	})
}
