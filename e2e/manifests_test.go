package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/classbind"
	"github.com/classbind/classbind/e2e/clientcert"
	"github.com/classbind/classbind/e2e/controlplane"
)

const (
	selfSigned  = "."
	certManager = "cert-manager"
)

var installations = []string{selfSigned, certManager}

// components, but for namespace, which is last and has no object of its own.
var components = []string{
	"client-certificates", "flow-schemas", "horizontal-pod-autoscaler", "monitoring", "network-policy", "policies", "priority",
}

// foreignCRDs are of the kinds that installations use and others define.
var foreignCRDs = []struct{ module, files string }{
	{"github.com/cert-manager/cert-manager@v1.21.2", "deploy/crds/cert-manager.io_*.yaml"},
	{"github.com/prometheus-operator/prometheus-operator@v0.85.0", "example/prometheus-operator-crd/*_servicemonitors.yaml"},
	{"github.com/prometheus-operator/prometheus-operator@v0.85.0", "example/prometheus-operator-crd/*_prometheusrules.yaml"},
}

func (w *world) installForeignCRDs(t *testing.T) {
	for _, crds := range foreignCRDs {
		module := downloaded(t, t.TempDir(), crds.module)[0] // In no module, which it might change.
		files := must(filepath.Glob(filepath.Join(module.Dir, filepath.FromSlash(crds.files))))(t)
		require.NotEmpty(t, files, "We should find %s in %s.", crds.files, crds.module)
		for _, file := range files {
			w.kubectl(t, "create", "-f", file)
		}
	}
	w.kubectl(t, "wait", "--for=condition=Established", "crd", "--all", "--timeout=5m")
}

func (w *world) overlay(t *testing.T, installation string, components ...string) (dir string) {
	return w.overlayIn(t, "", installation, components...)
}

// overlayIn another namespace, if there is one, as docs/install.md has it.
func (w *world) overlayIn(t *testing.T, namespace, installation string, components ...string) (dir string) {
	dir = t.TempDir()
	deploy := must(relative(dir, w.deploy))(t)
	kustomization := map[string][]string{"resources": {filepath.Join(deploy, installation)}}
	for _, c := range components {
		kustomization["components"] = append(kustomization["components"], filepath.Join(deploy, "components", c))
	}
	if namespace != "" {
		own := filepath.Join(dir, "in-namespace")
		require.NoError(t, os.Mkdir(own, 0o700))
		text := "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nnamespace: " + namespace + "\n"
		require.NoError(t, os.WriteFile(filepath.Join(own, "kustomization.yaml"), []byte(text), 0o600))
		kustomization["components"] = append(kustomization["components"], "in-namespace", filepath.Join(deploy, "components", "namespace"))
	}
	text := must(yaml.Marshal(kustomization))(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), text, 0o600))
	return dir
}

func (w *world) rendered(t *testing.T, dir string) []*unstructured.Unstructured {
	return documents(t, w.kubectl(t, "kustomize", dir))
}

func all[T any](t *testing.T, objects []*unstructured.Unstructured, kind string) []T {
	found := some[T](t, objects, kind)
	require.NotEmpty(t, found, "We should have a %s.", kind)
	return found
}

func some[T any](t *testing.T, objects []*unstructured.Unstructured, kind string) []T {
	var found []T
	for _, object := range objects {
		if object.GetKind() != kind {
			continue
		}
		typed := new(T)
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, typed, true))
		found = append(found, *typed)
	}
	return found
}

