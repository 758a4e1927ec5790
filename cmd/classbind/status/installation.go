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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/cmd/classbind/world"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/controller/webhookconfig"
	"github.com/classbind/classbind/selector/inventory"
)

// installation of classbind, as it was read once for all sections.
type installation struct {
	*world.World

	api client.Reader // that of the World
	now time.Time
	// renewal is the pause between two looks at a Lease that seems no longer held, which progress reports.
	renewal  time.Duration
	progress io.Writer
	// visit each claim, with the name of its ClaimKind. It may be nil.
	visit func(claimKind string, claim []byte)

	deployments    []appsv1.Deployment
	deploymentsErr error
	// leader is the holder of the Lease, empty without one, and leads reports whether it still holds it.
	leader    string
	leads     bool
	leaderErr error

	claimEntries webhookconfig.Configurations
	classEntries admissionregistrationv1.ValidatingWebhookConfiguration
	// entriesErr are why these are not known.
	claimEntriesErr, classEntriesErr error
}

func (i *installation) read(ctx context.Context) error {
	i.readReplicas(ctx)
	i.claimEntries, i.claimEntriesErr = webhookconfig.ReadConfigurations(ctx, i.api, webhookconfig.ClaimConfigurations...)
	i.classEntriesErr = i.api.Get(ctx, client.ObjectKey{Name: v1beta1.ClassConfiguration}, &i.classEntries)
	if i.classEntriesErr == nil {
		i.Memory = registry.MemoryOf(&i.classEntries)
	}
	if namespace := i.elsewhere(); namespace != "" {
		return fmt.Errorf("classbind is in namespace %[1]s, where the API server asks it, and not in %[2]s: "+
			"--classbind-namespace %[1]s", namespace, i.Own)
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
	if len(in) != 1 || in[i.Own] || i.deploymentsErr != nil || len(i.deployments) > 0 || i.leaderErr != nil || i.leader != "" {
		return ""
	}
	return slices.Collect(maps.Keys(in))[0]
}

// classesOf returns those of the class kinds that serve a claim kind, also of those that
// the server leaves out, and reports whether all were read.
func (i *installation) classesOf(ctx context.Context, k *v1beta1.ClaimKind) (all []*inventory.Classes, complete bool) {
	complete = true
	for _, ck := range i.ClassKinds {
		if !ck.Serves(k) {
			continue
		}
		if classes, err := i.ClassKind(ctx, &ck).Classes(); err == nil {
			all = append(all, classes)
		} else {
			complete = false
		}
	}
	return all, complete
}
