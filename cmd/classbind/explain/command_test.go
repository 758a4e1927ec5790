package explain

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/cmd/classbind/exit"
	"github.com/classbind/classbind/cmd/classbind/world"
	"github.com/classbind/classbind/selector"
)

var update = flag.Bool("update", false, "write the output of this build into testdata as what is wanted")

// result is the result of a command as a shell sees it.
type result struct {
	stdout, stderr string
	status         int
}

func run(t *testing.T, in string, args ...string) result {
	t.Helper()
	return execute(t, newCommand(func() uint64 { return 1 }), in, args...)
}

func execute(t *testing.T, c *cobra.Command, in string, args ...string) result {
	t.Helper()
	var stdout, stderr strings.Builder
	c.SilenceErrors, c.SilenceUsage = true, true // Like the root command.
	c.SetArgs(append([]string{}, args...))       // With nil, cobra would take the arguments of the test.
	c.SetIn(strings.NewReader(in))
	c.SetOut(&stdout)
	c.SetErr(&stderr)
	err := c.ExecuteContext(t.Context())
	r := result{stdout: stdout.String(), stderr: stderr.String()}
	if err != nil {
		r.status = exit.Status(err)
		r.stderr += "error: " + err.Error() + "\n" // As main prints it.
	}
	return r
}

// offline explains a claim by the registrations and classes of a file.
func offline(t *testing.T, claim, classes string, args ...string) result {
	t.Helper()
	t.Chdir(write(t, map[string]string{"claim.yaml": claim, "classes.yaml": classes}))
	return run(t, "", append([]string{"-f", "claim.yaml", "--offline", "classes.yaml"}, args...)...)
}

// explained does the same, and returns the only item of the report, too.
func explained(t *testing.T, claim, classes string, args ...string) (result, Item) {
	t.Helper()
	got := offline(t, claim, classes, append(args, "-o", "json")...)
	report := Report{}
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &report), got.stderr)
	require.Len(t, report.Items, 1)
	return got, report.Items[0]
}

// TestGolden runs a case for each folder of testdata, which has a claim, classes, the expected output and, in args.txt, arguments if it
// needs more. All cases share the registrations.
func TestGolden(t *testing.T) {
	folders, err := filepath.Glob("testdata/*/claim.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, folders)
	for _, file := range folders {
		dir := filepath.Dir(file)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Chdir(dir)
			args := []string{"-f", "claim.yaml", "--offline", "classes.yaml", "--offline", "../registered.yaml"}
			if more, err := os.ReadFile("args.txt"); err == nil {
				args = append(args, strings.Fields(string(more))...)
			}
			people := run(t, "", args...)
			programs := run(t, "", append(args, "-o", "json")...)
			assert.Equal(t, people.status, programs.status, "We should exit with the same status for people and programs.")
			assertGolden(t, "out.txt", fmt.Sprintf("%s%sexit status %d\n", people.stdout, people.stderr, people.status))
			assertGolden(t, "out.json", programs.stdout)
		})
	}
}

func assertGolden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o600))
	}
	want, err := os.ReadFile(file) //nolint:gosec // It is in testdata.
	require.NoError(t, err, "Make it with: go test ./cmd/classbind/explain -update")
	assert.Equal(t, string(want), got, "We should print what we did; if it is meant to change: go test ./cmd/classbind/explain -update")
}

const (
	claimKind = `{"apiVersion": "classbind.io/v1beta1", "kind": "ClaimKind", "metadata": {"name": "databases.example.org"}}`
	classKind = `{"apiVersion": "classbind.io/v1beta1", "kind": "ClassKind", "metadata": {"name": "fastclasses.example.org"}, "spec": ` +
		`{"claimKinds": [{"name": "databases.example.org"}]}}`
	goldClass = `{"apiVersion": "example.org/v1", "kind": "FastClass", "metadata": {"name": "gold", "labels": {"tier": "gold"}}}`
	goldClaim = `{"apiVersion": "example.org/v1", "kind": "Database", "metadata": {"name": "mine"}, "spec": {"classSelector": {"matchLabels": {"tier": "gold"}}}}`
)

