package race

import (
	"fmt"
	"strings"
)

// definitions of the lane's kinds.
func (l *lane) definitions() string {
	kinds := map[string]string{}
	for name := range l.kinds {
		kinds[name] = "Cluster"
	}
	for _, name := range l.kinds.claimKinds() {
		kinds[strings.ToUpper(name)] = "Namespaced"
	}
	var manifest strings.Builder
	for kind, scope := range kinds {
		fmt.Fprintf(&manifest, `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]ss.%[2]s}
spec:
  group: %[2]s
  scope: %[3]s
  names: {kind: "%[4]s", plural: %[1]ss}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`, strings.ToLower(kind), l.group, scope, kind)
	}
	return manifest.String()
}

// registrations of the lane's kinds, with the role that a vendor adds.
func (l *lane) registrations() string {
	var manifest strings.Builder
	fmt.Fprintf(&manifest, `---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: %[1]s
  labels: {classbind.io/aggregate-to-classbind: "true"}
rules:
- {apiGroups: [%[1]s], resources: ["*"], verbs: [get, list, watch]}
`, l.group)
	for _, name := range l.kinds.claimKinds() {
		fmt.Fprintf(&manifest, "---\napiVersion: classbind.io/v1beta1\nkind: ClaimKind\nmetadata: {name: %ss.%s}\n", name, l.group)
		if l.partitioned {
			fmt.Fprintf(&manifest, "spec: {classes: {partition: {claim: \"''\", class: \"class.metadata.labels.?%s.orValue('')\"}}}\n",
				partitionLabel)
		}
	}
	for classKind, serves := range l.kinds {
		var claimKinds []string
		for _, name := range serves {
			claimKinds = append(claimKinds, name+"s."+l.group)
		}
		fmt.Fprintf(&manifest, "---\napiVersion: classbind.io/v1beta1\nkind: ClassKind\n"+
			"metadata: {name: %s}\nspec: {claimKinds: [{name: %s}]}\n",
			l.resource(classKind).GroupResource(), strings.Join(claimKinds, "}, {name: "))
	}
	return manifest.String()
}
