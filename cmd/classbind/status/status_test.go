package status

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/certs/certtest"
	"github.com/classbind/classbind/cmd/classbind/exit"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/webhookconfig"
	"github.com/classbind/classbind/selector"
)

const (
	own       = "classbind-system"
	databases = "databases.example.org"
	golds     = "golds.example.org"
	pvcs      = "persistentvolumeclaims"
)

// world is an installation in which nothing is broken, until a test changes it.
type world struct {
	deployment *appsv1.Deployment
	lease      *coordinationv1.Lease
	secret     *corev1.Secret
	claimKind  *v1alpha1.ClaimKind
	pvcKind    *v1alpha1.ClaimKind
	classKind  *v1alpha1.ClassKind
	claims     *admissionregistrationv1.MutatingWebhookConfiguration
	classes    *admissionregistrationv1.ValidatingWebhookConfiguration
	gold       *unstructured.Unstructured
	claim      *unstructured.Unstructured
	pvc        *unstructured.Unstructured
	more       []client.Object

	served map[string]cluster.Resource
	// denied are the rights that classbind's account lacks, as "verb resource".
	denied []string
	// unread are the kinds that the user may not read. down are those for which nobody answers.
	unread, down []string
	// namespace of classbind, as the flag has it.
	namespace string
	// renewed says that the leader renews its Lease between any two looks.
	renewed bool
	// progress is what the command says meanwhile.
	progress strings.Builder
}

func newWorld(t *testing.T) *world {
	t.Helper()
	now := metav1.NowMicro()
	ca := certtest.NewCA(t).PEM()
	ready := []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonServed}}
	guarded := metav1.Condition{Type: v1alpha1.ConditionGuarded, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonConfigured}
	w := &world{
		namespace: own,
		deployment: &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: own, Name: "classbind", Labels: map[string]string{"app.kubernetes.io/name": "classbind"}},
			Spec: appsv1.DeploymentSpec{Replicas: new(int32(2)), Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				ServiceAccountName: "classbind", Containers: []corev1.Container{{Image: "classbind:v1"}},
			}}},
			Status: appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 2},
		},
		lease: &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: own, Name: v1alpha1.LeaderLease},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: new("replica-1"), LeaseDurationSeconds: new(int32(15)), RenewTime: &now},
		},
		secret:    &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: own, Name: v1alpha1.CASecret}, Data: map[string][]byte{"ca.crt": ca, "tls.crt": ca}},
		claimKind: &v1alpha1.ClaimKind{ObjectMeta: metav1.ObjectMeta{Name: databases}, Status: v1alpha1.ClaimKindStatus{Conditions: ready}},
		pvcKind:   &v1alpha1.ClaimKind{ObjectMeta: metav1.ObjectMeta{Name: pvcs}, Status: v1alpha1.ClaimKindStatus{Conditions: ready}},
		classKind: &v1alpha1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: golds}, Status: v1alpha1.ClassKindStatus{Conditions: append(slices.Clone(ready), guarded)}},
		gold:      object("example.org/v1", "Gold", "", "gold"),
		claim:     object("example.org/v1", "Database", "team", "mine"),
		pvc:       object("v1", "PersistentVolumeClaim", "team", "disk"),
		served: map[string]cluster.Resource{
			databases: {GroupVersionKind: schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Database"}, Namespaced: true},
			golds:     {GroupVersionKind: schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Gold"}},
			pvcs:      {GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "PersistentVolumeClaim"}, Namespaced: true},
		},
	}
	w.claimKind.Spec = v1alpha1.ClaimKindSpec{
		Paths:    v1alpha1.ClaimPaths{ClassRef: ".spec.classRef", ClassSelector: ".spec.classSelector"},
		Strategy: v1alpha1.WeightedRandom, WhenUnmatched: v1alpha1.BindLater, ClassRefFormat: v1alpha1.Name,
	}
	w.pvcKind.Spec = v1alpha1.ClaimKindSpec{
		Paths:    v1alpha1.ClaimPaths{ClassRef: ".spec.storageClassName", ClassSelector: ".spec.classSelector"},
		Strategy: v1alpha1.WeightedRandom, ClassRefFormat: v1alpha1.Name,
	}
	w.classKind.Spec = v1alpha1.ClassKindSpec{ClaimKinds: []string{databases}, Default: v1alpha1.Source{Annotation: "default"}, Weight: v1alpha1.Source{Annotation: "weight"}}
	w.gold.SetAnnotations(map[string]string{"default": "true", "weight": "3"})
	setField(t, w.claim, "gold", "spec", "classRef")
	setField(t, w.pvc, "fast", "spec", "storageClassName")
	w.writeEntries(t, ca)
	return w
}

// writeEntries as the leader does.
func (w *world) writeEntries(t *testing.T, ca []byte) {
	t.Helper()
	writer := &webhookconfig.Configurator{Namespace: own, Service: "classbind"}
	w.claims = &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.WebhookConfiguration}}
	for _, k := range []*v1alpha1.ClaimKind{w.claimKind, w.pvcKind} {
		e, err := writer.StoredClaimEntry(k, w.served[k.Name], ca)
		require.NoError(t, err)
		w.claims.Webhooks = append(w.claims.Webhooks, *e)
	}
	e, err := writer.StoredClassEntry(w.classKind, w.served[golds], ca)
	require.NoError(t, err)
	deletion, err := writer.StoredDeletionEntry(w.classKind, w.served[golds], ca)
	require.NoError(t, err)
	w.classes = &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.WebhookConfiguration}, Webhooks: []admissionregistrationv1.ValidatingWebhook{*e, *deletion}}
	w.own(databases+v1alpha1.BindSuffix, pvcs+v1alpha1.BindSuffix, golds+v1alpha1.GuardSuffix, golds+v1alpha1.DeletionSuffix)
}

