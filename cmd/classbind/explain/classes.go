package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/cmd/classbind/connect"
	"github.com/classbind/classbind/cmd/classbind/exit"
	"github.com/classbind/classbind/cmd/classbind/output"
	"github.com/classbind/classbind/cmd/classbind/world"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/rules"
)

const (
	classesLong = `List the classes that a claim in a namespace may get, with their labels and odds.
Classes that it may not get come last, with the reason, such as cordoned or not allowed.
The command decides as classbind explain does, on a claim that selects any class. It
changes nothing.

CLAIMKIND is the name of a ClaimKind, or any name that kubectl takes for the kind of
the claims. Classes that the ClaimKind does not offer to the namespace are not
listed.

If the right of the creator to use a class counts (classes.use), that is your right, or
that of --requester with the groups of --requester-group and system:authenticated.
To ask about anyone but yourself, you need the right to create subjectaccessreviews.

Expressions that read the claim may exclude more classes. A note names them.

The exit status is 0 if a claim may get one of the classes, and 1 if it may get none.
It is 2 if the command fails.`

	classesExamples = `  # What may a claim of this namespace get?
  classbind classes PostgreSQLInstance --namespace acme-team

  # What may it get if another user creates it?
  classbind classes PostgreSQLInstance --namespace acme-team --requester jane --requester-group developers`
)

// NewClassesCommand returns the command classes.
func NewClassesCommand() *cobra.Command {
	o := &options{fresh: rand.Uint64}
	c := &cobra.Command{
		Use: "classes CLAIMKIND", Short: "List the classes that a claim may get, and why it may not get the others",
		Long: classesLong, Example: classesExamples,
	}
	c.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%q: name one kind of claims, as in: classbind classes CLAIMKIND", args)
		}
		if err := cmp.Or(connect.Kinds(args), o.output.Validate(), connect.Validate(c.Flags())); err != nil {
			return err
		}
		return o.runClasses(c.Context(), args[0], c.OutOrStdout(), c.ErrOrStderr())
	}
	o.as.add(c.Flags())
	o.output.Add(c)
	o.cluster.Add(c)
	o.cluster.AddNamespace(c, "`namespace` of the claim; without it the kubeconfig's")
	o.cluster.AddOwn(c, "`namespace` of classbind itself, whose claims are never bound")
	return c
}

func (o *options) runClasses(ctx context.Context, word string, out, progress io.Writer) error {
	if err := o.as.addTo(&o.settings); err != nil {
		return err
	}
	config, err := o.cluster.Config(progress, "")
	if err != nil {
		return err
	}
	w, kinds, err := world.Registered(ctx, config, o.cluster.Own, word)
	if err != nil {
		return err
	}
	w.Settings = o.settings
	ofClasses := leaveOutClaimOfClasses(w.ClassKinds)
	report := &ClassesReport{TypeMeta: metav1.TypeMeta{APIVersion: ClassesVersion, Kind: "Report"}}
	for _, k := range kinds {
		item, err := o.classesOf(ctx, w, k, cmp.Or(o.cluster.Namespace, o.cluster.OfContext), ofClasses)
		if err != nil {
			return fmt.Errorf("cannot list the classes for claims of %q: %w", k.Name, err)
		}
		report.Items = append(report.Items, item)
	}
	if err := o.output.Print(out, report, report.table); err != nil {
		return err
	}
	return report.exit()
}

