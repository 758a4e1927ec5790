package bind

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/rest"

	"github.com/classbind/classbind/cmd/classbind/connect"
	"github.com/classbind/classbind/cmd/classbind/world"
	"github.com/classbind/classbind/controller/latebinding"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/truncate"
)

type binder struct {
	*options
	config *rest.Config
	claims latebinding.Client
	report *reporter

	// kind is read again before a page is bound, and resource is that of the first one.
	kind     *world.Kind
	resource schema.GroupVersionResource
}

func (o *options) run(ctx context.Context, named []connect.Name, out, progress io.Writer) error {
	config, err := o.cluster.Config(progress, "")
	if err != nil {
		return err
	}
	namespace := cmp.Or(o.cluster.Namespace, o.cluster.OfContext)
	if o.all {
		namespace = metav1.NamespaceAll
	}
	claims, err := latebinding.NewClient(config)
	if err != nil {
		return err
	}
	if o.dryRun == connect.ServerDryRun {
		claims = claims.DryRun()
	}
	report := &reporter{options: o, out: out}
	binders := map[string][]*binder{}
	for _, n := range named {
		if binders[n.Kind] != nil {
			continue
		}
		kinds, err := world.BindableKinds(ctx, config, o.cluster.Own, n.Kind)
		if err != nil {
			return err
		}
		for _, kind := range kinds {
			for _, note := range kind.Notes {
				_, _ = fmt.Fprintln(progress, "note:", truncate.Printable(note))
			}
			b := &binder{options: o, config: config, claims: claims, report: report, kind: kind, resource: kind.Resource}
			binders[n.Kind] = append(binders[n.Kind], b)
		}
	}
	report.several = several(binders)
	err = bindAll(ctx, named, binders, namespace)
	end := report.end()
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted: run the command again, and it goes on with the claims that still have no class")
	case err != nil:
		return err
	}
	return end
}

// several reports whether the binders of all words have more than one ClaimKind.
func several(binders map[string][]*binder) bool {
	names := sets.New[string]()
	for _, b := range slices.Concat(slices.Collect(maps.Values(binders))...) {
		names.Insert(b.kind.View.Kind.Name)
	}
	return names.Len() > 1
}