// own is what the API server writes down when classbind has written where entries are
// called.
func (w *world) own(entries ...string) {
	var owned []string
	for _, name := range entries {
		owned = append(owned, fmt.Sprintf(`"k:{\"name\":\"%s\"}": {".": {}, "f:clientConfig": {"f:service": {".": {}, "f:name": {}}, "f:url": {}}}`, name))
	}
	fields := []metav1.ManagedFieldsEntry{{
		Manager: v1alpha1.FieldManager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: "admissionregistration.k8s.io/v1", FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(`{"f:webhooks": {` + strings.Join(owned, ",") + `}}`),
	}}
	w.claims.ManagedFields, w.classes.ManagedFields = fields, fields
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

func setField(t *testing.T, o *unstructured.Unstructured, value string, path ...string) {
	t.Helper()
	require.NoError(t, unstructured.SetNestedField(o.Object, value, path...))
}

// Resolve is called by the installation, as is Classes.
func (w *world) Resolve(_ context.Context, name string, _ ...string) (schema.GroupVersionKind, bool, error) {
	found, ok := w.served[name]
	if !ok {
		return schema.GroupVersionKind{}, false, cluster.ErrNotInstalled
	}
	return found.GroupVersionKind, found.Namespaced, nil
}

func (w *world) Classes(_ context.Context, kind *selector.ClassKind) (*selector.Classes, error) {
	var all []*selector.Class
	for _, o := range append([]client.Object{w.gold}, w.more...) {
		if u, ok := o.(*unstructured.Unstructured); ok && u.GetKind() == kind.GroupVersionKind.Kind {
			all = append(all, kind.NewClass(u, u.Object))
		}
	}
	return selector.NewClasses(kind, all), w.refuse("Classes")
}

// refuse to read a kind.
func (w *world) refuse(kind string) error {
	switch {
	case slices.Contains(w.unread, kind):
		return apierrors.NewForbidden(schema.GroupResource{Resource: kind}, "", errors.New("it is a test"))
	case slices.Contains(w.down, kind):
		return apierrors.NewServiceUnavailable("down")
	}
	return nil
}

// report on the world.
func (w *world) report(t *testing.T) (*Report, error) {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
	objects := append([]client.Object{
		w.deployment, w.lease, w.secret, w.claimKind, w.pvcKind, w.classKind, w.claims, w.classes, w.claim, w.pvc,
	}, w.more...)
	kindOf := func(o runtime.Object) string {
		if list, ok := o.(*metav1.PartialObjectMetadataList); ok {
			return strings.TrimSuffix(list.Kind, "List")
		}
		gvk, _, err := scheme.ObjectKinds(o)
		if u, ok := o.(runtime.Unstructured); ok {
			return strings.TrimSuffix(u.GetObjectKind().GroupVersionKind().Kind, "List")
		}
		require.NoError(t, err)
		return strings.TrimSuffix(gvk[0].Kind, "List")
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
	i := &installation{api: api, reader: w, own: w.namespace, now: time.Now(), renewal: time.Millisecond, progress: &w.progress, allowed: func(_ context.Context, account string, what authorizationv1.ResourceAttributes) (bool, error) {
		assert.Equal(t, "system:serviceaccount:"+w.namespace+":"+w.deployment.Spec.Template.Spec.ServiceAccountName, account)
		return !slices.Contains(w.denied, what.Verb+" "+what.Resource), w.refuse("SubjectAccessReview")
	}}
	if err := i.read(t.Context()); err != nil {
		return nil, err
	}
	return i.report(t.Context()), nil
}

func statusOf(err error) int {
	if e := (*exit.Error)(nil); errors.As(err, &e) {
		return e.Status
	}
	return 0
}

func TestStatus(t *testing.T) {
	label := func(o client.Object, key, value string) { o.SetLabels(map[string]string{key: value}) }
	for name, tc := range map[string]struct {
		reason string
		change func(*world)
		want   []string // each finding, as SECTION: WHERE: a part of WHAT
	}{
		"Nothing": {
			reason: "We should find nothing in an installation that works.",
			change: func(*world) {},
		},
		"RoleMissing": {
			reason: "We should name the right that classbind lacks.",
			change: func(w *world) { w.denied = []string{"list golds", "watch golds"} },
			want:   []string{"rights: classkind/golds.example.org: system:serviceaccount:classbind-system:classbind may not list, watch golds of example.org"},
		},
		"RoleMissingAndSeen": {
			reason: "We should say once that a right is missing, when the leader says so, too.",
			change: func(w *world) {
				w.denied = []string{"list golds", "watch golds"}
				w.classKind.Status.Conditions = []metav1.Condition{
					{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNotPermitted, Message: "no"},
				}
			},
			want: []string{"rights: classkind/golds.example.org: system:serviceaccount:classbind-system:classbind may not list, watch golds of example.org"},
		},
		"OwnRoleMissing": {
			reason: "We should name all rights of one role together.",
			change: func(w *world) {
				w.denied = []string{"get secrets", "create secrets", "list secrets", "watch secrets", "update secrets", "create events"}
			},
			want: []string{`rights: serviceaccounts/classbind-system/classbind: system:serviceaccount:classbind-system:classbind may not create events of events.k8s.io; ` +
				`get secrets, "classbind-ca"; get secrets, "classbind-tls"; create events; create secrets; list, watch, update secrets, "classbind-ca"`},
		},
		"RoleOfCertManagerMissing": {
			reason: "We should ask for the rights that go with cert-manager alone, and name its folder.",
			change: func(w *world) {
				w.certManager()
				w.denied = []string{"create secrets", "list secrets", "update secrets"}
			},
			want: []string{`rights: serviceaccounts/classbind-system/classbind: system:serviceaccount:classbind-system:classbind may not list secrets, "classbind-tls"`},
		},
		"RoleOfMetricsMissing": {
			reason: "We should ask for the rights that go with secure metrics.",
			change: func(w *world) {
				w.deployment.Spec.Template.Spec.Containers[0].Args = []string{"serve", "--metrics-secure"}
				w.denied = []string{"create tokenreviews", "create subjectaccessreviews"}
			},
			want: []string{"classbind may not create tokenreviews of authentication.k8s.io; create subjectaccessreviews of authorization.k8s.io"},
		},
		"RoleOfMetricsNotNeeded": {
			reason: "We should not ask for rights that nobody uses.",
			change: func(w *world) { w.denied = []string{"create tokenreviews", "create subjectaccessreviews"} },
		},
		"RoleOfAnotherAccountMissing": {
			reason: "We should ask about the account that replicas have.",
			change: func(w *world) {
				w.deployment.Spec.Template.Spec.ServiceAccountName = "binder"
				w.denied = []string{"create events"}
			},
			want: []string{"rights: serviceaccounts/classbind-system/binder: system:serviceaccount:classbind-system:binder may not create events"},
		},
		"LateBindingNotPermitted": {
			reason: "We should ask about claims where they are bound later, and only there.",
			change: func(w *world) { w.denied = []string{"patch databases", "patch persistentvolumeclaims"} },
			want:   []string{"rights: claimkind/databases.example.org: system:serviceaccount:classbind-system:classbind may not patch databases of example.org"},
		},
		"PathWithTypo": {
			reason: "We should name the path, and not that the kind is not ready for it.",
			change: func(w *world) {
				w.claimKind.Status.Conditions = []metav1.Condition{
					{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonReferencePruned, Message: "so it is"},
					{Type: v1alpha1.ConditionPathsValid, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonReferencePruned, Message: "paths.classRef: the schema has no field .spec.clasRef"},
				}
			},
			want: []string{"kinds: claimkind/databases.example.org: PathsValid is False (ReferencePruned): paths.classRef: the schema has no field .spec.clasRef"},
		},
		"NotReady": {
			reason: "We should say why a kind is not ready, what else is wrong with it, and nothing that follows.",
			change: func(w *world) {
				w.classKind.Status.Conditions = []metav1.Condition{
					{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNotSynced, Message: "no"},
					{Type: v1alpha1.ConditionGuarded, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNotConfigured},
					{Type: v1alpha1.ConditionClaimKindsRegistered, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNotRegistered, Message: "others"},
				}
				w.classes.Webhooks = nil
			},
			want: []string{
				"kinds: classkind/golds.example.org: Ready is False (NotSynced): no",
				"kinds: classkind/golds.example.org: ClaimKindsRegistered is False (NotRegistered): others",
			},
		},
		"Conditions": {
			reason: "We should find each condition that is not met, once.",
			change: func(w *world) {
				w.classKind.Status.Conditions = w.classKind.Status.Conditions[:1]
				for _, condition := range []string{
					v1alpha1.ConditionGuarded, v1alpha1.ConditionWeightsValid, v1alpha1.ConditionLabelsHeld, v1alpha1.ConditionMarksValid, v1alpha1.ConditionClaimKindsRegistered,
				} {
					w.classKind.Status.Conditions = append(w.classKind.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionFalse, Reason: "Is"})
				}
				for _, condition := range []string{
					v1alpha1.ConditionSingleDefault, v1alpha1.ConditionPathsValid, v1alpha1.ConditionSelectorsHeeded, v1alpha1.ConditionLateBinding, v1alpha1.ConditionClaimsCounted,
				} {
					w.claimKind.Status.Conditions = append(w.claimKind.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionFalse, Reason: "Is"})
				}
				second := object("example.org/v1", "Gold", "", "second")
				second.SetAnnotations(map[string]string{"default": "true", "weight": "much"})
				w.more = append(w.more, second)
				w.classes.Webhooks = nil
			},
			want: []string{
				"kinds: claimkind/databases.example.org: PathsValid is False", "kinds: claimkind/databases.example.org: SelectorsHeeded is False",
				"kinds: claimkind/databases.example.org: LateBinding is False", "kinds: claimkind/databases.example.org: ClaimsCounted is False",
				"kinds: classkind/golds.example.org: Guarded is False", "kinds: classkind/golds.example.org: LabelsHeld is False",
				"kinds: classkind/golds.example.org: MarksValid is False", "kinds: classkind/golds.example.org: ClaimKindsRegistered is False",
				"default classes: claimkind/databases.example.org: claims of databases.example.org without a selector get any of 2 default classes", "weights: golds.example.org/second: its weight counts as 1",
			},
		},
		"NeverLookedAt": {
			reason: "We should not take silence for a good sign.",
			change: func(w *world) { w.claimKind.Status.Conditions = nil },
			want:   []string{"kinds: claimkind/databases.example.org: no leader has looked at it"},
		},
		"CRDGone": {
			reason: "We should say that a resource is not served, once.",
			change: func(w *world) { delete(w.served, databases) },
			want:   []string{"kinds: claimkind/databases.example.org: the API server serves no such resource"},
		},
		"TwoDefaults": {
			reason: "We should name both defaults.",
			change: func(w *world) {
				second := object("example.org/v1", "Gold", "", "second")
				second.SetAnnotations(map[string]string{"default": "true"})
				w.more = append(w.more, second)
			},
			want: []string{"default classes: claimkind/databases.example.org: claims of databases.example.org without a selector get any of 2 default classes: golds.example.org/gold, golds.example.org/second"},
		},
		"TwoDefaultsOfTwo": {
			reason: "We should find the same two once, whatever they are the defaults of.",
			change: func(w *world) {
				w.classKind.Spec.ClaimKinds = append(w.classKind.Spec.ClaimKinds, pvcs)
				setField(t, w.pvc, "gold", "spec", "storageClassName")
				second := object("example.org/v1", "Gold", "", "second")
				second.SetAnnotations(map[string]string{"default": "true"})
				w.more = append(w.more, second)
			},
			want: []string{"default classes: claimkind/databases.example.org, claimkind/persistentvolumeclaims: claims of databases.example.org, persistentvolumeclaims without a selector get any of 2"},
		},
		"DefaultCordoned": {
			reason: "We should say that the default is offered to no claim.",
			change: func(w *world) {
				w.gold.SetAnnotations(map[string]string{"default": "true", v1alpha1.CordonedAnnotation: "true"})
			},
			want: []string{"default classes: golds.example.org/gold: it is the default of databases.example.org and cordoned"},
		},
		"OneOfTwoDefaultsCordoned": {
			reason: "We should not say that claims get a class that is cordoned, and leave one default.",
			change: func(w *world) {
				second := object("example.org/v1", "Gold", "", "second")
				second.SetAnnotations(map[string]string{"default": "true", v1alpha1.CordonedAnnotation: "true"})
				w.more = append(w.more, second)
			},
			want: []string{"default classes: golds.example.org/second: it is a default of databases.example.org besides golds.example.org/gold, and cordoned, so no claim gets it"},
		},
		"DefaultOfTwoCordoned": {
			reason: "We should find a class once, whatever it is the default of.",
			change: func(w *world) {
				w.classKind.Spec.ClaimKinds = append(w.classKind.Spec.ClaimKinds, pvcs)
				w.gold.SetAnnotations(map[string]string{"default": "true", v1alpha1.CordonedAnnotation: "true"})
				setField(t, w.pvc, "gold", "spec", "storageClassName")
			},
			want: []string{"default classes: golds.example.org/gold: it is the default of databases.example.org, persistentvolumeclaims and cordoned"},
		},
		"DefaultOfWeightZero": {
			reason: "We should say that the default is offered to no claim by this strategy.",
			change: func(w *world) { w.gold.SetAnnotations(map[string]string{"default": "true", "weight": "0"}) },
			want:   []string{"default classes: golds.example.org/gold: it is the default of databases.example.org and has weight 0"},
		},
		"WeightMalformed": {
			reason: "We should name the class whose weight is malformed.",
			change: func(w *world) { w.gold.SetAnnotations(map[string]string{"default": "true", "weight": "much"}) },
			want:   []string{`weights: golds.example.org/gold: its weight counts as 1: metadata.annotations[weight]: Invalid value: "much"`},
		},
		"NoReplica": {
			reason: "We should say that no replica is ready, and not that none leads, either.",
			change: func(w *world) {
				w.deployment.Status.ReadyReplicas = 0
				w.lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now().Add(-time.Minute)}
			},
			want: []string{"replicas: deployments/classbind-system/classbind: no replica is ready, of 2"},
		},
		"NoLeader": {
			reason: "We should say that none leads of those that are ready.",
			change: func(w *world) { w.lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now().Add(-time.Minute)} },
			want:   []string{"replicas: leases/classbind-system/classbind-leader: no replica leads, so nobody keeps the entries, the status and the CA; the last that led was replica-1"},
		},
		"OneReplicaOfTwo": {
			reason: "We should say that a replica is missing, and why.",
			change: func(w *world) {
				w.deployment.Status.ReadyReplicas = 1
				waits(w.pod("b", "classbind:v1"), "ImagePullBackOff")
				w.pod("a", "classbind:v1")
			},
			want: []string{"replicas: deployments/classbind-system/classbind: only 1 of 2 replicas are ready: pod b: ImagePullBackOff"},
		},
		"TwoReplicasOfFour": {
			reason: "We should not take for a drain what it may not do.",
			change: func(w *world) { w.deployment.Spec.Replicas = new(int32(4)) },
			want:   []string{"replicas: deployments/classbind-system/classbind: only 2 of 4 replicas are ready"},
		},
		"RolloutStuck": {
			reason: "We should say that a rollout does not go on while the pods of before are ready.",
			change: func(w *world) {
				w.deployment.Status.Replicas, w.deployment.Status.UpdatedReplicas = 3, 1
				w.deployment.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse, Reason: "ProgressDeadlineExceeded"}}
				waits(w.pod("c", "classbind:v1"), "ErrImagePull")
			},
			want: []string{"replicas: deployments/classbind-system/classbind: its rollout does not go on: 1 of 2 replicas are updated: pod c: ErrImagePull"},
		},
		"OutsideTheCluster": {
			reason: "We should find nothing wrong with a Deployment that nobody runs, beside a replica that leads.",
			change: func(w *world) { w.deployment.Status = appsv1.DeploymentStatus{} },
		},
		"ScaledToNone": {
			reason: "We should say that it is scaled to 0.",
			change: func(w *world) { w.deployment.Spec.Replicas = new(int32(0)) },
			want:   []string{"replicas: deployments/classbind-system/classbind: it is scaled to 0"},
		},
		"EntryEdited": {
			reason: "We should name the fields of an entry that somebody edited.",
			change: func(w *world) {
				e := &w.claims.Webhooks[0]
				e.FailurePolicy = new(admissionregistrationv1.Ignore)
				e.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
				w.classes.Webhooks[0].ClientConfig.Service.Name = "others"
				w.classes.Webhooks[1].FailurePolicy = new(admissionregistrationv1.Fail)
				w.own(databases+v1alpha1.BindSuffix, pvcs+v1alpha1.BindSuffix)
			},
			want: []string{
				"webhook entries: mutatingwebhookconfigurations/classbind: the entry databases.example.org.bind.classbind.io is not as classbind writes it, in failurePolicy, objectSelector",
				"webhook entries: validatingwebhookconfigurations/classbind: the entry golds.example.org.guard.classbind.io is not as classbind writes it, in clientConfig",
				"webhook entries: validatingwebhookconfigurations/classbind: the entry golds.example.org.deletion.classbind.io is not as classbind writes it, in failurePolicy",
			},
		},
		"DeletionEntryGone": {
			reason: "We should miss the entry for deletions where claims are watched.",
			change: func(w *world) { w.classes.Webhooks = w.classes.Webhooks[:1] },
			want:   []string{"webhook entries: validatingwebhookconfigurations/classbind: nobody is warned who deletes a class of golds.example.org that claims have: it has no entry"},
		},
		"DeletionEntryNotNeeded": {
			reason: "We should find an entry for deletions where no claims are watched.",
			change: func(w *world) {
				w.claimKind.Spec.WhenUnmatched = v1alpha1.Admit
				w.writeEntries(t, w.secret.Data["ca.crt"])
			},
			want: []string{"webhook entries: validatingwebhookconfigurations/classbind: the entry golds.example.org.deletion.classbind.io is of no registered kind"},
		},
		"EntriesOfAURL": {
			reason: "We should take the place where most entries have the leader called for the right one.",
			change: func(w *world) {
				at := func(base, path string) admissionregistrationv1.WebhookClientConfig {
					return admissionregistrationv1.WebhookClientConfig{URL: new(base + path), CABundle: w.secret.Data["ca.crt"]}
				}
				w.claims.Webhooks[0].ClientConfig = at("https://localhost:9443", v1alpha1.BindPath)
				w.claims.Webhooks[1].ClientConfig = at("https://localhost:1", v1alpha1.BindPath)
				w.classes.Webhooks[0].ClientConfig = at("https://localhost:9443", v1alpha1.GuardPath)
				w.classes.Webhooks[1].ClientConfig = at("https://localhost:9443", v1alpha1.DeletionPath)
			},
			want: []string{"webhook entries: mutatingwebhookconfigurations/classbind: the entry persistentvolumeclaims.bind.classbind.io is not as classbind writes it, in clientConfig"},
		},
		"EveryEntryMoved": {
			reason: "We should not take a place for the right one that somebody else wrote into all entries.",
			change: func(w *world) {
				for n := range w.claims.Webhooks {
					w.claims.Webhooks[n].ClientConfig.Service.Name = "others"
				}
				w.own(golds + v1alpha1.GuardSuffix)
			},
			want: []string{"webhook entries: mutatingwebhookconfigurations/classbind: the entries databases.example.org.bind.classbind.io, persistentvolumeclaims.bind.classbind.io are not as classbind writes them, in clientConfig"},
		},
		"OnlyEntryMoved": {
			reason: "We should find it without another entry to compare it with.",
			change: func(w *world) {
				w.classes.Webhooks[0].ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: new("https://localhost:1/guard"), CABundle: w.secret.Data["ca.crt"]}
				w.claims.Webhooks = nil
				w.claimKind.Status.Conditions, w.pvcKind.Status.Conditions = notReady, notReady
				w.own()
			},
			want: []string{
				"webhook entries: validatingwebhookconfigurations/classbind: the entry golds.example.org.guard.classbind.io is not as classbind writes it, in clientConfig",
				"kinds: claimkind/databases.example.org: Ready is False", "kinds: claimkind/persistentvolumeclaims: Ready is False",
			},
		},
		"EntryGone": {
			reason: "We should miss an entry, and find one of no kind.",
			change: func(w *world) {
				w.claims.Webhooks[0].Name = "others.example.org.bind.classbind.io"
				w.classes.Webhooks = nil
			},
			want: []string{
				"webhook entries: mutatingwebhookconfigurations/classbind: claims of databases.example.org are not bound: it has no entry",
				"webhook entries: mutatingwebhookconfigurations/classbind: the entry others.example.org.bind.classbind.io is of no registered kind",
				"webhook entries: validatingwebhookconfigurations/classbind: a second default class of golds.example.org is not refused: it has no entry",
			},
		},
		"ConfigurationGone": {
			reason: "We should say that a webhook configuration is not there.",
			change: func(w *world) { w.classes.Name = "others" },
			want:   []string{"webhook entries: validatingwebhookconfigurations/classbind: there is no such configuration"},
		},
		"NamespaceExcluded": {
			reason: "We should find claims that nobody binds, and none that has its class.",
			change: func(w *world) {
				unbound := asking(t, "team", "unbound")
				excluded := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}
				w.claimKind.Spec.NamespaceSelector.MatchLabels = map[string]v1alpha1.LabelValue{"bind": "yes"}
				for n := range w.claims.Webhooks {
					if strings.HasPrefix(w.claims.Webhooks[n].Name, databases) {
						w.claims.Webhooks[n].NamespaceSelector.MatchLabels = map[string]string{"bind": "yes"}
					}
				}
				selected := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
				label(selected, "bind", "yes")
				w.more = append(w.more, unbound, excluded, selected, asking(t, "other", "waits"))
			},
			want: []string{"claims: namespaces/team: it is excluded from databases.example.org, and 1 claim has no class: team/unbound"},
		},
		"ManyNamespacesExcluded": {
			reason: "We should name a few of many namespaces.",
			change: func(w *world) {
				w.claimKind.Spec.NamespaceSelector.MatchLabels = map[string]v1alpha1.LabelValue{"bind": "yes"}
				w.writeEntries(t, w.secret.Data["ca.crt"])
				for n := range 7 {
					namespace := fmt.Sprint("team-", n)
					w.more = append(w.more, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, asking(t, namespace, "unbound"))
				}
			},
			want: []string{
				"claims: namespaces/team-0: ", "claims: namespaces/team-1: ", "claims: namespaces/team-2: ", "claims: namespaces/team-3: ", "claims: namespaces/team-4: ",
				"claims: claimkind/databases.example.org: 2 more namespaces are excluded, and have claims without a class",
			},
		},
		"NeverSelected": {
			reason: "We should find claims in a namespace whose claims are never bound.",
			change: func(w *world) { w.more = append(w.more, asking(t, "kube-system", "lost")) },
			want:   []string{"claims: namespaces/kube-system: it is excluded from databases.example.org, and 1 claim has no class: kube-system/lost"},
		},
		"ClassGone": {
			reason: "We should name the claim, and the class that it has.",
			change: func(w *world) { w.gold.SetName("silver") },
			want:   []string{`claims: claimkind/databases.example.org: 1 claim has a class that is gone: team/mine ("golds.example.org/gold")`},
		},
		"ClassGoneOfAClaimBeingDeleted": {
			reason: "We should not ask for anything about a claim that goes.",
			change: func(w *world) {
				w.gold.SetName("silver")
				w.claim.SetDeletionTimestamp(&metav1.Time{Time: time.Now()})
				w.claim.SetFinalizers([]string{"example.org/wait"})
			},
		},
		"StaticallyProvisioned": {
			reason: "We should take the name of a class that never was for what Kubernetes takes it for.",
			change: func(w *world) {
				w.classKind.Spec.ClaimKinds = []string{databases, pvcs}
				w.pvcKind.Spec.Paths.SkipIfSet = []v1alpha1.FieldPath{".spec.volumeName"}
				w.writeEntries(t, w.secret.Data["ca.crt"])
				setField(t, w.pvc, "manual", "spec", "storageClassName")
				setField(t, w.pvc, "mine", "spec", "volumeName")
			},
		},
		"ClassOfTheSecondKind": {
			reason: "We should find the class of a kind that the server offers, behind an older kind that it leaves out.",
			change: func(w *world) { w.older(metav1.ConditionFalse, v1alpha1.ReasonNotPermitted) },
			want:   []string{"kinds: classkind/irons.example.org: Ready is False (NotPermitted)"},
		},
		"DefaultBehindAKindThatIsLeftOut": {
			reason: "We should look at the defaults that the server offers.",
			change: func(w *world) {
				w.gold.SetAnnotations(map[string]string{"default": "true", v1alpha1.CordonedAnnotation: "true"})
				w.older(metav1.ConditionFalse, v1alpha1.ReasonNotPermitted)
			},
			want: []string{"kinds: classkind/irons.example.org: Ready is False (NotPermitted)", "default classes: golds.example.org/gold: it is the default of databases.example.org and cordoned"},
		},
		"ClassOfAKindThatIsLeftOut": {
			reason: "We should find a class that is there, and is offered to no claim any more.",
			change: func(w *world) { w.older(metav1.ConditionTrue, v1alpha1.ReasonServed) },
		},
		"StorageClassOverrules": {
			reason: "We should find a PersistentVolumeClaim whose selector came too late.",
			change: func(w *world) {
				w.pvc.SetAnnotations(map[string]string{v1alpha1.ClassSelectorAnnotation: "tier=gold"})
				fast := defaultStorageClass("fast")
				w.more = append(w.more, fast)
			},
			want: []string{"claims: claimkind/persistentvolumeclaims: 1 claim has a default StorageClass of Kubernetes, which the selector does not match: team/disk"},
		},
		"StorageClassMatches": {
			reason: "We should find nothing wrong with a PersistentVolumeClaim that has what it asks for.",
			change: func(w *world) {
				w.pvc.SetAnnotations(map[string]string{v1alpha1.ClassSelectorAnnotation: "tier=gold"})
				fast := defaultStorageClass("fast")
				label(fast, "tier", "gold")
				w.more = append(w.more, fast)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tc.change(w)
			report, err := w.report(t)
			require.NoError(t, err)
			assertFindings(t, report, tc.reason, tc.want)
		})
	}
}

