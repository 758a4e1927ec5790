package selector

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPackageIsTheEngineAlone(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	require.NoError(t, err)
	deps := strings.Fields(string(out))
	require.Contains(t, deps, "github.com/classbind/classbind/selector")

	for _, dep := range deps {
		for _, other := range []string{
			"k8s.io/client-go", "sigs.k8s.io/controller-runtime",
			"k8s.io/api/admission", "k8s.io/api/admissionregistration", "k8s.io/apiserver/pkg/admission", "k8s.io/apiserver/pkg/server",
		} {
			assert.Falsef(t, strings.HasPrefix(dep+"/", other+"/"), "We should know nothing of %s, but import %s", other, dep)
		}
	}
}
