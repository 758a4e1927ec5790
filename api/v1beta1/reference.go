package v1beta1

import (
	"cmp"
	"strings"
)

// Reference is the class reference of a claim: where it is, in which form, and what counts as absent.
//
// +kubebuilder:validation:XValidation:rule="[has(self.path), has(self.label), has(self.annotation), has(self.parts)].exists(is, is)",message="name one of path, label, annotation and parts"
// +kubebuilder:validation:XValidation:rule="has(self.path) || has(self.parts) || has(self.form) && self.form == 'Name'",message="a label or an annotation is a string: set form to Name",fieldPath=".form"
// +kubebuilder:validation:XValidation:rule="!has(self.parts) || !has(self.form)",message="a form is a list of parts, so form and parts exclude each other",fieldPath=".parts"
// +kubebuilder:validation:XValidation:rule="!has(self.parts) || !has(self.label) && !has(self.annotation)",message="a label or an annotation has no parts: give each part its own label or annotation",fieldPath=".parts"
// +kubebuilder:validation:XValidation:rule="!has(self.parts) || !has(self.path) || self.parts.all(p, has(p.path) && p.path.startsWith(self.path + '.') && p.path.substring(self.path.size() + 1).matches('^[A-Za-z_][A-Za-z0-9_]*$'))",message="beside reference.path, each part must be a field of the object there, with letters, digits and _ in its name",fieldPath=".parts"
// +kubebuilder:validation:XValidation:rule="!has(self.list) || has(self.path)",message="a list is a field: set path",fieldPath=".list"
// +kubebuilder:validation:XValidation:rule="!has(self.within) || has(self.list) && self.list == 'CheckOnly'",message="classbind writes no reference within an element: set list to CheckOnly",fieldPath=".within"
// +kubebuilder:validation:XValidation:rule="!has(self.within) || !has(self.parts)",message="a reference within an element has a form: within and parts exclude each other",fieldPath=".within"
// +kubebuilder:validation:XValidation:rule="has(self.path) || !has(self.whenParentAbsent) || self.whenParentAbsent == 'Create' || has(self.parts) && has(self.parts[0].path)",message="a label or an annotation has no parent that could be absent: leave this field out",fieldPath=".whenParentAbsent"
// +kubebuilder:validation:XValidation:rule="!has(self.path) || !(self.path in ['.apiVersion', '.kind', '.metadata', '.status']) && !self.path.startsWith('.metadata.') && !self.path.startsWith('.status.')",message="must not name the apiVersion, kind, metadata or status of a claim: the API server owns these",fieldPath=".path"
type Reference struct {
	Place `json:",inline"`

	// Form of the reference: ObjectReference ({apiVersion, kind, name, namespace}),
	// TypedObjectReference ({apiGroup, kind, name, namespace}), TypedLocalObjectReference
	// ({apiGroup, kind, name}), GroupKindReference ({group, kind, name}), KindReference
	// ({kind, name}), NamespacedReference ({name, namespace}), LocalObjectReference
	// ({name}) or Name (a string). The namespace is that of a namespaced class. The last
	// three carry no kind, so claims are offered the classes of one class kind, the one
	// whose name comes first. KindReference carries no group, so of class kinds with
	// the same Kind, the same applies. Without parts, it is ObjectReference if absent. Example: Name
	// +optional
	Form ReferenceForm `json:"form,omitempty"`

	// Parts are the values of a reference that has no form above: fields of one object, or
	// labels, or annotations. With path, they are the fields of the object there, which is the
	// reference. Without, they are among other fields. Example: [{is: Name, path:
	// .spec.source}, {is: Namespace, path: .spec.sourceNamespace}]
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:XValidation:rule="self.exists(p, p.is == 'Name')",message="one part must be the Name"
	// +kubebuilder:validation:XValidation:rule="!self.exists(p, p.is == 'Group') || !self.exists(p, p.is == 'APIVersion')",message="Group and APIVersion exclude each other"
	// +kubebuilder:validation:XValidation:rule="!self.exists(p, p.is == 'Kind') || !self.exists(p, p.is == 'Flag')",message="Kind and Flag exclude each other"
	// +kubebuilder:validation:XValidation:rule="self.exists(p, p.is == 'Kind') || !self.exists(p, p.is in ['Group', 'APIVersion'])",message="a Group or an APIVersion needs a Kind"
	// +kubebuilder:validation:XValidation:rule="self.all(p, has(p.label)) || self.all(p, has(p.annotation)) || self.all(p, has(p.path) && p.path.substring(0, p.path.lastIndexOf('.')) == self[0].path.substring(0, self[0].path.lastIndexOf('.')))",message="all parts must be fields of one object, or labels, or annotations"
	// +listType=map
	// +listMapKey=is
	// +optional
	Parts []ReferencePart `json:"parts,omitempty"`

	// List has path lead to a list of references. WhenAbsent writes a list with one
	// reference if it is absent or empty. A list that has elements is what the author wants: it
	// stays as it is, and explicit and use check all of them. CheckOnly never writes: claims are not bound
	// nor counted, only checked. Parts are fields of an element, below path. Example: WhenAbsent
	// +optional
	List ListPolicy `json:"list,omitempty"`

	// Within are the paths of references in an element of a list, if the element itself is none. One of
	// the fields may be a list, too. Example: [.exactly.deviceClassName, ".firstAvailable[*].deviceClassName"]
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	// +listType=set
	// +optional
	Within []ElementPath `json:"within,omitempty"`

	// WhenEmpty says what happens to a claim with an empty string or list, or with an object whose
	// name is empty or absent. Bind takes it for none, because typed clients send it, and
	// writes only the fields that are empty or absent: those that the author has set, such
	// as the kind, select among the classes. LeaveAlone takes it for a reference: with "", the
	// author of a volume claim asks for no class. Example: LeaveAlone
	// +kubebuilder:default=Bind
	// +optional
	WhenEmpty WhenEmpty `json:"whenEmpty,omitempty"`

	// WhenAbsent says what happens to a claim without any reference: neither a string nor an
	// object, not even an empty one. Bind writes the reference. LeaveAlone leaves the claim alone,
	// for a reference beside whose name the author has to give something, such as the major
	// version of an image catalog. Example: LeaveAlone
	// +kubebuilder:default=Bind
	// +optional
	WhenAbsent WhenReferenceAbsent `json:"whenAbsent,omitempty"`

	// WhenParentAbsent says what happens if the object that has the reference is absent,
	// such as .spec.topology of .spec.topology.classRef. Create creates it with the
	// reference, LeaveAlone leaves the claim alone. Example: LeaveAlone
	// +kubebuilder:default=Create
	// +optional
	WhenParentAbsent WhenParentAbsent `json:"whenParentAbsent,omitempty"`

	// Explicit says what happens to a claim that names a class itself. Allow creates it,
	// whatever the class. Check refuses it (403) if the class is not there, does not fit the claim,
	// is cordoned or being deleted, or is not offered to it: on its creation, and when an update
	// changes the reference. Example: Check
	// +kubebuilder:default=Allow
	// +optional
	Explicit Explicit `json:"explicit,omitempty"`

	// OnUnbind says what happens when an update of a claim removes the reference to its
	// class, as kubectl replace does with a file that has none. Restore puts the
	// reference back, Allow does not. An update to another reference is always allowed.
	// Example: Allow
	// +kubebuilder:default=Restore
	// +optional
	OnUnbind OnUnbind `json:"onUnbind,omitempty"`
}

