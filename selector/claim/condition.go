package claim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/fields"
	"github.com/classbind/classbind/selector/rules"
)

// condition is one that a claim meets if it is ours to bind: one of some places is set, or none
// is. A Reader evaluates it. As CEL, the API server does, to save the calls for other claims.
type condition struct {
	// name of the match condition, and reason to leave a claim alone that does not meet it.
	name, reason string
	places       []fields.Path
	mustBeSet    bool
	// isReference reports whether the place is the class reference. A part of one may count as none.
	isReference bool
	// Every update meets one of those ofCreation. A place of one ofChange may be set already: the controllers of a bound claim set it, too.
	ofCreation, ofChange bool
}

// conditionsOf the claims of a kind, in their order.
func conditionsOf(s *v1beta1.ClaimKindSpec) []condition {
	reference := referenceOf(&s.Reference)
	all := []condition{{name: "class-reference-is-not-set", reason: Settled, places: []fields.Path{reference.Path}, isReference: true}}
	for i, p := range s.Claims.SkipIfSet {
		name := fmt.Sprintf("skip-if-set-%d-is-not-set", i)
		all = append(all, condition{name: name, reason: Settled, places: []fields.Path{p.Names()}, ofChange: true})
	}
	if parent := reference.Path[:len(reference.Path)-1]; s.Reference.WhenParentAbsent == v1beta1.LeaveClaimAlone && len(parent) > 0 {
		const name = "parent-of-class-reference-is-set"
		all = append(all, condition{name: name, reason: ParentAbsent, places: []fields.Path{parent}, mustBeSet: true})
	}
	if s.Reference.WhenAbsent == v1beta1.LeaveAbsentAlone {
		const name = "class-reference-is-begun"
		all = append(all, condition{
			name: name, reason: ReferenceAbsent, places: reference.paths(), mustBeSet: true, ofCreation: true,
		})
	}
	if s.Selector.WhenAbsent == v1beta1.NoSelectorLeaveAlone && s.Selector.Expression == "" {
		all = append(all, condition{
			name: "class-selector-is-set", reason: NoSelector, mustBeSet: true, ofCreation: true,
			places: []fields.Path{s.Selector.Path.Names(), s.Selector.AnnotationPlace().Names()},
		})
	}
	return all
}

// MatchCondition is a condition as the API server evaluates it.
type MatchCondition struct{ Name, Expression string }

// BindWhenCondition is the name of the only condition whose expression an author wrote, so the API server may refuse it.
const BindWhenCondition = "bind-when"

// isUpdate is the CEL expression that is true for an update, not a creation.
const isUpdate = `request.operation == "UPDATE"`

// MatchConditions save the API server the call for claims that would be left alone. There is one for each place, so that an admin can
// distinguish them. An error in claims.when is the author's: the API server refuses the claim with it (failurePolicy Fail), as we do.
func MatchConditions(k *v1beta1.ClaimKind) (all []MatchCondition) {
	if k.Spec.Reference.List == v1beta1.ListCheckOnly {
		return []MatchCondition{{"is-bound", "false"}} // The entry stays: others take the rule from it.
	}
	bindWhen, decides := BindWhen(k)
	restores, reference := k.Spec.Reference.OnUnbind != v1beta1.AllowUnbind, referenceOf(&k.Spec.Reference)
	for _, c := range conditionsOf(&k.Spec) {
		if c.isReference && decides {
			continue
		}
		expression := c.expression(k)
		if c.isReference && !k.Spec.Reference.EmptyIsUnset() {
			expression += emptyAndSelected(k)
		}
		if c.ofCreation || c.ofChange && restores { // An update may unbind a claim in which it was set before.
			expression = isUpdate + " || " + expression
		}
		all = append(all, MatchCondition{c.name, expression})
	}
	if bindWhen != "" {
		// It may fail for the update of a claim that is older than it.
		all = append(all, MatchCondition{BindWhenCondition, isUpdate + " || " + bindWhen})
	}
	if restores {
		unbound := "!(" + ReferenceIsUnset(k, "oldObject", true) + ")"
		if decides {
			unbound += fmt.Sprintf(" && (%s || %s)", ReferenceIsUnset(k, "object", true), reference.differs())
		}
		all = append(all, MatchCondition{
			"is-created-or-unbound", `request.operation == "CREATE" || !has(object.metadata.deletionTimestamp) && ` + unbound,
		})
	}
	return all
}

