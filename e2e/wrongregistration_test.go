package e2e

import (
	"cmp"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/classbind"
	"github.com/classbind/classbind/e2e/controlplane"
)

// schemaOfClaims is a CRD of claims with a reference at .spec.classRef, or what replaces this.
const schemaOfClaims = `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: claims.%[1]s}
spec:
  group: %[1]s
  scope: Namespaced
  names: {kind: Claim, plural: claims}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              classSelector: {type: object, properties: {matchLabels: {type: object, additionalProperties: {type: string}}}}
              %[2]s
`

const wholeReference = "classRef: {type: object, properties: {apiVersion: {type: string}, kind: {type: string}, name: {type: string}}}"

// TestWrongRegistrations applies each to a cluster that has claims of the kind. One that was never served stops no claim, and says why it
// does nothing. One that was served, and is changed to it, stays in force.
func TestWrongRegistrations(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	for name, tc := range map[string]struct {
		field string // of the claims, instead of wholeReference
		spec  string // of the ClaimKind
		// others are further registrations, with %s for the group.
		others                         string
		withoutClassKind, withoutRight bool
		reason, message                string
		checked                        string // in files, where that is another message
		// served is what claims are told if the registration was right before; empty, it is not tried.
		served string
	}{
		"PathAbsent":     {field: "className: {type: string}", spec: "{}", reason: v1beta1.ReasonReferencePruned, message: "the schema has no field .spec.classRef"},
		"PathMisspelt":   {spec: "{reference: {path: .spec.clasRef}}", reason: v1beta1.ReasonReferencePruned, message: "the schema has no field .spec.clasRef", served: "the schema has no field .spec.clasRef"},
		"WrongType":      {spec: "{reference: {path: .spec.classRef, form: Name}}", reason: v1beta1.ReasonPathsInvalid, message: "must be of type string", served: "must be of type string"},
		"FormPruned":     {spec: "{reference: {path: .spec.classRef, form: TypedLocalObjectReference}}", reason: v1beta1.ReasonReferencePruned, message: ".spec.classRef.apiGroup", served: ".spec.classRef.apiGroup"},
		"SelectorAbsent": {spec: "{selector: {path: .spec.absent}}", reason: v1beta1.ReasonPathsInvalid, message: "selector.path: the schema has no field .spec.absent", served: "selector.path: the schema has no field .spec.absent"},
		"CompanyRequired": {
			field: "classRef: {type: object, required: [major], properties: {apiVersion: {type: string}, kind: {type: string}, name: {type: string}, major: {type: integer}}}",
			spec:  "{}", reason: v1beta1.ReasonPathsInvalid, message: "the schema requires .spec.classRef.major, which the reference does not have",
		},
		"ReferenceRefused":      {field: strings.Replace(wholeReference, "kind: {type: string}", "kind: {type: string, enum: [Other]}", 1), spec: "{}", reason: v1beta1.ReasonAllReferencesRefused, message: `the schema does not allow "Class" in .spec.classRef.kind`},
		"VersionNotServed":      {spec: "{claims: {version: v2}}", reason: v1beta1.ReasonVersionNotServed, message: "v2", served: "write the paths for a version that is served"},
		"NoClassKind":           {spec: "{}", withoutClassKind: true, reason: v1beta1.ReasonNoClassKind, message: "create a ClassKind for it"},
		"ClassKindNotInstalled": {spec: "{}", withoutClassKind: true, others: classKind("absents.%[1]s", "{claimKinds: [{name: claims.%[1]s}]}"), reason: v1beta1.ReasonNoClassKind, message: "create a ClassKind for it", checked: "(NotInstalled)"},
		"ClassKindNotPermitted": {spec: "{}", withoutRight: true, reason: v1beta1.ReasonNoClassKind, message: "see the condition ClassKindsRead"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, served := range []bool{false, true} {
				group := fmt.Sprintf("%s.wrong.test", strings.ToLower(name))
				if served {
					if tc.served == "" {
						break
					}
					group = "served-" + group
				}
				kind := "claims." + group
				w.resources(t, "Class classes."+group+" Cluster")
				w.apply(t, fmt.Sprintf(schemaOfClaims, group, cmp.Or(tc.field, wholeReference))+class(group, "Class", "only", ""))
				w.created(t, claim(group, "before"))
				classKinds := classKind("classes."+group, "{claimKinds: [{name: "+kind+"}]}")
				if tc.withoutClassKind {
					classKinds = strings.ReplaceAll(tc.others, "%[1]s", group)
				}
				if !tc.withoutRight {
					classKinds += vendor(group)
				}
				if served {
					w.apply(t, classKinds+claimKind(kind, "{}"))
					w.awaitClaims(t, kind)
				}
				if !tc.withoutRight && !inPods() {
					files := classbind.CRD("Class", "classes."+group, "Cluster", classbind.AnySchema) + fmt.Sprintf(schemaOfClaims, group, cmp.Or(tc.field, wholeReference))
					check := exec.CommandContext(t.Context(), command, "check", "--strict", "-f", "-")
					check.Stdin = strings.NewReader(files + classKinds + claimKind(kind, tc.spec))
					out, err := check.CombinedOutput()
					require.Error(t, err)
					assert.Contains(t, string(out), cmp.Or(tc.checked, tc.message), "We should say the same of files.")
				}

				w.apply(t, classKinds+claimKind(kind, tc.spec))
				w.awaitReason(t, &v1beta1.ClaimKind{}, kind, tc.reason)
				assert.Contains(t, w.kubectl(t, "get", "claimkind", kind, "-o", "jsonpath={.status.conditions[?(@.type=='Ready')].message}"), tc.message)
				if served {
					w.awaitRefused(t, claim(group, "after"), tc.served, "We should go on to bind every claim of a kind that was served, or none.")
					continue
				}
				for i := range 10 { // An entry would have to be written, and heard of.
					_, _, err := w.create(t, claim(group, fmt.Sprint("after-", i)))
					require.NoError(t, err, "We should stop no claim for a registration that was never served.")
					time.Sleep(50 * time.Millisecond)
				}
				assert.NotContains(t, w.kubectl(t, "get", "mutatingwebhookconfigurations", "-o", "jsonpath={..webhooks[*].name}"), kind+".bind")
			}
		})
	}
}