// write writes files by name into a new folder, which it returns.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	}
	return dir
}

func documents(texts ...string) string { return strings.Join(texts, "\n---\n") }

func TestExplainRefusesFiles(t *testing.T) {
	registered := documents(claimKind, classKind)
	for name, tc := range map[string]struct {
		reason, claim, classes, want string
	}{
		"Empty":      {"We should not succeed at nothing.", "# nothing\n", registered, "--filename: there is no object in claim.yaml"},
		"NoYAML":     {"We should name the file and the document.", documents(goldClaim, "a: [b"), registered, "cannot read claim.yaml, document 2: "},
		"FieldTwice": {"We should not pick one of the two.", "apiVersion: v1\nkind: A\nkind: B\n", registered, `claim.yaml, document 1: `},
		"Text": {
			"We should say what an object needs.", "claim", registered,
			"claim.yaml, document 1: it is no object of Kubernetes: it needs an apiVersion and a kind",
		},
		"NoKindInAList": {
			"We should say which item.", `{"items": [` + goldClaim + `, {"apiVersion": "v1"}]}`, registered,
			"claim.yaml, document 1, item 2: it is no object",
		},
		"NoClaimKind": {"We should say what is missing.", goldClaim, documents(classKind, goldClass), "--offline: no ClaimKind is among the objects"},
		"ClassTwice": {
			"We should neither count a class twice nor pick one of the two.",
			goldClaim, documents(registered, goldClass, goldClass),
			`classes.yaml, document 4: FastClass "gold" is there already, in classes.yaml, document 3`,
		},
		"KindTwice": {
			"We should not pick one of the two.", goldClaim, documents(registered, claimKind),
			`classes.yaml, document 3: ClaimKind "databases.example.org" is there already, in classes.yaml, document 1`,
		},
		"ClassWithoutAName": {
			"We should refuse a class that the API server would name.", goldClaim,
			documents(registered, `{"apiVersion": "example.org/v1", "kind": "FastClass", "metadata": {"generateName": "gold-"}}`),
			"classes.yaml, document 3: this class has no metadata.name",
		},
		"UnknownField": {
			"We should refuse what the API server would.", goldClaim,
			`{"apiVersion": "classbind.io/v1beta1", "kind": "ClaimKind", "metadata": {"name": "databases.example.org"}, "spec": {"choice": {"stratgy": "Random"}}}`,
			`the API server would refuse the ClaimKind "databases.example.org": spec.choice.stratgy: the schema has no such field: did you mean spec.choice.strategy?`,
		},
		"WrongType": {
			"We should refuse what the API server would.", goldClaim,
			`{"apiVersion": "classbind.io/v1beta1", "kind": "ClassKind", "metadata": {"name": "fastclasses.example.org"}, "spec": {"claimKinds": "all"}}`,
			`the API server would refuse the ClassKind "fastclasses.example.org": spec.claimKinds: Invalid value: "string": spec.claimKinds in body ` +
				`must be of type array`,
		},
		"WrongPath": {
			"We should evaluate the rules of our own CRDs.", goldClaim,
			`{"apiVersion": "classbind.io/v1beta1", "kind": "ClaimKind", "metadata": {"name": "databases.example.org"}, "spec": {"reference": ` +
				`{"path": "spec.classRef"}}}`,
			`spec.reference.path: Invalid value: "spec.classRef": must be a path of at most ten field names, each after a dot, such as .spec.classRef`,
		},
		"UnknownVersion": {
			"We should not read a version that we do not know.", goldClaim,
			`{"apiVersion": "classbind.io/v2", "kind": "ClaimKind", "metadata": {"name": "databases.example.org"}}`,
			`apiVersion "classbind.io/v2" is not served`,
		},
		"CRDWithoutScope": {
			"We should not guess what a CRD must say.", goldClaim,
			documents(
				registered,
				`{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "a.b"}, "spec": {"names": {"kind": "A"}}}`,
			),
			`cannot read the CRD "a.b": it needs spec.names.kind, spec.scope, and`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := offline(t, tc.claim, tc.classes)
			assert.Contains(t, got.stderr, tc.want, tc.reason)
			assert.Equal(t, exit.Failed, got.status, "We should not exit with the status of a claim without a class.")
			assert.Empty(t, got.stdout, "We should print nothing that could be taken for an answer.")
		})
	}
}