// notReady are conditions for no reason of this test's.
var notReady = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNotSynced}}

func defaultStorageClass(name string) *storagev1.StorageClass {
	mark := map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
	return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: mark}}
}

// pod of the Deployment.
func (w *world) pod(name, image string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: own, Name: name, Labels: w.deployment.Labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: image}}}}
	w.more = append(w.more, p)
	return p
}

// waits says why the container of a pod does not run.
func waits(p *corev1.Pod, reason string) {
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}}
}

// older is a class kind that was registered first, with a default class of its own.
func (w *world) older(ready metav1.ConditionStatus, reason string) {
	irons := w.classKind.DeepCopy()
	irons.Name, irons.CreationTimestamp = "irons.example.org", metav1.Unix(1, 0)
	irons.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: ready, Reason: reason}}
	w.classKind.CreationTimestamp = metav1.Unix(2, 0)
	iron := object("example.org/v1", "Iron", "", "iron")
	iron.SetAnnotations(map[string]string{"default": "true"})
	w.served[irons.Name] = cluster.Resource{GroupVersionKind: schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Iron"}}
	w.more = append(w.more, irons, iron)
}

// certManager issues the certificates from now on.
func (w *world) certManager() {
	w.deployment.Spec.Template.Spec.Containers[0].Args = []string{"serve", "--certs", "cert-manager"}
	w.secret.Name = v1alpha1.TLSSecret
}

