package classbind

import (
	"context"

	"github.com/classbind/classbind/e2e/controlplane"
)

// Install what a folder deploy has into a control plane, and return the kubeconfig of the ServiceAccount for each API server.
func Install(ctx context.Context, plane *controlplane.ControlPlane, deploy string) (kubeconfigs []string, err error) {
	if _, _, err := plane.Kubectl(ctx, nil, "apply", "-k", deploy); err != nil {
		return nil, err
	}
	if _, _, err := plane.Kubectl(ctx, nil, "wait", "--for=condition=Established", "crd", "--all"); err != nil {
		return nil, err
	}
	return plane.UserKubeconfigs(User, Groups...)
}
