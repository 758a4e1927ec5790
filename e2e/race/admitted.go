package race

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/classbind"
)

// admitted is what the guard has admitted, as its Leases show it.
type admitted struct {
	mu     sync.Mutex
	leases map[string]lease
	err    error // of the watch
}

// lease that was written for a class, and when.
type lease struct {
	uid     string
	version uint64
}

// watchAdmitted until the context ends.
func (c *Cluster) watchAdmitted(ctx context.Context) (*admitted, error) {
	a := &admitted{leases: map[string]lease{}}
	leases := c.kubernetes.CoordinationV1().Leases(classbind.Namespace)
	list, err := leases.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("cannot list Leases: %w", err)
	}
	if err := Follow(ctx, list.ResourceVersion, leases.Watch, a.observe); err != nil {
		return nil, fmt.Errorf("cannot watch Leases: %w", err)
	}
	return a, nil
}

func (a *admitted) observe(e watch.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	object, err := meta.Accessor(e.Object)
	if e.Type == watch.Error || err != nil {
		a.err = fmt.Errorf("cannot go on watching Leases: %w", apierrors.FromObject(e.Object))
		return
	}
	if e.Type == watch.Deleted {
		delete(a.leases, object.GetName())
		return
	}
	version, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	if err != nil {
		a.err = fmt.Errorf("cannot order Leases: %w", err)
		return
	}
	a.leases[object.GetName()] = lease{object.GetAnnotations()[v1beta1.HolderUIDAnnotation], version}
}

// after a resourceVersion, so many Leases were written for the class with the uid.
func (a *admitted) after(version uint64, uid string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for _, l := range a.leases {
		if l.uid == uid && l.version > version {
			n++
		}
	}
	return n
}

// any uid of a class that was admitted; empty, there is none.
func (a *admitted) any() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range a.leases {
		if l.uid != "" { // The order of a map is random.
			return l.uid
		}
	}
	return ""
}

func (a *admitted) error() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err
}
