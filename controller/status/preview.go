package status

import (
	"cmp"
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/controller/webhookconfig"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/rules"
)

// maxProbed limits the class kinds of a ClaimKind that the API server is asked about in one review, and the names that
// are looked for: each may cost a few requests. Beyond it, only the status says more.
const maxProbed = 4

// Preview says of a registration, before it is stored, what its conditions will say is wrong. It runs on every replica.
// What a later registration or right will mend counts, too, but that no class kind serves a claim kind yet: mostly, its
// ClassKind is the next document of the same file.
type Preview struct {
	Registration *registry.Registration
	Cache, Live  client.Reader // of registrations, which the cache may not have yet
}

// ClaimKind returns what is wrong with a ClaimKind, the gravest first.
func (p *Preview) ClaimKind(ctx context.Context, k *v1beta1.ClaimKind) (problems []string) {
	claimKinds, classKinds, err := registry.List(ctx, p.Cache)
	if err != nil {
		problems = append(problems, err.Error())
	}
	serving := rules.Serving(k, classKinds)
	kind := selector.NewClaimKind(k, serving...)
	problems = append(problems, unmet(expressionsValid(kind.Rules.InvalidExpressions(), nil))...)
	paths := p.Registration.ComparePaths(ctx, k, kind)
	view, states := p.view(ctx, k, kind, serving)
	problems = append(problems, conflicts(k, claimKinds)...)
	if why := claim.StopsStart(k); why != "" {
		problems = append(problems, why)
	}
	if view.Fault != nil && view.Fault.Reason == v1beta1.ReasonUnknownValue {
		problems = append(problems, view.Fault.Text)
	}
	problems = append(problems, unmet(paths.Condition(view))...)
	for _, leftOut := range view.LeftOut {
		problems = append(problems, view.FaultOf(leftOut.Name).Text)
	}
	problems = append(problems, unmet(classKindsRead(view.Unread, func(name string) string { return states[name].Message }))...)
	names := make([]string, len(k.Spec.Classes.Kinds))
	for i, named := range k.Spec.Classes.Kinds {
		names[i] = named.Name
	}
	problems = append(problems, p.unregistered(ctx, "spec.classes.kinds", "ClassKind", names, &v1beta1.ClassKind{})...)
	for _, state := range p.Registration.ProbeRelated(ctx, kind.RelatedKinds()) {
		problems = append(problems, state.Message)
	}
	problems = append(problems, p.policies(ctx, k)...)
	switch {
	case k.Spec.WhenUnmatched == v1beta1.BindLater:
		err := p.Registration.ProbeClaims(ctx, k, "list", "watch", "patch")
		problems = append(problems, unmet(lateBinding(cmp.Or(err, refusedLater(paths.Check))))...)
	case kind.Counted:
		problems = append(problems, unmet(claimsCounted(p.Registration.ProbeClaims(ctx, k, "list", "watch")))...)
	}
	// Last: many schemas may use up the deadline of the review.
	return append(problems, mistyped(p.Registration.Types(ctx, k))...)
}

// policies says which of the policies that a ClaimKind asks for classbind may not write. Without an answer, it says nothing.
func (p *Preview) policies(ctx context.Context, k *v1beta1.ClaimKind) (problems []string) {
	permitted := func(resource string) outcomes {
		return outcomeFunc(func(string) (o webhookconfig.PolicyOutcome, known bool) {
			if err := p.Registration.ProbePolicies(ctx, resource); apierrors.IsForbidden(err) {
				o.Fault = webhookconfig.NotPermitted(err)
			}
			return o, true
		})
	}
	problems = append(problems, unmet(defaulting(permitted("mutatingadmissionpolicies"), k))...)
	return append(problems, unmet(use(permitted("validatingadmissionpolicies"), k))...)
}

type outcomeFunc func(claimKind string) (webhookconfig.PolicyOutcome, bool)

func (f outcomeFunc) Outcome(claimKind string) (webhookconfig.PolicyOutcome, bool) {
	return f(claimKind)
}

