package v1beta1

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClaimKind registers one class reference of one kind of claim. classbind binds each
// new claim of the kind to a class of one of the ClassKinds that it names, or that name it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=classbind
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Strategy",type=string,JSONPath=`.spec.choice.strategy`
// +kubebuilder:printcolumn:name="Unmatched",type=string,JSONPath=`.spec.whenUnmatched`,priority=1
// +kubebuilder:printcolumn:name="Failure",type=string,JSONPath=`.spec.admission.failurePolicy`,priority=1
// +kubebuilder:printcolumn:name="Classes",type=integer,JSONPath=`.status.classes`
// +kubebuilder:printcolumn:name="Default",type=string,JSONPath=`.status.defaults[*].name`
// +kubebuilder:printcolumn:name="Own Defaults",type=integer,JSONPath=`.status.namespaceDefaults`,priority=1
// +kubebuilder:printcolumn:name="Partition Defaults",type=integer,JSONPath=`.status.partitionDefaults`,priority=1
// +kubebuilder:printcolumn:name="Bound",type=integer,JSONPath=`.status.boundClaims`
// +kubebuilder:printcolumn:name="Waiting",type=integer,JSONPath=`.status.waitingClaims`
// +kubebuilder:printcolumn:name="Failing",type=string,JSONPath=`.status.conditions[?(@.status=="False")].type`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="[(has(self.spec) && has(self.spec.claims) && has(self.spec.claims.resource) ? self.spec.claims.resource : self.metadata.name)].all(r, !(r in ['secrets', 'leases.coordination.k8s.io', 'customresourcedefinitions.apiextensions.k8s.io']) && !r.endsWith('.classbind.io') && !r.endsWith('.admissionregistration.k8s.io'))",message="classbind itself needs this resource to work, so it cannot be registered",fieldPath=".spec.claims.resource"
// +kubebuilder:validation:XValidation:rule="!((has(self.spec) && has(self.spec.claims) && has(self.spec.claims.resource) ? self.spec.claims.resource : self.metadata.name) in ['nodes', 'namespaces', 'serviceaccounts', 'endpoints', 'endpointslices.discovery.k8s.io', 'certificatesigningrequests.certificates.k8s.io', 'csinodes.storage.k8s.io', 'volumeattachments.storage.k8s.io', 'ipaddresses.networking.k8s.io', 'servicecidrs.networking.k8s.io', 'priorityclasses.scheduling.k8s.io', 'apiservices.apiregistration.k8s.io', 'events', 'events.events.k8s.io', 'bindings', 'configmaps', 'controllerrevisions.apps', 'replicasets.apps', 'leasecandidates.coordination.k8s.io', 'resourceslices.resource.k8s.io', 'csistoragecapacities.storage.k8s.io', 'podcertificaterequests.certificates.k8s.io'])",message="a cluster cannot work while this resource cannot be created, so it cannot be registered as a claim",fieldPath=".spec.claims.resource"
// +kubebuilder:validation:XValidation:rule="['.authorization.k8s.io', '.authentication.k8s.io', '.apiserver.k8s.io'].all(group, !(has(self.spec) && has(self.spec.claims) && has(self.spec.claims.resource) ? self.spec.claims.resource : self.metadata.name).endsWith(group))",message="a cluster cannot work while this resource cannot be created, so it cannot be registered as a claim",fieldPath=".spec.claims.resource"
// +kubebuilder:validation:XValidation:rule="(has(self.spec) && has(self.spec.claims) && has(self.spec.claims.resource) ? self.spec.claims.resource : self.metadata.name) == (has(oldSelf.spec) && has(oldSelf.spec.claims) && has(oldSelf.spec.claims.resource) ? oldSelf.spec.claims.resource : oldSelf.metadata.name)",message="the resource cannot be changed: delete the ClaimKind, and create one for the other resource",fieldPath=".spec.claims.resource"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 178",message="metadata.name must be at most 178 characters long, to leave room in the names of the webhook and of the Lease",fieldPath=".metadata"
type ClaimKind struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +kubebuilder:default={}
	// +optional
	Spec ClaimKindSpec `json:"spec,omitzero"`
	// +optional
	Status ClaimKindStatus `json:"status,omitzero"`
}

