package bench

import (
	"context"
	"strconv"
	"time"
)

// spacing of the changes whose CPU is measured: each is alone.
const spacing = 100 * time.Millisecond

// Changed is what changes of single classes cost a replica that holds many, each so
// long after the one before that it is alone.
type Changed struct {
	Classes int `json:"classes"`
	Changes int `json:"changes"`
	// CPUMillis are for each change, without those at rest.
	CPUMillis              float64 `json:"cpuMillis"`
	IdleCPUMillisPerSecond float64 `json:"idleCPUMillisPerSecond"`
}

// changed measures the CPU of a replica at rest, and then that of single changes.
func (h *held) changed(ctx context.Context, r *replica) (Changed, error) {
	n := h.settings.SingleChanges
	c := Changed{Classes: h.classes, Changes: n}
	rest := time.Duration(n) * spacing / 2
	rested, err := r.cpuFor(ctx, rest)
	if err != nil {
		return c, err
	}
	before, err := r.cpu()
	if err != nil {
		return c, err
	}
	start := time.Now()
	for i := range n {
		if err := h.label(ctx, h.class, className(i%h.classes), "changed", strconv.FormatInt(start.UnixNano()+int64(i), 10)); err != nil {
			return c, err
		}
		sleep(ctx, time.Until(start.Add(time.Duration(i+1)*spacing)))
	}
	took := time.Since(start)
	after, err := r.cpu()
	c.IdleCPUMillisPerSecond = millis(rested) / rest.Seconds()
	c.CPUMillis = (millis(after-before) - c.IdleCPUMillisPerSecond*took.Seconds()) / float64(n)
	return c, err
}
