package crd

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// TestSpecDescription reads what kubectl explain claimkind.spec shows first.
func TestSpecDescription(t *testing.T) {
	for file, want := range map[string]string{
		"classbind.io_claimkinds.yaml": "ClaimKindSpec says how claims of a kind are read, bound and answered. Its\ndefaults fit a Crossplane-shaped claim.",
		"classbind.io_classkinds.yaml": "ClassKindSpec says what the classes of a kind can satisfy and how they are read.",
	} {
		text, err := Files.ReadFile(file)
		require.NoError(t, err)
		var definition map[string]any
		require.NoError(t, yaml.Unmarshal(text, &definition))
		versions, _, err := unstructured.NestedSlice(definition, "spec", "versions")
		require.NoError(t, err)
		version, _ := versions[0].(map[string]any)
		got, _, err := unstructured.NestedString(version, "schema", "openAPIV3Schema", "properties", "spec", "description")
		require.NoError(t, err)
		assert.Equal(t, want, got, "We should say what users need, and leave notes for implementers to the code.")
	}
}
