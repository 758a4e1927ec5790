// Package openapi says what the schema of a kind, as OpenAPI v3, has at a path.
package openapi

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/fields"
	"github.com/classbind/classbind/selector/near"
	"github.com/classbind/classbind/selector/truncate"
)

// Schema of the objects of a kind, as OpenAPI v3 in JSON. Vendors write it, so it is
// decoded only along the paths that are asked for, level by level.
type Schema struct {
	root json.RawMessage
	// shared are the schemas that others refer to. A CRD's has none.
	shared map[string]json.RawMessage
	// structural is the schema of a CRD: what it does not have is pruned, but for ofEveryObject.
	structural bool
	// stored is the schema of another version, in which claims are stored as they are; nil if this is the one. converted reports whether a
	// webhook converts them, so what is stored cannot be determined.
	stored    *Schema
	converted bool

	// seen is what is known of the paths that were asked for.
	seen map[string]Found
}

// ofEveryObject are the fields that the API server knows whatever a CRD says of them.
var ofEveryObject = []string{"apiVersion", "kind", "metadata"}

// ErrNoSchema means that the API server has no schema of a kind.
var ErrNoSchema = errors.New("there is no schema for it")

// OfCRD returns the schema of a version from a CustomResourceDefinition as JSON.
func OfCRD(crd []byte, version string) (*Schema, error) {
	var definition struct {
		Spec struct {
			PreserveUnknownFields bool `json:"preserveUnknownFields"`
			Conversion            struct {
				Strategy string `json:"strategy"`
			} `json:"conversion"`
			Versions []struct {
				Name    string `json:"name"`
				Storage bool   `json:"storage"`
				Schema  struct {
					Root json.RawMessage `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(crd, &definition); err != nil {
		return nil, fmt.Errorf("cannot read the CRD: %w", err)
	}
	if definition.Spec.PreserveUnknownFields {
		return &Schema{root: json.RawMessage(`{"x-kubernetes-preserve-unknown-fields":true}`), structural: true}, nil
	}
	s := &Schema{structural: true}
	for _, v := range definition.Spec.Versions {
		switch {
		case v.Name == version:
			s.root = v.Schema.Root
		case v.Storage && definition.Spec.Conversion.Strategy == "Webhook":
			s.converted = true
		case v.Storage && len(v.Schema.Root) > 0:
			s.stored = &Schema{root: v.Schema.Root, structural: true}
		}
	}
	if len(s.root) == 0 {
		return nil, ErrNoSchema
	}
	return s, nil
}

// OfDocument returns the schema of a kind from the API server's OpenAPI v3 document for its group and version.
func OfDocument(document []byte, kind schema.GroupVersionKind) (*Schema, error) {
	var d struct {
		Components struct {
			Schemas map[string]json.RawMessage `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(document, &d); err != nil {
		return nil, fmt.Errorf("cannot read the OpenAPI document: %w", err)
	}
	for _, root := range d.Components.Schemas {
		var of struct {
			Kinds []schema.GroupVersionKind `json:"x-kubernetes-group-version-kind"`
		}
		if json.Unmarshal(root, &of) == nil && slices.Contains(of.Kinds, kind) {
			return &Schema{root: root, shared: d.Components.Schemas}, nil
		}
	}
	return nil, ErrNoSchema
}

// Root returns the schema as it is.
func (s *Schema) Root() json.RawMessage { return s.root }

// Shared returns the schema that a reference leads to, nil if there is none.
func (s *Schema) Shared(ref string) json.RawMessage {
	return s.shared[strings.TrimPrefix(ref, "#/components/schemas/")]
}

// FieldSchema is the schema of one field.
type FieldSchema struct {
	Type                 string                           `json:"type"`
	Properties           map[string]json.RawMessage       `json:"properties"`
	AdditionalProperties json.RawMessage                  `json:"additionalProperties"`
	Items                json.RawMessage                  `json:"items"`
	Preserve             bool                             `json:"x-kubernetes-preserve-unknown-fields"`
	Embedded             bool                             `json:"x-kubernetes-embedded-resource"`
	IntOrString          bool                             `json:"x-kubernetes-int-or-string"`
	Ref                  string                           `json:"$ref"`
	AllOf                []json.RawMessage                `json:"allOf"`
	AnyOf                []json.RawMessage                `json:"anyOf"`
	OneOf                []json.RawMessage                `json:"oneOf"`
	PatternProperties    json.RawMessage                  `json:"patternProperties"`
	Required             []string                         `json:"required"`
	Default              json.RawMessage                  `json:"default"`
	Enum                 []any                            `json:"enum"`
	Pattern              string                           `json:"pattern"`
	MinLength            int64                            `json:"minLength"`
	Rules                []struct{ Rule, Message string } `json:"x-kubernetes-validations"`
}

// Allows a text as the value of the field. What it does not know, it allows.
func (f *FieldSchema) Allows(text string) bool {
	if len(f.Enum) > 0 && !slices.Contains(f.Enum, any(text)) || text == "" && f.MinLength > 0 {
		return false
	}
	pattern, err := regexp.Compile(f.Pattern)
	return err != nil || pattern.MatchString(text)
}

// isComposed reports whether other schemas add fields to an object.
func (f *FieldSchema) isComposed() bool {
	return len(f.AllOf)+len(f.AnyOf)+len(f.OneOf)+len(f.PatternProperties) > 0
}

// What is the matter with a field.
var (
	// ErrMissing means that the schema does not have it, so the API server prunes it.
	ErrMissing = errors.New("the schema has no field")
	// errNotStored says so of the version in which the API server stores claims.
	errNotStored = errors.New("the schema of the version that is stored has no field")
	// errList means that it is in a list. A claim has one class.
	errList = errors.New("a path cannot lead through a list, such as")
	// ErrUnknown means that the schema leaves it open.
	ErrUnknown = errors.New("the schema does not say what may be in")
)

// typeError means that a field has another type than it must.
type typeError struct{ is, must string }

func (e *typeError) Error() string {
	return fmt.Sprintf("must be of type %s, and is of type %s:", e.must, truncate.String(e.is, v1beta1.MaxShownBytes))
}

// read the schema of a field, and follow its references.
func (s *Schema) read(raw json.RawMessage) (FieldSchema, error) {
	var preset json.RawMessage // The default stands beside a reference.
	for range v1beta1.MaxSchemaReferences {
		var n FieldSchema
		if err := json.Unmarshal(raw, &n); err != nil {
			return n, ErrUnknown
		}
		if preset == nil {
			preset = n.Default
		}
		switch {
		case n.Ref != "":
			raw = s.Shared(n.Ref)
		case n.Type == "" && n.Properties == nil && len(n.AllOf) == 1:
			raw = n.AllOf[0]
		default:
			n.Default = preset
			return n, nil
		}
		if raw == nil {
			return n, ErrUnknown
		}
	}
	return FieldSchema{}, ErrUnknown
}

// child is the schema of a field of an object.
func (s *Schema) child(n FieldSchema, name string) (FieldSchema, error) {
	if n.Embedded && slices.Contains(ofEveryObject, name) {
		return FieldSchema{}, ErrUnknown
	}
	if raw, ok := n.Properties[name]; ok {
		return s.read(raw)
	}
	allowed := len(n.AdditionalProperties) > 0 && string(n.AdditionalProperties) != "false"
	switch {
	case name == fields.Element && len(n.Items) > 0 && n.Items[0] == '{':
		return s.read(n.Items)
	case name == fields.Element && !allowed:
		return FieldSchema{}, ErrUnknown
	case n.Preserve, n.IntOrString:
		return FieldSchema{}, ErrUnknown
	case n.Type == "array":
		return FieldSchema{}, errList
	case n.Type != "" && n.Type != "object":
		return FieldSchema{}, &typeError{n.Type, "object"}
	case allowed && n.AdditionalProperties[0] == '{':
		return s.read(n.AdditionalProperties)
	case allowed:
		return FieldSchema{}, ErrUnknown
	case !s.structural && (n.Properties == nil || n.isComposed()): // An aggregated API server may take anything here.
		return FieldSchema{}, ErrUnknown
	}
	return FieldSchema{}, ErrMissing
}

// Found is what is known of the field at a path. If Err is set, UpTo is the path of the field that is the matter.
type Found struct {
	Schema FieldSchema
	UpTo   fields.Path
	Err    error
}

// At is the schema of the field at a path. Each level is decoded once.
func (s *Schema) At(p fields.Path) Found {
	if s.structural && len(p) > 0 && slices.Contains(ofEveryObject, p[0]) {
		return Found{UpTo: p}
	}
	key := p.String()
	if f, ok := s.seen[key]; ok {
		return f
	}
	f := Found{UpTo: p}
	if len(p) == 0 {
		f.Schema, f.Err = s.read(s.root)
	} else if f = s.At(p[:len(p)-1]); f.Err == nil {
		f.Schema, f.Err = s.child(f.Schema, p[len(p)-1])
		if mistyped := (*typeError)(nil); !errors.As(f.Err, &mistyped) && !errors.Is(f.Err, errList) {
			f.UpTo = p
		}
	}
	if s.seen == nil {
		s.seen = map[string]Found{}
	}
	s.seen[key] = f
	return f
}

// Meant is the name of the field that may be meant by the last one of a path, which the schema does not have. It is empty if none is alike.
func (s *Schema) Meant(p fields.Path) string {
	last := len(p) - 1
	return meant(p[last], maps.Keys(s.At(p[:last]).Schema.Properties))
}

func meant(name string, others iter.Seq[string]) string {
	return cmp.Or(near.Name(name, others), near.Longer(name, others))
}

// prunes reports whether a claim would be stored without the field at a path.
func (s *Schema) prunes(p fields.Path) bool {
	if s.converted {
		return false
	}
	if s.stored != nil {
		s = s.stored
	}
	return errors.Is(s.At(p).Err, ErrMissing)
}

// Stores is the schema of the field at a path, with an error if a claim would be stored without it.
func (s *Schema) Stores(p fields.Path) (f Found, pruned bool) {
	f, pruned = s.At(p), s.prunes(p)
	if pruned && !errors.Is(f.Err, ErrMissing) {
		f = Found{UpTo: p, Err: errNotStored}
	}
	return f, pruned
}

// Requires reports whether the API server refuses an object at the parent of a path without the field. One with a default is never absent.
func (s *Schema) Requires(p fields.Path) bool {
	return slices.Contains(s.At(p[:len(p)-1]).Schema.Required, p[len(p)-1]) && s.At(p).Schema.Default == nil
}

// Is the field of this type?
func (f Found) Is(want string) Found {
	switch {
	case f.Err != nil, f.Schema.Type == want, f.Schema.IntOrString && want == "string":
	case f.Schema.Type == "":
		f.Err = ErrUnknown
	default:
		f.Err = &typeError{f.Schema.Type, want}
	}
	return f
}
