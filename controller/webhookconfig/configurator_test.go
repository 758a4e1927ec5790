package webhookconfig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/selector"
)

// newConfigurator is for an API server with the resources a, b and c of example.org (only c is not namespaced), and d, which cannot
// be watched. down.example.org does not answer. It has all claim kinds registered; those without a status may be served.
func newConfigurator(t *testing.T, c *controllertest.Cached, ca []byte, unregistered ...string) *Configurator {
	t.Helper()
	served := func(plural string, verbs ...string) metav1.APIResource {
		return metav1.APIResource{Name: plural, Kind: plural, Namespaced: plural != "c", Verbs: append(verbs, "create", "list")}
	}
	live := secrets{"own/classbind-ca": {"ca.crt": ca}}
	registration, err := registry.NewRegistration(controllertest.NewAPIServer(t, map[string]any{
		"/apis/example.org":      controllertest.APIGroup("v1"),
		"/apis/example.org/v1":   controllertest.APIResources(served("a", "watch"), served("b", "watch"), served("c", "watch"), served("d")),
		"/apis/down.example.org": controllertest.Failure(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable),
	}), c, live)
	require.NoError(t, err)
	for i := range c.ClaimKinds {
		k := &c.ClaimKinds[i]
		if !slices.Contains(unregistered, k.Name) {
			registration.Inventory.SetClaimKind(selector.NewClaimKind(k))
		}
	}
	registration.Inventory.Open()
	return &Configurator{
		Registration: registration,
		Servable:     func(_ context.Context, k *v1beta1.ClaimKind) bool { return len(k.Status.Conditions) == 0 },
		Guarded: func(_ context.Context, k *v1beta1.ClassKind) bool {
			return meta.IsStatusConditionTrue(k.Status.Conditions, v1beta1.ConditionReady)
		},
		Client: c, Live: live, Address: Address{Namespace: "own", Service: "classbind"},
		Serving: func(_ context.Context, given []byte) error {
			if len(given) == 0 {
				return errors.New("no CA")
			}
			assert.Equal(t, string(ca), string(given), "We should have our certificate verified by the CA that we are to write.")
			return nil
		},
	}
}

// roundOfClaims is one that does not fail.
func roundOfClaims(t *testing.T, w *Configurator) ctrl.Result {
	t.Helper()
	result, err := w.reconcile(t.Context(), &w.claims, w.writeClaims)
	require.NoError(t, err)
	return result
}

// configurationWith has entries of the version v7.
func configurationWith(name string, entries ...string) *admissionregistrationv1.MutatingWebhookConfiguration {
	c := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "c0ffee", ResourceVersion: "7"}}
	for _, e := range entries {
		c.Webhooks = append(c.Webhooks, admissionregistrationv1.MutatingWebhook{Name: e, Rules: []rule{{
			Rule: admissionregistrationv1.Rule{APIVersions: []string{"v7"}, Scope: new(admissionregistrationv1.AllScopes)},
		}}})
	}
	return c
}

// guardingWith is the same for classes.
func guardingWith(entries ...string) *admissionregistrationv1.ValidatingWebhookConfiguration {
	c := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: v1beta1.ClassConfiguration, UID: "c0ffee", ResourceVersion: "7"},
	}
	for _, e := range configurationWith("", entries...).Webhooks {
		c.Webhooks = append(c.Webhooks, admissionregistrationv1.ValidatingWebhook{Name: e.Name, Rules: e.Rules, ClientConfig: e.ClientConfig})
	}
	return c
}

// claimKind is changed by functions, if any are given.
func claimKind(name string, change ...func(*v1beta1.ClaimKind)) v1beta1.ClaimKind {
	k := controllertest.NewClaimKind(name)
	for _, f := range change {
		f(k)
	}
	return *k
}

// ofResource is a change to a ClaimKind of a resource whose claims have the reference at a path.
func ofResource(resource string, path v1beta1.FieldPath) func(*v1beta1.ClaimKind) {
	return func(k *v1beta1.ClaimKind) { k.Spec.Claims.Resource, k.Spec.Reference.Path = resource, path }
}

// classKind has the condition Ready, unless its status is empty, and serves claim kinds.
func classKind(name string, isReady metav1.ConditionStatus, claimKinds ...string) v1beta1.ClassKind {
	k := v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.ClassKindSpec{ClaimKinds: controllertest.Links(claimKinds...)}}
	if isReady != "" {
		k.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionReady, Status: isReady}}
	}
	return k
}

