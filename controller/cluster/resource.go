package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/truncate"
)

// InstallPage says how classbind is installed. Errors name it where something of classbind is missing in a cluster.
const InstallPage = "https://github.com/classbind/classbind/blob/main/docs/install.md"

// ErrNotInstalled means that the API server answered that it serves no such resource.
var ErrNotInstalled = errors.New("the API server serves no such resource: install its CRD, or correct the name, which is <plural>.<group>")

// ErrVersionNotServed means that the resource is served, but not in the version asked for.
var ErrVersionNotServed = errors.New("the API server does not serve the version for which the paths are written")

// ErrUnsuitable means that the resource is served, but without the verbs needed.
var ErrUnsuitable = errors.New("the resource cannot be used")

// CRD is what is watched of CustomResourceDefinitions: only the fact of a change.
func CRD() *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	return o
}

// Resource is a registered resource as the API server serves it.
type Resource struct {
	schema.GroupVersionKind
	Namespaced bool
	// Aliases are its singular and short names, with commas between them.
	Aliases string
}

// Names are those that kubectl takes for a resource, <plural>.<group>, the first in full.
func (r Resource) Names(name string) []string {
	plural, _, _ := strings.Cut(name, ".")
	all := append([]string{name, plural, r.Kind}, strings.Split(r.Aliases, ",")...)
	return slices.DeleteFunc(all, func(n string) bool { return n == "" })
}

// Means reports whether text is one of the names of a resource, alone or with the group.
func (r Resource) Means(text, name string) bool {
	_, group, _ := strings.Cut(name, ".")
	text = strings.TrimSuffix(text, "."+group)
	return slices.ContainsFunc(r.Names(name), func(n string) bool { return strings.EqualFold(strings.TrimSuffix(n, "."+group), text) })
}

// Find those of all that a word means: the one of this name alone, or else those of this Kind, or else all whose resource has the word
// among its names. of returns the name of one's resource, and the resource, for which it may ask the API server. known are all names that
// could be meant.
func Find[T any](word string, all []T, name func(T) string, of func(T) (string, Resource)) (found []T, known []string) {
	for _, one := range all {
		if name(one) == word {
			return []T{one}, nil
		}
	}
	var ofKind []T
	for _, one := range all {
		id, resource := of(one)
		if resource.Kind == word {
			ofKind = append(ofKind, one)
		}
		known = append(append(known, name(one)), resource.Names(id)...)
		if resource.Means(word, id) {
			found = append(found, one)
		}
	}
	if len(ofKind) > 0 { // The short name of another resource may be the same.
		found = ofKind
	}
	return found, known
}

// Resolver looks up resources by name, <plural>.<group>, in the API server's discovery. It asks for one group and caches nothing, because
// old answers are wrong once a CRD comes, goes or changes. It distinguishes an aggregated API server that is down from a missing group.
type Resolver struct {
	client    rest.Interface
	reviews   authorizationclient.SelfSubjectAccessReviewInterface
	documents *documents // documents are nil where none is cached.
}

// maxKnownBytes limits what a Resolver caches. Beyond, the API server is asked again.
const maxKnownBytes = 16 << 20

// documents of the API server by path, and their size.
type documents struct {
	known map[string]document
	size  int
}

type document struct {
	text []byte
	err  error // err is that there is none.
}

// Caching returns a Resolver that asks for each document once. It is for one look at a cluster, by one caller.
func (r Resolver) Caching() Resolver {
	r.documents = &documents{known: map[string]document{}}
	return r
}

// read a document, or ask for it.
func (d *documents) read(path string, ask func() ([]byte, error)) ([]byte, error) {
	if d == nil {
		return ask()
	}
	found, ok := d.known[path]
	if !ok {
		found.text, found.err = ask()
		if (found.err == nil || apierrors.IsNotFound(found.err)) && d.size+len(found.text) <= maxKnownBytes {
			d.known[path] = found
			d.size += len(found.text)
		}
	}
	return found.text, found.err
}

// NewResolver returns a Resolver of a cluster.
func NewResolver(config *rest.Config) (Resolver, error) {
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return Resolver{}, fmt.Errorf("cannot make a discovery client: %w", err)
	}
	reviews, err := authorizationclient.NewForConfig(config)
	if err != nil {
		return Resolver{}, fmt.Errorf("cannot make a client for reviews of access: %w", err)
	}
	return Resolver{client: d.RESTClient(), reviews: reviews.SelfSubjectAccessReviews()}, nil
}

