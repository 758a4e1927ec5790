package registry

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/fair"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/truncate"
)

// LiveReads asks the API server itself what a review needs to know as it is now.
type LiveReads struct {
	reader      client.Reader // from the cache
	api         client.Reader // from the API server itself
	resources   *Resources
	classKinds  *ClassKinds
	related     *RelatedKinds
	client      *classClient
	reads       *reads
	readLimiter *fair.Limiter
	// namedLimiter is for classes that claims name, by the namespace of the claim.
	namedLimiter *fair.Limiter
	// deleted has the names of the claim kinds that this replica saw deleted.
	deleted sync.Map
}

func newLiveReads(cache, live client.Reader, resources *Resources, known *ClassKinds, related *RelatedKinds) *LiveReads {
	l := &LiveReads{
		reader: cache, api: live, resources: resources, classKinds: known, related: related, client: known.client,
		readLimiter: newReadLimiter(1), namedLimiter: newReadLimiter(4),
	}
	l.reads = newReads(l.read)
	return l
}

// Live returns a view of the classes that a claim asks for, read from the API server now, of all class kinds that serve it. A kind that the
// API server refuses to list keeps its last known classes, so that it blocks no claim. If the API server does not answer, Live returns an
// error.
func (l *LiveReads) Live(ctx context.Context, view *selector.View, claim claim.Claim) (*selector.View, error) {
	classes := make([]*inventory.Classes, len(view.Classes))
	var keys []readKey
	for i, known := range view.Classes {
		if k, reachable := liveKey(view.Kind, known.Kind, claim); reachable {
			keys = append(keys, k)
		} else {
			classes[i] = inventory.NewClasses(known.Kind, nil)
		}
	}
	asked, err := l.reads.ask(claim.Namespace, view.Kind.Asks(claim), view.Known, keys...) //nolint:contextcheck // A shared read has no claim's context.
	if err != nil {
		return nil, err
	}
	defer l.reads.leave(claim.Namespace, asked...)
	for i, known := range view.Classes {
		if classes[i] != nil {
			continue
		}
		if classes[i], err = l.reads.wait(ctx, asked[0]); l.refused(known.Kind.Name, err) {
			classes[i], err = known, nil
		}
		if err != nil {
			return nil, err
		}
		asked = asked[1:]
	}
	return view.With(classes), nil
}

// liveKey identifies the read of the classes that a claim asks for. It is false if the claim can get none of the kind.
func liveKey(claimKind *selector.ClaimKind, classKind *inventory.ClassKind, claim claim.Claim) (readKey, bool) {
	asked := claimKind.Asks(claim)
	k := readKey{kind: classKind, defaults: asked == nil}
	if asked != nil {
		k.selector = asked.String()
	}
	if classKind.Namespaced {
		names, all := claimKind.ClassNamespaces(claim.Namespace)
		if !all && len(names) == 0 {
			return k, false
		}
		k.namespaces = strings.Join(names, ",")
	}
	return k, true
}

// refused reports whether an error means that the API server refuses the classes of a kind. Other faults may pass.
func (l *LiveReads) refused(classKind string, err error) bool {
	answered := apierrors.APIStatus(nil)
	return apierrors.IsForbidden(err) ||
		errors.As(err, &answered) && l.classKinds.State(classKind).Reason != v1beta1.ReasonServed
}

// read returns the classes that a shared read asks for, or sets its object.
func (l *LiveReads) read(ctx context.Context, s *sharedRead) (_ *inventory.Classes, err error) {
	if s.key.name != "" {
		s.object, err = l.readRelated(ctx, s.key)
		return nil, err
	}
	var found []*inventory.Class
	for namespace := range strings.SplitSeq(s.key.namespaces, ",") {
		err := l.readNamespace(ctx, s, namespace, func(c *inventory.Class) {
			if s.selector == nil && c.Default || s.selector != nil && s.selector.Matches(&c.Labels) {
				found = append(found, c)
			}
		})
		switch {
		case apierrors.IsNotFound(err): // Its CRD was just deleted.
		case err != nil && namespace != "":
			return nil, fmt.Errorf("cannot list the classes of %q in namespace %q: %w", s.key.kind.Name, namespace, err)
		case err != nil:
			return nil, fmt.Errorf("cannot list the classes of %q: %w", s.key.kind.Name, err)
		}
	}
	return inventory.NewClasses(s.key.kind, found), nil
}

// readNamespace visits the classes page by page, so that it holds only one page of whole objects.
func (l *LiveReads) readNamespace(ctx context.Context, s *sharedRead, namespace string, visit func(*inventory.Class)) error {
	o := metav1.ListOptions{Limit: v1beta1.LiveReadPage}
	if len(url.QueryEscape(s.key.selector)) <= v1beta1.MaxPushedSelectorBytes {
		o.LabelSelector = s.key.selector
	}
	for {
		list, err := l.client.list(ctx, s.key.kind, namespace, o)
		if err != nil {
			return err
		}
		page, err := classes(s.known, s.key.kind, list)
		if err != nil {
			return err
		}
		for _, c := range page {
			visit(c)
		}
		m, err := meta.ListAccessor(list)
		if err != nil {
			return fmt.Errorf("cannot read a list of classes: %w", err)
		}
		if o.Continue = m.GetContinue(); o.Continue == "" {
			return nil
		}
	}
}

// ClaimKind asks the API server itself for a ClaimKind, nil if there is none. An uninstallation deletes the registrations, our rights, our
// account, and last the entries by which we are called. A ClaimKind that we saw deleted, and may not read any more, is therefore gone.
func (l *LiveReads) ClaimKind(ctx context.Context, claimKind string) (*v1beta1.ClaimKind, error) {
	k := &v1beta1.ClaimKind{}
	err := l.get(ctx, claimKind, k)
	_, deleted := l.deleted.Load(claimKind)
	if apierrors.IsNotFound(err) || deleted && (apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot get claim kind %q: %w", claimKind, truncate.Error(err))
	}
	return k, nil
}
