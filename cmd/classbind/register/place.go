package register

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/fields"
	"github.com/classbind/classbind/selector/openapi"
	"github.com/classbind/classbind/selector/truncate"
)

// Limits of the search: a schema is a vendor's, and may refer to itself.
const (
	maxFields = 30_000
	maxDepth  = 7
	maxOthers = 3
)

// Evidence that a field has the reference to a class.
const (
	byName = 50  // and up to 50 for the part of the Kind that the field has
	sure   = 100 // The field is called as the Kind is, or its schema names the Kind.
)

// search finds where claims have their reference to a class of some kinds.
type search struct {
	schema  *openapi.Schema
	of      kind
	classes []kind
}

// place of the reference: a field, a label or an annotation.
type place struct {
	v1beta1.Place
	path fields.Path
	form *claim.Form
	// parts are those of a reference that has no form with a name.
	parts []v1beta1.ReferencePart
	// isList reports whether the path is that of a list of references.
	isList bool
	// begun reports whether the reference has fields that only an author can give.
	begun bool
	// evidence is 0 where the user named it.
	evidence int
}

func fieldAt(at fields.Path) place {
	return place{Place: v1beta1.Place{Path: v1beta1.FieldPath("." + at.String())}, path: at}
}

func (p place) String() string { return shown(p.path) }

// schemaPath is the path of the reference in the schema: that of the elements of a list.
func (p *place) schemaPath() fields.Path {
	if p.isList {
		return p.path.Below(fields.Element)
	}
	return p.path
}

// shown is a path as users write it, with [] for the elements of a list.
func shown(at fields.Path) string {
	return strings.ReplaceAll("."+at.String(), "."+fields.Element, fields.Element)
}

// places where claims may have their reference, the most likely first. Each has a form that fits.
func (s search) places(named v1beta1.Place) ([]place, error) {
	if named != (v1beta1.Place{}) {
		p := place{Place: named, path: named.Names()}
		if !s.fit(&p) {
			c := selector.CheckPaths(p.claimKind(s.of), s.schema)
			why := strings.Join(append(c.Problems, c.Unknown), "; ")
			return nil, fmt.Errorf("--path=%q: no form of reference fits the schema of %s: %s", p, s.of.name, strings.Trim(why, "; "))
		}
		return []place{p}, s.beyond(&p)
	}
	var found []place
	var obstacles []obstacle
	listed := 0 // listed is the best evidence for a reference in a list.
	for at := range walk(s.schema) {
		p, o := fieldAt(at), s.obstacleAt(at)
		p.evidence, _ = s.evidence(at)
		switch {
		case p.evidence == 0:
		case slices.Index(at, fields.Element) == len(at)-1 && s.fitList(&p):
			found = append(found, p)
		case slices.Contains(at, fields.Element):
			listed = max(listed, p.evidence)
			o = obstacle{why: "is a list, and a claim gets one reference"}
			if list := at[:len(at)-1]; at[len(list)] != fields.Element {
				o.why = "is in a list, and a claim gets one reference"
			} else {
				at = list
			}
		case !s.fit(&p):
			o = obstacle{why: fmt.Sprintf("has no form that fits: classbind register --path %s says why", p)}
		default:
			found = append(found, p)
		}
		if o.why != "" {
			o.path = at
			obstacles = append(obstacles, o)
		}
	}
	slices.SortStableFunc(found, func(a, b place) int {
		return cmp.Or(cmp.Compare(b.evidence, a.evidence), cmp.Compare(len(a.path), len(b.path)))
	})
	if len(found) == 0 || listed > found[0].evidence {
		return nil, s.refusal(obstacles)
	}
	var tied []string
	for _, p := range found {
		if p.evidence == found[0].evidence && len(p.path) == len(found[0].path) && len(tied) <= maxOthers {
			tied = append(tied, p.String())
		}
	}
	if len(tied) > 1 {
		return nil, fmt.Errorf("%s may have its reference to %s in any of %s: name one with --path",
			s.of.name, s.kinds(), strings.Join(tied, ", "))
	}
	return found, s.beyond(&found[0])
}

// kinds of the classes, for an error.
func (s search) kinds() string {
	names := make([]string, len(s.classes))
	for i, class := range s.classes {
		names[i] = class.Kind
	}
	return truncate.String(strings.Join(names, ", "), v1beta1.MaxShownBytes)
}

