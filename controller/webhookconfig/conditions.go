package webhookconfig

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/fields"
)

// matchConditions are those of an entry or a policy.
func matchConditions(all []claim.MatchCondition) (conditions []admissionregistrationv1.MatchCondition) {
	for _, c := range all {
		conditions = append(conditions, admissionregistrationv1.MatchCondition(c))
	}
	return conditions
}

// classConditions save the API server the call for classes that get neither a mark nor
// another weight. A mark that is neither true nor false is one: its author is warned. Of a
// kind whose classes may move to other seats, it also calls for every update of a marked
// class; and of one where an expression is the mark or the weight, for every class. The API
// server could evaluate the expression itself, but would refuse the class if that failed.
func classConditions(k *v1alpha1.ClassKind, claimKinds []v1alpha1.ClaimKind) []admissionregistrationv1.MatchCondition {
	conditions := []admissionregistrationv1.MatchCondition{
		{Name: "is-not-being-deleted", Expression: fields.Path{"metadata", "deletionTimestamp"}.IsUnset("object")},
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
	return append(conditions, admissionregistrationv1.MatchCondition{
		Name: name, Expression: asDefault + " || " + gets(weight) + " || " + gets(cordoned, `"true"`, `"false"`),
	})
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
