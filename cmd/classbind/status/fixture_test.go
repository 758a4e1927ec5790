package status

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/certs/certtest"
	"github.com/classbind/classbind/cmd/classbind/world"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/selector/inventory"
)

const (
	own       = "classbind-system"
	databases = "databases.example.org"
	golds     = "golds.example.org"
	pvcs      = "persistentvolumeclaims"
)

// fixture is an installation in which nothing is broken, until a test changes it.
type fixture struct {
	deployment *appsv1.Deployment
	lease      *coordinationv1.Lease
	secret     *corev1.Secret
	claimKind  *v1beta1.ClaimKind
	pvcKind    *v1beta1.ClaimKind
	classKind  *v1beta1.ClassKind
	claims     *admissionregistrationv1.MutatingWebhookConfiguration
	first      *admissionregistrationv1.MutatingWebhookConfiguration
	classes    *admissionregistrationv1.ValidatingWebhookConfiguration
	gold       *unstructured.Unstructured
	claim      *unstructured.Unstructured
	pvc        *unstructured.Unstructured
	more       []client.Object

	world.Kinds
	served map[string]cluster.Resource
	// unread are the kinds that the user may not read. down are those that do not answer.
	unread, down []string
	// namespace of classbind, as the flag has it.
	namespace string
	// renewed reports whether the leader renews its Lease between any two looks.
	renewed bool
	// progress is what the command says meanwhile.
	progress strings.Builder
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	now := metav1.NowMicro()
	ca := certtest.NewCA(t).PEM()
	ready := conditions([]string{"Ready=True/Served"})
	w := &fixture{
		namespace: own,
		deployment: &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: own, Name: "classbind", Labels: map[string]string{"app.kubernetes.io/name": "classbind"}},
			Spec: appsv1.DeploymentSpec{Replicas: new(int32(2)), Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				ServiceAccountName: "classbind", Containers: []corev1.Container{{Image: "classbind:v1"}},
			}}},
			Status: appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 2},
		},
		lease: &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: own, Name: v1beta1.LeaderLease},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: new("replica-1"), LeaseDurationSeconds: new(int32(15)), RenewTime: &now},
		},
		secret:    &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: own, Name: v1beta1.CASecret}, Data: map[string][]byte{"ca.crt": ca, "tls.crt": ca}},
		claimKind: &v1beta1.ClaimKind{ObjectMeta: metav1.ObjectMeta{Name: databases}, Status: v1beta1.ClaimKindStatus{Conditions: ready}},
		pvcKind:   &v1beta1.ClaimKind{ObjectMeta: metav1.ObjectMeta{Name: pvcs}, Status: v1beta1.ClaimKindStatus{Conditions: ready}},
		classKind: &v1beta1.ClassKind{
			ObjectMeta: metav1.ObjectMeta{Name: golds},
			Status:     v1beta1.ClassKindStatus{Conditions: conditions([]string{"Ready=True/Served", "Guarded=True/Configured"})},
		},
		gold:  object("example.org/v1", "Gold", "", "gold"),
		claim: object("example.org/v1", "Database", "team", "mine"),
		pvc:   object("v1", "PersistentVolumeClaim", "team", "disk"),
		served: map[string]cluster.Resource{
			databases: {GroupVersionKind: schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Database"}, Namespaced: true},
			golds:     {GroupVersionKind: schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Gold"}},
			pvcs:      {GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "PersistentVolumeClaim"}, Namespaced: true},
		},
	}
	w.claimKind.Spec = v1beta1.ClaimKindSpec{
		Reference:     v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.classRef"}, Form: v1beta1.Name},
		Selector:      v1beta1.ClassSelector{Path: ".spec.classSelector"},
		Choice:        v1beta1.Choice{Strategy: v1beta1.WeightedRandom},
		WhenUnmatched: v1beta1.BindLater,
	}
	w.pvcKind.Spec = w.claimKind.Spec
	w.pvcKind.Spec.Reference.Path, w.pvcKind.Spec.WhenUnmatched = ".spec.storageClassName", ""
	w.classKind.Spec = v1beta1.ClassKindSpec{
		ClaimKinds: []v1beta1.ClaimKindLink{{Name: databases}},
		Default:    v1beta1.Source{Annotation: "default"},
		Weight:     v1beta1.Source{Annotation: "weight"},
	}
	w.gold.SetAnnotations(map[string]string{"default": "true", "weight": "3"})
	setField(t, w.claim, "gold", "spec", "classRef")
	setField(t, w.pvc, "fast", "spec", "storageClassName")
	w.writeEntries(ca)
	return w
}

// writeEntries as the leader does.
func (w *fixture) writeEntries(ca []byte) {
	w.first = &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: v1beta1.FirstConfiguration}}
	w.claims = &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: v1beta1.LastConfiguration}}
	w.classes = &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: v1beta1.ClassConfiguration}}
	at := admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: own, Name: "classbind"}, CABundle: ca}
	for _, name := range []string{databases, pvcs} {
		w.claims.Webhooks = append(w.claims.Webhooks, admissionregistrationv1.MutatingWebhook{Name: name + v1beta1.BindSuffix, ClientConfig: at})
	}
	for _, suffix := range []string{v1beta1.GuardSuffix, v1beta1.DeletionSuffix} {
		w.classes.Webhooks = append(w.classes.Webhooks, admissionregistrationv1.ValidatingWebhook{Name: golds + suffix, ClientConfig: at})
	}
}

