package status

import (
	"context"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector"
)

// permit is how classbind gets the rights to a kind.
const permit = "label a ClusterRole that allows it: kubectl label clusterrole ROLE " + v1alpha1.AggregateLabel + "=true"

// right of classbind's account.
type right struct {
	group, resource, name string // The resource may have a subresource after a slash.
	own                   bool   // in classbind's own namespace alone
	verbs                 string // separated by spaces
}

// ownRights are those of deploy/base/rbac.yaml that classbind cannot do without.
var ownRights = []right{
	{group: "classbind.io", resource: "claimkinds", verbs: "get list watch"},
	{group: "classbind.io", resource: "classkinds", verbs: "get list watch"},
	{group: "classbind.io", resource: "claimkinds/status", verbs: "update"},
	{group: "classbind.io", resource: "classkinds/status", verbs: "update"},
	{group: "apiextensions.k8s.io", resource: "customresourcedefinitions", verbs: "get list watch"},
	{group: "storage.k8s.io", resource: "storageclasses", verbs: "list"},
	{group: "admissionregistration.k8s.io", resource: "mutatingwebhookconfigurations", name: "classbind", verbs: "list watch patch"},
	{group: "admissionregistration.k8s.io", resource: "validatingwebhookconfigurations", name: "classbind", verbs: "list watch patch"},
	{resource: "namespaces", verbs: "get list watch"},
	{group: "events.k8s.io", resource: "events", verbs: "create"},
	{group: "coordination.k8s.io", resource: "leases", own: true, verbs: "create get list update watch"},
	{resource: "secrets", name: v1alpha1.CASecret, own: true, verbs: "get"},
	{resource: "secrets", name: v1alpha1.TLSSecret, own: true, verbs: "get"},
	{resource: "events", own: true, verbs: "create patch"},
}

// checkRights says which rights classbind's account lacks.
func checkRights(ctx context.Context, i *installation, s *Section) {
	account := "system:serviceaccount:" + i.own + ":classbind"
	s.Summary = "of " + account
	check := func(r right, where, do string) bool {
		missing, err := i.missing(ctx, account, r)
		if err != nil {
			s.unread("what "+account+" may do", err)
			return false
		}
		if len(missing) > 0 {
			s.found(where, do, "%s may not %s %s", account, strings.Join(missing, ", "), r)
		}
		return true
	}
	for _, r := range ownRights {
		if !check(r, "serviceaccounts/"+i.own+"/classbind", "kubectl apply -k deploy") {
			return
		}
	}
	for _, k := range i.classKinds {
		if !check(rightTo(k.Name, "list watch"), "classkind/"+k.Name, permit) {
			return
		}
	}
	for _, k := range i.claimKinds {
		verbs := ""
		switch {
		case k.Spec.WhenUnmatched == v1alpha1.BindLater:
			verbs = "list watch patch"
		case selector.CountsClaims(k.Spec.Strategy):
			verbs = "list watch"
		}
		if !check(rightTo(k.Name, verbs), "claimkind/"+k.Name, permit) {
			return
		}
	}
}

func rightTo(name, verbs string) right {
	plural, group, _ := strings.Cut(name, ".")
	return right{group: group, resource: plural, verbs: verbs}
}

func (r right) String() string {
	text := r.resource
	if r.group != "" {
		text = fmt.Sprintf("%s of %s", r.resource, r.group)
	}
	if r.name != "" {
		text += fmt.Sprintf(", %q", r.name)
	}
	return text
}

// missing returns the verbs that the account may not use.
func (i *installation) missing(ctx context.Context, account string, r right) (missing []string, err error) {
	resource, subresource, _ := strings.Cut(r.resource, "/")
	for verb := range strings.FieldsSeq(r.verbs) {
		what := authorizationv1.ResourceAttributes{Verb: verb, Group: r.group, Resource: resource, Subresource: subresource, Name: r.name}
		if r.own {
			what.Namespace = i.own
		}
		allowed, err := i.allowed(ctx, account, what)
		if err != nil {
			return nil, err
		}
		if !allowed {
			missing = append(missing, verb)
		}
	}
	return missing, nil
}

// mayDo asks the API server whether a ServiceAccount may do something.
func mayDo(ctx context.Context, api client.Writer, account string, what authorizationv1.ResourceAttributes) (bool, error) {
	namespace, _, _ := strings.Cut(strings.TrimPrefix(account, "system:serviceaccount:"), ":")
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: account, Groups: []string{"system:authenticated", "system:serviceaccounts", "system:serviceaccounts:" + namespace},
		ResourceAttributes: &what,
	}}
	err := api.Create(ctx, review)
	return review.Status.Allowed, err
}
