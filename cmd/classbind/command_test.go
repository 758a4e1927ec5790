package main

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/cmd/classbind/exit"
	"github.com/classbind/classbind/cmd/classbind/serve"
)

func run(t *testing.T, args ...string) (out string, err error) {
	t.Helper()
	return runAs(t, "classbind", args...)
}

func runAs(t *testing.T, program string, args ...string) (out string, err error) {
	t.Helper()
	var b strings.Builder
	c := newCommand(program)
	c.SetArgs(args)
	c.SetOut(&b)
	c.SetErr(&b)
	err = c.ExecuteContext(t.Context())
	return b.String(), err
}

func TestHelp(t *testing.T) {
	for name, args := range map[string][]string{
		"Nothing":    {},
		"Help":       {"--help"},
		"Serve":      {"serve", "--help"},
		"SetDefault": {"set-default", "--help"},
		"Explain":    {"explain", "--help"},
		"Classes":    {"classes", "--help"},
		"Check":      {"check", "--help"},
		"Status":     {"status", "--help"},
		"Kinds":      {"kinds", "--help"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := run(t, args...)
			require.NoError(t, err, "We should help.")
			assert.Contains(t, out, "Usage:\n  classbind", "We should say how to go on.")
		})
	}
}

func TestServeWithoutACluster(t *testing.T) {
	absent := filepath.Join(t.TempDir(), "absent.kubeconfig")
	for name, tc := range map[string]struct{ env, flag string }{"Flag": {"", absent}, "Environment": {absent, ""}} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", tc.env)
			_, err := run(t, "serve", "--kubeconfig="+tc.flag)
			require.ErrorContains(t, err, "cannot find a cluster: ", "We should say what we cannot do.")
			assert.Contains(t, err.Error(), absent, "We should name the file that does not exist.")
			assert.Contains(t, err.Error(), "name a file with --kubeconfig or $KUBECONFIG", "We should say how to mend it.")
			assert.NotContains(t, err.Error(), "KUBERNETES_MASTER", "We should not name a variable that we do not read.")
		})
	}
}

func TestPlugin(t *testing.T) {
	for _, program := range []string{"kubectl-classbind", "/usr/local/bin/kubectl-classbind", "kubectl-classbind.exe"} {
		out, err := runAs(t, program, "explain", "--help")
		require.NoError(t, err)
		assert.Contains(t, out, "Usage:\n  kubectl classbind explain (KIND/NAME... | KIND NAME... | -f FILES)",
			"As a plugin of kubectl, we should print kubectl's command.")
		assert.Contains(t, out, "  kubectl classbind explain -f claim.yaml\n", "The examples should work as they are.")
		assert.Contains(t, out, "\n  kubectl classbind explain PostgreSQLInstance/gitlab-database", "The examples should work as they are.")
	}
}

func TestPluginCompletion(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"Command": {[]string{"expl"}, "explain\t"},
		"Flag":    {[]string{"explain", "-o", ""}, "table\njson\nyaml\n:4\n"},
		"File":    {[]string{"explain", "-f", ""}, "yaml\nyml\njson\n:8\n"},
		"AnyFile": {[]string{"serve", "--kubeconfig", ""}, ":0\n"},
		"Class":   {[]string{"set-default", ""}, ":4\n"},
		"Serve":   {[]string{"serve", ""}, ":4\n"},
		"Kinds":   {[]string{"kinds", ""}, "gateway-api\t"},
		"Classes": {[]string{"classes", ""}, ":4\n"},
		"Output":  {[]string{"classes", "Database", "-o", ""}, "table\njson\nyaml\n:4\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			c := newCommand("kubectl_complete-classbind", tc.args...)
			c.SetOut(&b)
			require.NoError(t, c.ExecuteContext(t.Context()))
			assert.Contains(t, b.String(), tc.want, "We should complete as kubectl asks us to.")
		})
	}
}

func TestExitStatus(t *testing.T) {
	_, err := run(t, "expain", "-f", "claim.yaml")
	require.Error(t, err)
	assert.Equal(t, exit.Failed, exit.Status(err), "We should not end with 1 where a pipeline misspells explain: it would mean that there is no class.")
}

