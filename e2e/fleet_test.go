package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/classbind/classbind/e2e/classbind"
)

// fleet is the replicas of classbind under attack: processes with the memory that deploy gives a container, behind one address.
type fleet struct {
	t        *testing.T // It ends the replicas: an attack, which may replace them, is a part of it.
	on       *world
	balancer *classbind.Balancer
	limit    uint64
	replicas []*attacked
}

// attacked is one replica, and what it had used and logged when the present attack began.
type attacked struct {
	*replica
	cpu    float64
	logged int // in bytes
}

// newFleet builds the command without the race detector, which takes several times as much memory and CPU, and gives this process the
// environment that deploy gives the container: the replicas inherit it.
func newFleet(t *testing.T, w *world) *fleet {
	manifest := must(os.ReadFile(filepath.Join(w.deploy, "base", "deployment.yaml")))(t)
	deployment := appsv1.Deployment{}
	require.NoError(t, yaml.UnmarshalStrict(manifest, &deployment))
	container := deployment.Spec.Template.Spec.Containers[0]
	for _, variable := range container.Env {
		t.Setenv(variable.Name, variable.Value)
	}
	f := &fleet{t: t, on: w, limit: uint64(container.Resources.Limits.Memory().Value())} //nolint:gosec // A limit is never negative.
	require.NotZero(t, f.limit, "We should have a limit in deploy.")
	w.command, w.anybody = must(classbind.Build(t.Context(), t.TempDir()))(t), true
	f.balancer = must(classbind.NewBalancer())(t)
	t.Cleanup(func() { _ = f.balancer.Close() })
	for range int(*deployment.Spec.Replicas) {
		f.add()
	}
	return f
}

func (f *fleet) add() {
	r := f.on.serve(f.t, "--webhook-url="+f.balancer.URL, "--shutdown-delay-duration=2s")
	f.replicas = append(f.replicas, &attacked{replica: r})
	f.balancer.Add(strings.TrimPrefix(r.URL, "https://"))
}

// restart all replicas, which an attack has left in a state that would spoil the next.
func (f *fleet) restart() {
	old := f.replicas
	f.replicas = nil
	for _, r := range old {
		f.balancer.Remove(strings.TrimPrefix(r.URL, "https://"))
		r.Kill()
	}
	for range old {
		f.add()
	}
}

// replaceLeader starts a replica and ends the one that leads, as a roll-out does.
func (f *fleet) replaceLeader(t *testing.T) {
	for i, r := range f.replicas {
		if !r.leads(t.Context()) {
			continue
		}
		f.add()
		f.balancer.Remove(strings.TrimPrefix(r.URL, "https://"))
		f.replicas = append(f.replicas[:i], f.replicas[i+1:]...)
		assert.NoError(t, r.Stop(), "We should see the leader end well.")
		return
	}
	assert.Fail(t, "We should have a leader.")
}

var leading = regexp.MustCompile(`(?m)^leader_election_master_status\{name="classbind-leader"\} 1$`)

func (r *attacked) leads(ctx context.Context) bool {
	metrics, err := r.Metrics(ctx)
	return err == nil && leading.Match(metrics)
}

func (f *fleet) begin(t *testing.T) {
	for _, r := range f.replicas {
		// 5 makes the peak what there is now (proc(5)).
		require.NoError(t, os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", r.PID()), []byte("5"), 0))
		r.cpu = r.cpuTime(t)
		r.logged = len(r.log.String())
	}
}

func (r *attacked) cpuTime(t *testing.T) float64 {
	process, err := procfs.NewProc(r.PID())
	require.NoError(t, err, "We should have the same process.")
	stat := must(process.Stat())(t)
	return stat.CPUTime()
}

// used since it was begun to measure: the most memory of a replica, in bytes, and the CPU of all together, in seconds.
func (f *fleet) used(t *testing.T) (peak uint64, cpu float64) {
	for _, r := range f.replicas {
		process, err := procfs.NewProc(r.PID())
		require.NoError(t, err, "We should have the same process.")
		status := must(process.NewStatus())(t)
		peak, cpu = max(peak, status.VmHWM), cpu+r.cpuTime(t)-r.cpu
	}
	return peak, cpu
}

// rest waits until the replicas are ready and have next to nothing to do.
func (f *fleet) rest(t *testing.T) (ok bool) {
	const (
		within = 5 * time.Second
		look   = 500 * time.Millisecond
		idle   = 0.3 // of a core, for all
	)
	used := func() (cpu float64) {
		for _, r := range f.replicas {
			cpu += r.cpuTime(t)
		}
		return cpu
	}
	late := lateness(t)
	pause(t.Context(), look) // The machine is judged first.
	before := used()
	return assert.EventuallyWithT(t, func(c *attempt) {
		now := used()
		cores := (now - before) / look.Seconds()
		before = now
		require.Less(c, cores, idle, "We should see the replicas do nothing more for the attack.")
		for _, r := range f.replicas {
			require.NoError(c, r.Probe(t.Context()), "We should see every replica ready.")
		}
	}, within+stretch*late(), look)
}

// judge the lines that the replica has logged since it was begun to measure, and return what is wrong with them.
func (r *attacked) judge() (wrong []string) {
	const longest = 8 << 10
	for line := range strings.Lines(r.log.String()[r.logged:]) {
		if len(line) > longest {
			wrong = append(wrong, fmt.Sprintf("a line of %d bytes, which begins: %.300s", len(line), line))
		}
		if strings.Contains(line, "labelSelector=") {
			wrong = append(wrong, fmt.Sprintf("a line with the URL of a read: %.300s", line))
		}
	}
	return wrong
}
