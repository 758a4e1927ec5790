package inventory

import (
	"errors"
	"math"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/fields"
)

// identityFields are the metadata that is read of every class, beside what its kind
// reads.
var identityFields = []string{"namespace", "name", "uid", "resourceVersion"}

func (k *ClassKind) newReadPlan() *fields.Plan {
	const maxBytes = fields.EscapeFactor*v1beta1.MaxNameBytes + 2
	r := &fields.Plan{}
	for _, name := range identityFields {
		r.Add(fields.Path{"metadata", name}, fields.AsScalar, maxBytes)
	}
	r.Add(fields.Path{"metadata", "deletionTimestamp"}, fields.AsSet, 0)
	for _, s := range []source{cordonedSource, k.isDefault, k.weight} {
		for _, p := range s.places {
			r.Add(p.path, fields.AsScalar, maxBytes)
		}
	}
	return r.Compile(0)
}

// newLookPlan reads all that Fields.Project may keep, however it is escaped, so that
// expressions see the same of a class that is reviewed as of one that is stored. The plan is
// apart from the other, because a field that is too long may have the mark in it. It is nil
// if expressions look at nothing.
func (k *ClassKind) newLookPlan() *fields.Plan {
	paths := k.reads.Paths()
	if len(paths) == 0 {
		return nil
	}
	r := &fields.Plan{}
	const maxBytes = fields.EscapeFactor * v1beta1.MaxExpressionValueBytes
	for _, p := range paths {
		r.AddForExpressions(p, maxBytes, math.MaxInt)
	}
	return r.Compile(0)
}

// DecodeValid reads a class of this kind from valid JSON, without its labels: the
// guard does not choose a class. It returns the metadata that identifies the class.
// A value that is longer than any meaningful one counts as malformed.
func (k *ClassKind) DecodeValid(raw []byte) (*metav1.ObjectMeta, *Class, error) {
	object, err := k.plan.DecodeValid(raw)
	if err != nil {
		return nil, nil, err
	}
	metadata, _ := object["metadata"].(map[string]any)
	var texts [4]string
	for i, name := range identityFields {
		switch v := metadata[name].(type) {
		case nil:
		case string:
			texts[i] = v
		default:
			return nil, nil, errors.New("metadata." + name + ": must be a text, and no longer than a name may be")
		}
	}
	meta := &metav1.ObjectMeta{Namespace: texts[0], Name: texts[1], UID: types.UID(texts[2]), ResourceVersion: texts[3]}
	if metadata["deletionTimestamp"] != nil {
		meta.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} // It only counts that it is set.
	}
	annotations, _ := metadata["annotations"].(map[string]any)
	for key, value := range annotations {
		text, ok := value.(string)
		if !ok {
			if value == nil {
				continue
			}
			text = tooLongText
		}
		metav1.SetMetaDataAnnotation(meta, key, text)
	}
	var seen map[string]any
	if k.lookPlan != nil {
		if seen, err = k.lookPlan.DecodeValid(raw); err != nil {
			return nil, nil, err
		}
	}
	return meta, k.newClass(meta, object, seen), nil
}

// tooLongText stands for an annotation that was not kept.
const tooLongText = "(too long)"
