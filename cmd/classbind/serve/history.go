package serve

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/classbind/classbind/api/v1beta1"
)

const (
	// historyInterval is how often a replica looks whether time went back, and historyRetry how often while the API server does not answer:
	// it may come back with another history.
	historyInterval = 2 * time.Second
	historyRetry    = 200 * time.Millisecond
	historyTimeout  = 3 * time.Second
)

var errHistory = errors.New("the API server's storage is older than what this replica has seen of it: " +
	"etcd was probably restored from a backup, so all that the replica knows is void, and it has to start again")

// history ends this replica when the storage of the API server goes back in time, because etcd was restored from a backup. Then classes,
// related objects, claims, registrations and all caches are void. Their watches do not notice: a watch from a resourceVersion of the future
// is silent until the storage gets there, and never reports what differs. Some of the caches, which are controller-runtime's, cannot be
// emptied. A new process has nothing that is void, and is ready within a second or two, so it is both less code and more certain than to
// list everything again in each place. Until the process has ended, the replica answers 503.
//
// A false alarm would need an answer that is older than an earlier one. The API server answers a list without a resourceVersion from the
// newest state of etcd when it asks, or from a cache that has got there. So two API servers, when one is behind, do not take turns in time.
// ClaimKinds are in the storage of kube-apiserver, never in that of an aggregated API server, and versions are compared of this resource
// alone. A new process compares with nothing that an older one has seen, so it does not end again.
//
// The storage must have got less far than at the last look before. A backup of the last seconds before etcd stopped can pass unseen.
type history struct {
	// reader is of the API server itself, not of a cache.
	reader client.Reader
	// newest resourceVersion that was seen; empty before the first.
	newest string
	void   atomic.Bool
}

// NeedLeaderElection is false: each replica has its own knowledge.
func (h *history) NeedLeaderElection() bool { return false }

// Start looks until the context ends, or returns an error when time went back.
func (h *history) Start(ctx context.Context) error {
	for {
		pause := historyInterval
		version, err := h.version(ctx)
		order, incomparable := resourceversion.CompareResourceVersion(version, h.newest)
		switch {
		case err != nil:
			pause = historyRetry
		case incomparable == nil && order < 0: // Versions that are not numbers have no order; kube-apiserver's are.
			h.void.Store(true)
			logf.FromContext(ctx).Error(errHistory, "Ending", "resourceVersion", version, "seen", h.newest)
			return errHistory
		default:
			h.newest = version
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

func (h *history) version(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, historyTimeout)
	defer cancel()
	list := &v1beta1.ClaimKindList{}
	err := h.reader.List(ctx, list, client.Limit(1))
	return list.ResourceVersion, err
}

// ready returns an error once what this replica knows is void.
func (h *history) ready(*http.Request) error {
	if h.void.Load() {
		return errHistory
	}
	return nil
}

// handler answers 503 then.
func (h *history) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h.void.Load() {
			http.Error(w, errHistory.Error(), http.StatusServiceUnavailable)
			return
		}
		next.ServeHTTP(w, r)
	})
}
