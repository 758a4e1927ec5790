package bench

import (
	"fmt"
	"time"

	"github.com/prometheus/procfs"
)

// process of this host, whose use of it is measured.
type process struct{ pid int }

// cpu that it has used, in user and in kernel mode; the kernel counts in 10 ms.
func (p *process) cpu() (time.Duration, error) {
	proc, err := procfs.NewProc(p.pid)
	if err != nil {
		return 0, fmt.Errorf("cannot measure CPU: %w", err)
	}
	stat, err := proc.Stat()
	if err != nil {
		return 0, fmt.Errorf("cannot measure CPU: %w", err)
	}
	return time.Duration(stat.CPUTime() * float64(time.Second)), nil
}

// cpuOf is what it uses while something is done.
func (p *process) cpuOf(do func() error) (time.Duration, error) {
	before, err := p.cpu()
	if err != nil {
		return 0, err
	}
	if err := do(); err != nil {
		return 0, err
	}
	after, err := p.cpu()
	return after - before, err
}

// memory that it has in RAM now, and the most that it had, in bytes.
func (p *process) memory() (rss, peak int64, err error) {
	proc, err := procfs.NewProc(p.pid)
	if err != nil {
		return 0, 0, fmt.Errorf("cannot measure memory: %w", err)
	}
	status, err := proc.NewStatus()
	if err != nil {
		return 0, 0, fmt.Errorf("cannot measure memory: %w", err)
	}
	return int64(status.VmRSS), int64(status.VmHWM), nil //nolint:gosec // No machine has that much.
}
