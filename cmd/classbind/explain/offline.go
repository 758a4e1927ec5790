package explain

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/cmd/classbind/connect"
	lookup "github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/deploy/crd"
	"github.com/classbind/classbind/selector/inventory"
)

// source of registrations and classes: files, or a cluster, or a cluster as it would be if files were applied to it.
type source struct {
	// cluster is nil if none is asked.
	cluster *connect.Cluster
	// authorizer of the cluster.
	authorizer *authorizer
	// namespace of objects that name none, and claimNamespace that of claims.
	namespace, claimNamespace string

	// The rest is of files.
	claimKinds []v1beta1.ClaimKind
	classKinds []v1beta1.ClassKind
	// crds by name.
	crds map[string]CRD
	// objects are all objects of --classes or --with; claims are those to explain.
	objects, claims []document
	// removals are what is there and does not count.
	removals []*removal
}

// connect to a cluster.
func (s *source) connect(config *rest.Config) (err error) {
	if s.cluster, err = connect.New(config); err == nil {
		s.authorizer, err = newAuthorizer(config)
	}
	return err
}

// newSource reads the objects as the API server would if they were applied. What it reads must not be there
// twice. Other objects, such as the parts of a kustomization, may be.
func newSource(ctx context.Context, objects, claims []document) (*source, error) {
	s := &source{namespace: metav1.NamespaceDefault, crds: map[string]CRD{}, objects: objects, claims: claims}
	seen := places{}
	for i := range objects {
		d := &objects[i]
		used, err := s.add(ctx, d)
		if used && err == nil {
			err = seen.add(d, "")
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", d.where, err)
		}
	}
	return s, nil
}

// places of objects, by kind, namespace and name.
type places map[string]string

// add an object, which must not be there already.
func (p places) add(d *document, namespace string) error {
	id := fmt.Sprintf("%s %s/%s", d.GroupVersionKind().GroupKind(), namespace, d.GetName())
	if place, twice := p[id]; twice {
		return fmt.Errorf("%s %q is there already, in %s: leave out one of the two", d.GetKind(), d.GetName(), place)
	}
	p[id] = d.where
	return nil
}

// add reports whether the object is a registration or a CRD.
func (s *source) add(ctx context.Context, d *document) (used bool, err error) {
	switch gvk := d.GroupVersionKind(); gvk.GroupKind() {
	case schema.GroupKind{Group: v1beta1.GroupVersion.Group, Kind: "ClaimKind"}:
		s.claimKinds = append(s.claimKinds, v1beta1.ClaimKind{})
		return true, decode(ctx, d, &s.claimKinds[len(s.claimKinds)-1])
	case schema.GroupKind{Group: v1beta1.GroupVersion.Group, Kind: "ClassKind"}:
		s.classKinds = append(s.classKinds, v1beta1.ClassKind{})
		return true, decode(ctx, d, &s.classKinds[len(s.classKinds)-1])
	case schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}:
		found, err := readCRD(d)
		s.crds[d.GetName()] = found
		return true, err
	}
	return false, nil
}

