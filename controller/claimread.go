package controller

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/classbind/classbind/selector"
)

// claimSeen is what is read of a claim on its way into the store.
type claimSeen struct {
	uid             types.UID
	namespace, name string
	version         string
	bound           bool
	classes         [2]uint64
	generateName    string
	group           *group // nil if it is left alone
	parents         int8
	// endsList says that it is no claim, but what the API server sends after the last one.
	endsList bool
}

// GetObjectKind is for lists, as is DeepCopyObject.
func (*claimSeen) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject is called by nobody who changes it.
func (s *claimSeen) DeepCopyObject() runtime.Object { return s }

// GetObjectMeta is for the Reflector, and made when it asks: it would take more than all else.
func (s *claimSeen) GetObjectMeta() metav1.Object {
	m := &metav1.ObjectMeta{Namespace: s.namespace, Name: s.name, ResourceVersion: s.version}
	if s.endsList {
		m.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	return m
}

// readEvent of a watch. Of what is gone, and of what tells of no claim, no more
// than that is read.
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
		uid: m.UID, namespace: m.Namespace, name: m.Name, version: m.ResourceVersion, generateName: m.GenerateName,
		endsList: m.Annotations.InitialEventsEnd == "true",
	}
}

// read the few fields of a claim that are held, and find its group.
func (w *claimWatch) read(raw []byte) (*claimSeen, error) {
	head, err := readHead(raw)
	if err != nil {
		return nil, err
	}
	seen := head.seen()
	ask, waits := w.judge(raw, seen)
	if waits {
		w.mu.Lock()
		defer w.mu.Unlock()
		seen.group = w.room.group(w.namespaceOf(seen.namespace), ask)
	}
	return seen, nil
}

// judge whether a claim waits for a class, and what it asks for. What cannot be read
// waits, and its author is told.
func (w *claimWatch) judge(raw []byte, seen *claimSeen) (ask selector.Ask, waits bool) {
	err := recovered(func() error {
		object, err := w.kind.Decode(raw)
		if err != nil {
			return err
		}
		if seen.classes, seen.bound = w.kind.BoundTo(seen.namespace, object); seen.bound || !w.kind.BindLater {
			return nil
		}
		claim := w.kind.Read(seen.namespace, seen.name, object)
		if waits = claim.LeftAlone == ""; waits {
			seen.parents = int8(claim.Parents) //nolint:gosec // A path has ten names at most.
			ask = claim.Ask()
		}
		return nil
	})
	if err != nil {
		return selector.AskWith(textFor(err)), w.kind.BindLater
	}
	return ask, waits
}
