package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/classbind"
	"github.com/classbind/classbind/e2e/controlplane"
)

// TestRestart kills replicas, whose successors serve their certificates at once where the
// API servers have long known the CA, and only there.
func TestRestart(t *testing.T) {
	long(t)
	const group = "restart.test"
	w, r := servedWorld(t, controlplane.Options{})
	w.register(t, group, "{}", class(group, "Class", "gold", ""))
	// Its successors are behind the same address, as behind a Service.
	address := []string{"--webhook-url=" + r.URL, "--webhook-bind-address=" + strings.TrimPrefix(r.URL, "https://")}
	r.Kill()

	r = w.serve(t, address...)
	assert.Contains(t, r.log.String(), holdsBack, "We should give the API servers time to see entries that were just written.")
	for begin := time.Now(); strings.Contains(r.log.String(), holdsBack); {
		require.Less(t, time.Since(begin), patience, "We should not wait where the entries have had our CA for long.")
		r.Kill()
		killed := time.Now()
		r = w.serve(t, address...)
		t.Logf("ready %s after it was killed", time.Since(killed))
	}
	w.binds(t, claim(group, "afterwards"), "Class/gold", "We should answer the API server as soon as we are ready.")
}

// holdsBack is what a replica logs that waits before it serves its certificate.
const holdsBack = "for less than 5s"

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

// TestBusyPort starts replicas whose ports another process has.
func TestBusyPort(t *testing.T) {
	notInPods(t, "It starts processes beside the control plane.")
	w := sharedWorld(t) // Its replica leads, so that these write nothing.
	busy := must(net.Listen("tcp", "localhost:0"))(t)
	defer func() { _ = busy.Close() }()
	flags := []string{"--webhook-bind-address", "--health-probe-bind-address", "--metrics-bind-address", "--pprof-bind-address"}
	free := must(classbind.FreePorts(len(flags)))(t)
	for _, flag := range flags {
		t.Run(flag, func(t *testing.T) {
			args := []string{"serve", "--kubeconfig=" + w.kubeconfig, "--namespace=" + classbind.Namespace}
			for i, other := range flags {
				address := "localhost:" + free[i]
				if other == flag {
					address = busy.Addr().String()
				}
				args = append(args, other+"="+address)
			}
			out, err := exec.CommandContext(t.Context(), command, args...).CombinedOutput() //nolint:gosec // It runs the command under test.
			require.Error(t, err)
			assert.Contains(t, string(out), "error: cannot listen: ", "We should not blame the cluster.")
			assert.Contains(t, string(out), busy.Addr().String(), "We should name the address.")
		})
	}
}

