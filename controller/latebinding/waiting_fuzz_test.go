package latebinding

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	kjson "k8s.io/apimachinery/pkg/util/json"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/fuzztest/cost"
	"github.com/classbind/classbind/selector/fuzztest/reference"
)

// FuzzWaitingClaim has the late binder find a stored claim, however it got there.
func FuzzWaitingClaim(f *testing.F) {
	claim := func(selector, annotation string) []byte {
		annotations := map[string]string{}
		if annotation != "" {
			annotations[v1beta1.ClassSelectorAnnotation] = annotation
		}
		text, _ := json.Marshal(annotations)
		return []byte(
			`{"metadata":{"uid":"1","name":"db","namespace":"n","resourceVersion":"1","annotations":` + string(text) + `},"spec":{"classSelector":` + selector + `}}`,
		)
	}
	for _, object := range []string{
		`null`, `[]`, `{}`, `{"metadata":null,"spec":[]}`,
		`{"metadata":{"uid":"1","name":"db","namespace":"n"},"spec":{"classRef":{"apiVersion":"a/v1","kind":"A","name":"b"}}}`,
		`{"metadata":{"uid":"1","name":"db"},"spec":{"classSelector":{"matchLabels":{"a":"1"}}}}`,
		`{"metadata":{"uid":"1","annotations":{"classbind.io/class-selector":"a in (1,2)"}}}`,
		`{"metadata":{"uid":1,"annotations":{"classbind.io/class-selector":7}}}`,
		`{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z","generateName":"a-"}}`, `{"spec":{"resourceRef":{},"classRef":null}}`,
	} {
		f.Add([]byte(object))
	}
	for _, unit := range []string{`{}`, `{"key":"","operator":""}`, `{"key":"a","operator":"DoesNotExist"}`, `{"key":"a","operator":"In","values":["1"]}`} {
		for _, n := range sizesOfAttacks() {
			f.Add(claim(`{"matchExpressions":[`+strings.TrimSuffix(strings.Repeat(unit+",", n), ",")+`]}`, ""))
		}
	}
	for _, unit := range []string{"!a,", "a=1,", "<", "a in (1),"} {
		for _, n := range sizesOfAttacks() {
			f.Add(claim("null", strings.Repeat(unit, n)))
		}
	}
	meter := cost.NewMeter(f)
	kind := selector.NewClaimKind(lateClaimKind())
	namespaces := namespacesOf(f, v1beta1.LabelSelector{})
	w := newClaimWatch(context.Background(), kind, claimResource, namespaces, func() {})
	f.Cleanup(w.stop)
	w.state.useBinder(&Binder{}) // So that the claims stand in the lines of their namespaces.
	f.Fuzz(func(t *testing.T, text []byte) {
		if !json.Valid(text) {
			text = claim(reference.SelectorJSON(string(text)), "")
		}
		u := &unstructured.Unstructured{}
		isObject := kjson.Unmarshal(text, &u.Object) == nil && u.Object != nil
		meter.Measure(t, len(text), func() {
			_, _ = w.judge(text)
		}, text)
		if !isObject || odd(u.Object["metadata"]) {
			return // The API server stores no such object.
		}
		sent, err := json.Marshal(u.Object) // Each field once.
		if err != nil {
			t.Fatal(err)
		}
		seen, err := w.judge(sent)
		if err != nil {
			t.Fatal(err)
		}
		checkSeen(t, seen, u)
		if t.Failed() {
			return
		}
		w.Put(seen)
		held := &w.state.waiting
		waits := held.weight > 0
		w.Remove(seen)
		if waits != seen.waits || held.weight+held.selected+held.due.Len()+held.unnotified.Len()+len(held.namespaces)+len(w.state.bound.counts) > 0 {
			t.Errorf("We should hold nothing of a claim that is gone: %+v, %d bound", held, len(w.state.bound.counts))
		}
	})
}

func sizesOfAttacks() []int {
	if cost.Fuzzing() {
		return []int{3, 65}
	}
	return []int{3, 65, 4000, 85_000}
}

// checkSeen compares what is kept of a claim with the reference.
func checkSeen(t *testing.T, seen *claimSeen, u *unstructured.Unstructured) {
	t.Helper()
	spec, isObject := u.Object["spec"].(map[string]any)
	metadata, _ := u.Object["metadata"].(map[string]any)
	if seen.bound != (spec["classRef"] != nil) {
		t.Errorf("We should see whether the claim has a class: %t", seen.bound)
	}
	settled := spec["classRef"] != nil || spec["resourceRef"] != nil || metadata["deletionTimestamp"] != nil
	if seen.waits == settled {
		t.Errorf("We should leave alone a claim that is settled, and no other: %+v", seen)
	}
	if !seen.waits {
		return
	}
	ask := seen.ask
	if len(ask) > 2*v1beta1.MaxSelectorBytes || len(ask.Problem()) > v1beta1.MaxMessageBytes {
		t.Errorf("We should hold little of a claim: %d bytes", len(ask))
	}
	if !isObject && u.Object["spec"] != nil {
		if ask.Problem() == "" {
			t.Errorf("We should see a problem in a claim that has no fields: %q", ask)
		}
		return
	}
	got, err := ask.Claim("n", "db")
	if ask.Problem() == "" && err != nil {
		t.Fatal(err)
	}
	want, malformed := reference.Of(spec["classSelector"], u.GetAnnotations())
	switch {
	case ask.Problem() != "":
		if malformed == nil && !want.MayBeRefused {
			t.Errorf("We should take a selector that Kubernetes takes: %s", ask.Problem())
		}
	case malformed != nil:
		t.Errorf("We should see a problem in a selector that Kubernetes refuses, or that is too large: %.1000s", ask)
	case (want.Selector == nil) != (got.Selector == nil):
		t.Errorf("We should see whether there is a selector: %v and not %v", want.Selector, got.Selector)
	case want.Selector != nil:
		for _, set := range []labels.Set{nil, {"a": "1"}, {"a": "2", "b": ""}, {"b": "x", "tier": "gold"}} {
			if want.Matches(set) != got.Selector.Matches(set) {
				t.Errorf("We should match %v as %q does: %v", set, want.Selector, got.Selector)
			}
		}
	}
}

// odd reports whether no API server sends such metadata: it has no resourceVersion, or something else in place of a text.
func odd(metadata any) bool {
	m, _ := metadata.(map[string]any)
	for _, name := range []string{"uid", "namespace", "name", "generateName", "resourceVersion"} {
		if _, isText := m[name].(string); m[name] != nil && !isText {
			return true
		}
	}
	if annotations, there := m["annotations"]; there {
		if _, _, err := unstructured.NestedStringMap(m, "annotations"); annotations == nil || err != nil {
			return true
		}
	}
	return m["resourceVersion"] == nil || m["resourceVersion"] == ""
}
