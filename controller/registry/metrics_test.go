package registry

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
)

func TestMetrics(t *testing.T) {
	synctest.Test(t, testMetrics) // For a clock that we control.
}

func testMetrics(t *testing.T) {
	golds, silvers := controllertest.NewClassKind("golds.example.org", "Gold"), controllertest.NewClassKind("silvers.example.org", "Silver")
	reader := &controllertest.Cached{}
	r := newRegistration(reader, nil, cluster.Resolver{}, nil)
	unheard := controllertest.NewClassKind("irons.example.org", "Iron")
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(registrationMetrics{r}))
	claimKind := func(name string) {
		reader.ClaimKinds = append(reader.ClaimKinds, *controllertest.NewClaimKind(name))
		r.Inventory.SetClaimKind(selector.NewClaimKind(controllertest.NewClaimKind(name)))
	}
	classKind := func(kind *inventory.ClassKind, err error, classes map[string][]string) {
		x := controllertest.NewClasses(kind, classes)
		w := watching(err)
		w.Confirm(time.Now())
		r.ClassKinds.kinds[kind.Name] = watchedKind(kind, w, x, true)
		r.Inventory.SetClasses(x)
	}
	claimKind("claims.example.org")
	claimKind("others.example.org")
	assert.Equal(t, map[string]float64{
		"claim_kind_ready claim_kind=claims.example.org": 0, "claim_kind_ready claim_kind=others.example.org": 0,
		"claim_kind_unserved claim_kind=claims.example.org": 0, "claim_kind_unserved claim_kind=others.example.org": 0,
	}, controllertest.Scraped(t, registry), "We should not count defaults before all classes are known.")

	r.Inventory.Open()
	reader.ClaimKinds[0].Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionReady, Status: metav1.ConditionTrue}}
	reader.ClaimKinds[1].Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1beta1.ReasonNoClassKind}}
	isDefault := []string{"default", "true"}
	classKind(golds, nil, map[string][]string{"a": isDefault, "b": nil})
	classKind(silvers, errors.New("refused"), map[string][]string{"a": isDefault})
	r.ClassKinds.kinds["bronzes.example.org"] = unfollowed(cluster.ErrNotInstalled)
	r.ClassKinds.kinds[unheard.Name] = watchedKind(unheard, watching(nil), nil, false)
	time.Sleep(7 * time.Second)
	want := map[string]float64{
		"claim_kind_ready claim_kind=claims.example.org": 1, "claim_kind_ready claim_kind=others.example.org": 0,
		"claim_kind_unserved claim_kind=claims.example.org": 0, "claim_kind_unserved claim_kind=others.example.org": 1,
		"default_classes claim_kind=claims.example.org": 2, "default_classes claim_kind=others.example.org": 0,
		"class_kind_ready class_kind=golds.example.org":   1,
		"class_kind_ready class_kind=silvers.example.org": 0,
		"class_kind_ready class_kind=bronzes.example.org": 0,
		"class_kind_ready class_kind=irons.example.org":   0,
		"view_age_seconds class_kind=golds.example.org":   7, "view_age_seconds class_kind=silvers.example.org": 7,
		"classes class_kind=golds.example.org":   2,
		"classes class_kind=silvers.example.org": 1,
		"classes class_kind=bronzes.example.org": 0,
		"classes class_kind=irons.example.org":   0,
	}
	assert.Equal(
		t, want, controllertest.Scraped(t, registry),
		"We should count the defaults of all class kinds that serve a claim kind, and say that there is none, and tell classes of now from those last seen.",
	)

	nears := controllertest.NewClassKind("nears.example.org", "Near")
	nears.Namespaced = true
	r.Inventory.SetClasses(controllertest.NewClasses(nears, map[string][]string{
		"one/a": isDefault, "two/a": isDefault, "three/a": isDefault, "three/b": isDefault, "three/c": isDefault,
	}))
	want["default_classes claim_kind=claims.example.org"] = 3
	assert.Equal(t, want, controllertest.Scraped(t, registry), "We should count the most defaults that a claim can get, and not add up those of namespaces.")

	r.Inventory.DeleteClaimKind("others.example.org")
	r.Resources.reader = unfilled{}
	for _, gone := range []string{
		"default_classes claim_kind=others.example.org", "claim_kind_ready claim_kind=claims.example.org",
		"claim_kind_ready claim_kind=others.example.org", "claim_kind_unserved claim_kind=claims.example.org",
		"claim_kind_unserved claim_kind=others.example.org",
	} {
		delete(want, gone)
	}
	assert.Equal(
		t, want, controllertest.Scraped(t, registry),
		"We should count neither for a claim kind that is registered no more, nor what we cannot read, and all else.",
	)
}

// unfilled is a cache that has not been filled.
type unfilled struct{ client.Reader }

func (unfilled) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("not filled")
}