func assertFindings(t *testing.T, report *Report, reason string, want []string) {
	t.Helper()
	table, err := report.table()
	require.NoError(t, err)
	var got []string
	for _, s := range report.Sections {
		assert.NotEmpty(t, s.Summary, "We should say something about %s.", s.Name)
		assert.Empty(t, s.Unread, "We should read everything.")
		for _, f := range s.Findings {
			got = append(got, s.Name+": "+f.Where+": "+f.What)
			assert.NotEmpty(t, f.Do, "We should say what to do.")
		}
	}
	require.Len(t, got, len(want), "%s\n%s", reason, table)
	for n, text := range want {
		assert.Contains(t, got[n], text, reason)
	}
	assert.Equal(t, min(len(want), 1), statusOf(report.exit()), "We should tell scripts.")
}

func TestCertificates(t *testing.T) {
	ca := certtest.NewCA(t)
	expired := (&certtest.Pair{}).Sign(t, &x509.Certificate{IsCA: true, BasicConstraintsValid: true, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour)}).PEM()
	for name, tc := range map[string]struct {
		reason string
		change func(*world)
		want   []string
	}{
		"CAExpired": {
			reason: "We should find an expired CA where it is kept, and not each entry that trusts it.",
			change: func(w *world) {
				w.secret.Data["ca.crt"], w.secret.Data["tls.crt"] = expired, expired
				w.writeEntries(t, expired)
			},
			want: []string{"secrets/classbind-system/classbind-ca: its ca.crt expired at "},
		},
		"EntriesExpired": {
			reason: "We should find that entries carry a CA of before.",
			change: func(w *world) { w.writeEntries(t, expired) },
			want:   []string{"certificates: webhook entries databases.example.org.bind.classbind.io, persistentvolumeclaims.bind.classbind.io, golds.example.org.guard.classbind.io, golds.example.org.deletion.classbind.io: the CA that they carry expired at "},
		},
		"OfAnotherIssuer": {
			reason: "We should not look at certificates that nobody uses any more.",
			change: func(w *world) {
				left := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: own, Name: v1alpha1.TLSSecret}, Data: map[string][]byte{"ca.crt": expired}}
				w.more = append(w.more, left)
			},
		},
		"CertManagersExpired": {
			reason: "We should find the expired certificate that replicas serve.",
			change: func(w *world) {
				w.certManager()
				w.secret.Data["ca.crt"] = ca.PEM()
				w.secret.Data["tls.crt"] = ca.Sign(t, &x509.Certificate{NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour)}).PEM()
				w.writeEntries(t, ca.PEM())
			},
			want: []string{"certificates: secrets/classbind-system/classbind-tls: its tls.crt expired at "},
		},
		"OtherCA": {
			reason: "We should find that the entries trust another CA than the one in use.",
			change: func(w *world) { w.writeEntries(t, ca.PEM()) },
			want:   []string{"the CA that they carry is none of those in the Secrets of classbind-system"},
		},
		"OldAndNewCA": {
			reason: "We should find nothing wrong while one CA takes over from another.",
			change: func(w *world) { w.writeEntries(t, append(ca.PEM(), w.secret.Data["ca.crt"]...)) },
		},
		"NoCA": {
			reason: "We should find entries without a CA.",
			change: func(w *world) { w.writeEntries(t, nil) },
			want:   []string{"they carry no CA that can be read"},
		},
		"NoSecret": {
			reason: "We should say that there is no certificate at all.",
			change: func(w *world) { w.secret.Name = "others" },
			want:   []string{"certificates: namespaces/classbind-system: there is no Secret classbind-ca"},
		},
		"SecretMalformed": {
			reason: "We should say that a Secret holds no certificate.",
			change: func(w *world) { w.secret.Data = nil; w.writeEntries(t, ca.PEM()) },
			want:   []string{"its ca.crt cannot be read"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tc.change(w)
			report, err := w.report(t)
			require.NoError(t, err)
			assertFindings(t, report, tc.reason, tc.want)
		})
	}
}

