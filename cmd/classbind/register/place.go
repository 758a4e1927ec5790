package register

import (
	"cmp"
	"errors"
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
)

// Limits of the search: a schema is a vendor's, and may refer to itself.
const (
	maxFields = 30_000
	maxDepth  = 7
	maxOthers = 3
)

// Evidence that a field has the reference to a class.
const (
	byShape = 10
	byName  = 50  // and up to 50 for the part of the Kind that the field has
	sure    = 100 // The field is called as the Kind is, or its schema names the Kind.
)

type place struct {
	path fields.Path
	form *claim.Form
	// begun reports whether the reference has fields that only an author can give.
	begun bool
	// evidence is 0 where the user named it.
	evidence int
}

func (p place) String() string { return "." + p.path.String() }

// places where claims may have their reference, the most likely first. Each has a form that fits.
func (o *options) places(s *openapi.Schema, of kind, classes []kind) ([]place, error) {
	if o.path != "" {
		at := fields.Path(v1beta1.FieldPath(o.path).Names())
		p := place{path: at}
		if !p.fit(of, s) {
			c := selector.CheckPaths(p.claimKind(of), s)
			why := strings.Join(append(c.Problems, c.Unknown), "; ")
			return nil, fmt.Errorf("--path=%q: no form of reference fits the schema of %s: %s", o.path, of.name, strings.Trim(why, "; "))
		}
		return []place{p}, nil
	}
	var found []place
	unfit := ""
	for at := range walk(s) {
		p := place{path: at, evidence: evidence(at[len(at)-1], s.At(at).Schema, s, at, classes)}
		if p.evidence == 0 {
			continue
		}
		if !p.fit(of, s) {
			if p.evidence > byShape {
				unfit = fmt.Sprintf("; no form of reference fits .%s: classbind register --path .%[1]s says why", at)
			}
			continue
		}
		found = append(found, p)
	}
	if len(found) == 0 {
		return nil, errors.New("no field of " + of.name + " looks like a reference to " + classes[0].Kind +
			": name it with --path, or write the ClaimKind by hand if it is a label or an annotation" + unfit)
	}
	slices.SortStableFunc(found, func(a, b place) int {
		return cmp.Or(cmp.Compare(b.evidence, a.evidence), cmp.Compare(len(a.path), len(b.path)))
	})
	return found, nil
}

// fit finds the form of the reference. It reports whether there is one.
func (p *place) fit(of kind, s *openapi.Schema) bool {
	for _, p.begun = range []bool{false, true} {
		if p.form = selector.FittingForm(p.claimKind(of), s); p.form != nil {
			return true
		}
	}
	return false
}

// claimKind with its reference at the place, as far as forms need it.
func (p *place) claimKind(of kind) *selector.ClaimKind {
	k := &v1beta1.ClaimKind{}
	k.Name = of.name
	k.Spec.Reference.Path = v1beta1.FieldPath(p.String())
	if p.form != nil {
		k.Spec.Reference.Form = p.form.Name
	}
	if !p.begun {
		k.Spec.Reference.WhenEmpty = v1beta1.LeaveEmptyAlone
	}
	k.Spec.Classes.Namespaces.From = v1beta1.FromSameAsClaim
	k.Spec.Selector.Path = ".spec.classSelector"
	return selector.NewClaimKind(k)
}

// isField matches the names that a FieldPath may have.
var isField = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`)

// walk the fields of a claim that its author sets, level by level.
func walk(s *openapi.Schema) func(yield func(fields.Path) bool) {
	return func(yield func(fields.Path) bool) {
		queue := []fields.Path{nil}
		for n := 0; n < len(queue); n++ {
			at := queue[n]
			if len(at) > 0 && !yield(at) {
				return
			}
			if f := s.At(at); f.Err == nil && len(at) < maxDepth {
				for _, name := range slices.Sorted(maps.Keys(f.Schema.Properties)) {
					ofAll := len(at) == 0 && slices.Contains([]string{"apiVersion", "kind", "metadata", "status"}, name)
					if !ofAll && isField.MatchString(name) && len(queue) < maxFields {
						queue = append(queue, at.Below(name))
					}
				}
			}
		}
	}
}

// evidence that a field refers to one of the classes, 0 for none.
func evidence(name string, f openapi.FieldSchema, s *openapi.Schema, at fields.Path, classes []kind) (most int) {
	lower := strings.ToLower(name)
	switch {
	case f.Type == "string":
		if strings.HasSuffix(lower, "classname") {
			most = byShape
		}
	case s.At(at.Below("name")).Is("string").Err == nil:
		if strings.HasSuffix(lower, "ref") {
			most = byShape
		}
	default:
		return 0
	}
	stem := lower
	for _, suffix := range []string{"reference", "ref", "name", "id"} {
		if before, ok := strings.CutSuffix(lower, suffix); ok && len(before) > 3 { // A preference ends so, too.
			stem = before
			break
		}
	}
	kindOf := s.At(at.Below("kind"))
	for _, class := range classes {
		of := strings.ToLower(class.Kind)
		scoped := strings.TrimPrefix(of, "cluster") // A ClusterIssuer is an Issuer.
		switch {
		case of == stem, scoped == stem, kindOf.Err == nil && (slices.Contains(kindOf.Schema.Enum, any(class.Kind)) ||
			string(kindOf.Schema.Default) == `"`+class.Kind+`"`):
			most = sure
		case len(stem) > 3 && strings.HasSuffix(of, stem):
			most = max(most, byName+byName*len(stem)/len(of)-1)
		}
	}
	return most
}
