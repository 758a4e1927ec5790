package main

import (
	"context"
	"fmt"
	"os"
	"strings"
)

// developed is the name that deploy/ has for the image.
const developed = "localhost/classbind"

// manifests are deploy/ with the image of the release, each overlay in one file. A registry can move a tag, but not a digest.
func (b *builder) manifests(ctx context.Context) error {
	step("Writing the manifests")
	image := fmt.Sprintf(" image: %s:%s@%s\n", imageName, b.version, b.digest)
	for name, overlay := range map[string]string{"install.yaml": "deploy", "install-cert-manager.yaml": "deploy/cert-manager"} {
		text, err := output(ctx, b.root, os.Environ(), b.tool("kustomize"), "build", overlay)
		if err == nil {
			text, err = replaced(text, " image: "+developed+":dev\n", image)
		}
		if err != nil {
			return fmt.Errorf("cannot write %s: %w", name, err)
		}
		b.files[name] = []byte(text)
	}
	return nil
}

// replaced text, which must be there once.
func replaced(text, from, to string) (string, error) {
	if strings.Count(text, from) != 1 {
		return "", fmt.Errorf("%q must be there once", from)
	}
	return strings.Replace(text, from, to, 1), nil
}
