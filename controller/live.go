package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector"
)

// Live returns the view with the classes that a claim asks for read from the
// API server now: all class kinds at once, the selector pushed down. A kind that
// the API server refuses to list keeps its last known classes, so that it
// blocks no claim; that the API server does not answer is an error.
func (r *Registration) Live(ctx context.Context, view *selector.View, claim selector.Claim) (*selector.View, error) {
	labelSelector := ""
	if claim.Selector != nil {
		labelSelector = claim.Selector.String()
	}
	read, ctx := errgroup.WithContext(ctx)
	classes := make([]*selector.Classes, len(view.Classes))
	for i, known := range view.Classes {
		read.Go(func() error {
			var err error
			classes[i], err = r.reads.do(ctx, readKey{known.Kind, labelSelector}, r.read)
			if r.refused(known.Kind.Name, err) {
				classes[i], err = known, nil
			}
			return err
		})
	}
	if err := read.Wait(); err != nil {
		return nil, err
	}
	return selector.NewView(view.Kind, classes), nil
}

// refused says whether an error is the API server's word that the classes of a
// kind are not to be had, rather than a fault that may pass.
func (r *Registration) refused(classKind string, err error) bool {
	answered := apierrors.APIStatus(nil)
	return apierrors.IsForbidden(err) ||
		errors.As(err, &answered) && r.state(classKind).reason != v1alpha1.ReasonServed
}

func (r *Registration) read(ctx context.Context, k readKey) (*selector.Classes, error) {
	list, err := r.classes.list(ctx, k.kind, metav1.ListOptions{LabelSelector: k.selector})
	if apierrors.IsNotFound(err) { // Its CRD was deleted a moment ago.
		return selector.NewClasses(k.kind, nil), nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot list the classes of %q: %w", k.kind.Name, err)
	}
	found, err := classes(k.kind, list)
	if err != nil {
		return nil, err
	}
	return selector.NewClasses(k.kind, found), nil
}

// reads shares equal reads. One is under way at a time; those who come
// meanwhile share the next, because the one under way may have begun before
// what they look for was there.
type reads struct {
	mu   sync.Mutex
	next map[readKey]*sharedRead
	busy map[readKey]bool
}

type readKey struct {
	kind     *selector.ClassKind
	selector string
}

type sharedRead struct {
	done    chan struct{}
	classes *selector.Classes
	err     error
}

func (r *reads) do(ctx context.Context, k readKey, read func(context.Context, readKey) (*selector.Classes, error)) (*selector.Classes, error) {
	r.mu.Lock()
	s := r.next[k]
	if s == nil {
		s = &sharedRead{done: make(chan struct{})}
		r.next[k] = s
	}
	if !r.busy[k] {
		r.busy[k] = true
		// No claim's context: those who share a read do not share its end.
		go r.run(context.WithoutCancel(ctx), k, read)
	}
	r.mu.Unlock()
	select {
	case <-s.done:
		return s.classes, s.err
	case <-ctx.Done():
		return nil, fmt.Errorf("cannot list the classes of %q: %w", k.kind.Name, context.Cause(ctx))
	}
}

// run reads until nobody has come during the last read.
func (r *reads) run(ctx context.Context, k readKey, read func(context.Context, readKey) (*selector.Classes, error)) {
	for {
		r.mu.Lock()
		s := r.next[k]
		delete(r.next, k)
		if s == nil {
			delete(r.busy, k)
		}
		r.mu.Unlock()
		if s == nil {
			return
		}
		ctx, cancel := context.WithTimeout(ctx, v1alpha1.WebhookTimeoutSeconds*time.Second)
		s.classes, s.err = read(ctx, k)
		cancel()
		close(s.done)
	}
}

// Registered asks the API server itself whether there is a ClaimKind. Whoever
// uninstalls classbind takes away its registrations, its rights, its account, and
// at last the entries that have us called: one that we have seen deleted, and may
// not look for, is gone.
func (r *Registration) Registered(ctx context.Context, claimKind string) (bool, error) {
	err := r.api.Get(ctx, client.ObjectKey{Name: claimKind}, &v1alpha1.ClaimKind{})
	_, deleted := r.deleted.Load(claimKind)
	if apierrors.IsNotFound(err) || deleted && (apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("cannot get claim kind %q: %w", claimKind, err)
	}
	return true, nil
}