// TestManifests proves what can be proven of them without a node.
func TestManifests(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplane.Options{})
	w.installForeignCRDs(t)
	w.namespaces(t, "platform")

	for _, installation := range installations {
		t.Run("Render/"+installation, func(t *testing.T) {
			_, stderr, err := w.Kubectl(t.Context(), nil, "apply", "--dry-run=server", "--validate=strict", "-k", w.overlay(t, installation, components...))
			require.NoError(t, err)
			assert.Empty(t, stderr, "We should get no warning.")
		})
		t.Run("Namespace/"+installation, func(t *testing.T) {
			everywhere := func(namespace string) string {
				return w.kubectl(t, "kustomize", w.overlayIn(t, namespace, installation, components...))
			}
			moved := everywhere("platform")
			assert.NotContains(t, moved, classbind.Namespace, "We should name the other namespace everywhere.")
			assert.Equal(t, manifestsByName(t, strings.ReplaceAll(everywhere(""), classbind.Namespace, "platform")), manifestsByName(t, moved))
			_, _, err := w.Kubectl(t.Context(), strings.NewReader(moved), "apply", "--dry-run=server", "--validate=strict", "-f", "-")
			require.NoError(t, err, "We should have an API server accept it.")
		})
		t.Run("Order/"+installation, func(t *testing.T) {
			out, stderr, err := w.Kubectl(t.Context(), nil, "apply", "--dry-run=server", "--validate=strict", "-k", filepath.Join(w.deploy, installation))
			require.NoError(t, err)
			assert.Regexp(
				t, `^(mutatingwebhookconfiguration\S* .*\n){2}validatingwebhookconfiguration`, out,
				"We should delete webhooks first: kubectl delete -k takes the same order.",
			)
			assert.Regexp(
				t, `^\S+ \S+ +\S+ \S+ Warning: Sorting order is set both in 'kustomization.yaml'.*\n$`, stderr,
				"We should get the one warning that docs/install.md explains: kubectl's own order has webhooks last.",
			)
		})
		t.Run("Fit/"+installation, func(t *testing.T) {
			fit(t, w.rendered(t, w.overlay(t, installation, "monitoring", "network-policy", "client-certificates", "priority")))
		})
	}
	t.Run("PodSecurity", w.podSecurity)
	t.Run("Autoscaled", func(t *testing.T) {
		deployment := all[appsv1.Deployment](t, w.rendered(t, w.overlay(t, selfSigned, "horizontal-pod-autoscaler")), "Deployment")[0]
		assert.Nil(t, deployment.Spec.Replicas, "We should leave the number of replicas to the autoscaler.")
	})
	t.Run("Rights", w.rights)
	t.Run("ApplyAgain", w.applyAgain)
}

