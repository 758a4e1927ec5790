package world

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
)

// Change is what differs in a World from what is there.
type Change struct {
	Manifests // Manifests are added, or take the place of objects of the same name.
	// Remove names what is not there, each KIND/NAME or KIND/NAMESPACE/NAME. KIND is claimkind, classkind, or a kind of classes.
	Remove []string
}

// After is the World as it would be after a change.
func (w *World) After(ctx context.Context, change Change) (*World, error) {
	next := NewWorld(w.Own)
	next.in(w.objectNamespace)
	next.Cluster, next.Memory, next.read, next.files = w.Cluster, w.Memory, w.read, w.files
	objects := change.Manifests
	if w.Cluster == nil {
		objects = w.files.under(objects, w.objectNamespace)
	}
	if err := next.addAll(ctx, objects); err != nil {
		return nil, err
	}
	for _, text := range change.Remove {
		parts := strings.Split(text, "/")
		if len(parts) == 2 {
			parts = slices.Insert(parts, 1, w.objectNamespace)
		}
		if len(parts) != 3 || slices.Contains(parts, "") {
			return nil, fmt.Errorf("--remove=%q: must be KIND/NAME or KIND/NAMESPACE/NAME", text)
		}
		next.removals = append(next.removals, &removal{text: text, kind: parts[0], namespace: parts[1], name: parts[2]})
	}
	if w.Cluster != nil {
		next.ClaimKinds = onTop(w.ClaimKinds, next.ClaimKinds, func(old *v1beta1.ClaimKind, k v1beta1.ClaimKind) { old.Spec = k.Spec })
		next.ClassKinds = onTop(w.ClassKinds, next.ClassKinds, func(old *v1beta1.ClassKind, k v1beta1.ClassKind) { old.Spec = k.Spec })
	}
	next.ClaimKinds = slices.DeleteFunc(next.ClaimKinds, func(k v1beta1.ClaimKind) bool { return next.removes("claimkind", k.Name) })
	next.ClassKinds = slices.DeleteFunc(next.ClassKinds, func(k v1beta1.ClassKind) bool { return next.removes("classkind", k.Name) })
	return next, nil
}

// under a change are the manifests that it does not replace, and then its own. namespace is that of objects that name none.
func (m Manifests) under(change Manifests, namespace string) Manifests {
	idOf := func(d Document) string {
		return ID(d.GroupVersionKind().GroupKind(), cmp.Or(d.GetNamespace(), namespace), d.GetName())
	}
	replaced := sets.New[string]()
	for _, d := range change {
		replaced.Insert(idOf(d))
	}
	kept := slices.DeleteFunc(slices.Clone(m), func(d Document) bool { return replaced.Has(idOf(d)) })
	return append(kept, change...)
}

// removal of an object. done reports whether there was one.
type removal struct {
	text, kind, namespace, name string
	done                        bool
}

// removes reports whether a registration of a kind is removed.
func (s *source) removes(kind, name string) bool {
	return slices.ContainsFunc(s.removals, func(rm *removal) bool {
		is := strings.EqualFold(strings.TrimSuffix(rm.kind, "s"), kind) && rm.name == name
		rm.done = rm.done || is
		return is
	})
}

// remove the classes of a kind that are removed.
func (s *source) remove(from *inventory.Classes, of Resource) *inventory.Classes {
	for _, rm := range s.removals {
		if rm.kind != from.Kind.Name && !of.Means(rm.kind, from.Kind.Name) {
			continue
		}
		namespace := ""
		if from.Kind.Namespaced {
			namespace = rm.namespace
		}
		if from.Find(namespace, rm.name) != nil {
			from, rm.done = from.Without(namespace, rm.name), true
		}
	}
	return from
}

// Check that a change has an effect: else its simulation would find no difference, whatever was meant. It returns the objects that matter
// to no claim, and an error if none matters, or if what is to be removed is not there.
func (w *World) Check(ctx context.Context, change Change) (unused []string, err error) {
	matters := sets.New(KindOf("ClaimKind"), KindOf("ClassKind"), crdKind, namespaces.GroupKind())
	resources := sets.New(Names(w.ClassKinds)...)
	for i := range w.ClassKinds {
		if len(w.removals) > 0 {
			if _, err := (&Kind{world: w}).Offered(ctx, &w.ClassKinds[i]); err != nil {
				return nil, err
			}
		}
	}
	for i := range w.ClaimKinds {
		for _, related := range w.ClaimKinds[i].Spec.Classes.Related {
			resources.Insert(related.Resource)
		}
	}
	for i := range w.ClassKinds {
		for _, related := range w.ClassKinds[i].Spec.Related {
			resources.Insert(related.Resource)
		}
	}
	for name := range resources {
		of, err := w.Resolve(ctx, name, "")
		if err != nil && !NotServed(err) {
			return nil, fmt.Errorf("cannot find the kind of %q: %w", name, err)
		}
		matters.Insert(of.GroupKind())
	}
	for _, d := range change.Manifests {
		if !matters.Has(d.GroupVersionKind().GroupKind()) {
			unused = append(unused, fmt.Sprintf("%s/%s in %s", d.GetKind(), d.GetName(), d.Where))
		}
	}
	for _, rm := range w.removals {
		if !rm.done {
			return nil, fmt.Errorf("--remove=%q: there is no such registration, and no such class of a registered kind", rm.text)
		}
	}
	if len(unused) > 0 && len(unused) == len(change.Manifests) && len(change.Remove) == 0 {
		return nil, fmt.Errorf("the change has no registration, and no object of a registered kind, but %s", selector.List(unused))
	}
	return unused, nil
}
