package webhook

import (
	"context"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
)

func TestCheck(t *testing.T) {
	named := func(kind, name string) string {
		return `{"spec":{"size":2,"classRef":{"apiVersion":"example.org/v1","kind":"` + kind + `","name":"` + name + `"}}}`
	}
	inNamespace := func(namespace, name string) string {
		return `{"spec":{"size":2,"classRef":{"apiVersion":"example.org/v1","kind":"RDSClass","namespace":"` + namespace + `","name":"` + name + `"}}}`
	}
	own := func(s *v1beta1.ClaimKindSpec) { s.Classes.Namespaces.From = v1beta1.FromSameAsClaim }
	fits := func(s *v1beta1.ClaimKindSpec) {
		s.Classes.Fits = []v1beta1.Fit{{Name: "Size", Expression: "class.metadata.name == 'gold' || claim.spec.size < 2", Message: "too small"}}
	}
	delayed := func(s *v1beta1.ClaimKindSpec) { s.Claims.When = "claim.spec.size > 5" }
	rebinds := func(s *v1beta1.ClaimKindSpec) { s.Claims.When = "claim.spec.classRef.name == 'default'" }
	for name, tc := range map[string]struct {
		reason  string
		kind    func(*v1beta1.ClaimKindSpec)
		request *admissionv1.AdmissionRequest
		want    string
		code    int32
		message string
	}{
		"There":       {reason: "We should allow a class that the draw could give.", request: newRequest(named("SQLClass", "gold")), want: "MayHaveClass"},
		"NotThere":    {reason: "We should refuse a class that is not there.", request: newRequest(named("SQLClass", "lead")), want: "NotFound", code: http.StatusForbidden, message: `it names the class "SQLClass/lead", which is not there: name another class, or leave it out (classbind explain -f FILE --unbound lists`},
		"New":         {reason: "We should read a class that we do not know yet.", request: newRequest(named("SQLClass", "new")), want: "MayHaveClass"},
		"Cordoned":    {reason: "We should refuse a class that is cordoned.", request: newRequest(named("SQLClass", "closed")), want: "Cordoned", code: http.StatusForbidden, message: `which is cordoned`},
		"Weightless":  {reason: "We should allow a class that only the draw does not give.", request: newRequest(named("SQLClass", "weightless")), want: "MayHaveClass"},
		"OtherKind":   {reason: "We should refuse a class of another kind.", request: newRequest(named("Secret", "gold")), want: "OtherKind", code: http.StatusForbidden, message: `"Secret/gold", which is of a kind`},
		"Offered":     {reason: "We should allow a class that is offered to all namespaces.", request: newRequest(inNamespace("aws", "wide")), want: "MayHaveClass"},
		"NotOffered":  {reason: "We should refuse a class of another namespace.", kind: own, request: newRequest(inNamespace("aws", "wide")), want: "NotOffered", code: http.StatusForbidden, message: "in a namespace whose classes"},
		"NotTold":     {reason: "We should not tell whether it is there.", kind: own, request: newRequest(inNamespace("aws", "none")), want: "NotOffered", code: http.StatusForbidden, message: "in a namespace whose classes"},
		"Fits":        {reason: "We should allow a class that fits.", kind: fits, request: newRequest(named("SQLClass", "gold")), want: "MayHaveClass"},
		"Unfit":       {reason: "We should refuse a class that does not fit.", kind: fits, request: newRequest(named("SQLClass", "silver")), want: "Size", code: http.StatusForbidden, message: "too small"},
		"Unnamed":     {reason: "We should leave alone a claim that names no class.", request: newRequest(`{"spec":{"size":2}}`), want: "NotBound"},
		"Settled":     {reason: "We should leave alone a claim that is not ours.", request: newRequest(`{"spec":{"resourceRef":{},"classRef":{"name":"lead"}}}`), want: "MayHaveClass"},
		"NotYet":      {reason: "We should leave alone a claim that is not ours yet.", kind: delayed, request: newRequest(named("SQLClass", "lead")), want: "MayHaveClass"},
		"NotDefault":  {reason: "We should check a reference that counts as one.", kind: rebinds, request: newRequest(named("SQLClass", "lead")), want: "NotFound", code: http.StatusForbidden, message: "not there"},
		"Same":        {reason: "We should let an update pass that does not touch the reference, whatever became of the class.", request: newUpdate(named("SQLClass", "lead"), named("SQLClass", "lead")), want: "SameReference"},
		"Changed":     {reason: "We should check a reference that an update changes.", request: newUpdate(named("SQLClass", "gold"), named("SQLClass", "lead")), want: "NotFound", code: http.StatusForbidden, message: "not there"},
		"First":       {reason: "We should check a reference that an update adds.", request: newUpdate(`{}`, named("SQLClass", "closed")), want: "Cordoned", code: http.StatusForbidden, message: "cordoned"},
		"SubResource": {reason: "We should leave alone the status.", request: newRequest(named("SQLClass", "lead"), func(r *admissionv1.AdmissionRequest) { r.SubResource = "status" }), want: "NotACreationOrUpdate"},
	} {
		t.Run(name, func(t *testing.T) {
			registration := newRegistration(func(s *v1beta1.ClaimKindSpec) { s.Reference.Explicit = v1beta1.CheckExplicit })
			if tc.kind != nil {
				tc.kind(&registration.Spec)
			}
			sql := newClassKindFor(registration)
			all := inventory.NewClasses(sql, []*inventory.Class{
				newNamed(sql, "gold"), newNamed(sql, "silver"), newNamed(sql, "closed", v1beta1.CordonedAnnotation, "true"),
				newNamed(sql, "weightless", "weight", "0"),
			})
			classes := []*inventory.Classes{all}
			if len(registration.Spec.Classes.Fits) == 0 { // The others are compiled for no expression.
				classes = append(classes, index(rdsClasses, "wide"))
			}
			b := newBinder(t, newInventory(selector.NewClaimKind(registration), classes...))
			b.Decider.Class = func(_ context.Context, _ string, kind *inventory.ClassKind, _, name string) (*inventory.Class, error) {
				if name != "new" {
					return nil, nil
				}
				return newNamed(kind, name), nil
			}
			got, afterwards, err := b.Check(t.Context(), claimKindName, tc.request)
			require.NoError(t, err, tc.reason)
			afterwards()
			assert.Equal(t, tc.want, got.AuditAnnotations["reason"], tc.reason)
			assert.Equal(t, tc.code == 0, got.Allowed, tc.reason)
			assert.Empty(t, got.Patch, "A validating webhook changes nothing.")
			if tc.code != 0 {
				assert.Equal(t, tc.code, got.Result.Code, tc.reason)
				assert.Contains(t, got.Result.Message, tc.message, tc.reason)
			}
		})
	}
}

// newNamed is a class with annotations.
func newNamed(kind *inventory.ClassKind, name string, annotations ...string) *inventory.Class {
	m := &metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}
	for pair := range slices.Chunk(annotations, 2) {
		m.Annotations[pair[0]] = pair[len(pair)-1]
	}
	return kind.NewClass(m, map[string]any{"metadata": map[string]any{"name": name}})
}
