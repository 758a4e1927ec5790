package selector

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/fields"
)

// Reader reads claims of one kind: where they have what, and which of them are ours to bind.
type Reader struct {
	// Name of the ClaimKind.
	Name string
	// Resource of the claims, and the version for which the paths are written, empty
	// while that is the one that the API server prefers.
	Resource schema.GroupResource
	Version  string

	ClassReference
	conditions []condition
	skipIfSet  []fields.Path
	// selector is an object, and annotation has one as a string.
	selector, annotation           fields.Path
	selectorField, annotationField *field.Path
	whenNoSelector                 v1alpha1.WhenNoSelector
	// allowsUnbind says that an update may remove the reference.
	allowsUnbind bool
	// bindWhen is nil if claims without a reference are to be bound.
	bindWhen *expression.Expression
	// looksAt is all that expressions look at in a claim.
	looksAt *expression.Fields
	// hasFacts says that there are expressions that need more than a class.
	hasFacts bool
	// plan of the fields that lead to any of these, and referencePlan of the whole reference.
	plan, referencePlan *fields.Plan
}

func newReader(k *v1alpha1.ClaimKind, x *rules) *Reader {
	r := &Reader{
		Name:           k.Name,
		Resource:       schema.ParseGroupResource(k.Resource()),
		Version:        k.ReadVersion(),
		ClassReference: newClassReference(k, x.bindWhen),
		conditions:     conditionsOf(&k.Spec),
		selector:       k.Spec.ClassSelector.Path.Names(),
		annotation:     k.Spec.ClassSelector.AnnotationPlace().Names(),
		whenNoSelector: k.Spec.WhenNoSelector,
		allowsUnbind:   k.Spec.OnUnbind == v1alpha1.AllowUnbind,
		bindWhen:       x.bindWhen,
		hasFacts:       !x.isEmpty() || len(x.linkedFits) > 0,
	}
	r.selectorField, r.annotationField = r.selector.Field(), r.annotation.Field()
	for _, p := range k.Spec.SkipIfSet {
		r.skipIfSet = append(r.skipIfSet, p.Names())
	}
	paths := slices.Concat(x.claim, x.linked)
	if r.decides { // See Decision.Given.
		paths = append(paths, r.classRef)
	}
	r.looksAt = expression.NewFields(paths...)
	r.plan = r.newPlan()
	whole := &fields.Plan{}
	whole.Add(r.classRef, fields.AsWhole, v1alpha1.MaxReviewBytes)
	r.referencePlan = whole.Compile(0)
	return r
}

// Reads reports whether these are the claims that the kind reads.
func (r *Reader) Reads(claims metav1.GroupVersionResource) bool {
	return claims.Resource == r.Resource.Resource && claims.Group == r.Resource.Group && (r.Version == "" || claims.Version == r.Version)
}

// What is read of every claim, beside the paths of its kind.
var (
	deletionTimestamp = fields.Path{"metadata", "deletionTimestamp"}
	generateName      = fields.Path{"metadata", "generateName"}
)

// newPlan for the claims of a kind.
func (r *Reader) newPlan() *fields.Plan {
	p := &fields.Plan{}
	for _, at := range append(slices.Clone(r.skipIfSet), r.classRef, deletionTimestamp) {
		p.Add(at, fields.AsSet, 0)
	}
	p.Add(r.selector, fields.AsWhole, v1alpha1.MaxSelectorBytes)
	p.Add(r.annotation, fields.AsScalar, fields.EscapeFactor*v1alpha1.MaxSelectorBytes+2)
	const maxNameBytes = fields.EscapeFactor*v1alpha1.MaxNameBytes + 2
	p.Add(generateName, fields.AsScalar, maxNameBytes)
	p.Add(r.classRef, fields.AsScalar, maxNameBytes) // The form Name.
	for _, f := range r.form.fields {
		p.Add(append(slices.Clone(r.classRef), f), fields.AsScalar, maxNameBytes)
	}
	p.At(r.classRef).MarksOthers = !r.emptyIsUnset
	for _, at := range r.looksAt.Paths() {
		p.AddForExpressions(at, v1alpha1.MaxExpressionValueBytes, fields.MaxExpressionDepth)
	}
	return p.Compile(0)
}
