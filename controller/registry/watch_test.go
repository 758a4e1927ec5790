package registry

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/selector/inventory"
)

// newClassWatch is the watch of a kind without classes.
func newClassWatch(kind *inventory.ClassKind) *classWatch {
	return &classWatch{
		name: kind.Name, kept: keptClasses{kind, nil}, objects: inventory.NewClasses(kind, nil), publish: func(*inventory.Classes, *seen[*inventory.Class]) {},
	}
}

func readBy(t *testing.T, w *classWatch, object any) *seen[*inventory.Class] {
	t.Helper()
	s, err := w.Read(object)
	require.NoError(t, err)
	return s
}

func TestWatchReads(t *testing.T) {
	kind := controllertest.NewClassKind("golds.example.org", "Gold")
	w := newClassWatch(kind)
	gold := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: "gold", UID: "1", ResourceVersion: "7", Labels: map[string]string{"tier": "gold"},
		Annotations:   map[string]string{corev1.LastAppliedConfigAnnotation: "{}", "default": "true"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
	}}
	got, err := w.Read(gold)
	require.NoError(t, err)
	assert.Equal(t, metav1.ObjectMeta{Name: "gold", UID: "1", ResourceVersion: "7"}, got.ObjectMeta, "We should keep of the metadata what the Reflector goes by.")
	assert.Equal(t, kind.NewClass(gold, nil), got.fields, "We should keep all that is read of a class.")
	again, err := w.Read(got)
	require.NoError(t, err)
	assert.Same(t, got, again, "We should read what we kept.")

	_, err = w.Read("gold")
	require.ErrorContains(t, err, `cannot read an object of "golds.example.org"`, "We should say of what we cannot read something.")
}

// A class is published only if something changed that choosing needs.
func TestWatchHasNews(t *testing.T) {
	var news *inventory.Classes
	var name string
	w := newClassWatch(controllertest.NewClassKind("golds.example.org", "Gold"))
	w.publish = func(classes *inventory.Classes, changed *seen[*inventory.Class]) {
		if news, name = classes, ""; changed != nil {
			name = changed.Name
		}
	}
	gold := func(version, tier string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "gold", ResourceVersion: version, Labels: map[string]string{"tier": tier}}}
	}
	read := func(object any) *seen[*inventory.Class] { return readBy(t, w, object) }
	for _, step := range []struct {
		reason string
		do     func()
		news   bool
		name   string // of the class that changed
		has    []string
	}{
		{"We should report that there are no classes.", func() { w.Replace(nil) }, true, "", nil},
		{"We should report a class.", func() { w.Put(read(gold("2", "gold"))) }, true, "gold", []string{"Gold/gold tier=gold"}},
		{"We should ignore a change of status.", func() { w.Put(read(gold("3", "gold"))) }, false, "", []string{"Gold/gold tier=gold"}},
		{"We should report a label.", func() { w.Put(read(gold("4", "lead"))) }, true, "gold", []string{"Gold/gold tier=lead"}},
		{"We should report all classes.", func() { w.Replace([]*seen[*inventory.Class]{read(gold("5", "iron"))}) }, true, "", []string{"Gold/gold tier=iron"}},
		{"We should report that a class is gone.", func() { w.Remove(read(gold("6", "iron"))) }, true, "gold", nil},
	} {
		news, name = nil, ""
		step.do()
		assert.Equal(t, step.news, news != nil, step.reason)
		assert.Equal(t, step.name, name, step.reason)
		var has []string
		for _, c := range w.objects.All() {
			has = append(has, c.String()+" tier="+c.Labels.Get("tier"))
		}
		assert.Equal(t, step.has, has, step.reason)
	}
}

// A default class that is gone again was stored nevertheless.
func TestWatchTellsOfStoredDefaults(t *testing.T) {
	kind := inventory.NewClassKind(&v1beta1.ClassKind{
		ObjectMeta: metav1.ObjectMeta{Name: "golds.example.org"}, Spec: v1beta1.ClassKindSpec{Default: v1beta1.Source{Annotation: "default"}},
	}, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Gold"}, false)
	var stored []string
	w := newClassWatch(kind)
	w.kept = keptClasses{kind, func(c *inventory.Class, uid types.UID) { stored = append(stored, c.Name+" "+string(uid)) }}
	gold := func(uid, mark string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "gold", UID: types.UID(uid), Annotations: map[string]string{"default": mark}}}
	}
	read := func(object any) *seen[*inventory.Class] { return readBy(t, w, object) }
	w.Replace([]*seen[*inventory.Class]{read(gold("1", "true"))})
	w.Remove(read(gold("1", "true")))
	w.Put(read(gold("2", "true")))
	w.Put(read(gold("3", "false")))
	assert.Equal(t, []string{"gold 1", "gold 2"}, stored, "We should report each default that was stored, and no other class.")
}

// answers is an http.RoundTripper.
type answers func(*http.Request) (*http.Response, error)

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) { return a(r) }

// TestDeepClasses lists and watches a class so deep that a list or an event around it is deeper than decoders go, of a kind of which more
// than metadata is read.
func TestDeepClasses(t *testing.T) {
	const deepest = 10_000 // The API server takes no deeper object: it reads it with sigs.k8s.io/json.
	class := `{"apiVersion":"example.org/v1","kind":"Gold","metadata":{"name":%q,"resourceVersion":"7"},"spec":{"weight":3,"other":%s}}`
	deep, flat := fmt.Sprintf(class, "deep", strings.Repeat("[", deepest-2)+strings.Repeat("]", deepest-2)), fmt.Sprintf(class, "flat", "[]")
	client, err := newClassClient(&rest.Config{Host: "http://none", Transport: answers(func(r *http.Request) (*http.Response, error) {
		body := `{"apiVersion":"example.org/v1","kind":"GoldList","metadata":{"resourceVersion":"7"},"items":[` + deep + "," + flat + `]}`
		if r.URL.Query().Get("watch") != "" {
			body = `{"type":"ADDED","object":` + deep + `}` + `{"type":"ADDED","object":` + flat + `}`
		}
		return &http.Response{
			StatusCode: http.StatusOK,
			Header:     http.Header{"Content-Type": {"application/json"}},
			Body:       io.NopCloser(strings.NewReader(body)),
			Request:    r,
		}, nil
	})})
	require.NoError(t, err)
	kind := inventory.NewClassKind(&v1beta1.ClassKind{Spec: v1beta1.ClassKindSpec{Weight: v1beta1.Source{Path: ".spec.weight"}}}, schema.GroupVersionKind{
		Group:   "example.org",
		Version: "v1",
		Kind:    "Gold",
	}, false)
	list, err := client.list(t.Context(), kind, "", metav1.ListOptions{})
	require.NoError(t, err, "We should read a list with a deep class in it.")
	assert.Equal(t, 2, meta.LenList(list))
	events, err := client.watch(t.Context(), kind, metav1.ListOptions{})
	require.NoError(t, err)
	for _, name := range []string{"deep", "flat"} {
		event := <-events.ResultChan()
		require.Equal(t, apiwatch.Added, event.Type, "We should read an event about a deep class: %v", event.Object)
		m, err := meta.Accessor(event.Object)
		require.NoError(t, err)
		assert.Equal(t, name, m.GetName())
	}
}
