package compare

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
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
	made := fmt.Sprintf("Measured on %s, with %d cores that everything shares: classbind at commit %s, Kyverno %s, Kubernetes %s, %s.\n",
		time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), bytes.TrimSpace(commit),
		KyvernoVersion, server.GitVersion, runtime.Version())
	return begin + made + render(w.settings, w.all()) + end, nil
}

// row of a table: what is measured, by which file, and the value of a contender.
type row struct {
	what, file string
	value      func(c *contender) string
}

func rows(s Settings) (rows []row) {
	for i, clients := range clientsOfCreates {
		rows = append(rows, row{
			fmt.Sprintf("create, %s: p50 and p99 in ms", plural(clients, "client")), "creates.go",
			func(c *contender) string { return c.creates[i].quantiles() },
		}, row{
			"p50 as a multiple of the baseline", "creates.go",
			func(c *contender) string { return fmt.Sprintf("%.2f", c.creates[i].ratio) },
		})
	}
	for i, killed := range []string{"the only replica killed", "one of two replicas killed"} {
		rows = append(rows, row{
			killed + ": creates that failed, claims stored without a class, seconds until the last failure", "outages.go",
			func(c *contender) string {
				if c.server == nil {
					return "no process"
				}
				o := c.outages[i]
				return fmt.Sprintf("%d, %d, %.1f", o.failed, o.unbound, o.lasted.Seconds())
			},
		})
	}
	return append(rows, row{
		fmt.Sprintf("chi-square of %d draws, 9 degrees of freedom", s.Draws), "draws.go",
		func(c *contender) string { return fmt.Sprintf("%.1f", c.chiSquare) },
	}, row{
		fmt.Sprintf("dry runs with the class of the create, of %d", s.Repeated), "draws.go",
		func(c *contender) string { return fmt.Sprint(c.dryRuns) },
	}, row{
		fmt.Sprintf("claims with the same class when created again, of %d", s.Repeated), "draws.go",
		func(c *contender) string { return fmt.Sprint(c.retries) },
	})
}

func plural(n int, what string) string {
	if n == 1 {
		return "one " + what
	}
	return fmt.Sprint(n, " ", what, "s")
}

func (c *creates) quantiles() string {
	return fmt.Sprintf("%.2f, %.1f", c.quantile(.5), c.quantile(.99))
}

// render the table, and below it what authors read. Of the baseline, which comes first, only creates are measured.
func render(s Settings, contenders []*contender) string {
	var text strings.Builder
	line := func(cells ...string) { text.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	names := []string{"measured"}
	for _, c := range contenders {
		names = append(names, c.name)
	}
	text.WriteString("\n")
	line(append(names, "by")...)
	text.WriteString(strings.Repeat("|---", len(names)+1) + "|\n")
	for _, r := range rows(s) {
		cells := []string{r.what}
		for i, c := range contenders {
			if i == 0 && r.file != "creates.go" {
				cells = append(cells, "")
				continue
			}
			cells = append(cells, r.value(c))
		}
		line(append(cells, fmt.Sprintf("[`%[1]s`](../e2e/compare/%[1]s)", r.file))...)
	}
	text.WriteString("\nWhat the author of a claim reads if no class matches ([`draws.go`](../e2e/compare/draws.go)):\n\n```text\n")
	for _, c := range contenders[1:] {
		text.WriteString(c.name + ":\n" + c.unmatched + "\n\n")
	}
	return strings.TrimSuffix(text.String(), "\n") + "```\n"
}