// onDelete is a class kind with this answer to deletions.
func onDelete(answer v1beta1.OnDelete, k v1beta1.ClassKind) v1beta1.ClassKind {
	k.Spec.OnDelete = answer
	return k
}

// TestRounds has registrations, and entries in the configurations. An entry is written as its name, the version and the scope.
func TestRounds(t *testing.T) {
	const bind, guard, deletion = ".bind.classbind.io", ".guard.classbind.io", ".deletion.classbind.io"
	const isReady, isNot = metav1.ConditionTrue, metav1.ConditionFalse
	ca := newCA(t)
	a, b := claimKind("a.example.org"), claimKind("b.example.org")
	classesA, classesB := classKind("a.example.org", isReady), classKind("b.example.org", isReady)
	unavailable := errors.New("certificate signed by unknown authority")
	status := func(reason string) func(*v1beta1.ClaimKind) {
		return func(k *v1beta1.ClaimKind) {
			k.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionReady, Reason: reason}}
		}
	}
	sameReference := ofResource("a.example.org", ".spec.classRef")
	first, second, faulty := claimKind("y", sameReference), claimKind("z", sameReference), claimKind("y", sameReference, status(v1beta1.ReasonNoClassKind))
	watched := []v1beta1.ClaimKind{
		claimKind("later.example.org", func(k *v1beta1.ClaimKind) { k.Spec.WhenUnmatched = v1beta1.BindLater }),
		claimKind("counted.example.org", func(k *v1beta1.ClaimKind) { k.Spec.Choice.Strategy = v1beta1.LeastClaims }),
		claimKind("admitted.example.org", func(k *v1beta1.ClaimKind) { k.Spec.WhenUnmatched = v1beta1.Admit }),
	}
	const boundA, boundB = "a.example.org" + bind + " v1 Namespaced", "b.example.org" + bind + " v1 Namespaced"
	const guardedA, guardedB = "a.example.org" + guard + " v1 Namespaced", "b.example.org" + guard + " v1 Namespaced"
	for name, tc := range map[string]struct {
		reason       string
		before       []string // entries; a nil list means that there is no configuration
		claims       []v1beta1.ClaimKind
		classes      []v1beta1.ClassKind // nil, it is a round of claims
		crds         []string
		unregistered string  // claim kind
		secrets      secrets // nil, there is one with the CA
		serving      error
		want         []string // entries that are applied, nil if nothing is
		again        time.Duration
		problem      string // within it; empty, there is none
	}{
		"NoConfiguration": {
			reason: "We should not make a configuration that nobody deployed.", claims: []v1beta1.ClaimKind{a},
			again: registry.RetryAfter, problem: `there is no MutatingWebhookConfiguration "zz-classbind": ` + reinstall,
		},
		"NoCA": {
			reason: "We should write no entry without its CA.", before: []string{}, claims: []v1beta1.ClaimKind{a}, secrets: secrets{},
			again: 200 * time.Millisecond, problem: "this replica does not serve yet: no CA",
		},
		"NotServing": {
			reason: "We should write no entry, and take none out, before a call of it would reach us, and say what is the matter.",
			before: []string{b.Name + bind}, claims: []v1beta1.ClaimKind{a}, serving: unavailable,
			again: 200 * time.Millisecond, problem: "this replica does not serve yet: certificate signed by unknown authority",
		},
		"NoKinds": {reason: "We should take our entries out when nothing is registered any more.", before: []string{a.Name + bind}, want: []string{}},
		"NoClassKinds": {
			reason:  "We should do the same for classes, and still be asked about registrations.",
			before:  []string{a.Name + guard},
			classes: []v1beta1.ClassKind{},
			want:    []string{},
		},
		"InOrder": {
			reason: "We should write entries in the order of their names: the cache has none, and each new order would be a change, whose event would " +
				"bring us back here.",
			before: []string{}, claims: []v1beta1.ClaimKind{b, claimKind("c.example.org"), a}, want: []string{boundA, boundB, "c.example.org" + bind + " v1 Cluster"},
		},
		"ClassesInOrder": {
			reason: "We should guard the kinds alone whose classes are offered to claims, in the order of their names.",
			before: []string{}, classes: []v1beta1.ClassKind{classesB, classKind("c.example.org", isNot), classesA, classKind("d.example.org", "")},
			want: []string{guardedA, guardedB},
		},
		"ReadyNoMore": {
			reason: "We should take the entry out of a kind whose classes are offered no more.",
			before: []string{a.Name + guard, b.Name + guard}, classes: []v1beta1.ClassKind{classKind("a.example.org", isNot), classesB}, want: []string{guardedB},
		},
		"NotServable": {
			reason: "We should not stop the claims of a kind that cannot be served, unless it was served before.", before: []string{a.Name + bind},
			claims: []v1beta1.ClaimKind{claimKind("a.example.org", status(v1beta1.ReasonNoClassKind)), claimKind("b.example.org", status(v1beta1.ReasonNoClassKind))},
			want:   []string{boundA},
		},
		"Uninstalled": {
			reason: "We should leave out a kind that is not installed, take its entry out, and look again.",
			before: []string{"claims.absent.example.org" + bind},
			claims: []v1beta1.ClaimKind{a, claimKind("claims.absent.example.org"), claimKind("others.absent.example.org")},
			want:   []string{boundA}, again: registry.RetryAfter, problem: `"claims.absent.example.org": ` + cluster.ErrNotInstalled.Error(),
		},
		"NotServed": {
			reason: "We should keep the entry of a kind whose CRD is installed, leave out one that had none, and look again soon.",
			before: []string{"claims.absent.example.org" + bind},
			claims: []v1beta1.ClaimKind{a, claimKind("claims.absent.example.org"), claimKind("others.absent.example.org")},
			crds:   []string{"claims.absent.example.org", "others.absent.example.org"}, want: []string{boundA, "claims.absent.example.org" + bind + " v7 *"},
			again: registry.RetryCRDAfter, problem: `"claims.absent.example.org": ` + registry.ErrCRDNotServed.Error(),
		},
		"ClassesNotServed": {
			reason: "We should do the same for classes, and keep both entries.", before: []string{"golds.absent.example.org" + guard}, claims: watched,
			classes: []v1beta1.ClassKind{classKind("golds.absent.example.org", isReady, "later.example.org"), classKind("others.absent.example.org", isReady)},
			crds:    []string{"golds.absent.example.org", "others.absent.example.org"},
			want:    []string{"golds.absent.example.org" + guard + " v7 *", "golds.absent.example.org" + deletion + " * *"},
			again:   registry.RetryCRDAfter, problem: `"golds.absent.example.org": ` + registry.ErrCRDNotServed.Error(),
		},
		"NotAnswered": {
			reason: "We should keep the entry of a kind of which we cannot determine whether it is installed, leave out one that had none, and look again.",
			before: []string{"claims.down.example.org" + bind},
			claims: []v1beta1.ClaimKind{a, claimKind("claims.down.example.org"), claimKind("others.down.example.org")},
			want:   []string{boundA, "claims.down.example.org" + bind + " v7 *"},
			again:  registry.RetryAfter, problem: `"claims.down.example.org": cannot look up the API group "down.example.org": `,
		},
		"Resource": {
			reason: "We should write two entries for a resource with two references.",
			before: []string{}, claims: []v1beta1.ClaimKind{a, claimKind("tiers", ofResource("a.example.org", ".spec.tierRef"))},
			want: []string{boundA, "tiers" + bind + " v1 Namespaced"},
		},
		"Conflict": {
			reason: "We should write no entry for the second by name of two of one reference.",
			before: []string{}, claims: []v1beta1.ClaimKind{second, first}, want: []string{"y" + bind + " v1 Namespaced"},
		},
		"ConflictWithANewcomer": {
			reason: "We should keep the entry of the second until that of the first is seen: meanwhile, claims would be created without a class.",
			before: []string{"z" + bind}, claims: []v1beta1.ClaimKind{second, first}, want: []string{"y" + bind + " v1 Namespaced", "z" + bind + " v1 Namespaced"},
		},
		"ConflictWithWhatWasNeverServed": {
			reason: "We should keep it where the first gets no entry.",
			before: []string{"z" + bind}, claims: []v1beta1.ClaimKind{second, faulty}, want: []string{"z" + bind + " v1 Namespaced"},
		},
		"ConflictIsOver": {
			reason: "We should remove the entry of the second once that of the first is seen.",
			before: []string{"y" + bind, "z" + bind}, claims: []v1beta1.ClaimKind{second, first}, want: []string{"y" + bind + " v1 Namespaced"},
		},
		"VersionNotServed": {
			reason: "We should have claims of all versions answered where the one that we read is not served, and look again soon.",
			before: []string{}, claims: []v1beta1.ClaimKind{claimKind("a.example.org", func(k *v1beta1.ClaimKind) { k.Spec.Claims.Version = "v1beta1" })},
			want:  []string{a.Name + bind + " * Namespaced"},
			again: registry.RetryCRDAfter, problem: `"a.example.org": ` + cluster.ErrVersionNotServed.Error() + `, "v1beta1", but v1: `,
		},
		"Unsuitable": {
			reason: "We should write no entry for what the API server decides before it asks us.",
			before: []string{}, claims: []v1beta1.ClaimKind{claimKind("priorities", ofResource("pods", ".spec.priorityClassName"))},
			again: registry.RetryAfter, problem: `"priorities": ` + cluster.ErrUnsuitable.Error(),
		},
		"UnsuitableClasses": {
			reason: "We should take the entry out of a kind that cannot be watched any more: nobody would be offered its classes.",
			before: []string{"d.example.org" + guard}, classes: []v1beta1.ClassKind{classesA, classKind("d.example.org", isReady)}, want: []string{guardedA},
			again: registry.RetryAfter, problem: `"d.example.org": the resource cannot be used: the API server does not serve it with the verbs ["watch"]`,
		},
		"NotHeardOf": {
			reason: "We should write no entry for a kind that this replica would not know, and look again soon.",
			before: []string{}, claims: []v1beta1.ClaimKind{a, b}, unregistered: "b.example.org", want: []string{boundA},
			again: registry.RetryCRDAfter, problem: `"b.example.org": it is not registered on this replica yet`,
		},
		"OnDelete": {
			reason: "We should be asked as the class kind says, and about each whose claims are watched for another.",
			before: []string{}, claims: watched,
			classes: []v1beta1.ClassKind{
				onDelete(v1beta1.DenyDeletion, classKind("a.example.org", isReady, "admitted.example.org")),
				onDelete(v1beta1.AllowDeletion, classKind("b.example.org", isReady, "later.example.org")),
				classKind("c.example.org", isReady, "admitted.example.org"),
			},
			want: []string{
				guardedA, a.Name + deletion + " * Namespaced", guardedB,
				"c.example.org" + guard + " v1 Cluster", "c.example.org" + deletion + " * Cluster",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := &controllertest.Cached{ClaimKinds: slices.Clone(tc.claims), ClassKinds: slices.Clone(tc.classes), CRDs: tc.crds}
			w := newConfigurator(t, c, ca, tc.unregistered)
			if tc.secrets != nil {
				w.Live = tc.secrets
			}
			if tc.serving != nil {
				w.Serving = func(context.Context, []byte) error { return tc.serving }
			}
			e, others, write := &w.claims, &w.classes, w.writeClaims
			if tc.classes != nil {
				e, others, write = &w.classes, &w.claims, w.writeClasses
			}
			switch {
			case tc.before == nil:
			case tc.classes != nil:
				c.Guarding = guardingWith(tc.before...)
			default:
				c.Configuration = configurationWith(v1beta1.LastConfiguration, tc.before...)
			}
			result, err := w.reconcile(t.Context(), e, write)
			require.NoError(t, err, tc.reason)
			assert.Equal(t, ctrl.Result{RequeueAfter: tc.again}, result, tc.reason)
			assert.Contains(t, e.problem, tc.problem, "We should know what is the matter.")
			assert.Equal(t, tc.problem == "", e.problem == "", "We should know whether anything is the matter.")
			ofOneKind := strings.HasPrefix(tc.problem, `"`)
			assert.Equal(t, ofOneKind || tc.problem == "", e.Problem() == "", "We should not lay one kind's problem at the door of the others.")
			assert.Empty(t, others.problem, "We should not lay it at the door of the other configuration.")
			if tc.want == nil {
				assert.Empty(t, c.Applied, tc.reason)
				return
			}
			require.Len(t, c.Applied, 1, tc.reason)
			applied := c.Applied[0]
			assert.Equal(t, metav1.ObjectMeta{Name: applied.Name, UID: "c0ffee", ResourceVersion: "7"}, applied.ObjectMeta,
				"We should apply to the object that we read, and to no new one, and not take back what another leader has written since.")
			assert.Equal(t, tc.classes != nil, applied.Name == v1beta1.ClassConfiguration, "We should leave the other configuration alone.")
			got, removed := []string{}, slices.Clone(tc.before)
			for _, e := range applied.Webhooks {
				assert.Equal(t, ca, e.ClientConfig.CABundle, "We should write an entry together with its CA.")
				operations := []admissionregistrationv1.OperationType{"CREATE", "UPDATE"}
				if strings.HasSuffix(e.Name, deletion) {
					operations = []admissionregistrationv1.OperationType{"DELETE"}
				}
				assert.Equal(t, operations, e.Rules[0].Operations, "We should be asked about creations and updates, and in an entry of their own about deletions.")
				got = append(got, fmt.Sprintf("%s %s %s", e.Name, e.Rules[0].APIVersions[0], *e.Rules[0].Scope))
				removed = slices.DeleteFunc(removed, func(name string) bool { return name == e.Name })
			}
			if tc.classes != nil {
				tc.want = append([]string{v1beta1.RegistrationEntry + " v1beta1 Cluster"}, tc.want...)
			}
			assert.Equal(t, tc.want, got, tc.reason)
			assert.ElementsMatch(t, removed, c.Removed, "We should remove what we want no more, whoever owns it, and nothing else.")
		})
	}
}

