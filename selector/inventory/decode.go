package inventory

import (
	"errors"
	"maps"
	"math"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/fields"
	"github.com/classbind/classbind/selector/truncate"
)

// identityFields are the metadata that is read of every class, beside what its kind reads.
var identityFields = []string{"namespace", "name", "uid", "resourceVersion"}

func (k *ClassKind) newReadPlan() *fields.Plan {
	const maxBytes = fields.EscapeFactor*v1beta1.MaxNameBytes + 2
	r := &fields.Plan{}
	for _, name := range identityFields {
		r.Add(fields.Path{"metadata", name}, fields.AsScalar, maxBytes)
	}
	r.Add(fields.Path{"metadata", "deletionTimestamp"}, fields.AsSet, 0)
	for _, s := range k.sources() {
		for _, p := range s.places {
			r.Add(p.path, fields.AsScalar, maxBytes)
		}
	}
	return r
}

// newLookPlan reads all that Fields.Project may keep, however it is escaped, so that expressions see the same of a class that is reviewed
// as of one that is stored. The plan is apart from the other, because a field that is too long may have the mark in it. It is nil if
// expressions look at nothing.
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
	return r
}

// DecodeValid reads a class of this kind from valid JSON, without its labels: the guard does not choose a class. It returns the metadata
// that identifies the class. A value that is longer than any meaningful one counts as malformed.
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

// evaluate the expressions of the kind that look at the class alone, and keep the fields that others look at.
func (c *Class) evaluate(meta metav1.Object, content map[string]any) {
	k := c.Kind
	if len(k.reads.Paths())+len(k.Related) == 0 {
		return
	}
	content = k.content(meta, content)
	if len(k.fields.Paths()) > 0 {
		c.Fields = k.fields.Project(content)
	}
	r := k.ForClaims
	evaluates := r.OfferWhen != nil || r.IsDefault != nil || r.Weight != nil || len(r.Limits) > 0
	if !evaluates && len(k.Related) == 0 {
		return
	}
	in := expression.Input{Class: k.reads.Project(content)}
	budget := expression.Budget{Left: v1beta1.MaxClassExpressionCost}
	// First, so that what the others cost, as with a longer status, does not move a seat.
	if r.IsDefault != nil {
		var err error
		if c.Default, err = r.IsDefault.Bool(&in, &budget); err != nil {
			c.Default, c.MarkErr = false, k.failed("spec.default.expression", err, "and counts as false")
		}
	}
	if r.OfferWhen != nil {
		ok, err := r.OfferWhen.Bool(&in, &budget)
		if c.NotOffered = !ok || err != nil; err != nil {
			c.OfferErr = invalidClass(truncate.String(err.Error(), v1beta1.MaxShownBytes))
		}
	}
	c.evaluateValues(false, &in, &budget)
	c.nameObjects(&in, &budget)
}

// evaluateValues of a class: its weight, and the limits of its capacity. derived ones look at what the class names.
func (c *Class) evaluateValues(derived bool, in *expression.Input, budget *expression.Budget) {
	k, r := c.Kind, c.Kind.ForClaims
	if r.Weight != nil && r.Weight.Uses(expression.ClassRelated) == derived {
		value, err := r.Weight.Number(in, budget)
		if k.readWeight(c, value, field.NewPath("metadata", "name")); err != nil {
			c.WeightErr = k.failed("spec.weight.expression", err, "and counts as 1")
		}
	}
	c.evaluateCapacity(derived, in, budget)
}

func invalidClass(detail string) *field.Error {
	return field.Invalid(field.NewPath("metadata", "name"), field.OmitValueType{}, detail)
}

// failed is the error of an expression of the kind for a class.
func (k *ClassKind) failed(name string, err error, counts string) *field.Error {
	return invalidClass(
		"the expression " + name + " of class kind " + k.Name + " fails: " +
			truncate.String(err.Error(), v1beta1.MaxShownBytes) + ", " + counts)
}

// content of a class as expressions see it: with its kind, and with the metadata that is read of every class, however it was read. Labels
// and annotations are always there: of a class that has none which expressions look at, it is unknown whether it has others.
func (k *ClassKind) content(meta metav1.Object, content map[string]any) map[string]any {
	seen := make(map[string]any, len(content)+3)
	maps.Copy(seen, content)
	seen["apiVersion"], seen["kind"] = k.GroupVersionKind.ToAPIVersionAndKind()
	all, _ := content["metadata"].(map[string]any)
	if content == nil {
		all = map[string]any{"labels": texts(meta.GetLabels()), "annotations": texts(meta.GetAnnotations())}
	}
	metadata := map[string]any{"name": meta.GetName()}
	if meta.GetNamespace() != "" {
		metadata["namespace"] = meta.GetNamespace()
	}
	for _, name := range []string{"labels", "annotations"} {
		if metadata[name] = all[name]; all[name] == nil {
			metadata[name] = map[string]any{}
		}
	}
	seen["metadata"] = metadata
	return seen
}

func texts(of map[string]string) map[string]any {
	values := make(map[string]any, len(of))
	for key, value := range of {
		values[key] = value
	}
	return values
}
