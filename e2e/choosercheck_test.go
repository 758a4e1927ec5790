package e2e

import (
	"crypto/x509"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/classbind/classbind/certs/certtest"
	"github.com/classbind/classbind/e2e/classbind"
	"github.com/classbind/classbind/e2e/progress"
)

// TestChooserCheck judges choosers that keep the contract, and others.
func TestChooserCheck(t *testing.T) {
	t.Parallel()
	notInPods(t, "It needs no cluster.")
	clients := certtest.NewCA(t)
	for name, tc := range map[string]struct {
		reason, rank, status string
		exit                 int
		fails                []string
	}{
		"Good":      {"We should find that all holds.", "Good", "Good", 0, nil},
		"NoOpinion": {"We should take no opinion for an answer.", "NoOpinion", "Good", 0, nil},
		"NoClass":   {"We should take none for an answer.", "NoClass", "Good", 0, nil},
		"Hang": {
			"We should wait no longer than classbind.", "Hang", "Good", 1,
			[]string{
				"Rank orders one candidate", "Rank orders 100 candidates", "the same question has the same answer", "unknown fields are ignored",
				"the epoch of an answer is that of Status", "a question without candidates is answered or refused",
				"a claim without fields is answered or refused",
			},
		},
		"Status":     {"We should find that Status hangs.", "Good", "Hang", 1, nil},
		"OtherEpoch": {"We should find another epoch.", "OtherEpoch", "Good", 1, []string{"the epoch of an answer is that of Status"}},
		"EmptyOrder": {"We should find an empty order.", "EmptyOrder", "Good", 1, nil},
		"Unknown":    {"We should find unknown identifiers.", "Unknown", "Good", 1, nil},
		"Large":      {"We should find that an answer is too large.", "Large", "Good", 1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := newTestChooser(t, poolOf(t, clients.PEM()))
			require.NoError(t, c.Behave(tc.rank, tc.status))
			c.start(t)
			eventually(t, func(a *attempt) { // A busy machine may be too slow for a call.
				out, exit := c.check(t, clients, c.ca, "--output=json")
				require.Equal(a, tc.exit, exit, out)
				var report struct {
					APIVersion, Kind string
					Findings         []struct {
						Name, Message string
						Holds         bool
					}
				}
				require.NoError(a, json.NewDecoder(strings.NewReader(out)).Decode(&report), out)
				require.Equal(a, "chooser.classbind.io/v1beta1 Report", report.APIVersion+" "+report.Kind)
				require.NotEmpty(a, report.Findings)
				var fails []string
				for _, f := range report.Findings {
					require.Equal(a, f.Holds, f.Message == "", out)
					if !f.Holds {
						fails = append(fails, f.Name)
					}
				}
				require.Equal(a, tc.exit == 0, len(fails) == 0, out)
				if tc.fails != nil {
					require.Equal(a, tc.fails, fails)
				}
			}, tc.reason)
		})
	}
	t.Run("Table", func(t *testing.T) {
		c := newTestChooser(t, poolOf(t, clients.PEM()))
		c.start(t)
		eventually(t, func(a *attempt) {
			out, exit := c.check(t, clients, c.ca)
			require.Zero(a, exit, out)
			require.Regexp(a, `(?m)^yes +Rank orders 100 candidates$`, out)
		})
	})
	t.Run("Connect", func(t *testing.T) {
		c := newTestChooser(t, poolOf(t, clients.PEM()))
		c.start(t)
		eventually(t, func(a *attempt) {
			out, exit := c.check(t, clients, certtest.NewCA(t))
			require.Equal(a, 2, exit, "We should connect to no chooser of another CA.")
			require.Contains(a, out, "cannot connect to "+c.address)
			require.Contains(a, out, "certificate signed by unknown authority")
		})
		out, exit := c.check(t, certtest.NewCA(t), c.ca)
		assert.Equal(t, 2, exit, out)
	})
}

