package registry

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/selector"
)

// classWatch is the watch of a kind without classes.
func classWatch(kind *selector.ClassKind) *watch[*selector.Classes] {
	return &watch[*selector.Classes]{
		name: kind.Name, kept: keptClasses{kind, nil}, objects: selector.NewClasses(kind, nil), publish: func(*selector.Classes) {},
	}
}

func TestTransform(t *testing.T) {
	w := classWatch(controllertest.NewClassKind("golds.example.org", "Gold"))
	gold := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: "gold", ResourceVersion: "7", Labels: map[string]string{"tier": "gold"},
		Annotations:   map[string]string{corev1.LastAppliedConfigAnnotation: "{}", "default": "true"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
	}}
	got, err := w.Transform(gold.DeepCopy())
	require.NoError(t, err)
	gold.ManagedFields = nil
	delete(gold.Annotations, corev1.LastAppliedConfigAnnotation)
	assert.Equal(t, gold, got, "We should keep all that is read of a class, or by the Reflector.")

	_, err = w.Transform("gold")
	require.ErrorContains(t, err, `cannot read a class of "golds.example.org"`, "We should say of what we cannot read something.")
}

// A class is published only if something changed that choosing needs.
func TestWatchHasNews(t *testing.T) {
	var news *selector.Classes
	w := classWatch(controllertest.NewClassKind("golds.example.org", "Gold"))
	w.publish = func(classes *selector.Classes) { news = classes }
	gold := func(version, tier string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "gold", ResourceVersion: version, Labels: map[string]string{"tier": tier}}}
	}
	for _, step := range []struct {
		reason string
		do     func() error
		news   bool
		has    []string
	}{
		{"We should tell that there are no classes.", func() error { return w.Replace(nil) }, true, nil},
		{"We should tell of a class.", func() error { return w.Put(gold("2", "gold")) }, true, []string{"Gold/gold tier=gold"}},
		{"We should not tell of a status.", func() error { return w.Put(gold("3", "gold")) }, false, []string{"Gold/gold tier=gold"}},
		{"We should tell of a label.", func() error { return w.Put(gold("4", "lead")) }, true, []string{"Gold/gold tier=lead"}},
		{"We should tell of all classes.", func() error { return w.Replace([]any{gold("5", "iron")}) }, true, []string{"Gold/gold tier=iron"}},
		{"We should tell that a class is gone.", func() error { return w.Remove(gold("6", "iron")) }, true, nil},
	} {
		news = nil
		require.NoError(t, step.do(), step.reason)
		assert.Equal(t, step.news, news != nil, step.reason)
		var has []string
		for _, c := range w.objects.All() {
			has = append(has, c.String()+" tier="+c.Labels.Get("tier"))
		}
		assert.Equal(t, step.has, has, step.reason)
	}
}

// A default class that is gone again was stored nevertheless.
func TestWatchTellsOfStoredDefaults(t *testing.T) {
	kind := selector.NewClassKind(&v1alpha1.ClassKind{
		ObjectMeta: metav1.ObjectMeta{Name: "golds.example.org"}, Spec: v1alpha1.ClassKindSpec{Default: v1alpha1.Source{Annotation: "default"}},
	}, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Gold"}, false)
	var stored []string
	w := classWatch(kind)
	w.kept = keptClasses{kind, func(c *selector.Class, uid types.UID) { stored = append(stored, c.Name+" "+string(uid)) }}
	gold := func(uid, mark string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "gold", UID: types.UID(uid), Annotations: map[string]string{"default": mark}}}
	}
	require.NoError(t, w.Replace([]any{gold("1", "true")}))
	require.NoError(t, w.Remove(gold("1", "true")))
	require.NoError(t, w.Put(gold("2", "true")))
	require.NoError(t, w.Put(gold("3", "false")))
	assert.Equal(t, []string{"gold 1", "gold 2"}, stored, "We should tell of each default that was stored, and of no other class.")
}
