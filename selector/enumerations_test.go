package selector

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/inventory"
)

// enumerated calls a function with each field of a schema that is an enumeration: its path, and an object that has
// nothing but a value there.
func enumerated(s *apiextensionsv1.JSONSchemaProps, path string, around func(value any) any, call func(path string, object func(value any) any)) {
	if len(s.Enum) > 0 {
		call(path, around)
	}
	for name := range s.Properties {
		enumerated(new(s.Properties[name]), path+"."+name, func(value any) any {
			object := map[string]any{name: value}
			for _, required := range s.Required {
				if required != name {
					object[required] = "a"
				}
			}
			return around(object)
		}, call)
	}
	if s.Items != nil {
		enumerated(s.Items.Schema, path+"[0]", func(value any) any { return around([]any{value}) }, call)
	}
}

// TestEnumerationsAreOpen gives each field of a ClaimKind that is an enumeration a value of a later release.
func TestEnumerationsAreOpen(t *testing.T) {
	text, err := os.ReadFile("../deploy/crd/classbind.io_claimkinds.yaml")
	require.NoError(t, err)
	crd := &apiextensionsv1.CustomResourceDefinition{}
	require.NoError(t, yaml.Unmarshal(text, crd))
	spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	fields := 0
	enumerated(&spec, "spec", func(value any) any { return value }, func(path string, object func(value any) any) {
		fields++
		k := postgres()
		k.Spec = v1beta1.ClaimKindSpec{}
		text, err := json.Marshal(object("FromALaterRelease"))
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, &k.Spec))
		view := newView(NewClaimKind(k), []*inventory.Classes{inventory.NewClasses(newKind("as.example.org", "Class"), nil)})
		require.NotNil(t, view.Fault, path)
		assert.Equal(t, v1beta1.ReasonUnknownValue, view.Fault.Reason, path)
		assert.Contains(t, view.Fault.Text, `has the `+strings.TrimPrefix(path, "spec.")+` "FromALaterRelease"`)
		assert.Contains(t, view.Fault.Text, "set "+path+" to one of ")
	})
	assert.GreaterOrEqual(t, fields, 13, "We should find them.")
}
