package webhookconfig

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/controller/registry"
)

func TestOrder(t *testing.T) {
	const a, b = "a.example.org" + v1beta1.BindSuffix, "b.example.org" + v1beta1.BindSuffix
	last := func(entries ...string) *admissionregistrationv1.MutatingWebhookConfiguration {
		return configurationWith(v1beta1.LastConfiguration, entries...)
	}
	first := func(entries ...string) *admissionregistrationv1.MutatingWebhookConfiguration {
		return configurationWith(v1beta1.FirstConfiguration, entries...)
	}
	for name, tc := range map[string]struct {
		reason      string
		order       v1beta1.Order
		last, first *admissionregistrationv1.MutatingWebhookConfiguration
		want        map[string][]string // the entries of each configuration that is written
		removed     []string
		problem     string
	}{
		"Last": {
			reason: "We should write both into the last one, and leave alone the one that has none.", order: v1beta1.OrderLast, last: last(), first: first(),
			want: map[string][]string{v1beta1.LastConfiguration: {a, b}},
		},
		"NoOrder": {reason: "We should take no order for the last.", last: last(), first: first(), want: map[string][]string{v1beta1.LastConfiguration: {a, b}}},
		"First": {
			reason: "We should write each into that of its order.", order: v1beta1.OrderFirst, last: last(), first: first(),
			want: map[string][]string{v1beta1.FirstConfiguration: {a}, v1beta1.LastConfiguration: {b}},
		},
		"BecomesFirst": {
			reason: "We should keep the old entry until the new one is seen.", order: v1beta1.OrderFirst, last: last(a, b), first: first(),
			want: map[string][]string{v1beta1.FirstConfiguration: {a}, v1beta1.LastConfiguration: {a, b}},
		},
		"IsFirst": {
			reason: "We should remove the old entry once the new one is seen.", order: v1beta1.OrderFirst, last: last(a, b), first: first(a),
			want: map[string][]string{v1beta1.FirstConfiguration: {a}, v1beta1.LastConfiguration: {b}}, removed: []string{a},
		},
		"BecomesLast": {
			reason: "We should do the same the other way round.", order: v1beta1.OrderLast, last: last(b), first: first(a),
			want: map[string][]string{v1beta1.FirstConfiguration: {a}, v1beta1.LastConfiguration: {a, b}},
		},
		"IsLast": {
			reason: "We should do the same the other way round.", order: v1beta1.OrderLast, last: last(a, b), first: first(a),
			want: map[string][]string{v1beta1.FirstConfiguration: nil, v1beta1.LastConfiguration: {a, b}}, removed: []string{a},
		},
		"NoFirst": {reason: "We should go on without a configuration that nobody needs.", order: v1beta1.OrderLast, last: last(), want: map[string][]string{v1beta1.LastConfiguration: {a, b}}},
		"FirstIsMissing": {
			reason: "We should write the other one, keep what is called, and say what is missing.", order: v1beta1.OrderFirst, last: last(a),
			want:    map[string][]string{v1beta1.LastConfiguration: {a, b}},
			problem: `there is no MutatingWebhookConfiguration "00-classbind": kubectl apply -k deploy`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := &controllertest.Cached{Configuration: tc.last, First: tc.first, ClaimKinds: []v1beta1.ClaimKind{
				claimKind("a.example.org", func(k *v1beta1.ClaimKind) { k.Spec.Admission.Order = tc.order }), claimKind("b.example.org"),
			}}
			w := newConfigurator(t, c, newCA(t))
			result := roundOfClaims(t, w)
			assert.Equal(t, tc.problem, w.claims.Problem(), tc.reason)
			again := time.Duration(0)
			if tc.problem != "" {
				again = registry.RetryAfter
			}
			assert.Equal(t, again, result.RequeueAfter, tc.reason)
			got := map[string][]string{}
			for _, applied := range c.Applied {
				got[applied.Name] = nil
				for _, e := range applied.Webhooks {
					got[applied.Name] = append(got[applied.Name], e.Name)
				}
			}
			assert.Equal(t, tc.want, got, tc.reason)
			assert.Equal(t, tc.removed, c.Removed, tc.reason)
		})
	}
}
