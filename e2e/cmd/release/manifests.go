package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// developed is the name that deploy/ has for the image.
const developed = "localhost/classbind"

// manifests are deploy/ with the image of the release, each overlay in one file. A registry can move a tag, but not a digest.
func (b *builder) manifests(ctx context.Context) error {
	step("Writing the manifests")
	for name, overlay := range map[string]string{"install.yaml": "deploy", "install-cert-manager.yaml": "deploy/cert-manager"} {
		text, err := b.manifest(ctx, overlay)
		if err != nil {
			return fmt.Errorf("cannot write %s: %w", name, err)
		}
		b.files[name] = []byte(text)
	}
	return nil
}

func (b *builder) manifest(ctx context.Context, overlay string) (string, error) {
	folder, err := os.MkdirTemp(b.work, "overlay-")
	if err != nil {
		return "", err
	}
	// kustomize takes no absolute paths, and follows symbolic links first.
	if folder, err = filepath.EvalSymlinks(folder); err != nil {
		return "", err
	}
	base, err := filepath.EvalSymlinks(filepath.Join(b.root, filepath.FromSlash(overlay)))
	if err != nil {
		return "", err
	}
	if base, err = filepath.Rel(folder, base); err != nil {
		return "", err
	}
	text := fmt.Sprintf(`apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [%q]
images: [{name: %s, newName: %q, newTag: %q, digest: %q}]
sortOptions: {order: fifo}
`, filepath.ToSlash(base), developed, imageName, b.version, b.digest)
	if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		return "", err
	}
	return output(ctx, folder, os.Environ(), b.tool("kustomize"), "build", ".")
}
