package latebinding

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/recovered"
)

// boundUsage is how much a bound claim uses of the capacity of its class. It is nil where classes have none.
type boundUsage struct {
	amounts   claim.Usage
	namespace string
	// ask has the fields of the claim by which the usage is evaluated again when other objects change. It is empty if that is not done.
	ask claim.Ask
}

func (u *boundUsage) of() claim.Usage {
	if u == nil {
		return claim.Usage{}
	}
	return u.amounts
}

// after is what a claim uses that used so much before. Nil is that of a new claim.
func (u *boundUsage) after(before *boundUsage) *boundUsage {
	if u == nil {
		return nil
	}
	now, last := *u, claim.Failed
	if before != nil {
		last = before.amounts
	}
	now.amounts = u.amounts.Or(last)
	return &now
}

// usageOf a claim that was read, and the view by which it was evaluated, nil if nothing but the claim matters.
func (w *claimWatch) usageOf(namespace string, object map[string]any) (u *boundUsage, by *selector.View) {
	if !w.kind.Limited {
		return nil, nil
	}
	u, by = &boundUsage{namespace: namespace}, w.view()
	u.amounts = evaluateUsage(w.stopped, by, claim.Claim{Namespace: namespace, Object: object})
	if !w.kind.Rules.UsageReadsOthers {
		return u, nil
	}
	u.ask = claim.AskOfUsage(w.kind.Rules.UsageLooks, object)
	return u, by
}

func evaluateUsage(ctx context.Context, by *selector.View, c claim.Claim) claim.Usage {
	usage, _ := new(selector.Decider).UsageOf(ctx, by, c) // It reads nothing, so nothing fails.
	return usage
}

// view has the related objects as they are known. It has none while the claim kind is about to be watched in another way.
func (w *claimWatch) view() *selector.View {
	if w.views != nil {
		if v := w.views()[w.kind.Name]; v != nil && v.Kind.Serial == w.kind.Serial {
			return v
		}
	}
	return &selector.View{Kind: w.kind}
}

// recounts are of bound claims whose usage depends on other objects.
type recounts struct {
	// by is the view by which all were evaluated, or are, once none is due. It is nil if some were evaluated by other objects.
	by  *selector.View
	due []recounted
	// next recount: none begins before.
	next time.Time
}

type recounted struct {
	uid types.UID
	was *boundUsage
}

// take those that are to be evaluated next. When other objects have changed, all are due.
func (b *boundClaims) take(by *selector.View) []recounted {
	r := &b.recounts
	if len(r.due) == 0 {
		if isDue := r.by == nil || !r.by.SameRelated(by); isDue {
			for uid, c := range b.counts {
				if c.usage != nil && c.usage.ask != "" {
					r.due = append(r.due, recounted{uid, c.usage})
				}
			}
		}
		r.by = by // An old view would stay in memory.
	}
	n := min(len(r.due), lookBatch)
	taken := r.due[:n]
	if r.due = r.due[n:]; len(r.due) == 0 {
		r.due = nil
	}
	return taken
}

// change how much a claim uses, unless it was read again meanwhile.
func (b *boundClaims) change(of recounted, to claim.Usage) {
	c, known := b.counts[of.uid]
	if !known || c.usage != of.was {
		return
	}
	now := *of.was
	now.amounts = to
	for _, count := range c.of {
		if count != nil {
			b.kind.Tally.Change(count, of.was.amounts, to)
		}
	}
	c.usage = &now
	b.counts[of.uid] = c
}

// recount evaluates the usage of claims again when objects that they name have changed. As in rounds, it costs a tenth of a core at most.
func (w *claimWatch) recount(ctx context.Context) {
	if !w.kind.Limited || !w.kind.Rules.UsageReadsOthers {
		return
	}
	began, known, by, rested := time.Now(), map[question]claim.Usage{}, w.view(), false
	w.own(func(s *claimState) { rested = s.synced && !began.Before(s.bound.recounts.next) })
	for rested && ctx.Err() == nil && time.Since(began) < lookTime {
		var batch []recounted
		w.own(func(s *claimState) { batch = s.bound.take(by) })
		if len(batch) == 0 {
			return
		}
		amounts := make([]claim.Usage, len(batch))
		for i, c := range batch {
			q := question{c.was.namespace, c.was.ask}
			usage, asked := known[q]
			if !asked {
				usage = c.was.amounts // It stays with a panic, which is logged.
				_ = recovered.Do(func() error {
					asks, err := q.ask.Claim(q.namespace, "")
					if err == nil {
						usage = evaluateUsage(ctx, by, asks)
					}
					return err
				})
				known[q] = usage
			}
			amounts[i] = usage.Or(c.was.amounts)
		}
		w.own(func(s *claimState) {
			for i, c := range batch {
				if amounts[i] != c.was.amounts {
					s.bound.change(c, amounts[i])
				}
			}
			s.bound.recounts.next = began.Add(roundRest * time.Since(began))
		})
	}
}

// recountAll until the context ends.
func (c *Claims) recountAll(ctx context.Context) error {
	recovered.Rounds(ctx, func(ctx context.Context) {
		for _, w := range c.watches() {
			w.recount(ctx)
		}
	}, time.Second)
	return nil
}
