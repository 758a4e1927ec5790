package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/controlplane"
)

type statusReport struct {
	Sections []struct {
		Name, State, Summary string
		Findings             []struct{ Where, What, Do string }
		Notes                []string
		Unbound              map[string]int
		Unread               []struct{ What, Why, Do string }
	}
}

// findings are SECTION: WHERE: WHAT, and what to do in a line of its own, if it is said.
func (r statusReport) findings() (all []string) {
	for _, s := range r.Sections {
		for _, f := range s.Findings {
			text := s.Name + ": " + f.Where + ": " + f.What
			if f.Do != "" {
				text += "\n  Do: " + f.Do
			}
			all = append(all, untimed(text))
		}
	}
	return all
}

var (
	times  = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
	leader = regexp.MustCompile(`the leader is \S+`)
)

// untimed replaces what differs between any two runs.
func untimed(text string) string {
	return leader.ReplaceAllString(times.ReplaceAllString(text, "TIME"), "the leader is NAME")
}

func (w *world) classbind(t require.TestingT, args ...string) (stdout, stderr string, exit int) {
	var out, errOut strings.Builder
	cmd := exec.CommandContext(context.Background(), command, args...) //nolint:gosec // It runs the command under test.
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), "GORACE=atexit_sleep_ms=0"), &out, &errOut
	if err := cmd.Run(); !errors.As(err, new(*exec.ExitError)) {
		require.NoError(t, err)
	}
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
}

// reportOf a command that prints JSON.
func reportOf[T any](t *testing.T, w *world, args ...string) (report T) {
	out, stderr, _ := w.classbind(t, args...)
	require.NoError(t, json.Unmarshal([]byte(out), &report), "%s%s", out, stderr)
	return report
}

func (w *world) status(t require.TestingT, kubeconfig string) (report statusReport, exit int, stderr string) {
	out, stderr, exit := w.classbind(t, "status", "--output=json", "--kubeconfig="+kubeconfig)
	if len(out) > 0 {
		require.NoError(t, json.Unmarshal([]byte(out), &report))
	}
	return report, exit, stderr
}

// awaitStatus waits until exactly this is found, or nothing, and returns the table of it.
func (w *world) awaitStatus(t *testing.T, reason, want string) (report statusReport, table string) {
	eventually(t, func(c *attempt) {
		var exit int
		var stderr string
		report, exit, stderr = w.status(c, w.plane.Kubeconfig)
		require.Equal(c, want, strings.Join(report.findings(), "\n"), reason)
		require.Equal(c, min(len(want), 1), exit, stderr)
		table, stderr, exit = w.classbind(c, "status", "--kubeconfig="+w.plane.Kubeconfig)
		require.Equal(c, min(len(want), 1), exit, stderr)
		_, line, _ := strings.Cut(want, ": ")
		require.Contains(c, untimed(table), line, "We should print the same in the table.")
		table += stderr
		require.NotContains(c, table, "("+v1beta1.ReasonNotConfigured+")", "We should wait for what passes within seconds.")
	})
	return report, table
}

// TestStatus has the samples, says what is broken in an installation, and nothing else. What else it finds is tested beside the command.
func TestStatus(t *testing.T) {
	t.Parallel()
	w, replica := servedWorld(t, controlplane.Options{})
	w.applySamples(t)
	report, _ := w.awaitStatus(t, "We should find nothing in an installation that works.", "")
	for _, s := range report.Sections {
		assert.Equal(t, "OK", s.State, "%s: %q", s.Name, s.Unread)
	}
	t.Run("OfAStranger", func(t *testing.T) { w.strangersStatus(t) })

	said := w.kubectl(t, "delete", "rdsinstanceclass", "gitlab-production")
	_, table := w.awaitStatus(t, "We should call nothing broken for a claim whose class is not there.", "")
	require.Contains(
		t, table,
		"claimkind/"+samplePostgres+`: 1 claim has a class that is not there: acme-team/gitlab-praefect-database ("`+sampleRDS+"/gitlab-production\")",
	)
	if policiesServed(t) { // Without policies, the status has one note more.
		shown := documented(t, "docs/status.md")[0]
		assert.Equal(t, untimed(strings.Join(shown.lines, "\n")+"\n"), untimed(
			"$ kubectl delete rdsinstanceclass gitlab-production\n"+said+"$ classbind status\n"+table,
		),
			"We should show on the page what the commands print.")
	}
	w.kubectl(t, "apply", "-f", filepath.Join(w.deploy, "samples", "crossplane", "classes.yaml"))
	w.awaitStatus(t, "We should find nothing once it is mended.", "")

	require.NoError(t, replica.Stop())
	report, _ = w.awaitStatus(t, "We should find that there is no replica.",
		"replicas: leases/classbind-system/classbind-leader: no replica leads, so the entries, the status and the CA are not kept up to date\n"+
			"  Do: start a replica, or see the log of those that run: kubectl describe pods --namespace classbind-system --selector "+
			"app.kubernetes.io/name=classbind, and kubectl logs with the same")
	assert.Equal(t, "7 of 7 ready, as the last leader wrote", report.Sections[3].Summary, "We should not vouch for the status that kubectl shows.")
}

func (w *world) strangersStatus(t *testing.T) {
	stranger := must(w.plane.UserKubeconfig("stranger"))(t)
	_, exit, stderr := w.status(t, stranger)
	assert.Equal(t, 2, exit, "We should have nothing to say without the registrations.")
	assert.Contains(t, stderr, "cannot list ClaimKinds")

	w.kubectl(t, "create", "clusterrole", "status-reader", "--verb=list", "--resource=claimkinds.classbind.io,classkinds.classbind.io")
	w.kubectl(t, "create", "clusterrolebinding", "status-reader", "--clusterrole=status-reader", "--user=stranger")
	eventually(t, func(c *attempt) {
		report, exit, stderr := w.status(c, stranger)
		require.Zero(c, exit, stderr)
		require.Empty(c, report.findings(), "We should not take for broken what the user may not read.")
		for _, s := range report.Sections {
			if s.Name != "kinds" {
				require.Equal(c, "Unknown", s.State, s.Name)
				require.NotEmpty(c, s.Unread, "We should say what the user may not read.")
			}
		}
	})
}
