package race

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// lane is a place to race: kinds that have nothing to do with those of other lanes.
type lane struct {
	*report

	cluster *Cluster
	group   string
	kinds   Kinds
	// arena has claims fight for capacity; nil, classes race to be default.
	arena *arena
	// number of the round.
	number int

	mu    sync.Mutex
	judge *auditor[Class]
	// note what a watch shows, with mu held.
	note func(kind string, version uint64, there bool, object *unstructured.Unstructured)
	seen map[string]uint64 // by class kind, the last resourceVersion that the watch showed
	err  error             // of a watch

	// maybeAdmitted is, by claim kind, when the last write ended that the guard may have admitted.
	maybeAdmitted map[string]time.Time
	// behind are the classes of the round before, to be deleted after this one.
	behind []Class
}

func newLane(c *Cluster, r *report, i int) *lane {
	s := r.scenario
	group := s.Name + ".test"
	if len(s.Lanes) > 1 {
		group = fmt.Sprintf("lane-%d.%s", i+1, group)
	}
	l := &lane{
		report: r, cluster: c, group: group, kinds: s.Lanes[i],
		judge: newAuditor[Class](1, 0), seen: map[string]uint64{}, maybeAdmitted: map[string]time.Time{},
	}
	l.note = l.noteDefault
	if s.Capacity {
		l.arena = newArena(l)
	}
	return l
}

// violation in this round of the lane.
func (l *lane) violation(format string, args ...any) {
	l.report.violation(fmt.Sprintf("%s, round %d: ", l.group, l.number)+format, args...)
}

// worst that can happen.
func (l *lane) worst(format string, args ...any) {
	l.count(func() { l.result.Worst++ })
	l.violation(l.scenario.Worst()+": "+format, args...)
}

func (l *lane) resource(kind string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: l.group, Version: "v1", Resource: strings.ToLower(kind) + "s"}
}
