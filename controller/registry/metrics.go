package registry

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/classbind/classbind/api/v1beta1"
)

var (
	defaultClasses = prometheus.NewDesc("classbind_default_classes",
		"The most classes marked default for a claim kind and not being deleted, of all namespaces or of one. "+
			"More than one needs an admin.",
		[]string{"claim_kind"}, nil)
	claimKindReady = prometheus.NewDesc("classbind_claim_kind_ready",
		"Whether the claims of a kind are bound when they are created, 1 or 0: the condition Ready of the ClaimKind.",
		[]string{"claim_kind"}, nil)
	claimKindUnserved = prometheus.NewDesc("classbind_claim_kind_unserved",
		"Whether claims of a kind are not bound at all, or without the classes of a class kind that serves it, 1 or 0. "+
			"The conditions of the ClaimKind say why. A resource that is not installed does not count.",
		[]string{"claim_kind"}, nil)
	classKindReady = prometheus.NewDesc("classbind_class_kind_ready",
		"Whether this replica sees the classes of a kind as they are now, 1 or 0: with 0 it offers those that it last saw, or none.",
		[]string{"class_kind"}, nil)
	classKindMissing = prometheus.NewDesc("classbind_class_kind_missing",
		"Whether this replica does not know the classes of a kind that were offered before, so that it binds no claim of the kinds "+
			"that it serves, 1 or 0. The condition Ready of the ClassKind says why.",
		[]string{"class_kind"}, nil)
	knownClasses = prometheus.NewDesc("classbind_classes",
		"Classes of a kind that this replica knows.",
		[]string{"class_kind"}, nil)
	relatedReady = prometheus.NewDesc("classbind_related_ready",
		"Whether this replica sees the objects of a resource, which claims or classes name, as they are now, 1 or 0. "+
			"With 0, expressions see those that it last saw, or no claim is bound that could name one.",
		[]string{"resource"}, nil)
	relatedObjects = prometheus.NewDesc("classbind_related_objects",
		"Objects of a resource, which claims or classes name, that this replica knows.",
		[]string{"resource"}, nil)
	viewAge = prometheus.NewDesc("classbind_view_age_seconds",
		"Time since the API server last sent this replica the classes of a kind, or confirmed that nothing changed. "+
			"A claim may get a class that stopped matching within it.",
		[]string{"class_kind"}, nil)
)

// registrationMetrics count at each scrape, so that nothing is counted while claims are bound.
type registrationMetrics struct{ Registration *Registration }

// RegisterMetrics adds the metrics of registered kinds and known classes, on every replica.
func (r *Registration) RegisterMetrics() error {
	return metrics.Registry.Register(registrationMetrics{r})
}

// Describe is called by the registry, as is Collect.
func (m registrationMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		defaultClasses, claimKindReady, claimKindUnserved, classKindReady, classKindMissing, knownClasses, viewAge, relatedReady,
		relatedObjects,
	} {
		to <- d
	}
}

// Collect counts.
func (m registrationMetrics) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, kind string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, kind)
	}
	for name, view := range m.Registration.Inventory.Snapshot() {
		most := 0 // One number for all namespaces: there may be thousands.
		for _, defaults := range view.DefaultsBySeat() {
			most = max(most, len(defaults))
		}
		gauge(defaultClasses, float64(most), name)
	}
	m.Registration.ClassKinds.mu.Lock()
	names := slices.Collect(maps.Keys(m.Registration.ClassKinds.kinds))
	m.Registration.ClassKinds.mu.Unlock()
	for _, name := range names {
		state := m.Registration.ClassKinds.State(name)
		gauge(classKindReady, number(state.Reason == v1beta1.ReasonServed), name)
		known := 0
		if state.Classes != nil {
			known = state.Classes.Len()
		}
		gauge(knownClasses, float64(known), name)
		if !state.confirmed.IsZero() {
			gauge(viewAge, time.Since(state.confirmed).Seconds(), name)
		}
	}
	m.Registration.RelatedKinds.eachRelated(func(resource string, s State, objects int) {
		gauge(relatedReady, number(s.Known && s.Reason != v1beta1.ReasonStale), resource)
		gauge(relatedObjects, float64(objects), resource)
	})
	// The cache does not answer until it is filled.
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	claimKinds, classKinds, _ := List(ctx, m.Registration.Resources.reader)
	for i := range classKinds {
		k, s := &classKinds[i], m.Registration.ClassKinds.State(classKinds[i].Name)
		gauge(classKindMissing, number(s.Classes == nil && !k.IsIgnored() && !s.gone() && m.Registration.Resources.Served(ctx, k)), k.Name)
	}
	for i := range claimKinds {
		k := &claimKinds[i]
		gauge(claimKindReady, number(meta.IsStatusConditionTrue(k.Status.Conditions, v1beta1.ConditionReady)), k.Name)
		gauge(claimKindUnserved, number(unserved(k)), k.Name)
	}
}

func unserved(k *v1beta1.ClaimKind) bool {
	ready := meta.FindStatusCondition(k.Status.Conditions, v1beta1.ConditionReady)
	return meta.IsStatusConditionFalse(k.Status.Conditions, v1beta1.ConditionClassKindsRead) ||
		ready != nil && ready.Status == metav1.ConditionFalse && ready.Reason != v1beta1.ReasonNotInstalled
}

func (r *RelatedKinds) eachRelated(visit func(resource string, s State, objects int)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, k := range r.related {
		objects := 0
		if k.objects != nil {
			objects = k.objects.Len()
		}
		if k.kind != nil { // Else it is about to be forgotten.
			visit(key.String(), k.stateFor(k.kind, "claims or classes"), objects)
		}
	}
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