// fit proves that what refers to each other does.
func fit(t *testing.T, objects []*unstructured.Unstructured) {
	deployment := all[appsv1.Deployment](t, objects, "Deployment")[0]
	pod := deployment.Spec.Template
	require.Len(t, pod.Spec.Containers, 1)
	container := pod.Spec.Containers[0]
	selects := func(what string, selector *metav1.LabelSelector) {
		s := must(metav1.LabelSelectorAsSelector(selector))(t)
		assert.False(t, s.Empty(), "We should have %s select something.", what)
		assert.True(t, s.Matches(labels.Set(pod.Labels)), "We should have %s select the pods.", what)
	}
	assert.EqualValues(t, 2, *deployment.Spec.Replicas)
	selects("the Deployment", deployment.Spec.Selector)
	selects("the PodDisruptionBudget", all[policyv1.PodDisruptionBudget](t, objects, "PodDisruptionBudget")[0].Spec.Selector)
	policy := all[networkingv1.NetworkPolicy](t, objects, "NetworkPolicy")[0]
	selects("the NetworkPolicy", &policy.Spec.PodSelector)
	var keys []string
	for _, c := range pod.Spec.TopologySpreadConstraints {
		keys = append(keys, c.TopologyKey)
		selects("the spreading over "+c.TopologyKey, c.LabelSelector)
	}
	assert.Equal(t, []string{corev1.LabelTopologyZone, corev1.LabelHostname}, keys)

	// The defaults of serve, which the manifests rely on.
	help := must(exec.CommandContext(t.Context(), command, "serve", "--help").Output())(t)
	byDefault := func(flag string) string {
		match := regexp.MustCompile(`(?m)^ +--` + flag + ` .*\(default "?(.+?)"?\)$`).FindSubmatch(help)
		require.NotNil(t, match, "We should find the default of --%s.", flag)
		return string(match[1])
	}
	ports := map[string]int32{}
	for _, p := range container.Ports {
		ports[p.Name] = p.ContainerPort
		assert.Contains(t, []string{"webhook", "metrics", "probes"}, p.Name)
	}
	for name, flag := range map[string]string{"webhook": "webhook-bind-address", "metrics": "metrics-bind-address", "probes": "health-probe-bind-address"} {
		assert.Equal(t, byDefault(flag), fmt.Sprintf(":%d", ports[name]), "We should name the port that --%s is.", flag)
	}
	for _, probe := range []*corev1.Probe{container.StartupProbe, container.LivenessProbe, container.ReadinessProbe} {
		assert.Equal(t, "probes", probe.HTTPGet.Port.StrVal)
	}
	var open []int32
	for _, rule := range policy.Spec.Ingress {
		for _, p := range rule.Ports {
			open = append(open, p.Port.IntVal)
		}
	}
	assert.ElementsMatch(t, slices.Collect(maps.Values(ports)), open, "We should have the NetworkPolicy open every port, and no other.")

	services := map[string]corev1.Service{}
	for _, s := range all[corev1.Service](t, objects, "Service") {
		services[s.Name] = s
		selects("the Service "+s.Name, &metav1.LabelSelector{MatchLabels: s.Spec.Selector})
		for _, p := range s.Spec.Ports {
			assert.Contains(t, ports, p.TargetPort.StrVal, "We should have the Service %s name a port of the container.", s.Name)
		}
	}
	assert.EqualValues(t, 443, services[byDefault("webhook-service")].Spec.Ports[0].Port, "We should have the port that a webhook entry has by default.")

	assert.Equal(t, "classbind", all[corev1.ServiceAccount](t, objects, "ServiceAccount")[0].Name)
	assert.Equal(t, "classbind", pod.Spec.ServiceAccountName)
	assert.Equal(t, all[schedulingv1.PriorityClass](t, objects, "PriorityClass")[0].Name, pod.Spec.PriorityClassName)
	assert.True(t, *container.SecurityContext.ReadOnlyRootFilesystem)
	mounts := map[string]string{}
	for _, mount := range container.VolumeMounts {
		mounts[mount.Name] = mount.MountPath
	}
	ca := v1beta1.CASecret
	for _, volume := range pod.Spec.Volumes {
		switch {
		case volume.Secret != nil:
			ca = v1beta1.TLSSecret
			assert.Equal(t, ca, volume.Secret.SecretName)
			assert.Equal(t, byDefault("cert-dir"), mounts[volume.Name], "We should mount the certificate where serve looks for it.")
			assert.Contains(t, container.Args, "--certs=cert-manager")
		default:
			assert.Equal(t, "classbind-clients", volume.ConfigMap.Name)
			assert.Contains(t, container.Args, "--client-ca-file="+mounts[volume.Name]+"/ca.crt", "We should mount the CA where serve looks for it.")
			assert.Contains(t, container.Args, "--client-name="+clientcert.Name)
		}
	}
	assert.Len(t, mounts, len(pod.Spec.Volumes))
	assert.Equal(t, slices.Contains(container.Args, "--certs=cert-manager"), ca == v1beta1.TLSSecret)
	assert.Contains(t, container.Args, "--metrics-secure", "We should let the API server say who reads metrics.")
	scraped(t, objects, ca)

	// Everything about the flags is checked before a cluster is looked for.
	serve := exec.CommandContext(t.Context(), command, container.Args...) //nolint:gosec // It runs the command under test.
	serve.Env = []string{"HOME=" + t.TempDir(), "KUBECONFIG=" + filepath.Join(t.TempDir(), "none")}
	out, err := serve.CombinedOutput()
	require.Error(t, err)
	assert.Contains(t, string(out), "cannot find a cluster", "We should start it with flags that it takes.")
}

func scraped(t *testing.T, objects []*unstructured.Unstructured, ca string) {
	monitor := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == "ServiceMonitor" })
	require.GreaterOrEqual(t, monitor, 0, "We should have a ServiceMonitor.")
	assert.Equal(t, []any{map[string]any{
		"port": "metrics", "scheme": "https",
		"authorization": map[string]any{"credentials": map[string]any{"name": "classbind-metrics-reader", "key": "token"}},
		"tlsConfig": map[string]any{
			"serverName": "classbind." + classbind.Namespace + ".svc",
			"ca":         map[string]any{"secret": map[string]any{"name": ca, "key": "ca.crt"}},
		},
	}}, at(objects[monitor], "spec", "endpoints"))
}