// TestUnread has a user who may not read something, or an API server that does not answer.
func TestUnread(t *testing.T) {
	for kind, unknown := range map[string]map[string]string{ // parts of the summaries
		"Deployment": {"replicas": "Deployment not read"}, "Pod": {"replicas": ""}, "Lease": {"replicas": "Lease not read"},
		"Secret": {"certificates": "not read"}, "SubjectAccessReview": {"rights": ", not all read"},
		"MutatingWebhookConfiguration":   {"webhook entries": "not read for claims, 2 for classes"},
		"ValidatingWebhookConfiguration": {"webhook entries": "2 for claims, not read for classes"},
		"Classes":                        {"default classes": "not read", "weights": "not read", "claims": "2 read"},
		"Database":                       {"claims": "1 read, without those of databases.example.org"},
		"StorageClass":                   {"claims": "2 read"}, "Namespace": {"claims": "2 read"},
	} {
		for status, set := range map[int]func(*world){
			0:           func(w *world) { w.unread = []string{kind} },
			exit.Failed: func(w *world) { w.down = []string{kind} },
		} {
			w := newWorld(t)
			if kind == "Namespace" {
				w.claimKind.Spec.NamespaceSelector.MatchLabels = map[string]v1alpha1.LabelValue{"bind": "yes"}
				w.writeEntries(t, w.secret.Data["ca.crt"])
			}
			set(w)
			report, err := w.report(t)
			require.NoError(t, err)
			assert.Equal(t, status, statusOf(report.exit()), "We should tell what we may not read (0) from a cluster that does not answer (2), for %s.", kind)
			for _, s := range report.Sections {
				assert.Empty(t, s.Findings, "We should not take for broken what we could not read of %s.", kind)
				summary, is := unknown[s.Name]
				assert.Equal(t, is, s.State == Unknown, "We should say what of %s is unknown: %v", s.Name, s.Unread)
				assert.Contains(t, s.Summary, summary, "We should give no number of what we did not read.")
			}
			table, err := report.table()
			require.NoError(t, err)
			assert.Contains(t, string(table), map[int]string{0: "\n  Do: " + doGetRights, exit.Failed: "\n  Do: " + doTryAgain}[status])
			assert.Equal(t, 1, strings.Count(string(table), doGetRights)+strings.Count(string(table), doTryAgain), "We should put together what the same helps.")
		}
	}
	w := newWorld(t)
	w.unread = []string{"ClaimKind"}
	_, err := w.report(t)
	require.ErrorContains(t, err, "cannot list ClaimKinds", "We should have nothing to say without the registrations.")
}

