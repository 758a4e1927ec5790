package latebinding

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/fair"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/recovered"
	"github.com/classbind/classbind/selector/truncate"
)

// waitingItem is a claim to be bound.
type waitingItem struct {
	namespace string
	uid       types.UID
}

// fairQueue is a workqueue.Queue in which namespaces take turns.
type fairQueue struct{ fair.Queue[waitingItem] }

// Touch leaves an item that is queued already in its place.
func (*fairQueue) Touch(waitingItem) {}

// Push adds an item in the turn of its namespace.
func (q *fairQueue) Push(item waitingItem) { q.Queue.Push(item.namespace, item) }

// Pop returns the next item. The queue must not be empty.
func (q *fairQueue) Pop() waitingItem {
	_, item, _ := q.Queue.Pop(nil)
	return item
}

// newLateLimiter delays each try of a claim twice as long as the one before.
func newLateLimiter(first time.Duration) workqueue.TypedRateLimiter[waitingItem] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[waitingItem](first, lateRetryMax)
}

// work on the next claim, and report whether there will be others.
func (k *kindBinder) work(ctx context.Context) bool {
	item, shutdown := k.queue.Get()
	if shutdown || ctx.Err() != nil {
		return false
	}
	defer k.queue.Done(item)
	outcome, again := "", time.Duration(0)
	err := recovered.Do(func() (err error) {
		outcome, again, err = k.bind(ctx, item)
		return err
	})
	if errors.Is(err, recovered.ErrPanic) {
		outcome = latePanicked
	}
	if outcome != "" {
		k.binder.Claims.Metrics.tried(k.watch.kind.Name, outcome)
	}
	switch {
	case err != nil:
		log := logf.FromContext(ctx)
		if outcome == lateChanged {
			log = log.V(1)
		}
		log.Info("Cannot bind a waiting claim, trying again",
			"claimKind", k.watch.kind.Name, "uid", item.uid, "because", truncate.Error(err).Error())
		k.queue.AddAfter(item, k.delay(item, err))
	case again > 0:
		k.queue.AddAfter(item, again)
	default:
		k.backoff.Forget(item)
	}
	return true
}

// delay of the next try of a claim. An API server or a webhook that is busy may ask for more (429), within limits.
func (k *kindBinder) delay(item waitingItem, err error) time.Duration {
	delay := k.backoff.When(item)
	if seconds, asks := apierrors.SuggestsClientDelay(err); asks {
		delay = max(delay, min(time.Duration(seconds)*time.Second, lateRetryMax))
	}
	return delay
}

// bind binds a claim if it still waits and still has a class. With an error, or an again above zero, the claim is tried again; again says
// after how long. Without an outcome, nothing was tried.
func (k *kindBinder) bind(ctx context.Context, item waitingItem) (outcome string, again time.Duration, err error) {
	w := k.watch
	claim, ok, paused := w.waits(item)
	if paused > 0 || !ok {
		return "", max(paused, 0), nil
	}
	// Others may have taken what room there was in a class. Those that come too late wait for no turn to write.
	decision, err := k.decide(ctx, new(selector.Decider), claim, selector.Mode{Stored: true, DryRun: true})
	if err == nil && decision.Class == nil {
		w.own(func(s *claimState) { s.missed(claim, &decision) })
		return "", 0, nil
	}
	turn := k.binder.writes
	if w.kind.External != nil { // A chooser may give the claim no class, which takes no turn of another kind.
		turn = k.questions
	}
	if ok = turn.Wait(ctx) == nil; ok { // Else the term is over.
		claim, ok, _ = w.waits(item)
	}
	if !ok {
		return "", 0, nil
	}
	decision, err = k.decide(ctx, k.binder.Decider, claim, selector.Mode{Stored: true})
	switch {
	case err != nil && decision.Choice.Soon:
		return "", wait.Jitter(lateRetry, 1), nil
	case err != nil:
		if k.backoff.NumRequeues(item) >= noticeTries {
			k.warn(claim, v1beta1.EventNoMatchingClass, textFor(err))
		}
		return lateFailed, 0, err
	case decision.Class == nil && (len(decision.Refused) > 0 || decision.Choice.Outcome != ""): // No watch shows when that changes.
		k.warn(claim, v1beta1.EventNoMatchingClass, decision.Warning())
		isWoken := false
		w.own(func(s *claimState) { isWoken = s.taken(claim, &decision) })
		if again = registry.RetryAfter; isWoken && decision.Choice.Outcome != "" {
			again = max(again, k.backoff.When(item))
		}
		return "", again, nil
	case decision.Class == nil:
		w.own(func(s *claimState) { s.missed(claim, &decision) })
		return "", 0, nil
	case decision.Given():
		w.own(func(s *claimState) { s.wrote(claim) })
		return "", 0, nil
	}
	if ok = w.kind.External == nil || k.binder.writes.Wait(ctx) == nil; ok { // Else the term is over.
		return k.write(ctx, claim, &decision)
	}
	return "", 0, nil
}

