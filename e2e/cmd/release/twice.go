package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// twice builds the release of the commit in two clones, in folders of different names, and compares the checksums.
func (p project) twice(ctx context.Context, version string, progress io.Writer) error {
	if err := p.checkTree(ctx); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "classbind-twice-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	var built []string
	for _, name := range []string{"one", "another/folder"} {
		clone := p
		clone.root = filepath.Join(dir, filepath.FromSlash(name))
		if _, err := p.git(ctx, "clone", "--quiet", "--no-hardlinks", p.root, clone.root); err != nil {
			return fmt.Errorf("cannot clone %s: %w", p.root, err)
		}
		if err := clone.release(ctx, version, progress); err != nil {
			return err
		}
		text, err := os.ReadFile(filepath.Join(clone.root, "dist", sums))
		if err != nil {
			return err
		}
		built = append(built, string(text))
	}
	if different := differences(built[0], built[1]); len(different) > 0 {
		return fmt.Errorf("two builds of one commit differ: %s", strings.Join(different, ", "))
	}
	_, err = fmt.Fprintf(progress, "==> Both builds of %s are the same\n", version)
	return err
}

// differences are the names of files with other checksums, or that only one has.
func differences(one, another string) []string {
	entries := map[string]int{}
	for _, text := range []string{one, another} {
		for line := range strings.Lines(text) {
			entries[strings.TrimSpace(line)]++
		}
	}
	names := map[string]bool{}
	for line, n := range entries {
		if n != 2 {
			_, name, _ := strings.Cut(line, "  ")
			names[name] = true
		}
	}
	return sorted(names)
}