func TestReportForPrograms(t *testing.T) {
	w := newWorld(t)
	w.gold.SetName("silver")
	report, err := w.report(t)
	require.NoError(t, err)
	text, err := json.Marshal(report)
	require.NoError(t, err)
	assert.Contains(t, string(text), `{"kind":"Report","apiVersion":"status.classbind.io/v1alpha1","sections":[{"name":"replicas","state":"OK",`)
	assert.Contains(t, string(text), `"findings":[{"where":"claimkind/databases.example.org","what":"1 claim has`)
}

// TestNotes has what people may want to know, and is not broken.
func TestNotes(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(*world)
		want   string
	}{
		"NoDefault": {
			"We should not take for broken what may well be meant.",
			func(w *world) { w.gold.SetAnnotations(nil) },
			"claims of databases.example.org without a selector get no class: none is marked default",
		},
		"ExcludedAndAsksForNothing": {
			"We should not take a claim for lost that nobody asked to bind.",
			func(w *world) { w.more = append(w.more, object("example.org/v1", "Database", "kube-system", "plain")) },
			"claimkind/databases.example.org: 1 claim has no class and no selector, in namespaces that are excluded: kube-system/plain",
		},
		"Rollout": {
			"We should tell of a rollout, which is normal.",
			func(w *world) { w.pod("a", "classbind:v1"); w.pod("b", "classbind:v2") },
			"replicas differ in their image, as in a rollout: 1 of classbind:v1, 1 of classbind:v2",
		},
		"RolloutThatHangs": {
			"We should tell of an image that no pod runs yet.",
			func(w *world) { w.pod("a", "classbind:v0"); w.pod("b", "classbind:v0") },
			"replicas differ in their image, as in a rollout: 2 of classbind:v0, 0 of classbind:v1",
		},
		"Drain": {
			"We should not take a drain for broken that the PodDisruptionBudget allows.",
			func(w *world) {
				w.deployment.Status.ReadyReplicas = 1
				waits(w.pod("b", "classbind:v1"), "ContainerCreating")
			},
			"only 1 of 2 replicas are ready, as in a drain: if it stays so, kubectl describe pods --namespace classbind-system --selector app.kubernetes.io/name=classbind, and kubectl logs with the same",
		},
		"OtherCertificates": {
			"We should tell of a CA that is still trusted.",
			func(w *world) {
				left := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: own, Name: v1alpha1.TLSSecret}, Data: map[string][]byte{"ca.crt": w.secret.Data["ca.crt"]}}
				w.more = append(w.more, left)
			},
			"the Secret classbind-tls is left of other certificates, and its CA is still trusted: delete it once no replica uses it",
		},
		"SchemaUnknown": {
			"We should tell what nobody can know.",
			func(w *world) {
				w.claimKind.Status.Conditions = append(w.claimKind.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionPathsValid, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonSchemaUnknown, Message: "it allows anything"})
			},
			"claimkind/databases.example.org: PathsValid is Unknown (SchemaUnknown): it allows anything",
		},
		"Ambiguous": {
			"We should tell of a class kind that only some claim kinds are offered.",
			func(w *world) {
				w.classKind.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAmbiguousReference, Message: "not to others"}}
			},
			"classkind/golds.example.org: Ready is True (AmbiguousReference): not to others",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tc.change(w)
			report, err := w.report(t)
			require.NoError(t, err)
			require.NoError(t, report.exit(), tc.reason)
			table, err := report.table()
			require.NoError(t, err)
			assert.Contains(t, string(table), "Note: "+tc.want+"\n", tc.reason)
		})
	}
}