func (w *world) podSecurity(t *testing.T) {
	deployment := all[appsv1.Deployment](t, w.rendered(t, w.deploy), "Deployment")[0]
	admit := func(change func(*corev1.PodSpec)) error {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "classbind-", Namespace: classbind.Namespace}}
		deployment.Spec.Template.Spec.DeepCopyInto(&pod.Spec)
		change(&pod.Spec)
		return w.Create(t.Context(), pod, client.DryRunAll)
	}
	require.NoError(t, admit(func(*corev1.PodSpec) {}), "We should have pods that the restricted profile admits.")
	for name, change := range map[string]func(*corev1.PodSpec){
		"allowPrivilegeEscalation": func(p *corev1.PodSpec) { *p.Containers[0].SecurityContext.AllowPrivilegeEscalation = true },
		"capabilities":             func(p *corev1.PodSpec) { p.Containers[0].SecurityContext.Capabilities = nil },
		"runAsNonRoot":             func(p *corev1.PodSpec) { p.SecurityContext.RunAsNonRoot = nil },
		"runAsUser":                func(p *corev1.PodSpec) { *p.SecurityContext.RunAsUser = 0 },
		"seccompProfile":           func(p *corev1.PodSpec) { p.SecurityContext.SeccompProfile = nil },
		"host namespaces":          func(p *corev1.PodSpec) { p.HostNetwork = true },
	} {
		err := admit(change)
		require.True(t, apierrors.IsForbidden(err), "%s: %v", name, err)
		assert.ErrorContains(t, err, name, "We should see that the profile is enforced.")
	}
}

// everywhere is what the ServiceAccount may do in any namespace, without what a vendor's role lets it read.
var everywhere = []string{
	"claimkinds.classbind.io/status: update",
	"claimkinds.classbind.io: get list watch",
	"classkinds.classbind.io/status: update",
	"classkinds.classbind.io: get list watch",
	"customresourcedefinitions.apiextensions.k8s.io: get list watch",
	"ingressclasses.networking.k8s.io: list",
	"mutatingwebhookconfigurations.admissionregistration.k8s.io 00-classbind: list patch watch",
	"mutatingwebhookconfigurations.admissionregistration.k8s.io zz-classbind: list patch watch",
	"namespaces: get list watch",
	"storageclasses.storage.k8s.io: list",
	"subjectaccessreviews.authorization.k8s.io: create",
	"tokenreviews.authentication.k8s.io: create",
	"validatingwebhookconfigurations.admissionregistration.k8s.io classbind: list patch watch",
}

// byPolicies is what the component policies adds.
var byPolicies = []string{
	"mutatingadmissionpolicies.admissionregistration.k8s.io: create delete list patch",
	"mutatingadmissionpolicybindings.admissionregistration.k8s.io: create delete list patch",
	"validatingadmissionpolicies.admissionregistration.k8s.io: create delete list patch",
	"validatingadmissionpolicybindings.admissionregistration.k8s.io: create delete list patch",
}

func (w *world) rights(t *testing.T) {
	policies := filepath.Join(w.deploy, "components", "policies")
	w.kubectl(t, "delete", "-k", policies)
	for _, tc := range []struct {
		installation, role string
		own                []string
	}{
		{selfSigned, "classbind-self-signed", []string{
			"secrets classbind-ca: get list update watch", "secrets classbind-chooser: get", "secrets classbind-tls: get", "secrets: create",
		}},
		{certManager, "classbind-cert-manager", []string{
			"secrets classbind-ca: get", "secrets classbind-chooser: get", "secrets classbind-tls: get list watch",
		}},
	} {
		own := slices.Concat(tc.own, []string{
			"events: create patch", "leases.coordination.k8s.io: create delete get list update watch",
		})
		if tc.installation != selfSigned { // That one is there.
			w.kubectl(t, "apply", "-k", filepath.Join(w.deploy, tc.installation))
		}
		for namespace, more := range map[string][]string{
			classbind.Namespace: own, "default": {"events: create"}, "kube-system": {"events: create"},
		} {
			w.hasRights(t, namespace, everywhere, more)
		}
		// As who changes to the other kind of certificates does.
		w.kubectl(t, "delete", "role,rolebinding", tc.role, "--namespace", classbind.Namespace)
	}
	w.kubectl(t, "apply", "-k", w.deploy)
	w.kubectl(t, "apply", "-k", policies)
	w.hasRights(t, "default", everywhere, byPolicies, []string{"events: create"})
}