func TestExplainReads(t *testing.T) {
	registered := documents(claimKind, classKind, goldClass)
	other := strings.ReplaceAll(goldClaim, "mine", "other")
	dir := write(t, map[string]string{
		"claims/a.yaml": documents("# A comment.", goldClaim), "claims/b.yml": other, "claims/c.json": strings.ReplaceAll(goldClaim, "mine", "third"),
		"claims/readme.txt": "no claim", "claims/deep/d.yaml": strings.ReplaceAll(goldClaim, "mine", "deep"),
		"chart/kustomization.yaml":   "resources: [kinds.yaml]\n",
		"chart/values.yaml":          "image: {tag: v1}\n",
		"chart/dashboard.json":       `{"title": "a"}`,
		"chart/items.yaml":           "items: [a, b]\n",
		"chart/kind.yaml":            "kind: a\n",
		"chart/tsconfig.json":        "{\n  // A comment.\n  \"strict\": true\n}\n",
		"chart/template.yaml":        "apiVersion: v1\nkind: Service\nmetadata: {{ .Values.metadata }}\n",
		"chart/base.yaml":            "{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}}",
		"chart/patch.yaml":           "{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}}",
		"chart/kinds.yaml":           registered,
		"broken/kinds.yaml":          registered,
		"broken/half.yaml":           documents(goldClass, "metadata: {name: a}"),
		"unreadable/kinds.yaml":      registered,
		"unreadable/class.yaml":      "apiVersion: v1\nkind: [a",
		"unreadable.json/kinds.yaml": registered,
		"unreadable.json/class.json": "{\n  \"apiVersion\": \"v1\",,}",
		"kindless/kinds.yaml":        registered,
		"kindless/class.yaml":        documents(goldClass, "apiVersion: v1\nmetadata: {name: a}\n"),
		"list.yaml":                  `{"apiVersion": "v1", "kind": "List", "items": [` + goldClaim + `, ` + other + `]}`,
		"empty/a.txt":                "", "classes/kinds.yaml": documents(claimKind, classKind), "classes/deep/gold.json": goldClass,
	})
	t.Chdir(dir)
	for name, tc := range map[string]struct {
		reason, in string
		args       []string
		want       []string // names of claims
		err        string
	}{
		"File": {
			reason: "We should read a file.",
			args:   []string{"-f", "claims/a.yaml", "--offline", "classes/kinds.yaml", "--offline", "classes/deep"},
			want:   []string{"mine"},
		},
		"Folder": {
			reason: "We should read what kubectl reads of a folder.",
			args:   []string{"-f", "claims", "--offline", "classes/kinds.yaml", "--offline", "classes/deep"},
			want:   []string{"mine", "other", "third"},
		},
		"Recursive": {
			reason: "We should read the folders in it, if told so.",
			args:   []string{"-R", "-f", "claims", "--offline", "classes"},
			want:   []string{"mine", "other", "third", "deep"},
		},
		"List": {
			reason: "We should read what kubectl get prints of several.",
			args:   []string{"-f", "list.yaml", "--offline", "classes/kinds.yaml", "--offline", "classes/deep"},
			want:   []string{"mine", "other"},
		},
		"Stdin": {
			reason: "We should read standard input.",
			in:     documents(goldClaim, other),
			args:   []string{"-f", "-", "--offline", "classes/kinds.yaml", "--offline", "classes/deep"},
			want:   []string{"mine", "other"},
		},
		"ClassesStdin": {
			reason: "We should read classes from standard input.",
			in:     registered,
			args:   []string{"-f", "claims/a.yaml", "--offline", "-"},
			want:   []string{"mine"},
		},
		"NoManifests": {
			reason: "We should pass over what is no manifest in a folder of classes.",
			args:   []string{"-f", "claims/a.yaml", "--offline", "chart"},
			want:   []string{"mine"},
		},
		"HalfAManifest": {
			reason: "We should not pass over a part of a manifest.",
			args:   []string{"-f", "claims", "--offline", "broken"},
			err:    "cannot read broken/half.yaml, document 2: it is no object of Kubernetes",
		},
		"Unreadable": {
			reason: "We should not pass over what we cannot read.",
			args:   []string{"-f", "claims", "--offline", "unreadable"},
			err:    "cannot read unreadable/class.yaml, document 1: ",
		},
		"NoKind": {
			reason: "We should not pass over a manifest without its kind.",
			args:   []string{"-f", "claims", "--offline", "kindless"},
			err:    "cannot read kindless/class.yaml, document 2: it is no object of Kubernetes",
		},
		"NoManifestNamed": {
			reason: "We should not pass over a file that is named.",
			args:   []string{"-f", "claims", "--offline", "chart", "--offline", "chart/values.yaml"},
			err:    "cannot read chart/values.yaml, document 1: it is no object of Kubernetes",
		},
		"Absent": {
			reason: "We should name a file that is not there.",
			args:   []string{"-f", "absent.yaml", "--offline", "classes"},
			err:    `cannot read "absent.yaml": `,
		},
		"EmptyFolder": {
			reason: "We should say why we read nothing of a folder.",
			args:   []string{"-f", "empty", "--offline", "classes"},
			err:    `cannot read "empty": the folder has no file that ends in .yaml, .yml or .json`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := run(t, tc.in, append(tc.args, "-o", "json")...)
			if tc.err != "" {
				assert.Contains(t, got.stderr, tc.err, tc.reason)
				assert.Equal(t, exit.Failed, got.status)
				return
			}
			require.Zero(t, got.status, "%s: %s", tc.reason, got.stderr)
			for _, file := range []string{"kustomization.yaml", "values.yaml", "dashboard.json", "items.yaml", "kind.yaml", "tsconfig.json", "template.yaml"} {
				note := fmt.Sprintf("note: %q is left out: it is no manifest of Kubernetes\n", "chart/"+file)
				assert.Equal(t, name == "NoManifests", strings.Contains(got.stderr, note), "We should say what we leave out: %s", got.stderr)
			}
			var report Report
			require.NoError(t, json.Unmarshal([]byte(got.stdout), &report))
			var names []string
			for _, i := range report.Items {
				names = append(names, i.Claim.Name)
				require.NotNil(t, i.Class, tc.reason)
				assert.Equal(t, "gold", i.Class.Name, tc.reason)
			}
			assert.Equal(t, tc.want, names, tc.reason)
		})
	}
}

