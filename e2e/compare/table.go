package compare

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/discovery"
)

// The table stands between these lines of the document.
const (
	begin = "<!-- make compare writes from here -->\n"
	end   = "<!-- to here -->\n"
)

// Write a table into the document at a path.
func Write(path, table string) error {
	page, err := os.ReadFile(path) //nolint:gosec // The caller chooses it.
	if err != nil {
		return err
	}
	before, rest, found := bytes.Cut(page, []byte(begin))
	_, after, ends := bytes.Cut(rest, []byte(end))
	if !found || !ends {
		return fmt.Errorf("%s lacks the lines %q and %q", path, begin, end)
	}
	return os.WriteFile(path, bytes.Join([][]byte{before, []byte(table), after}, nil), 0o644) //nolint:gosec // It is a document.
}

// table with how it was made.
func (w *world) table(ctx context.Context) (string, error) {
	commit, err := exec.CommandContext(ctx, "git", "rev-parse", "--short=10", "HEAD").Output()
	if err != nil {
		return "", fmt.Errorf("cannot find the commit: %w", err)
	}
	server, err := discovery.NewDiscoveryClientForConfigOrDie(w.Config).ServerVersion()
	if err != nil {
		return "", err
	}
	var text strings.Builder
	_, _ = fmt.Fprintf(&text, "%sMeasured on %s, with %d cores that everything shares: "+
		"classbind at commit %s, Kyverno %s, Kubernetes %s, %s.\n\n", begin,
		time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), bytes.TrimSpace(commit),
		KyvernoVersion, server.GitVersion, runtime.Version())
	names := []string{"measured"}
	for _, c := range w.all() {
		names = append(names, c.name)
	}
	text.WriteString(line(append(names, "by")) + strings.Repeat("|---", len(names)+1) + "|\n" + w.rows)
	text.WriteString(end)
	_, _ = fmt.Fprint(w.settings.Progress, "\nWhat the author of a claim reads if no class matches:\n\n", w.unmatched)
	return text.String(), nil
}

// row of the table: what is measured, by which file, and a cell for each contender.
func (w *world) row(what, file string, cells []string) {
	by := fmt.Sprintf("[`%[1]s`](../e2e/compare/%[1]s)", file)
	row := line(slices.Concat([]string{what}, cells, []string{by}))
	_, _ = fmt.Fprint(w.settings.Progress, row)
	w.rows += row
}

func line(cells []string) string { return "| " + strings.Join(cells, " | ") + " |\n" }