// bindAll binds the claims that are named, by the binders of their kinds.
func bindAll(ctx context.Context, named []connect.Name, binders map[string][]*binder, namespace string) error {
	counted := map[*binder]bool{}
	for _, n := range named {
		for _, b := range binders[n.Kind] {
			if !counted[b] {
				if err := b.kind.Count(ctx, nil); err != nil {
					return err
				}
				counted[b] = true
			}
			if err := b.run(ctx, namespace, n.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// run binds one claim, or without a name all.
func (b *binder) run(ctx context.Context, namespace, name string) error {
	if !b.kind.Namespaced {
		namespace = metav1.NamespaceAll
	}
	if name != "" {
		return b.bind(ctx, namespace, name, nil)
	}
	var unbound []latebinding.Stored
	return b.claims.Pages(ctx, b.kind.Resource, namespace, func(raw []byte) error {
		s, err := latebinding.ReadStored(b.kind.View.Kind, raw)
		switch {
		case err != nil:
			b.report.print(b.claim(s.Namespace, s.Name).failed(unreadable, err))
		case s.Bound:
			b.report.HaveClass++
		case s.LeftAlone == claim.Settled:
			b.report.LeftAlone++
		default:
			unbound = append(unbound, s)
		}
		return nil
	}, func() error {
		if len(unbound) == 0 {
			return nil
		}
		was := b.kind.View.Kind
		if err := b.renew(ctx); err != nil {
			return err
		}
		for i := range unbound {
			s := &unbound[i]
			if !b.kind.View.Kind.Same(was) {
				s = nil // The claim is read again, as the kind is now.
			}
			if err := b.bind(ctx, unbound[i].Namespace, unbound[i].Name, s); err != nil {
				return err
			}
		}
		unbound = nil
		return nil
	})
}

// renew reads the registrations and the classes again: they may have changed since the last claim without a class.
func (b *binder) renew(ctx context.Context) error {
	kinds, err := world.BindableKinds(ctx, b.config, b.cluster.Own, b.kind.View.Kind.Name)
	if err != nil {
		return err
	}
	was := b.kind
	if b.kind = kinds[0]; b.kind.Resource != b.resource {
		return fmt.Errorf("%s is registered for other claims now", b.kind.View.Kind.Name)
	}
	return b.kind.Count(ctx, was)
}

// maxAttempts limits how often a claim is read again that others change meanwhile.
const maxAttempts = 5

// unreadable is the reason for a claim that is not read as the kind has it. Others are read nevertheless.
const unreadable = "Unreadable"

// bind one claim, as it was read or, if s is nil, as it is now, and report what became of it. With an error, there is no use
// in going on with others.
func (b *binder) bind(ctx context.Context, namespace, name string, s *latebinding.Stored) error {
	named, last := s == nil, error(nil)
	for range maxAttempts {
		if s == nil {
			raw, err := b.claims.Get(ctx, b.kind.Resource, namespace, name)
			if err != nil {
				return err
			}
			if raw == nil {
				if named { // Otherwise it was deleted meanwhile.
					b.report.print(b.claim(namespace, name).failed("NotFound", errors.New("there is no claim of this name")))
				}
				return nil
			}
			read, err := latebinding.ReadStored(b.kind.View.Kind, raw)
			if err != nil {
				b.report.print(b.claim(namespace, name).failed(unreadable, err))
				return nil
			}
			s = &read
		}
		c, err := b.attempt(ctx, s)
		if c != nil {
			b.report.print(c)
		}
		if c != nil || err != nil && !latebinding.IsOutdated(err) {
			return err
		}
		named, last, s = false, err, nil
	}
	// A webhook that denies every patch may answer like an outdated version.
	b.report.print(b.claim(namespace, name).failed("NotWritten",
		fmt.Errorf("others change the claim all the time, or refuse the change: %w", last)))
	return nil
}

// attempt to bind a claim as it was read. It returns what became of it, or an error: one with which IsOutdated holds if
// the claim has changed since, and otherwise one that concerns all claims.
func (b *binder) attempt(ctx context.Context, s *latebinding.Stored) (*Claim, error) {
	c := b.claim(s.Namespace, s.Name)
	if s.Bound {
		return c.end(LeftAlone, claim.Settled, "the claim has its class"), nil
	}
	why, err := b.kind.Excluded(ctx, s.Namespace)
	switch {
	case err != nil:
		return nil, err
	case why != "":
		return c.end(LeftAlone, "NamespaceNotSelected", why), nil
	}
	d, err := b.kind.Decide(ctx, s.Intake)
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot decide on the claim %s: %w", c, err)
	case d.Claim.LeftAlone == claim.Settled:
		return c.end(LeftAlone, claim.Settled, d.Claim.SettledBy+" is set"), nil
	case d.Claim.LeftAlone != "":
		return c.end(LeftAlone, d.Claim.LeftAlone, "classbind explain shows why"), nil
	case len(d.Claim.Problems) > 0:
		return c.failed(d.Reason(), errors.New(d.Warning())), nil
	case d.Unneeded():
		return c.end(LeftAlone, d.Reason(), "it asks for no class, and none is the default"), nil
	case d.Class == nil:
		return c.end(Unmatched, d.Reason(), d.Warning()), nil
	case d.Given():
		return c.end(LeftAlone, claim.Settled, "the claim has its class"), nil
	}
	class := selector.NameOf(d.Class)
	c.Class = &class
	counts := b.kind.View.Kind.Reader.Reference.CountsFor(s.Namespace, d.Class.Target()) // With a dry run, as if it were stored.
	if b.dryRun != connect.ClientDryRun {
		object, _, err := b.claims.WriteClass(ctx, b.kind.Resource, s.UID, s.Version, &d)
		switch {
		case err == nil:
			counts, _ = b.kind.View.Kind.Reader.Reference.BoundTo(s.Namespace, object)
		case latebinding.IsOutdated(err), latebinding.IsUnauthorized(err), !concernsOne(err):
			return nil, err
		default:
			return c.failed("NotWritten", err), nil
		}
	}
	if kind := b.kind.View.Kind; kind.Tally != nil { // The next claims see it, and nothing stays in flight.
		for _, class := range counts {
			kind.Tally.Bind(class, kind.ShareOf(s.Namespace, d.Claim.Usage))
		}
		kind.Tally.Seen(s.Namespace, s.Name, "", counts)
	}
	return c.end(Bound, d.Reason(), ""), nil
}

// concernsOne reports whether the API server refused one claim, so that others may still be written. client-go has waited
// where a Retry-After asked for it.
func concernsOne(err error) bool {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return errors.Is(err, latebinding.ErrReferenceRemoved)
	}
	code := status.Status().Code
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError &&
		code != http.StatusUnauthorized && code != http.StatusTooManyRequests
}
