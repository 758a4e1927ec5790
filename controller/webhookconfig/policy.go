package webhookconfig

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/fields"
	"github.com/classbind/classbind/selector/inventory"
)

// policySpec has the API server give a default class of one kind to claims without an opinion. The class is the parameter, which the
// binding names. So where that class is no longer the default, the conditions are false, and the claim comes to us. An error leads to us,
// too. The requests are those for which the entry of the claim kind calls us.
func policySpec(
	k *v1beta1.ClaimKind, kind *selector.ClaimKind, of *inventory.Class, entry *Entry,
) admissionregistrationv1.MutatingAdmissionPolicySpec {
	conditions := append(matchConditions(claim.UnopinionatedConditions(k)), offered(of.Kind, kind.Strategy.Weighted)...)
	if kind.Use != "" {
		namespace := `""`
		if of.Kind.Namespaced {
			namespace = paramNamespace
		}
		conditions = append(conditions, admissionregistrationv1.MatchCondition{
			Name: "class-may-be-used", Expression: mayUse(kind.Use, of.Kind, namespace, paramName),
		})
	}
	return admissionregistrationv1.MutatingAdmissionPolicySpec{
		ParamKind: &admissionregistrationv1.ParamKind{
			APIVersion: of.Kind.GroupVersionKind.GroupVersion().String(), Kind: of.Kind.GroupVersionKind.Kind,
		},
		MatchConstraints:   matchConstraints(entry, admissionregistrationv1.Create),
		MatchConditions:    conditions,
		FailurePolicy:      new(admissionregistrationv1.Ignore),
		ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
		Mutations: []admissionregistrationv1.Mutation{{
			PatchType: admissionregistrationv1.PatchTypeJSONPatch,
			JSONPatch: &admissionregistrationv1.JSONPatch{Expression: referenceExpression(kind, of)},
		}},
	}
}

// offered are the conditions that a class is marked default, and may be given to a claim.
func offered(k *inventory.ClassKind, weighted bool) []admissionregistrationv1.MatchCondition {
	var marks []string
	for _, p := range k.DefaultMark.Places() {
		mark := fields.Path(p.Names())
		marks = append(marks, fmt.Sprintf(`!(%s) && (%s == true || %s == "true")`,
			mark.IsAbsent("params"), mark.At("params"), mark.At("params")))
	}
	cordoned := append(slices.Clone(annotations), v1beta1.CordonedAnnotation)
	conditions := []admissionregistrationv1.MatchCondition{
		{Name: "class-is-default", Expression: strings.Join(marks, " || ")},
		{Name: "class-is-not-being-deleted", Expression: fields.Path{"metadata", "deletionTimestamp"}.IsAbsent("params")},
		{Name: "class-is-not-cordoned", Expression: fmt.Sprintf(`%s || %s != "true"`, cordoned.IsAbsent("params"), cordoned.At("params"))},
	}
	if weighted {
		conditions = append(conditions, admissionregistrationv1.MatchCondition{
			Name: "class-has-weight", Expression: isPositive(k.WeightFrom.Places()),
		})
	}
	return conditions
}

// isPositive is the CEL expression for whether a class has a weight, in the first of these places where it has one, that counts as more
// than 0. It is false for one that is malformed: then we are asked, who know what it counts as.
func isPositive(places []v1beta1.Place) string {
	if len(places) == 0 {
		return "true"
	}
	weight := fields.Path(places[0].Names())
	value := weight.At("params")
	return fmt.Sprintf(`(%s ? %s : type(%s) == string ? %s.matches("^[1-9][0-9]{0,6}$") : %s > 0)`,
		weight.IsAbsent("params"), isPositive(places[1:]), value, value, value)
}

// member of an object that a CEL expression makes.
type member struct{ name, value string }

func objectOf(all []member) string {
	var written []string
	for _, f := range all {
		written = append(written, fmt.Sprintf("%q: %s", f.name, f.value))
	}
	return "{" + strings.Join(written, ", ") + "}"
}

// referenceExpression is the CEL expression for the JSON Patch that adds the reference, and what is missing of the way to it.
func referenceExpression(kind *selector.ClaimKind, of *inventory.Class) string {
	var expression strings.Builder
	reference, added := &kind.Reader.Reference, referenceTo(kind, of)
	at := reference.Path[:len(reference.Path)-1]
	switch {
	case reference.IsList && reference.Form.IsObject:
		added = []member{{reference.Path[len(at)], "[" + objectOf(added) + "]"}}
	case reference.IsList:
		added = []member{{reference.Path[len(at)], "[" + paramName + "]"}}
	case reference.Form.IsObject:
		added = []member{{reference.Path[len(at)], objectOf(added)}}
	}
	for i := range at {
		value := objectOf(added)
		for _, name := range slices.Backward(at[i+1:]) {
			value = objectOf([]member{{name, value}})
		}
		above := at[:i+1]
		fmt.Fprintf(&expression, `%s ? [JSONPatch{op: "add", path: %q, value: %s}] : `, above.IsAbsent("object"), above.Pointer(), value)
	}
	patches := make([]string, len(added))
	for i, f := range added {
		patches[i] = fmt.Sprintf(`JSONPatch{op: "add", path: %q, value: %s}`, at.Below(f.name).Pointer(), f.value)
	}
	return expression.String() + "[" + strings.Join(patches, ", ") + "]"
}

// The CEL expressions for what a reference says of the parameter.
const (
	paramName      = "string(params.metadata.name)"
	paramNamespace = "string(params.metadata.namespace)"
)

// referenceTo has the parts of the reference to the parameter. The form and the kind are those of the class.
func referenceTo(kind *selector.ClaimKind, of *inventory.Class) (all []member) {
	reference := &kind.Reader.Reference
	for i, text := range reference.Written(of.Target()) {
		if text == "" {
			continue
		}
		part, value := &reference.Form.Parts[i], strconv.Quote(text)
		switch part.Role {
		case v1beta1.NamePart:
			value = paramName
		case v1beta1.NamespacePart:
			value = paramNamespace
		case v1beta1.FlagPart:
			value = text
		default:
		}
		if reference.Form.Part(v1beta1.FlagPart) != nil { // The values of a map have one type.
			value = "dyn(" + value + ")"
		}
		name := ""
		if len(part.Path) > 0 {
			name = part.Field()
		}
		all = append(all, member{name, value})
	}
	return all
}
