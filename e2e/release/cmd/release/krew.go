package main

import (
	"context"

	"sigs.k8s.io/yaml"
)

// krew writes krew.yaml, which an index of plugins has as classbind.yaml: https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/
func (b *builder) krew(context.Context) error {
	var archives []map[string]any
	for _, of := range platforms {
		name := b.name(of, ".tar.gz")
		archives = append(archives, map[string]any{
			"selector": map[string]any{"matchLabels": map[string]string{"os": of.os, "arch": of.arch}},
			"uri":      repository + "/releases/download/" + b.version + "/" + name,
			"sha256":   checksum(b.files[name]),
			"files":    []map[string]string{{"from": "classbind", "to": "."}, {"from": "LICENSE", "to": "."}},
			"bin":      "classbind", // which krew links as kubectl-classbind
		})
	}
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "krew.googlecontainertools.github.com/v1alpha2", "kind": "Plugin", "metadata": map[string]string{"name": "classbind"},
		"spec": map[string]any{
			"version": b.version, "homepage": repository, "shortDescription": "Explain and manage the classes of claims",
			"description": `Commands for clusters in which classbind binds claims to classes:
explain says which class a claim gets and why, status says what is broken,
set-default moves the default class, and kinds lists and prints presets.
`,
			"platforms": archives,
		},
	})
	b.files["krew.yaml"] = text
	return err
}
