package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/controlplane"
)

const agreementGroup = "agreement.test"

// TestAgreement has the same claims bound at admission, bound later and explained. Each way has to give them the same class, leave the same
// ones alone, and say the same to their authors.
func TestAgreement(t *testing.T) {
	long(t)
	const kind = "claims." + agreementGroup
	w, _ := servedWorld(t, controlplane.Options{}, "--late-binding-rate=500")
	w.resources(t, "Claim "+kind+" Namespaced", "Red reds."+agreementGroup+" Cluster", "Blue blues."+agreementGroup+" Namespaced")
	w.apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: team-a, labels: {team: a}}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: team-b}\n")
	claims := agreementClaims(500)
	concurrently(t, len(claims), func(i int) error { return w.Create(t.Context(), documents(t, claims[i])[0]) }) // They are not bound yet.

	manifest := lateVendor(agreementGroup) + serving("reds."+agreementGroup, kind) + serving("blues."+agreementGroup, kind) +
		class(agreementGroup, "Red", "usual", isDefault) + class(
		agreementGroup, "Red", "cordoned", `labels: {tier: steel}, annotations: {classbind.io/cordoned: "true"}, `,
	)
	for i := range 8 {
		manifest += class(agreementGroup, "Red", fmt.Sprint("red-", i), fmt.Sprintf("labels: {tier: %s, cores: %q}, ", []string{
			"gold", "silver",
		}[i%2], fmt.Sprint(i))) +
			class(agreementGroup, "Blue", fmt.Sprint("blue-", i), fmt.Sprintf("namespace: team-%s, labels: {tier: %s}, ", []string{
				"a", "b",
			}[i/4], []string{"gold", "iron"}[i%2]))
	}
	w.serves(t, manifest)
	w.apply(t, claimKind(kind, "{claims: {namespaceSelector: {matchLabels: {team: a}}}, whenUnmatched: BindLater}"))
	w.awaitKind(t, kind, "", func(c *attempt, k *v1beta1.ClaimKind) { require.NotNil(c, k.Status.WaitingClaims) })

	explained := w.explain(t, write(t, strings.Join(claims, "---\n")), "--kubeconfig="+w.plane.Kubeconfig)
	require.Len(t, explained, len(claims))
	outcomes := map[string]int{}
	for _, item := range explained {
		outcomes[item.Outcome]++
	}
	for _, outcome := range []string{"Bound", "Unmatched", "LeftAlone", "Malformed"} {
		require.GreaterOrEqual(t, outcomes[outcome], 20, "We should come across %s: %v", outcome, outcomes)
	}
	late := w.boundLater(t, explained)
	t.Logf("%d claims: %v", len(claims), outcomes)
	for _, namespace := range []string{"team-a", "team-b"} {
		require.NoError(t, w.DeleteAllOf(t.Context(), object(agreementGroup, "Claim", ""), client.InNamespace(namespace)))
	}
	for i, item := range explained {
		admitted, said := w.agrees(t, claims[i], item)
		assert.Equal(t, admitted, late[i].class, claims[i])
		switch item.Outcome {
		case "Unmatched":
			assert.Equal(t, said, item.Message, claims[i])
			assert.Equal(t, said, late[i].note, claims[i])
		case "LeftAlone":
			assert.NotContains(t, admitted, "Red/", claims[i])
			assert.Empty(t, late[i].note, claims[i])
		case "Malformed":
			for _, e := range item.Errors {
				assert.Contains(t, late[i].note, e.Field+": "+e.Message)
			}
		}
	}
}

