package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/e2e/controlplane"
	"github.com/classbind/classbind/e2e/controlplane/etcdclient"
	"github.com/classbind/classbind/e2e/load"
)

const (
	attackTime = 5 * time.Second
	// honestRate of claims in a second, and how long one may take to be created and bound.
	honestRate    = 20
	honestLatency = 500 * time.Millisecond
)

type attack struct {
	name, reason string
	do           func(*besieged, *testing.T)
	// statuses that the attacker's requests may be answered with.
	statuses []int
}

// attacks are by authors of claims, authors of classes, and pods that reach the
// port of the replicas. The first is no attack: it shows what the machine is able to.
func attacks() []attack {
	const (
		ok, created, malformed, forbidden = http.StatusOK, http.StatusCreated, http.StatusBadRequest, http.StatusForbidden
		conflict, tooLarge                = http.StatusConflict, http.StatusRequestEntityTooLarge
		invalid, failed, unavailable      = http.StatusUnprocessableEntity, http.StatusInternalServerError, http.StatusServiceUnavailable
		tooMany                           = http.StatusTooManyRequests
	)
	all, admit := []string{"AdmitClaim", "DenyClaim", "LaterClaim", "LeastClaim"}, []string{"AdmitClaim"}
	return []attack{
		{"Nothing", "We should serve honest claims on this machine when nobody attacks.", func(*besieged, *testing.T) {}, nil},
		{
			"EmptyTerms",
			"We should refuse a selector of terms that say nothing, at little cost.",
			claimAgain(4, 50*time.Millisecond, all, []string{expressions("{}", 4000), expressions(`{"key":"","operator":""}`, 5000)}, ""),
			[]int{invalid},
		},
		{"PoisonedClaims", "We should bind waiting claims beside poisoned ones, whoever leads.", (*besieged).poisonedClaims, nil},
		{"ForgedCreations", "We should bear forged creations of default classes.", (*besieged).forgedCreations, []int{ok, unavailable}},
		{"ForgedClaims", "We should bear forged creations of claims.", (*besieged).forgedClaims, []int{ok, unavailable}},
		{"IdleConnections", "We should bear connections on which nothing comes, or little.", (*besieged).idleConnections, nil},
		{"BigBodies", "We should bear reviews that fill the memory.", (*besieged).bigBodies, []int{ok, malformed, tooLarge, unavailable}},
		{
			"LongAnnotation",
			"We should refuse an annotation of a hundred thousand terms, at little cost.",
			claimAgain(4, 100*time.Millisecond, admit, []string{""}, selectorAnnotation(strings.Repeat("!a,", 80_000)+"!a")),
			[]int{invalid},
		},
		{
			"LargeSelector",
			"We should refuse a selector of megabytes, at little cost.",
			claimAgain(5, 2*time.Second, admit, []string{expressions(values(220_000), 1)}, ""),
			[]int{invalid},
		},
		{"Misses", "We should have few claims wait that nothing matches.", (*besieged).misses, []int{created, forbidden}},
		{"ManyMisses", "We should answer other claims beside a thousand a second that nothing matches.", (*besieged).manyMisses, []int{ok}},
		{"WaitingClaims", "We should bound the memory of claims that wait.", (*besieged).waitingClaims, nil},
		{"AttractiveClass", "We should keep tenants apart.", (*besieged).attractiveClass, []int{ok, created, forbidden}},
		{
			"EscapedClaim",
			"We should admit a claim that is six times as long in a review.",
			claimAgain(1, time.Second, admit, []string{`"classSelector":{"matchLabels":{"pool":"common"}},"note":"` + strings.Repeat("<", 750<<10) + `"`}, ""),
			[]int{created},
		},
		{"LongClaims", "We should let claims pay for what their expressions cost.", (*besieged).longClaims, []int{created, forbidden, invalid, tooMany}},
		{"Prices", "We should let claims pay for each function, by the length of what it gets.", (*besieged).prices, []int{created, invalid, tooMany}},
		{
			"PricesDenied",
			"We should refuse at once what we refuse alone, although we may be passed by.",
			(*besieged).pricesDenied,
			[]int{forbidden, invalid, tooMany},
		},
		{"Patterns", "We should let registrations pay for what they take to compile.", (*besieged).patterns, []int{ok, unavailable}},
		{"Oracle", "We should answer as if there were no class that a claim may not use.", (*besieged).oracle, []int{ok, created, invalid}},
		{"ContestedClass", "We should let the honest admin set a default while others fail to.", (*besieged).contestedClass, []int{forbidden, conflict}},
	}
}

