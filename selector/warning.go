package selector

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/truncate"
)

// UnreadText names the class kinds that claims are decided on without: their classes were never known, or are ignored. It is empty if there
// are no such kinds.
func (v *View) UnreadText() string {
	if len(v.Unread) == 0 {
		return ""
	}
	kinds := ListFunc(v.Unread, func(k UnreadKind) string { return fmt.Sprintf("%q (%s)", k.Name, k.Reason) })
	why := "which it cannot read"
	if !slices.ContainsFunc(v.Unread, func(k UnreadKind) bool { return !k.isIgnored() }) {
		why = "which an admin has it ignore"
	}
	return fmt.Sprintf("classbind decided without the classes of %s, %s: kubectl describe claimkind %s shows admins what to do",
		kinds, why, v.Kind.Name)
}

// unmatched says what the claim asked for, among which classes, and what would help.
func (d *Decision) unmatched() string {
	kind := d.View.Kind
	if text := d.choiceText(); text != "" {
		return text + d.laterText()
	}
	if kind.Use != "" {
		return unusable(d)
	}
	var what, remedy string
	switch {
	case d.only != nil:
		what = fmt.Sprintf("this claim of %q has no class selector, and the only class that it is offered, %q, cannot serve it",
			kind.Name, d.only)
		remedy = "create a class"
	case d.asks() == nil:
		what, remedy = d.withoutDefault()
	case d.Claim.Selector == nil:
		what = fmt.Sprintf("this claim of %q has no class selector, so that it gets any class, and there is none", kind.Name)
		remedy = "create a class"
	default:
		what = fmt.Sprintf("no class for this claim of %q matches the selector %q", kind.Name, selectorText(d.Claim.Selector))
		remedy = "change the selector, or create or label a class"
	}
	what += equalText(d)
	if droppedBy(d, reasonFull) {
		remedy = "wait until a class has room, or " + remedy
	}
	later := d.laterText()
	if len(d.View.Classes) == 0 && len(d.View.Unread) > 0 { // They say the rest.
		return what + ": the classes of no class kind that serves it are known" + later
	}
	if len(d.View.Classes) == 0 {
		return what + ": no class kind serves it: create a ClassKind for it" + later
	}
	kinds := ListFunc(d.View.Classes, func(s *inventory.Classes) string { return s.Kind.Name })
	n := d.View.LenOffered(d.Claim.Namespace)
	noun := "classes"
	if n == 1 {
		noun = "class"
	}
	where := fmt.Sprintf("among %d %s of %s", n, noun, kinds)
	if d.View.Partly() {
		where += fmt.Sprintf(" that claims of namespace %q are offered", d.Claim.Namespace)
	}
	if dropped := d.dropped(func(_, text string, n int) string { return fmt.Sprintf("%d %s", n, text) }, ", "); dropped != "" {
		where += "; dropped: " + dropped
	}
	if d.DropErr != nil {
		where += "; the first error: " + truncate.String(d.DropErr.Error(), v1beta1.MaxMessageBytes)
	}
	return fmt.Sprintf("%s (%s): %s%s", what, where, remedy, later)
}

// laterText says what becomes of a claim without a class.
func (d *Decision) laterText() string {
	switch kind := d.View.Kind; {
	case d.Lacks != "":
		return "; the schema of its kind requires " + d.Lacks
	case kind.BindLater && kind.immutable != "":
		return fmt.Sprintf("; it cannot be bound later, because the schema refuses that (%s): create it again when there is a class for it",
			kind.immutable)
	case kind.BindLater && !kind.CannotBindLater.Load():
		return "; it will be bound when a class matches"
	}
	return ""
}

