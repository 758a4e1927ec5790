// Package crds requires the projects whose CRDs the tests of deploy/kinds install. The tests look into the folders of their modules for the
// YAML, so that nothing of it is copied. It is a module of its own because the projects' dependencies would move those of the Kubernetes
// that e2e builds. The folder projects has the CRDs of projects without such a module, and shapes has those of samples that no
// project publishes.
package crds

import (
	// go mod tidy drops a module from which nothing is imported. These packages import little.
	_ "github.com/cert-manager/cert-manager/pkg/apis/certmanager"
	_ "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	_ "github.com/vmware-tanzu/velero/pkg/util/boolptr"
	_ "sigs.k8s.io/cluster-api/cmd/clusterctl/config"
	_ "sigs.k8s.io/gateway-api/pkg/consts"
	_ "sigs.k8s.io/karpenter/pkg/utils/env"
)
