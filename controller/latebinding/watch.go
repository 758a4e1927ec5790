package latebinding

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/recovered"
	"github.com/classbind/classbind/selector/truncate"
)

// claimWatch follows the claims of one kind. Like the watch of classes, it is a cluster.Keeper. All changes to what it
// knows of the claims are made one by one: those of the Reflector, and those of late binding. What others read is published after each
// change, so they wait for none.
type claimWatch struct {
	kind       *selector.ClaimKind
	resource   schema.GroupVersionResource
	objectKind string // the kind of a claim object
	namespaces *claim.Namespaces
	changed    func()
	metrics    *Metrics                 // of panics; nil counts none
	views      func() selector.Snapshot // has the objects that claims name; nil knows none
	stopped    context.Context
	stop       context.CancelFunc
	cluster.Health

	// listed is the weight of the waiting claims that were read for a list which is not complete.
	listed    atomic.Int64
	published atomic.Pointer[claimSummary]
	// owner has room for the one who owns the fields below. It is no mutex, because no caller may wait for it once the watch is stopped.
	owner  chan struct{}
	state  *claimState
	before *claimWatch // the watch that this one replaces, whose counts stay until this one has synced
}

func newClaimWatch(
	ctx context.Context, kind *selector.ClaimKind, of cluster.Resource, namespaces *claim.Namespaces, changed func(),
) *claimWatch {
	w := &claimWatch{
		kind: kind, resource: of.GroupVersion().WithResource(kind.Reader.Resource.Resource), objectKind: of.Kind,
		namespaces: namespaces, changed: changed, owner: make(chan struct{}, 1), state: &claimState{
			bound:   boundClaims{kind: kind, counts: map[types.UID]classCounts{}},
			waiting: waitingClaims{limit: v1beta1.MaxWaitingClaims, selects: namespaces, namespaces: map[string]*namespace{}},
		},
	}
	w.stopped, w.stop = context.WithCancel(context.WithoutCancel(ctx)) // It outlives the reconciliation.
	w.published.Store(w.state.summary())
	return w
}

// own makes a change, alone. It does nothing once the watch is stopped. A change must not call own, for it would wait for itself.
func (w *claimWatch) own(change func(*claimState)) {
	select {
	case <-w.stopped.Done():
		return
	case w.owner <- struct{}{}:
	}
	defer func() { <-w.owner }()
	if w.stopped.Err() != nil { // Both were ready.
		return
	}
	defer func() { w.published.Store(w.state.summary()) }() // After a panic, too.
	change(w.state)
}

func (w *claimWatch) start(client Client, answered func(error)) {
	cluster.Follow(w.stopped, cluster.Objects{
		Name: w.kind.Name, Client: client, Watch: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
			w.listed.Store(0)
			return client.watch(ctx, w.resource, o, w.readEvent)
		},
		// Every list is paged and consistent. If it asked for any version, or for a full list after the pages expired, the API server would
		// send everything in one answer. Each page has a deadline, the whole list has none.
		List: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			w.listed.Store(0)
			list := &internalversion.List{}
			var err error
			list.ResourceVersion, err = client.list(w.stopped, w.resource, func(raw []byte) error { //nolint:contextcheck // See above.
				seen, err := w.read(raw)
				list.Items = append(list.Items, seen)
				return err
			})
			return list, err
		},
	}, w, &w.Health, answered)
}

// Read changes nothing: read has reduced the object already.
func (w *claimWatch) Read(object any) (*claimSeen, error) {
	s, ok := object.(*claimSeen)
	if !ok {
		return nil, fmt.Errorf("cannot read a claim of %q: it is a %T", w.kind.Name, object)
	}
	return s, nil
}

// Put a claim that is new or has changed.
func (w *claimWatch) Put(seen *claimSeen) {
	w.listed.Store(0)
	w.update(func(s *claimState) { s.put(seen) })
}

// Remove a claim.
func (w *claimWatch) Remove(seen *claimSeen) {
	w.update(func(s *claimState) {
		s.bound.remove(seen.uid)
		s.unwait(seen.namespace, seen.uid)
	})
}

// Replace all claims.
func (w *claimWatch) Replace(all []*claimSeen) {
	w.listed.Store(0)
	w.update(func(s *claimState) {
		s.replace(all)
		w.before.withdraw()
		w.before = nil
	})
}

// update makes a change that others learn about.
func (w *claimWatch) update(change func(*claimState)) {
	w.own(change)
	w.changed()
}

// withdraw stops the watch, if there is one, and takes its claims off the counts.
func (w *claimWatch) withdraw() {
	if w == nil {
		return
	}
	w.stop()
	w.owner <- struct{}{} // The last change has ended.
	defer func() { <-w.owner }()
	for uid := range w.state.bound.counts {
		w.state.bound.remove(uid)
	}
	w.before.withdraw()
}

