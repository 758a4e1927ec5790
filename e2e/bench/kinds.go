package bench

import (
	"fmt"
	"slices"
	"strings"

	"github.com/classbind/classbind/e2e/classbind"
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

// claimSchema has what a claim of a database would have.
const claimSchema = `
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

// definitions of all kinds.
func (k kinds) definitions() string {
	var manifest strings.Builder
	for _, kind := range k.all() {
		scope, schema := "Cluster", classbind.AnySchema
		if strings.HasPrefix(kind, "Claim") {
			scope, schema = "Namespaced", claimSchema
		}
		manifest.WriteString(classbind.CRD(kind, resource(kind), scope, schema))
	}
	return manifest.String()
}

func (k kinds) all() []string {
	all := slices.Concat(k.classes, k.claims, k.unregistered)
	if k.defaulted != "" {
		all = append(all, defaultClass, k.defaulted)
	}
	return all
}

// registrations of the kinds, with the role that a vendor adds, and the default class.
func (k kinds) registrations() string {
	var manifest strings.Builder
	manifest.WriteString(classbind.Vendor(group))
	var claims []string
	for _, kind := range k.claims {
		claims = append(claims, resource(kind))
		manifest.WriteString(classbind.ClaimKind(resource(kind), "{}"))
	}
	for _, kind := range k.classes {
		manifest.WriteString(classbind.Serving(resource(kind), claims...))
	}
	if k.defaulted != "" {
		standard := `metadata: {name: standard, annotations: {resourceclass.crossplane.io/is-default-class: "true"}}`
		manifest.WriteString(classbind.ClaimKind(resource(k.defaulted), "{admission: {defaulting: Policy}}") +
			classbind.Serving(resource(defaultClass), resource(k.defaulted)) +
			fmt.Sprintf("---\napiVersion: %s/%s\nkind: %s\n%s\n", group, version, defaultClass, standard))
	}
	return manifest.String()
}