// TestMistypedExpression looks at a field that classes do not have until their CRD is changed.
func TestMistypedExpression(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	const group, kind = "mistyped.test", "claims.mistyped.test"
	classes := func(field string) string {
		return strings.NewReplacer("claims", "classes", "Claim", "Class", "Namespaced", "Cluster").
			Replace(fmt.Sprintf(schemaOfClaims, group, field+": {type: integer}"))
	}
	w.apply(t, fmt.Sprintf(schemaOfClaims, group, wholeReference)+classes("maxSizeGiB"))
	w.awaitCRDs(t, kind, "classes."+group)
	w.apply(t, class(group, "Class", "only", "")+vendor(group)+classKind("classes."+group, "{claimKinds: [{name: "+kind+"}]}")+
		claimKind(kind, "{classes: {fits: [{name: Size, message: too small, expression: class.spec.maxSize >= 5}]}}"))
	w.awaitCondition(t, &v1beta1.ClaimKind{}, kind, v1beta1.ConditionExpressionsValid, metav1.ConditionFalse,
		"spec.classes.fits[Size].expression: line 1, column 11: the schema has no field class.spec.maxSize: did you mean class.spec.maxSizeGiB?")
	w.apply(t, classes("maxSize"))
	w.awaitCondition(t, &v1beta1.ClaimKind{}, kind, v1beta1.ConditionExpressionsValid, metav1.ConditionTrue, "every expression compiles")
}

// TestClassKindsNotPermitted has two class kinds without rights, then one, then none.
func TestClassKindsNotPermitted(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	const kind = "claims.narrow.test"
	for _, group := range []string{"narrow.test", "one.narrow.test", "two.narrow.test"} {
		w.resources(t, "Claim claims."+group+" Namespaced", "Class classes."+group+" Cluster")
	}
	w.apply(t, class("one.narrow.test", "Class", "one", "")+class("two.narrow.test", "Class", "two", "")+
		claimKind(kind, "{}")+classKind("classes.one.narrow.test", "{claimKinds: [{name: "+kind+"}]}")+classKind("classes.two.narrow.test", "{claimKinds: [{name: "+kind+"}]}"))
	for _, group := range []string{"one.narrow.test", "two.narrow.test"} {
		w.awaitCondition(t, &v1beta1.ClaimKind{}, kind, v1beta1.ConditionClassKindsRead, "False",
			"kubectl create clusterrole classbind-classes."+group+" --verb=get,list,watch --resource=classes."+group)
	}
	w.awaitReason(t, &v1beta1.ClaimKind{}, kind, v1beta1.ReasonNoClassKind)
	assert.Regexp(t, `ClassKindsRead +False +NoClassKind`, w.kubectl(t, "get", "claimkind", kind), "We should show it in the column FAILING.")

	permit := func(group string) {
		role := "classbind-classes." + group
		w.kubectl(t, "create", "clusterrole", role, "--verb=get,list,watch", "--resource=classes."+group)
		w.kubectl(t, "label", "clusterrole", role, v1beta1.AggregateLabel+"=true")
	}
	permit("one.narrow.test")
	began := time.Now()
	w.awaitClaims(t, kind)
	t.Logf("Claims were bound %s after the role was applied.", time.Since(began).Round(time.Millisecond))
	w.awaitCondition(t, &v1beta1.ClaimKind{}, kind, v1beta1.ConditionClassKindsRead, "False", `"classes.two.narrow.test": `)
	bound, warnings := w.warned(t, claim("narrow.test", "one"))
	assert.Equal(t, "Class/one", classOf(bound), "We should go on without what was never read.")
	assert.Contains(t, fmt.Sprint(warnings), `classbind decided without the classes of "classes.two.narrow.test" (NotPermitted), which it cannot read`, "We should say so with every claim.")

	permit("two.narrow.test")
	w.awaitClasses(t, "classes.two.narrow.test", 1)
	w.awaitCondition(t, &v1beta1.ClaimKind{}, kind, v1beta1.ConditionClassKindsRead, "True", "")
	_, warnings = w.warned(t, claim("narrow.test", "two"))
	assert.Empty(t, warnings)
}

