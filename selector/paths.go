package selector

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/fields"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/openapi"
	"github.com/classbind/classbind/selector/truncate"
)

// PathsCheck is what the schema of a kind's claims says of its registration.
type PathsCheck struct {
	// Problems are what is wrong, whatever the classes, MaxErrors at most: no claim can be bound.
	Problems []string
	// Unknown is the first thing that the schema leaves open.
	Unknown string
	// Absent are paths that claims do not have, and that are the defaults of a registration: nothing is wrong with them.
	Absent []string
	// SelectorAbsent is set if the path of the selector is among them.
	SelectorAbsent bool
	// Required are the fields without which the API server refuses a claim: of those that lead to the reference, and of those in it.
	Required []v1beta1.FieldPath
	// Company are the fields of a reference that the schema requires and only an author can give.
	Company []string
	// Immutable is the rule of the schema that refuses a reference which is added to a stored claim, empty if no such rule is found.
	Immutable string

	// pruned is what the API server would remove, empty if it is nothing.
	pruned string
	// remedy says what would help against the problems.
	remedy string
	// required are the parts of the reference that the schema requires, and limited those that may not have every value.
	required []*claim.Part
	limited  map[v1beta1.PartRole]openapi.FieldSchema
}

// addPath adds what is known of a field that the author of a registration names. It is true if nothing is wrong.
func (c *PathsCheck) addPath(setting string, s *openapi.Schema, f openapi.Found) bool {
	if errors.Is(f.Err, openapi.ErrMissing) {
		if meant := s.Meant(f.UpTo); meant != "" {
			return c.add(setting, f, fmt.Sprintf(" (did you mean %s?)", shownPart(f.UpTo[:len(f.UpTo)-1].Below(meant))))
		}
	}
	return c.add(setting, f)
}

// add what is known of a field, with a hint. It is true if nothing is wrong.
func (c *PathsCheck) add(setting string, f openapi.Found, hint ...string) bool {
	text := fmt.Sprintf("%s: %v .%s%s", setting, f.Err, f.UpTo, strings.Join(hint, ""))
	switch {
	case f.Err == nil:
		return true
	case errors.Is(f.Err, openapi.ErrUnknown):
		c.Unknown = cmp.Or(c.Unknown, text)
	default:
		c.addProblem(text)
	}
	return false
}

func (c *PathsCheck) addProblem(text string) {
	if len(c.Problems) < v1beta1.MaxErrors && !slices.Contains(c.Problems, text) {
		c.Problems = append(c.Problems, text)
	}
}

// SetPaths has the claim kind follow what the schema of its claims says. It is for one that is not used yet.
func (k *ClaimKind) SetPaths(c PathsCheck) {
	k.Reader.Reference.Require(c.Required, c.Company)
	k.selectorAbsent, k.immutable = c.SelectorAbsent, c.Immutable
	if reason, text := c.problem(); reason != "" && (k.fault == nil || k.fault.Reason == v1beta1.ReasonInvalidExpression) {
		k.fault = inventory.Faultf(reason, "claim kind %q: %s", k.Name, text)
	}
}

// CheckPaths compares a registration with the schema of its claims.
func CheckPaths(k *ClaimKind, s *openapi.Schema) (c PathsCheck) {
	c.remedy = "correct the ClaimKind, or the schema"
	c.checkReference(k, s)
	c.checkImmutable(k.Reader.Reference.Path, s)
	c.checkSelector(k, s)
	for _, p := range k.Reader.SkipIfSet {
		f := s.At(p)
		if errors.Is(f.Err, openapi.ErrMissing) && slices.Equal(p, defaultSkipIfSet) {
			c.Absent = append(c.Absent, "."+p.String())
			continue
		}
		c.addPath("claims.skipIfSet", s, f)
	}
	return c
}

// The defaults of a registration, which claims may lack: there may be nothing to skip by, and the selector may be in the annotation.
var (
	defaultSelector  = fields.Path{"spec", "classSelector"}
	defaultSkipIfSet = fields.Path{"spec", "resourceRef"}
)

