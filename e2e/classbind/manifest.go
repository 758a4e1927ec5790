package classbind

import (
	"fmt"
	"strings"
)

// AnySchema prescribes nothing.
const AnySchema = "{type: object, x-kubernetes-preserve-unknown-fields: true}"

// CRD of a kind, whose name is <plural>.<group>, with the one version v1.
func CRD(kind, name, scope, schema string) string {
	plural, group, _ := strings.Cut(name, ".")
	return fmt.Sprintf(`---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]s}
spec:
  group: %[2]s
  scope: %[3]s
  names: {kind: %[4]q, plural: %[5]s}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
     openAPIV3Schema: %[6]s
`, name, group, scope, kind, plural, schema)
}

// Vendor is the role that lets classbind read a group's classes.
func Vendor(group string) string {
	return fmt.Sprintf(`---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: %[1]s
  labels: {classbind.io/aggregate-to-classbind: "true"}
rules:
- {apiGroups: [%[1]s], resources: ["*"], verbs: [get, list, watch]}
`, group)
}

// ClaimKind is the registration of a name, with its spec.
func ClaimKind(name, spec string) string { return registration("ClaimKind", name, spec) }

// ClassKind is the registration of a name, with its spec.
func ClassKind(name, spec string) string { return registration("ClassKind", name, spec) }

// Serving is the ClassKind of classes that serve these claim kinds.
func Serving(name string, claimKinds ...string) string {
	return ClassKind(name, "{claimKinds: [{name: "+strings.Join(claimKinds, "}, {name: ")+"}]}")
}

func registration(kind, name, spec string) string {
	return fmt.Sprintf("---\napiVersion: classbind.io/v1beta1\nkind: %s\nmetadata: {name: %s}\nspec: %s\n", kind, name, spec)
}