func TestExplainNamespace(t *testing.T) {
	const never = "left alone\n  Because: claims in "
	for name, tc := range map[string]struct {
		reason string
		args   []string
		want   string
	}{
		"Default": {"We should print the namespace, because the draw depends on it.", nil, "Database default/mine: "},
		"Flag":    {"We should print the namespace, because the draw depends on it.", []string{"-n", "team"}, "Database team/mine: "},
		"Own":     {"We should know what the API server leaves out.", []string{"-n", "classbind-system"}, never + "classbind-system are never bound"},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Contains(t, offline(t, goldClaim, documents(claimKind, classKind, goldClass), tc.args...).stdout, tc.want, tc.reason)
		})
	}
}

func TestExplainYAMLIsTheJSON(t *testing.T) {
	t.Chdir("testdata/typo")
	args := []string{"-f", "claim.yaml", "--offline", "classes.yaml", "--offline", "../registered.yaml"}
	asJSON, asYAML := run(t, "", append(args, "-o", "json")...), run(t, "", append(args, "-o", "yaml")...)
	converted, err := yaml.YAMLToJSON([]byte(asYAML.stdout))
	require.NoError(t, err)
	assert.JSONEq(t, asJSON.stdout, string(converted), "We should print the same in both.")
	var report Report
	require.NoError(t, yaml.UnmarshalStrict([]byte(asYAML.stdout), &report), "A program should be able to read all of it into our type.")
	assert.Equal(t, Version, report.APIVersion)
	assert.Equal(t, "Report", report.Kind)
}

