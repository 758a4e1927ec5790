// Package inventory has the classes of each kind, finds those that a claim asks for by their labels
// and fields, and knows which of them claims of one kind are offered. It chooses none.
package inventory

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/fields"
	"github.com/classbind/classbind/selector/rules"
	"github.com/classbind/classbind/selector/truncate"
)

const (
	maxWeight     = 1_000_000
	defaultWeight = 1
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

	isDefault, weight source
	limits            [len(v1beta1.LimitFields)]source // of the capacity
	enforcement       v1beta1.Enforcement              // empty without a capacity
	plan              *fields.Plan                     // of the fields that lead to these
	lookPlan          *fields.Plan                     // of the fields that expressions look at

	// Reserving is held while a claim takes some of the capacity of a class, nil without one.
	Reserving *sync.Mutex

	ForClaims *rules.ForClasses
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
	held := rules.FitLooks(c.ForClaims.Fits)
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
		slices.Equal(k.ClaimKinds, o.ClaimKinds) && slices.EqualFunc(k.fields.Paths(), o.fields.Paths(), slices.Equal)
}

// DefaultExpression says which classes are default, nil if a mark does.
func (k *ClassKind) DefaultExpression() *expression.Expression { return k.ForClaims.IsDefault }

// WeightByExpression says that an expression says how heavy a class is.
func (k *ClassKind) WeightByExpression() bool { return k.weight.isExpression }

// Resource of the kind's classes.
func (k *ClassKind) Resource() schema.GroupVersionResource {
	plural, _, _ := strings.Cut(k.Name, ".")
	return k.GroupVersionKind.GroupVersion().WithResource(plural)
}

// MetadataOnly says that nothing but metadata is read from the kind's classes.
func (k *ClassKind) MetadataOnly() bool {
	needsMore := func(p fields.Path) bool { return p[0] != "metadata" && p[0] != "apiVersion" && p[0] != "kind" }
	return !slices.ContainsFunc(k.sources(), source.needsContent) && !slices.ContainsFunc(k.reads.Paths(), needsMore)
}

// sources of the values that are read of each class.
func (k *ClassKind) sources() []source {
	return append([]source{cordonedSource, k.isDefault, k.weight}, k.limits[:]...)
}

// Class is what choosing needs to know of a class. It is immutable.
type Class struct {
	Kind *ClassKind

	// The fields that the draw reads come first, so that they are mostly in one cache line.

	// DrawHash is a hash of group, kind, namespace and name, for the draw: the same in each replica.
	DrawHash uint64
	// Place is made of the same by claim.PlaceOf, to find what this process keeps of the class.
	Place uint64
	// Weight is from 0 to 1000000.
	Weight      int64
	Default     bool
	Cordoned    bool
	Terminating bool
	// TooManyLabels says that the labels are not held, and no claim gets the class.
	TooManyLabels bool
	// NotOffered says that offerWhen is not true of the class.
	NotOffered bool

	Namespace, Name string
	Labels          Labels
	// WeightErr says why the weight is malformed, which then counts as 1, or as 0 if it is
	// negative. It shows no more than the beginning of the weight.
	WeightErr *field.Error

	// MarkErr says which mark, for cordoned or default, is neither true nor false. It counts as false.
	MarkErr *field.Error

	// Fields that expressions look at, nil if there are none.
	Fields *expression.Object
	// OfferErr is why offerWhen has no result for the class, nil if it has one.
	OfferErr *field.Error

	// Capacity is nil where the kind has none.
	Capacity *Capacity

	// stored is a hash of the uid and the resourceVersion with which the class was last seen.
	stored atomic.Uint64

	// groupless is the place by which a reference that names the Kind alone finds the class,
	// and kindless that for one that names neither group nor Kind.
	groupless, kindless uint64
}

// NewClass reads a class of this kind. The content is the whole object; a kind that is MetadataOnly does not need it.
func (k *ClassKind) NewClass(meta metav1.Object, content map[string]any) *Class {
	return k.newClass(meta, content, content)
}

// newClass is the same where expressions see other parts of the object.
func (k *ClassKind) newClass(meta metav1.Object, content, seen map[string]any) *Class {
	annotations := meta.GetAnnotations()
	c := &Class{
		Kind:        k,
		Namespace:   meta.GetNamespace(),
		Name:        meta.GetName(),
		Terminating: meta.GetDeletionTimestamp() != nil,
	}
	if labels := meta.GetLabels(); labelsFit(labels) {
		c.Labels = NewLabels(labels)
	} else {
		c.TooManyLabels = true
	}
	var cordonErr *field.Error
	c.Default, c.MarkErr = k.isDefault.mark(annotations, content)
	if c.Cordoned, cordonErr = cordonedSource.mark(annotations, nil); cordonErr != nil {
		c.MarkErr = cordonErr
	}
	weight, at := k.weight.value(annotations, content)
	k.readWeight(c, weight, at)
	c.Capacity = k.newCapacity(annotations, content)
	c.evaluate(meta, seen)
	// The version is left out, so that a new preferred version moves no claim.
	c.DrawHash = Hash(k.GroupVersionKind.Group, k.GroupVersionKind.Kind, c.Namespace, c.Name)
	c.Place = claim.PlaceOf(k.GroupVersionKind.Group, k.GroupVersionKind.Kind, c.Namespace, c.Name)
	c.groupless = claim.PlaceOf("", k.GroupVersionKind.Kind, c.Namespace, c.Name)
	c.kindless = claim.PlaceOf("", "", c.Namespace, c.Name)
	c.stored.Store(storedAs(meta))
	return c
}

