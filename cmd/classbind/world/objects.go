package world

import (
	"cmp"
	"context"
	"iter"
	"slices"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/truncate"
)

// ofFiles are the objects of a resource that files have in a namespace, or in all if it has no namespaces. The first of a name counts.
func (s *source) ofFiles(of Resource, namespace string) iter.Seq[Document] {
	return func(yield func(Document) bool) {
		for n, d := range slices.Concat(s.objects, s.Claims) {
			in := cmp.Or(d.GetNamespace(), s.objectNamespace)
			if n >= len(s.objects) {
				in = cmp.Or(d.GetNamespace(), s.ClaimNamespace)
			}
			if d.GroupVersionKind().GroupKind() == of.GroupKind() && (in == namespace || !of.Namespaced) && !yield(d) {
				return
			}
		}
	}
}

// isInCluster reports whether the cluster may have objects of a resource in a namespace. Authors of claims make names up.
func (s *source) isInCluster(of Resource, namespace string) bool {
	return s.Cluster != nil && !of.new && (!of.Namespaced || namespace != "") && len(content.IsPathSegmentName(namespace)) == 0
}

// object of a resource; nil where there is none, or nothing is known of it.
func (s *source) object(ctx context.Context, of Resource, namespace, name string) (map[string]any, error) {
	for d := range s.ofFiles(of, namespace) {
		if d.GetName() == name {
			return d.Object, nil
		}
	}
	if !s.isInCluster(of, namespace) || len(content.IsPathSegmentName(name)) > 0 {
		return nil, nil
	}
	key := objectName{of.GroupVersionKind, namespace, name}
	if content, ok := s.read[key]; ok {
		return content, nil
	}
	found := &unstructured.Unstructured{}
	found.SetGroupVersionKind(of.GroupVersionKind)
	err := s.Cluster.API.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, found)
	if err != nil {
		found.Object = nil
	}
	if client.IgnoreNotFound(err) != nil {
		return nil, truncate.Error(err)
	}
	s.remember(key, found.Object)
	return found.Object, nil
}

// list returns the objects of a resource in a namespace, by name: those of files, and of the cluster those that a selector selects, at most
// one more than it may select.
func (s *source) list(ctx context.Context, of Resource, namespace string, selector labels.Selector) (map[string]any, error) {
	all := map[string]any{}
	for d := range s.ofFiles(of, namespace) {
		if _, isThere := all[d.GetName()]; !isThere {
			all[d.GetName()] = d.Object
		}
	}
	if !s.isInCluster(of, namespace) {
		return all, nil
	}
	key := objectName{of.GroupVersionKind, namespace, "?" + selector.String()} // No object has such a name.
	found, ok := s.read[key]
	if !ok {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(of.GroupVersion().WithKind(of.Kind + "List"))
		err := s.Cluster.API.List(ctx, list, client.InNamespace(namespace), client.Limit(v1beta1.MaxRelatedSelected+1),
			client.MatchingLabelsSelector{Selector: selector})
		if err != nil {
			return nil, truncate.Error(err)
		}
		found = map[string]any{}
		for i := range list.Items {
			found[list.Items[i].GetName()] = list.Items[i].Object
		}
		s.remember(key, found)
	}
	for name, object := range found {
		if _, isThere := all[name]; !isThere {
			all[name] = object
		}
	}
	return all, nil
}

// remember what was read of the cluster.
func (s *source) remember(key objectName, content map[string]any) {
	if len(s.read) >= maxRead {
		clear(s.read)
	}
	s.read[key] = content
}
