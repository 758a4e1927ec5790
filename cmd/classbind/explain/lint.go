package explain

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/cmd/classbind/world"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/near"
	"github.com/classbind/classbind/selector/rules"
)

const noName = "it has no metadata.name: give it one"

// linter of files.
type linter struct {
	*world.World
	findings []Finding
	// documents by their id without the namespace: of the same kind and name are several, in different namespaces.
	documents map[string][]*world.Document
	offers    sets.Set[string] // names of ClassKinds that a ClaimKind is served by
	served    sets.Set[string] // ids of classes that a claim can get
	unread    sets.Set[string] // names of class kinds whose ClassKind cannot be read
}

// lint finds what is wrong in files, without a cluster. It has no rules of its own for what the server checks.
func lint(ctx context.Context, all []world.Document) ([]Finding, error) {
	l := &linter{
		World: world.NewWorld(""), documents: map[string][]*world.Document{},
		offers: sets.New[string](), served: sets.New[string](), unread: sets.New[string](),
	}
	l.Twice = func(d *world.Document, err error) { l.find(ruleDuplicate, d, "", "%v", err) }
	for i := range all {
		d := &all[i]
		kind := d.GroupVersionKind().GroupKind()
		isOurs := kind.Group == v1beta1.GroupVersion.Group
		if d.GetName() == "" { // Such as a kustomization.
			if isOurs {
				l.find(ruleRefused, d, "metadata", noName)
			}
			continue
		}
		key := world.ID(kind, "", d.GetName())
		same := slices.IndexFunc(l.documents[key], func(o *world.Document) bool { return isOurs || o.GetNamespace() == d.GetNamespace() })
		if same >= 0 {
			l.find(ruleDuplicate, d, "", "it is there already, in %s: leave out one of the two", l.documents[key][same].Where)
			continue
		}
		l.documents[key] = append(l.documents[key], d)
		if _, err := l.Add(ctx, d); err != nil {
			if l.refused(d, err); kind == world.KindOf("ClassKind") {
				l.unread.Insert(d.GetName())
			}
		}
	}
	for i := range l.ClaimKinds {
		if err := l.claimKind(ctx, &l.ClaimKinds[i]); err != nil {
			return nil, err
		}
	}
	for i := range l.ClassKinds {
		if err := l.classKind(ctx, &l.ClassKinds[i]); err != nil {
			return nil, err
		}
	}
	for _, name := range sets.List(l.unread) {
		bare := &v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: name}}
		bare.Spec.Capacity = []v1beta1.Capacity{{Name: v1beta1.ClaimsQuantity}}
		if err := l.byThemselves(ctx, bare); err != nil {
			return nil, err
		}
	}
	l.marks(ctx, all)
	slices.SortFunc(l.findings, func(a, b Finding) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), strings.Compare(a.Rule, b.Rule),
			strings.Compare(a.Object, b.Object), strings.Compare(a.Message, b.Message))
	})
	return slices.Compact(l.findings), nil // Several ClaimKinds meet the same class.
}

// find that an object breaks a rule, at a field, if that is known.
func (l *linter) find(rule string, d *world.Document, field, format string, args ...any) {
	n := slices.IndexFunc(Rules, func(r Rule) bool { return r.Name == rule })
	l.findings = append(l.findings, Finding{
		Rule: rule, Severity: Rules[n].Severity, File: d.File, Line: lineOf(d, field),
		Object: d.GetKind() + "/" + d.GetName(), Message: fmt.Sprintf(format, args...),
	})
}

// refused finds each reason for which the API server refuses an object.
func (l *linter) refused(d *world.Document, err error) {
	of := &world.RefusedError{}
	if !errors.As(err, &of) {
		l.find(ruleRefused, d, "", "%v", err)
	}
	for _, e := range of.Errs {
		l.find(ruleRefused, d, e.Field, "%v", &world.RefusedError{Object: of.Object, Errs: []world.FieldError{e}})
	}
}

// lineOf a field, or as far on the way to it as the text names the parts.
func lineOf(d *world.Document, field string) int {
	at := 0
	for _, part := range strings.FieldsFunc(field, func(r rune) bool { return strings.ContainsRune(".[]", r) }) {
		next := bytes.Index(d.Text[at:], []byte(part))
		if next < 0 {
			break
		}
		at += next
	}
	return d.Line + bytes.Count(d.Text[:at], []byte("\n"))
}

