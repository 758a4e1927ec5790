package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
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

	own := defaultClass("Local", "default-"+secret)
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

// contestedClass serves two kinds of claim, one of which has a default. Four clients of its author mark it again and again, which is
// refused each time, while an admin makes another class the default of the other kind.
func (b *besieged) contestedClass(t *testing.T) {
	const inTime = 5 * time.Second
	second := defaultClass("Second", "second")
	require.NoError(t, b.Create(t.Context(), second))
	contested, first := defaultClass("Shared", "contested"), defaultClass("First", "first")
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

const fitSpec = `{whenUnmatched: %s, admission: {failurePolicy: Ignore}, classes: {fits: [{name: Zone, ` +
	`expression: "(has(claim.spec.zones) ? claim.spec.zones : ['zone-1']).exists(z, z in class.spec.zones)"}]}}`

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

// forged review of the creation of an object of a kind.
func forged(kind string, object map[string]any) string {
	metadata := object["metadata"].(map[string]any)
	object["apiVersion"], object["kind"] = hostileGroup+"/v1", kind
	request := map[string]any{
		"uid": string(uuid.NewUUID()), "operation": "CREATE", "name": metadata["name"], "namespace": metadata["namespace"],
		"kind":     map[string]any{"group": hostileGroup, "version": "v1", "kind": kind},
		"resource": map[string]any{"group": hostileGroup, "version": "v1", "resource": strings.ToLower(kind) + "s"},
		"object":   object,
	}
	review, _ := json.Marshal(map[string]any{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
	return string(review)
}

func defaultClass(kind, name string) *unstructured.Unstructured {
	u := object(hostileGroup, kind, name)
	u.SetAnnotations(map[string]string{defaultMark: "true"})
	return u
}

// forgedCreations take the seat of a claim kind for classes that nobody creates. That keeps its admin waiting, and nobody else.
func (b *besieged) forgedCreations(_ *testing.T) {
	s := b.stranger()
	attackers(b.attack, 4, 20*time.Millisecond, func(i int) {
		s.post(b.attack, i%len(b.replicas), v1beta1.GuardPath, forged("Ghost", map[string]any{"metadata": map[string]any{
			"name": fmt.Sprint("ghost-", i), "uid": string(uuid.NewUUID()), "annotations": map[string]any{defaultMark: "true"},
		}}))
	})
}

// forgedClaims ask for a class in the stranger's own namespace, one selector after the other, and take turns and capacity.
func (b *besieged) forgedClaims(_ *testing.T) {
	s := b.stranger()
	attackers(b.attack, 8, 20*time.Millisecond, func(i int) {
		kind := []string{"AdmitClaim", "DenyClaim", "LaterClaim", "LeastClaim"}[i%4]
		selector := []map[string]any{{"matchLabels": map[string]any{"pool": "common"}}, {"matchLabels": map[string]any{"pool": fmt.Sprint("forged-", i)}}, {}}[i/4%3]
		s.post(b.attack, i%len(b.replicas), v1beta1.BindPath+hostileResource(kind), forged(kind, map[string]any{
			"metadata": map[string]any{"namespace": tenantA, "name": fmt.Sprint("forged-", i)}, "spec": map[string]any{"classSelector": selector},
		}))
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
	whole := forged("AdmitClaim", map[string]any{"metadata": map[string]any{"namespace": tenantA, "name": "big"}, "note": strings.Repeat("<", (size-4<<10)/6)})
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
