package compare

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/e2e/load"
)

// measureDraws of one pool, in which one class has a weight of 3 and nine have 1. They are dry runs.
func (w *world) measureDraws(ctx context.Context, c *contender) (string, error) {
	var mu sync.Mutex
	drawn := map[string]int{}
	names := make([]string, w.settings.Draws)
	for i, random := 0, rand.New(rand.NewPCG(1, 2)); i < len(names); i++ { //nolint:gosec // All draw for the same names in each run.
		names[i] = fmt.Sprintf("orders-%08x", random.Uint32())
	}
	err := load.InParallel(ctx, 8, len(names), func(ctx context.Context, i int) error {
		class, err := w.createClaim(ctx, c, claim(c.kind, names[i], "pool-0"), metav1.DryRunAll)
		mu.Lock()
		defer mu.Unlock()
		drawn[class]++
		return err
	})
	counts, weights := make([]int, poolSize), make([]int, poolSize)
	for i := range poolSize {
		counts[i], weights[i] = drawn[fmt.Sprintf("class-%03d", i)], weight(i)
	}
	return fmt.Sprintf("%.1f", chiSquare(counts, weights)), err
}

// chiSquare of counts, which are expected in proportion to weights.
func chiSquare(counts, weights []int) (sum float64) {
	total, weight := 0, 0
	for i := range counts {
		total, weight = total+counts[i], weight+weights[i]
	}
	for i, count := range counts {
		expected := float64(total*weights[i]) / float64(weight)
		sum += (float64(count) - expected) * (float64(count) - expected) / expected
	}
	return sum
}

// measureRepeats creates each claim twice, the first time perhaps in a dry run, and counts those that have the same class. What is stored
// is deleted. Connections to replicas are cut in between, so that another replica is asked each time.
func (w *world) measureRepeats(names string, dryRun bool) measure {
	return func(ctx context.Context, c *contender) (string, error) {
		same := 0
		for i := range w.settings.Repeated {
			var classes [2]string
			name := fmt.Sprintf("%s-%d", names, i)
			for n := range classes {
				if c.server != nil {
					c.server.balancer.Cut()
				}
				var options []string
				if dryRun && n == 0 {
					options = []string{metav1.DryRunAll}
				}
				body := claim(c.kind, name, fmt.Sprint("pool-", i%pools))
				var err error
				classes[n], err = w.createClaim(ctx, c, body, options...)
				for try := 0; apierrors.IsInternalError(err) && try < 5; try++ { // The API server used a connection again.
					classes[n], err = w.createClaim(ctx, c, body, options...)
				}
				if err == nil && options == nil {
					err = w.client.Delete().Namespace(namespace).Resource(c.resource()).Name(name).Do(ctx).Error()
				}
				if err != nil {
					return "", err
				}
			}
			if classes[0] == classes[1] {
				same++
			}
		}
		return fmt.Sprint(same), nil
	}
}

// measureUnmatched keeps what the author reads of a claim that no class matches.
func (w *world) measureUnmatched(ctx context.Context) error {
	for _, c := range w.contenders {
		w.unmatched += c.name + ":\n"
		if _, err := w.createClaim(ctx, c, claim(c.kind, "orders", "pool-99"), metav1.DryRunAll); err != nil {
			w.unmatched += err.Error()
		}
		w.unmatched += "\n\n"
	}
	return ctx.Err()
}
