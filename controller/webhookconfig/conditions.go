package webhookconfig

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/fields"
)

func matchConditions(all []claim.MatchCondition) (conditions []admissionregistrationv1.MatchCondition) {
	for _, c := range all {
		conditions = append(conditions, admissionregistrationv1.MatchCondition(c))
	}
	return conditions
}

// classConditions save the API server the call for classes that get neither a mark nor another weight. A mark that is neither true nor
// false is one: its author is warned. Of a kind whose classes may move to other seats, it also calls for every update of a marked class;
// and of one where an expression is the mark or the weight, for every class. The API server could evaluate the expression itself, but would
// refuse the class if that failed.
func classConditions(k *v1beta1.ClassKind, claimKinds []v1beta1.ClaimKind) []admissionregistrationv1.MatchCondition {
	conditions := []admissionregistrationv1.MatchCondition{
		{Name: "is-not-being-deleted", Expression: fields.Path{"metadata", "deletionTimestamp"}.IsUnset("object")},
	}
	if k.Spec.Default.Expression != "" || k.Spec.Weight.Expression != "" {
		return conditions
	}
	name, marked := "gets-a-mark-or-a-weight", value.gets
	if movesSeats(k, claimKinds) {
		name, marked = "has-a-mark-or-gets-a-weight", value.has
	}
	terms := []string{valueAt(v1beta1.Place{Annotation: v1beta1.CordonedAnnotation}).gets(`"true"`, `"false"`)}
	for _, p := range k.Spec.Default.Places() {
		terms = append(terms, marked(valueAt(p), `false`, `"false"`))
	}
	for i, p := range k.Spec.Weight.Places() {
		if terms = append(terms, valueAt(p).gets()); i > 0 { // It counts where the one before it is taken away.
			before := valueAt(k.Spec.Weight.Places()[i-1])
			terms = append(terms, before.wasSet+" && !("+before.isSet+")")
		}
	}
	return append(conditions, admissionregistrationv1.MatchCondition{Name: name, Expression: fmt.Sprintf(
		`[[object, oldObject].map(o, %s ? %s : dyn({}))].exists(a, %s)`,
		annotations.IsSet("o"), annotations.At("o"), strings.Join(terms, " || "))})
}

var annotations = fields.Path{"metadata", "annotations"}

// value of a class has CEL expressions: whether it is set, and which it is, now and before. The variable a has the
// annotations now and before: an expression that looks them up anew for each value takes five times as long to compile.
type value struct{ isSet, is, wasSet, was string }

func valueAt(p v1beta1.Place) value {
	if p.Annotation != "" {
		return value{
			fmt.Sprintf("%q in a[0]", p.Annotation), fmt.Sprintf("a[0][%q]", p.Annotation),
			fmt.Sprintf("%q in a[1]", p.Annotation), fmt.Sprintf("a[1][%q]", p.Annotation),
		}
	}
	path := fields.Path(p.Names())
	return value{path.IsSet("object"), path.At("object"), path.IsSet("oldObject"), path.At("oldObject")}
}

// has is the CEL expression that says that the object has the value, and that it is none of these.
func (v value) has(but ...string) string {
	terms := []string{v.isSet}
	for _, other := range but {
		terms = append(terms, v.is+" != "+other)
	}
	return strings.Join(terms, " && ")
}

// gets is the CEL expression that says the same, and that the old object has another value.
func (v value) gets(but ...string) string {
	return v.has(but...) + fmt.Sprintf(" && !(%s && %s == %s)", v.wasSet, v.is, v.was)
}

// movesSeats says that an update may move a default class of a kind to another seat: it has
// fits or one of its ClaimKinds has fits or partitions.
func movesSeats(k *v1beta1.ClassKind, claimKinds []v1beta1.ClaimKind) bool {
	return len(k.Spec.Fits) > 0 || slices.ContainsFunc(claimKinds, func(c v1beta1.ClaimKind) bool {
		return (c.Spec.Classes.Partition != nil || len(c.Spec.Classes.Fits) > 0) && k.Serves(&c)
	})
}
