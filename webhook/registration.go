package webhook

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	kjson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/fair"
	"github.com/classbind/classbind/selector/rules"
	"github.com/classbind/classbind/selector/truncate"
)

// errTooManyRegistrations means that other reviews of registrations come first.
var errTooManyRegistrations = errors.New("too many registrations are being reviewed")

// Registration warns of what is wrong with a ClaimKind or a ClassKind that is created or updated. It refuses only what can never work: an
// expression that does not compile, unless an update leaves it as it was.
type Registration struct {
	// ClaimKind and ClassKind return what is wrong, the gravest first.
	ClaimKind func(context.Context, *v1beta1.ClaimKind) []string
	ClassKind func(context.Context, *v1beta1.ClassKind) []string

	limiter *fair.Limiter
}

// NewRegistration returns a Registration with these two functions.
func NewRegistration(
	claimKind func(context.Context, *v1beta1.ClaimKind) []string, classKind func(context.Context, *v1beta1.ClassKind) []string,
) *Registration {
	return &Registration{claimKind, classKind, fair.NewLimiter(v1beta1.RegistrationReviews)}
}

// Review admits or refuses a registration. It leaves alone any other operation and resource. As in Guard.Review, a review may come from
// anybody: a made-up one learns what the API server serves, and whether classbind may read it.
func (r *Registration) Review(ctx context.Context, request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	if !isWrite(request) || request.Resource.Group != v1beta1.GroupVersion.Group {
		return untouched("NotARegistration"), nil
	}
	ctx, cancel := WithDeadline(ctx)
	defer cancel()
	done, err := r.limiter.Take(ctx, "")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errTooManyRegistrations, err)
	}
	defer done()
	switch request.Resource.Resource {
	case "claimkinds":
		return reviewed(ctx, request, r.ClaimKind, func(k *v1beta1.ClaimKind) (compiled, error) {
			names := []string{k.Name, k.Resource(), k.Spec.Claims.Version}
			for _, related := range k.Spec.Classes.Related {
				names = append(names, related.Resource, related.Version)
			}
			for _, named := range k.Spec.Classes.Kinds {
				names = append(names, named.Name)
			}
			of := &k.Spec.Classes
			err := checkParts(max(len(of.Fits), len(of.Related)), len(of.Usage), len(of.Kinds), names)
			if err != nil {
				return nil, err
			}
			return rules.NewForClaims(k), nil
		})
	case "classkinds":
		return reviewed(ctx, request, r.ClassKind, func(k *v1beta1.ClassKind) (compiled, error) {
			names := []string{k.Name}
			for _, related := range k.Spec.Related {
				names = append(names, related.Resource, related.Version)
			}
			for _, named := range k.Spec.ClaimKinds {
				names = append(names, named.Name)
			}
			parts := max(len(k.Spec.Fits), len(k.Spec.Related))
			if err := checkParts(parts, len(k.Spec.Capacity), len(k.Spec.ClaimKinds), names); err != nil {
				return nil, err
			}
			return rules.NewForClasses(k), nil
		})
	}
	return untouched("NotARegistration"), nil
}

// checkParts refuses what no CRD allows: expressions would take long to compile, and names become parts of URLs.
func checkParts(parts, quantities, links int, names []string) error {
	if parts > v1beta1.MaxRegistrationParts || quantities > v1beta1.MaxQuantities || links > v1beta1.MaxRegistrationLinks {
		return malformed("must have at most %d fits, as many related objects, %d quantities and %d links",
			v1beta1.MaxRegistrationParts, v1beta1.MaxQuantities, v1beta1.MaxRegistrationLinks)
	}
	for _, name := range names {
		if name != "" && len(validation.IsDNS1123Subdomain(name)) > 0 {
			return malformed("must have names that are DNS subdomains, has %q", truncate.String(name, v1beta1.MaxShownBytes))
		}
	}
	return nil
}

// compiled expressions of a registration.
type compiled interface{ InvalidExpressions() []rules.Invalid }

// reviewed is the answer to a registration of one of the two kinds.
func reviewed[K any](
	ctx context.Context, request *admissionv1.AdmissionRequest, problems func(context.Context, *K) []string,
	check func(*K) (compiled, error),
) (*admissionv1.AdmissionResponse, error) {
	k, expressions, err := decodeRegistration("object", request.Object, check)
	if err != nil {
		return nil, err
	}
	defer runtime.KeepAlive(expressions) // Its problems need the same, and share it.
	wrong := expressions.InvalidExpressions()
	if request.Operation == admissionv1.Update && len(wrong) > 0 {
		_, before, err := decodeRegistration("oldObject", request.OldObject, check)
		if err != nil {
			return nil, err
		}
		wrong = slices.DeleteFunc(slices.Clone(wrong), func(i rules.Invalid) bool { // It is shared.
			isSame := func(b rules.Invalid) bool { return b.Field == i.Field && b.Err.Source == i.Err.Source }
			return slices.ContainsFunc(before.InvalidExpressions(), isSame)
		})
	}
	if len(wrong) > 0 {
		var errs field.ErrorList
		for _, i := range wrong[:min(len(wrong), v1beta1.MaxErrors)] {
			errs = append(errs, &field.Error{
				Type: field.ErrorTypeInvalid, Field: i.Field, BadValue: truncate.Value(i.Err.Source), Detail: i.Err.Error(),
			})
		}
		return invalid(request, errs, v1beta1.ReasonInvalidExpression), nil
	}
	response := untouched("Reviewed")
	response.Warnings = registrationWarnings(request.Name, problems(ctx, k))
	return response, nil
}

func decodeRegistration[K any](
	name string, raw apiruntime.RawExtension, check func(*K) (compiled, error),
) (k *K, expressions compiled, err error) {
	k = new(K)
	if err := kjson.Unmarshal(raw.Raw, k); err != nil {
		return nil, nil, malformed("request.%s: %v", name, err)
	}
	expressions, err = check(k)
	return k, expressions, err
}

// registrationWarnings name the registration, since kubectl may apply many.
func registrationWarnings(name string, problems []string) (warnings []string) {
	left := v1beta1.MaxWarningsBytes
	for i, problem := range problems {
		warning := truncate.String(name+": "+problem, v1beta1.MaxWarningBytes)
		if left -= len(warning); left < 0 {
			return append(warnings, fmt.Sprintf("%s: %d more: see its conditions", name, len(problems)-i))
		}
		warnings = append(warnings, warning)
	}
	return warnings
}
