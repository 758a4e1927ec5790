package webhookconfig

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationac "k8s.io/client-go/applyconfigurations/admissionregistration/v1"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/fields"
)

// claimConditions save the API server the call for claims that would be left alone.
func claimConditions(k *v1alpha1.ClaimKind) (conditions []*admissionregistrationac.MatchConditionApplyConfiguration) {
	for _, c := range selector.MatchConditions(k) {
		conditions = append(conditions, admissionregistrationac.MatchCondition().WithName(c.Name).WithExpression(c.Expression))
	}
	return conditions
}

// restores reports whether a class reference is put back that an update removes.
func restores(k *v1alpha1.ClaimKind) bool { return k.Spec.OnUnbind != v1alpha1.AllowUnbind }

// classConditions save the API server the call for classes that get neither a mark nor
// another weight. A mark that is neither true nor false is one: its author is warned. Of a
// kind whose classes may move to other seats, it also calls for every update of a marked
// class; and of one where an expression is the mark or the weight, for every class. The API
// server could evaluate the expression itself, but would refuse the class if that failed.
func classConditions(k *v1alpha1.ClassKind, claimKinds []v1alpha1.ClaimKind) []*admissionregistrationac.MatchConditionApplyConfiguration {
	conditions := []*admissionregistrationac.MatchConditionApplyConfiguration{
		admissionregistrationac.MatchCondition().WithName("is-not-being-deleted").
			WithExpression(fields.Path{"metadata", "deletionTimestamp"}.IsUnset("object")),
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
func has(path fields.Path, but ...string) string {
	terms := []string{path.IsSet("object")}
	for _, other := range but {
		terms = append(terms, path.At("object")+" != "+other)
	}
	return strings.Join(terms, " && ")
}

// gets is the CEL expression that says the same, and that the old object has another value.
func gets(path fields.Path, but ...string) string {
	value, before := path.At("object"), path.At("oldObject")
	return has(path, but...) + fmt.Sprintf(" && !(%s && %s == %s)", path.IsSet("oldObject"), value, before)
}

func sourceNames(s v1alpha1.Source) fields.Path {
	if s.Path == "" {
		return fields.Path{"metadata", "annotations", string(s.Annotation)}
	}
	return s.Path.Names()
}