// agrees compares what explain says of a claim with what happens to it at admission. It returns the class, and the warnings of its author.
func (w *world) agrees(t *testing.T, claim string, item explanation) (class, said string) {
	admitted, warnings, err := w.create(t, claim, client.DryRunAll)
	if err == nil {
		class, said = classOf(admitted), strings.Join(warnings, "\n")
	} else {
		said = err.Error()
	}
	switch item.Outcome {
	case "Bound":
		require.NoError(t, err, claim)
		assert.Equal(t, item.Class.Kind+"/"+item.Class.Name, class, claim)
	case "Unmatched":
		assert.Empty(t, class, claim)
		verdict := strings.LastIndex(item.Message, "; ") // What becomes of it may be said otherwise.
		require.Positive(t, verdict, item.Message)
		assert.Contains(t, said, item.Message[:verdict], claim)
	case "LeftAlone":
		require.NoError(t, err, claim)
		assert.Empty(t, warnings, claim)
	case "Malformed":
		require.Error(t, err, claim)
		for _, e := range item.Errors {
			assert.Contains(t, said, e.Field+": "+e.Message, claim)
		}
	default:
		assert.Fail(t, "We should decide on every claim.", "%s: %s", claim, item.Message)
	}
	return class, said
}

func agreementClaims(n int) (manifests []string) {
	random := rand.New(rand.NewPCG(14, 1)) //nolint:gosec // It has to be reproducible.
	one := func(of ...string) string { return of[random.IntN(len(of))] }
	for i := range n {
		annotations := one("", "", "", "annotations: {classbind.io/class-selector: \"tier in (gold,iron),cores!=3\"}, ",
			"annotations: {classbind.io/class-selector: \"cores>4\"}, ", "annotations: {classbind.io/class-selector: \"tier=-gold-\"}, ")
		spec := one("{}", "{classSelector: {}}", "{classSelector: {matchLabels: {tier: gold}}}", "{classSelector: {matchLabels: {tier: bronze}}}",
			"{classSelector: {matchLabels: {tier: steel}}}", "{classSelector: {matchExpressions: [{key: tier, operator: NotIn, values: [gold, silver]}]}}",
			"{classSelector: {matchExpressions: [{key: cores, operator: Exists}, {key: tier, operator: In, values: [silver]}]}}",
			"{classSelector: {matchExpressions: [{key: tier, operator: Foo}]}}", "{classSelector: gold}", "{classRef: {kind: Green, name: mine}}",
			"{resourceRef: {name: there}, classSelector: gold}")
		manifests = append(manifests, fmt.Sprintf("apiVersion: %s/v1\nkind: Claim\nmetadata: {%snamespace: team-%s, name: claim-%d}\nspec: %s\n",
			agreementGroup, annotations, one("a", "a", "a", "b"), i, spec))
	}
	return manifests
}

// explanation is as much of an item of explain's report as is compared.
type explanation struct {
	Claim            struct{ Namespace, Name, Kind, ClaimKind string }
	Outcome, Message string
	Class            *struct{ Kind, Name string }
	Reference        any
	Errors           []struct{ Field, Message string }
}

// explain the claims of a file by the cluster, or by what the flags name.
func (w *world) explain(t *testing.T, file string, flags ...string) []explanation {
	return reportOf[struct{ Items []explanation }](t, w, append([]string{"explain", "--output=json", "--filename=" + file}, flags...)...).Items
}

type later struct{ class, note string }

// boundLater waits until late binding has done with the claims what explain says of them.
func (w *world) boundLater(t *testing.T, explained []explanation) []later {
	found := make([]later, len(explained))
	require.EventuallyWithT(t, func(c *attempt) {
		classes := map[string]string{}
		notes := map[string]string{}
		for _, namespace := range []string{"team-a", "team-b"} {
			for _, claim := range w.claimsIn(t, agreementGroup, namespace) {
				classes[claim.GetName()] = classOf(&claim)
			}
			events := &eventsv1.EventList{}
			require.NoError(c, w.List(t.Context(), events, client.InNamespace(namespace)))
			for i := range events.Items {
				if events.Items[i].Reason == v1beta1.EventNoMatchingClass {
					notes[events.Items[i].Regarding.Name] = events.Items[i].Note
				}
			}
		}
		for i, item := range explained {
			found[i] = later{classes[item.Claim.Name], notes[item.Claim.Name]}
			switch item.Outcome {
			case "Bound":
				require.NotEmpty(c, found[i].class, "%+v", item)
			case "Unmatched", "Malformed":
				require.NotEmpty(c, found[i].note, "%+v", item)
			}
		}
	}, 2*patience, 500*time.Millisecond)
	return found
}

