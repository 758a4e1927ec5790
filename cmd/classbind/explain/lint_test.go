package explain

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/cmd/classbind/world"
	"github.com/classbind/classbind/deploy/kinds"
	"github.com/classbind/classbind/selector/claim"
)

const (
	lintClaims = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: claims.shop.test}
spec: {group: shop.test, scope: Namespaced, names: {kind: Claim, plural: claims}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {
  type: object, properties: {spec: {type: object, properties: {
    classSelector: {type: object, properties: {matchLabels: {type: object, additionalProperties: {type: string}}}},
    classRef: {type: object, properties: {apiVersion: {type: string}, kind: {type: string}, name: {type: string}}}}}}}}}]}
---
`
	lintClasses = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: classes.shop.test}
spec: {group: shop.test, scope: Cluster, names: {kind: Class, plural: classes}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {
  type: object, properties: {spec: {type: object, properties: {sizeGiB: {type: integer}}}}}}}]}
---
`
)

func lintClaimKind(spec string) string {
	return "apiVersion: classbind.io/v1beta1\nkind: ClaimKind\nmetadata: {name: claims.shop.test}\nspec: " + spec + "\n---\n"
}

func lintClassKind(spec string) string {
	return "apiVersion: classbind.io/v1beta1\nkind: ClassKind\nmetadata: {name: classes.shop.test}\nspec: " + spec + "\n---\n"
}

func lintClass(name, annotations string) string {
	return fmt.Sprintf("apiVersion: shop.test/v1\nkind: Class\nmetadata: {name: %s, annotations: {%s}}\nspec: {sizeGiB: 5}\n---\n", name, annotations)
}

// checked is what check finds in these manifests.
func checked(t *testing.T, format, manifests string) result {
	t.Helper()
	t.Chdir(write(t, map[string]string{"all.yaml": manifests}))
	return execute(t, NewCheckCommand(), "", "-f", "all.yaml", "-o", format)
}

