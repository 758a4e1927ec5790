package main

import (
	"context"

	"sigs.k8s.io/yaml"
)

// krew's manifest of a plugin of kubectl: https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/
type (
	krewPlugin struct {
		APIVersion string   `json:"apiVersion"`
		Kind       string   `json:"kind"`
		Metadata   krewName `json:"metadata"`
		Spec       krewSpec `json:"spec"`
	}
	krewName struct {
		Name string `json:"name"`
	}
	krewSpec struct {
		Version          string         `json:"version"`
		Homepage         string         `json:"homepage"`
		ShortDescription string         `json:"shortDescription"`
		Description      string         `json:"description"`
		Platforms        []krewPlatform `json:"platforms"`
	}
	krewPlatform struct {
		Selector krewSelector `json:"selector"`
		URI      string       `json:"uri"`
		SHA256   string       `json:"sha256"`
		Files    []krewFile   `json:"files"`
		Bin      string       `json:"bin"` // which krew links as kubectl-classbind
	}
	krewSelector struct {
		MatchLabels map[string]string `json:"matchLabels"`
	}
	krewFile struct {
		From string `json:"from"`
		To   string `json:"to"`
	}
)

// krew writes krew.yaml, which an index of plugins has as classbind.yaml.
func (b *builder) krew(context.Context) error {
	plugin := krewPlugin{
		APIVersion: "krew.googlecontainertools.github.com/v1alpha2", Kind: "Plugin", Metadata: krewName{Name: "classbind"},
		Spec: krewSpec{
			Version: b.version, Homepage: b.repository, ShortDescription: "Explain and manage the classes of claims",
			Description: `Commands for clusters in which classbind binds claims to classes:
explain says which class a claim gets and why, status says what is broken,
set-default moves the default class, and kinds lists and prints presets.
`,
		},
	}
	for _, of := range platforms {
		name := b.name(of, ".tar.gz")
		plugin.Spec.Platforms = append(plugin.Spec.Platforms, krewPlatform{
			Selector: krewSelector{MatchLabels: map[string]string{"os": of.os, "arch": of.arch}},
			URI:      b.repository + "/releases/download/" + b.version + "/" + name,
			SHA256:   checksum(b.files[name]),
			Files:    []krewFile{{From: "classbind", To: "."}, {From: "LICENSE", To: "."}},
			Bin:      "classbind",
		})
	}
	text, err := yaml.Marshal(plugin)
	b.files["krew.yaml"] = text
	return err
}
