package race

import (
	"fmt"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// lane is a place to race: kinds that have nothing to do with those of other lanes.
type lane struct {
	cluster *Cluster
	group   string
	kinds   Kinds
	timing  Timing
	chaos   bool
	forger  bool
	// partitioned says that a label is the partition of a class.
	partitioned bool
	// overtakes says that writers of one round may write one class.
	overtakes bool

	// arena has claims fight for capacity; nil, classes race to be default.
	arena *arena

	mu    sync.Mutex
	judge *Judge
	// note what a watch shows, with mu held.
	note func(kind string, version uint64, there bool, object metav1.Object)
	seen map[string]uint64 // by class kind, the last resourceVersion that the watch showed
	err  error             // of a watch
	// changed is closed, and another, once seen or err has.
	changed chan struct{}

	// maybeAdmitted is, by claim kind, when the last write ended that the guard may have admitted.
	maybeAdmitted map[string]time.Time
	// behind are the classes of the round before, to be deleted after this one.
	behind []Class
}

func newLane(c *Cluster, s Scenario, number int) *lane {
	group := s.Name + ".test"
	if len(s.Lanes) > 1 {
		group = fmt.Sprintf("lane-%d.%s", number+1, group)
	}
	l := &lane{
		cluster: c, group: group, kinds: s.Lanes[number], timing: s.Timing, chaos: s.Chaos, forger: s.Forger,
		partitioned: s.Partitions, overtakes: s.Partitions || s.Twins,
		judge: NewJudge(s.Lanes[number]), seen: map[string]uint64{}, changed: make(chan struct{}), maybeAdmitted: map[string]time.Time{},
	}
	l.note = l.noteDefault
	if s.Capacity {
		l.arena = newArena(l)
	}
	return l
}

func (l *lane) resource(kind string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: l.group, Version: "v1", Resource: strings.ToLower(kind) + "s"}
}
