package webhookconfig

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/loop"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/recovered"
	"github.com/classbind/classbind/selector/truncate"
)

const (
	policyDelay = 200 * time.Millisecond // gathers the changes of classes within it into one round
	// policyCheckEvery is how often the policies are compared with those that are due. They
	// are not watched, because many API servers do not serve them.
	policyCheckEvery = 15 * time.Second
	// crdSettles is how long after the creation of a CRD its claims may get a policy. An API server learns every 5 s which schemas there
	// are, and refuses claims for which a policy is in force before it has learned of theirs (503, whatever the failurePolicy).
	crdSettles = 10 * time.Second
)

// PolicyKind is a kind of policy that API servers evaluate themselves, and what the leader makes one for.
type PolicyKind struct {
	name, since string // The kind of the binding has Binding after it.
	controller  string // its name
	suffix      string // of the names of policies and bindings
	enforces    bool   // Claims are worse off without a stored one than with one that is out of date.
	lists       func() (policies, bindings client.ObjectList)
	asks        func(*v1beta1.ClaimKind) bool
	// due is what a claim kind that asks should have, nil for none yet. Its view is there, and as it is registered.
	due func(*Policies, context.Context, *v1beta1.ClaimKind, selector.Snapshot, Configurations) (*duePolicy, PolicyOutcome, error)
}

// DefaultPolicies have API servers give the default class to claims. Where there is none, claims come to us.
var DefaultPolicies = PolicyKind{
	name: "MutatingAdmissionPolicy", since: "1.36", controller: "default-policies", suffix: v1beta1.PolicySuffix,
	lists: func() (policies, bindings client.ObjectList) {
		return &admissionregistrationv1.MutatingAdmissionPolicyList{}, &admissionregistrationv1.MutatingAdmissionPolicyBindingList{}
	},
	asks: func(k *v1beta1.ClaimKind) bool { return k.Spec.Admission.Defaulting == v1beta1.DefaultingPolicy },
	due:  (*Policies).dueDefault,
}

// Policies writes the policies of one kind for the claim kinds that ask for one. It runs on the leader, and
// says which kinds have one after the last round.
type Policies struct {
	Kind         PolicyKind
	Registration *registry.Registration
	Client       client.Client
	Live         client.Reader // from the API server itself

	outcomes loop.Published[PolicyOutcome]
	compared comparison
	disputes disputes
}

// comparison is the last one of the policies that are due with those that are stored. Its time is zero if that failed.
type comparison struct {
	at     time.Time
	due    duePolicies
	failed map[string]PolicyOutcome // of the kinds whose policy could not be written, or is changed by other clients
}

// covers reports whether nothing has changed since then, and that it was not long ago.
func (c *comparison) covers(due duePolicies) bool {
	if c.at.IsZero() || !reflect.DeepEqual(due.policies, c.due.policies) || !maps.EqualFunc(due.kept, c.due.kept, slices.Equal) {
		return false
	}
	return len(due.policies)+len(due.kept) == 0 || time.Since(c.at) < policyCheckEvery-policyDelay
}

// PolicyOutcome is what became of the policy of a claim kind that asks for one: the class that
// it gives, if it gives one, or why it is not there or does not do what was asked for.
type PolicyOutcome struct {
	Class  string
	Fault  *inventory.Fault
	Others string // what other clients do to it, empty if they do nothing
}

// Outcome of a claim kind that asks for a policy, false if no round had it yet.
func (p *Policies) Outcome(claimKind string) (PolicyOutcome, bool) { return p.outcomes.Get(claimKind) }

// OnChange calls a function with the name of each claim kind whose outcome changed, until the context ends.
func (p *Policies) OnChange(ctx context.Context, call func(claimKind string)) {
	p.outcomes.Add(ctx, call)
}

// duePolicy is the policy that a claim kind should have, with its binding.
type duePolicy struct{ policy, binding client.Object }

