// Command crds reduces the CRDs of a project to the facts that tests of deploy/kinds need. Its arguments are YAML files, and it prints the
// result: see e2e/crds/projects/README.md. The flag -open names fields below which nothing is needed, such as .spec.provider.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

func main() {
	open := flag.String("open", "", "a field below which nothing is needed")
	flag.Parse()
	for _, file := range flag.Args() {
		if err := reduce(os.Stdout, file, strings.Split(strings.TrimPrefix(*open, "."), ".")); err != nil {
			fmt.Fprintf(os.Stderr, "error: %s: %v\n", file, err)
			os.Exit(1)
		}
	}
}

// reduce the CRDs in a file, and write them.
func reduce(to io.Writer, file string, open []string) error {
	text, err := os.ReadFile(file) //nolint:gosec // The user names it.
	if err != nil {
		return fmt.Errorf("cannot read it: %w", err)
	}
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), len(text))
	for {
		crd := apiextensionsv1.CustomResourceDefinition{}
		switch err := decoder.Decode(&crd); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("cannot decode it: %w", err)
		case crd.Kind != "CustomResourceDefinition":
			continue
		}
		reduced, err := reducedCRD(&crd, open)
		if err != nil {
			return err
		}
		if _, err := to.Write(reduced); err != nil {
			return fmt.Errorf("cannot write %s: %w", crd.Name, err)
		}
	}
}

// reducedCRD has the names, and the version that is stored.
func reducedCRD(crd *apiextensionsv1.CustomResourceDefinition, open []string) ([]byte, error) {
	spec := apiextensionsv1.CustomResourceDefinitionSpec{Group: crd.Spec.Group, Scope: crd.Spec.Scope, Names: crd.Spec.Names}
	spec.Names.Categories = nil
	for _, v := range crd.Spec.Versions {
		if v.Storage {
			_ = openAt(*v.Schema.OpenAPIV3Schema, open)
			for name := range v.Schema.OpenAPIV3Schema.Properties["status"].Properties {
				if name != "conditions" {
					_ = openAt(*v.Schema.OpenAPIV3Schema, []string{"status", name})
				}
			}
			reduceSchema(v.Schema.OpenAPIV3Schema)
			spec.Versions = append(spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{
				Name: v.Name, Served: true, Storage: true, Schema: v.Schema, Subresources: v.Subresources,
			})
		}
	}
	metadata := map[string]any{"name": crd.Name}
	// The API server requires it of Kubernetes' own groups.
	if approved := crd.Annotations[apiextensionsv1.KubeAPIApprovedAnnotation]; approved != "" {
		metadata["annotations"] = map[string]string{apiextensionsv1.KubeAPIApprovedAnnotation: approved}
	}
	text, err := json.Marshal(map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": crd.Kind, "metadata": metadata, "spec": spec})
	if err != nil {
		return nil, fmt.Errorf("cannot encode %s: %w", crd.Name, err)
	}
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		return nil, fmt.Errorf("cannot read %s again: %w", crd.Name, err)
	}
	return append([]byte("---\n"), inLines(value, "")...), nil
}

// templates are the objects of Kubernetes that many projects embed, with fields that only they have.
var templates = []struct {
	of  reflect.Type
	has []string
}{
	{reflect.TypeFor[corev1.PodSpec](), []string{"nodeSelector", "tolerations", "volumes"}},
	{reflect.TypeFor[corev1.Container](), []string{"image", "resources", "volumeMounts"}},
}

// reduceSchema drops descriptions, and what is below the fields of a pod or a container: that is Kubernetes' own.
func reduceSchema(s *apiextensionsv1.JSONSchemaProps) {
	s.Description, s.Title, s.Example, s.ExternalDocs = "", "", nil, nil
	for _, template := range templates {
		if slices.ContainsFunc(template.has, func(name string) bool { _, ok := s.Properties[name]; return !ok }) {
			continue
		}
		for field := range template.of.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if has, ok := s.Properties[name]; ok {
				s.Properties[name] = opened(has)
			}
		}
	}
	for name, field := range s.Properties {
		reduceSchema(&field)
		s.Properties[name] = field
	}
	if s.Items != nil && s.Items.Schema != nil {
		reduceSchema(s.Items.Schema)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		reduceSchema(s.AdditionalProperties.Schema)
	}
}

// openAt opens the field at a path, if it is there.
func openAt(s apiextensionsv1.JSONSchemaProps, path []string) apiextensionsv1.JSONSchemaProps {
	if len(path) == 0 {
		return opened(s)
	}
	if field, ok := s.Properties[path[0]]; ok {
		s.Properties[path[0]] = openAt(field, path[1:])
	}
	return s
}

// opened is a field whose objects may have any fields.
func opened(s apiextensionsv1.JSONSchemaProps) apiextensionsv1.JSONSchemaProps {
	switch {
	case s.Type == "object" && len(s.Properties) > 0:
		return apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true), Default: s.Default}
	case s.Type == "array" && s.Items != nil && s.Items.Schema != nil && s.Items.Schema.Type == "object":
		items := apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}
		return apiextensionsv1.JSONSchemaProps{
			Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &items}, Default: s.Default,
		}
	}
	return s
}

// maxLine is how long an object is at most that is written in one line.
const maxLine = 120

// inLines writes a value as YAML, with short objects and lists in one line.
func inLines(value any, indent string) string {
	var b strings.Builder
	write := func(start string, value any) {
		b.WriteString(indent + start)
		if line := inLine(value); len(line) <= maxLine || line[0] != '{' && line[0] != '[' {
			b.WriteString(" " + line + "\n")
		} else {
			b.WriteString("\n" + inLines(value, indent+"  "))
		}
	}
	switch value := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			write(inLine(name)+":", value[name])
		}
	case []any:
		for _, one := range value {
			write("-", one)
		}
	}
	return b.String()
}

// plain are texts that YAML takes for themselves.
var plain = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9./-]*$`)

// inLine writes a value in one line.
func inLine(value any) string {
	var all []string
	switch value := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			all = append(all, inLine(name)+": "+inLine(value[name]))
		}
		return "{" + strings.Join(all, ", ") + "}"
	case []any:
		for _, one := range value {
			all = append(all, inLine(one))
		}
		return "[" + strings.Join(all, ", ") + "]"
	case string:
		word := strings.ToLower(value)
		if plain.MatchString(value) && !slices.Contains([]string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}, word) {
			return value
		}
	}
	text, _ := json.Marshal(value) // It was read from JSON.
	return string(text)
}
