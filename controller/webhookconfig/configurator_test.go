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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/selector"
)

// newConfigurator is for an API server with the resources a, b and c of example.org, of
// which only c is not namespaced, and d, which cannot be watched. Nobody answers for
// down.example.org. ca is what it trusts. Claim kinds without a status may be served.
func newConfigurator(t *testing.T, c *controllertest.Cached, live client.Reader, inventory *selector.Inventory, serving error, ca []byte) *Configurator {
	t.Helper()
	served := func(plural string, verbs ...string) metav1.APIResource {
		return metav1.APIResource{Name: plural, Kind: plural, Namespaced: plural != "c", Verbs: append(verbs, "create", "list")}
	}
	registration, err := registry.NewRegistration(controllertest.NewAPIServer(t, map[string]any{
		"/apis/example.org":      controllertest.APIGroup("v1"),
		"/apis/example.org/v1":   controllertest.APIResources(served("a", "watch"), served("b", "watch"), served("c", "watch"), served("d")),
		"/apis/down.example.org": controllertest.Failure(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable),
	}), c, live)
	require.NoError(t, err)
	registration.Inventory = inventory
	for i := range c.ClaimKinds {
		if k := &c.ClaimKinds[i]; len(k.Status.Conditions) == 0 {
			k.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Reason: v1alpha1.ReasonNotConfigured, ObservedGeneration: k.Generation}}
		}
	}
	return &Configurator{
		Registration: registration,
		Client:       c, Live: live, Address: Address{Namespace: "own", Service: "classbind"},
		Serving: func(_ context.Context, given []byte) error {
			if len(given) == 0 {
				return errors.New("no CA")
			}
			assert.Equal(t, string(ca), string(given), "We should have our certificate verified by the CA that we are to write.")
			return serving
		},
	}
}