// check runs the command with a client certificate of a CA, and expects that the chooser's certificate is of another.
func (c *testChooser) check(t *testing.T, clients, ca *certtest.Pair, args ...string) (out string, exit int) {
	dir := t.TempDir()
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, content, 0o600))
		return path
	}
	client := clients.Sign(t, &x509.Certificate{})
	cmd := exec.CommandContext(t.Context(), command, append([]string{ //nolint:gosec // It runs the command under test.
		"chooser", "check", c.address, "--timeout=1s", "--claim", `{"spec":{"cpus":4}}`,
		"--class", `{"spec":{"instanceType":"m5.large","cpus":2}}`,
		"--class", `{"spec":{"instanceType":"m5.2xlarge","cpus":8}}`, "--ca-file=" + file("ca.crt", ca.PEM()),
		"--cert-file=" + file("tls.crt", client.PEM()), "--key-file=" + file("tls.key", must(keyutil.MarshalPrivateKeyToPEM(client.Key))(t)),
	}, args...)...)
	text, err := cmd.CombinedOutput()
	if err != nil {
		require.ErrorAs(t, err, new(*exec.ExitError))
	}
	return string(text), cmd.ProcessState.ExitCode()
}

// TestPythonChooser runs the chooser of docs/chooser.md.
func TestPythonChooser(t *testing.T) {
	notInPods(t, "Pods do not reach the chooser, which runs beside this process.")
	const group = "python.chooser.test"
	blocks := documented(t, "docs/chooser.md")
	require.Len(t, blocks, 2, "We should have the program, and the commands that run it.")
	require.Len(t, blocks[1].lines, 2)
	python := ""
	for _, path := range []string{"python3", "/usr/bin/python3"} { // That of Debian is the second where another comes first.
		if exec.CommandContext(t.Context(), path, "-c", "import grpc").Run() == nil { //nolint:gosec // It is one of two.
			python = path
		}
	}
	if _, err := exec.LookPath("grpc_python_plugin"); err != nil || python == "" {
		t.Skip("It needs Debian's packages python3-grpcio, protobuf-compiler-grpc and libprotobuf-dev.")
	}
	w := sharedWorld(t)
	clients := certtest.NewCA(t)
	c := newTestChooser(t, poolOf(t, clients.PEM())) // It has the address and the CA, and is not started.
	dir := t.TempDir()
	for name, content := range map[string][]byte{
		"chooser.py": []byte(strings.Join(blocks[0].lines, "\n")), "prices.json": []byte(`{"m5.large": 0.1, "m5.2xlarge": 0.3}`),
		"ca.crt":  append(clients.PEM(), w.ownCA(t)...),
		"tls.crt": must(certutil.EncodeCertificates(c.Certificate.Leaf))(t),
		"tls.key": must(keyutil.MarshalPrivateKeyToPEM(c.Certificate.PrivateKey))(t),
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	require.NoError(t, os.CopyFS(filepath.Join(dir, "api", "chooser"), os.DirFS(filepath.Join("..", "api", "chooser"))))
	here := strings.NewReplacer("python3", python, "localhost:8443", c.address)
	run := func(line string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), "bash", "-c", "exec "+here.Replace(line)) //nolint:gosec // It is ours.
		cmd.Dir = dir
		return cmd
	}
	output(t, run(blocks[1].lines[0]))
	log := &progress.Log{}
	process := must(classbind.Run(run(blocks[1].lines[1]), log))(t)
	t.Cleanup(func() { process.Kill(); t.Log(log) })

	eventually(t, func(a *attempt) {
		out, exit := c.check(t, clients, c.ca)
		require.Zero(a, exit, out)
	}, "We should find that the example keeps the contract.")
	w.registerChooser(t, c, group, ", timeout: 1s", "")
	w.binds(t, claimWith(group, "small", "{cpus: 2}"), "Class/small", "The example should rank as the document says.")
	w.binds(t, claimWith(group, "large", "{cpus: 16}"), "Class/large", "The example should rank as the document says.")
}
