package e2e

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"time"
)

// patience is how long anything may take that should take a moment. Nothing waits for it but
// a test that fails, so it suits a machine that others keep busy.
const patience = 3 * time.Minute

const (
	// attempts of a request that the API server gave up because a webhook was slow, and the
	// time between them.
	attempts     = 20
	attemptEvery = 500 * time.Millisecond
)

// slowWebhook says that the API server refused a request because it waited too long for an
// answer of a webhook. It stored nothing, and does so at once on a machine that is less busy.
func slowWebhook(text string) bool {
	if !strings.Contains(text, "failed calling webhook") {
		return false
	}
	for _, cause := range []string{"context deadline exceeded", "Client.Timeout exceeded", "TLS handshake timeout"} {
		if strings.Contains(text, cause) {
			return true
		}
	}
	return false
}

// patient sends a request again after slowWebhook, as a user would.
type patient struct{ next http.RoundTripper }

func newPatient(next http.RoundTripper) http.RoundTripper { return patient{next} }

// RoundTrip is that of the transport which is next.
func (p patient) RoundTrip(r *http.Request) (*http.Response, error) {
	for attempt := 1; ; attempt++ {
		response, err := p.next.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		if response.StatusCode != http.StatusInternalServerError || attempt == attempts || r.Body != nil && r.GetBody == nil {
			return response, nil
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil {
			return nil, err
		}
		response.Body = io.NopCloser(bytes.NewReader(body))
		if !slowWebhook(string(body)) || !attemptAgain(r.Context()) {
			return response, nil
		}
		if r = r.Clone(r.Context()); r.GetBody != nil {
			if r.Body, err = r.GetBody(); err != nil {
				return nil, err
			}
		}
	}
}

// attemptAgain after a while, unless nobody waits for the answer.
func attemptAgain(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(attemptEvery):
		return true
	}
}

// kubectlFunc runs kubectl, as ControlPlane.Kubectl does.
type kubectlFunc func(ctx context.Context, stdin io.Reader, args ...string) (stdout, stderr string, err error)

// patiently runs kubectl again after slowWebhook.
func patiently(kubectl kubectlFunc) kubectlFunc {
	return func(ctx context.Context, stdin io.Reader, args ...string) (stdout, stderr string, err error) {
		var input []byte
		if stdin != nil {
			if input, err = io.ReadAll(stdin); err != nil {
				return "", "", err
			}
		}
		for attempt := 1; ; attempt++ {
			stdout, stderr, err = kubectl(ctx, bytes.NewReader(input), args...)
			if err == nil || attempt == attempts || !slowWebhook(err.Error()) || !attemptAgain(ctx) {
				return stdout, stderr, err
			}
		}
	}
}