// SetupWithManager adds the controller of the policies. It follows the entries, since only a kind
// with an entry has a policy: what the policy does not bind comes to us.
func (p *Policies) SetupWithManager(mgr ctrl.Manager) error {
	listen := func(ctx context.Context, request func(time.Duration)) {
		p.Registration.ClassKinds.OnChange(ctx, func(*inventory.ClassKind) { request(policyDelay) })
		p.Registration.OnRegistered(ctx, func(string) { request(policyDelay) })
	}
	on := watches{&admissionregistrationv1.MutatingWebhookConfiguration{}: nil, &v1beta1.ClaimKind{}: {loop.RevisionChanged}}
	return setUpRounds(mgr, p.Kind.controller, on, listen, p.reconcile)
}

func (p *Policies) reconcile(ctx context.Context) (ctrl.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	due, err := p.due(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !p.compared.covers(due) {
		before := p.compared.due.policies
		p.compared = comparison{} // If it fails, the next round tries again.
		failed, err := p.write(ctx, due, before)
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) { // Somebody wrote since, such as another leader.
			return ctrl.Result{RequeueAfter: policyDelay}, nil
		}
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
	outcomes map[string]PolicyOutcome // of the kinds that ask for one
	// kept are the kinds that keep what they have: of a PolicyKind that enforces, all that ask; of another, those that this
	// replica does not know well enough yet, if what they have has one of these RegistrationsAnnotations.
	kept map[string][]string
	soon bool // There may be more in a moment.
}

func (p *Policies) due(ctx context.Context) (due duePolicies, err error) {
	due = duePolicies{policies: map[string]duePolicy{}, outcomes: map[string]PolicyOutcome{}, kept: map[string][]string{}}
	kinds, classKinds, err := registry.List(ctx, p.Client)
	if err != nil {
		return due, err
	}
	if !slices.ContainsFunc(kinds, func(k v1beta1.ClaimKind) bool { return p.Kind.asks(&k) }) {
		return due, nil
	}
	configurations, err := ReadConfigurations(ctx, p.Client, ClaimConfigurations...)
	if err != nil {
		return due, err
	}
	snapshot := p.Registration.Inventory.Snapshot()
	for i := range kinds {
		k := &kinds[i]
		if !p.Kind.asks(k) {
			continue
		}
		view := snapshot[k.Name]
		registered := view != nil && view.Kind.Revision == inventory.RevisionOf(k)
		outcome := PolicyOutcome{Fault: selector.ConflictOf(k, kinds)} // The inventory may learn of it later.
		isUnknown := outcome.Fault == nil && (!registered || view.Missing != nil && view.Fault == view.Missing)
		if isUnknown || p.Kind.enforces {
			due.kept[k.Name] = registrationsOf(k, classKinds)
		}
		if isUnknown {
			due.soon = due.soon || !registered
			continue
		}
		var policy *duePolicy
		if outcome.Fault == nil {
			err = recovered.Do(func() (err error) {
				policy, outcome, err = p.Kind.due(p, ctx, k, snapshot, configurations)
				return err
			})
		}
		if err != nil { // It keeps what it has, and the others get what is due.
			logf.FromContext(ctx).Error(err, "Cannot determine which policy is due", "claimKind", k.Name)
			due.kept[k.Name], due.soon = registrationsOf(k, classKinds), true
			continue
		}
		due.outcomes[k.Name] = outcome
		due.soon = due.soon || outcome.Fault != nil && outcome.Fault.Reason == v1beta1.ReasonNotConfigured
		if policy != nil {
			due.policies[k.Name] = *policy
		}
	}
	return due, nil
}

func noPolicy(fault *inventory.Fault) (*duePolicy, PolicyOutcome, error) {
	return nil, PolicyOutcome{Fault: fault}, nil
}

// dueDefault is for the class that a policy can give the claims of a kind now.
func (p *Policies) dueDefault(
	ctx context.Context, k *v1beta1.ClaimKind, snapshot selector.Snapshot, all Configurations,
) (*duePolicy, PolicyOutcome, error) {
	view := snapshot[k.Name]
	if fault := snapshot.OrderMatters(view.Kind); fault != nil {
		return noPolicy(fault)
	}
	class, fault := view.PolicyDefault(ctx)
	if fault != nil {
		return noPolicy(fault)
	}
	fault, err := p.tooEarly(ctx, k, view.Kind, all)
	if fault != nil || err != nil {
		return nil, PolicyOutcome{Fault: fault}, err
	}
	about := policyMeta(k, v1beta1.PolicySuffix, registrationsText(view.Kind.Revision, class.Kind.Name, class.Kind.Revision), all)
	return &duePolicy{
		&admissionregistrationv1.MutatingAdmissionPolicy{
			ObjectMeta: about, Spec: policySpec(k, view.Kind, class, all.ClaimEntryOf(k)),
		},
		&admissionregistrationv1.MutatingAdmissionPolicyBinding{
			ObjectMeta: about, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{
				PolicyName: about.Name, ParamRef: &admissionregistrationv1.ParamRef{
					Name: class.Name, Namespace: class.Namespace, ParameterNotFoundAction: new(admissionregistrationv1.AllowAction),
				},
			},
		},
	}, PolicyOutcome{Class: class.String()}, nil
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

// notEntered is the fault that there is no entry by which the claims of a kind are bound, nil if there is one. The paths
// are written for one version.
func notEntered(k *v1beta1.ClaimKind, kind *selector.ClaimKind, all Configurations) *inventory.Fault {
	if e := all.ClaimEntryOf(k); e == nil || IsOfAnyVersion(e) || !isOf(e, kind) {
		return &inventory.Fault{Reason: v1beta1.ReasonNotConfigured, Text: "the webhook configuration has no entry for it yet"}
	}
	return nil
}

// tooEarly says why a claim kind cannot have a policy that changes claims yet, nil if it can.
func (p *Policies) tooEarly(
	ctx context.Context, k *v1beta1.ClaimKind, kind *selector.ClaimKind, all Configurations,
) (*inventory.Fault, error) {
	if fault := notEntered(k, kind, all); fault != nil {
		return fault, nil
	}
	crd := cluster.CRD()
	err := p.Client.Get(ctx, client.ObjectKey{Name: k.Resource()}, crd)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("cannot get the CRD of %q: %w", k.Resource(), err)
	}
	if err == nil && time.Since(crd.CreationTimestamp.Time) < crdSettles {
		return &inventory.Fault{
			Reason: v1beta1.ReasonNotConfigured, Text: "the CRD is new, and the API server does not know its schema yet",
		}, nil
	}
	return nil, nil // It is not too early.
}

// isOf reports whether an entry is for the claims that a kind reads.
func isOf(e *Entry, kind *selector.ClaimKind) bool {
	return !slices.ContainsFunc(e.Rules, func(r rule) bool {
		return len(r.APIGroups) != 1 || len(r.APIVersions) != 1 || len(r.Resources) != 1 ||
			!kind.Reader.Reads(metav1.GroupVersionResource{Group: r.APIGroups[0], Version: r.APIVersions[0], Resource: r.Resources[0]})
	})
}

// policyMeta of a policy and of its binding. Where classbind is uninstalled, the configuration goes, and so do they.
func policyMeta(k *v1beta1.ClaimKind, suffix, registrations string, all Configurations) metav1.ObjectMeta {
	in := all[k.Spec.Admission.Order.Configuration()]
	return metav1.ObjectMeta{
		Name:        k.Name + suffix,
		Labels:      map[string]string{v1beta1.ManagedByLabel: v1beta1.ManagedBy},
		Annotations: map[string]string{v1beta1.RegistrationsAnnotation: registrations},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "MutatingWebhookConfiguration",
			Name: in.Name, UID: in.UID,
		}},
	}
}

// matchConstraints are for the requests with these operations among those for which an entry calls us.
func matchConstraints(entry *Entry, operations ...admissionregistrationv1.OperationType) *admissionregistrationv1.MatchResources {
	constraints := &admissionregistrationv1.MatchResources{
		NamespaceSelector: entry.NamespaceSelector, MatchPolicy: entry.MatchPolicy,
		ObjectSelector: &metav1.LabelSelector{}, // As the API server stores it.
	}
	for _, r := range entry.Rules {
		r.Operations = operations
		constraints.ResourceRules = append(constraints.ResourceRules,
			admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: r})
	}
	return constraints
}
