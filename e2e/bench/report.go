package bench

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"text/tabwriter"

	"github.com/prometheus/procfs"
)

// Report of a measurement; a part that did not run is nil.
type Report struct {
	Go   string
	CPUs int
	// LoadAverage of the minute before tells a machine that had other things to do.
	LoadAverage float64
	Settings    Settings

	Webhook *Webhook
	Create  *Create
	Storm   *Storm
	Scale   *Scale

	// Verdicts are on the bounds of the parts that ran.
	Verdicts []Verdict
}

func newReport(s Settings) (*Report, error) {
	r := &Report{Go: runtime.Version(), CPUs: runtime.NumCPU(), Settings: s}
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return nil, err
	}
	load, err := fs.LoadAvg()
	if err != nil {
		return nil, fmt.Errorf("cannot read the load of this machine: %w", err)
	}
	r.LoadAverage = load.Load1
	return r, nil
}

// Print the report for people, and in the end which bounds are met.
func (r *Report) Print(to io.Writer) {
	p := &printer{to: to}
	p.line("%d CPUs for all of it, %s; the load average was %.1f before", r.CPUs, r.Go, r.LoadAverage)
	r.Webhook.print(p, r.Settings)
	r.Create.print(p)
	r.Storm.print(p)
	r.Scale.print(p)
	r.printVerdicts(p)
}

func (r *Report) printVerdicts(p *printer) {
	if len(r.Verdicts) == 0 {
		return
	}
	p.line("\nbounds: what was measured, beside what bounds.yaml asks for")
	var rows [][]string
	for _, v := range r.Verdicts {
		rows = append(rows, row("%s|%.3f|%s|%s", v.Bound, v.Value, v.Limit, map[bool]string{true: "met", false: "MISSED"}[v.Met]))
	}
	p.table("bound|measured|limit|verdict", rows...)
}

// printer of paragraphs and tables.
type printer struct{ to io.Writer }

func (p *printer) line(format string, args ...any) { _, _ = fmt.Fprintf(p.to, format+"\n", args...) }

// table of rows that are formatted alike, by their columns.
func (p *printer) table(columns string, rows ...[]string) {
	w := tabwriter.NewWriter(p.to, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(w, strings.ReplaceAll(columns, "|", "\t")+"\t")
	for _, row := range rows {
		_, _ = fmt.Fprintln(w, strings.Join(row, "\t")+"\t")
	}
	_ = w.Flush()
}

// row of a table, "|" between its cells.
func row(format string, args ...any) []string {
	return strings.Split(fmt.Sprintf(format, args...), "|")
}

func (h *Webhook) print(p *printer, s Settings) {
	if h == nil {
		return
	}
	p.line("\nwebhook: the same reviews for both; %d classes of %d kinds, %d kinds of claim, %d matches a claim",
		s.Classes, s.ClassKinds, s.ClaimKinds, s.Matches)
	p.line("(reviews of %d bytes, answers of %d; medians of rounds, ratios of rounds side by side)", h.ReviewBytes, h.AnswerBytes)
	of := func(name string, s Served) []string {
		return row("%s|%.0f|%.2f|%.2f|%.0f|%.1f", name, s.PerSecond, s.P50Millis, s.P99Millis, s.CPUMicros, mebi(s.RSSBytes))
	}
	rss := float64(h.Classbind.RSSBytes) / float64(h.DoNothing.RSSBytes)
	p.table("|requests/s|p50 ms|p99 ms|CPU µs|RSS MiB", of("do-nothing", h.DoNothing), of("classbind", h.Classbind),
		row("ratio|%.2f|%.2f|%.2f|%.2f|%.2f", h.ThroughputRatio, h.P50Ratio, h.P99Ratio, h.CPURatio, rss))
}

func (c *Create) print(p *printer) {
	if c == nil {
		return
	}
	p.line("\ncreate: claims through the API server (added to the p50 of those about which nobody is asked, turn by turn)")
	var rows [][]string
	for _, c := range c.Creates {
		has := ""
		if c.Reference {
			has = "yes"
		}
		rows = append(rows, row("%s|%s|%d|%.2f|%.2f|%+.3f", c.Asked, has, c.Clients, c.P50Millis, c.P99Millis, c.AddedMillis))
	}
	p.table("asked|has a reference|clients|p50 ms|p99 ms|added ms", rows...)
}

func (s *Storm) print(p *printer) {
	if s == nil {
		return
	}
	p.line("\nstorm: %d reviews a second while classes change, %d a second, of which the API server learns from etcd", s.Claims, s.Wanted)
	of := func(name string, s Stormed) []string {
		return row("%s|%.0f|%.0f|%.2f|%.2f|%.0f", name, s.ChangesPerSecond, s.PerSecond, s.P50Millis, s.P99Millis, s.CPUMicros)
	}
	p.table("changes|changes/s|requests/s|p50 ms|p99 ms|CPU µs",
		of("none", s.Quiet), of("of kinds that others watch", s.Elsewhere), of("of the claims' classes", s.Here))
	p.line("p99 ratio of the last to the one before: %.2f; to none: %.2f", s.P99Ratio, s.P99RatioToQuiet)
}

func (s *Scale) print(p *printer) {
	if s == nil {
		return
	}
	p.line("\nscale: a replica that holds classes of one kind")
	var sizes, claims [][]string
	for _, s := range s.Sizes {
		sizes = append(sizes, row("%d|%.2f|%.2f|%.1f|%.1f|%.1f",
			s.Classes, s.ReadySeconds, s.ReadyCPUSeconds, mebi(s.HeapBytes), mebi(s.RSSBytes), mebi(s.PeakRSSBytes)))
	}
	p.table("classes|ready s|CPU s|heap MiB|RSS MiB|peak RSS MiB", sizes...)
	for _, c := range s.Claims {
		claims = append(claims, row("%d|%.0f|%.0f|%.2f|%.2f", c.Classes, c.PerSecond, c.CPUMicros, c.P50Millis, c.P99Millis))
	}
	p.table("classes|claims/s|CPU µs|p50 ms|p99 ms", claims...)
	p.table("classes|changes|CPU ms a change|CPU ms/s at rest",
		row("%d|%d|%.2f|%.2f", s.Changed.Classes, s.Changed.Changes, s.Changed.CPUMillis, s.Changed.IdleCPUMillisPerSecond))
}

func mebi(bytes int64) float64 { return float64(bytes) / (1 << 20) }
