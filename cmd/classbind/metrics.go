package main

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/lru"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/classbind/classbind/api/v1alpha1"
)

const (
	// allowedFor is how long the API server is not asked again about a token that may
	// read the metrics.
	allowedFor = time.Minute
	// askTimeout of the API server about one token, both questions together.
	askTimeout = 10 * time.Second
)

// metricsServer serves /metrics to everybody, or with --metrics-secure over TLS to
// those whom the API server lets read it.
func (o *options) metricsServer(certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)) metricsserver.Options {
	if !o.metricsSecure {
		return metricsserver.Options{BindAddress: o.metricsAddress}
	}
	return metricsserver.Options{
		BindAddress: o.metricsAddress, SecureServing: true, FilterProvider: newReaders,
		TLSOpts: []func(*tls.Config){func(c *tls.Config) {
			c.GetCertificate, c.MinVersion, c.NextProtos = certificate, tls.VersionTLS13, []string{"http/1.1"}
		}},
	}
}

// readers of the metrics are those whose token the API server knows and lets get the
// path. It does what controller-runtime's filter of the same purpose does. That one
// imports k8s.io/apiserver, with gRPC and CEL: the binary would be 67 MB, and not 37.
type readers struct {
	// first are the questions about a token, and again those about one that is known.
	first, again reviews
	// allowed and known are the hashes of tokens that may read, and no others: what
	// somebody makes up drives none of them out. A known one is asked about again when
	// it is allowed no more, and forgotten when it may not read.
	allowed *cache.LRUExpireCache
	known   *lru.Cache
	log     logr.Logger
}

// reviews ask the API server.
type reviews struct {
	tokens authenticationclient.TokenReviewInterface
	rights authorizationclient.SubjectAccessReviewInterface
}

// newReaders is a filter of controller-runtime's metrics server.
func newReaders(config *rest.Config, client *http.Client) (metricsserver.Filter, error) {
	first, err := newReviews(config, client)
	if err != nil {
		return nil, err
	}
	again, err := newReviews(config, client)
	if err != nil {
		return nil, err
	}
	return func(log logr.Logger, next http.Handler) (http.Handler, error) {
		r := &readers{first: first, again: again, allowed: cache.NewLRUExpireCache(v1alpha1.MaxScrapes), known: lru.New(v1alpha1.MaxScrapes), log: log}
		return r.handler(next), nil
	}, nil
}

// newReviews have a rate of their own: each token that somebody makes up is another
// question.
func newReviews(config *rest.Config, client *http.Client) (reviews, error) {
	config = rest.CopyConfig(config)
	config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(v1alpha1.MaxTokenReviewRate, 2*v1alpha1.MaxTokenReviewRate)
	tokens, err := authenticationclient.NewForConfigAndClient(config, client)
	if err != nil {
		return reviews{}, fmt.Errorf("cannot make a client for token reviews: %w", err)
	}
	rights, err := authorizationclient.NewForConfigAndClient(config, client)
	if err != nil {
		return reviews{}, fmt.Errorf("cannot make a client for access reviews: %w", err)
	}
	return reviews{tokens: tokens.TokenReviews(), rights: rights.SubjectAccessReviews()}, nil
}

// handler has places and a rate for known tokens that no other takes. Made-up tokens
// wait for the API server, and somebody can hold all other places with them.
func (r *readers) handler(next http.Handler) http.Handler {
	known := atMost(v1alpha1.MaxScrapes, r.ask(r.again, next))
	unknown := atMost(v1alpha1.MaxUnknownScrapes, r.ask(r.first, known))
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if _, ok := r.known.Get(sha256.Sum256([]byte(bearer(request)))); ok {
			known.ServeHTTP(w, request)
			return
		}
		unknown.ServeHTTP(w, request)
	})
}

// ask who may read, and let them.
func (r *readers) ask(api reviews, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		switch status, err := r.status(request, api); {
		case err != nil:
			r.log.Error(err, "Cannot tell who may read the metrics")
			http.Error(w, "cannot ask the API server who may read the metrics", http.StatusServiceUnavailable)
		case status == http.StatusUnauthorized:
			http.Error(w, "a token of the cluster is needed: Authorization: Bearer …", status)
		case status == http.StatusForbidden:
			http.Error(w, "the token's owner may not read this: bind the ClusterRole classbind-metrics-reader", status)
		default:
			next.ServeHTTP(w, request)
		}
	})
}

// bearer is the token of a request, or "".
func bearer(request *http.Request) string {
	scheme, token, _ := strings.Cut(request.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return token
}

// status is 200 for who may read, and else what to answer.
func (r *readers) status(request *http.Request, api reviews) (int, error) {
	token := bearer(request)
	if token == "" {
		return http.StatusUnauthorized, nil
	}
	hash := sha256.Sum256([]byte(token))
	if _, ok := r.allowed.Get(hash); ok {
		return http.StatusOK, nil
	}
	ctx, cancel := context.WithTimeout(request.Context(), askTimeout)
	defer cancel()
	who, err := api.tokens.Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return 0, fmt.Errorf("cannot review a token: %w", err)
	}
	if !who.Status.Authenticated {
		r.known.Remove(hash)
		return http.StatusUnauthorized, nil
	}
	may, err := api.rights.Create(ctx, accessReview(&who.Status.User), metav1.CreateOptions{})
	if err != nil {
		return 0, fmt.Errorf("cannot review the rights of a token: %w", err)
	}
	if !may.Status.Allowed {
		r.known.Remove(hash)
		return http.StatusForbidden, nil
	}
	r.known.Add(hash, nil)
	r.allowed.Add(hash, nil, allowedFor)
	return http.StatusOK, nil
}

func accessReview(user *authenticationv1.UserInfo) *authorizationv1.SubjectAccessReview {
	extra := map[string]authorizationv1.ExtraValue{}
	for key, value := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(value)
	}
	return &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"},
	}}
}

// atMost so many requests at once are answered, and all others refused.
func atMost(n int, next http.Handler) http.Handler {
	room := make(chan struct{}, n)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case room <- struct{}{}:
			defer func() { <-room }()
			next.ServeHTTP(w, r)
		default:
			http.Error(w, fmt.Sprintf("%d requests are being answered already: try again", n), http.StatusTooManyRequests)
		}
	})
}