// emptyAndSelected lets through the creation of a claim that has an empty reference on purpose, and a class selector: its
// author is warned. A claim that names its class is not let through: it may have been bound by its selector before, and costs no call.
func emptyAndSelected(k *v1beta1.ClaimKind) string {
	isEmpty := ReferenceIsUnset(k, "object", true)
	if reference := referenceOf(&k.Spec.Reference); reference.empty() != "" {
		isEmpty += fmt.Sprintf(` || %s == %s`, reference.Path.At("object"), reference.empty())
	}
	selector := fields.Path(k.Spec.Selector.AnnotationPlace().Names()).IsSet("object")
	if path := k.Spec.Selector.Path; path != "" {
		selector += " || " + fields.Path(path.Names()).IsSet("object")
	}
	return fmt.Sprintf(` || request.operation == "CREATE" && (%s) && (%s)`, isEmpty, selector)
}

// CheckConditions are those of a claim that names a class, and did not before: the API server calls us to
// check that one. The handler evaluates claims.when.
func CheckConditions(k *v1beta1.ClaimKind) []MatchCondition {
	all := append(newReference(k, func(object string) string { return ReferenceIsUnset(k, object, true) }),
		MatchCondition{"is-not-being-deleted", "!has(object.metadata.deletionTimestamp)"})
	for _, c := range conditionsOf(&k.Spec) {
		if c.reason == Settled && !c.isReference {
			all = append(all, MatchCondition{c.name, c.expression(k)})
		}
	}
	return all
}

// UseConditions are those of a claim whose reference to a class must be allowed: it has one, and had another before.
// There are no others, since an author could meet them first and take that back later. A name that is not a string is one.
func UseConditions(k *v1beta1.ClaimKind) []MatchCondition {
	r := referenceOf(&k.Spec.Reference)
	return newReference(k, func(object string) string {
		unset, value := r.Path.IsUnset(object), r.Path.At(object)
		if empty := r.empty(); empty != "" {
			return unset + fmt.Sprintf(` || %s == %s`, value, empty)
		}
		const isNameless = ` || [%[1]s].exists(r, type(r) == map && (!(%[2]q in r) || r.%[2]s == null || r.%[2]s == ""))`
		return unset + fmt.Sprintf(isNameless, value, r.name[len(r.name)-1])
	})
}

// newReference has the conditions of a claim with a class reference that is another one than before.
func newReference(k *v1beta1.ClaimKind, isUnset func(object string) string) []MatchCondition {
	reference := referenceOf(&k.Spec.Reference)
	return []MatchCondition{
		{"class-reference-is-set", "!(" + isUnset("object") + ")"},
		{"class-reference-is-new", fmt.Sprintf(`request.operation == "CREATE" || %s || %s`, isUnset("oldObject"), reference.differs())},
	}
}

// empty is the CEL expression for a reference that says nothing, empty for one that is an object.
func (r *ClassReference) empty() string {
	switch {
	case r.IsList:
		return "[]"
	case r.Form.IsObject:
		return ""
	}
	return `""`
}

// differs is the CEL expression that reports whether an update changes the reference. Both objects have a name in it.
func (r *ClassReference) differs() string {
	terms := []string{r.Path.At("object") + " != " + r.Path.At("oldObject")}
	for _, at := range r.paths() {
		if !slices.Equal(at, r.Path) {
			now, before, last := at[:len(at)-1].At("object"), at[:len(at)-1].At("oldObject"), at[len(at)-1]
			terms = append(terms, fmt.Sprintf("(%q in %s) != (%q in %s) || %q in %s && %s != %s",
				last, now, last, before, last, now, at.At("object"), at.At("oldObject")))
		}
	}
	return strings.Join(terms, " || ")
}