func TestNoNoteOfWhatFollows(t *testing.T) {
	w := newWorld(t)
	w.classKind.Status.Conditions = notReady
	report, err := w.report(t)
	require.NoError(t, err)
	table, err := report.table()
	require.NoError(t, err)
	assert.NotContains(t, string(table), "claims of databases.example.org without a selector", "We should not say that no class is marked, where its kind is left out.")
}

func TestImageOfAll(t *testing.T) {
	w := newWorld(t)
	for updated, want := range map[int32]string{2: "2 of 2 ready, of classbind:v1, the leader is replica-1", 1: "2 of 2 ready, the leader is replica-1"} {
		w.deployment.Status.UpdatedReplicas = updated
		report, err := w.report(t)
		require.NoError(t, err)
		assert.Equal(t, want, report.Sections[0].Summary, "We should name an image that all replicas run, of %d.", updated)
	}
}

// TestElsewhere has the wrong namespace in the flag.
func TestElsewhere(t *testing.T) {
	const want = "classbind is in namespace classbind-system, where the API server asks it, and nothing of it is in others: --classbind-namespace classbind-system"
	for name, tc := range map[string]struct {
		reason string
		change func(*world)
		want   string
	}{
		"Nothing":    {"We should say where classbind is.", func(*world) {}, want},
		"Unread":     {"We should not say so of what we may not read.", func(w *world) { w.unread = []string{"Secret"} }, ""},
		"Lease":      {"We should look at a namespace with a Lease.", func(w *world) { w.lease.Namespace = "others" }, ""},
		"Secret":     {"We should look at a namespace with a Secret.", func(w *world) { w.secret.Namespace = "others" }, ""},
		"Deployment": {"We should look at a namespace with a Deployment.", func(w *world) { w.deployment.Namespace = "others" }, ""},
		"URL": {"We should not guess where a URL leads.", func(w *world) {
			at := admissionregistrationv1.WebhookClientConfig{URL: new("https://localhost:1/bind")}
			w.claims.Webhooks[0].ClientConfig, w.claims.Webhooks[1].ClientConfig = at, at
			w.classes.Webhooks[0].ClientConfig, w.classes.Webhooks[1].ClientConfig = at, at
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tc.change(w)
			w.namespace = "others"
			_, err := w.report(t)
			if tc.want == "" {
				require.NoError(t, err, tc.reason)
				return
			}
			require.EqualError(t, err, tc.want, tc.reason)
		})
	}
}

