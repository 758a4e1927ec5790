package selector

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/classbind/classbind/api/v1alpha1"
)

// Given is what an author has set of a class reference, without the name: the claim gets a
// class that agrees with it.
type Given struct {
	// group counts only if hasGroup is set, because that of the core is empty.
	hasGroup               bool
	group, kind, namespace string
}

// agreesWith reports whether a reference has what is given. The version is the author's.
func (g *Given) agreesWith(to named) bool {
	return (!g.hasGroup || g.group == to.group) && (g.kind == "" || g.kind == to.kind) &&
		(g.namespace == "" || g.namespace == to.namespace)
}

// has reports whether a field of the reference is given.
func (g *Given) has(name string) bool {
	switch {
	case g == nil, name == "name":
		return false
	case name == "kind":
		return g.kind != ""
	case name == "namespace":
		return g.namespace != ""
	}
	return g.hasGroup // apiVersion, apiGroup or group
}

// text begins an Ask. parseGiven reads it.
func (g *Given) text() string {
	if g == nil {
		return ""
	}
	return fmt.Sprintf("@%t%q%q%q", g.hasGroup, g.group, g.kind, g.namespace)
}

// parseGiven returns what an Ask begins with, nil if that is nothing, and the rest.
func parseGiven(ask string) (given *Given, rest string, err error) {
	rest, ok := strings.CutPrefix(ask, "@")
	if !ok {
		return nil, ask, nil
	}
	given = &Given{}
	if rest, given.hasGroup = strings.CutPrefix(rest, "true"); !given.hasGroup {
		rest = strings.TrimPrefix(rest, "false")
	}
	for _, part := range []*string{&given.group, &given.kind, &given.namespace} {
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil { // Given.text wrote it.
			return nil, "", fmt.Errorf("cannot parse %.100q: %w", rest, err)
		}
		rest = rest[len(quoted):]
		*part, _ = strconv.Unquote(quoted) // It is valid.
	}
	return given, rest, nil
}

// HasReference reports whether a claim has a class reference. One on which bindWhen decides
// counts as none if bindWhen may be true.
func (k *ClaimKind) HasReference(object map[string]any) bool {
	value, _ := k.reference(k.classRef.lookup(object))
	return value != nil && !k.unsettled(object)
}

// reference returns what was found at the place of the class reference, nil if it is none. An
// object without a name is none if it has some of the other fields of its form, and nothing else:
// its author, or a server-side apply that took the name out, leaves the class open. Without
// emptyIsUnset, one that says nothing asks for no class, and one that says more may refer in
// another way.
func (k *ClaimKind) reference(found any, err *field.Error) (any, *field.Error) {
	if object, ok := found.(map[string]any); ok && !k.emptyIsUnset && !k.isBegun(object) {
		return found, nil
	}
	return k.named(found, err)
}

// isBegun reports whether a reference has some of the fields of its form, and no other.
func (k *ClaimKind) isBegun(reference map[string]any) (begun bool) {
	for name, value := range reference {
		if !slices.Contains(k.form.fields, name) {
			return false
		}
		begun = begun || value != nil && value != ""
	}
	return begun
}

// isNamed reports whether a claim names its class. One on which bindWhen decides counts as none
// if bindWhen may be true.
func (k *ClaimKind) isNamed(object map[string]any) bool {
	value, _ := k.named(k.classRef.lookup(object))
	return value != nil && !k.unsettled(object)
}

// named returns what was found at the place of the class reference, nil if it has no name. A
// name that is not a string is an error of the author.
func (k *ClaimKind) named(found any, err *field.Error) (any, *field.Error) {
	if found == nil || err != nil {
		return found, err
	}
	object, ok := found.(map[string]any)
	switch {
	case len(k.form.fields) == 0 && found == "" && k.emptyIsUnset:
		return nil, nil
	case len(k.form.fields) == 0, !ok: // What is no text or no object, the schema refuses.
		return found, nil
	}
	if _, isLong := object["name"].(longText); isLong {
		return found, nil
	}
	name, isText := orZero[string](object["name"])
	switch {
	case !isText:
		return nil, wrongType(k.classRef.below("name").field(), object["name"], "a string")
	case name == "":
		return nil, nil
	}
	return found, nil
}

// given reads what the author has set of a reference that counts as none.
func (k *ClaimKind) given(object map[string]any) (*Given, field.ErrorList) {
	value, _ := k.classRef.lookup(object)
	reference, _ := value.(map[string]any)
	if name, _ := reference["name"].(string); name != "" || len(reference) == 0 {
		return nil, nil // One with a name counts as none by bindWhen, and is replaced whole.
	}
	texts, hasGroup := map[string]any{}, false
	for _, name := range k.form.fields {
		at := func() *field.Path { return k.classRef.below(name).field() }
		_, isLong := reference[name].(longText)
		text, isText := orZero[string](reference[name])
		switch {
		case isLong, len(text) > v1alpha1.MaxNameBytes:
			return nil, field.ErrorList{{
				Type: field.ErrorTypeTooLong, Field: at().String(),
				Detail: fmt.Sprintf("must not be longer than %d bytes", v1alpha1.MaxNameBytes),
			}}
		case !isText:
			return nil, field.ErrorList{wrongType(at(), reference[name], "a string")}
		case text != "":
			texts[name] = text
			hasGroup = hasGroup || name != "kind" && name != "namespace"
		}
	}
	if len(texts) == 0 {
		return nil, nil
	}
	of := k.form.read(texts)
	return &Given{hasGroup: hasGroup, group: of.group, kind: of.kind, namespace: of.namespace}, nil
}
