package v1alpha1

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClaimKind registers a kind of claim. classbind binds each new claim of the kind
// to a class of one of the ClassKinds that name it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=classbind
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Strategy",type=string,JSONPath=`.spec.strategy`
// +kubebuilder:printcolumn:name="Unmatched",type=string,JSONPath=`.spec.whenUnmatched`,priority=1
// +kubebuilder:printcolumn:name="Failure",type=string,JSONPath=`.spec.failurePolicy`,priority=1
// +kubebuilder:printcolumn:name="Classes",type=integer,JSONPath=`.status.classes`
// +kubebuilder:printcolumn:name="Default",type=string,JSONPath=`.status.defaultClass`
// +kubebuilder:printcolumn:name="Own Defaults",type=integer,JSONPath=`.status.namespaceDefaults`,priority=1
// +kubebuilder:printcolumn:name="Bound",type=integer,JSONPath=`.status.boundClaims`
// +kubebuilder:printcolumn:name="Waiting",type=integer,JSONPath=`.status.waitingClaims`
// +kubebuilder:printcolumn:name="Failing",type=string,JSONPath=`.status.conditions[?(@.status=="False")].type`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="!(self.metadata.name in ['secrets', 'leases.coordination.k8s.io', 'customresourcedefinitions.apiextensions.k8s.io']) && !self.metadata.name.endsWith('.classbind.io') && !self.metadata.name.endsWith('.admissionregistration.k8s.io')",message="classbind itself needs this resource to work, so it cannot be registered",fieldPath=".metadata"
// +kubebuilder:validation:XValidation:rule="!(self.metadata.name in ['nodes', 'namespaces', 'serviceaccounts', 'endpoints', 'endpointslices.discovery.k8s.io', 'certificatesigningrequests.certificates.k8s.io', 'csinodes.storage.k8s.io', 'volumeattachments.storage.k8s.io', 'ipaddresses.networking.k8s.io', 'servicecidrs.networking.k8s.io', 'priorityclasses.scheduling.k8s.io', 'apiservices.apiregistration.k8s.io'])",message="a cluster cannot work while this resource cannot be created, so it cannot be registered as a claim",fieldPath=".metadata"
// +kubebuilder:validation:XValidation:rule="!['.authorization.k8s.io', '.authentication.k8s.io', '.apiserver.k8s.io'].exists(group, self.metadata.name.endsWith(group))",message="a cluster cannot work while this resource cannot be created, so it cannot be registered as a claim",fieldPath=".metadata"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 178",message="metadata.name must be at most 178 characters long, to leave room in the names of the webhook and of the Lease",fieldPath=".metadata"
type ClaimKind struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +kubebuilder:default={}
	// +optional
	Spec ClaimKindSpec `json:"spec,omitzero"`
	// +optional
	Status ClaimKindStatus `json:"status,omitzero"`
}

// The rules of ClaimKindSpec allow absent paths because the API server checks the default
// of spec, which is {}, against them before it fills in the nested defaults. (This stands
// apart because kubectl explain shows the next comment.)

