package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestReduced requires that the files in the repository have no more than what the command leaves.
func TestReduced(t *testing.T) {
	files, err := filepath.Glob("../../../crds/projects/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file) //nolint:gosec // The test names the folder.
		require.NoError(t, err)
		var again bytes.Buffer
		require.NoError(t, reduce(&again, file, []string{""}))
		assert.Equal(t, string(text), again.String(), "We should make %s with the command that the README there has.", file)
	}
}

func TestReduce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "crd.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: as.example.org, annotations: {a: b}}
spec:
  group: example.org
  scope: Cluster
  names: {kind: A, plural: as, categories: [all]}
  conversion: {strategy: Webhook}
  versions:
  - {name: v1, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}
  - name: v2
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns: [{name: a, type: string, jsonPath: .a}]
    schema:
      openAPIV3Schema:
        type: object
        description: An A.
        properties:
          spec:
            type: object
            required: [name]
            x-kubernetes-validations: [{rule: self.name != "true"}]
            properties:
              name: {type: string, description: A name., default: "true"}
              provider: {type: object, properties: {a: {type: string}}}
              pod:
                type: object
                properties:
                  nodeSelector: {type: object, additionalProperties: {type: string}}
                  tolerations: {type: array, items: {type: object, properties: {key: {type: string}}}}
                  volumes: {type: array, items: {type: object, properties: {name: {type: string}}}}
                  ours: {type: object, properties: {a: {type: string, description: Ours.}}}
          status:
            type: object
            properties:
              conditions: {type: array, items: {type: object, properties: {type: {type: string}}}}
              other: {type: object, properties: {a: {type: string}}}
`), 0o600))
	var reduced bytes.Buffer
	require.NoError(t, reduce(&reduced, file, []string{"spec", "provider"}))
	assert.Equal(t, `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: as.example.org}
spec:
  group: example.org
  names: {kind: A, plural: as}
  scope: Cluster
  versions:
    -
      name: v2
      schema:
        openAPIV3Schema:
          properties:
            spec:
              properties:
                name: {default: "true", type: string}
                pod:
                  properties:
                    nodeSelector: {additionalProperties: {type: string}, type: object}
                    ours: {properties: {a: {type: string}}, type: object}
                    tolerations: {items: {type: object, x-kubernetes-preserve-unknown-fields: true}, type: array}
                    volumes: {items: {type: object, x-kubernetes-preserve-unknown-fields: true}, type: array}
                  type: object
                provider: {type: object, x-kubernetes-preserve-unknown-fields: true}
              required: [name]
              type: object
              x-kubernetes-validations: [{rule: "self.name != \"true\""}]
            status:
              properties:
                conditions: {items: {properties: {type: {type: string}}, type: object}, type: array}
                other: {type: object, x-kubernetes-preserve-unknown-fields: true}
              type: object
          type: object
      served: true
      storage: true
      subresources: {status: {}}
`, reduced.String(), "We should leave facts alone, and what the user does not open.")
}