// TestStatusNonsense overwrites the status of every registration all the time, while claims are created,
// replicas are replaced and a kind is registered.
func TestStatusNonsense(t *testing.T) {
	long(t)
	notInPods(t, "It replaces processes beside the control plane.")
	const group, meanwhile, claims = "nonsense.test", "meanwhile.test", 200
	w := newWorld(t, controlplane.Options{})
	balancer, replicas := w.serveBehind(t, 3)
	var classes []string
	for i := range 10 {
		classes = append(classes, class(group, "Class", fmt.Sprint("class-", i), ""))
	}
	w.register(t, group, "{whenUnmatched: BindLater}", classes...)
	var want []string
	for i := range claims {
		dry := w.created(t, claim(group, fmt.Sprint("claim-", i)), client.DryRunAll)
		want = append(want, classOf(dry))
	}
	var before []string
	eventually(t, func(c *attempt) {
		before = w.statuses(t, group)
		require.Contains(c, strings.Join(before, ""), `"served":true`)
	})

	ctx, stop := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	var written atomic.Int64
	begin := time.Now()
	for range 8 { // One alone writes ten times a second.
		writers.Go(func() {
			for tick := time.NewTicker(50 * time.Millisecond); ; {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
					w.writeNonsense(t, int(written.Add(1))) //nolint:contextcheck // It ends with the test.
				}
			}
		})
	}
	created := 0
	create := func(reason string) {
		for range claims / 4 {
			w.binds(t, claim(group, fmt.Sprint("claim-", created)), want[created], reason)
			created++
		}
	}
	create("We should bind claims as ever.")
	for i, old := range replicas {
		r := w.serve(t, "--webhook-url="+balancer.URL)
		balancer.Add(strings.TrimPrefix(r.URL, "https://"))
		balancer.Remove(strings.TrimPrefix(old.URL, "https://"))
		require.NoError(t, old.Stop())
		create(fmt.Sprintf("We should bind them as ever after we have replaced replica %d.", i))
	}
	w.install(t, lateVendor(meanwhile)+claimKind("claims."+meanwhile, "{}")+classKind("classes."+group, "{claimKinds: [{name: claims."+group+"}, {name: claims."+meanwhile+"}]}"))
	eventually(t, func(c *attempt) {
		bound, _, err := w.create(t, claim(meanwhile, "a"), client.DryRunAll)
		require.NoError(c, err)
		require.NotEmpty(c, classOf(bound))
	}, "We should serve a kind that is registered meanwhile.")
	stop()
	writers.Wait()
	t.Logf("overwrote the status of all registrations %d times, %.0f times a second", written.Load(), float64(written.Load())/time.Since(begin).Seconds())
	eventually(t, func(c *attempt) { require.Equal(c, before, w.statuses(t, group)) }, "We should have the status right again.")
}

func (w *world) registrations(t *testing.T) (all []unstructured.Unstructured) {
	for _, kind := range []string{"ClaimKindList", "ClassKindList"} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(v1beta1.GroupVersion.WithKind(kind))
		require.NoError(t, w.List(t.Context(), list))
		all = append(all, list.Items...)
	}
	return all
}

// statuses of the registrations of a group, but for times and counts of claims.
func (w *world) statuses(t *testing.T, group string) (all []string) {
	for _, k := range w.registrations(t) {
		if !strings.HasSuffix(k.GetName(), "."+group) {
			continue
		}
		status, _, _ := unstructured.NestedMap(k.Object, "status")
		conditions, _ := status["conditions"].([]any)
		for _, c := range conditions {
			delete(c.(map[string]any), "lastTransitionTime")
			delete(c.(map[string]any), "observedGeneration")
		}
		for _, count := range []string{"boundClaims", "waitingClaims", "claims"} {
			delete(status, count)
		}
		text := must(json.Marshal(status))(t)
		all = append(all, k.GetName()+" "+string(text))
	}
	return all
}

func (w *world) writeNonsense(t *testing.T, n int) {
	conditions := func(status string, reasons ...string) (all []map[string]any) {
		for i, kind := range []string{"Ready", "PathsValid", "LateBinding", "Nonsense"} {
			all = append(all, map[string]any{
				"type": kind, "status": status, "reason": reasons[i%len(reasons)], "message": "nonsense", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z",
			})
		}
		return all
	}
	nonsense := []map[string]any{
		{"version": "v9", "selectorAbsent": true, "required": []string{".spec", ".spec.classRef"}, "served": false, "classes": 99, "conditions": conditions("False", "ReferencePruned", "PathsInvalid")},
		{"version": nil, "selectorAbsent": nil, "required": nil, "served": true, "classes": 0, "conditions": conditions("True", "Served")},
		{"version": "v1", "served": nil, "conditions": conditions("Unknown", "NotConfigured", "Conflict")},
		{"conditions": nil},
	}
	patch := must(json.Marshal(map[string]any{"status": nonsense[n%len(nonsense)]}))(t)
	all := w.registrations(t)
	concurrently(t, len(all), func(i int) error {
		return client.IgnoreNotFound(w.Status().Patch(t.Context(), &all[i], client.RawPatch(types.MergePatchType, patch)))
	})
}