// ClaimKindSpec says how claims of a kind are read, bound and answered. Its
// defaults fit a Crossplane-shaped claim.
//
// +kubebuilder:validation:XValidation:rule="!has(self.paths) || self.paths.classRef != self.paths.classSelector && !self.paths.classSelector.startsWith(self.paths.classRef + '.') && !self.paths.classRef.startsWith(self.paths.classSelector + '.')",message="paths.classRef and paths.classSelector must not be the same field nor lie within each other",fieldPath=".paths"
// +kubebuilder:validation:XValidation:rule="!has(self.paths) || !has(self.paths.skipIfSet) || self.paths.skipIfSet.all(p, p != self.paths.classSelector && !self.paths.classSelector.startsWith(p + '.'))",message="paths.skipIfSet must not name paths.classSelector nor a parent of it: no claim with a selector would be bound",fieldPath=".paths.skipIfSet"
// +kubebuilder:validation:XValidation:rule="!has(self.classNamespaces) || !has(self.classRefFormat) || !has(self.classNamespaces.from) || self.classNamespaces.from != 'All' || self.classRefFormat == 'ObjectReference'",message="All needs a reference that carries a namespace: set classRefFormat to ObjectReference, or name one namespace",fieldPath=".classNamespaces.from"
// +kubebuilder:validation:XValidation:rule="!has(self.classNamespaces) || !has(self.classRefFormat) || !has(self.classNamespaces.names) || self.classNamespaces.names.size() == 1 || self.classRefFormat == 'ObjectReference'",message="a reference that carries no namespace needs exactly one name: name one, or set classRefFormat to ObjectReference",fieldPath=".classNamespaces.names"
type ClaimKindSpec struct {
	// Paths are the fields that classbind reads and writes in a claim, in the
	// version that the API server prefers for its kind.
	// +kubebuilder:default={}
	// +optional
	Paths ClaimPaths `json:"paths,omitzero"`

	// ClassRefFormat is the form of the class reference: ObjectReference
	// ({apiVersion, kind, name}, and namespace for a namespaced class),
	// TypedLocalObjectReference ({apiGroup, kind, name}), LocalObjectReference
	// ({name}) or Name (a string). The last two carry no kind, so claims are
	// offered the classes of one class kind, the one that was registered first.
	// +kubebuilder:default=ObjectReference
	// +optional
	ClassRefFormat ClassRefFormat `json:"classRefFormat,omitempty"`

	// ClassNamespaces are the namespaces whose classes of a namespaced kind are
	// offered to a claim. Classes without a namespace are offered to every claim.
	// +kubebuilder:default={}
	// +optional
	ClassNamespaces ClassNamespaces `json:"classNamespaces,omitzero"`

	// Strategy chooses one of several candidates. Random gives every class an equal
	// share, and WeightedRandom a share proportional to its weight. HighestWeight
	// takes the heaviest class, with equal shares among ties. LeastClaims takes the
	// class with the fewest bound claims of this kind, with weighted shares among
	// ties; classbind needs to list and watch the claims for it. RoundRobin takes the
	// class that was given to a claim of this kind the longest ago, and ignores
	// weights; each replica of classbind takes its own turns.
	// +kubebuilder:default=WeightedRandom
	// +optional
	Strategy Strategy `json:"strategy,omitempty"`

	// Seed of the draw. With Claim, it is the claim's identity: the same claim
	// always gets the same class from the same classes. With Request, it is new for
	// each request. A claim with generateName has no identity yet when it is bound,
	// so it always gets a new seed.
	// +kubebuilder:default=Claim
	// +optional
	Seed Seed `json:"seed,omitempty"`

	// WhenUnmatched says what happens to a claim that no class matches. Admit
	// creates it without a class and warns its author. Deny refuses it (403).
	// BindLater creates it as Admit does, and binds it, like every other claim of
	// this kind without a class, once a class matches. For BindLater, classbind
	// needs to list, watch and patch the claims.
	// +kubebuilder:default=Admit
	// +optional
	WhenUnmatched WhenUnmatched `json:"whenUnmatched,omitempty"`

	// FailurePolicy says what happens to a claim when classbind cannot answer:
	// Fail refuses it, Ignore admits it without a class.
	// +kubebuilder:default=Fail
	// +optional
	FailurePolicy FailurePolicy `json:"failurePolicy,omitempty"`

	// NamespaceSelector selects the namespaces whose claims are bound; an empty one
	// selects all. kube-system and classbind's own namespace are always left out.
	// +kubebuilder:default={}
	// +optional
	NamespaceSelector NamespaceSelector `json:"namespaceSelector,omitzero"`
}

// ClaimPaths are the fields of a claim that classbind reads and writes.
type ClaimPaths struct {
	// ClassSelector is the path of a selector over the labels of classes, with
	// matchLabels and matchExpressions. Any claim may have its selector in the
	// annotation classbind.io/class-selector instead, which a claim kind without
	// such a field needs.
	// +kubebuilder:default=".spec.classSelector"
	// +optional
	ClassSelector FieldPath `json:"classSelector,omitempty"`

	// ClassRef is the path of the class reference, which classbind writes. A claim
	// with any value but null there is left alone.
	// +kubebuilder:default=".spec.classRef"
	// +kubebuilder:validation:XValidation:rule="!(self in ['.apiVersion', '.kind', '.metadata', '.status']) && !self.startsWith('.metadata.') && !self.startsWith('.status.')",message="must not name the apiVersion, kind, metadata or status of a claim: the API server owns these"
	// +optional
	ClassRef FieldPath `json:"classRef,omitempty"`

	// SkipIfSet lists further paths. A claim with any value but null at one of
	// them is left alone.
	// +kubebuilder:default={".spec.resourceRef"}
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="!self.exists(p, p in ['.apiVersion', '.kind', '.metadata', '.metadata.name', '.metadata.namespace'])",message="must not name what every claim has: no claim would be bound"
	// +listType=set
	// +optional
	SkipIfSet []FieldPath `json:"skipIfSet,omitempty"`
}

