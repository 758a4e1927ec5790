package selector

import (
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/classbind/classbind/api/v1alpha1"
)

// classNames are what is read of every class, beside what its kind reads.
var classNames = []string{"namespace", "name", "uid", "resourceVersion"}

func (k *ClassKind) newReading() *reading {
	const most = escaped*v1alpha1.MaxNameBytes + 2
	r := &reading{}
	for _, name := range classNames {
		r.add(path{"metadata", name}, asScalar, most)
	}
	r.add(deletionTimestamp, asSet, 0)
	for _, s := range []source{{annotation: v1alpha1.CordonedAnnotation}, k.isDefault, k.weight} {
		p := s.path
		if p == nil {
			p = path{"metadata", "annotations", s.annotation}
		}
		r.add(p, asScalar, most)
	}
	return r.compiled(0)
}

// DecodeValid reads a class of this kind from what is known to be valid JSON, without
// its labels: whoever judges a class that is to be stored does not choose it. Of its metadata, it returns what
// identifies the class. A value that is longer than any that means something is as
// good as malformed.
func (k *ClassKind) DecodeValid(raw []byte) (*metav1.ObjectMeta, *Class, error) {
	object, err := k.reading.decodeValid(raw)
	if err != nil {
		return nil, nil, err
	}
	metadata, _ := object["metadata"].(map[string]any)
	var texts [4]string
	for i, name := range classNames {
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
		meta.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} // That it is set is all that counts.
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
	return meta, k.NewClass(meta, object), nil
}

// tooLongText stands for an annotation that was not kept.
const tooLongText = "(too long)"
