package assets

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

const (
	// setupEnvtest is the command that downloads what envtest needs, checks it against its index, and stores it for all projects of a user.
	setupEnvtest = "sigs.k8s.io/controller-runtime/tools/setup-envtest@v0.25.1"
	// envIndex is the address of another index than defaultIndex, which is setup-envtest's own. It is indexOff to download nothing.
	envIndex     = "ENVTEST_INDEX"
	indexOff     = "off"
	defaultIndex = "https://raw.githubusercontent.com/kubernetes-sigs/controller-tools/HEAD/envtest-releases.yaml"

	// reachTimeout is for an index that does not answer, and downloadTimeout for the binaries.
	reachTimeout    = 10 * time.Second
	downloadTimeout = 10 * time.Minute
)

// errNoDownload means that the binaries cannot be had by a download. Other errors of download are to be mended by the user.
var errNoDownload = errors.New("cannot download them")

// stored returns the folder of binaries of the same minor version that envtest has stored.
func (s source) stored(ctx context.Context) (dir string, ok bool) {
	dir, err := goOutput(ctx, "", "run", setupEnvtest, "use", "--installed-only", "--print=path", s.anyPatch())
	return dir, err == nil && complete(dir) == nil
}

// download has envtest store the newest binaries of the same minor version.
func (s source) download(ctx context.Context, progress io.Writer) (dir string, err error) {
	index := os.Getenv(envIndex)
	switch index {
	case "":
		index = defaultIndex
	case indexOff:
		return "", fmt.Errorf("%w: $%s is %q", errNoDownload, envIndex, index)
	}
	ctx, cancel := context.WithTimeout(ctx, downloadTimeout)
	defer cancel()
	if err := reach(ctx, index); err != nil {
		return "", fmt.Errorf("%w: %w", errNoDownload, err)
	}
	what := fmt.Sprintf("downloading %s of Kubernetes %s, as %s lists them", strings.Join(binaries, ", "), s.anyPatch(), index)
	dir, err = s.run(ctx, progress, what, "run", setupEnvtest, "use", "--print=path", "--index="+index, s.anyPatch())
	switch {
	case err == nil:
	case strings.Contains(err.Error(), "checksum mismatch"):
		return "", fmt.Errorf("the download is not what the index says: %w; try again, set $%s to an index that you trust, "+
			"or to %s to build from source", err, envIndex, indexOff)
	default:
		return "", fmt.Errorf("%w: %w", errNoDownload, err)
	}
	if err := complete(dir); err != nil {
		return "", fmt.Errorf("%w: %w", errNoDownload, err)
	}
	_, _ = fmt.Fprintf(progress, "stored in %s\n", dir)
	return dir, nil
}

// reach fails soon where there is no way to the index. setup-envtest would wait for minutes.
func reach(ctx context.Context, index string) error {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, index, nil) //nolint:gosec // The user names the index.
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request) //nolint:gosec // As above.
	if err != nil {
		return err
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", index, response.Status)
	}
	return nil
}

// anyPatch is the version as setup-envtest takes it, such as 1.37.x.
func (s source) anyPatch() string {
	major, minor := s.minor()
	return major + "." + minor + ".x"
}
