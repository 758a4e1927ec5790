package webhook

import (
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/webhook/onedefault"
)

// decodeClasses returns the class, the old class, which is empty for a creation, and
// the request to the protocol, without its seats.
func decodeClasses(
	kind *inventory.ClassKind, request *admissionv1.AdmissionRequest,
) (class, before *inventory.Class, ask *onedefault.Request, err error) {
	object, class, err := decodeClass(kind, "object", request.Object.Raw)
	if err != nil {
		return nil, nil, nil, err
	}
	before = &inventory.Class{}
	ask = &onedefault.Request{Holder: onedefault.Holder{Class: nameOf(class), UID: object.UID}}
	if request.Operation == admissionv1.Update {
		old, c, err := decodeClass(kind, "oldObject", request.OldObject.Raw)
		if err != nil {
			return nil, nil, nil, err
		}
		if old.UID != object.UID || nameOf(c) != nameOf(class) || !onedefault.IsToken(old.ResourceVersion) {
			return nil, nil, nil, malformed("request.oldObject: must be what the object was, with its resourceVersion")
		}
		before, ask.Base = c, old.ResourceVersion
	}
	return class, before, ask, nil
}

// decodeClass refuses what no API server sends, because a Lease would record it.
func decodeClass(kind *inventory.ClassKind, name string, raw []byte) (*metav1.ObjectMeta, *inventory.Class, error) {
	meta, class, err := kind.DecodeValid(raw)
	if err != nil {
		return nil, nil, malformed("request.%s: %v", name, err)
	}
	switch {
	case meta.Name == "" || len(meta.Name) > validation.DNS1123SubdomainMaxLength || len(content.IsPathSegmentName(meta.Name)) > 0:
		return nil, nil, malformed("request.%s: must have the name of a class", name)
	case !onedefault.IsToken(string(meta.UID)):
		return nil, nil, malformed("request.%s: must have a uid", name)
	case kind.Namespaced != (meta.Namespace != "") || kind.Namespaced && len(validation.IsDNS1123Label(meta.Namespace)) > 0:
		return nil, nil, malformed("request.%s: must have a namespace as classes of its kind have", name)
	}
	return meta, class, nil
}
