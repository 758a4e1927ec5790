package bench

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/classbind/classbind/e2e/progress"
)

const (
	// spacing of the changes whose CPU is measured: each is alone.
	spacing = 100 * time.Millisecond
	// looking is how long after a claim that does not see a change another one asks,
	// and lookingOn where the CPU of that must not count.
	looking   = 200 * time.Microsecond
	lookingOn = 50 * time.Millisecond
	// settlingRounds are as long as watches may take until all of them are at rest.
	settlingRounds = 3
	// unseen is when it is given up that a change becomes visible.
	unseen = time.Minute
	// shownBy is the label of a class that claims ask for, or not.
	shownBy = "shown"
)

// Change is what a change costs a replica that holds many classes.
type Change struct {
	Size
	// FewClasses are what HeapBytesPerClass and RSSBytesPerClass are compared to.
	FewClasses        int     `json:"fewClasses"`
	HeapBytesPerClass float64 `json:"heapBytesPerClass"`
	RSSBytesPerClass  float64 `json:"rssBytesPerClass"`

	// Changes were made of single classes, each so long after the one before that
	// it is alone. CPUMillis are for each of them, without those at rest.
	Changes                int     `json:"changes"`
	CPUMillis              float64 `json:"cpuMillis"`
	IdleCPUMillisPerSecond float64 `json:"idleCPUMillisPerSecond"`
	// Visible is the time from the API server's answer to a change until a claim
	// is bound by it.
	VisibleP50Millis float64 `json:"visibleP50Millis"`
	VisibleP99Millis float64 `json:"visibleP99Millis"`

	// Resumed is a watch that goes on after its connection was cut, Relisted one
	// that cannot because the API server was restarted.
	Resumed  Reconnect `json:"resumed"`
	Relisted Reconnect `json:"relisted"`
}

