package webhook

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/webhook/capacity"
)

// hardBinder has a class "gold" that holds 10, of which a claim uses its size.
func hardBinder(t *testing.T) *Binder {
	t.Helper()
	registration := newRegistration(func(s *v1beta1.ClaimKindSpec) { s.Classes.Usage = "has(claim.spec.size) ? claim.spec.size : 1" })
	hard := &v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: "sqlclasses.example.org"}, Spec: v1beta1.ClassKindSpec{
		ClaimKinds: []v1beta1.ClaimKindLink{{Name: claimKindName}},
		Capacity:   &v1beta1.Capacity{Total: v1beta1.Source{Annotation: v1beta1.CapacityAnnotation}, Enforcement: v1beta1.Hard},
	}}
	kind := inventory.NewClassKind(hard, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "SQLClass"}, false, registration)
	gold := kind.NewClass(&metav1.ObjectMeta{Name: "gold", Annotations: map[string]string{v1beta1.CapacityAnnotation: "10"}}, nil)
	b := newBinder(t, newInventory(selector.NewClaimKind(registration, hard), inventory.NewClasses(kind, []*inventory.Class{gold})))
	scheme := runtime.NewScheme()
	require.NoError(t, v1beta1.AddToScheme(scheme))
	stored := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			o.SetGeneration(o.GetGeneration() + 1)
			return c.Update(ctx, o, opts...)
		},
	}).Build()
	b.Ledgers = &capacity.Ledgers{Client: stored, Live: stored}
	require.NoError(t, b.Ledgers.Open(t.Context(), gold, selector.Usage{Used: 5}))
	return b
}

func TestReserve(t *testing.T) {
	object := func(version, spec string) string {
		return fmt.Sprintf(`{"metadata":{"name":"a","uid":"u","resourceVersion":%q},"spec":%s}`, version, spec)
	}
	const gold = `"classRef":{"apiVersion":"example.org/v1","kind":"SQLClass","name":"gold"}`
	for name, tc := range map[string]struct {
		reason   string
		old, now string
		dryRun   bool
		code     int32
		message  string
		reserved int64
		err      string
	}{
		"Created":   {reason: "We should reserve what a claim uses.", now: `{` + gold + `,"size":3}`, reserved: 3},
		"Last":      {reason: "We should reserve to the last place.", now: `{` + gold + `,"size":5}`, reserved: 5},
		"TooLarge":  {reason: "We should refuse what does not fit.", now: `{` + gold + `,"size":6}`, code: http.StatusTooManyRequests, message: "full: 5 of 10"},
		"DryRun":    {reason: "A dry run should reserve nothing.", now: `{` + gold + `}`, dryRun: true},
		"Unbound":   {reason: "A claim without a class should use nothing.", now: `{"size":50}`},
		"Grown":     {reason: "We should reserve the difference.", old: `{` + gold + `,"size":1}`, now: `{` + gold + `,"size":4}`, reserved: 3},
		"Shrunk":    {reason: "We should let a claim shrink.", old: `{` + gold + `,"size":9}`, now: `{` + gold + `,"size":4}`},
		"Moved":     {reason: "We should reserve all that a claim uses which comes from another class.", old: `{` + strings.Replace(gold, "gold", "iron", 1) + `,"size":2}`, now: `{` + gold + `,"size":2}`, reserved: 2},
		"NotThere":  {reason: "We should refuse a class without a ledger.", now: `{` + strings.Replace(gold, "gold", "none", 1) + `}`, code: http.StatusForbidden, message: "not there"},
		"Malformed": {reason: "We should refuse a claim whose usage is unknown.", now: `{` + gold + `,"size":"much"}`, code: http.StatusUnprocessableEntity, message: "spec.classes.usage"},
		"Before":    {reason: "We should let an old claim be updated whose usage was unknown before.", old: `{` + gold + `,"size":"much"}`, now: `{` + gold + `,"size":"more"}`},
	} {
		t.Run(name, func(t *testing.T) {
			b := hardBinder(t)
			request := newRequest(object("", tc.now))
			if tc.old != "" {
				request = newRequest(object("8", tc.now))
				request.Operation, request.OldObject.Raw = admissionv1.Update, []byte(object("7", tc.old))
			}
			request.DryRun = &tc.dryRun
			response, err := b.Check(at(t.Context(), claimKindName), request)
			require.NoError(t, err, tc.reason)
			assert.Equal(t, tc.code == 0, response.Allowed, "%s %v", tc.reason, response.Result)
			if tc.code != 0 {
				assert.Equal(t, tc.code, response.Result.Code, "%s %v", tc.reason, response.Result)
				assert.Contains(t, response.Result.Message, tc.message, tc.reason)
			}
			view := b.Snapshot()[claimKindName]
			room := b.Ledgers.Room("", view.All[0].Find("", "gold"))
			assert.Equal(t, tc.reserved, room.Reserved, tc.reason)
		})
	}
	t.Run("Forged", func(t *testing.T) {
		for _, metadata := range []string{`{}`, `{"name":"a"}`, `{"name":"a","uid":"not a uid"}`, `{"uid":"u"}`, `{"name":"` + strings.Repeat("a", 2000) + `","uid":"u"}`} {
			_, err := hardBinder(t).Check(at(t.Context(), claimKindName), newRequest(`{"metadata":`+metadata+`,"spec":{`+gold+`}}`))
			assert.True(t, isBadRequest(err), "We should refuse a review that no API server sends: %s: %v", metadata, err)
		}
	})
}
