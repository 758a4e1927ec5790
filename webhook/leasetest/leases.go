// Package leasetest is an API server that has Leases.
package leasetest

import (
	"context"
	"errors"
	"strconv"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// Resource of Leases.
var Resource = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

// Leases by name, with the preconditions of an API server.
type Leases struct {
	coordinationclient.LeaseInterface

	// Before each operation, it gets the verb and what is written, or a Lease with a name alone. Its error becomes the operation's.
	Before func(ctx context.Context, verb string, l *coordinationv1.Lease) error

	Mu  sync.Mutex // guards all below
	All map[string]*coordinationv1.Lease
	// Done are all operations, such as "get" and a name, and Writes are how many changed something.
	Done   []string
	Writes int

	version int
}

// New returns no Leases.
func New() *Leases {
	return &Leases{All: map[string]*coordinationv1.Lease{}}
}

// Put a Lease over any version.
func (s *Leases) Put(l *coordinationv1.Lease) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.put(l)
}

func (s *Leases) put(l *coordinationv1.Lease) *coordinationv1.Lease {
	s.version++
	l = l.DeepCopy()
	l.ResourceVersion = strconv.Itoa(s.version)
	s.All[l.Name] = l
	return l.DeepCopy()
}

// find the Lease of an operation.
func (s *Leases) find(ctx context.Context, verb string, l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	if s.Before != nil {
		if err := s.Before(ctx, verb, l); err != nil {
			return nil, err
		}
	}
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.Done = append(s.Done, verb+" "+l.Name)
	return s.All[l.Name], nil
}

// Get a Lease.
func (s *Leases) Get(ctx context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	switch stored, err := s.find(ctx, "get", named(name)); {
	case err != nil:
		return nil, err
	case stored == nil:
		return nil, apierrors.NewNotFound(Resource, name)
	default:
		return stored.DeepCopy(), nil
	}
}

func named(name string) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// Create a Lease.
func (s *Leases) Create(ctx context.Context, l *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return s.change(ctx, "create", l)
}

// Update a Lease of a version.
func (s *Leases) Update(ctx context.Context, l *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return s.change(ctx, "update", l)
}

// Delete a Lease of a version.
func (s *Leases) Delete(ctx context.Context, name string, o metav1.DeleteOptions) error {
	l := named(name)
	l.UID, l.ResourceVersion = *o.Preconditions.UID, *o.Preconditions.ResourceVersion
	_, err := s.change(ctx, "delete", l)
	return err
}

func (s *Leases) change(ctx context.Context, verb string, l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	if _, err := s.find(ctx, verb, l); err != nil {
		return nil, err
	}
	s.Mu.Lock()
	defer s.Mu.Unlock()
	stored := s.All[l.Name]
	switch {
	case verb == "create" && stored != nil:
		return nil, apierrors.NewAlreadyExists(Resource, l.Name)
	case verb != "create" && stored == nil:
		return nil, apierrors.NewNotFound(Resource, l.Name)
	case stored != nil && (stored.ResourceVersion != l.ResourceVersion || stored.UID != l.UID):
		return nil, apierrors.NewConflict(Resource, l.Name, errors.New("it was changed"))
	}
	if s.Writes++; verb == "delete" {
		delete(s.All, l.Name)
		return nil, nil
	}
	return s.put(l), nil
}