// Limits of a FieldPath, as its schema has them.
const (
	maxPathNames = 10
	maxPathBytes = 256
)

// checkReference reports whether a reference would be stored as it is written. Any object may have labels and annotations, which are texts.
func (c *PathsCheck) checkReference(k *ClaimKind, s *openapi.Schema) {
	form := k.Reader.Reference.Form
	if k.Reader.Reference.Path.IsKey() {
		if form.IsObject {
			const text = "reference.%s: a label or an annotation is a string: set spec.reference.form to %s"
			c.addProblem(fmt.Sprintf(text, form, v1beta1.Name))
		}
		return
	}
	f, pruned := s.Stores(k.Reader.Reference.Path)
	if pruned {
		c.pruned, c.remedy = "the reference to its class", correctReference
	}
	if !c.addPath("reference.path", s, f) {
		return
	}
	if k.Reader.Reference.IsList {
		c.add("reference.list", s.At(k.Reader.Reference.Path).Is("array"))
		for _, at := range referencesAt(k) {
			c.checkForm(k, form.At(at), s, at)
		}
	} else {
		c.checkForm(k, form, s, k.Reader.Reference.Path)
	}
	if len(c.Problems) > 0 {
		c.remedy = formRemedy(k, s)
	}
	for i := range k.Reader.Reference.Path {
		if k.Reader.Reference.IsChecked { // classbind writes nothing, so nothing can be missing.
			break
		}
		c.require(k, s, k.Reader.Reference.Path[:i+1])
	}
	for _, part := range c.required {
		if !k.Reader.Reference.IsList { // The element has all parts.
			c.require(k, s, part.Path)
		}
	}
}

// checkImmutable looks for a rule by which an object that leads to the reference may not change, or may not get the field that does. Rules
// in other words are not known before the API server refuses a claim. One of the reference itself does not apply until there is one.
func (c *PathsCheck) checkImmutable(reference fields.Path, s *openapi.Schema) {
	for i := range reference {
		refuses := map[string]bool{}
		for j := i; j <= len(reference); j++ {
			below := strings.Join(append([]string{""}, reference[i:j]...), ".")
			self, old := "self"+below, "oldSelf"+below
			refuses[self+"=="+old], refuses[old+"=="+self] = true, true
			if j > i {
				refuses["has("+self+")==has("+old+")"], refuses["has("+old+")==has("+self+")"] = true, true
			}
		}
		for _, r := range s.At(reference[:i]).Schema.Rules {
			if c.Immutable == "" && refuses[strings.Join(strings.Fields(r.Rule), "")] {
				c.Immutable = fmt.Sprintf(".%s: %s", reference[:i], truncate.String(cmp.Or(r.Message, r.Rule), v1beta1.MaxShownBytes))
			}
		}
	}
}

// require the field at a path, if the schema does. The status takes no path that a registration does not. Where an empty text counts as no
// reference, the API server may store a claim with one.
func (c *PathsCheck) require(k *ClaimKind, s *openapi.Schema, p fields.Path) {
	f := s.At(p).Schema
	if k.Reader.Reference.EmptyIsUnset && f.Type == "string" && f.Allows("") {
		return
	}
	at := v1beta1.FieldPath("." + p.String())
	if s.Requires(p) && len(p) <= maxPathNames && len(at) <= maxPathBytes {
		c.Required = append(c.Required, at)
	}
}