// registration of files by its kind and name, nil if there is none.
func (l *linter) registration(kind, name string) *world.Document {
	if all := l.documents[world.ID(world.KindOf(kind), "", name)]; len(all) > 0 {
		return all[0] // There is one: it has no namespace.
	}
	return nil
}

// resolved reports whether the CRDs of the files have the resource of a registration. Without any CRD of its group, it may be installed.
func (l *linter) resolved(d *world.Document, name string, err error) bool {
	if err != nil {
		l.find(v1beta1.ReasonVersionNotServed, d, "spec.claims.version", "%v", err)
		return false
	}
	_, group, _ := strings.Cut(name, ".")
	var others []string
	for crd, c := range l.CRDs {
		if c.Group == group {
			others = append(others, crd)
		}
	}
	if _, defined := l.CRDs[name]; defined || len(others) == 0 {
		return true
	}
	l.find(v1beta1.ReasonNotInstalled, d, "",
		"the files have CRDs of the group %q, and none for %q%s", group, name, near.Meant(name, others))
	return false
}

func (l *linter) claimKind(ctx context.Context, k *v1beta1.ClaimKind) error {
	d := l.registration("ClaimKind", k.Name)
	ok := l.resolved(d, k.Resource(), l.Resource(ctx, k).Unread)
	for _, link := range k.Spec.Classes.Kinds {
		l.registered(d, "spec.classes.kinds", "ClassKind", link.Name)
	}
	if why := claim.StopsStart(k); why != "" {
		l.find(v1beta1.ReasonNeededToStart, d, "spec", "%s", why)
	}
	v, err := l.Kind(ctx, k)
	if err != nil {
		return err
	}
	if len(k.Spec.Classes.Kinds)+len(rules.Serving(k, l.ClassKinds)) == 0 {
		l.find(v1beta1.ReasonNoClassKind, d, "", "no ClassKind serves it: create a ClassKind for it")
	}
	if fault := selector.ConflictOf(k, l.ClaimKinds); fault != nil {
		l.find(ruleConflict, d, "", "%s", fault.Text)
	}
	l.invalid(v.Invalid)
	l.usages(k)
	l.ofOthers(k, v)
	if !ok { // The rest follows from that.
		return nil
	}
	if v.Paths != nil {
		l.find(v.Paths.Reason, d, "spec", "%s", v.Paths.Text)
	}
	for _, classes := range v.Serving {
		l.offers.Insert(classes.Kind.Name)
	}
	for _, classes := range v.View.Classes {
		classes.Each(func(c *inventory.Class) { l.served.Insert(c.Kind.Name + c.String()) })
	}
	return nil
}

// ofOthers finds what a claim kind shows of its class kinds and classes, whatever is wrong with itself.
func (l *linter) ofOthers(k *v1beta1.ClaimKind, v *world.Kind) {
	for _, leftOut := range v.View.LeftOut {
		l.find(v1beta1.ReasonAmbiguousReference, l.registration("ClassKind", leftOut.Name), "", "%s", v.View.FaultOf(leftOut.Name).Text)
	}
	for seat, of := range v.View.DefaultsBySeat() {
		if len(of) > 1 {
			l.find(v1beta1.ReasonSeveralDefaults, l.class(of[1]), "metadata",
				"a claim of %q%s without a selector gets one of %d classes; leave the mark on one of %s",
				k.Name, seat.In(), len(of), selector.ListFunc(of, (*inventory.Class).String))
		}
	}
}

func (l *linter) invalid(all []world.InvalidExpression) {
	for _, e := range all {
		kind, name, _ := strings.Cut(e.Registration, "/")
		d := l.registration(map[string]string{"claimkind": "ClaimKind", "classkind": "ClassKind"}[kind], name)
		l.find(v1beta1.ReasonInvalidExpression, d, e.Field, "%s: line %d, column %d: %s", e.Field, e.Line, e.Column, e.Message)
	}
}

