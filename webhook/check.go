package webhook

import (
	"context"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/fair"
)

// CheckPattern is the pattern of the paths that check what claims name.
const CheckPattern = v1beta1.CheckPath + "{" + nameInPath + "}"

// Check refuses a claim that names a class which it may not have, when it is created and when its reference
// changes. The API server asks after all mutating webhooks, so what another one writes is checked, too, and
// so is what we wrote ourselves a moment before. It leaves alone any other operation, a claim kind that is
// not registered any more, and a claim that is not ours to bind. There is nothing to do afterwards.
func (b *Binder) Check(
	ctx context.Context, claimKind string, request *admissionv1.AdmissionRequest,
) (_ *admissionv1.AdmissionResponse, afterwards func(), _ error) {
	response, err := b.check(ctx, claimKind, request)
	return response, func() {}, err
}

func (b *Binder) check(
	ctx context.Context, claimKind string, request *admissionv1.AdmissionRequest,
) (*admissionv1.AdmissionResponse, error) {
	isUpdate := request.Operation == admissionv1.Update
	if request.Operation != admissionv1.Create && !isUpdate || request.SubResource != "" {
		return untouched("NotACreationOrUpdate"), nil
	}
	view, err := b.view(ctx, claimKind, request.Resource)
	if err != nil {
		return nil, err
	}
	if view == nil {
		return untouched("NotRegistered"), nil
	}
	object, err := view.Kind.DecodeValid(request.Object.Raw)
	if err != nil {
		return nil, malformed("request.object: %v", err)
	}
	if isUpdate {
		before, err := view.Kind.DecodeValid(request.OldObject.Raw)
		if err != nil {
			return nil, malformed("request.oldObject: %v", err)
		}
		had, _ := view.Kind.RefersTo(before)
		if has, _ := view.Kind.RefersTo(object); has == had {
			return untouched("SameReference"), nil
		}
	}
	in := view.Kind.ReadNamed(request.Namespace, request.Name, object)
	if in.Object != nil && view.Kind.UsesRequest() {
		if in.Request, err = requestFacts(arrivalOf(ctx).user); err != nil {
			return nil, err
		}
	}
	ctx, cancel := WithDeadline(ctx)
	defer cancel()
	in, refused, err := b.Decider.Check(ctx, view, in, object)
	switch {
	case errors.Is(err, errTooManyOfNamespace), errors.Is(err, fair.ErrKeyFull): // Not 503, which Ignore would let pass.
		return denied(apierrors.NewTooManyRequests(err.Error(), 1), "TooManyRequests"), nil
	case err != nil:
		return nil, err
	case len(in.Problems) > 0:
		kind := schema.GroupKind{Group: request.Kind.Group, Kind: request.Kind.Kind}
		return denied(apierrors.NewInvalid(kind, request.Name, in.Problems), "MalformedClaim"), nil
	case refused != nil:
		remedy := "name another class, or leave it out"
		if isUpdate {
			remedy = "name another class"
		}
		resource := schema.GroupResource{Group: request.Resource.Group, Resource: request.Resource.Resource}
		return denied(apierrors.NewForbidden(resource, request.Name, fmt.Errorf(
			"%w: %s (classbind explain -f FILE --unbound lists those that the claim can get)", refused, remedy)),
			refused.Reason), nil
	case in.LeftAlone == claim.NotBound:
		return untouched(in.LeftAlone), nil
	}
	response := untouched("MayHaveClass")
	if text := view.UnreadText(); text != "" {
		response.Warnings = []string{text}
	}
	return response, nil
}
