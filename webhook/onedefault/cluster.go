package onedefault

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/truncate"
)

// Cluster admits default classes on an API server.
type Cluster struct {
	// Leases of classbind's own namespace.
	Leases coordinationclient.LeaseInterface
	// Live reads a class from the API server; the zero value if there is none.
	Live func(ctx context.Context, c Class) (Live, error)
	// Sightings of this replica.
	Sightings *Sightings
	// Window is how long the API server may take to store what was admitted.
	Window time.Duration
	// Contended reports whether other requests wait for this one, which is refused then at once instead of waiting for what is in flight.
	// Nil means that none waits.
	Contended func() bool
}

// lease as the API server has it; the zero value if there is none.
func (c *Cluster) lease(ctx context.Context, name string) (Lease, error) {
	object, err := c.Leases.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		c.Sightings.gone(name)
		return Lease{}, nil
	}
	if err != nil {
		return Lease{}, truncate.Error(err)
	}
	l, err := decode(object)
	if err != nil {
		return Lease{}, err
	}
	now := time.Now()
	seen := c.Sightings.see(object.Name, &l, now)
	for i := range l.Pending {
		l.Pending[i].Left = max(0, c.Window-now.Sub(seen[i]))
	}
	_, l.Landed = c.Sightings.stored.Get(l.Holder)
	return l, nil
}

// write the Lease of a seat over its Version, or create it if it has none, or delete it if it is free. It reports whether the Lease had
// that version. It counts the Lease at once: a replica that does not see the others' Leases limits at least its own.
func (c *Cluster) write(ctx context.Context, seat inventory.Seat, l Lease) (written bool, err error) {
	if l.Holder.UID == "" {
		return c.delete(ctx, LeaseName(seat), l)
	}
	object := encode(seat, l)
	if !c.Sightings.mayTake(object.Name, &l) {
		return false, fmt.Errorf("%q classes%s are, or were, the default of %d partitions or claim kinds, which is the limit: "+
			"take the mark from some; classbind deletes the Leases of those without a default after about two minutes",
			l.Holder.Kind, inventory.Seat{Namespace: l.Holder.Namespace}.In(), v1beta1.MaxSeatLeases)
	}
	if l.Version == "" {
		_, err = c.Leases.Create(ctx, object, metav1.CreateOptions{})
	} else {
		_, err = c.Leases.Update(ctx, object, metav1.UpdateOptions{})
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || l.Version != "" && apierrors.IsNotFound(err) {
		return false, nil
	}
	if err == nil {
		c.Sightings.see(object.Name, &l, time.Now())
	}
	return err == nil, truncate.Error(err)
}

// Collect deletes a Lease that is as good as none, unless it has changed meanwhile.
func (c *Cluster) Collect(ctx context.Context, name string) error {
	l, err := c.lease(ctx, name)
	if err != nil || l.Version == "" {
		return err
	}
	var now Live
	if l.Holder.UID != "" {
		if now, err = c.Live(ctx, l.Holder.Class); err != nil {
			return err
		}
	}
	if l.unused(now, func(s inventory.Seat) bool { return LeaseName(s) == name }) {
		_, err = c.delete(ctx, name, l)
	}
	return err
}

// delete the Lease that has this version.
func (c *Cluster) delete(ctx context.Context, name string, l Lease) (deleted bool, err error) {
	err = c.Leases.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &l.UID, ResourceVersion: &l.Version}})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return false, nil
	}
	if err == nil {
		c.Sightings.gone(name)
	}
	return err == nil, truncate.Error(err)
}

// token matches the uids and resourceVersions of all API servers, and our own ids.
var token = regexp.MustCompile(`^[0-9A-Za-z._-]+$`)

// IsToken reports whether a Lease may record this uid or resourceVersion.
func IsToken(text string) bool {
	return len(text) <= v1beta1.MaxUIDBytes && token.MatchString(text)
}

func encode(seat inventory.Seat, l Lease) *coordinationv1.Lease {
	// An API server creates a Lease that it is to update, where there is none, unless the update has a uid.
	object := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: LeaseName(seat), ResourceVersion: l.Version, UID: l.UID}}
	if seat.Partition != "" {
		metav1.SetMetaDataAnnotation(&object.ObjectMeta, v1beta1.SeatAnnotation, describe(seat))
	}
	text, _ := json.Marshal(l.Pending) // It has strings.
	metav1.SetMetaDataAnnotation(&object.ObjectMeta, v1beta1.HolderUIDAnnotation, string(l.Holder.UID))
	metav1.SetMetaDataAnnotation(&object.ObjectMeta, v1beta1.HolderPendingAnnotation, string(text))
	object.Spec.HolderIdentity = new(l.Holder.String())
	return object
}

// decode a Lease, which somebody may have edited. A malformed one is an error: to take it for free might make two defaults.
func decode(object *coordinationv1.Lease) (Lease, error) {
	l := Lease{Version: object.ResourceVersion, UID: object.UID}
	if object.Spec.HolderIdentity == nil {
		return l, nil
	}
	l.Holder.UID = types.UID(object.Annotations[v1beta1.HolderUIDAnnotation])
	parts := strings.Split(*object.Spec.HolderIdentity, "/")
	text := object.Annotations[v1beta1.HolderPendingAnnotation]
	malformed := len(text) > v1beta1.MaxPendingBytes || json.Unmarshal([]byte(text), &l.Pending) != nil ||
		len(l.Pending) == 0 || len(l.Pending) > v1beta1.MaxPendingDefaults ||
		slices.ContainsFunc(l.Pending, func(p Pending) bool { return !IsToken(p.ID) || p.Base != "" && !IsToken(p.Base) })
	if malformed || len(parts) < 2 || len(parts) > 3 || slices.Contains(parts, "") || !IsToken(string(l.Holder.UID)) {
		return Lease{}, fmt.Errorf("somebody else changed it (holderIdentity %q): kubectl delete lease %s --namespace %s",
			truncate.String(*object.Spec.HolderIdentity, v1beta1.MaxShownBytes), object.Name, object.Namespace)
	}
	l.Holder.Kind, l.Holder.Name = parts[0], parts[len(parts)-1]
	if len(parts) == 3 {
		l.Holder.Namespace = parts[1]
	}
	return l, nil
}
