package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"text/tabwriter"
)

// Report of a measurement; a part that did not run is nil. Field names have the
// units: Millis and Micros are of seconds, Bytes are bytes.
type Report struct {
	Go       string   `json:"go"`
	CPUs     int      `json:"cpus"`
	Settings Settings `json:"settings"`

	Webhook *Webhook `json:"webhook,omitempty"`
	Create  *Create  `json:"create,omitempty"`
}

func newReport(s Settings) *Report {
	return &Report{Go: runtime.Version(), CPUs: runtime.NumCPU(), Settings: s}
}

// Save the report as JSON.
func (r *Report) Save(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // As any folder of what is built.
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644) //nolint:gosec // It is no secret.
}

// Print the report for people. Its last line sums it up.
func (r *Report) Print(to io.Writer) {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	if r.Webhook != nil {
		r.Webhook.print(w)
	}
	_ = w.Flush()
	_, _ = fmt.Fprintln(to, r.summary())
}

func (r *Report) summary() string {
	if r.Webhook == nil {
		return ""
	}
	return fmt.Sprintf("throughput ratio %.2f, p99 ratio %.2f", r.Webhook.ThroughputRatio, r.Webhook.P99Ratio)
}

func (h *Webhook) print(w io.Writer) {
	_, _ = fmt.Fprintf(w, "webhook: %d classes of %d kinds, %d kinds of claim, %d matches a claim; reviews of %d bytes, answers of %d and %d\n",
		h.Classes, h.ClassKinds, h.ClaimKinds, h.Matches, h.ReviewBytes, h.DoNothingAnswerBytes, h.ClassbindAnswerBytes)
	_, _ = fmt.Fprintln(w, "\trequests/s\tp50 ms\tp99 ms\tCPU µs\tload's CPU µs\tRSS MiB\t")
	for _, s := range []struct {
		name string
		Served
	}{{"do-nothing", h.DoNothing}, {"classbind", h.Classbind}} {
		_, _ = fmt.Fprintf(w, "%s\t%.0f\t%.2f\t%.2f\t%.0f\t%.0f\t%.1f\t\n", s.name, s.PerSecond, s.P50Millis, s.P99Millis, s.CPUMicros, s.LoadCPUMicros, mebi(s.RSSBytes))
	}
	_, _ = fmt.Fprintf(w, "ratio\t%.2f\t%.2f\t%.2f\t%.2f\t\t\t\n", h.ThroughputRatio, h.P50Ratio, h.P99Ratio, h.CPURatio)
}

func mebi(bytes int64) float64 { return float64(bytes) / (1 << 20) }
