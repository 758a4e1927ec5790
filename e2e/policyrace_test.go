package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/classbind"
	"github.com/classbind/classbind/e2e/controlplane"
	"github.com/classbind/classbind/e2e/race"
)

const (
	policyRaceGroup = "policyrace.test"
	policyRaceKind  = "claims." + policyRaceGroup
	// changesPerSecond of classes, and claimsPerSecond that are created meanwhile.
	changesPerSecond, claimsPerSecond = 20, 100
)

// policyRace changes which class is the default, through any of two API servers.
type policyRace struct {
	servers []dynamic.Interface

	mu sync.Mutex
	// answered are the highest resourceVersions that a client had been answered, and when.
	answered []answeredAt
	events   []classEvent
	seenAt   map[uint64]time.Time // of events
	seen     map[string]uint64    // by resource, the last version that the watch showed
	watchErr error
	claims   []racedClaim
}

type answeredAt struct {
	version uint64
	at      time.Time
}

// answer of an API server. A later version than all before begins the window of later requests.
func (r *policyRace) answer(object *unstructured.Unstructured, err error) error {
	if err != nil || object == nil {
		return err
	}
	version, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.answered); n == 0 || r.answered[n-1].version < version {
		r.answered = append(r.answered, answeredAt{version, time.Now()})
	}
	return nil
}

func (r *policyRace) known(at time.Time) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	i, _ := slices.BinarySearchFunc(r.answered, at, func(a answeredAt, at time.Time) int { return a.at.Compare(at) })
	if i == 0 {
		return 0
	}
	return r.answered[i-1].version
}

var (
	raceClasses  = schema.GroupVersionResource{Group: policyRaceGroup, Version: "v1", Resource: "classes"}
	raceOlds     = schema.GroupVersionResource{Group: policyRaceGroup, Version: "v1", Resource: "olds"}
	raceClaims   = schema.GroupVersionResource{Group: policyRaceGroup, Version: "v1", Resource: "claims"}
	raceRegistry = v1beta1.GroupVersion.WithResource("classkinds")
)

func (r *policyRace) any() dynamic.Interface { return r.servers[rand.IntN(len(r.servers))] } //nolint:gosec // It need not be secret.

func (r *policyRace) watch(ctx context.Context, resource schema.GroupVersionResource) error {
	objects := r.servers[0].Resource(resource)
	list, err := objects.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		r.observe(resource, watch.Event{Type: watch.Added, Object: &list.Items[i]})
	}
	return race.Follow(ctx, list.GetResourceVersion(), objects.Watch, func(e watch.Event) { r.observe(resource, e) })
}

func (r *policyRace) observe(resource schema.GroupVersionResource, e watch.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	object, ok := e.Object.(*unstructured.Unstructured)
	if e.Type == watch.Error || !ok {
		r.watchErr = fmt.Errorf("cannot go on watching %s: %w", resource.Resource, apierrors.FromObject(e.Object))
		return
	}
	version, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	if err != nil {
		r.watchErr = err
		return
	}
	event := classEvent{version: version, is: e.Type != watch.Deleted}
	if resource == raceRegistry {
		event.class = map[string]string{"classes." + policyRaceGroup: "Class", "olds." + policyRaceGroup: "Old"}[object.GetName()]
	} else {
		event.class = object.GetKind() + "/" + object.GetName()
		event.is = event.is && object.GetDeletionTimestamp() == nil && object.GetAnnotations()[defaultMark] == "true" &&
			object.GetAnnotations()[v1beta1.CordonedAnnotation] != "true"
	}
	r.events = append(r.events, event)
	r.seenAt[version], r.seen[resource.Resource] = time.Now(), version
}

func (r *policyRace) annotate(ctx context.Context, resource schema.GroupVersionResource, name, key, value string) error {
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, key, value)
	return r.answer(r.any().Resource(resource).Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}))
}

func (r *policyRace) create(ctx context.Context, resource schema.GroupVersionResource, manifest string) error {
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(manifest), &object.Object); err != nil {
		return err
	}
	return r.answer(r.any().Resource(resource).Create(ctx, object, metav1.CreateOptions{}))
}

