package explain

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/cmd/classbind/exit"
	"github.com/classbind/classbind/selector"
)

const (
	claimKind = `{"apiVersion": "classbind.io/v1beta1", "kind": "ClaimKind", "metadata": {"name": "databases.example.org"}}`
	classKind = `{"apiVersion": "classbind.io/v1beta1", "kind": "ClassKind", "metadata": {"name": "fastclasses.example.org"}, "spec": {"claimKinds": [{"name": "databases.example.org"}]}}`
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
		reason  string
		claim   string
		classes string
		want    string
	}{
		"Empty":             {"We should not succeed at nothing.", "# nothing\n", registered, "--filename: there is no object in claim.yaml"},
		"NoYAML":            {"We should name the file and the document.", documents(goldClaim, "a: [b"), registered, "cannot read claim.yaml, document 2: "},
		"FieldTwice":        {"We should not pick one of the two.", "apiVersion: v1\nkind: A\nkind: B\n", registered, `claim.yaml, document 1: `},
		"Text":              {"We should say what an object needs.", "claim", registered, "claim.yaml, document 1: it is no object of Kubernetes: it needs an apiVersion and a kind"},
		"NoKind":            {"We should say what an object needs.", "apiVersion: v1", registered, "it needs an apiVersion and a kind"},
		"NoKindInAList":     {"We should say which item.", `{"items": [` + goldClaim + `, {"apiVersion": "v1"}]}`, registered, "claim.yaml, document 1, item 2: it is no object"},
		"NoClaimKind":       {"We should say what is missing.", goldClaim, documents(classKind, goldClass), "--classes: no ClaimKind is among the objects"},
		"ClassTwice":        {"We should neither count a class twice nor pick one of the two.", goldClaim, documents(registered, goldClass, goldClass), `classes.yaml, document 4: FastClass "gold" is there already, in classes.yaml, document 3`},
		"KindTwice":         {"We should not pick one of the two.", goldClaim, documents(registered, claimKind), `classes.yaml, document 3: ClaimKind "databases.example.org" is there already, in classes.yaml, document 1`},
		"ClassWithoutAName": {"We should refuse a class that the API server would name.", goldClaim, documents(registered, `{"apiVersion": "example.org/v1", "kind": "FastClass", "metadata": {"generateName": "gold-"}}`), "classes.yaml, document 3: this class has no metadata.name"},
		"UnknownField":      {"We should refuse what the API server would.", goldClaim, `{"apiVersion": "classbind.io/v1beta1", "kind": "ClaimKind", "metadata": {"name": "databases.example.org"}, "spec": {"choice": {"stratgy": "Random"}}}`, `the API server would refuse the ClaimKind "databases.example.org": spec.choice.stratgy: the schema has no such field: did you mean spec.choice.strategy?`},
		"WrongType":         {"We should refuse what the API server would.", goldClaim, `{"apiVersion": "classbind.io/v1beta1", "kind": "ClassKind", "metadata": {"name": "fastclasses.example.org"}, "spec": {"claimKinds": "all"}}`, `the API server would refuse the ClassKind "fastclasses.example.org": spec.claimKinds: Invalid value: "string": spec.claimKinds in body must be of type array`},
		"WrongPath":         {"We should evaluate the rules of our own CRDs.", goldClaim, `{"apiVersion": "classbind.io/v1beta1", "kind": "ClaimKind", "metadata": {"name": "databases.example.org"}, "spec": {"reference": {"path": "spec.classRef"}}}`, `spec.reference.path: Invalid value: "spec.classRef": must be a path of at most ten field names, each after a dot, such as .spec.classRef`},
		"UnknownVersion":    {"We should not read a version that we do not know.", goldClaim, `{"apiVersion": "classbind.io/v2", "kind": "ClaimKind", "metadata": {"name": "databases.example.org"}}`, `apiVersion "classbind.io/v2" is not served`},
		"CRDWithoutScope":   {"We should not guess what a CRD must say.", goldClaim, documents(registered, `{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "a.b"}, "spec": {"names": {"kind": "A"}}}`), `cannot read the CRD "a.b": it has no spec.scope`},
		"CRDWithoutKind":    {"We should not guess what a CRD must say.", goldClaim, documents(registered, `{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "a.b"}, "spec": {"scope": "Cluster"}}`), `cannot read the CRD "a.b": it has no spec.names.kind`},
		"CRDNotServed":      {"We should not guess what a CRD must say.", goldClaim, documents(registered, `{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "a.b"}, "spec": {"scope": "Cluster", "names": {"kind": "A"}, "versions": [{"name": "v1", "served": false}]}}`), `it has no version in spec.versions that is served`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(write(t, map[string]string{"claim.yaml": tc.claim, "classes.yaml": tc.classes}))
			got := run(t, "", "-f", "claim.yaml", "--classes", "classes.yaml")
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
		"chart/kustomization.yaml": "resources: [kinds.yaml]\n", "chart/values.yaml": "image: {tag: v1}\n", "chart/dashboard.json": `{"title": "a"}`, "chart/items.yaml": "items: [a, b]\n", "chart/kind.yaml": "kind: a\n", "chart/tsconfig.json": "{\n  // A comment.\n  \"strict\": true\n}\n", "chart/template.yaml": "apiVersion: v1\nkind: Service\nmetadata: {{ .Values.metadata }}\n", "chart/base.yaml": "{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}}", "chart/patch.yaml": "{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}}", "chart/kinds.yaml": registered,
		"broken/kinds.yaml": registered, "broken/half.yaml": documents(goldClass, "metadata: {name: a}"), "unreadable/kinds.yaml": registered, "unreadable/class.yaml": "apiVersion: v1\nkind: [a", "unreadable.json/kinds.yaml": registered, "unreadable.json/class.json": "{\n  \"apiVersion\": \"v1\",,}",
		"kindless/kinds.yaml": registered, "kindless/class.yaml": documents(goldClass, "apiVersion: v1\nmetadata: {name: a}\n"), "list.yaml": `{"apiVersion": "v1", "kind": "List", "items": [` + goldClaim + `, ` + other + `]}`,
		"empty/a.txt": "", "classes/kinds.yaml": documents(claimKind, classKind), "classes/deep/gold.json": goldClass,
	})
	t.Chdir(dir)
	for name, tc := range map[string]struct {
		reason string
		in     string
		args   []string
		want   []string // names of claims
		err    string
	}{
		"File":            {reason: "We should read a file.", args: []string{"-f", "claims/a.yaml", "--classes", "classes"}, want: []string{"mine"}},
		"Files":           {reason: "We should read several files, in their order.", args: []string{"-f", "claims/b.yml", "-f", "claims/a.yaml", "--classes", "classes"}, want: []string{"other", "mine"}},
		"Folder":          {reason: "We should read what kubectl reads of a folder.", args: []string{"-f", "claims", "--classes", "classes"}, want: []string{"mine", "other", "third"}},
		"Recursive":       {reason: "We should read the folders in it, if told so.", args: []string{"-R", "-f", "claims", "--classes", "classes"}, want: []string{"mine", "other", "third", "deep"}},
		"List":            {reason: "We should read what kubectl get prints of several.", args: []string{"-f", "list.yaml", "--classes", "classes"}, want: []string{"mine", "other"}},
		"Stdin":           {reason: "We should read standard input.", in: documents(goldClaim, other), args: []string{"-f", "-", "--classes", "classes"}, want: []string{"mine", "other"}},
		"ClassesStdin":    {reason: "We should read classes from standard input.", in: registered, args: []string{"-f", "claims/a.yaml", "--classes", "-"}, want: []string{"mine"}},
		"ClassesTwice":    {reason: "We should read classes of several places.", args: []string{"-f", "claims/a.yaml", "--classes", "classes/deep", "--classes", "classes/kinds.yaml"}, want: []string{"mine"}},
		"NoManifests":     {reason: "We should pass over what is no manifest in a folder of classes.", args: []string{"-f", "claims/a.yaml", "--classes", "chart"}, want: []string{"mine"}},
		"HalfAManifest":   {reason: "We should not pass over a part of a manifest.", args: []string{"-f", "claims", "--classes", "broken"}, err: "cannot read broken/half.yaml, document 2: it is no object of Kubernetes"},
		"Unreadable":      {reason: "We should not pass over what we cannot read.", args: []string{"-f", "claims", "--classes", "unreadable"}, err: "cannot read unreadable/class.yaml, document 1: "},
		"UnreadableJSON":  {reason: "We should not pass over what we cannot read.", args: []string{"-f", "claims", "--classes", "unreadable.json"}, err: "cannot read unreadable.json/class.json, document 1: "},
		"NoKind":          {reason: "We should not pass over a manifest without its kind.", args: []string{"-f", "claims", "--classes", "kindless"}, err: "cannot read kindless/class.yaml, document 2: it is no object of Kubernetes"},
		"NoManifestNamed": {reason: "We should not pass over a file that is named.", args: []string{"-f", "claims", "--classes", "chart", "--classes", "chart/values.yaml"}, err: "cannot read chart/values.yaml, document 1: it is no object of Kubernetes"},
		"NoManifestClaim": {reason: "We should not pass over a claim.", args: []string{"-f", "chart", "--classes", "classes"}, err: "it is no object of Kubernetes"},
		"Absent":          {reason: "We should name a file that is not there.", args: []string{"-f", "absent.yaml", "--classes", "classes"}, err: `cannot read "absent.yaml": `},
		"AbsentClasses":   {reason: "We should name a file that is not there.", args: []string{"-f", "claims", "--classes", "absent"}, err: `cannot read "absent": `},
		"EmptyFolder":     {reason: "We should say why we read nothing of a folder.", args: []string{"-f", "empty", "--classes", "classes"}, err: `cannot read "empty": the folder has no file that ends in .yaml, .yml or .json`},
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
	t.Chdir(write(t, map[string]string{"claim.yaml": goldClaim, "classes.yaml": documents(claimKind, classKind, goldClass)}))
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"Default": {nil, "Database default/mine: "},
		"Flag":    {[]string{"-n", "team"}, "Database team/mine: "},
	} {
		t.Run(name, func(t *testing.T) {
			got := run(t, "", append(tc.args, "-f", "claim.yaml", "--classes", "classes.yaml")...)
			assert.Contains(t, got.stdout, tc.want, "We should print the namespace, because the draw depends on it.")
		})
	}
	system := run(t, "", "-f", "claim.yaml", "--classes", "classes.yaml", "-n", "kube-system")
	assert.Contains(t, system.stdout, "left alone\n  Because: claims in kube-system are never bound", "We should know what the API server leaves out.")
	own := run(t, "", "-f", "claim.yaml", "--classes", "classes.yaml", "-n", "classbind-system")
	assert.Contains(t, own.stdout, "left alone\n  Because: claims in classbind-system, which is classbind's own namespace, are never bound", "We should know what the API server leaves out.")
	moved := run(t, "", "-f", "claim.yaml", "--classes", "classes.yaml", "-n", "elsewhere", "--classbind-namespace", "elsewhere")
	assert.Contains(t, moved.stdout, "left alone\n  Because: claims in elsewhere, which is classbind's own namespace, are never bound", "We should believe --classbind-namespace.")
}

