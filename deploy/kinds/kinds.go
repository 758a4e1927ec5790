// Package kinds is the presets: a folder for each, with the registrations of kinds that
// people run, for those who print them.
package kinds

import "embed"

// Files are a kustomization for each preset, with an example and a README, whose first
// line says what gets a class.
//
//go:embed */*.yaml */*.md */example/*.yaml
var Files embed.FS