// hasRights waits until the ServiceAccount has these in a namespace, and no others that not everybody has.
func (w *world) hasRights(t *testing.T, namespace string, rights ...[]string) {
	want := slices.Sorted(slices.Values(slices.Concat(rights...)))
	anybody := w.rulesOf(t, "system:serviceaccount:default:anybody", namespace)
	// The API server takes a moment to see a role.
	eventually(t, func(c *attempt) {
		var got []string
		for what, verbs := range w.rulesOf(t, classbind.User, namespace) {
			if anybody[what] != verbs {
				got = append(got, what+": "+verbs)
			}
		}
		slices.Sort(got)
		require.Equal(c, want, got)
	}, "We should give no more and no less in %s.", namespace)
}

// rulesOf a ServiceAccount in a namespace are the verbs by what they are for, as the API server reports it itself.
func (w *world) rulesOf(t *testing.T, user, namespace string) map[string]string {
	config := rest.CopyConfig(w.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append([]string{"system:authenticated"}, classbind.Groups[0])}
	clientset := must(kubernetes.NewForConfig(config))(t)
	verbs := map[string][]string{}
	review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}
	review = must(clientset.AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(), review, metav1.CreateOptions{}))(t)
	require.False(t, review.Status.Incomplete, review.Status.EvaluationError)
	for _, rule := range review.Status.ResourceRules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				resource, subresource, _ := strings.Cut(resource, "/")
				what := strings.TrimSuffix(resource+"."+group, ".")
				if subresource != "" {
					what += "/" + subresource
				}
				if len(rule.ResourceNames) == 0 {
					verbs[what] = append(verbs[what], rule.Verbs...)
				}
				for _, name := range rule.ResourceNames {
					verbs[what+" "+name] = append(verbs[what+" "+name], rule.Verbs...)
				}
			}
		}
	}
	for _, rule := range review.Status.NonResourceRules {
		for _, url := range rule.NonResourceURLs {
			verbs[url] = append(verbs[url], rule.Verbs...)
		}
	}
	rules := map[string]string{}
	for what, v := range verbs {
		slices.Sort(v)
		rules[what] = strings.Join(slices.Compact(v), " ")
	}
	return rules
}

// applyAgain applies what is applied, while a replica keeps the entries.
func (w *world) applyAgain(t *testing.T) {
	w.serve(t)
	w.register(t, "again.test", "{}", class("again.test", "Class", "only", ""))
	w.awaitGuard(t, "again.test", "Class", "classes.again.test")
	kept := func() string {
		claims, classes := &admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{}
		role := &rbacv1.ClusterRole{}
		require.NoError(t, w.Get(t.Context(), client.ObjectKey{Name: v1beta1.LastConfiguration}, claims))
		require.NoError(t, w.Get(t.Context(), client.ObjectKey{Name: v1beta1.ClassConfiguration}, classes))
		require.NoError(t, w.Get(t.Context(), client.ObjectKey{Name: "classbind-classes"}, role))
		return string(must(yaml.Marshal([]any{claims.Webhooks, classes.Webhooks, role.Rules}))(t))
	}
	entries := kept()
	require.Contains(t, entries, "- again.test\n", "We should see the vendor's rule in the aggregated role.")
	dir := w.overlay(t, selfSigned, components...)
	objects := w.rendered(t, dir)
	versions := func() map[string]string {
		v := map[string]string{}
		for _, object := range objects {
			stored := object.DeepCopy()
			require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(object), stored))
			v[object.GetKind()+" "+object.GetName()] = stored.GetResourceVersion()
		}
		return v
	}
	for flag, said := range map[string]string{"--server-side=false": "unchanged", "--server-side": "serverside-applied"} {
		w.kubectl(t, "apply", flag, "-k", dir)
		before := versions()
		for line := range strings.Lines(w.kubectl(t, "apply", flag, "-k", dir)) {
			// kubectl always sends the selector of a PodDisruptionBudget; the version shows that nothing comes of it.
			if !strings.HasPrefix(line, "poddisruptionbudget.policy/") {
				assert.Equal(t, said, line[strings.LastIndex(line, " ")+1:len(line)-1], "We should change nothing a second time: %s", line)
			}
		}
		assert.Equal(t, before, versions(), "We should write nothing a second time, with %s.", flag)
		assert.Equal(t, entries, kept(), "We should leave alone what others wrote, with %s.", flag)
	}
}

