package bench

import (
	"fmt"
	"slices"
	"strings"
)

// All kinds are of one API group and version.
const (
	group   = "bench.test"
	version = "v1"
)

// kinds of class, cluster-scoped, and of claim, namespaced, by name. Every kind of
// class that is registered serves every kind of claim that is, the hardest case.
type kinds struct {
	classes, claims []string
	// defaulted, if there is one, is a kind of claim to which the API server itself gives
	// the default class, the only one of the kind defaultClass, which serves no other.
	defaulted string
	// unregistered kinds of either are only installed.
	unregistered []string
}

// defaultClass is the kind of class of the claims that are defaulted.
const defaultClass = "ClassDefault"

// numbered kinds of a name.
func numbered(name string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s%02d", name, i)
	}
	return names
}

// plural of a kind, as in the paths of the API.
func plural(kind string) string { return strings.ToLower(kind) + "s" }

// resource of a kind is the name of its CRD, and of what registers it.
func resource(kind string) string { return plural(kind) + "." + group }

// classSchema lets a class be anything, claimSchema has what a claim of a
// database would have.
const (
	classSchema = `{type: object, x-kubernetes-preserve-unknown-fields: true}`
	claimSchema = `
      type: object
      properties:
        spec:
          type: object
          properties:
            classSelector:
              type: object
              properties:
                matchLabels: {type: object, additionalProperties: {type: string}}
                matchExpressions:
                  type: array
                  items:
                    type: object
                    properties: {key: {type: string}, operator: {type: string}, values: {type: array, items: {type: string}}}
            classRef:
              type: object
              properties: {apiVersion: {type: string}, kind: {type: string}, name: {type: string}}
            resourceRef:
              type: object
              properties: {apiVersion: {type: string}, kind: {type: string}, name: {type: string}}
            writeConnectionSecretToRef: {type: object, required: [name], properties: {name: {type: string}}}
            engineVersion: {type: string, pattern: '^[0-9]+(\.[0-9]+)?$'}
            storageGB: {type: integer, minimum: 1}
            highlyAvailable: {type: boolean, default: false}
        status:
          type: object
          x-kubernetes-preserve-unknown-fields: true`
)

// definitions of all kinds.
func (k kinds) definitions() string {
	var manifest strings.Builder
	for _, kind := range k.all() {
		scope, schema := "Cluster", classSchema
		if isClaim(kind) {
			scope, schema = "Namespaced", claimSchema
		}
		fmt.Fprintf(&manifest, `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]s}
spec:
  group: %[2]s
  scope: %[3]s
  names: {kind: %[4]s, plural: %[5]s}
  versions:
  - name: %[6]s
    served: true
    storage: true
    schema:
     openAPIV3Schema: %[7]s
`, resource(kind), group, scope, kind, plural(kind), version, schema)
	}
	return manifest.String()
}

func isClaim(kind string) bool { return strings.HasPrefix(kind, "Claim") }

func (k kinds) all() []string {
	all := slices.Concat(k.classes, k.claims, k.unregistered)
	if k.defaulted != "" {
		all = append(all, defaultClass, k.defaulted)
	}
	return all
}

// lastDefinition is the name of the CRD that is made last.
func (k kinds) lastDefinition() string {
	all := k.all()
	return resource(all[len(all)-1])
}

// registrations of the kinds, with the role that a vendor adds, and the default class.
func (k kinds) registrations() string {
	var manifest strings.Builder
	fmt.Fprintf(&manifest, `---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: %[1]s
  labels: {classbind.io/aggregate-to-classbind: "true"}
rules:
- {apiGroups: [%[1]s], resources: ["*"], verbs: [get, list, watch]}
`, group)
	claims := make([]string, len(k.claims))
	for i, kind := range k.claims {
		claims[i] = resource(kind)
		fmt.Fprintf(&manifest, "---\napiVersion: classbind.io/v1beta1\nkind: ClaimKind\nmetadata: {name: %s}\n", claims[i])
	}
	for _, kind := range k.classes {
		fmt.Fprintf(&manifest, "---\napiVersion: classbind.io/v1beta1\nkind: ClassKind\n"+
			"metadata: {name: %s}\nspec: {claimKinds: [{name: %s}]}\n",
			resource(kind), strings.Join(claims, "}, {name: "))
	}
	if k.defaulted != "" {
		fmt.Fprintf(&manifest, `---
apiVersion: classbind.io/v1beta1
kind: ClaimKind
metadata: {name: %[1]s}
spec: {admission: {defaulting: Policy}}
---
apiVersion: classbind.io/v1beta1
kind: ClassKind
metadata: {name: %[2]s}
spec: {claimKinds: [{name: %[1]s}]}
---
apiVersion: %[3]s/%[4]s
kind: %[5]s
metadata: {name: standard, annotations: {resourceclass.crossplane.io/is-default-class: "true"}}
`, resource(k.defaulted), resource(defaultClass), group, version, defaultClass)
	}
	return manifest.String()
}
