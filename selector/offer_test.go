package selector

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1beta1"
)

// claimKind is a ClaimKind with little more than the CRD's defaults.
func claimKind() *v1beta1.ClaimKind {
	return &v1beta1.ClaimKind{ObjectMeta: metav1.ObjectMeta{Name: "claims.example.org"}, Spec: v1beta1.ClaimKindSpec{
		Reference: v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.classRef"}, Form: v1beta1.ObjectReference},
		Selector:  v1beta1.ClassSelector{Path: ".spec.classSelector"},
	}}
}

func newDemand(k *v1beta1.ClaimKind) *Demand {
	d := NewDemand(k)
	return &d
}

func newOffer(k *v1beta1.ClaimKind, classes ...*Classes) *Offer {
	o, _ := NewOffer(newDemand(k), classes, nil, false)
	return &o
}

func newIndexed(k *v1beta1.ClaimKind, classes ...*Classes) *Offer {
	o := newOffer(k, classes...)
	o.MakeIndex()
	return o
}