// checkForm reports whether a reference of this form would be stored as it is written. A
// namespace is needed only where claims are offered the classes of others than their own.
func (c *PathsCheck) checkForm(k *ClaimKind, form *claim.Form, s *openapi.Schema, reference fields.Path) {
	setting := "reference." + form.String()
	partAt := func(at fields.Path) *claim.Part {
		i := slices.IndexFunc(form.Parts, func(p claim.Part) bool { return slices.Equal(p.Path, at) })
		if i < 0 {
			return nil
		}
		return &form.Parts[i]
	}
	for _, name := range s.At(reference).Schema.Required {
		part := partAt(reference.Below(name))
		switch {
		case !form.IsObject, k.Reader.Reference.IsChecked, !s.Requires(reference.Below(name)):
		case part != nil:
			c.required = append(c.required, part)
		case k.Reader.Reference.EmptyIsUnset && !claim.IsPart(name): // An author may begin the reference with it.
			c.Company = append(c.Company, name)
		default:
			lacks := shownPart(reference.Below(name))
			c.addProblem(fmt.Sprintf("%s: the schema requires %s, which the reference does not have", setting, lacks))
		}
	}
	for i := range form.Parts {
		part := &form.Parts[i]
		f, pruned := s.Stores(part.Path)
		if part.Role == v1beta1.NamespacePart && form.Name != "" && k.Demand.Reach.SameAsClaim() &&
			(pruned || errors.Is(f.Err, openapi.ErrMissing)) {
			continue
		}
		if pruned {
			c.pruned = "fields of the reference to its class"
		}
		if c.add(setting, f.Is(part.Type())) && (len(f.Schema.Enum) > 0 || f.Schema.Pattern != "") {
			if c.limited == nil {
				c.limited = map[v1beta1.PartRole]openapi.FieldSchema{}
			}
			c.limited[part.Role] = f.Schema
		}
	}
}

// referencesAt are the paths of the reference in the schema: the only one, that of the elements of a list, or those within the elements.
func referencesAt(k *ClaimKind) (all []fields.Path) {
	if !k.Reader.Reference.IsList {
		return []fields.Path{k.Reader.Reference.Path}
	}
	element := k.Reader.Reference.Path.Below(fields.Element)
	for i := range k.Reader.Reference.Within {
		all = append(all, k.Reader.Reference.Within[i].In(element))
	}
	if len(all) == 0 {
		all = append(all, element)
	}
	return all
}

// FittingForm returns the form of reference that fits the schema, nil if none does: the one that says the most, and asks for the least.
func FittingForm(k *ClaimKind, s *openapi.Schema) *claim.Form {
	best, most := (*claim.Form)(nil), 0
	for i := range claim.Forms {
		form, c := &claim.Forms[i], PathsCheck{}
		if !form.NamesNamespace && (k.Demand.Reach.From == v1beta1.FromAll || len(k.Demand.Reach.Names) > 1) {
			continue // No registration may have it.
		}
		at := form.At(referencesAt(k)[0])
		if c.checkForm(k, at, s, referencesAt(k)[0]); len(c.Problems) > 0 || c.Unknown != "" {
			continue
		}
		stored := 0
		for _, part := range at.Parts {
			if form.IsObject && s.At(part.Path).Err == nil {
				stored++
			}
		}
		if best == nil || stored > most || stored == most && len(form.Parts) < len(best.Parts) {
			best, most = form, stored
		}
	}
	return best
}

// formRemedy says which form of reference fits, as what would help.
func formRemedy(k *ClaimKind, s *openapi.Schema) string {
	if form := FittingForm(k, s); form != nil {
		return fmt.Sprintf("set spec.reference.form to %s", form.Name)
	} else if k.Demand.Reach.SameAsClaim() {
		return correctReference
	}
	return fmt.Sprintf("%s, or set spec.classes.namespaces.from to %s", correctReference, v1beta1.FromSameAsClaim)
}

const correctReference = "correct spec.reference.path and spec.reference.form, or the schema"

// shownPart is a field of the reference in a text.
func shownPart(at fields.Path) string {
	return "." + truncate.String(at.String(), v1beta1.MaxShownBytes)
}