// TestHostile attacks classbind in all ways that we know while an honest tenant
// creates claims. It has the machine to itself, since it measures.
func TestHostile(t *testing.T) {
	long(t)
	notInPods(t, "It needs a control plane of its own, with replicas as processes beside it.")
	b := besiege(t)
	var rows []*hostileRow
	t.Cleanup(func() { t.Logf("The limit of memory is %d MiB.\n%s", b.limit>>20, hostileTable(rows)) })
	for _, a := range attacks() {
		t.Run(a.name, func(t *testing.T) {
			row := &hostileRow{attack: a.name}
			rows = append(rows, row)
			b.bear(t, a, row)
		})
	}
}

// bear an attack, and judge what honest users had of it.
func (b *besieged) bear(t *testing.T, a attack, row *hostileRow) {
	b.answers = &answers{}
	b.begin(t)
	bound := []schema.GroupVersionKind{hostileKind("FitClaim")}
	for kind := range boundKinds {
		bound = append(bound, hostileKind(kind))
	}
	honest := b.claims(t, "claim-"+secret+"-", bound, func(class string) bool {
		_, name, _ := strings.Cut(class, "/")
		return !strings.HasPrefix(name, "common-") && !strings.HasPrefix(name, "own-"+secret)
	})
	control := b.claims(t, "control-", []schema.GroupVersionKind{freeKind}, nil)
	defer func() { row.failed = t.Failed() }()
	defer func() { // Also if the attack stopped the test.
		b.judge(t, a, row, honest, control)
		if !b.rest(t) {
			b.restart()
		}
	}()
	require.NoError(t, honest.Next(t.Context(), honestRate))
	var cancel context.CancelFunc
	b.attack, cancel = context.WithTimeout(t.Context(), attackTime)
	defer cancel()
	a.do(b, t)
	<-b.attack.Done()
	require.NoError(t, honest.Next(t.Context(), honestRate))
}

func (b *besieged) claims(t *testing.T, prefix string, kinds []schema.GroupVersionKind, foreign func(string) bool) *load.Load {
	return load.Start(t.Context(), load.Options{
		Client: b.honest, Kinds: kinds, Namespace: honestNamespace, Prefix: prefix, PerSecond: honestRate, Foreign: foreign,
		Spec: map[string]any{"classSelector": map[string]any{"matchLabels": map[string]any{"pool": "common"}}},
	})
}

func (b *besieged) judge(t *testing.T, a attack, row *hostileRow, honest, control *load.Load) {
	row.peak, row.cpu = b.used(t)
	row.control = must(control.Stop(t.Context()))(t)
	row.honest = must(honest.Stop(t.Context()))(t)
	row.answers = b.answers.String()

	if limit, fit := row.allowed(); fit {
		assert.Zero(t, row.honest.Failures, "%s No honest claim should fail.", a.reason)
		assert.LessOrEqual(t, row.honest.Worst, limit, "%s No honest claim should take longer than this.", a.reason)
	} else {
		t.Log("This machine was too busy to tell how honest claims fared.")
	}
	assert.Zero(t, row.honest.Unbound+row.honest.Unlike, "%s Every honest claim should be bound.", a.reason)
	assert.Zero(t, row.honest.Foreign, "%s No honest claim should get a class of others.", a.reason)
	t.Logf("Honest claims: %s\nWithout classbind: %s", row.honest, row.control)
	assert.LessOrEqual(t, row.peak, b.limit, "%s No replica should need more memory than deploy gives it.", a.reason)
	assert.Empty(t, b.answers.judge(a.statuses), a.reason)
	for _, r := range b.replicas {
		assert.Empty(t, r.judge(), "%s No line of the log should be as long as its author likes, nor have a URL in it.", a.reason)
	}
	b.toldNothing(t)
}

// toldNothing looks into the events that the hostile tenant may read.
func (b *besieged) toldNothing(t *testing.T) {
	events := &eventsv1.EventList{}
	require.NoError(t, b.List(t.Context(), events, client.InNamespace(tenantA)))
	for _, event := range events.Items {
		assert.NotContains(t, event.Note, secret, "We should reveal nothing of others in an event.")
	}
}

// hostileRow is what became of the honest claims in an attack.
type hostileRow struct {
	attack string
	honest load.Report
	// control are claims with which classbind has nothing to do, created at the same time.
	control load.Report
	// peak of a replica's memory in bytes, and CPU of all of them in seconds.
	peak    uint64
	cpu     float64
	answers string
	failed  bool
}

// allowed is how long an honest claim may take. Where one with which classbind has nothing to do was slow at the same time, and classbind
// did little, then it was the machine, etcd or the API server that was slow, and the honest claim may be slower, too: it takes two calls
// where the other takes one. It is not fit to judge by at all when even that is as long as the API server waits for a webhook.
func (r *hostileRow) allowed() (limit time.Duration, fit bool) {
	const (
		slow   = 100 * time.Millisecond
		unfit  = time.Second
		little = 0.7 // of a core
	)
	took := float64(r.honest.Creations) / honestRate // in seconds
	if r.control.Worst < slow || r.cpu > little*took {
		return honestLatency, true
	}
	return honestLatency + 2*r.control.Worst, r.control.Worst < unfit
}