func TestPercentage(t *testing.T) {
	for odds, want := range map[selector.Odds]string{
		{}: "?", {Share: 1, Total: 1}: "100%", {Share: 0, Total: 3}: "0%", {Share: 1, Total: 3}: "33.3%", {Share: 1 << 62, Total: 1<<63 - 1}: "50%",
	} {
		assert.Equal(t, want, Percentage(odds))
	}
}

// TestOddsThatDependOnMore has one class. The goldens of RoundRobin and LeastClaims have several.
func TestOddsThatDependOnMore(t *testing.T) {
	classes := documents(strings.Replace(claimKind, "}}", `}, "spec": {"choice": {"strategy": "RoundRobin"}}}`, 1), classKind, goldClass)
	_, item := explained(t, goldClaim, classes)
	assert.NotNil(t, item.Class, "We should name the only class.")
	assert.True(t, item.Explanation.Reproducible)
	out := offline(t, goldClaim, classes).stdout
	assert.Contains(t, out, "bound to FastClass/gold\n")
	assert.Contains(t, out, "* FastClass/gold")
}

// TestChooserOfOne has a chooser, which is not asked.
func TestChooserOfOne(t *testing.T) {
	classes := documents(strings.Replace(claimKind, "}}",
		`}, "spec": {"choice": {"strategy": "External", "external": {"host": "chooser.example.org:443", `+
			`"fields": {"class": [{"path": ".metadata.name"}]}}}}}`, 1), classKind, goldClass)
	_, item := explained(t, goldClaim, classes)
	assert.Nil(t, item.Class, "We should not promise a class that a chooser may refuse.")
	assert.Nil(t, item.Reference)
	assert.Contains(t, item.Message, "; whether the claim gets it depends on what the chooser answers")
	out := offline(t, goldClaim, classes).stdout
	assert.Contains(t, out, "bound to FastClass/gold, or no class\n")
	assert.NotContains(t, out, "* FastClass/gold")
}

// TestUnknownAgain has a bound claim whose decision cannot be repeated.
func TestUnknownAgain(t *testing.T) {
	bound := strings.Replace(goldClaim, `"spec": {`, `"spec": {"classRef": {"apiVersion": "example.org/v1", "kind": "FastClass", "name": "gold"}, `, 1)
	for spec, want := range map[string]string{
		`{"classes": {"fits": [{"name": "Mine", "expression": "request.userInfo.username == 'jane'"}]}}`: "say who with --requester NAME",
		`{"classes": {"fits": [{"name": "Mine", "expression": "class."}]}}`:                              "classes.fits",
	} {
		classes := documents(strings.Replace(claimKind, "}}", `}, "spec": `+spec+"}", 1), classKind, goldClass)
		_, item := explained(t, bound, classes)
		require.Equal(t, LeftAlone, item.Outcome, spec)
		notes := strings.Join(item.Notes, "\n")
		assert.Contains(t, notes, "which class it would get now is unknown: ", "We should say what the help promises, or why not.")
		assert.Contains(t, notes, want)
	}
}

