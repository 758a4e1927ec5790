package claim

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/classbind/classbind/api/v1beta1"
)

// Namespaces selects the namespaces in which the claims of a kind are bound: those of its namespaceSelector, and never kube-system nor
// classbind's own, on which the life of the cluster and of classbind depends. A cluster-scoped claim is always selected.
type Namespaces struct {
	never  []string
	others labels.Selector
}

// LabelOperators are those that this release knows.
var LabelOperators = []metav1.LabelSelectorOperator{
	metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist,
}

// NewNamespaces reads a namespaceSelector; own is classbind's namespace. The schema admits none for which it fails.
func NewNamespaces(s v1beta1.LabelSelector, own string) (*Namespaces, error) {
	others, err := metav1.LabelSelectorAsSelector(labelSelector(s))
	if err != nil {
		return nil, fmt.Errorf("cannot read spec.claims.namespaceSelector: %w", err)
	}
	return &Namespaces{never: never(own), others: others}, nil
}

// NamespaceSelector is the same rule as a webhook configuration has it.
func NamespaceSelector(s v1beta1.LabelSelector, own string) *metav1.LabelSelector {
	by := labelSelector(s)
	by.MatchExpressions = slices.Insert(by.MatchExpressions, 0, metav1.LabelSelectorRequirement{
		Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: never(own),
	})
	return by
}

func never(own string) []string { return []string{metav1.NamespaceSystem, own} }

// labelSelector leaves out a requirement that this release does not know: it could make a webhook
// configuration invalid, which all kinds share. More claims are sent to us then, and we bind none of them.
func labelSelector(s v1beta1.LabelSelector) *metav1.LabelSelector {
	by := s.Meta()
	by.MatchExpressions = slices.DeleteFunc(by.MatchExpressions, func(r metav1.LabelSelectorRequirement) bool {
		return !slices.Contains(LabelOperators, r.Operator)
	})
	return by
}

// String is the namespaceSelector.
func (n *Namespaces) String() string { return n.others.String() }

// Known reports whether a namespace is selected, if its labels do not matter.
func (n *Namespaces) Known(name string) (selected, known bool) {
	if name == "" {
		return true, true
	}
	if slices.Contains(n.never, name) {
		return false, true
	}
	return n.others.Empty(), n.others.Empty()
}

// Select reports whether a namespace that has these labels is selected.
func (n *Namespaces) Select(name string, has labels.Set) bool {
	if selected, known := n.Known(name); known {
		return selected
	}
	return n.others.Matches(has)
}

// Reach says from which namespaces claims of a kind are offered classes. All claims are offered the classes without a namespace.
type Reach struct {
	From v1beta1.ClassNamespacesFrom
	// Names of the namespaces, with FromNames.
	Names []string
}

// SameAsClaim reports whether claims are offered only the classes of their own namespace.
func (r *Reach) SameAsClaim() bool {
	return r.From != v1beta1.FromAll && r.From != v1beta1.FromNames
}

// Offers reports whether the claims of a namespace are offered a class. Claims without a
// namespace are offered no class with one, unless the registration says so.
func (r *Reach) Offers(namespace, classNamespace string) bool {
	switch {
	case classNamespace == "" || r.From == v1beta1.FromAll:
		return true
	case r.From == v1beta1.FromNames:
		return slices.Contains(r.Names, classNamespace)
	}
	return classNamespace == namespace
}

// ClassNamespaces are the namespaces whose classes the claims of a namespace are
// offered, if the class kind is namespaced. If all is true, they are all namespaces.
func (r *Reach) ClassNamespaces(claimNamespace string) (names []string, all bool) {
	switch {
	case r.From == v1beta1.FromAll:
		return nil, true
	case r.From == v1beta1.FromNames:
		return r.Names, false
	case claimNamespace == "": // Every class is in a namespace, and the claim in none.
		return nil, false
	}
	return []string{claimNamespace}, false
}

// Strings are the same values.
func Strings[T ~string](values ...T) []string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = string(v)
	}
	return texts
}