// Names returns the field names that lead to the object of the reference, or to the name in one without an object of its own.
func (r *Reference) Names() []string { return r.Main().Names() }

// Main is the place of the object of the reference, or of the name in one without an object of its own.
func (r *Reference) Main() Place {
	if r.Place == (Place{}) {
		for i := range r.Parts {
			if r.Parts[i].Is == NamePart {
				return r.Parts[i].Place
			}
		}
	}
	return r.Place
}

// EmptyIsUnset reports whether an empty reference is none.
func (r *Reference) EmptyIsUnset() bool { return r.WhenEmpty != LeaveEmptyAlone }

// ReferenceForm is the form of a class reference.
//
// +kubebuilder:validation:Enum=ObjectReference;TypedObjectReference;TypedLocalObjectReference;GroupKindReference;KindReference;NamespacedReference;LocalObjectReference;Name
type ReferenceForm string

// The forms of a class reference.
const (
	ObjectReference           ReferenceForm = "ObjectReference"
	TypedObjectReference      ReferenceForm = "TypedObjectReference"
	TypedLocalObjectReference ReferenceForm = "TypedLocalObjectReference"
	GroupKindReference        ReferenceForm = "GroupKindReference"
	KindReference             ReferenceForm = "KindReference"
	NamespacedReference       ReferenceForm = "NamespacedReference"
	LocalObjectReference      ReferenceForm = "LocalObjectReference"
	Name                      ReferenceForm = "Name"
)

