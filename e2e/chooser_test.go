package e2e

import (
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	chooserv1 "github.com/classbind/classbind/api/chooser/v1"
	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/certs/certtest"
	"github.com/classbind/classbind/e2e/chooser"
	"github.com/classbind/classbind/e2e/classbind"
)

// asked has all questions to a chooser.
type asked struct {
	mu  sync.Mutex
	all []*chooserv1.RankRequest
}

func (a *asked) add(r *chooserv1.RankRequest) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, r)
}

func (a *asked) last(t testing.TB) *chooserv1.RankRequest {
	a.mu.Lock()
	defer a.mu.Unlock()
	require.NotEmpty(t, a.all, "We should have been asked.")
	return a.all[len(a.all)-1]
}

func (a *asked) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.all)
}

// testChooser serves on an address of its own, with a certificate of its own CA.
type testChooser struct {
	*chooser.Server
	asked

	address string
	ca      *certtest.Pair
}

// chooser that knows the price of each node group, and takes the calls of classbind's certificate. It is not started.
func (w *world) chooser(t testing.TB) *testChooser {
	return newTestChooser(t, poolOf(t, w.ownCA(t)))
}

func newTestChooser(t testing.TB, clients *x509.CertPool) *testChooser {
	address := "localhost:" + must(classbind.FreePorts(1))(t)[0]
	c := &testChooser{Server: &chooser.Server{Clients: clients}, address: address, ca: certtest.NewCA(t)}
	c.Asked = c.add
	c.Certificate = *c.ca.Sign(t, &x509.Certificate{DNSNames: []string{"localhost"}}).TLS()
	require.NoError(t, c.Refresh(chooser.Prices{"m5.large": 0.1, "m5.2xlarge": 0.3}))
	return c
}

func (c *testChooser) start(t testing.TB) {
	require.NoError(t, c.Start(c.address))
	t.Cleanup(func() { assert.NoError(t, c.Stop()) })
}

// ownCA is that of the replicas' certificates, in PEM.
func (w *world) ownCA(t testing.TB) []byte {
	secret := &corev1.Secret{}
	eventually(t, func(c *attempt) {
		require.NoError(c, w.Get(t.Context(), client.ObjectKey{Namespace: classbind.Namespace, Name: v1beta1.CASecret}, secret))
		require.NotEmpty(c, secret.Data[corev1.TLSCertKey])
	}, "We should see the CA of the replicas.")
	return secret.Data[corev1.TLSCertKey]
}

func poolOf(t testing.TB, bundle []byte) *x509.CertPool {
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(bundle))
	return pool
}

// external is the choice of a ClaimKind that asks the chooser. more follows its other fields.
func (c *testChooser) external(more string) string {
	return fmt.Sprintf("choice: {strategy: External, external: {host: %q, caBundle: %s, "+
		"fields: {claim: [{path: .spec.cpus}], class: [{path: .spec.instanceType}, {path: .spec.cpus}]}%s}}",
		c.address, base64.StdEncoding.EncodeToString(c.ca.PEM()), more)
}

// nodeGroups of a group: one with small nodes, and one with large ones.
func nodeGroups(group string) string {
	return class(group, "Class", "small", "labels: {size: small}, ") + "spec: {instanceType: m5.large, cpus: 2}\n" +
		class(group, "Class", "large", "labels: {size: large}, ") + "spec: {instanceType: m5.2xlarge, cpus: 8}\n"
}

// chooses starts a chooser, too.
func (w *world) chooses(t *testing.T, c *testChooser, group, external, more string) {
	c.start(t)
	w.registerChooser(t, c, group, external, more)
}

// registerChooser registers the kinds of a group whose claims ask a chooser. more follows the other fields of the ClaimKind.
func (w *world) registerChooser(t *testing.T, c *testChooser, group, external, more string) {
	w.register(t, group, "{selector: {whenAbsent: Any}, "+c.external(external)+more+"}", nodeGroups(group))
	w.awaitCondition(t, &v1beta1.ClaimKind{}, "claims."+group, v1beta1.ConditionChooserReady, metav1.ConditionTrue, "")
	eventually(t, func(a *attempt) {
		_, warnings, err := w.create(t, claimWith(group, "probe", "{cpus: 1}"), client.DryRunAll)
		require.NoError(a, err)
		require.Empty(a, warnings)
	}, "We should see each replica ask the chooser.")
}

// TestChooser has claims get node groups by price, as from a cloud provider that Cluster Autoscaler calls over gRPC.
func TestChooser(t *testing.T) {
	notInPods(t, "Pods do not reach the chooser, which runs in this process.")
	const group = "chooser.test"
	w := sharedWorld(t)
	c := w.chooser(t)
	w.chooses(t, c, group, ", timeout: 1s", "")

	w.binds(t, claimWith(group, "small", "{cpus: 2, secret: mine}"), "Class/small", "One small node should be the cheapest for a small claim.")
	question := c.last(t)
	assert.Equal(t, "claims."+group, question.GetClaimKind())
	assert.False(t, question.GetDryRun())
	assert.JSONEq(t, `{"spec":{"cpus":2}}`, question.GetClaim(), "We should show the chooser only what the ClaimKind names.")
	var shown []string
	for _, candidate := range question.GetCandidates() {
		shown = append(shown, candidate.GetFields())
	}
	assert.ElementsMatch(t, []string{
		`{"spec":{"cpus":2,"instanceType":"m5.large"}}`, `{"spec":{"cpus":8,"instanceType":"m5.2xlarge"}}`,
	}, shown)
	w.binds(t, claimWith(group, "large", "{cpus: 16}"), "Class/large", "Two large nodes should be cheaper than eight small ones.")

	before := c.count()
	_, warnings := w.warned(t, claimWith(group, "dry", "{cpus: 16}"), client.DryRunAll)
	assert.Empty(t, warnings)
	assert.Greater(t, c.count(), before, "We should ask in a dry run, too.")
	assert.True(t, c.last(t).GetDryRun(), "The chooser should know that it is one.")

	w.binds(t, claimWith(group, "selects", "{cpus: 16, classSelector: {matchLabels: {size: small}}}"), "Class/small",
		"We should offer only what matches.")
	assert.Len(t, c.last(t).GetCandidates(), 1)
	before = c.count()
	w.binds(t, claimWith(group, "none", "{cpus: 16, classSelector: {matchLabels: {size: tiny}}}"), "", "No node group matches.")
	assert.Equal(t, before, c.count(), "We should not ask without candidates.")

	require.NoError(t, c.Refresh(chooser.Prices{"m5.large": 0.01, "m5.2xlarge": 0.3}))
	w.binds(t, claimWith(group, "refreshed", "{cpus: 16}"), "Class/small", "The next claim should get what has become the cheapest.")

	require.NoError(t, c.Behave("NoClass", "Good"))
	_, warnings = w.warned(t, claimWith(group, "soldout", "{cpus: 1}"))
	assert.Contains(t, strings.Join(warnings, "\n"), `gives this claim no class: "every node group is sold out"`)
	require.NoError(t, c.Behave("NoOpinion", "Good"))
	_, warnings = w.warned(t, claimWith(group, "noopinion", "{cpus: 1}"))
	assert.Empty(t, warnings, "To leave a choice to the draw is no failure.")
}
