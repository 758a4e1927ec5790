package serve

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/lru"

	"github.com/classbind/classbind/api/v1beta1"
)

func TestMetricsServer(t *testing.T) {
	o := parse(t).metricsServer(nil)
	assert.Equal(t, ":8080", o.BindAddress)
	assert.False(t, o.SecureServing, "We should serve HTTP without the flag.")
	assert.Nil(t, o.FilterProvider)
	o = parse(t, "--metrics-secure", "--metrics-bind-address=localhost:1").metricsServer(nil)
	assert.Equal(t, "localhost:1", o.BindAddress)
	assert.True(t, o.SecureServing)
	assert.NotNil(t, o.FilterProvider, "We should ask the API server who may read.")
}

func TestReaders(t *testing.T) {
	for name, tc := range map[string]struct {
		reason        string
		authorization string
		known         bool
		down          bool
		want          int
		// asked is the number of reviews for two requests.
		asked int
	}{
		"Nobody":    {reason: "We should not ask about no token.", want: http.StatusUnauthorized},
		"Password":  {reason: "We should not ask about a password.", authorization: "Basic prometheus", want: http.StatusUnauthorized},
		"NoToken":   {reason: "We should not ask about an empty token.", authorization: "Bearer ", want: http.StatusUnauthorized},
		"MadeUp":    {reason: "We should not remember a made-up token.", authorization: "Bearer made-up", want: http.StatusUnauthorized, asked: 2},
		"Forbidden": {reason: "We should refuse a token without the right to the path.", authorization: "Bearer somebody", want: http.StatusForbidden, asked: 4},
		"Allowed":   {reason: "We should ask once about a token that may read, and remember it.", authorization: "Bearer prometheus", want: http.StatusOK, asked: 2},
		"Revoked":   {reason: "We should forget a revoked token.", authorization: "Bearer made-up", known: true, want: http.StatusUnauthorized, asked: 2},
		"RightLost": {
			reason:        "We should forget a token whose owner lost the right.",
			authorization: "Bearer somebody",
			known:         true,
			want:          http.StatusForbidden,
			asked:         4,
		},
		"AnyCase": {reason: "We should take the scheme in any case.", authorization: "bearer prometheus", want: http.StatusOK, asked: 2},
		"Down": {
			reason:        "We should let nobody in while we cannot ask.",
			authorization: "Bearer prometheus",
			down:          true,
			want:          http.StatusServiceUnavailable,
			asked:         2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			api := &reviewer{t: t, down: tc.down}
			client, err := newReviewer(jsonConfig, &http.Client{Transport: api})
			require.NoError(t, err)
			r := &readers{unknownReviews: client, knownReviews: client, known: lru.New(v1beta1.MaxScrapes), log: logr.Discard()}
			_, token, _ := strings.Cut(tc.authorization, " ")
			hash := sha256.Sum256([]byte(token))
			if tc.known {
				r.known.Add(hash, time.Time{})
			}
			handler := r.handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			for range 2 {
				w, request := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody)
				if tc.authorization != "" {
					request.Header.Set("Authorization", tc.authorization)
				}
				handler.ServeHTTP(w, request)
				assert.Equal(t, tc.want, w.Code, tc.reason)
			}
			assert.EqualValues(t, tc.asked, api.asked.Load(), tc.reason)
			_, known := r.known.Get(hash)
			assert.Equal(t, tc.want == http.StatusOK, known, tc.reason)
		})
	}
}

var jsonConfig = &rest.Config{Host: "https://localhost", ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON}}

// reviewer is an API server that knows every token but those made up, and lets "prometheus" read until it is revoked.
type reviewer struct {
	t       *testing.T
	down    bool
	revoked atomic.Bool
	// asked counts the reviews, and madeUp those of made-up tokens.
	asked, madeUp atomic.Int64
}

