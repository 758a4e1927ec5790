package webhook

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/inventory"
)

const claimKindName = "postgresqlinstances.database.example.org"

// newClaimKind has the defaults that the schema gives it, but for what is changed.
func newClaimKind(change ...func(*v1beta1.ClaimKindSpec)) *selector.ClaimKind {
	return selector.NewClaimKind(newRegistration(change...))
}

func newRegistration(change ...func(*v1beta1.ClaimKindSpec)) *v1beta1.ClaimKind {
	k := &v1beta1.ClaimKind{
		ObjectMeta: metav1.ObjectMeta{Name: claimKindName},
		Spec: v1beta1.ClaimKindSpec{
			Claims:        v1beta1.Claims{SkipIfSet: []v1beta1.Place{{Path: ".spec.resourceRef"}}},
			Reference:     v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.classRef"}, Form: v1beta1.ObjectReference},
			Selector:      v1beta1.ClassSelector{Path: ".spec.classSelector"},
			Classes:       v1beta1.Classes{Namespaces: v1beta1.ClassNamespaces{From: v1beta1.FromAll}},
			Choice:        v1beta1.Choice{Strategy: v1beta1.WeightedRandom, Seed: v1beta1.SeedClaim},
			WhenUnmatched: v1beta1.Admit,
		},
	}
	for _, f := range change {
		f(&k.Spec)
	}
	return k
}

func newClassKind(plural, kind string, namespaced bool) *inventory.ClassKind {
	return inventory.NewClassKind(&v1beta1.ClassKind{
		ObjectMeta: metav1.ObjectMeta{Name: plural + ".example.org"},
		Spec: v1beta1.ClassKindSpec{
			ClaimKinds: []v1beta1.ClaimKindLink{{Name: claimKindName}},
			Default:    v1beta1.Source{Annotation: "default"}, Weight: v1beta1.Source{Annotation: "weight"},
		},
	}, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: kind}, namespaced)
}

// newClassKindFor the expressions of a claim kind.
func newClassKindFor(claims *v1beta1.ClaimKind) *inventory.ClassKind {
	return inventory.NewClassKind(&v1beta1.ClassKind{
		ObjectMeta: metav1.ObjectMeta{Name: "sqlclasses.example.org"}, Spec: v1beta1.ClassKindSpec{ClaimKinds: []v1beta1.ClaimKindLink{{Name: claims.Name}}},
	}, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "SQLClass"}, false, claims)
}

var (
	sqlClasses = newClassKind("sqlclasses", "SQLClass", false)
	rdsClasses = newClassKind("rdsclasses", "RDSClass", true)
)

// index of classes, each a name and then "key=value" labels and "@key=value" annotations.
func index(kind *inventory.ClassKind, classes ...string) *inventory.Classes {
	all := make([]*inventory.Class, len(classes))
	for i, text := range classes {
		fields := strings.Fields(text)
		m := &metav1.ObjectMeta{Name: fields[0], Labels: map[string]string{}, Annotations: map[string]string{}}
		if kind.Namespaced {
			m.Namespace = "aws"
		}
		for _, f := range fields[1:] {
			key, value, _ := strings.Cut(f, "=")
			if annotation, ok := strings.CutPrefix(key, "@"); ok {
				m.Annotations[annotation] = value
			} else {
				m.Labels[key] = value
			}
		}
		all[i] = kind.NewClass(m, nil)
	}
	return inventory.NewClasses(kind, all)
}

func newInventory(kind *selector.ClaimKind, classes ...*inventory.Classes) *selector.Inventory {
	i := selector.NewInventory()
	i.SetClaimKind(kind)
	for _, x := range classes {
		i.SetClasses(x)
	}
	i.Open()
	return i
}

// newBinder asks the API server nothing: a test that needs to replaces that.
func newBinder(t *testing.T, i *selector.Inventory) *Binder {
	t.Helper()
	return &Binder{
		Snapshot: i.Snapshot,
		ClaimKind: func(context.Context, string) (*v1beta1.ClaimKind, error) {
			assert.Fail(t, "We should not ask the API server for a claim kind that the snapshot has.")
			return nil, errors.New("no look-up")
		},
		Decider: &selector.Decider{
			Live: func(context.Context, *selector.View, claim.Claim) (*selector.View, error) {
				assert.Fail(t, "We should not read the API server for a claim that the snapshot has a class for.")
				return nil, errors.New("no live read")
			},
			Deadline: WithDeadline,
			Fresh:    func() uint64 { return 1 },
			Now:      time.Now,
		},
	}
}

// asLive answers every live read with the same view.
func asLive(v *selector.View) func(context.Context, *selector.View, claim.Claim) (*selector.View, error) {
	return func(context.Context, *selector.View, claim.Claim) (*selector.View, error) { return v, nil }
}

// named has claims reviewed by the ClaimKind whose name is their resource.
func named(b *Binder) NamedReviewer {
	return func(ctx context.Context, _ string, r *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, func(), error) {
		return b.Review(ctx, schema.GroupResource{Group: r.Resource.Group, Resource: r.Resource.Resource}.String(), r)
	}
}

// byResource does the same, and at once what is to be done afterwards.
func byResource(b *Binder) Reviewer {
	return func(ctx context.Context, r *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		response, afterwards, err := named(b)(ctx, "", r)
		afterwards()
		return response, err
	}
}

func claimKindOf(name string) *v1beta1.ClaimKind {
	return &v1beta1.ClaimKind{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// asClaimKind has every ClaimKind, or none.
func asClaimKind(registered bool, err error) func(context.Context, string) (*v1beta1.ClaimKind, error) {
	return func(_ context.Context, name string) (*v1beta1.ClaimKind, error) {
		if !registered {
			return nil, err
		}
		return claimKindOf(name), err
	}
}

func newRequest(object string, change ...func(*admissionv1.AdmissionRequest)) *admissionv1.AdmissionRequest {
	group, resource := "database.example.org", "postgresqlinstances"
	r := &admissionv1.AdmissionRequest{
		UID:       types.UID("5e1f"),
		Kind:      metav1.GroupVersionKind{Group: group, Version: "v1", Kind: "PostgreSQLInstance"},
		Resource:  metav1.GroupVersionResource{Group: group, Version: "v1", Resource: resource},
		Namespace: "team-a", Name: "db",
		Operation: admissionv1.Create,
		Object:    runtime.RawExtension{Raw: []byte(object)},
	}
	for _, f := range change {
		f(r)
	}
	return r
}

const (
	wantsGold = `{"spec":{"classSelector":{"matchLabels":{"tier":"gold"}}}}`
	mistyped  = `"classSelector":{"matchExpressions":[{"key":"tier","operator":"Foo"}]}`
)
