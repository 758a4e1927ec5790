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

// batch is how many classes are written in one transaction; etcd allows 128.
const batch = 100

// class of a cluster's.
type class struct {
	kind, name string
	labels     map[string]string
}

// class is the i-th where classes are dealt out to kinds in turn, and each so many that follow are a pool, which thus is spread over kinds.
// A claim that asks for a pool matches so many classes.
func (s *Settings) class(i int, kinds []string) class {
	labels := poolLabels(i / s.matches)
	labels["tier"], labels["vendor"] = []string{"gold", "silver", "bronze"}[i%3], kinds[i%len(kinds)]
	return class{kinds[i%len(kinds)], className(i), labels}
}

func className(i int) string { return fmt.Sprintf("class-%06d", i) }

// poolLabels are what selects a pool.
func poolLabels(pool int) map[string]string {
	return map[string]string{"pool": fmt.Sprintf("pool-%05d", pool), "region": fmt.Sprint("eu-", pool%5)}
}

// key of the class in etcd.
func (c class) key() string { return fmt.Sprintf("/registry/%s/%s/%s", group, plural(c.kind), c.name) }

// managedFields of a class that kubectl has created.
const managedFields = `[{"manager":"kubectl-create","operation":"Update","apiVersion":"` + group + "/" + version + `",` +
	`"time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{` +
	`"f:metadata":{"f:labels":{".":{},"f:pool":{},"f:region":{},"f:tier":{},"f:vendor":{}}},"f:reclaimPolicy":{},` +
	`"f:specTemplate":{".":{},"f:region":{},"f:storageType":{},"f:tier":{}}}}]`

// stored is the class as the API server stores it.
func (c class) stored() string {
	return string(encoded(map[string]any{
		"apiVersion": group + "/" + version, "kind": c.kind,
		"metadata": map[string]any{
			"name": c.name, "uid": uuid.NewSHA1(uuid.Nil, []byte(c.key())).String(), "labels": c.labels,
			"generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": json.RawMessage(managedFields),
		},
		"specTemplate":  map[string]any{"tier": "db-custom-2-7680", "region": c.labels["region"], "storageType": "PD_SSD"},
		"reclaimPolicy": "Delete",
	}))
}

// encoded object of this package.
func encoded(object any) []byte {
	text, err := json.Marshal(object)
	if err != nil {
		panic(err) // All are made of strings and numbers.
	}
	return text
}

// fill the cluster with so many classes of some kinds. They are written beside the API server, as it would store them, which takes a
// twentieth of the time.
func (r *run) fill(ctx context.Context, n int, kinds []string) (err error) {
	etcd, err := etcdclient.New(r.EtcdURL())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, etcd.Close()) }()
	for begin := 0; begin < n; begin += batch {
		var puts []clientv3.Op
		for i := begin; i < min(begin+batch, n); i++ {
			c := r.class(i, kinds)
			puts = append(puts, clientv3.OpPut(c.key(), c.stored()))
		}
		if _, err := etcd.Txn(ctx).Then(puts...).Commit(); err != nil {
			return fmt.Errorf("cannot write classes: %w", err)
		}
	}
	// The API server has the last of a kind in its cache after all others of the kind.
	for i := max(0, n-len(kinds)); i < n; i++ {
		c := r.class(i, kinds)
		err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
			err := r.client.Get().Resource(plural(c.kind)).Name(c.name).Param("resourceVersion", "0").Do(ctx).Error()
			return err == nil, ctrlclient.IgnoreNotFound(err)
		})
		if err != nil {
			return fmt.Errorf("the API server does not know of %s %q: %w", c.kind, c.name, err)
		}
	}
	return nil
}