func TestExplainYAMLIsTheJSON(t *testing.T) {
	t.Chdir("testdata/typo")
	args := []string{"-f", "claim.yaml", "--classes", "classes.yaml", "--classes", "../registered.yaml"}
	asJSON, asYAML := run(t, "", append(args, "-o", "json")...), run(t, "", append(args, "-o", "yaml")...)
	converted, err := yaml.YAMLToJSON([]byte(asYAML.stdout))
	require.NoError(t, err)
	assert.JSONEq(t, asJSON.stdout, string(converted), "We should print the same in both.")
	var report Report
	require.NoError(t, yaml.UnmarshalStrict([]byte(asYAML.stdout), &report), "A program should be able to read all of it into our type.")
	assert.Equal(t, Version, report.APIVersion)
	assert.Equal(t, "Report", report.Kind)
}

// TestDefaults states the defaults once more, as docs/register-kinds.md does. They agree with the CRD because they are read from it.
func TestDefaults(t *testing.T) {
	for object, want := range map[string]string{
		claimKind: `{"claims": {"skipIfSet": [{"path": ".spec.resourceRef"}], "namespaceSelector": {}},
			"reference": {"path": ".spec.classRef", "form": "ObjectReference", "whenEmpty": "LeaveAlone", "whenAbsent": "Bind",
				"whenParentAbsent": "Create", "explicit": "Allow", "onUnbind": "Restore"},
			"selector": {"path": ".spec.classSelector", "annotation": "classbind.io/class-selector", "whenAbsent": "Default"},
			"classes": {"precedence": "Name", "namespaces": {"from": "SameAsClaim"}},
			"choice": {"strategy": "WeightedRandom", "seed": "Claim", "annotate": "Nothing"},
			"whenUnmatched": "Admit", "admission": {"defaulting": "Webhook", "order": "Last", "failurePolicy": "Fail"}}`,
		`{"apiVersion": "classbind.io/v1beta1", "kind": "ClassKind", "metadata": {"name": "a.b"}}`: `{"default": {"annotation": "classbind.io/default"}, "weight": {"annotation": "classbind.io/weight"}, "onDelete": "Warn"}`,
	} {
		found, err := readDocuments([]byte(object), "object", nil)
		require.NoError(t, err)
		schemas, err := ownSchemas()
		require.NoError(t, err)
		require.Empty(t, schemas[found[0].GroupVersionKind()].decode(found[0].Object))
		got, err := json.Marshal(found[0].Object["spec"])
		require.NoError(t, err)
		assert.JSONEq(t, want, string(got), "We should fill in every default.")
	}
}

