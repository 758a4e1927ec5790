package status

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/pager"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/cmd/classbind/connect"
	"github.com/classbind/classbind/controller/webhookconfig"
)

// installation of classbind, as it was read once for all sections.
type installation struct {
	api    client.Reader
	reader connect.Reader
	own    string // namespace of classbind
	now    time.Time

	claimKinds     []v1beta1.ClaimKind
	classKinds     []v1beta1.ClassKind
	deployments    []appsv1.Deployment
	deploymentsErr error
	// leader is the holder of the Lease, empty without one, and leads says that it still holds it.
	leader    string
	leads     bool
	leaderErr error

	entries    webhookconfig.Configurations
	entriesErr error // why these are not known
}

// configurations have the entries of claims and of classes.
var configurations = append(slices.Clone(webhookconfig.ClaimConfigurations), v1beta1.ClassConfiguration)

// read what several sections need. Without the registrations there is nothing to say.
func (i *installation) read(ctx context.Context) (err error) {
	if i.claimKinds, i.classKinds, err = connect.Registrations(ctx, i.api); err != nil {
		return err
	}
	i.readReplicas(ctx)
	i.entries, i.entriesErr = webhookconfig.ReadConfigurations(ctx, i.api, configurations...)
	if namespace := i.elsewhere(); namespace != "" {
		return fmt.Errorf("classbind is in namespace %[1]s, where the API server asks it, and not in %[2]s: "+
			"--classbind-namespace %[1]s", namespace, i.own)
	}
	return nil
}

// elsewhere is the namespace of the Service in all webhook entries, if it is another than
// classbind's own, where neither a Deployment nor a Lease of a leader is.
func (i *installation) elsewhere() string {
	in := map[string]bool{}
	for _, e := range i.entries.Entries() {
		if e.ClientConfig.Service != nil {
			in[e.ClientConfig.Service.Namespace] = true
		}
	}
	if len(in) != 1 || in[i.own] || i.deploymentsErr != nil || len(i.deployments) > 0 || i.leaderErr != nil || i.leader != "" {
		return ""
	}
	return slices.Collect(maps.Keys(in))[0]
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
