package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/e2e/controlplane"
)

// TestRestore restores etcd from a backup that does not have a class, while claims ask for it all the time.
func TestRestore(t *testing.T) {
	long(t)
	const (
		group = "restore.test"
		// looks is long enough for a replica to have looked at the storage's version.
		looks = 5 * time.Second
	)
	w := newWorld(t, controlplane.Options{})
	r := must(w.run())(t)
	t.Cleanup(r.Kill)
	r.logFailure(t)
	require.NoError(t, r.Ready(t.Context()))
	w.register(t, group, "{}", class(group, "Class", "kept", "labels: {tier: kept}, "))
	require.NoError(t, w.plane.Backup())

	eventually(t, func(c *attempt) {
		_, _, err := w.Kubectl(t.Context(), strings.NewReader(class(group, "Class", "lost", "labels: {tier: lost}, ")), "apply", "-f", "-")
		require.NoError(c, err)
	})
	w.awaitClasses(t, "classes."+group, 2)
	claims := &unending{w: w, claim: func(tier string) *unstructured.Unstructured {
		return documents(t, fmt.Sprintf("apiVersion: %s/v1\nkind: Claim\nmetadata: {namespace: default, generateName: c-}\n"+
			"spec: {classSelector: {matchLabels: {tier: %s}}}\n", group, tier))[0]
	}}
	stop := claims.create(t)
	require.Eventually(t, func() bool {
		return claims.count("lost", "Class/lost", claims.begun) > 500 && time.Since(claims.begun) > looks
	},
		patience, 10*time.Millisecond, "We should have claims bound to the class that will be lost.")

	require.NoError(t, w.plane.Restore())
	restored := time.Now()
	select {
	case <-r.Ended():
	case <-time.After(patience):
		require.Fail(t, "We should see the replica end that knows of a class which does not exist.")
	}
	ended := time.Now()
	require.Error(t, r.Stop(), "We should see in the exit status that the replica could not go on.")
	assert.Contains(t, r.log.String(), "restored from a backup", "We should say why it ended.")
	w.serve(t, "--webhook-url="+r.URL, "--webhook-bind-address="+strings.TrimPrefix(r.URL, "https://"))
	ready := time.Now()
	require.Eventually(t, func() bool {
		return claims.count("kept", "Class/kept", ready) > 100 && claims.count("lost", "", ready) > 100
	}, patience, 10*time.Millisecond, "We should see claims bound to the class that there is, and not to the one that was lost.")
	stop()
	assert.Zero(t, claims.count("lost", "Class/lost", ended), "We should bind no claim to a class that does not exist once that is known.")
	t.Logf("the replica ended %s after the API server was back, and its successor was ready %s later; meanwhile, %d claims got the lost class",
		ended.Sub(restored), ready.Sub(ended), claims.count("lost", "Class/lost", restored))
}

// unending claims are created one after the other, for each tier in turn, whatever becomes of those before.
type unending struct {
	w     *world
	claim func(tier string) *unstructured.Unstructured
	begun time.Time

	mu  sync.Mutex
	all []given
}

type given struct {
	asked       time.Time
	tier, class string
}

func (u *unending) create(t *testing.T) (stop func()) {
	u.begun = time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, tier := range []string{"lost", "kept"} {
		running.Go(func() {
			for ctx.Err() == nil {
				o, asked := u.claim(tier), time.Now()
				if err := u.w.Create(ctx, o, &client.CreateOptions{}); err != nil {
					continue // The API server is away, or the replica, and the claim is refused.
				}
				u.mu.Lock()
				u.all = append(u.all, given{asked, tier, classOf(o)})
				u.mu.Unlock()
			}
		})
	}
	stop = func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	return stop
}

func (u *unending) count(tier, class string, since time.Time) (n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, g := range u.all {
		if g.tier == tier && g.class == class && !g.asked.Before(since) {
			n++
		}
	}
	return n
}
