package onedefault

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/classbind/classbind/api/v1alpha1"
)

// Cluster is the Store of a cluster. The Lease of a claim kind has its name.
type Cluster struct {
	// Leases of classbind's own namespace.
	Leases coordinationclient.LeaseInterface
	// Live reads a class from the API server.
	Live func(ctx context.Context, claimKind string, c Class) (Live, error)
	// Sightings of this replica.
	Sightings *Sightings
}

// Sightings remember when this replica first saw a Lease as it is: it was written
// before that, whatever the clock of its writer said. So a clock that is ahead
// keeps nobody waiting for more than one window. The zero value is empty.
type Sightings struct {
	mu    sync.Mutex
	first map[string]sighting // by claim kind
}

type sighting struct {
	version string
	at      time.Time
}

// of a Lease with that version, now or before.
func (s *Sightings) of(claimKind, version string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if seen, ok := s.first[claimKind]; ok && seen.version == version {
		return seen.at
	}
	if s.first == nil {
		s.first = map[string]sighting{}
	}
	s.first[claimKind] = sighting{version, time.Now()}
	return s.first[claimKind].at
}

// Class is read live.
func (c *Cluster) Class(ctx context.Context, claimKind string, class Class) (Live, error) {
	return c.Live(ctx, claimKind, class)
}

// Lease is read live.
func (c *Cluster) Lease(ctx context.Context, claimKind string) (Lease, error) {
	l, err := c.Leases.Get(ctx, claimKind, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return Lease{}, nil
	}
	if err != nil {
		return Lease{}, err
	}
	lease, err := decode(l)
	if seen := c.Sightings.of(claimKind, l.ResourceVersion); seen.Before(lease.Written) {
		lease.Written = seen
	}
	return lease, err
}

// WriteLease creates the Lease if it has no Version.
func (c *Cluster) WriteLease(ctx context.Context, claimKind string, l Lease) (string, error) {
	write := func() (*coordinationv1.Lease, error) {
		return c.Leases.Update(ctx, encode(claimKind, l), metav1.UpdateOptions{})
	}
	if l.Version == "" {
		write = func() (*coordinationv1.Lease, error) {
			return c.Leases.Create(ctx, encode(claimKind, l), metav1.CreateOptions{})
		}
	}
	written, err := write()
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || l.Version != "" && apierrors.IsNotFound(err) {
		return "", ErrConflict
	}
	if err != nil {
		return "", err
	}
	return written.ResourceVersion, nil
}

func encode(claimKind string, l Lease) *coordinationv1.Lease {
	object := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: claimKind, ResourceVersion: l.Version}}
	if l.Holder.UID == "" {
		return object
	}
	object.Annotations = map[string]string{v1alpha1.HolderUIDAnnotation: string(l.Holder.UID)}
	if l.Holder.Base != "" {
		object.Annotations[v1alpha1.HolderBaseAnnotation] = l.Holder.Base
	}
	object.Spec = coordinationv1.LeaseSpec{
		HolderIdentity:       new(l.Holder.String()),
		RenewTime:            &metav1.MicroTime{Time: l.Written},
		LeaseDurationSeconds: new(int32(l.Window / time.Second)), // The flag has whole seconds.
	}
	return object
}

// decode a Lease, which somebody may have edited: one that we do not understand
// is an error, because to take it for free might make two defaults.
func decode(object *coordinationv1.Lease) (Lease, error) {
	l := Lease{Version: object.ResourceVersion}
	if object.Spec.HolderIdentity == nil {
		return l, nil
	}
	l.Holder.UID = types.UID(object.Annotations[v1alpha1.HolderUIDAnnotation])
	l.Holder.Base = object.Annotations[v1alpha1.HolderBaseAnnotation]
	parts := strings.Split(*object.Spec.HolderIdentity, "/")
	if len(parts) < 2 || len(parts) > 3 || slices.Contains(parts, "") || l.Holder.UID == "" || object.Spec.RenewTime == nil || object.Spec.LeaseDurationSeconds == nil {
		return Lease{}, fmt.Errorf("it is not as classbind writes it (holderIdentity %q): kubectl delete lease %s --namespace %s",
			*object.Spec.HolderIdentity, object.Name, object.Namespace)
	}
	l.Holder.Kind, l.Holder.Name = parts[0], parts[len(parts)-1]
	if len(parts) == 3 {
		l.Holder.Namespace = parts[1]
	}
	l.Written = object.Spec.RenewTime.Time
	l.Window = time.Duration(*object.Spec.LeaseDurationSeconds) * time.Second
	return l, nil
}