func hostileTable(rows []*hostileRow) string {
	var text strings.Builder
	out := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(out, "attack\thonest claims\tfailed\tp50\tp99\tmax\tallowed\twithout classbind: p99\tmax\tRSS\tCPU\tattacker's answers\t")
	ms := func(d time.Duration) string { return fmt.Sprintf("%.0f ms", load.Milliseconds(d)) }
	for _, r := range rows {
		failed, limit := "", "busy"
		if r.failed {
			failed = "FAILED"
		}
		if allowed, fit := r.allowed(); fit {
			limit = ms(allowed)
		}
		_, _ = fmt.Fprintf(out, "%s\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%d MiB\t%.1f s\t%s\t%s\n", r.attack, r.honest.Creations, r.honest.Failures,
			ms(r.honest.P50), ms(r.honest.P99), ms(r.honest.Worst), limit, ms(r.control.P99), ms(r.control.Worst), r.peak>>20, r.cpu, r.answers, failed)
	}
	_ = out.Flush()
	return text.String()
}

// answers are all that an attacker gets in an attack.
type answers struct {
	mu       sync.Mutex
	statuses map[int]int // 0 is for none
	texts    map[int]string
	longest  int
	told     []string
}

func (a *answers) add(status int, text string) {
	const shown = 400
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.statuses == nil {
		a.statuses, a.texts = map[int]int{}, map[int]string{}
	}
	a.statuses[status]++
	a.texts[status] = text[:min(len(text), shown)]
	if status >= http.StatusBadRequest { // What is created is repeated.
		a.longest = max(a.longest, len(text))
	}
	if i := strings.Index(text, secret); i >= 0 && len(a.told) < 5 {
		a.told = append(a.told, text[max(0, i-shown/2):min(len(text), i+shown/2)])
	}
}

func (a *answers) judge(allowed []int) (wrong []string) {
	// longest refusal: it should not repeat all that was sent.
	const longest = 32 << 10
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, text := range a.told {
		wrong = append(wrong, fmt.Sprintf("it tells of others: …%s…", text))
	}
	for _, status := range slices.Sorted(maps.Keys(a.statuses)) {
		if !slices.Contains(allowed, status) {
			wrong = append(wrong, fmt.Sprintf("%d answers of status %d, the last: %s", a.statuses[status], status, a.texts[status]))
		}
	}
	if a.longest > longest {
		wrong = append(wrong, fmt.Sprintf("an answer is %d bytes long", a.longest))
	}
	return wrong
}

func (a *answers) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var parts []string
	for _, status := range slices.Sorted(maps.Keys(a.statuses)) {
		parts = append(parts, fmt.Sprintf("%d×%d", a.statuses[status], status))
	}
	return strings.Join(parts, " ")
}

// author sends what no client would: to the API server, or, as a stranger, to a replica.
type author struct {
	url    string // of the API server
	client *http.Client
	to     func() *answers
}

func (w *world) userConfig(t *testing.T, name string) *rest.Config {
	return must(clientcmd.BuildConfigFromFlags("", must(w.plane.UserKubeconfig(name))(t)))(t)
}

// send a body, and keep the answer. Without one before the attack ends, it is empty; without one in time, its status is 0.
func (a *author) send(ctx context.Context, method, url, contentType, body string) (status int, text string) {
	const inTime = 15 * time.Second // Longer than any deadline of the server.
	limited, cancel := context.WithTimeout(ctx, inTime)
	defer cancel()
	status, text, err := exchange(limited, a.client, method, url, contentType, body)
	if ctx.Err() != nil {
		return status, text
	}
	if err != nil {
		text = err.Error()
	}
	a.to().add(status, text)
	return status, text
}

// exchange a request for an answer with its warnings.
func exchange(ctx context.Context, c *http.Client, method, url, contentType, body string) (status int, text string, err error) {
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Content-Type", contentType)
	response, err := c.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	var all bytes.Buffer
	for _, warning := range response.Header.Values("Warning") {
		all.WriteString(warning + "\n")
	}
	if _, err := io.Copy(&all, response.Body); err != nil {
		return 0, "", err
	}
	return response.StatusCode, all.String(), nil
}

// create an object of a kind in tenantA from its JSON. With dryRun, nothing is stored.
func (a *author) create(ctx context.Context, kind string, dryRun bool, object string) (int, string) {
	path := fmt.Sprintf("/apis/%s/v1/namespaces/%s/%ss", hostileGroup, tenantA, strings.ToLower(kind))
	if dryRun {
		path += "?dryRun=All"
	}
	return a.send(ctx, http.MethodPost, a.url+path, "application/json", object)
}

