package latebinding

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
)

// kindCounts count the claims that have a class of one kind. A claim counts by the reference with which it is stored, so the claims of a
// class that is gone count again when a class of its name is created.
type kindCounts struct {
	watches []*claimWatch // of the claim kinds that the class kind serves, sorted by name, without those whose claims are not known
	missing error         // why claims may not be counted, nil if all are: see NotYet
}

func (n kindCounts) known() bool { return len(n.watches) > 0 }

func (n kindCounts) of(c *inventory.Class) (claims int64) {
	for _, w := range n.watches {
		claims += w.kind.BoundClaims(c)
	}
	return claims
}

func (c *Claims) countsFor(kind *inventory.ClassKind) kindCounts {
	snapshot, watches := c.registration.Inventory.Snapshot(), c.watches()
	n := kindCounts{}
	if snapshot == nil {
		n.missing = errNotWatched
	}
	for _, name := range slices.Sorted(slices.Values(kind.ClaimKinds)) {
		view := snapshot[name]
		// A claim kind that is not watched for the class kind yet is about to be compiled again.
		if view == nil || view.Conflict != nil || !view.Kind.Watched && !kind.CountsClaims || view.FaultOf(kind.Name) != nil {
			continue
		}
		why := c.Problem(name)
		if w := watches[name]; w != nil && w.published.Load().synced {
			n.watches = append(n.watches, w)
		} else {
			why = cmp.Or(why, errNoAnswer)
		}
		if why != nil && !errors.Is(why, cluster.ErrNotInstalled) && (n.missing == nil || NotYet(why)) {
			n.missing = fmt.Errorf("the claims of %q are not counted: %w", name, why)
		}
	}
	return n
}

// OfClass returns how many claims have a class, by claim kind, without those that have
// none. missing is why there may be more, nil if all are counted.
func (c *Claims) OfClass(class *inventory.Class) (claims map[string]int64, missing error) {
	n := c.countsFor(class.Kind)
	claims = map[string]int64{}
	for _, w := range n.watches {
		if bound := w.kind.BoundClaims(class); bound > 0 {
			claims[w.kind.Name] = bound
		}
	}
	return claims, n.missing
}

// OfClasses returns how many claims have one of these classes. known is false if no claims
// of the kinds that they serve are watched, and complete false while they have not been listed yet.
func (c *Claims) OfClasses(classes *inventory.Classes) (claims int64, known, complete bool) {
	n := c.countsFor(classes.Kind)
	if n.known() {
		classes.Each(func(c *inventory.Class) { claims += n.of(c) })
	}
	return claims, n.known(), !NotYet(n.missing)
}

// eachClassKind calls a function with the classes of each kind, and with the view of each claim kind that it serves, until it returns true.
func (c *Claims) eachClassKind(call func(*selector.View, *inventory.Classes) (done bool)) {
	done := map[string]bool{}
	for _, view := range c.registration.Inventory.Snapshot() {
		for _, classes := range view.Classes {
			name := classes.Kind.Name
			done[name] = done[name] || call(view, classes)
		}
	}
}

type countedClass struct {
	*inventory.Class
	claims int64
}

// top returns the classes with the most claims, at most so many, and how many claims all others have. Among classes with equal claims, the
// first by name come first.
func (n kindCounts) top(classes *inventory.Classes, most int) (top []countedClass, others int64) {
	classes.Each(func(c *inventory.Class) { top = append(top, countedClass{c, n.of(c)}) })
	slices.SortFunc(top, func(a, b countedClass) int {
		return cmp.Or(cmp.Compare(b.claims, a.claims), inventory.Compare(a.Class, b.Class))
	})
	most = min(len(top), most)
	for _, c := range top[most:] {
		others += c.claims
	}
	return top[:most], others
}

// limitedClass has a limit of one quantity.
type limitedClass struct {
	*inventory.Class
	quantity     string
	limit, taken int64 // with claims in flight
	share        float64
	known        bool // It is not until the claims are counted.
}

// limitedClasses calls a function for each kind with the classes that have a limit, by quantity, at most so many: those with the greatest
// share in use come first, and among equals the first by name.
func (c *Claims) limitedClasses(most int, call func([]limitedClass)) {
	c.eachClassKind(func(view *selector.View, classes *inventory.Classes) bool {
		kind := classes.Kind
		if !kind.HasCapacity() || view.Kind.Room == nil {
			return false
		}
		counted := c.countsFor(kind).known()
		var all []limitedClass
		classes.Each(func(class *inventory.Class) {
			room := view.Kind.Room("", class)
			for i, quantity := range kind.Quantities {
				if of := &class.Capacity[i]; of.Total != inventory.Unlimited {
					all = append(all, limitedClass{class, string(quantity), of.Total, room[i].All(), room[i].Share(of), counted})
				}
			}
		})
		slices.SortStableFunc(all, func(a, b limitedClass) int {
			return cmp.Or(cmp.Compare(b.share, a.share), inventory.Compare(a.Class, b.Class))
		})
		call(all[:min(len(all), most)])
		return true
	})
}

