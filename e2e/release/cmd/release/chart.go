package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/classbind/classbind/e2e/release/image"
)

// chart packs deploy/chart under the name that helm package gives it, with the version and the image of the release. Its links
// become folders. Helm itself would write other bytes after another checkout.
func (b *builder) chart(ctx context.Context) error {
	step("Packing the chart")
	version := strings.TrimPrefix(b.version, "v")
	files := map[string]image.File{}
	for _, name := range []string{"", "base", "components", "crd"} {
		folder := path.Join("deploy", cmp.Or(name, "chart"))
		list, err := b.git(ctx, "ls-files", "--", folder)
		if err != nil {
			return err
		}
		for file := range strings.Lines(list) {
			file = strings.TrimSpace(file)
			from := filepath.Join(b.root, filepath.FromSlash(file))
			// What .helmignore leaves out, and the links.
			if info, err := os.Stat(from); err != nil || info.IsDir() || strings.HasPrefix(path.Ext(file), ".go") {
				continue
			}
			content, err := os.ReadFile(from) //nolint:gosec // It is ours.
			if err != nil {
				return err
			}
			files[path.Join("classbind", name, strings.TrimPrefix(file, folder))] = image.File{Mode: 0o644, Content: content}
		}
	}
	for _, change := range []struct{ file, from, to string }{
		{"Chart.yaml", "\nversion: 0.0.0\n", "\nversion: " + version + "\n"},
		{"Chart.yaml", "\nappVersion: dev\n", "\nappVersion: " + b.version + "\n"},
		{"values.yaml", " repository: " + developed + "\n", " repository: " + imageName + "\n"},
		{"values.yaml", " tag: dev\n", " tag: " + b.version + "\n"},
		{"values.yaml", " digest: \"\"\n", " digest: " + b.digest.String() + "\n"},
		{"README.md", "| `image.digest` | `\"\"` |", "| `image.digest` | `\"" + b.digest.String() + "\"` |"},
		{"README.md", "`\"" + developed + "\"`", "`\"" + imageName + "\"`"},
		{"README.md", "`\"dev\"`", "`\"" + b.version + "\"`"},
	} {
		file := files["classbind/"+change.file]
		text, err := replaced(string(file.Content), change.from, change.to)
		if err != nil {
			return fmt.Errorf("cannot pack the chart: %s: %w", change.file, err)
		}
		files["classbind/"+change.file] = image.File{Mode: file.Mode, Content: []byte(text)}
	}
	archive, err := b.targz(files)
	b.files["classbind-"+version+".tgz"] = archive
	return err
}
