package status

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/controllertest"
)

// storageClasses answers a list with pages of one class each, the oldest first, by name, with its mark.
type storageClasses struct {
	client.Reader
	pages [][2]string
	err   error
}

func (s storageClasses) List(_ context.Context, l client.ObjectList, options ...client.ListOption) error {
	if s.err != nil {
		return s.err
	}
	o := &client.ListOptions{}
	o.ApplyOptions(options)
	list := l.(*metav1.PartialObjectMetadataList)
	list.Items, list.Continue = nil, ""
	page := len(o.Continue)
	if page < len(s.pages) {
		class := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: s.pages[page][0]}}
		class.CreationTimestamp = metav1.Unix(int64(page), 0)
		class.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": s.pages[page][1]}
		list.Items = append(list.Items, class)
	}
	if page+1 < len(s.pages) {
		list.Continue = o.Continue + "x"
	}
	return nil
}

func TestDescribeStorage(t *testing.T) {
	resource := schema.GroupResource{Group: "storage.k8s.io", Resource: "storageclasses"}
	for name, tc := range map[string]struct {
		reason    string
		claimKind string
		classRef  v1beta1.FieldPath
		live      storageClasses
		want      string // as conditionText has it
	}{
		"Default": {
			reason:    "We should say who gives the claims their class, and what would help.",
			claimKind: "persistentvolumeclaims", classRef: ".spec.storageClassName", live: storageClasses{pages: [][2]string{{"slow", "false"}, {"standard", "true"}}},
			want: `False/DefaultStorageClass: the API server gives every claim without a StorageClass the default one, "standard", before classbind is asked, so its class selector does nothing: ` +
				`kubectl annotate storageclass standard storageclass.kubernetes.io/is-default-class-`,
		},
		"Defaults": {
			reason:    "We should name the newest of several, and take the marks from all.",
			claimKind: "persistentvolumeclaims", classRef: ".spec.storageClassName", live: storageClasses{pages: [][2]string{{"old", "true"}, {"new", "true"}}},
			want: `False/DefaultStorageClass: the API server gives every claim without a StorageClass the default one, "new", the newest of 2, before classbind is asked, so its class selector does nothing: ` +
				`kubectl annotate storageclass new old storageclass.kubernetes.io/is-default-class-`,
		},
		"NoDefault": {
			reason:    "We should say that claims are ours to bind.",
			claimKind: "persistentvolumeclaims", classRef: ".spec.storageClassName", live: storageClasses{pages: [][2]string{{"slow", "yes"}}},
			want: "True/NoDefaultStorageClass: no StorageClass is the default, so claims without one are bound",
		},
		"NotPermitted": {
			reason:    "We should not say what we may not look at.",
			claimKind: "persistentvolumeclaims", classRef: ".spec.storageClassName", live: storageClasses{err: apierrors.NewForbidden(resource, "", errors.New("no"))},
			want: `Unknown/NotPermitted: cannot tell whether there is a default StorageClass: storageclasses.storage.k8s.io is forbidden: no`,
		},
		"NoAnswer": {
			reason:    "We should not say what we could not read.",
			claimKind: "persistentvolumeclaims", classRef: ".spec.storageClassName", live: storageClasses{err: errors.New("connection refused")},
			want: `Unknown/NotSynced: cannot tell whether there is a default StorageClass: connection refused`,
		},
		"AnotherField": {reason: "We should not say it of another field of the claims.", claimKind: "persistentvolumeclaims", classRef: ".spec.volumeAttributesClassName"},
		"AnotherKind":  {reason: "We should not say it of other claims.", claimKind: "claims.example.org", classRef: ".spec.storageClassName"},
	} {
		t.Run(name, func(t *testing.T) {
			k := controllertest.NewClaimKind(tc.claimKind)
			k.Spec.Reference.Path = tc.classRef
			k.Status = v1beta1.ClaimKindStatus{Conditions: []metav1.Condition{{Type: v1beta1.ConditionSelectorsHeeded}}}
			assert.Equal(t, tc.want != "", (&Writer{Live: tc.live}).describeStorage(t.Context(), k), "We should look again where nothing tells of a change.")
			got := meta.FindStatusCondition(k.Status.Conditions, v1beta1.ConditionSelectorsHeeded)
			assert.Equal(t, tc.want, conditionText(got), tc.reason)
		})
	}
}
