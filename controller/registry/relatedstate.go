package registry

import (
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/rules"
)

// RelatedState reports whether the objects that the claims of a kind name are known.
type RelatedState struct {
	// Reason of the condition RelatedKnown, and its message; empty if the kind needs none.
	Reason, Message string
	// Known says that claims can be bound: by what is known now, or was last known.
	Known bool
	// refused says that the API server said no, which may yet change. since is when that began.
	refused bool
	since   time.Time
}

// pending reports whether a starting replica waits for the objects: see State.Pending.
func (s RelatedState) pending() bool {
	if s.refused {
		return time.Since(s.since) < RefusalGrace
	}
	return !s.Known && s.Reason == v1beta1.ReasonNotSynced
}

// RelatedState of a claim kind is that of the first RelatedKind which is not known, or else not known as it is now.
func (r *RelatedKinds) RelatedState(claimKind string) (state RelatedState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.claimKinds[claimKind].kind
	if k == nil {
		return state
	}
	for _, needed := range k.RelatedKinds() {
		s := r.related[needed.Key()].state(needed)
		if state.Reason == "" || state.Known && !s.Known || state.Reason == v1beta1.ReasonServed {
			state = s
		}
	}
	return state
}

// state for a claim kind that needs these objects.
func (k *relatedKind) state(needed *rules.Kind) RelatedState {
	resource := needed.Key()
	s := RelatedState{Known: k.has(needed)}
	if k.watch == nil {
		s.Reason, s.Message = ReasonFor(k.err), fmt.Sprintf("%q: %s", resource, whyRefused(k.err, permitRelated))
		s.refused, s.since = errors.Is(k.err, ErrCRDNotServed), k.since
		switch {
		case errors.Is(k.err, errRelatedVersion):
			s.Reason = v1beta1.ReasonVersionNotServed
		case s.Known && s.Reason == v1beta1.ReasonNotInstalled:
			s.Message = fmt.Sprintf("the API server serves no %q: to expressions, the related object is absent", resource)
		case s.Known: // A CRD is about to be served.
			s.refused = false
		}
		return s
	}
	since, err := k.watch.LastError()
	why := whyRefused(err, permitRelated)
	switch {
	case s.Known && err == nil:
		s.Reason, s.Message = v1beta1.ReasonServed, "the objects that claims name are known"
	case s.Known:
		s.Reason = v1beta1.ReasonStale
		s.Message = fmt.Sprintf("expressions see the last known objects of %q, because the API server no longer answers: %s",
			resource, why)
	case apierrors.IsForbidden(err):
		s.Reason, s.Message, s.refused, s.since = v1beta1.ReasonNotPermitted, fmt.Sprintf("%q: %s", resource, why), true, since
	default:
		s.Reason, s.Message = v1beta1.ReasonNotSynced, fmt.Sprintf("the API server does not list the objects of %q: %s", resource, why)
	}
	return s
}

const permitRelated = "label a ClusterRole that allows list and watch with " + v1beta1.AggregateLabel + "=true"
