package selector

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector/brief"
)

// PathsCheck is what the schema of a kind's claims says of its registration.
type PathsCheck struct {
	// Problems are what is wrong, whatever the classes.
	Problems []string
	// Unknown is the first thing that the schema does not tell.
	Unknown string
	// Absent are paths that claims do not have, and that are the defaults of a
	// registration: nothing is wrong with them.
	Absent []string

	// pruned says that claims would be stored without their reference, or without the
	// name in it; lost has the other fields of the reference that would be pruned.
	pruned bool
	lost   []string
	// required are the fields without which the API server refuses a reference, and
	// limited those of which it does not take every value.
	required []string
	limited  map[string]fieldSchema
}

// add what is known of a field. It is true if nothing is wrong.
func (c *PathsCheck) add(setting string, f found) bool {
	text := fmt.Sprintf("%s: %v .%s", setting, f.err, f.upTo)
	switch {
	case f.err == nil:
		return true
	case errors.Is(f.err, errUnknown):
		c.Unknown = cmp.Or(c.Unknown, text)
	case !slices.Contains(c.Problems, text):
		c.Problems = append(c.Problems, text)
	}
	return false
}

// CheckPaths compares a registration with the schema of its claims.
func (k *ClaimKind) CheckPaths(s *Schema) (c PathsCheck) {
	k.checkReference(s, &c)
	k.checkSelector(s, &c)
	for _, p := range k.settledBy[1:] {
		f := s.at(p)
		if errors.Is(f.err, errMissing) && slices.Equal(p, defaultSkipIfSet) {
			c.Absent = append(c.Absent, "."+p.String())
			continue
		}
		c.add("skipIfSet", f)
	}
	return c
}

// The defaults of a registration, which need not be fields of a claim: there may be
// nothing to skip by, and any claim can have its selector in the annotation.
var (
	defaultSelector  = path{"spec", "classSelector"}
	defaultSkipIfSet = path{"spec", "resourceRef"}
)

// checkReference says whether a reference would be stored as it is written.
func (k *ClaimKind) checkReference(s *Schema, c *PathsCheck) {
	const setting = "reference.path"
	f := s.at(k.classRef)
	if c.pruned = s.prunes(k.classRef); c.pruned && f.err == nil {
		f.err = errNotStored
	}
	if len(k.form.fields) == 0 {
		f = f.is("string")
	}
	if !c.add(setting, f) {
		return
	}
	if len(k.form.fields) > 0 {
		c.required = slices.DeleteFunc(slices.Clone(f.schema.Required), func(name string) bool {
			return s.at(k.classRef.below(name)).schema.Default != nil
		})
	}
	for _, name := range k.form.fields {
		f := s.at(k.classRef.below(name)).is("string")
		if f.err == nil && (len(f.schema.Enum) > 0 || f.schema.Pattern != "") {
			if c.limited == nil {
				c.limited = map[string]fieldSchema{}
			}
			c.limited[name] = f.schema
		}
		if s.prunes(k.classRef.below(name)) {
			if name != "name" {
				c.lost = append(c.lost, name)
				continue
			}
			if c.pruned = true; f.err == nil {
				f.err = errNotStored
			}
		}
		c.add(fmt.Sprintf("reference.form %s", k.form.name), f)
	}
}

// checkSelector says whether a selector would be stored. It may have one kind of
// requirements alone.
func (k *ClaimKind) checkSelector(s *Schema, c *PathsCheck) {
	const setting = "classSelector.path"
	f := s.at(k.selector)
	if errors.Is(f.err, errMissing) && slices.Equal(k.selector, defaultSelector) {
		c.Absent = append(c.Absent, "."+k.selector.String())
		return
	}
	if !c.add(setting, f) {
		return
	}
	matchLabels, matchExpressions := s.at(k.selector.below("matchLabels")), s.at(k.selector.below("matchExpressions"))
	if errors.Is(matchLabels.err, errMissing) && !errors.Is(matchExpressions.err, errMissing) {
		c.add(setting, matchExpressions.is("array"))
		return
	}
	c.add(setting, matchLabels.is("object"))
	if !errors.Is(matchExpressions.err, errMissing) {
		c.add(setting, matchExpressions.is("array"))
	}
}

