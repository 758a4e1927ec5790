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
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/classbind"
)

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
	ctx := b.attack
	const least = 3 // rounds, however slow the machine is
	s := b.stranger()
	release := b.slowCreations(t)
	rounds, double := 0, 0
	for ; ctx.Err() == nil || rounds < least; rounds++ {
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
	ctx := b.attack
	s := b.stranger()
	attackers(ctx, 4, 20*time.Millisecond, func(i int) {
		object := classObject("Ghost", fmt.Sprint("ghost-", i), string(uuid.NewUUID()), "", true)
		s.post(ctx, i%len(b.replicas), v1beta1.GuardPath, forged("CREATE", "Ghost", object, nil))
	})
}

// forgedClaims ask for a class in the stranger's own namespace, one selector after the other, and take turns and reservations.
func (b *besieged) forgedClaims(_ *testing.T) {
	ctx := b.attack
	s := b.stranger()
	attackers(ctx, 8, 20*time.Millisecond, func(i int) {
		kind := []string{"AdmitClaim", "DenyClaim", "LaterClaim", "LeastClaim"}[i%4]
		selector := []map[string]any{{"matchLabels": map[string]any{"pool": "common"}}, {"matchLabels": map[string]any{"pool": fmt.Sprint("forged-", i)}}, {}}[i/4%3]
		object := map[string]any{
			"apiVersion": hostileGroup + "/v1", "kind": kind, "metadata": map[string]any{"namespace": tenantA, "name": fmt.Sprint("forged-", i)},
			"spec": map[string]any{"classSelector": selector},
		}
		s.post(ctx, i%len(b.replicas), v1beta1.BindPath+hostileResource(kind), forged("CREATE", kind, object, nil))
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
	ctx := b.attack
	const connections, dialers, tick = 1000, 16, 500 * time.Millisecond
	s := b.stranger()
	var (
		mu   sync.Mutex
		open []net.Conn
		slow []net.Conn
	)
	defer func() {
		for _, c := range open {
			_ = c.Close()
		}
	}()
	next := make(chan int)
	go func() {
		defer close(next)
		for i := range connections * len(b.replicas) {
			select {
			case next <- i:
			case <-ctx.Done():
				return
			}
		}
	}()
	var all sync.WaitGroup
	for range dialers {
		all.Go(func() {
			for i := range next {
				c, err := s.connect(ctx, i%len(b.replicas), i/len(b.replicas)%3 > 0)
				if err != nil {
					continue // To be turned away is no worse.
				}
				mu.Lock()
				if open = append(open, c); i/len(b.replicas)%3 == 2 {
					slow = append(slow, c)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	head := []byte("POST " + v1beta1.BindPath + hostileResource("AdmitClaim") + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n{")
	for _, c := range slow {
		_, _ = c.Write(head)
	}
	for ctx.Err() == nil {
		for _, c := range slow {
			_, _ = c.Write([]byte(" "))
		}
		select {
		case <-ctx.Done():
		case <-time.After(tick):
		}
	}
}

// bigBodies are sent whole, several at once, and announced and then kept back.
func (b *besieged) bigBodies(_ *testing.T) {
	ctx := b.attack
	const size = v1beta1.MaxReviewBytes - 1<<10
	s := b.stranger()
	object := map[string]any{"apiVersion": hostileGroup + "/v1", "kind": "AdmitClaim", "metadata": map[string]any{"namespace": tenantA, "name": "big"}}
	object["note"] = strings.Repeat("<", (size-4<<10)/6)
	whole := forged("CREATE", "AdmitClaim", object, nil)
	announced := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", v1beta1.BindPath+hostileResource("AdmitClaim"), size)
	begun := append([]byte(announced), bytes.Repeat([]byte(" "), 1<<20)...)
	var all sync.WaitGroup
	all.Go(func() {
		attackers(ctx, 4, 200*time.Millisecond, func(i int) { s.post(ctx, i%len(b.replicas), v1beta1.BindPath+hostileResource("AdmitClaim"), whole) })
	})
	all.Go(func() {
		attackers(ctx, 16, 100*time.Millisecond, func(i int) {
			c, err := s.connect(ctx, i%len(b.replicas), true)
			if err != nil {
				return
			}
			defer func() { _ = c.Close() }()
			defer context.AfterFunc(ctx, func() { _ = c.Close() })()
			_, _ = c.Write(begun)
			_, _ = io.Copy(io.Discard, c) // until the server has had enough
		})
	})
	all.Wait()
}

func (b *besieged) garbage(_ *testing.T) {
	ctx := b.attack
	s := b.stranger()
	noise := make([]byte, 64<<10)
	_, _ = rand.Read(noise)
	raw := func(i int, secure bool, bytes []byte) {
		c, err := s.connect(ctx, i%len(b.replicas), secure)
		if err != nil {
			return
		}
		defer func() { _ = c.Close() }()
		defer context.AfterFunc(ctx, func() { _ = c.Close() })()
		_ = c.SetDeadline(time.Now().Add(time.Second))
		_, _ = c.Write(bytes)
		_, _ = io.Copy(io.Discard, c)
	}
	ask := func(i int, method, path, contentType, body string) {
		status, text, err := exchange(ctx, s.client, method, b.replicas[i%len(b.replicas)].URL+path, contentType, body)
		if err == nil && ctx.Err() == nil {
			b.answers.add(status, text)
		}
	}
	attackers(ctx, 8, 10*time.Millisecond, func(i int) {
		switch i % 8 {
		case 0:
			raw(i, false, noise)
		case 1:
			raw(i, true, noise)
		case 2:
			raw(i, true, []byte("POST / HTTP/1.1\r\nHost: a\r\nX: "+strings.Repeat("x", 2<<20)+"\r\n\r\n"))
		case 3:
			ask(i, http.MethodGet, v1beta1.BindPath+"a", "", "")
		case 4:
			ask(i, http.MethodPost, v1beta1.BindPath+"a", strings.Repeat("x", 64<<10), "{}")
		case 5:
			ask(i, http.MethodPost, v1beta1.GuardPath, "application/json", strings.Repeat(`{"a":`, 20_000))
		case 6:
			ask(i, http.MethodPost, v1beta1.BindPath+"a", "application/json", `{"apiVersion":"`+strings.Repeat("y", 64<<10)+`","kind":"AdmissionReview"}`)
		default:
			ask(i, http.MethodPost, "/"+strings.Repeat("z", 32<<10), "application/json", "{}")
		}
	})
}
