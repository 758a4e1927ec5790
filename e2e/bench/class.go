package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/e2e/controlplane/etcdclient"
)

// batch is how many classes are written in one transaction, of which etcd allows 128.
const batch = 100

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

// manifest of the class.
func (c class) manifest() map[string]any {
	return map[string]any{
		"apiVersion": group + "/" + version, "kind": c.kind,
		"metadata":      map[string]any{"name": c.name, "labels": c.labels},
		"specTemplate":  map[string]any{"tier": "db-custom-2-7680", "region": c.labels["region"], "storageType": "PD_SSD"},
		"reclaimPolicy": "Delete",
	}
}

// key of the class in etcd.
func (c class) key() string { return fmt.Sprintf("/registry/%s/%s/%s", group, plural(c.kind), c.name) }

// stored is the class as the API server would store it, by another of its kind that it
// did store.
func (c class) stored(other *unstructured.Unstructured) ([]byte, error) {
	copied := other.DeepCopy()
	for field, value := range c.manifest() {
		if field != "metadata" {
			copied.Object[field] = value
		}
	}
	copied.SetName(c.name)
	copied.SetUID(uuid.NewUUID())
	copied.SetLabels(c.labels)
	return copied.MarshalJSON()
}

// fill the cluster with the classes from the first to before the end. The API server
// stores the first of each kind. The others are written beside it, as it would store
// them, which takes a twentieth of the time.
func (c *cluster) fill(ctx context.Context, first, end int, at func(int) class) (err error) {
	_, _ = fmt.Fprintf(c.progress, "creating %d classes\n", end-first)
	etcd, err := etcdclient.New(c.EtcdURL())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, etcd.Close()) }()
	byKind, last := map[string]*unstructured.Unstructured{}, map[string]class{}
	for begin := first; begin < end; begin += batch {
		var puts []clientv3.Op
		for i := begin; i < min(begin+batch, end); i++ {
			x := at(i)
			last[x.kind] = x
			if byKind[x.kind] == nil {
				if byKind[x.kind], err = c.createClass(ctx, etcd, x); err != nil {
					return err
				}
				continue
			}
			stored, err := x.stored(byKind[x.kind])
			if err != nil {
				return err
			}
			puts = append(puts, clientv3.OpPut(x.key(), string(stored)))
		}
		if _, err := etcd.Txn(ctx).Then(puts...).Commit(); err != nil {
			return fmt.Errorf("cannot write classes: %w", err)
		}
	}
	for _, x := range last {
		if err := c.awaitClass(ctx, x); err != nil {
			return err
		}
	}
	return nil
}

// createClass and return it as it is stored.
func (c *cluster) createClass(ctx context.Context, etcd *clientv3.Client, x class) (*unstructured.Unstructured, error) {
	body, err := json.Marshal(x.manifest())
	if err != nil {
		return nil, err
	}
	err = c.client.Post().Resource(plural(x.kind)).Body(body).SetHeader("Content-Type", "application/json").Do(ctx).Error()
	if err != nil {
		return nil, fmt.Errorf("cannot create %s %q: %w", x.kind, x.name, err)
	}
	return storedClass(ctx, etcd, x)
}

// storedClass is a class as etcd has it.
func storedClass(ctx context.Context, etcd *clientv3.Client, x class) (*unstructured.Unstructured, error) {
	response, err := etcd.Get(ctx, x.key())
	if err != nil {
		return nil, fmt.Errorf("cannot read a class: %w", err)
	}
	if len(response.Kvs) == 0 {
		return nil, fmt.Errorf("there is no class at %s", x.key())
	}
	stored := &unstructured.Unstructured{}
	if err := stored.UnmarshalJSON(response.Kvs[0].Value); err != nil {
		return nil, fmt.Errorf("cannot read the class at %s: %w", x.key(), err)
	}
	return stored, nil
}

// awaitClass until the API server has it in its cache, where it comes after all of its
// kind that were written before.
func (c *cluster) awaitClass(ctx context.Context, x class) error {
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		err := c.client.Get().Resource(plural(x.kind)).Name(x.name).Param("resourceVersion", "0").Do(ctx).Error()
		return err == nil, ctrlclient.IgnoreNotFound(err)
	})
	if err != nil {
		return fmt.Errorf("the API server does not know of %s %q: %w", x.kind, x.name, err)
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