// conversion of the CRD of the bad class kind: its classes are stored as v1 and
// listed as v2, which needs the webhook, which nobody serves, or nothing.
const (
	brokenConversion = `{strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {url: "https://localhost:1/convert"}}}`
	noConversion     = `{strategy: None, webhook: null}`
)

func conversion(how string) string {
	const version = `{name: %, served: true, storage: $, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}`
	return "spec: {conversion: " + how + ", versions: [" +
		strings.NewReplacer("%", "v1", "$", "false").Replace(version) + ", " + strings.NewReplacer("%", "v2", "$", "true").Replace(version) + "]}"
}

// TestOneBadClassKind restarts all replicas while the API server answers 500 to
// whoever lists the classes of one kind, which it listed before.
func TestOneBadClassKind(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplane.Options{})
	before := w.serve(t)
	for _, group := range []string{"good.test", "bad.test"} {
		w.register(t, group, "{}", class(group, "Class", "only", ""))
	}
	require.NoError(t, before.Stop())

	w.kubectl(t, "patch", "crd", "classes.bad.test", "--type=merge", "--patch", conversion(brokenConversion))
	eventually(t, func(c *attempt) {
		_, _, err := w.Kubectl(t.Context(), nil, "get", "--raw", "/apis/bad.test/v2/classes")
		require.ErrorContains(c, err, "conversion webhook")
	})

	start := time.Now()
	replicas := []*replica{w.start(t), w.start(t)}
	w.awaitBound(t, claim("good.test", "good"), "Class/only", "We should bind the claims of others.")
	t.Logf("Claims of the other kind were bound %s after the restart.", time.Since(start).Round(time.Millisecond))
	for _, r := range replicas {
		require.NoError(t, r.Ready(t.Context()), "We should be ready.")
	}
	w.awaitReason(t, &v1beta1.ClaimKind{}, "claims.bad.test", v1beta1.ReasonClassKindMissing)
	w.awaitRefused(t, claim("bad.test", "bad"), `the classes of "classes.bad.test", which were offered to claims of "claims.bad.test" before, are not known yet: `,
		"We should not decide on part of the classes, and name what is missing.")
	w.awaitCondition(t, &v1beta1.ClassKind{}, "classes.bad.test", v1beta1.ConditionReady, metav1.ConditionTrue, "") // We wait for it at the next restart, too.

	w.kubectl(t, "patch", "crd", "classes.bad.test", "--type=merge", "--patch", conversion(noConversion))
	w.awaitBound(t, claim("bad.test", "bad"), "Class/only", "We should bind its claims once it answers.")
	w.awaitClaims(t, "claims.bad.test")
}

// TestValueOfALaterRelease has the CRD of a later release, which knows another strategy.
func TestValueOfALaterRelease(t *testing.T) {
	long(t)
	t.Parallel()
	const group, other = "later-value.test", "same-value.test"
	w := newWorld(t, controlplane.Options{})
	w.serve(t)
	w.kubectl(t, "patch", "crd", "claimkinds.classbind.io", "--type=json", "--patch", `[{"op": "add",
		"path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/choice/properties/strategy/enum/-", "value": "Cheapest"}]`)
	w.register(t, group, "{}", class(group, "Class", "only", ""))
	w.register(t, other, "{}", class(other, "Class", "only", ""))
	eventually(t, func(c *attempt) {
		_, _, err := w.Kubectl(t.Context(), strings.NewReader(claimKind("claims."+group, "{choice: {strategy: Cheapest}}")), "apply", "--server-side", "--force-conflicts", "-f", "-")
		require.NoError(c, err) // The API server knows of a CRD a little later.
	})
	w.awaitCondition(t, &v1beta1.ClaimKind{}, "claims."+group, v1beta1.ConditionReady, metav1.ConditionFalse,
		`has the choice.strategy "Cheapest", which this release of classbind does not know`)
	w.awaitRefused(t, claim(group, "unknown"), "Cheapest", "We should bind no claim by a strategy that we do not know.")
	w.binds(t, claim(other, "known"), "Class/only", "We should go on for other kinds.")
}
