package serve

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/classbind/classbind/api/v1beta1"
)

const (
	// allowedTTL is how long a token that may read the metrics is let in before the API server is asked again.
	allowedTTL = time.Minute
	// reviewTimeout limits both reviews of one token together.
	reviewTimeout = 10 * time.Second
)

// metricsServer serves /metrics to everybody, or, with --metrics-secure, over TLS to those whom the API server allows to read it.
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

// readers lets in requests for the metrics whose token the API server knows and allows to get the path. controller-runtime's filter does
// the same, but lets made-up tokens cost as many reviews as they come, and imports gRPC and OpenTelemetry.
type readers struct {
	// unknownReviews are for new tokens, knownReviews for known ones.
	unknownReviews, knownReviews kubernetes.Interface
	// known has when the tokens that may read were reviewed, by their hashes. It has no others, so made-up
	// tokens evict none. A token that may no longer read is forgotten.
	known *lru.Cache
	log   logr.Logger
}

func newReaders(config *rest.Config, client *http.Client) (metricsserver.Filter, error) {
	unknown, err := newReviewer(config, client)
	known, other := newReviewer(config, client)
	if err := errors.Join(err, other); err != nil {
		return nil, err
	}
	return func(log logr.Logger, next http.Handler) (http.Handler, error) {
		r := &readers{unknownReviews: unknown, knownReviews: known, log: log, known: lru.New(v1beta1.MaxScrapes)}
		return r.handler(next), nil
	}, nil
}

// newReviewer returns a client for reviews with a rate limit of its own, because every made-up token costs a review.
func newReviewer(config *rest.Config, client *http.Client) (kubernetes.Interface, error) {
	config = rest.CopyConfig(config)
	config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(v1beta1.MaxTokenReviewRate, 2*v1beta1.MaxTokenReviewRate)
	reviewer, err := kubernetes.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client for token and access reviews: %w", err)
	}
	return reviewer, nil
}

// handler reserves slots and a rate for known tokens. Made-up tokens wait for the API
// server, and an attacker can hold all other slots with them.
func (r *readers) handler(next http.Handler) http.Handler {
	known := limitConcurrency(v1beta1.MaxScrapes, r.authorize(r.knownReviews, next))
	unknown := limitConcurrency(v1beta1.MaxUnknownScrapes, r.authorize(r.unknownReviews, known))
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if _, ok := r.known.Get(sha256.Sum256([]byte(bearerToken(request)))); ok {
			known.ServeHTTP(w, request)
			return
		}
		unknown.ServeHTTP(w, request)
	})
}

// authorize lets in requests that may read, and answers all others itself.
func (r *readers) authorize(api kubernetes.Interface, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		switch status, err := r.status(request, api); {
		case err != nil:
			r.log.Error(err, "Cannot determine who may read the metrics")
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

func bearerToken(request *http.Request) string {
	scheme, token, _ := strings.Cut(request.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return token
}

// status returns 200 for a request that may read, and else the status of the answer.
func (r *readers) status(request *http.Request, api kubernetes.Interface) (int, error) {
	token := bearerToken(request)
	if token == "" {
		return http.StatusUnauthorized, nil
	}
	hash := sha256.Sum256([]byte(token))
	if at, ok := r.known.Get(hash); ok && time.Since(at.(time.Time)) < allowedTTL {
		return http.StatusOK, nil
	}
	ctx, cancel := context.WithTimeout(request.Context(), reviewTimeout)
	defer cancel()
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	identity, err := api.AuthenticationV1().TokenReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return 0, fmt.Errorf("cannot review a token: %w", err)
	}
	if !identity.Status.Authenticated {
		r.known.Remove(hash)
		return http.StatusUnauthorized, nil
	}
	user := &identity.Status.User
	extra := map[string]authorizationv1.ExtraValue{}
	for key, value := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(value)
	}
	access, err := api.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return 0, fmt.Errorf("cannot review the rights of a token: %w", err)
	}
	if !access.Status.Allowed {
		r.known.Remove(hash)
		return http.StatusForbidden, nil
	}
	r.known.Add(hash, time.Now())
	return http.StatusOK, nil
}

// limitConcurrency answers at most n requests at once and refuses all others.
func limitConcurrency(n int64, next http.Handler) http.Handler {
	slots := semaphore.NewWeighted(n)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !slots.TryAcquire(1) {
			http.Error(w, fmt.Sprintf("%d requests are being answered already: try again", n), http.StatusTooManyRequests)
			return
		}
		defer slots.Release(1)
		next.ServeHTTP(w, r)
	})
}

// Build is what a binary knows of its origin.
type Build struct {
	Version string
	Commit  string // of git, or "" if unknown
}

// RegisterMetrics adds a metric that is always 1, for its labels.
func (b Build) RegisterMetrics() error {
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "classbind_build_info",
		Help: "Always 1. The labels are the version of this replica, its commit, and the version of Go that built it.",
	}, []string{"version", "revision", "goversion"})
	info.WithLabelValues(b.Version, b.Commit, runtime.Version()).Set(1)
	return metrics.Registry.Register(info)
}
