package race

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
)

const (
	// guardPatience is how long it may take until a new registration is in force.
	guardPatience = 90 * time.Second
	// guardPoll is how often it is tried.
	guardPoll = 50 * time.Millisecond
)

// eventually it can be done: API servers serve a new CRD a little later, and are slow while all begins.
func eventually(ctx context.Context, what string, do func() error) error {
	why := error(nil)
	err := wait.PollUntilContextTimeout(ctx, guardPoll, guardPatience, true, func(context.Context) (bool, error) {
		why = do()
		return why == nil, nil
	})
	if err != nil {
		return fmt.Errorf("cannot %s: %w: %w", what, err, why)
	}
	return nil
}

// awaitGuard waits until no class can become default without the guard: each API server knows of a new webhook a little later than it is
// stored, and each replica of a new registration. A weight that is no number is what the guard refuses without a trace. So many probes are
// sent at once through each API server, to ask several replicas.
func (l *lane) awaitGuard(ctx context.Context, probes int) error {
	for _, kind := range l.kinds.names() {
		err := eventually(ctx, "have classes of "+kind+" guarded", func() error {
			var all errgroup.Group
			for _, api := range l.cluster.dynamic {
				for range probes {
					all.Go(func() error { return l.probe(ctx, api, kind) })
				}
			}
			return all.Wait()
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *lane) probe(ctx context.Context, api dynamic.Interface, kind string) error {
	probe := l.object(Class{kind, "probe"}, map[string]string{weightAnnotation: "x"})
	_, err := api.Resource(l.resource(kind)).Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if apierrors.IsInvalid(err) {
		return nil
	}
	return fmt.Errorf("a malformed weight is answered with %v", err) //nolint:errorlint // It may be nil.
}

// awaitPartitions waits until no default can move without the guard: the API servers learn of that a little later than of the guard. A
// default that is to move to where another is must be refused by each of them.
func (l *lane) awaitPartitions(ctx context.Context) error {
	for _, kind := range l.kinds.names() {
		probes := []Class{{kind, "probe-1"}, {kind, "probe-2"}}
		for _, c := range probes {
			object := l.object(c, map[string]string{defaultAnnotation: "true"})
			object.SetLabels(map[string]string{partitionLabel: kind + c.Name})
			if _, err := l.classes(kind).Create(ctx, object, metav1.CreateOptions{}); err != nil {
				return fmt.Errorf("cannot create %s: %w", c, err)
			}
		}
		err := eventually(ctx, "have moves of defaults of "+kind+" refused", func() error {
			for _, api := range l.cluster.dynamic {
				_, err := api.Resource(l.resource(kind)).Patch(ctx, probes[1].Name, types.MergePatchType,
					movedTo(kind+probes[0].Name, map[string]string{}), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
				if !apierrors.IsForbidden(err) {
					return fmt.Errorf("the answer is %v", err) //nolint:errorlint // It may be nil.
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, c := range probes {
			if err := l.delete(ctx, c); err != nil {
				return err
			}
		}
	}
	return nil
}