// The rules of ClaimKindSpec allow absent paths because the API server checks the default of spec, which is {}, against them before it
// fills in the nested defaults. (This stands apart because kubectl explain shows the next comment.)

// ClaimKindSpec says which claims are bound, to which classes, and how. Its defaults fit a Crossplane-shaped claim.
//
// +kubebuilder:validation:XValidation:rule="!has(self.reference) || !has(self.reference.path) || !has(self.selector) || !has(self.selector.path) || self.reference.path != self.selector.path && !self.selector.path.startsWith(self.reference.path + '.') && !self.reference.path.startsWith(self.selector.path + '.')",message="reference.path and selector.path must not be the same field nor lie within each other",fieldPath=".reference"
// +kubebuilder:validation:XValidation:rule="!has(self.reference) || !has(self.reference.annotation) || !has(self.selector) || !has(self.selector.annotation) || self.reference.annotation != self.selector.annotation",message="reference.annotation and selector.annotation must not be the same annotation",fieldPath=".reference"
// +kubebuilder:validation:XValidation:rule="!has(self.claims) || !has(self.claims.skipIfSet) || !has(self.selector) || !has(self.selector.path) || self.claims.skipIfSet.all(p, !has(p.path) || p.path != self.selector.path && !self.selector.path.startsWith(p.path + '.'))",message="skipIfSet must not name selector.path nor a parent of it: no claim with a selector would be bound",fieldPath=".claims"
// +kubebuilder:validation:XValidation:rule="!has(self.claims) || !has(self.claims.skipIfSet) || !has(self.selector) || !has(self.selector.annotation) || self.claims.skipIfSet.all(p, !has(p.annotation) || p.annotation != self.selector.annotation)",message="skipIfSet must not name selector.annotation: no claim with a selector would be bound",fieldPath=".claims"
// +kubebuilder:validation:XValidation:rule="!has(self.classes) || !has(self.classes.namespaces) || !has(self.reference) || !has(self.classes.namespaces.from) || self.classes.namespaces.from != 'All' || (has(self.reference.parts) ? self.reference.parts.exists(p, p.is == 'Namespace') : !has(self.reference.form) || self.reference.form in ['ObjectReference', 'TypedObjectReference', 'NamespacedReference'])",message="namespaces.from: All needs a reference that carries a namespace: set reference.form to ObjectReference, TypedObjectReference or NamespacedReference, give it a part that is a Namespace, or name one namespace",fieldPath=".classes"
// +kubebuilder:validation:XValidation:rule="!has(self.classes) || !has(self.classes.namespaces) || !has(self.reference) || !has(self.classes.namespaces.names) || self.classes.namespaces.names.size() == 1 || (has(self.reference.parts) ? self.reference.parts.exists(p, p.is == 'Namespace') : !has(self.reference.form) || self.reference.form in ['ObjectReference', 'TypedObjectReference', 'NamespacedReference'])",message="namespaces.names: a reference that carries no namespace needs exactly one: name one, set reference.form to ObjectReference, TypedObjectReference or NamespacedReference, or give it a part that is a Namespace",fieldPath=".classes"
// +kubebuilder:validation:XValidation:rule="!has(self.classes) || !has(self.classes.use) || self.classes.use.subject != 'Requester' || !has(self.whenUnmatched) || self.whenUnmatched != 'BindLater'",message="use.subject: Requester is unknown for a claim that is bound later: set Namespace, or whenUnmatched to Admit or Deny",fieldPath=".classes"
// +kubebuilder:validation:XValidation:rule="!has(self.reference) || !has(self.reference.list) || self.reference.list != 'CheckOnly' || has(self.reference.explicit) && self.reference.explicit == 'Check' || has(self.classes) && has(self.classes.use)",message="list: CheckOnly binds no claim, so set explicit: Check or classes.use: otherwise, nothing is checked",fieldPath=".reference"
// +kubebuilder:validation:XValidation:rule="!has(self.reference) || !has(self.reference.list) || self.reference.list != 'CheckOnly' || (!has(self.whenUnmatched) || self.whenUnmatched == 'Admit') && (!has(self.admission) || !has(self.admission.defaulting) || self.admission.defaulting == 'Webhook')",message="list: CheckOnly binds no claim: leave out whenUnmatched and admission.defaulting",fieldPath=".reference"
type ClaimKindSpec struct {
	// Claims are the claims that are bound: of which kind, in which namespaces, and when.
	// Example: {resource: gateways.gateway.networking.k8s.io, version: v1}
	// +kubebuilder:default={}
	// +optional
	Claims Claims `json:"claims,omitzero"`

	// Reference is where a claim has the reference to its class, and in which form.
	// Example: {path: .spec.gatewayClassName, form: Name}
	// +kubebuilder:default={path: ".spec.classRef"}
	// +optional
	Reference Reference `json:"reference,omitzero"`

	// Selector is what a claim asks for: where it has its selector over the labels of
	// classes. Example: {path: .spec.crossplane.compositionSelector}
	// +kubebuilder:default={}
	// +optional
	Selector ClassSelector `json:"selector,omitzero"`

	// Classes are the classes that a claim can get: of which kinds, in which namespaces, and
	// what they must meet. Example: {namespaces: {from: All}}
	// +kubebuilder:default={}
	// +optional
	Classes Classes `json:"classes,omitzero"`

	// Choice is how one of several candidates is chosen. Example: {strategy: LeastClaims}
	// +kubebuilder:default={}
	// +optional
	Choice Choice `json:"choice,omitzero"`

	// WhenUnmatched says what happens to a claim that no class matches. Admit
	// creates it without a class and warns its author. Deny refuses it (403).
	// BindLater creates it as Admit does, and binds it, like every other claim of
	// this kind without a class, once a class matches. For BindLater, classbind
	// needs to list, watch and patch the claims. Example: BindLater
	// +kubebuilder:default=Admit
	// +optional
	WhenUnmatched WhenUnmatched `json:"whenUnmatched,omitempty"`

	// Admission is how the API server asks classbind about claims.
	// Example: {order: First, failurePolicy: Ignore}
	// +kubebuilder:default={}
	// +optional
	Admission Admission `json:"admission,omitzero"`
}

