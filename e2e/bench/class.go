package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	"github.com/classbind/classbind/e2e/progress"
)

// writers create classes at once: as many as keep an API server busy.
const writers = 16

// class of a cluster's, the i-th of all.
type class struct {
	kind, name string
	labels     map[string]string
}

// pooled is the i-th class where classes are dealt out to kinds in turn, and each
// so many that follow are a pool, which thus is spread over kinds. A claim that
// asks for a pool matches so many classes.
func pooled(i int, kinds []string, matches int) class {
	return class{
		kind: kinds[i%len(kinds)], name: className(i),
		labels: poolLabels(i/matches, map[string]string{"tier": []string{"gold", "silver", "bronze"}[i%3], "vendor": kinds[i%len(kinds)]}),
	}
}

func className(i int) string { return fmt.Sprintf("class-%06d", i) }

// poolLabels are what selects a pool, added to others.
func poolLabels(pool int, labels map[string]string) map[string]string {
	labels["pool"], labels["region"] = fmt.Sprintf("pool-%05d", pool), fmt.Sprint("eu-", pool%5)
	return labels
}

// manifest of the class, as JSON.
func (c class) manifest() ([]byte, error) {
	return json.Marshal(map[string]any{
		"apiVersion": group + "/" + version, "kind": c.kind,
		"metadata":      map[string]any{"name": c.name, "labels": c.labels},
		"specTemplate":  map[string]any{"tier": "db-custom-2-7680", "region": c.labels["region"], "storageType": "PD_SSD"},
		"reclaimPolicy": "Delete",
	})
}

// fill the cluster with the classes from the first to before the end.
func (c *cluster) fill(ctx context.Context, first, end int, class func(int) class) error {
	what := fmt.Sprintf("creating %d classes", end-first)
	_, _ = fmt.Fprintln(c.progress, what)
	next := atomic.Int64{}
	next.Store(int64(first))
	defer progress.Ticking(func() {
		_, _ = fmt.Fprintf(c.progress, "  %s, %d done\n", what, min(int(next.Load()), end)-first)
	})()
	all, ctx := errgroup.WithContext(ctx)
	for range writers {
		all.Go(func() error {
			for i := int(next.Add(1)) - 1; i < end; i = int(next.Add(1)) - 1 {
				if err := c.createClass(ctx, class(i)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return all.Wait()
}

func (c *cluster) createClass(ctx context.Context, x class) error {
	body, err := x.manifest()
	if err != nil {
		return err
	}
	err = c.client.Post().Resource(plural(x.kind)).Body(body).SetHeader("Content-Type", "application/json").Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("cannot create %s %q: %w", x.kind, x.name, err)
	}
	return nil
}

// label a class; the answer is that it is stored.
func (c *cluster) label(ctx context.Context, kind, name, key, value string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]string{key: value}}})
	if err != nil {
		return err
	}
	err = c.client.Patch(types.MergePatchType).Resource(plural(kind)).Name(name).Body(patch).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("cannot label %s %q: %w", kind, name, err)
	}
	return nil
}
