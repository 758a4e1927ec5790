package webhookconfig

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/fields"
	"github.com/classbind/classbind/selector/recovered"
)

// rule says which requests the API server sends to us.
type rule = admissionregistrationv1.RuleWithOperations

const anyVersion = "*"

// IsOfAnyVersion reports whether an entry is for claims of all versions: the version for which
// the paths are written was not served when the entry was written.
func IsOfAnyVersion(e *Entry) bool {
	return slices.ContainsFunc(e.Rules, func(r rule) bool { return slices.Contains(r.APIVersions, anyVersion) })
}

func (w *Configurator) claimRule(ctx context.Context, k *v1beta1.ClaimKind, before *Entry) (*rule, error) {
	if w.Registration.Inventory.ClaimKind(k.Name) == nil {
		return nil, errNotRegisteredYet
	}
	found, err := w.Registration.LookUpClaims(ctx, k, "create")
	if errors.Is(err, cluster.ErrVersionNotServed) {
		// Each claim is answered, so its author learns why it cannot be bound.
		found.Version = anyVersion
		return servedRule(k.Resource(), found), err
	}
	return ruleOf(k.Resource(), found, before, err)
}

func (w *Configurator) classRule(ctx context.Context, classKind string, before *Entry) (*rule, error) {
	found, err := w.Registration.Resources.LookUp(ctx, classKind, "list", "watch")
	r, err := ruleOf(classKind, found, before, err)
	if r != nil {
		r.Operations = append(r.Operations, admissionregistrationv1.Update)
	}
	return r, err
}

// ruleOf is for a resource in the version that was found, to which other versions are converted (matchPolicy Equivalent). If the API server
// did not answer, the rule stays as it was in the entry before.
func ruleOf(name string, found cluster.Resource, before *Entry, err error) (*rule, error) {
	switch {
	case err == nil:
		return servedRule(name, found), nil
	case errors.Is(err, cluster.ErrNotInstalled), errors.Is(err, cluster.ErrUnsuitable):
		return nil, err
	case before != nil && len(before.Rules) == 1:
		return newRule(name, before.Rules[0].APIVersions, before.Rules[0].Scope), err
	}
	return nil, err
}

func newRule(name string, versions []string, scope *admissionregistrationv1.ScopeType) *rule {
	plural, group, _ := strings.Cut(name, ".")
	return &rule{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
		Rule: admissionregistrationv1.Rule{
			APIGroups: []string{group}, APIVersions: versions, Resources: []string{plural}, Scope: scope,
		},
	}
}

func servedRule(name string, found cluster.Resource) *rule {
	scope := admissionregistrationv1.ClusterScope
	if found.Namespaced {
		scope = admissionregistrationv1.NamespacedScope
	}
	return newRule(name, []string{found.Version}, &scope)
}

// rulesOf returns the rules of all kinds, nil for a kind without an entry. Kinds that do not answer delay the others for rulesTimeout at
// most. The error says what must be looked at again.
func rulesOf[K any, P interface {
	*K
	client.Object
}](ctx context.Context, kinds []K, ruleOf func(context.Context, P) (*rule, error)) ([]*rule, error) {
	ctx, cancel := context.WithTimeout(ctx, rulesTimeout)
	defer cancel()
	rules, errs := make([]*rule, len(kinds)), make([]error, len(kinds))
	var all errgroup.Group
	all.SetLimit(registry.MaxLookUps)
	for i := range kinds {
		all.Go(func() error {
			errs[i] = recovered.Do(func() (err error) { rules[i], err = ruleOf(ctx, &kinds[i]); return err })
			return nil
		})
	}
	_ = all.Wait() // The errors are in errs.
	incomplete := (*retryLater)(nil)
	for i, err := range errs {
		if err == nil {
			continue
		}
		if incomplete == nil {
			incomplete = &retryLater{fmt.Sprintf("%q: %v", P(&kinds[i]).GetName(), err), registry.RetryAfter, true, false}
		}
		if errors.Is(err, registry.ErrCRDNotServed) || errors.Is(err, cluster.ErrVersionNotServed) || errors.Is(err, errNotRegisteredYet) {
			incomplete.after = registry.RetryCRDAfter
		}
	}
	if incomplete == nil {
		return rules, nil
	}
	return rules, incomplete
}

// Address is where the API server calls us.
type Address struct {
	Namespace string // of classbind
	URL       string // of a webhook server outside the cluster; empty means that Service is called
	Service   string // in front of the webhook server, in Namespace
}

// createAndUpdate are the operations of the entries of claim kinds, because a class reference is put back that an update removes.
var createAndUpdate = []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update}