func TestReconcileWebhookConfiguration(t *testing.T) {
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.LastConfiguration, UID: "c0ffee", ResourceVersion: "7"}}
	withEntry := func(claimKind string) *admissionregistrationv1.MutatingWebhookConfiguration {
		c := configuration.DeepCopy()
		c.Webhooks = []admissionregistrationv1.MutatingWebhook{{
			Name: claimKind + v1alpha1.BindSuffix,
			Rules: []admissionregistrationv1.RuleWithOperations{{Rule: admissionregistrationv1.Rule{
				APIVersions: []string{"v7"}, Scope: new(admissionregistrationv1.ClusterScope),
			}}},
		}}
		return c
	}
	configured, absent := withEntry("claims.down.example.org"), withEntry("claims.absent.example.org")
	ca := newCA(t)
	withCA := secrets{"own/classbind-ca": {"ca.crt": ca}}
	kinds := func(names ...string) (all []v1alpha1.ClaimKind) {
		for _, name := range names {
			all = append(all, *controllertest.NewClaimKind(name))
		}
		return all
	}
	type entry struct{ name, version string }
	type want struct {
		applied bool
		entries []entry
		again   time.Duration
		problem string // within it; empty, there is none
	}
	const noCA = "this replica does not serve yet: no CA"
	for name, tc := range map[string]struct {
		reason       string
		serving      error
		unregistered []string // claim kinds
		live         secrets  // nil means one with the CA
		client       *controllertest.Cached
		want         want
	}{
		"NoConfiguration": {
			reason: "We should not make a configuration that nobody deployed.",
			client: &controllertest.Cached{ClaimKinds: kinds("a.example.org")},
			want:   want{again: registry.RetryAfter, problem: "kubectl apply -k deploy"},
		},
		"NoCA": {
			reason: "We should write no entry without its CA.",
			live:   secrets{}, client: &controllertest.Cached{Configuration: configuration, ClaimKinds: kinds("a.example.org")},
			want: want{again: 200 * time.Millisecond, problem: noCA},
		},
		"EmptyCA": {
			reason: "We should write no entry while the Secret holds no CA: every call would fail.",
			live:   secrets{"own/classbind-ca": {}}, client: &controllertest.Cached{Configuration: configuration, ClaimKinds: kinds("a.example.org")},
			want: want{again: 200 * time.Millisecond, problem: noCA},
		},
		"NotServing": {
			reason:  "We should write no entry, and take none out, before a call of it would reach us, and say what is the matter.",
			serving: errors.New("certificate signed by unknown authority"),
			client:  &controllertest.Cached{Configuration: configured, ClaimKinds: kinds("a.example.org")},
			want:    want{again: 200 * time.Millisecond, problem: "this replica does not serve yet: certificate signed by unknown authority"},
		},
		"NoKinds": {
			reason: "We should take our entries out when nothing is registered any more.",
			client: &controllertest.Cached{Configuration: configured},
			want:   want{applied: true},
		},
		"InOrder": {
			reason: "We should write entries in the order of their names: the cache has none, and each new order would be a change, whose event would bring us back here.",
			client: &controllertest.Cached{Configuration: configuration, ClaimKinds: kinds("b.example.org", "c.example.org", "a.example.org")},
			want: want{applied: true, entries: []entry{
				{"a.example.org.bind.classbind.io", "v1"}, {"b.example.org.bind.classbind.io", "v1"}, {"c.example.org.bind.classbind.io", "v1"},
			}},
		},
		"NotInstalled": {
			reason: "We should leave out a kind that is not installed, and look again.",
			client: &controllertest.Cached{Configuration: configured, ClaimKinds: kinds("a.example.org", "claims.absent.example.org")},
			want: want{
				applied: true, entries: []entry{{"a.example.org.bind.classbind.io", "v1"}},
				again: registry.RetryAfter, problem: `"claims.absent.example.org": ` + cluster.ErrNotInstalled.Error(),
			},
		},
		"NotServed": {
			reason: "We should keep the entry of a kind whose CRD is installed, leave out one that had none, and look again soon.",
			client: &controllertest.Cached{
				Configuration: absent, ClaimKinds: kinds("a.example.org", "claims.absent.example.org", "others.absent.example.org"),
				CRDs: []string{"claims.absent.example.org", "others.absent.example.org"},
			},
			want: want{
				applied: true, entries: []entry{{"a.example.org.bind.classbind.io", "v1"}, {"claims.absent.example.org.bind.classbind.io", "v7"}},
				again: registry.RetryCRDAfter, problem: `"claims.absent.example.org": ` + registry.ErrCRDNotServed.Error(),
			},
		},
		"Uninstalled": {
			reason: "We should take the entry out of a kind whose CRD is gone.",
			client: &controllertest.Cached{Configuration: absent, ClaimKinds: kinds("a.example.org", "claims.absent.example.org")},
			want: want{
				applied: true, entries: []entry{{"a.example.org.bind.classbind.io", "v1"}},
				again: registry.RetryAfter, problem: `"claims.absent.example.org": ` + cluster.ErrNotInstalled.Error(),
			},
		},
		"Resource": {
			reason: "We should write two entries for a resource with two references.",
			client: &controllertest.Cached{Configuration: configuration, ClaimKinds: []v1alpha1.ClaimKind{
				*controllertest.NewClaimKind("a.example.org"), ofResource("tiers", "a.example.org", ".spec.tierRef"),
			}},
			want: want{applied: true, entries: []entry{{"a.example.org.bind.classbind.io", "v1"}, {"tiers.bind.classbind.io", "v1"}}},
		},
		"Conflict": {
			reason: "We should write no entry for the later of two of one reference.",
			client: &controllertest.Cached{Configuration: configuration, ClaimKinds: []v1alpha1.ClaimKind{
				ofResource("z", "a.example.org", ".spec.classRef"), ofResource("y", "a.example.org", ".spec.classRef"),
			}},
			want: want{applied: true, entries: []entry{{"y.bind.classbind.io", "v1"}}},
		},
		"VersionNotServed": {
			reason: "We should have claims of all versions answered where the one that we read is not served, and look again soon.",
			client: &controllertest.Cached{Configuration: configuration, ClaimKinds: []v1alpha1.ClaimKind{ofVersion("a.example.org", "v1beta1")}},
			want: want{
				applied: true, entries: []entry{{"a.example.org.bind.classbind.io", "*"}},
				again: registry.RetryCRDAfter, problem: `"a.example.org": ` + cluster.ErrVersionNotServed.Error() + `, "v1beta1", but v1: `,
			},
		},
		"Unsuitable": {
			reason: "We should write no entry for what the API server decides before it asks us.",
			client: &controllertest.Cached{Configuration: configuration, ClaimKinds: []v1alpha1.ClaimKind{ofResource("priorities", "pods", ".spec.priorityClassName")}},
			want:   want{again: registry.RetryAfter, problem: `"priorities": ` + cluster.ErrUnsuitable.Error()},
		},
		"NotHeardOf": {
			reason:       "We should write no entry for a kind that this replica would not know, and look again soon.",
			unregistered: []string{"b.example.org"},
			client:       &controllertest.Cached{Configuration: configuration, ClaimKinds: kinds("a.example.org", "b.example.org")},
			want: want{
				applied: true, entries: []entry{{"a.example.org.bind.classbind.io", "v1"}},
				again: registry.RetryCRDAfter, problem: `"b.example.org": it is not registered on this replica yet`,
			},
		},
		"NotAnswered": {
			reason: "We should keep the entry of a kind of which we cannot tell whether it is installed, leave out one that had none, and look again.",
			client: &controllertest.Cached{Configuration: configured, ClaimKinds: kinds("a.example.org", "claims.down.example.org", "others.down.example.org")},
			want: want{
				applied: true, entries: []entry{{"a.example.org.bind.classbind.io", "v1"}, {"claims.down.example.org.bind.classbind.io", "v7"}},
				again: registry.RetryAfter, problem: `"claims.down.example.org": cannot look up the API group "down.example.org": `,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inventory := selector.NewInventory()
			for i := range tc.client.ClaimKinds {
				if !slices.Contains(tc.unregistered, tc.client.ClaimKinds[i].Name) {
					inventory.SetClaimKind(selector.NewClaimKind(&tc.client.ClaimKinds[i]))
				}
			}
			inventory.Open()
			if tc.live == nil {
				tc.live = withCA
			}
			w := newConfigurator(t, tc.client, tc.live, inventory, tc.serving, ca)
			result, err := w.reconcile(t.Context(), &w.claims, w.writeClaims)
			require.NoError(t, err, tc.reason)
			assert.Equal(t, ctrl.Result{RequeueAfter: tc.want.again}, result, tc.reason)
			if tc.want.problem == "" {
				assert.Empty(t, w.claims.Problem(), tc.reason)
			} else {
				assert.Contains(t, w.claims.problem, tc.want.problem, "We should know what is the matter.")
				ofOneKind := strings.HasPrefix(tc.want.problem, `"`)
				assert.Equal(t, ofOneKind, w.claims.Problem() == "", "We should not lay one kind's problem at the door of the others.")
			}
			if !tc.want.applied {
				assert.Empty(t, tc.client.Applied, tc.reason)
				return
			}
			require.Len(t, tc.client.Applied, 1, tc.reason)
			applied := tc.client.Applied[0]
			assert.Equal(t, configuration.UID, *applied.UID, "We should apply to the object that we read, and to no new one.")
			assert.Equal(t, configuration.ResourceVersion, *applied.ResourceVersion, "We should not take back what another leader has written since.")
			var got []entry
			for _, e := range applied.Webhooks {
				assert.Equal(t, ca, e.ClientConfig.CABundle, "We should write an entry together with its CA.")
				got = append(got, entry{*e.Name, e.Rules[0].APIVersions[0]})
			}
			assert.Equal(t, tc.want.entries, got, tc.reason)
			var removed []string
			for _, e := range tc.client.Configuration.Webhooks {
				if !slices.ContainsFunc(got, func(kept entry) bool { return kept.name == e.Name }) {
					removed = append(removed, e.Name)
				}
			}
			assert.Equal(t, removed, tc.client.Removed, "We should remove what we want no more, whoever owns it, and nothing else.")
		})
	}
}

