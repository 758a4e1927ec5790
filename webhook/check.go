package webhook

import (
	"context"
	"errors"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/fair"
)

// CheckPattern is the pattern of the paths that check what claims name.
const CheckPattern = v1beta1.CheckPath + "{" + nameInPath + "}"

// Check refuses a claim that names a class which it may not have, when it is created and when its reference changes. The API server asks
// after all mutating webhooks, so what another one writes is checked, too, and so is what we wrote just before. It leaves alone any other
// operation, a claim kind that is no longer registered, and a claim that is not ours to bind.
func (b *Binder) Check(ctx context.Context, request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	if !isWrite(request) {
		return untouched("NotACreationOrUpdate"), nil
	}
	view, err := b.view(ctx, request.Resource)
	if err != nil {
		return nil, err
	}
	if view == nil {
		return untouched("NotRegistered"), nil
	}
	object, err := view.Kind.Reader.DecodeValid(request.Object.Raw)
	if err != nil {
		return nil, malformed("request.object: %v", err)
	}
	if !view.Kind.Reader.ChecksExplicit {
		return untouched("NotChecked"), nil
	}
	var had []claim.Target
	if request.Operation == admissionv1.Update {
		before, err := view.Kind.Reader.DecodeValid(request.OldObject.Raw)
		if err != nil {
			return nil, malformed("request.oldObject: %v", err)
		}
		had, _, _ = view.Kind.Reader.Reference.Named(before)
		if has, _, ok := view.Kind.Reader.Reference.Named(object); ok && slices.Equal(has, had) {
			return untouched("SameReference"), nil
		}
	}
	ctx, cancel := WithDeadline(ctx)
	defer cancel()
	in := view.Kind.Reader.ReadNamed(request.Namespace, request.Name, object)
	if err = readRequest(ctx, view.Kind, &in); err != nil {
		return nil, err
	}
	in, refused, err := b.Decider.Check(ctx, view, in, object, had)
	switch {
	case err != nil || refused != nil:
		return refuseClaim(request, refused, err)
	case len(in.Problems) > 0:
		return invalid(request, in.Problems, "MalformedClaim"), nil
	case in.LeftAlone == claim.NotBound:
		return untouched(in.LeftAlone), nil
	}
	response := untouched("MayHaveClass")
	if text := view.UnreadText(); text != "" {
		response.Warnings = []string{text}
	}
	return response, nil
}

// refuseClaim answers a claim that may not have the class that it names, or of whose namespace there are too many.
func refuseClaim(request *admissionv1.AdmissionRequest, refused *selector.Refused, err error) (*admissionv1.AdmissionResponse, error) {
	if errors.Is(err, errTooManyOfNamespace) || errors.Is(err, fair.ErrKeyFull) || errors.Is(err, selector.ErrOwnDoing) {
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
