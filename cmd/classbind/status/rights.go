package status

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/controller/registry"
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

// admission is the group of the webhook configurations.
const admission = "admissionregistration.k8s.io"

// ownRights are those of deploy/base/rbac.yaml that classbind cannot do without.
var ownRights = []right{
	{group: "classbind.io", resource: "claimkinds", verbs: "get list watch"},
	{group: "classbind.io", resource: "classkinds", verbs: "get list watch"},
	{group: "classbind.io", resource: "claimkinds/status", verbs: "update"},
	{group: "classbind.io", resource: "classkinds/status", verbs: "update"},
	{group: "apiextensions.k8s.io", resource: "customresourcedefinitions", verbs: "get list watch"},
	{group: "storage.k8s.io", resource: "storageclasses", verbs: "list"},
	{group: admission, resource: "mutatingwebhookconfigurations", name: v1alpha1.LastConfiguration, verbs: "list watch patch"},
	{group: admission, resource: "mutatingwebhookconfigurations", name: v1alpha1.FirstConfiguration, verbs: "list watch patch"},
	{group: admission, resource: "validatingwebhookconfigurations", name: v1alpha1.ClassConfiguration, verbs: "list watch patch"},
	{group: admission, resource: "mutatingadmissionpolicies", verbs: "list create patch delete"},
	{group: admission, resource: "mutatingadmissionpolicybindings", verbs: "list create patch delete"},
	{resource: "namespaces", verbs: "get list watch"},
	{group: "events.k8s.io", resource: "events", verbs: "create"},
	{group: "coordination.k8s.io", resource: "leases", own: true, verbs: "create delete get list update watch"},
	{resource: "secrets", name: v1alpha1.CASecret, own: true, verbs: "get"},
	{resource: "secrets", name: v1alpha1.TLSSecret, own: true, verbs: "get"},
	{resource: "events", own: true, verbs: "create patch"},
}

// rightsOfIssuer are those that it needs besides, of components/ in deploy/, by who issues
// the certificates.
var rightsOfIssuer = map[string][]right{
	selfSigned: {
		{resource: "secrets", own: true, verbs: "create"},
		{resource: "secrets", name: v1alpha1.CASecret, own: true, verbs: "list watch update"},
	},
	certManager: {
		{resource: "secrets", name: v1alpha1.TLSSecret, own: true, verbs: "list watch"},
	},
}

// rightsOfMetrics are those that it needs besides for --metrics-secure.
var rightsOfMetrics = []right{
	{group: "authentication.k8s.io", resource: "tokenreviews", verbs: "create"},
	{group: "authorization.k8s.io", resource: "subjectaccessreviews", verbs: "create"},
}

// lack of rights.
type lack struct {
	where, do string
	what      []string // as in "may not list golds"
}

// missingRights returns those that classbind's account lacks, once for each that needs
// them.
func (i *installation) missingRights(ctx context.Context) (lacks []lack, err error) {
	add := func(where, do string, rights ...right) {
		l := lack{where: where, do: do}
		for _, r := range rights {
			if err != nil {
				return
			}
			var missing []string
			if missing, err = i.missing(ctx, r); len(missing) > 0 {
				l.what = append(l.what, strings.Join(missing, ", ")+" "+r.String())
			}
		}
		if len(l.what) > 0 {
			lacks = append(lacks, l)
		}
	}
	issuer := i.issuer()
	deploy := "kubectl apply -k deploy"
	if issuer == certManager {
		deploy += "/" + certManager
	}
	rights := slices.Concat(ownRights, rightsOfIssuer[issuer])
	if i.hasArgument("--metrics-secure") {
		rights = append(rights, rightsOfMetrics...)
	}
	add("serviceaccounts/"+i.own+"/"+i.serviceAccount(), deploy, rights...)
	for _, k := range i.classKinds {
		verbs := "list watch"
		if i.givesDefaultByPolicy(&k) { // Who writes a policy must be allowed to read its parameter.
			verbs = "get " + verbs
		}
		add("classkind/"+k.Name, registry.Permit(k.Name), rightTo(k.Name, verbs))
	}
	for _, k := range i.claimKinds {
		verbs := ""
		switch {
		case k.Spec.WhenUnmatched == v1alpha1.BindLater:
			verbs = "list watch patch"
		case selector.CountsClaims(k.Spec.Strategy):
			verbs = "list watch"
		}
		rights := []right{rightTo(k.Resource(), verbs)}
		for _, related := range k.Spec.Related {
			rights = append(rights, rightTo(related.Resource, "list watch"))
		}
		add("claimkind/"+k.Name, permit, rights...)
	}
	return lacks, err
}

// givesDefaultByPolicy says whether an API server may be asked to give a default class of the
// kind itself.
func (i *installation) givesDefaultByPolicy(k *v1alpha1.ClassKind) bool {
	return slices.ContainsFunc(i.claimKinds, func(c v1alpha1.ClaimKind) bool {
		return c.Spec.Defaulting == v1alpha1.DefaultingPolicy && slices.Contains(k.Spec.ClaimKinds, c.Name)
	})
}

// isLacked says whether a right that a registration needs is missing.
func (i *installation) isLacked(where string) bool {
	return slices.ContainsFunc(i.lacks, func(l lack) bool { return l.where == where })
}

// checkRights says which rights classbind's account lacks.
func checkRights(_ context.Context, i *installation, s *Section) {
	s.Summary = "of " + i.account()
	if i.lacksErr != nil {
		s.Summary += ", not all read"
		s.unread("what "+i.account()+" may do", i.lacksErr)
	}
	for _, l := range i.lacks {
		s.found(l.where, l.do, "%s may not %s", i.account(), strings.Join(l.what, "; "))
	}
}

// account of classbind.
func (i *installation) account() string {
	return "system:serviceaccount:" + i.own + ":" + i.serviceAccount()
}

// serviceAccount is that of the Deployment, or that of deploy/ if none was read.
func (i *installation) serviceAccount() string {
	if len(i.deployments) == 0 {
		return "classbind"
	}
	return cmp.Or(i.deployments[0].Spec.Template.Spec.ServiceAccountName, "default")
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
func (i *installation) missing(ctx context.Context, r right) (missing []string, err error) {
	resource, subresource, _ := strings.Cut(r.resource, "/")
	for verb := range strings.FieldsSeq(r.verbs) {
		what := authorizationv1.ResourceAttributes{Verb: verb, Group: r.group, Resource: resource, Subresource: subresource, Name: r.name}
		if r.own {
			what.Namespace = i.own
		}
		allowed, err := i.allowed(ctx, i.account(), what)
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
