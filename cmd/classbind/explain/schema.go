package explain

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/deploy/crd"
	"github.com/classbind/classbind/selector/fields"
	"github.com/classbind/classbind/selector/near"
	"github.com/classbind/classbind/selector/openapi"
	"github.com/classbind/classbind/selector/truncate"
)

// objectSchema is what is known of the objects of a kind.
type objectSchema struct {
	// fields and values are those of a CRD. They are nil for kinds whose schema refers to others, as Kubernetes' own do.
	fields      *structural.Structural
	values      validation.SchemaValidator
	rules       *cel.Validator  // rules are those of our own kinds. They take far longer to compile than to apply.
	paths       *openapi.Schema // paths is the same schema, with which the paths of registrations are compared.
	unconverted bool            // unconverted says that a CRD has its objects alike in all versions.
}

// newObjectSchema reads a schema as a CRD has it.
func newObjectSchema(root *apiextensionsv1.JSONSchemaProps) (*objectSchema, error) {
	internal := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(root, internal, nil); err != nil {
		return nil, fmt.Errorf("cannot read the schema: %w", err)
	}
	fields, err := structural.NewStructural(internal)
	if err != nil {
		return nil, fmt.Errorf("the schema is not structural: %w", err)
	}
	fields = fields.DeepCopy()
	if err := defaulting.PruneDefaults(fields); err != nil {
		return nil, fmt.Errorf("cannot read the defaults of the schema: %w", err)
	}
	values, _, err := validation.NewSchemaValidator(internal)
	return &objectSchema{fields: fields, values: values}, err
}

// schemaOfCRD returns the schema of a version. It is nil where the CRD has none, or preserves unknown fields as CRDs did before they had to
// be structural.
func schemaOfCRD(text []byte, version string) (*objectSchema, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := json.Unmarshal(text, crd); err != nil {
		return nil, fmt.Errorf("cannot read the CRD: %w", truncate.Error(err))
	}
	for _, v := range crd.Spec.Versions {
		if v.Name != version || v.Schema == nil || v.Schema.OpenAPIV3Schema == nil || crd.Spec.PreserveUnknownFields {
			continue
		}
		s, err := newObjectSchema(v.Schema.OpenAPIV3Schema)
		if err != nil {
			return nil, fmt.Errorf("CRD %q: version %q: %w", crd.Name, version, err)
		}
		s.unconverted = crd.Spec.Conversion == nil || crd.Spec.Conversion.Strategy != apiextensionsv1.WebhookConverter
		s.paths, err = openapi.OfCRD(text, version)
		return s, err
	}
	return nil, nil
}

// schemaOfOpenAPI returns the schema of a kind from an OpenAPI v3 document. That of a CRD is there as the CRD has it, but refers to the
// schema of metadata.
func schemaOfOpenAPI(document []byte, kind schema.GroupVersionKind) (*objectSchema, error) {
	paths, err := openapi.OfDocument(document, kind)
	if err != nil {
		return nil, err
	}
	root := &apiextensionsv1.JSONSchemaProps{}
	if err := json.Unmarshal(paths.Root(), root); err != nil {
		return nil, fmt.Errorf("cannot read the schema: %w", err)
	}
	if _, ok := root.Properties["metadata"]; ok {
		root.Properties["metadata"] = apiextensionsv1.JSONSchemaProps{Type: "object"}
	}
	s, err := newObjectSchema(root)
	if err != nil { // It refers to other schemas.
		s = &objectSchema{}
	}
	s.paths = paths
	return s, nil
}

