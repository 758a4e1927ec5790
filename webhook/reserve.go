package webhook

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/fair"
	"github.com/classbind/classbind/webhook/capacity"
	"github.com/classbind/classbind/webhook/onedefault"
)

// closedSeconds are after how many a claim is tried again whose class has yet to be counted.
const closedSeconds = 5

// reserve room for a claim in each class that its reference may mean, if the capacity of that is enforced, before the claim is stored with
// it. It reserves what an update uses more. A refusal leaves what was reserved in another class until its window is over. The answer is nil
// if there is room.
func (b *Binder) reserve(
	ctx context.Context, view *selector.View, request *admissionv1.AdmissionRequest, before, object map[string]any,
) (*admissionv1.AdmissionResponse, error) {
	amount, problem := usageOf(view.Kind, object)
	to, has := view.Kind.RefersTo(object)
	if !has {
		return nil, nil
	}
	if before != nil {
		was, problemBefore := usageOf(view.Kind, before)
		if problemBefore != nil {
			problem = nil
		}
		if had, _ := view.Kind.RefersTo(before); had == to {
			amount -= was
		}
	}
	if problem != nil {
		return invalid(request, field.ErrorList{problem}, "MalformedClaim"), nil
	}
	if amount <= 0 {
		return nil, nil
	}
	write, err := writeOf(view.Kind.Name, request)
	if err != nil {
		return nil, err
	}
	classes, refused, err := b.Decider.Enforced(ctx, view, request.Namespace, to)
	if err != nil || refused != nil {
		return refuseClaim(request, refused, err)
	}
	for _, c := range classes {
		why, err := b.Ledgers.Reserve(ctx, c, write, amount, isDryRun(request))
		if !isDryRun(request) {
			b.Metrics.reservation(view.Kind.Name, why, err)
		}
		if err != nil {
			return refuseClaim(request, nil, err)
		}
		if why == nil {
			continue
		}
		full := &selector.Refused{Class: c.String(), Reason: "Full", Text: why.Error()}
		switch why.Reason {
		case capacity.Full:
			return refuseClaim(request, full, nil)
		case capacity.Closed:
			return denied(apierrors.NewTooManyRequests(full.Error(), closedSeconds), "NotCounted"), nil
		default:
			return denied(apierrors.NewTooManyRequests(full.Error(), 1), "Full"), nil
		}
	}
	return nil, nil
}

// usageOf a claim, or why it has none.
func usageOf(k *selector.ClaimKind, object map[string]any) (int64, *field.Error) {
	budget := expression.Budget{Left: v1beta1.MaxExpressionCost}
	usage, err := k.UsageOf(object, &budget)
	if err != nil {
		return usage, claim.Failure(k.Name, "spec.classes.usage", k.Usage, err)
	}
	return usage, nil
}

// writeOf a review. None of it is trusted, but for what it may make long.
func writeOf(claimKind string, request *admissionv1.AdmissionRequest) (w selector.Write, err error) {
	var now, before struct {
		Metadata struct {
			Name            string `json:"name"`
			UID             string `json:"uid"`
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	isUpdate := request.Operation == admissionv1.Update
	lenient := json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if err = json.Unmarshal(request.Object.Raw, &now, lenient); err == nil && isUpdate {
		err = json.Unmarshal(request.OldObject.Raw, &before, lenient)
	}
	if err != nil {
		return w, malformed("request: cannot read the metadata of the claim")
	}
	w = selector.Write{
		ClaimKind: claimKind, Namespace: request.Namespace,
		Name: now.Metadata.Name, UID: now.Metadata.UID, Base: before.Metadata.ResourceVersion,
	}
	if !onedefault.IsToken(w.UID) || isUpdate && !onedefault.IsToken(w.Base) {
		return w, malformed("request.object.metadata: must have the uid, and the resourceVersion, of an API server")
	}
	if w.Name == "" || max(len(w.Namespace), len(w.Name)) > v1beta1.MaxNameBytes {
		return w, malformed("request.object.metadata: must have a name, and none that is too long")
	}
	return w, nil
}

// refuseClaim answers a claim that may not have the class that it names, or of whose namespace there are too many.
func refuseClaim(request *admissionv1.AdmissionRequest, refused *selector.Refused, err error) (*admissionv1.AdmissionResponse, error) {
	if errors.Is(err, errTooManyOfNamespace) || errors.Is(err, fair.ErrKeyFull) || errors.Is(err, capacity.ErrCrowded) {
		// Not 503, which Ignore would let pass: who asks for much could pass Deny by it.
		return denied(apierrors.NewTooManyRequests(err.Error(), 1), "TooManyRequests"), nil
	}
	if err != nil {
		return nil, err
	}
	remedy := "name another class, or leave it out"
	if request.Operation == admissionv1.Update {
		remedy = "name another class"
	}
	return denied(apierrors.NewForbidden(resourceOf(request), request.Name, fmt.Errorf(
		"%w: %s (classbind explain -f FILE --unbound lists those that the claim can get)", refused, remedy)), refused.Reason), nil
}
