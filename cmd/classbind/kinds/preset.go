package kinds

import (
	"bytes"
	"cmp"
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

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/deploy/kinds"
)

// exampleFiles are in the order in which they are applied. An example has some of them.
var exampleFiles = []string{"example/classes.yaml", "example/related.yaml", "example/claims.yaml"}

// preset is a folder of deploy/kinds.
type preset struct {
	name string
	// summary is the first line of its README.
	summary string
	// claimKinds are the names of its ClaimKinds.
	claimKinds []string
	// classKinds are its ClassKinds, with where their classes are marked as the default.
	classKinds map[string]v1beta1.Source
	// named are the class kinds that its ClaimKinds name.
	named []string
	// needs are the presets that have those of them which it has not: several presets use these, and none may take them
	// along when it is deleted. users are the presets that need this one.
	needs, users []string
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
	link(presets)
	return presets, nil
}

// link the presets that need others.
func link(presets []preset) {
	for i := range presets {
		for j := range presets {
			p, other := &presets[i], &presets[j]
			has := func(name string) bool { _, ok := other.classKinds[name]; return ok }
			if i != j && slices.ContainsFunc(p.named, has) {
				p.needs, other.users = append(p.needs, other.name), append(other.users, p.name)
			}
		}
	}
}

func readPreset(name string) (preset, error) {
	p := preset{name: name, classKinds: map[string]v1beta1.Source{}}
	readme, err := kinds.Files.ReadFile(path.Join(name, "README.md"))
	if err != nil {
		return p, err
	}
	title, _, _ := strings.Cut(string(readme), "\n")
	p.summary = strings.TrimPrefix(title, "# ")
	text, err := manifestOf([]preset{p}, false)
	if err != nil {
		return p, err
	}
	objects, err := objectsIn(text)
	if err != nil {
		return p, err
	}
	for i := range objects {
		switch o := &objects[i]; o.Kind {
		case "ClaimKind":
			p.claimKinds = append(p.claimKinds, o.Name)
			for _, named := range o.Spec.Classes.Kinds {
				p.named = append(p.named, named.Name)
			}
		case "ClassKind":
			p.classKinds[o.Name] = o.Spec.Default
		}
	}
	return p, nil
}

// Known is what presets know of a claim kind and a class kind: the preset of the claim kind, and where classes are
// marked as the default. Both are empty where no preset knows them.
func Known(claimKind, classKind string) (preset string, mark v1beta1.Source, err error) {
	presets, err := readPresets()
	for _, p := range presets {
		if slices.Contains(p.claimKinds, claimKind) {
			preset = p.name
		}
		if found, ok := p.classKinds[classKind]; ok {
			mark = found
		}
	}
	return preset, mark, err
}

// find the presets with these names, sorted: those that need others come last.
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
		slices.SortStableFunc(found, func(a, b preset) int { return cmp.Compare(len(a.needs), len(b.needs)) })
		return found, nil
	}
	all := make([]string, len(presets))
	for i := range presets {
		all[i] = presets[i].name
	}
	return nil, fmt.Errorf("there is no preset %s: name one of %s", strings.Join(unknown, ", "), strings.Join(all, ", "))
}

// notes say what belongs to presets that are printed, and is not printed itself.
func notes(presets []preset) string {
	var b strings.Builder
	absent := func(names []string) string {
		return strings.Join(slices.DeleteFunc(slices.Clone(names), func(name string) bool {
			return slices.ContainsFunc(presets, func(p preset) bool { return p.name == name })
		}), ", ")
	}
	for _, p := range presets {
		if needs := absent(p.needs); needs != "" {
			fmt.Fprintf(&b, "note: %s needs %s, too, which other presets also need: apply both, and delete %[2]s last\n", p.name, needs)
		}
		if users := absent(p.users); users != "" {
			fmt.Fprintf(&b, "note: %s is also for %s: delete it last\n", p.name, users)
		}
	}
	return b.String()
}

// manifestOf the presets, or of their examples, as one YAML stream.
func manifestOf(presets []preset, example bool) ([]byte, error) {
	var texts [][]byte
	for _, p := range presets {
		files := exampleFiles
		if !example {
			kustomization := struct {
				Resources []string `json:"resources"`
			}{}
			text, err := kinds.Files.ReadFile(path.Join(p.name, "kustomization.yaml"))
			if err == nil {
				err = yaml.Unmarshal(text, &kustomization)
			}
			if err != nil {
				return nil, err
			}
			files = kustomization.Resources
		}
		for _, file := range files {
			text, err := kinds.Files.ReadFile(path.Join(p.name, file))
			switch {
			case example && errors.Is(err, fs.ErrNotExist):
			case err != nil:
				return nil, err
			default:
				texts = append(texts, text)
			}
		}
	}
	if len(texts) == 0 {
		first := presets[0]
		return nil, fmt.Errorf("%s has no example of its own: name a preset that needs it, such as %s", first.name, first.users[0])
	}
	return bytes.Join(texts, []byte("---\n")), nil
}

// registration is what presets need of one.
type registration struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Classes struct {
			Kinds []v1beta1.ClassKindLink `json:"kinds"`
		} `json:"classes"`
		Default v1beta1.Source `json:"default"`
	} `json:"spec"`
}

// objectsIn returns the registrations and roles of a YAML stream.
func objectsIn(text []byte) ([]registration, error) {
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), len(text))
	var objects []registration
	for {
		object := registration{}
		if err := decoder.Decode(&object); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, err
		}
		objects = append(objects, object)
	}
}
