package cluster

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/api/v1beta1"
)

func TestSuited(t *testing.T) {
	kind := func(resource string, path v1beta1.FieldPath) *v1beta1.ClaimKind {
		k := &v1beta1.ClaimKind{Spec: v1beta1.ClaimKindSpec{Claims: v1beta1.Claims{Resource: resource}}}
		k.Name = "claims.example.org"
		k.Spec.Reference.Path = path
		return k
	}
	require.ErrorIs(t, CheckBindable(kind("pods", ".spec.priorityClassName")), ErrUnsuitable,
		"We should refuse no pod: the API server has set its priority before it asks us.")
	require.NoError(t, CheckBindable(kind("pods", ".spec.runtimeClassName")), "We should bind pods by what is decided after us.")
	assert.NoError(t, CheckBindable(kind("jobs.batch", ".spec.priorityClassName")))
}
