// Package v1alpha1 is the API group classbind.io: ClaimKind and ClassKind, by
// which cluster admins and vendors register what is bound to what. Both are
// cluster-scoped, and an object's name is the resource that it registers
// (<plural>.<group>, as its CRD is named; the plural alone for a core one), so
// that no resource can be registered twice.
//
// Everything in a spec has a default and every rule is in the CRD's schema:
// what the API server has stored needs no second validation.
//
// +kubebuilder:object:generate=true
// +groupName=classbind.io
package v1alpha1