// unusable says what the claim asked for, and what it may use. It reveals no other classes.
func unusable(d *Decision) string {
	kind, user := d.View.Kind, d.View.Kind.UserOf(d.Claim.Claim)
	var what string
	switch {
	case d.only != nil:
		what = fmt.Sprintf("this claim of %q has no class selector, and the only class that %s may use, %q, cannot serve it now",
			kind.Name, user, d.only)
	case d.asks() == nil && kind.Reader.WhenNoSelector == v1beta1.NoSelectorOnly:
		what = fmt.Sprintf("this claim of %q has no class selector, and no class is the only one that %s may use or the default for it",
			kind.Name, user)
	case d.asks() == nil:
		what = fmt.Sprintf("this claim of %q has no class selector, and no class that %s may use is the default for it", kind.Name, user)
	case d.Claim.Selector == nil:
		what = fmt.Sprintf("this claim of %q gets any class, and %s may use none", kind.Name, user)
	default:
		what = fmt.Sprintf("no class that %s may use matches the selector %q%s", user, selectorText(d.Claim.Selector), equalText(d))
	}
	switch {
	case len(d.Usable) > 0:
		names := make([]string, len(d.Usable))
		for i, c := range d.Usable {
			names[i] = c.String()
		}
		what += ": it may use " + strings.Join(names, ", ")
	case d.Usable != nil:
		what += ", nor any other that is known"
	}
	what = fmt.Sprintf("%s; classbind classes %s shows all that a claim can get", what, kind.Name)
	if d.Claim.Namespace != "" {
		what += " with -n " + d.Claim.Namespace
	}
	return what + d.laterText()
}

// withoutDefault says why a claim without a selector gets no default class, and what would help.
func (d *Decision) withoutDefault() (what, remedy string) {
	kind := d.View.Kind
	what = fmt.Sprintf("this claim of %q has no class selector, and no class", kind.Name)
	if kind.Reader.WhenNoSelector == v1beta1.NoSelectorOnly {
		what = fmt.Sprintf("this claim of %q has no class selector, there is not exactly one class for it, and no class", kind.Name)
	}
	marked := "is marked default"
	if kind.Rules.PartitionClass != nil {
		marked = fmt.Sprintf("is marked default for its partition %q", truncate.String(d.partition, v1beta1.MaxShownBytes))
	}
	remedy = "set "
	if !kind.selectorAbsent {
		remedy += kind.Reader.Selector.String() + " or "
	}
	remedy += fmt.Sprintf("the annotation %s, or ", kind.Reader.Annotation[len(kind.Reader.Annotation)-1])
	switch {
	case d.cordoned != nil:
		return fmt.Sprintf("this claim of %q has no class selector, and the default class %q is cordoned", kind.Name, d.cordoned),
			remedy + "have an admin " + d.cordoned.Uncordon(kind.Name)
	case d.Dropped != nil || len(d.Refused) > 0:
		return what + " that " + marked + " can serve it", strings.TrimSuffix(remedy, ", or ") // There may be no second.
	}
	return what + " " + marked, remedy + "mark a class default"
}

// equalText says what fields of classes the claim asks for by equality terms, as if by its selector. It is empty for the default class.
func equalText(d *Decision) string {
	if d.asks() == nil {
		return ""
	}
	text, said := "", map[string]bool{}
	for _, v := range d.values {
		if !v.Indexed {
			continue
		}
		value := fmt.Sprint(v.Value)
		if text, ok := v.Value.(string); ok {
			value = fmt.Sprintf("%q", truncate.String(text, v1beta1.MaxShownBytes))
		}
		if one := fmt.Sprintf(" and has %s %s", v.Equality.Path, value); !said[one] && len(said) < maxListed {
			said[one] = true
			text += one
		}
	}
	return text
}

// selectorText is short, so that clients do not cut off the end of a warning.
func selectorText(selector labels.Selector) string { return truncate.String(selector.String(), 200) }

// maxListed is how many classes a warning names. Clients may cut off a longer one.
const maxListed = 4

// List names a few, and counts the rest.
func List(names []string) string { return ListFunc(names, func(name string) string { return name }) }

// ListFunc does the same, and makes only the names that it shows: there may be many items.
func ListFunc[T any](items []T, name func(T) string) string {
	names := make([]string, min(len(items), maxListed))
	for i := range names {
		names[i] = name(items[i])
	}
	text := strings.Join(names, ", ")
	if more := len(items) - len(names); more > 0 {
		return fmt.Sprintf("%s and %d more", text, more)
	}
	return text
}
