package simulate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/cmd/classbind/exit"
)

const (
	registrations = `apiVersion: classbind.io/v1beta1
kind: ClaimKind
metadata: {name: claims.test.io}
spec: SPEC
---
apiVersion: classbind.io/v1beta1
kind: ClassKind
metadata: {name: classes.test.io}
spec: {claimKinds: [{name: claims.test.io}]}
`
	gold   = "---\napiVersion: test.io/v1\nkind: Class\nmetadata: {name: gold, labels: {tier: gold}}\n"
	silver = "---\napiVersion: test.io/v1\nkind: Class\nmetadata: {name: silver, labels: {tier: silver}, annotations: {classbind.io/default: 'true'}}\n"
	claims = `---
apiVersion: test.io/v1
kind: Claim
metadata: {namespace: team, name: db}
spec: {classSelector: {matchLabels: {tier: gold}}, classRef: {apiVersion: test.io/v1, kind: Class, name: gold}}
---
apiVersion: test.io/v1
kind: Claim
metadata: {namespace: team, name: plain}
`
	crd = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: claims.test.io}
spec:
  {group: test.io, scope: Namespaced, names: {kind: Claim, plural: claims}, versions: [{name: v1, served: true, storage: true,
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}
`
	plan = "---\napiVersion: test.io/v1\nkind: Plan\nmetadata: {namespace: team, name: small}\nspec: {tier: all}\n"
)

// simulate runs the command on files, and returns its report. spec is that of the ClaimKind.
func simulate(t *testing.T, spec, files, change string, args ...string) (*Report, string, error) {
	t.Helper()
	folder := t.TempDir()
	files = strings.ReplaceAll(registrations, "SPEC", spec) + files
	if strings.Contains(spec, "#capacity") {
		files = strings.Replace(files, "[{name: claims.test.io}]}", "[{name: claims.test.io}], capacity: [{name: claims}]}", 1)
	}
	require.NoError(t, os.WriteFile(filepath.Join(folder, "all.yaml"), []byte(files), 0o600))
	args = append(args, "--offline="+folder)
	if change != "" {
		args = append(args, "--filename=-")
	}
	run := func(format string) (string, error) {
		var out bytes.Buffer
		c := NewCommand()
		c.SilenceErrors, c.SilenceUsage = true, true
		c.SetArgs(append(args, "--output="+format))
		c.SetIn(strings.NewReader(change))
		c.SetOut(&out)
		c.SetErr(&out)
		err := c.ExecuteContext(t.Context())
		return out.String(), err
	}
	text, err := run("json")
	report := &Report{}
	if json.Unmarshal([]byte(text), report) != nil {
		return nil, text, err
	}
	text, again := run("table")
	assert.Equal(t, err, again)
	return report, text, err
}

func TestSimulate(t *testing.T) {
	t.Parallel()
	_, ofTenantA, _ := strings.Cut(registrations, "---\n")
	ofTenantA = "---\n" + strings.Replace(ofTenantA, "]}\n",
		"], fits: [{name: Tenant, expression: \"labelSelectorMatches({'matchLabels': {'tenant': 'a'}}, namespaceObject.metadata.labels)\"}]}\n", 1)
	for name, tc := range map[string]struct {
		reason, spec, change string
		args                 []string
		moved, lost          int
		status               int
		text                 string
	}{
		"nothing changes": {
			reason: "We should say that a label nobody asks for moves nothing.",
			change: strings.Replace(gold, "{tier: gold}", "{tier: gold, more: label}", 1),
			text:   "Nothing changes for 1 kind, which has 2 claims; --all shows them\n",
		},
		"all": {
			reason: "We should show what does not change, if told so.",
			change: strings.Replace(gold, "{tier: gold}", "{tier: gold, more: label}", 1),
			args:   []string{"--all"}, text: "2 claims: none would get another class",
		},
		"named": {
			reason: "We should show the kinds that are named, as kubectl names them.",
			change: strings.Replace(gold, "{tier: gold}", "{tier: gold, more: label}", 1),
			args:   []string{"claim"}, text: "2 claims: none would get another class",
		},
		"moved": {
			reason: "We should name the claim that another default gets.",
			change: strings.Replace(silver, "silver, labels: {tier: silver}", "bronze", 1) + strings.Replace(silver, "'true'", "'false'", 1),
			moved:  1,
			text:   "  1        Class/silver   Class/bronze   team/plain\n",
		},
		"strict": {
			reason: "We should fail for a claim that moves, if asked to.",
			change: strings.Replace(silver, "silver, labels: {tier: silver}", "bronze", 1) + strings.Replace(silver, "'true'", "'false'", 1),
			args:   []string{"--strict"}, moved: 1, status: exit.Found,
		},
		"removed": {
			// The author's {} stays.
			reason: "We should say that a claim loses its class, and why.", spec: "reference: {path: .spec.classRef, form: ObjectReference, whenAbsent: LeaveAlone}",
			args: []string{"--remove=Class/gold"}, lost: 1, status: exit.Found,
			text: "team/db, without a class: no class for this claim of \"claims.test.io\" matches the selector \"tier=gold\"",
		},
		"waits": {
			reason: "We should say that a claim waits.",
			spec:   "whenUnmatched: BindLater",
			args:   []string{"--remove=classes.test.io/gold"},
			lost:   1,
			status: exit.Found,
			text:   "Class/gold   waits for a class   team/db",
		},
		"not registered": {
			reason: "We should say that nobody binds the claims of a ClaimKind that is gone.",
			args:   []string{"--remove=ClaimKind/claims.test.io"},
			lost:   2,
			status: exit.Found,
			text:   "no ClaimKind registers the claims",
		},
		"related objects": {
			reason: "We should read what claims name from the files, and what changes of it.",
			spec: `classes: {related: [{name: plan, resource: plans.test.io, nameExpression: "'small'"}], fits: [{name: x, expression: ` +
				`"related.plan.spec.tier == 'all'"}]}`,
			change: "apiVersion: test.io/v1\nkind: Plan\nmetadata: {namespace: team, name: small}\nspec: {tier: none}\n",
			lost:   2, status: exit.Found, text: "without a class",
		},
		"of the namespace": {
			reason: "We should see that a class kind is for a namespace.",
			change: ofTenantA + "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: team, labels: {tenant: a}}\n",
			args:   []string{"--all"}, text: "2 claims: none would get another class",
		},
		"of other namespaces": {
			reason: "We should see that a class kind is not for a namespace.",
			change: ofTenantA + "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: team, labels: {tenant: b}}\n",
			lost:   2,
			status: exit.Found,
			text:   "without a class",
		},
		"fault": {
			reason: "We should say that all claims are refused if an expression does not compile.",
			change: strings.ReplaceAll(registrations, "SPEC", `{classes: {fits: [{name: x, expression: "class."}]}}`),
			lost:   2, status: exit.Found, text: "Class/gold     refused",
		},
		"second default": {
			reason: "We should say that a second default would be refused.",
			change: strings.Replace(silver, "silver, labels: {tier: silver}", "bronze", 1), moved: -1,
			text: "2 classes are marked default for a claim: Class/bronze, Class/silver; the API server would refuse the second one",
		},
		"made up": {
			reason: "We should make up claims in the proportions of those that exist.",
			args:   []string{"--claims=1000", "--remove=Class/gold"},
			lost:   500,
			status: exit.Found,
			text:   "1000 claims: 500 would no longer get a class",
		},
		"random": {
			reason: "We should give intervals where random numbers decide.", spec: "choice: {seed: {from: Request}}",
			change: strings.Replace(gold, "name: gold", "name: gold-2", 1),
			args:   []string{"--claims=1000"}, text: "  Class/gold     500      158 to 385   -241     25.9%",
		},
		"capacity": {
			reason: "We should count from empty classes where these have a capacity.", spec: "#capacity",
			change: strings.Replace(gold, "labels:", "annotations: {classbind.io/capacity: '10'}, labels:", 1),
			args:   []string{"--claims=100"}, lost: 40, status: exit.Found, text: "how much of each class is taken",
		},
		"no such class": {reason: "We should refuse to remove what is not there.", args: []string{"--remove=Class/bronze"}, status: exit.Failed},
		"no such kind":  {reason: "We should refuse a ClaimKind that is not there.", args: []string{"--remove=Class/gold", "others.test.io"}, status: exit.Failed},
		"version not served": {
			reason: "We should say why no claim is bound.", spec: "claims: {version: v2}",
			change: crd, lost: 2, status: exit.Found, text: "Note: no claim of the kind is bound: the CRD \"claims.test.io\" does not serve the version",
		},
		"left out": {
			reason: "We should name what matters to no claim.",
			change: strings.ReplaceAll(gold, "gold", "gold-2") + strings.Replace(gold, "kind: Class", "kind: Klass", 1),
			moved:  -1, text: "Note: left out, because it matters to no claim: Klass/gold in standard input",
		},
		"nothing matters": {
			reason: "We should not find that a misspelt kind changes nothing.",
			change: strings.Replace(gold, "kind: Class", "kind: Klass", 1),
			status: exit.Failed,
		},
		"nothing to do":     {reason: "We should ask for a change.", status: exit.Failed},
		"malformed removal": {reason: "We should refuse a malformed removal.", args: []string{"--remove=gold"}, status: exit.Failed},
		"too many claims":   {reason: "We should refuse too many claims.", args: []string{"--remove=Class/gold", "--claims=1000001"}, status: exit.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := "{}"
			if tc.spec != "" && tc.spec[0] != '#' {
				spec = "{" + tc.spec + "}"
			} else if tc.spec != "" {
				spec = "{} " + tc.spec
			}
			report, text, err := simulate(t, spec, gold+silver+claims+plan, tc.change, tc.args...)
			if exit.Status(err) != tc.status {
				t.Fatalf("%s: %v, %s", tc.reason, err, text)
			}
			if tc.status == exit.Failed {
				return
			}
			require.Len(t, report.Kinds, 1, text)
			if k := report.Kinds[0]; tc.moved >= 0 {
				assert.Equal(t, []int{tc.moved, tc.lost}, []int{k.Moved, k.Lost}, "%s\n%s", tc.reason, text)
			}
			assert.Contains(t, text, tc.text, tc.reason)
		})
	}
}

// TestIntervals has a class that is expected to get half of the claims.
func TestIntervals(t *testing.T) {
	t.Parallel()
	report, text, err := simulate(t, "{choice: {seed: {from: Request}}}", gold+strings.Replace(gold, "name: gold", "name: gold-2", 1)+claims,
		strings.Replace(gold, "name: gold", "name: gold-3", 1), "--claims=1000")
	require.NoError(t, err)
	k := report.Kinds[0]
	assert.Equal(t, 1000, k.Unpredictable, text)
	require.Len(t, k.Rows, 4, text)
	for _, row := range k.Rows {
		if row.Outcome != "" {
			continue
		}
		n := map[string]float64{"silver": 500}[row.Class.Name]
		if n == 0 {
			n = 500. / 3 // One of three.
		}
		assert.InDelta(t, n, row.After.Sample, 3*math.Sqrt(n), row)
		assert.InDelta(t, n-5.6*math.Sqrt(n), row.After.Low, 4*math.Sqrt(n), row)
		assert.InDelta(t, n+5.6*math.Sqrt(n), row.After.High, 4*math.Sqrt(n), row)
	}
	assert.Equal(t, Estimate{7, 7, 7}, counted{certain: 7}.estimate(0), "What is certain needs no interval.")
}

// TestGroups moves a group of claims as a whole, and knows where: claims that draw alike are no matter of chance, even where the API server
// has made up their names.
func TestGroups(t *testing.T) {
	t.Parallel()
	var all strings.Builder
	for n := range 100 {
		fmt.Fprintf(&all, "---\napiVersion: test.io/v1\nkind: Claim\n"+
			"metadata: {namespace: team, name: db-%d, generateName: db-, labels: {set: set-%d}, annotations: {classbind.io/class-selector: tier=gold}}\n", n, n%20)
	}
	report, text, err := simulate(t, `{choice: {seed: {from: Expression, expression: claim.metadata.labels.set}}}`, gold+all.String(),
		strings.Replace(gold, "name: gold", "name: gold-2", 1))
	require.NoError(t, err, text)
	k := report.Kinds[0]
	assert.Zero(t, k.Unpredictable, "We should know what each claim gets: %s", text)
	require.Len(t, k.Moves, 1, text)
	moved := map[string]int{}
	for _, name := range k.Moves[0].Claims {
		n, err := strconv.Atoi(strings.TrimPrefix(name, "team/db-"))
		require.NoError(t, err)
		moved[fmt.Sprint("set-", n%20)]++
	}
	assert.Len(t, k.Moves[0].Claims, k.Moved, text)
	assert.InDelta(t, 10, len(moved), 8, "We should move about half of the sets: %v", moved)
	for set, n := range moved {
		assert.Equal(t, 5, n, "We should not divide %s.", set)
	}
}

// TestTable has a hostile class.
func TestTable(t *testing.T) {
	t.Parallel()
	const hostile = "\u202e\u009b\n::error::"
	r := &Report{Kinds: []Kind{{ClaimKind: hostile, Notes: []string{hostile}, Rows: []Row{{}}, Moves: []Move{{Why: hostile, Claims: []string{hostile}}}}}}
	r.Kinds[0].Rows[0].Class.Name = hostile
	assert.False(t, strings.ContainsAny(r.table(true), "\u202e\u009b"), "We should print nothing that turns the text around.")
	assert.NotContains(t, "\n"+r.table(true), "\n::error::", "We should begin every line.")
}

// TestAddedKind has a ClaimKind that is wrong and that the change adds.
func TestAddedKind(t *testing.T) {
	t.Parallel()
	added := strings.NewReplacer("claims", "others", "Claim", "Other").Replace(crd) + "---\n" +
		strings.ReplaceAll(registrations, "claims.test.io", "others.test.io")
	added, _, _ = strings.Cut(strings.Replace(added, "SPEC", "{claims: {version: v2}}", 1), "---\napiVersion: classbind.io/v1beta1\nkind: ClassKind")
	report, text, err := simulate(t, "{}", gold+silver+claims, added)
	require.NoError(t, err, text)
	require.Len(t, report.Kinds, 2, text)
	assert.Contains(t, text, `Note: no claim of the kind is bound: the CRD "others.test.io" does not serve the version`, "We should show its notes.")
	assert.Contains(t, text, "Nothing changes for 1 kind,", "We should show no other kind.")
}

// TestChooserOfOne has a chooser, which may refuse the only class.
func TestChooserOfOne(t *testing.T) {
	t.Parallel()
	const external = `{choice: {strategy: External, external: {host: "chooser.test.io:443", fields: {class: [{path: .metadata.name}]}}}}`
	report, text, err := simulate(t, external, gold+claims[:strings.LastIndex(claims, "---")], gold, "--all")
	require.NoError(t, err, text)
	assert.Equal(t, 1, report.Kinds[0].Unpredictable, "We should not know whether the claim gets the class: %s", text)
	assert.Contains(t, text, "depends on what the chooser answers")
}
