package register

import (
	"strings"

	"github.com/classbind/classbind/selector/fields"
)

// lastName of a path. That of the elements of a list is the singular of the list.
func lastName(at fields.Path) string {
	name := at[len(at)-1]
	if name == fields.Element && len(at) > 1 {
		return singular(at[len(at)-2])
	}
	return name
}

// singular of a word of English that is a plural.
func singular(name string) string {
	if before, ok := strings.CutSuffix(name, "ies"); ok {
		return before + "y"
	}
	if before, ok := strings.CutSuffix(name, "sses"); ok {
		return before + "ss"
	}
	return strings.TrimSuffix(name, "s")
}

// stemOf the name of a field: what it refers to, in lower case.
func stemOf(name string) string {
	lower := strings.ToLower(name)
	for _, suffix := range []string{"reference", "ref", "name", "id"} {
		if before, ok := strings.CutSuffix(lower, suffix); ok && len(before) > 3 { // A preference ends so, too.
			return before
		}
	}
	return lower
}

// evidenceOf a Kind in what a field is called: it is the Kind, or its last words.
func evidenceOf(kind, stem string) int {
	lower := strings.ToLower(kind)
	begin := len(kind) - len(stem)
	switch {
	case lower == stem, strings.TrimPrefix(lower, "cluster") == stem: // A ClusterIssuer is an Issuer.
		return sure
	case len(stem) > 3 && strings.HasSuffix(lower, stem) && kind[begin] != lower[begin]:
		return byName + byName*len(stem)/len(kind) - 1
	}
	return 0
}
