// Package selectortest has what the tests of the engine and of its parts share: registrations and claims.
package selectortest

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/classbind/classbind/api/v1beta1"
)

// ClaimKind has the CRD's defaults, as the API server would have filled them in, but for these changes.
func ClaimKind(changes ...func(*v1beta1.ClaimKindSpec)) *v1beta1.ClaimKind {
	k := &v1beta1.ClaimKind{
		ObjectMeta: metav1.ObjectMeta{Name: "postgresqlinstances.database.crossplane.io"},
		Spec: v1beta1.ClaimKindSpec{
			Claims:        v1beta1.Claims{SkipIfSet: []v1beta1.Place{{Path: ".spec.resourceRef"}}},
			Reference:     v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.classRef"}, Form: v1beta1.ObjectReference},
			Selector:      v1beta1.ClassSelector{Path: ".spec.classSelector"},
			Choice:        v1beta1.Choice{Strategy: v1beta1.WeightedRandom, Seed: v1beta1.Seed{From: v1beta1.SeedClaim}},
			WhenUnmatched: v1beta1.Admit,
		},
	}
	for _, change := range changes {
		change(&k.Spec)
	}
	return k
}

// Spec changes the spec of a ClaimKind, and Specs those of a ClaimKind and of a ClassKind.
func Spec(claims string) func(*v1beta1.ClaimKindSpec) {
	return func(s *v1beta1.ClaimKindSpec) { unmarshal(claims, s) }
}

// Specs changes both: see Spec.
func Specs(claims, classes string) func(*v1beta1.ClaimKindSpec, *v1beta1.ClassKindSpec) {
	return func(s *v1beta1.ClaimKindSpec, k *v1beta1.ClassKindSpec) {
		unmarshal(claims, s)
		unmarshal(classes, k)
	}
}

// Fits adds fits with these expressions to a ClaimKind. They are named FitA, FitB and so on.
func Fits(expressions ...string) func(*v1beta1.ClaimKindSpec, *v1beta1.ClassKindSpec) {
	return func(s *v1beta1.ClaimKindSpec, _ *v1beta1.ClassKindSpec) {
		for i, e := range expressions {
			s.Classes.Fits = append(s.Classes.Fits, v1beta1.Fit{Name: "Fit" + string(rune('A'+i)), Expression: v1beta1.Expression(e)})
		}
	}
}

func unmarshal(text string, to any) {
	if err := yaml.UnmarshalStrict([]byte(text), to); err != nil {
		panic(err)
	}
}

// Decode an object from YAML, as the webhook would decode it.
func Decode(t *testing.T, text string) map[string]any {
	t.Helper()
	raw, err := yaml.YAMLToJSONStrict([]byte(text))
	require.NoError(t, err, text)
	var object map[string]any
	require.NoError(t, json.Unmarshal(raw, &object), text)
	return object
}
