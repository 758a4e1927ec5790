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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/pager"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/cmd/classbind/connect"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/controller/webhookconfig"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/rules"
)

// reader of kinds and classes: a *registry.Reader.
type reader interface {
	Resolve(ctx context.Context, name, version string, verbs ...string) (cluster.Resource, error)
	Classes(ctx context.Context, kind *inventory.ClassKind) (*inventory.Classes, error)
}

// installation of classbind, as it was read once for all sections.
type installation struct {
	api    client.Reader
	reader reader
	own    string // namespace of classbind
	now    time.Time
	// renewal is the pause between two looks at a Lease that seems to be held no more, which progress reports.
	renewal  time.Duration
	progress io.Writer
	// visit each claim, with the name of its ClaimKind. It may be nil.
	visit func(claimKind string, claim *unstructured.Unstructured)

	claimKinds []v1beta1.ClaimKind
	classKinds []v1beta1.ClassKind
	// served resources of claims, by the name of the ClaimKind.
	served map[string]served
	// classes by the name of the class kind, and why those of others are not known.
	classes    map[string]*inventory.Classes
	classesErr map[string]error

	deployments    []appsv1.Deployment
	deploymentsErr error
	// leader is the holder of the Lease, empty without one, and leads says that it still holds it.
	leader    string
	leads     bool
	leaderErr error

	claimEntries webhookconfig.Configurations
	classEntries admissionregistrationv1.ValidatingWebhookConfiguration
	// entriesErr are why these are not known.
	claimEntriesErr, classEntriesErr error
}

type served struct {
	cluster.Resource
	err error
}

// read what several sections need. Without the registrations there is nothing to say.
func (i *installation) read(ctx context.Context) (err error) {
	if i.claimKinds, i.classKinds, err = connect.Registrations(ctx, i.api); err != nil {
		return err
	}
	i.readReplicas(ctx)
	i.claimEntries, i.claimEntriesErr = webhookconfig.ReadConfigurations(ctx, i.api, webhookconfig.ClaimConfigurations...)
	i.classEntriesErr = i.api.Get(ctx, client.ObjectKey{Name: v1beta1.ClassConfiguration}, &i.classEntries)
	if namespace := i.elsewhere(); namespace != "" {
		return fmt.Errorf("classbind is in namespace %[1]s, where the API server asks it, and not in %[2]s: "+
			"--classbind-namespace %[1]s", namespace, i.own)
	}
	i.served, i.classes, i.classesErr = map[string]served{}, map[string]*inventory.Classes{}, map[string]error{}
	memory := registry.MemoryOf(&i.classEntries)
	for _, k := range i.claimKinds {
		found, err := i.reader.Resolve(ctx, k.Resource(), memory.VersionOf(&k), "create")
		i.served[k.Name] = served{found, err}
	}
	for _, k := range i.classKinds {
		found, err := i.reader.Resolve(ctx, k.Name, "", "list", "watch")
		var classes *inventory.Classes
		if err == nil {
			kind := inventory.NewClassKind(&k, found.GroupVersionKind, found.Namespaced, rules.Served(&k, i.claimKinds)...)
			classes, err = i.reader.Classes(ctx, kind)
		}
		switch {
		case err == nil:
			i.classes[k.Name] = classes
		case !registry.NotInstalledOrUnsuitable(err): // Else a condition says so.
			i.classesErr[k.Name] = err
		}
	}
	return nil
}

// elsewhere is the namespace of the Service in all webhook entries, if it is another than
// classbind's own, where neither a Deployment nor a Lease of a leader is.
func (i *installation) elsewhere() string {
	in := map[string]bool{}
	for _, e := range i.claimEntries.Entries() {
		if e.ClientConfig.Service != nil {
			in[e.ClientConfig.Service.Namespace] = true
		}
	}
	if len(in) != 1 || in[i.own] || i.deploymentsErr != nil || len(i.deployments) > 0 || i.leaderErr != nil || i.leader != "" {
		return ""
	}
	return slices.Collect(maps.Keys(in))[0]
}

// classesOf returns those of the class kinds that serve a claim kind, also of those that
// the server leaves out, and reports whether all were read.
func (i *installation) classesOf(k *v1beta1.ClaimKind) (all []*inventory.Classes, complete bool) {
	complete = true
	for _, ck := range i.classKinds {
		switch classes := i.classes[ck.Name]; {
		case !ck.Serves(k):
		case classes == nil:
			complete = false
		default:
			all = append(all, classes)
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