// changes are what happens to the default class, over and over: one of these each time. The
// first class is default in the beginning and in the end.
func (r *policyRace) changes(ctx context.Context) []func() error {
	cordon := func(name, value string) func() error {
		return func() error { return r.annotate(ctx, raceClasses, name, v1beta1.CordonedAnnotation, value) }
	}
	mark := func(name, value string) func() error {
		return func() error { return r.annotate(ctx, raceClasses, name, defaultMark, value) }
	}
	remove := func(name string) func() error {
		return func() error { return r.any().Resource(raceClasses).Delete(ctx, name, metav1.DeleteOptions{}) }
	}
	create := func(name, metadata string) func() error {
		return func() error {
			return r.create(ctx, raceClasses, fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"Class","metadata":{"name":%q,%s}}`, policyRaceGroup, name, metadata))
		}
	}
	isDefault := fmt.Sprintf(`"annotations":{%q:"true"}`, defaultMark)
	release := func(name string) func() error {
		return func() error {
			_, err := r.any().Resource(raceClasses).Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			return err
		}
	}
	return []func() error{
		cordon("first", `"true"`), cordon("first", `null`),
		mark("first", `null`), mark("second", `"true"`),
		cordon("second", `"true"`), cordon("second", `null`),
		remove("second"), create("second", isDefault),
		mark("second", `null`), mark("first", `"true"`),
		remove("first"), create("first", isDefault+`,"finalizers":["policyrace.test/stay"]`),
		remove("first"), release("first"), create("first", isDefault),
	}
}

// change the default class, a step at each turn. The guard refuses to mark a class while there is another default: then that is tried again
// at the next turn. After every other round there is a rest, in which the API servers learn of the policy again, so that the next change
// finds them with it.
func (r *policyRace) change(ctx, until context.Context) (made int, err error) {
	turn := time.NewTicker(time.Second / changesPerSecond)
	defer turn.Stop()
	for round := 0; until.Err() == nil; round++ {
		if round%2 == 0 {
			pause(until, 2*time.Second)
		}
		for _, step := range r.changes(ctx) {
			for again := true; again && until.Err() == nil; { // The kind of the other default may be gone when the guard looks for it.
				<-turn.C
				err = step()
				again = apierrors.IsForbidden(err) || err != nil && strings.HasSuffix(err.Error(), "just deleted; try again")
			}
			if until.Err() != nil {
				return made, nil
			}
			if err != nil {
				return made, err
			}
			made++
		}
	}
	return made, nil
}

// double has a class that was marked default before its kind was registered, again and again,
// for some tenths of a second. It is unmarked before the kind is no longer registered.
func (r *policyRace) double(ctx, until context.Context) (n int, err error) {
	kind := fmt.Sprintf(
		`{"apiVersion":"classbind.io/v1beta1","kind":"ClassKind","metadata":{"name":"olds.%s"},"spec":{"claimKinds":[{"name":%q}]}}`,
		policyRaceGroup, policyRaceKind,
	)
	for ; until.Err() == nil; n++ {
		// The API server knows a little later that it need no longer ask about the kind.
		mark := func() error { return r.annotate(ctx, raceOlds, "legacy", defaultMark, `"true"`) }
		for err = mark(); apierrors.IsForbidden(err); err = mark() {
			pause(until, 50*time.Millisecond)
		}
		if err == nil {
			err = r.create(ctx, raceRegistry, kind)
		}
		pause(until, time.Duration(200+rand.IntN(400))*time.Millisecond) //nolint:gosec // It need not be secret.
		if err == nil {
			err = r.annotate(ctx, raceOlds, "legacy", defaultMark, `null`)
		}
		if err == nil {
			err = r.any().Resource(raceRegistry).Delete(ctx, "olds."+policyRaceGroup, metav1.DeleteOptions{})
		}
		if err != nil {
			return n, err
		}
		pause(until, 1500*time.Millisecond)
	}
	return n, nil
}

type racedClaim struct {
	name, class string
	sent        time.Time
	stored      uint64
}

// createClaims at a steady rate, whatever becomes of them, through the API servers in turn.
func (r *policyRace) createClaims(ctx, until context.Context) error {
	var all errgroup.Group
	begin := time.Now()
	for i := 0; ; i++ {
		pause(until, time.Until(begin.Add(time.Duration(i)*time.Second/claimsPerSecond)))
		if until.Err() != nil {
			return all.Wait()
		}
		all.Go(func() error { return r.createClaim(ctx, i) })
	}
}

func (r *policyRace) createClaim(ctx context.Context, i int) error {
	claim := unopinionated(policyRaceGroup, fmt.Sprint("claim-", i))
	c := racedClaim{name: claim.GetName(), sent: time.Now()}
	stored, err := r.servers[i%len(r.servers)].Resource(raceClaims).Namespace("default").Create(ctx, claim, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("cannot create a claim: %w", err) // No claim is to be refused.
	}
	c.class = classOf(stored)
	if c.stored, err = strconv.ParseUint(stored.GetResourceVersion(), 10, 64); err != nil {
		return err
	}
	r.mu.Lock()
	r.claims = append(r.claims, c)
	r.mu.Unlock()
	return r.answer(stored, nil)
}

// TestPolicyRace changes the default class 20 times a second, in every way, while claims without a selector are created through two API
// servers. No claim gets a class that was not default at some moment of its request.
func TestPolicyRace(t *testing.T) {
	long(t)
	w := newWorld(t, controlplane.Options{APIServers: 2})
	duration := 30 * time.Second
	if text := os.Getenv("POLICY_RACE"); text != "" {
		duration = must(time.ParseDuration(text))(t, "POLICY_RACE is how long to race.")
	}
	replicas := w.serveBoth(t, policyRaceGroup)
	r := &policyRace{seenAt: map[uint64]time.Time{}, seen: map[string]uint64{}}
	for _, config := range w.plane.Configs {
		config = rest.CopyConfig(config)
		config.WarningHandlerWithContext = rest.NoWarnings{}
		server := must(dynamic.NewForConfig(config))(t)
		r.servers = append(r.servers, server)
	}
	for _, resource := range []schema.GroupVersionResource{raceClasses, raceOlds, raceRegistry} {
		require.NoError(t, r.watch(t.Context(), resource))
	}
	before := w.boundByPolicyOnAll(t)

	ctx, cancel := context.WithTimeout(t.Context(), duration)
	defer cancel()
	var all errgroup.Group
	changes, doubles := 0, 0
	all.Go(func() (err error) {
		changes, err = r.change(t.Context(), ctx)
		return err
	})
	all.Go(func() (err error) {
		doubles, err = r.double(t.Context(), ctx)
		return err
	})
	all.Go(func() error { return r.createClaims(t.Context(), ctx) })
	require.NoError(t, all.Wait(), "We should refuse no claim.")
	r.fence(t)
	outcomes := r.judge(t, replicas)
	t.Logf("%d claims in %d changes, and with a second default %d times: %v", len(r.claims), changes, doubles, outcomes)
	for _, outcome := range []string{"bound by the API server", "bound by classbind"} { // Few are left unbound: classbind waits for a default.
		assert.Positive(t, outcomes[outcome], "We should see claims %s.", outcome)
	}
	assert.Positive(t, w.boundByPolicyOnAll(t)-before, "We should see the API servers count what they bound.")
	assert.LessOrEqual(t, outcomes[tooLate]*100, len(r.claims), "We should keep the promise for 99 of 100 claims.")
	assert.Positive(t, doubles)
}

// serveBoth has two replicas, each with an API server of its own, and waits until both API servers give the default class themselves.
func (w *world) serveBoth(t *testing.T, group string) (replicas []*replica) {
	balancer := must(classbind.NewBalancer())(t)
	t.Cleanup(func() { _ = balancer.Close() })
	kubeconfigs := must(w.plane.UserKubeconfigs(classbind.User, classbind.Groups...))(t)
	w.kubeconfig = kubeconfigs[1]
	second := w.start(t, "--webhook-url="+balancer.URL, "--in-flight-window=4s", "--log-level=debug")
	w.kubeconfig = kubeconfigs[0]
	w.resources(t, "Old olds."+group+" Cluster")
	w.apply(t, class(group, "Old", "legacy", ""))
	first := w.start(t, "--webhook-url="+balancer.URL, "--in-flight-window=4s", "--log-level=debug")
	for _, r := range []*replica{first, second} {
		require.NoError(t, r.Ready(t.Context()))
		balancer.Add(strings.TrimPrefix(r.URL, "https://"))
	}
	policyKinds(t, w, group)
	eventually(t, func(c *attempt) {
		for _, config := range w.plane.Configs {
			n := must(boundByPolicy(t.Context(), config, "claims."+group))(c)
			server := must(dynamic.NewForConfig(config))(c)
			must(server.Resource(raceClaims).Namespace("default").Create(t.Context(), unopinionated(group, "probe"), metav1.CreateOptions{
				DryRun: []string{metav1.DryRunAll},
			}))(c)
			m := must(boundByPolicy(t.Context(), config, "claims."+group))(c)
			require.Greater(c, m, n)
		}
	})
	return []*replica{first, second}
}

func (w *world) boundByPolicyOnAll(t *testing.T) (sum int) {
	for _, config := range w.plane.Configs {
		n := must(boundByPolicy(t.Context(), config, policyRaceKind))(t)
		sum += n
	}
	return sum
}

// fence waits until the watches have shown all that happened.
func (r *policyRace) fence(t *testing.T) {
	for _, resource := range []schema.GroupVersionResource{raceClasses, raceOlds, raceRegistry} {
		fence := map[string]string{
			"classes": `{"apiVersion":"` + policyRaceGroup + `/v1","kind":"Class","metadata":{"name":"fence"}}`,
			"olds":    `{"apiVersion":"` + policyRaceGroup + `/v1","kind":"Old","metadata":{"name":"fence"}}`,
			"classkinds": `{"apiVersion":"classbind.io/v1beta1","kind":"ClassKind","metadata":{"name":"fences.` + policyRaceGroup + `"},
				"spec":{"claimKinds":[{"name":"` + policyRaceKind + `"}]}}`,
		}[resource.Resource]
		object := &unstructured.Unstructured{}
		require.NoError(t, json.Unmarshal([]byte(fence), &object.Object))
		object = must(r.servers[1].Resource(resource).Create(t.Context(), object, metav1.CreateOptions{}))(t)
		version := must(strconv.ParseUint(object.GetResourceVersion(), 10, 64))(t)
		eventually(t, func(c *attempt) {
			r.mu.Lock()
			defer r.mu.Unlock()
			require.NoError(c, r.watchErr)
			require.GreaterOrEqual(c, r.seen[resource.Resource], version)
		})
	}
}

// A changed class is visible to 99 of 100 next claims within the time that is promised, and to all of them within a longest. Where the
// machine is short of processors, the lag of a watch stretches both.
const (
	promised = 50 * time.Millisecond
	longest  = time.Second
	tooLate  = "bound later than promised"
)

// lag is how long after the answer to a write a watch shows it, at most: what a machine that is busy takes without classbind.
func (r *policyRace) lag() (worst time.Duration) {
	for _, a := range r.answered {
		if seen, ok := r.seenAt[a.version]; ok {
			worst = max(worst, seen.Sub(a.at))
		}
	}
	return worst
}

// judge whether any claim got a class that had ceased to be default before its request. A request begins when it is sent, but for what the
// API servers and classbind may need to learn of a change. It returns how many claims there were of each outcome.
func (r *policyRace) judge(t *testing.T, replicas []*replica) (outcomes map[string]int) {
	log, spans := replicas[0].log.String()+replicas[1].log.String(), defaultSpans(r.events)
	outcomes = map[string]int{}
	lag := r.lag()
	t.Logf("The API servers show a change after %s at most.", lag)
	for _, c := range r.claims {
		by := "the API server"
		if strings.Contains(log, `"name":"`+c.name+`"`) {
			by = "classbind"
		}
		if c.class == "" {
			outcomes["left unbound by "+by]++
			continue
		}
		outcomes["bound by "+by]++
		known := r.known(c.sent)
		if was, ceased := wasDefault(spans[c.class], known, c.stored); !was {
			outcomes["bound late by "+by]++
			t.Logf("%s got %s by %s, which had ceased to be default at %d: %d revisions and %s before the request",
				c.name, c.class, by, ceased, known-ceased, c.sent.Sub(r.seenAt[ceased]))
			if was, _ = wasDefault(spans[c.class], r.known(c.sent.Add(-max(promised, lag))), c.stored); !was {
				outcomes[tooLate]++
			}
			was, _ = wasDefault(spans[c.class], r.known(c.sent.Add(-max(longest, stretch*lag))), c.stored)
			assert.True(t, was, "We should never give a class that was not default during the request.")
		}
	}
	return outcomes
}

// classEvent is what a watch showed: what a class, or the registration of its kind, was from a resourceVersion on.
type classEvent struct {
	version uint64
	// class is KIND/NAME; of a registration, KIND.
	class string
	// is says of a class that it is there, marked default, and neither cordoned nor being deleted; of a registration, that it is there.
	is bool
}

// span of resourceVersions in which a class was a default one. It was not at the end of it.
type span struct{ from, until uint64 }

// defaultSpans replays what happened to classes of several kinds and to their registrations.
// All are in one etcd, so their resourceVersions are one order.
func defaultSpans(events []classEvent) map[string][]span {
	slices.SortStableFunc(events, func(a, b classEvent) int { return cmp.Compare(a.version, b.version) })
	is, spans := map[string]bool{}, map[string][]span{}
	for _, e := range events {
		is[e.class] = e.is
		for name := range is {
			kind, _, isClass := strings.Cut(name, "/")
			if !isClass {
				continue
			}
			all := spans[name]
			open := len(all) > 0 && all[len(all)-1].until == math.MaxUint64
			switch now := is[name] && is[kind]; {
			case now && !open:
				spans[name] = append(all, span{e.version, math.MaxUint64})
			case !now && open:
				all[len(all)-1].until = e.version
			}
		}
	}
	return spans
}

// wasDefault reports whether a class was at any moment between two resourceVersions, and if not,
// at which one it had last ceased to be, 0 if it had never been.
func wasDefault(spans []span, from, to uint64) (was bool, ceased uint64) {
	for _, s := range spans {
		if s.from <= to && s.until > from {
			return true, 0
		}
		if s.until <= from {
			ceased = s.until
		}
	}
	return false, ceased
}

func TestPolicyJudge(t *testing.T) {
	spans := defaultSpans([]classEvent{
		{1, "Class", true},
		{5, "Class/a", true},
		{9, "Class/a", false},
		{7, "Old/b", true}, // Its kind is registered later.
		{12, "Old", true},
		{15, "Old/b", false},
		{16, "Class/a", true},
		{17, "Class/a", true},
		{20, "Old", false},
	})
	assert.Equal(t, map[string][]span{"Class/a": {{5, 9}, {16, math.MaxUint64}}, "Old/b": {{12, 15}}}, spans)

	for name, tc := range map[string]struct {
		reason, class string
		from, to      uint64
		want          bool
		ceased        uint64
	}{
		"Within":     {"We should see a default.", "Class/a", 6, 7, true, 0},
		"AtTheEnd":   {"We should see one that ceased to be default during the request.", "Class/a", 8, 30, true, 0},
		"Afterwards": {"We should see that it had ceased before the request.", "Class/a", 9, 15, false, 9},
		"Began":      {"We should see one that became default during the request.", "Class/a", 10, 16, true, 0},
		"TooEarly":   {"We should see that its kind was not registered.", "Old/b", 8, 11, false, 0},
		"Unknown":    {"We should see that there is no such default.", "Class/c", 1, 30, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			was, ceased := wasDefault(spans[tc.class], tc.from, tc.to)
			assert.Equal(t, tc.want, was, tc.reason)
			assert.Equal(t, tc.ceased, ceased, tc.reason)
		})
	}
}