// expression is true of a claim that meets the condition, and of one that is malformed: such a
// claim must reach us, so that its author learns.
func (c *condition) expression(k *v1beta1.ClaimKind) string {
	switch {
	case c.isReference:
		return ReferenceIsUnset(k, "object", false)
	case !c.mustBeSet:
		return c.places[0].IsUnset("object")
	}
	set := make([]string, len(c.places))
	for i, p := range c.places {
		set[i] = p.IsSet("object")
	}
	return strings.Join(set, " || ")
}

// ReferenceIsUnset is the CEL expression that reports whether a claim has no class reference, as ClassReference.HasReference does. In an
// update, or with nameless, every object without a name counts as absent: the name must not be lost.
func ReferenceIsUnset(k *v1beta1.ClaimKind, object string, nameless bool) string {
	r := referenceOf(&k.Spec.Reference)
	unset, value := r.Path.IsUnset(object), r.Path.At(object)
	switch empty := r.empty(); {
	case empty != "" && r.EmptyIsUnset:
		return unset + fmt.Sprintf(` || %s == %s`, value, empty)
	case empty != "":
		return unset
	}
	isNone := fmt.Sprintf(`type(r) == map && !(has(r.%[1]s) && type(r.%[1]s) == string && r.%[1]s != "")`, r.name[len(r.name)-1])
	if !nameless && !r.EmptyIsUnset {
		var all []string
		for _, part := range r.Form.Parts {
			all = append(all, part.Field())
		}
		isNone += fmt.Sprintf(` && (oldObject != null || r.all(f, f in ["%s"]) && r.exists(f, r[f] != "" && r[f] != null))`,
			strings.Join(all, `", "`))
	}
	return unset + fmt.Sprintf(` || [%s].exists(r, %s)`, value, isNone)
}

// UnopinionatedConditions are those of a claim that is ours to bind, has no selector, and has
// nothing of a class reference. They fail for a claim that is malformed.
func UnopinionatedConditions(k *v1beta1.ClaimKind) (all []MatchCondition) {
	reference := referenceOf(&k.Spec.Reference)
	for _, c := range conditionsOf(&k.Spec) {
		switch {
		case c.ofCreation:
			continue // See below.
		case c.mustBeSet:
			all = append(all, MatchCondition{c.name, c.expression(k)})
			continue
		}
		expression := c.places[0].IsAbsent("object")
		if empty := reference.empty(); c.isReference && reference.EmptyIsUnset && empty != "" {
			expression += fmt.Sprintf(` || %s == %s`, c.places[0].At("object"), empty)
		}
		all = append(all, MatchCondition{c.name, expression})
	}
	for i, at := range reference.paths() {
		if !slices.Equal(at, reference.Path) {
			all = append(all, MatchCondition{fmt.Sprintf("class-reference-part-%d-is-not-set", i), at.IsAbsent("object")})
		}
	}
	if path := k.Spec.Selector.Path; path != "" {
		all = append(all, MatchCondition{"class-selector-is-not-set", fields.Path(path.Names()).IsAbsent("object")})
	}
	annotation := fields.Path(k.Spec.Selector.AnnotationPlace().Names())
	return append(all, MatchCondition{"class-selector-annotation-is-not-set", annotation.IsAbsent("object")})
}

// BindWhen returns the expression claims.when of a ClaimKind as the API server can evaluate it, to which the claim is the object. It is
// empty where there is none, where it looks at more than the claim and who creates it, where it calls a function that only classbind has,
// and where it is at fault. decides reports whether it looks at the class reference, and so decides on claims that have one.
func BindWhen(k *v1beta1.ClaimKind) (condition string, decides bool) {
	if k.Spec.Claims.When == "" {
		return "", false
	}
	e, err := expression.Compile(string(k.Spec.Claims.When), expression.Bool, rules.Scope(&k.Spec))
	if err != nil {
		return "", false
	}
	if !e.Uses(expression.Namespace) && !e.Uses(expression.Related) && e.IsPortable() {
		condition = e.With(expression.Claim, "object")
	}
	reference := referenceOf(&k.Spec.Reference)
	return condition, reference.decides(e)
}
