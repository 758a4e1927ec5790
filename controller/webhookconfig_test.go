package controller

import (
	"context"
	"encoding/json"
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
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	admissionregistrationac "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector"
)

func newClaimKind(name string) *v1alpha1.ClaimKind {
	return &v1alpha1.ClaimKind{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.ClaimKindSpec{
			Paths:         v1alpha1.ClaimPaths{ClassRef: ".spec.classRef", SkipIfSet: []v1alpha1.FieldPath{".spec.resourceRef"}},
			FailurePolicy: v1alpha1.Fail,
		},
	}
}

func TestClaimEntry(t *testing.T) {
	const (
		// That of a Service, with the placeholder %s for what differs.
		entry = `{
			"name": "claims.example.org.bind.classbind.io",
			"clientConfig": {%s, "caBundle": "UEVN"},
			"rules": [{"operations": ["CREATE"], "apiGroups": ["example.org"], "apiVersions": ["v1"], "resources": ["claims"], "scope": "Namespaced"}],
			"failurePolicy": %q,
			"matchPolicy": "Equivalent",
			"namespaceSelector": {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "classbind-system"]}]},
			"matchConditions": [
				{"name": "class-reference-is-not-set", "expression": %q},
				{"name": "skip-if-set-0-is-not-set", "expression": %q}],
			"reinvocationPolicy": "Never",
			"sideEffects": "None",
			"timeoutSeconds": 3,
			"admissionReviewVersions": ["v1"]
		}`
		noReference = `!(type(object) == map && "spec" in object && type(object["spec"]) == map && "classRef" in object["spec"] && object["spec"]["classRef"] != null)`
		noResource  = `!(type(object) == map && "spec" in object && type(object["spec"]) == map && "resourceRef" in object["spec"] && object["spec"]["resourceRef"] != null)`
	)
	service := `"service": {"namespace": "classbind-system", "name": "classbind", "path": "/bind", "port": 443}`
	for name, tc := range map[string]struct {
		reason string
		url    string
		policy v1alpha1.FailurePolicy
		want   string
	}{
		"Service": {
			reason: "We should have a Service called.",
			policy: v1alpha1.Fail, want: service,
		},
		"Ignore": {
			reason: "We should take over the failure policy.",
			policy: v1alpha1.Ignore, want: service,
		},
		"URL": {
			reason: "We should have a URL called, and no Service.",
			url:    "https://localhost:9443", policy: v1alpha1.Fail, want: `"url": "https://localhost:9443/bind"`,
		},
		"URLWithASlash": {
			reason: "We should not write two slashes.",
			url:    "https://localhost:9443/", policy: v1alpha1.Fail, want: `"url": "https://localhost:9443/bind"`,
		},
		"URLWithAPath": {
			reason: "We should keep the path of a proxy.",
			url:    "https://proxy/classbind", policy: v1alpha1.Fail, want: `"url": "https://proxy/classbind/bind"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := &WebhookConfigurator{Namespace: "classbind-system", Service: "classbind", URL: tc.url}
			k := newClaimKind("claims.example.org")
			k.Spec.FailurePolicy = tc.policy
			rule := admissionregistrationac.RuleWithOperations().WithOperations(admissionregistrationv1.Create).
				WithAPIGroups("example.org").WithAPIVersions("v1").WithResources("claims").WithScope(admissionregistrationv1.NamespacedScope)
			got, err := json.Marshal(w.claimEntry(k, rule, []byte("PEM")))
			require.NoError(t, err)
			assert.JSONEq(t, fmt.Sprintf(entry, tc.want, tc.policy, noReference, noResource), string(got), tc.reason)
		})
	}
}

func TestClaimConditions(t *testing.T) {
	type condition struct{ name, expression string }
	for name, tc := range map[string]struct {
		reason string
		paths  v1alpha1.ClaimPaths
		want   []condition
	}{
		"TopLevel": {
			reason: "We should ask for the type of the object itself alone.",
			paths:  v1alpha1.ClaimPaths{ClassRef: ".className"},
			want: []condition{
				{"class-reference-is-not-set", `!(type(object) == map && "className" in object && object["className"] != null)`},
			},
		},
		"Nested": {
			reason: "We should ask for the type of each parent before we look into it.",
			paths:  v1alpha1.ClaimPaths{ClassRef: ".spec.a.b"},
			want: []condition{
				{"class-reference-is-not-set", `!(type(object) == map && "spec" in object && type(object["spec"]) == map && "a" in object["spec"] && ` +
					`type(object["spec"]["a"]) == map && "b" in object["spec"]["a"] && object["spec"]["a"]["b"] != null)`},
			},
		},
		"Keywords": {
			reason: "We should ask by index, so that a field may have the name of a keyword or a dash in it, and have a condition for each path.",
			paths:  v1alpha1.ClaimPaths{ClassRef: ".in", SkipIfSet: []v1alpha1.FieldPath{".namespace", ".a-b"}},
			want: []condition{
				{"class-reference-is-not-set", `!(type(object) == map && "in" in object && object["in"] != null)`},
				{"skip-if-set-0-is-not-set", `!(type(object) == map && "namespace" in object && object["namespace"] != null)`},
				{"skip-if-set-1-is-not-set", `!(type(object) == map && "a-b" in object && object["a-b"] != null)`},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []condition
			for _, c := range claimConditions(&v1alpha1.ClaimKind{Spec: v1alpha1.ClaimKindSpec{Paths: tc.paths}}) {
				got = append(got, condition{*c.Name, *c.Expression})
			}
			assert.Equal(t, tc.want, got, tc.reason)
		})
	}
}

func TestNamespaceSelector(t *testing.T) {
	const always = `{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "own"]}`
	for name, tc := range map[string]struct {
		reason   string
		selector v1alpha1.NamespaceSelector
		want     string
	}{
		"Empty": {
			reason: "We should leave out kube-system and our own namespace.",
			want:   `{"matchExpressions": [` + always + `]}`,
		},
		"Labels": {
			reason:   "We should keep all labels.",
			selector: v1alpha1.NamespaceSelector{MatchLabels: map[string]v1alpha1.LabelValue{"env": "prod", "team": ""}},
			want:     `{"matchLabels": {"env": "prod", "team": ""}, "matchExpressions": [` + always + `]}`,
		},
		"Expressions": {
			reason: "We should keep all expressions, even one that asks for what we leave out.",
			selector: v1alpha1.NamespaceSelector{MatchExpressions: []v1alpha1.NamespaceSelectorRequirement{
				{Key: "env", Operator: metav1.LabelSelectorOpExists},
				{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: []v1alpha1.LabelValue{"own", "kube-system"}},
			}},
			want: `{"matchExpressions": [` + always + `, {"key": "env", "operator": "Exists"},
				{"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["own", "kube-system"]}]}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := &WebhookConfigurator{Namespace: "own"}
			got, err := json.Marshal(w.namespaceSelector(tc.selector))
			require.NoError(t, err)
			assert.JSONEq(t, tc.want, string(got), tc.reason)
		})
	}
}

func TestReconcileWebhookConfiguration(t *testing.T) {
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.WebhookConfiguration, UID: "c0ffee"}}
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
	ca := &corev1.Secret{Data: map[string][]byte{"ca.crt": []byte("PEM")}}
	kinds := func(names ...string) (all []v1alpha1.ClaimKind) {
		for _, name := range names {
			all = append(all, *newClaimKind(name))
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
		reason  string
		closed  bool
		serving error
		unheard []string // claim kinds that this replica has not heard of
		client  *cached
		want    want
	}{
		"Closed": {
			reason: "We should write nothing before we can serve it.",
			closed: true, client: &cached{configuration: configuration, ca: ca, kinds: kinds("a.example.org")},
		},
		"NoConfiguration": {
			reason: "We should not make a configuration that nobody deployed.",
			client: &cached{ca: ca, kinds: kinds("a.example.org")},
			want:   want{again: retryAfter, problem: "kubectl apply -k deploy/base"},
		},
		"NoCA": {
			reason: "We should write no entry without its CA.",
			client: &cached{configuration: configuration, kinds: kinds("a.example.org")},
			want:   want{again: 200 * time.Millisecond, problem: noCA},
		},
		"EmptyCA": {
			reason: "We should write no entry while the Secret holds no CA: every call would fail.",
			client: &cached{configuration: configuration, ca: &corev1.Secret{}, kinds: kinds("a.example.org")},
			want:   want{again: 200 * time.Millisecond, problem: noCA},
		},
		"NotServing": {
			reason:  "We should write no entry, and take none out, before a call of it would reach us, and say what is the matter.",
			serving: errors.New("certificate signed by unknown authority"),
			client:  &cached{configuration: configured, ca: ca, kinds: kinds("a.example.org")},
			want:    want{again: 200 * time.Millisecond, problem: "this replica does not serve yet: certificate signed by unknown authority"},
		},
		"NoKinds": {
			reason: "We should take our entries out when nothing is registered any more.",
			client: &cached{configuration: configured, ca: ca},
			want:   want{applied: true},
		},
		"InOrder": {
			reason: "We should write entries in the order of their names: the cache has none, and each new order would be a change, whose event would bring us back here.",
			client: &cached{configuration: configuration, ca: ca, kinds: kinds("b.example.org", "c.example.org", "a.example.org")},
			want: want{applied: true, entries: []entry{
				{"a.example.org.bind.classbind.io", "v1"}, {"b.example.org.bind.classbind.io", "v1"}, {"c.example.org.bind.classbind.io", "v1"},
			}},
		},
		"NotInstalled": {
			reason: "We should leave out a kind that is not installed, and look again.",
			client: &cached{configuration: configured, ca: ca, kinds: kinds("a.example.org", "claims.absent.example.org")},
			want: want{
				applied: true, entries: []entry{{"a.example.org.bind.classbind.io", "v1"}},
				again: retryAfter, problem: `"claims.absent.example.org": ` + errNotInstalled.Error(),
			},
		},
		"NotServed": {
			reason: "We should keep the entry of a kind whose CRD is installed, leave out one that had none, and look again soon.",
			client: &cached{
				configuration: absent, ca: ca, kinds: kinds("a.example.org", "claims.absent.example.org", "others.absent.example.org"),
				crds: []string{"claims.absent.example.org", "others.absent.example.org"},
			},
			want: want{
				applied: true, entries: []entry{{"a.example.org.bind.classbind.io", "v1"}, {"claims.absent.example.org.bind.classbind.io", "v7"}},
				again: retryCRDAfter, problem: `"claims.absent.example.org": ` + errNotServed.Error(),
			},
		},
		"Uninstalled": {
			reason: "We should take the entry out of a kind whose CRD is gone.",
			client: &cached{configuration: absent, ca: ca, kinds: kinds("a.example.org", "claims.absent.example.org")},
			want: want{
				applied: true, entries: []entry{{"a.example.org.bind.classbind.io", "v1"}},
				again: retryAfter, problem: `"claims.absent.example.org": ` + errNotInstalled.Error(),
			},
		},
		"NotHeardOf": {
			reason:  "We should write no entry for a kind that this replica would not know, and look again soon.",
			unheard: []string{"b.example.org"},
			client:  &cached{configuration: configuration, ca: ca, kinds: kinds("a.example.org", "b.example.org")},
			want: want{
				applied: true, entries: []entry{{"a.example.org.bind.classbind.io", "v1"}},
				again: retryCRDAfter, problem: `"b.example.org": it is not registered on this replica yet`,
			},
		},
		"NotAnswered": {
			reason: "We should keep the entry of a kind of which we cannot tell whether it is installed, leave out one that had none, and look again.",
			client: &cached{configuration: configured, ca: ca, kinds: kinds("a.example.org", "claims.down.example.org", "others.down.example.org")},
			want: want{
				applied: true, entries: []entry{{"a.example.org.bind.classbind.io", "v1"}, {"claims.down.example.org.bind.classbind.io", "v7"}},
				again: retryAfter, problem: `"claims.down.example.org": cannot look up the API group "down.example.org": `,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			creatable := func(plural string) metav1.APIResource {
				return metav1.APIResource{Name: plural, Kind: plural, Namespaced: true, Verbs: metav1.Verbs{"create"}}
			}
			resolver, err := newResolver(newAPIServer(t, map[string]any{
				"/apis/example.org":      apiGroup("v1"),
				"/apis/example.org/v1":   apiResources(creatable("a"), creatable("b"), creatable("c")),
				"/apis/down.example.org": failure(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable),
			}))
			require.NoError(t, err)
			inventory := selector.NewInventory()
			for i := range tc.client.kinds {
				if !slices.Contains(tc.unheard, tc.client.kinds[i].Name) {
					inventory.SetClaimKind(selector.NewClaimKind(&tc.client.kinds[i]))
				}
			}
			if !tc.closed {
				inventory.Open()
			}
			w := &WebhookConfigurator{
				Registration: &Registration{Inventory: inventory, resolver: resolver, reader: tc.client},
				Client:       tc.client, Namespace: "own", Service: "classbind",
				Serving: func(_ context.Context, ca []byte) error {
					if len(ca) == 0 {
						return errors.New("no CA")
					}
					assert.Equal(t, []byte("PEM"), ca, "We should have our certificate verified by the CA that we are to write.")
					return tc.serving
				},
			}
			result, err := w.reconcile(t.Context(), &w.claims, w.writeClaims)
			require.NoError(t, err, tc.reason)
			assert.Equal(t, ctrl.Result{RequeueAfter: tc.want.again}, result, tc.reason)
			if tc.want.problem == "" {
				assert.Empty(t, w.claims.sharedProblem(), tc.reason)
			} else {
				assert.Contains(t, w.claims.problem, tc.want.problem, "We should know what is the matter.")
				ofOneKind := strings.HasPrefix(tc.want.problem, `"`)
				assert.Equal(t, ofOneKind, w.claims.sharedProblem() == "", "We should not lay one kind's problem at the door of the others.")
			}
			if !tc.want.applied {
				assert.Empty(t, tc.client.applied, tc.reason)
				return
			}
			require.Len(t, tc.client.applied, 1, tc.reason)
			applied := tc.client.applied[0]
			assert.Equal(t, configuration.UID, *applied.UID, "We should apply to the object that we read, and to no new one.")
			var got []entry
			for _, e := range applied.Webhooks {
				assert.Equal(t, []byte("PEM"), e.ClientConfig.CABundle, "We should write an entry together with its CA.")
				got = append(got, entry{*e.Name, e.Rules[0].APIVersions[0]})
			}
			assert.Equal(t, tc.want.entries, got, tc.reason)
		})
	}
}
