package v1beta1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClassKind registers a kind of class. Its classes can satisfy the claims of the ClaimKinds that it names, or that name it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=classbind
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Classes",type=integer,JSONPath=`.status.classes`
// +kubebuilder:printcolumn:name="Claims",type=integer,JSONPath=`.status.claims`
// +kubebuilder:printcolumn:name="Claim Kinds",type=string,JSONPath=`.spec.claimKinds[*].name`,priority=1
// +kubebuilder:printcolumn:name="Failing",type=string,JSONPath=`.status.conditions[?(@.status=="False")].type`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="!(self.metadata.name in ['secrets', 'leases.coordination.k8s.io', 'customresourcedefinitions.apiextensions.k8s.io']) && !self.metadata.name.endsWith('.classbind.io') && !self.metadata.name.endsWith('.admissionregistration.k8s.io')",message="classbind itself needs this resource to work, so it cannot be registered",fieldPath=".metadata"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 230",message="metadata.name must be at most 230 characters long, to leave room in the name of the webhook",fieldPath=".metadata"
type ClassKind struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +kubebuilder:default={}
	// +optional
	Spec ClassKindSpec `json:"spec,omitzero"`
	// +optional
	Status ClassKindStatus `json:"status,omitzero"`
}

// ClassKindSpec says what the classes of a kind can satisfy and how they are read.
type ClassKindSpec struct {
	// ClaimKinds that the classes can satisfy, each by the name of its ClaimKind, beside
	// those that name this class kind. The ClaimKind need not exist yet.
	// Example: [{name: gateways.gateway.networking.k8s.io}]
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=name
	// +optional
	ClaimKinds []ClaimKindLink `json:"claimKinds,omitempty"`

	// Default is where a class is marked as the default: an annotation or a field
	// with the value true, or an expression. Beside classbind.io/default, the annotation
	// resourceclass.crossplane.io/is-default-class counts, too.
	// Example: {annotation: storageclass.kubernetes.io/is-default-class}
	// +kubebuilder:default={annotation: classbind.io/default}
	// +kubebuilder:validation:XValidation:rule="!has(self.path) || self.path != '.status' && !self.path.startsWith('.status.')",message="must not be in the status of a class: an update of its status is not guarded",fieldPath=".path"
	// +optional
	Default Source `json:"default,omitzero"`

	// Weight is where a class has its weight, an integer from 0 to 1000000 in plain
	// digits. A class without a weight has weight 1. A malformed weight is refused; one
	// that a class had before counts as 1, or as 0 if it is negative. A class without
	// classbind.io/weight may have its weight in resourceclass.crossplane.io/weight.
	// Example: {path: .spec.weight}
	// +kubebuilder:default={annotation: classbind.io/weight}
	// +optional
	Weight Source `json:"weight,omitzero"`

	// Related are objects that a class names, such as its price or its queue, for fits, the weight, the
	// capacity, and the fits and the score of ClaimKinds. Their expressions see them as
	// classRelated.NAME. They are looked up in this order, so that one may be named by another before
	// it. classbind needs to list and watch them.
	// Example: [{name: queue, resource: clusterqueues.kueue.x-k8s.io, nameExpression: class.spec.clusterQueue}]
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="self.all(r, !has(r.selector))",message="a class names its objects: only a ClaimKind may have a selector of objects"
	// +listType=map
	// +listMapKey=name
	// +optional
	Related []Related `json:"related,omitempty"`

	// Fits are conditions that a class must meet to be given to a claim, beside those of the
	// ClaimKind. They may use claim, class, classRelated and namespaceObject.
	// Example: [{name: Tenant, expression: "labelSelectorMatches(class.spec.tenants, namespaceObject.metadata.labels)"}]
	// +kubebuilder:validation:MaxItems=8
	// +listType=map
	// +listMapKey=name
	// +optional
	Fits []Fit `json:"fits,omitempty"`

	// OfferWhen is a CEL expression that reports whether a class is offered to new claims, such
	// as that it is accepted or ready. It may use class.
	// Example: class.status.conditions.exists(c, c.type == 'Accepted' && c.status == 'True')
	// +optional
	OfferWhen Expression `json:"offerWhen,omitempty"`

	// Capacity is how much of a class its claims may use together, of all claim kinds, by
	// quantity. A class has room for a claim if it has room for what the claim uses of each.
	// Without it, there is no limit. Example: [{name: claims, total: {path: .spec.slots}}]
	// +kubebuilder:validation:MaxItems=4
	// +listType=map
	// +listMapKey=name
	// +optional
	Capacity []Capacity `json:"capacity,omitempty"`

	// OnDelete says what happens when a class is deleted that claims have. Allow deletes it.
	// Warn deletes it and warns with the number of claims, where classbind watches the
	// claims. Deny refuses the deletion (403). With Deny, classbind watches the claims of all
	// claim kinds that the class kind serves, and needs to list and watch them. While
	// classbind does not answer, no class is deleted. Deletions by the namespace controller
	// and the garbage collector are never refused. Example: Deny
	// +kubebuilder:default=Warn
	// +optional
	OnDelete OnDelete `json:"onDelete,omitempty"`
}

