package webhook

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/inventory"
)

// Deletion answers a user who deletes a class that claims have, as its ClassKind says. It counts no claims: their numbers are in memory.
type Deletion struct {
	// ClassKind returns a class kind as it is registered now; nil if it is not.
	ClassKind func(ctx context.Context, name string) (*inventory.ClassKind, error)
	// Claims are how many claims have a class, by claim kind. missing is why there may be more, nil if all are counted.
	Claims func(*inventory.Class) (claims map[string]int64, missing error)
}

// Review leaves alone any operation but a deletion, a class kind that is not registered, and one with Allow. With Deny, it refuses the
// deletion of a class that claims are known to have, and fails if there may be claims that are not known. Otherwise, it admits the
// deletion, with a warning if claims are known to have the class.
//
// As in Guard.Review, a review may come from anybody. A made-up one learns how many claims have a class, and nothing else.
func (d *Deletion) Review(ctx context.Context, request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	if request.Operation != admissionv1.Delete || request.SubResource != "" {
		return untouched("NotADeletion"), nil
	}
	ctx, cancel := WithDeadline(ctx)
	defer cancel()
	resource := resourceOf(request)
	kind, err := d.ClassKind(ctx, resource.String())
	switch {
	case err != nil:
		return nil, err
	case kind == nil:
		return untouched("NotRegistered"), nil
	case kind.OnDelete == v1beta1.AllowDeletion:
		return untouched("DeletionAllowed"), nil
	}
	_, class, err := decodeClass(kind, "oldObject", request.OldObject.Raw)
	if err != nil {
		return nil, err
	}
	claims, missing := d.Claims(class)
	switch {
	case len(claims) > 0:
	case kind.OnDelete.Denies() && missing != nil:
		return nil, fmt.Errorf("cannot determine whether claims refer to the class %q (to delete it nevertheless, "+
			"set spec.onDelete of the ClassKind %q to Warn): %w", class, kind.Name, missing)
	default:
		return untouched("NoClaims"), nil
	}
	text := countsText(claims)
	if missing != nil {
		text = "at least " + text
	}
	response := untouched("HasClaims")
	still := fmt.Sprintf("claims still refer to the class %q: %s; ", class, text)
	if kind.OnDelete.Denies() {
		refusal := fmt.Errorf("%sdelete these claims first, or set spec.onDelete of the ClassKind %q to Warn", still, kind.Name)
		response = denied(apierrors.NewForbidden(resource, class.Name, refusal), "HasClaims")
	} else {
		response.Warnings = []string{still + "create the class again, or delete these claims and create them again"}
	}
	response.AuditAnnotations["claims"] = text
	return response, nil
}

// countsText has the claim kinds with the most claims first. It does not name too many.
func countsText(claims map[string]int64) string {
	kinds := slices.SortedFunc(maps.Keys(claims), func(a, b string) int {
		return cmp.Or(cmp.Compare(claims[b], claims[a]), strings.Compare(a, b))
	})
	var parts []string
	others := int64(0)
	for i, kind := range kinds {
		if i >= v1beta1.MaxErrors {
			others += claims[kind]
			continue
		}
		noun := "claims"
		if claims[kind] == 1 {
			noun = "claim"
		}
		parts = append(parts, fmt.Sprintf("%d %s of %s", claims[kind], noun, kind))
	}
	if others > 0 {
		parts = append(parts, fmt.Sprintf("%d of other kinds", others))
	}
	return strings.Join(parts, ", ")
}
