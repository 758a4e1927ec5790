package race

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// lane is a place to race: kinds that have nothing to do with those of other lanes.
type lane struct {
	*report

	cluster *Cluster
	group   string
	kinds   Kinds
	// number of the round.
	number int

	mu    sync.Mutex
	judge *auditor
	seen  map[string]uint64 // by class kind, the last resourceVersion that the watch showed
	err   error             // of a watch

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
	return &lane{
		report: r, cluster: c, group: group, kinds: s.Lanes[i],
		judge: newAuditor(), seen: map[string]uint64{}, maybeAdmitted: map[string]time.Time{},
	}
}

// violation in this round of the lane.
func (l *lane) violation(format string, args ...any) {
	l.report.violation(fmt.Sprintf("%s, round %d: ", l.group, l.number)+format, args...)
}

func (l *lane) resource(kind string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: l.group, Version: "v1", Resource: strings.ToLower(kind) + "s"}
}
