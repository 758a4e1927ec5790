package claim

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/classbind/classbind/api/v1beta1"
)

// NeededToStart says why a cluster that starts needs a resource before a pod of classbind can run. Each of them can be registered: the
// schema of ClaimKind refuses others that no cluster can do without.
var NeededToStart = map[string]string{
	"pods":                              "network plugins run in them",
	"daemonsets.apps":                   "they run network plugins on nodes",
	"deployments.apps":                  "they run the operators of network plugins",
	"services":                          "operators of network plugins create some first",
	"networkpolicies.networking.k8s.io": "operators of network plugins create some first",
	csiDrivers:                          "drivers of volumes register themselves in them",
}

const csiDrivers = "csidrivers.storage.k8s.io" // The only one without a namespace.

// PluginGroups are those in which network plugins keep their state, mostly without a namespace, and pluginNamespaces those in which they
// run, beside kube-system, whose claims never come to us.
var (
	PluginGroups = []string{
		"crd.projectcalico.org", "projectcalico.org", "operator.tigera.io", "cilium.io", "crd.antrea.io", "k8s.ovn.org", "kubeovn.io",
		"vpcresources.k8s.aws",
	}
	pluginNamespaces = []string{"kube-flannel", "calico-system", "tigera-operator", "cilium", "ovn-kubernetes", "kube-router"}
)

// StopsStart says why a ClaimKind may stop a cluster from coming up, and what to do. It is empty for others. With the failurePolicy Fail,
// its claims cannot be created while no replica runs, and no replica runs before they are created. The author of a selector that
// excludes a namespace of a network plugin has thought of it.
func StopsStart(k *v1beta1.ClaimKind) string {
	_, group, _ := strings.Cut(k.Resource(), ".")
	why, namespaced := NeededToStart[k.Resource()]
	if slices.Contains(PluginGroups, group) {
		why = "a network plugin keeps its state in them"
	}
	if why == "" || k.Spec.Admission.FailurePolicy == v1beta1.Ignore {
		return ""
	}
	way := "set spec.admission.failurePolicy to Ignore"
	if namespaced && k.Resource() != csiDrivers {
		selected, err := NewNamespaces(k.Spec.Claims.NamespaceSelector, "")
		excluded := func(name string) bool { return !selected.Select(name, labels.Set{corev1.LabelMetadataName: name}) }
		if err != nil || slices.ContainsFunc(pluginNamespaces, excluded) {
			return ""
		}
		way = "exclude the namespaces of network plugins, such as kube-flannel, in spec.claims.namespaceSelector, or " + way
	}
	return fmt.Sprintf("a cluster that starts needs %s before a replica of classbind can run (%s), and with failurePolicy Fail, "+
		"none can be created until then: the cluster may not come up: %s", k.Resource(), why, way)
}
