package webhookconfig

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/loop"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/truncate"
)

const (
	// policyDelay gathers the changes of classes within it into one round.
	policyDelay = 200 * time.Millisecond
	// policyCheckEvery is how often the policies are compared with those that are due. They
	// are not watched, because many API servers do not serve them.
	policyCheckEvery = 15 * time.Second
	// crdSettles is how long after the creation of a CRD its claims may get a policy. An API
	// server learns every 5 s which schemas there are, and refuses claims for which a policy
	// is in force before it has learned of theirs (503, whatever the failurePolicy).
	crdSettles = 10 * time.Second
)

// Policies writes the policies of the claim kinds that ask for one. It runs on the leader, and
// says which kinds have one after the last round.
type Policies struct {
	Registration *registry.Registration
	Client       client.Client
	// Live reads from the API server itself.
	Live client.Reader

	outcomes loop.Published[PolicyOutcome]
	compared comparison
}

// comparison is the last one of the policies that are due with those that are stored. Its
// time is zero if that failed.
type comparison struct {
	at  time.Time
	due duePolicies
	// failed are the kinds whose policy could not be written.
	failed map[string]PolicyOutcome
}

// covers says that nothing has changed since then, and that it was not long ago.
func (c *comparison) covers(due duePolicies) bool {
	if c.at.IsZero() || !reflect.DeepEqual(due.policies, c.due.policies) || !maps.EqualFunc(due.kept, c.due.kept, slices.Equal) {
		return false
	}
	return len(due.policies)+len(due.kept) == 0 || time.Since(c.at) < policyCheckEvery-policyDelay
}

// PolicyOutcome is what became of the policy of a claim kind that asks for one: the class that
// it gives, or why there is none.
type PolicyOutcome struct {
	Class string
	Fault *inventory.Fault
}

// Outcome of a claim kind that asks for a policy, false if no round had it yet.
func (p *Policies) Outcome(claimKind string) (PolicyOutcome, bool) { return p.outcomes.Get(claimKind) }

// OnChange calls a function with the name of each claim kind whose outcome changed, until
// the context ends.
func (p *Policies) OnChange(ctx context.Context, call func(claimKind string)) {
	p.outcomes.Add(ctx, call)
}

// duePolicy is the policy that a claim kind should have, with its binding.
type duePolicy struct {
	policy  *admissionregistrationv1.MutatingAdmissionPolicy
	binding *admissionregistrationv1.MutatingAdmissionPolicyBinding
}

// SetupWithManager adds the controller of the policies. It follows the entries, since only a kind
// with an entry has a policy: what the policy does not bind comes to us.
func (p *Policies) SetupWithManager(mgr ctrl.Manager) error {
	const name = "default-policies"
	toRound := loop.ForRound(name)
	err := ctrl.NewControllerManagedBy(mgr).Named(name).
		Watches(&admissionregistrationv1.MutatingWebhookConfiguration{}, toRound).
		Watches(&v1beta1.ClaimKind{}, toRound, loop.RevisionChanged).
		WatchesRawSource(loop.Requests(func(ctx context.Context, request func(string, time.Duration)) {
			p.Registration.OnChange(ctx, func(*inventory.ClassKind) { request(name, policyDelay) })
			p.Registration.OnRegistered(ctx, func(string) { request(name, policyDelay) })
		})).
		Complete(loop.ByName(func(ctx context.Context, _ string) (ctrl.Result, error) { return p.reconcile(ctx) }))
	if err != nil {
		return fmt.Errorf("cannot set up the %s: %w", name, err)
	}
	return nil
}