// checkSelector reports whether a selector would be stored. It may have one kind of requirements alone.
func (c *PathsCheck) checkSelector(k *ClaimKind, s *openapi.Schema) {
	const setting = "selector.path"
	f := s.At(k.Reader.Selector)
	if errors.Is(f.Err, openapi.ErrMissing) && slices.Equal(k.Reader.Selector, defaultSelector) {
		c.Absent, c.SelectorAbsent = append(c.Absent, "."+k.Reader.Selector.String()), true
		return
	}
	if !c.addPath(setting, s, f) {
		return
	}
	matchLabels, matchExpressions := s.At(k.Reader.Selector.Below("matchLabels")), s.At(k.Reader.Selector.Below("matchExpressions"))
	hasLabels, hasExpressions := !errors.Is(matchLabels.Err, openapi.ErrMissing), !errors.Is(matchExpressions.Err, openapi.ErrMissing)
	if hasLabels || !hasExpressions {
		c.add(setting, matchLabels.Is("object"))
	}
	if hasExpressions {
		c.add(setting, matchExpressions.Is("array"))
	}
}

// problem says why no claim can be bound, whatever the classes: see PathsProblem.
func (c *PathsCheck) problem() (reason, text string) {
	problems := strings.Join(c.Problems, "; ")
	switch {
	case c.pruned != "":
		return v1beta1.ReasonReferencePruned, fmt.Sprintf(
			"no claim is bound, because the API server would remove %s: %s: %s", c.pruned, problems, c.remedy)
	case problems != "":
		return v1beta1.ReasonPathsInvalid, fmt.Sprintf("no claim is bound: %s: %s", problems, c.remedy)
	}
	return "", ""
}

// PathsProblem says what is wrong with a registration, as the reason and the message of PathsValid; both are empty if nothing is. What is
// wrong for one class kind alone must not stop the claims that others serve, so it is no fault of the claim kind.
func (v *View) PathsProblem(c PathsCheck) (reason, text string) {
	if reason, text := c.problem(); reason != "" {
		return reason, text
	}
	refused, kinds := v.refused(c)
	if len(refused) == 0 {
		return "", ""
	}
	reason = v1beta1.ReasonReferenceRefused
	if kinds == len(v.Classes) {
		reason = v1beta1.ReasonAllReferencesRefused
	}
	return reason, strings.Join(refused, "; ") + ": the API server refuses claims with such a reference"
}

// refused says why the API server would refuse a claim for its reference, MaxErrors times at most, and for how many class kinds.
func (v *View) refused(c PathsCheck) (texts []string, kinds int) {
	isRefused := false
	refuse := func(format string, args ...any) {
		text := fmt.Sprintf("reference.%s: ", v.Kind.Reader.Reference.Form) + fmt.Sprintf(format, args...)
		isRefused = true
		if len(texts) < v1beta1.MaxErrors && !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	for _, s := range v.Classes {
		isRefused = false
		class := inventory.Class{Kind: s.Kind, Name: "name"} // A reference to any class of the kind has the same fields.
		if s.Kind.Namespaced {
			class.Namespace = "namespace"
		}
		sample := class.Target()
		for _, part := range c.required {
			if sample.Of(part) == "" {
				refuse("the schema requires %s, which the reference to a class of %q does not have", shownPart(part.Path), s.Kind.Name)
			}
		}
		form := v.Kind.Reader.Reference.Form
		for i := range form.Parts {
			part := &form.Parts[i]
			limited, is := c.limited[part.Role]
			value := sample.Of(part)
			kindOrGroup := part.Role != v1beta1.NamePart && part.Role != v1beta1.NamespacePart
			if is && kindOrGroup && value != "" && !limited.Allows(value) {
				refuse("the schema does not allow %q in %s", value, shownPart(part.Path))
			}
			if part.Role == v1beta1.FlagPart && sample.Kind != part.Of && sample.Kind != part.Default {
				refuse("%s distinguishes %s and %s, and %q has classes of the kind %s",
					shownPart(part.Path), part.Of, part.Default, s.Kind.Name, sample.Kind)
			}
		}
		if isRefused {
			kinds++
		}
	}
	return texts, kinds
}