// classesOf a claim kind: those that a claim which asks for any is offered. ofClasses are the fields that are left out of class kinds.
func (o *options) classesOf(
	ctx context.Context, w *world.World, k *v1beta1.ClaimKind, namespace string, ofClasses map[string][]string,
) (offer Offer, err error) {
	offer = Offer{ClaimKind: k.Name, Classes: []OfferedClass{}}
	if w.Resource(ctx, k).Namespaced {
		offer.Namespace = namespace
	}
	if offer.Message, err = w.Unselected(ctx, k, offer.Namespace); err != nil || offer.Message != "" {
		return offer, err
	}
	_, _ = w.Count(ctx, k) // By what each claim uses, which is left out next. A note says what is not known.
	scored, usesRequest := k.Spec.Choice.Score != "", rules.NewForClaims(k).UsesRequest()
	offer.Unjudged = leaveOutClaim(k, w.Settings.Request != nil)
	for _, ck := range rules.Serving(k, w.ClassKinds) {
		offer.Unjudged = append(offer.Unjudged, ofClasses[ck.Name]...)
	}
	v, err := w.Bindable(ctx, k)
	if fault := (*inventory.Fault)(nil); errors.As(err, &fault) && fault.Reason == v1beta1.ReasonConflict {
		offer.Message = fault.Text // Another ClaimKind binds these claims.
		return offer, nil
	}
	if err != nil {
		return offer, err
	}
	v.CountRoom(ctx)
	in := claim.Intake{
		Claim:   claim.Claim{Namespace: offer.Namespace, Selector: labels.Everything(), Object: map[string]any{}},
		Parents: v.View.Kind.Reader.Reference.MaxParents(),
	}
	if err := v.AddRequester(ctx, &in); err != nil {
		return offer, err
	}
	noted := Item{Notes: v.Notes}
	o.as.noteWithoutEffect(&noted, k, usesRequest)
	if len(offer.Unjudged) > 0 {
		noted.note("these expressions need a claim, and come on top: %s; classbind explain -f FILE judges them",
			strings.Join(offer.Unjudged, ", "))
	}
	e, err := w.Decider(o.fresh, noted.note).Explain(ctx, v.View, in)
	if err != nil {
		return offer, err
	}
	offer.Notes, offer.UsableBy, offer.explanation = noted.Notes, e.UsableBy, e
	offer.Strategy, offer.OddsDependOn = v.View.Kind.Strategy.Name, v.View.Kind.Strategy.Depends
	if scored && k.Spec.Choice.Score == "" {
		offer.Strategy, offer.OddsDependOn = "", "the score of each class, which may depend on the claim"
	}
	for _, c := range e.Candidates {
		if offer.OddsDependOn != "" {
			c.Odds = selector.Odds{}
		}
		offer.add(c.Class, c.Odds, nil)
	}
	for _, d := range e.Dropped {
		d.ClassName = selector.ClassName{}
		offer.add(d.Class, selector.Odds{}, &d)
	}
	return offer, nil
}

// leaveOutClaim takes out of a claim kind the expressions that need a claim, or know who creates it if that is unknown. It returns the
// fields of those that come on top; the score matters to the odds alone. A registration at fault stays as it is.
func leaveOutClaim(k *v1beta1.ClaimKind, knowsRequest bool) (fields []string) {
	compiled := rules.NewForClaims(k)
	if len(compiled.Invalid) > 0 {
		return nil
	}
	knowsRequest = knowsRequest || k.Spec.Classes.Use != nil && k.Spec.Classes.Use.Subject == v1beta1.UseByRequester
	needsClaim := func(e *expression.Expression) bool {
		return e.Uses(expression.Claim) || e.Uses(expression.Related) || e.Uses(expression.Request) && !knowsRequest
	}
	s := &k.Spec
	if s.Claims.When != "" {
		fields = append(fields, "claims.when")
	}
	if s.Classes.Usage = slices.Clone(s.Classes.Usage); len(s.Classes.Usage) > 0 {
		fields = append(fields, "classes.usage")
	}
	for i := range s.Classes.Usage {
		s.Classes.Usage[i].Expression = "1" // A class that holds no more is full for every claim that uses any.
	}
	s.Claims.When, s.Selector.Expression, s.Classes.Partition, s.Classes.Related = "", "", nil, nil
	s.Choice.Seed = v1beta1.Seed{} // It chooses among classes, and drops none.
	fits, unjudged := judgeable(s.Classes.Fits, compiled.Fits, needsClaim, "classes.fits[%s]")
	s.Classes.Fits, fields = fits, append(fields, unjudged...)
	if compiled.Score != nil { // Another strategy that offers no class of weight 0.
		s.Choice.Score, s.Choice.Strategy = "", v1beta1.WeightedRandom
	}
	return fields
}

// leaveOutClaimOfClasses does the same with all class kinds, and returns the fields of each.
func leaveOutClaimOfClasses(kinds []v1beta1.ClassKind) map[string][]string {
	fields := map[string][]string{}
	for i := range kinds {
		k := &kinds[i]
		if of := rules.NewForClasses(k); len(of.Invalid) == 0 {
			needsClaim := func(e *expression.Expression) bool { return e.Uses(expression.Claim) }
			k.Spec.Fits, fields[k.Name] = judgeable(k.Spec.Fits, of.Fits, needsClaim, "fits[%s] of "+k.Name)
		}
	}
	return fields
}

// judgeable are fits, compiled, that need no claim, and the fields of the others, which format makes of their names.
func judgeable(
	fits []v1beta1.Fit, of []*rules.Fit, needsClaim func(*expression.Expression) bool, format string,
) (left []v1beta1.Fit, fields []string) {
	for i, f := range of {
		terms := slices.Concat(f.OfClass, f.OfClaim, f.Rest)
		for _, e := range f.Equal {
			terms = append(terms, e.Term)
		}
		if slices.ContainsFunc(terms, needsClaim) {
			fields = append(fields, fmt.Sprintf(format, f.Name))
		} else {
			left = append(left, fits[i])
		}
	}
	return left, fields
}

