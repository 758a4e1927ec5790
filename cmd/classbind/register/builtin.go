package register

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/selector/openapi"
)

// unscoped are the built-in kinds that have no namespace. Go types do not say so.
const unscoped = " CertificateSigningRequest ClusterRole ClusterRoleBinding ClusterTrustBundle ComponentStatus CSIDriver " +
	"CSINode DeviceClass DeviceTaintRule FlowSchema IngressClass IPAddress MutatingAdmissionPolicy " +
	"MutatingAdmissionPolicyBinding MutatingWebhookConfiguration Namespace Node PersistentVolume PriorityClass " +
	"PriorityLevelConfiguration ResourcePoolStatusRequest ResourceSlice RuntimeClass ServiceCIDR StorageClass " +
	"StorageVersion StorageVersionMigration ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding " +
	"ValidatingWebhookConfiguration VolumeAttachment VolumeAttributesClass "

// shortNames of the built-in kinds that are claims or classes.
var shortNames = map[string]string{
	"CronJob": "cj", "DaemonSet": "ds", "Deployment": "deploy", "Ingress": "ing", "PersistentVolumeClaim": "pvc", "Pod": "po",
	"PriorityClass": "pc", "Service": "svc", "StatefulSet": "sts", "StorageClass": "sc", "VolumeAttributesClass": "vac",
}

// builtIn are the kinds of Kubernetes itself, in the version that it prefers. Its client has the group extensions, which is not served.
var builtIn = sync.OnceValue(func() map[schema.GroupKind]schema.GroupVersionKind {
	kinds := map[schema.GroupKind]schema.GroupVersionKind{}
	for gvk, t := range scheme.Scheme.AllKnownTypes() {
		_, isObject := t.FieldByName("ObjectMeta")
		before := kinds[gvk.GroupKind()].Version
		served := isObject && gvk.Group != "extensions" && gvk.Version != runtime.APIVersionInternal
		if served && version.CompareKubeAwareVersionStrings(gvk.Version, before) > 0 {
			kinds[gvk.GroupKind()] = gvk
		}
	}
	return kinds
})

// builtInKinds are the Kinds by their names in lower case.
var builtInKinds = sync.OnceValue(func() map[string]string {
	names := map[string]string{}
	for k := range builtIn() {
		names[strings.ToLower(k.Kind)] = k.Kind
	}
	return names
})

func kindOf(gvk schema.GroupVersionKind) kind {
	resource, _ := meta.UnsafeGuessKindToResource(gvk)
	return kind{cluster.Resource{
		GroupVersionKind: gvk, Namespaced: !strings.Contains(unscoped, " "+gvk.Kind+" "), Aliases: shortNames[gvk.Kind],
	}, resource.GroupResource().String()}
}

// schemaOf a built-in kind, from its Go type: names, types, and what is always written.
func schemaOf(gvk schema.GroupVersionKind) (*openapi.Schema, error) {
	schemas := map[string]any{}
	root := schemaOfType(scheme.Scheme.AllKnownTypes()[gvk], schemas)
	to, _ := root["$ref"].(string) // It has one, because it is a struct.
	name := strings.TrimPrefix(to, reference)
	schemas[name].(map[string]any)["x-kubernetes-group-version-kind"] = []any{gvk}
	text, err := json.Marshal(map[string]any{"components": map[string]any{"schemas": schemas}})
	if err != nil {
		return nil, fmt.Errorf("cannot make the schema of %s: %w", gvk.Kind, err)
	}
	return openapi.OfDocument(text, gvk)
}

const reference = "#/components/schemas/"

// schemaOfType returns a reference to the schema of a struct, which it adds, or else the schema of a type.
func schemaOfType(t reflect.Type, schemas map[string]any) map[string]any {
	if t.Kind() == reflect.Pointer {
		return schemaOfType(t.Elem(), schemas)
	}
	if own, ok := reflect.TypeAssert[interface{ OpenAPISchemaType() []string }](reflect.Zero(t)); ok { // A time, or a quantity.
		return map[string]any{"type": own.OpenAPISchemaType()[0]}
	}
	switch t.Kind() {
	case reflect.Struct:
		name := t.PkgPath() + "." + t.Name()
		if _, ok := schemas[name]; !ok {
			properties, required := map[string]any{}, []string{}
			schemas[name] = nil // A type may have itself in it.
			addFields(t, properties, &required, schemas)
			schemas[name] = map[string]any{"type": "object", "properties": properties, "required": required}
		}
		return map[string]any{"$ref": reference + name}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return map[string]any{"type": "string"}
		}
		return map[string]any{"type": "array", "items": schemaOfType(t.Elem(), schemas)}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": schemaOfType(t.Elem(), schemas)}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Float32, reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Interface:
		return map[string]any{}
	default:
		return map[string]any{"type": "integer"}
	}
}

func addFields(t reflect.Type, properties map[string]any, required *[]string, schemas map[string]any) {
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Type == reflect.TypeFor[metav1.ObjectMeta]() || !f.IsExported() || name == "-":
		case name == "" && f.Anonymous:
			addFields(f.Type, properties, required, schemas)
		case name != "":
			properties[name] = schemaOfType(f.Type, schemas)
			if options == "" && f.Type.Kind() != reflect.Pointer {
				*required = append(*required, name)
			}
		}
	}
}
