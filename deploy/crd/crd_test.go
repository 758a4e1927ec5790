package crd

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"sigs.k8s.io/yaml"
)

// TestSpecDescription reads what kubectl explain claimkind.spec shows first.
func TestSpecDescription(t *testing.T) {
	for file, want := range map[string]string{
		"classbind.io_claimkinds.yaml": "ClaimKindSpec says which claims are bound, to which classes, and how. Its defaults fit a Crossplane-shaped claim.",
		"classbind.io_classkinds.yaml": "ClassKindSpec says what the classes of a kind can satisfy and how they are read.",
	} {
		assert.Equal(t, want, schemaOf(t, file).Properties["spec"].Description, "We should say what users need, and leave notes for implementers to the code.")
	}
}

// forImplementers are words of Go, of its tools and of how the API server works.
var forImplementers = regexp.MustCompile(`metav1|kubebuilder|nolint|TODO|deepcopy|compile|\b(nil|struct|pointer|zero value|marshal)\b|(?i)\(its rules`)

// TestDescriptions reads all that kubectl explain shows of our fields, and what the API server says of mistakes.
func TestDescriptions(t *testing.T) {
	for _, file := range []string{"classbind.io_claimkinds.yaml", "classbind.io_classkinds.yaml"} {
		root := schemaOf(t, file)
		for _, rule := range root.XValidations {
			assert.NotEmpty(t, rule.FieldPath, "We should say where %q is, rather than <nil>.", rule.Message)
		}
		described := func(at string, s apiextensionsv1.JSONSchemaProps) {
			assert.NotRegexp(t, forImplementers, s.Description, "We should leave notes for implementers to the code, at %s.", at)
			for _, rule := range s.XValidations {
				assert.NotEmpty(t, rule.Message, "We should say what is wrong, and not show the rule, at %s.", at)
			}
		}
		for _, part := range []string{"spec", "status"} {
			described(part, root.Properties[part])
			walk(file+" "+part, root.Properties[part], func(at string, s apiextensionsv1.JSONSchemaProps, isField bool) {
				described(at, s)
				assert.True(t, !isField || s.Description != "", "We should describe %s.", at)
			})
		}
	}
}

var example = regexp.MustCompile(`(?s)\bExample:\s(.+)$`)

// TestExamples reads the example that kubectl explain shows of each field that users write.
func TestExamples(t *testing.T) {
	exemplified := func(at string, property apiextensionsv1.JSONSchemaProps, isField bool) {
		written := example.FindStringSubmatch(property.Description)
		if !isField || !assert.NotNil(t, written, "We should end the description of %s with an example.", at) {
			return
		}
		var value any
		require.NoError(t, yaml.Unmarshal([]byte(strings.ReplaceAll(written[1], "\n", " ")), &value), at)
		internal := &apiextensions.JSONSchemaProps{}
		require.NoError(t, apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&property, internal, nil))
		validator, _, err := validation.NewSchemaValidator(internal)
		require.NoError(t, err)
		assert.Empty(t, validation.ValidateCustomResource(nil, value, validator), "We should give an example of %s that is one: %v", at, value)
		if property.Default != nil {
			text, err := yaml.YAMLToJSON([]byte(written[1]))
			require.NoError(t, err)
			assert.NotEqual(t, string(property.Default.Raw), string(text), "We should give an example of %s that is not its default.", at)
		}
	}
	for _, file := range []string{"classbind.io_claimkinds.yaml", "classbind.io_classkinds.yaml"} {
		walk(file+" spec", schemaOf(t, file).Properties["spec"], exemplified)
	}
}

// walk visits the fields within a schema, and the elements of lists, but not the fields of a condition, which are of Kubernetes' own.
func walk(at string, s apiextensionsv1.JSONSchemaProps, visit func(at string, s apiextensionsv1.JSONSchemaProps, isField bool)) {
	if s.Items != nil && s.Items.Schema != nil {
		visit(at+"[]", *s.Items.Schema, false)
		walk(at+"[]", *s.Items.Schema, visit)
	}
	for name, property := range s.Properties {
		if name != "conditions" {
			visit(at+"."+name, property, true)
			walk(at+"."+name, property, visit)
		}
	}
}

// schemaOf a CRD's only version.
func schemaOf(t *testing.T, file string) *apiextensionsv1.JSONSchemaProps {
	t.Helper()
	text, err := Files.ReadFile(file)
	require.NoError(t, err)
	crd := &apiextensionsv1.CustomResourceDefinition{}
	require.NoError(t, yaml.UnmarshalStrict(text, crd))
	require.Len(t, crd.Spec.Versions, 1)
	return crd.Spec.Versions[0].Schema.OpenAPIV3Schema
}