// claimSeen is what read takes from a claim for the store.
type claimSeen struct {
	seenVersion
	bound        bool
	classes      [2]uint64
	usage        *boundUsage
	by           *selector.View // by which the usage was evaluated, nil if that does not matter
	generateName string
	waits        bool // It is not left alone.
	unread       bool // It waits, and its ask was given up.
	endsList     bool // It is not a claim: the API server sends it after the last one.
}

// GetObjectKind makes it a runtime.Object, as does DeepCopyObject.
func (*claimSeen) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject returns the same object, because no caller changes it.
func (s *claimSeen) DeepCopyObject() runtime.Object { return s }

// GetObjectMeta is for the Reflector. It makes the metadata on demand: held, it would take more memory than all else.
func (s *claimSeen) GetObjectMeta() metav1.Object {
	m := &metav1.ObjectMeta{Namespace: s.namespace, Name: s.name, ResourceVersion: s.version}
	if s.endsList {
		m.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	return m
}

// readEvent reads an event of a watch. Of a deleted claim, and of an object that is not a claim, it reads only the metadata.
func (w *claimWatch) readEvent(event apiwatch.EventType, raw []byte) (runtime.Object, error) {
	if event == apiwatch.Added || event == apiwatch.Modified {
		return w.read(raw)
	}
	head, err := readHead(raw)
	return head.seen(), err
}

func (h claimHead) seen() *claimSeen {
	m := h.Metadata
	return &claimSeen{
		seenVersion:  seenVersion{uid: m.UID, namespace: m.Namespace, name: m.Name, version: m.ResourceVersion},
		generateName: m.GenerateName, endsList: m.Annotations.InitialEventsEnd == "true",
	}
}

// read returns the few fields of a claim that are held. A list may have more claims than are held, and is held until it is complete.
func (w *claimWatch) read(raw []byte) (*claimSeen, error) {
	seen, err := w.judge(raw)
	if err == nil && seen.waits && w.listed.Add(int64(seen.weight())) > int64(w.state.waiting.limit) {
		seen.ask, seen.unread = "", true
	}
	return seen, err
}

func (w *claimWatch) judge(raw []byte) (*claimSeen, error) {
	head, err := readHead(raw)
	if err != nil {
		return nil, err
	}
	seen := head.seen()
	seen.ask, seen.waits = w.ask(raw, seen)
	return seen, nil
}

// Stored is a claim as it was read once, for the code that binds it then.
type Stored struct {
	UID     types.UID
	Version string
	// Bound claims name a class, and count for Classes. Of what they ask for, only the Object is read.
	Bound   bool
	Classes [2]uint64
	claim.Intake
}

// ReadStored reads a claim of a list. What it returns with an error has the name of the claim.
func ReadStored(kind *selector.ClaimKind, raw []byte) (s Stored, err error) {
	head, err := readHead(raw)
	m := head.Metadata
	s = Stored{UID: m.UID, Version: m.ResourceVersion, Intake: claim.Intake{Claim: claim.Claim{Namespace: m.Namespace, Name: m.Name}}}
	if err != nil {
		return s, err
	}
	object, err := kind.Reader.DecodeValid(raw)
	if err != nil {
		return s, fmt.Errorf("cannot read the claim: %w", err)
	}
	s.Classes, _ = kind.Reader.Reference.BoundTo(m.Namespace, object)
	// A reference that claims.when lets us replace is a default of the schema while the claim is created. On one that
	// is stored, it may be in use.
	if s.Bound = kind.Reader.Reference.NamesClass(object); s.Bound {
		s.Object = object
	} else {
		s.Intake = kind.Reader.Read(m.Namespace, m.Name, object)
	}
	return s, nil
}

// ask reports whether a claim waits for a class, and returns what it asks for. A claim that cannot be read waits, and an event informs its
// author.
func (w *claimWatch) ask(raw []byte, seen *claimSeen) (ask claim.Ask, waits bool) {
	kind := w.kind
	err := recovered.Do(func() error {
		object, err := kind.Reader.DecodeValid(raw) // It is, as its head was read.
		if err != nil {
			return err
		}
		if seen.classes, seen.bound = kind.Reader.Reference.BoundTo(seen.namespace, object); seen.bound || !kind.BindLater {
			if seen.bound {
				seen.usage, seen.by = w.usageOf(seen.namespace, object)
			}
			return nil
		}
		claim := kind.Reader.Read(seen.namespace, seen.name, object)
		if waits = claim.LeftAlone == ""; waits {
			seen.parents = int8(claim.Parents) //nolint:gosec // A path has ten names at most.
			seen.annotated = claim.Annotated
			ask = kind.Reader.Ask(claim)
		}
		return nil
	})
	if err != nil {
		return claim.AskWith(textFor(err)), kind.BindLater
	}
	return ask, waits
}

// panicText informs an author about a panic. The details are in our log.
const panicText = "classbind failed because of a bug: see its log"

// textFor is the text of an error for the author of a claim.
func textFor(err error) string {
	if errors.Is(err, recovered.ErrPanic) {
		return panicText
	}
	return truncate.String(truncate.Error(err).Error(), v1beta1.MaxMessageBytes)
}
