package registry

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/selector"
)

// newClassWatch is the watch of a kind without classes.
func newClassWatch(kind *selector.ClassKind) *classWatch {
	return &classWatch{
		name: kind.Name, kept: keptClasses{kind, nil}, objects: selector.NewClasses(kind, nil), publish: func(*selector.Classes, *seen[*selector.Class]) {},
	}
}

func readBy(t *testing.T, w *classWatch, object any) *seen[*selector.Class] {
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
	var news *selector.Classes
	var name string
	w := newClassWatch(controllertest.NewClassKind("golds.example.org", "Gold"))
	w.publish = func(classes *selector.Classes, changed *seen[*selector.Class]) {
		if news, name = classes, ""; changed != nil {
			name = changed.Name
		}
	}
	gold := func(version, tier string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "gold", ResourceVersion: version, Labels: map[string]string{"tier": tier}}}
	}
	read := func(object any) *seen[*selector.Class] { return readBy(t, w, object) }
	for _, step := range []struct {
		reason string
		do     func()
		news   bool
		name   string // of the class that changed
		has    []string
	}{
		{"We should tell that there are no classes.", func() { w.Replace(nil) }, true, "", nil},
		{"We should tell of a class.", func() { w.Put(read(gold("2", "gold"))) }, true, "gold", []string{"Gold/gold tier=gold"}},
		{"We should not tell of a status.", func() { w.Put(read(gold("3", "gold"))) }, false, "", []string{"Gold/gold tier=gold"}},
		{"We should tell of a label.", func() { w.Put(read(gold("4", "lead"))) }, true, "gold", []string{"Gold/gold tier=lead"}},
		{"We should tell of all classes.", func() { w.Replace([]*seen[*selector.Class]{read(gold("5", "iron"))}) }, true, "", []string{"Gold/gold tier=iron"}},
		{"We should tell that a class is gone.", func() { w.Remove(read(gold("6", "iron"))) }, true, "gold", nil},
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
	kind := selector.NewClassKind(&v1beta1.ClassKind{
		ObjectMeta: metav1.ObjectMeta{Name: "golds.example.org"}, Spec: v1beta1.ClassKindSpec{Default: v1beta1.Source{Annotation: "default"}},
	}, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Gold"}, false)
	var stored []string
	w := newClassWatch(kind)
	w.kept = keptClasses{kind, func(c *selector.Class, uid types.UID) { stored = append(stored, c.Name+" "+string(uid)) }}
	gold := func(uid, mark string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "gold", UID: types.UID(uid), Annotations: map[string]string{"default": mark}}}
	}
	read := func(object any) *seen[*selector.Class] { return readBy(t, w, object) }
	w.Replace([]*seen[*selector.Class]{read(gold("1", "true"))})
	w.Remove(read(gold("1", "true")))
	w.Put(read(gold("2", "true")))
	w.Put(read(gold("3", "false")))
	assert.Equal(t, []string{"gold 1", "gold 2"}, stored, "We should tell of each default that was stored, and of no other class.")
}