// change measures what changes cost, and compares memory to that of few classes.
func (h *held) change(ctx context.Context, r *replica, config *tls.Config, few, size Size) (_ *Change, err error) {
	c := &Change{Size: size, FewClasses: few.Classes, Changes: h.settings.SingleChanges}
	if d := float64(size.Classes - few.Classes); d > 0 {
		c.HeapBytesPerClass, c.RSSBytesPerClass = float64(size.HeapBytes-few.HeapBytes)/d, float64(size.RSSBytes-few.RSSBytes)/d
	}
	err = progress.During(h.progress, fmt.Sprintf("measuring the CPU of %d changes", c.Changes), func() error {
		usage, err := h.changeCPU(ctx, c.Changes, []*process{&r.process})
		if err != nil {
			return err
		}
		c.IdleCPUMillisPerSecond, c.CPUMillis = usage[0].idlePerSecond, usage[0].perChange
		return nil
	})
	if err != nil {
		return nil, err
	}
	v, err := h.watchFor(ctx, r, config)
	if err != nil {
		return nil, err
	}
	defer v.c.Close()
	var took []time.Duration
	err = progress.During(h.progress, fmt.Sprintf("measuring when %d changes are visible", c.Changes), func() error {
		for range c.Changes {
			d, err := v.toggle(ctx)
			if err != nil {
				return err
			}
			took = append(took, d)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(took)
	c.VisibleP50Millis, c.VisibleP99Millis = millis(quantile(took, .5)), millis(quantile(took, .99))
	return c, nil
}

// usage of CPU in milliseconds, by some processes together.
type usage struct {
	idlePerSecond, perChange float64
}

// changeCPU is what groups of processes take at rest, and then for each of n
// single changes.
func (h *held) changeCPU(ctx context.Context, n int, groups ...[]*process) ([]usage, error) {
	begin, err := cpuOf(groups)
	if err != nil {
		return nil, err
	}
	rest := time.Duration(n) * spacing / 2
	sleep(ctx, rest)
	rested, err := cpuOf(groups)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	for i := range n {
		if err := h.label(ctx, h.class, className(i%h.classes), "changed", strconv.FormatInt(start.UnixNano()+int64(i), 10)); err != nil {
			return nil, err
		}
		sleep(ctx, time.Until(start.Add(time.Duration(i+1)*spacing)))
	}
	took := time.Since(start)
	changed, err := cpuOf(groups)
	if err != nil {
		return nil, err
	}
	all := make([]usage, len(groups))
	for i := range groups {
		idle := millis(rested[i]-begin[i]) / rest.Seconds()
		all[i] = usage{idle, (millis(changed[i]-rested[i]) - idle*took.Seconds()) / float64(n)}
	}
	return all, nil
}

// cpuOf groups of processes until now.
func cpuOf(groups [][]*process) ([]time.Duration, error) {
	totals := make([]time.Duration, len(groups))
	for i, processes := range groups {
		for _, p := range processes {
			d, err := p.cpu()
			if err != nil {
				return nil, err
			}
			totals[i] += d
		}
	}
	return totals, nil
}

// visibility of a change. Of two classes, one is always shown to a claim that
// would get the other if that is shown too. So a replica never has to ask the API
// server for a class, which would be another way to see it.
type visibility struct {
	held    *held
	c       *client
	review  []byte
	toggled string // the class
	shown   bool
	pause   time.Duration // from an answer to the next question
}

// watchFor visibility in a replica.
func (h *held) watchFor(ctx context.Context, r *replica, config *tls.Config) (_ *visibility, err error) {
	if h.classes < 2 {
		return nil, errors.New("there are no two classes to tell apart")
	}
	v := &visibility{held: h, toggled: className(1), shown: true, pause: looking}
	for i := range 2 {
		if err := h.label(ctx, h.class, className(i), shownBy, "yes"); err != nil {
			return nil, err
		}
	}
	v.c = newClient(r.URL, config, 1)
	defer func() {
		if err != nil {
			v.c.Close()
		}
	}()
	// The draw is by the claim's name: each class gets every other.
	for deadline, i := time.Now().Add(unseen), 0; ; i++ {
		if v.review, err = review(h.claim, fmt.Sprintf("probe-%05d", i), map[string]string{shownBy: "yes"}, true); err != nil {
			return nil, err
		}
		got, err := v.bound(ctx)
		if err != nil {
			return nil, err
		}
		if got == v.toggled {
			return v, nil
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("no claim is bound to %q", v.toggled)
		}
	}
}

// bound is the name of the class that the claim gets.
func (v *visibility) bound(ctx context.Context) (string, error) {
	answer, err := ask(ctx, v.c, bindPath(claimKindName(v.held.claim)), v.review)
	if err != nil {
		return "", err
	}
	var patch []struct {
		Value struct {
			Name string `json:"name"`
		} `json:"value"`
	}
	if err := json.Unmarshal(answer.Patch, &patch); err != nil || len(patch) != 1 {
		return "", fmt.Errorf("cannot read the patch %s: %w", answer.Patch, err)
	}
	return patch[0].Value.Name, nil
}

// toggle whether the class is shown, and return how long after the API server's
// answer the claim saw it.
func (v *visibility) toggle(ctx context.Context) (time.Duration, error) {
	if err := v.change(ctx); err != nil {
		return 0, err
	}
	return v.await(ctx)
}

// change whether the class is shown.
func (v *visibility) change(ctx context.Context) error {
	v.shown = !v.shown
	value := map[bool]string{true: "yes", false: "no"}[v.shown]
	return v.held.label(ctx, v.held.class, v.toggled, shownBy, value)
}

// await until the claim sees what is, and return how long that took.
func (v *visibility) await(ctx context.Context) (time.Duration, error) {
	begin := time.Now()
	for time.Since(begin) < unseen {
		got, err := v.bound(ctx)
		if err != nil || ctx.Err() != nil {
			return 0, errors.Join(err, ctx.Err())
		}
		if (got == v.toggled) == v.shown {
			return time.Since(begin), nil
		}
		sleep(ctx, v.pause)
	}
	return 0, fmt.Errorf("a change is not visible after %s", unseen)
}
