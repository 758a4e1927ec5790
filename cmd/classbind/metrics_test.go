package main

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
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
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
	down := errors.New("the API server is down")
	for name, tc := range map[string]struct {
		reason        string
		authorization string
		known         bool
		tokens        error
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
		"RightLost": {reason: "We should forget a token whose owner lost the right.", authorization: "Bearer somebody", known: true, want: http.StatusForbidden, asked: 4},
		"AnyCase":   {reason: "We should take the scheme in any case.", authorization: "bearer prometheus", want: http.StatusOK, asked: 2},
		"Down":      {reason: "We should let nobody in while we cannot ask.", authorization: "Bearer prometheus", tokens: down, want: http.StatusServiceUnavailable, asked: 2},
	} {
		t.Run(name, func(t *testing.T) {
			clientset := fake.NewClientset()
			clientset.PrependReactor("create", "tokenreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
				review := a.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview)
				review.Status.Authenticated = review.Spec.Token != "made-up"
				review.Status.User = authenticationv1.UserInfo{
					Username: review.Spec.Token, UID: "1", Groups: []string{"g"}, Extra: map[string]authenticationv1.ExtraValue{"k": {"v"}},
				}
				return true, review, tc.tokens
			})
			clientset.PrependReactor("create", "subjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
				review := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview)
				assert.Equal(t, &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"}, review.Spec.NonResourceAttributes)
				assert.Equal(t, []string{"g"}, review.Spec.Groups, "We should pass on everything that identifies the user.")
				assert.Equal(t, map[string]authorizationv1.ExtraValue{"k": {"v"}}, review.Spec.Extra)
				assert.Equal(t, "1", review.Spec.UID)
				review.Status.Allowed = review.Spec.User == "prometheus"
				return true, review, nil
			})
			r := &readers{unknownReviews: clientset, knownReviews: clientset, known: lru.New(v1beta1.MaxScrapes), log: logr.Discard()}
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
			assert.Len(t, clientset.Actions(), tc.asked, tc.reason)
			_, known := r.known.Get(hash)
			assert.Equal(t, tc.want == http.StatusOK, known, tc.reason)
		})
	}
}

// reviewer is an API server that lets the token "prometheus" read, until it is revoked.
type reviewer struct {
	revoked atomic.Bool
	// madeUp counts the reviews of other tokens.
	madeUp atomic.Int64
}

func (r *reviewer) RoundTrip(request *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	var answer any = &authorizationv1.SubjectAccessReview{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: true}}
	if path.Base(request.URL.Path) == "tokenreviews" {
		review := &authenticationv1.TokenReview{}
		if err := json.NewDecoder(request.Body).Decode(review); err != nil {
			return nil, err
		}
		if review.Spec.Token == "prometheus" {
			review.Status.Authenticated = !r.revoked.Load()
		} else {
			r.madeUp.Add(1)
		}
		answer = review
	}
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
				api := &reviewer{}
				filter, err := newReaders(&rest.Config{Host: "https://localhost", ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON}}, &http.Client{Transport: api})
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