func TestPercentage(t *testing.T) {
	for _, tc := range []struct {
		odds selector.Odds
		want string
	}{
		{selector.Odds{}, "?"},
		{selector.Odds{Share: 1, Total: 1}, "100%"},
		{selector.Odds{Share: 0, Total: 3}, "0%"},
		{selector.Odds{Share: 1, Total: 3}, "33.3%"},
		{selector.Odds{Share: 1, Total: 2}, "50%"},
		{selector.Odds{Share: 1, Total: 1_000_001}, "under 0.1%"},
		{selector.Odds{Share: 1_000_000, Total: 1_000_001}, "over 99.9%"},
		{selector.Odds{Share: 999, Total: 1000}, "99.9%"},
		{selector.Odds{Share: 1 << 62, Total: 1<<63 - 1}, "50%"},
	} {
		assert.Equal(t, tc.want, Percentage(tc.odds))
	}
}

// TestOddsThatDependOnMore has one class. The goldens of RoundRobin and LeastClaims have several.
func TestOddsThatDependOnMore(t *testing.T) {
	claims := documentsOf(t, goldClaim)
	r := newRegistrations("classbind-system")
	require.NoError(t, r.addAll(t.Context(), documentsOf(t, claimKind, classKind, goldClass)))
	r.claims = claims
	r.claimKinds[0].Spec.Choice.Strategy = v1beta1.RoundRobin
	items, err := (&options{fresh: func() uint64 { return 1 }}).answers(t.Context(), r, claims[0], "default")
	require.NoError(t, err)
	require.Len(t, items, 1)
	assert.NotNil(t, items[0].Class, "We should name the only class.")
	assert.True(t, items[0].Reproducible)
	var out strings.Builder
	itemTable{items[0], &out}.write()
	assert.Contains(t, out.String(), "bound to FastClass/gold\n")
	assert.Contains(t, out.String(), "* FastClass/gold")
}