// PathsProblem says what is wrong with a registration, as the reason and the message of
// PathsValid; both are empty if nothing is.
func (v *View) PathsProblem(c PathsCheck) (reason, text string) {
	if slices.Contains(c.lost, "kind") && len(v.Classes) > 1 { // It is about the classes that will be offered.
		v = &View{Kind: v.Kind, Classes: v.Classes}
		v.keepOldest()
	}
	namespaced := slices.ContainsFunc(v.Classes, func(s *Classes) bool { return s.Kind.Namespaced })
	problems, pruned, kindPruned := c.Problems, c.pruned, false
	for _, name := range c.lost {
		if name == "namespace" && !namespaced { // It is never written.
			continue
		}
		problem := fmt.Sprintf("reference.form %s: %v .%s", v.Kind.form.name, errMissing, v.Kind.classRef.below(name))
		problems = append(slices.Clip(problems), problem)
		pruned = pruned || name == "namespace" && !v.Kind.own()
		kindPruned = kindPruned || name == "kind"
	}
	if refused := v.refused(c); len(refused) > 0 {
		problems = append(slices.Clip(problems), strings.Join(refused, "; ")+": the API server refuses claims with such a reference")
	}
	text = strings.Join(problems, "; ")
	switch {
	case pruned:
		return v1alpha1.ReasonReferencePruned, "no claim is bound, because the API server would remove the reference to its class: " +
			text + ": correct spec.reference.path and spec.reference.form, or the schema"
	case kindPruned:
		return v1alpha1.ReasonKindPruned, "claims are offered the classes of one class kind, because the API server would remove " +
			"the kind from a reference: " + text
	case text != "":
		return v1alpha1.ReasonPathsInvalid, text
	}
	return "", ""
}

// refused says why the API server would refuse a claim for its reference, MaxErrors times
// at most. Of the names of classes it knows nothing.
func (v *View) refused(c PathsCheck) (texts []string) {
	refuse := func(format string, args ...any) {
		text := fmt.Sprintf("reference.form %s: ", v.Kind.form.name) + fmt.Sprintf(format, args...)
		if len(texts) < v1alpha1.MaxErrors && !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	at := func(field string) string {
		return "." + brief.Text(v.Kind.classRef.below(field).String(), v1alpha1.MaxShownBytes)
	}
	if len(v.Classes) == 0 {
		for _, name := range c.required {
			if !slices.Contains(v.Kind.form.fields, name) {
				refuse("the schema requires %s, which the reference does not have", at(name))
			}
		}
	}
	for _, s := range v.Classes {
		written := v.Kind.writes(s.Kind)
		for _, name := range c.required {
			if written[name] == "" {
				refuse("the schema requires %s, which the reference to a class of %q does not have", at(name), s.Kind.Name)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(c.limited)) {
			limited, value := c.limited[name], written[name]
			if name != "name" && name != "namespace" && value != "" && !limited.allows(value) {
				refuse("the schema does not allow %q in %s", value, at(name))
			}
		}
	}
	return texts
}

// writes returns the fields of the reference to a class of this kind.
func (k *ClaimKind) writes(kind *ClassKind) (fields map[string]string) {
	class := &Class{Kind: kind, Name: "name"}
	if kind.Namespaced {
		class.Namespace = "namespace"
	}
	_ = json.Unmarshal(k.Reference(class), &fields) // In the form Name, it has no fields.
	return fields
}

// ReferenceFault is the fault that the status of a ClaimKind tells, nil if there is none:
// the API server would prune the references of claims. Only the leader reads the schema,
// and all replicas the status. A changed registration keeps the fault until the leader has
// checked it: meanwhile, claims would be stored without a class.
func ReferenceFault(k *v1alpha1.ClaimKind) *Fault {
	c := meta.FindStatusCondition(k.Status.Conditions, v1alpha1.ConditionPathsValid)
	if c == nil || c.Reason != v1alpha1.ReasonReferencePruned {
		return nil
	}
	return &Fault{c.Reason, fmt.Sprintf("claim kind %q: %s", k.Name, c.Message)}
}

// KindPruned says, by the status of a ClaimKind as well, that references lose the kind of
// their class.
func KindPruned(k *v1alpha1.ClaimKind) bool {
	c := meta.FindStatusCondition(k.Status.Conditions, v1alpha1.ConditionPathsValid)
	return c != nil && c.Reason == v1alpha1.ReasonKindPruned
}
