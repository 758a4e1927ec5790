package fields

// Plan says what is read of a value. Nothing else of it is kept, however long it is.
type Plan struct {
	// fields to read, by name.
	fields map[string]*Plan
	// as is the form in which the value itself is read.
	as As
	// MarksOthers has OtherFields mark that an object has fields that are not read.
	MarksOthers bool
	// maxBytes of its JSON; a longer value stays unread. So does what is below the depth in a
	// value that is read whole; 0 is MaxSelectorDepth.
	maxBytes int64
	depth    int

	// name of the value in its parent.
	name string
	// lengths of the names of its fields, a bit each; those from 63 on share one.
	lengths uint64
}

// As is the form in which a value is read. The greater of two reads more.
type As int8

// Unread stands for a value whose length alone is known.
type Unread struct{ Length int }

// LongText stands for a string that was not read because of its length.
type LongText struct{ Length int }

// OtherFields is the name under which a read object has those that were not read.
const OtherFields = ""

// EscapeFactor is how many bytes JSON takes at most for one byte of a text: \u0000.
const EscapeFactor = 6

// Add a field to what is read, at most so many bytes of it.
func (r *Plan) Add(p Path, as As, maxBytes int64) {
	if len(p) == 0 {
		r.as, r.maxBytes = max(r.as, as), max(r.maxBytes, maxBytes)
		return
	}
	if r.fields == nil {
		r.fields = map[string]*Plan{}
	}
	if r.fields[p[0]] == nil {
		r.fields[p[0]] = &Plan{name: p[0]}
		r.lengths |= lengthOf(len(p[0]))
	}
	r.fields[p[0]].Add(p[1:], as, maxBytes)
}

// At is the plan for a field, which was added.
func (r *Plan) At(p Path) *Plan {
	for _, name := range p {
		r = r.fields[name]
	}
	return r
}

// AddForExpressions adds a field that expressions look at.
func (r *Plan) AddForExpressions(p Path, maxBytes int64, depth int) {
	r.Add(p, AsWhole, maxBytes)
	for n := range p[1:] {
		r.Add(p[:n+1], AsScalar, maxBytes) // If it is no object.
	}
	r.At(p).depth = depth
}
