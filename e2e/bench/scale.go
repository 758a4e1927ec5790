package bench

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/classbind/classbind/e2e/classbind"
	"github.com/classbind/classbind/e2e/progress"
)

const (
	// few is the first number of classes that is held, to which more are compared.
	few = 100
	// settled is more than how long a replica holds its certificate back while entries are new.
	settled = 40 * time.Second
	// spacing of the changes whose CPU is measured: each is alone.
	spacing = 100 * time.Millisecond
)

// rates of claims in a second at which a replica is measured.
var rates = []int{100, 500, 1000}

// Scale is what a replica takes for classes of one kind, for claims, and for changes of classes.
type Scale struct {
	Sizes  []Size
	Claims []Claimed
	// Changed are classes of the largest size.
	Changed Changed
}

// Size is what so many classes cost a replica.
type Size struct {
	Classes int
	// ReadySeconds from its start, just after another was killed, until it was ready, and the CPU until then.
	ReadySeconds, ReadyCPUSeconds float64
	// HeapBytes are in use after a garbage collection, RSSBytes in RAM then, and PeakRSSBytes the most that were.
	HeapBytes, RSSBytes, PeakRSSBytes int64
}

// Claimed are claims that come at a steady rate, whatever becomes of those before.
type Claimed struct {
	Classes   int
	PerSecond float64
	// CPUMicros are for each of them.
	CPUMicros, P50Millis, P99Millis float64
}

// Changed is what changes of single classes cost a replica that holds many, each so long after the one before that it is alone.
type Changed struct {
	Classes, Changes int
	// CPUMillis are for each change, without those at rest.
	CPUMillis, IdleCPUMillisPerSecond float64
}

// sizes are the numbers of classes at which is measured: few, what the settings say, and powers of ten between them from 10,000.
func (s *Settings) sizes() []int {
	sizes := []int{min(few, s.Held)}
	for n := 100 * few; n < s.Held; n *= 10 {
		sizes = append(sizes, n)
	}
	return slices.Compact(append(sizes, s.Held))
}

// held is a cluster with more and more classes of one kind, and replicas of classbind that come and go.
type held struct {
	*cluster
	classes int
	// matches a claim, at most as many as there are.
	matches int
	// url of all replicas, as behind a Service, and the address of their profiles.
	url, pprof string
}

// scale measures a replica with more and more classes.
func scale(ctx context.Context, command string, settings Settings) (_ *Scale, err error) {
	ports, err := classbind.FreePorts(2)
	if err != nil {
		return nil, err
	}
	h := &held{matches: min(settings.Matches, few, settings.Held), url: "https://localhost:" + ports[0], pprof: "localhost:" + ports[1]}
	if h.cluster, err = newCluster(ctx, command, settings, kinds{classes: numbered("Class", 1), claims: numbered("Claim", 1)}); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.Stop()) }()
	s := &Scale{}
	for _, classes := range settings.sizes() {
		err := h.fill(ctx, h.classes, classes, func(i int) class { return pooled(i, h.kinds.classes, h.matches) })
		if err != nil {
			return nil, err
		}
		if h.classes == 0 { // The first that there ever is has other things to do: to make a CA, and the webhooks.
			err := h.with(ctx, func(*replica) error {
				defer sleep(ctx, settled)
				return h.awaitRegistrations(ctx)
			})
			if err != nil {
				return nil, err
			}
		}
		h.classes = classes
		err = h.with(ctx, func(r *replica) error { return h.measure(ctx, r, s) })
		if err != nil {
			return nil, err
		}
	}
	return s, nil
}

// with a replica that has just become ready, and is killed in the end, as by a node that dies.
func (h *held) with(ctx context.Context, do func(*replica) error) (err error) {
	var r *replica
	what := fmt.Sprintf("starting classbind, which is to hold %d classes", h.classes)
	err = progress.During(h.settings.Progress, what, func() (err error) {
		address := strings.TrimPrefix(h.url, "https://")
		r, err = h.serve(ctx, "--webhook-url="+h.url, "--webhook-bind-address="+address, "--pprof-bind-address="+h.pprof)
		return err
	})
	if err != nil {
		return err
	}
	r.URL = h.url
	defer func() {
		r.Kill()
		err = errors.Join(err, r.stop())
	}()
	return do(r)
}

