package status

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
)

// counting counts the reads of an API server that has no registration.
type counting struct {
	client.Reader
	reads int
}

func (c *counting) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	c.reads++
	return (&controllertest.Cached{}).Get(ctx, key, o, opts...)
}

// TestPreviewWithoutAnswers has an API server that does not answer. TestRegistrationWarnings has one that does.
func TestPreviewWithoutAnswers(t *testing.T) {
	const name, classes = "claims.example.org", "golds.example.org"
	unavailable := controllertest.Failure(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
	config := controllertest.NewAPIServer(t, map[string]any{"/apis/example.org": unavailable})
	cached := &controllertest.Cached{ClassKinds: []v1beta1.ClassKind{{
		ObjectMeta: metav1.ObjectMeta{Name: classes}, Spec: v1beta1.ClassKindSpec{ClaimKinds: controllertest.Links(name)},
	}}}
	registration, err := registry.NewRegistration(config, cached, cached)
	require.NoError(t, err)
	p := &Preview{Registration: registration, Cache: cached, Live: &counting{}}

	k := controllertest.NewClaimKind(name)
	k.Spec.WhenUnmatched = v1beta1.BindLater
	const unanswered = `cannot look up the API group "example.org": ServiceUnavailable`
	assert.Equal(t, []string{
		"the paths cannot be compared with the schema of the claims: " + unanswered,
		`claims are decided on without the classes of "golds.example.org": ` + unanswered,
		"claims without a class are not bound later: " + unanswered,
	}, p.ClaimKind(t.Context(), k), "We should say what we could not find out.")
	assert.Equal(t, []string{unanswered}, p.ClassKind(t.Context(), &v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: classes}}))

	cached.ClaimKinds = []v1beta1.ClaimKind{*controllertest.NewClaimKind(name)}
	problems := p.ClassKind(t.Context(), &v1beta1.ClassKind{
		ObjectMeta: metav1.ObjectMeta{Name: classes},
		Spec:       v1beta1.ClassKindSpec{ClaimKinds: controllertest.Links(name), OnDelete: v1beta1.DenyDeletion},
	})
	assert.Contains(t, problems, claimsCounted(errors.New(unanswered)).Message, "We should say that the claims may not be counted.")
}

// TestNeededToStart registers each resource that a cluster needs to come up: the warning at apply and the condition say the same.
func TestNeededToStart(t *testing.T) {
	cached := &controllertest.Cached{}
	registration, err := registry.NewRegistration(controllertest.NewAPIServer(t, nil), cached, cached)
	require.NoError(t, err)
	registration.Inventory.Open()
	p := &Preview{Registration: registration, Cache: cached, Live: &counting{}}
	w := &Writer{
		Registration: registration, ClassKinds: registration.ClassKinds, RelatedKinds: registration.RelatedKinds, Resources: registration.Resources,
		Snapshot: registration.Inventory.Snapshot, Claims: watched{}, ClaimEntries: said{}, Client: cached, Live: cached,
	}
	for resource := range claim.NeededToStart {
		k := controllertest.NewClaimKind(resource)
		why := claim.StopsStart(k)
		assert.Contains(t, p.ClaimKind(t.Context(), k), why, "We should say so at apply.")
		registration.Inventory.SetClaimKind(selector.NewClaimKind(k))
		cached.ClaimKinds, cached.Updated = []v1beta1.ClaimKind{*k}, nil
		_, err := w.reconcileClaimKind(t.Context(), resource)
		require.NoError(t, err)
		c := last(cached.Updated[0].(*v1beta1.ClaimKind).Status.Conditions, v1beta1.ConditionLetsClustersStart)
		assert.Equal(t, "False/NeededToStart: "+why, conditionText(&c), "We should say so in the status.")
	}
}

func TestPreviewAsksForFewNames(t *testing.T) {
	live := &counting{}
	p := &Preview{Cache: &controllertest.Cached{}, Live: live}
	names := []string{"e", "d", "c", "b", "a"}
	assert.Equal(t, []string{
		`spec.claimKinds has names that no ClaimKind has: "b", "c", "d", "e": correct the name, which is <plural>.<group>, or create the ClaimKind`,
	},
		p.unregistered(t.Context(), "spec.claimKinds", "ClaimKind", names, &v1beta1.ClaimKind{}), "We should name a few.")
	assert.Equal(t, maxProbed, live.reads, "We should ask for no more.")
}
