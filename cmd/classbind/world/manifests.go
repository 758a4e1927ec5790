package world

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	yamlreader "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/classbind/classbind/cmd/classbind/output"
	"github.com/classbind/classbind/selector/recovered"
)

// stdin names standard input on the command line.
const stdin = "-"

// maxFileBytes limits a file and standard input. The largest CRDs have some MiB.
const maxFileBytes = 32 << 20

// errNoFile is for what a folder may have and is not to be read: a device never ends, and a FIFO waits for somebody who writes.
var errNoFile = errors.New("it is no regular file: its content can be piped to -f -")

// Extensions of the files that are read in folders, the same as kubectl's.
var Extensions = []string{"yaml", "yml", "json"}

// Document is an object, and the file and place it was read from.
type Document struct {
	unstructured.Unstructured
	Where string
	// Text is what it was read from, alone or with other items of a list. It begins in the file at this line, from 1.
	File   string
	Line   int
	Text   []byte
	Stored bool // Stored reports whether it was named as an object of the cluster.
}

// isObject reports whether it is one of Kubernetes.
func (d Document) isObject() bool { return d.GetAPIVersion() != "" && d.GetKind() != "" }

// apiVersion begins a line of nearly every manifest.
var apiVersion = regexp.MustCompile(`(?m)^[\s{]*"?apiVersion"?:`)

// Manifests are objects that were read.
type Manifests []Document

// Files are where the files of a command come from, and how it reads them: all in the same way.
type Files struct {
	In       io.Reader
	Progress io.Writer // Progress is for notes.
	// Recursive reads the folders in a folder, too.
	Recursive bool
}

// AddRecursive adds the flag of Recursive to a command.
func AddRecursive(c *cobra.Command, recursive *bool) {
	c.Flags().BoolVarP(recursive, "recursive", "R", false, "read the folders in the folders that are named, too")
}

func (f Files) note(file, why string) {
	_, _ = fmt.Fprintf(f.Progress, "note: %q is left out: %s\n", file, why)
}

// Manifests of files and folders. A file that is no manifest is left out, with a note.
func (f Files) Manifests(ctx context.Context, paths []string) (Manifests, error) {
	return (&fileReader{Files: f, skip: f.note}).readAll(ctx, paths)
}

// Objects of files and folders, which must have objects of Kubernetes alone.
func (f Files) Objects(ctx context.Context, paths []string) (Manifests, error) {
	return (&fileReader{Files: f}).readAll(ctx, paths)
}

// CheckStdin returns an error if files name standard input more than once.
func CheckStdin(files ...[]string) error {
	if len(slices.DeleteFunc(slices.Concat(files...), func(path string) bool { return path != stdin })) > 1 {
		return errors.New("-: standard input can be read once: put the rest into a file")
	}
	return nil
}

// ParseManifests reads YAML or JSON.
func ParseManifests(text []byte) (Manifests, error) { return readDocuments(text, "the change", nil) }

// fileReader reads files and standard input.
type fileReader struct {
	Files
	// skip is called with a file in a folder that is no manifest, or a patch of a kustomization. Without it, it is read like others.
	skip func(file, why string)
}

// readAll reads the objects of files, folders and standard input, in their order.
func (r *fileReader) readAll(ctx context.Context, paths []string) (all Manifests, err error) {
	for _, path := range paths {
		found, err := r.readPath(ctx, path)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

func (r *fileReader) readPath(ctx context.Context, named string) (all Manifests, err error) {
	if named == stdin {
		text, err := readBounded(ctx, r.In)
		if err != nil {
			return nil, fmt.Errorf("cannot read standard input: %w", err)
		}
		return readDocuments(text, "standard input", nil)
	}
	info, err := os.Stat(named)
	if err != nil {
		return nil, fmt.Errorf("cannot read %q: %w", named, err)
	}
	if !info.IsDir() {
		return readFile(ctx, named, nil)
	}
	root, err := os.OpenRoot(named) // A link in the folder leads to no file elsewhere.
	if err != nil {
		return nil, fmt.Errorf("cannot read: %w", err)
	}
	defer func() { _ = root.Close() }()
	read, patches, folders := false, map[string]bool{}, 0
	err = fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		file, extension := filepath.Join(named, name), strings.TrimPrefix(filepath.Ext(name), ".")
		switch {
		case err != nil:
			return fmt.Errorf("cannot read %q: %w", file, err)
		case entry.IsDir() && name != "." && !r.Recursive:
			if !strings.HasPrefix(entry.Name(), ".") { // Such as .git.
				folders++
			}
			return fs.SkipDir
		case entry.IsDir() && r.skip != nil:
			addPatches(ctx, patches, root, name)
			return nil
		case entry.IsDir() || !slices.Contains(Extensions, extension):
			return nil
		}
		read = true
		if patches[name] {
			r.skip(file, "a kustomization uses it as a patch; to check the result, render it first")
			return nil
		}
		if info, err := root.Stat(name); err != nil || !info.Mode().IsRegular() {
			const why = "it is no regular file, nor a link to one in this folder"
			if r.skip == nil {
				return fmt.Errorf("cannot read %q: %s", file, why)
			}
			r.skip(file, why)
			return nil
		}
		found, err := readFile(ctx, file, r.skip)
		all = append(all, found...)
		return err
	})
	if err == nil {
		err = r.unread(named, folders, read)
	}
	return all, err
}

