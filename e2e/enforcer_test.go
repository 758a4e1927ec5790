package e2e

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/controlplane"
)

// enforcer is a provider's controller that adds a term to the namespaceSelector of each webhook, as AKS' does.
type enforcer struct {
	client.Client
	enforced int // how often it had to
}

const enforcerName = "admissionsenforcer"

var enforcedTerm = metav1.LabelSelectorRequirement{Key: "control-plane", Operator: metav1.LabelSelectorOpDoesNotExist}

// enforce the term on one configuration.
func (e *enforcer) enforce(ctx context.Context, name string, configuration client.Object) error {
	if err := e.Get(ctx, client.ObjectKey{Name: name}, configuration); err != nil {
		return err
	}
	var selectors []*metav1.LabelSelector
	switch c := configuration.(type) {
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		for i := range c.Webhooks {
			selectors = append(selectors, c.Webhooks[i].NamespaceSelector)
		}
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		for i := range c.Webhooks {
			selectors = append(selectors, c.Webhooks[i].NamespaceSelector)
		}
	}
	changed := false
	for _, s := range selectors {
		if !slices.ContainsFunc(s.MatchExpressions, func(t metav1.LabelSelectorRequirement) bool { return t.Key == enforcedTerm.Key }) {
			s.MatchExpressions, changed = append(s.MatchExpressions, enforcedTerm), true
		}
	}
	if !changed {
		return nil
	}
	e.enforced++
	err := e.Update(ctx, configuration, client.FieldOwner(enforcerName))
	if apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// TestEnforcer has the leader and an enforcer write the same webhook configurations, for ENFORCER, such as 10m.
func TestEnforcer(t *testing.T) {
	t.Parallel()
	duration := must(time.ParseDuration(cmp.Or(os.Getenv("ENFORCER"), "20s")))(t)
	w, r := servedWorld(t, controlplane.Options{Audit: true})
	const group = "enforcer.test"
	w.register(t, group, "{}", class(group, "Class", "gold", ""))
	w.awaitCondition(t, &v1beta1.ClassKind{}, "classes."+group, v1beta1.ConditionGuarded, metav1.ConditionTrue, "")
	leaderWrites := func() (n int) {
		for _, e := range w.audited(t) {
			if e.ObjectRef != nil && strings.HasSuffix(e.ObjectRef.Resource, "webhookconfigurations") && e.Stage == "ResponseComplete" &&
				strings.HasPrefix(e.User.Username, "system:serviceaccount:") && slices.Contains([]string{"patch", "update"}, e.Verb) {
				n++
			}
		}
		return n
	}
	before := leaderWrites()

	ctx, stop := context.WithCancel(t.Context())
	var enforcing sync.WaitGroup
	e := &enforcer{Client: w.Client}
	enforcing.Go(func() {
		for ctx.Err() == nil {
			err := e.enforce(ctx, v1beta1.ClassConfiguration, &admissionregistrationv1.ValidatingWebhookConfiguration{})
			for _, name := range []string{v1beta1.FirstConfiguration, v1beta1.LastConfiguration} {
				err = errors.Join(err, client.IgnoreNotFound(e.enforce(ctx, name, &admissionregistrationv1.MutatingWebhookConfiguration{})))
			}
			if err != nil && ctx.Err() == nil {
				t.Error(err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	})
	bound := 0
	for end := time.Now().Add(duration); time.Now().Before(end); bound++ {
		w.binds(t, claim(group, "probe"), "Class/gold", "We should see claims bound throughout.", client.DryRunAll)
		select {
		case <-ctx.Done():
		case <-time.After(500 * time.Millisecond):
		}
	}
	const who = `the field manager "` + enforcerName + `" adds terms`
	w.awaitCondition(t, &v1beta1.ClaimKind{}, "claims."+group, v1beta1.ConditionReady, metav1.ConditionTrue, who)
	w.awaitCondition(t, &v1beta1.ClassKind{}, "classes."+group, v1beta1.ConditionGuarded, metav1.ConditionTrue, who)
	writes := leaderWrites() - before
	// A new kind, too, keeps what others add.
	const second = "enforcer2.test"
	w.register(t, second, "{}", class(second, "Class", "gold", ""))
	w.awaitCondition(t, &v1beta1.ClaimKind{}, "claims."+second, v1beta1.ConditionReady, metav1.ConditionTrue, who)
	stop()
	enforcing.Wait()
	t.Logf("%s: %d writes by the leader, %d by the enforcer, %d of %d claims bound", duration, writes, e.enforced, bound, bound)
	assert.LessOrEqual(t, writes, 12, "We should not fight.")
	assert.Positive(t, e.enforced)
	require.Contains(t, r.log.String(), `Another client added terms`)
	require.Contains(t, r.log.String(), enforcerName)
	c := &admissionregistrationv1.MutatingWebhookConfiguration{}
	require.NoError(t, w.Get(t.Context(), client.ObjectKey{Name: v1beta1.LastConfiguration}, c))
	for _, webhook := range c.Webhooks {
		assert.Contains(t, webhook.NamespaceSelector.MatchExpressions, enforcedTerm, "We should keep the term of the enforcer.")
	}
}