// TestExpressionAgreement has the same 100 claims of kinds with expressions bound at admission and explained.
// Both have to give them the same class, leave the same ones alone, and say the same to their authors.
func TestExpressionAgreement(t *testing.T) {
	notInPods(t, "It needs the kubeconfig of an admin.")
	const group = "expressions.test"
	w := sharedWorld(t)
	kinds := []string{"Fitting", "Parted", "Scored", "Later"}
	plural := func(kind string) string { return strings.ToLower(kind) + "s." + group }
	lines := []string{"Plan plans." + group + " Namespaced"}
	for _, kind := range kinds {
		lines = append(lines, kind+" "+plural(kind)+" Namespaced")
	}
	w.resources(t, append(lines, "Class classes."+group+" Cluster")...)

	const related = "classes: {related: [{name: plan, resource: plans." + group + ", nameExpression: \"has(claim.spec.plan) ? claim.spec.plan : ''\"}]"
	manifest := "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: expressions-a, labels: {tenant: a}}\n---\napiVersion: v1\nkind: " +
		"Namespace\nmetadata: {name: expressions-b, labels: {tenant: b}}\n"
	registrations := vendor(group) +
		claimKind(plural("Fitting"), "{"+related+`, fits: [{name: Driver, expression: class.spec.driver == related.plan.spec.driver, message: of `+
			`another driver}, {name: Size, expression: "class.spec.size > 1 && claim.spec.size <= class.spec.size"}]}, selector: {whenAbsent: Any}}`) +
		claimKind(plural("Parted"), `{classes: {partition: {claim: namespaceObject.metadata.labels.tenant, class: "has(class.spec.tenant) ? `+
			`class.spec.tenant : ''"}, fits: [{name: Who, expression: "!has(class.spec.team) || class.spec.team in request.userInfo.groups"}]}}`) +
		claimKind(plural("Scored"), "{"+related+`}, choice: {strategy: LowestScore, score: class.spec.price * double(claim.spec.size)}, selector: `+
			`{expression: "has(related.plan) ? 'driver=' + related.plan.spec.driver : claim.spec.selector"}, whenUnmatched: Deny}`) +
		claimKind(plural("Later"), "{"+related+
			`}, claims: {when: "!has(claim.spec.hold) && (!has(related.plan) || related.plan.spec.open)"}, selector: {whenAbsent: Any}}`) +
		classKind("classes."+group, fmt.Sprintf(`{claimKinds: [{name: %s}, {name: %s}, {name: %s}, {name: %s}], default: {expression: `+
			`class.spec.usual}, weight: {expression: class.spec.size}, offerWhen: "!has(class.spec.ready) || class.spec.ready"}`,
			plural("Fitting"), plural("Parted"), plural("Scored"), plural("Later")))
	random := rand.New(rand.NewPCG(17, 100)) //nolint:gosec // It has to be reproducible.
	one := func(of ...string) string { return of[random.IntN(len(of))] }
	for i := range 24 {
		driver := one("a", "b", "c")
		manifest += class(group, "Class", fmt.Sprint("class-", i), "labels: {driver: "+driver+"}, ") +
			fmt.Sprintf("spec: {driver: %s, size: %d, usual: %s, price: %d.5%s%s%s}\n",
				driver, random.IntN(5), one("true", "false", "false"), random.IntN(5), one("", ", tenant: a", ", tenant: b"),
				one("", "", ", team: 'system:authenticated'", ", team: others"), one("", ", ready: true", ", ready: false"))
	}
	for i, namespace := range []string{"a", "b", "a", "b"} {
		manifest += fmt.Sprintf(
			"---\napiVersion: %s/v1\nkind: Plan\nmetadata: {namespace: expressions-%s, name: plan-%d}\nspec: {driver: %s, open: %s}\n", group,
			namespace, i/2, one("a", "b"), one("true", "false"),
		)
	}
	w.serves(t, manifest+registrations) // The guard would refuse one of several default classes.

	var claims []string
	for i := range 100 {
		claims = append(claims, fmt.Sprintf("apiVersion: %s/v1\nkind: %s\nmetadata: {namespace: expressions-%s, name: claim-%d}\nspec: {a: b%s%s%s%s}\n",
			group, kinds[i%len(kinds)], one("a", "b"), i, one("", ", size: 1", ", size: 2", ", size: 4", ", size: 9"),
			one("", "", ", plan: plan-0", ", plan: plan-1", ", plan: plan-2"),
			one("", "", "", ", hold: true"), one("", ", selector: driver=c", ", selector: 'driver in'", ", classSelector: {matchLabels: {driver: a}}")))
	}
	// kubectl and explain are of one user, whose groups only the API server knows.
	explained := w.explain(
		t, write(t, strings.Join(claims, "---\n")), "--kubeconfig="+w.plane.Kubeconfig, "--set=request.userInfo.groups=system:masters",
		"--set=request.userInfo.groups=system:authenticated",
	)
	require.Len(t, explained, len(claims))
	outcomes := map[string]int{}
	for i, item := range explained {
		outcomes[item.Outcome]++
		if class, _ := w.agrees(t, claims[i], item); item.Outcome == "LeftAlone" {
			assert.Empty(t, class, claims[i])
		}
	}
	for _, outcome := range []string{"Bound", "Unmatched", "LeftAlone", "Malformed"} {
		assert.GreaterOrEqual(t, outcomes[outcome], 5, "We should come across %s: %v", outcome, outcomes)
	}
}

