package registry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/rules"
)

// OnRelatedChange calls a function with the name of each claim kind whose RelatedState changed, until the context ends.
func (r *RelatedKinds) OnRelatedChange(ctx context.Context, call func(claimKind string)) {
	r.changed.Add(ctx, call)
}

// OnClassesRelatedChange does the same with each class kind whose ClassesRelatedState changed.
func (r *RelatedKinds) OnClassesRelatedChange(ctx context.Context, call func(classKind string)) {
	r.ofClasses.Add(ctx, call)
}

// RelatedState of a claim kind is that of the first related kind which is not known, or else not known as it is now.
func (r *RelatedKinds) RelatedState(claimKind string) (state State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.claimKinds[claimKind].kind
	if k == nil {
		return state
	}
	state = r.stateOf(k.RelatedKinds(), "claims")
	for i := range k.Rules.Related {
		of := k.Rules.Related[i].Kind
		if objects := r.related[of.Key()].objects; state.Known && len(of.Selectors) > 0 && !objects.Namespaced {
			if all, n := objects.AsOf(time.Now()).Selected(of, ""); all == nil { // It stops all claims of the kind.
				state.Reason, state.Message = v1beta1.ReasonTooLarge, claim.TooManyRelated(claimKind, of, "", n)
			}
		}
	}
	return state
}

// ClassesRelatedState is the same for what the classes of a kind name.
func (r *RelatedKinds) ClassesRelatedState(classKind string) (state State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.classKinds[classKind]
	if len(all) == 0 {
		return state
	}
	k := all[len(all)-1]
	if state = r.stateOf(k.RelatedKinds(), "classes"); !state.Known || k.Namespaced {
		return state
	}
	for _, of := range k.Related {
		if objects := r.related[of.Kind.Key()].objects; objects != nil && objects.Namespaced && of.ObjectNamespace == nil {
			state.Reason = v1beta1.ReasonNamespaceUnknown
			state.Message = fmt.Sprintf("the objects of %q have a namespace, and the classes have none, so no class names one: set %s",
				of.Kind.Key(), of.NamespaceField)
		}
	}
	return state
}

// stateOf what some objects name. The caller holds mu.
func (r *RelatedKinds) stateOf(kinds []*rules.Kind, what string) (state State) {
	for _, needed := range kinds {
		s := r.related[needed.Key()].stateFor(needed, what)
		if state.Reason == "" || state.Known && !s.Known || state.Reason == v1beta1.ReasonServed {
			state = s
		}
	}
	return state
}

const permitRelated = "label a ClusterRole that allows list and watch with " + v1beta1.AggregateLabel + "=true"

// stateFor a registration that needs these objects, which its claims or classes name.
func (k *relatedKind) stateFor(needed *rules.Kind, what string) State {
	resource, known := fmt.Sprintf("%q", needed.Key()), k.has(needed)
	if k.watch != nil {
		s := k.state(known, true, stateMessages{
			served:       "the objects that " + what + " name are known",
			stale:        "expressions see the last known objects of " + resource + ", because the API server no longer answers: ",
			notPermitted: resource + ": ", permit: permitRelated,
			notSynced: "the API server does not list the objects of " + resource + ": ",
		})
		if known && s.Reason == v1beta1.ReasonServed {
			if n := k.objects.AsOf(time.Now()).Expired(needed); n > 0 {
				s.Reason = v1beta1.ReasonRelatedExpired
				s.Message += fmt.Sprintf("; of the %d of %s, %d are expired, and absent to expressions", k.objects.Len(), resource, n)
			}
		}
		return s
	}
	s := notWatched(k.err, k.since)
	s.Known, s.Message = known, resource+": "+whyRefused(k.err, permitRelated)
	switch {
	case errors.Is(k.err, errRelatedVersion):
		s.Reason = v1beta1.ReasonVersionNotServed
	case known && s.Reason == v1beta1.ReasonNotInstalled:
		s.Message = "the API server serves no " + resource + ": to expressions, the related object is absent, and a list is empty"
	case known: // A CRD is about to be served.
		s.Refused = false
	}
	return s
}
