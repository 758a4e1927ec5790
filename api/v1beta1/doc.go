// Package v1beta1 is the API group classbind.io. Cluster admins and vendors register kinds of claim with ClaimKinds and kinds of class with
// ClassKinds. Both are cluster-scoped. The name of a ClassKind is the resource that it registers (PLURAL.GROUP like the name of its CRD;
// only the plural for a core resource). So is that of a ClaimKind, unless spec.claims.resource names another: each reference of a kind of
// claim has a ClaimKind.
//
// Everything in a spec has a default, and every rule is in the CRD's schema:
// objects that the API server has stored need no second validation.
//
// +kubebuilder:object:generate=true
// +groupName=classbind.io
package v1beta1
