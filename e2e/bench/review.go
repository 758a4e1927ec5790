package bench

import (
	"encoding/json"
	"fmt"
	"maps"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// opinion of a claim about its class: fields of its spec. The zero value is no opinion.
type opinion map[string]any

// askingFor classes of a pool.
func askingFor(pool int) opinion {
	return opinion{"classSelector": map[string]any{"matchLabels": poolLabels(pool)}}
}

// referring to a class, whichever claim it is.
func referring(int) opinion {
	return opinion{"classRef": map[string]any{"apiVersion": group + "/" + version, "kind": "Class00", "name": className(0)}}
}

// claim is the manifest of one with an opinion.
func claim(kind, name, namespace string, o opinion) map[string]any {
	spec := map[string]any{
		"engineVersion": "16.4", "storageGB": 100, "highlyAvailable": true,
		"writeConnectionSecretToRef": map[string]any{"name": name + "-connection"},
	}
	maps.Copy(spec, o)
	return map[string]any{
		"apiVersion": group + "/" + version, "kind": kind,
		"metadata": map[string]any{
			"name": name, "namespace": namespace,
			"labels": map[string]any{"app.kubernetes.io/name": "shop", "app.kubernetes.io/component": "database", "team": "checkout"},
		},
		"spec": spec,
	}
}

// distinct reviews are sent in turn.
const distinct = 400

// review is what kube-apiserver sends about the creation of a claim that asks for a pool of classes, and the name of the claim's ClaimKind.
type review struct {
	claimKind string
	body      []byte
}

// reviews of claims of all kinds in turn, each of which asks for another pool of so many. What differs between two has the same length.
func reviews(kinds []string, pools int) []review {
	all := make([]review, distinct)
	for i := range all {
		kind := kinds[i%len(kinds)]
		// The step has no factor in common with the usual numbers of pools, which has claims ask for pools all over.
		all[i] = review{resource(kind), reviewOf(kind, fmt.Sprintf("orders-%05d", i), askingFor(i*37%pools))}
	}
	return all
}

func reviewOf(kind, name string, o opinion) []byte {
	const namespace = "team-checkout"
	object := claim(kind, name, namespace, o)
	fields := json.RawMessage(`{` +
		`"f:metadata":{"f:labels":{".":{},"f:app.kubernetes.io/component":{},"f:app.kubernetes.io/name":{},"f:team":{}}},` +
		`"f:spec":{".":{},"f:classSelector":{".":{},"f:matchLabels":{".":{},"f:pool":{},"f:region":{}}},` +
		`"f:engineVersion":{},"f:highlyAvailable":{},"f:storageGB":{},"f:writeConnectionSecretToRef":{".":{},"f:name":{}}}}`)
	object["metadata"].(map[string]any)["managedFields"] = []any{map[string]any{
		"manager": "kubectl-create", "operation": "Update", "apiVersion": group + "/" + version,
		"time": time.Unix(1_700_000_000, 0).UTC().Format(time.RFC3339), "fieldsType": "FieldsV1", "fieldsV1": fields,
	}}
	gvk := metav1.GroupVersionKind{Group: group, Version: version, Kind: kind}
	gvr := metav1.GroupVersionResource{Group: group, Version: version, Resource: plural(kind)}
	return encoded(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: uuid.NewUUID(), Kind: gvk, RequestKind: &gvk, Resource: gvr, RequestResource: &gvr,
			Name: name, Namespace: namespace, Operation: admissionv1.Create,
			UserInfo: authenticationv1.UserInfo{
				Username: "kubernetes-admin", Groups: []string{"system:masters", "system:authenticated"},
				Extra: map[string]authenticationv1.ExtraValue{
					"authentication.kubernetes.io/credential-id": {
						"X509SHA256=4931186981efe34af9d36fcb64bdcb80fe5dfafccbab9090f6ec5ad71a7eaf89",
					},
				},
			},
			Object:  runtime.RawExtension{Raw: encoded(object)},
			DryRun:  new(bool),
			Options: runtime.RawExtension{Raw: []byte(`{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1"}`)},
		},
	})
}
