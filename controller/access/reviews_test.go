package access

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/access"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/fair"
	"github.com/classbind/classbind/selector/inventory"
)

// authorizer answers access reviews.
type authorizer func(context.Context, authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, error)

func (a authorizer) Create(
	ctx context.Context, r *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions,
) (*authorizationv1.SubjectAccessReview, error) {
	status, err := a(ctx, r.Spec)
	return &authorizationv1.SubjectAccessReview{Status: status}, err
}

func kindWithUse(subject v1beta1.UseSubject) *selector.ClaimKind {
	k := &v1beta1.ClaimKind{ObjectMeta: metav1.ObjectMeta{Name: "claims.test"}}
	k.Spec.Classes.Use = &v1beta1.Use{Subject: subject}
	return selector.NewClaimKind(k)
}

func world(subject v1beta1.UseSubject) (*selector.View, *inventory.Class) {
	golds := inventory.NewClassKind(&v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: "golds.test"}}, schema.GroupVersionKind{
		Group:   "test",
		Version: "v1",
		Kind:    "Gold",
	}, false)
	c := golds.NewClass(&metav1.ObjectMeta{Name: "a"}, nil)
	return selector.NewView(kindWithUse(subject), []*inventory.Classes{inventory.NewClasses(golds, []*inventory.Class{c})}), c
}

func TestGate(t *testing.T) {
	allow := authorizationv1.SubjectAccessReviewStatus{Allowed: true}
	ann := &access.Subject{User: "ann", UID: "1", Groups: []string{"devs"}, Extra: map[string][]string{"scope": {"x"}}}
	ofClass := &authorizationv1.ResourceAttributes{Verb: "use", Group: "test", Version: "*", Resource: "golds", Name: "a"}
	for name, tc := range map[string]struct {
		why     string
		subject v1beta1.UseSubject
		claim   claim.Claim
		status  authorizationv1.SubjectAccessReviewStatus
		err     error
		spec    authorizationv1.SubjectAccessReviewSpec
		allowed bool
		wantErr string
	}{
		"Namespace": {
			why:     "We should ask for the groups of the namespace.",
			subject: v1beta1.UseByNamespace,
			claim:   claim.Claim{Namespace: "team", Requester: ann},
			status:  allow,
			allowed: true,
			spec: authorizationv1.SubjectAccessReviewSpec{
				User:               "system:serviceaccount:team:classbind.io",
				Groups:             []string{"system:serviceaccounts", "system:serviceaccounts:team"},
				ResourceAttributes: ofClass,
				Extra:              map[string]authorizationv1.ExtraValue{},
			},
		},
		"Requester": {
			why:     "We should ask for who asks, with all that is known of him.",
			subject: v1beta1.UseByRequester,
			claim:   claim.Claim{Namespace: "team", Requester: ann},
			status:  allow,
			allowed: true,
			spec: authorizationv1.SubjectAccessReviewSpec{
				User:               "ann",
				UID:                "1",
				Groups:             []string{"devs"},
				Extra:              map[string]authorizationv1.ExtraValue{"scope": {"x"}},
				ResourceAttributes: ofClass,
			},
		},
		"NoOpinion": {why: "We should take no opinion for no.", subject: v1beta1.UseByNamespace, claim: claim.Claim{Namespace: "team"}},
		"Denied": {
			why:     "We should take a denial for no, whatever else failed.",
			subject: v1beta1.UseByNamespace,
			claim:   claim.Claim{Namespace: "team"},
			status:  authorizationv1.SubjectAccessReviewStatus{Denied: true, EvaluationError: "x"},
		},
		"Allowed": {
			why:     "We should take it for a yes, whatever else failed.",
			subject: v1beta1.UseByNamespace,
			claim:   claim.Claim{Namespace: "team"},
			status:  authorizationv1.SubjectAccessReviewStatus{Allowed: true, EvaluationError: "x"},
			allowed: true,
		},
		"Unknown": {
			why:     "We should decide nothing where an authorizer fails.",
			subject: v1beta1.UseByNamespace,
			claim:   claim.Claim{Namespace: "team"},
			status:  authorizationv1.SubjectAccessReviewStatus{EvaluationError: "secret of golds/a"},
			wantErr: "an authorizer of the API server fails",
		},
		"Fails": {
			why:     "We should decide nothing without an answer.",
			subject: v1beta1.UseByNamespace,
			claim:   claim.Claim{Namespace: "team"},
			err:     errors.New("refused"),
			wantErr: "cannot ask the API server: refused",
		},
	} {
		t.Run(name, func(t *testing.T) {
			v, class := world(tc.subject)
			var got []authorizationv1.SubjectAccessReviewSpec
			gate := NewReviews(authorizer(func(_ context.Context, spec authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, error) {
				got = append(got, spec)
				return tc.status, tc.err
			})).Gate()
			assert.True(t, gate.Of(v.Kind))
			assert.False(t, gate.Of(selector.NewClaimKind(&v1beta1.ClaimKind{})), "We should not ask about kinds whose classes all may use.")
			for range 2 {
				refused, err := gate.Drops(t.Context(), selector.Subject{Claim: tc.claim, View: v}, class)
				assert.Equal(t, tc.allowed, !refused, tc.why)
				controllertest.RequireError(t, tc.wantErr, err, tc.why)
			}
			if tc.wantErr != "" {
				assert.Len(t, got, 2, "We should keep no failure.")
			} else {
				require.Len(t, got, 1, "We should keep the answer.")
			}
			if tc.spec.User != "" {
				assert.Equal(t, tc.spec, got[0], tc.why)
			}
		})
	}
}

