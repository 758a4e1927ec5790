package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/classbind/classbind/api/v1beta1"
)

const betaMark = "storageclass.beta.kubernetes.io/is-default-class"

func storageClass(name string, age time.Duration, mark, value string) *storagev1.StorageClass {
	return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{
		Name: name, Annotations: map[string]string{mark: value}, CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-age)),
	}}
}

func TestBuiltinDefaults(t *testing.T) {
	const mark = "storageclass.kubernetes.io/is-default-class"
	api := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(
		storageClass("older", time.Hour, mark, "true"), storageClass("b", 0, mark, "true"), storageClass("a", 0, betaMark, "true"),
		storageClass("newest", -time.Hour, mark, "false"), storageClass("nearly", 0, mark, "True"),
	).Build()
	k := &v1beta1.ClaimKind{ObjectMeta: metav1.ObjectMeta{Name: "persistentvolumeclaims"}}
	k.Spec.Reference.Path = ".spec.storageClassName"
	of := BuiltinDefaultOf(k)
	require.NotNil(t, of)
	defaults, err := of.Classes(t.Context(), api)
	require.NoError(t, err)
	var names []string
	for _, class := range defaults {
		names = append(names, class.Name)
	}
	assert.Equal(t, []string{"a", "b", "older"}, names, "We should have the order in which Kubernetes chooses: the newest, then by name.")
	assert.Equal(
		t, "kubectl annotate storageclass a b older "+mark+"- "+betaMark+"-", of.Unmark(defaults),
		"We should take the marks from all of them.",
	)
	assert.Equal(t, "kubectl annotate storageclass b older "+mark+"-", of.Unmark(defaults[1:]), "We should name no mark that there is not.")

	var many []metav1.PartialObjectMetadata
	for n := range 12 {
		many = append(many, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("c", n)}})
	}
	assert.Equal(
		t, "kubectl annotate storageclass c0 c1 c2 c3 c4 c5 c6 c7 c8 c9 "+mark+"-", of.Unmark(many),
		"We should not name any number of classes.",
	)
}

func TestBuiltinDefaultOf(t *testing.T) {
	for _, tc := range []struct {
		resource, path, want string
	}{
		{"persistentvolumeclaims", ".spec.storageClassName", "StorageClass"},
		{"persistentvolumeclaims", ".spec.volumeAttributesClassName", ""},
		{"ingresses.networking.k8s.io", ".spec.ingressClassName", "IngressClass"},
		{"gateways.gateway.networking.k8s.io", ".spec.gatewayClassName", ""},
	} {
		k := &v1beta1.ClaimKind{ObjectMeta: metav1.ObjectMeta{Name: tc.resource}}
		k.Spec.Reference.Path = v1beta1.FieldPath(tc.path)
		got := ""
		if d := BuiltinDefaultOf(k); d != nil {
			got = d.Class.Kind
		}
		assert.Equal(t, tc.want, got, "%s of %s", tc.path, tc.resource)
	}
}
