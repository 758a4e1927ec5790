package explain

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/deploy/kinds"
)

// status has one condition.
func status(of, is string) string {
	return fmt.Sprintf("status: {conditions: [{type: Other, status: 'True'}, {type: %s, status: '%s'}]}", of, is)
}

// of is an object of a kind, such as example.org/v1.Class, with these labels, and what else it has.
func of(kind, namespace, name, labels string, fields ...string) string {
	at := strings.LastIndexByte(kind, '.')
	if namespace != "" {
		namespace = fmt.Sprintf(", namespace: %q", namespace) // YAML takes on and yes for true.
	}
	head := fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: %s%s, labels: {%s}, annotations: {classbind.io/class-selector: 'yes'}}\n",
		kind[:at], kind[at+1:], name, namespace, labels)
	return head + strings.Join(fields, "\n")
}

// selecting is a claim of a kind in a namespace that selects classes with the label yes.
func selecting(kind, namespace, name string, fields ...string) string {
	return of(kind, namespace, name, "", fields...)
}

// scoped is the CRD of a kind, for its scope.
func scoped(scope, kind, plural string) string {
	group, rest, _ := strings.Cut(kind, "/")
	version, name, _ := strings.Cut(rest, ".")
	return fmt.Sprintf(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: %[1]s.%[2]s}, spec: {group: %[2]s,
  scope: %[3]s, names: {kind: %[4]s, plural: %[1]s}, versions: [{name: %[5]s, served: true, storage: true, schema: {openAPIV3Schema:
  {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`, plural, group, scope, name, version)
}

// TestPresetsOfferWhatWorks gives claims the classes that are for them and that work, by the presets as they are.
func TestPresetsOfferWhatWorks(t *testing.T) {
	const yes = "'yes': ''"
	const (
		secret, store, clusterStore = "external-secrets.io/v1.ExternalSecret", "external-secrets.io/v1.SecretStore", "external-secrets.io/v1.ClusterSecretStore"
		remote                      = "spec: {data: [{secretKey: a, remoteRef: {key: a}}]}"
		gateway, gatewayClass       = "gateway.networking.k8s.io/v1.Gateway", "gateway.networking.k8s.io/v1.GatewayClass"
		certificate                 = "cert-manager.io/v1.Certificate"
		issuer, clusterIssuer       = "cert-manager.io/v1.Issuer", "cert-manager.io/v1.ClusterIssuer"
		backup, location            = "velero.io/v1.Backup", "velero.io/v1.BackupStorageLocation"
		job, queue                  = "batch/v1.Job", "kueue.x-k8s.io/v1beta2.LocalQueue"
		nodePool, nodeClass         = "karpenter.sh/v1.NodePool", "karpenter.k8s.aws/v1.EC2NodeClass"
		cluster, clusterClass       = "cluster.x-k8s.io/v1beta2.Cluster", "cluster.x-k8s.io/v1beta2.ClusterClass"
		application, project        = "argoproj.io/v1alpha1.Application", "argoproj.io/v1alpha1.AppProject"
		service, runtime            = "serving.kserve.io/v1beta1.InferenceService", "serving.kserve.io/v1alpha1.ClusterServingRuntime"
		volume, storage             = "v1.PersistentVolumeClaim", "storage.k8s.io/v1.StorageClass"
		snapshot, content           = "snapshot.storage.k8s.io/v1.VolumeSnapshot", "snapshot.storage.k8s.io/v1.VolumeSnapshotContent"
		snapshotClass, jobSet       = "snapshot.storage.k8s.io/v1.VolumeSnapshotClass", "jobset.x-k8s.io/v1alpha2.JobSet"
	)
	stores := []string{
		scoped("Namespaced", secret, "externalsecrets"),
		scoped("Namespaced", store, "secretstores"),
		scoped("Cluster", clusterStore, "clustersecretstores"),
	}
	issuers := []string{
		scoped("Namespaced", certificate, "certificates"), scoped("Namespaced", issuer, "issuers"), scoped("Cluster", clusterIssuer, "clusterissuers"),
	}
	queues := []string{scoped("Namespaced", queue, "localqueues"), scoped("Namespaced", jobSet, "jobsets")}
	snapshots := []string{
		scoped("Namespaced", snapshot, "volumesnapshots"), scoped("Cluster", content, "volumesnapshotcontents"),
		scoped("Cluster", snapshotClass, "volumesnapshotclasses"),
		of(storage, "", "fast", yes, "provisioner: a.example.org"), of(storage, "", "large", yes, "provisioner: b.example.org"),
		of(volume, "team", "in-use", "", "spec: {storageClassName: large}"), of(volume, "team", "static", "", "spec: {storageClassName: ''}"),
		of(volume, "other", "in-use", "", "spec: {storageClassName: fast}"),
		of(content, "", "content-b", "", "spec: {driver: b.example.org}"), of(snapshotClass, "", "of-a", "", "driver: a.example.org"),
		of(snapshot, "team", "bound", "", "spec: {volumeSnapshotClassName: of-a}", "status: {boundVolumeSnapshotContentName: content-b}"),
		of(snapshot, "team", "early", "", "spec: {volumeSnapshotClassName: of-a}"), of(snapshot, "team", "unknown", "", "spec: {}"),
	}
	namespaces := []string{
		"apiVersion: v1\nkind: Namespace\nmetadata: {name: web, labels: {tenant: web}}",
		"apiVersion: v1\nkind: Namespace\nmetadata: {name: payments, labels: {tenant: money}}",
	}
	closedBy := func(conditions string) string {
		return of(clusterStore, "", "closed", yes, "spec: {conditions: "+conditions+"}")
	}
	runtimes := func(formats string) []string {
		return []string{
			scoped("Namespaced", service, "inferenceservices"), scoped("Cluster", runtime, "clusterservingruntimes"),
			scoped("Namespaced", "serving.kserve.io/v1alpha1.ServingRuntime", "servingruntimes"),
			strings.Replace(of(runtime, "", "main", yes, "spec: {containers: [], supportedModelFormats: ["+formats+"]}"),
				"classbind.io/class-selector: 'yes'", "classbind.io/default: 'true'", 1),
		}
	}
	model := func(name, format string) string {
		text := of(service, "team", name, "", "spec: {predictor: {model: {modelFormat: {"+format+"}}}}")
		if strings.HasPrefix(name, "selecting") {
			return text
		}
		return strings.Replace(text, ", annotations: {classbind.io/class-selector: 'yes'}", "", 1)
	}
	owned := func(kind, name, apiVersion, owner string) string {
		text := selecting(kind, "team", name, "spec: {}")
		return strings.Replace(text, "labels: {}", "ownerReferences: [{apiVersion: "+apiVersion+", kind: "+owner+", name: a, uid: u, controller: true}]", 1)
	}
	for name, tc := range map[string]struct {
		reason  string
		presets string
		objects []string
		claims  []string
		want    []string
	}{
		"StoreOfAll": {
			reason:  "We should offer a store without conditions to all",
			presets: "external-secrets",
			objects: append(stores, of(clusterStore, "", "open", yes, "spec: {}")),
			claims:  []string{selecting(secret, "web", "a", remote)},
			want:    []string{"Bound open"},
		},
		"StoreByNames": {
			reason:  "We should offer a store to the namespaces that it names",
			presets: "external-secrets",
			objects: append(stores, closedBy("[{namespaces: [payments]}]")),
			claims:  []string{selecting(secret, "web", "a", remote), selecting(secret, "payments", "b", remote)},
			want:    []string{"Unmatched", "Bound closed"},
		},
		"StoreBySelector": {
			reason:  "We should offer a store to the namespaces that it selects",
			presets: "external-secrets",
			objects: append(stores, closedBy("[{namespaceSelector: {matchExpressions: [{key: tenant, operator: In, values: [money]}]}}]")),
			claims:  []string{selecting(secret, "web", "a", remote), selecting(secret, "payments", "b", remote)},
			want:    []string{"Unmatched", "Bound closed"},
		},
		"StoreByRegexes": {
			reason:  "We should offer a store to the namespaces that its patterns match",
			presets: "external-secrets",
			objects: append(stores, closedBy("[{namespaces: [other]}, {namespaceRegexes: ['^x', 'pay.*s$']}]")),
			claims:  []string{selecting(secret, "web", "a", remote), selecting(secret, "payments", "b", remote)},
			want:    []string{"Unmatched", "Bound closed"},
		},
		"StoreReady": {
			reason:  "We should offer no store that is not ready",
			presets: "external-secrets",
			objects: append(stores, of(clusterStore, "", "failing", yes, "spec: {}", status("Ready", "False")), of(store, "web", "new", yes, "spec: {}"),
				of(store, "payments", "failing", yes, "spec: {}", status("Ready", "False"))),
			claims: []string{selecting(secret, "web", "a", remote), selecting(secret, "payments", "b", remote)},
			want:   []string{"Bound new", "Unmatched"},
		},
		"GatewayClass": {
			reason:  "We should offer no GatewayClass that is not accepted",
			presets: "gateway-api",
			objects: []string{
				scoped("Namespaced", gateway, "gateways"), scoped("Cluster", gatewayClass, "gatewayclasses"),
				of(gatewayClass, "", "refused", yes, status("Accepted", "False")), of(gatewayClass, "", "unknown", yes, status("Accepted", "Unknown")),
			},
			claims: []string{selecting(gateway, "web", "a"), selecting(gateway, "web", "b"), selecting(gateway, "web", "c")},
			want:   []string{"Bound unknown", "Bound unknown", "Bound unknown"},
		},
		"Issuers": {
			reason:  "We should offer no issuer that is not ready",
			presets: "cert-manager",
			objects: append(issuers, of(clusterIssuer, "", "failing", yes, status("Ready", "False")), of(issuer, "web", "failing", yes, status("Ready", "False")),
				of(issuer, "payments", "ready", yes, status("Ready", "True"))),
			claims: []string{selecting(certificate, "web", "a", "spec: {secretName: a}"), selecting(certificate, "payments", "b", "spec: {secretName: a}")},
			want:   []string{"Unmatched", "Bound ready"},
		},
		"Locations": {
			reason:  "We should offer no location that cannot be written",
			presets: "velero",
			objects: []string{
				scoped("Namespaced", backup, "backups"),
				scoped("Namespaced", "velero.io/v1.Schedule", "schedules"),
				scoped("Namespaced", location, "backupstoragelocations"),
				of(location, "velero", "unavailable", yes, "spec: {}", "status: {phase: Unavailable}"),
				of(location, "velero", "read-only", yes, "spec: {accessMode: ReadOnly}"),
				of(location, "velero", "new", yes, "spec: {accessMode: ReadWrite}"),
				of(location, "other", "unavailable", yes, "spec: {}", "status: {phase: Unavailable}"),
			},
			claims: []string{selecting(backup, "velero", "a", "spec: {}"), selecting(backup, "velero", "b", "spec: {}"), selecting(backup, "other", "c", "spec: {}")},
			want:   []string{"Bound new", "Bound new", "Unmatched"},
		},
		"Queues": {
			reason:  "We should offer no queue that is not active",
			presets: "kueue-queues kueue",
			objects: append(queues, of(queue, "team", "stopped", yes, "spec: {}", status("Active", "False")),
				of(queue, "web", "active", yes, "spec: {}", status("Active", "True"))),
			claims: []string{selecting(job, "team", "a", "spec: {}"), selecting(job, "web", "b", "spec: {}")},
			want:   []string{"Unmatched", "Bound active"},
		},
		"OwnersOfJobs": {
			reason:  "We should leave alone what Kueue leaves alone",
			presets: "kueue-queues kueue jobset",
			objects: append(queues, of(queue, "team", "active", yes, "spec: {}")),
			claims: []string{
				owned(job, "of-a-jobset", "jobset.x-k8s.io/v1alpha2", "JobSet"),
				owned(job, "of-a-rayjob", "ray.io/v1", "RayJob"),
				owned(job, "of-a-job", "batch/v1", "Job"),
				owned(job, "of-a-cronjob", "batch/v1", "CronJob"),
				owned(job, "of-another", "example.org/v1", "Job"),
				strings.Replace(owned(job, "not-controlled", "ray.io/v1", "RayJob"), "controller: true", "controller: false", 1),
				selecting(job, "team", "of-none", "spec: {}"),
				owned(jobSet, "of-a-trainjob", "trainer.kubeflow.org/v1alpha1", "TrainJob"), selecting(jobSet, "team", "alone", "spec: {}"),
			},
			want: []string{"LeftAlone", "LeftAlone", "LeftAlone", "Bound active", "Bound active", "Bound active", "Bound active", "LeftAlone", "Bound active"},
		},
		"QueueCalledDefault": {
			reason:  "We should not warn where Kueue's own default is enough",
			presets: "kueue-queues kueue",
			objects: append(queues, of(queue, "team", "default", "", "spec: {}")),
			claims: []string{
				"apiVersion: batch/v1\nkind: Job\nmetadata: {name: a, namespace: team}\nspec: {}",
				"apiVersion: batch/v1\nkind: Job\nmetadata: {name: a, namespace: none}\nspec: {}",
			},
			want: []string{"LeftAlone", "LeftAlone"},
		},
		"NodeClasses": {
			reason:  "We should offer no class of nodes that is not ready",
			presets: "karpenter",
			objects: []string{
				scoped("Cluster", nodePool, "nodepools"), scoped("Cluster", "karpenter.sh/v1.NodeClaim", "nodeclaims"), scoped("Cluster", nodeClass, "ec2nodeclasses"),
				of(nodeClass, "", "failing", yes, status("Ready", "False")),
			},
			claims: []string{selecting(nodePool, "", "a", "spec: {template: {spec: {}}}")},
			want:   []string{"Unmatched"},
		},
		"ClusterClasses": {
			reason:  "We should offer no class for which Cluster API refuses Clusters",
			presets: "cluster-api",
			objects: []string{
				scoped("Namespaced", cluster, "clusters"), scoped("Namespaced", clusterClass, "clusterclasses"),
				of(clusterClass, "team", "failing", yes, status("VariablesReady", "False")), of(clusterClass, "web", "ready", yes, status("VariablesReady", "True")),
			},
			claims: []string{selecting(cluster, "team", "a", "spec: {topology: {version: v1}}"), selecting(cluster, "web", "a", "spec: {topology: {version: v1}}")},
			want:   []string{"Unmatched", "Bound ready"},
		},
		"Projects": {
			reason:  "We should offer no project that is closed to the namespace",
			presets: "argo-cd",
			objects: []string{
				scoped("Namespaced", application, "applications"), scoped("Namespaced", project, "appprojects"), of(project, "argocd", "own", yes, "spec: {}"),
			},
			claims: []string{selecting(application, "argocd", "a", "spec: {}"), selecting(application, "web", "a", "spec: {}")},
			want:   []string{"Bound own", "Unmatched"},
		},
		"ProjectsByPattern": {
			reason:  "We should read the patterns of projects as Argo CD does",
			presets: "argo-cd",
			objects: []string{
				scoped("Namespaced", application, "applications"), scoped("Namespaced", project, "appprojects"),
				of(project, "argocd", "open", yes, "spec: {sourceNamespaces: [name, 'glob-*', 'on?', '/^reg(a|b)$/', '{left,right}', 'up,down']}"),
			},
			claims: []string{
				selecting(application, "name", "a", "spec: {}"), selecting(application, "names", "a", "spec: {}"), selecting(application, "glob-a", "a", "spec: {}"),
				selecting(application, "a-glob-a", "a", "spec: {}"), selecting(application, "one", "a", "spec: {}"), selecting(application, "on", "a", "spec: {}"),
				selecting(application, "regb", "a", "spec: {}"), selecting(application, "regc", "a", "spec: {}"), selecting(application, "right", "a", "spec: {}"),
				selecting(application, "upper", "a", "spec: {}"),
			},
			want: []string{
				"Bound open", "Unmatched", "Bound open", "Unmatched", "Bound open", "Unmatched", "Bound open", "Unmatched", "Bound open", "Unmatched",
			},
		},
		"Runtimes": {
			reason:  "We should offer a runtime to the formats that it supports, and choose it alone where it says so",
			presets: "kserve",
			objects: runtimes("{name: sklearn, version: '1', autoSelect: true}, {name: onnx}, {name: xgboost, autoSelect: false}"),
			claims: []string{
				model("a", "name: sklearn"), model("b", "name: sklearn, version: '1'"), model("c", "name: sklearn, version: '2'"), model("d", "name: onnx"),
				model("e", "name: xgboost"), model("f", "name: pytorch"), model("selecting-a", "name: onnx"), model("selecting-b", "name: xgboost"),
				model("selecting-c", "name: pytorch"),
			},
			want: []string{"Bound main", "Bound main", "Unmatched", "Unmatched", "Unmatched", "Unmatched", "Bound main", "Bound main", "Unmatched"},
		},
		"Sources": {
			reason:  "We should give a clone or a restore a class of the driver that can read its source, and guess no driver",
			presets: "persistent-volumes",
			objects: snapshots,
			claims: []string{
				selecting(volume, "team", "clone", "spec: {dataSource: {kind: PersistentVolumeClaim, name: in-use}}"),
				selecting(volume, "team", "clone-by-ref", "spec: {dataSourceRef: {kind: PersistentVolumeClaim, name: in-use}}"),
				selecting(volume, "team", "clone-of-other", "spec: {dataSourceRef: {kind: PersistentVolumeClaim, name: in-use, namespace: other}}"),
				selecting(volume, "team", "clone-of-static", "spec: {dataSource: {kind: PersistentVolumeClaim, name: static}}"),
				selecting(volume, "team", "clone-of-none", "spec: {dataSource: {kind: PersistentVolumeClaim, name: none}}"),
				selecting(volume, "team", "restore", "spec: {dataSource: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: bound}}"),
				selecting(volume, "team", "restore-early", "spec: {dataSource: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: early}}"),
				selecting(volume, "team", "restore-unknown", "spec: {dataSource: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: unknown}}"),
			},
			want: []string{"Bound large", "Bound large", "Unmatched", "Unmatched", "Unmatched", "Bound large", "Bound fast", "Unmatched"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"claims.yaml": documents(tc.claims...), "objects.yaml": documents(append(namespaces, tc.objects...)...)}
			for preset := range strings.FieldsSeq(tc.presets) {
				for _, file := range []string{"claimkinds.yaml", "classkinds.yaml"} {
					if text, err := kinds.Files.ReadFile(preset + "/" + file); err == nil {
						files[preset+"/"+file] = string(text)
					}
				}
			}
			t.Chdir(write(t, files))
			got := run(t, "", "-f", "claims.yaml", "-R", "--offline", ".", "-o", "json")
			report := Report{}
			require.NoError(t, json.Unmarshal([]byte(got.stdout), &report), got.stderr)
			var outcomes []string
			for _, item := range report.Items {
				if strings.HasPrefix(item.Claim.ClaimKind, "volumeattributes.") {
					continue
				}
				outcome := string(item.Outcome)
				if item.Class != nil {
					outcome += " " + item.Class.Name
				}
				outcomes = append(outcomes, outcome)
				assert.Empty(t, item.InvalidExpressions, tc.reason)
				if item.Outcome == LeftAlone {
					assert.Empty(t, item.Warning, "We should not warn: %s", tc.reason)
				}
			}
			assert.Equal(t, tc.want, outcomes, "%s: %s", tc.reason, got.stdout)
		})
	}
}