// claimEntry is without the condition of claims.when if that is the expression that the API server refused.
func (a Address) claimEntry(k *v1beta1.ClaimKind, r rule, ca []byte, refused string) Entry {
	if k.Spec.Reference.OnUnbind != v1beta1.AllowUnbind {
		r.Operations = createAndUpdate
	}
	e := a.entryOfClaims(k, v1beta1.BindSuffix, v1beta1.BindPath, r, ca)
	e.MatchConditions = slices.DeleteFunc(matchConditions(claim.MatchConditions(k)), func(c admissionregistrationv1.MatchCondition) bool {
		return isBindWhen(c) && c.Expression == refused
	})
	e.ReinvocationPolicy = new(admissionregistrationv1.NeverReinvocationPolicy)
	return e
}

// checkEntry is for the claims of a kind that name a class themselves. It validates, because only then has every webhook had its say. The
// rule is that of the entry by which the claims are bound.
func (a Address) checkEntry(k *v1beta1.ClaimKind, r rule, ca []byte) Entry {
	r.Operations = createAndUpdate
	e := a.entryOfClaims(k, v1beta1.CheckSuffix, v1beta1.CheckPath, r, ca)
	e.MatchConditions = matchConditions(claim.CheckConditions(k))
	return e
}

// entryOfClaims has what both entries of a claim kind have.
func (a Address) entryOfClaims(k *v1beta1.ClaimKind, suffix, path string, r rule, ca []byte) Entry {
	e := a.entry(k.Name+suffix, path+k.Name, r, ca, k.Spec.Claims.NamespaceSelector)
	if k.Spec.Admission.FailurePolicy == v1beta1.Ignore {
		e.FailurePolicy = new(admissionregistrationv1.Ignore)
	}
	return e
}

// classEntry has the failurePolicy Fail: without our answer, two defaults could be
// stored permanently. That blocks only a few writes of admins.
func (a Address) classEntry(k *v1beta1.ClassKind, claimKinds []v1beta1.ClaimKind, r rule, ca []byte) Entry {
	e := a.entry(k.Name+v1beta1.GuardSuffix, v1beta1.GuardPath, r, ca, v1beta1.LabelSelector{})
	e.MatchConditions = classConditions(k, claimKinds)
	e.SideEffects = new(admissionregistrationv1.SideEffectClassNoneOnDryRun)
	return e
}

// deletionEntry has the failurePolicy Ignore, unless deletions are refused: without our answer,
// only a warning is missing. It is of all versions: to convert a class for us may fail, which Ignore does not cover.
func (a Address) deletionEntry(k *v1beta1.ClassKind, r rule, ca []byte) Entry {
	r.Operations = []admissionregistrationv1.OperationType{admissionregistrationv1.Delete}
	r.APIVersions = []string{anyVersion}
	e := a.entry(k.Name+v1beta1.DeletionSuffix, v1beta1.DeletionPath, r, ca, v1beta1.LabelSelector{})
	e.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "is-not-by-a-controller", Expression: isByNoController}}
	if !k.Spec.OnDelete.Denies() {
		e.FailurePolicy = new(admissionregistrationv1.Ignore)
		e.TimeoutSeconds = new(int32(v1beta1.DeletionTimeoutSeconds))
	}
	return e
}

// registrationEntry has the failurePolicy Ignore: without our answer, registrations can be mended, and their conditions say what is wrong.
func (a Address) registrationEntry(ca []byte) Entry {
	scope := admissionregistrationv1.ClusterScope
	r := newRule("claimkinds."+v1beta1.GroupVersion.Group, []string{v1beta1.GroupVersion.Version}, &scope)
	r.Operations = append(r.Operations, admissionregistrationv1.Update)
	r.Resources = append(r.Resources, "classkinds")
	e := a.entry(v1beta1.RegistrationEntry, v1beta1.RegistrationPath, *r, ca, v1beta1.LabelSelector{})
	e.FailurePolicy = new(admissionregistrationv1.Ignore)
	return e
}

// entry has what most entries have. A failurePolicy that this release does not know becomes
// Fail: it would make the configuration invalid, which all kinds share.
func (a Address) entry(name, path string, r rule, ca []byte, namespaces v1beta1.LabelSelector) Entry {
	server := admissionregistrationv1.WebhookClientConfig{CABundle: ca}
	if a.URL != "" {
		server.URL = new(strings.TrimSuffix(a.URL, "/") + path)
	} else {
		server.Service = &admissionregistrationv1.ServiceReference{
			Namespace: a.Namespace, Name: a.Service, Path: &path, Port: new(int32(443)),
		}
	}
	return Entry{
		Name:         name,
		ClientConfig: server,
		Rules:        []rule{r},
		// Without the namespaces that the cluster and classbind itself depend on.
		NamespaceSelector:       claim.NamespaceSelector(namespaces, a.Namespace),
		FailurePolicy:           new(admissionregistrationv1.Fail),
		MatchPolicy:             new(admissionregistrationv1.Equivalent),
		SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
		TimeoutSeconds:          new(int32(v1beta1.WebhookTimeoutSeconds)),
		AdmissionReviewVersions: []string{"v1"},
	}
}