// CountsClaims reports whether the claims of each class are counted for the sake of the class kind, whatever the ClaimKinds say.
func (k *ClassKind) CountsClaims() bool { return k.Spec.OnDelete.Denies() || k.HasCapacity() }

// IsIgnored reports whether an admin has claims decided on without the classes.
func (k *ClassKind) IsIgnored() bool { return k.Annotations[IgnoredAnnotation] == "true" }

// IgnoreCommand is the command by which an admin has claims decided on without the classes of a ClassKind.
func IgnoreCommand(classKind string) string {
	return "kubectl annotate classkind " + classKind + " " + IgnoredAnnotation + "=true"
}

// Serves reports whether the classes can satisfy the claims of a ClaimKind: one of the two names the other.
func (k *ClassKind) Serves(c *ClaimKind) bool {
	return slices.Contains(k.Spec.ClaimKinds, ClaimKindLink{c.Name}) || slices.Contains(c.Spec.Classes.Kinds, ClassKindLink{k.Name})
}

// ClaimKindLink links a class kind to a ClaimKind.
type ClaimKindLink struct {
	// Name of the ClaimKind. Example: gateways.gateway.networking.k8s.io
	// +kubebuilder:validation:MaxLength=178
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +required
	Name string `json:"name"`
}

// Source is where a class has a value. With a path or an expression, classbind watches whole
// objects and keeps what it looks at; with an annotation, it watches only metadata.
//
// +kubebuilder:validation:XValidation:rule="[has(self.annotation), has(self.path), has(self.expression)].filter(is, is).size() == 1",message="name one of annotation, path and expression",messageExpression="has(self.annotation) && has(self.path) ? 'name one of annotation, path and expression, and not annotation and path together' : has(self.annotation) && has(self.expression) ? 'name one of annotation, path and expression, and not annotation and expression together' : has(self.path) ? 'name one of annotation, path and expression, and not path and expression together' : 'name one of annotation, path and expression'"
type Source struct {
	// Annotation is the key of an annotation. Example: example.org/weight
	// +optional
	Annotation MetadataKey `json:"annotation,omitempty"`

	// Path is the path of a field. Example: .spec.weight
	// +optional
	Path FieldPath `json:"path,omitempty"`

	// Expression is a CEL expression for the value. It may use class and, for a weight or a capacity,
	// classRelated; for the default not the status of the class.
	// Example: class.spec.tier == 'standard'
	// +optional
	Expression Expression `json:"expression,omitempty"`
}

// Places of the value, none for an expression. Where our own annotation counts, so does the one that Crossplane 0.3 had for it.
func (s Source) Places() []Place {
	if s.Expression != "" {
		return nil
	}
	places := []Place{{Path: s.Path, Annotation: s.Annotation}}
	switch s.Annotation {
	case DefaultAnnotation:
		places = append(places, Place{Annotation: CrossplaneDefaultAnnotation})
	case WeightAnnotation:
		places = append(places, Place{Annotation: CrossplaneWeightAnnotation})
	}
	return places
}

// ClassKindStatus is what classbind's leader has observed, for people and tools. No replica acts on it.
type ClassKindStatus struct {
	// Conditions are Ready, Guarded, ClaimKindsRegistered, WeightsValid, MarksValid,
	// LabelsIndexed and, where they apply, CapacitiesValid, ExpressionsValid and RelatedKnown.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Classes counts the watched classes of this kind.
	// +optional
	Classes int32 `json:"classes"`

	// Claims counts the claims that have a class of this kind, of the claim kinds with
	// BindLater or LeastClaims, or of all with a capacity or onDelete Deny. It is not set where
	// there is none. A claim whose class is gone does not count.
	// +optional
	Claims *int32 `json:"claims,omitempty"`

	// Served is true once the classes were offered to claims. From then on, no claim is bound
	// without them: while classbind cannot read them, the claims of their claim kinds are
	// answered with 503. It ends when the ClassKind is deleted, or its resource is not
	// installed any longer. classbind goes by its own record, and not by this field.
	// +optional
	Served bool `json:"served,omitempty"`
}

// ClassKindList is a list of ClassKinds.
//
// +kubebuilder:object:root=true
type ClassKindList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ClassKind `json:"items"`
}