// obstacle is why a field that looks like the reference is none. The rank orders them for users.
type obstacle struct {
	path fields.Path
	rank int
	why  string
}

// Ranks of obstacles: a field that no form can write, one that is called as the Kind, a selector of the spec, and a reference to others.
const (
	_ = iota
	isCalledAs
	isSelector
	isForOthers
)

func (s search) refusal(obstacles []obstacle) error {
	slices.SortStableFunc(obstacles, func(a, b obstacle) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(len(a.path), len(b.path)))
	})
	var why strings.Builder
	for i, o := range obstacles {
		if i == maxOthers || o.rank == isForOthers && obstacles[0].rank < isForOthers { // What is like a reference says enough.
			break
		}
		fmt.Fprintf(&why, "; %s %s", truncate.String(shown(o.path), v1beta1.MaxShownBytes), o.why)
	}
	return fmt.Errorf("no field of %s has a name or a schema that refers to %s%s: name the field with --path, "+
		"or name a label or an annotation with --label or --annotation", s.of.name, s.kinds(), why.String())
}

// obstacleAt a field that has no reference to the classes, but that users may take for one.
func (s search) obstacleAt(at fields.Path) obstacle {
	f, name := s.schema.At(at).Schema, lastName(at)
	before, selects := strings.CutSuffix(strings.ToLower(name), "selector")
	_, labels := f.Properties["matchLabels"]
	_, isFor := s.evidence(at)
	calledAs := func(stem string) bool {
		return slices.ContainsFunc(s.classes, func(k kind) bool { return evidenceOf(k.Kind, stem) > 0 })
	}
	switch ofSpec := len(at) == len(fields.Path{"spec", name}); {
	case selects && f.Type == "object" && calledAs(before):
		return obstacle{rank: isCalledAs, why: "is a selector, which names no class"}
	case selects && labels && before != "" && ofSpec:
		return obstacle{rank: isSelector, why: "is a selector, which names no class"}
	case isFor != "" && calledAs(stemOf(name)):
		return obstacle{rank: isCalledAs, why: "is for " + isFor}
	case isFor != "":
		return obstacle{rank: isForOthers, why: "is for " + isFor}
	}
	return obstacle{}
}

// fit finds the form of the reference. It reports whether there is one.
func (s search) fit(p *place) bool {
	if p.path.IsKey() { // No schema has it.
		p.form = &claim.Forms[slices.IndexFunc(claim.Forms, func(f claim.Form) bool { return f.Name == v1beta1.Name })]
		return true
	}
	for _, p.begun = range []bool{false, true} {
		if p.form = selector.FittingForm(p.claimKind(s.of), s.schema); p.form != nil {
			return true
		}
	}
	return false
}

// fitList finds the form of the elements of a list.
func (s search) fitList(p *place) bool {
	list := fieldAt(p.path[:len(p.path)-1])
	list.isList, list.evidence = true, p.evidence
	fits := s.fit(&list) && !list.begun
	if fits {
		*p = list
	}
	return fits
}

// claimKind with its reference at the place, as far as forms need it.
func (p *place) claimKind(of kind) *selector.ClaimKind {
	k := &v1beta1.ClaimKind{}
	k.Name = of.name
	k.Spec.Reference = p.reference()
	if !p.begun {
		k.Spec.Reference.WhenEmpty = v1beta1.LeaveEmptyAlone
	}
	k.Spec.Classes.Namespaces.From = v1beta1.FromSameAsClaim
	k.Spec.Selector.Path = ".spec.classSelector"
	return selector.NewClaimKind(k)
}