// storedAs is 0 for an object that is not stored.
func storedAs(meta metav1.Object) uint64 {
	if meta.GetResourceVersion() == "" {
		return 0
	}
	return Hash(string(meta.GetUID()), meta.GetResourceVersion())
}

// Read returns a class as it is known, if it is stored unchanged, and reads it otherwise. No
// expression is evaluated again for a class that is known. The classes may be nil.
func (s *Classes) Read(kind *ClassKind, meta metav1.Object, content map[string]any) *Class {
	if stored := storedAs(meta); s != nil && s.Kind == kind && stored != 0 {
		if c := s.find(className{meta.GetNamespace(), meta.GetName()}); c != nil && c.stored.Load() == stored {
			return c
		}
	}
	return kind.NewClass(meta, content)
}

func (k *ClassKind) readWeight(c *Class, weight any, at *field.Path) {
	var err error
	if c.Weight, err = parseWeight(weight); err != nil {
		c.WeightErr = field.Invalid(at, truncate.Value(weight), err.Error())
	}
}

// Hash of texts joined by slashes, for the draw. Authors can make up many names with the same hash, so tables use claim.PlaceOf instead.
func Hash(texts ...string) uint64 {
	var d xxhash.Digest
	d.Reset()
	for i, t := range texts {
		if i > 0 {
			_, _ = d.WriteString("/") // It never fails.
		}
		_, _ = d.WriteString(t)
	}
	return d.Sum64()
}

// equal reports whether nothing differs from o, a class of the same name.
func (c *Class) equal(o *Class) bool {
	return c.Kind == o.Kind && c.Default == o.Default && c.Cordoned == o.Cordoned && c.Terminating == o.Terminating &&
		c.TooManyLabels == o.TooManyLabels && c.NotOffered == o.NotOffered && c.Weight == o.Weight &&
		sameError(c.WeightErr, o.WeightErr) && sameError(c.MarkErr, o.MarkErr) && sameError(c.OfferErr, o.OfferErr) &&
		slices.Equal(c.Labels, o.Labels) && c.Fields.Same(o.Fields) && c.Capacity.equal(o.Capacity)
}

func sameError(a, b *field.Error) bool {
	return (a == nil) == (b == nil) && (a == nil || a.Error() == b.Error())
}

// String is KIND/NAME as kubectl takes it, or KIND/NAMESPACE/NAME.
func (c *Class) String() string {
	if c.Namespace == "" {
		return c.Kind.GroupVersionKind.Kind + "/" + c.Name
	}
	return c.Kind.GroupVersionKind.Kind + "/" + c.Namespace + "/" + c.Name
}

// Arguments are the class as kubectl takes it after a verb: KIND NAME, with its namespace.
func (c *Class) Arguments() string {
	if c.Namespace == "" {
		return c.Kind.Name + " " + c.Name
	}
	return c.Kind.Name + " " + c.Name + " --namespace " + c.Namespace
}

// Uncordon is what admins can do about a default class that is cordoned.
func (c *Class) Uncordon(claimKind string) string {
	return fmt.Sprintf("offer it again: kubectl annotate %s %s-, or move the default: classbind set-default CLASS --for %s",
		c.Arguments(), v1beta1.CordonedAnnotation, claimKind)
}

// Compare is the order of classes: by class kind, namespace and name.
func Compare(a, b *Class) int {
	return cmp.Or(strings.Compare(a.Kind.Name, b.Kind.Name), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

// parseWeight returns what a weight counts as, and an error if it is malformed. A negative one counts as 0: its author wants no claims for
// the class.
func parseWeight(value any) (int64, error) {
	number, how := math.NaN(), ""
	switch v := value.(type) {
	case nil:
		return defaultWeight, nil
	case int64:
		number = float64(v)
	case float64: // JSON's 3.0, and integers that are too large for an int64
		number = v
	case string:
		how = ", in plain digits"
		if weight, ok := plainWeight(v); ok {
			return weight, nil
		}
		if negativeText.MatchString(v[:min(len(v), v1beta1.MaxShownBytes)]) {
			number = -1
		}
	}
	if number == math.Trunc(number) && number >= 0 && number <= maxWeight {
		return int64(number), nil
	}
	weight := int64(defaultWeight)
	if number < 0 {
		weight = 0
	}
	return weight, fmt.Errorf("must be an integer from 0 to %d%s", maxWeight, how)
}

// plainWeight reads a text that is a weight, and not one as "+5" or "010".
func plainWeight(text string) (weight int64, ok bool) {
	if len(text) > len(strconv.Itoa(maxWeight)) { // The parser would copy it into its error.
		return 0, false
	}
	weight, err := strconv.ParseInt(text, 10, 64)
	return weight, err == nil && weight >= 0 && weight <= maxWeight && strconv.FormatInt(weight, 10) == text
}

// negativeText is how a text begins that is a negative number.
var negativeText = regexp.MustCompile(`^\s*-\.?[0-9]`)

// source is where a value of a class is found.
type source struct {
	// places of a value: of a weight, the first that a class has counts, and of a mark any that is true.
	places []sourcePlace
	// isExpression says that there is none: see ClassKind.evaluate.
	isExpression bool
}

type sourcePlace struct {
	annotation string // empty for a field
	path       fields.Path
	field      *field.Path // the same, as errors show it
}

// cordonedSource is where a class is marked as cordoned.
var cordonedSource = newSource(v1beta1.Source{Annotation: v1beta1.CordonedAnnotation})

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

// Target is what a reference can say of the class.
func (c *Class) Target() claim.Target {
	return claim.Target{GroupVersionKind: c.Kind.GroupVersionKind, Namespace: c.Namespace, Name: c.Name}
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