// TestExplain asks a real API server for schemas, and for claims by their kinds.
func TestExplain(t *testing.T) {
	notInPods(t, "It needs the kubeconfig of an admin.")
	w := sharedWorld(t)
	w.serves(t, fmt.Sprintf(schemaOfClaims, "explain.test", wholeReference)+vendor("explain.test")+
		claimKind("claims.explain.test", "{}")+serving("classes.explain.test", "claims.explain.test"))
	mine := claimWith("explain.test", "mine", "{classSelector: {matchLabels: {tier: gold}}}")
	w.apply(t, mine)
	stored, gold := write(t, mine), write(t, tierClass("explain.test", "gold"))
	claim := func(apiVersion, kind, field string) string {
		return write(t, "{apiVersion: "+apiVersion+", kind: "+kind+", metadata: {name: a, namespace: default}, spec: {"+field+": {matchLabels: {tier: gold}}}}")
	}
	volumes := write(t, claimKind("persistentvolumeclaims", "{reference: {path: .spec.storageClassName, form: Name}}")+
		serving("storageclasses.storage.k8s.io", "persistentvolumeclaims"))
	volume := func(field string) string {
		return write(t, "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: a, namespace: default, annotations: "+
			"{classbind.io/class-selector: tier=none}}, "+
			"spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}, "+field+"}}")
	}
	unregistered := write(t, "{apiVersion: v1, kind: ReplicationController, metadata: {name: a, namespace: default}}")
	for name, tc := range map[string]struct {
		reason string
		args   []string
		status int
		want   string
	}{
		"File": {"We should explain a claim without a mistake.", []string{"-f", stored}, 1, "Claim default/mine: no class"},
		"With": {"We should put a class on top of the cluster's.", []string{"-f", stored, "--with", gold}, 0, "Claim default/mine: bound to Class/gold"},
		"Resource": {
			"We should find a claim of the cluster.",
			[]string{"claims.explain.test/mine", "-n", "default", "--with", gold},
			1,
			"Claim default/mine: stored without a class; created now, it would get Class/gold",
		},
		"Absent": {
			"We should say that a claim is not there.",
			[]string{"claims.explain.test/absent", "-n", "default"},
			2,
			`cannot get the claim "claims.explain.test/absent": there is none of this name`,
		},
		"WrongField": {
			"We should read the schema that the API server publishes.",
			[]string{"-f", claim("explain.test/v1", "Claim", "classselector")},
			2,
			"spec.classselector: the schema has no such field: did you mean spec.classSelector?",
		},
		"WrongVersion": {
			"We should know which versions are served.",
			[]string{"-f", claim("explain.test/v2", "Claim", "classSelector")},
			2,
			"the API server does not serve Claim of explain.test/v2: set apiVersion to explain.test/v1",
		},
		"WrongKind": {
			"We should know which kinds are served.",
			[]string{"-f", claim("explain.test/v1", "Clam", "classSelector")},
			2,
			"no ClaimKind registers this kind: did you mean Claim?",
		},
		"NotServed": {
			"We should refuse a kind of a registered group that is not served.",
			[]string{"-f", claim("explain.test/v1", "Postgres", "classSelector")},
			2,
			"the API server does not serve Postgres of explain.test/v1",
		},
		"BuiltIn": {
			"We should find nothing wrong in a right claim without a CRD.",
			[]string{"-f", volume("volumeMode: Block"), "--with", volumes},
			1, `no class for this claim of "persistentvolumeclaims"`,
		},
		"BuiltInField": {
			"We should know the fields that the ClaimKind reads of a kind without a CRD.",
			[]string{"-f", volume("storageClassname: a"), "--with", volumes},
			2,
			"spec.storageClassname: did you mean spec.storageClassName?",
		},
		"NotRegistered": {"We should leave alone a kind of the API server's own.", []string{"-f", unregistered}, 0, "no ClaimKind registers"},
	} {
		t.Run(name, func(t *testing.T) {
			out, stderr, exit := w.classbind(t, append([]string{"explain", "--kubeconfig=" + w.plane.Kubeconfig}, tc.args...)...)
			assert.Equal(t, tc.status, exit, "%s: %s%s", tc.reason, out, stderr)
			assert.Contains(t, out+stderr, tc.want, tc.reason)
			assert.NotContains(t, out+stderr, "not checked", "We should find a schema.")
		})
	}
}

