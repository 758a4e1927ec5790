package explain

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/storage/names"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/brief"
)

// objectSchema treats an object as the API server does when it creates it: decode comes
// before admission, and validate after it.
type objectSchema struct {
	fields *structural.Structural
	// values and rules are those of a CRD. A kind without a CRD is checked in Go, so of
	// such a kind only the fields are known.
	values validation.SchemaValidator
	rules  *cel.Validator
	// paths is the same schema, with which the paths of registrations are compared.
	paths *selector.Schema

	namespaced bool
	// unconverted says that a CRD has its objects alike in all versions.
	unconverted bool
	// status says that the status is a subresource, so nobody can create an object with it.
	status bool
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
	if err != nil {
		return nil, fmt.Errorf("cannot read the values of the schema: %w", err)
	}
	return &objectSchema{fields: fields, values: values, rules: cel.NewValidator(fields, true, celconfig.PerCallLimit)}, nil
}

// schemaOfCRD returns the schema of a version. It is nil where the CRD has none, or preserves unknown
// fields as CRDs did before they had to be structural.
func schemaOfCRD(text []byte, version string) (*objectSchema, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := json.Unmarshal(text, crd); err != nil {
		return nil, fmt.Errorf("cannot read the CRD: %w", brief.Error(err))
	}
	for i := range crd.Spec.Versions {
		v := &crd.Spec.Versions[i]
		if v.Name != version || v.Schema == nil || v.Schema.OpenAPIV3Schema == nil || crd.Spec.PreserveUnknownFields {
			continue
		}
		s, err := newObjectSchema(v.Schema.OpenAPIV3Schema)
		if err != nil {
			return nil, fmt.Errorf("CRD %q: version %q: %w", crd.Name, version, err)
		}
		if s.paths, err = selector.SchemaOfCRD(text, version); err != nil {
			return nil, err
		}
		s.namespaced = crd.Spec.Scope == apiextensionsv1.NamespaceScoped
		s.unconverted = crd.Spec.Conversion == nil || crd.Spec.Conversion.Strategy != apiextensionsv1.WebhookConverter
		s.status = v.Subresources != nil && v.Subresources.Status != nil
		return s, nil
	}
	return nil, nil
}

// decode fills in the defaults of an object, and drops the fields that the schema does not have. It says
// which these are, and what cannot be read of the metadata.
func (s *objectSchema) decode(object map[string]any) []FieldError {
	paths := pruning.PruneWithOptions(object, s.fields, true, structural.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	err, ofMetadata := objectmeta.CoerceWithOptions(nil, object, s.fields, true, objectmeta.CoerceOptions{ReturnUnknownFieldPaths: true})
	var errs []FieldError
	if err != nil {
		errs = fieldErrors(field.ErrorList{err})
	}
	for _, path := range append(paths, ofMetadata...) {
		if len(errs) > v1alpha1.MaxErrors { // No more are shown.
			break
		}
		errs = append(errs, FieldError{
			Field: brief.Text(path, v1alpha1.MaxMessageBytes), Reason: fieldUnknown, Message: s.noSuchField(path),
		})
	}
	defaulting.PruneNonNullableNullsWithoutDefaults(object, s.fields)
	defaulting.Default(object, s.fields)
	return errs
}

// index of a list, in a path.
var index = regexp.MustCompile(`\[\d+\]`)

// noSuchField says which field may be meant instead of one that the schema does not have. Below a key of a
// map that has a dot, it finds none.
func (s *objectSchema) noSuchField(path string) string {
	const remove = "the schema has no such field, and the API server does not store it: correct or remove it"
	if len(path) > v1alpha1.MaxMessageBytes {
		return remove // It resembles none, and would take long to compare.
	}
	parent, name := "", path
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		parent, name = path[:i+1], path[i+1:]
	}
	at := s.fields
	for step := range strings.FieldsFuncSeq(index.ReplaceAllString(parent, ".[]"), func(r rune) bool { return r == '.' }) {
		property, ok := at.Properties[step]
		switch {
		case ok:
			at = &property
		case step == "[]":
			at = at.Items
		case at.AdditionalProperties != nil:
			at = at.AdditionalProperties.Structural
		default:
			at = nil
		}
		if at == nil {
			at = &structural.Structural{}
		}
	}
	if property := nearest(name, maps.Keys(at.Properties)); property != "" {
		return fmt.Sprintf("the schema has no such field: did you mean %s%s?", parent, property)
	}
	return remove
}

// uncompiled is how the library begins the error for a rule that it cannot compile.
const uncompiled = "rule compile error: "

// validate an object as it would be stored. Rules that compare it with an older one do not apply. The
// notes are about rules that are not checked.
func (s *objectSchema) validate(ctx context.Context, object map[string]any) (errs []FieldError, notes []string) {
	if s.values == nil {
		return nil, nil
	}
	if s.status {
		delete(object, "status")
	}
	o := &unstructured.Unstructured{Object: object}
	if o.GetName() == "" && o.GetGenerateName() != "" {
		o.SetName(names.SimpleNameGenerator.GenerateName(o.GetGenerateName()))
	}
	all := apivalidation.ValidateObjectMetaAccessor(o, s.namespaced, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	all = append(all, validation.ValidateCustomResource(nil, object, s.values)...)
	all = append(all, objectmeta.Validate(ctx, nil, object, s.fields, false)...)
	all = append(all, listtype.ValidateListSetsAndMaps(nil, s.fields, object)...)
	switch {
	case s.rules == nil:
	case slices.ContainsFunc(all, keepsRulesFromRunning):
		notes = append(notes, "the rules (CEL) of the schema are not checked before these errors are corrected")
	default:
		ofRules, _ := s.rules.Validate(ctx, nil, s.fields, object, nil, celconfig.RuntimeCELCostBudget)
		for _, err := range ofRules {
			if strings.HasPrefix(err.Detail, uncompiled) { // The cluster may have a newer Kubernetes than this library.
				notes = append(notes, fmt.Sprintf("a rule (CEL) of the schema at %s is not checked: %s",
					err.Field, brief.Text(err.Detail, v1alpha1.MaxMessageBytes)))
				continue
			}
			all = append(all, err)
		}
	}
	return fieldErrors(all), notes
}

// keepsRulesFromRunning says whether the API server evaluates no rule for an object with this error.
func keepsRulesFromRunning(err *field.Error) bool {
	return slices.Contains([]field.ErrorType{
		field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid,
	}, err.Type)
}
