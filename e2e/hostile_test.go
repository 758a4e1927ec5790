package e2e

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/e2e/load"
)

const (
	// attackTime is how long each attack goes on.
	attackTime = 5 * time.Second
	// honestRate of claims in a second, and how long one may take to be created and bound.
	honestRate    = 20
	honestLatency = 500 * time.Millisecond
)

// attack is what somebody does who wishes others ill.
type attack struct {
	name   string
	reason string
	do     func(*besieged, *testing.T)
	// statuses that the attacker's requests may be answered with.
	statuses []int
}

// attacks are by authors of claims, authors of classes, and pods that reach the
// port of the replicas. The first is none: it shows what the machine is able to.
func attacks() []attack {
	const (
		ok, created, malformed, forbidden = http.StatusOK, http.StatusCreated, http.StatusBadRequest, http.StatusForbidden
		missing, conflict, tooLarge       = http.StatusNotFound, http.StatusConflict, http.StatusRequestEntityTooLarge
		invalid, failed, unavailable      = http.StatusUnprocessableEntity, http.StatusInternalServerError, http.StatusServiceUnavailable
		tooMany                           = http.StatusTooManyRequests
		method, media, header             = http.StatusMethodNotAllowed, http.StatusUnsupportedMediaType, http.StatusRequestHeaderFieldsTooLarge
	)
	return []attack{
		{"Nothing", "We should serve honest claims on this machine when nobody attacks.", func(*besieged, *testing.T) {}, nil},
		{"EmptyTerms", "We should refuse a selector of terms that say nothing, at little cost.", (*besieged).emptyTerms, []int{invalid}},
		{"PoisonedClaims", "We should bind waiting claims beside poisoned ones, whoever leads.", (*besieged).poisonedClaims, nil},
		{"ForgedUpdates", "We should have no second default by a forged update of the class in flight.", (*besieged).forgedUpdates, []int{ok, unavailable}},
		{"ForgedCreations", "We should bear forged creations of default classes.", (*besieged).forgedCreations, []int{ok, unavailable}},
		{"ForgedClaims", "We should bear forged creations of claims.", (*besieged).forgedClaims, []int{ok, unavailable}},
		{"IdleConnections", "We should bear connections on which nothing comes, or little.", (*besieged).idleConnections, nil},
		{"BigBodies", "We should bear reviews that fill the memory.", (*besieged).bigBodies, []int{ok, malformed, tooLarge, unavailable}},
		{"Garbage", "We should bear what is no review.", (*besieged).garbage, []int{malformed, missing, method, media, header}},
		{"LongAnnotation", "We should refuse an annotation of a hundred thousand terms, at little cost.", (*besieged).longAnnotation, []int{invalid}},
		{"LargeSelector", "We should refuse a selector of megabytes, at little cost.", (*besieged).largeSelector, []int{invalid}},
		{"LiveReads", "We should read live in turns.", (*besieged).liveReads, []int{created, forbidden, failed}},
		{"WaitingClaims", "We should bound the memory of claims that wait.", (*besieged).waitingClaims, nil},
		{"AttractiveClass", "We should keep tenants apart.", (*besieged).attractiveClass, []int{ok, created, forbidden}},
		{"UnmatchedSelector", "We should refuse a long selector that matches nothing, and put it into no URL.", (*besieged).unmatchedSelector, []int{forbidden, invalid}},
		{"EscapedClaim", "We should admit a claim that is six times as long in a review.", (*besieged).escapedClaim, []int{created}},
		{"LongClaims", "We should let claims pay for what their expressions cost.", (*besieged).longClaims, []int{created, forbidden, invalid, tooMany}},
		{"CostlyClasses", "We should judge a class when it changes, at little cost.", (*besieged).costlyClasses, []int{ok, created, forbidden, conflict}},
		{"MovedClasses", "We should let the honest tenant set a default while another moves his through any number of partitions.", (*besieged).movedClasses, []int{ok, created, failed, unavailable}},
		{"ContestedClass", "We should let the honest admin set a default while others fail to.", (*besieged).contestedClass, []int{forbidden, conflict}},
	}
}

// TestHostile attacks classbind in all ways that we know while an honest tenant
// creates claims. It has the machine to itself, since it measures.
func TestHostile(t *testing.T) {
	long(t)
	if inPods() {
		t.Skip("It needs a control plane of its own, with replicas as processes beside it.")
	}
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
	honest := b.claims(t, "claim-"+secret+"-", boundHostileKinds(), func(class string) bool {
		_, name, _ := strings.Cut(class, "/")
		return !strings.HasPrefix(name, "common-") && !strings.HasPrefix(name, "own-"+secret)
	})
	control := b.claims(t, "control-", []schema.GroupVersionKind{freeKind}, nil)
	defer func() { row.failed = t.Failed() }()
	defer func() { // Also if the attack stopped the test.
		b.judge(t, a, row, honest, control)
		if !b.rest(t) {
			b.restart(t)
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

func boundHostileKinds() (kinds []schema.GroupVersionKind) {
	for kind := range boundKinds {
		kinds = append(kinds, hostileKind(kind))
	}
	return append(kinds, hostileKind("FitClaim"))
}

// claims of the honest tenant, steadily.
func (b *besieged) claims(t *testing.T, prefix string, kinds []schema.GroupVersionKind, foreign func(string) bool) *load.Load {
	return load.Start(t.Context(), load.Options{
		Client: b.honest, Kinds: kinds, Namespace: honestNamespace, Prefix: prefix, PerSecond: honestRate, Foreign: foreign,
		Spec: map[string]any{"classSelector": map[string]any{"matchLabels": map[string]any{"pool": "common"}}},
	})
}

// judge what became of everybody, into the row.
func (b *besieged) judge(t *testing.T, a attack, row *hostileRow, honest, control *load.Load) {
	t.Helper()
	row.peak, row.cpu = b.used(t)
	var err error
	row.control, err = control.Stop(t.Context())
	require.NoError(t, err)
	row.honest, err = honest.Stop(t.Context())
	require.NoError(t, err)
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
		assert.Empty(t, r.log.judge(), "%s No line of the log should be as long as its author likes, nor have a URL in it.", a.reason)
	}
	b.toldNothing(t)
}

// toldNothing looks into the events that the hostile tenant may read.
func (b *besieged) toldNothing(t *testing.T) {
	t.Helper()
	events := &eventsv1.EventList{}
	require.NoError(t, b.List(t.Context(), events, client.InNamespace(tenantA)))
	for _, event := range events.Items {
		assert.NotContains(t, event.Note, secret, "We should tell nothing of others in an event.")
	}
}