// TestRestoredInAnotherOrder takes all registrations of one cluster into another, where the last comes first. Of those that
// are in each other's way, the same are served.
func TestRestoredInAnotherOrder(t *testing.T) {
	long(t)
	t.Parallel()
	const group = "restored.test"
	registrations := claimKind("claims."+group, "{selector: {whenAbsent: Any}}") +
		claimKind("again."+group, "{claims: {resource: claims."+group+"}, choice: {strategy: HighestWeight}, selector: {whenAbsent: Any}}") +
		claimKind("tickets."+group, "{reference: {path: .spec.className, form: Name}, choice: {strategy: Random}}") +
		claimKind("orders."+group, "{classes: {kinds: [{name: others."+group+"}]}, whenUnmatched: Deny}") +
		classKind("classes."+group, fmt.Sprintf("{claimKinds: [{name: claims.%[1]s}, {name: again.%[1]s}, {name: tickets.%[1]s}]}", group)) +
		classKind("others."+group, fmt.Sprintf("{claimKinds: [{name: claims.%[1]s}, {name: again.%[1]s}, {name: tickets.%[1]s}]}", group))
	classes := ""
	for i := range 4 {
		for _, kind := range []string{"Class", "Other"} {
			classes += class(group, kind, fmt.Sprintf("%s-%d", strings.ToLower(kind), i), fmt.Sprintf("annotations: {classbind.io/weight: '%d'}, labels: {tier: 't%d'}, ", i+1, i%2))
		}
	}
	start := func() *world {
		w, _ := servedWorld(t, controlplane.Options{})
		w.resources(t, "Claim claims."+group+" Namespaced", "Ticket tickets."+group+" Namespaced", "Order orders."+group+" Namespaced",
			"Class classes."+group+" Cluster", "Other others."+group+" Cluster")
		w.apply(t, lateVendor(group)+classes)
		return w
	}
	answers := func(w *world) (all []string) {
		for _, kind := range []string{"again", "tickets", "orders"} {
			w.awaitCondition(t, &v1beta1.ClaimKind{}, kind+"."+group, v1beta1.ConditionReady, metav1.ConditionTrue, "")
		}
		w.awaitReason(t, &v1beta1.ClaimKind{}, "claims."+group, v1beta1.ReasonConflict)
		w.awaitClasses(t, "classes."+group, 4)
		w.awaitClasses(t, "others."+group, 4)
		for _, kind := range []string{"Claim", "Ticket", "Order"} {
			for i := range 20 {
				metadata := []string{fmt.Sprintf(", annotations: {classbind.io/class-selector: tier=t%d}", i/2%3), ""}[i%2]
				bound, warnings, err := w.create(t, fmt.Sprintf("apiVersion: %s/v1\nkind: %s\nmetadata: {namespace: default, name: c%d%s}\nspec: {}\n", group, kind, i, metadata), client.DryRunAll)
				all = append(all, fmt.Sprint(kind, i, bound.Object["spec"], warnings, err))
			}
		}
		return all
	}

	w := start()
	w.apply(t, registrations)
	want := answers(w)
	assert.Contains(t, strings.Join(want, ""), "other-", "We should reach both kinds of class.")
	backup := w.registrations(t)
	require.Len(t, backup, 6)

	w = start()
	slices.Reverse(backup)
	for i := range backup {
		w.restore(t, &backup[i])
	}
	assert.Equal(t, want, answers(w), "We should serve the same claims in the same way.")
}

func (w *world) restore(t *testing.T, object *unstructured.Unstructured) {
	name := object.GetName()
	delete(object.Object, "status")
	delete(object.Object, "metadata")
	object.SetName(name)
	require.NoError(t, w.Create(t.Context(), object))
	created := object.GetCreationTimestamp()
	eventually(t, func(c *attempt) {
		probe, _, err := w.create(t, claimKind("probe.restored.test", "{}"), client.DryRunAll)
		require.NoError(c, err)
		require.True(c, created.Time.Before(probe.GetCreationTimestamp().Time))
	})
}