func TestLint(t *testing.T) {
	const right, offers = "{}", "{claimKinds: [{name: claims.shop.test}]}"
	both := lintClaims + lintClasses
	same, err := kinds.Files.ReadFile("gateway-api/clusterrole.yaml")
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		reason, manifests string
		want              []string // parts of lines
		lines             int      // how many there are, if that counts
	}{
		"Right": {
			reason:    "We should find nothing in what is right.",
			manifests: both + lintClaimKind(right) + lintClassKind(offers) + lintClass("a", "classbind.io/default: 'true', classbind.io/weight: '3'"),
		},
		"Kustomization": {
			reason:    "We should leave alone what is not ours.",
			manifests: "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n---\napiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n",
		},
		"FieldMisspelt": {
			reason:    "We should say what the API server would drop.",
			manifests: lintClaimKind("{choise: {strategy: Random}}"),
			want: []string{
				`all.yaml:4: error: ClaimKind/claims.shop.test: the API server would refuse the ClaimKind "claims.shop.test": spec.choise: the schema ` +
					`has no such field: did you mean spec.choice? (Refused)`,
			},
		},
		"Twice": {
			reason:    "We should not choose one of two.",
			manifests: lintClaimKind(right) + lintClaimKind(right) + lintClassKind(offers),
			want:      []string{`all.yaml:6: error: ClaimKind/claims.shop.test: it is there already, in all.yaml, document 1: leave out one of the two (Duplicate)`},
		},
		"PathAbsent": {
			reason:    "We should compare paths with the CRD.",
			manifests: both + lintClaimKind("{reference: {path: .spec.clasRef}}") + lintClassKind(offers),
			want:      []string{"ReferencePruned"},
		},
		"WrongType": {
			reason:    "We should compare types.",
			manifests: both + lintClaimKind("{reference: {path: .spec.classRef, form: Name}}") + lintClassKind(offers),
			want:      []string{"PathsInvalid"},
		},
		"SelectorAbsent": {
			reason:    "We should compare the path of the selector.",
			manifests: both + lintClaimKind("{selector: {path: .spec.absent}}") + lintClassKind(offers),
			want:      []string{"selector.path: the schema has no field .spec.absent"},
		},
		"ReferenceRefused": {
			reason: "We should see that no reference is allowed.",
			manifests: strings.Replace(lintClaims, "kind: {type: string}", "kind: {type: string, enum: [Other]}", 1) + lintClasses + lintClaimKind(
				right,
			) + lintClassKind(offers),
			want: []string{`the schema does not allow "Class" in .spec.classRef.kind`},
		},
		"VersionNotServed": {
			reason:    "We should see that a version is not served.",
			manifests: both + lintClaimKind("{claims: {version: v2}}") + lintClassKind(offers),
			want:      []string{"VersionNotServed"},
		},
		"NotRegistered": {
			reason:    "We should propose a name.",
			manifests: both + lintClaimKind(right) + lintClassKind("{claimKinds: [{name: claim.shop.test}]}"),
			want:      []string{"no ClassKind serves it", "did you mean claims.shop.test? (NotRegistered)"},
		},
		"NotInstalled": {
			reason: "We should propose a resource.",
			manifests: both + strings.Replace(lintClaimKind(right), "claims.shop", "claim.shop", 1) + lintClassKind(
				strings.Replace(offers, "claims.shop", "claim.shop", 1),
			),
			want: []string{"did you mean claims.shop.test? (NotInstalled)"},
		},
		"NoClaimKinds": {
			reason:    "We should say that classes are for nobody.",
			manifests: both + lintClassKind("{}"),
			want:      []string{"no claim is offered the classes"},
		},
		"Expression": {
			reason:    "We should say where an expression is wrong.",
			manifests: both + lintClaimKind("{classes: {fits: [{name: Size, message: too small, expression: class.spec.size >= 5}]}}") + lintClassKind(offers),
			want: []string{
				"error: ClaimKind/claims.shop.test: spec.classes.fits[Size].expression: line 1, column 11: the schema has no field class.spec.size: did " +
					"you mean class.spec.sizeGiB? (InvalidExpression)",
			},
		},
		"ExpressionOfClassKind": {
			reason: "We should check the types in a class kind that looks at the namespace.",
			manifests: both + lintClaimKind(right) + lintClassKind("{claimKinds: [{name: claims.shop.test}], fits: [{name: Tenant, "+
				"expression: 'labelSelectorMatches(class.spec.size, namespaceObject.metadata.labels)'}]}"),
			want: []string{
				"error: ClassKind/classes.shop.test: spec.fits[Tenant].expression: line 1, column 32: the schema has no field class.spec.size: did " +
					"you mean class.spec.sizeGiB? (InvalidExpression)",
			},
		},
		"OfClasses": {
			reason: "We should name each class, at its line.",
			manifests: lintClaimKind(right) + lintClassKind("{claimKinds: [{name: claims.shop.test}], capacity: [{name: claims}]}") +
				lintClass("a", "classbind.io/default: 'yes'") +
				lintClass("b", "classbind.io/weight: much") + lintClass("c", "classbind.io/capacity: '-1'"),
			want: []string{"all.yaml:13: error: Class/a: ", "all.yaml:18: error: Class/b: ", "all.yaml:23: error: Class/c: "},
		},
		"Quantities": {
			reason: "We should find quantities that only one side names, and read the annotations of those that a ClassKind names.",
			manifests: lintClaimKind("{classes: {usage: [{name: memory, expression: '1'}, {name: licences, expression: '1'}]}}") +
				lintClassKind("{claimKinds: [{name: claims.shop.test}], capacity: [{name: memory}, {name: licenses}, {name: claims}]}") +
				lintClass("a", "classbind.io/capacity-memory: '1'") + lintClass("b", "classbind.io/capacity-memories: '1'"),
			want: []string{
				`warning: ClaimKind/claims.shop.test: no class kind of the files that serves it has the quantity "licences" in its capacity: ` +
					`did you mean licenses? (UnmatchedQuantity)`,
				`warning: ClassKind/classes.shop.test: no claim kind of the files says in classes.usage how much its claims use of the quantity "licenses": ` +
					`they use none: did you mean licences? (UnmatchedQuantity)`,
				"warning: Class/b: the annotation classbind.io/capacity-memories means nothing to classbind",
			},
			lines: 3,
		},
		"OfNoClaimKind": {
			reason:    "We should read classes whose ClaimKind is elsewhere, and a registration with a namespace, which it has not.",
			manifests: strings.Replace(lintClassKind(offers), "}", ", namespace: default}", 1) + lintClass("a", "classbind.io/weight: much"),
			want:      []string{"ClassKind/classes.shop.test: spec.claimKinds: no file has the ClaimKind", "Class/a: metadata.annotations[classbind.io/weight]"},
		},
		"OfNoNamespace": {
			reason: "We should find a class with a namespace that its kind has not.",
			manifests: both + lintClaimKind(right) + lintClassKind(offers) + strings.Replace(
				lintClass("a", "classbind.io/weight: much"), "{name: a", "{namespace: x, name: a", 1,
			),
			want: []string{"error: Class/a: metadata.annotations[classbind.io/weight]"},
		},
		"WithoutName": {
			reason:    "We should leave out nothing that is ours.",
			manifests: lintClaimKind(right) + lintClassKind(offers) + lintClass("''", "") + strings.Replace(lintClassKind(offers), "name:", "generateName:", 1),
			want:      []string{"error: Class/: it has no metadata.name", "error: ClassKind/: it has no metadata.name"},
		},
		"TwiceByDefault": {
			reason: "We should find a class that is there twice once its namespace is the default one.",
			manifests: strings.Replace(lintClasses, "scope: Cluster", "scope: Namespaced", 1) + lintClaims + lintClaimKind(right) + lintClassKind(offers) +
				lintClass("a", "") + strings.Replace(lintClass("a", "classbind.io/weight: much"), "{name: a", "{namespace: default, name: a", 1) + lintClass(
				"b", "classbind.io/weight: much",
			),
			want: []string{
				`error: Class/a: Class "a" is there already, in all.yaml, document 5: leave out one of the two (Duplicate)`,
				"error: Class/b: metadata.annotations[classbind.io/weight]",
			},
		},
		"TwoDefaults": {
			reason:    "We should find the second default.",
			manifests: lintClaimKind(right) + lintClassKind(offers) + lintClass("a", "classbind.io/default: 'true'") + lintClass("b", "classbind.io/default: 'true'"),
			want:      []string{"gets one of 2 classes; leave the mark on one of Class/a, Class/b (SeveralDefaults)"},
		},
		"Unserved": {
			reason: "We should remark on a class that no claim can get.",
			manifests: lintClaimKind("{classes: {fits: [{name: Size, message: too small, expression: class.spec.sizeGiB >= 9}]}}") + lintClassKind(
				offers,
			) + lintClass("a", ""),
			want: []string{"note: Class/a: no claim can get it"},
		},
		"Meaningless": {
			reason: "We should doubt a mark that nothing reads.",
			manifests: lintClaimKind(right) + lintClassKind("{claimKinds: [{name: claims.shop.test}], default: {annotation: shop.test/standard}}") + lintClass(
				"a", "classbind.io/default: 'true'",
			),
			want: []string{`the annotation classbind.io/default means nothing: the ClassKind "classes.shop.test" does not read it (MeaninglessMark)`},
		},
		"Misspelt": {
			reason: "We should doubt an annotation of ours that nothing reads, and no other.",
			manifests: lintClaimKind("{selector: {annotation: classbind.io/my-selector}}") + lintClassKind(offers) +
				lintClass("a", "classbind.io/wieght: '2', classbind.io/my-selector: x, classbind.io/cordoned: 'false', example.org/x: z"),
			want: []string{"warning: Class/a: the annotation classbind.io/wieght means nothing to classbind: did you mean classbind.io/weight? (UnknownAnnotation)"},
		},
		"Ambiguous": {
			reason: "We should see that a name cannot distinguish two kinds.",
			manifests: lintClaimKind("{reference: {path: .spec.className, form: Name}}") + lintClassKind(offers) + lintClass("a", "") +
				strings.ReplaceAll(lintClassKind(offers), "classes.shop", "others.shop") + strings.Replace(lintClass("a", ""), "kind: Class", "kind: Other", 1),
			want: []string{"ClassKind/others.shop.test", "(AmbiguousReference)"},
		},
		"Outdated": {
			reason: "We should see that a preset is another one now, or gone, under any name, and not miss one that is the same.",
			manifests: strings.ReplaceAll(lintClaimKind(right)+lintClassKind(offers), "}\nspec", ", annotations: {classbind.io/preset: shop@1}}\nspec") +
				"apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: classbind-flux, annotations: {classbind.io/preset: " +
				"flux@0123abcd}}\n---\n" + string(same),
			want: []string{
				`all.yaml:3: warning: ClaimKind/claims.shop.test: it is from another edition of the preset "shop"`,
				`all.yaml:13: warning: ClusterRole/classbind-flux: it is from another edition of the preset "flux": compare it with "classbind kinds flux"`,
			},
			lines: 3,
		},
		"Conflict": {
			reason: "We should see that another ClaimKind binds the claims.",
			manifests: lintClaimKind(right) + strings.Replace(lintClaimKind("{claims: {resource: claims.shop.test}}"), "name: claims", "name: second", 1) +
				lintClassKind("{claimKinds: [{name: claims.shop.test}, {name: second.shop.test}]}"),
			want: []string{"(Conflict)"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := checked(t, "table", tc.manifests)
			for _, want := range tc.want {
				assert.Contains(t, got.stdout, want, tc.reason)
			}
			if tc.lines > 0 || len(tc.want) == 0 {
				assert.Equal(t, tc.lines, strings.Count(got.stdout, "\n"), "%s %s", tc.reason, got.stdout)
			}
			assert.Equal(t, strings.Contains(got.stdout, ": error: "), got.status != 0, "We should fail for an error alone: %s", got.stderr)
		})
	}
}