// registered finds the name of a kind that no file registers.
func (l *linter) registered(d *world.Document, field, kind, name string) {
	if l.registration(kind, name) != nil {
		return
	}
	if kind == "ClassKind" {
		l.unread.Insert(name)
	}
	all := append(world.Names(l.ClaimKinds), world.Names(l.ClassKinds)...)
	l.find(v1beta1.ReasonNotRegistered, d, field, "%s: no file has the %s %q%s", field, kind, name, near.Meant(name, all))
}

// class of a file. Its namespace may not be written there, or be written where its kind has none.
func (l *linter) class(c *inventory.Class) *world.Document {
	all := l.documents[world.ID(c.Kind.GroupVersionKind.GroupKind(), "", c.Name)]
	for _, namespace := range []string{c.Namespace, ""} {
		if i := slices.IndexFunc(all, func(d *world.Document) bool { return d.GetNamespace() == namespace }); i >= 0 {
			return all[i]
		}
	}
	return all[0]
}

func (l *linter) classKind(ctx context.Context, k *v1beta1.ClassKind) error {
	d := l.registration("ClassKind", k.Name)
	for _, link := range k.Spec.ClaimKinds {
		l.registered(d, "spec.claimKinds", "ClaimKind", link.Name)
	}
	compiled := l.ClassKind(ctx, k)
	l.resolved(d, k.Name, compiled.Err)
	if len(k.Spec.ClaimKinds) == 0 && len(rules.Served(k, l.ClaimKinds)) == 0 {
		l.find(v1beta1.ReasonNoClaimKinds, d, "",
			"no claim is offered the classes: name a ClaimKind in spec.claimKinds, or this ClassKind in spec.classes.kinds of one")
	}
	l.invalid(world.InvalidOf("classkind/"+k.Name, rules.InvalidOfClasses(k)))
	l.capacities(k)
	if compiled.Err != nil || compiled.Fault != nil || k.IsIgnored() {
		return l.byThemselves(ctx, k)
	}
	return l.classes(compiled)
}

// byThemselves finds what is wrong with classes whose ClassKind is refused, at fault or not there: its findings hide none of theirs. Marks
// are read where the ClassKind says, without its expressions.
func (l *linter) byThemselves(ctx context.Context, k *v1beta1.ClassKind) error {
	plain := func(s v1beta1.Source, usual v1beta1.MetadataKey) v1beta1.Source {
		if s.Expression != "" || s == (v1beta1.Source{}) {
			return v1beta1.Source{Annotation: usual}
		}
		return s
	}
	bare := &v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: k.Name}}
	bare.Spec.Default, bare.Spec.Weight = plain(k.Spec.Default, v1beta1.DefaultAnnotation), plain(k.Spec.Weight, v1beta1.WeightAnnotation)
	for _, of := range k.Spec.Capacity {
		if of.PerNamespace = nil; of.Total.Expression != "" {
			of.Total = v1beta1.Source{}
		}
		bare.Spec.Capacity = append(bare.Spec.Capacity, of)
	}
	if compiled := l.Compile(ctx, bare); compiled.Err == nil && compiled.Fault == nil {
		return l.classes(compiled)
	}
	return nil
}

func (l *linter) classes(of *world.ClassKind) error {
	classes, err := of.Classes()
	if err != nil {
		return err
	}
	name := of.Name
	classes.Each(func(c *inventory.Class) {
		d := l.class(c)
		if c.WeightErr != nil {
			l.find(v1beta1.ReasonMalformedWeight, d, "metadata", "%v", c.WeightErr)
		}
		if c.MarkErr != nil {
			l.find(v1beta1.ReasonMalformedMark, d, "metadata", "%v", c.MarkErr)
		}
		if err := c.CapacityErr(); err != nil {
			l.find(v1beta1.ReasonMalformedCapacity, d, "metadata", "%v", err)
		}
		if c.TooManyLabels {
			l.find(v1beta1.ReasonTooManyLabels, d, "metadata", "it has too many labels")
		}
		if l.offers.Has(name) && !l.served.Has(name+c.String()) {
			l.find(ruleUnserved, d, "", "no claim can get it: it does not fit the claims of any ClaimKind")
		}
	})
	return nil
}
