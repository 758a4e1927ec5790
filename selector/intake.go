package selector

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector/expression"
)

// Reasons to leave a claim alone.
const (
	BeingDeleted = "BeingDeleted"
	Settled      = "Settled"
	ParentAbsent = "ParentAbsent"
	NoSelector   = "NoSelector"
)

// Intake is a claim as it was read, once, for whoever decides on it or explains it.
type Intake struct {
	Claim
	// LeftAlone is the reason why the claim is not ours to bind; empty, it is.
	LeftAlone string
	// SettledBy is the place that is set, for the reason Settled.
	SettledBy string
	// Problems make the claim invalid. They are for its author: MaxErrors at most,
	// each of them short.
	Problems field.ErrorList
	// Parents is how many of the fields that lead to the class reference the claim has. The
	// reference itself counts, too, if it is an object without a name.
	Parents int
	// Converted says that the API server converted the claim from another version, whose
	// schema says what the claim must have.
	Converted bool
}

// Decode reads a claim of this kind from JSON: only the fields that Read and BoundTo ask
// for. Of a value that is too long, it keeps the length. It fails if the claim is not an
// object. Of several fields of one name the last counts, as it does for the API server,
// which never sends them.
func (k *ClaimKind) Decode(raw []byte) (map[string]any, error) {
	return k.plan.decode(raw)
}

// DecodeValid does the same for JSON that is known to be valid, such as the object of
// a decoded review. For invalid JSON, its result means nothing.
func (k *ClaimKind) DecodeValid(raw []byte) (map[string]any, error) {
	return k.plan.decodeValid(raw)
}

// Read a claim of this kind from an object that any decoder may have made. A claim
// that is left alone is read no further.
func (k *ClaimKind) Read(namespace, name string, object map[string]any) Intake {
	in := Intake{Claim: Claim{Namespace: namespace, Name: name}}
	metadata, _ := object["metadata"].(map[string]any)
	if metadata["deletionTimestamp"] != nil {
		in.LeftAlone = BeingDeleted
		return in
	}
	for i, p := range k.settledBy {
		value, err := p.lookup(object)
		if i == 0 {
			value, err = k.reference(value, err)
			if k.decides && err == nil { // See bindsNow.
				value = nil
			}
		}
		if value != nil {
			in.LeftAlone, in.SettledBy, in.Problems = Settled, p.String(), nil
			return in
		}
		if err != nil && len(in.Problems) == 0 {
			in.Problems = field.ErrorList{err}
		}
	}
	if in.LeftAlone = k.without(object); in.LeftAlone != "" {
		in.Problems = nil
		return in
	}
	if len(in.Problems) > 0 {
		return in
	}
	if k.hasFacts && !k.readFacts(object, &in) {
		return in
	}
	in.GenerateName, _ = metadata["generateName"].(string)
	if in.Given, in.Problems = k.given(object); len(in.Problems) > 0 {
		return in
	}
	in.Selector, in.Problems = k.classSelector(object)
	in.Parents = k.parents(object)
	return in
}

// readFacts reads what expressions look at, and evaluates bindWhen if it looks at nothing
// else. It is false if that says all there is to say.
func (k *ClaimKind) readFacts(object map[string]any, in *Intake) bool {
	for _, p := range k.looksAt.Paths() {
		at := path(p)
		if value, _ := at.lookup(object); !isRead(value) || expression.TooManyElements(value) {
			in.Problems = append(in.Problems, &field.Error{
				Type: field.ErrorTypeTooLong, Field: at.field().String(),
				Detail: fmt.Sprintf("must not be longer than %d bytes, have more than %d elements or be nested %d levels deep, "+
					"because an expression of claim kind %q looks at it",
					v1alpha1.MaxExpressionValueBytes, v1alpha1.MaxExpressionElements, maxExpressionDepth, k.Name),
			})
			return false
		}
	}
	in.Facts = newFacts(object)
	bindWhen := k.rules.bindWhen
	if bindWhen == nil || !readsClaimAlone(bindWhen) {
		return true
	}
	in.Facts.begin()
	ok, err := in.Facts.bool(bindWhen)
	switch {
	case err != nil:
		in.Problems = append(in.Problems, failure(k, "spec.bindWhen", bindWhen, err))
	case !ok:
		in.LeftAlone = NotYet
	}
	return ok && err == nil
}

// isRead reports whether Decode read all of a value.
func isRead(value any) bool {
	isUnread := func(value any) bool { return !isRead(value) }
	switch v := value.(type) {
	case unread, longText:
		return false
	case []any:
		return !slices.ContainsFunc(v, isUnread)
	case map[string]any:
		for _, child := range v {
			if isUnread(child) {
				return false
			}
		}
	}
	return true
}

// without says why a claim is left alone for what it does not have; empty, it is not. A
// field in something that is not an object is absent.
func (k *ClaimKind) without(object map[string]any) (why string) {
	if k.needsParent {
		if parent, _ := k.classRef[:len(k.classRef)-1].lookup(object); parent == nil {
			return ParentAbsent
		}
	}
	if k.whenNoSelector == v1alpha1.NoSelectorLeaveAlone && k.rules.selectorFrom == nil {
		value, _ := k.selector.lookup(object)
		text, _ := k.annotation.lookup(object)
		if value == nil && text == nil {
			return NoSelector
		}
	}
	return ""
}

func (k *ClaimKind) classSelector(object map[string]any) (labels.Selector, field.ErrorList) {
	value, err := k.selector.lookup(object)
	if err != nil {
		return nil, field.ErrorList{err}
	}
	text, err := k.annotation.lookup(object)
	switch {
	case err != nil:
		return nil, field.ErrorList{err}
	case value != nil && text != nil:
		detail := "give either the annotation or the field " + k.selector.String() + ", not both"
		return nil, field.ErrorList{field.Forbidden(k.annotationField, detail)}
	case value != nil:
		return parseSelector(value, k.selectorField)
	case text != nil:
		return parseSelectorText(text, k.annotationField)
	}
	return nil, nil
}