// TestLintPairs has each two mistakes at once, and finds what it finds of each alone.
func TestLintPairs(t *testing.T) {
	t.Parallel()
	base := map[string]string{
		"claim CRD": lintClaims, "class CRD": lintClasses,
		"claim kind": lintClaimKind("{classes: {kinds: [{name: classes.shop.test}]}}"), "class kind": lintClassKind("{claimKinds: [{name: claims.shop.test}]}"),
		"other": strings.ReplaceAll(lintClassKind("{claimKinds: [{name: claims.shop.test}]}"), "classes.", "others."),
		"a":     lintClass("a", ""), "b": lintClass("b", ""), "c": lintClass("c", ""),
	}
	mistakes := map[string]struct{ of, text string }{ // "" for a document that is not there
		"NotRegistered":        {"claim kind", lintClaimKind("{classes: {kinds: [{name: classes.shop.test}, {name: nowhere.shop.test}]}}")},
		"ClaimKindRefused":     {"claim kind", lintClaimKind("{choise: 1}")},
		"VersionNotServed":     {"claim kind", lintClaimKind("{claims: {version: v9}, classes: {kinds: [{name: classes.shop.test}]}}")},
		"PathsInvalid":         {"claim kind", lintClaimKind("{selector: {path: .spec.nothing}, classes: {kinds: [{name: classes.shop.test}]}}")},
		"InvalidExpression":    {"claim kind", lintClaimKind("{claims: {when: claim.}, classes: {kinds: [{name: classes.shop.test}]}}")},
		"ClassNotRegistered":   {"class kind", lintClassKind("{claimKinds: [{name: nowhere.shop.test}]}")},
		"ClassKindRefused":     {"class kind", lintClassKind("{clim: 1}")},
		"ClassExpression":      {"class kind", lintClassKind("{fits: [{name: x, message: too small, expression: class.spec.}]}")},
		"ClassKindAbsent":      {"class kind", ""},
		"OtherNoClaimKinds":    {"other", strings.ReplaceAll(lintClassKind("{}"), "classes.", "others.")},
		"OtherRefused":         {"other", strings.ReplaceAll(lintClassKind("{clim: 1}"), "classes.", "others.")},
		"ClaimCRDNotInstalled": {"claim CRD", strings.ReplaceAll(lintClaims, "claims", "clams")},
		"ClaimCRDUnreadable":   {"claim CRD", strings.ReplaceAll(lintClaims, "served: true", "served: false")},
		"ClassCRDNotInstalled": {"class CRD", strings.ReplaceAll(lintClasses, "classes", "clases")},
		"MalformedWeight":      {"a", lintClass("a", "classbind.io/weight: much")},
		"MalformedMark":        {"a", lintClass("a", "classbind.io/default: 'yes'")},
		"Twice":                {"b", lintClass("b", "") + lintClass("b", "")},
		"MalformedToo":         {"b", lintClass("b", "classbind.io/weight: '-1'")},
		"Outdated":             {"c", lintClass("c", "classbind.io/preset: shop@1")},
		"Labels":               {"c", strings.Replace(lintClass("c", ""), "annotations: {}", "labels: {"+strings.Repeat("x", 3)+": ''"+manyLabels()+"}", 1)},
	}
	find := func(names ...string) sets.Set[string] {
		text := ""
		for _, part := range slices.Sorted(maps.Keys(base)) {
			document := base[part]
			for _, name := range names {
				if mistakes[name].of == part {
					document = mistakes[name].text
				}
			}
			text += document
		}
		documents, err := world.ParseManifests([]byte(text))
		require.NoError(t, err)
		all, err := lint(t.Context(), documents)
		require.NoError(t, err, names)
		found := sets.New[string]()
		for _, f := range all {
			found.Insert(f.Rule + " of " + f.Object)
		}
		return found
	}
	usual, pairs := find(), 0
	for one, mistake := range mistakes {
		alone := find(one).Difference(usual)
		require.NotEmpty(t, alone, "It should be found: %s", one)
		for other, second := range mistakes {
			if second.of == mistake.of {
				continue
			}
			pairs++
			for finding := range alone.Difference(find(one, other)) {
				_, object, _ := strings.Cut(finding, " of ")
				if second.of == "claim CRD" && (one == "PathsInvalid" || one == "VersionNotServed") {
					continue // The CRD is what it is compared with.
				}
				ofSecond := map[string]string{
					"claim kind": "ClaimKind/claims.shop.test",
					"class kind": "ClassKind/classes.shop.test",
					"other":      "ClassKind/others.shop.test",
				}[second.of]
				assert.Equal(t, ofSecond, object, "%s should not hide what is found with %s: %s", other, one, finding)
			}
		}
	}
	t.Logf("%d pairs of mistakes, and none hides one of another object", pairs)
}

