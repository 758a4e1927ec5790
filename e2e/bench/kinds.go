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

// The kinds of claim that are created beside those that classbind binds, and differ in nothing but what the API server calls about them.
const (
	// freeClaim is of a kind that is not registered.
	freeClaim = "ClaimFree"
	// constantClaim has the do-nothing webhook.
	constantClaim = "ClaimConstant"
	// policyClaim gets the only class of the kind defaultClass by the policy that classbind's leader writes.
	policyClaim, defaultClass = "ClaimPolicy", "ClassDefault"
)

// numbered kinds of a name.
func numbered(name string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s%02d", name, i)
	}
	return names
}

// The kinds of class and of claim that are registered, and as many of class that are not registered.
func (s *Settings) classKindNames() []string { return numbered("Class", s.classKinds) }
func (s *Settings) claimKindNames() []string { return numbered("Claim", s.claimKinds) }
func (s *Settings) freeKindNames() []string  { return numbered("Free", s.classKinds) }

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

// definitions of all kinds: those of class are cluster-scoped, and those of claim namespaced.
func (s *Settings) definitions() string {
	var manifest strings.Builder
	for _, kind := range slices.Concat(s.classKindNames(), s.freeKindNames(), []string{defaultClass}) {
		manifest.WriteString(classbind.CRD(kind, resource(kind), "Cluster", classbind.AnySchema))
	}
	for _, kind := range append(s.claimKindNames(), freeClaim, constantClaim, policyClaim) {
		manifest.WriteString(classbind.CRD(kind, resource(kind), "Namespaced", claimSchema))
	}
	return manifest.String()
}

// registrations of the kinds, with the role that a vendor adds, and the default class.
func (s *Settings) registrations() string {
	var manifest strings.Builder
	manifest.WriteString(classbind.Vendor(group))
	var claims []string
	for _, kind := range s.claimKindNames() {
		claims = append(claims, resource(kind))
		manifest.WriteString(classbind.ClaimKind(resource(kind), "{}"))
	}
	for _, kind := range s.classKindNames() {
		manifest.WriteString(classbind.Serving(resource(kind), claims...))
	}
	standard := `metadata: {name: standard, annotations: {resourceclass.crossplane.io/is-default-class: "true"}}`
	manifest.WriteString(classbind.ClaimKind(resource(policyClaim), "{admission: {defaulting: Policy}}") +
		classbind.Serving(resource(defaultClass), resource(policyClaim)) +
		fmt.Sprintf("---\napiVersion: %s/%s\nkind: %s\n%s\n", group, version, defaultClass, standard))
	return manifest.String()
}
