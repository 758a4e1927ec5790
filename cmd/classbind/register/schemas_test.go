package register

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/version"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "reduce the CRDs in testdata/crds to what the tests need")

// TestSchemas requires that the CRDs have only what the README there says. With -update, it reduces them.
func TestSchemas(t *testing.T) {
	ways := waysOf(t)
	files, err := filepath.Glob(filepath.Join(schemas, "*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		before, err := os.ReadFile(file) //nolint:gosec // The test names the folder.
		require.NoError(t, err)
		var reduced []string
		for document := range strings.SplitSeq("\n"+string(before), "\n---") {
			if crd := (map[string]any{}); assert.NoError(t, yaml.Unmarshal([]byte(document), &crd)) && len(crd) > 0 {
				reduced = append(reduced, strings.Join(lines(reducedCRD(t, crd, ways), 0), "\n")+"\n")
			}
		}
		text := strings.Join(reduced, "---\n")
		if *update {
			require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
			continue
		}
		assert.Equal(t, text, string(before), "We should have no more of %s than we need: run the test with -update.", file)
	}
}

// waysOf claims to the fields in their answers: the names of these fields, and of all that are around them, by the word for the claim.
func waysOf(t *testing.T) map[string]map[string]bool {
	t.Helper()
	ways := map[string]map[string]bool{}
	for _, row := range answers(t) {
		claim := strings.Fields(row.Args)[0]
		if ways[claim] == nil {
			ways[claim] = map[string]bool{}
		}
		at := ""
		for name := range strings.SplitSeq(row.Path+row.Refused, ".") {
			if at += "." + name; name == "" {
				at = ""
			}
			ways[claim][strings.ReplaceAll(at, "[]", ".[]")] = true
		}
	}
	return ways
}

// open is the schema of an object that may have any fields.
func open() map[string]any {
	return map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
}

// reducedCRD has the names, and the version that is preferred. Only that of claims has a schema.
func reducedCRD(t *testing.T, crd map[string]any, ways map[string]map[string]bool) map[string]any {
	t.Helper()
	whole := apiextensionsv1.CustomResourceDefinition{}
	text, err := json.Marshal(crd)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &whole))
	served := slices.DeleteFunc(whole.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return !v.Served })
	require.NotEmpty(t, served, whole.Name)
	preferred := slices.MaxFunc(served, func(a, b apiextensionsv1.CustomResourceDefinitionVersion) int {
		return version.CompareKubeAwareVersionStrings(a.Name, b.Name)
	})
	schema := open()
	for _, claim := range []string{whole.Spec.Names.Kind, whole.Name} {
		if ways[claim] == nil {
			continue
		}
		text, err := json.Marshal(preferred.Schema.OpenAPIV3Schema)
		require.NoError(t, err)
		schema = nil
		require.NoError(t, json.Unmarshal(text, &schema))
		for before := (map[string]any)(nil); !reflect.DeepEqual(before, schema); { // What was dropped needs nothing else any more.
			r := reducer{way: ways[claim], needed: map[string]bool{}}
			r.need(schema, false)
			before, schema = schema, r.reduce(schema, "", 0)
		}
		if properties, ok := schema["properties"].(map[string]any); ok && properties["status"] != nil {
			properties["status"] = open()
		}
	}
	metadata := map[string]any{"name": whole.Name}
	if approved, ok := whole.Annotations[apiextensionsv1.KubeAPIApprovedAnnotation]; ok { // The API server requires it of Kubernetes' own groups.
		metadata["annotations"] = map[string]any{apiextensionsv1.KubeAPIApprovedAnnotation: approved}
	}
	names := map[string]any{}
	all, _ := crd["spec"].(map[string]any)["names"].(map[string]any)
	for _, name := range []string{"kind", "listKind", "plural", "singular", "shortNames"} {
		if all[name] != nil {
			names[name] = all[name]
		}
	}
	return map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1",
		"kind":       "CustomResourceDefinition",
		"metadata":   metadata,
		"spec": map[string]any{
			"group": whole.Spec.Group,
			"scope": string(whole.Spec.Scope),
			"names": names,
			"versions": []any{map[string]any{
				"name":    preferred.Name,
				"served":  true,
				"storage": true,
				"schema":  map[string]any{"openAPIV3Schema": schema},
			}},
		},
	}
}

// reducer of the schema of a claim.
type reducer struct {
	// way has the paths of what the answers name, and of what is around it.
	way map[string]bool
	// needed are the names of fields without which the API server refuses the schema: rules and defaults have them.
	needed map[string]bool
}

var isWord = regexp.MustCompile(`[A-Za-z][A-Za-z0-9]*`)

