package selector

import (
	"slices"

	"github.com/classbind/classbind/api/v1alpha1"
)

// readPlan says what is read of a value. Nothing else of it is kept, however long it is.
type readPlan struct {
	// fields to read, by name.
	fields map[string]*readPlan
	// as is the form in which the value itself is read.
	as form
	// marksOthers has otherFields tell that an object has fields that are not read.
	marksOthers bool
	// maxBytes of its JSON; a longer value stays unread. So does what is below the depth in a
	// value that is read whole; 0 is maxSelectorDepth.
	maxBytes int64
	depth    int

	// name of the value in its parent, and index of the plan among all.
	name  string
	index int
	// lengths of the names of its fields, a bit each; those from 63 on share one.
	lengths uint64
	// size is the number of plans in it, with itself.
	size int
}

// form in which a value is read. The greater of two reads more.
type form int8

const (
	asParent form = iota // only fields of it
	asSet                // only whether it is null
	asScalar             // a text, a number or a boolean
	asWhole
)

// unread stands for a value of which only the length is known.
type unread struct{ length int64 }

// longText stands for a text that was not read because of its length.
type longText struct{ length int64 }

// otherFields is the name under which a read object has those that were not read.
const otherFields = ""

// escapeFactor is how many bytes JSON takes at most for one byte of a text: \u0000.
const escapeFactor = 6

// What is read of every claim, beside the paths of its kind.
var (
	deletionTimestamp = path{"metadata", "deletionTimestamp"}
	generateName      = path{"metadata", "generateName"}
)

func (r *readPlan) add(p path, as form, maxBytes int64) {
	if len(p) == 0 {
		r.as, r.maxBytes = max(r.as, as), max(r.maxBytes, maxBytes)
		return
	}
	if r.fields == nil {
		r.fields = map[string]*readPlan{}
	}
	if r.fields[p[0]] == nil {
		r.fields[p[0]] = &readPlan{}
	}
	r.fields[p[0]].add(p[1:], as, maxBytes)
}

// at is the plan for a field, which was added.
func (r *readPlan) at(p path) *readPlan {
	for _, name := range p {
		r = r.fields[name]
	}
	return r
}

// compiled numbers a plan and all below it, from this index on.
func (r *readPlan) compiled(index int) *readPlan {
	r.index = index
	r.size = 1
	for name, field := range r.fields {
		field.compiled(index + r.size).name = name
		r.size += field.size
		r.lengths |= lengthOf(len(name))
	}
	return r
}

func lengthOf(n int) uint64 { return 1 << min(n, 63) }

// newReadPlan for the claims of a kind.
func (k *ClaimKind) newReadPlan() *readPlan {
	r := &readPlan{}
	for _, p := range append(slices.Clone(k.settledBy), deletionTimestamp) {
		r.add(p, asSet, 0)
	}
	r.add(k.selector, asWhole, v1alpha1.MaxSelectorBytes)
	r.add(k.annotation, asScalar, escapeFactor*v1alpha1.MaxSelectorBytes+2)
	const maxNameBytes = escapeFactor*v1alpha1.MaxNameBytes + 2
	r.add(generateName, asScalar, maxNameBytes)
	r.add(k.classRef, asScalar, maxNameBytes) // The form Name.
	for _, f := range k.form.fields {
		r.add(append(slices.Clone(k.classRef), f), asScalar, maxNameBytes)
	}
	r.at(k.classRef).marksOthers = !k.emptyIsUnset
	for _, p := range k.looksAt.Paths() {
		r.look(path(p), v1alpha1.MaxExpressionValueBytes, maxExpressionDepth)
	}
	return r.compiled(0)
}

// look adds a field that expressions look at.
func (r *readPlan) look(p path, maxBytes int64, depth int) {
	r.add(p, asWhole, maxBytes)
	for n := range p[1:] {
		r.add(p[:n+1], asScalar, maxBytes) // If it is no object.
	}
	r.at(p).depth = depth
}