// decode a registration as the API server would. It drops the status and the time of creation, which
// describe a cluster and not these files.
func decode(ctx context.Context, d *document, into runtime.Object) error {
	schemas, err := ownSchemas()
	if err != nil {
		return err
	}
	s := schemas[d.GroupVersionKind()]
	if s == nil {
		return fmt.Errorf("apiVersion %q is not served", d.GetAPIVersion())
	}
	object := d.DeepCopy().Object
	unstructured.RemoveNestedField(object, "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(object, "status")
	errs := s.decode(object)
	for _, err := range s.validate(ctx, object) {
		errs = append(errs, newFieldError(err))
	}
	if errs = errs[:min(len(errs), v1beta1.MaxErrors)]; len(errs) > 0 {
		return &refusedError{fmt.Sprintf("%s %q", d.GetKind(), d.GetName()), errs}
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, into); err != nil {
		return fmt.Errorf("cannot read the %s %q: %w", d.GetKind(), d.GetName(), err)
	}
	return nil
}

// refusedError says that the API server would refuse an object, and why.
type refusedError struct {
	object string
	errs   []FieldError
}

func (e *refusedError) Error() string {
	return fmt.Sprintf("the API server would refuse the %s: %s", e.object, joined(e.errs))
}

// ownSchemas are the schemas of ClaimKinds and ClassKinds.
var ownSchemas = sync.OnceValues(func() (map[schema.GroupVersionKind]*objectSchema, error) {
	schemas := map[schema.GroupVersionKind]*objectSchema{}
	for kind, plural := range map[string]string{"ClaimKind": "claimkinds", "ClassKind": "classkinds"} {
		text, err := crd.Files.ReadFile(v1beta1.GroupVersion.Group + "_" + plural + ".yaml")
		if err != nil {
			return nil, fmt.Errorf("cannot find our own CRD: %w", err)
		}
		if text, err = yaml.YAMLToJSON(text); err != nil {
			return nil, fmt.Errorf("cannot read our own CRD: %w", err)
		}
		s, err := schemaOfCRD(text, v1beta1.GroupVersion.Version)
		if err != nil {
			return nil, err
		}
		s.compileRules()
		schemas[v1beta1.GroupVersion.WithKind(kind)] = s
	}
	return schemas, nil
})

// CRD of files: what the API server would say about its resource, in the version that it prefers, and the CRD as JSON.
type CRD struct {
	lookup.Resource
	Name string
	JSON []byte
	// served are the versions.
	served []string
}

func readCRD(d *document) (CRD, error) {
	cannot := func(field string) (CRD, error) {
		return CRD{}, fmt.Errorf("cannot read the CRD %q: it has no %s", d.GetName(), field)
	}
	text, err := d.MarshalJSON()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err == nil {
		err = json.Unmarshal(text, crd)
	}
	if err != nil {
		return CRD{}, fmt.Errorf("cannot read the CRD %q: %w", d.GetName(), err)
	}
	spec, r := &crd.Spec, CRD{Name: d.GetName(), JSON: text}
	r.Group, r.Kind, r.Namespaced = spec.Group, spec.Names.Kind, spec.Scope == apiextensionsv1.NamespaceScoped
	r.Aliases = strings.Join(append(spec.Names.ShortNames, spec.Names.Singular), ",")
	for _, v := range spec.Versions {
		if v.Served {
			r.served = append(r.served, v.Name)
		}
	}
	r.Version = preferred(r.served)
	switch {
	case r.Kind == "":
		return cannot("spec.names.kind")
	case spec.Scope == "":
		return cannot("spec.scope")
	case r.Version == "":
		return cannot("version in spec.versions that is served")
	}
	return r, nil
}

// ReadCRDs of files, and of folders with all folders in them; - is standard input. Other objects are left out.
func ReadCRDs(in io.Reader, progress io.Writer, paths []string) (crds []CRD, err error) {
	objects, err := (&options{classes: paths}).objects(in, progress)
	if err != nil {
		return nil, err
	}
	s, err := newSource(context.Background(), objects, nil)
	if err != nil {
		return nil, err
	}
	return slices.Collect(maps.Values(s.crds)), nil
}

// preferred returns the version that the API server prefers, empty if there is none.
func preferred(versions []string) string {
	if len(versions) == 0 {
		return ""
	}
	return slices.MaxFunc(versions, version.CompareKubeAwareVersionStrings)
}

// isOf reports whether a resource, <plural>.<group>, may be that of a kind.
func isOf(resource string, kind schema.GroupVersionKind) bool {
	name := schema.ParseGroupResource(resource)
	return name.Group == kind.Group && isPlural(name.Resource, kind.Kind)
}

// isPlural reports whether a resource may be that of a kind: English has three plurals.
func isPlural(resource, kind string) bool {
	kind = strings.ToLower(kind)
	stem, y := strings.CutSuffix(kind, "y")
	return resource == kind || resource == kind+"s" || resource == kind+"es" || y && resource == stem+"ies"
}

// resolve finds a resource of files by its CRD. Where that does not serve the version, it is in the
// preferred one, with an error.
func (c *CRD) resolve(name, version string) (resource, error) {
	r := resource{Resource: c.Resource}
	if version != "" && !slices.Contains(c.served, version) {
		return r, notServedError{fmt.Errorf("the CRD %q does not serve the version for which the paths are written, %q, but %s: "+
			"write the paths for one of these, and set spec.claims.version to it", name, version, strings.Join(c.served, ", "))}
	}
	r.Version = cmp.Or(version, r.Version)
	return r, nil
}

// guess a resource without a CRD from the first object, so that a typing error in a later one does not count. A kind
// without any object counts as installed, and has no classes.
func (s *source) guess(name, version string) resource {
	r := resource{guessed: true}
	var plural string
	plural, r.Group, _ = strings.Cut(name, ".")
	var versions []string
	for _, d := range slices.Concat(s.objects, s.claims) {
		gvk := d.GroupVersionKind()
		// Kinds of one plural differ in case alone.
		if gvk.Group != r.Group || !isPlural(plural, gvk.Kind) || r.Kind != "" && gvk.Kind != r.Kind {
			continue
		}
		r.Kind = gvk.Kind
		r.Namespaced = r.Namespaced || d.GetNamespace() != ""
		versions = append(versions, gvk.Version)
	}
	r.Version = cmp.Or(version, preferred(versions))
	return r
}

// classList has the classes of files.
func (s *source) classList(kind *inventory.ClassKind) ([]*inventory.Class, error) {
	var classes []*inventory.Class
	seen := places{}
	for i := range s.objects {
		d := &s.objects[i]
		if d.GroupVersionKind().GroupKind() != kind.GroupVersionKind.GroupKind() {
			continue
		}
		c := d.DeepCopy()
		switch {
		case c.GetName() == "":
			return nil, fmt.Errorf("%s: this class has no metadata.name: give it one", d.where)
		case !kind.Namespaced:
			c.SetNamespace("")
		case c.GetNamespace() == "":
			c.SetNamespace(s.namespace)
		}
		if err := seen.add(d, c.GetNamespace()); err != nil {
			return nil, fmt.Errorf("%s: %w", d.where, err)
		}
		classes = append(classes, kind.NewClass(c, c.Object))
	}
	return classes, nil
}