// decode an object as the API server does before admission: fill in its defaults, and drop the fields that the schema does not have. It
// returns these, and what cannot be read of the metadata, at most MaxErrors.
func (s *objectSchema) decode(object map[string]any) (errs []FieldError) {
	unknown := pruning.PruneWithOptions(object, s.fields, true, structural.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	err, ofMetadata := objectmeta.CoerceWithOptions(nil, object, s.fields, true, objectmeta.CoerceOptions{ReturnUnknownFieldPaths: true})
	if err != nil {
		errs = append(errs, newFieldError(err))
	}
	for _, path := range append(unknown, ofMetadata...) {
		if len(errs) < v1beta1.MaxErrors {
			shown := truncate.String(path, v1beta1.MaxMessageBytes)
			errs = append(errs, FieldError{Field: shown, Reason: fieldUnknown, Message: s.noSuchField(path)})
		}
	}
	defaulting.PruneNonNullableNullsWithoutDefaults(object, s.fields)
	defaulting.Default(object, s.fields)
	return errs
}

// index of a list, in a path.
var index = regexp.MustCompile(`\[\d+\]`)

// noSuchField names the field that may be meant instead of one that the schema does not have. Below a key of a map that has a dot, it finds
// none.
func (s *objectSchema) noSuchField(path string) string {
	p := fields.Path(strings.Split(index.ReplaceAllString(path, "."+fields.Element), "."))
	if meant := s.paths.Meant(p); meant != "" {
		return fmt.Sprintf("the schema has no such field: did you mean %s%s?", strings.TrimSuffix(path, p[len(p)-1]), meant)
	}
	return "the schema has no such field, and the API server does not store it: correct or remove it"
}

// ownSchemas are the schemas of ClaimKinds and ClassKinds.
var ownSchemas = sync.OnceValues(func() (map[schema.GroupVersionKind]*objectSchema, error) {
	schemas := map[schema.GroupVersionKind]*objectSchema{}
	for _, kind := range []string{"ClaimKind", "ClassKind"} {
		text, err := crd.Files.ReadFile(v1beta1.GroupVersion.Group + "_" + strings.ToLower(kind) + "s.yaml")
		if err != nil {
			return nil, fmt.Errorf("cannot find our own CRD: %w", err)
		}
		if text, err = yaml.YAMLToJSON(text); err != nil {
			return nil, fmt.Errorf("cannot read our own CRD: %w", err)
		}
		s, err := schemaOfCRD(text, v1beta1.GroupVersion.Version)
		if err != nil {
			return nil, err
		}
		s.rules = cel.NewValidator(s.fields, true, celconfig.PerCallLimit)
		schemas[v1beta1.GroupVersion.WithKind(kind)] = s
	}
	return schemas, nil
})

// validate an object of our own kinds as the API server does when it creates it.
func (s *objectSchema) validate(ctx context.Context, object map[string]any) field.ErrorList {
	if errs := validation.ValidateCustomResource(nil, object, s.values); len(errs) > 0 {
		return errs
	}
	errs, _ := s.rules.Validate(ctx, nil, s.fields, object, nil, celconfig.RuntimeCELCostBudget)
	return errs
}

// fieldUnknown is the reason for which the API server does not store a field.
const fieldUnknown = "FieldUnknown"

// check a claim of a file before it is decided on, and fill in its defaults. It is Malformed if its version is not served, or if the API
// server would drop a field: with a typing error in its selector, it would get the default class.
func (i *Item) check(ctx context.Context, w *World, k *v1beta1.ClaimKind, d document, object map[string]any) {
	s, err := w.schemaOf(ctx, d.GroupVersionKind())
	if notServed(err) {
		message := fmt.Sprintf("%v: set apiVersion to %s", err, w.resources[k.Name].GroupVersion())
		i.mistaken("UnknownVersion", FieldError{Field: "apiVersion", Reason: "VersionUnknown", Message: message})
		return
	}
	if err != nil {
		i.note("the fields of the claim are not checked against the schema: %v", err)
	}
	var errs []FieldError
	paths := [][]string{k.Spec.Selector.AnnotationPlace().Names()}
	if s != nil && s.fields != nil {
		errs = s.decode(object)
	} else { // Only the fields are known that the ClaimKind reads.
		paths = append(paths, k.Spec.Selector.Path.Names(), k.Spec.Reference.Names())
	}
	for _, path := range paths {
		if e := nearPath(object, path); e != nil && !slices.Contains(errs, *e) {
			errs = append(errs, *e)
		}
	}
	if len(errs) > 0 {
		i.mistaken("UnknownField", errs...)
	}
}

// nearPath returns an error if an object has no field at a path, but one whose name has one typing error.
func nearPath(object map[string]any, path []string) *FieldError {
	for n, name := range path {
		if child, ok := object[name]; ok {
			object, _ = child.(map[string]any)
			continue
		}
		other := near.Name(name, maps.Keys(object))
		if other == "" || near.Typos(name, other) > 1 {
			break
		}
		return &FieldError{
			Field: strings.Join(append(slices.Clone(path[:n]), other), "."), Reason: fieldUnknown,
			Message: fmt.Sprintf("did you mean %s?", strings.Join(path[:n+1], ".")),
		}
	}
	return nil
}

// mistaken is the end of a claim that the API server would not store as it is.
func (i *Item) mistaken(reason string, errs ...FieldError) *Item {
	i.Errors = errs
	return i.end(Malformed, reason, joined(errs))
}

func joined(errs []FieldError) string {
	texts := make([]string, len(errs))
	for n, e := range errs {
		texts[n] = e.Message
		if e.Field != "" {
			texts[n] = e.Field + ": " + e.Message
		}
	}
	return strings.Join(texts, "; ")
}