func (r *reviewer) RoundTrip(request *http.Request) (*http.Response, error) {
	if r.asked.Add(1); r.down {
		return nil, errors.New("the API server is down")
	}
	var answer any
	if path.Base(request.URL.Path) == "tokenreviews" {
		review := &authenticationv1.TokenReview{}
		require.NoError(r.t, json.NewDecoder(request.Body).Decode(review))
		token := review.Spec.Token
		if token == "made-up" {
			r.madeUp.Add(1)
		}
		review.Status.Authenticated = token != "made-up" && (token != "prometheus" || !r.revoked.Load())
		review.Status.User = authenticationv1.UserInfo{Username: token, UID: "1", Groups: []string{"g"}, Extra: map[string]authenticationv1.ExtraValue{"k": {"v"}}}
		answer = review
	} else {
		review := &authorizationv1.SubjectAccessReview{}
		require.NoError(r.t, json.NewDecoder(request.Body).Decode(review))
		spec := review.Spec
		review.Status.Allowed = spec.User == "prometheus"
		assert.Equal(r.t, authorizationv1.SubjectAccessReviewSpec{
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"},
			User:                  spec.User, UID: "1", Groups: []string{"g"}, Extra: map[string]authorizationv1.ExtraValue{"k": {"v"}},
		}, spec, "We should pass on everything that identifies the user.")
		answer = review
	}
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	err := json.NewEncoder(w).Encode(answer)
	return w.Result(), err
}

// TestReadersFlooded floods readers with made-up tokens for longer than the answers of the API server are remembered.
func TestReadersFlooded(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		// patience is how long the attacker waits for an answer, and pause the time before its next request.
		patience, pause time.Duration
	}{
		"Waits":   {reason: "We should let in known tokens while made-up ones wait for their review.", patience: time.Hour, pause: 100 * time.Millisecond},
		"HangsUp": {reason: "We should let in known tokens while others take turns and hang up.", patience: 500 * time.Millisecond, pause: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := &reviewer{t: t}
				filter, err := newReaders(jsonConfig, &http.Client{Transport: api})
				require.NoError(t, err)
				handler, err := filter(logr.Discard(), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
				require.NoError(t, err)
				get := func(ctx context.Context, token string) int {
					w, request := httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/metrics", http.NoBody)
					request.Header.Set("Authorization", "Bearer "+token)
					handler.ServeHTTP(w, request)
					return w.Code
				}
				require.Equal(t, http.StatusOK, get(t.Context(), "prometheus"))

				begin := time.Now()
				flooding, stop := context.WithCancel(t.Context())
				var flood sync.WaitGroup
				var refused atomic.Int64
				for range 2 * v1beta1.MaxUnknownScrapes {
					flood.Go(func() {
						for flooding.Err() == nil {
							ctx, hangUp := context.WithCancel(flooding)
							leave := time.AfterFunc(tc.patience, hangUp)
							if get(ctx, "made-up") == http.StatusTooManyRequests {
								refused.Add(1)
							}
							leave.Stop()
							hangUp()
							time.Sleep(tc.pause)
						}
					})
				}
				time.Sleep(150 * time.Millisecond) // The rate takes turns at 200 and 400: no place is free between them.
				for range 3 {
					for range 2 {
						scraped := time.Now()
						assert.Equal(t, http.StatusOK, get(t.Context(), "prometheus"), tc.reason)
						assert.Zero(t, time.Since(scraped), tc.reason)
					}
					time.Sleep(allowedTTL + 200*time.Millisecond)
				}
				stop()
				flood.Wait()
				assert.Positive(t, refused.Load(), "We should refuse more made-up tokens than we have places for.")
				most := v1beta1.MaxTokenReviewRate * (time.Since(begin).Seconds() + 2)
				assert.LessOrEqual(t, float64(api.madeUp.Load()), most, "We should ask no more often than the rate and its burst.")

				api.revoked.Store(true)
				time.Sleep(allowedTTL + reviewTimeout)
				assert.Equal(t, http.StatusUnauthorized, get(t.Context(), "prometheus"), "We should review known tokens again.")
			})
		})
	}
}
