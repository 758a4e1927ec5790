package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
			"Command":           {reason: "We should refuse an unknown command, rather than print help and succeed.", args: []string{"sevre"}, want: `unknown command "sevre" for "classbind"`},
			"Flag":              {reason: "We should refuse an unknown flag.", args: []string{"serve", "--webhook-port=9443"}, want: "unknown flag: --webhook-port"},
			"FlagOfTheRoot":     {reason: "We should refuse a flag before its command.", args: []string{"--log-level=debug"}, want: "unknown flag: --log-level"},
			"FlagValue":         {reason: "We should name the flag whose value has the wrong type.", args: []string{"serve", "--leader-elect=perhaps"}, want: `invalid argument "perhaps" for "--leader-elect" flag`},
			"ArgumentOfServe":   {reason: "We should refuse an argument that would be ignored, such as a flag without its dashes.", args: []string{"serve", "leader-elect=false"}, want: `"leader-elect=false"`},
			"ArgumentOfVersion": {reason: "We should refuse an argument that would be ignored.", args: []string{"version", "short"}, want: `"short"`},
			"Options":           {reason: "We should refuse wrong flags before we look for a cluster.", args: []string{"serve", "--kubeconfig=absent", "--log-level=verbose"}, want: `--log-level="verbose": must be debug, info, warn or error`},
		},
		"kinds": {
			"Unknown":        {reason: "We should name what there is.", args: []string{"gateways"}, want: `there is no preset "gateways": name one of argo-cd, cert-manager, cloudnative-pg, cluster-api, `},
			"OneOfThree":     {reason: "We should name all that are wrong, and print no part.", args: []string{"queues", "ingress", "gateways"}, want: `there is no preset "gateways", "queues": name one of `},
			"ExamplesOfNone": {reason: "We should not print all examples, of which nobody needs all.", args: []string{"--examples"}, want: "--examples: name a preset"},
			"NoExample": {
				reason: "We should name a preset that has one.", args: []string{"crossplane-compositions", "--examples"},
				want: "crossplane-compositions has no example of its own: name a preset that needs it, such as crossplane-v1",
			},
		},
		"bind": {
			"Nothing":         {"We should say how the command goes.", nil, "name the kind of the claims, as in: classbind bind KIND"},
			"Slash":           {"We should not take a part of a name for a kind.", []string{"Database/a"}, "must be KIND, or KIND and the names of claims"},
			"EmptyName":       {"We should refuse an unset variable: without a name, all claims would be bound.", []string{"Database", ""}, "must be KIND, or KIND and the names of claims"},
			"NamesOfAll":      {"We should not guess in which namespace the claims are.", []string{"Database", "a", "-A"}, `--all-namespaces: the claims ["a"] are of one namespace`},
			"Both":            {"We should not ignore a flag.", []string{"Database", "-A", "-n", "team"}, "--namespace: with --all-namespaces there is no other"},
			"EmptyNamespace":  {"We should refuse an unset variable.", []string{"Database", "-n", ""}, `--namespace="": `},
			"Own":             {"We should refuse what cannot be a namespace.", []string{"Database", "--classbind-namespace", "A"}, `--classbind-namespace="A": `},
			"Output":          {"We should say which formats there are.", []string{"Database", "-o", "wide"}, `--output="wide": must be table, json or yaml`},
			"DryRunOfKubectl": {"We should refuse kubectl's values of --dry-run, one of which, none, means to write.", []string{"Database", "--dry-run=none"}, `invalid argument "none" for "--dry-run" flag`},
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
			"Nothing":            {reason: "We should say how the command goes.", want: "name one class, as in: classbind set-default KIND/NAME --for CLAIMKIND; there are 0 arguments"},
			"TwoClasses":         {reason: "We should not guess which of two classes is meant.", args: []string{"Class/gold", "Class/silver", "--for=claims"}, want: `there are 2 arguments: ["Class/gold" "Class/silver"]`},
			"NoKind":             {reason: "We should refuse a name without a kind.", args: []string{"gold", "--for=claims"}, want: `"gold": must be KIND/NAME, or KIND/NAMESPACE/NAME for a namespaced class`},
			"TooManyParts":       {reason: "We should refuse a name of four parts.", args: []string{"a/b/c/d", "--for=claims"}, want: `"a/b/c/d": must be KIND/NAME`},
			"EmptyKind":          {reason: "We should refuse an empty kind.", args: []string{"/gold", "--for=claims"}, want: `"/gold": must be KIND/NAME`},
			"EmptyName":          {reason: "We should refuse an empty name.", args: []string{"Class/", "--for=claims"}, want: `"Class/": must be KIND/NAME`},
			"EmptyNamespace":     {reason: "We should refuse an empty namespace.", args: []string{"Class//gold", "--for=claims"}, want: `"Class//gold": must be KIND/NAME`},
			"EmptyFor":           {reason: "We should refuse an empty --for, such as that of an unset variable.", args: []string{"Class/gold", "--for="}, want: "--for: name the claim kind"},
			"EmptyAmongFor":      {reason: "We should refuse an empty name in a list.", args: []string{"Class/gold", "--for=claims,,others"}, want: `--for="claims,,others": must have no empty name`},
			"EmptyWithout":       {reason: "We should refuse an empty name in the other list.", args: []string{"Class/gold", "--for=claims", "--leave-without-default=others,"}, want: `--leave-without-default="others,": must have no empty name`},
			"NoTimeout":          {reason: "We should refuse a timeout of 0, which means forever to other commands.", args: []string{"Class/gold", "--for=claims", "--timeout=0"}, want: `--timeout="0s": must be more than 0`},
			"NegativeTimeout":    {reason: "We should refuse a negative time.", args: []string{"Class/gold", "--for=claims", "--timeout=-1s"}, want: `--timeout="-1s": must be more than 0`},
			"TimeoutWithoutUnit": {reason: "We should refuse a time without its unit.", args: []string{"Class/gold", "--for=claims", "--timeout=60"}, want: `invalid argument "60" for "--timeout" flag`},
			"DryRunOfKubectl": {
				reason: "We should refuse kubectl's values of --dry-run, one of which, none, means to write.",
				args:   []string{"Class/gold", "--for=claims", "--dry-run=none"}, want: `invalid argument "none" for "--dry-run" flag`,
			},
		},
		"explain": {
			"Nothing":              {"We should ask for a claim.", nil, "--filename: name the file of a claim, such as -f claim.yaml"},
			"Argument":             {"We should not ignore a claim that is named without -f.", []string{"claim.yaml"}, `"claim.yaml": must be KIND/NAME for a claim of the cluster, or -f with a file`},
			"ArgumentOfThree":      {"We should not ignore a part of a name.", []string{"a/b/c"}, `"a/b/c": must be KIND/NAME`},
			"ArgumentAndFile":      {"We should not ignore a claim.", []string{"-f", "a", "a/b"}, `--filename: there are arguments, too, ["a/b"]`},
			"ArgumentOffline":      {"We should say that files have no claim of a cluster.", []string{"--classes", "a", "a/b"}, "--classes: no cluster is asked then"},
			"WithOffline":          {"We should not ignore a flag.", []string{"-f", "a", "--classes", "b", "--with", "c"}, "--with: with --classes no cluster is asked"},
			"EmptyWith":            {"We should refuse an unset variable.", []string{"-f", "a", "--with", ""}, `--with="": must be a file, a folder, or - for standard input`},
			"EmptyFilename":        {"We should refuse an unset variable.", []string{"-f", ""}, `--filename="": must be a file, a folder, or - for standard input`},
			"EmptyClasses":         {"We should refuse an unset variable, rather than ask a cluster.", []string{"-f", "a", "--classes", ""}, `--classes="": must be a file, a folder, or - for standard input`},
			"StandardInputTwice":   {"We should not read standard input twice.", []string{"-f", "-", "--classes", "-"}, "standard input can be read once"},
			"Output":               {"We should say which formats there are.", []string{"-f", "a", "-o", "xml"}, `--output="xml": must be table, json or yaml`},
			"EmptyOutput":          {"We should refuse an unset variable.", []string{"-f", "a", "-o", ""}, `--output="": must be table, json or yaml`},
			"Namespace":            {"We should refuse what cannot be a namespace.", []string{"-f", "a", "-n", "Team_A"}, `--namespace="Team_A": `},
			"EmptyNamespace":       {"We should refuse an unset variable.", []string{"-f", "a", "-n", ""}, `--namespace="": `},
			"KubeconfigOffline":    {"We should not ignore a flag.", []string{"-f", "a", "--classes", "b", "--kubeconfig", "c"}, "--kubeconfig: with --classes no cluster is asked"},
			"ContextOffline":       {"We should not ignore a flag.", []string{"-f", "a", "--classes", "b", "--context", "c"}, "--context: with --classes no cluster is asked"},
			"UnknownFlag":          {"We should refuse an unknown flag.", []string{"-f", "a", "--class", "b"}, "unknown flag: --class"},
			"FlagWithoutItsValue":  {"We should refuse a flag without its value.", []string{"-f"}, "flag needs an argument"},
			"WrongTypeOfFlag":      {"We should refuse a value of another type.", []string{"-f", "a", "--unbound=perhaps"}, `invalid argument "perhaps" for "--unbound" flag`},
			"WrongTypeOfRecursive": {"We should refuse a value of another type.", []string{"-f", "a", "-R=perhaps"}, `invalid argument "perhaps" for "-R, --recursive" flag`},
			"SetEmpty":             {"We should refuse an unset variable.", []string{"-f", "a", "--set", ""}, `--set="": must be PATH=VALUE, such as namespace.labels.tenant=a`},
			"SetNoValue":           {"We should ask for a value.", []string{"-f", "a", "--set", "namespace.labels.tenant"}, "must be PATH=VALUE"},
			"SetNoPath":            {"We should ask for a path.", []string{"-f", "a", "--set", "=a"}, "the path has an empty name"},
			"SetEmptyName":         {"We should not skip a name.", []string{"-f", "a", "--set", "related..tier=a"}, "the path has an empty name"},
			"SetClaim":             {"We should say where a claim is changed.", []string{"-f", "a", "--set", "claim.spec.size=1"}, "a claim is as its file says: change that"},
			"SetClass":             {"We should say where a class is changed.", []string{"-f", "a", "--set", "class.spec.size=1"}, "put another on top of the cluster's with --with"},
			"SetUnknown":           {"We should say what there is.", []string{"-f", "a", "--set", "object.spec=1"}, "must begin with one of namespace, request, related"},
			"SetMisspelt":          {"We should say what was meant.", []string{"-f", "a", "--set", "namspace.labels.a=b"}, "must begin with one of namespace, request, related: did you mean namespace?"},
			"SetMisspeltUser":      {"We should say what was meant.", []string{"-f", "a", "--set", "request.userInfo.usrname=b"}, "did you mean username?"},
			"SetNamespace":         {"We should name a field.", []string{"-f", "a", "--set", "namespace=a"}, "must name a label or an annotation"},
			"SetNamespaceName":     {"We should not take what a Namespace cannot be given.", []string{"-f", "a", "--set", "namespace.name=a"}, "must name a label or an annotation"},
			"SetNamespaceSpec":     {"We should not take what no expression sees.", []string{"-f", "a", "--set", "namespace.spec.finalizers=a"}, "must name a label or an annotation"},
			"SetNoLabel":           {"We should ask for a key.", []string{"-f", "a", "--set", "namespace.labels=a"}, "must name a label or an annotation"},
			"SetLabelKey":          {"We should refuse what is no label.", []string{"-f", "a", "--set", "namespace.labels.a/b/c=d"}, "a valid label key must consist of"},
			"SetLabelValue":        {"We should refuse what no label has.", []string{"-f", "a", "--set", "namespace.labels.tenant=a b"}, "a valid label must be"},
			"SetRequest":           {"We should name a field.", []string{"-f", "a", "--set", "request.username=a"}, "must be request.userInfo.username, uid, groups or extra.KEY"},
			"SetRequestBelow":      {"We should not go below a text.", []string{"-f", "a", "--set", "request.userInfo.username.first=a"}, "must be request.userInfo.username"},
			"SetRequestNothing":    {"We should name a field.", []string{"-f", "a", "--set", "request.userInfo=a"}, "must be request.userInfo.username"},
			"SetExtraWithoutKey":   {"We should ask for a key.", []string{"-f", "a", "--set", "request.userInfo.extra=a"}, "must be request.userInfo.username"},
			"SetRelated":           {"We should name a field.", []string{"-f", "a", "--set", "related.plan=gold"}, "must name a field of the object, such as related.plan.spec.tier=gold"},
			"SetTwice":             {"We should not pick one of the two.", []string{"-f", "a", "--set", "related.plan.spec.tier=a", "--set", "related.plan.spec.tier=b"}, `--set="related.plan.spec.tier=b": the field, or one above or below it, is set already`},
			"SetBelow":             {"We should not replace a value.", []string{"-f", "a", "--set", "related.plan.spec=a", "--set", "related.plan.spec.tier=b"}, "the field, or one above or below it, is set already"},
			"SetAbove":             {"We should not replace a value.", []string{"-f", "a", "--set", "related.plan.spec.tier=b", "--set", "related.plan.spec=a"}, "the field, or one above or below it, is set already"},
			"SetUsernameTwice":     {"We should not pick one of the two.", []string{"-f", "a", "--set", "request.userInfo.username=a", "--set", "request.userInfo.username=b"}, "is set already"},
		},
	} {
		failed := 2 // 1 is an answer of the others.
		if command == "set-default" || command == "kinds" {
			failed = 1
		}
		for name, tc := range cases {
			t.Run(command+name, func(t *testing.T) {
				out, err := run(t, append(strings.Fields(command), tc.args...)...)
				require.ErrorContains(t, err, tc.want, tc.reason)
				assert.Empty(t, out, "We should leave it to main to print the error.")
				if command != "" {
					assert.NotContains(t, err.Error(), "\n", "We should complain of nothing else.")
					assert.Equal(t, failed, exitStatus(err), tc.reason)
				}
			})
		}
	}
}

// TestEverythingAtOnce names all errors, so that nobody has to try three times.
func TestEverythingAtOnce(t *testing.T) {
	for _, args := range [][]string{{"set-default", "gold", "--timeout=0s", "--leave-without-default=a,,b"}, {"explain", "-o", "xml", "-n", "Team_A"}} {
		_, err := run(t, args...)
		require.Error(t, err)
		assert.Len(t, strings.Split(err.Error(), "\n"), 3, "%v", err)
	}
}
