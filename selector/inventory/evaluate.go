package inventory

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/truncate"
)

// evaluate the expressions of the kind that look at the class alone, and keep the fields that
// others look at.
func (c *Class) evaluate(meta metav1.Object, content map[string]any) {
	k := c.Kind
	if len(k.reads.Paths()) == 0 {
		return
	}
	content = k.content(meta, content)
	if len(k.fields.Paths()) > 0 {
		c.Fields = k.fields.Project(content)
	}
	r := k.ForClaims
	if r.OfferWhen == nil && r.IsDefault == nil && r.Weight == nil {
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
	if r.Weight != nil {
		value, err := r.Weight.Number(&in, &budget)
		if k.readWeight(c, value, field.NewPath("metadata", "name")); err != nil {
			c.WeightErr = k.failed("spec.weight.expression", err, "and counts as 1")
		}
	}
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

// content of a class as expressions see it: with its kind, and with the metadata that is read
// of every class, however it was read. Labels and annotations are always there: of a class
// that has none which expressions look at, nobody knows whether it has others.
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
