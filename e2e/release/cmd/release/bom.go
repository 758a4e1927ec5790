package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// boms are what each binary has in it, read from the binary itself, in CycloneDX's form.
func (b *builder) boms(ctx context.Context) error {
	for _, of := range platforms {
		step("Listing what the binary of %s/%s is made of", of.os, of.arch)
		bom, err := b.bom(ctx, of)
		if err != nil {
			return fmt.Errorf("cannot list what the binary of %s/%s is made of: %w", of.os, of.arch, err)
		}
		b.files[b.name(of, ".cdx.json")] = bom
	}
	return nil
}

func (b *builder) bom(ctx context.Context, of platform) ([]byte, error) {
	path := filepath.Join(b.work, "bom.json")
	// The licenses are in the modules, which have been downloaded to compile. Without the proxy, the list cannot change
	// once the proxy knows this version, too. go.sum has their checksums: asking the checksum database needs the proxy.
	env := append(os.Environ(), "GOPROXY=off", "GOSUMDB=off", "GOFLAGS=-mod=mod", "GOWORK=off")
	if _, err := output(ctx, b.work, env, b.tool("cyclonedx-gomod"), "bin", "-json", "-noserial", "-notimestamp",
		"-std", "-licenses", "-assert-licenses", "-version", b.version, "-output", path, b.binary(of)); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(path) //nolint:gosec // The tool has just written it.
	if err != nil {
		return nil, err
	}
	return settled(text)
}

// settled is a list without what differs between machines: checksums of the tool that wrote it. The tool does not look up
// our own license, nor that of Go.
func settled(text []byte) ([]byte, error) {
	var bom map[string]any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&bom); err != nil {
		return nil, err
	}
	metadata, _ := bom["metadata"].(map[string]any)
	component, _ := metadata["component"].(map[string]any)
	tools, _ := metadata["tools"].([]any)
	if component == nil || len(tools) == 0 {
		return nil, fmt.Errorf("it names no component or no tool")
	}
	setLicense(component, license)
	components, _ := bom["components"].([]any)
	for _, c := range components {
		if c, ok := c.(map[string]any); ok && c["name"] == "std" {
			setLicense(c, "BSD-3-Clause")
		}
	}
	for _, tool := range tools {
		if tool, ok := tool.(map[string]any); ok {
			delete(tool, "hashes")
		}
	}
	var settled bytes.Buffer
	encoder := json.NewEncoder(&settled)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(bom) // sorts
	return settled.Bytes(), err
}

func setLicense(component map[string]any, id string) {
	component["licenses"] = []any{map[string]any{"license": map[string]any{"id": id}}}
}