// TestCAsOfEntries checks what a round does about the CAs, beside what trust says.
func TestCAsOfEntries(t *testing.T) {
	old, next := newCA(t), newCA(t)
	both := parse([][]byte{old, next}).encode(time.Now())
	for name, tc := range map[string]struct {
		reason string
		entry  []byte
		served []byte // the CA of our certificate
		delay  time.Duration
		want   []byte
		again  time.Duration
	}{
		"Due": {reason: "We should write the CA that is due.", entry: next, served: next, want: next},
		"CertificateOfACAThatIsOver": {
			reason: "We should leave in the entries the CA by which we are verified, even when its time is over: our certificate of the next waits " +
				"until all entries trust that one, too.",
			entry: old, served: old, want: both,
		},
		"NotServing": {
			reason: "We should write nothing where neither what is due nor what is carried verifies us.",
			entry:  next,
			served: newCA(t),
			again:  200 * time.Millisecond,
		},
		"FirstEntryBehindAService": {
			reason: "We should give the Service the time to lead here before we write the first entry.",
			served: next,
			delay:  time.Hour,
			again:  time.Hour,
		},
		"NextEntryBehindAService": {
			reason: "We should not wait where there are entries: they are called already.",
			entry:  next,
			served: next,
			delay:  time.Hour,
			want:   next,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := &controllertest.Cached{Configuration: configurationWith(v1beta1.LastConfiguration), ClaimKinds: []v1beta1.ClaimKind{claimKind("a.example.org")}}
			if tc.entry != nil {
				c.Configuration = configurationWith(v1beta1.LastConfiguration, "a.example.org"+v1beta1.BindSuffix)
				c.Configuration.Webhooks[0].ClientConfig.CABundle = tc.entry
			}
			w := newConfigurator(t, c, next)
			w.ServiceDelay = tc.delay
			w.Serving = func(_ context.Context, bundle []byte) error {
				if !bytes.Contains(bundle, tc.served) {
					return errors.New("certificate signed by unknown authority")
				}
				return nil
			}
			// In the entry, and superseded for this long.
			w.trust.known = map[string]authority{}
			for der, certificate := range parse([][]byte{old}) {
				w.trust.known[der] = authority{certificate, time.Now().Add(-overlap)}
			}
			assert.Equal(t, tc.entry != nil && !bytes.Equal(tc.entry, next), w.outdated(t.Context()), "We should see without an event whether a round is due.")
			assert.InDelta(t, tc.again, roundOfClaims(t, w).RequeueAfter, float64(time.Second), tc.reason)
			if tc.want == nil {
				assert.Empty(t, c.Applied, tc.reason)
				return
			}
			require.Len(t, c.Applied, 1, tc.reason)
			assert.Equal(t, string(tc.want), string(c.Applied[0].Webhooks[0].ClientConfig.CABundle), tc.reason)
		})
	}
}