// manyLabels are more than a class may have.
func manyLabels() string {
	var text strings.Builder
	for n := range v1beta1.MaxClassLabels {
		fmt.Fprintf(&text, ", l%d: ''", n)
	}
	return text.String()
}

// notNeeded are the built-in resources that can be registered, and without which a cluster comes up. The group extensions is no longer served.
var notNeeded = sets.New(strings.Fields(`
	clustertrustbundles.certificates.k8s.io componentstatuses compositepodgroups.scheduling.k8s.io cronjobs.batch
	deploymentrollbacks.apps deviceclasses.resource.k8s.io devicetaintrules.resource.k8s.io evictionrequests.lifecycle.k8s.io
	evictions.lifecycle.k8s.io evictions.policy horizontalpodautoscalers.autoscaling ingressclasses.networking.k8s.io
	ingresses.networking.k8s.io jobs.batch limitranges persistentvolumeclaims persistentvolumes poddisruptionbudgets.policy
	podgroups.scheduling.k8s.io podtemplates replicationcontrollers resourceclaims.resource.k8s.io
	resourceclaimtemplates.resource.k8s.io resourcepoolstatusrequests.resource.k8s.io resourcequotas runtimeclasses.node.k8s.io
	scales.apps scales.autoscaling statefulsets.apps storageclasses.storage.k8s.io storageversionmigrations.storagemigration.k8s.io
	volumeattributesclasses.storage.k8s.io workloads.scheduling.k8s.io`)...)