func object(apiVersion, kind, namespace, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// asking is a claim with a selector and without a class.
func asking(t *testing.T, namespace, name string) *unstructured.Unstructured {
	t.Helper()
	o := object("example.org/v1", "Database", namespace, name)
	setField(t, o, "gold", "spec", "classSelector", "matchLabels", "tier")
	return o
}

// conditions are written as TYPE=STATUS/REASON: MESSAGE.
func conditions(texts []string) (all []metav1.Condition) {
	for _, text := range texts {
		is, message, _ := strings.Cut(text, ": ")
		what, is, _ := strings.Cut(is, "=")
		status, reason, _ := strings.Cut(is, "/")
		all = append(all, metav1.Condition{Type: what, Status: metav1.ConditionStatus(status), Reason: reason, Message: message})
	}
	return all
}

func setField(t *testing.T, o *unstructured.Unstructured, value string, path ...string) {
	t.Helper()
	require.NoError(t, unstructured.SetNestedField(o.Object, value, path...))
}

// Resolve is called by the installation, as is Classes.
func (w *fixture) Resolve(_ context.Context, name, _ string, _ ...string) (cluster.Resource, error) {
	if found, ok := w.served[name]; ok {
		return found, nil
	}
	return cluster.Resource{}, cluster.ErrNotInstalled
}

func (w *fixture) Classes(_ context.Context, kind *inventory.ClassKind) (*inventory.Classes, error) {
	var all []*inventory.Class
	for _, o := range append([]client.Object{w.gold}, w.more...) {
		if u, ok := o.(*unstructured.Unstructured); ok && u.GetKind() == kind.GroupVersionKind.Kind {
			all = append(all, kind.NewClass(u, u.Object))
		}
	}
	return inventory.NewClasses(kind, all), w.refuse("Classes")
}

// refuse to read a kind.
func (w *fixture) refuse(kind string) error {
	switch {
	case slices.Contains(w.unread, kind):
		return apierrors.NewForbidden(schema.GroupResource{Resource: kind}, "", errors.New("it is a test"))
	case slices.Contains(w.down, kind):
		return apierrors.NewServiceUnavailable("down")
	}
	return nil
}

// report on the world.
func (w *fixture) report(t *testing.T) (*Report, error) {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, errors.Join(clientgoscheme.AddToScheme(scheme), v1beta1.AddToScheme(scheme)))
	objects := append([]client.Object{
		w.deployment, w.lease, w.secret, w.claimKind, w.pvcKind, w.classKind, w.first, w.claims, w.classes, w.claim, w.pvc,
	}, w.more...)
	kindOf := func(o runtime.Object) string {
		gvk, err := apiutil.GVKForObject(o, scheme)
		require.NoError(t, err)
		return strings.TrimSuffix(gvk.Kind, "List")
	}
	api := fake.NewClientBuilder().WithReturnManagedFields().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if err := w.refuse(kindOf(o)); err != nil {
				return err
			}
			if err := c.Get(ctx, key, o, opts...); err != nil || !w.renewed {
				return err
			}
			lease, ok := o.(*coordinationv1.Lease)
			if !ok {
				return nil
			}
			next := lease.DeepCopy()
			next.Spec.RenewTime.Time = next.Spec.RenewTime.Add(time.Second)
			return c.Update(ctx, next)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if err := w.refuse(kindOf(list)); err != nil {
				return err
			}
			return c.List(ctx, list, opts...)
		},
	}).Build()
	read, err := (&world.Cluster{API: api, Kinds: w, Objects: pages{api}}).World(t.Context(), w.namespace)
	if err != nil {
		return nil, err
	}
	i := &installation{World: read, api: api, now: time.Now(), renewal: time.Millisecond, progress: &w.progress}
	return i.report(t.Context())
}

// pages has all objects of a kind on one page.
type pages struct{ client.Reader }

func (p pages) Pages(ctx context.Context, of schema.GroupVersionResource, _ string, each func([]byte) error, after func() error) error {
	kind := map[string]string{"databases": "Database", "persistentvolumeclaims": "PersistentVolumeClaim", "namespaces": "Namespace"}[of.Resource]
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(of.GroupVersion().WithKind(kind + "List"))
	err := p.List(ctx, list)
	for i := range list.Items {
		raw, _ := list.Items[i].MarshalJSON() // It was JSON.
		err = errors.Join(err, each(raw))
	}
	return errors.Join(err, after())
}

// pod of the Deployment.
func (w *fixture) pod(name string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: own, Name: name, Labels: w.deployment.Labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Image: "classbind:v1"}}},
	}
	w.more = append(w.more, p)
	return p
}

// waits says why the container of a pod does not run.
func waits(p *corev1.Pod, reason string) {
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}}
}

// rival is a class kind whose name comes first, with a default class of its own.
func (w *fixture) rival(ready metav1.ConditionStatus, reason string) {
	irons := w.classKind.DeepCopy()
	irons.Name = "a-irons.example.org"
	irons.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionReady, Status: ready, Reason: reason}}
	iron := object("example.org/v1", "Iron", "", "iron")
	iron.SetAnnotations(map[string]string{"default": "true"})
	w.served[irons.Name] = cluster.Resource{GroupVersionKind: schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Iron"}}
	w.more = append(w.more, irons, iron)
}

// certManager issues the certificates from now on.
func (w *fixture) certManager() {
	w.deployment.Spec.Template.Spec.Containers[0].Args = []string{"serve", "--certs", "cert-manager"}
	w.secret.Name = v1beta1.TLSSecret
}
