package race

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	defaultAnnotation = "resourceclass.crossplane.io/is-default-class"
	weightAnnotation  = "resourceclass.crossplane.io/weight"
)

// Class is named as the guard's messages name it.
type Class struct{ Kind, Name string }

func (c Class) String() string { return c.Kind + "/" + c.Name }

// api is any of the API servers.
func (l *lane) api() dynamic.Interface {
	return anyOf(l.cluster.dynamic)
}

// classes of a kind, through any of the API servers.
func (l *lane) classes(kind string) dynamic.ResourceInterface {
	return l.api().Resource(l.resource(kind))
}

func (l *lane) object(c Class, annotations map[string]string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(l.resource(c.Kind).GroupVersion().WithKind(c.Kind))
	object.SetName(c.Name)
	object.SetAnnotations(annotations)
	if l.scenario.Partitions {
		object.SetLabels(map[string]string{partitionLabel: anyOf(partitions)})
	}
	return object
}

// plainly does a write that does not concern the guard, which only the API server can be too slow for: chaos gives it little time.
func plainly(ctx context.Context, do func() error) error {
	for try := 1; ; try++ {
		err := do()
		answered := errors.As(err, new(apierrors.APIStatus)) // If not, the API server cut the connection.
		slow := err != nil && !answered || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) ||
			apierrors.IsInternalError(err) || apierrors.IsTooManyRequests(err)
		if !slow || try == 5 || ctx.Err() != nil {
			return err
		}
		pause(ctx, 100*time.Millisecond)
	}
}

// create a class that is not default, if it is not there.
func (l *lane) create(ctx context.Context, c Class) error {
	err := plainly(ctx, func() error {
		_, err := l.classes(c.Kind).Create(ctx, l.object(c, nil), metav1.CreateOptions{})
		return err
	})
	if client.IgnoreAlreadyExists(err) != nil {
		return fmt.Errorf("cannot create %s: %w", c, err)
	}
	return nil
}

// delete a class, if it is there.
func (l *lane) delete(ctx context.Context, c Class) error {
	err := plainly(ctx, func() error { return l.classes(c.Kind).Delete(ctx, c.Name, metav1.DeleteOptions{}) })
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot delete %s: %w", c, err)
	}
	return nil
}

// undefault a class, if it is there.
func (l *lane) undefault(ctx context.Context, c Class) error {
	err := plainly(ctx, func() error {
		_, err := annotate(ctx, l.classes(c.Kind), c.Name, defaultAnnotation, "null")
		return err
	})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cannot make %s not default: %w", c, err)
	}
	return nil
}

// annotate an object as kubectl does; the value is JSON.
func annotate(ctx context.Context, in dynamic.ResourceInterface, name, key, value string) (*unstructured.Unstructured, error) {
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, key, value)
	return in.Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
}