// TestLintNeededToStart registers each built-in resource with the defaults. The schema refuses it, or we say that a cluster may not come up, or
// it is one of those that no cluster needs to start.
func TestLintNeededToStart(t *testing.T) {
	refused, warned := sets.New[string](), sets.New[string]()
	for gvk := range scheme.Scheme.AllKnownTypes() {
		plural, _ := meta.UnsafeGuessKindToResource(gvk)
		resource := plural.GroupResource().String()
		if gvk.Version == runtime.APIVersionInternal || gvk.Group == "extensions" || strings.HasSuffix(gvk.Kind, "List") || strings.HasSuffix(gvk.Kind, "Options") ||
			sets.New("Status", "WatchEvent", "APIGroup", "APIVersions", "RangeAllocation", "SerializedReference").Has(gvk.Kind) ||
			refused.Has(resource) || warned.Has(resource) || notNeeded.Has(resource) {
			continue
		}
		found := checked(t, "table", strings.ReplaceAll(lintClaimKind("{}"), "claims.shop.test", resource)).stdout
		switch why := claim.NeededToStart[resource]; {
		case strings.Contains(found, "(Refused)"):
			assert.Empty(t, why, "We should list nothing that the schema refuses: %s", resource)
			refused.Insert(resource)
		case assert.Contains(t, found, "(NeededToStart)", "We should warn of it, or have it in notNeeded: %s", resource):
			assert.Contains(t, found, why)
			warned.Insert(resource)
		}
	}
	assert.Equal(t, sets.KeySet(claim.NeededToStart), warned, "We should warn of each that is listed.")
	t.Logf("%d built-in resources are refused, %d warned of, %d not needed", refused.Len(), warned.Len(), notNeeded.Len())
}

