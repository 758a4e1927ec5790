package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/classbind/classbind/api/v1alpha1"
)

// connect to a replica, with TLS or without.
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
	head := []byte("POST " + v1alpha1.BindPath + hostileResource("AdmitClaim") + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n{")
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
	const size = v1alpha1.MaxReviewBytes - 1<<10
	s := b.stranger()
	object := map[string]any{"apiVersion": hostileGroup + "/v1", "kind": "AdmitClaim", "metadata": map[string]any{"namespace": tenantA, "name": "big"}}
	object["note"] = strings.Repeat("<", (size-4<<10)/6)
	whole := forged("CREATE", "AdmitClaim", object, nil)
	announced := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", v1alpha1.BindPath+hostileResource("AdmitClaim"), size)
	begun := append([]byte(announced), bytes.Repeat([]byte(" "), 1<<20)...)
	var all sync.WaitGroup
	all.Go(func() {
		attackers(ctx, 4, 200*time.Millisecond, func(i int) { s.post(ctx, i%len(b.replicas), v1alpha1.BindPath+hostileResource("AdmitClaim"), whole) })
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

// garbage is everything that is no review, fast.
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
			ask(i, http.MethodGet, v1alpha1.BindPath+"a", "", "")
		case 4:
			ask(i, http.MethodPost, v1alpha1.BindPath+"a", strings.Repeat("x", 64<<10), "{}")
		case 5:
			ask(i, http.MethodPost, v1alpha1.GuardPath, "application/json", strings.Repeat(`{"a":`, 20_000))
		case 6:
			ask(i, http.MethodPost, v1alpha1.BindPath+"a", "application/json", `{"apiVersion":"`+strings.Repeat("y", 64<<10)+`","kind":"AdmissionReview"}`)
		default:
			ask(i, http.MethodPost, "/"+strings.Repeat("z", 32<<10), "application/json", "{}")
		}
	})
}
