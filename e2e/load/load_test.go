package load

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestReport(t *testing.T) {
	t.Parallel()
	mark := time.Now()
	at := func(ms int) time.Time { return mark.Add(time.Duration(ms) * time.Millisecond) }
	refused := func(port int) error {
		return fmt.Errorf("failed calling webhook: dial tcp 10.96.1.2:%d: connection refused", port)
	}
	reset := errors.New("read tcp 10.0.0.1:4711->10.96.1.2:443: connection reset")
	var many []creation
	stored := map[string]string{}
	for i := range 100 {
		name := fmt.Sprint("load-", i)
		many = append(many, creation{name: name, due: mark, took: time.Duration(100-i) * time.Millisecond, class: "Class/a"})
		stored[name] = "Class/a"
	}
	for name, tc := range map[string]struct {
		reason    string
		creations []creation
		stored    map[string]string
		want      Report
		last      time.Duration
		text      string
	}{
		"Latencies": {
			reason:    "We should report latencies by rank, in whatever order they came.",
			creations: many, stored: stored,
			want: Report{Creations: 100, P50: 51 * time.Millisecond, P99: 100 * time.Millisecond, Worst: 100 * time.Millisecond},
			text: "100 creations, 0 failed, 0 stored unbound; p50 51.0 ms, p99 100.0 ms, worst 100.0 ms",
		},
		"Failures": {
			reason: "We should group failures by what they have in common, with their first and last time, and not count their latency.",
			creations: []creation{
				{name: "load-0", due: at(-1500), took: time.Second, err: refused(1)},
				{name: "load-1", due: at(-500), took: time.Second, err: reset},
				{name: "load-2", due: at(2000), took: time.Second, err: refused(2)},
				{name: "load-3", due: at(2500), took: time.Millisecond, class: "Class/a"},
			},
			stored: map[string]string{"load-3": "Class/a"},
			want: Report{
				Creations: 4, Failures: 3, P50: time.Millisecond, P99: time.Millisecond, Worst: time.Millisecond,
				Reasons: []Reason{
					{Text: "failed calling webhook: dial tcp …: connection refused", Count: 2, First: -500 * time.Millisecond, Last: 3 * time.Second},
					{Text: "read tcp …: connection reset", Count: 1, First: 500 * time.Millisecond, Last: 500 * time.Millisecond},
				},
			},
			last: 3 * time.Second,
			text: "4 creations, 3 failed, 0 stored unbound; p50 1.0 ms, p99 1.0 ms, worst 1.0 ms\n" +
				"  2 from -0.5 s to +3.0 s: failed calling webhook: dial tcp …: connection refused\n" +
				"  1 from +0.5 s to +0.5 s: read tcp …: connection reset",
		},
		"Stored": {
			reason: "We should go by what is stored: unbound though the answer was an error, another class than was answered, or nothing. " +
				"We should count the claims with a class of others, and those that the load itself was late with.",
			creations: []creation{
				{name: "load-0", due: mark, err: errors.New("timeout")},
				{name: "load-1", due: mark, class: "Class/a"},
				{name: "load-2", due: mark, late: lateness - 1, class: "Class/a"},
				{name: "load-3", due: mark, late: lateness, class: "Class/a", foreign: true},
			},
			stored: map[string]string{"load-0": "", "load-1": "Class/b", "load-3": "Class/a"},
			want:   Report{Creations: 4, Failures: 1, Unbound: 1, Unlike: 2, Foreign: 1, Late: 1, Reasons: []Reason{{Text: "timeout", Count: 1}}},
			text: "4 creations, 1 failed, 1 stored unbound; p50 0.0 ms, p99 0.0 ms, worst 0.0 ms; 2 stored otherwise than answered; 1 with a class of " +
				"others; 1 started late\n" +
				"  1 from +0.0 s to +0.0 s: timeout",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := newReport(tc.creations, tc.stored, mark)
			assert.Equal(t, tc.want, got, tc.reason)
			assert.Equal(t, tc.last, got.LastFailure(), tc.reason)
			assert.Equal(t, tc.text, got.String(), tc.reason)
		})
	}
}

// TestLoad has creations that take longer than the interval between them, and some that fail.
func TestLoad(t *testing.T) {
	t.Parallel()
	group := schema.GroupVersion{Group: "load.test", Version: "v1"}
	kinds := []schema.GroupVersionKind{group.WithKind("Claim"), group.WithKind("Request")}
	var calls atomic.Int32
	c := fake.NewClientBuilder().WithScheme(runtime.NewScheme()).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, o ...client.CreateOption) error {
			n := calls.Add(1)
			time.Sleep(50 * time.Millisecond)
			switch {
			case n%10 == 0:
				return errors.New("no")
			case n%2 == 0: // The answer says less than what is stored.
				return c.Create(ctx, object.DeepCopyObject().(client.Object), o...)
			}
			ref := map[string]any{"kind": "Class", "name": "only"}
			if err := unstructured.SetNestedMap(object.(*unstructured.Unstructured).Object, ref, "spec", "classRef"); err != nil {
				return err
			}
			return c.Create(ctx, object, o...)
		},
	}).Build()
	l := Start(t.Context(), Options{
		Client: c, Kinds: kinds, Namespace: "default", Prefix: "of-a-test-", Spec: map[string]any{"classSelector": map[string]any{}}, PerSecond: 200,
		Foreign: func(class string) bool { return class == "Class/only" },
	})
	require.NoError(t, l.Next(t.Context(), 100), "We should go on whatever becomes of a creation.")
	for _, kind := range kinds {
		assert.NotEmpty(t, listed(t, c, kind), "We should create claims of every kind.")
	}
	l.Mark()
	report, err := l.Stop(t.Context())
	require.NoError(t, err)
	n := int(calls.Load())
	assert.Equal(t, n, report.Creations, "We should count what was started.")
	assert.Equal(t, n/10, report.Failures)
	assert.Equal(t, n/2-n/10, report.Unbound, "We should find what is stored unbound.")
	assert.GreaterOrEqual(t, report.P50, 50*time.Millisecond)
	assert.InDelta(t, n/2, report.Foreign, 1, "We should look at every class that we are given.")
	for _, kind := range kinds {
		assert.Empty(t, listed(t, c, kind), "We should delete the claims.")
	}
}

func listed(t *testing.T, c client.Client, kind schema.GroupVersionKind) []unstructured.Unstructured {
	t.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	require.NoError(t, c.List(t.Context(), list))
	return list.Items
}
