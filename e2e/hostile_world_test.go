package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/e2e/controlplane"
	"github.com/classbind/classbind/e2e/controlplane/etcdclient"
)

const (
	hostileGroup = "hostile.test"
	// secret is in the name of each thing of the honest tenant, namespace included. Nobody else may be told of it.
	secret          = "tellnobody"
	honestNamespace = "honest-" + secret
	// tenantA is the namespace of the hostile author of claims and of classes.
	tenantA = "tenant-a"

	manyClasses = 10_000
	// pool is how many classes have the same label: as many as a claim of it has to choose from.
	pool = 20
)

var (
	// offered kinds of class are cluster-scoped, and serve all of boundKinds, as the namespaced Local does.
	offered    = []string{"Alpha", "Beta", "Gamma"}
	boundKinds = map[string]string{
		"AdmitClaim": "{}",
		"DenyClaim":  "{whenUnmatched: Deny}",
		"LaterClaim": "{whenUnmatched: BindLater}",
		"LeastClaim": "{choice: {strategy: LeastClaims}}",
	}
	// freeKind of claim is registered with nobody: what a claim takes without classbind.
	freeKind = hostileKind("FreeClaim")
)

func hostileKind(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: hostileGroup, Version: "v1", Kind: kind}
}

func hostileResource(kind string) string { return strings.ToLower(kind) + "s." + hostileGroup }

// besieged is a cluster with many classes, an honest tenant and a hostile one.
type besieged struct {
	*world
	*fleet
	honest client.Client
	// mallory may write claims and namespaced classes in tenantA, and one class of the cluster.
	mallory *author
	etcd    *clientv3.Client
	// attack under way: it ends when that does. The answers are to whoever is hostile.
	attack  context.Context
	answers *answers
}

func besiege(t *testing.T) *besieged {
	b := &besieged{world: newWorld(t, controlplane.Options{ConnectionPerWebhookCall: true}), answers: &answers{}}
	var err error
	b.etcd, err = etcdclient.New(b.plane.EtcdURL())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, b.etcd.Close()) })
	b.install(t)
	b.honest = b.user(t, "harriet")
	b.mallory = newAuthor(t, b.world, "mallory", func() *answers { return b.answers })
	b.fleet = newFleet(t, b.world)
	b.register(t)
	return b
}

func (b *besieged) install(t *testing.T) {
	crds := []string{"FreeClaim " + hostileResource("FreeClaim") + " Namespaced", "Local " + hostileResource("Local") + " Namespaced", "Part " + hostileResource("Part") + " Namespaced"}
	for kind := range boundKinds {
		crds = append(crds, kind+" "+hostileResource(kind)+" Namespaced")
	}
	for _, kind := range []string{"SeatClaim", "GhostClaim", "FirstClaim", "SecondClaim", "FitClaim", "DenyFitClaim", "PartClaim"} {
		crds = append(crds, kind+" "+hostileResource(kind)+" Namespaced")
	}
	for _, kind := range append([]string{"Red", "Blue", "Ghost", "First", "Second", "Shared", "Zoned"}, offered...) {
		crds = append(crds, kind+" "+hostileResource(kind)+" Cluster")
	}
	b.resources(t, crds...)
	b.apply(t, lateVendor(hostileGroup)+tenant(honestNamespace, "harriet")+tenant(tenantA, "mallory")+oneClass("mallory", "shareds", "contested"))
	classes := map[string]map[string]any{}
	for i := range manyClasses {
		kind, namespace, name := offered[i%len(offered)], "", fmt.Sprintf("class-%05d", i)
		if i%10 == 9 {
			kind, namespace = "Local", fmt.Sprint("tenant-", i/10%8)
		}
		key, object := stored(kind, namespace, name, map[string]string{
			"pool": fmt.Sprintf("pool-%04d", i/pool), "tier": []string{"gold", "silver", "bronze"}[i%3], "region": fmt.Sprint("eu-", i%7), "number": fmt.Sprint(i),
		})
		classes[key] = object
	}
	// What the honest claims ask for: some of everybody's, and some of their own.
	for i := range 10 {
		key, object := stored(offered[i%len(offered)], "", fmt.Sprint("common-", i), map[string]string{"pool": "common"})
		classes[key] = object
		if i < 5 {
			key, object = stored("Local", honestNamespace, fmt.Sprintf("own-%s-%d", secret, i), map[string]string{"pool": "common", "owner": secret})
			classes[key] = object
		}
	}
	b.store(t, classes)
}

func tenant(namespace, user string) string {
	return fmt.Sprintf(`---
apiVersion: v1
kind: Namespace
metadata: {name: %[1]s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {namespace: %[1]s, name: tenant}
rules:
- {apiGroups: [%[2]s], resources: ["*"], verbs: ["*"]}
- {apiGroups: ["", events.k8s.io], resources: [events], verbs: [get, list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {namespace: %[1]s, name: tenant}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: tenant}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: %[3]s}]
`, namespace, hostileGroup, user)
}

func oneClass(user, resource, name string) string {
	return fmt.Sprintf(`---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: one-class}
rules:
- {apiGroups: [%[1]s], resources: [%[2]s], resourceNames: [%[3]s], verbs: [get, update, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: one-class}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: one-class}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: %[4]s}]
`, hostileGroup, resource, name, user)
}

