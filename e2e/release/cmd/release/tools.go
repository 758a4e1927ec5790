package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// The tools, at the versions that make a release. Another version may write other bytes.
const (
	kustomize = "sigs.k8s.io/kustomize/kustomize/v5@v5.8.1"
	cyclonedx = "github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0"
)

// install the tools into the work folder. GOOS and GOARCH of the caller are not for them.
func (b *builder) install(ctx context.Context) error {
	for _, tool := range []string{kustomize, cyclonedx} {
		step("Installing %s (a first time, for half a minute)", tool)
		env := append(os.Environ(), "GOBIN="+filepath.Join(b.work, "tools"),
			"GOOS=", "GOARCH=", "CGO_ENABLED=0", "GOFLAGS=-trimpath", "GOWORK=off")
		if _, err := output(ctx, b.work, env, "go", "install", tool); err != nil {
			return fmt.Errorf("cannot install %s: %w", tool, err)
		}
	}
	return nil
}

func (b *builder) tool(name string) string { return filepath.Join(b.work, "tools", name) }
