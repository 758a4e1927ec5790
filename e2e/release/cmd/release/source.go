package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	semver "k8s.io/apimachinery/pkg/util/version"
)

// checkVersion refuses what is no version of Semantic Versioning. The + that comes before build metadata cannot be in the tag of an image.
func checkVersion(version string) error {
	if version == "" {
		return errors.New("VERSION is not set: name the version, as in make release VERSION=v0.1.0")
	}
	if parsed, err := semver.ParseSemantic(version); err != nil || version != "v"+parsed.String() || parsed.BuildMetadata() != "" {
		return fmt.Errorf("VERSION is %q: it must be like v0.1.0 or v0.2.0-rc.1, with a v in front "+
			"(Semantic Versioning, without build metadata)", version)
	}
	return nil
}

// source is the commit that a release is made of.
type source struct {
	version string
	commit  string
	time    time.Time // of the commit, and of every file in the release
}

// git runs a command of git in the folder of the project.
func (p project) git(ctx context.Context, args ...string) (string, error) {
	out, err := output(ctx, p.root, os.Environ(), "git", args...)
	return strings.TrimSpace(out), err
}

// source of a version is the commit that is checked out. The version needs no tag, so that a release can be tried first.
func (p project) source(ctx context.Context, version string) (source, error) {
	s := source{version: version}
	if err := p.checkTree(ctx); err != nil {
		return s, err
	}
	head, err := p.git(ctx, "show", "--no-patch", "--format=%H %ct", "HEAD")
	if err != nil {
		return s, err
	}
	commit, seconds, _ := strings.Cut(head, " ")
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return s, fmt.Errorf("cannot read the time of the commit %s: %w", commit, err)
	}
	s.commit, s.time = commit, time.Unix(unix, 0).UTC()
	// git prints nothing where there is no such tag.
	tagged, err := p.git(ctx, "for-each-ref", "refs/tags/"+version,
		"--format=%(if)%(*objectname)%(then)%(*objectname)%(else)%(objectname)%(end)")
	if err != nil {
		return s, err
	}
	if tagged != "" && tagged != commit {
		return s, fmt.Errorf("%s is the tag of the commit %s, and %s is checked out: git checkout %s, or choose another VERSION",
			version, tagged, commit, version)
	}
	return s, nil
}

// checkTree refuses a folder that is not what a commit says, because it could not be built again.
func (p project) checkTree(ctx context.Context) error {
	// The source in an archive, unpacked in the repository of somebody else, is below its root.
	below, err := p.git(ctx, "rev-parse", "--show-prefix")
	if err == nil && below != "" {
		err = fmt.Errorf("it is the folder %s of a repository", below)
	}
	if err != nil {
		return fmt.Errorf("cannot determine which commit this is: %w: make the release in a clone of the repository; "+
			"make build VERSION=… builds the binary without git", err)
	}
	changed, err := p.git(ctx, "status", "--porcelain")
	if err != nil {
		return err
	}
	if changed != "" {
		return fmt.Errorf("the folder is not what is committed: commit the changes, "+
			"or put them aside with git stash --include-untracked:\n%s", changed)
	}
	return nil
}