// TestServable has registrations that were never served, and one that was.
func TestServable(t *testing.T) {
	const name = "a.example.org"
	for reason, want := range map[string]bool{
		"": false, v1alpha1.ReasonNotConfigured: true, v1alpha1.ReasonServed: true, v1alpha1.ReasonTooLarge: true,
		v1alpha1.ReasonReferencePruned: false, v1alpha1.ReasonNoClassKind: false, v1alpha1.ReasonNotSynced: false, v1alpha1.ReasonInvalidExpression: false,
	} {
		for _, served := range []bool{false, true} {
			t.Run(fmt.Sprintf("%sServed=%t", reason, served), func(t *testing.T) {
				k := controllertest.NewClaimKind(name)
				k.Generation = 2
				k.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Reason: reason, ObservedGeneration: 2}}
				assert.Equal(t, want, servable(k))
				configuration := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.LastConfiguration}}
				if served {
					configuration.Webhooks = []admissionregistrationv1.MutatingWebhook{{Name: name + v1alpha1.BindSuffix}}
				}
				client := &controllertest.Cached{Configuration: configuration, ClaimKinds: []v1alpha1.ClaimKind{*k}}
				inventory := selector.NewInventory()
				inventory.SetClaimKind(selector.NewClaimKind(k))
				inventory.Open()
				ca := newCA(t)
				w := newConfigurator(t, client, secrets{"own/classbind-ca": {"ca.crt": ca}}, inventory, nil, ca)
				_, err := w.reconcile(t.Context(), &w.claims, w.writeClaims)
				require.NoError(t, err)
				entries := 0
				if len(client.Applied) > 0 {
					entries = len(client.Applied[0].Webhooks)
				}
				assert.Equal(t, want || served, entries == 1, "We should give an entry to what can be served, and leave one to what was served.")
				k.Generation = 3
				assert.False(t, servable(k), "We should not go by the status of another registration.")
			})
		}
	}
}

