// Package loop has what controllers share: how they learn of changes, and run on every replica or the leader, again after a panic.
package loop

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/recovered"
)

// RevisionChanged ignores updates of status and metadata, but not those in which a recreated object replaces the old one, nor those by
// which an admin has a ClassKind ignored.
var RevisionChanged = builder.WithPredicates(RevisionPredicate)

// RevisionPredicate is the same, to be combined with others.
var RevisionPredicate = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() || e.ObjectOld.GetUID() != e.ObjectNew.GetUID() ||
		e.ObjectOld.GetAnnotations()[v1beta1.IgnoredAnnotation] != e.ObjectNew.GetAnnotations()[v1beta1.IgnoredAnnotation]
}}

// RequestAfterUpdate requests an object some time after it was updated, by whomever.
func RequestAfterUpdate(delay time.Duration) handler.EventHandler {
	return handler.Funcs{UpdateFunc: func(_ context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[ctrl.Request]) {
		q.AddAfter(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(e.ObjectNew)}, delay)
	}}
}

// ForNames requests the cluster-scoped objects of these names after an event of another object.
func ForNames(names func(ctx context.Context, of client.Object) []string) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, of client.Object) (requests []ctrl.Request) {
		for _, name := range names(ctx, of) {
			requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKey{Name: name}})
		}
		return requests
	})
}

// RegisterMetrics of what all loops and reviews share.
func RegisterMetrics() error {
	return metrics.Registry.Register(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "classbind_panics_total",
		Help: "Panics that this replica has recovered from, in reviews and in its own loops: each is a bug, and in the log.",
	}, func() float64 { return float64(recovered.Panics()) }))
}

// Again runs something again after a panic, which would end the process, or go on without it.
func Again(r manager.Runnable) manager.Runnable { return again{r} }

type again struct{ manager.Runnable }

// Start is called by the manager.
func (a again) Start(ctx context.Context) error { return recovered.Again(ctx, a.Runnable.Start) }

// NeedLeaderElection is true unless what runs says otherwise, as the manager has it.
func (a again) NeedLeaderElection() bool {
	r, says := a.Runnable.(manager.LeaderElectionRunnable)
	return !says || r.NeedLeaderElection()
}

// Everywhere runs something on every replica, leader or not, and again after a panic.
func Everywhere(r manager.Runnable) manager.Runnable { return onEveryReplica{Again(r)} }

type onEveryReplica struct{ manager.Runnable }

// NeedLeaderElection is asked by the manager.
func (onEveryReplica) NeedLeaderElection() bool { return false }

// ByName calls f with the name of a cluster-scoped object.
func ByName(f func(context.Context, string) (ctrl.Result, error)) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
		return f(ctx, request.Name)
	})
}

// Requests is a source of reconciliations. When its controller starts, it calls listen with a function that requests a name after a delay.
func Requests(listen func(ctx context.Context, request func(name string, after time.Duration))) source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) error {
		listen(ctx, func(name string, after time.Duration) {
			queue.AddAfter(ctrl.Request{NamespacedName: client.ObjectKey{Name: name}}, after)
		})
		return nil
	})
}

// RequestsFrom is a source of reconciliations of the objects whose names a listener gets.
func RequestsFrom(listen func(ctx context.Context, call func(name string)), after time.Duration) source.Source {
	return Requests(func(ctx context.Context, request func(string, time.Duration)) {
		listen(ctx, func(name string) { request(name, after) })
	})
}