func TestLintFormats(t *testing.T) {
	manifests := lintClaimKind("{}")
	for format, want := range map[string]string{
		"json":   `"rule": "NoClassKind"`,
		"github": "::warning file=all.yaml,line=1,title=NoClassKind::ClaimKind/claims.shop.test: no ClassKind serves it",
	} {
		got := checked(t, format, manifests)
		require.Zero(t, got.status, got.stderr)
		assert.Contains(t, got.stdout, want, format)
	}
	for _, format := range []string{"table", "json", "yaml", github} {
		t.Chdir(write(t, map[string]string{"a" + hostile + ".yaml": strings.ReplaceAll(lintClaimKind("{choise: 1}")+lintClassKind("{claimKinds: [{name: \"X\"}]}")+
			lintClass("\"X\"", "classbind.io/weight: \"X\""), "X", `\e[2J\r\n::error::pwned\u009b1m\u202e\u200b\u2028`)}))
		got := execute(t, NewCheckCommand(), "", "-f", ".", "-o", format)
		assert.False(t, strings.ContainsFunc(got.stdout+got.stderr, func(r rune) bool {
			return r != '\n' &&
				!strconv.IsPrint(r)
		}), "We should print nothing that a terminal obeys: %s: %q", format, got.stdout+got.stderr)
		assert.NotContains(t, "\n"+got.stdout+got.stderr, "\n::error::pwned", format)
		assert.Contains(t, got.stdout, "pwned", format)
	}
	assert.Equal(t, "50%25%0A::error::", data.Replace("50%\n::error::"), "We should let no name begin a command.")
}

// TestLintOverlay has a base, and an overlay that patches it.
func TestLintOverlay(t *testing.T) {
	t.Chdir(write(t, map[string]string{
		"base/all.yaml":               lintClaimKind("{}") + lintClassKind("{claimKinds: [{name: claims.shop.test}]}") + lintClass("a", ""),
		"base/kustomization.yaml":     "resources: [all.yaml]\n",
		"overlay/a-weight.yaml":       lintClass("a", "classbind.io/weight: much"),
		"overlay/inner/deny.yaml":     lintClaimKind("{whenUnmatched: Deny}"),
		"overlay/kustomization.yaml":  "resources: [../base]\npatchesStrategicMerge: [a-weight.yaml]\npatches: [{path: inner/deny.yaml}, {patch: '[]'}]\n",
		"overlay/inner/no-patch.yaml": lintClass("b", "classbind.io/weight: much"),
	}))
	got := execute(t, NewCheckCommand(), "", "-R", "-f", ".")
	require.NotZero(t, got.status)
	assert.Equal(t, 1, strings.Count(got.stdout, "\n"), "We should check what is no patch: %s", got.stdout)
	assert.Contains(t, got.stdout, "no-patch.yaml:3: error: Class/b")
	for _, patch := range []string{"a-weight.yaml", "inner/deny.yaml"} {
		assert.Contains(t, got.stderr, patch+`" is left out: a kustomization uses it as a patch`)
	}
}

// TestLintSamples finds nothing in what we ship.
func TestLintSamples(t *testing.T) {
	folders, err := filepath.Glob("../../../deploy/samples/*")
	require.NoError(t, err)
	folders = append(folders, "../../../deploy/kinds")
	require.NotEmpty(t, folders)
	for _, folder := range folders {
		if info, err := os.Stat(folder); err != nil || !info.IsDir() {
			continue
		}
		got := execute(t, NewCheckCommand(), "", "-R", "-f", folder, "--strict")
		require.Zero(t, got.status, "%s: %s", folder, got.stdout)
	}
}
