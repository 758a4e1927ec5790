package setdefault

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/classbind/classbind/selector/truncate"
)

// progressInterval, plus one retryInterval, is less than the 2 s after which people wonder what happens.
const progressInterval = 1400 * time.Millisecond

// progressWriter reports what the command waits for.
type progressWriter struct {
	out  io.Writer
	last time.Time
}

func (p *progressWriter) printf(format string, args ...any) {
	p.last = time.Now()
	_, _ = fmt.Fprintln(p.out, truncate.Printable(fmt.Sprintf(format, args...)))
}

// waiting prints at most one line every two seconds, however often it is called.
func (p *progressWriter) waiting(format string, args ...any) {
	if time.Since(p.last) >= progressInterval {
		p.printf(format, args...)
	}
}

func unmarkedLine(c *storedClass) string {
	return fmt.Sprintf("%s: no longer the default for %s", c, strings.Join(c.claimKinds(), ", "))
}

// lines returns the results of the plan, except for the classes that lose their mark.
func (p *plan) lines() []string {
	target := fmt.Sprintf("%s: the default for %s", p.target, seatTexts(p.seats))
	if len(p.gain) > 0 {
		target += fmt.Sprintf(", and for %s, which had none", strings.Join(p.gain, ", "))
	}
	lines := []string{target}
	for _, seat := range p.lose {
		lines = append(lines, seatText(seat)+": no longer has a default")
	}
	return lines
}

// printResult prints what was done.
func (m *mover) printResult(lines ...string) {
	for _, line := range lines {
		if m.options.dryRun {
			line += " (dry run)"
		}
		_, _ = fmt.Fprintln(m.out, truncate.Printable(line))
	}
}