// ReferencePart is one of the values in a class reference.
//
// +kubebuilder:validation:XValidation:rule="[has(self.path), has(self.label), has(self.annotation)].exists(is, is)",message="name one of path, label and annotation"
// +kubebuilder:validation:XValidation:rule="self.is != 'Flag' || has(self.path) && has(self.of) && has(self.default)",message="a Flag is a field, and needs of and default, the two kinds that it distinguishes"
// +kubebuilder:validation:XValidation:rule="self.is == 'Flag' || !has(self.of)",message="only a Flag has of",fieldPath=".of"
// +kubebuilder:validation:XValidation:rule="!(self.is in ['Name', 'Namespace']) || !has(self.default)",message="a Name or a Namespace has no default",fieldPath=".default"
// +kubebuilder:validation:XValidation:rule="!has(self.path) || self.path.lastIndexOf('.') > 0 && !self.path.startsWith('.metadata.') && !self.path.startsWith('.status.')",message="must be a field below .spec, or another top-level field of the claim but for its metadata and status",fieldPath=".path"
type ReferencePart struct {
	// Is says what stands there: the Name of the class, its Kind, its Group, its APIVersion,
	// its Namespace, or a Flag, a boolean that is true if the Kind is that of the field of.
	// Example: Namespace
	// +required
	Is PartRole `json:"is"`

	Place `json:",inline"`

	// Default is the value that an absent part has for the program that reads the claims: of a Flag, the Kind if it is
	// absent or false. classbind writes the part all the same. Example: Issuer
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Default string `json:"default,omitempty"`

	// Of is the Kind of the classes for which a Flag is true. Example: ClusterWorkflowTemplate
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Of string `json:"of,omitempty"`
}

// PartRole is what a part of a class reference says of the class.
//
// +kubebuilder:validation:Enum=Name;Kind;Group;APIVersion;Namespace;Flag
type PartRole string

// What a part of a class reference says of the class.
const (
	NamePart       PartRole = "Name"
	KindPart       PartRole = "Kind"
	GroupPart      PartRole = "Group"
	APIVersionPart PartRole = "APIVersion"
	NamespacePart  PartRole = "Namespace"
	FlagPart       PartRole = "Flag"
)

// ListPolicy is when a reference is written to a list.
//
// +kubebuilder:validation:Enum=WhenAbsent;CheckOnly
type ListPolicy string

// When a reference is written to a list: if it has none, as its only element, or never.
const (
	ListWhenAbsent ListPolicy = "WhenAbsent"
	ListCheckOnly  ListPolicy = "CheckOnly"
)

// ElementPath is a path into an element of a list: field names, each after a dot. One of the fields may be a list, too.
//
// +kubebuilder:validation:MaxLength=128
// +kubebuilder:validation:XValidation:rule="self.matches('^([.][A-Za-z_][A-Za-z0-9_-]*([[][*][]])?){1,5}$') && self.indexOf('*') == self.lastIndexOf('*')",message="must be a path of at most five field names, each after a dot and one of them before [*], such as .firstAvailable[*].deviceClassName"
type ElementPath string

// Names returns the field names that lead to the value, or to the list that has the values, and those that lead on from its elements.
func (p ElementPath) Names() (before, after []string, isList bool) {
	split := func(path string) []string {
		return strings.FieldsFunc(path, func(r rune) bool { return r == '.' })
	}
	start, rest, isList := strings.Cut(string(p), "[*]")
	return split(start), split(rest), isList
}

// Explicit is what happens to a claim that names a class itself.
//
// +kubebuilder:validation:Enum=Allow;Check
type Explicit string

// What happens to a claim that names a class itself.
const (
	AllowExplicit Explicit = "Allow"
	CheckExplicit Explicit = "Check"
)

// WhenEmpty is what happens to a claim with an empty class reference.
//
// +kubebuilder:validation:Enum=Bind;LeaveAlone
type WhenEmpty string

// What happens to a claim with an empty class reference.
const (
	BindEmpty       WhenEmpty = "Bind"
	LeaveEmptyAlone WhenEmpty = "LeaveAlone"
)

// WhenReferenceAbsent is what happens to a claim without a class reference.
//
// +kubebuilder:validation:Enum=Bind;LeaveAlone
type WhenReferenceAbsent string

// What happens to a claim without a class reference.
const (
	BindAbsent       WhenReferenceAbsent = "Bind"
	LeaveAbsentAlone WhenReferenceAbsent = "LeaveAlone"
)