func write(t *testing.T, manifest string) string {
	file := filepath.Join(t.TempDir(), "manifest.yaml")
	require.NoError(t, os.WriteFile(file, []byte("---\n"+manifest), 0o600)) // Older kubectls take a first brace for JSON.
	return file
}

// simulation is what "classbind simulate -o json" prints of one ClaimKind.
type simulation struct {
	Moves []struct {
		To     struct{ Class struct{ Kind, Name string } }
		Claims []string
	}
}

// TestSimulate predicts what a change moves, makes it, and creates the claims again.
func TestSimulate(t *testing.T) {
	notInPods(t, "The command needs the kubeconfig of an admin.")
	const group, claims = "simulate.test", 60
	w := sharedWorld(t)
	weighed := func(name string, tier, weight int, more string) string {
		return class(group, "Class", name, fmt.Sprintf("labels: {tier: t%d}, annotations: {classbind.io/weight: '%d'%s}, ", tier, weight, more))
	}
	var classes []string
	for i := range 12 {
		classes = append(classes, weighed(fmt.Sprint("class-", i), i%3, 1+i%4, ""))
	}
	w.register(t, group, "{}", append(classes, class(group, "Class", "usual", "annotations: {classbind.io/default: 'true'}, "))...)
	create := func() map[string]string {
		require.NoError(t, w.DeleteAllOf(t.Context(), object(group, "Claim", ""), client.InNamespace("default")))
		got := map[string]string{}
		for i := range claims {
			claim := selecting(group, "Claim", "default", fmt.Sprint("claim-", i), map[string]any{"tier": fmt.Sprint("t", i%4)}) // Of t3, there is none.
			if i%10 == 0 {
				delete(claim.Object, "spec")
			}
			require.NoError(t, w.Create(t.Context(), claim))
			got["default/"+claim.GetName()] = classOf(claim)
		}
		return got
	}
	want := create()

	// The last is seen last, and shows that the others are.
	change := weighed("class-0", 0, 9, "") + weighed("class-1", 1, 2, ", classbind.io/cordoned: 'true'") + weighed(
		"class-12", 2, 5, "",
	) + weighed("last", 9, 1, "")
	report := reportOf[struct{ Kinds []simulation }](t, w, "simulate", "-f", write(t, change), "--remove=Class."+group+"/class-2", "-o", "json",
		"--kubeconfig="+w.plane.Kubeconfig, "claims."+group)
	require.Len(t, report.Kinds, 1)
	require.NotEmpty(t, report.Kinds[0].Moves)
	for _, m := range report.Kinds[0].Moves {
		for _, claim := range m.Claims {
			want[claim] = strings.Trim(m.To.Class.Kind+"/"+m.To.Class.Name, "/")
		}
	}
	w.remove(t, "classes."+group, "class-2")
	w.apply(t, change)
	w.awaitBound(t, claimWith(group, "probe", "{classSelector: {matchLabels: {tier: t9}}}"), "Class/last", "We should know the change.")
	assert.Equal(t, want, create(), "Each claim should get the class that we predicted.")
}

