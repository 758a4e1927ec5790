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
		add("class-reference-is-not-set", referenceIsUnset(k, "object", isNone(k)))
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
	if k.Spec.WhenNoSelector == v1alpha1.NoSelectorLeaveAlone && k.Spec.ClassSelector.Expression == "" {
		add("class-selector-is-set", isUpdate+" || "+isSet("object", k.Spec.ClassSelector.Path.Names())+" || "+
			isSet("object", k.Spec.ClassSelector.AnnotationPlace().Names()))
	}
	if bindWhen != "" {
		// It may fail for the update of a claim that is older than it, and end in a comment.
		add(bindWhenCondition, isUpdate+" || ("+bindWhen+"\n)")
	}
	if restores(k) {
		unbound := "!(" + referenceIsUnset(k, "oldObject", "") + ")"
		if decides {
			names := k.Spec.Reference.Place().Names()
			unbound += fmt.Sprintf(" && (%s || %s != %s)", referenceIsUnset(k, "object", ""), at("object", names), at("oldObject", names))
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

// referenceIsUnset is the CEL expression that reports whether a claim names no class. An object
// without a name is a reference all the same unless isNone is true of it, which sees it as r.
func referenceIsUnset(k *v1alpha1.ClaimKind, object, isNone string) string {
	names := k.Spec.Reference.Place().Names()
	unset, value := isUnset(object, names), at(object, names)
	switch {
	case k.Spec.Reference.Form != v1alpha1.Name:
		const isNameless = `type(r) == map && !(has(r.name) && type(r.name) == string && r.name != "")`
		return unset + fmt.Sprintf(` || [%s].exists(r, %s%s)`, value, isNameless, isNone)
	case k.Spec.Reference.EmptyIsUnset:
		return unset + fmt.Sprintf(` || %s == ""`, value)
	}
	return unset
}

// isNone goes on from the CEL expression for an object without a name: whether it counts as no
// reference, as for selector.ClaimKind.HasReference. In an update, it always does: the name must
// not be lost.
func isNone(k *v1alpha1.ClaimKind) string {
	if k.Spec.Reference.EmptyIsUnset {
		return ""
	}
	return fmt.Sprintf(` && (oldObject != null || r.all(f, f in ["%s"]) && r.exists(f, r[f] != "" && r[f] != null))`,
		strings.Join(selector.FieldsOf(k.Spec.Reference.Form), `", "`))
}

// classConditions save the API server the call for classes that get neither a mark nor
// another weight. A mark that is neither true nor false is one: its author is warned. Of a
// kind whose classes may move to other seats, it also calls for every update of a marked
// class; and of one where an expression is the mark or the weight, for every class. The API
// server could evaluate the expression itself, but would refuse the class if that failed.
func classConditions(k *v1alpha1.ClassKind, claimKinds []v1alpha1.ClaimKind) []*admissionregistrationac.MatchConditionApplyConfiguration {
	conditions := []*admissionregistrationac.MatchConditionApplyConfiguration{
		admissionregistrationac.MatchCondition().WithName("is-not-being-deleted").
			WithExpression(isUnset("object", []string{"metadata", "deletionTimestamp"})),
	}
	if k.Spec.Default.Expression != "" || k.Spec.Weight.Expression != "" {
		return conditions
	}
	mark, weight := sourceNames(k.Spec.Default), sourceNames(k.Spec.Weight)
	cordoned := sourceNames(v1alpha1.Source{Annotation: v1alpha1.CordonedAnnotation})
	name, asDefault := "gets-a-mark-or-a-weight", gets(mark, `false`, `"false"`)
	if movesSeats(k, claimKinds) {
		name, asDefault = "has-a-mark-or-gets-a-weight", has(mark, `false`, `"false"`)
	}
	return append(conditions, admissionregistrationac.MatchCondition().WithName(name).
		WithExpression(asDefault+" || "+gets(weight)+" || "+gets(cordoned, `"true"`, `"false"`)))
}

// movesSeats says that an update may move a default class of a kind to another seat: it has
// fits or one of its ClaimKinds has fits or partitions.
func movesSeats(k *v1alpha1.ClassKind, claimKinds []v1alpha1.ClaimKind) bool {
	return len(k.Spec.Fits) > 0 || slices.ContainsFunc(claimKinds, func(c v1alpha1.ClaimKind) bool {
		return (c.Spec.Partition != nil || len(c.Spec.Fits) > 0) && slices.Contains(k.Spec.ClaimKinds, c.Name)
	})
}

// has is the CEL expression that says that the object has a value at a path, and that it is
// none of these.
func has(path []string, but ...string) string {
	terms := []string{isSet("object", path)}
	for _, other := range but {
		terms = append(terms, at("object", path)+" != "+other)
	}
	return strings.Join(terms, " && ")
}

// gets is the CEL expression that says the same, and that the old object has another value.
func gets(path []string, but ...string) string {
	value, before := at("object", path), at("oldObject", path)
	return has(path, but...) + fmt.Sprintf(" && !(%s && %s == %s)", isSet("oldObject", path), value, before)
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
