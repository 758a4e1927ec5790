package explain

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	yamlreader "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// stdin names standard input on the command line.
const stdin = "-"

// extensions of the files that are read in folders, the same as kubectl's.
var extensions = []string{"yaml", "yml", "json"}

// document is an object, and the file and place it was read from.
type document struct {
	unstructured.Unstructured
	where string
	// text is what it was read from, alone or with other items of a list. It begins in the file at this line, from 1.
	file string
	line int
	text []byte
	// stored says that it was named as an object of the cluster.
	stored bool
}

// isObject reports whether it is one of Kubernetes.
func (d document) isObject() bool { return d.GetAPIVersion() != "" && d.GetKind() != "" }

// apiVersion begins a line of nearly every manifest.
var apiVersion = regexp.MustCompile(`(?m)^[\s{]*"?apiVersion"?:`)

// fileReader reads files and standard input.
type fileReader struct {
	in io.Reader
	// recursive takes the folders in a folder, too.
	recursive bool
	// skip is told of a file in a folder that is no manifest, or a patch of a kustomization. Without it, it is read like others.
	skip func(file, why string)
}

// readAll reads the objects of files, folders and standard input, in their order.
func (r *fileReader) readAll(paths []string) ([]document, error) {
	var all []document
	for _, path := range paths {
		found, err := r.readPath(path)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

func (r *fileReader) readPath(path string) ([]document, error) {
	if path == stdin {
		return readDocuments(r.in, "standard input", nil)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read %q: %w", path, err)
	}
	if !info.IsDir() {
		return readFile(path, nil)
	}
	var all []document
	read, patches := false, map[string]bool{}
	err = filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("cannot read %q: %w", file, err)
		}
		if entry.IsDir() {
			if file != path && !r.recursive {
				return filepath.SkipDir
			}
			if r.skip != nil {
				addPatches(patches, file)
			}
			return nil
		}
		if extension := filepath.Ext(file); extension == "" || !slices.Contains(extensions, extension[1:]) {
			return nil
		}
		read = true
		if patches[filepath.Clean(file)] {
			r.skip(file, "a kustomization uses it as a patch; to check the result, render it first")
			return nil
		}
		found, err := readFile(file, r.skip)
		all = append(all, found...)
		return err
	})
	if err == nil && !read {
		err = fmt.Errorf("cannot read %q: the folder has no file that ends in .yaml, .yml or .json", path)
	}
	return all, err
}

// addPatches adds the files that the kustomization of a folder, if it has one, uses as patches. They are there beside what they
// change, in folders that are read later.
func addPatches(patches map[string]bool, folder string) {
	for _, name := range []string{"kustomization.yaml", "kustomization.yml", "Kustomization"} {
		text, err := os.ReadFile(filepath.Join(folder, name)) //nolint:gosec // The user names the folders.
		if err != nil {
			continue
		}
		k := struct {
			Patches []struct {
				Path string `json:"path"`
			} `json:"patches"`
			Merges []string `json:"patchesStrategicMerge"`
		}{}
		_ = yaml.Unmarshal(text, &k) // A file that cannot be parsed is an error when it is read.
		for _, p := range k.Patches {
			k.Merges = append(k.Merges, p.Path)
		}
		for _, p := range k.Merges { // Text of a patch names no file.
			patches[filepath.Join(folder, p)] = true
		}
	}
}

// readFile reads one file.
func readFile(file string, skip func(file, why string)) ([]document, error) {
	in, err := os.Open(file) //nolint:gosec // The user names the files.
	if err != nil {
		return nil, fmt.Errorf("cannot read: %w", err)
	}
	defer func() { _ = in.Close() }() // It is only read.
	return readDocuments(in, file, skip)
}

// readDocuments reads a stream, which must have objects alone. skip, if there is one, is told of a file that is no manifest.
func readDocuments(in io.Reader, name string, skip func(file, why string)) ([]document, error) {
	text, err := io.ReadAll(in)
	if err != nil {
		return nil, fmt.Errorf("cannot read: %w", err)
	}
	all, err := parse(text, name)
	if skip != nil && noManifest(text, all, err) {
		skip(name, "it is no manifest of Kubernetes")
		return nil, nil
	}
	if i := slices.IndexFunc(all, func(d document) bool { return !d.isObject() }); i >= 0 && err == nil {
		err = fmt.Errorf("cannot read %s: it is no object of Kubernetes: it needs an apiVersion and a kind", all[i].where)
	}
	return all, err
}

// noManifest reports whether a file of a folder is for another program: it has objects, and none for
// Kubernetes; or it cannot be parsed, and does not look like a manifest, or is a template of one.
func noManifest(text []byte, parsed []document, err error) bool {
	if err != nil {
		return !apiVersion.Match(text) || bytes.Contains(text, []byte("{{"))
	}
	return len(parsed) > 0 && !slices.ContainsFunc(parsed, document.isObject)
}

// parse reads strictly: with a duplicate field, the result would be arbitrary.
func parse(text []byte, name string) ([]document, error) {
	var all []document
	text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
	at := 0               // The next document begins there, or later.
	line, counted := 1, 0 // Lines are counted up to there, so each is counted once.
	reader := yamlreader.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for n := 1; ; n++ {
		read, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		where := fmt.Sprintf("%s, document %d", name, n)
		if err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", where, err)
		}
		raw, err := yaml.YAMLToJSONStrict(read)
		if err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", where, err)
		}
		var content any
		if err := json.Unmarshal(raw, &content); err != nil { // It decodes integers like the API server.
			return nil, fmt.Errorf("cannot read %s: %w", where, err)
		}
		if content == nil { // Only comments.
			continue
		}
		at += max(0, bytes.Index(text[at:], bytes.TrimSuffix(read, []byte("\n"))))
		line += bytes.Count(text[counted:at], []byte("\n"))
		counted = at
		for _, d := range objects(content, where) {
			d.file, d.line, d.text = name, line, read
			all = append(all, d)
		}
		at = min(len(text), at+len(read))
	}
}

// objects returns the objects of a document, which may be a list.
func objects(content any, where string) []document {
	object, _ := content.(map[string]any)
	d := document{Unstructured: unstructured.Unstructured{Object: object}, where: where}
	if items, ok := object["items"].([]any); ok {
		var all []document
		for i, item := range items {
			all = append(all, objects(item, fmt.Sprintf("%s, item %d", where, i+1))...)
		}
		return all
	}
	return []document{d}
}