// measure a replica.
func (h *held) measure(ctx context.Context, r *replica, s *Scale) error {
	size, err := h.weigh(ctx, r)
	if err != nil {
		return err
	}
	s.Sizes = append(s.Sizes, size)
	reviews, err := reviews(h.kinds.claims, distinct, h.classes/h.matches)
	if err != nil {
		return err
	}
	for _, rate := range rates {
		of, err := r.target(h.settings, reviews).drive(ctx, h.settings.Round, rate)
		if err != nil {
			return err
		}
		c := Claimed{h.classes, of.perSecond(), of.cpuMicros(), millis(of.P50), millis(of.P99)}
		s.Claims = append(s.Claims, c)
		h.settings.say("  scale: %d classes, %.0f claims/s, CPU %.0f µs, p50 %.2f ms, p99 %.2f ms\n",
			c.Classes, c.PerSecond, c.CPUMicros, c.P50Millis, c.P99Millis)
	}
	if h.classes < h.settings.Held {
		return nil
	}
	what := fmt.Sprintf("measuring the CPU of %d changes", h.settings.SingleChanges)
	return progress.During(h.settings.Progress, what, func() (err error) {
		s.Changed, err = h.changed(ctx, r)
		return err
	})
}

// weigh a replica at rest.
func (h *held) weigh(ctx context.Context, r *replica) (size Size, err error) {
	used, err := r.cpu()
	if err != nil {
		return size, err
	}
	size = Size{Classes: h.classes, ReadySeconds: r.took.Seconds(), ReadyCPUSeconds: used.Seconds()}
	sleep(ctx, h.settings.Round)
	if size.HeapBytes, err = h.heap(ctx, r); err != nil {
		return size, err
	}
	size.RSSBytes, size.PeakRSSBytes, err = r.memory()
	return size, err
}

var heapInUse = regexp.MustCompile(`(?m)^go_memstats_heap_alloc_bytes (\S+)$`)

// heap that is in use after a garbage collection, in bytes.
func (h *held) heap(ctx context.Context, r *replica) (int64, error) {
	if _, err := classbind.Get(ctx, "http://"+h.pprof+"/debug/pprof/heap?gc=1"); err != nil {
		return 0, fmt.Errorf("cannot collect garbage: %w", err)
	}
	metrics, err := r.Metrics(ctx)
	if err != nil {
		return 0, err
	}
	found := heapInUse.FindSubmatch(metrics)
	if found == nil {
		return 0, errors.New("cannot find the size of the heap among the metrics")
	}
	bytes, err := strconv.ParseFloat(string(found[1]), 64)
	return int64(bytes), err
}

// changed measures the CPU of a replica at rest, and then that of single changes.
func (h *held) changed(ctx context.Context, r *replica) (Changed, error) {
	n, classes := h.settings.SingleChanges, plural(h.kinds.classes[0])
	c := Changed{Classes: h.classes, Changes: n}
	atRest := time.Duration(n) * spacing / 2
	rested, err := r.cpuOf(func() error { sleep(ctx, atRest); return nil })
	if err != nil {
		return c, err
	}
	start := time.Now()
	used, err := r.cpuOf(func() error {
		for i := range n {
			patch := fmt.Appendf(nil, `{"metadata":{"labels":{"changed":"%d"}}}`, start.UnixNano()+int64(i))
			err := h.client.Patch(types.MergePatchType).Resource(classes).Name(className(i % h.classes)).Body(patch).Do(ctx).Error()
			if err != nil {
				return fmt.Errorf("cannot label a class: %w", err)
			}
			sleep(ctx, time.Until(start.Add(time.Duration(i+1)*spacing)))
		}
		return nil
	})
	c.IdleCPUMillisPerSecond = millis(rested) / atRest.Seconds()
	c.CPUMillis = (millis(used) - c.IdleCPUMillisPerSecond*time.Since(start).Seconds()) / float64(n)
	return c, err
}