func TestClockAhead(t *testing.T) {
	for renewed, want := range map[bool]string{true: "the leader is replica-1", false: "no leader"} {
		w := newWorld(t)
		w.lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now().Add(-16 * time.Second)}
		w.renewed = renewed
		report, err := w.report(t)
		require.NoError(t, err)
		assert.Contains(t, report.Sections[0].Summary, want, "We should not trust the clock of whoever asks.")
		assert.Contains(t, w.progress.String(), "looking again", "We should say why it takes so long.")
	}
	w := newWorld(t)
	_, err := w.report(t)
	require.NoError(t, err)
	assert.Empty(t, w.progress.String(), "We should not look again at a Lease that is held.")
}

// TestOverruledOnce has the leader say already that a default StorageClass overrules.
func TestOverruledOnce(t *testing.T) {
	w := newWorld(t)
	w.pvc.SetAnnotations(map[string]string{v1alpha1.ClassSelectorAnnotation: "tier=gold"})
	w.more = append(w.more, defaultStorageClass("fast"))
	w.pvcKind.Status.Conditions = append(w.pvcKind.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionSelectorsHeeded, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonDefaultStorageClass, Message: "do this"})
	report, err := w.report(t)
	require.NoError(t, err)
	assertFindings(t, report, "We should find one cause once.", []string{"kinds: claimkind/persistentvolumeclaims: SelectorsHeeded is False (DefaultStorageClass): do this"})
	table, err := report.table()
	require.NoError(t, err)
	assert.Contains(t, string(table), "Note: claimkind/persistentvolumeclaims: 1 claim has a default StorageClass of Kubernetes, which the selector does not match: team/disk\n")
}

func TestWithoutLeader(t *testing.T) {
	w := newWorld(t)
	w.lease.Spec.HolderIdentity = nil
	for ready, want := range map[int32]string{
		0: "3 of 3 ready, as the last leader wrote\n", // Nobody keeps it.
		2: "3 of 3 ready\n",                           // --leader-elect=false
	} {
		w.deployment.Status.ReadyReplicas = ready
		report, err := w.report(t)
		require.NoError(t, err)
		table, err := report.table()
		require.NoError(t, err)
		assert.Contains(t, string(table), want, "We should vouch for no more than a replica does, of %d.", ready)
	}
}

// TestOwnRights compares the rights with those of deploy/.
func TestOwnRights(t *testing.T) {
	for file, rights := range map[string][]right{
		"base":                    slices.Concat(ownRights, rightsOfMetrics),
		"components/self-signed":  rightsOfIssuer[selfSigned],
		"components/cert-manager": rightsOfIssuer[certManager],
	} {
		text, err := os.ReadFile("../../../deploy/" + file + "/rbac.yaml") //nolint:gosec // The test names the files.
		require.NoError(t, err)
		var deployed, checked []string
		for manifest := range strings.SplitSeq(string(text), "\n---\n") {
			role := &rbacv1.ClusterRole{}
			require.NoError(t, yaml.Unmarshal([]byte(manifest), role))
			if !strings.HasSuffix(role.Kind, "Role") || role.Name == "classbind-metrics-reader" {
				continue
			}
			for _, rule := range role.Rules {
				for _, group := range rule.APIGroups {
					for _, resource := range rule.Resources {
						for _, name := range append(rule.ResourceNames, "")[:max(1, len(rule.ResourceNames))] {
							for _, verb := range rule.Verbs {
								deployed = append(deployed, strings.Join([]string{role.Kind, group, resource, name, verb}, " "))
							}
						}
					}
				}
			}
		}
		for _, r := range rights {
			for verb := range strings.FieldsSeq(r.verbs) {
				checked = append(checked, strings.Join([]string{map[bool]string{true: "Role", false: "ClusterRole"}[r.own], r.group, r.resource, r.name, verb}, " "))
			}
		}
		assert.NotEmpty(t, deployed)
		assert.ElementsMatch(t, deployed, checked, "We should check all rights that deploy/%s gives.", file)
	}
}
