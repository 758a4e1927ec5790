package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTold has claims whose warnings would show control characters of the claim, or values of a
// class that the author of the claim cannot read.
func TestTold(t *testing.T) {
	t.Parallel()
	const group = "told.test"
	w := sharedWorld(t)
	w.resources(t, "Parted parteds."+group+" Namespaced", "Fitting fittings."+group+" Namespaced", "Class classes."+group+" Cluster")
	w.apply(t, vendor(group)+
		claimKind("parteds."+group, "{partition: {claim: claim.spec.tenant, class: class.spec.tenant}}")+
		claimKind("fittings."+group, "{fits: [{name: Owner, expression: \"claim.spec[class.spec.tenant] == 'a'\"}], whenNoSelector: Any}")+
		classKind("classes."+group, "{claimKinds: [parteds."+group+", fittings."+group+"]}")+
		class(group, "Class", "only", "")+"spec: {tenant: 'p4ss://internal host'}\n")
	w.awaitClasses(t, "classes."+group, 1)
	w.awaitClaims(t, "parteds."+group)
	w.awaitClaims(t, "fittings."+group)
	for name, tc := range map[string]struct{ reason, kind, spec, want string }{
		"Printable": {"We should escape what no terminal shows.", "Parted", `{tenant: "a\e[2J\n::error::b\u202e"}`, `x1b[2J\\n::error::b`},
		"NoValues":  {"We should say that an expression failed and why, without a value of the class.", "Fitting", "{size: 1}", "no such key"},
	} {
		t.Run(name, func(t *testing.T) {
			_, warnings, err := w.create(t, "apiVersion: "+group+"/v1\nkind: "+tc.kind+"\nmetadata: {namespace: default, generateName: told-}\nspec: "+tc.spec+"\n")
			require.NoError(t, err)
			require.Len(t, warnings, 1, tc.reason)
			assert.Contains(t, warnings[0], tc.want, tc.reason)
			assert.NotContains(t, warnings[0], "p4ss", tc.reason)
			assert.NotRegexp(t, `[[:cntrl:]]|\x{202e}`, warnings[0], tc.reason)
		})
	}
}