func claimOf(kind, name, spec, annotations string) string {
	return fmt.Sprintf(`{"apiVersion":"%s/v1","kind":%q,"metadata":{"namespace":%q,"name":%q,"annotations":{%s}},"spec":{%s}}`,
		hostileGroup, kind, tenantA, name, annotations, spec)
}

// attackers do something again and again until the context ends, so many at once,
// each with a pause after it has. They learn which time of all it is.
func attackers(ctx context.Context, n int, rest time.Duration, do func(i int)) {
	var all sync.WaitGroup
	for first := range n {
		all.Go(func() {
			for i := first; ctx.Err() == nil; i += n {
				do(i)
				pause(ctx, rest)
			}
		})
	}
	all.Wait()
}

const (
	hostileGroup = "hostile.test"
	// secret is in the name of each thing of the honest tenant, namespace included. No one else may learn it.
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
	// freeKind of claim is not registered: what a claim takes without classbind.
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
	// attack under way: it ends when that does. The answers are to the attacker.
	attack  context.Context
	answers *answers
}

func besiege(t *testing.T) *besieged {
	b := &besieged{world: newWorld(t, controlplane.Options{ConnectionPerWebhookCall: true}), answers: &answers{}}
	b.etcd = must(etcdclient.New(b.plane.EtcdURL()))(t)
	t.Cleanup(func() { assert.NoError(t, b.etcd.Close()) })
	b.install(t)
	b.honest = b.user(t, "harriet")
	mallory := b.userConfig(t, "mallory")
	b.mallory = &author{url: strings.TrimSuffix(mallory.Host, "/"), client: must(rest.HTTPClientFor(mallory))(t), to: func() *answers { return b.answers }}
	b.fleet = newFleet(t, b.world)
	b.register(t)
	return b
}

func (b *besieged) install(t *testing.T) {
	var crds []string
	for scope, kinds := range map[string]string{
		"Namespaced": "Local FreeClaim AdmitClaim DenyClaim LaterClaim LeastClaim GhostClaim FirstClaim SecondClaim FitClaim DenyFitClaim " +
			"PricedClaim DenyPricedClaim UseClaim",
		"Cluster": "Ghost First Second Shared Zoned Priced Usable Alpha Beta Gamma",
	} {
		for kind := range strings.FieldsSeq(kinds) {
			crds = append(crds, kind+" "+hostileResource(kind)+" "+scope)
		}
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
	resources := func(kinds ...string) (names []string) {
		for _, kind := range kinds {
			names = append(names, hostileResource(kind))
		}
		return names
	}
	bound := resources(slices.Collect(maps.Keys(boundKinds))...)
	served := map[string][]string{
		"Zoned": {"FitClaim", "DenyFitClaim"}, "Priced": {"PricedClaim", "DenyPricedClaim"}, "Usable": {"UseClaim"}, "Ghost": {"GhostClaim"},
		"First": {"FirstClaim"}, "Second": {"SecondClaim"}, "Shared": {"FirstClaim", "SecondClaim"},
	}
	manifest := ""
	for _, kinds := range []map[string]string{
		boundKinds, fitKinds, pricedKinds, {"GhostClaim": "{}", "FirstClaim": "{}", "SecondClaim": "{}", "UseClaim": useSpec},
	} {
		for kind, spec := range kinds {
			manifest += claimKind(hostileResource(kind), spec)
		}
	}
	for _, kind := range append(offered, "Local") {
		manifest += serving(hostileResource(kind), bound...)
	}
	for kind, claims := range served {
		manifest += serving(hostileResource(kind), resources(claims...)...)
	}
	b.zonedClasses(t)
	b.pricedClasses(t)
	b.apply(t, manifest+usable)
	for _, kind := range append(bound, resources("FitClaim", "DenyFitClaim", "PricedClaim", "DenyPricedClaim", "UseClaim")...) {
		b.awaitClaims(t, kind)
	}
	for _, kind := range []string{"Ghost", "First", "Second", "Shared"} {
		b.awaitGuard(t, hostileGroup, kind, hostileResource(kind))
	}
	b.awaitClasses(t, hostileResource("Local"), manyClasses/10+5)
	b.awaitClasses(t, hostileResource("Priced"), pricedClasses)
}

func (b *besieged) user(t *testing.T, name string) client.Client {
	config := b.userConfig(t, name)
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	// He may ask for no CRD: it knows which kinds there are.
	return must(client.New(config, client.Options{Scheme: runtime.NewScheme(), Mapper: b.RESTMapper()}))(t)
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