// Answers are kept for a while, for one subject alone.
func TestAnswersAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		r := NewReviews(authorizer(func(_ context.Context, spec authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, error) {
			asked++
			return authorizationv1.SubjectAccessReviewStatus{Allowed: spec.User == "ann" || spec.Groups[len(spec.Groups)-1] == "system:serviceaccounts:a"}, nil
		}))
		gate := r.Gate()
		v, class := world(v1beta1.UseByNamespace)
		admits := func(c claim.Claim) bool {
			refused, err := gate.Drops(t.Context(), selector.Subject{Claim: c, View: v}, class)
			require.NoError(t, err)
			return !refused
		}
		assert.True(t, admits(claim.Claim{Namespace: "a"}))
		assert.False(t, admits(claim.Claim{Namespace: "b"}), "We should not take the answer of another namespace.")
		assert.True(t, admits(claim.Claim{Namespace: "a"}))
		assert.False(t, admits(claim.Claim{Namespace: "b"}))
		assert.Equal(t, 2, asked)
		time.Sleep(v1beta1.AccessAnswerLifetime + time.Millisecond)
		assert.True(t, admits(claim.Claim{Namespace: "a"}))
		assert.Equal(t, 3, asked, "We should ask again.")
		r.Grants = func() *access.Grants { return access.NewGrants(nil, nil) }
		assert.True(t, admits(claim.Claim{Namespace: "a"}))
		assert.Equal(t, 4, asked, "We should ask again once roles say something else.")
		registry := prometheus.NewRegistry()
		require.NoError(t, registry.Register(r.answered))
		const name = "access_reviews_total claim_kind=claims.test outcome="
		assert.Equal(t, map[string]float64{name + "allowed": 3, name + "refused": 1, name + "kept": 2}, controllertest.Scraped(t, registry))
	})
}

// An authorizer that hangs for one namespace holds up no other.
func TestReviewsThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hanging atomic.Int32
		gate := NewReviews(authorizer(func(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, error) {
			if spec.Groups[1] == "system:serviceaccounts:slow" {
				hanging.Add(1)
				<-ctx.Done()
				return authorizationv1.SubjectAccessReviewStatus{}, ctx.Err()
			}
			return authorizationv1.SubjectAccessReviewStatus{Allowed: true}, nil
		})).Gate()
		v, class := world(v1beta1.UseByNamespace)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		full := atomic.Int32{}
		for range 2 * v1beta1.AccessReviews.WaitingPerKey {
			go func() {
				refused, err := gate.Drops(ctx, selector.Subject{Claim: claim.Claim{Namespace: "slow"}, View: v}, class)
				assert.True(t, refused)
				if errors.Is(err, fair.ErrKeyFull) {
					full.Add(1)
				} else {
					assert.ErrorIs(t, err, context.DeadlineExceeded, "We should decide nothing without an answer.")
				}
			}()
		}
		synctest.Wait()
		assert.EqualValues(t, v1beta1.AccessReviews.PerKey, hanging.Load(), "We should give a namespace a part of the places.")
		assert.EqualValues(t, v1beta1.AccessReviews.WaitingPerKey, full.Load(), "We should have few of one namespace wait.")
		ended, end := context.WithCancel(t.Context())
		end()
		for range 2 * v1beta1.AccessReviews.PerKey { // None of them keeps its place.
			_, err := gate.Drops(ended, selector.Subject{Claim: claim.Claim{Namespace: "quick"}, View: v}, class)
			require.ErrorIs(t, err, context.Canceled)
		}
		refused, err := gate.Drops(ctx, selector.Subject{Claim: claim.Claim{Namespace: "quick"}, View: v}, class)
		require.NoError(t, err)
		assert.False(t, refused, "We should ask for others meanwhile.")
		<-ctx.Done()
		synctest.Wait()
	})
}
