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
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/classbind/classbind/api/v1alpha1"
)

// namespace of the claims that are created.
const namespace = "default"

// clientsOfCreates create claims, first one alone and then several at once.
var clientsOfCreates = []int{1, 8}

// creates of a round are made in so many parts, in turn with those of other
// webhooks: what the machine does otherwise lasts longer than one.
const turns = 4

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
	// P50Millis and P99Millis are of all claims. AddedP50Millis is the median of how
	// much more the p50 is than in the same turn without any webhook.
	P50Millis      float64 `json:"p50Millis"`
	P99Millis      float64 `json:"p99Millis"`
	AddedP50Millis float64 `json:"addedP50Millis"`
}

// Who is asked about a claim.
const (
	askedNobody    = "none"
	askedDoNothing = "do-nothing"
	// askedAlike is a do-nothing webhook that is called as classbind is: on the same
	// conditions, with the same protocol.
	askedAlike     = "do-nothing, called alike"
	askedClassbind = "classbind"
)

// creation is of claims of a kind.
type creation struct {
	webhook, kind string
	reference     bool
	p50           []float64       // of each turn, in ms
	took          []time.Duration // each claim
}

// create claims of kinds that differ in nothing but their webhook.
func (m *many) create(ctx context.Context, doNothingCommand string) (_ *Create, err error) {
	bound := m.kinds.claims[0]
	alike, err := m.entry(ctx, bound)
	if err != nil {
		return nil, err
	}
	for _, w := range []struct {
		kind  string
		entry admissionregistrationv1.MutatingWebhook
		flags []string
	}{
		{kind: constantClaim, entry: plainEntry()},
		{kind: alikeClaim, entry: alike, flags: []string{"--prefer-http1"}},
	} {
		d, err := m.startConstant(ctx, doNothingCommand, w.flags...)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, d.stop()) }()
		configuration, err := d.configuration(w.kind, w.entry)
		if err != nil {
			return nil, err
		}
		if err := m.kubectl(ctx, string(configuration), "create", "-f", "-"); err != nil {
			return nil, err
		}
		defer func() {
			err = errors.Join(err, m.kubectl(context.WithoutCancel(ctx), string(configuration), "delete", "-f", "-"))
		}()
	}
	for _, kind := range []string{constantClaim, alikeClaim, bound} {
		if err := m.awaitWebhook(ctx, kind); err != nil {
			return nil, err
		}
	}
	result := &Create{}
	for _, clients := range clientsOfCreates {
		all := []*creation{
			{webhook: askedNobody, kind: freeClaim},
			{webhook: askedDoNothing, kind: constantClaim},
			{webhook: askedAlike, kind: alikeClaim},
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
	for turn := range turns {
		for i := range all {
			if turn%2 == 1 {
				i = len(all) - 1 - i
			}
			c := all[i]
			took, err := m.createClaims(ctx, c, clients, turn)
			if err != nil {
				return err
			}
			if n > 0 {
				c.p50, c.took = append(c.p50, millis(quantile(took, .5))), append(c.took, took...)
			}
		}
	}
	if n == 0 {
		return nil
	}
	texts := make([]string, len(all))
	for i, c := range all {
		name := c.webhook
		if c.reference {
			name += " with reference"
		}
		texts[i] = fmt.Sprintf("%s %.2f", name, median(c.p50))
	}
	_, _ = fmt.Fprintf(m.progress, "  create: round %d of %d, %d clients, p50 in ms: %s\n",
		n, m.settings.Rounds, clients, strings.Join(texts, "; "))
	return nil
}

// createClaims by so many clients, and delete them. What they took is sorted.
func (m *many) createClaims(ctx context.Context, c *creation, clients, turn int) ([]time.Duration, error) {
	// They are encoded beforehand: that is no part of what is compared.
	bodies := make([][]byte, max(1, m.settings.Creates/turns))
	for i := range bodies {
		selector := poolLabels(i%(m.settings.Classes/m.settings.Matches), map[string]string{})
		if c.reference {
			selector = nil
		}
		var err error
		if bodies[i], err = json.Marshal(claim(c.kind, fmt.Sprintf("orders-%d-%05d", turn, i), namespace, selector)); err != nil {
			return nil, err
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
		return nil, err
	}
	if err := m.client.Delete().Namespace(namespace).Resource(plural(c.kind)).Do(ctx).Error(); err != nil {
		return nil, fmt.Errorf("cannot delete claims: %w", err)
	}
	slices.Sort(took)
	return took, nil
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

// entry of classbind's for a kind of claim.
func (m *many) entry(ctx context.Context, kind string) (entry admissionregistrationv1.MutatingWebhook, err error) {
	clientset, err := kubernetes.NewForConfig(m.Config)
	if err != nil {
		return entry, err
	}
	configurations := clientset.AdmissionregistrationV1().MutatingWebhookConfigurations()
	c, err := configurations.Get(ctx, v1alpha1.LastConfiguration, metav1.GetOptions{})
	if err != nil {
		return entry, fmt.Errorf("cannot see how classbind is called: %w", err)
	}
	i := slices.IndexFunc(c.Webhooks, func(e admissionregistrationv1.MutatingWebhook) bool {
		return e.Name == resource(kind)+v1alpha1.BindSuffix
	})
	if i < 0 {
		return entry, fmt.Errorf("classbind is not called for %s", kind)
	}
	return c.Webhooks[i], nil
}

// created is what came of the turns, beside those of all.
func (c *creation) created(clients int, all []*creation) Created {
	base := all[slices.IndexFunc(all, func(b *creation) bool { return b.webhook == askedNobody && b.reference == c.reference })]
	slices.Sort(c.took)
	return Created{
		Webhook: c.webhook, Reference: c.reference, Clients: clients,
		P50Millis: millis(quantile(c.took, .5)), P99Millis: millis(quantile(c.took, .99)), AddedP50Millis: difference(c.p50, base.p50),
	}
}

// added is what classbind adds to the p50 of a create by one client.
func (c *Create) added() float64 {
	i := slices.IndexFunc(c.Creates, func(c Created) bool { return c.Webhook == askedClassbind && !c.Reference && c.Clients == 1 })
	return c.Creates[i].AddedP50Millis
}
