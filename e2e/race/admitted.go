package race

import (
	"context"
	"strconv"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	coordinationlisters "k8s.io/client-go/listers/coordination/v1"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/classbind"
)

// admitted is what the guard has admitted, as its Leases show it.
type admitted struct {
	leases coordinationlisters.LeaseLister
}

// watchAdmitted until the context ends.
func (c *Cluster) watchAdmitted(ctx context.Context) admitted {
	factory := informers.NewSharedInformerFactoryWithOptions(c.kubernetes, 0, informers.WithNamespace(classbind.Namespace))
	a := admitted{factory.Coordination().V1().Leases().Lister()}
	factory.StartWithContext(ctx)
	factory.WaitForCacheSyncWithContext(ctx)
	return a
}

// holders are the uids of the classes for which Leases were written after a resourceVersion, one for each Lease.
func (a admitted) holders(after uint64) (uids []string) {
	leases, _ := a.leases.List(labels.Everything()) // A cache answers.
	for _, l := range leases {
		version, _ := strconv.ParseUint(l.ResourceVersion, 10, 64)
		if uid := l.Annotations[v1beta1.HolderUIDAnnotation]; uid != "" && version > after {
			uids = append(uids, uid)
		}
	}
	return uids
}
