package status

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// TestOwnRights compares the rights with those of deploy/.
func TestOwnRights(t *testing.T) {
	for file, rights := range map[string][]right{
		"base":                    slices.Concat(ownRights, rightsOfMetrics),
		"components/self-signed":  rightsOfIssuer[selfSigned],
		"components/cert-manager": rightsOfIssuer[certManager],
	} {
		text, err := os.ReadFile("../../../deploy/" + file + "/rbac.yaml") //nolint:gosec // The test names the files.
		require.NoError(t, err)
		var deployed, checked []string
		for manifest := range strings.SplitSeq(string(text), "\n---\n") {
			role := &rbacv1.ClusterRole{}
			require.NoError(t, yaml.Unmarshal([]byte(manifest), role))
			if !strings.HasSuffix(role.Kind, "Role") || role.Name == "classbind-metrics-reader" {
				continue
			}
			for _, rule := range role.Rules {
				for _, group := range rule.APIGroups {
					for _, resource := range rule.Resources {
						for _, name := range append(rule.ResourceNames, "")[:max(1, len(rule.ResourceNames))] {
							for _, verb := range rule.Verbs {
								deployed = append(deployed, strings.Join([]string{role.Kind, group, resource, name, verb}, " "))
							}
						}
					}
				}
			}
		}
		for _, r := range rights {
			for verb := range strings.FieldsSeq(r.verbs) {
				checked = append(checked, strings.Join([]string{map[bool]string{true: "Role", false: "ClusterRole"}[r.own], r.group, r.resource, r.name, verb}, " "))
			}
		}
		assert.NotEmpty(t, deployed)
		assert.ElementsMatch(t, deployed, checked, "We should check all rights that deploy/%s gives.", file)
	}
}
