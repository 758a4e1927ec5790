package webhookconfig

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/controller/registry"
)

// reinstall is what mends a configuration that is not there.
const reinstall = "apply the manifests of classbind again: " + cluster.InstallPage

func TestOrder(t *testing.T) {
	const a, b = "a.example.org" + v1beta1.BindSuffix, "b.example.org" + v1beta1.BindSuffix
	last := func(entries ...string) *admissionregistrationv1.MutatingWebhookConfiguration {
		return configurationWith(v1beta1.LastConfiguration, entries...)
	}
	first := func(entries ...string) *admissionregistrationv1.MutatingWebhookConfiguration {
		return configurationWith(v1beta1.FirstConfiguration, entries...)
	}
	for name, tc := range map[string]struct {
		reason          string
		order           v1beta1.Order
		last, first     *admissionregistrationv1.MutatingWebhookConfiguration
		inLast, inFirst []string // the entries that are written, nil if nothing is
		removed         []string
		problem         string
	}{
		"Last": {
			reason: "We should write both into the last one, and leave alone the one that has none.",
			order:  v1beta1.OrderLast,
			last:   last(),
			first:  first(),
			inLast: []string{a, b},
		},
		"NoOrder": {reason: "We should take no order for the last.", last: last(), first: first(), inLast: []string{a, b}},
		"First": {
			reason:  "We should write each into that of its order.",
			order:   v1beta1.OrderFirst,
			last:    last(),
			first:   first(),
			inLast:  []string{b},
			inFirst: []string{a},
		},
		"BecomesFirst": {
			reason:  "We should keep the old entry until the new one is seen.",
			order:   v1beta1.OrderFirst,
			last:    last(a, b),
			first:   first(),
			inLast:  []string{a, b},
			inFirst: []string{a},
		},
		"IsFirst": {
			reason: "We should remove the old entry once the new one is seen.", order: v1beta1.OrderFirst, last: last(a, b), first: first(a),
			inLast: []string{b}, inFirst: []string{a}, removed: []string{a},
		},
		"BecomesLast": {
			reason:  "We should do the same the other way round.",
			order:   v1beta1.OrderLast,
			last:    last(b),
			first:   first(a),
			inLast:  []string{a, b},
			inFirst: []string{a},
		},
		"IsLast": {
			reason: "We should do the same the other way round.", order: v1beta1.OrderLast, last: last(a, b), first: first(a),
			inLast: []string{a, b}, inFirst: []string{}, removed: []string{a},
		},
		"NoFirst": {reason: "We should go on without a configuration that nobody needs.", order: v1beta1.OrderLast, last: last(), inLast: []string{a, b}},
		"FirstIsMissing": {
			reason: "We should write the other one, keep what is called, and say what is missing.", order: v1beta1.OrderFirst, last: last(a),
			inLast: []string{a, b}, problem: `there is no MutatingWebhookConfiguration "00-classbind": ` + reinstall,
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
			got := map[string][]string{v1beta1.LastConfiguration: nil, v1beta1.FirstConfiguration: nil}
			for _, applied := range c.Applied {
				got[applied.Name] = []string{}
				for _, e := range applied.Webhooks {
					got[applied.Name] = append(got[applied.Name], e.Name)
				}
			}
			assert.Equal(t, map[string][]string{v1beta1.LastConfiguration: tc.inLast, v1beta1.FirstConfiguration: tc.inFirst}, got, tc.reason)
			assert.Equal(t, tc.removed, c.Removed, tc.reason)
		})
	}
}

// refusing is an API server that does not know a word in an expression.
type refusing struct {
	*controllertest.Cached
	word    string
	refused int
	// isVague says nothing of the expression.
	isVague bool
}

func (c *refusing) Apply(ctx context.Context, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
	if err := c.Cached.Apply(ctx, o, options...); err != nil {
		return err
	}
	configuration := c.Applied[len(c.Applied)-1]
	var errs field.ErrorList
	for i, e := range configuration.Webhooks {
		for j, condition := range e.MatchConditions {
			if strings.Contains(condition.Expression, c.word) {
				at := field.NewPath("webhooks").Index(i).Child("matchConditions").Index(j).Child("expression")
				if c.isVague {
					errs = append(errs, field.InternalError(at, errors.New("no CEL")))
					continue
				}
				errs = append(errs, field.Invalid(at, condition.Expression, "compilation failed: undeclared reference"))
			}
		}
	}
	if len(errs) == 0 {
		return nil
	}
	c.refused, c.Applied = c.refused+1, c.Applied[:len(c.Applied)-1]
	return apierrors.NewInvalid(schema.GroupKind{Kind: "MutatingWebhookConfiguration"}, configuration.Name, errs)
}

func TestRefusedCondition(t *testing.T) {
	bindWhen := func(e v1beta1.Expression) func(*v1beta1.ClaimKind) {
		return func(k *v1beta1.ClaimKind) { k.Spec.Claims.When = e }
	}
	c := &controllertest.Cached{Configuration: configurationWith(v1beta1.LastConfiguration), ClaimKinds: []v1beta1.ClaimKind{
		claimKind("a.example.org", bindWhen("claim.spec.a == 'new \"words\"'")), claimKind("b.example.org", bindWhen("claim.spec.a == 'old'")),
		claimKind("c.example.org"),
	}}
	w := newConfigurator(t, c, newCA(t))
	old := &refusing{Cached: c, word: "new"}
	w.Client = old
	conditions := func() map[string]bool {
		t.Helper()
		require.NotEmpty(t, c.Applied)
		has := map[string]bool{}
		for _, e := range c.Applied[len(c.Applied)-1].Webhooks {
			has[strings.TrimSuffix(e.Name, v1beta1.BindSuffix)] = slices.ContainsFunc(e.MatchConditions, isBindWhen)
		}
		return has
	}

	assert.Positive(t, roundOfClaims(t, w).RequeueAfter, "We should try again without the expression.")
	assert.Empty(t, c.Applied)
	assert.Empty(t, w.claims.Problem(), "We should not notify the other kinds.")

	for range 2 {
		assert.Zero(t, roundOfClaims(t, w).RequeueAfter)
		assert.Equal(t, map[string]bool{"a.example.org": false, "b.example.org": true, "c.example.org": false}, conditions(),
			"We should have an entry for each, and be called for every claim of that kind.")
		assert.Equal(t, 1, old.refused, "We should not send again what was refused.")
	}

	old.word = "other"
	c.ClaimKinds[0].Spec.Claims.When = "claim.spec.b"
	roundOfClaims(t, w)
	assert.True(t, conditions()["a.example.org"], "We should try another expression.")

	old.word, old.isVague = ".b", true
	roundOfClaims(t, w)
	assert.Len(t, w.refused, 2, "We should leave out all if we cannot determine which.")

	clear(w.refused)
	old.word, old.isVague = "request.operation", false
	roundOfClaims(t, w)
	assert.Len(t, w.refused, 2)
	_, err := w.reconcile(t.Context(), &w.claims, w.writeClaims)
	require.Error(t, err, "We should not leave out a condition of our own.")
}
