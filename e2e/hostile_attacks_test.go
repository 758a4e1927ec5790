package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	admissionv1 "k8s.io/api/admission/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/classbind"
)

// expressions is the field of a selector with so many terms, separated by commas.
func expressions(term string, n int) string {
	return `"classSelector":{"matchExpressions":[` + strings.TrimSuffix(strings.Repeat(term+",", n), ",") + `]}`
}

// values is a term that has so many.
func values(n int) string {
	var text strings.Builder
	for i := range n {
		_, _ = fmt.Fprintf(&text, `,"v-%08d"`, i)
	}
	return `{"key":"number","operator":"In","values":[` + text.String()[1:] + `]}`
}

func selectorAnnotation(text string) string {
	return fmt.Sprintf("%q:%q", v1beta1.ClassSelectorAnnotation, text)
}

// claimAgain is the dry run of one claim after the other, so many at once, of the kinds in turn.
func claimAgain(n int, pause time.Duration, kinds []string, specs []string, annotations string) func(*besieged, *testing.T) {
	return func(b *besieged, _ *testing.T) {
		attackers(b.attack, n, pause, func(i int) {
			kind := kinds[i%len(kinds)]
			b.mallory.create(b.attack, kind, true, claimOf(kind, "again", specs[i%len(specs)], annotations))
		})
	}
}

// liveReads are dry runs of claims with selectors that match nothing, each
// another, while an honest claim that matches nothing is answered, too.
func (b *besieged) liveReads(t *testing.T) {
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { b.honestMisses(t) })
	attackers(b.attack, 40, time.Millisecond, func(i int) {
		kind := []string{"AdmitClaim", "DenyClaim", "LaterClaim"}[i%3]
		b.mallory.create(b.attack, kind, true, claimOf(kind, "unmatched", fmt.Sprintf(`"classSelector":{"matchLabels":{"pool":"nowhere-%d"}}`, i), ""))
	})
}

func (b *besieged) honestMisses(t *testing.T) {
	attackers(b.attack, 1, 500*time.Millisecond, func(i int) {
		claim := selecting(hostileGroup, "AdmitClaim", honestNamespace, fmt.Sprint("unmatched-", i), map[string]any{"pool": fmt.Sprint("not-there-", i)})
		if err := b.honest.Create(b.attack, claim, client.DryRunAll); b.attack.Err() == nil {
			assert.NoError(t, err, "We should answer an honest claim that no known class matches.")
		}
	})
}

// unmatchedSelector matches nothing: of five and of twelve KiB, which is a selector, and of two MB, which is none.
func (b *besieged) unmatchedSelector(t *testing.T) {
	selectors := []string{expressions(values(380), 1), expressions(values(900), 1), expressions(values(150_000), 1)}
	wants := []int{http.StatusForbidden, http.StatusForbidden, http.StatusUnprocessableEntity}
	attackers(b.attack, 3, 300*time.Millisecond, func(i int) {
		i %= len(selectors)
		status, text := b.mallory.create(b.attack, "DenyClaim", true, claimOf("DenyClaim", "unmatched", selectors[i], ""))
		if b.attack.Err() != nil {
			return
		}
		assert.Equal(t, wants[i], status, "%.400s", text)
		assert.NotContains(t, text, "labelSelector=", "We should put no URL into an answer.")
	})
}

