package kinds

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/classbind/classbind/deploy/kinds"
)

// exampleRelated is the file of an example with what its claims name, if they name any.
const exampleRelated = "example/related.yaml"

// preset is a folder of deploy/kinds.
type preset struct {
	name string
	// summary is the first line of its README.
	summary string
	// claimKinds are the names of its ClaimKinds.
	claimKinds []string
}

// readPresets returns all presets, sorted by name.
func readPresets() ([]preset, error) {
	folders, err := fs.ReadDir(kinds.Files, ".")
	if err != nil {
		return nil, fmt.Errorf("cannot read the presets: %w", err)
	}
	presets := make([]preset, len(folders))
	for i, f := range folders {
		if presets[i], err = readPreset(f.Name()); err != nil {
			return nil, fmt.Errorf("cannot read the preset %q: %w", f.Name(), err)
		}
	}
	return presets, nil
}

func readPreset(name string) (preset, error) {
	p := preset{name: name}
	readme, err := kinds.Files.ReadFile(path.Join(name, "README.md"))
	if err != nil {
		return p, err
	}
	title, _, _ := strings.Cut(string(readme), "\n")
	p.summary = strings.TrimPrefix(title, "# ")
	text, err := p.manifest(false)
	if err != nil {
		return p, err
	}
	objects, err := objectsIn(text)
	if err != nil {
		return p, err
	}
	for i := range objects {
		if objects[i].Kind == "ClaimKind" {
			p.claimKinds = append(p.claimKinds, objects[i].Name)
		}
	}
	return p, nil
}

// find the presets with these names, sorted.
func find(presets []preset, names []string) ([]preset, error) {
	var found []preset
	var unknown []string
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		i := slices.IndexFunc(presets, func(p preset) bool { return p.name == name })
		if i < 0 {
			unknown = append(unknown, fmt.Sprintf("%q", name))
			continue
		}
		found = append(found, presets[i])
	}
	if len(unknown) == 0 {
		return found, nil
	}
	all := make([]string, len(presets))
	for i := range presets {
		all[i] = presets[i].name
	}
	return nil, fmt.Errorf("there is no preset %s: name one of %s", strings.Join(unknown, ", "), strings.Join(all, ", "))
}

// manifestOf the presets, or of their examples, as one YAML stream.
func manifestOf(presets []preset, example bool) ([]byte, error) {
	owners := map[string]string{}
	texts := make([][]byte, len(presets))
	for i, p := range presets {
		text, err := p.manifest(example)
		if err != nil {
			return nil, err
		}
		objects, err := objectsIn(text)
		if err != nil {
			return nil, err
		}
		for j := range objects {
			object := fmt.Sprintf("%s %q", objects[j].Kind, objects[j].Name)
			// kubectl would apply the second in place of the first.
			if owner, ok := owners[object]; ok {
				return nil, fmt.Errorf("%s and %s both have the %s: print them into files, and join these two objects",
					owner, p.name, object)
			}
			owners[object] = p.name
		}
		texts[i] = text
	}
	return join(texts), nil
}

// manifest of the preset, or of its example, as one YAML stream.
func (p *preset) manifest(example bool) ([]byte, error) {
	files := []string{"example/classes.yaml", "example/claims.yaml"} // in the order in which they are applied
	if _, err := fs.Stat(kinds.Files, path.Join(p.name, exampleRelated)); err == nil {
		files = slices.Insert(files, 1, exampleRelated)
	}
	if !example {
		text, err := kinds.Files.ReadFile(path.Join(p.name, "kustomization.yaml"))
		if err != nil {
			return nil, err
		}
		kustomization := struct {
			Resources []string `json:"resources"`
		}{}
		if err := yaml.Unmarshal(text, &kustomization); err != nil {
			return nil, fmt.Errorf("kustomization.yaml: %w", err)
		}
		files = kustomization.Resources
	}
	texts := make([][]byte, len(files))
	for i, file := range files {
		var err error
		if texts[i], err = kinds.Files.ReadFile(path.Join(p.name, file)); err != nil {
			return nil, err
		}
	}
	return join(texts), nil
}

func join(texts [][]byte) []byte { return bytes.Join(texts, []byte("---\n")) }

// objectsIn returns what each document of a YAML stream is.
func objectsIn(text []byte) ([]metav1.PartialObjectMetadata, error) {
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), len(text))
	var objects []metav1.PartialObjectMetadata
	for {
		object := metav1.PartialObjectMetadata{}
		if err := decoder.Decode(&object); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, err
		}
		objects = append(objects, object)
	}
}
