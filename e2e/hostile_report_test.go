package e2e

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/classbind/classbind/e2e/load"
)

// hostileRow is what became of the honest claims in an attack.
type hostileRow struct {
	attack string
	honest load.Report
	// control are claims with which classbind has nothing to do, created at the same time.
	control load.Report
	// peak of a replica's memory in bytes, and CPU of all of them in seconds.
	peak    uint64
	cpu     float64
	answers string
	failed  bool
}

// allowed is how long an honest claim may take. Where one with which classbind has
// nothing to do was slow at the same time, and classbind did little, then it was
// the machine, etcd or the API server that was slow, and the honest claim may be
// slower, too: it takes two calls where the other takes one. It is not fit to
// judge by at all when even that is as long as the API server waits for a webhook.
func (r *hostileRow) allowed() (limit time.Duration, fit bool) {
	const (
		slow   = 100 * time.Millisecond
		unfit  = time.Second
		little = 0.7 // of a core
	)
	took := float64(r.honest.Creations) / honestRate // in seconds
	if r.control.Worst < slow || r.cpu > little*took {
		return honestLatency, true
	}
	return honestLatency + 2*r.control.Worst, r.control.Worst < unfit
}

func hostileTable(rows []*hostileRow) string {
	var text strings.Builder
	out := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(out, "attack\thonest claims\tfailed\tp50\tp99\tmax\tallowed\twithout classbind: p99\tmax\tRSS\tCPU\tattacker's answers\t")
	ms := func(d time.Duration) string { return fmt.Sprintf("%.0f ms", load.Milliseconds(d)) }
	for _, r := range rows {
		failed, limit := "", "busy"
		if r.failed {
			failed = "FAILED"
		}
		if allowed, fit := r.allowed(); fit {
			limit = ms(allowed)
		}
		_, _ = fmt.Fprintf(out, "%s\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%d MiB\t%.1f s\t%s\t%s\n", r.attack, r.honest.Creations, r.honest.Failures,
			ms(r.honest.P50), ms(r.honest.P99), ms(r.honest.Worst), limit, ms(r.control.P99), ms(r.control.Worst), r.peak>>20, r.cpu, r.answers, failed)
	}
	_ = out.Flush()
	return text.String()
}