// ClassesVersion is the version of what classes prints for programs. New fields keep it; any other change needs a new version.
const ClassesVersion = "classes.classbind.io/v1beta1"

// ClassesReport is what "classbind classes" prints with -o json or yaml.
type ClassesReport struct {
	metav1.TypeMeta `json:",inline"`
	Items           []Offer `json:"items"` // Items has one for each ClaimKind of the claims.
}

// Offer is what a claim of a namespace may get by one ClaimKind.
type Offer struct {
	ClaimKind string `json:"claimKind"`
	Namespace string `json:"namespace,omitempty"`
	// Message is why claims of the namespace get no class at all; empty if they may.
	Message string `json:"message,omitempty"`
	// UsableBy is whose right to use the classes counts, such as: namespace "team". It is empty where every claim may have every class.
	UsableBy string           `json:"usableBy,omitempty"`
	Strategy v1beta1.Strategy `json:"strategy,omitempty"`
	// OddsDependOn names what the draw depends on and is not known. The classes have no odds then.
	OddsDependOn string `json:"oddsDependOn,omitempty"`
	// Classes that a claim may get come first, the likeliest of them first. The others are sorted.
	Classes []OfferedClass `json:"classes"`
	// Unjudged are the fields of registrations whose expressions need a claim: what they say comes on top.
	Unjudged []string `json:"unjudged,omitempty"`
	Notes    []string `json:"notes,omitempty"` // Notes say why the server may decide otherwise.

	explanation selector.Explanation
}

// OfferedClass is a class that claims are offered.
type OfferedClass struct {
	selector.ClassName `json:",inline"`
	// Labels are absent of a class that is over the limit of labels.
	Labels  map[string]string `json:"labels,omitempty"`
	Default bool              `json:"default,omitempty"` // Default reports whether the class is marked default.
	Weight  int64             `json:"weight"`            // Weight from 0 to 1000000, even if the strategy ignores it.
	// WeightError is why the weight of the class is malformed. Weight is what it counts as.
	WeightError string `json:"weightError,omitempty"`
	// Odds among the classes that a claim may get, zero if they depend on more than is known.
	Odds selector.Odds  `json:"odds,omitzero"`
	Drop *selector.Drop `json:"dropped,omitempty"` // Drop is why a claim may not get the class; absent if it may.
}

func (o *Offer) add(c *inventory.Class, odds selector.Odds, drop *selector.Drop) {
	offered := OfferedClass{
		ClassName: selector.NameOf(c), Labels: c.Labels.Set(), Default: c.Default, Weight: c.Weight, Odds: odds, Drop: drop,
	}
	if c.WeightErr != nil {
		offered.WeightError = c.WeightErr.Error()
	}
	o.Classes = append(o.Classes, offered)
}

func (r *ClassesReport) table() string { return tables(r.Items, (*Offer).write) }

func (o *Offer) write(out *strings.Builder) {
	t := itemTable{&Item{Explanation: o.explanation}, out}
	where := o.ClaimKind
	if o.Namespace != "" {
		where += " in " + o.Namespace
	}
	fmt.Fprintf(out, "%s: a claim may get %d of %s\n", where, len(t.Item.Explanation.Candidates), output.Count(len(o.Classes), "class"))
	t.line("Because", o.Message)
	if o.UsableBy != "" {
		t.line("Asked", "which classes "+o.UsableBy+" may use")
	}
	for _, note := range o.Notes {
		t.line("Note", note)
	}
	header := []string{"  CLASS", "LABELS", "WEIGHT", "ODDS"}
	if len(t.Item.Explanation.Dropped) > 0 {
		header = append(header, "WHY NOT")
	}
	rows := [][]string{header}
	for _, c := range o.Classes {
		name := c.String()
		if c.Default {
			name += " (default)"
		}
		row := []string{"  " + name, cmp.Or(labels.Set(c.Labels).String(), "<none>"), weightText(c.Weight, c.WeightError)}
		if c.Drop == nil {
			row = append(row, Percentage(c.Odds), "")
		} else {
			row = append(row, "", oneLine(c.Drop.Text))
		}
		rows = append(rows, row)
	}
	output.Section(out, rows, len(rows))
	t.oddsDependOn(o.OddsDependOn)
}

// exit returns an error unless a claim may get a class by one of its ClaimKinds.
func (r *ClassesReport) exit() error {
	if slices.ContainsFunc(r.Items, func(o Offer) bool { return len(o.explanation.Candidates) > 0 }) {
		return nil
	}
	return exit.Finding(errors.New("a claim may get none of the classes"))
}