// isByNoController is the CEL expression for whether somebody may read the answer. The controllers delete many classes, one after the
// other: they would wait for each answer, and try for ever what is refused. The last user stands for all controllers where they share one.
const isByNoController = `!(request.userInfo.username in ["system:serviceaccount:kube-system:namespace-controller", ` +
	`"system:serviceaccount:kube-system:generic-garbage-collector", "system:kube-controller-manager"])`

func matchConditions(all []claim.MatchCondition) (conditions []admissionregistrationv1.MatchCondition) {
	for _, c := range all {
		conditions = append(conditions, admissionregistrationv1.MatchCondition(c))
	}
	return conditions
}

// classConditions save the API server the call for classes that get neither a mark nor another weight. A mark that is neither true nor
// false is one: its author is warned. Of a kind whose classes may move to other seats, it also calls for every update of a marked class;
// and of one where an expression is the mark or the weight, for every class. The API server could evaluate the expression itself, but would
// refuse the class if that failed.
func classConditions(k *v1beta1.ClassKind, claimKinds []v1beta1.ClaimKind) []admissionregistrationv1.MatchCondition {
	conditions := []admissionregistrationv1.MatchCondition{
		{Name: "is-not-being-deleted", Expression: fields.Path{"metadata", "deletionTimestamp"}.IsUnset("object")},
	}
	if k.Spec.Default.Expression != "" || k.Spec.Weight.Expression != "" {
		return conditions
	}
	name, marked := "gets-a-mark-or-a-weight", value.gets
	if movesSeats(k, claimKinds) {
		name, marked = "has-a-mark-or-gets-a-weight", value.has
	}
	terms := []string{valueAt(v1beta1.Place{Annotation: v1beta1.CordonedAnnotation}).gets(`"true"`, `"false"`)}
	for _, p := range k.Spec.Default.Places() {
		terms = append(terms, marked(valueAt(p), `false`, `"false"`))
	}
	for i, p := range k.Spec.Weight.Places() {
		if terms = append(terms, valueAt(p).gets()); i > 0 { // It counts where the one before it is taken away.
			before := valueAt(k.Spec.Weight.Places()[i-1])
			terms = append(terms, before.wasSet+" && !("+before.isSet+")")
		}
	}
	return append(conditions, admissionregistrationv1.MatchCondition{Name: name, Expression: fmt.Sprintf(
		`[[object, oldObject].map(o, %s ? %s : dyn({}))].exists(a, %s)`,
		annotations.IsSet("o"), annotations.At("o"), strings.Join(terms, " || "))})
}

var annotations = fields.Path{"metadata", "annotations"}

// value of a class has CEL expressions: whether it is set, and which it is, now and before. The variable a has the
// annotations now and before: an expression that looks them up again for each value takes five times as long to compile.
type value struct{ isSet, is, wasSet, was string }

func valueAt(p v1beta1.Place) value {
	if p.Annotation != "" {
		return value{
			fmt.Sprintf("%q in a[0]", p.Annotation), fmt.Sprintf("a[0][%q]", p.Annotation),
			fmt.Sprintf("%q in a[1]", p.Annotation), fmt.Sprintf("a[1][%q]", p.Annotation),
		}
	}
	path := fields.Path(p.Names())
	return value{path.IsSet("object"), path.At("object"), path.IsSet("oldObject"), path.At("oldObject")}
}

// has is the CEL expression for whether the object has the value, and that it is none of these.
func (v value) has(but ...string) string {
	terms := []string{v.isSet}
	for _, other := range but {
		terms = append(terms, v.is+" != "+other)
	}
	return strings.Join(terms, " && ")
}

// gets is the CEL expression that says the same, and that the old object has another value.
func (v value) gets(but ...string) string {
	return v.has(but...) + fmt.Sprintf(" && !(%s && %s == %s)", v.wasSet, v.is, v.was)
}

// movesSeats reports whether an update may move a default class of a kind to another seat: it has
// fits or one of its ClaimKinds has fits or partitions.
func movesSeats(k *v1beta1.ClassKind, claimKinds []v1beta1.ClaimKind) bool {
	return len(k.Spec.Fits) > 0 || slices.ContainsFunc(claimKinds, func(c v1beta1.ClaimKind) bool {
		return (c.Spec.Classes.Partition != nil || len(c.Spec.Classes.Fits) > 0) && k.Serves(&c)
	})
}
