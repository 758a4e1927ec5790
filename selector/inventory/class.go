// Package inventory has the classes of each kind, finds those that a claim asks for by their labels
// and fields, and knows which of them claims of one kind are offered. It chooses none.
package inventory

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"maps"
	"math"
	"math/bits"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"unique"

	"github.com/cespare/xxhash/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/truncate"
)

const (
	maxWeight     = 1_000_000
	defaultWeight = 1
)

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
	// TooManyLabels reports whether the labels are not held, and no claim gets the class.
	TooManyLabels bool
	// NotOffered reports whether offerWhen is not true of the class.
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
	// naming is nil if the kind has no related objects: most have none.
	naming *naming
	// OfferErr is why offerWhen has no result for the class, nil if it has one.
	OfferErr *field.Error

	// Capacity has that of each quantity of the kind, in its order.
	Capacity []Capacity

	// stored is a hash of the uid and the resourceVersion with which the class was last seen.
	stored *atomic.Uint64

	// groupless is the place by which a reference that names the Kind alone finds the class,
	// and kindless that for one that names neither group nor Kind.
	groupless, kindless uint64
}

var cordonedSource = newSource(v1beta1.Source{Annotation: v1beta1.CordonedAnnotation})

// markSources is where the classes of all kinds are marked. A new mark is a new element.
var markSources = []source{cordonedSource}

// NewClass reads a class of this kind. The content is the whole object; a kind that is MetadataOnly does not need it.
func (k *ClassKind) NewClass(meta metav1.Object, content map[string]any) *Class {
	return k.newClass(meta, content, content)
}

// newClass is the same where expressions see other parts of the object.
func (k *ClassKind) newClass(meta metav1.Object, content, seen map[string]any) *Class {
	annotations := meta.GetAnnotations()
	c := &Class{
		Kind:        k,
		stored:      &atomic.Uint64{},
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

// Hash of texts joined by slashes, for the draw. Authors can make up many names with the same hash, so maps use claim.PlaceOf instead.
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
		slices.Equal(c.Labels, o.Labels) && c.Fields.Same(o.Fields) && slices.EqualFunc(c.Capacity, o.Capacity, equalCapacity) &&
		slices.Equal(c.named(), o.named())
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

// Target is what a reference can say of the class.
func (c *Class) Target() claim.Target {
	return claim.Target{GroupVersionKind: c.Kind.GroupVersionKind, Namespace: c.Namespace, Name: c.Name}
}

// Labels of a class, sorted by their keys. A label that many classes have is held once, because labels are most of what is held of a class.
type Labels []keyed

// hashOf a text, which its author cannot foresee. Otherwise, authors could give all keys the same.
func hashOf(text string) uint64 { return maphash.String(claim.Seed, text) }

// labelHash is that of a label whose key has this hash.
func labelHash(key uint64, value string) uint64 { return bits.RotateLeft64(key, 1) ^ hashOf(value) }

// keyed is a label with its hash and that of its key: authors may give many classes many labels, and to follow a pointer for each would
// take most of the time of a claim.
type keyed struct {
	key, hash uint64
	label     unique.Handle[label]
}

// label of a class, with its value as a number.
type label struct {
	key    unique.Handle[string]
	value  string
	number int64
}

// noNumber stands for a value that is not a number. No label value begins with a minus.
const noNumber = math.MinInt64

func newKeyed(key, value string) keyed {
	of := hashOf(key)
	return keyed{of, labelHash(of, value), unique.Make(label{unique.Make(key), value, numberOf(value)})}
}

func numberOf(value string) int64 {
	number, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return noNumber
	}
	return number
}

// Set has the labels by their keys.
func (l Labels) Set() map[string]string {
	set := make(map[string]string, len(l))
	for _, k := range l {
		set[k.label.Value().key.Value()] = k.label.Value().value
	}
	return set
}

// NewLabels of a class.
func NewLabels(set map[string]string) Labels {
	if len(set) == 0 {
		return nil
	}
	l := make(Labels, 0, len(set))
	for _, key := range slices.Sorted(maps.Keys(set)) {
		l = append(l, newKeyed(key, set[key]))
	}
	return l
}

// labelsFit reports whether labels are within the limits of a class.
func labelsFit(set map[string]string) bool {
	if len(set) > v1beta1.MaxClassLabels {
		return false
	}
	size := 0
	for key, value := range set {
		size += len(key) + len(value)
	}
	return size <= v1beta1.MaxClassLabelBytes
}

// Lookup the value of a key.
func (l Labels) Lookup(key string) (value string, exists bool) {
	hash := hashOf(key)
	for i := range l {
		if l[i].key == hash {
			return l[i].label.Value().value, true
		}
	}
	return "", false
}

// Has reports whether there is a label of that key.
func (l Labels) Has(key string) bool {
	_, exists := l.Lookup(key)
	return exists
}

// Get the value of a key, empty if there is no such label.
func (l Labels) Get(key string) string {
	value, _ := l.Lookup(key)
	return value
}
