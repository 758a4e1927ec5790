package status

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/cmd/classbind/world"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/rules"
	"github.com/classbind/classbind/selector/truncate"
)

// maxExamples limits what is named of many.
const maxExamples = 5

func checkClaims(ctx context.Context, i *installation, s *Section) {
	namespaces, err := i.namespaces(ctx)
	if err != nil {
		s.unread("the labels of namespaces", err)
	}
	all, unbound := 0, 0
	var failed, bindable []string
	s.Failed = map[string]error{}
	for _, k := range i.ClaimKinds {
		found := i.Resource(ctx, &k)
		if world.NotServed(found.Unread) {
			continue // A condition says so.
		}
		c := &claims{kind: &k, compiled: selector.NewClaimKind(&k, rules.Serving(&k, i.ClassKinds)...), namespaces: namespaces}
		c.classes, c.complete = i.classesOf(ctx, &k)
		c.selected, err = claim.NewNamespaces(k.Spec.Claims.NamespaceSelector, i.Own)
		if err = cmp.Or(err, found.Unread); err == nil {
			err = i.Cluster.Objects.Pages(ctx, found.Of(k.Resource()), metav1.NamespaceAll, func(claim []byte) error {
				if i.visit != nil {
					i.visit(k.Name, claim)
				}
				return c.add(claim)
			}, ctx.Err)
		}
		if err != nil {
			s.unread("the claims of "+k.Name, err)
			failed, s.Failed[k.Name] = append(failed, k.Name), err
		}
		if !c.complete {
			s.Unread = append(s.Unread, Unread{
				What: "whether the classes of all claims of " + k.Name + " are there",
				Why:  "some kinds of them were not read: see the section kinds",
			})
		}
		all, unbound = all+c.all, unbound+c.unbound.all
		if c.report(s); c.unbound.all > 0 && k.Spec.WhenUnmatched != v1beta1.BindLater {
			bindable = append(bindable, k.Name)
		}
	}
	if len(bindable) > 0 {
		s.note("classbind bind %s --all-namespaces --dry-run shows which class claims without one would get, and without --dry-run "+
			"they get it%s", bindable[0], map[bool]string{true: "; so it is for each claim kind above"}[len(bindable) > 1])
	}
	s.Summary = fmt.Sprintf("%d read", all)
	if unbound > 0 {
		s.Summary += fmt.Sprintf(", %d without a class", unbound)
	}
	switch {
	case len(failed) > 0 && all == 0:
		s.Summary = notRead
	case len(failed) > 0:
		s.Summary += ", without those of " + selector.List(failed)
	}
}

// namespaces returns the labels of all, nil if no registration selects by them.
func (i *installation) namespaces(ctx context.Context) (map[string]labels.Set, error) {
	selects := func(k v1beta1.ClaimKind) bool {
		return len(k.Spec.Claims.NamespaceSelector.MatchLabels)+len(k.Spec.Claims.NamespaceSelector.MatchExpressions) > 0
	}
	if !slices.ContainsFunc(i.ClaimKinds, selects) {
		return nil, nil
	}
	all := map[string]labels.Set{}
	err := i.Cluster.Objects.Pages(ctx, corev1.SchemeGroupVersion.WithResource("namespaces"), metav1.NamespaceAll, func(raw []byte) error {
		n := &metav1.PartialObjectMetadata{}
		err := json.Unmarshal(raw, n)
		all[n.Name] = labels.Merge(n.Labels, nil) // Never nil.
		return err
	}, ctx.Err)
	return all, err
}

// claims of a kind, as far as something is wrong with them.
type claims struct {
	kind     *v1beta1.ClaimKind
	compiled *selector.ClaimKind
	// classes of the claim kind, and complete reports whether all of them are known.
	classes  []*inventory.Classes
	complete bool
	selected *claim.Namespaces
	// namespaces are the labels of those that are known.
	namespaces map[string]labels.Set

	all int
	// unbound claims are stored without a class. excluded ones are in namespaces whose claims are not bound; unasked ones ask
	// for no class besides.
	unbound, excluded, unasked, absent sample
}

type sample struct {
	all   int
	first []string
}

func (m *sample) add(claim string) {
	if m.all++; len(m.first) < maxExamples {
		m.first = append(m.first, claim)
	}
}

func (m *sample) String() string {
	text := strings.Join(m.first, ", ")
	if more := m.all - len(m.first); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func (c *claims) add(raw []byte) error {
	c.all++
	m := &metav1.PartialObjectMetadata{}
	if err := json.Unmarshal(raw, m); err != nil {
		return fmt.Errorf("cannot read the metadata of a claim: %w", err)
	}
	object, err := c.compiled.Reader.DecodeValid(raw)
	if err != nil || m.DeletionTimestamp != nil {
		return nil //nolint:nilerr // The API server refuses such a claim.
	}
	claim := klog.KObj(m).String()
	if _, class := c.compiled.Demand.ClassOf(c.classes, m.Namespace, object); class != "" && c.complete {
		c.absent.add(fmt.Sprintf("%s (%q)", claim, truncate.String(class, v1beta1.MaxShownBytes)))
	}
	in := c.compiled.Reader.Read(m.Namespace, m.Name, object)
	needsNone := c.kind.Spec.Selector.WhenAbsent == v1beta1.NoSelectorDefaultIfAny && c.compiled.Reader.Asks(in.Claim) == nil
	if in.LeftAlone != "" || len(in.Problems) > 0 || needsNone || c.compiled.Reader.Reference.NamesClass(object) {
		return nil
	}
	switch {
	case !c.excludes(m.Namespace):
		c.unbound.add(claim)
	case c.compiled.Reader.AsksOthers():
	case c.compiled.Reader.Asks(in.Claim) == nil:
		c.unasked.add(claim)
	default:
		c.excluded.add(claim)
	}
	return nil
}

// excludes reports whether the claims of a namespace are not bound.
func (c *claims) excludes(namespace string) bool {
	if selected, known := c.selected.Known(namespace); known {
		return !selected
	}
	has, known := c.namespaces[namespace]
	return known && !c.selected.Select(namespace, has)
}

func (c *claims) report(s *Section) {
	where := "claimkind/" + c.kind.Name
	if c.absent.all > 0 { // Authors write any name. It says nothing of the kind.
		s.note("%s: %s a class that is not there: %s; create the class, or delete the claims and create them again, to get another",
			where, have(c.absent.all), &c.absent)
	}
	if c.excluded.all > 0 {
		s.found(where, "label the namespaces as spec.claims.namespaceSelector asks, or change that; "+
			"classbind never binds claims of kube-system and its own namespace",
			"%s no class, in namespaces that are excluded: %s", have(c.excluded.all), &c.excluded)
	}
	if n := c.unbound.all; n > 0 {
		if s.Unbound == nil {
			s.Unbound = map[string]int{}
		}
		s.Unbound[c.kind.Name] = n
		do, unless := "", ""
		if c.kind.Spec.WhenUnmatched == v1beta1.BindLater {
			do = "; classbind binds each once a class matches"
		}
		if c.compiled.Reader.AsksOthers() {
			unless = ", unless claims.when is false of them"
		}
		s.note("%s: %s no class: %s%s%s", where, have(n), &c.unbound, do, unless)
	}
	if c.unasked.all > 0 {
		s.note("%s: %s no class and no selector, in namespaces that are excluded: %s", where, have(c.unasked.all), &c.unasked)
	}
}

// have is as in "3 claims have".
func have(claims int) string {
	if claims == 1 {
		return "1 claim has"
	}
	return fmt.Sprintf("%d claims have", claims)
}
