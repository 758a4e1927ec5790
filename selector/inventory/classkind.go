package inventory

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/fields"
	"github.com/classbind/classbind/selector/rules"
	"github.com/classbind/classbind/selector/truncate"
)

// ClassKind is a registered kind of class, compiled once.
type ClassKind struct {
	// Name is <plural>.<group>.
	Name string
	// Revision of the ClassKind from which it was compiled.
	Revision Revision
	// GroupVersionKind as the API server prefers it.
	GroupVersionKind schema.GroupVersionKind
	// Namespaced classes are offered as the ClaimKind says: see Demand.SeatOf.
	Namespaced bool
	// ClaimKinds are the names of the claim kinds that the classes can satisfy.
	ClaimKinds []string
	// OnDelete is the answer to the deletion of a class that claims have.
	OnDelete v1beta1.OnDelete
	// CountsClaims is that of the ClassKind.
	CountsClaims bool
	// DefaultMark is where a class is marked as the default.
	DefaultMark v1beta1.Source
	// WeightFrom is where a class has its weight.
	WeightFrom v1beta1.Source
	// Quantities are the names of those of the capacity.
	Quantities []v1beta1.QuantityName

	isDefault, weight source
	limits            [][len(v1beta1.LimitFields)]source // of each quantity of the capacity
	plan              *fields.Plan                       // of the fields that lead to these
	lookPlan          *fields.Plan                       // of the fields that expressions look at

	// Reserving is held while a claim takes some of the capacity of a class, nil without one.
	Reserving *sync.Mutex

	ForClaims *rules.ForClasses
	// Related are the objects that a class names.
	Related []rules.Relation
	// fields are held of each class, and reads are all that is read of one for expressions.
	fields, reads *expression.Fields
	// Fault of the registration, nil if there is none.
	Fault *Fault
}

// NewClassKind compiles a ClassKind whose resource the API server serves as the given kind.
// The ClaimKinds are those that it serves: their expressions look at its classes.
func NewClassKind(k *v1beta1.ClassKind, kind schema.GroupVersionKind, namespaced bool, claimKinds ...*v1beta1.ClaimKind) *ClassKind {
	c := &ClassKind{
		Name:             k.Name,
		Revision:         RevisionOf(k),
		GroupVersionKind: kind,
		Namespaced:       namespaced,
		ClaimKinds:       rules.ServedNames(k, claimKinds),
		OnDelete:         k.Spec.OnDelete,
		CountsClaims:     k.CountsClaims(),
		DefaultMark:      k.Spec.Default,
		WeightFrom:       k.Spec.Weight,
		isDefault:        newSource(k.Spec.Default),
		weight:           newSource(k.Spec.Weight),
	}
	c.setLimits(k.Spec.Capacity)
	c.ForClaims = rules.NewForClasses(k)
	c.Fault = FaultOf("class kind", k.Name, c.ForClaims.Invalid)
	c.Related = c.ForClaims.RelatedFor(claimKinds...)
	held := append(rules.FitLooks(c.ForClaims.Fits), c.looksLater()...)
	for _, claimKind := range claimKinds {
		held = append(held, rules.NewForClaims(claimKind).LooksAtClass...)
	}
	c.fields = expression.NewFields(held...)
	c.reads = expression.NewFields(append(held, c.ForClaims.LooksAtClass...)...)
	c.plan, c.lookPlan = c.newReadPlan(), c.newLookPlan()
	return c
}

// Same reports whether classes of both are read and offered in the same way.
func (k *ClassKind) Same(o *ClassKind) bool {
	return k.Revision == o.Revision && k.GroupVersionKind == o.GroupVersionKind && k.Namespaced == o.Namespaced &&
		slices.Equal(k.ClaimKinds, o.ClaimKinds) && slices.EqualFunc(k.fields.Paths(), o.fields.Paths(), slices.Equal) &&
		slices.EqualFunc(k.Related, o.Related, func(a, b rules.Relation) bool { return a.Kind.Same(b.Kind) })
}

// WeightByExpression reports whether an expression says how heavy a class is.
func (k *ClassKind) WeightByExpression() bool { return k.weight.isExpression }

// Resource of the kind's classes.
func (k *ClassKind) Resource() schema.GroupVersionResource {
	plural, _, _ := strings.Cut(k.Name, ".")
	return k.GroupVersionKind.GroupVersion().WithResource(plural)
}