// TestCommandsRefuse has what each command refuses before it does anything.
func TestCommandsRefuse(t *testing.T) {
	nowhere := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(nowhere, []byte("apiVersion: v1\nkind: Config\ncurrent-context: a\n"+
		"clusters: [{name: a, cluster: {server: https://localhost:1}}]\ncontexts: [{name: a, context: {cluster: a}}]\n"), 0o600))
	for command, cases := range map[string]map[string]struct {
		reason string
		args   []string
		want   string
	}{
		"": {
			"Command": {
				reason: "We should refuse an unknown command, rather than print help and succeed.",
				args:   []string{"sevre"},
				want:   `unknown command "sevre" for "classbind"`,
			},
			"Flag": {reason: "We should refuse an unknown flag.", args: []string{"serve", "--webhook-port=9443"}, want: "unknown flag: --webhook-port"},
			"FlagValue": {
				reason: "We should name the flag whose value has the wrong type.",
				args:   []string{"serve", "--leader-elect=perhaps"},
				want:   `invalid argument "perhaps" for "--leader-elect" flag`,
			},
			"ArgumentOfServe": {
				reason: "We should refuse an argument that would be ignored, such as a flag without its dashes.",
				args:   []string{"serve", "leader-elect=false"},
				want:   `"leader-elect=false"`,
			},
			"Options": {
				reason: "We should refuse wrong flags before we look for a cluster.",
				args:   []string{"serve", "--kubeconfig=absent", "--log-level=verbose"},
				want:   `--log-level="verbose": must be debug, info, warn or error`,
			},
		},
		"chooser": {
			"Unknown":  {"We should refuse an unknown command, rather than print help and succeed.", []string{"chek", "a:1"}, `unknown command "chek"`},
			"Claim":    {"We should name the flag.", []string{"check", "a:1", "--claim=4"}, `--claim="4": must be a JSON object`},
			"Class":    {"We should name the flag.", []string{"check", "a:1", "--class=null"}, `--class="null": must be a JSON object`},
			"Timeout":  {"We should take no timeout that no claim has.", []string{"check", "a:1", "--timeout=1m"}, `--timeout="1m0s": must be from 10ms to 1s`},
			"Negative": {"We should take no timeout that no claim has.", []string{"check", "a:1", "--timeout=-1s"}, `must be from 10ms to 1s`},
		},
		"kinds": {
			"Unknown": {
				reason: "We should name what there is.",
				args:   []string{"gateways"},
				want:   `there is no preset "gateways": name one of argo-cd, cert-manager, cloudnative-pg, cluster-api, `,
			},
			"ExamplesOfNone": {reason: "We should not print all examples, of which nobody needs all.", args: []string{"--examples"}, want: "--examples: name a preset"},
			"ExamplesAsTable": {
				reason: "We should not print YAML where a table is asked for.",
				args:   []string{"gateway-api", "--examples", "-o", "table"},
				want:   `--output="table": examples are manifests`,
			},
		},
		"check": {
			"StandardInputTwice": {"We should not read standard input twice.", []string{"-f", "-", "-f", "-"}, "standard input can be read once"},
		},
		"register": {
			"StandardInputTwice": {
				reason: "We should not read standard input twice.",
				args:   []string{"Gateway", "GatewayClass", "--offline", "-", "--offline", "-"},
				want:   "standard input can be read once",
			},
		},
		"bind": {
			"Nothing": {"We should say how the command goes.", nil, "name the kind of the claims, as in: classbind bind KIND"},
			"Slash":   {"We should not take a part of a name for a namespace.", []string{"Database/team/a"}, "must be KIND/NAME or KIND NAME"},
			"EmptyName": {
				"We should refuse an unset variable: without a name, all claims would be bound.",
				[]string{"Database", ""},
				"must be KIND/NAME or KIND NAME",
			},
			"NamesOfAll": {
				"We should not guess in which namespace the claims are.",
				[]string{"Database", "a", "-A"},
				`--all-namespaces: the claims ["Database" "a"] are of one namespace`,
			},
			"Both":           {"We should not ignore a flag.", []string{"Database", "-A", "-n", "team"}, "--namespace: with --all-namespaces there is no other"},
			"EmptyNamespace": {"We should refuse an unset variable.", []string{"Database", "-n", ""}, `--namespace="": `},
			"Own":            {"We should refuse what cannot be a namespace.", []string{"Database", "--classbind-namespace", "A"}, `--classbind-namespace="A": `},
			"Output":         {"We should say which formats there are.", []string{"Database", "-o", "wide"}, `--output="wide": must be table, json or yaml`},
			"DryRun": {
				"We should refuse a value that kubectl does not have: a misspelt one must not write.",
				[]string{"Database", "--dry-run=true"},
				`invalid argument "true" for "--dry-run" flag: must be none, client or server`,
			},
		},
		"status": {
			"Argument":   {"We should not ignore an argument.", []string{"postgresqlinstances"}, `status takes no arguments; there are ["postgresqlinstances"]`},
			"Output":     {"We should not guess a format.", []string{"-o", "wide"}, `--output="wide": must be table, json or yaml`},
			"Namespace":  {"We should refuse what is no namespace.", []string{"--classbind-namespace=a/b"}, `--classbind-namespace="a/b": `},
			"Flag":       {"We should refuse an unknown flag.", []string{"--nonsense"}, "unknown flag"},
			"Kubeconfig": {"We should name the file that does not exist.", []string{"--kubeconfig", nowhere + ".absent"}, "cannot find a cluster: "},
			"NoAnswer":   {"We should say what we cannot read.", []string{"--kubeconfig", nowhere}, "cannot list ClaimKinds: "},
		},
		"set-default": {
			"Nothing": {
				reason: "We should say how the command goes.",
				want:   "name one class, as in: classbind set-default KIND/NAME --for CLAIMKIND; there are 0: []",
			},
			"NoKind": {
				reason: "We should refuse a name without a kind.",
				args:   []string{"gold", "--for=claims"},
				want:   `["gold"]: must be KIND/NAME or KIND NAME; --namespace names the namespace`,
			},
			"EmptyName": {reason: "We should refuse an empty name.", args: []string{"Class/", "--for=claims"}, want: `["Class/"]: must be KIND/NAME`},
			"Namespace": {
				reason: "We should refuse a namespace in the name.",
				args:   []string{"Class/team/gold", "--for=claims"},
				want:   `["Class/team/gold"]: must be KIND/NAME or KIND NAME; --namespace names the namespace`,
			},
			"Two": {
				reason: "We should not take the second of two classes for a default, too.",
				args:   []string{"Class", "gold", "silver", "--for=claims"},
				want:   `name one class, as in: classbind set-default KIND/NAME --for CLAIMKIND; there are 2: ["Class" "gold" "silver"]`,
			},
			"EmptyFor": {
				reason: "We should refuse an empty --for, such as that of an unset variable.",
				args:   []string{"Class/gold", "--for="},
				want:   "--for: name the claim kind",
			},
			"NoTimeout": {
				reason: "We should refuse a timeout of 0, which means forever to other commands.",
				args:   []string{"Class/gold", "--for=claims", "--timeout=0"},
				want:   `--timeout="0s": must be more than 0`,
			},
			"DryRun": {
				reason: "We should refuse a value that kubectl does not have: a misspelt one must not write.",
				args:   []string{"Class/gold", "--for=claims", "--dry-run=clent"},
				want:   `invalid argument "clent" for "--dry-run" flag: must be none, client or server`,
			},
		},
		"classes": {"Nothing": {"We should exit with 2: 1 is for a claim that may get none.", nil, ""}},
		"explain": {
			"Nothing": {"We should ask for a claim.", nil, "name a claim of the cluster, KIND/NAME, or with --filename the file of a claim, such as -f claim.yaml"},
			"Argument": {
				"We should not ignore a claim that is named without -f.",
				[]string{"claim.yaml"},
				`["claim.yaml"]: must be KIND/NAME or KIND NAME`,
			},
			"ArgumentOfThree": {"We should not ignore a part of a name.", []string{"a/b/c"}, `["a/b/c"]: must be KIND/NAME`},
			"ArgumentAndFile": {
				"We should not ignore a claim.",
				[]string{"-f", "a", "a/b"},
				`["a/b"]: with --filename or --offline there is no claim of the cluster`,
			},
			"StandardInputTwice": {"We should not read standard input twice.", []string{"-f", "-", "--offline", "-"}, "standard input can be read once"},
			"WithOffline":        {"We should not ignore a flag.", []string{"-f", "a", "--offline", "b", "--with", "c"}, "--with: with --offline no cluster is asked"},
			"Output":             {"We should say which formats there are.", []string{"-f", "a", "-o", "xml"}, `--output="xml": must be table, json or yaml`},
			"Namespace":          {"We should refuse what cannot be a namespace.", []string{"-f", "a", "-n", "Team_A"}, `--namespace="Team_A": `},
			"EmptyNamespace":     {"We should refuse an unset variable.", []string{"-f", "a", "-n", ""}, `--namespace="": `},
			"KubeconfigOffline": {
				"We should not ignore a flag.",
				[]string{"-f", "a", "--offline", "b", "--kubeconfig", "c"},
				"--kubeconfig: with --offline no cluster is asked",
			},
			"UnknownFlag":         {"We should refuse an unknown flag.", []string{"-f", "a", "--class", "b"}, "unknown flag: --class"},
			"FlagWithoutItsValue": {"We should refuse a flag without its value.", []string{"-f"}, "flag needs an argument"},
			"WrongTypeOfFlag": {
				"We should refuse a value of another type.",
				[]string{"-f", "a", "--unbound=perhaps"},
				`invalid argument "perhaps" for "--unbound" flag`,
			},
			"SetEmpty": {
				"We should refuse an unset variable.",
				[]string{"-f", "a", "--set", ""},
				`--set="": must be PATH=VALUE, where PATH is one of namespace.labels.KEY`,
			},
			"SetNoValue":         {"We should ask for a value.", []string{"-f", "a", "--set", "namespace.labels.tenant"}, "must be PATH=VALUE"},
			"SetEmptyName":       {"We should not skip a name.", []string{"-f", "a", "--set", "related..tier=a"}, "must be PATH=VALUE"},
			"SetExtraWithoutKey": {"We should ask for a key.", []string{"-f", "a", "--set", "request.userInfo.extra=a"}, "must be PATH=VALUE"},
			"SetBelow": {
				"We should not replace a value.",
				[]string{"-f", "a", "--set", "related.plan.spec=a", "--set", "related.plan.spec.tier=b"},
				"value cannot be set because .spec is not a map",
			},
		},
	} {
		for name, tc := range cases {
			t.Run(command+name, func(t *testing.T) {
				out, err := run(t, append(strings.Fields(command), tc.args...)...)
				require.ErrorContains(t, err, tc.want, tc.reason)
				assert.Empty(t, out, "We should leave it to main to print the error.")
				if command != "" {
					assert.NotContains(t, err.Error(), "\n", "We should complain of nothing else.")
					assert.Equal(t, exit.Failed, exit.Status(err), tc.reason)
				}
			})
		}
	}
}