// noClasses is a client that cannot read the configuration of the classes.
type noClasses struct {
	*controllertest.Cached
	err error
}

func (c noClasses) Get(ctx context.Context, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if _, ok := o.(*admissionregistrationv1.ValidatingWebhookConfiguration); ok {
		return c.err
	}
	return c.Cached.Get(ctx, k, o, opts...)
}

func TestReconcileTrusts(t *testing.T) {
	old, ours, certManagers := newCA(t), newCA(t), newCA(t)
	c := &controllertest.Cached{
		ClaimKinds:    []v1beta1.ClaimKind{claimKind("a.example.org")},
		ClassKinds:    []v1beta1.ClassKind{classKind("b.example.org", metav1.ConditionTrue)},
		Configuration: configurationWith(v1beta1.LastConfiguration, "a.example.org"+v1beta1.BindSuffix),
		Guarding:      guardingWith(),
	}
	c.Configuration.Webhooks[0].ClientConfig.CABundle = old
	w := newConfigurator(t, c, nil)
	live := secrets{"own/classbind-ca": {"ca.crt": ours}, "own/classbind-tls": {"ca.crt": certManagers}}
	w.Live, w.Serving = live, func(context.Context, []byte) error { return nil }
	for range 2 { // In the second round of the claims, the classes have seen the old CA, too.
		roundOfClaims(t, w)
		_, err := w.reconcile(t.Context(), &w.classes, w.writeClasses)
		require.NoError(t, err)
	}
	require.Len(t, c.Applied, 4)
	bundle := c.Applied[0].Webhooks[0].ClientConfig.CABundle
	assert.Equal(
		t, parse([][]byte{old, ours, certManagers}), parse([][]byte{bundle}),
		"We should trust the CAs of both modes, and the one of which a replica may still serve a certificate.",
	)
	for _, applied := range c.Applied {
		assert.Equal(
			t, string(bundle), string(applied.Webhooks[0].ClientConfig.CABundle),
			"We should write the same each time, and trust for classes what we trust for claims.",
		)
	}

	refused := errors.New("connection refused")
	w.Live = &controllertest.Cached{Err: refused}
	_, err := w.reconcile(t.Context(), &w.claims, w.writeClaims)
	require.ErrorIs(t, err, refused, "We should not take a CA for gone when we could not look.")
	assert.Contains(t, w.claims.Problem(), "cannot get the CA: ", "We should say in each status what is the matter.")
	w.Live, w.Client = live, noClasses{c, refused}
	_, err = w.reconcile(t.Context(), &w.claims, w.writeClaims)
	require.ErrorIs(
		t, err, refused,
		"We should not go on when we could not see what all entries trust: what a replica serves may be of a CA that those of the classes alone carry.",
	)
	assert.Len(t, c.Applied, 4, "We should write nothing then.")
}

