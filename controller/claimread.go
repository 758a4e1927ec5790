package controller

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector/brief"
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
	text, waits := w.judge(raw, seen)
	if waits {
		w.mu.Lock()
		defer w.mu.Unlock()
		seen.group = w.room.group(w.namespaceOf(seen.namespace), text)
	}
	return seen, nil
}

// judge whether a claim waits for a class, and say in a group's text for which.
// What cannot be read waits, and its author is told.
func (w *claimWatch) judge(raw []byte, seen *claimSeen) (text string, waits bool) {
	err := recovered(func() error {
		object, err := w.kind.Decode(raw)
		if err != nil {
			return err
		}
		if seen.classes, seen.bound = w.kind.BoundTo(seen.namespace, object); seen.bound {
			return nil
		}
		if !w.kind.BindLater || terminating(object) {
			return nil // It waits for nothing.
		}
		claim, errs := w.kind.NewClaim(seen.namespace, seen.name, object)
		if waits = claim.Settled == ""; !waits {
			return nil
		}
		seen.parents = int8(w.kind.Parents(object)) //nolint:gosec // A path has ten names at most.
		switch {
		case len(errs) > 0:
			text = "!" + problemText(errs)
		case claim.Selector != nil:
			text = "=" + claim.Selector.String()
		}
		return nil
	})
	if err != nil {
		return "!" + textFor(err), w.kind.BindLater
	}
	return text, waits
}

func terminating(object map[string]any) bool {
	m, _ := object["metadata"].(map[string]any)
	return m["deletionTimestamp"] != nil
}

// problemText of as many errors as are held. ErrorList.ToAggregate would put all
// of them together, in quadratic time.
func problemText(errs field.ErrorList) string {
	text := ""
	for i, err := range errs {
		if len(text) >= v1alpha1.MaxMessageBytes {
			break
		}
		if i > 0 {
			text += "; "
		}
		text += err.Error()
	}
	return kept(text)
}

// kept of a text, in a string of its own, which does not keep a whole claim.
func kept(text string) string { return strings.Clone(brief.Text(text, v1alpha1.MaxMessageBytes)) }
