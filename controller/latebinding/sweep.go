package latebinding

import (
	"context"
	"time"

	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/truncate"
)

// sweepInterval is how often the claims that are not held are looked for. A sweep that takes long rests as long as a round does.
const sweepInterval = 5 * time.Minute

// sweepIfDue looks for the claims that are not held, if there may be some.
func (k *kindBinder) sweepIfDue(ctx context.Context) {
	began, due := time.Now(), false
	k.watch.own(func(s *claimState) { due = s.binder == k.binder && s.waiting.partial && !began.Before(s.swept) })
	if !due {
		return
	}
	rest, err := registry.RetryAfter, k.sweep(ctx, k.view())
	if err != nil {
		logf.FromContext(ctx).Info("Cannot look for waiting claims that are not held, trying again",
			"claimKind", k.watch.kind.Name, "because", truncate.Error(err).Error())
	} else {
		rest = max(sweepInterval, roundRest*time.Since(began))
	}
	k.watch.update(func(s *claimState) { s.swept = time.Now().Add(rest) })
}

// sweep reads all claims, page by page. Those that wait are held if there is room. Those that are not count as left.
func (k *kindBinder) sweep(ctx context.Context, view *selector.View) error {
	w, left, before := k.watch, 0, 0
	var held []seenVersion // of this page
	w.own(func(s *claimState) { before, s.waiting.partial = s.waiting.left, false })
	err := k.binder.Claims.client.Pages(ctx, w.resource, "", func(raw []byte) error {
		seen, err := w.judge(raw)
		if err != nil || !seen.waits {
			return nil //nolint:nilerr // One that cannot be read does not stop the others.
		}
		hold := func(matched bool) (is bool) {
			w.own(func(s *claimState) {
				_, bound := s.bound.counts[seen.uid]
				if is = bound || s.waiting.find(seen.namespace, seen.uid) != nil; is {
					return
				}
				if is = s.waiting.hold(&waitingClaim{seenVersion: seen.seenVersion, matched: matched}); is {
					held = append(held, seen.seenVersion)
				}
			})
			return is
		}
		if !hold(false) && (view == nil || !k.ask(ctx, view, seen.seenVersion).matched || !hold(true)) {
			w.own(func(s *claimState) {
				if s.waiting.partial = true; s.waiting.counts(seen.namespace) {
					left++
				}
			})
		}
		return nil
	}, func() error {
		for len(held) > 0 {
			if is, err := k.unchanged(ctx, held[0]); err != nil {
				return err
			} else if !is {
				k.giveBack(held[0])
			}
			held = held[1:]
		}
		return ctx.Err()
	})
	for _, seen := range held {
		k.giveBack(seen)
	}
	w.own(func(s *claimState) {
		if s.waiting.partial = s.waiting.partial || err != nil; err == nil {
			s.waiting.left += left - before // Others were missed meanwhile.
		}
	})
	return err
}

// unchanged reports whether a claim, now that it is held, is as it was found. The watch may have shown a change just before it was held.
func (k *kindBinder) unchanged(ctx context.Context, seen seenVersion) (bool, error) {
	raw, err := k.binder.Claims.client.Get(ctx, k.watch.resource, seen.namespace, seen.name)
	if raw == nil || err != nil {
		return false, err
	}
	head, err := readHead(raw)
	return head.Metadata.UID == seen.uid && head.Metadata.ResourceVersion == seen.version, err
}

// giveBack a claim that was found. Unless it is gone, the next sweep finds it.
func (k *kindBinder) giveBack(seen seenVersion) {
	k.watch.own(func(s *claimState) {
		if c := s.waiting.find(seen.namespace, seen.uid); c != nil && c.version == seen.version {
			s.waiting.release(c)
			s.waiting.partial = true
		}
	})
}