func (b *besieged) register(t *testing.T) {
	var names []string
	manifest := ""
	for kind, spec := range boundKinds {
		names = append(names, hostileResource(kind))
		manifest += claimKind(hostileResource(kind), spec)
	}
	for _, kind := range offered {
		manifest += classKind(hostileResource(kind), "{claimKinds: [{name: "+strings.Join(names, "}, {name: ")+"}]}")
	}
	manifest += classKind(hostileResource("Local"), fmt.Sprintf(ownSpec, strings.Join(names, "}, {name: ")))
	for kind, spec := range fitKinds {
		manifest += claimKind(hostileResource(kind), spec)
	}
	manifest += classKind(hostileResource("Zoned"), "{claimKinds: [{name: "+hostileResource("FitClaim")+"}, {name: "+hostileResource("DenyFitClaim")+"}]}")
	b.zonedClasses(t)
	guarded := map[string]string{
		"Red": "SeatClaim", "Blue": "SeatClaim", "Ghost": "GhostClaim",
		"First": "FirstClaim", "Second": "SecondClaim", "Shared": "FirstClaim, SecondClaim",
	}
	for _, kind := range []string{"SeatClaim", "GhostClaim", "FirstClaim", "SecondClaim"} {
		manifest += claimKind(hostileResource(kind), "{}")
	}
	for kind, serves := range guarded {
		var served []string
		for claim := range strings.SplitSeq(serves, ", ") {
			served = append(served, hostileResource(claim))
		}
		manifest += classKind(hostileResource(kind), "{claimKinds: [{name: "+strings.Join(served, "}, {name: ")+"}]}")
	}
	manifest += claimKind(hostileResource("PartClaim"), `{classes: {partition: {claim: "''", class: class.metadata.labels.part}}}`) +
		classKind(hostileResource("Part"), "{claimKinds: [{name: "+hostileResource("PartClaim")+"}]}")
	b.apply(t, manifest)
	for kind := range boundKinds {
		b.awaitClaims(t, hostileResource(kind))
	}
	for kind := range fitKinds {
		b.awaitClaims(t, hostileResource(kind))
	}
	for kind := range guarded {
		b.awaitGuard(t, hostileGroup, kind, hostileResource(kind))
	}
	b.awaitGuardOf(t, hostileResource("Part"), fmt.Sprintf("apiVersion: %s/v1\nkind: Part\nmetadata: {namespace: %s, name: probe, "+
		"annotations: {resourceclass.crossplane.io/weight: x}}\n", hostileGroup, tenantA))
	b.awaitClasses(t, hostileResource("Local"), manyClasses/10+5)
}

func (b *besieged) user(t *testing.T, name string) client.Client {
	kubeconfig := must(b.plane.UserKubeconfig(name))(t)
	config := must(clientcmd.BuildConfigFromFlags("", kubeconfig))(t)
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	// He may ask for no CRD: it is told which kinds there are.
	c := must(client.New(config, client.Options{Scheme: runtime.NewScheme(), Mapper: b.RESTMapper()}))(t)
	return c
}

// stored is the key of an object in etcd, and the object as it is there.
func stored(kind, namespace, name string, labels map[string]string) (key string, object map[string]any) {
	metadata := map[string]any{
		"name": name, "uid": string(uuid.NewUUID()), "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z", "labels": labels,
	}
	path := []string{"/registry", hostileGroup, strings.ToLower(kind) + "s"}
	if namespace != "" {
		metadata["namespace"] = namespace
		path = append(path, namespace)
	}
	return strings.Join(append(path, name), "/"), map[string]any{"apiVersion": hostileGroup + "/v1", "kind": kind, "metadata": metadata}
}

// store objects past the API server, as quickly as etcd takes them, and whatever
// webhooks would say: somebody may have stored them when there were none.
func (b *besieged) store(t *testing.T, objects map[string]map[string]any) {
	b.write(t, slices.Collect(maps.Keys(objects)), func(key string) error {
		value, err := json.Marshal(objects[key])
		if err == nil {
			_, err = b.etcd.Put(t.Context(), key, string(value))
		}
		return err
	})
}

func (b *besieged) forget(t *testing.T, kind string) {
	prefix := "/registry/" + hostileGroup + "/" + strings.ToLower(kind) + "s/" + tenantA + "/"
	all := must(b.etcd.Get(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly()))(t)
	keys := make([]string, len(all.Kvs))
	for i, of := range all.Kvs {
		keys[i] = string(of.Key)
	}
	b.write(t, keys, func(key string) error {
		_, err := b.etcd.Delete(t.Context(), key)
		return err
	})
}

// write the objects with these keys, each in a revision of its own, as an API server does. What shares a revision shares a resourceVersion,
// and a watch that goes on from there after the API server ended it never shows the others.
func (b *besieged) write(t *testing.T, keys []string, write func(key string) error) {
	var writes errgroup.Group
	writes.SetLimit(16)
	for _, key := range keys {
		writes.Go(func() error { return write(key) })
	}
	require.NoError(t, writes.Wait())
}