// ofResource is a ClaimKind of a resource whose claims have the reference at a path.
func ofResource(name, resource string, path v1alpha1.FieldPath) v1alpha1.ClaimKind {
	k := *controllertest.NewClaimKind(name)
	k.Spec.Resource, k.Spec.Reference.Path = resource, path
	return k
}

// ofVersion is a ClaimKind whose paths are written for a version.
func ofVersion(name, version string) v1alpha1.ClaimKind {
	k := *controllertest.NewClaimKind(name)
	k.Status.Version = version
	return k
}

// TestCAsOfEntries checks what a round does about the CAs, beside what trust says.
func TestCAsOfEntries(t *testing.T) {
	old, next := newCA(t), newCA(t)
	both := parse([][]byte{old, next}).encode(time.Now())
	carrying := func(bundle []byte) *admissionregistrationv1.MutatingWebhookConfiguration {
		c := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.LastConfiguration}}
		if bundle != nil {
			c.Webhooks = []admissionregistrationv1.MutatingWebhook{{Name: "a.example.org" + v1alpha1.BindSuffix, ClientConfig: admissionregistrationv1.WebhookClientConfig{CABundle: bundle}}}
		}
		return c
	}
	served := func(by []byte) func(context.Context, []byte) error {
		return func(_ context.Context, bundle []byte) error {
			if !bytes.Contains(bundle, by) {
				return errors.New("certificate signed by unknown authority")
			}
			return nil
		}
	}
	for name, tc := range map[string]struct {
		reason  string
		entry   []byte
		serving func(context.Context, []byte) error
		delay   time.Duration
		want    []byte
		again   time.Duration
	}{
		"Due": {
			reason: "We should write the CA that is due.",
			entry:  next, serving: served(next), want: next,
		},
		"CertificateOfACAThatIsOver": {
			reason: "We should leave in the entries the CA by which we are verified, even when its time is over: our certificate of the next waits until all entries trust that one, too.",
			entry:  old, serving: served(old), want: both,
		},
		"NotServing": {
			reason: "We should write nothing where neither what is due nor what is carried verifies us.",
			entry:  next, serving: served(newCA(t)), again: 200 * time.Millisecond,
		},
		"FirstEntryBehindAService": {
			reason:  "We should give the Service the time to lead here before we write the first entry.",
			serving: served(next), delay: time.Hour, again: time.Hour,
		},
		"NextEntryBehindAService": {
			reason: "We should not wait where there are entries: they are called already.",
			entry:  next, serving: served(next), delay: time.Hour, want: next,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := &controllertest.Cached{Configuration: carrying(tc.entry), ClaimKinds: []v1alpha1.ClaimKind{*controllertest.NewClaimKind("a.example.org")}}
			inventory := selector.NewInventory()
			inventory.SetClaimKind(selector.NewClaimKind(&c.ClaimKinds[0]))
			inventory.Open()
			w := newConfigurator(t, c, secrets{"own/classbind-ca": {"ca.crt": next}}, inventory, nil, next)
			w.Serving, w.ServiceDelay = tc.serving, tc.delay
			// In the entry, and superseded for this long.
			w.trust.known = map[string]authority{}
			for der, certificate := range parse([][]byte{old}) {
				w.trust.known[der] = authority{certificate, time.Now().Add(-overlap)}
			}
			assert.Equal(t, tc.entry != nil && !bytes.Equal(tc.entry, next), w.outdated(t.Context()), "We should see without an event whether a round is due.")
			result, err := w.reconcile(t.Context(), &w.claims, w.writeClaims)
			require.NoError(t, err, tc.reason)
			assert.InDelta(t, tc.again, result.RequeueAfter, float64(time.Second), tc.reason)
			if tc.want == nil {
				assert.Empty(t, c.Applied, tc.reason)
				return
			}
			require.Len(t, c.Applied, 1, tc.reason)
			assert.Equal(t, string(tc.want), string(c.Applied[0].Webhooks[0].ClientConfig.CABundle), tc.reason)
		})
	}
}