// isField matches the names that a FieldPath may have.
var isField = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`)

// walk the fields of a claim that its author sets, level by level, through lists, too.
func walk(s *openapi.Schema) func(yield func(fields.Path) bool) {
	return func(yield func(fields.Path) bool) {
		queue := []fields.Path{nil}
		for n := 0; n < len(queue); n++ {
			at := queue[n]
			if len(at) > 0 && !yield(at) {
				return
			}
			f := s.At(at)
			if f.Err != nil || len(at) >= maxDepth {
				continue
			}
			names := slices.Sorted(maps.Keys(f.Schema.Properties))
			if f.Schema.Type == "array" && len(f.Schema.Items) > 0 {
				names = []string{fields.Element}
			}
			for _, name := range names {
				ofAll := len(at) == 0 && slices.Contains([]string{"apiVersion", "kind", "metadata", "status"}, name)
				if !ofAll && (name == fields.Element || isField.MatchString(name)) && len(queue) < maxFields {
					queue = append(queue, at.Below(name))
				}
			}
		}
	}
}

// evidence that a field refers to all of the classes, 0 for none. isFor has the other kinds to which it refers, empty if none is known.
func (s search) evidence(at fields.Path) (most int, isFor string) {
	f, name := s.schema.At(at), lastName(at)
	kindOf := openapi.FieldSchema{}
	switch {
	case f.Err != nil:
		return 0, ""
	case f.Schema.Type == "string" && len(f.Schema.Enum) == 0:
	case f.Schema.Properties["name"] != nil && s.schema.At(at.Below("name")).Is("string").Err == nil:
		kindOf = s.schema.At(at.Below("kind")).Schema
	default:
		return 0, ""
	}
	stem := stemOf(name)
	for _, class := range s.classes {
		evidence := evidenceOf(class.Kind, stem)
		named := slices.Contains(kindOf.Enum, any(class.Kind)) || string(kindOf.Default) == `"`+class.Kind+`"`
		other := builtInKinds()[stem]
		switch {
		case named:
			evidence = sure
		case len(kindOf.Enum) > 0: // It refers to other kinds alone.
			return 0, "other kinds, such as " + truncate.String(fmt.Sprint(kindOf.Enum[0]), v1beta1.MaxShownBytes)
		case other != "" && other != class.Kind:
			return 0, "a " + other
		}
		if evidence == 0 {
			return 0, ""
		}
		most = max(most, evidence)
	}
	return most, ""
}

// parent that the reference needs and authors may leave out: the outermost one, nil if there is none. alone reports whether it can be
// created with the reference alone: the schema requires nothing else in it, and it is not one of several from which an author chooses.
func (s search) parent(p place) (outermost fields.Path, alone bool) {
	alone = true
	for i := 2; i < len(p.path) && !p.path.IsKey(); i++ {
		at, above := p.path[:i], s.schema.At(p.path[:i-1]).Schema
		f := s.schema.At(at).Schema
		if s.schema.Requires(at) || f.Default != nil {
			continue
		}
		if outermost == nil {
			outermost = at
		}
		for _, name := range f.Required {
			alone = alone && (name == p.path[i] || !s.schema.Requires(at.Below(name)))
		}
		for _, r := range above.Rules {
			alone = alone && !strings.Contains(r.Rule, "has(self."+at[i-1]+")")
		}
		for name := range above.Properties {
			alone = alone && (name == at[i-1] || !alike(f, s.schema.At(at[:i-1].Below(name)).Schema))
		}
		alone = alone && len(above.OneOf) == 0
	}
	return outermost, alone
}

// alike reports whether an object has more than half of the fields of another, and at least three.
func alike(a, b openapi.FieldSchema) bool {
	const least = 3
	shared := 0
	for name := range a.Properties {
		if _, ok := b.Properties[name]; ok {
			shared++
		}
	}
	return shared >= least && 2*shared > len(a.Properties)
}

// instead are fields that authors set in the place of the reference, such as pipelineSpec beside pipelineRef.
func (s search) instead(p place) (paths []string) {
	name, parent := p.path[len(p.path)-1], p.path[:len(p.path)-1]
	if p.path.IsKey() {
		return nil
	}
	stem := stemOf(name)
	for _, sibling := range slices.Sorted(maps.Keys(s.schema.At(parent).Schema.Properties)) {
		at := parent.Below(sibling)
		word, f := strings.ToLower(sibling), s.schema.At(at).Schema
		inline := f.Type == "array" && len(singular(word)) > 3 && strings.HasSuffix(stem, singular(word))
		if sibling != name && (inline || (f.Type == "object" || f.Preserve) && word == stem+"spec") && len(paths) < v1beta1.MaxErrors {
			paths = append(paths, shown(at))
		}
	}
	return paths
}
