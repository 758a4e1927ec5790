package registry

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/selector"
)

// watch follows the classes of one kind. It is the store of a Reflector rather
// than an informer's handler, so that a class is held once, as the few fields
// that choosing needs, and not a second time as an object.
type watch struct {
	kind    *selector.ClassKind
	publish func(*selector.Classes)
	stored  func(*selector.Class, types.UID)
	stop    context.CancelFunc
	cluster.Health

	// classes as they were last seen. Only the Reflector uses them.
	classes *selector.Classes
}

// startWatch follows the classes until it is stopped. It calls publish with all classes
// after each change, and answered when the API server's answer differs from the last
// one, both from goroutines of its own.
func startWatch(
	ctx context.Context, client *classClient, kind *selector.ClassKind, publish func(*selector.Classes), answered func(error),
) *watch {
	ctx, stop := context.WithCancel(ctx)
	w := &watch{kind: kind, publish: publish, stored: client.stored, stop: stop, classes: selector.NewClasses(kind, nil)}
	client.objects(kind.Name, kind).Follow(ctx, w, &w.Health, answered)
	return w
}

func (w *watch) set(classes *selector.Classes) {
	w.classes = classes
	w.publish(classes)
}

// Add is called by the Reflector, as are Update, Delete, Replace and Resync. It
// publishes nothing if nothing that matters has changed.
func (w *watch) Add(object any) error {
	c, err := class(w.classes, w.kind, object)
	if err != nil {
		return err
	}
	if classes := w.classes.With(c); classes != w.classes {
		w.set(classes)
	}
	w.seen(c, object)
	return nil
}

// seen reports that a default class was stored.
func (w *watch) seen(c *selector.Class, object any) {
	if m, err := meta.Accessor(object); err == nil && c.Default && w.stored != nil {
		w.stored(c, m.GetUID())
	}
}

// Update a class.
func (w *watch) Update(object any) error { return w.Add(object) }

// Delete a class.
func (w *watch) Delete(object any) error {
	c, err := class(w.classes, w.kind, object)
	if err != nil {
		return err
	}
	w.set(w.classes.Without(c.Namespace, c.Name))
	return nil
}

// Replace all classes.
func (w *watch) Replace(objects []any, _ string) error {
	all := make([]*selector.Class, 0, len(objects))
	for _, object := range objects {
		c, err := class(w.classes, w.kind, object)
		if err != nil {
			return err
		}
		all = append(all, c)
		w.seen(c, object)
	}
	w.set(selector.NewClasses(w.kind, all))
	return nil
}

// Resync does nothing.
func (w *watch) Resync() error { return nil }

// Transformer removes what nobody reads from an object. A Reflector holds all streamed
// objects until it has seen the last one, and authors may write a lot.
func (w *watch) Transformer() cache.TransformFunc {
	return func(object any) (any, error) {
		m, err := meta.Accessor(object)
		if err != nil {
			return nil, fmt.Errorf("cannot read a class of %q: %w", w.kind.Name, err)
		}
		w.kind.Strip(m)
		return object, nil
	}
}