var (
	countedClaims = prometheus.NewDesc("classbind_claims",
		"Claims of a kind that this replica watches, by state: bound to a class, or, on the leader, waiting for one. Of those that wait, "+
			"the ones left are not held in memory, but found every five minutes.",
		[]string{"claim_kind", "state"}, nil)
	classClaims = prometheus.NewDesc("classbind_class_claims",
		fmt.Sprintf("Claims that have a class, of the kinds that this replica watches. Of each class kind there are "+
			"the %d classes with the most claims; those of all others have the class \"\".", v1beta1.MaxClassSeries),
		[]string{"class_kind", "class_namespace", "class"}, nil)
	classCapacity = prometheus.NewDesc("classbind_class_capacity",
		fmt.Sprintf("How much of a quantity the claims of a class may use together, where it has a limit. Of each class kind there are "+
			"the %d with the greatest share in use.", v1beta1.MaxClassSeries),
		[]string{"class_kind", "class_namespace", "class", "quantity"}, nil)
	classCapacityUsed = prometheus.NewDesc("classbind_class_capacity_used",
		"How much of the capacity of a class is used, with what claims use that are not seen stored yet. "+
			"There is none while claims have yet to be counted.",
		[]string{"class_kind", "class_namespace", "class", "quantity"}, nil)
)

// The outcomes of a late binding.
const (
	lateBound    = "bound"    // Claims got their class.
	lateChanged  = "changed"  // Claims have probably been changed or deleted, and are looked at again.
	lateFailed   = "failed"   // Claims could not be written, and are tried again.
	latePanicked = "panicked" // Claims caused a panic: a bug in classbind, and in its log.
)

// Metrics count the watched claims, and the outcomes of late bindings.
type Metrics struct {
	claims *Claims
	late   *prometheus.CounterVec
}

// NewMetrics returns metrics that read the claims at each scrape.
func NewMetrics(c *Claims) *Metrics {
	return &Metrics{c, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "classbind_late_bindings_total",
		Help: "Claims that waited and were to be bound, by claim kind and outcome: bound, changed, failed or panicked.",
	}, []string{"claim_kind", "outcome"})}
}

func (m *Metrics) tried(claimKind, outcome string) { m.late.WithLabelValues(claimKind, outcome).Inc() }

// Register adds the metrics to those that controller-runtime serves.
func (m *Metrics) Register() error { return metrics.Registry.Register(m) }

// Describe is called by the registry, as is Collect.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	to <- countedClaims
	to <- classClaims
	to <- classCapacity
	to <- classCapacityUsed
	m.late.Describe(to)
}

// Collect exports every outcome for every kind, zeros included: Prometheus sees no increase in a counter that appears with the value one.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value int64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(value), labels...)
	}
	for name, w := range m.claims.watches() {
		s := w.published.Load()
		if !s.synced {
			continue
		}
		gauge(countedClaims, int64(s.counts.Bound), name, "bound")
		if s.binds { // Other replicas do not know which namespaces are selected.
			gauge(countedClaims, int64(s.counts.Waiting), name, "waiting")
			gauge(countedClaims, int64(s.counts.Left), name, "left")
		}
		for _, outcome := range []string{lateBound, lateChanged, lateFailed, latePanicked} {
			m.late.WithLabelValues(name, outcome)
		}
	}
	m.late.Collect(to)
	m.claims.eachClassKind(func(_ *selector.View, classes *inventory.Classes) bool {
		counts := m.claims.countsFor(classes.Kind)
		if !counts.known() {
			return true
		}
		top, others := counts.top(classes, v1beta1.MaxClassSeries)
		for _, c := range top {
			gauge(classClaims, c.claims, c.Kind.Name, c.Namespace, c.Name)
		}
		if classes.Len() > len(top) {
			gauge(classClaims, others, classes.Kind.Name, "", "")
		}
		return true
	})
	m.claims.limitedClasses(v1beta1.MaxClassSeries, func(top []limitedClass) {
		for _, c := range top {
			gauge(classCapacity, c.limit, c.Kind.Name, c.Namespace, c.Name, c.quantity)
			if c.known {
				gauge(classCapacityUsed, c.taken, c.Kind.Name, c.Namespace, c.Name, c.quantity)
			}
		}
	})
}