// TestUnbind binds claims whose authors gave a part of the reference, and predicts them again from what the API server notes of their authors.
func TestUnbind(t *testing.T) {
	notInPods(t, "The command needs the kubeconfig of an admin.")
	const group = "unbind.test"
	w := sharedWorld(t)
	w.resources(t, "Claim claims."+group+" Namespaced", "Class classes."+group+" Cluster", "Other others."+group+" Cluster")
	w.serves(t, lateVendor(group)+claimKind("claims."+group, "{whenUnmatched: BindLater, reference: {path: .spec.classRef, form: KindReference}}")+
		serving("classes."+group, "claims."+group)+serving("others."+group, "claims."+group)+
		tierClass(group, "gold")+class(group, "Other", "gold", "labels: {tier: gold}, "))
	w.apply(t, claimWith(group, "given", "{classSelector: {matchLabels: {tier: gold}}, classRef: {kind: Other, major: '16'}}"))
	w.apply(t, claimWith(group, "open", "{classSelector: {matchLabels: {tier: gold}}}"))
	late := documents(t, claimWith(group, "late", "{classSelector: {matchLabels: {tier: late}}, classRef: {kind: Other, major: '16'}}"))[0]
	require.NoError(t, w.Create(t.Context(), late))
	w.apply(t, class(group, "Other", "late", "labels: {tier: late}, ")+tierClass(group, "late"))
	w.awaitStored(t, late, "Other/late", "We should bind it later.")
	for name, candidates := range map[string]int{"given": 1, "late": 1, "open": 2} {
		report := reportOf[struct {
			Items []struct {
				Explanation struct{ Candidates []any }
				Notes       []any
			}
		}](t, w, "explain", "--kubeconfig="+w.plane.Kubeconfig, "claims."+group+"/"+name, "--namespace=default", "--unbound", "-o", "json")
		require.Len(t, report.Items, 1)
		assert.Len(t, report.Items[0].Explanation.Candidates, candidates, "%s: We should keep what its author wrote, and that alone.", name)
		assert.Empty(t, report.Items[0].Notes, "%s: The API server says what its author wrote.", name)
	}
	report := reportOf[struct {
		Kinds []struct {
			Rows []struct {
				Has    int
				Before struct{ Sample int }
			}
		}
	}](t, w,
		"simulate", "--kubeconfig="+w.plane.Kubeconfig, "--remove=Class."+group+"/late", "-o", "json", "claims."+group)
	for _, row := range report.Kinds[0].Rows {
		assert.Equal(t, row.Has, row.Before.Sample, "Each claim would get the class that it has.")
	}
}