// WhenParentAbsent is what happens if the parent of a class reference is absent.
//
// +kubebuilder:validation:Enum=Create;LeaveAlone
type WhenParentAbsent string

// What happens if the parent of a class reference is absent.
const (
	CreateParent    WhenParentAbsent = "Create"
	LeaveClaimAlone WhenParentAbsent = "LeaveAlone"
)

// ClassSelector is where a claim has its selector over the labels of classes. A claim has it in one of the two places.
type ClassSelector struct {
	// Path of a field with matchLabels and matchExpressions. A claim kind need not have it.
	// Example: .spec.crossplane.compositionSelector
	// +kubebuilder:default=".spec.classSelector"
	// +optional
	Path FieldPath `json:"path,omitempty"`

	// Annotation is the key of an annotation that has a selector as kubectl's --selector
	// does, such as "tier=gold,region in (eu,us)". Two ClaimKinds for one kind of claim need
	// two keys. Example: classbind.io/attributes-class-selector
	// +kubebuilder:default="classbind.io/class-selector"
	// +optional
	Annotation MetadataKey `json:"annotation,omitempty"`

	// Expression is a CEL expression for the selector of a claim that has none: a string
	// as in the annotation, or a map of labels. If the result is empty, the claim has
	// no selector. It may use
	// claim, namespaceObject, related and, without BindLater, request.
	// Example: "'plan=' + claim.spec.planId"
	// +optional
	Expression Expression `json:"expression,omitempty"`

	// WhenAbsent says what a claim without a selector gets. Default is the default
	// class. DefaultIfAny is the same for a reference that most claims do without: if there is no
	// default class that fits it, no warning and no event says so, and whenUnmatched: Deny lets the claim
	// pass. Only is the one class that the claim is offered, if there is exactly one, and otherwise the
	// default class. Any is any class that the claim is offered, as if its selector were empty.
	// LeaveAlone leaves the claim alone. Example: Any
	// +kubebuilder:default=Default
	// +optional
	WhenAbsent WhenAbsent `json:"whenAbsent,omitempty"`
}

// AnnotationPlace is the place of the annotation.
func (s *ClassSelector) AnnotationPlace() Place {
	return Place{Annotation: cmp.Or(s.Annotation, ClassSelectorAnnotation)}
}

// Place is where a claim has a value: a field, a label or an annotation.
//
// +kubebuilder:validation:XValidation:rule="[has(self.path), has(self.label), has(self.annotation)].filter(is, is).size() <= 1",message="name one of path, label and annotation, not several",messageExpression="has(self.path) && has(self.label) ? 'name one of path, label and annotation, and not path and label together' : has(self.path) && has(self.annotation) ? 'name one of path, label and annotation, and not path and annotation together' : has(self.label) ? 'name one of path, label and annotation, and not label and annotation together' : 'name one of path, label and annotation, not several'"
type Place struct {
	// Path of a field. Example: .spec.volumeName
	// +optional
	Path FieldPath `json:"path,omitempty"`

	// Label is the key of a label. Example: example.org/queue
	// +optional
	Label MetadataKey `json:"label,omitempty"`

	// Annotation is the key of an annotation. Example: kubernetes.io/ingress.class
	// +optional
	Annotation MetadataKey `json:"annotation,omitempty"`
}

// Names returns the field names that lead to the value, outermost first. The last of a label or an annotation is its key.
func (p Place) Names() []string {
	switch {
	case p.Label != "":
		return []string{"metadata", "labels", string(p.Label)}
	case p.Annotation != "":
		return []string{"metadata", "annotations", string(p.Annotation)}
	}
	return p.Path.Names()
}

// MetadataKey is the key of a label or an annotation.
//
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=317
// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`
type MetadataKey string

// The length of a FieldPath is limited because the API server compiles each path into an expression: dozens of names take seconds.

// FieldPath is a path into an object as in a CRD's scale subresource: field names, each after a dot, and no indices.
//
// +kubebuilder:validation:MaxLength=256
// +kubebuilder:validation:XValidation:rule="self.matches('^([.][A-Za-z_][A-Za-z0-9_-]*){1,10}$')",message="must be a path of at most ten field names, each after a dot, such as .spec.classRef"
type FieldPath string

// Names returns the field names, outermost first.
func (p FieldPath) Names() []string { return strings.Split(strings.TrimPrefix(string(p), "."), ".") }

// JSONPointer returns the path in RFC 6901 form. Field names need no escaping.
func (p FieldPath) JSONPointer() string { return strings.ReplaceAll(string(p), ".", "/") }