// view of the claims of a kind, without a class, and the states of the class kinds that serve it.
func (p *Preview) view(
	ctx context.Context, k *v1beta1.ClaimKind, kind *selector.ClaimKind, serving []*v1beta1.ClassKind,
) (*selector.View, map[string]registry.State) {
	states, probed := map[string]registry.State{}, 0
	var classes []*inventory.Classes
	var unread []selector.UnreadKind
	for _, ck := range serving {
		state := p.Registration.ClassKinds.State(ck.Name)
		if state.Classes == nil && probed < maxProbed {
			probed++
			state = p.Registration.ProbeClasses(ctx, ck, k)
		}
		states[ck.Name] = state
		switch {
		case state.Classes != nil:
			classes = append(classes, inventory.NewClasses(state.Classes.Kind, nil))
		case state.Reason != v1beta1.ReasonNotInstalled && state.Reason != v1beta1.ReasonUnsuitable:
			unread = append(unread, selector.UnreadKind{Name: ck.Name, Reason: state.Reason})
		}
	}
	view := selector.NewView(kind, classes)
	view.Unread = unread
	return view, states
}

// conflicts are those of a ClaimKind with these: what binds no claim for it, or for which it binds none.
func conflicts(k *v1beta1.ClaimKind, all []v1beta1.ClaimKind) (problems []string) {
	if fault := selector.ConflictOf(k, all); fault != nil {
		return []string{fault.Text}
	}
	for i := range all {
		if fault := selector.ConflictOf(&all[i], []v1beta1.ClaimKind{*k}); fault != nil && len(problems) < v1beta1.MaxErrors {
			problems = append(problems, fault.Text)
		}
	}
	return problems
}

// ClassKind returns what is wrong with a ClassKind.
func (p *Preview) ClassKind(ctx context.Context, k *v1beta1.ClassKind) []string {
	problems := unmet(expressionsValid(rules.InvalidOfClasses(k), nil))
	if state := p.Registration.ProbeClasses(ctx, k); state.Classes == nil {
		problems = append(problems, state.Message)
	}
	for _, state := range p.Registration.ProbeRelated(ctx, rules.Kinds(rules.NewForClasses(k).RelatedFor())) {
		problems = append(problems, state.Message)
	}
	names := make([]string, len(k.Spec.ClaimKinds))
	for i, named := range k.Spec.ClaimKinds {
		names[i] = named.Name
	}
	problems = append(problems, p.unregistered(ctx, "spec.claimKinds", "ClaimKind", names, &v1beta1.ClaimKind{})...)
	if k.CountsClaims() {
		claimKinds, _, _ := registry.List(ctx, p.Cache) // The status says what is wrong with those that are not known here.
		served := rules.Served(k, claimKinds)
		for _, c := range served[:min(len(served), maxProbed)] {
			problems = append(problems, unmet(claimsCounted(p.Registration.ProbeClaims(ctx, c, "list", "watch")))...)
		}
	}
	return append(problems, mistyped(p.Registration.Types(ctx, k))...)
}

// mistyped says which expressions fail by the schemas, and if not all schemas were read before the deadline of the review.
func mistyped(types registry.Types) []string {
	problems := unmet(expressionsValid(nil, types.Mistyped))
	if types.Err != nil {
		problems = append(problems, fmt.Sprintf("not all expressions are compared with the schemas: %v", types.Err))
	}
	return problems
}

// unregistered says which of these names in a field no registration of a kind has, of maxProbed names at most.
func (p *Preview) unregistered(
	ctx context.Context, field, kind string, names []string, registration client.Object,
) (problems []string) {
	asked, missing := 0, []string(nil)
	for _, name := range names {
		key := client.ObjectKey{Name: name}
		if p.Cache.Get(ctx, key, registration) == nil {
			continue
		}
		if asked++; asked > maxProbed {
			break
		}
		switch err := p.Live.Get(ctx, key, registration); {
		case apierrors.IsNotFound(err):
			missing = append(missing, name)
		case err != nil:
			problems = append(problems, fmt.Sprintf("cannot determine whether there is a %s %q: %v", kind, name, err))
		}
	}
	if len(missing) > 0 {
		problems = append(problems, unregistered(field, kind, missing))
	}
	return problems
}

// unmet is the message of a condition that is not met, or may not be met. A schema that
// allows anything is no reason to warn.
func unmet(c metav1.Condition) []string {
	if c.Type == "" || c.Status == metav1.ConditionTrue || c.Reason == v1beta1.ReasonSchemaUnknown {
		return nil // It is not asked for, is met, or cannot be determined.
	}
	return []string{c.Message}
}