// SettledBy lists the fields that settle a claim: one in which any of them is set, to
// anything but null, is left alone. The class reference is the first.
func (p *ClaimPaths) SettledBy() []FieldPath { return append([]FieldPath{p.ClassRef}, p.SkipIfSet...) }

// The length of a FieldPath is limited because the API server compiles each path into an
// expression: dozens of names take seconds.

// FieldPath is a path into an object as in a CRD's scale subresource: field
// names, each after a dot, and no indices.
//
// +kubebuilder:validation:MaxLength=256
// +kubebuilder:validation:XValidation:rule="self.matches('^([.][A-Za-z_][A-Za-z0-9_-]*){1,10}$')",message="must be a path of at most ten field names, each after a dot, such as .spec.classRef"
type FieldPath string

// Names returns the field names, outermost first.
func (p FieldPath) Names() []string { return strings.Split(strings.TrimPrefix(string(p), "."), ".") }

// JSONPointer returns the path in RFC 6901 form. Field names need no escaping.
func (p FieldPath) JSONPointer() string { return strings.ReplaceAll(string(p), ".", "/") }

// ClassRefFormat is the form of a class reference.
//
// +kubebuilder:validation:Enum=ObjectReference;LocalObjectReference;TypedLocalObjectReference;Name
type ClassRefFormat string

// The forms of a class reference.
const (
	ObjectReference           ClassRefFormat = "ObjectReference"
	LocalObjectReference      ClassRefFormat = "LocalObjectReference"
	TypedLocalObjectReference ClassRefFormat = "TypedLocalObjectReference"
	Name                      ClassRefFormat = "Name"
)

// Strategy chooses one of several candidates.
//
// +kubebuilder:validation:Enum=Random;WeightedRandom;HighestWeight;LeastClaims;RoundRobin
type Strategy string

// The strategies.
const (
	Random         Strategy = "Random"
	WeightedRandom Strategy = "WeightedRandom"
	HighestWeight  Strategy = "HighestWeight"
	LeastClaims    Strategy = "LeastClaims"
	RoundRobin     Strategy = "RoundRobin"
)

// Seed is what a draw is seeded with.
//
// +kubebuilder:validation:Enum=Claim;Request
type Seed string

// The seeds of a draw.
const (
	SeedClaim   Seed = "Claim"
	SeedRequest Seed = "Request"
)

// WhenUnmatched is the answer to a claim that no class matches.
//
// +kubebuilder:validation:Enum=Admit;Deny;BindLater
type WhenUnmatched string

// The answers to a claim that no class matches.
const (
	Admit     WhenUnmatched = "Admit"
	Deny      WhenUnmatched = "Deny"
	BindLater WhenUnmatched = "BindLater"
)

// FailurePolicy is the failurePolicy of a webhook.
//
// +kubebuilder:validation:Enum=Fail;Ignore
type FailurePolicy string

// The failure policies of a webhook.
const (
	Fail   FailurePolicy = "Fail"
	Ignore FailurePolicy = "Ignore"
)

// ClaimKindStatus is what classbind's leader has observed.
type ClaimKindStatus struct {
	// Classes counts the classes, of all class kinds, that claims of this kind can
	// be bound to.
	// +optional
	Classes int32 `json:"classes"`

	// DefaultClass is the kind and name of the default class for all namespaces,
	// followed by "(cordoned)" if it is, and by "+N" if there are N more, which
	// should not happen.
	// +optional
	DefaultClass string `json:"defaultClass,omitempty"`

	// NamespaceDefaults counts the namespaces with a default class of their own,
	// which takes precedence over the default class for all namespaces.
	// +optional
	NamespaceDefaults int32 `json:"namespaceDefaults,omitempty"`

	// BoundClaims counts the claims with a class. It is set only with BindLater or
	// LeastClaims, which watch the claims.
	// +optional
	BoundClaims *int32 `json:"boundClaims,omitempty"`

	// WaitingClaims counts the claims that wait for a class. It is set only with
	// BindLater.
	// +optional
	WaitingClaims *int32 `json:"waitingClaims,omitempty"`

	// Conditions are Ready, SingleDefault, PathsValid and, where they apply,
	// LateBinding, ClaimsCounted and SelectorsHeeded.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ClaimKindList is a list of ClaimKinds.
//
// +kubebuilder:object:root=true
type ClaimKindList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ClaimKind `json:"items"`
}
