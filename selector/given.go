package selector

import (
	"fmt"
	"strconv"
	"strings"
)

// Given is what an author has set of a class reference, without the name: the claim gets a
// class that agrees with it.
type Given struct {
	// group counts only if hasGroup is set, because that of the core is empty.
	hasGroup               bool
	group, kind, namespace string
}

// agreesWith reports whether a reference has what is given. The version is the author's.
func (g *Given) agreesWith(to named) bool {
	return (!g.hasGroup || g.group == to.group) && (g.kind == "" || g.kind == to.kind) &&
		(g.namespace == "" || g.namespace == to.namespace)
}

// has reports whether a field of the reference is given.
func (g *Given) has(name string) bool {
	switch {
	case g == nil, name == "name":
		return false
	case name == "kind":
		return g.kind != ""
	case name == "namespace":
		return g.namespace != ""
	}
	return g.hasGroup // apiVersion, apiGroup or group
}

// text begins an Ask. parseGiven reads it.
func (g *Given) text() string {
	if g == nil {
		return ""
	}
	return fmt.Sprintf("@%t%q%q%q", g.hasGroup, g.group, g.kind, g.namespace)
}

// parseGiven returns what an Ask begins with, nil if that is nothing, and the rest.
func parseGiven(ask string) (given *Given, rest string, err error) {
	rest, ok := strings.CutPrefix(ask, "@")
	if !ok {
		return nil, ask, nil
	}
	given = &Given{}
	if rest, given.hasGroup = strings.CutPrefix(rest, "true"); !given.hasGroup {
		rest = strings.TrimPrefix(rest, "false")
	}
	for _, part := range []*string{&given.group, &given.kind, &given.namespace} {
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil { // Given.text wrote it.
			return nil, "", fmt.Errorf("cannot parse %.100q: %w", rest, err)
		}
		rest = rest[len(quoted):]
		*part, _ = strconv.Unquote(quoted) // It is valid.
	}
	return given, rest, nil
}
