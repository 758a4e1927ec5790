package bench

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/classbind/classbind/e2e/classbind"
	"github.com/classbind/classbind/e2e/progress"
)

// few is the first number of classes that is held, to which more are compared.
const few = 100

// settled is more than how long a replica holds its certificate back while entries are new.
const settled = 40 * time.Second

// held is a cluster with more and more classes of one kind, and replicas of
// classbind that come and go.
type held struct {
	*cluster
	settings Settings
	class    string
	claim    string
	classes  int
	// address of all replicas, as behind a Service.
	address string
}

// Size is what so many classes cost a replica.
type Size struct {
	Classes int `json:"classes"`
	// ReadySeconds from its start, just after another was killed, until it was ready, and the CPU until then.
	ReadySeconds    float64 `json:"readySeconds"`
	ReadyCPUSeconds float64 `json:"readyCPUSeconds"`
	// HeapBytes are in use after a garbage collection, RSSBytes in RAM then, and
	// PeakRSSBytes the most that were.
	HeapBytes    int64 `json:"heapBytes"`
	RSSBytes     int64 `json:"rssBytes"`
	PeakRSSBytes int64 `json:"peakRSSBytes"`
}

// startHeld has no class yet.
func startHeld(ctx context.Context, command string, s Settings) (_ *held, err error) {
	h := &held{settings: s, class: numbered("Class", 1)[0], claim: numbered("Claim", 1)[0]}
	ports, err := classbind.FreePorts(1)
	if err != nil {
		return nil, err
	}
	h.address = "localhost:" + ports[0]
	if h.cluster, err = newCluster(ctx, command, s.Progress); err != nil {
		return nil, err
	}
	if err := h.install(ctx, kinds{classes: []string{h.class}, claims: []string{h.claim}}); err != nil {
		return nil, errors.Join(err, h.Stop())
	}
	return h, nil
}

// sizes are the numbers of classes at which is measured: few, what the settings
// say, and powers of ten between them from 10,000.
func (s *Settings) sizes() []int {
	sizes := []int{min(few, s.Held)}
	for n := 100 * few; n < s.Held; n *= 10 {
		sizes = append(sizes, n)
	}
	return slices.Compact(append(sizes, s.Held))
}

// at a number of classes, which there are not more of, do something with a
// replica that has just become ready.
func (h *held) at(ctx context.Context, classes int, do func(*replica, *tls.Config, Size) error) (err error) {
	err = h.fill(ctx, h.classes, classes, func(i int) class { return pooled(i, []string{h.class}, h.settings.matchesHeld()) })
	if err != nil {
		return err
	}
	first := h.classes == 0
	h.classes = classes
	if first { // The first that there ever is has other things to do: to make a CA, and the webhooks.
		r, _, err := h.start(ctx)
		if err == nil {
			err = h.kubectl(ctx, "", "wait", "--for=condition=Ready", "claimkinds,classkinds", "--all", "--timeout=60s")
			sleep(ctx, settled)
			err = errors.Join(err, r.kill())
		}
		if err != nil {
			return err
		}
	}
	r, size, err := h.start(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.kill()) }()
	config, err := h.trust(ctx)
	if err != nil {
		return err
	}
	return do(r, config, size)
}

// start a replica, and measure it at rest.
func (h *held) start(ctx context.Context) (*replica, Size, error) {
	size := Size{Classes: h.classes}
	var r *replica
	err := progress.During(h.progress, fmt.Sprintf("starting classbind, which is to hold %d classes", h.classes), func() error {
		var (
			took time.Duration
			err  error
		)
		url := "https://" + h.address
		if r, took, err = h.serve(ctx, "--webhook-url="+url, "--webhook-bind-address="+h.address); err != nil {
			return err
		}
		r.URL = url
		size.ReadySeconds = took.Seconds()
		return nil
	})
	if err != nil {
		return nil, Size{}, err
	}
	if err := h.weigh(ctx, r, &size); err != nil {
		return nil, Size{}, errors.Join(err, r.stop())
	}
	return r, size, nil
}

func (h *held) weigh(ctx context.Context, r *replica, size *Size) error {
	used, err := r.cpu()
	if err != nil {
		return err
	}
	size.ReadyCPUSeconds = used.Seconds()
	sleep(ctx, h.settings.Round)
	if size.HeapBytes, err = r.heap(ctx); err != nil {
		return err
	}
	size.RSSBytes, size.PeakRSSBytes, err = r.memory()
	return err
}

// bound is a replica as a target, with reviews of claims that match some of the
// classes.
func (h *held) bound(r *replica, config *tls.Config) (*target, error) {
	reviews, err := reviews([]string{h.claim}, distinct, h.classes/h.settings.matchesHeld())
	if err != nil {
		return nil, err
	}
	return &target{
		url: r.URL, path: bindPath, tls: config, process: &r.process,
		inFlight: h.settings.Connections, reviews: reviews,
	}, nil
}

// matchesHeld is how many classes match a claim, at most as many as there are.
func (s *Settings) matchesHeld() int { return min(s.Matches, few, s.Held) }

// sleep until the time has passed or the context ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
