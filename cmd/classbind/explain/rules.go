package explain

import "github.com/classbind/classbind/api/v1beta1"

// Severity of a rule.
type Severity string

// The severities.
const (
	Mistake Severity = "error"   // Mistake is for what does not work as it is written.
	Doubt   Severity = "warning" // Doubt is for what may be right with objects that are in no file.
	Remark  Severity = "note"    // Remark is for what may be meant so.
)

// Rule of "classbind check". Most have the name of the condition's reason by which the cluster says the same.
type Rule struct {
	Name     string   `json:"name"`
	Severity Severity `json:"severity"`
	Text     string   `json:"text"` // Text is what is wrong where it is broken.
}

// Names of rules for which the cluster has no reason.
const (
	ruleRefused     = "Refused"
	ruleDuplicate   = "Duplicate"
	ruleConflict    = "Conflict"
	ruleUnserved    = "UnservedClass"
	ruleMeaningless = "MeaninglessMark"
	ruleOutdated    = "OutdatedPreset"
	ruleUnknown     = "UnknownAnnotation"
	ruleQuantity    = "UnmatchedQuantity"
)

// Rules of "classbind check".
var Rules = []Rule{
	{ruleRefused, Mistake, "The API server refuses the object, or drops a field of it."},
	{ruleDuplicate, Mistake, "Two objects have the same kind, namespace and name."},
	{ruleConflict, Mistake, "Two ClaimKinds bind the same claims."},
	{v1beta1.ReasonInvalidExpression, Mistake, "An expression does not compile, or looks at a field that the schema does not have."},
	{v1beta1.ReasonPathsInvalid, Mistake, "A path does not fit the schema of the claims."},
	{v1beta1.ReasonReferencePruned, Mistake, "The schema of the claims has no room for the reference to the class."},
	{v1beta1.ReasonReferenceRefused, Mistake, "The schema of the claims does not allow references to some classes."},
	{v1beta1.ReasonAllReferencesRefused, Mistake, "The schema of the claims does not allow the reference to any class."},
	{v1beta1.ReasonAmbiguousReference, Mistake, "A reference cannot distinguish the classes of one kind from those of another."},
	{v1beta1.ReasonNotInstalled, Mistake, "The CRDs of the files have no such resource."},
	{v1beta1.ReasonVersionNotServed, Mistake, "The CRD does not serve the version for which the paths are written."},
	{v1beta1.ReasonSeveralDefaults, Mistake, "A claim without a selector has several default classes."},
	{v1beta1.ReasonMalformedWeight, Mistake, "A class has a weight that is no number from 0 to 1000000."},
	{v1beta1.ReasonMalformedMark, Mistake, "A class has a mark that is neither true nor false."},
	{v1beta1.ReasonMalformedCapacity, Mistake, "A class has a capacity that is no quantity, or negative."},
	{v1beta1.ReasonTooManyLabels, Mistake, "A class has too many labels, and is offered to no claim."},
	{v1beta1.ReasonNotRegistered, Doubt, "A registration names a kind that no file registers."},
	{v1beta1.ReasonNoClassKind, Doubt, "No ClassKind serves a ClaimKind."},
	{v1beta1.ReasonNoClaimKinds, Doubt, "A ClassKind serves no ClaimKind."},
	{v1beta1.ReasonNeededToStart, Doubt, "A cluster may not come up: it needs such claims before classbind runs."},
	{ruleQuantity, Doubt, "A usage names a quantity that no capacity has, or a capacity one of which no claim uses anything."},
	{ruleUnserved, Remark, "No claim can get a class."},
	{ruleMeaningless, Doubt, "A class has a mark that its ClassKind does not read, or has no ClassKind."},
	{ruleUnknown, Doubt, "An object has an annotation of classbind that nothing reads: it may be misspelt."},
	{ruleOutdated, Doubt, "An object is a copy of a preset that is not the one of this command."},
}

// Finding is a rule that an object breaks.
type Finding struct {
	Rule     string   `json:"rule"`
	Severity Severity `json:"severity"`
	// File has the object, and Line, from 1, what is wrong with it, as far as that is known.
	File string `json:"file"`
	Line int    `json:"line"`
	// Object is KIND/NAME.
	Object  string `json:"object"`
	Message string `json:"message"`
}
