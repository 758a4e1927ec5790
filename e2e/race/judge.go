package race

import (
	"cmp"
	"slices"
)

// Event is what a watch showed of a class: what it was from a resourceVersion on.
type Event struct {
	Version uint64
	Class   Class
	// Default says that it is there, marked, and not being deleted.
	Default bool
	// Partition that it is then the default of.
	Partition string
}

// Class is named as the guard's messages name it.
type Class struct{ Kind, Name string }

func (c Class) String() string { return c.Kind + "/" + c.Name }

// Double is the moment at which a class became a second default.
type Double struct {
	Version   uint64
	ClaimKind string
	Partition string
	// Class that became default, and the one that was.
	Class, Other Class
}

// Judge replays what happened to the classes of several kinds in the order in which it did. A LIST after a race would miss what was gone by
// then; the watches of several kinds are not in step with each other. But all kinds are in one etcd, so their resourceVersions are one
// order.
type Judge struct {
	serves  Kinds
	pending []Event
	now     map[Class]string // the partition of each default
	been    map[Class]bool
}

// NewJudge is for classes of these kinds, none of them default.
func NewJudge(serves Kinds) *Judge {
	return &Judge{serves: serves, now: map[Class]string{}, been: map[Class]bool{}}
}

// Observe an event; those of one kind are in order.
func (j *Judge) Observe(e Event) { j.pending = append(j.pending, e) }

// Until replays all events up to a resourceVersion, up to which all have been observed, and returns where there were two defaults.
func (j *Judge) Until(version uint64) []Double {
	slices.SortStableFunc(j.pending, func(a, b Event) int { return cmp.Compare(a.Version, b.Version) })
	var doubles []Double
	replayed := 0
	for _, e := range j.pending {
		if e.Version > version {
			break
		}
		replayed++
		if !e.Default {
			delete(j.now, e.Class)
			continue
		}
		if partition, is := j.now[e.Class]; is && partition == e.Partition {
			continue
		}
		delete(j.now, e.Class)
		for _, claimKind := range j.serves[e.Class.Kind] {
			for _, other := range j.Defaults(claimKind) {
				if j.now[other] == e.Partition {
					doubles = append(doubles, Double{
						Version: e.Version, ClaimKind: claimKind, Partition: e.Partition, Class: e.Class, Other: other,
					})
				}
			}
		}
		j.now[e.Class], j.been[e.Class] = e.Partition, true
	}
	j.pending = j.pending[replayed:]
	return doubles
}

// Defaults of a claim kind, of all partitions, at the moment up to which events were replayed.
func (j *Judge) Defaults(claimKind string) []Class {
	var defaults []Class
	for c := range j.now {
		if slices.Contains(j.serves[c.Kind], claimKind) {
			defaults = append(defaults, c)
		}
	}
	slices.SortFunc(defaults, func(a, b Class) int { return cmp.Compare(a.String(), b.String()) })
	return defaults
}

// Been are the classes that were default at any moment since it was last asked.
func (j *Judge) Been() map[Class]bool {
	been := j.been
	j.been = map[Class]bool{}
	for c := range j.now {
		j.been[c] = true
	}
	return been
}
