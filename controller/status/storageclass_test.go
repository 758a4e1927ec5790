package status

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/controllertest"
)

func TestSelectorsHeeded(t *testing.T) {
	named := func(names ...string) (classes []metav1.PartialObjectMetadata) {
		for _, name := range names {
			classes = append(classes, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
		return classes
	}
	const before = `before classbind is asked, so its class selector does nothing: kubectl annotate storageclass `
	for name, tc := range map[string]struct {
		reason   string
		defaults []metav1.PartialObjectMetadata
		err      error
		want     string // as conditionText has it
	}{
		"Default": {
			reason: "We should say who gives the claims their class, and what would help.", defaults: named("standard"),
			want: `False/DefaultStorageClass: the API server gives every claim without a StorageClass the default one, "standard", ` + before +
				`standard storageclass.kubernetes.io/is-default-class-`,
		},
		"Defaults": {
			reason: "We should name the newest of several, and take the marks from all.", defaults: named("new", "old"),
			want: `False/DefaultStorageClass: the API server gives every claim without a StorageClass the default one, "new", the newest of 2, ` + before +
				`new old storageclass.kubernetes.io/is-default-class-`,
		},
		"NoDefault": {reason: "We should say that claims are ours to bind.", want: "True/NoDefaultStorageClass: no StorageClass is the default, so claims without one are bound"},
		"NotPermitted": {
			reason: "We should not say what we may not look at.",
			err:    apierrors.NewForbidden(schema.GroupResource{Group: "storage.k8s.io", Resource: "storageclasses"}, "", errors.New("no")),
			want:   `Unknown/NotPermitted: cannot tell whether there is a default StorageClass: storageclasses.storage.k8s.io is forbidden: no`,
		},
		"NoAnswer": {
			reason: "We should not say what we could not read.", err: errors.New("connection refused"),
			want: `Unknown/NotSynced: cannot tell whether there is a default StorageClass: connection refused`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := selectorsHeeded(tc.defaults, tc.err)
			assert.Equal(t, tc.want, conditionText(&got), tc.reason)
		})
	}
}

// twoPages of one default StorageClass each.
type twoPages struct{ client.Reader }

func (twoPages) List(_ context.Context, l client.ObjectList, options ...client.ListOption) error {
	o := &client.ListOptions{}
	o.ApplyOptions(options)
	class := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "class" + o.Continue}}
	class.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
	l.(*metav1.PartialObjectMetadataList).Items = []metav1.PartialObjectMetadata{class}
	l.SetContinue(map[string]string{"": "-2"}[o.Continue])
	return nil
}

func TestStorage(t *testing.T) {
	k := controllertest.NewClaimKind("persistentvolumeclaims")
	k.Spec.Reference.Path = ".spec.storageClassName"
	assert.Contains(t, (&Writer{Live: twoPages{}}).storage(t.Context(), k).Message, "storageclass class class-2 ", "We should read all pages.")
}

func TestStorageOfOthers(t *testing.T) {
	for claimKind, path := range map[string]v1beta1.FieldPath{
		"persistentvolumeclaims": ".spec.volumeAttributesClassName", "claims.example.org": ".spec.storageClassName",
	} {
		k := controllertest.NewClaimKind(claimKind)
		k.Spec.Reference.Path = path
		assert.Zero(t, (&Writer{}).storage(t.Context(), k), "We should say nothing of other claims, or of another field of them.")
	}
}
