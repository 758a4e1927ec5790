package bind

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/classbind/classbind/cmd/classbind/explain"
	"github.com/classbind/classbind/controller/latebinding"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
)

// binder binds the claims of one ClaimKind.
type binder struct {
	*options
	config *rest.Config
	claims latebinding.Client
	report *reporter

	// kind is read again before a page is bound, and resource is that of the first one. tally counts its claims by class, nil
	// where its strategy needs no counts.
	kind     *explain.Kind
	resource schema.GroupVersionResource
	tally    *selector.Tally
}

func (o *options) run(ctx context.Context, word string, names []string, out, progress io.Writer) error {
	config, err := o.cluster.Config(progress, "")
	if err != nil {
		return err
	}
	namespace, err := o.cluster.OfContext()
	if err != nil {
		return err
	}
	if namespace = cmp.Or(o.cluster.Namespace, namespace); o.all {
		namespace = metav1.NamespaceAll
	}
	kinds, err := explain.Kinds(ctx, config, o.cluster.Own, word)
	if err != nil {
		return err
	}
	claims, err := latebinding.NewClient(config)
	if err != nil {
		return err
	}
	report := &reporter{options: o, out: out, progress: progress, several: len(kinds) > 1}
	for _, kind := range kinds {
		b := &binder{options: o, config: config, claims: claims, report: report, kind: kind, resource: kind.Resource}
		if err = b.run(ctx, namespace, names); err != nil {
			break
		}
	}
	end := report.end()
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted: run the command again, and it goes on with the claims that still have no class")
	case err != nil:
		return err
	}
	return end
}

// run binds the named claims, or all.
func (b *binder) run(ctx context.Context, namespace string, names []string) error {
	if !b.kind.Namespaced {
		namespace = metav1.NamespaceAll
	}
	b.report.note(b.kind)
	if b.kind.Kind.Strategy.Counted {
		if err := b.count(ctx); err != nil {
			return fmt.Errorf("cannot count the claims of each class for %s: %w", b.kind.Kind.Strategy.Name, err)
		}
	}
	for _, name := range names {
		if err := b.bind(ctx, namespace, name, nil); err != nil {
			return err
		}
	}
	if len(names) > 0 {
		return nil
	}
	var unbound []latebinding.Stored
	return b.claims.Pages(ctx, b.kind.Resource, namespace, func(raw []byte) error {
		s, err := latebinding.ReadStored(b.kind.Kind, raw)
		switch {
		case err != nil:
			b.report.print(b.claim(s.Namespace, s.Name).failed(unreadable, err))
		case s.Bound, s.LeftAlone == claim.Settled:
			b.report.HaveClass++
		default:
			unbound = append(unbound, s)
		}
		return nil
	}, func() error {
		if len(unbound) == 0 {
			return nil
		}
		was := b.kind.Kind
		if err := b.renew(ctx); err != nil {
			return err
		}
		for i := range unbound {
			s := &unbound[i]
			if !b.kind.Kind.Same(was) {
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
	kinds, err := explain.Kinds(ctx, b.config, b.cluster.Own, b.kind.Kind.Name)
	if err != nil {
		return err
	}
	if b.kind = kinds[0]; b.kind.Resource != b.resource {
		return fmt.Errorf("%s is registered for other claims now", b.kind.Kind.Name)
	}
	b.kind.Kind.Tally = b.tally
	return nil
}

// count has the strategy know how many claims each class has.
func (b *binder) count(ctx context.Context) error {
	b.tally = &selector.Tally{}
	b.kind.Kind.Tally = b.tally
	return b.claims.Pages(ctx, b.kind.Resource, metav1.NamespaceAll, func(raw []byte) error {
		if s, err := latebinding.ReadStored(b.kind.Kind, raw); err == nil {
			b.tallied(s.Classes)
		}
		return nil
	}, func() error { return nil })
}

func (b *binder) tallied(classes [2]uint64) {
	for _, class := range classes {
		b.tally.Bind(class, selector.Share{})
	}
}
