package webhookconfig

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationac "k8s.io/client-go/applyconfigurations/admissionregistration/v1"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector"
)

// claimConditions save the API server the call for claims that would be left alone: see
// selector.ClaimKind.Read, with which they agree. There is one condition for each place,
// so that an admin can tell them apart. An error in bindWhen is the author's: the API server
// refuses the claim with it (failurePolicy Fail), as we do.
func claimConditions(k *v1alpha1.ClaimKind) []*admissionregistrationac.MatchConditionApplyConfiguration {
	var conditions []*admissionregistrationac.MatchConditionApplyConfiguration
	add := func(name, expression string) {
		conditions = append(conditions, admissionregistrationac.MatchCondition().WithName(name).WithExpression(expression))
	}
	bindWhen, decides := selector.BindWhen(k, "object")
	if !decides {
		add("class-reference-is-not-set", referenceIsUnset(k, "object"))
	}
	for i, p := range k.Spec.SkipIfSet {
		expression := isUnset("object", p.Names())
		if restores(k) { // An update may unbind a claim of which it was set before.
			expression = isUpdate + " || " + expression
		}
		add(fmt.Sprintf("skip-if-set-%d-is-not-set", i), expression)
	}
	names := k.Spec.Reference.Place().Names()
	if parent := names[:len(names)-1]; k.Spec.Reference.WhenParentAbsent == v1alpha1.LeaveClaimAlone && len(parent) > 0 {
		add("parent-of-class-reference-is-set", isSet("object", parent))
	}
	if k.Spec.WhenNoSelector == v1alpha1.NoSelectorLeaveAlone {
		add("class-selector-is-set", isUpdate+" || "+isSet("object", k.Spec.ClassSelector.Path.Names())+" || "+
			isSet("object", k.Spec.ClassSelector.AnnotationPlace().Names()))
	}
	if bindWhen != "" {
		// It may fail for the update of a claim that is older than it, and end in a comment.
		add(bindWhenCondition, isUpdate+" || ("+bindWhen+"\n)")
	}
	if restores(k) {
		unbound := referenceIsSet(k, "oldObject")
		if decides {
			names := k.Spec.Reference.Place().Names()
			unbound += fmt.Sprintf(" && (%s || %s != %s)", referenceIsUnset(k, "object"), at("object", names), at("oldObject", names))
		}
		add("is-created-or-unbound", `request.operation == "CREATE" || !has(object.metadata.deletionTimestamp) && `+unbound)
	}
	return conditions
}

// bindWhenCondition is the name of the only condition whose expression an author wrote, so
// the API server may refuse it.
const bindWhenCondition = "bind-when"

// isUpdate is the CEL expression that tells an update from a creation.
const isUpdate = `request.operation == "UPDATE"`

// restores says that a class reference is put back that an update removes.
func restores(k *v1alpha1.ClaimKind) bool { return k.Spec.OnUnbind != v1alpha1.AllowUnbind }

// referenceIsUnset is the CEL expression that says that a claim has no class reference, as
// selector.ClaimKind.HasReference does.
func referenceIsUnset(k *v1alpha1.ClaimKind, object string) string {
	names := k.Spec.Reference.Place().Names()
	unset := isUnset(object, names)
	if !k.Spec.Reference.EmptyIsUnset {
		return unset
	}
	value := at(object, names)
	if k.Spec.Reference.Form == v1alpha1.Name {
		return unset + fmt.Sprintf(" || %s == \"\"", value)
	}
	name := at(object, append(slices.Clip(names), "name"))
	return unset + fmt.Sprintf(" || type(%s) == map && (!(\"name\" in %s) || %s == \"\" || type(%s) != string)", value, value, name, name)
}

// referenceIsSet is the opposite of referenceIsUnset.
func referenceIsSet(k *v1alpha1.ClaimKind, object string) string {
	return "!(" + referenceIsUnset(k, object) + ")"
}

// classConditions save the API server the call for classes that get neither a mark nor
// another weight. A mark that is neither true nor false is one: its author is warned.
func classConditions(k *v1alpha1.ClassKind) []*admissionregistrationac.MatchConditionApplyConfiguration {
	mark, weight := sourceNames(k.Spec.Default), sourceNames(k.Spec.Weight)
	cordoned := sourceNames(v1alpha1.Source{Annotation: v1alpha1.CordonedAnnotation})
	return []*admissionregistrationac.MatchConditionApplyConfiguration{
		admissionregistrationac.MatchCondition().WithName("is-not-being-deleted").
			WithExpression(isUnset("object", []string{"metadata", "deletionTimestamp"})),
		admissionregistrationac.MatchCondition().WithName("gets-a-mark-or-a-weight").
			WithExpression(gets(mark, `false`, `"false"`) + " || " + gets(weight) + " || " + gets(cordoned, `"true"`, `"false"`)),
	}
}

// gets is the CEL expression that says that the object, and not the old one, has this
// value at a path, and that it is none of these.
func gets(path []string, but ...string) string {
	value, before := at("object", path), at("oldObject", path)
	terms := []string{isSet("object", path)}
	for _, other := range but {
		terms = append(terms, value+" != "+other)
	}
	terms = append(terms, fmt.Sprintf("!(%s && %s == %s)", isSet("oldObject", path), value, before))
	return strings.Join(terms, " && ")
}

func sourceNames(s v1alpha1.Source) []string {
	if s.Path == "" {
		return []string{"metadata", "annotations", string(s.Annotation)}
	}
	return s.Path.Names()
}

// at is the CEL expression for the value at a path. It uses indexes, because a field
// may have the name of a CEL keyword.
func at(object string, path []string) string {
	var b strings.Builder
	b.WriteString(object)
	for _, name := range path {
		fmt.Fprintf(&b, "[%q]", name)
	}
	return b.String()
}

// isSet is the CEL expression that says that the value at a path is there and not null.
func isSet(object string, path []string) string { return "!(" + isUnset(object, path) + ")" }

// isUnset is the opposite of isSet. It stops at the first missing name, because the API
// server evaluates it for every claim. Looking into what is not a map is an error, as
// in a claim whose spec is a string, or where there is no object. CEL ignores an error
// if another term of the || is true, and then the last terms are true. Such a claim
// must reach us, so that its author is told.
func isUnset(object string, path []string) string {
	var terms []string
	for i, name := range path {
		terms = append(terms, fmt.Sprintf("!(%q in %s)", name, at(object, path[:i])))
	}
	terms = append(terms, at(object, path)+" == null")
	for i := range path {
		terms = append(terms, fmt.Sprintf("type(%s) != map", at(object, path[:i])))
	}
	return strings.Join(terms, " || ")
}
