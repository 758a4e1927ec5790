package race

import (
	"fmt"
	"strings"

	"github.com/classbind/classbind/e2e/classbind"
)

// definitions of the lane's kinds.
func (l *lane) definitions() string {
	manifest := ""
	add := func(kind, scope string) {
		manifest += classbind.CRD(kind, l.resource(kind).GroupResource().String(), scope, classbind.AnySchema)
	}
	for name := range l.kinds {
		add(name, "Cluster")
	}
	for _, name := range l.kinds.claimKinds() {
		add(strings.ToUpper(name), "Namespaced")
	}
	return manifest
}

// registrations of the lane's kinds, with the role that a vendor adds.
func (l *lane) registrations() string {
	manifest, spec := classbind.Vendor(l.group), "{}"
	if l.scenario.Partitions {
		spec = fmt.Sprintf("{classes: {partition: {claim: \"''\", class: \"class.metadata.labels.?%s.orValue('')\"}}}", partitionLabel)
	}
	for _, name := range l.kinds.claimKinds() {
		manifest += classbind.ClaimKind(l.resource(name).GroupResource().String(), spec)
	}
	for classKind, serves := range l.kinds {
		var claimKinds []string
		for _, name := range serves {
			claimKinds = append(claimKinds, l.resource(name).GroupResource().String())
		}
		manifest += classbind.Serving(l.resource(classKind).GroupResource().String(), claimKinds...)
	}
	return manifest
}
