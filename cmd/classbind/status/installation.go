package status

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/cmd/classbind/connect"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/controller/webhookconfig"
	"github.com/classbind/classbind/selector"
)

// reader of kinds and classes: a *registry.Reader.
type reader interface {
	Resolve(ctx context.Context, name, version string, verbs ...string) (kind schema.GroupVersionKind, namespaced bool, err error)
	Classes(ctx context.Context, kind *selector.ClassKind) (*selector.Classes, error)
}

// installation of classbind, as it was read once for all sections.
type installation struct {
	api    client.Reader
	reader reader
	// allowed asks whether classbind's account may do something.
	allowed func(ctx context.Context, account string, what authorizationv1.ResourceAttributes) (bool, error)
	own     string // namespace of classbind
	now     time.Time
	// renewal is the pause between two looks at a Lease that seems to be held no more,
	// of which progress tells.
	renewal  time.Duration
	progress io.Writer

	claimKinds []v1alpha1.ClaimKind
	classKinds []v1alpha1.ClassKind
	// served resources, by the name of the registration.
	served map[string]served
	// classes by the name of the class kind, and why those of others are not known.
	classes    map[string]*selector.Classes
	classesErr map[string]error

	deployments    []appsv1.Deployment
	deploymentsErr error
	// leader is the holder of the Lease, empty without one, and leads says that it still
	// holds it.
	leader    string
	leads     bool
	leaderErr error

	// lacks are the rights that classbind's account lacks, by who needs them.
	lacks    []lack
	lacksErr error

	claimEntries webhookconfig.ClaimConfigurations
	classEntries admissionregistrationv1.ValidatingWebhookConfiguration
	// entriesErr are why these are not known.
	claimEntriesErr, classEntriesErr error
}

// served is a resource, or why it is not known.
type served struct {
	cluster.Resource
	err error
}

func newInstallation(config *rest.Config, own string, progress io.Writer) (*installation, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		v1alpha1.AddToScheme, corev1.AddToScheme, appsv1.AddToScheme, coordinationv1.AddToScheme,
		admissionregistrationv1.AddToScheme, authorizationv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("cannot make the scheme: %w", err)
		}
	}
	api, err := client.New(cluster.Shallowed(config), client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("cannot make a client: %w", err)
	}
	reader, err := registry.NewReader(config)
	if err != nil {
		return nil, err
	}
	allowed := func(ctx context.Context, account string, what authorizationv1.ResourceAttributes) (bool, error) {
		return mayDo(ctx, api, account, what)
	}
	return &installation{
		api: api, reader: reader, allowed: allowed, own: own, now: time.Now(), renewal: renewal, progress: progress,
	}, nil
}

// read what several sections need. Without the registrations there is nothing to say.
func (i *installation) read(ctx context.Context) (err error) {
	if i.claimKinds, i.classKinds, err = connect.Registrations(ctx, i.api); err != nil {
		return err
	}
	i.readReplicas(ctx)
	i.claimEntries, i.claimEntriesErr = webhookconfig.ReadClaimConfigurations(ctx, i.api)
	i.classEntriesErr = i.api.Get(ctx, client.ObjectKey{Name: v1alpha1.ClassConfiguration}, &i.classEntries)
	if namespace := i.elsewhere(ctx); namespace != "" {
		return fmt.Errorf("classbind is in namespace %[1]s, where the API server asks it, and nothing of it is in %[2]s: "+
			"--classbind-namespace %[1]s", namespace, i.own)
	}
	i.lacks, i.lacksErr = i.missingRights(ctx)
	i.served, i.classes, i.classesErr = map[string]served{}, map[string]*selector.Classes{}, map[string]error{}
	for n := range i.claimKinds {
		k := &i.claimKinds[n]
		i.resolve(ctx, "claimkind/"+k.Name, k.Resource(), k.ReadVersion(), "create")
	}
	for n := range i.classKinds {
		k := &i.classKinds[n]
		found := i.resolve(ctx, "classkind/"+k.Name, k.Name, "", "list", "watch")
		if found.err != nil {
			continue // The section of kinds says so.
		}
		kind := selector.NewClassKind(k, found.GroupVersionKind, found.Namespaced, selector.NamedBy(k, i.claimKinds)...)
		classes, err := i.reader.Classes(ctx, kind)
		if err != nil {
			i.classesErr[k.Name] = err
			continue
		}
		i.classes[k.Name] = classes
	}
	return nil
}

// elsewhere is the namespace of the Service in all webhook entries, if it is another than
// classbind's own, and nothing of classbind is there. It is empty if that is not known.
func (i *installation) elsewhere(ctx context.Context) string {
	in := map[string]bool{}
	add := func(c *admissionregistrationv1.WebhookClientConfig) {
		if c.Service != nil {
			in[c.Service.Namespace] = true
		}
	}
	for _, e := range i.claimEntries.Entries() {
		add(&e.ClientConfig)
	}
	for n := range i.classEntries.Webhooks {
		add(&i.classEntries.Webhooks[n].ClientConfig)
	}
	if len(in) != 1 || in[i.own] || i.deploymentsErr != nil || len(i.deployments) > 0 {
		return ""
	}
	for name, o := range map[string]client.Object{
		v1alpha1.LeaderLease: &coordinationv1.Lease{}, v1alpha1.CASecret: &corev1.Secret{}, v1alpha1.TLSSecret: &corev1.Secret{},
	} {
		if err := i.api.Get(ctx, client.ObjectKey{Namespace: i.own, Name: name}, o); !apierrors.IsNotFound(err) {
			return ""
		}
	}
	return slices.Collect(maps.Keys(in))[0]
}

func (i *installation) resolve(ctx context.Context, registration, name, version string, verbs ...string) served {
	kind, namespaced, err := i.reader.Resolve(ctx, name, version, verbs...)
	found := served{cluster.Resource{GroupVersionKind: kind, Namespaced: namespaced}, err}
	i.served[registration] = found
	return found
}

// classesOf returns those of the class kinds that serve a claim kind, also of those that
// the server leaves out, and reports whether all were read.
func (i *installation) classesOf(k *v1alpha1.ClaimKind) (all []*selector.Classes, complete bool) {
	complete = true
	for n := range i.classKinds {
		ck := &i.classKinds[n]
		if !slices.Contains(ck.Spec.ClaimKinds, k.Name) {
			continue
		}
		if classes, known := i.classes[ck.Name]; known {
			all = append(all, classes)
		} else {
			complete = false
		}
	}
	return all, complete
}

// each visits all objects of a kind, a page at a time.
func (i *installation) each(ctx context.Context, kind schema.GroupVersionKind, visit func(*unstructured.Unstructured)) error {
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		return list, i.api.List(ctx, list, &client.ListOptions{Limit: o.Limit, Continue: o.Continue})
	})
	return pages.EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		if object, ok := o.(*unstructured.Unstructured); ok {
			visit(object)
		}
		return nil
	})
}