// TestEverythingAtOnce names all errors, so that one try is enough.
func TestEverythingAtOnce(t *testing.T) {
	_, err := run(t, "explain", "-o", "xml", "-n", "Team_A")
	require.Error(t, err)
	assert.Len(t, strings.Split(err.Error(), "\n"), 3, "%v", err)
}

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
		want            serve.Build
	}{
		"Release": {
			reason:  "We should name a release as it was named, whatever the go command found.",
			version: "v0.1.0",
			commit:  "fedcba",
			info:    stamped,
			want:    serve.Build{Version: "v0.1.0", Commit: "fedcba"},
		},
		"Commit": {
			reason: "We should name the commit where there is no release.",
			info:   stamped,
			want:   serve.Build{Version: "v0.0.0-20260101000000-0123456789ab", Commit: "0123456789abcdef"},
		},
		"Devel": {
			reason: "We should keep what the go command says of a folder without git.",
			info:   &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}},
			want:   serve.Build{Version: "(devel)"},
		},
		"Archive": {
			reason:  "We should take the version of a package that is built from an archive of the source.",
			version: "v0.1.0",
			info:    &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}},
			want:    serve.Build{Version: "v0.1.0"},
		},
		"Nothing": {reason: "We should have a version even where the go command stamped none.", want: serve.Build{Version: "(devel)"}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.want, buildOf(tc.version, tc.commit, tc.info), tc.reason)
		})
	}
}
