package compare

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/classbind/classbind/e2e/classbind"
	"github.com/classbind/classbind/e2e/controlplane"
)

const (
	group    = "compare.test"
	version  = "v1"
	patience = 2 * time.Minute
	// Namespaces of claims: that of the restarts is emptied after each.
	namespace, ofRestarts = "default", "restarts"
	// Of the classes, each poolSize that follow are a pool, which a claim selects. The first of a pool has the weight heavy, the others 1.
	pools, poolSize, heavy = 10, 10, 3
)

// What a cluster admin applies. Readers find it beside this file.
var (
	//go:embed manifests/classbind.yaml
	forClassbind string
	//go:embed manifests/kyverno.yaml
	forKyverno string
	//go:embed manifests/policy.yaml
	forPolicy string
)

// world is a control plane with classes, and all contenders at once. What is compared takes turns.
type world struct {
	*controlplane.ControlPlane
	settings   Settings
	client     *rest.RESTClient
	baseline   *contender
	contenders []*contender
	services   []*service
	// rows of the table, and what authors read, as they are measured.
	rows, unmatched string
}

// contender gives claims of a kind of its own a class.
type contender struct {
	name, kind string
	// server is nil where no process is asked.
	server *service
}

// start all, and return once each contender gives a claim a class. The caller stops it, also after an error.
func (w *world) start(ctx context.Context) (err error) {
	o := controlplane.Options{Progress: w.settings.Progress, ConnectionPerWebhookCall: true}
	if w.ControlPlane, err = controlplane.Start(ctx, o); err != nil {
		return err
	}
	if w.client, err = w.Client(group, version); err != nil {
		return err
	}
	ofClassbind, err := w.newClassbind(ctx)
	if err != nil {
		return err
	}
	ofKyverno, err := w.newKyverno(ctx)
	if err != nil {
		return err
	}
	w.baseline = &contender{name: "baseline", kind: "FreeClaim"}
	w.contenders = []*contender{
		{name: "classbind", kind: "ClassbindClaim", server: ofClassbind},
		{name: "Kyverno, listing", kind: "ListClaim", server: ofKyverno},
		{name: "Kyverno, from memory", kind: "CacheClaim", server: ofKyverno},
		{name: "MutatingAdmissionPolicy", kind: "PolicyClaim"},
	}
	if err := w.create(ctx, w.kinds()); err != nil {
		return err
	}
	if err := w.kubectl(ctx, "", "wait", "--for=condition=Established", "crd", "--all"); err != nil {
		return err
	}
	// A watch on a kind is refused before its CRD is established, so the servers start after it.
	if err := w.create(ctx, classes()+forClassbind+"---\n"+forPolicy); err != nil {
		return err
	}
	if err := errors.Join(ofClassbind.add(ctx), ofKyverno.add(ctx)); err != nil {
		return err
	}
	if err := w.create(ctx, forKyverno); err != nil { // Kyverno checks its policies in a webhook.
		return err
	}
	for _, c := range w.contenders {
		if err := w.await(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// kinds of class and of claims, all alike.
func (w *world) kinds() string {
	const claim = `{type: object, properties: {spec: {type: object, properties: {
       classSelector: {type: object, properties: {matchLabels: {type: object, additionalProperties: {type: string}}}},
       classRef: {type: object, properties: {apiVersion: {type: string}, kind: {type: string}, name: {type: string}}},
       engineVersion: {type: string}, storageGB: {type: integer, minimum: 1}}}}}`
	manifest := []string{
		"apiVersion: v1\nkind: Namespace\nmetadata: {name: " + ofRestarts + "}\n",
		classbind.CRD("DatabaseClass", "databaseclasses."+group, "Cluster", classbind.AnySchema),
	}
	for _, c := range w.all() {
		manifest = append(manifest, classbind.CRD(c.kind, c.resource()+"."+group, "Namespaced", claim))
	}
	return strings.Join(manifest, "")
}

// all contenders, after the baseline.
func (w *world) all() []*contender { return append([]*contender{w.baseline}, w.contenders...) }

func (c *contender) resource() string { return strings.ToLower(c.kind) + "s" }

// classes, and the list of them that a MutatingAdmissionPolicy needs.
func classes() string {
	var manifest strings.Builder
	lists := map[string]string{}
	for i := range pools * poolSize {
		pool, name := i/poolSize, fmt.Sprintf("class-%03d", i)
		_, _ = fmt.Fprintf(&manifest, "---\napiVersion: %s/%s\nkind: DatabaseClass\nmetadata:\n  name: %s\n"+
			"  labels: {pool: pool-%d, region: eu}\n  annotations: {classbind.io/weight: \"%d\"}\nspec: {tier: db-custom-2-7680}\n",
			group, version, name, pool, weight(i))
		lists[fmt.Sprint("pool-", pool)] += strings.Repeat(","+name, weight(i))
	}
	manifest.WriteString("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: classes, namespace: " + namespace + "}\ndata:\n")
	for pool, list := range lists {
		_, _ = fmt.Fprintf(&manifest, "  %s: %q\n", pool, list[1:])
	}
	return manifest.String() + "---\n"
}

// weight of the i-th class.
func weight(i int) int {
	if i%poolSize == 0 {
		return heavy
	}
	return 1
}

// await until claims of the contender are bound: the API server learns a little later of what it has stored.
func (w *world) await(ctx context.Context, c *contender) error {
	var why error
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		_, why = w.createClaim(ctx, c, claim(c.kind, "probe", "pool-0"), metav1.DryRunAll)
		return why == nil, nil
	})
	if err != nil {
		return fmt.Errorf("%s: no claim is bound: %w: %w", c.name, err, why)
	}
	return nil
}

// claim of a kind that asks for a pool, as JSON.
func claim(kind, name, pool string) []byte {
	body, err := json.Marshal(map[string]any{
		"apiVersion": group + "/" + version, "kind": kind,
		"metadata": map[string]any{"name": name, "namespace": namespace},
		"spec":     spec(pool),
	})
	if err != nil {
		panic(err) // It is made of strings.
	}
	return body
}

func spec(pool string) map[string]any {
	return map[string]any{
		"classSelector": map[string]any{"matchLabels": map[string]any{"pool": pool, "region": "eu"}},
		"engineVersion": "16", "storageGB": int64(20),
	}
}

var errUnbound = errors.New("the claim is stored without a class")

// createClaim and return the class in the answer. Only the baseline may have none.
func (w *world) createClaim(ctx context.Context, c *contender, body []byte, dryRun ...string) (class string, err error) {
	request := w.client.Post().Namespace(namespace).Resource(c.resource()).Body(body).SetHeader("Content-Type", "application/json")
	for _, d := range dryRun {
		request.Param("dryRun", d)
	}
	result := request.Do(ctx)
	if err := result.Error(); err != nil {
		return "", err
	}
	answer, err := result.Raw()
	if err != nil {
		return "", err
	}
	_, after, _ := bytes.Cut(answer, []byte(`"classRef":`))
	_, after, _ = bytes.Cut(after, []byte(`"name":"`))
	name, _, _ := bytes.Cut(after, []byte(`"`))
	if len(name) == 0 && c != w.baseline {
		err = errUnbound
	}
	return string(name), err
}

func (w *world) kubectl(ctx context.Context, in string, args ...string) error {
	_, _, err := w.Kubectl(ctx, strings.NewReader(in), args...)
	return err
}

func (w *world) create(ctx context.Context, manifest string) error {
	return w.kubectl(ctx, manifest, "create", "-f", "-")
}

// stop everything that runs.
func (w *world) stop() error {
	var errs []error
	for _, s := range w.services {
		errs = append(errs, s.stop())
	}
	if w.ControlPlane != nil {
		errs = append(errs, w.Stop())
	}
	return errors.Join(errs...)
}
