package setdefault

import (
	"fmt"
	"io"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector/brief"
)

// progressInterval, plus one retryInterval, is less than the 2 s after which people
// wonder what happens.
const progressInterval = 1400 * time.Millisecond

// progressWriter reports what the command waits for.
type progressWriter struct {
	out  io.Writer
	last time.Time
}

func (p *progressWriter) printf(format string, args ...any) {
	p.last = time.Now()
	_, _ = fmt.Fprintln(p.out, brief.Printable(fmt.Sprintf(format, args...)))
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
		_, _ = fmt.Fprintln(m.out, brief.Printable(line))
	}
}

// warn prints what keeps claims from the target although it is the default.
func (m *mover) warn(r *registry, kind *classKind, p *plan) {
	if kind.ready != nil && kind.ready.Status != metav1.ConditionTrue {
		m.progress.printf("warning: classbind does not offer the classes of %s (%s): %s", kind.Name, kind.ready.Reason, kind.ready.Message)
	}
	if p.target.Cordoned {
		m.progress.printf("warning: %s is cordoned, and offered to no claim until you run: %s",
			p.target, p.target.annotateCommand(v1alpha1.CordonedAnnotation+"-"))
	}
	for _, name := range p.claimKinds {
		if s := r.claimKinds[name].Strategy; p.target.Weight == 0 && s.Weighted {
			m.progress.printf("warning: %s has weight 0, and is offered to no claim of %s, whose strategy is %s", p.target, name, s.Name)
		}
	}
}
