package webhookconfig

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector"
)

// policySpec has the API server give a default class of one kind to claims without an opinion.
// The class is the parameter, which the binding names. So where that class is the default no
// more, the conditions are false, and the claim comes to us. An error leads to us, too. The
// requests are those of which the entry of the claim kind asks us.
func policySpec(
	k *v1alpha1.ClaimKind, kind *selector.ClaimKind, of *selector.Class, entry *admissionregistrationv1.MutatingWebhook,
) admissionregistrationv1.MutatingAdmissionPolicySpec {
	constraints := &admissionregistrationv1.MatchResources{
		NamespaceSelector: entry.NamespaceSelector, MatchPolicy: entry.MatchPolicy,
		ObjectSelector: &metav1.LabelSelector{}, // As the API server stores it.
	}
	for _, r := range entry.Rules {
		r.Operations = []admissionregistrationv1.OperationType{admissionregistrationv1.Create}
		constraints.ResourceRules = append(constraints.ResourceRules,
			admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: r})
	}
	return admissionregistrationv1.MutatingAdmissionPolicySpec{
		ParamKind: &admissionregistrationv1.ParamKind{
			APIVersion: of.Kind.GroupVersionKind.GroupVersion().String(), Kind: of.Kind.GroupVersionKind.Kind,
		},
		MatchConstraints:   constraints,
		MatchConditions:    append(unopinionated(k), offered(of.Kind, kind.Strategy.Weighted)...),
		FailurePolicy:      new(admissionregistrationv1.Ignore),
		ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
		Mutations: []admissionregistrationv1.Mutation{{
			PatchType: admissionregistrationv1.PatchTypeJSONPatch,
			JSONPatch: &admissionregistrationv1.JSONPatch{Expression: referenceExpression(k, kind, of)},
		}},
	}
}

// bindingSpec names the default class.
func bindingSpec(policy string, class *selector.Class) admissionregistrationv1.MutatingAdmissionPolicyBindingSpec {
	return admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{
		PolicyName: policy,
		ParamRef: &admissionregistrationv1.ParamRef{
			Name: class.Name, Namespace: class.Namespace,
			ParameterNotFoundAction: new(admissionregistrationv1.AllowAction),
		},
	}
}

func matchCondition(name, expression string) admissionregistrationv1.MatchCondition {
	return admissionregistrationv1.MatchCondition{Name: name, Expression: expression}
}

// unopinionated are the conditions that a claim has no class reference, none of skipIfSet,
// and no selector. They agree with claimConditions, except that they fail for a claim that
// is malformed, and are false for a reference that its author has begun.
func unopinionated(k *v1alpha1.ClaimKind) []admissionregistrationv1.MatchCondition {
	names := k.Spec.Reference.Place().Names()
	isFree := isAbsent("object", names)
	if k.Spec.Reference.EmptyIsUnset && k.Spec.Reference.Form == v1alpha1.Name {
		isFree += fmt.Sprintf(` || %s == ""`, at("object", names))
	}
	conditions := []admissionregistrationv1.MatchCondition{matchCondition("class-reference-is-not-set", isFree)}
	for i, p := range k.Spec.SkipIfSet {
		conditions = append(conditions, matchCondition(fmt.Sprintf("skip-if-set-%d-is-not-set", i), isAbsent("object", p.Names())))
	}
	if parent := names[:len(names)-1]; k.Spec.Reference.WhenParentAbsent == v1alpha1.LeaveClaimAlone && len(parent) > 0 {
		conditions = append(conditions, matchCondition("parent-of-class-reference-is-set", isSet("object", parent)))
	}
	if path := k.Spec.ClassSelector.Path; path != "" {
		conditions = append(conditions, matchCondition("class-selector-is-not-set", isAbsent("object", path.Names())))
	}
	return append(conditions, matchCondition("class-selector-annotation-is-not-set",
		isAbsent("object", k.Spec.ClassSelector.AnnotationPlace().Names())))
}

// offered are the conditions that a class is marked default, and may be given to a claim.
func offered(k *selector.ClassKind, weighted bool) []admissionregistrationv1.MatchCondition {
	mark := sourceNames(k.DefaultMark)
	cordoned := sourceNames(v1alpha1.Source{Annotation: v1alpha1.CordonedAnnotation})
	conditions := []admissionregistrationv1.MatchCondition{
		matchCondition("class-is-default", fmt.Sprintf(`!(%s) && (%s == true || %s == "true")`,
			isAbsent("params", mark), at("params", mark), at("params", mark))),
		matchCondition("class-is-not-being-deleted", isAbsent("params", []string{"metadata", "deletionTimestamp"})),
		matchCondition("class-is-not-cordoned", fmt.Sprintf(`%s || %s != "true"`, isAbsent("params", cordoned), at("params", cordoned))),
	}
	if weighted {
		conditions = append(conditions, matchCondition("class-has-weight", isPositive(sourceNames(k.WeightFrom))))
	}
	return conditions
}

// isPositive is the CEL expression that says that a class has a weight that counts as more
// than 0. It is false for one that is malformed: then we are asked, who know what it counts as.
func isPositive(weight []string) string {
	value := at("params", weight)
	return fmt.Sprintf(`%s || (type(%s) == string ? %s.matches("^[1-9][0-9]{0,6}$") : %s > 0)`,
		isAbsent("params", weight), value, value, value)
}

// isAbsent is the CEL expression that says that an object has nothing but null at a path. It
// fails where something on the way is neither an object nor null.
func isAbsent(object string, path []string) string {
	var terms []string
	for i, name := range path {
		lacks := fmt.Sprintf("!(%q in %s)", name, at(object, path[:i]))
		if i > 0 { // A list has an in, too.
			lacks = fmt.Sprintf("type(%s) == map && %s", at(object, path[:i]), lacks)
		}
		terms = append(terms, lacks, at(object, path[:i+1])+" == null")
	}
	return strings.Join(terms, " || ")
}

// referenceExpression is the CEL expression for the JSON Patch that adds the reference, and
// what is missing of the way to it.
func referenceExpression(k *v1alpha1.ClaimKind, kind *selector.ClaimKind, of *selector.Class) string {
	names := k.Spec.Reference.Place().Names()
	var expression strings.Builder
	for i := range names {
		value := referenceValue(kind, of)
		for _, name := range slices.Backward(names[i+1:]) {
			value = fmt.Sprintf("{%q: %s}", name, value)
		}
		patch := fmt.Sprintf(`[JSONPatch{op: "add", path: %q, value: %s}]`, pointer(names[:i+1]), value)
		if i < len(names)-1 {
			patch = isAbsent("object", names[:i+1]) + " ? " + patch + " : "
		}
		expression.WriteString(patch)
	}
	return expression.String()
}

// pointer to a value (RFC 6901).
func pointer(names []string) string {
	var b strings.Builder
	for _, name := range names {
		b.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name))
	}
	return b.String()
}

// referenceValue is the CEL expression for the reference to the parameter. The form and the
// kind are those of the class.
func referenceValue(kind *selector.ClaimKind, of *selector.Class) string {
	name := "string(params.metadata.name)"
	var fields []string
	for field, text := range kind.ReferenceFields(of) {
		value := strconv.Quote(text)
		switch field {
		case "name":
			value = name
		case "namespace":
			value = "string(params.metadata.namespace)"
		}
		fields = append(fields, fmt.Sprintf("%q: %s", field, value))
	}
	if len(fields) == 0 {
		return name
	}
	return "{" + strings.Join(fields, ", ") + "}"
}