// TestReconcileWebhookConfigurationOfClasses checks what differs from claims.
func TestReconcileWebhookConfigurationOfClasses(t *testing.T) {
	configuration := func(classKinds ...string) *admissionregistrationv1.ValidatingWebhookConfiguration {
		c := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ClassConfiguration, UID: "c0ffee", ResourceVersion: "7"}}
		for _, name := range classKinds {
			c.Webhooks = append(c.Webhooks, admissionregistrationv1.ValidatingWebhook{
				Name: name + v1alpha1.GuardSuffix,
				Rules: []admissionregistrationv1.RuleWithOperations{{
					Operations: []admissionregistrationv1.OperationType{"CREATE", "UPDATE"},
					Rule:       admissionregistrationv1.Rule{APIVersions: []string{"v7"}, Scope: new(admissionregistrationv1.AllScopes)},
				}},
			})
		}
		return c
	}
	kinds := func(ready metav1.ConditionStatus, names ...string) (all []v1alpha1.ClassKind) {
		for _, name := range names {
			k := v1alpha1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: name}}
			if ready != "" {
				k.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: ready}}
			}
			all = append(all, k)
		}
		return all
	}
	// serving has the class kind at an index serve a claim kind.
	serving := func(claimKind string, all []v1alpha1.ClassKind, i int) []v1alpha1.ClassKind {
		all[i].Spec.ClaimKinds = []string{"others.example.org", claimKind + ".example.org"}
		return all
	}
	watched := []v1alpha1.ClaimKind{*controllertest.NewClaimKind("later.example.org"), *controllertest.NewClaimKind("counted.example.org"), *controllertest.NewClaimKind("admitted.example.org")}
	watched[0].Spec.WhenUnmatched, watched[1].Spec.Strategy, watched[2].Spec.WhenUnmatched = v1alpha1.BindLater, v1alpha1.LeastClaims, v1alpha1.Admit
	const isReady, isNot = metav1.ConditionTrue, metav1.ConditionFalse
	ca := newCA(t)
	type entry struct{ name, version, scope string }
	type want struct {
		applied bool
		entries []entry
		again   time.Duration
		problem string // within it; empty, there is none
	}
	for name, tc := range map[string]struct {
		reason  string
		serving error
		client  *controllertest.Cached
		want    want
	}{
		"NoConfiguration": {
			reason: "We should not make a configuration that nobody deployed.",
			client: &controllertest.Cached{ClassKinds: kinds(isReady, "a.example.org")},
			want:   want{again: registry.RetryAfter, problem: `there is no ValidatingWebhookConfiguration "classbind": kubectl apply -k deploy`},
		},
		"NotServing": {
			reason:  "We should write no entry, and take none out, before a call of it would reach us.",
			serving: errors.New("certificate signed by unknown authority"),
			client:  &controllertest.Cached{Guarding: configuration("b.example.org"), ClassKinds: kinds(isReady, "a.example.org")},
			want:    want{again: 200 * time.Millisecond, problem: "this replica does not serve yet: certificate signed by unknown authority"},
		},
		"InOrder": {
			reason: "We should write entries in the order of their names: each new order would be a change.",
			client: &controllertest.Cached{Guarding: configuration(), ClassKinds: kinds(isReady, "b.example.org", "c.example.org", "a.example.org")},
			want: want{applied: true, entries: []entry{
				{"a.example.org.guard.classbind.io", "v1", "Namespaced"},
				{"b.example.org.guard.classbind.io", "v1", "Namespaced"},
				{"c.example.org.guard.classbind.io", "v1", "Cluster"},
			}},
		},
		"Deletions": {
			reason: "We should be asked about the deletion of classes whose claims are watched, and of no others.",
			client: &controllertest.Cached{
				Guarding: configuration(), ClaimKinds: watched,
				ClassKinds: serving("later", serving("counted", serving("admitted", kinds(isReady, "a.example.org", "b.example.org", "c.example.org"), 2), 1), 0),
			},
			want: want{applied: true, entries: []entry{
				{"a.example.org.guard.classbind.io", "v1", "Namespaced"},
				{"a.example.org.deletion.classbind.io", "*", "Namespaced"},
				{"b.example.org.guard.classbind.io", "v1", "Namespaced"},
				{"b.example.org.deletion.classbind.io", "*", "Namespaced"},
				{"c.example.org.guard.classbind.io", "v1", "Cluster"},
			}},
		},
		"DeletionsNotServed": {
			reason: "We should keep both entries of a kind whose CRD is installed.",
			client: &controllertest.Cached{
				Guarding: configuration("golds.absent.example.org"), ClaimKinds: watched,
				ClassKinds: serving("later", kinds(isReady, "golds.absent.example.org"), 0), CRDs: []string{"golds.absent.example.org"},
			},
			want: want{
				applied: true, entries: []entry{{"golds.absent.example.org.guard.classbind.io", "v7", "*"}, {"golds.absent.example.org.deletion.classbind.io", "*", "*"}},
				again: registry.RetryCRDAfter, problem: `"golds.absent.example.org": ` + registry.ErrCRDNotServed.Error(),
			},
		},
		"NotReady": {
			reason: "We should guard the kinds alone whose classes are offered to claims.",
			client: &controllertest.Cached{
				Guarding:   configuration(),
				ClassKinds: slices.Concat(kinds("", "a.example.org"), kinds(isReady, "b.example.org"), kinds(isNot, "c.example.org")),
			},
			want: want{applied: true, entries: []entry{{"b.example.org.guard.classbind.io", "v1", "Namespaced"}}},
		},
		"ReadyNoMore": {
			reason: "We should take the entry out of a kind whose classes are offered no more.",
			client: &controllertest.Cached{
				Guarding:   configuration("a.example.org", "b.example.org"),
				ClassKinds: slices.Concat(kinds(isNot, "a.example.org"), kinds(isReady, "b.example.org")),
			},
			want: want{applied: true, entries: []entry{{"b.example.org.guard.classbind.io", "v1", "Namespaced"}}},
		},
		"NoKinds": {
			reason: "We should take our entries out when nothing is registered any more.",
			client: &controllertest.Cached{Guarding: configuration("a.example.org")},
			want:   want{applied: true},
		},
		"Uninstalled": {
			reason: "We should take the entry out of a kind whose CRD is gone, and look again.",
			client: &controllertest.Cached{Guarding: configuration("golds.absent.example.org"), ClassKinds: kinds(isReady, "a.example.org", "golds.absent.example.org")},
			want: want{
				applied: true, entries: []entry{{"a.example.org.guard.classbind.io", "v1", "Namespaced"}},
				again: registry.RetryAfter, problem: `"golds.absent.example.org": ` + cluster.ErrNotInstalled.Error(),
			},
		},
		"Unsuitable": {
			reason: "We should take the entry out of a kind that cannot be watched any more: nobody would be offered its classes.",
			client: &controllertest.Cached{Guarding: configuration("d.example.org"), ClassKinds: kinds(isReady, "a.example.org", "d.example.org")},
			want: want{
				applied: true, entries: []entry{{"a.example.org.guard.classbind.io", "v1", "Namespaced"}},
				again: registry.RetryAfter, problem: `"d.example.org": the resource cannot be used: the API server does not serve it with the verbs ["watch"]`,
			},
		},
		"NotServed": {
			reason: "We should keep the entry of a kind whose CRD is installed, leave out one that had none, and look again soon.",
			client: &controllertest.Cached{
				Guarding: configuration("golds.absent.example.org"), ClassKinds: kinds(isReady, "golds.absent.example.org", "others.absent.example.org"),
				CRDs: []string{"golds.absent.example.org", "others.absent.example.org"},
			},
			want: want{
				applied: true, entries: []entry{{"golds.absent.example.org.guard.classbind.io", "v7", "*"}},
				again: registry.RetryCRDAfter, problem: `"golds.absent.example.org": ` + registry.ErrCRDNotServed.Error(),
			},
		},
		"NotAnswered": {
			reason: "We should keep the entry of a kind of which we cannot tell whether it is installed, leave out one that had none, and look again.",
			client: &controllertest.Cached{Guarding: configuration("golds.down.example.org"), ClassKinds: kinds(isReady, "a.example.org", "golds.down.example.org", "others.down.example.org")},
			want: want{
				applied: true, entries: []entry{{"a.example.org.guard.classbind.io", "v1", "Namespaced"}, {"golds.down.example.org.guard.classbind.io", "v7", "*"}},
				again: registry.RetryAfter, problem: `"golds.down.example.org": cannot look up the API group "down.example.org": `,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inventory := selector.NewInventory()
			inventory.Open()
			w := newConfigurator(t, tc.client, secrets{"own/classbind-ca": {"ca.crt": ca}}, inventory, tc.serving, ca)
			result, err := w.reconcile(t.Context(), &w.classes, w.writeClasses)
			require.NoError(t, err, tc.reason)
			assert.Equal(t, ctrl.Result{RequeueAfter: tc.want.again}, result, tc.reason)
			assert.Contains(t, w.classes.problem, tc.want.problem, "We should know what is the matter.")
			assert.Equal(t, tc.want.problem == "", w.classes.problem == "", "We should know whether anything is the matter.")
			assert.Empty(t, w.claims.problem, "We should not lay it at the door of the claims.")
			assert.Empty(t, tc.client.Applied, "We should leave the configuration of the claims alone.")
			if !tc.want.applied {
				assert.Empty(t, tc.client.Guarded, tc.reason)
				return
			}
			require.Len(t, tc.client.Guarded, 1, tc.reason)
			applied := tc.client.Guarded[0]
			assert.Equal(t, configuration().UID, *applied.UID, "We should apply to the object that we read, and to no new one.")
			var got []entry
			for _, e := range applied.Webhooks {
				assert.Equal(t, ca, e.ClientConfig.CABundle, "We should write an entry together with its CA.")
				operations := []admissionregistrationv1.OperationType{"CREATE", "UPDATE"}
				if strings.HasSuffix(*e.Name, v1alpha1.DeletionSuffix) {
					operations = []admissionregistrationv1.OperationType{"DELETE"}
				}
				assert.Equal(t, operations, e.Rules[0].Operations, "We should be asked about creations and updates, and in an entry of their own about deletions.")
				got = append(got, entry{*e.Name, e.Rules[0].APIVersions[0], string(*e.Rules[0].Scope)})
			}
			assert.Equal(t, tc.want.entries, got, tc.reason)
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

// TestReconcileTrusts checks that both configurations have the same CAs: replicas serve both.
func TestReconcileTrusts(t *testing.T) {
	old, ours, certManagers := newCA(t), newCA(t), newCA(t)
	inventory := selector.NewInventory()
	kind := controllertest.NewClaimKind("a.example.org")
	inventory.SetClaimKind(selector.NewClaimKind(kind))
	inventory.Open()
	c := &controllertest.Cached{
		ClaimKinds: []v1alpha1.ClaimKind{*kind},
		ClassKinds: []v1alpha1.ClassKind{{ObjectMeta: metav1.ObjectMeta{Name: "b.example.org"}, Status: v1alpha1.ClassKindStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue}}}}},
		Configuration: &admissionregistrationv1.MutatingWebhookConfiguration{
			Webhooks: []admissionregistrationv1.MutatingWebhook{{Name: "a.example.org" + v1alpha1.BindSuffix, ClientConfig: admissionregistrationv1.WebhookClientConfig{CABundle: old}}},
		},
		Guarding: &admissionregistrationv1.ValidatingWebhookConfiguration{},
	}
	live := secrets{"own/classbind-ca": {"ca.crt": ours}, "own/classbind-tls": {"ca.crt": certManagers}}
	w := newConfigurator(t, c, live, inventory, nil, nil)
	w.Serving = func(context.Context, []byte) error { return nil }
	for range 2 { // In the second round of the claims, the classes have seen the old CA, too.
		_, err := w.reconcile(t.Context(), &w.claims, w.writeClaims)
		require.NoError(t, err)
		_, err = w.reconcile(t.Context(), &w.classes, w.writeClasses)
		require.NoError(t, err)
	}
	require.Len(t, c.Applied, 2)
	require.Len(t, c.Guarded, 2)
	bundle := c.Applied[0].Webhooks[0].ClientConfig.CABundle
	assert.Equal(t, parse([][]byte{old, ours, certManagers}), parse([][]byte{bundle}), "We should trust the CAs of both modes, and the one of which a replica may still serve a certificate.")
	for i := range 2 {
		assert.Equal(t, string(bundle), string(c.Applied[i].Webhooks[0].ClientConfig.CABundle), "We should write the same each time.")
		assert.Equal(t, string(bundle), string(c.Guarded[i].Webhooks[0].ClientConfig.CABundle), "We should trust for classes what we trust for claims.")
	}

	refused := errors.New("connection refused")
	w.Live = &controllertest.Cached{Err: refused}
	_, err := w.reconcile(t.Context(), &w.claims, w.writeClaims)
	require.ErrorIs(t, err, refused, "We should not take a CA for gone when we could not look.")
	assert.Contains(t, w.claims.Problem(), "cannot get the CA: ", "We should say in each status what is the matter.")
	w.Live, w.Client = live, noClasses{c, refused}
	_, err = w.reconcile(t.Context(), &w.claims, w.writeClaims)
	require.ErrorIs(t, err, refused, "We should not go on when we could not see what all entries trust: what a replica serves may be of a CA that those of the classes alone carry.")
	assert.Len(t, c.Applied, 2, "We should write nothing then.")
}