// unread notes the folders in a folder that are not read. It returns an error if nothing is.
func (r *fileReader) unread(named string, folders int, read bool) error {
	const recursive = "-R reads folders, too"
	switch {
	case read && folders > 0:
		_, _ = fmt.Fprintf(r.Progress, "note: %q has %s, which the command does not read: %s\n", named, output.Count(folders, "folder"),
			recursive)
	case folders > 0:
		return fmt.Errorf("cannot read %q: the folder has no file that ends in .yaml, .yml or .json, but %s: %s",
			named, output.Count(folders, "folder"), recursive)
	case !read:
		return fmt.Errorf("cannot read %q: the folder has no file that ends in .yaml, .yml or .json", named)
	}
	return nil
}

// readRegular reads a regular file within the limit.
func readRegular(
	ctx context.Context, name string, stat func(string) (fs.FileInfo, error), open func(string) (*os.File, error),
) ([]byte, error) {
	info, err := stat(name)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%q: %w", name, errNoFile)
	}
	if err != nil {
		return nil, err
	}
	f, err := open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // It was read.
	text, err := readBounded(ctx, f)
	if err != nil {
		err = fmt.Errorf("%q: %w", name, err)
	}
	return text, err
}

// readBounded reads all, at most maxFileBytes, until the context ends. Nothing else ends the read of a terminal or a pipe.
func readBounded(ctx context.Context, in io.Reader) (text []byte, err error) {
	done, read := make(chan error, 1), []byte(nil)
	go func() {
		done <- recovered.Do(func() (err error) {
			read, err = io.ReadAll(io.LimitReader(in, maxFileBytes+1))
			return err
		})
	}()
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case err = <-done:
		text = read
	}
	if err == nil && len(text) > maxFileBytes {
		err = fmt.Errorf("it is larger than %d MiB: split it", maxFileBytes>>20)
	}
	return text, err
}

// addPatches adds the files that the kustomization of a folder, if it has one, uses as patches. They are there beside what they change, in
// folders that are read later.
func addPatches(ctx context.Context, patches map[string]bool, root *os.Root, folder string) {
	for _, name := range []string{"kustomization.yaml", "kustomization.yml", "Kustomization"} {
		text, err := readRegular(ctx, path.Join(folder, name), root.Stat, root.Open)
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
			patches[path.Join(folder, filepath.ToSlash(p))] = true
		}
	}
}

func readFile(ctx context.Context, file string, skip func(file, why string)) (Manifests, error) {
	text, err := readRegular(ctx, file, os.Stat, os.Open)
	if err != nil {
		return nil, fmt.Errorf("cannot read: %w", err)
	}
	return readDocuments(text, file, skip)
}

// readDocuments of a file, which must have objects alone. skip, if there is one, is called with a file that is no manifest.
func readDocuments(text []byte, name string, skip func(file, why string)) (Manifests, error) {
	all, err := parse(text, name)
	if skip != nil && noManifest(text, all, err) {
		skip(name, "it is no manifest of Kubernetes")
		return nil, nil
	}
	if i := slices.IndexFunc(all, func(d Document) bool { return !d.isObject() }); i >= 0 && err == nil {
		err = fmt.Errorf("cannot read %s: it is no object of Kubernetes: it needs an apiVersion and a kind", all[i].Where)
	}
	return all, err
}

// noManifest reports whether a file of a folder is for another program: it has objects, and none for Kubernetes; or it cannot be parsed,
// and does not look like a manifest, or is a template of one.
func noManifest(text []byte, parsed []Document, err error) bool {
	if err != nil {
		return !apiVersion.Match(text) || bytes.Contains(text, []byte("{{"))
	}
	return len(parsed) > 0 && !slices.ContainsFunc(parsed, Document.isObject)
}

// parse reads strictly: with a duplicate field, the result would be arbitrary.
func parse(text []byte, name string) (all Manifests, err error) {
	rest, line := bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n")), 1
	reader := yamlreader.NewYAMLReader(bufio.NewReader(bytes.NewReader(rest)))
	pass := func(n int) { // So that each line is counted once.
		line += bytes.Count(rest[:n], []byte("\n"))
		rest = rest[n:]
	}
	for n := 1; ; n++ {
		var content any
		where := fmt.Sprintf("%s, document %d", name, n)
		read, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		raw := read
		if err == nil {
			raw, err = yaml.YAMLToJSONStrict(read)
		}
		if err == nil {
			err = json.Unmarshal(raw, &content) // It decodes integers like the API server.
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", where, err)
		}
		if content == nil { // Only comments.
			continue
		}
		pass(max(0, bytes.Index(rest, bytes.TrimSuffix(read, []byte("\n")))))
		all = appendObjects(all, content, Document{Where: where, File: name, Line: line, Text: read})
		pass(min(len(rest), len(read)))
	}
}

// appendObjects of a document, which may be a list.
func appendObjects(all Manifests, content any, of Document) Manifests {
	of.Object, _ = content.(map[string]any)
	items, ok := of.Object["items"].([]any)
	if !ok {
		return append(all, of)
	}
	where := of.Where
	for i, item := range items {
		of.Where = fmt.Sprintf("%s, item %d", where, i+1)
		all = appendObjects(all, item, of)
	}
	return all
}
