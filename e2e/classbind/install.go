package classbind

import (
	"context"
	"path/filepath"

	"github.com/classbind/classbind/e2e/controlplane"
)

// Install what a folder deploy has into a control plane, with components that work without a patch of the Deployment, and return the
// kubeconfig of the ServiceAccount for each API server.
func Install(
	ctx context.Context, plane *controlplane.ControlPlane, deploy string, components ...string,
) (kubeconfigs []string, err error) {
	folders := []string{deploy}
	for _, c := range components {
		folders = append(folders, filepath.Join(deploy, "components", c))
	}
	for _, folder := range folders {
		if _, _, err := plane.Kubectl(ctx, nil, "apply", "-k", folder); err != nil {
			return nil, err
		}
	}
	if _, _, err := plane.Kubectl(ctx, nil, "wait", "--for=condition=Established", "crd", "--all", "--timeout=5m"); err != nil {
		return nil, err
	}
	return plane.UserKubeconfigs(User, Groups...)
}