func TestReadyChanged(t *testing.T) {
	kind := func(generation int64, ready metav1.ConditionStatus, others ...metav1.Condition) *v1alpha1.ClassKind {
		return &v1alpha1.ClassKind{
			ObjectMeta: metav1.ObjectMeta{Generation: generation},
			Status:     v1alpha1.ClassKindStatus{Conditions: append(others, metav1.Condition{Type: v1alpha1.ConditionReady, Status: ready})},
		}
	}
	for name, tc := range map[string]struct {
		reason        string
		before, after *v1alpha1.ClassKind
		want          bool
	}{
		"Ready":       {"We should write the entry of a kind whose classes are offered now.", kind(1, metav1.ConditionFalse), kind(1, metav1.ConditionTrue), true},
		"ReadyAtOnce": {"We should write the entry of a kind that had no status before.", &v1alpha1.ClassKind{ObjectMeta: metav1.ObjectMeta{Generation: 1}}, kind(1, metav1.ConditionTrue), true},
		"ReadyNoMore": {"We should take out the entry of a kind whose classes are offered no more.", kind(1, metav1.ConditionTrue), kind(1, metav1.ConditionFalse), true},
		"Changed":     {"We should write the entry anew of a kind that is registered otherwise.", kind(1, metav1.ConditionTrue), kind(2, metav1.ConditionTrue), true},
		"StillReady": {
			"We should do nothing for another condition, of which we write one ourselves.",
			kind(1, metav1.ConditionTrue), kind(1, metav1.ConditionTrue, metav1.Condition{Type: v1alpha1.ConditionGuarded, Status: metav1.ConditionTrue}), false,
		},
		"StillNot": {"We should do nothing for a kind for which there is nothing to do.", kind(1, metav1.ConditionFalse), kind(1, metav1.ConditionUnknown), false},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.want, readyPredicate.Update(event.UpdateEvent{ObjectOld: tc.before, ObjectNew: tc.after}), tc.reason)
		})
	}
	assert.True(t, readyPredicate.Create(event.CreateEvent{Object: kind(1, metav1.ConditionTrue)}), "We should look at a kind that is new.")
	assert.True(t, readyPredicate.Delete(event.DeleteEvent{Object: kind(1, metav1.ConditionTrue)}), "We should take out the entry of a kind that is registered no more.")
}
