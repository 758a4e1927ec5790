package race

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// writeTimeout is for a write that nothing answers, longer than any API server's own.
const writeTimeout = 90 * time.Second

// write makes a class default, one way or another.
type write struct {
	class Class
	do    way
}

type way func(ctx context.Context, l *lane, c Class) error

// created as default.
func created(ctx context.Context, l *lane, c Class) error {
	_, err := l.classes(c.Kind).Create(ctx, l.object(c, map[string]string{defaultAnnotation: "true"}), metav1.CreateOptions{})
	return err
}

// patched to be default: where the class has changed meanwhile, the API server tries again, webhooks included.
func patched(ctx context.Context, l *lane, c Class) error {
	_, err := annotate(ctx, l.classes(c.Kind), c.Name, defaultAnnotation, `"true"`)
	return err
}

// updated to be default, as kubectl replace does: with the version that was read.
func updated(ctx context.Context, l *lane, c Class) error {
	object, err := l.classes(c.Kind).Get(ctx, c.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	object.SetAnnotations(map[string]string{defaultAnnotation: "true"})
	_, err = l.classes(c.Kind).Update(ctx, object, metav1.UpdateOptions{})
	return err
}

// recreated as default, whatever was there under the name.
func recreated(ctx context.Context, l *lane, c Class) error {
	if err := l.delete(ctx, c); err != nil {
		return err
	}
	return created(ctx, l, c)
}

// late does it while what was admitted earlier may still be in flight.
func late(do way) way {
	return func(ctx context.Context, l *lane, c Class) error {
		pauseUpTo(ctx, l.scenario.Timing.Request)
		return do(ctx, l, c)
	}
}

// answer to a write.
type answer struct {
	class Class
	err   error
}

// ask for the write. Whether the guard refused it is known at once; what its message was worth, only after the round.
func (l *lane) ask(ctx context.Context, w write) answer {
	limited, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	a := answer{w.class, w.do(limited, l, w.class)}
	if !outcomeOf(a.err, a.class, nil).guarded() {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, claimKind := range l.kinds[w.class.Kind] {
			l.maybeAdmitted[claimKind] = time.Now()
		}
	}
	return a
}
