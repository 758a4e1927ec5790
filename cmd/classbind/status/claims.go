package status

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/rules"
	"github.com/classbind/classbind/selector/truncate"
)

func checkClaims(ctx context.Context, i *installation, s *Section) {
	namespaces, err := i.namespaces(ctx)
	if err != nil {
		s.unread("the labels of namespaces", err)
	}
	classes := i.readClasses(ctx, s)
	all, unbound := 0, 0
	var failed []string
	for _, k := range i.claimKinds {
		found, err := i.reader.Resolve(ctx, k.Resource(), k.ReadVersion(), "create")
		if registry.NotInstalledOrUnsuitable(err) {
			continue // A condition says so.
		}
		serving := rules.Serving(&k, i.classKinds)
		c := &claims{kind: &k, compiled: selector.NewClaimKind(&k, serving...), complete: true, namespaces: namespaces}
		for _, ck := range serving {
			if known := classes[ck.Name]; known != nil {
				c.classes = append(c.classes, known)
			} else {
				c.complete = false
			}
		}
		if err == nil {
			c.selected, err = claim.NewNamespaces(k.Spec.Claims.NamespaceSelector, i.own)
		}
		if err == nil {
			err = i.each(ctx, found.GroupVersionKind, c.add)
		}
		if err != nil {
			s.unread("the claims of "+k.Name, err)
			failed = append(failed, k.Name)
		}
		all, unbound = all+c.all, unbound+len(c.unbound)
		c.report(s)
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

// readClasses returns the classes by the name of the class kind, also those that the server leaves out.
func (i *installation) readClasses(ctx context.Context, s *Section) map[string]*inventory.Classes {
	all := map[string]*inventory.Classes{}
	for _, k := range i.classKinds {
		found, err := i.reader.Resolve(ctx, k.Name, "", "list", "watch")
		if err == nil {
			kind := inventory.NewClassKind(&k, found.GroupVersionKind, found.Namespaced, rules.Served(&k, i.claimKinds)...)
			all[k.Name], err = i.reader.Classes(ctx, kind)
		}
		if err != nil {
			delete(all, k.Name)
			if !registry.NotInstalledOrUnsuitable(err) { // Else a condition says so.
				s.unread("the classes of "+k.Name, err)
			}
		}
	}
	return all
}

// namespaces returns the labels of all, nil if no registration selects by them.
func (i *installation) namespaces(ctx context.Context) (map[string]labels.Set, error) {
	selects := func(k v1beta1.ClaimKind) bool {
		return len(k.Spec.Claims.NamespaceSelector.MatchLabels)+len(k.Spec.Claims.NamespaceSelector.MatchExpressions) > 0
	}
	if !slices.ContainsFunc(i.claimKinds, selects) {
		return nil, nil
	}
	list := &corev1.NamespaceList{}
	if err := i.api.List(ctx, list); err != nil {
		return nil, err
	}
	all := map[string]labels.Set{}
	for _, n := range list.Items {
		all[n.Name] = labels.Merge(n.Labels, nil) // Never nil.
	}
	return all, nil
}

// claims of a kind, as far as something is wrong with them.
type claims struct {
	kind     *v1beta1.ClaimKind
	compiled *selector.ClaimKind
	// classes of the claim kind, and complete says that all of them are known.
	classes  []*inventory.Classes
	complete bool
	selected *claim.Namespaces
	// namespaces are the labels of those that are known.
	namespaces map[string]labels.Set

	all int
	// unbound claims are stored without a class, and excluded ones in namespaces whose claims are not bound. gone have a class that is.
	unbound, excluded, gone []string
}

func (c *claims) add(object *unstructured.Unstructured) {
	c.all++
	if object.GetDeletionTimestamp() != nil {
		return
	}
	namespace, name := object.GetNamespace(), object.GetName()
	claim := klog.KObj(object).String()
	if _, class := c.compiled.ClassOf(c.classes, namespace, object.Object); class != "" && c.complete {
		c.gone = append(c.gone, fmt.Sprintf("%s (%q)", claim, truncate.String(class, v1beta1.MaxShownBytes)))
	}
	in := c.compiled.Read(namespace, name, object.Object)
	asks, excluded := c.compiled.Asks(in.Claim) != nil, c.excludes(namespace)
	switch {
	case in.LeftAlone != "", len(in.Problems) > 0, c.compiled.NamesClass(object.Object):
	case !asks && (excluded || c.kind.Spec.Selector.WhenAbsent == v1beta1.NoSelectorDefaultIfAny): // It needs none.
	case !excluded:
		c.unbound = append(c.unbound, claim)
	case !c.compiled.AsksOthers():
		c.excluded = append(c.excluded, claim)
	}
}

// excludes says that the claims of a namespace are not bound.
func (c *claims) excludes(namespace string) bool {
	if selected, known := c.selected.Known(namespace); known {
		return !selected
	}
	has, known := c.namespaces[namespace]
	return known && !c.selected.Select(namespace, has)
}

func (c *claims) report(s *Section) {
	where := "claimkind/" + c.kind.Name
	if len(c.gone) > 0 {
		s.found(where, "create the class again, or delete the claims and create them again, to get another",
			"%s a class that is gone: %s", have(c.gone), selector.List(c.gone))
	}
	if len(c.excluded) > 0 {
		s.found(where, "label the namespaces as spec.claims.namespaceSelector asks, or change that; "+
			"classbind never binds claims of kube-system and its own namespace",
			"%s no class, in namespaces that are excluded: %s", have(c.excluded), selector.List(c.excluded))
	}
	if n := len(c.unbound); n > 0 {
		if s.Unbound == nil {
			s.Unbound = map[string]int{}
		}
		s.Unbound[c.kind.Name] = n
		do := "classbind bind " + c.kind.Name + " --all-namespaces --dry-run shows which they would get, and without --dry-run they get it"
		if c.kind.Spec.WhenUnmatched == v1beta1.BindLater {
			do = "classbind binds each once a class matches"
		}
		if c.compiled.AsksOthers() {
			do += ", unless claims.when is false"
		}
		s.note("%s: %s no class: %s; %s", where, have(c.unbound), selector.List(c.unbound), do)
	}
}

// have is as in "3 claims have".
func have(claims []string) string {
	if len(claims) == 1 {
		return "1 claim has"
	}
	return fmt.Sprintf("%d claims have", len(claims))
}