// Claims are the claims of a ClaimKind.
type Claims struct {
	// Resource is the kind of the claims, PLURAL.GROUP, or PLURAL in the core group.
	// Without it, the name of the ClaimKind is the kind. A kind of claim with two class
	// references has two ClaimKinds, and at least one of them names it here. Of two
	// ClaimKinds with the same resource and reference, the first by name is served.
	// Example: gateways.gateway.networking.k8s.io
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +optional
	Resource string `json:"resource,omitempty"`

	// Version of the claims for which the paths are written. The API server converts
	// claims of other versions before classbind reads them. Without it, it is the version
	// that the API server prefers when the ClaimKind is registered; the status has it.
	// Example: v1beta2
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z]([-a-z0-9]*[a-z0-9])?$`
	// +optional
	Version string `json:"version,omitempty"`

	// NamespaceSelector selects the namespaces whose claims are bound; an empty one
	// selects all. kube-system and classbind's own namespace are always left out.
	// Example: {matchLabels: {team: payments}}
	// +kubebuilder:default={}
	// +optional
	NamespaceSelector LabelSelector `json:"namespaceSelector,omitzero"`

	// SkipIfSet lists further places. A claim with any value but null at one of them is
	// left alone. Example: [{annotation: kubernetes.io/ingress.class}]
	// +kubebuilder:default={{path: ".spec.resourceRef"}}
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="!self.exists(p, has(p.path) && p.path in ['.apiVersion', '.kind', '.metadata', '.metadata.name', '.metadata.namespace'])",message="must not name what every claim has: no claim would be bound"
	// +kubebuilder:validation:items:XValidation:rule="[has(self.path), has(self.label), has(self.annotation)].exists(is, is)",message="name one of path, label and annotation"
	// +listType=atomic
	// +optional
	SkipIfSet []Place `json:"skipIfSet,omitzero"`

	// When is a CEL expression that reports whether a claim is to be bound now. If absent,
	// classbind binds every claim without a class reference. An expression that looks at the
	// reference also decides on claims that have one, such as a default of their schema;
	// any other leaves these alone. With BindLater, a claim for which it is false is looked
	// at again when the claim or a related object changes. If it fails, the claim is refused:
	// ask with has() for what may be absent. It may use claim, namespaceObject, related and,
	// without BindLater, request.
	// Example: claim.spec.providerConfigRef.name == 'default'
	// +optional
	When Expression `json:"when,omitempty"`
}

// Classes are the classes that claims of a ClaimKind can get.
//
// +kubebuilder:validation:XValidation:rule="!has(self.precedence) || self.precedence != 'Listed' || has(self.kinds) && self.kinds.size() > 0",message="Listed needs kinds, in whose order a name is looked for",fieldPath=".kinds"
type Classes struct {
	// Kinds lists class kinds whose classes can satisfy the claims, each by the name of its
	// ClassKind, PLURAL.GROUP, beside those whose ClassKind names this ClaimKind. The
	// ClassKind need not exist yet. Example: [{name: storageclasses.storage.k8s.io}]
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=name
	// +optional
	Kinds []ClassKindLink `json:"kinds,omitempty"`

	// Precedence says which class a name means where the form of reference cannot distinguish class
	// kinds apart. With Name, claims are offered the classes of one of them, whose name comes first.
	// With Listed, who reads the claims looks for the name in one kind after the other, in the
	// order of kinds. So all of these are offered, but for a class whose name a class of a kind
	// before has. Example: Listed
	// +kubebuilder:default=Name
	// +optional
	Precedence Precedence `json:"precedence,omitempty"`

	// Namespaces are those whose classes of a namespaced kind are offered to a claim. Classes
	// without a namespace are offered to every claim. Example: {from: Names, names: [platform]}
	// +kubebuilder:default={}
	// +optional
	Namespaces ClassNamespaces `json:"namespaces,omitzero"`

	// Related are objects that a claim names, such as its plan, or those of its namespace with some
	// labels, such as quotas, for expressions to look at as related.NAME. They are looked up in this
	// order, so that one may be named by another before it. classbind needs to list and watch them.
	// Example: [{name: plan, resource: sfplans.osb.servicefabrik.io, nameExpression: claim.spec.planId}]
	// +kubebuilder:validation:MaxItems=8
	// +listType=map
	// +listMapKey=name
	// +optional
	Related []Related `json:"related,omitempty"`

	// Fits are conditions that a class must meet to be given to a claim.
	// Example: [{name: SameDriver, expression: class.driver == related.storage.provisioner}]
	// +kubebuilder:validation:MaxItems=8
	// +listType=map
	// +listMapKey=name
	// +optional
	Fits []Fit `json:"fits,omitempty"`

	// Use says whose right to use a class counts. Without it, every claim may have every class
	// that it is offered. Example: {subject: Namespace}
	// +optional
	Use *Use `json:"use,omitempty"`

	// Usage is how much of the capacity of its class a claim uses, by quantity. Without it, that
	// is 1 of the quantity claims. Example: [{name: storage, expression: claim.spec.size}]
	// +kubebuilder:validation:MaxItems=4
	// +listType=map
	// +listMapKey=name
	// +optional
	Usage []Usage `json:"usage,omitempty"`

	// Partition keeps default classes apart: there is one for each partition, such as a
	// tenant, a driver or a zone. Without it, there is one for all claims of the kind.
	// Example: {claim: namespaceObject.metadata.labels.tenant, class: class.metadata.labels.tenant}
	// +optional
	Partition *Partition `json:"partition,omitempty"`
}

// Use says whose right to use a class counts. The right is one of RBAC, or of another
// authorizer: the verb use on the resource of the class, for one name or for all.
type Use struct {
	// Subject is Namespace or Requester. Namespace is the namespace of the claim: what the group
	// system:serviceaccounts:NAMESPACE may use. Claims that a controller creates, or that are bound
	// later, get the same as others. Requester is who creates the claim, or changes its reference.
	// Example: Namespace
	// +required
	Subject UseSubject `json:"subject"`
}

// ClassKindLink links a ClaimKind to a class kind.
type ClassKindLink struct {
	// Name of the ClassKind. Example: storageclasses.storage.k8s.io
	// +kubebuilder:validation:MaxLength=230
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +required
	Name string `json:"name"`
}

// Admission is how the API server asks about claims.
type Admission struct {
	// Order is Last or First among the mutating webhooks of all programs. Last lets
	// others say first what they want of a claim. First is for claims that the webhook of
	// another program refuses without a class, such as those of Cluster API. Example: First
	// +kubebuilder:default=Last
	// +optional
	Order Order `json:"order,omitempty"`

	// FailurePolicy says what happens to a claim when classbind cannot answer:
	// Fail refuses it, Ignore admits it without a class. Example: Ignore
	// +kubebuilder:default=Fail
	// +optional
	FailurePolicy FailurePolicy `json:"failurePolicy,omitempty"`

	// Defaulting says who gives the default class to a claim without a selector. Webhook is
	// classbind. Policy is the API server itself, by a MutatingAdmissionPolicy that
	// classbind's leader keeps (Kubernetes 1.36 and later): such a claim needs no call, and
	// is bound while classbind is down, too. Where the API server cannot determine which class
	// that is, classbind does as before, and the condition DefaultedByPolicy says why. The
	// policy comes before all mutating webhooks: choose Webhook if another one gives claims
	// their selector. Example: Policy
	// +kubebuilder:default=Webhook
	// +optional
	Defaulting Defaulting `json:"defaulting,omitempty"`
}

// ClaimKindStatus is what classbind's leader has observed, for people and tools. No replica acts on it.
type ClaimKindStatus struct {
	// Conditions are Ready, SingleDefault, PathsValid, ClassKindsRead and, where they apply,
	// LateBinding, ClaimsCounted, SelectorsRead, ExpressionsValid, RelatedKnown,
	// DefaultedByPolicy, UseEnforced and ChooserReady.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Version of the claims for which the paths are written: that of the spec, or the
	// one that the API server preferred when the ClaimKind was registered.
	// +optional
	Version string `json:"version,omitempty"`

	// Required lists the fields that the schema of the claims requires, of the reference
	// and of what leads to it. A claim that stays without a class, and so without one of
	// them, is refused. A field that may be empty is not among them, except with whenEmpty: LeaveAlone.
	// +kubebuilder:validation:MaxItems=16
	// +listType=set
	// +optional
	Required []FieldPath `json:"required,omitempty"`

	// SelectorAbsent is true if the schema of the claims has no field for a selector. Then a
	// claim has its selector in the annotation.
	// +optional
	SelectorAbsent bool `json:"selectorAbsent,omitempty"`

	// Classes counts the classes, of all class kinds, that claims of this kind can
	// be bound to.
	// +optional
	Classes int32 `json:"classes"`

	// Defaults are the default classes for all namespaces and partitions, the first 16 by
	// class kind, namespace and name. There should be at most one.
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	Defaults []DefaultClass `json:"defaults,omitempty"`

	// DefaultCount counts the default classes for all namespaces and partitions, also those
	// that are not listed.
	// +optional
	DefaultCount int32 `json:"defaultCount"`

	// NamespaceDefaults counts the namespaces with a default class of their own,
	// which takes precedence over the default class for all namespaces.
	// +optional
	NamespaceDefaults int32 `json:"namespaceDefaults"`

	// PartitionDefaults counts the partitions with a default class of their own, which
	// takes precedence over the default class for the others. Where claims are offered the
	// classes of their own namespace alone, a partition counts once for each namespace.
	// +optional
	PartitionDefaults int32 `json:"partitionDefaults"`

	// BoundClaims counts the claims with a class. It is set only where the claims are watched: with
	// BindLater or LeastClaims, or for a ClassKind with a capacity or onDelete Deny.
	// +optional
	BoundClaims *int32 `json:"boundClaims,omitempty"`

	// WaitingClaims counts the claims that wait for a class. It is set only with
	// BindLater.
	// +optional
	WaitingClaims *int32 `json:"waitingClaims,omitempty"`
}

// DefaultClass is a class that is marked as the default.
type DefaultClass struct {
	// Kind of the class, as in its manifest. Example: GatewayClass
	// +required
	Kind string `json:"kind"`
	// Namespace of the class, if its kind is namespaced.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Name of the class. Example: internal
	// +required
	Name string `json:"name"`
	// Cordoned is true if the class is cordoned, so that no new claim gets it.
	// +optional
	Cordoned bool `json:"cordoned,omitempty"`
}

// Resource returns the kind of the claims, PLURAL.GROUP.
func (k *ClaimKind) Resource() string { return cmp.Or(k.Spec.Claims.Resource, k.Name) }

// ClaimKindList is a list of ClaimKinds.
//
// +kubebuilder:object:root=true
type ClaimKindList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ClaimKind `json:"items"`
}