// Resolve returns the resource in a version, or, if that is empty, in the one that the API server prefers among those that serve it with
// all of the verbs. With ErrVersionNotServed, the resource is that of the version it prefers.
func (r Resolver) Resolve(ctx context.Context, name, version string, verbs ...string) (Resource, error) {
	plural, group, _ := strings.Cut(name, ".")
	versions, err := r.versions(ctx, group)
	if err != nil {
		return Resource{}, err
	}
	if i := slices.Index(versions, version); i > 0 { // Most look-ups need no other.
		versions = slices.Insert(slices.Delete(versions, i, i+1), 0, version)
	}
	result := ErrNotInstalled
	var others []string
	var first Resource
	for _, v := range versions {
		list := &metav1.APIResourceList{}
		err := r.get(ctx, list, prefix(group), v)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return Resource{}, fmt.Errorf("cannot look up %q: %w", name, err)
		}
		i := slices.IndexFunc(list.APIResources, func(a metav1.APIResource) bool { return a.Name == plural })
		if i < 0 {
			continue
		}
		found := list.APIResources[i]
		served := func(verb string) bool { return slices.Contains(found.Verbs, verb) }
		if missing := slices.DeleteFunc(slices.Clone(verbs), served); len(missing) > 0 {
			result = fmt.Errorf("%w: the API server does not serve it with the verbs %q", ErrUnsuitable, missing)
			continue
		}
		aliases := strings.Join(append(found.ShortNames, found.SingularName), ",")
		resource := Resource{schema.GroupVersionKind{Group: group, Version: v, Kind: found.Kind}, found.Namespaced, aliases}
		if version == "" || version == v {
			return resource, nil
		}
		if others = append(others, v); len(others) == 1 {
			first = resource
		}
	}
	if len(others) > 0 {
		return first, fmt.Errorf("%w, %q, but %s: write the paths for one of these, and set spec.claims.version to it",
			ErrVersionNotServed, version, strings.Join(others, ", "))
	}
	return Resource{}, result
}

// versions returns the versions of a group, the preferred one first.
func (r Resolver) versions(ctx context.Context, group string) ([]string, error) {
	if group == "" {
		return []string{"v1"}, nil
	}
	g := &metav1.APIGroup{}
	err := r.get(ctx, g, prefix(group))
	if apierrors.IsNotFound(err) {
		return nil, ErrNotInstalled
	}
	if err != nil {
		return nil, fmt.Errorf("cannot look up the API group %q: %w", group, err)
	}
	versions := []string{g.PreferredVersion.Version}
	for _, v := range g.Versions {
		if v.Version != g.PreferredVersion.Version {
			versions = append(versions, v.Version)
		}
	}
	return versions, nil
}

// CRD reads a CustomResourceDefinition, as JSON. It is not cached: it is read once, and may be large.
func (r Resolver) CRD(ctx context.Context, name string) (crd json.RawMessage, err error) {
	return r.ask(ctx, prefix("apiextensions.k8s.io"), "v1", "customresourcedefinitions", name)
}

// OpenAPI reads the API server's OpenAPI v3 document for a version of a group, as JSON.
func (r Resolver) OpenAPI(ctx context.Context, version schema.GroupVersion) (document json.RawMessage, err error) {
	err = r.get(ctx, &document, "/openapi/v3"+prefix(version.Group), version.Version)
	return document, err
}

// Permitted returns an error that is Forbidden if classbind may not do one of these with all objects of a resource.
func (r Resolver) Permitted(ctx context.Context, name string, verbs ...string) error {
	resource := schema.ParseGroupResource(name)
	for _, verb := range verbs {
		review := &authorizationv1.SelfSubjectAccessReview{}
		review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{Verb: verb, Group: resource.Group, Resource: resource.Resource}
		review, err := r.reviews.Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			// A refusal of the question is no answer, so the error is not wrapped.
			return fmt.Errorf("cannot determine whether classbind may %s %q: %s", verb, name, truncate.Error(err).Error())
		}
		if !review.Status.Allowed {
			return apierrors.NewForbidden(resource, "", fmt.Errorf("classbind may not %s it", verb))
		}
	}
	return nil
}

// get reads one answer into an object.
func (r Resolver) get(ctx context.Context, object any, path ...string) error {
	text, err := r.documents.read(strings.Join(path, "/"), func() ([]byte, error) { return r.ask(ctx, path...) })
	if err != nil {
		return err
	}
	return truncate.Error(json.Unmarshal(text, object))
}

// ask for one answer, up to a limit: an aggregated API server is a vendor's, and may answer at any length.
func (r Resolver) ask(ctx context.Context, path ...string) ([]byte, error) {
	body, err := r.client.Get().AbsPath(path...).SetHeader("Accept", runtime.ContentTypeJSON).Stream(ctx)
	if err != nil {
		return nil, truncate.Error(err)
	}
	defer func() { _ = body.Close() }() // It was read, or is no longer needed.
	answer, err := io.ReadAll(io.LimitReader(body, v1beta1.MaxDiscoveryBytes+1))
	if err == nil && len(answer) > v1beta1.MaxDiscoveryBytes {
		err = fmt.Errorf("the API server answered with more than %d bytes", v1beta1.MaxDiscoveryBytes)
	}
	return answer, truncate.Error(err)
}

func prefix(group string) string {
	if group == "" {
		return "/api"
	}
	return "/apis/" + group
}

// CheckBindable returns why no webhook can write the reference of a claim kind, nil if one can. The admission plugin Priority runs before
// webhooks. It gives a pod without a PriorityClass the default priority, and refuses one whose priority is not that of its class.
func CheckBindable(k *v1beta1.ClaimKind) error {
	if k.Resource() == "pods" && k.Spec.Reference.Path == ".spec.priorityClassName" {
		return fmt.Errorf("%w: the API server sets the priority of a pod before it asks webhooks, by its PriorityClass or by "+
			"the default one, and it would refuse a pod that gets another class after that: mark a PriorityClass with globalDefault",
			ErrUnsuitable)
	}
	return nil
}
