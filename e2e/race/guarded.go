package race

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"

	"github.com/classbind/classbind/api/v1beta1"
)

// guardPatience is how long it may take until a new registration is in force.
const guardPatience = 90 * time.Second

// guardPoll is how often it is tried.
const guardPoll = 50 * time.Millisecond

// awaitGuard waits until no class can become default without the guard: each API server knows of a new webhook a little later than it is
// stored, and each replica of a new registration. A weight that is no number is what the guard refuses without a trace. So many probes are
// sent at once through each API server, to ask several replicas.
func (l *lane) awaitGuard(ctx context.Context, probes int) error {
	ctx, cancel := context.WithTimeout(ctx, guardPatience)
	defer cancel()
	for _, kind := range l.kinds.names() {
		why := fmt.Errorf("it has no condition %s", v1beta1.ConditionGuarded)
		err := wait.PollUntilContextCancel(ctx, guardPoll, true, func(ctx context.Context) (bool, error) {
			guarded, err := l.guarded(ctx, kind)
			if err != nil || !guarded {
				return false, err
			}
			var all errgroup.Group
			for _, api := range l.cluster.dynamic {
				for range probes {
					all.Go(func() error { return l.probe(ctx, api, kind) })
				}
			}
			why = all.Wait()
			return why == nil, nil
		})
		if err != nil {
			return fmt.Errorf("class kind %q is not guarded: %w: %w", l.resource(kind).GroupResource(), err, why)
		}
	}
	return nil
}

func (l *lane) guarded(ctx context.Context, kind string) (bool, error) {
	classKinds := l.cluster.dynamic[0].Resource(v1beta1.GroupVersion.WithResource("classkinds"))
	object, err := classKinds.Get(ctx, l.resource(kind).GroupResource().String(), metav1.GetOptions{})
	if err != nil {
		return false, fmt.Errorf("cannot get the ClassKind: %w", err)
	}
	classKind := &v1beta1.ClassKind{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, classKind); err != nil {
		return false, err
	}
	return meta.IsStatusConditionTrue(classKind.Status.Conditions, v1beta1.ConditionGuarded), nil
}

func (l *lane) probe(ctx context.Context, api dynamic.Interface, kind string) error {
	probe := l.object(Class{kind, "probe"}, map[string]string{weightAnnotation: "x"})
	_, err := api.Resource(l.resource(kind)).Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if apierrors.IsInvalid(err) {
		return nil
	}
	return fmt.Errorf("a malformed weight is answered with %v", err) //nolint:errorlint // It may be nil.
}
