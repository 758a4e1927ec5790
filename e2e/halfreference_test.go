package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestHalfReference has an author replace the reference of a claim by force, and then give it up,
// while another manager owns fields of it. The API server removes only the name.
func TestHalfReference(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	whole := func(group, name string) map[string]any {
		if strings.HasPrefix(group, "local") {
			return map[string]any{"name": name}
		}
		return map[string]any{"apiVersion": group + "/v1", "kind": "Class", "name": name}
	}
	// claim asks for the class late, beside what its author sets of the reference.
	claim := func(group, name, class string) string {
		reference := ""
		if class != "" {
			reference = ", classRef: {"
			for field, value := range whole(group, class) {
				reference += fmt.Sprintf("%s: %s, ", field, value)
			}
			reference += "}"
		}
		return fmt.Sprintf("apiVersion: %s/v1\nkind: Claim\nmetadata: {namespace: default, name: %s}\nspec: {classSelector: {matchLabels: {half: late}}%s}\n", group, name, reference)
	}
	reference := func(c require.TestingT, group, name string) map[string]any {
		stored := &unstructured.Unstructured{}
		require.NoError(c, w.read(t, claim(group, name, ""), stored))
		reference, _, err := unstructured.NestedMap(stored.Object, "spec", "classRef")
		require.NoError(c, err)
		return reference
	}
	create := func(t *testing.T, manifest, manager string) {
		t.Helper()
		_, _, err := w.create(t, manifest, client.FieldOwner(manager))
		require.NoError(t, err)
	}
	apply := func(t *testing.T, manifest, manager string) (warning string) {
		t.Helper()
		var said []string
		claim := client.ApplyConfigurationFromUnstructured(documents(t, manifest)[0])
		require.NoError(t, w.Apply(context.WithValue(t.Context(), warnings{}, &said), claim, client.ForceOwnership, client.FieldOwner(manager)))
		return strings.Join(said, "\n")
	}
	replace := func(t *testing.T, manifest string) (warning string) {
		t.Helper()
		var said []string
		claim, stored := documents(t, manifest)[0], &unstructured.Unstructured{}
		require.NoError(t, w.read(t, manifest, stored))
		claim.SetResourceVersion(stored.GetResourceVersion())
		require.NoError(t, w.Update(context.WithValue(t.Context(), warnings{}, &said), claim))
		return strings.Join(said, "\n")
	}
	groups := map[string]string{
		"admit.half.test":  "{}",
		"later.half.test":  "{whenUnmatched: BindLater}",
		"empty.half.test":  "{reference: {path: .spec.classRef, emptyIsUnset: true}, whenUnmatched: BindLater}",
		"local.half.test":  "{reference: {path: .spec.classRef, form: LocalObjectReference}, whenUnmatched: BindLater}",
		"allow.half.test":  "{onUnbind: Allow}",
		"moving.half.test": "{onUnbind: Allow, whenUnmatched: BindLater}",
	}
	for group, spec := range groups {
		w.resources(t, "Claim claims."+group+" Namespaced", "Class classes."+group+" Cluster")
		w.apply(t, lateVendor(group)+claimKind("claims."+group, spec)+classKind("classes."+group, "{claimKinds: [claims."+group+"]}"))
	}
	for group, spec := range groups {
		w.awaitClaims(t, "claims."+group)
		if strings.Contains(spec, "BindLater") {
			create(t, claim(group, "late", ""), "author")
			require.Empty(t, reference(t, group, "late"))
		}
		w.apply(t, class(group, "Class", "late", "labels: {half: late}, "))
	}
	for group, spec := range groups {
		w.awaitClasses(t, "classes."+group, 1)
		managers := []string{"creator", "applier", "webhook"}
		if strings.Contains(spec, "BindLater") {
			managers = append(managers, "late")
		}
		for _, manager := range managers {
			t.Run(group+"/"+manager, func(t *testing.T) {
				switch manager {
				case "creator":
					create(t, claim(group, manager, "first"), manager)
				case "applier":
					apply(t, claim(group, manager, "first"), manager)
				case "webhook":
					create(t, claim(group, manager, ""), "creator")
					require.Equal(t, whole(group, "late"), reference(t, group, manager))
				case "late":
					require.EventuallyWithT(t, func(c *assert.CollectT) {
						require.Equal(c, whole(group, "late"), reference(c, group, manager))
					}, patience, 50*time.Millisecond)
				}
				apply(t, claim(group, manager, "second"), "author")
				require.Equal(t, whole(group, "second"), reference(t, group, manager))
				warning := apply(t, claim(group, manager, ""), "author")
				switch group {
				case "allow.half.test":
					assert.Empty(t, reference(t, group, manager)["name"], "We should have an update unbind a claim where this is allowed.")
					assert.Empty(t, warning)
				case "moving.half.test":
					require.EventuallyWithT(t, func(c *assert.CollectT) {
						require.Equal(c, whole(group, "late"), reference(c, group, manager))
					}, patience, 50*time.Millisecond, "We should bind later what an update has unbound.")
				default:
					assert.Equal(t, whole(group, "second"), reference(t, group, manager), "We should keep the whole reference.")
					assert.Contains(t, warning, `keeps it (class "second")`, "We should tell the author.")
					warning = replace(t, claim(group, manager, ""))
					assert.Equal(t, whole(group, "second"), reference(t, group, manager))
					assert.Contains(t, warning, `keeps it (class "second")`, "We should name the class.")
				}
			})
		}
	}

	t.Run("Created", func(t *testing.T) {
		for name, spec := range map[string]string{
			"half": "{kind: Class}", "nothing": `{}`, "unnamed": `{name: "", kind: ""}`, "other": "{kind: Class, external: x}", "unknown": "{kind: Other}",
		} {
			manifest := strings.Replace(claim("admit.half.test", name, ""), "}}}", "}}, classRef: "+spec+"}", 1)
			create(t, manifest, "author")
		}
		assert.Equal(t, whole("admit.half.test", "late"), reference(t, "admit.half.test", "half"), "We should bind a claim to a class of the kind that it names.")
		assert.Empty(t, reference(t, "admit.half.test", "nothing"), "We should not bind a claim whose author asked for no class.")
		for _, name := range []string{"unnamed", "other", "unknown"} {
			assert.Empty(t, reference(t, "admit.half.test", name)["name"], "%s: We should bind nothing that its author did not ask for.", name)
		}
	})
}
