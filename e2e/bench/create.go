package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"
)

// namespace of the claims that are created.
const namespace = "default"

// clientsOfCreates create claims, first one alone and then several at once.
var clientsOfCreates = []int{1, 8}

// Create is what creating a claim through the API server takes, by who is asked.
type Create struct {
	Creates []Created `json:"creates"`
}

// Created are claims of one kind, created by so many clients.
type Created struct {
	// Webhook of the kind, and whether the claims have a reference to a class.
	Webhook   string `json:"webhook"`
	Reference bool   `json:"reference"`
	Clients   int    `json:"clients"`
	// Medians of rounds, and of how much more it is than in the same round
	// without any webhook.
	P50Millis      float64 `json:"p50Millis"`
	P99Millis      float64 `json:"p99Millis"`
	AddedP50Millis float64 `json:"addedP50Millis"`
	AddedP99Millis float64 `json:"addedP99Millis"`
}

// Who is asked about a claim.
const (
	askedNobody    = "none"
	askedDoNothing = "do-nothing"
	askedClassbind = "classbind"
)

// creation is of claims of a kind.
type creation struct {
	webhook, kind string
	reference     bool
	rounds        []latencies
}

// latencies of a round.
type latencies struct{ p50, p99 time.Duration }

// create claims of kinds that differ in nothing but their webhook.
func (m *many) create(ctx context.Context, doNothingCommand string) (_ *Create, err error) {
	d, err := m.startConstant(ctx, doNothingCommand)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.stop()) }()
	configuration, err := d.configuration(constantClaim)
	if err != nil {
		return nil, err
	}
	if err := m.kubectl(ctx, string(configuration), "create", "-f", "-"); err != nil {
		return nil, err
	}
	defer func() {
		err = errors.Join(err, m.kubectl(context.WithoutCancel(ctx), string(configuration), "delete", "-f", "-"))
	}()
	bound := m.kinds.claims[0]
	for _, kind := range []string{constantClaim, bound} {
		if err := m.awaitWebhook(ctx, kind); err != nil {
			return nil, err
		}
	}
	result := &Create{}
	for _, clients := range clientsOfCreates {
		all := []*creation{
			{webhook: askedNobody, kind: freeClaim},
			{webhook: askedDoNothing, kind: constantClaim},
			{webhook: askedClassbind, kind: bound},
			{webhook: askedNobody, kind: freeClaim, reference: true},
			{webhook: askedClassbind, kind: bound, reference: true},
		}
		for n := range m.settings.Rounds + 1 {
			if err := m.createRound(ctx, all, clients, n); err != nil {
				return nil, err
			}
		}
		for _, c := range all {
			result.Creates = append(result.Creates, c.created(clients, all))
		}
	}
	return result, nil
}

// createRound of all, in turn one way and the other. The first is left out.
func (m *many) createRound(ctx context.Context, all []*creation, clients, n int) error {
	var texts []string
	for i := range all {
		if n%2 == 1 {
			i = len(all) - 1 - i
		}
		c := all[i]
		l, err := m.createClaims(ctx, c, clients, n)
		if err != nil {
			return err
		}
		if n > 0 {
			c.rounds = append(c.rounds, l)
		}
		name := c.webhook
		if c.reference {
			name += " with reference"
		}
		texts = append(texts, fmt.Sprintf("%s %.2f", name, millis(l.p50)))
	}
	slices.Sort(texts)
	_, _ = fmt.Fprintf(m.progress, "  create: round %d of %d, %d clients, p50 in ms: %s\n", n, m.settings.Rounds, clients, strings.Join(texts, ", "))
	return nil
}

// createClaims by so many clients, and delete them.
func (m *many) createClaims(ctx context.Context, c *creation, clients, n int) (latencies, error) {
	// They are encoded beforehand: that is no part of what is compared.
	bodies := make([][]byte, m.settings.Creates)
	for i := range bodies {
		selector := poolLabels(i%(m.settings.Classes/m.settings.Matches), map[string]string{})
		if c.reference {
			selector = nil
		}
		var err error
		if bodies[i], err = json.Marshal(claim(c.kind, fmt.Sprintf("orders-%03d-%05d", n, i), namespace, selector)); err != nil {
			return latencies{}, err
		}
	}
	took := make([]time.Duration, len(bodies))
	next := atomic.Int64{}
	all, creating := errgroup.WithContext(ctx)
	for range clients {
		all.Go(func() error {
			for i := int(next.Add(1)) - 1; i < len(bodies); i = int(next.Add(1)) - 1 {
				begin := time.Now()
				answer, err := m.createClaim(creating, c.kind, bodies[i], false)
				took[i] = time.Since(begin)
				if err != nil {
					return err
				}
				if wants := c.reference || c.webhook != askedNobody; wants != bytes.Contains(answer, []byte(`"classRef"`)) {
					return fmt.Errorf("a claim with the webhook %q is stored as %s", c.webhook, answer)
				}
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		return latencies{}, err
	}
	if err := m.client.Delete().Namespace(namespace).Resource(plural(c.kind)).Do(ctx).Error(); err != nil {
		return latencies{}, fmt.Errorf("cannot delete claims: %w", err)
	}
	slices.Sort(took)
	return latencies{quantile(took, .5), quantile(took, .99)}, nil
}

// createClaim and return it as it is stored.
func (m *many) createClaim(ctx context.Context, kind string, manifest []byte, dryRun bool) ([]byte, error) {
	request := m.client.Post().Namespace(namespace).Resource(plural(kind)).Body(manifest).SetHeader("Content-Type", "application/json")
	if dryRun {
		request.Param("dryRun", "All")
	}
	answer, err := request.Do(ctx).Raw()
	if err != nil {
		return nil, fmt.Errorf("cannot create a claim: %w: %s", err, answer)
	}
	return answer, nil
}

// awaitWebhook until the API server knows of that of a kind, which it does a
// little later than it is stored.
func (m *many) awaitWebhook(ctx context.Context, kind string) error {
	manifest, err := json.Marshal(claim(kind, "probe", namespace, poolLabels(0, map[string]string{})))
	if err != nil {
		return err
	}
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		answer, err := m.createClaim(ctx, kind, manifest, true)
		return bytes.Contains(answer, []byte(`"classRef"`)), err
	})
	if err != nil {
		return fmt.Errorf("the API server does not call the webhook of %s: %w", kind, err)
	}
	return nil
}

// created is what came of the rounds, beside those of all.
func (c *creation) created(clients int, all []*creation) Created {
	base := all[slices.IndexFunc(all, func(b *creation) bool { return b.webhook == askedNobody && b.reference == c.reference })]
	p50 := func(l latencies) float64 { return millis(l.p50) }
	p99 := func(l latencies) float64 { return millis(l.p99) }
	return Created{
		Webhook: c.webhook, Reference: c.reference, Clients: clients,
		P50Millis: medianOf(c.rounds, p50), P99Millis: medianOf(c.rounds, p99),
		AddedP50Millis: difference(c.rounds, base.rounds, p50), AddedP99Millis: difference(c.rounds, base.rounds, p99),
	}
}

// difference of something of rounds from that of those beside them, the median.
func difference[T any](of, from []T, value func(T) float64) float64 {
	differences := make([]float64, len(of))
	for i := range of {
		differences[i] = value(of[i]) - value(from[i])
	}
	return median(differences)
}

// added is what classbind adds to the p50 of a create by one client.
func (c *Create) added() float64 {
	i := slices.IndexFunc(c.Creates, func(c Created) bool { return c.Webhook == askedClassbind && !c.Reference && c.Clients == 1 })
	return c.Creates[i].AddedP50Millis
}