// need what defaults, alternatives and rules name. The rules in lists are dropped.
func (r reducer) need(value any, inList bool) {
	switch value := value.(type) {
	case []any:
		for _, one := range value {
			r.need(one, inList)
		}
	case map[string]any:
		for key, one := range value {
			names := slices.Contains([]string{"default", "allOf", "anyOf", "oneOf", "not"}, key)
			if names || key == "x-kubernetes-validations" && !inList {
				text, _ := json.Marshal(one)
				for _, word := range isWord.FindAllString(string(text), -1) {
					r.needed[word] = true
				}
			}
			r.need(one, inList || key == "items")
		}
	}
}

// keywords that say what values there may be.
var keywords = []string{
	"type", "required", "default", "enum", "pattern", "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "nullable",
	"allOf", "anyOf", "oneOf", "not", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource",
}

func (r reducer) reduce(s map[string]any, at string, depth int) map[string]any {
	if s["x-kubernetes-int-or-string"] == true {
		return map[string]any{"x-kubernetes-int-or-string": true}
	}
	reduced := map[string]any{}
	for _, keyword := range keywords {
		if value, ok := s[keyword]; ok {
			reduced[keyword] = value
		}
	}
	if rules, ok := s["x-kubernetes-validations"].([]any); ok && !strings.Contains(at, "[]") {
		var short []any
		for _, rule := range rules {
			rule, _ := rule.(map[string]any)
			kept := maps.Clone(rule)
			maps.DeleteFunc(kept, func(key string, _ any) bool { return key != "rule" && key != "message" })
			short = append(short, kept)
		}
		reduced["x-kubernetes-validations"] = short
	}
	if values, ok := s["additionalProperties"].(map[string]any); ok { // The search does not look into maps.
		reduced["additionalProperties"] = values
		if values["properties"] != nil || values["items"] != nil || values["additionalProperties"] != nil {
			reduced["additionalProperties"] = map[string]any{"x-kubernetes-preserve-unknown-fields": true}
		}
	}
	if items, ok := s["items"].(map[string]any); ok {
		reduced["items"] = r.reduce(items, at+".[]", depth+1)
	}
	properties, ok := s["properties"].(map[string]any)
	if !ok {
		return reduced
	}
	if depth > maxDepth {
		return open()
	}
	required, _ := s["required"].([]any)
	has := func(names ...string) bool {
		return !slices.ContainsFunc(names, func(name string) bool { return properties[name] == nil })
	}
	inPod := has("imagePullPolicy", "livenessProbe") || has("containers", "restartPolicy") // A container, or the whole.
	kept := map[string]any{}
	for name, property := range properties {
		property, _ := property.(map[string]any)
		p := r.reduce(property, at+"."+name, depth+1)
		isRequired := slices.Contains(required, any(name))
		switch {
		case inPod && p["type"] != "string" && !r.way[at+"."+name]:
			if isRequired {
				kept[name] = map[string]any{"x-kubernetes-preserve-unknown-fields": true}
			}
		case depth < 2, r.way[at], isRequired, r.needed[name], mayRefer(name, p):
			kept[name] = p
		}
	}
	if len(kept) == 0 {
		return open()
	}
	reduced["properties"] = kept
	return reduced
}

// mayRefer reports whether a field may have a reference in it, or may be taken for one.
func mayRefer(name string, s map[string]any) bool {
	items, _ := s["items"].(map[string]any)
	lower := strings.ToLower(name)
	return s["type"] == "string" || s["properties"] != nil || items != nil && mayRefer(name, items) ||
		strings.HasSuffix(lower, "selector") || strings.HasSuffix(lower, "spec") || strings.Contains(lower, "cluster")
}

// lines of a value in YAML. What is short is in one line.
func lines(value any, indent int) (all []string) {
	const width = 140
	space := strings.Repeat(" ", indent)
	switch value := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			line := space + flow(key) + ": " + flow(value[key])
			if isBranch := strings.ContainsAny(flow(value[key])[:1], "{["); !isBranch || len(line) <= width {
				all = append(all, line)
				continue
			}
			all = append(append(all, space+flow(key)+":"), lines(value[key], indent+2)...)
		}
	case []any:
		for _, one := range value {
			item := lines(one, indent+2)
			item[0] = space + "- " + item[0][indent+2:]
			all = append(all, item...)
		}
	default:
		all = append(all, space+flow(value))
	}
	return all
}

// isPlain matches the strings that need no quotes in YAML, but for the words of isOther.
var (
	isPlain = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_./-]*$`)
	isOther = regexp.MustCompile(`(?i)^(y|n|yes|no|true|false|on|off|null)$`)
)

// flow is a value of YAML in a line.
func flow(value any) string {
	var parts []string
	switch value := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			parts = append(parts, flow(key)+": "+flow(value[key]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case []any:
		for _, one := range value {
			parts = append(parts, flow(one))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case string:
		if isPlain.MatchString(value) && !isOther.MatchString(value) {
			return value
		}
	}
	text := &bytes.Buffer{}
	encoder := json.NewEncoder(text)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(value) // It was JSON.
	return strings.TrimSpace(text.String())
}