// TestFlows has the API server say in which flow it puts what classbind asks, and whom it lets use classbind's PriorityClass.
func TestFlows(t *testing.T) {
	long(t)
	w, _ := sharedReplica(t)
	uids := map[string]string{}
	for line := range strings.Lines(w.kubectl(t, "get", "flowschemas", "-o", `jsonpath={range .items[*]}{.metadata.uid} {.metadata.name}{"\n"}{end}`)) {
		uid, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		uids[uid] = name
	}
	account := must(clientcmd.BuildConfigFromFlags("", w.kubeconfig))(t)
	flow := func(method, path, body string) string {
		httpClient := must(rest.HTTPClientFor(account))(t)
		request := must(http.NewRequestWithContext(t.Context(), method, account.Host+path, strings.NewReader(body)))(t)
		request.Header.Set("Content-Type", "application/json")
		response, err := httpClient.Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		return uids[response.Header.Get("X-Kubernetes-PF-FlowSchema-UID")]
	}
	const leases = "/apis/coordination.k8s.io/v1/namespaces/classbind-system/leases"
	for name, tc := range map[string]struct {
		reason, method, path, body, want string
	}{
		"Lease":         {"We should keep the Leases of default classes apart from lists.", http.MethodGet, leases + "/a", "", "classbind"},
		"LeaseWritten":  {"We should keep the leader's Lease apart from lists.", http.MethodPost, leases, `{"metadata":{"name":"a"}}`, "classbind"},
		"Class":         {"We should keep the guard's look at one class apart from lists.", http.MethodGet, "/apis/example.org/v1/classes/a", "", "classbind"},
		"Registrations": {"We should keep registrations apart from lists of classes.", http.MethodGet, "/apis/classbind.io/v1beta1/claimkinds", "", "classbind"},
		"Classes": {
			"We should count a list of classes among what authors of claims cause.",
			http.MethodGet, "/apis/example.org/v1/classes", "", "classbind-others",
		},
		"OtherLeases": {
			"We should give no Lease of others a better level.", http.MethodPost, "/apis/coordination.k8s.io/v1/namespaces/default/leases", "{}",
			"classbind-others",
		},
		"Token": {
			"We should count tokens that strangers make up among what others cause.",
			http.MethodPost, "/apis/authentication.k8s.io/v1/tokenreviews", `{"spec":{"token":"a"}}`, "classbind-others",
		},
	} {
		t.Run(name, func(t *testing.T) {
			eventually(t, func(c *attempt) { require.Equal(c, tc.want, flow(tc.method, tc.path, tc.body)) }, tc.reason)
		})
	}

	pod := func(namespace string) error {
		_, _, err := w.create(t, `apiVersion: v1
kind: Pod
metadata: {namespace: `+namespace+`, generateName: important-}
spec:
  priorityClassName: classbind
  securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
  containers: [{name: a, image: a, securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}]
`, client.DryRunAll)
		return err
	}
	eventually(t, func(c *attempt) { // The API server takes a moment to see a policy.
		require.ErrorContains(c, pod("default"), `the PriorityClass "classbind" is for pods of the namespace "classbind-system" alone`)
	}, "We should have no one else's pod evict others by our PriorityClass.")
	require.NoError(t, pod(classbind.Namespace), "We should have it for our own.")
}