// MetadataOnly reports whether nothing but metadata is read from the kind's classes.
func (k *ClassKind) MetadataOnly() bool {
	needsMore := func(p fields.Path) bool { return p[0] != "metadata" && p[0] != "apiVersion" && p[0] != "kind" }
	return !slices.ContainsFunc(k.sources(), source.needsContent) && !slices.ContainsFunc(k.reads.Paths(), needsMore)
}

// sources of the values that are read of each class.
func (k *ClassKind) sources() []source {
	all := append(slices.Clone(markSources), k.isDefault, k.weight)
	for i := range k.limits {
		all = append(all, k.limits[i][:]...)
	}
	return all
}

// Revision of a registration. A registration that is created again has another uid.
type Revision struct {
	UID        types.UID
	Generation int64
}

// RevisionOf a ClaimKind or ClassKind.
func RevisionOf(registration metav1.Object) Revision {
	return Revision{UID: registration.GetUID(), Generation: registration.GetGeneration()}
}

// Fault of a registration: the reason of its Ready condition, and a text.
type Fault struct{ Reason, Text string }

// Faultf is a fault with a text as fmt formats it.
func Faultf(reason, format string, args ...any) *Fault {
	return &Fault{reason, fmt.Sprintf(format, args...)}
}

func (f *Fault) Error() string { return f.Text }

// FaultOf a registration with invalid expressions, nil if there are none.
func FaultOf(what, name string, invalid []rules.Invalid) *Fault {
	if len(invalid) == 0 {
		return nil
	}
	texts := make([]string, 0, v1beta1.MaxErrors)
	for _, i := range invalid[:min(len(invalid), v1beta1.MaxErrors)] {
		texts = append(texts, i.Error())
	}
	return Faultf(v1beta1.ReasonInvalidExpression, "%s %q: %s", what, name,
		truncate.String(strings.Join(texts, "; "), 2*v1beta1.MaxMessageBytes))
}

// source is where a value of a class is found.
type source struct {
	// places of a value: of a weight, the first that a class has counts, and of a mark any that is true.
	places []sourcePlace
	// isExpression reports whether there is none: see ClassKind.evaluate.
	isExpression bool
}

type sourcePlace struct {
	annotation string // empty for a field
	path       fields.Path
	field      *field.Path // the same, as errors show it
}

// ReadsAnnotation reports whether an annotation of classes matters.
func (k *ClassKind) ReadsAnnotation(key string) bool {
	at := fields.Path{"metadata", "annotations", key}
	return k.plan.Reads(at) || k.lookPlan.Reads(at)
}

func newSource(s v1beta1.Source) source {
	to := source{isExpression: s.Expression != ""}
	for _, p := range s.Places() {
		path := fields.Path(p.Names())
		to.places = append(to.places, sourcePlace{string(p.Annotation), path, path.Field()})
	}
	return to
}

// needsContent reports whether metadata is not enough to read the value.
func (s source) needsContent() bool {
	return slices.ContainsFunc(s.places, func(p sourcePlace) bool { return p.annotation == "" })
}

// value is nil if the class has none there.
func (p *sourcePlace) value(annotations map[string]string, content map[string]any) any {
	if p.annotation == "" {
		v, _ := p.path.Lookup(content) // A path through something that is not an object leads nowhere: no value.
		return v
	}
	if v, ok := annotations[p.annotation]; ok {
		return v
	}
	return nil
}

// value is that of the first place where the class has one, nil if there is none.
func (s source) value(annotations map[string]string, content map[string]any) (value any, at *field.Path) {
	for i := range s.places {
		if v := s.places[i].value(annotations, content); v != nil {
			return v, s.places[i].field
		}
	}
	return nil, nil
}

// mark reads values that are true or false; absent, they are false. One that is true decides.
func (s source) mark(annotations map[string]string, content map[string]any) (marked bool, wrong *field.Error) {
	for i := range s.places {
		switch v := s.places[i].value(annotations, content); v {
		case true, "true":
			marked = true
		case false, "false", nil:
		default:
			wrong = field.Invalid(s.places[i].field, truncate.Value(v), "must be true or false, and counts as false")
		}
	}
	return marked, wrong
}
