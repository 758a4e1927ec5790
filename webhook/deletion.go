package webhook

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/inventory"
)

// Deletion warns whoever deletes a class that claims have. It refuses nothing, and
// answers from memory: the deletion of a namespace deletes many classes.
type Deletion struct {
	// ClassKind is a class kind that this replica watches, nil if it does not.
	ClassKind func(name string) *inventory.ClassKind
	// Claims are how many claims have a class, by claim kind. complete is false while
	// there may be others.
	Claims func(*inventory.Class) (claims map[string]int64, complete bool)
}

// Review admits the deletion of a class, with a warning if claims are known to have it.
// It leaves alone any other operation, and a class kind that is not watched.
//
// As in Guard.Review, a review may come from anybody. A made-up one learns how many
// claims have a class, and nothing else.
func (d *Deletion) Review(_ context.Context, request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	if request.Operation != admissionv1.Delete || request.SubResource != "" {
		return untouched("NotADeletion"), nil
	}
	kind := d.ClassKind(schema.GroupResource{Group: request.Resource.Group, Resource: request.Resource.Resource}.String())
	if kind == nil {
		return untouched("NotRegistered"), nil
	}
	_, class, err := decodeClass(kind, "oldObject", request.OldObject.Raw)
	if err != nil {
		return nil, err
	}
	claims, complete := d.Claims(class)
	if len(claims) == 0 {
		return untouched("NoClaims"), nil
	}
	text := countsText(claims)
	if !complete {
		text = "at least " + text
	}
	response := untouched("HasClaims")
	response.AuditAnnotations["claims"] = text
	response.Warnings = []string{deletionWarning(class, text)}
	return response, nil
}

// deletionWarning says whose class is deleted, and what to do about it.
func deletionWarning(class *inventory.Class, claims string) string {
	warning := fmt.Sprintf("claims still refer to the class %q: %s; create the class again, or delete these claims and create them again",
		class, claims)
	if !class.Cordoned {
		warning += fmt.Sprintf("; to keep new claims from a class before you delete it: kubectl annotate %s %s=true",
			class.Arguments(), v1beta1.CordonedAnnotation)
	}
	return warning
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
