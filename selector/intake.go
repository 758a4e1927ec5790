package selector

import (
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/classbind/classbind/api/v1alpha1"
)

// Reasons to leave a claim alone.
const (
	BeingDeleted = "BeingDeleted"
	Settled      = "Settled"
)

// Intake is a claim as it was read, once, for whoever decides on it or explains it.
type Intake struct {
	Claim
	// LeftAlone is the reason why the claim is not ours to bind; empty, it is.
	LeftAlone string
	// SettledBy is the field that is set, for the reason Settled.
	SettledBy string
	// Problems make the claim invalid. They are for its author: MaxErrors at most,
	// each of them short.
	Problems field.ErrorList
	// Parents is how many of the fields that lead to the class reference the claim has.
	Parents int
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
	for _, p := range k.settledBy {
		value, err := p.lookup(object)
		if value != nil {
			in.LeftAlone, in.SettledBy, in.Problems = Settled, p.String(), nil
			return in
		}
		if err != nil && len(in.Problems) == 0 {
			in.Problems = field.ErrorList{err}
		}
	}
	if len(in.Problems) > 0 {
		return in
	}
	in.GenerateName, _ = metadata["generateName"].(string)
	in.Selector, in.Problems = k.classSelector(object)
	in.Parents = k.parents(object)
	return in
}

// Where the annotation is, made once: every claim is asked for it.
var (
	selectorAnnotation      = path{"metadata", "annotations", v1alpha1.ClassSelectorAnnotation}
	selectorAnnotationField = field.NewPath("metadata", "annotations").Key(v1alpha1.ClassSelectorAnnotation)
)

func (k *ClaimKind) classSelector(object map[string]any) (labels.Selector, field.ErrorList) {
	value, err := k.selector.lookup(object)
	if err != nil {
		return nil, field.ErrorList{err}
	}
	text, err := selectorAnnotation.lookup(object)
	switch {
	case err != nil:
		return nil, field.ErrorList{err}
	case value != nil && text != nil:
		detail := "give either the annotation or the field " + k.selector.String() + ", not both"
		return nil, field.ErrorList{field.Forbidden(selectorAnnotationField, detail)}
	case value != nil:
		return parseSelector(value, k.selectorField)
	case text != nil:
		return parseSelectorText(text, selectorAnnotationField)
	}
	return nil, nil
}
