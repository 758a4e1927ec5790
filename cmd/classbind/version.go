package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// A release sets both with -ldflags=-X: the go command reads a version from a tag, and a release can be built before its
// tag is set and without the history of git. They are empty in any other binary.
var releaseVersion, releaseCommit string

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of classbind and of the Go that built it",
		Args:  cobra.NoArgs,

		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(c.OutOrStdout(), "classbind %s %s %s/%s\n",
				ownBuild().version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}

// build is what a binary knows of its origin.
type build struct {
	version string
	commit  string // of git, or "" if nobody told
}

// ownBuild returns the build of this binary.
func ownBuild() build {
	info, _ := debug.ReadBuildInfo()
	return buildOf(releaseVersion, releaseCommit, info)
}

// buildOf a release, or else of what the go command stamped, if it stamped anything: the tag of the commit or a pseudo-version of it.
func buildOf(version, commit string, info *debug.BuildInfo) build {
	info = cmp.Or(info, &debug.BuildInfo{})
	b := build{version: cmp.Or(version, info.Main.Version, "(devel)"), commit: commit}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			b.commit = cmp.Or(commit, setting.Value)
		}
	}
	return b
}

// RegisterMetrics adds a metric that is always 1, for its labels.
func (b build) RegisterMetrics() error {
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "classbind_build_info",
		Help: "Always 1. The labels are the version of this replica, its commit, and the version of Go that built it.",
	}, []string{"version", "revision", "goversion"})
	info.WithLabelValues(b.version, b.commit, runtime.Version()).Set(1)
	return metrics.Registry.Register(info)
}
