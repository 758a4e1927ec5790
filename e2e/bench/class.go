package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"
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

// pooled is the i-th class where classes are dealt out to kinds in turn, and each so many that follow are a pool, which thus is spread over
// kinds. A claim that asks for a pool matches so many classes.
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

// key of the class in etcd.
func (c class) key() string { return fmt.Sprintf("/registry/%s/%s/%s", group, plural(c.kind), c.name) }

// managedFields of a class that kubectl has created.
const managedFields = `[{"manager":"kubectl-create","operation":"Update","apiVersion":"` + group + "/" + version + `",` +
	`"time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{` +
	`"f:metadata":{"f:labels":{".":{},"f:pool":{},"f:region":{},"f:tier":{},"f:vendor":{}}},"f:reclaimPolicy":{},` +
	`"f:specTemplate":{".":{},"f:region":{},"f:storageType":{},"f:tier":{}}}}]`

// stored is the class as the API server stores it.
func (c class) stored() ([]byte, error) {
	return json.Marshal(map[string]any{
		"apiVersion": group + "/" + version, "kind": c.kind,
		"metadata": map[string]any{
			"name": c.name, "uid": uuid.NewSHA1(uuid.Nil, []byte(c.key())).String(), "labels": c.labels,
			"generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": json.RawMessage(managedFields),
		},
		"specTemplate":  map[string]any{"tier": "db-custom-2-7680", "region": c.labels["region"], "storageType": "PD_SSD"},
		"reclaimPolicy": "Delete",
	})
}

// fill the cluster with the classes from the first to before the end. They are written
// beside the API server, as it would store them, which takes a twentieth of the time.
func (c *cluster) fill(ctx context.Context, first, end int, at func(int) class) (err error) {
	_, _ = fmt.Fprintf(c.settings.Progress, "creating %d classes\n", end-first)
	etcd, err := etcdclient.New(c.EtcdURL())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, etcd.Close()) }()
	last := map[string]class{}
	for begin := first; begin < end; begin += batch {
		var puts []clientv3.Op
		for i := begin; i < min(begin+batch, end); i++ {
			x := at(i)
			last[x.kind] = x
			stored, err := x.stored()
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

// awaitClass until the API server has it in its cache, where it comes after all of its kind that were written before.
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