func TestSettings(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		set    []string
		want   world.Settings
	}{
		"Nothing": {"We should know of nothing.", nil, world.Settings{}},
		"Label": {
			"We should put a label into the metadata.",
			[]string{"namespace.labels.tenant=a"},
			world.Settings{Namespace: map[string]any{"metadata": map[string]any{"labels": map[string]any{"tenant": "a"}}}},
		},
		"Domain": {
			"We should take the dots of a key as they are, with or without a backslash.",
			[]string{"namespace.labels.example.org/a=b", `namespace.labels.example\.org/c=d`},
			world.Settings{Namespace: map[string]any{"metadata": map[string]any{"labels": map[string]any{"example.org/a": "b", "example.org/c": "d"}}}},
		},
		"LabelsAreTexts": {
			"We should leave labels texts.",
			[]string{"namespace.labels.a=true", "namespace.labels.b=1", "namespace.labels.c="},
			world.Settings{Namespace: map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": "true", "b": "1", "c": ""}}}},
		},
		"Requester": {
			"We should know who asks.",
			[]string{"request.userInfo.username=system:jane", "request.userInfo.uid=7"},
			world.Settings{Request: map[string]any{"userInfo": map[string]any{"username": "system:jane", "uid": "7"}}},
		},
		"Extra": {
			"We should take the dots of a key as they are.",
			[]string{"request.userInfo.extra.example.org/a=b"},
			world.Settings{Request: map[string]any{"userInfo": map[string]any{"extra": map[string]any{"example.org/a": []any{"b"}}}}},
		},
		"Related": {
			"We should report types as JSON does.",
			[]string{
				"related.plan.spec.tier=gold", "related.plan.spec.max=7", "related.plan.spec.price=1.5", "related.plan.spec.open=true",
				`related.plan.spec.code="7"`, "related.plan.spec.none=null",
			},
			world.Settings{
				Related: map[string]map[string]any{"plan": {"spec": map[string]any{"tier": "gold", "max": int64(7), "price": 1.5, "open": true, "code": "7", "none": nil}}},
			},
		},
		"RelatedDot": {
			"We should take a dot in a name.",
			[]string{`related.plan.metadata.labels.example\.org/a=b`},
			world.Settings{Related: map[string]map[string]any{"plan": {"metadata": map[string]any{"labels": map[string]any{"example.org/a": "b"}}}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := newSettings(tc.set)
			require.NoError(t, err)
			if tc.want.Related == nil {
				tc.want.Related = map[string]map[string]any{}
			}
			assert.Equal(t, tc.want, got, tc.reason)
		})
	}
}

func TestExplainRefusesUndeclaredRelated(t *testing.T) {
	related := `{"apiVersion": "classbind.io/v1beta1", "kind": "ClaimKind", "metadata": {"name": "others.example.org"}, "spec": {"classes": ` +
		`{"related": [{"name": "plan", "resource": "plans.example.org", "nameExpression": "claim.spec.plan"}]}}}`
	got := offline(t, goldClaim, documents(claimKind, related), "--set", "related.plam.spec.tier=gold")
	assert.Equal(t, "error: --set: no ClaimKind has a related object \"plam\": did you mean plan?\n", got.stderr, "We should say what there is.")
	assert.Equal(t, exit.Failed, got.status)
}

// TestExplainRefusesLongFields refuses a claim for a field that expressions look at, as the server does.
func TestExplainRefusesLongFields(t *testing.T) {
	fitting := `{"apiVersion": "classbind.io/v1beta1", "kind": "ClaimKind", "metadata": {"name": "databases.example.org"}, "spec": {"classes": ` +
		`{"fits": [{"name": "Text", "expression": "has(claim.spec.text)"}]}}}`
	long := strings.Replace(goldClaim, `"spec": {`, `"spec": {"text": "`+strings.Repeat("x", v1beta1.MaxExpressionValueBytes)+`", `, 1)
	got := offline(t, long, documents(fitting, classKind, goldClass))
	assert.Contains(t, got.stdout, "spec.text: Too long", got.stderr)
	assert.Contains(t, got.stdout, "must not be longer than 16384 bytes")
}
