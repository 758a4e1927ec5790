package world

import (
	"context"
	"fmt"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/access"
	"github.com/classbind/classbind/selector"
	subjects "github.com/classbind/classbind/selector/access"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/rules"
	"github.com/classbind/classbind/selector/truncate"
)

// RequestOf a user is what expressions see of him.
func RequestOf(u *authenticationv1.UserInfo) map[string]any {
	info, _ := runtime.DefaultUnstructuredConverter.ToUnstructured(u) // It has strings alone.
	return map[string]any{"userInfo": info}
}

// authorizer asks the cluster who may use which class, with the rights of the caller of the command.
type authorizer struct {
	client kubernetes.Interface
	gate   selector.Test

	// me runs the command; nil until that was asked.
	me *authenticationv1.UserInfo
}

func newAuthorizer(config *rest.Config) (*authorizer, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("cannot make a client: %w", err)
	}
	a := &authorizer{client: client}
	a.gate = access.NewReviews(a).Gate()
	return a, nil
}

// Create a review. Everybody may ask about himself, also users who may not ask about others.
func (a *authorizer) Create(
	ctx context.Context, r *authorizationv1.SubjectAccessReview, o metav1.CreateOptions,
) (*authorizationv1.SubjectAccessReview, error) {
	if a.me == nil || r.Spec.User != a.me.Username || r.Spec.UID != a.me.UID || !slices.Equal(r.Spec.Groups, a.me.Groups) {
		answered, err := a.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, r, o)
		if apierrors.IsForbidden(err) {
			err = fmt.Errorf("you need the right to create subjectaccessreviews.authorization.k8s.io to ask about others: %w", err)
		}
		return answered, err // The caller says what failed.
	}
	answered, err := a.client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: r.Spec.ResourceAttributes},
	}, o)
	if err != nil {
		return nil, err // The caller says what failed.
	}
	return &authorizationv1.SubjectAccessReview{Status: answered.Status}, nil
}

// whoAmI is the user who runs the command, as the API server knows him.
func (a *authorizer) whoAmI(ctx context.Context) (*authenticationv1.UserInfo, error) {
	if a.me != nil {
		return a.me, nil
	}
	r, err := a.client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot ask the API server who you are: %w; say who creates the claim with --requester", truncate.Error(err))
	}
	a.me = &r.Status.UserInfo
	return a.me, nil
}

// Decider of claims. What is not known of what it reads is noted, unless note is nil.
func (w *World) Decider(fresh func() uint64, note func(format string, args ...any)) *selector.Decider {
	d := &selector.Decider{Fresh: fresh, Now: time.Now}
	d.Related = func(ctx context.Context, _ string, kind *rules.Kind, namespace, name string) (*expression.Object, error) {
		return w.related(ctx, note, kind, namespace, name)
	}
	d.RelatedList = w.relatedList
	if w.Cluster != nil {
		d.Gates = []selector.Test{w.Cluster.authorizer.gate}
	}
	return d
}

// AddRequester has a claim know who creates it: whom --requester or --set says, or else the user who runs the command, where his right to
// use a class counts.
func (k *Kind) AddRequester(ctx context.Context, in *claim.Intake) error {
	request := k.world.Settings.Request
	switch {
	case k.View.Kind.Use != v1beta1.UseByRequester:
	case request != nil:
		u := &authenticationv1.UserInfo{}
		info, _ := request["userInfo"].(map[string]any)
		_ = runtime.DefaultUnstructuredConverter.FromUnstructured(info, u) // What --set does not say rightly is not known.
		in.Requester = subjects.NewSubject(u)
	default:
		me, err := k.world.Cluster.authorizer.whoAmI(ctx)
		if err != nil {
			return err
		}
		in.Requester, request = subjects.NewSubject(me), RequestOf(me)
	}
	if in.Object != nil {
		in.Request = request
	}
	return nil
}