func TestReadyChanged(t *testing.T) {
	none := classKind("a.example.org", "")
	yes, no := classKind("a.example.org", metav1.ConditionTrue), classKind("a.example.org", metav1.ConditionFalse)
	yes.Status.Conditions[0].Reason, no.Status.Conditions[0].Reason = v1beta1.ReasonServed, v1beta1.ReasonNotInstalled
	changed, more := *yes.DeepCopy(), *yes.DeepCopy()
	changed.Generation++
	more.Status.Conditions = append(more.Status.Conditions, metav1.Condition{Type: v1beta1.ConditionGuarded, Status: metav1.ConditionTrue})
	for name, tc := range map[string]struct {
		reason        string
		before, after v1beta1.ClassKind
		want          bool
	}{
		"Ready":       {"We should write the entry of a kind whose classes are offered now.", no, yes, true},
		"ReadyAtOnce": {"We should write the entry of a kind that had no status before.", none, yes, true},
		"ReadyNoMore": {"We should take out the entry of a kind whose classes are offered no more.", yes, no, true},
		"Changed":     {"We should write the entry anew of a kind that is registered otherwise.", yes, changed, true},
		"StillReady":  {"We should do nothing for another condition, of which we write one ourselves.", yes, more, false},
		"StillNot":    {"We should do nothing for a kind for which there is nothing to do.", no, *no.DeepCopy(), false},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.want, readyChanged.Update(event.UpdateEvent{ObjectOld: &tc.before, ObjectNew: &tc.after}), tc.reason)
		})
	}
	assert.True(t, readyChanged.Create(event.CreateEvent{Object: &yes}), "We should look at a kind that is new.")
	assert.True(t, readyChanged.Delete(event.DeleteEvent{Object: &yes}), "We should take out the entry of a kind that is registered no more.")
}
