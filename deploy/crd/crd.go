// Package crd is the CustomResourceDefinitions of ClaimKind and ClassKind, for
// those who treat manifests as the API server would.
package crd

import "embed"

// Files are those that are applied.
//
//go:embed classbind.io_*.yaml
var Files embed.FS
