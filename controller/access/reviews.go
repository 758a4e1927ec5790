// Package access asks the API server who may use which class, and follows the roles and bindings that show whom to ask about first.
package access

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/access"
	"github.com/classbind/classbind/selector/fair"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/truncate"
)

// Reviews are SubjectAccessReviews: may a subject use a class? Each answer is kept for v1beta1.AccessAnswerLifetime, for its subject alone.
type Reviews struct {
	client authorizationclient.SubjectAccessReviewInterface
	// Grants are what roles say, by which a kept answer is known to be out of date. Nil knows nothing.
	Grants  func() *access.Grants
	roles   atomic.Pointer[roles]
	limiter *fair.Limiter // by the namespace of the claim, or the user of one that has none
	answers *utilcache.LRUExpireCache
	// answered counts by claim kind and outcome.
	answered *prometheus.CounterVec
}

// NewReviews returns those of a client.
func NewReviews(client authorizationclient.SubjectAccessReviewInterface) *Reviews {
	return &Reviews{
		client:  client,
		limiter: fair.NewLimiter(v1beta1.AccessReviews),
		answers: utilcache.NewLRUExpireCache(v1beta1.MaxAccessAnswers),
		answered: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "classbind_access_reviews_total",
			Help: "Questions whether a claim may use a class, by claim kind and outcome: " +
				"allowed, refused or failed, or kept where the API server had answered a moment before.",
		}, []string{"claim_kind", "outcome"}),
	}
}

// RegisterMetrics with those that controller-runtime serves.
func (r *Reviews) RegisterMetrics() error { return metrics.Registry.Register(r.answered) }

// Gate is for the claims that may not use all classes.
func (r *Reviews) Gate() selector.Test {
	return selector.Test{
		Of:     func(k *selector.ClaimKind) bool { return k.Use != "" },
		Reason: "NotAllowed", Text: "not allowed for the claim",
		Drops: func(ctx context.Context, claim selector.Subject, class *inventory.Class) (bool, error) {
			kind := claim.View.Kind
			user, now := kind.UserOf(claim.Claim), r.rolesNow()
			granted := now.grants.Of(user)
			for _, use := range claim.View.Uses(claim.Namespace, class) {
				byRole := granted.Allows(use.Resource.GroupResource(), use.Namespace, use.Name)
				allowed, err := r.allowed(ctx, kind.Name, claim.Namespace, user, use, byRole, now)
				if !allowed || err != nil {
					return true, err
				}
			}
			return false, nil
		},
	}
}

// roles are what they say, and since when.
type roles struct {
	grants *access.Grants
	since  time.Time
}

func (r *Reviews) rolesNow() *roles {
	now := roles{since: time.Now()}
	if r.Grants != nil {
		now.grants = r.Grants()
	}
	if known := r.roles.Load(); known != nil && known.grants == now.grants {
		return known
	}
	r.roles.Store(&now)
	return &now
}

// answer that is kept. One that contradicts roles is of an authorizer that knows more, or that has not learned of a change yet.
// So it counts only while they stay the same, and is kept only once they did for rolesSettle.
type answer struct {
	allowed bool
	grants  *access.Grants
}

const rolesSettle = time.Second

// answerKey identifies a question. granted is what roles said when it was asked.
type answerKey struct {
	subject [sha256.Size]byte // A user may be in thousands of groups.
	use     access.Class
	granted bool
}

func (r *Reviews) allowed(
	ctx context.Context, claimKind, namespace string, user *access.Subject, use access.Class, granted bool, now *roles,
) (bool, error) {
	key := answerKey{sha256.Sum256([]byte(user.Key())), use, granted}
	if kept, _ := r.answers.Get(key); kept != nil {
		if a := kept.(answer); a.allowed == granted || a.grants == now.grants { // It has nothing else.
			r.answered.WithLabelValues(claimKind, "kept").Inc()
			return a.allowed, nil
		}
	}
	allowed, err := r.ask(ctx, namespace, user, use)
	outcome := "refused"
	switch {
	case err != nil:
		outcome = "failed"
	case allowed:
		outcome = "allowed"
	}
	r.answered.WithLabelValues(claimKind, outcome).Inc()
	if err == nil && (allowed == granted || now.grants == nil || time.Since(now.since) >= rolesSettle) {
		r.answers.Add(key, answer{allowed, now.grants}, v1beta1.AccessAnswerLifetime)
	}
	return allowed, err
}

// ask the API server. It says no where an authorizer fails, and why.
func (r *Reviews) ask(ctx context.Context, namespace string, user *access.Subject, use access.Class) (bool, error) {
	if namespace == "" {
		namespace = user.Key()
	}
	done, err := r.limiter.Take(ctx, namespace)
	if err == nil {
		defer done()
	}
	if ctx.Err() != nil { // A caller that waited that long is not to blame.
		err = context.Cause(ctx)
	}
	if err != nil {
		return false, fmt.Errorf("cannot ask the API server: %w", err)
	}
	extra := map[string]authorizationv1.ExtraValue{}
	for name, values := range user.Extra {
		extra[name] = values
	}
	review, err := r.client.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.User, UID: user.UID, Groups: user.Groups, Extra: extra,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: v1beta1.UseVerb, Group: use.Resource.Group, Version: "*", Resource: use.Resource.Resource,
			Namespace: use.Namespace, Name: use.Name,
		},
	}}, metav1.CreateOptions{})
	switch {
	case err != nil:
		return false, fmt.Errorf("cannot ask the API server: %w", truncate.Error(err))
	case !review.Status.Allowed && !review.Status.Denied && review.Status.EvaluationError != "":
		return false, errors.New("an authorizer of the API server fails") // What it says may name what the author must not know.
	}
	return review.Status.Allowed, nil
}
