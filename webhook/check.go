package webhook

import (
	"context"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
)

// CheckPattern is the pattern of the paths that check what claims name.
const CheckPattern = v1beta1.CheckPath + "{" + nameInPath + "}"

// Check refuses a claim that names a class which it may not have, when it is created and when its reference changes, and reserves what a
// claim uses of a class whose capacity is enforced. The API server asks after all mutating webhooks, so what another one writes is checked,
// too, and so is what we wrote just before. It leaves alone any other operation, a claim kind that is not registered any more, and a claim
// that is not ours to bind.
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
	object, err := view.Kind.DecodeValid(request.Object.Raw)
	if err != nil {
		return nil, malformed("request.object: %v", err)
	}
	response, before := untouched("SameReference"), map[string]any(nil)
	isNew := true
	if request.Operation == admissionv1.Update {
		if before, err = view.Kind.DecodeValid(request.OldObject.Raw); err != nil {
			return nil, malformed("request.oldObject: %v", err)
		}
		had, _ := view.Kind.RefersTo(before)
		has, _ := view.Kind.RefersTo(object)
		isNew = has != had
	}
	ctx, cancel := WithDeadline(ctx)
	defer cancel()
	if isNew && view.Kind.ChecksExplicit {
		if response, err = b.checkNamed(ctx, view, request, object); err != nil || !response.Allowed {
			return response, err
		}
	}
	if view.Kind.Hard {
		if refused, err := b.reserve(ctx, view, request, before, object); err != nil || refused != nil {
			return refused, err
		}
	}
	return response, nil
}

// checkNamed refuses a claim that may not have the class that it names.
func (b *Binder) checkNamed(
	ctx context.Context, view *selector.View, request *admissionv1.AdmissionRequest, object map[string]any,
) (_ *admissionv1.AdmissionResponse, err error) {
	in := view.Kind.ReadNamed(request.Namespace, request.Name, object)
	if err = readRequest(ctx, view.Kind, &in); err != nil {
		return nil, err
	}
	in, refused, err := b.Decider.Check(ctx, view, in, object)
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