func localClass(name, labels, annotations string) string {
	return fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"Local","metadata":{"namespace":%q,"name":%q,"labels":{%s},"annotations":{%s}}}`,
		hostileGroup, tenantA, name, labels, annotations)
}

// attractiveClass of tenantA has the labels that others ask for, and all the weight that there is, and is the default. Its author asks in
// every way what there is, and what he may not do.
func (b *besieged) attractiveClass(t *testing.T) {
	status, text := b.mallory.create(b.attack, "Local", false, localClass("lure", `"pool":"common"`, `"resourceclass.crossplane.io/weight":"1000000"`))
	require.Equal(t, http.StatusCreated, status, text)
	status, text = b.mallory.create(b.attack, "Local", false, localClass("lure-default", `"pool":"common"`, fmt.Sprintf("%q:%q", defaultMark, "true")))
	require.Equal(t, http.StatusCreated, status, text)
	defer b.kubectl(t, "delete", hostileResource("Local"), "--namespace="+tenantA, "lure", "lure-default")

	own := defaultClass("Local", "default-"+secret, nil)
	own.SetNamespace(honestNamespace)
	if err := b.honest.Create(t.Context(), own); assert.NoError(t, err, "We should let a tenant have a default of his own.") {
		defer func() { assert.NoError(t, b.honest.Delete(t.Context(), own)) }()
	} else {
		assert.NotContains(t, err.Error(), "lure", "We should not tell a tenant of the classes of another.")
	}
	asks := []string{
		"", `"classSelector":{}`, `"classSelector":{"matchLabels":{"pool":"common"}}`, `"classSelector":{"matchLabels":{"owner":"` + secret[:4] + `"}}`,
		`"classSelector":{"matchExpressions":[{"key":"owner","operator":"Exists"}]}`, `"classSelector":{"matchLabels":{"pool":"comon"}}`,
	}
	attackers(b.attack, 2, 20*time.Millisecond, func(i int) {
		if i%7 == 6 {
			b.mallory.create(b.attack, "Local", true, localClass("second-default", "", fmt.Sprintf("%q:%q", defaultMark, "true")))
			return
		}
		kind := []string{"AdmitClaim", "DenyClaim", "LaterClaim", "LeastClaim"}[i%4]
		b.mallory.create(b.attack, kind, true, claimOf(kind, "asks", asks[i%len(asks)], ""))
	})
}

// movedClasses of tenantA are default, and their author moves them to another partition with each update. Each move takes a Lease.
func (b *besieged) movedClasses(t *testing.T) {
	const movers, inTime = 16, 5 * time.Second
	for i := range movers {
		status, text := b.mallory.create(b.attack, "Part", false, strings.Replace(
			localClass(fmt.Sprint("moved-", i), fmt.Sprintf(`"part":"first-%d"`, i), fmt.Sprintf("%q:%q", defaultMark, "true")), `"Local"`, `"Part"`, 1))
		require.Equal(t, http.StatusCreated, status, text)
	}
	defer b.kubectl(t, "delete", hostileResource("Part"), "--namespace="+tenantA, "--all")
	var all sync.WaitGroup
	defer all.Wait()
	var moves atomic.Int64
	all.Go(func() {
		attackers(b.attack, movers, time.Millisecond, func(i int) {
			status, _ := b.mallory.send(b.attack, http.MethodPatch, b.mallory.url+fmt.Sprintf("/apis/%s/v1/namespaces/%s/parts/moved-%d", hostileGroup, tenantA, i%movers),
				string(types.MergePatchType), fmt.Sprintf(`{"metadata":{"labels":{"part":"p-%d"}}}`, i))
			if status == http.StatusOK {
				moves.Add(1)
			}
		})
	})
	rounds, slowest := 0, time.Duration(0)
	for ; b.attack.Err() == nil; rounds++ {
		own := defaultClass("Part", fmt.Sprint("own-", secret, "-", rounds), map[string]string{"part": fmt.Sprint("own-", rounds)})
		own.SetNamespace(honestNamespace)
		begin := time.Now()
		require.NoError(t, b.honest.Create(t.Context(), own), "We should let a tenant have the first default of a partition.")
		slowest = max(slowest, time.Since(begin))
		require.NoError(t, b.honest.Delete(t.Context(), own))
	}
	t.Logf("%d moves; the honest tenant set a default %d times, in %s at most.", moves.Load(), rounds, slowest.Round(time.Millisecond))
	assert.Less(t, slowest, inTime, "We should not make him wait.")
}

// contestedClass serves two kinds of claim, one of which has a default. Four clients of its author mark it again and again, which is
// refused each time, while an admin makes another class the default of the other kind.
func (b *besieged) contestedClass(t *testing.T) {
	const inTime = 5 * time.Second
	second := defaultClass("Second", "second", nil)
	require.NoError(t, b.Create(t.Context(), second))
	contested, first := defaultClass("Shared", "contested", nil), defaultClass("First", "first", nil)
	contested.SetAnnotations(nil)
	first.SetAnnotations(nil)
	require.NoError(t, b.Create(t.Context(), contested))
	require.NoError(t, b.Create(t.Context(), first))

	mark := `{"metadata":{"annotations":{"` + defaultMark + `":"true"}}}`
	unmark := strings.Replace(mark, `"true"`, "null", 1)
	path := "/apis/" + hostileGroup + "/v1/shareds/contested"
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() {
		attackers(b.attack, 4, time.Millisecond, func(int) {
			b.mallory.send(b.attack, http.MethodPatch, b.mallory.url+path, string(types.MergePatchType), mark)
		})
	})
	rounds, slowest := 0, time.Duration(0)
	for ; b.attack.Err() == nil; rounds++ {
		begin := time.Now()
		err := error(nil)
		for time.Since(begin) < inTime {
			if err = b.Patch(t.Context(), first, client.RawPatch(types.MergePatchType, []byte(mark))); err == nil {
				break
			}
			assert.True(t, apierrors.IsForbidden(err) || apierrors.IsConflict(err), "%v", err)
		}
		slowest = max(slowest, time.Since(begin))
		if !assert.NoError(t, err, "We should let the honest admin set a default that nobody else may have.") {
			break
		}
		require.NoError(t, b.Patch(t.Context(), first, client.RawPatch(types.MergePatchType, []byte(unmark))))
	}
	t.Logf("The honest admin set a default %d times, in %s at most.", rounds, slowest.Round(time.Millisecond))
}

// fitKinds of claim are served by Zoned alone, whose classes are costly to judge for a claim of many zones.
var fitKinds = map[string]string{
	"FitClaim":     fmt.Sprintf(fitSpec, "Admit"),
	"DenyFitClaim": fmt.Sprintf(fitSpec, "Deny"),
}

const (
	fitSpec = `{whenUnmatched: %s, admission: {failurePolicy: Ignore}, classes: {fits: [{name: Zone, ` +
		`expression: "(has(claim.spec.zones) ? claim.spec.zones : ['zone-1']).exists(z, z in class.spec.zones)"}]}}`
	// ownSpec offers a class of a namespace only if no zone is there twice.
	ownSpec = `{claimKinds: [{name: %s}], offerWhen: "!has(class.spec) || class.spec.zones.all(a, class.spec.zones.exists_one(b, a == b))"}`
)

// zones as JSON: each is the zone with its number for #.
func zones(n int, zone string) string {
	list := make([]string, n)
	for i := range list {
		list[i] = strconv.Quote(strings.ReplaceAll(zone, "#", strconv.Itoa(i)))
	}
	return `"zones":[` + strings.Join(list, ",") + `]`
}

func (b *besieged) zonedClasses(t *testing.T) {
	var manifest strings.Builder
	for i := range 25 {
		for name, zones := range map[string]string{"common-few": zones(20, "zone-#"), "common-many": zones(990, "a#")} {
			_, _ = fmt.Fprintf(&manifest, "---\n{\"apiVersion\":\"%s/v1\",\"kind\":\"Zoned\",\"metadata\":{\"name\":\"%s-%d\",\"labels\":{\"pool\":\"common\"}},\"spec\":{%s}}\n",
				hostileGroup, name, i, zones)
		}
	}
	b.apply(t, manifest.String())
}

// longClaims are dry runs of claims that are as costly as they can be: in one kind, Deny has to hold although classbind may be passed by.
func (b *besieged) longClaims(t *testing.T) {
	long := []string{zones(5000, ""), zones(1800, "b#"), zones(1000, "none-#")}
	attackers(b.attack, 10, 0, func(i int) {
		kind := []string{"FitClaim", "DenyFitClaim"}[i%2]
		status, text := b.mallory.create(b.attack, kind, true, claimOf(kind, "long", `"classSelector":{"matchLabels":{"pool":"common"}},`+long[i%len(long)], ""))
		if kind == "DenyFitClaim" && b.attack.Err() == nil {
			assert.NotEqual(t, http.StatusCreated, status, "We should refuse a claim that gets no class, whatever it costs: %.400s", text)
		}
	})
}

// costlyClasses of the attacker are costly when they change. They are read for each empty claim.
func (b *besieged) costlyClasses(t *testing.T) {
	const count = 20
	object := func(i int) string {
		return strings.TrimSuffix(localClass(fmt.Sprint("costly-", i), `"pool":"costly"`, ""), "}") + `,"spec":{` + zones(990, "a#") + "}}"
	}
	for i := range count {
		status, text := b.mallory.create(b.attack, "Local", false, object(i))
		require.Equal(t, http.StatusCreated, status, text)
	}
	defer b.kubectl(t, "delete", hostileResource("Local"), "--namespace="+tenantA, "--selector=pool=costly")
	attackers(b.attack, 4, 20*time.Millisecond, func(i int) {
		if i%4 == 0 {
			b.mallory.send(b.attack, http.MethodPatch, b.mallory.url+fmt.Sprintf("/apis/%s/v1/namespaces/%s/locals/costly-%d", hostileGroup, tenantA, i/4%count),
				"application/merge-patch+json", fmt.Sprintf(`{"metadata":{"labels":{"now":"%d"}}}`, i))
			return
		}
		b.mallory.create(b.attack, "DenyClaim", true, claimOf("DenyClaim", "costly", `"classSelector":{"matchLabels":{"pool":"costly"}}`, ""))
	})
}

// poisonedClaims are stored as an update or an outage of ours would have had them stored, and cost as much as possible to read. The leader
// ends, and the next has to read them, too, and to bind a claim that waits.
func (b *besieged) poisonedClaims(t *testing.T) {
	claims := map[string]map[string]any{}
	for i := range 12 {
		key, claim := stored("LaterClaim", tenantA, fmt.Sprint("poisoned-", i), nil)
		var terms []any
		switch i % 4 {
		case 0:
			for range 4000 {
				terms = append(terms, map[string]any{})
			}
		case 1:
			for range 5000 {
				terms = append(terms, map[string]any{"key": "", "operator": ""})
			}
		case 2:
			var values []any
			for v := range 80_000 {
				values = append(values, fmt.Sprint("v-", v))
			}
			terms = append(terms, map[string]any{"key": "number", "operator": "In", "values": values})
		default:
			claim["metadata"].(map[string]any)["annotations"] = map[string]any{v1beta1.ClassSelectorAnnotation: strings.Repeat("!a,", 80_000) + "!a"}
		}
		if terms != nil {
			claim["spec"] = map[string]any{"classSelector": map[string]any{"matchExpressions": terms}}
		}
		claims[key] = claim
	}
	b.store(t, claims)
	defer b.forget(t, "LaterClaim")

	b.replaceLeader(t)
	b.bindsLate(t, "after-poison")
}

func (b *besieged) bindsLate(t *testing.T, name string) {
	const soon = 10 * time.Second
	claim := selecting(hostileGroup, "LaterClaim", honestNamespace, "waits-"+name, map[string]any{"awaited": name})
	require.NoError(t, b.honest.Create(t.Context(), claim))
	require.Empty(t, classOf(claim))
	b.apply(t, class(hostileGroup, "Alpha", "awaited-"+name, "labels: {awaited: "+name+"}, "))
	begin := time.Now()
	bound := assert.EventuallyWithT(t, func(c *attempt) {
		require.NoError(c, b.honest.Get(t.Context(), client.ObjectKeyFromObject(claim), claim))
		require.NotEmpty(c, classOf(claim))
	}, soon, 20*time.Millisecond, "We should go on binding the claims of others that wait.")
	if bound {
		t.Logf("The claim that waited was bound after %s.", time.Since(begin).Round(time.Millisecond))
	}
	assert.NoError(t, b.honest.Delete(t.Context(), claim))
}

// waitingClaims are many of one author, each with a selector of its own, nearly as long as the leader keeps one.
func (b *besieged) waitingClaims(t *testing.T) {
	const waiting = 14_000
	claims := map[string]map[string]any{}
	for i := range waiting {
		key, claim := stored("LaterClaim", tenantA, fmt.Sprint("waits-", i), nil)
		var terms []any
		for n := range 16 {
			terms = append(terms, map[string]any{"key": fmt.Sprintf("key-%d", n), "operator": "In", "values": []any{fmt.Sprintf("value-%d-%d-of-the-claims-that-wait", i, n)}})
		}
		claim["spec"] = map[string]any{"classSelector": map[string]any{"matchExpressions": terms}}
		claims[key] = claim
	}
	b.store(t, claims)
	defer func() {
		b.forget(t, "LaterClaim")
		b.awaitWaiting(t, hostileResource("LaterClaim"), 0)
	}()
	b.awaitWaiting(t, hostileResource("LaterClaim"), waiting)
	b.bindsLate(t, "beside-many")
	<-b.attack.Done()
}

const defaultMark = "resourceclass.crossplane.io/is-default-class"

// stranger is a pod that reaches the port of the replicas. It has no certificate.
type stranger struct {
	*besieged
	author
}

func (b *besieged) stranger() *stranger {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, MaxIdleConnsPerHost: 16} //nolint:gosec // A stranger trusts anybody.
	return &stranger{b, author{client: &http.Client{Transport: transport}, to: func() *answers { return b.answers }}}
}

func (s *stranger) post(ctx context.Context, replica int, path, body string) {
	s.send(ctx, http.MethodPost, s.replicas[replica].URL+path, "application/json", body)
}

// forged review of an object of a kind, without a namespace unless it is a claim.
func forged(operation, kind string, object, old map[string]any) string {
	metadata := object["metadata"].(map[string]any)
	request := map[string]any{
		"uid": string(uuid.NewUUID()), "operation": operation, "name": metadata["name"], "namespace": metadata["namespace"],
		"kind":     map[string]any{"group": hostileGroup, "version": "v1", "kind": kind},
		"resource": map[string]any{"group": hostileGroup, "version": "v1", "resource": strings.ToLower(kind) + "s"},
		"object":   object, "oldObject": old,
	}
	review, _ := json.Marshal(map[string]any{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
	return string(review)
}

// classObject with a uid, a resourceVersion if it is stored, and the mark of a default.
func classObject(kind, name, uid, version string, marked bool) map[string]any {
	metadata := map[string]any{"name": name, "uid": uid}
	if version != "" {
		metadata["resourceVersion"] = version
	}
	if marked {
		metadata["annotations"] = map[string]any{defaultMark: "true"}
	}
	return map[string]any{"apiVersion": hostileGroup + "/v1", "kind": kind, "metadata": metadata}
}

// forgedUpdates say of a default class that is being created that it was updated
// since: then it would not be in flight any more, and another might become default.
func (b *besieged) forgedUpdates(t *testing.T) {
	const least = 3 // rounds, however slow the machine is
	s := b.stranger()
	release := b.slowCreations(t)
	rounds, double := 0, 0
	for ; b.attack.Err() == nil || rounds < least; rounds++ {
		red, blue := fmt.Sprint("red-", rounds), fmt.Sprint("blue-", rounds)
		created := make(chan error, 1)
		go func() {
			created <- b.Create(t.Context(), defaultClass("Red", red, map[string]string{"slow": "true"}))
		}()
		var uid string
		eventually(t, func(c *attempt) {
			uid = must(b.heldBy(t, hostileResource("Red")+"/"+red))(c)
			require.NotEmpty(c, uid)
		}, "We should see the class in flight.")
		const later = "999999999999"
		forgery := forged("UPDATE", "Red", classObject("Red", red, uid, later, true), classObject("Red", red, uid, later, false))
		for i := range b.replicas {
			s.post(t.Context(), i, v1beta1.GuardPath, forgery)
		}
		err := b.Create(t.Context(), defaultClass("Blue", blue, nil))
		assert.True(t, apierrors.IsForbidden(err), "We should refuse a default while another is in flight: %v", err)
		release <- struct{}{}
		require.NoError(t, <-created)
		if b.unmark(t, "Red", red)+b.unmark(t, "Blue", blue) > 1 {
			double++
		}
	}
	t.Logf("%d rounds, double defaults: %d", rounds, double)
	assert.Zero(t, double, "We should never have two defaults.")
}

// heldBy a class, RESOURCE/NAME, is some Lease: its uid, as it stands there.
func (b *besieged) heldBy(t *testing.T, class string) (uid string, err error) {
	leases := &coordinationv1.LeaseList{}
	if err := b.List(t.Context(), leases, client.InNamespace(classbind.Namespace)); err != nil {
		return "", err
	}
	for _, l := range leases.Items {
		if l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity == class {
			return l.Annotations[v1beta1.HolderUIDAnnotation], nil
		}
	}
	return "", nil
}

func defaultClass(kind, name string, labels map[string]string) *unstructured.Unstructured {
	u := object(hostileGroup, kind, name)
	u.SetLabels(labels)
	u.SetAnnotations(map[string]string{defaultMark: "true"})
	return u
}

func (b *besieged) unmark(t *testing.T, kind, name string) int {
	u := object(hostileGroup, kind, name)
	err := b.Get(t.Context(), client.ObjectKey{Name: name}, u)
	require.NoError(t, client.IgnoreNotFound(err))
	if err != nil || u.GetAnnotations()[defaultMark] != "true" {
		return 0
	}
	u.SetAnnotations(nil)
	require.NoError(t, b.Update(t.Context(), u))
	return 1
}

// slowCreations has the creation of a class with the label slow wait in a webhook
// of somebody else until it is released: it is in flight for as long.
func (b *besieged) slowCreations(t *testing.T) (release chan<- struct{}) {
	released, asked := make(chan struct{}), atomic.Bool{}
	settings := `timeoutSeconds: 20
  objectSelector: {matchLabels: {slow: "true"}}
  rules: [{apiGroups: [` + hostileGroup + `], apiVersions: [v1], resources: [reds], operations: [CREATE]}]`
	b.askOfWrites(t, "ValidatingWebhookConfiguration", "slow", settings, func(call *http.Request, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		if asked.Store(true); !*r.DryRun {
			select {
			case <-released:
			case <-call.Context().Done():
			}
		}
		return &admissionv1.AdmissionResponse{Allowed: true}
	})
	eventually(t, func(c *attempt) {
		probe := defaultClass("Red", "slow-probe", map[string]string{"slow": "true"})
		probe.SetAnnotations(nil)
		require.NoError(c, b.Create(t.Context(), probe, client.DryRunAll))
		require.True(c, asked.Load())
	}, "We should see the API server call the slow webhook.")
	return released
}

// forgedCreations take the seat of a claim kind for classes that nobody creates. That keeps its admin waiting, and nobody else.
func (b *besieged) forgedCreations(_ *testing.T) {
	s := b.stranger()
	attackers(b.attack, 4, 20*time.Millisecond, func(i int) {
		object := classObject("Ghost", fmt.Sprint("ghost-", i), string(uuid.NewUUID()), "", true)
		s.post(b.attack, i%len(b.replicas), v1beta1.GuardPath, forged("CREATE", "Ghost", object, nil))
	})
}

// forgedClaims ask for a class in the stranger's own namespace, one selector after the other, and take turns and reservations.
func (b *besieged) forgedClaims(_ *testing.T) {
	s := b.stranger()
	attackers(b.attack, 8, 20*time.Millisecond, func(i int) {
		kind := []string{"AdmitClaim", "DenyClaim", "LaterClaim", "LeastClaim"}[i%4]
		selector := []map[string]any{{"matchLabels": map[string]any{"pool": "common"}}, {"matchLabels": map[string]any{"pool": fmt.Sprint("forged-", i)}}, {}}[i/4%3]
		object := map[string]any{
			"apiVersion": hostileGroup + "/v1", "kind": kind, "metadata": map[string]any{"namespace": tenantA, "name": fmt.Sprint("forged-", i)},
			"spec": map[string]any{"classSelector": selector},
		}
		s.post(b.attack, i%len(b.replicas), v1beta1.BindPath+hostileResource(kind), forged("CREATE", kind, object, nil))
	})
}

func (s *stranger) connect(ctx context.Context, replica int, secure bool) (net.Conn, error) {
	address := strings.TrimPrefix(s.replicas[replica].URL, "https://")
	if !secure {
		return (&net.Dialer{}).DialContext(ctx, "tcp", address)
	}
	dialer := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // A stranger trusts anybody.
	return dialer.DialContext(ctx, "tcp", address)
}

// idleConnections are a thousand to each replica. On a third not even TLS is begun,
// on a third nothing is asked for, and on a third a review comes byte by byte.
func (b *besieged) idleConnections(_ *testing.T) {
	const connections, dialers, tick = 1000, 16, 500 * time.Millisecond
	s := b.stranger()
	var mu sync.Mutex
	var open, slow []net.Conn
	defer func() {
		for _, c := range open {
			_ = c.Close()
		}
	}()
	var all errgroup.Group
	all.SetLimit(dialers)
	for i := range connections * len(b.replicas) {
		all.Go(func() error {
			c, err := s.connect(b.attack, i%len(b.replicas), i/len(b.replicas)%3 > 0)
			if err != nil {
				return nil // To be turned away is no worse.
			}
			mu.Lock()
			defer mu.Unlock()
			if open = append(open, c); i/len(b.replicas)%3 == 2 {
				slow = append(slow, c)
			}
			return nil
		})
	}
	_ = all.Wait()
	head := []byte("POST " + v1beta1.BindPath + hostileResource("AdmitClaim") + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n{")
	for _, c := range slow {
		_, _ = c.Write(head)
	}
	for b.attack.Err() == nil {
		for _, c := range slow {
			_, _ = c.Write([]byte(" "))
		}
		pause(b.attack, tick)
	}
}

// bigBodies are sent whole, several at once, and announced and then kept back.
func (b *besieged) bigBodies(_ *testing.T) {
	const size = v1beta1.MaxReviewBytes - 1<<10
	s := b.stranger()
	object := map[string]any{"apiVersion": hostileGroup + "/v1", "kind": "AdmitClaim", "metadata": map[string]any{"namespace": tenantA, "name": "big"}}
	object["note"] = strings.Repeat("<", (size-4<<10)/6)
	whole := forged("CREATE", "AdmitClaim", object, nil)
	announced := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", v1beta1.BindPath+hostileResource("AdmitClaim"), size)
	begun := append([]byte(announced), bytes.Repeat([]byte(" "), 1<<20)...)
	var all sync.WaitGroup
	all.Go(func() {
		attackers(b.attack, 4, 200*time.Millisecond, func(i int) {
			s.post(b.attack, i%len(b.replicas), v1beta1.BindPath+hostileResource("AdmitClaim"), whole)
		})
	})
	all.Go(func() {
		attackers(b.attack, 16, 100*time.Millisecond, func(i int) {
			c, err := s.connect(b.attack, i%len(b.replicas), true)
			if err != nil {
				return
			}
			defer func() { _ = c.Close() }()
			defer context.AfterFunc(b.attack, func() { _ = c.Close() })()
			_, _ = c.Write(begun)
			_, _ = io.Copy(io.Discard, c) // until the server has had enough
		})
	})
	all.Wait()
}

func (b *besieged) garbage(_ *testing.T) {
	s := b.stranger()
	noise := make([]byte, 64<<10)
	_, _ = rand.Read(noise)
	raw := func(i int, secure bool, bytes []byte) {
		c, err := s.connect(b.attack, i%len(b.replicas), secure)
		if err != nil {
			return
		}
		defer func() { _ = c.Close() }()
		defer context.AfterFunc(b.attack, func() { _ = c.Close() })()
		_ = c.SetDeadline(time.Now().Add(time.Second))
		_, _ = c.Write(bytes)
		_, _ = io.Copy(io.Discard, c)
	}
	ask := func(i int, method, path, contentType, body string) {
		status, text, err := exchange(b.attack, s.client, method, b.replicas[i%len(b.replicas)].URL+path, contentType, body)
		if err == nil && b.attack.Err() == nil {
			b.answers.add(status, text)
		}
	}
	const json, post = "application/json", http.MethodPost
	kinds := []func(i int){
		func(i int) { raw(i, false, noise) },
		func(i int) { raw(i, true, noise) },
		func(i int) {
			raw(i, true, []byte("POST / HTTP/1.1\r\nHost: a\r\nX: "+strings.Repeat("x", 2<<20)+"\r\n\r\n"))
		},
		func(i int) { ask(i, http.MethodGet, v1beta1.BindPath+"a", "", "") },
		func(i int) { ask(i, post, v1beta1.BindPath+"a", strings.Repeat("x", 64<<10), "{}") },
		func(i int) { ask(i, post, v1beta1.GuardPath, json, strings.Repeat(`{"a":`, 20_000)) },
		func(i int) {
			ask(i, post, v1beta1.BindPath+"a", json, `{"apiVersion":"`+strings.Repeat("y", 64<<10)+`","kind":"AdmissionReview"}`)
		},
		func(i int) { ask(i, post, "/"+strings.Repeat("z", 32<<10), json, "{}") },
	}
	attackers(b.attack, 8, 10*time.Millisecond, func(i int) { kinds[i%len(kinds)](i) })
}
