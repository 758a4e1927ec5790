package main

import (
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/classbind/classbind/controller/controllertest"
)

func TestVersion(t *testing.T) {
	out, err := run(t, "version")
	require.NoError(t, err)
	assert.Regexp(t, `^classbind \S+ go1\.\S.* [a-z0-9]+/[a-z0-9]+\n$`, out, "We should print one line that a bug report can quote.")
}

func TestBuildOf(t *testing.T) {
	stamped := &debug.BuildInfo{
		Main:     debug.Module{Version: "v0.0.0-20260101000000-0123456789ab"},
		Settings: []debug.BuildSetting{{Key: "-trimpath", Value: "true"}, {Key: "vcs.revision", Value: "0123456789abcdef"}},
	}
	for name, tc := range map[string]struct {
		reason          string
		version, commit string
		info            *debug.BuildInfo
		want            build
	}{
		"Release": {reason: "We should name a release as it was named, whatever the go command found.", version: "v0.1.0", commit: "fedcba", info: stamped, want: build{version: "v0.1.0", commit: "fedcba"}},
		"Commit":  {reason: "We should name the commit where there is no release.", info: stamped, want: build{version: "v0.0.0-20260101000000-0123456789ab", commit: "0123456789abcdef"}},
		"Devel":   {reason: "We should keep what the go command says of a folder without git.", info: &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, want: build{version: "(devel)"}},
		"Archive": {reason: "We should take the version of a package that is built from an archive of the source.", version: "v0.1.0", info: &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, want: build{version: "v0.1.0"}},
		"Nothing": {reason: "We should have a version even where the go command stamped none.", want: build{version: "(devel)"}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.want, buildOf(tc.version, tc.commit, tc.info), tc.reason)
		})
	}
}

func TestBuildInfo(t *testing.T) {
	before, registry := metrics.Registry, prometheus.NewRegistry()
	metrics.Registry = registry
	t.Cleanup(func() { metrics.Registry = before })
	b := build{version: "v0.1.0", commit: "fedcba"}
	require.NoError(t, b.RegisterMetrics())
	assert.Equal(t, map[string]float64{"build_info goversion=" + runtime.Version() + " revision=fedcba version=v0.1.0": 1}, controllertest.Scraped(t, registry),
		"We should tell Prometheus which version each replica has, with a value that a query can multiply by.")
	require.Error(t, b.RegisterMetrics(), "We should not hide that a metric is registered twice.")
}
