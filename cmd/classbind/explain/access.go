package explain

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/pflag"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
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

// identity is that of the flags --as and --as-group.
type identity struct {
	user   string
	groups []string
}

func (i *identity) add(fs *pflag.FlagSet) {
	fs.StringVar(&i.user, "as", "",
		"`user` who creates the claims, where the creator's right counts (classes.use.subject Requester); by default you")
	fs.StringArrayVar(&i.groups, "as-group", nil, "`group` of the user of --as; may be repeated")
}

// addTo what expressions see of who creates a claim. The user has the groups that the API server gives one of kubectl's --as.
func (i *identity) addTo(s *settings) error {
	switch {
	case i.user == "" && len(i.groups) > 0:
		return errors.New("--as-group: name the user, too, with --as")
	case i.user == "":
		return nil
	case s.request != nil:
		return errors.New("--as: --set says who creates the claim, too: leave out one or the other")
	}
	groups := slices.Clone(i.groups)
	if namespace, _, err := serviceaccount.SplitUsername(i.user); err == nil && len(groups) == 0 {
		groups = serviceaccount.MakeGroupNames(namespace)
	}
	if everyone := user.AllAuthenticated; i.user != user.Anonymous && !slices.Contains(groups, everyone) {
		groups = append(groups, everyone)
	}
	s.request = requestOf(&authenticationv1.UserInfo{Username: i.user, Groups: groups})
	return nil
}

// requestOf a user is what expressions see of him.
func requestOf(u *authenticationv1.UserInfo) map[string]any {
	info, _ := runtime.DefaultUnstructuredConverter.ToUnstructured(u) // It has strings alone.
	return map[string]any{"userInfo": info}
}

// authorizer asks the cluster who may use which class, with the rights of whoever runs the command.
type authorizer struct {
	client kubernetes.Interface
	gate   selector.Gate

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

// Create a review. Everybody may ask about himself, also whoever may not ask about others.
func (a *authorizer) Create(
	ctx context.Context, r *authorizationv1.SubjectAccessReview, o metav1.CreateOptions,
) (*authorizationv1.SubjectAccessReview, error) {
	if a.me == nil || r.Spec.User != a.me.Username || r.Spec.UID != a.me.UID || !slices.Equal(r.Spec.Groups, a.me.Groups) {
		answered, err := a.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, r, o)
		if apierrors.IsForbidden(err) {
			err = fmt.Errorf("you need the right to create subjectaccessreviews.authorization.k8s.io to ask about others: %w", err)
		}
		return answered, err //nolint:wrapcheck // The caller says what failed.
	}
	answered, err := a.client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: r.Spec.ResourceAttributes},
	}, o)
	if err != nil {
		return nil, err //nolint:wrapcheck // The caller says what failed.
	}
	return &authorizationv1.SubjectAccessReview{Status: answered.Status}, nil
}

// whoAmI is whoever runs the command, as the API server knows him.
func (a *authorizer) whoAmI(ctx context.Context) (*authenticationv1.UserInfo, error) {
	if a.me != nil {
		return a.me, nil
	}
	r, err := a.client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot ask the API server who you are: %w; say who creates the claim with --as", truncate.Error(err))
	}
	a.me = &r.Status.UserInfo
	return a.me, nil
}

// decider of claims. What is not known of what it reads is noted at an item.
func (w *World) decider(fresh func() uint64, item *Item) *selector.Decider {
	d := &selector.Decider{Fresh: fresh}
	d.Related = func(ctx context.Context, _ string, kind *rules.Kind, namespace, name string) (*expression.Object, error) {
		return w.related(ctx, item, kind, namespace, name)
	}
	if w.authorizer != nil {
		d.Gates = []selector.Gate{w.authorizer.gate}
	}
	return d
}

// addRequester has a claim know who creates it: whom --as or --set says, or else whoever runs the command, where his right to use a class
// counts.
func (k *Kind) addRequester(ctx context.Context, in *claim.Intake) error {
	request := k.world.settings.request
	switch {
	case k.Kind.Use != v1beta1.UseByRequester:
	case request != nil:
		u := &authenticationv1.UserInfo{}
		info, _ := request["userInfo"].(map[string]any)
		_ = runtime.DefaultUnstructuredConverter.FromUnstructured(info, u) // What --set does not say rightly is not known.
		in.Requester = subjects.NewSubject(u)
	default:
		me, err := k.world.authorizer.whoAmI(ctx)
		if err != nil {
			return err
		}
		in.Requester, request = subjects.NewSubject(me), requestOf(me)
	}
	if in.Object != nil {
		in.Request = request
	}
	return nil
}

// noteWithoutEffect notes that --as has no effect on the claims of a kind, if so.
func (i *identity) noteWithoutEffect(item *Item, k *v1beta1.ClaimKind, usesRequest bool) {
	if use := k.Spec.Classes.Use; i.user != "" && !usesRequest && (use == nil || use.Subject != v1beta1.UseByRequester) {
		item.note("--as has no effect: it does not matter who creates the claim")
	}
}
