package explain

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/cmd/classbind/exit"
	"github.com/classbind/classbind/cmd/classbind/world"
	"github.com/classbind/classbind/selector"
)

// Version is the version of reports. New fields keep it; any other change needs a new version.
const Version = "explain.classbind.io/v1beta1"

// Report is what "classbind explain" prints with -o json or yaml.
type Report struct {
	metav1.TypeMeta `json:",inline"`
	Items           []Item `json:"items"` // Items are in the order of the claims.
}

// Outcome is what happens to a claim.
type Outcome string

// The outcomes.
const (
	Bound     Outcome = "Bound"     // Bound claims get a class.
	Unbound   Outcome = "Unbound"   // Unbound claims are stored without a class. Created now, they would get one.
	Unmatched Outcome = "Unmatched" // Unmatched claims get no class, because none matches.
	LeftAlone Outcome = "LeftAlone" // LeftAlone claims are not for classbind to bind.
	Malformed Outcome = "Malformed" // Malformed claims are refused by classbind, or would not be stored as they are.
	Undecided Outcome = "Undecided" // Undecided claims have a faulty registration: their failurePolicy decides.
)

// Item explains one claim, by one of its ClaimKinds.
type Item struct {
	Claim   Claim   `json:"claim"`
	Outcome Outcome `json:"outcome"`
	Reason  string  `json:"reason"`       // Reason is the outcome's reason in one word.
	Message string  `json:"message"`      // Message is the reason for people.
	Do      string  `json:"do,omitempty"` // Do is the command that binds an Unbound claim.
	// Class of a claim that is Bound, or Unbound; absent if it depends on more than explain knows.
	Class *selector.ClassName `json:"class,omitempty"`
	// Has is the class that the claim has already, absent if that is not known.
	Has *selector.ClassName `json:"has,omitempty"`
	// Today is the class that a claim of the cluster, which Has one, would get if it was created now; absent if it would get none, if its
	// author named its class, or if it depends on more than explain knows. The Message is then why, and the Explanation that of today.
	Today     *selector.ClassName `json:"today,omitempty"`
	Reference any                 `json:"reference,omitempty"` // Reference is the class reference as it would be written into the claim.
	// Warning is what the author of the claim gets at admission besides the message.
	Warning string `json:"warning,omitempty"`

	// Selector of the claim, in kubectl's syntax; absent if it has none.
	Selector      *string               `json:"selector,omitempty"`
	Strategy      v1beta1.Strategy      `json:"strategy,omitempty"`
	Seed          v1beta1.SeedSource    `json:"seed,omitempty"`
	WhenUnmatched v1beta1.WhenUnmatched `json:"whenUnmatched,omitempty"`
	// OddsDependOn names what the draw depends on and explain does not know. The candidates have no odds then.
	OddsDependOn string `json:"oddsDependOn,omitempty"`

	// Explanation has what expressions say of the claim, and its classes.
	Explanation selector.Explanation `json:"explanation,omitzero"`

	Errors []world.FieldError `json:"errors,omitempty"` // Errors of a Malformed claim.
	// InvalidExpressions of its ClaimKind, and of ClassKinds that name that.
	InvalidExpressions []world.InvalidExpression `json:"invalidExpressions,omitempty"`
	Notes              []string                  `json:"notes,omitempty"` // Notes say why the server may decide otherwise.

	again        bool // again reports whether the claim has a class, and the rest is what it would get today.
	hintsUnbound bool // hintsUnbound reports whether the table hints at --unbound.
	several      bool // several reports whether the claim has other ClaimKinds, too, each with its item.
}

func newItem(d world.Document) *Item {
	return &Item{Claim: Claim{
		APIVersion: d.GetAPIVersion(), Kind: d.GetKind(), Namespace: d.GetNamespace(), Name: d.GetName(), Source: d.Where,
	}}
}

// Claim names the explained claim.
type Claim struct {
	// ClaimKind that registers it; empty if none does.
	ClaimKind  string `json:"claimKind,omitempty"`
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name,omitempty"` // Name is empty if the API server generates it.
	Source     string `json:"source"`         // Source is the file, and the place in it, or the cluster.
}

func (i *Item) end(o Outcome, reason, message string) *Item {
	i.Outcome, i.Reason, i.Message = o, reason, message
	return i
}

// malformedClaim is the reason for which classbind itself refuses a claim.
const malformedClaim = "MalformedClaim"

func (i *Item) note(format string, args ...any) {
	i.Notes = append(i.Notes, fmt.Sprintf(format, args...))
}

// exit returns an error unless every claim is bound or left alone, by all of its ClaimKinds.
func (r *Report) exit() error {
	all, undecided, unmatched := sets.New[Claim](), sets.New[Claim](), sets.New[Claim]()
	for _, i := range r.Items {
		claim := i.Claim
		claim.ClaimKind = ""
		switch all.Insert(claim); i.Outcome {
		case Malformed, Undecided:
			undecided.Insert(claim)
		case Unmatched, Unbound:
			unmatched.Insert(claim)
		case Bound, LeftAlone:
		}
	}
	switch {
	case len(all) == 1 && len(undecided) > 0:
		return errors.New("the claim is malformed or undecided")
	case len(undecided) > 0:
		return fmt.Errorf("%d of %d claims are malformed or undecided", len(undecided), len(all))
	case len(all) == 1 && len(unmatched) > 0:
		return exit.Finding(errors.New("the claim gets no class"))
	case len(unmatched) > 0:
		return exit.Finding(fmt.Errorf("%d of %d claims get no class", len(unmatched), len(all)))
	}
	return nil
}