func (p *Policies) reconcile(ctx context.Context) (ctrl.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	due, err := p.due(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !p.compared.covers(due) {
		p.compared = comparison{} // If it fails, the next round tries again.
		failed, err := p.write(ctx, due)
		if err != nil {
			return ctrl.Result{}, truncate.Error(err)
		}
		p.compared = comparison{time.Now(), due, failed}
	}
	maps.Copy(due.outcomes, p.compared.failed)
	p.outcomes.Set(due.outcomes)
	if due.soon {
		return ctrl.Result{RequeueAfter: registry.RetryCRDAfter}, nil
	}
	return ctrl.Result{RequeueAfter: policyCheckEvery}, nil
}

// duePolicies are those that the claim kinds should have, by claim kind.
type duePolicies struct {
	policies map[string]duePolicy
	// outcomes of the kinds that ask for one.
	outcomes map[string]PolicyOutcome
	// kept are the kinds that this replica does not know well enough yet. They keep what they
	// have, if it has one of these RegistrationsAnnotations.
	kept map[string][]string
	// soon says that there may be more in a moment.
	soon bool
}

func (p *Policies) due(ctx context.Context) (due duePolicies, err error) {
	due = duePolicies{policies: map[string]duePolicy{}, outcomes: map[string]PolicyOutcome{}, kept: map[string][]string{}}
	kinds, classKinds, err := registry.List(ctx, p.Client)
	if err != nil {
		return due, err
	}
	asks := func(k v1beta1.ClaimKind) bool { return k.Spec.Admission.Defaulting == v1beta1.DefaultingPolicy }
	if !slices.ContainsFunc(kinds, asks) {
		return due, nil
	}
	configurations, err := ReadConfigurations(ctx, p.Client, ClaimConfigurations...)
	if err != nil {
		return due, err
	}
	snapshot := p.Registration.Inventory.Snapshot()
	for i := range kinds {
		k := &kinds[i]
		if !asks(*k) {
			continue
		}
		view := snapshot[k.Name]
		registered := view != nil && view.Kind.Revision == inventory.RevisionOf(k)
		fault := selector.ConflictOf(k, kinds) // The inventory may hear of it later.
		if fault == nil && (!registered || view.Missing != nil && view.Fault == view.Missing) {
			due.kept[k.Name] = registrationsOf(k, classKinds)
			due.soon = due.soon || !registered
			continue
		}
		var class *inventory.Class
		if fault == nil {
			class, fault, err = p.defaultOf(ctx, k, snapshot, configurations)
		}
		if err != nil {
			return due, err
		}
		if fault != nil {
			due.outcomes[k.Name] = PolicyOutcome{Fault: fault}
			due.soon = due.soon || fault.Reason == v1beta1.ReasonNotConfigured
			continue
		}
		due.outcomes[k.Name] = PolicyOutcome{Class: class.String()}
		due.policies[k.Name] = newDuePolicy(k, view.Kind, class, configurations)
	}
	return due, nil
}

// defaultOf a claim kind is the class that a policy can give its claims now, or why none can.
func (p *Policies) defaultOf(
	ctx context.Context, k *v1beta1.ClaimKind, snapshot selector.Snapshot, configurations Configurations,
) (*inventory.Class, *inventory.Fault, error) {
	view := snapshot[k.Name]
	if fault := snapshot.OrderMatters(view.Kind); fault != nil {
		return nil, fault, nil
	}
	class, fault := view.PolicyDefault()
	if fault != nil {
		return nil, fault, nil
	}
	fault, err := p.tooEarly(ctx, k, view.Kind, configurations)
	return class, fault, err
}

// registrationsOf are the RegistrationsAnnotations that the policy of a claim kind may have: one
// for each class kind whose class may be the default.
func registrationsOf(k *v1beta1.ClaimKind, classKinds []v1beta1.ClassKind) (texts []string) {
	for i := range classKinds {
		if c := &classKinds[i]; c.Serves(k) {
			texts = append(texts, registrationsText(inventory.RevisionOf(k), c.Name, inventory.RevisionOf(c)))
		}
	}
	slices.Sort(texts)
	return texts
}

func registrationsText(claimKind inventory.Revision, name string, classKind inventory.Revision) string {
	return fmt.Sprintf("%s/%d %s %s/%d", claimKind.UID, claimKind.Generation, name, classKind.UID, classKind.Generation)
}

// tooEarly says why a claim kind cannot have a policy yet, nil if it can.
func (p *Policies) tooEarly(
	ctx context.Context, k *v1beta1.ClaimKind, kind *selector.ClaimKind, all Configurations,
) (*inventory.Fault, error) {
	notYet := func(why string) (*inventory.Fault, error) {
		return &inventory.Fault{Reason: v1beta1.ReasonNotConfigured, Text: why}, nil
	}
	// The paths are written for one version.
	if e := all.Entry(k.Spec.Admission.Order.Configuration(), k.Name+v1beta1.BindSuffix); e == nil || IsOfAnyVersion(e) || !isOf(e, kind) {
		return notYet("the webhook configuration has no entry for it yet")
	}
	crd := cluster.CRD()
	err := p.Client.Get(ctx, client.ObjectKey{Name: k.Resource()}, crd)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("cannot get the CRD of %q: %w", k.Resource(), err)
	}
	if err == nil && time.Since(crd.CreationTimestamp.Time) < crdSettles {
		return notYet("the CRD is new, and the API server does not know its schema yet")
	}
	return nil, nil //nolint:nilnil // It is not too early.
}

// isOf reports whether an entry is for the claims that a kind reads.
func isOf(e *Entry, kind *selector.ClaimKind) bool {
	return !slices.ContainsFunc(e.Rules, func(r rule) bool {
		return len(r.APIGroups) != 1 || len(r.APIVersions) != 1 || len(r.Resources) != 1 ||
			!kind.Reads(metav1.GroupVersionResource{Group: r.APIGroups[0], Version: r.APIVersions[0], Resource: r.Resources[0]})
	})
}

func newDuePolicy(k *v1beta1.ClaimKind, kind *selector.ClaimKind, class *inventory.Class, all Configurations) duePolicy {
	in := all[k.Spec.Admission.Order.Configuration()]
	about := metav1.ObjectMeta{
		Name:   k.Name + v1beta1.PolicySuffix,
		Labels: map[string]string{v1beta1.ManagedByLabel: v1beta1.ManagedBy},
		Annotations: map[string]string{
			v1beta1.RegistrationsAnnotation: registrationsText(kind.Revision, class.Kind.Name, class.Kind.Revision),
		},
		// Where classbind is uninstalled, the configuration goes, and so does the policy.
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "MutatingWebhookConfiguration",
			Name: in.Name, UID: in.UID,
		}},
	}
	return duePolicy{
		policy: &admissionregistrationv1.MutatingAdmissionPolicy{
			ObjectMeta: about, Spec: policySpec(k, kind, class, all.Entry(in.Name, k.Name+v1beta1.BindSuffix)),
		},
		binding: &admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: about, Spec: bindingSpec(about.Name, class)},
	}
}
