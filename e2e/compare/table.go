package compare

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
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
	kubernetes, _, err := w.Kubectl(ctx, nil, "version", "--output=json")
	if err != nil {
		return "", err
	}
	_, kubernetes, found := strings.Cut(kubernetes, `"serverVersion"`)
	_, kubernetes, _ = strings.Cut(kubernetes, `"gitVersion": "`)
	kubernetes, _, _ = strings.Cut(kubernetes, `"`)
	if !found {
		return "", errors.New("kubectl does not tell the version of the API server")
	}
	made := fmt.Sprintf("Measured on %s, with %d cores that everything shares: classbind at commit %s, Kyverno %s, Kubernetes %s, %s.\n",
		time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), bytes.TrimSpace(commit), KyvernoVersion, kubernetes, runtime.Version())
	return begin + made + render(w.settings, w.nobody, w.contenders) + end, nil
}

// row of a table: what is measured, by which file, and the value of a contender.
type row struct {
	what, file string
	value      func(c *contender) string
}

func rows(s Settings, nobody *contender) (rows []row) {
	for i, clients := range clientsOfCreates {
		rows = append(rows, row{
			fmt.Sprintf("create, %s, p50 and p99 in ms; nobody asked: %s", plural(clients, "client"), nobody.creates[i].quantiles()), "creates.go",
			func(c *contender) string { return c.creates[i].quantiles() },
		}, row{
			fmt.Sprintf("the p50 as a multiple of a create with nobody asked, %s", plural(clients, "client")), "creates.go",
			func(c *contender) string { return fmt.Sprintf("%.2f", c.creates[i].ratio) },
		})
	}
	for i := range 2 {
		what := "the only replica killed"
		if i > 0 {
			what = "one of two replicas killed"
		}
		rows = append(rows, row{
			fmt.Sprintf("%s, at %d creates a second: failed, stored without a class, seconds until the last of them", what, perSecond), "outages.go",
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
		fmt.Sprintf("of %d claims: dry runs with the class of the create", s.Repeated), "draws.go",
		func(c *contender) string { return fmt.Sprint(c.dryRuns) },
	}, row{
		fmt.Sprintf("of %d claims: those with the same class when they are created again", s.Repeated), "draws.go",
		func(c *contender) string { return fmt.Sprint(c.retries) },
	})
}

func plural(n int, what string) string {
	if n == 1 {
		return "one " + what
	}
	return fmt.Sprint(n, " ", what, "s")
}

func (c *creates) quantiles() string { return fmt.Sprintf("%.2f, %.1f", c.quantile(.5), c.quantile(.99)) }

// render the table, and below it what authors read.
func render(s Settings, nobody *contender, contenders []*contender) string {
	var text strings.Builder
	line := func(cells ...string) { text.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	names := []string{"measured"}
	for _, c := range contenders {
		names = append(names, c.name)
	}
	text.WriteString("\n")
	line(append(names, "by")...)
	text.WriteString(strings.Repeat("|---", len(names)+1) + "|\n")
	for _, r := range rows(s, nobody) {
		cells := []string{r.what}
		for _, c := range contenders {
			cells = append(cells, r.value(c))
		}
		line(append(cells, fmt.Sprintf("[`%[1]s`](../e2e/compare/%[1]s)", r.file))...)
	}
	text.WriteString("\nWhat the author of a claim reads if no class matches ([`draws.go`](../e2e/compare/draws.go)):\n\n```text\n")
	for i, c := range contenders {
		if i > 0 {
			text.WriteString("\n")
		}
		text.WriteString(c.name + ":\n" + c.unmatched + "\n")
	}
	return text.String() + "```\n"
}
