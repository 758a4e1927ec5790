package explain

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
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
}

// readAll reads the objects of files, folders and standard input, in their order.
func readAll(paths []string, in io.Reader, recursive bool) ([]document, error) {
	var all []document
	for _, path := range paths {
		found, err := readPath(path, in, recursive)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

func readPath(path string, in io.Reader, recursive bool) ([]document, error) {
	if path == stdin {
		return readDocuments(in, "standard input")
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read %q: %w", path, err)
	}
	if !info.IsDir() {
		return readFile(path)
	}
	var all []document
	read := false
	err = filepath.WalkDir(path, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("cannot read %q: %w", file, err)
		}
		if entry.IsDir() {
			if file != path && !recursive {
				return filepath.SkipDir
			}
			return nil
		}
		if extension := filepath.Ext(file); extension == "" || !slices.Contains(extensions, extension[1:]) {
			return nil
		}
		read = true
		found, err := readFile(file)
		all = append(all, found...)
		return err
	})
	if err == nil && !read {
		err = fmt.Errorf("cannot read %q: the folder has no file that ends in .yaml, .yml or .json", path)
	}
	return all, err
}

func readFile(path string) ([]document, error) {
	f, err := os.Open(path) //nolint:gosec // The user names the files.
	if err != nil {
		return nil, fmt.Errorf("cannot read: %w", err)
	}
	defer func() { _ = f.Close() }()
	return readDocuments(f, path)
}

// readDocuments reads strictly: with a duplicate field, the result would be arbitrary.
func readDocuments(in io.Reader, name string) ([]document, error) {
	var all []document
	reader := yamlreader.NewYAMLReader(bufio.NewReader(in))
	for n := 1; ; n++ {
		text, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		where := fmt.Sprintf("%s, document %d", name, n)
		if err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", where, err)
		}
		raw, err := yaml.YAMLToJSONStrict(text)
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
		found, err := objects(content, where)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
}

// objects returns the objects of a document, which may be a list.
func objects(content any, where string) ([]document, error) {
	object, _ := content.(map[string]any)
	d := document{Unstructured: unstructured.Unstructured{Object: object}, where: where}
	if items, ok := object["items"].([]any); ok {
		var all []document
		for i, item := range items {
			found, err := objects(item, fmt.Sprintf("%s, item %d", where, i+1))
			if err != nil {
				return nil, err
			}
			all = append(all, found...)
		}
		return all, nil
	}
	if d.GetAPIVersion() == "" || d.GetKind() == "" {
		return nil, fmt.Errorf("cannot read %s: it is no object of Kubernetes: it needs an apiVersion and a kind", where)
	}
	return []document{d}, nil
}
