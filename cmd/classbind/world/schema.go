package world

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
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
	"github.com/classbind/classbind/selector/openapi"
	"github.com/classbind/classbind/selector/truncate"
)

// Schema is what is known of the objects of a kind.
type Schema struct {
	// fields and values are those of a CRD. They are nil for kinds whose schema refers to others, as Kubernetes' own do.
	fields *structural.Structural
	values validation.SchemaValidator
	rules  *cel.Validator  // rules are those of our own kinds. They take far longer to compile than to apply.
	paths  *openapi.Schema // paths is the same schema, with which the paths of registrations are compared.

	Unconverted bool // Unconverted reports whether a CRD has its objects alike in all versions.
}

// newSchema reads a schema as a CRD has it.
func newSchema(root *apiextensionsv1.JSONSchemaProps) (*Schema, error) {
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
	return &Schema{fields: fields, values: values}, err
}

// schemaOfCRD returns the schema of a version. It is nil where the CRD has none, or preserves unknown fields as CRDs did before they had to
// be structural.
func schemaOfCRD(text []byte, version string) (*Schema, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := json.Unmarshal(text, crd); err != nil {
		return nil, fmt.Errorf("cannot read the CRD: %w", truncate.Error(err))
	}
	for _, v := range crd.Spec.Versions {
		if v.Name != version || v.Schema == nil || v.Schema.OpenAPIV3Schema == nil || crd.Spec.PreserveUnknownFields {
			continue
		}
		s, err := newSchema(v.Schema.OpenAPIV3Schema)
		if err != nil {
			return nil, fmt.Errorf("CRD %q: version %q: %w", crd.Name, version, err)
		}
		s.Unconverted = crd.Spec.Conversion == nil || crd.Spec.Conversion.Strategy != apiextensionsv1.WebhookConverter
		s.paths, err = openapi.OfCRD(text, version)
		return s, err
	}
	return nil, nil
}

// schemaOfOpenAPI returns the schema of a kind from an OpenAPI v3 document. That of a CRD is there as the CRD has it, but refers to the
// schema of metadata.
func schemaOfOpenAPI(document []byte, kind schema.GroupVersionKind) (*Schema, error) {
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
	s, err := newSchema(root)
	if err != nil { // It refers to other schemas.
		s = &Schema{}
	}
	s.paths = paths
	return s, nil
}

// Decode an object as the API server does before admission: fill in its defaults, and drop the fields that the schema does not have. It
// returns these, and what cannot be read of the metadata, at most MaxErrors. It is not ok where nothing is known of the fields.
func (s *Schema) Decode(object map[string]any) (errs []FieldError, ok bool) {
	if s == nil || s.fields == nil {
		return nil, false
	}
	unknown := pruning.PruneWithOptions(object, s.fields, true, structural.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	err, ofMetadata := objectmeta.CoerceWithOptions(nil, object, s.fields, true, objectmeta.CoerceOptions{ReturnUnknownFieldPaths: true})
	if err != nil {
		errs = append(errs, newFieldError(err))
	}
	for _, path := range append(unknown, ofMetadata...) {
		if len(errs) < v1beta1.MaxErrors {
			shown := truncate.String(path, v1beta1.MaxMessageBytes)
			errs = append(errs, FieldError{Field: shown, Reason: FieldUnknown, Message: s.noSuchField(path)})
		}
	}
	defaulting.PruneNonNullableNullsWithoutDefaults(object, s.fields)
	defaulting.Default(object, s.fields)
	return errs, true
}

// index of a list, in a path.
var index = regexp.MustCompile(`\[\d+\]`)

// noSuchField names the field that may be meant instead of one that the schema does not have. Below a key of a map that has a dot, it finds
// none.
func (s *Schema) noSuchField(path string) string {
	p := fields.Path(strings.Split(index.ReplaceAllString(path, "."+fields.Element), "."))
	if meant := s.paths.Meant(p); meant != "" {
		return fmt.Sprintf("the schema has no such field: did you mean %s%s?", strings.TrimSuffix(path, p[len(p)-1]), meant)
	}
	return "the schema has no such field, and the API server does not store it: correct or remove it"
}

// ownSchemas are the schemas of ClaimKinds and ClassKinds.
var ownSchemas = sync.OnceValues(func() (map[schema.GroupVersionKind]*Schema, error) {
	schemas := map[schema.GroupVersionKind]*Schema{}
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
func (s *Schema) validate(ctx context.Context, object map[string]any) field.ErrorList {
	if errs := validation.ValidateCustomResource(nil, object, s.values); len(errs) > 0 {
		return errs
	}
	errs, _ := s.rules.Validate(ctx, nil, s.fields, object, nil, celconfig.RuntimeCELCostBudget)
	return errs
}

// FieldUnknown is the reason for which the API server does not store a field.
const FieldUnknown = "FieldUnknown"

// InvalidExpression does not compile, or fails by the schema of what it looks at.
type InvalidExpression struct {
	// Registration is claimkind/NAME or classkind/NAME, and Field that of the expression in it.
	Registration string `json:"registration"`
	Field        string `json:"field"`
	// Line and Column of the mistake count from 1.
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Message string `json:"message"`
	Caret   string `json:"caret"` // Caret shows the line with a caret under the place.
}

// FieldError is what is wrong with a field.
type FieldError struct {
	Field string `json:"field"` // Field is empty if it is the whole claim.
	// Reason in one word: FieldUnknown, KindUnknown, VersionUnknown, or the API server's own.
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

func newFieldError(err *field.Error) FieldError {
	return FieldError{Field: err.Field, Reason: string(err.Type), Message: truncate.String(err.ErrorBody(), v1beta1.MaxMessageBytes)}
}

// FieldErrors are the errors of a claim that is malformed.
func FieldErrors(all field.ErrorList) (errs []FieldError) {
	for _, err := range all {
		errs = append(errs, newFieldError(err))
	}
	return errs
}

// Joined is the text of all.
func Joined(errs []FieldError) string {
	texts := make([]string, len(errs))
	for n, e := range errs {
		texts[n] = e.Message
		if e.Field != "" {
			texts[n] = e.Field + ": " + e.Message
		}
	}
	return strings.Join(texts, "; ")
}