// write the class of a claim, with the results of bind.
func (k *kindBinder) write(
	ctx context.Context, claim seenVersion, decision *selector.Decision,
) (outcome string, again time.Duration, err error) {
	w := k.watch
	kind := decision.View.Kind
	object, version, err := k.binder.Claims.client.WriteClass(ctx, w.resource, claim.uid, claim.version, decision)
	log := logf.FromContext(ctx).WithValues("claimKind", kind.Name, "namespace", claim.namespace, "name", claim.name)
	switch {
	case err == nil:
		_, settled := kind.Reader.Reference.BoundTo(claim.namespace, object)
		w.own(func(s *claimState) {
			s.wrote(claim)
			// Where claims.when is still true for its new version, it is not bound again until somebody else changes it.
			if c := s.waiting.find(claim.namespace, claim.uid); c != nil && !settled && (c.written || c.version == version) {
				c.version, c.written = version, true
			}
		})
		log.Info("Bound a waiting claim", "class", decision.Class.String(), "reason", decision.Reason(),
			"strategy", kind.Strategy.Name, "candidates", decision.Candidates, "dropped", decision.DroppedText())
		k.bound(claim, decision)
		return lateBound, 0, nil
	case IsOutdated(err):
		return lateChanged, 0, err
	case apierrors.IsInvalid(err):
		refused := referenceRefused(err)
		w.update(func(s *claimState) {
			if c := s.waiting.find(claim.namespace, claim.uid); c != nil {
				s.waiting.setRefused(c, true)
				s.refusedErr = refused
			}
		})
		k.warn(claim, v1beta1.EventReferenceRefused, "bound to no class: "+refused.Error())
		return lateFailed, 0, err
	case errors.Is(err, ErrReferenceRemoved):
		w.update(func(s *claimState) { s.removed, s.removedOf = ErrReferenceRemoved, claim.uid })
		k.warn(claim, v1beta1.EventReferenceRemoved, "bound to no class: "+ErrReferenceRemoved.Error())
		return lateFailed, 0, err
	case IsUnauthorized(err):
		log.Info("Cannot bind waiting claims", "because", err.Error())
		// Readers of a ClaimKind must not learn the names of claims and namespaces.
		refusal, until := apierrors.NewForbidden(w.resource.GroupResource(), "", errNoPatch), time.Now().Add(registry.RetryAfter)
		w.update(func(s *claimState) { s.refusal, s.paused = refusal, until })
		return lateFailed, registry.RetryAfter, nil
	}
	return lateFailed, 0, err
}

// decide chooses a class for a claim, none while the classes are not known.
func (k *kindBinder) decide(ctx context.Context, by *selector.Decider, a seenVersion, mode selector.Mode) (selector.Decision, error) {
	view := k.view()
	if view == nil {
		return selector.Decision{}, nil
	}
	c, err := a.ask.Claim(a.namespace, a.name)
	if err != nil {
		return selector.Decision{}, err
	}
	return by.Decide(ctx, view, claim.Intake{Claim: c, Parents: int(a.parents), Annotated: a.annotated}, mode)
}

// ErrReferenceRemoved means that a claim was stored without the reference to its class.
// It names no claim, because all readers of the ClaimKind see it.
var ErrReferenceRemoved error = &inventory.Fault{
	Reason: v1beta1.ReasonReferencePruned,
	Text: "the API server stores claims without the reference to their class: the schema lacks the field, " +
		"or another webhook or policy removes it: correct spec.reference.path of the ClaimKind, the schema, or the other",
}

// referenceRefused is the fault that the API server refuses to add its reference to a claim. It names no claim, either.
func referenceRefused(err error) *inventory.Fault {
	why, answered := "it does not say why", apierrors.APIStatus(nil)
	if errors.As(err, &answered) && answered.Status().Details != nil && len(answered.Status().Details.Causes) > 0 {
		cause := answered.Status().Details.Causes[0]
		why = strings.TrimPrefix(cause.Field+": "+cause.Message, ": ")
	}
	return inventory.Faultf(v1beta1.ReasonReferenceRefused,
		"the API server refuses to add the reference to its class to a claim that waits (%s): create the claim again, or correct the rule",
		truncate.String(why, v1beta1.MaxMessageBytes))
}

// IsOutdated reports that the claim has probably changed since it was seen, as the watch is about to show. When the test of a JSON Patch
// fails, the API server says only that the patch is at fault. When the claim would be invalid, it names the claim. Another webhook may deny
// the claim in the same words, so it is tried again.
func IsOutdated(err error) bool {
	if apierrors.IsNotFound(err) {
		return true
	}
	answered := apierrors.APIStatus(nil)
	if !errors.As(err, &answered) || answered.Status().Code != http.StatusUnprocessableEntity {
		return false
	}
	details := answered.Status().Details
	return details == nil || details.Kind == "" && len(details.Causes) == 0
}

var errNoPatch = errors.New("the API server does not let classbind patch any")

// unauthorized matches the start of every authorizer's refusal. The message of another
// webhook or a policy starts with its own name, whatever it quotes after that.
var unauthorized = regexp.MustCompile(`^\S+ "[^"]*" is forbidden: User "[^"]*" cannot patch resource "`)

// IsUnauthorized reports that no claim of the kind may be written. Another webhook or a
// policy refuses a single claim, which must not hold up the others.
func IsUnauthorized(err error) bool {
	answered := apierrors.APIStatus(nil)
	return apierrors.IsForbidden(err) && errors.As(err, &answered) && unauthorized.MatchString(answered.Status().Message)
}
