package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
)

func outcomeKinds(group string, defaulting v1beta1.Defaulting) string {
	databases, caches := "databases."+group, "caches."+group
	return claimKind(databases, fmt.Sprintf("{admission: {defaulting: %s}}", defaulting)) +
		claimKind(caches, fmt.Sprintf("{choice: {strategy: Random}, whenUnmatched: Deny, admission: {defaulting: %s, failurePolicy: Ignore}}", defaulting)) +
		classKind("bigclasses."+group, fmt.Sprintf("{claimKinds: [{name: %s}, {name: %s}]}", databases, caches)) +
		classKind("smallclasses."+group, fmt.Sprintf("{claimKinds: [{name: %s}]}", databases))
}

func outcomeClasses(group string) string {
	return class(group, "BigClass", "gold", "labels: {tier: gold, region: eu}, ") +
		class(group, "SmallClass", "standard", "labels: {tier: standard, region: us}, "+isDefault) +
		class(group, "SmallClass", "cordoned", `labels: {tier: retired}, annotations: {classbind.io/cordoned: "true"}, `) +
		class(group, "BigClass", "weightless", `labels: {tier: free}, annotations: {resourceclass.crossplane.io/weight: "0"}, `) +
		class(group, "SmallClass", "terminating", "labels: {tier: leaving}, finalizers: [outcome.test/stay], ")
}

// TestOutcome has every row of the table in docs/claims.md, as the API server shows it, whoever gives the default class.
func TestOutcome(t *testing.T) {
	t.Parallel()
	for group, defaulting := range map[string]v1beta1.Defaulting{
		"outcome.test": v1beta1.DefaultingWebhook, "policyoutcome.test": v1beta1.DefaultingPolicy,
	} {
		t.Run(string(defaulting), func(t *testing.T) {
			t.Parallel()
			if defaulting == v1beta1.DefaultingPolicy {
				needsPolicies(t)
			}
			testOutcome(t, group, defaulting)
		})
	}
}

func testOutcome(t *testing.T, group string, defaulting v1beta1.Defaulting) {
	w := sharedWorld(t)
	databases := "databases." + group
	w.resources(t, "Database databases."+group+" Namespaced", "Cache caches."+group+" Namespaced",
		"BigClass bigclasses."+group+" Cluster", "SmallClass smallclasses."+group+" Cluster", "OldClass oldclasses."+group+" Cluster")
	w.apply(t, vendor(group)+outcomeKinds(group, defaulting))
	w.awaitClaims(t, databases)
	w.awaitClaims(t, "caches."+group)
	w.apply(t, outcomeClasses(group))
	w.kubectl(t, "delete", "smallclasses."+group, "terminating", "--wait=false")
	w.awaitClasses(t, "bigclasses."+group, 2)
	w.awaitClasses(t, "smallclasses."+group, 3)
	byPolicy := defaulting == v1beta1.DefaultingPolicy
	if byPolicy {
		w.awaitPolicy(t, databases, fmt.Sprintf("apiVersion: %s/v1\nkind: Database\nmetadata: {namespace: default, name: probe}", group))
		w.awaitCondition(t, &v1beta1.ClaimKind{}, "caches."+group, v1beta1.ConditionDefaultedByPolicy, metav1.ConditionFalse, "no class is marked default")
	}

	type want struct {
		class   string
		code    int32
		message []string // parts of the error or of the warning
		causes  []string // fields
	}
	for name, tc := range map[string]struct {
		reason     string
		kind       string // Database unless set
		spec       string
		annotation string
		want       want
		// unopinionated claims are those that the API server itself binds, where it may.
		unopinionated bool
	}{
		"ClassReference":      {reason: "We should leave a claim with a class reference alone.", spec: "{classRef: {kind: Any, name: mine}}", want: want{class: "Any/mine"}},
		"EmptyClassReference": {reason: "We should leave a claim alone whose reference is there, though it is empty.", spec: "{classRef: {}}", want: want{class: "/"}},
		"NullClassReference":  {reason: "We should bind a claim whose reference is null.", spec: "{classRef: null, classSelector: {matchLabels: {tier: gold}}}", want: want{class: "BigClass/gold"}},
		"ResourceReference":   {reason: "We should leave a static claim alone.", spec: "{resourceRef: {name: db-1}}", want: want{class: ""}},
		"Labels":              {reason: "We should bind to a class that has the labels.", spec: "{classSelector: {matchLabels: {tier: gold}}}", want: want{class: "BigClass/gold"}},
		"Expressions": {
			reason: "We should bind to a class that meets the expressions, and not pass over them.",
			spec:   "{classSelector: {matchExpressions: [{key: region, operator: In, values: [eu, us]}, {key: tier, operator: NotIn, values: [standard]}]}}", want: want{class: "BigClass/gold"},
		},
		"LabelsAndExpressions": {
			reason: "We should bind to a class that has the labels and meets the expressions.",
			spec:   "{classSelector: {matchLabels: {tier: standard}, matchExpressions: [{key: region, operator: Exists}]}}", want: want{class: "SmallClass/standard"},
		},
		"EmptySelector":      {reason: "We should take any class for an empty selector.", spec: "{classSelector: {}}", want: want{class: "*"}},
		"NoSelector":         {reason: "We should take the default class for a claim without a selector.", spec: "{size: 1}", want: want{class: "SmallClass/standard"}, unopinionated: true},
		"NoSpec":             {reason: "We should take the default class for a claim without a spec, and add one.", want: want{class: "SmallClass/standard"}, unopinionated: true},
		"NullSpec":           {reason: "We should take the default class for a claim whose spec is null.", spec: "null", want: want{class: "SmallClass/standard"}, unopinionated: true},
		"SelectorAnnotation": {reason: "We should take the selector from the annotation.", annotation: "tier in (gold,silver),region=eu", spec: "{}", want: want{class: "BigClass/gold"}},
		"UnmatchedAdmitted": {
			reason: "We should admit an unmatched claim with a warning of what was looked for.",
			spec:   "{classSelector: {matchLabels: {tier: platinum}}}", want: want{message: []string{`"tier=platinum"`, fmt.Sprintf("among 5 classes of bigclasses.%[1]s, smallclasses.%[1]s", group)}},
		},
		"UnmatchedDenied": {
			reason: "We should refuse an unmatched claim of a kind that says so.",
			kind:   "Cache", spec: "{classSelector: {matchLabels: {tier: platinum}}}", want: want{code: http.StatusForbidden, message: []string{`"tier=platinum"`, "among 2 classes of bigclasses." + group}},
		},
		"NoDefaultDenied":  {reason: "We should refuse a claim without a selector where there is no default, of a kind that says so.", kind: "Cache", spec: "{size: 1}", want: want{code: http.StatusForbidden, message: []string{"no class is marked default"}}},
		"Cordoned":         {reason: "We should not offer a cordoned class.", spec: "{classSelector: {matchLabels: {tier: retired}}}", want: want{message: []string{"1 cordoned"}}},
		"WeightZero":       {reason: "We should not offer a class of weight 0 under a weighted strategy.", spec: "{classSelector: {matchLabels: {tier: free}}}", want: want{message: []string{"1 of weight 0"}}},
		"WeightZeroRandom": {reason: "We should offer a class of weight 0 under a strategy that does not weigh.", kind: "Cache", spec: "{classSelector: {matchLabels: {tier: free}}}", want: want{class: "BigClass/weightless"}},
		"Terminating":      {reason: "We should not offer a class that is being deleted.", spec: "{classSelector: {matchLabels: {tier: leaving}}}", want: want{message: []string{"1 being deleted"}}},
		"UnknownOperator": {
			reason: "We should refuse an operator that there is not.",
			spec:   "{classSelector: {matchExpressions: [{key: tier, operator: Foo}]}}", want: want{code: http.StatusUnprocessableEntity, causes: []string{"spec.classSelector.matchExpressions[0].operator"}},
		},
		"SelectorIsText": {reason: "We should refuse a selector that is not an object.", spec: "{classSelector: tier=gold}", want: want{code: http.StatusUnprocessableEntity, causes: []string{"spec.classSelector"}}},
		"SelectorMisspelt": {
			reason: "We should refuse a field that we do not know, and not take it for an empty selector.",
			spec:   "{classSelector: {matchLabel: {tier: gold}}}", want: want{code: http.StatusUnprocessableEntity, message: []string{`"matchLabel"`}, causes: []string{"spec.classSelector"}},
		},
		"SpecIsText":          {reason: "We should refuse a spec that is not an object.", spec: "gold, please", want: want{code: http.StatusUnprocessableEntity, causes: []string{"spec"}}},
		"MalformedAnnotation": {reason: "We should refuse an annotation that is no selector.", annotation: "tier in gold", spec: "{}", want: want{code: http.StatusUnprocessableEntity, causes: []string{"metadata.annotations[classbind.io/class-selector]"}}},
		"FieldAndAnnotation":  {reason: "We should refuse a selector in both places.", annotation: "tier=gold", spec: "{classSelector: {}}", want: want{code: http.StatusUnprocessableEntity, causes: []string{"metadata.annotations[classbind.io/class-selector]"}}},
	} {
		t.Run(name, func(t *testing.T) {
			kind := tc.kind
			if kind == "" {
				kind = "Database"
			}
			manifest := fmt.Sprintf("apiVersion: %s/v1\nkind: %s\nmetadata: {namespace: default, name: %s", group, kind, strings.ToLower(name))
			if tc.annotation != "" {
				manifest += fmt.Sprintf(", annotations: {classbind.io/class-selector: %q}", tc.annotation)
			}
			manifest += "}\n"
			if tc.spec != "" {
				manifest += "spec: " + tc.spec
			}
			before := w.boundByPolicy(t, databases)
			claim, warnings, err := w.create(t, manifest)
			itself := 0
			if byPolicy && tc.unopinionated {
				itself = 1
			}
			assert.Equal(t, itself, w.boundByPolicy(t, databases)-before, "We should see whether the API server gave the class itself.")
			if tc.want.code != 0 {
				status := apierrors.APIStatus(nil)
				require.ErrorAs(t, err, &status, tc.reason)
				assert.Equal(t, tc.want.code, status.Status().Code, "%s: %v", tc.reason, err)
				for _, part := range tc.want.message {
					require.ErrorContains(t, err, part, tc.reason)
				}
				if tc.want.causes != nil {
					assert.Equal(t, tc.want.causes, fields(status.Status()), "%s: %v", tc.reason, err)
				}
				return
			}
			require.NoError(t, err, tc.reason)
			if tc.want.class == "*" {
				assert.Contains(t, []string{"BigClass/gold", "SmallClass/standard"}, classOf(claim), tc.reason)
			} else {
				assert.Equal(t, tc.want.class, classOf(claim), tc.reason)
			}
			for _, part := range tc.want.message {
				assert.Contains(t, strings.Join(warnings, "\n"), part, tc.reason)
			}
			if tc.want.message == nil {
				assert.Empty(t, warnings, tc.reason)
			}
		})
	}

	t.Run("NotACreation", func(t *testing.T) {
		claim := w.created(t, "apiVersion: "+group+"/v1\nkind: Database\nmetadata: {namespace: default, name: updated}\nspec: {resourceRef: {name: db-1}}")
		unstructured.RemoveNestedField(claim.Object, "spec", "resourceRef")
		require.NoError(t, w.Update(t.Context(), claim))
		assert.Empty(t, classOf(claim), "We should bind at creation, and never after.")
	})

	t.Run("SeveralDefaults", func(t *testing.T) {
		// One that was made before anybody guarded its kind.
		w.apply(t, class(group, "OldClass", "legacy", isDefault))
		w.apply(t, classKind("oldclasses."+group, "{claimKinds: [{name: "+databases+"}]}"))
		eventually(t, func(c *attempt) {
			claim, warnings, err := w.create(t, "apiVersion: "+group+"/v1\nkind: Database\nmetadata: {namespace: default, name: two-defaults}", client.DryRunAll)
			require.NoError(c, err)
			require.Contains(c, []string{"OldClass/legacy", "SmallClass/standard"}, classOf(claim), "We should choose among the defaults.")
			require.Contains(c, strings.Join(warnings, "\n"), "OldClass/legacy, SmallClass/standard", "We should name the defaults in a warning.")
		})
		eventually(t, func(c *attempt) {
			require.Equal(c, "OldClass/legacy SmallClass/standard 2 False SeveralDefaults", w.kubectl(t, "get", "claimkind", databases, "-o",
				`jsonpath={range .status.defaults[*]}{.kind}/{.name} {end}{.status.defaultCount} {.status.conditions[?(@.type=="SingleDefault")].status} {.status.conditions[?(@.type=="SingleDefault")].reason}`))
		}, "We should say so in the status.")
		if byPolicy {
			w.awaitCondition(t, &v1beta1.ClaimKind{}, databases, v1beta1.ConditionDefaultedByPolicy, metav1.ConditionFalse, "2 classes are marked default")
		}
	})
}

func fields(status metav1.Status) []string {
	var names []string
	for _, c := range status.Details.Causes {
		names = append(names, c.Field)
	}
	return names
}

// TestTold has claims whose warnings would show control characters of the claim, or values of a
// class that the author of the claim cannot read.
func TestTold(t *testing.T) {
	t.Parallel()
	const group = "told.test"
	w := sharedWorld(t)
	w.resources(t, "Parted parteds."+group+" Namespaced", "Fitting fittings."+group+" Namespaced", "Class classes."+group+" Cluster")
	w.apply(t, vendor(group)+
		claimKind("parteds."+group, "{classes: {partition: {claim: claim.spec.tenant, class: class.spec.tenant}}}")+
		claimKind("fittings."+group, "{selector: {whenAbsent: Any}, classes: {fits: [{name: Owner, expression: \"claim.spec[class.spec.tenant] == 'a'\"}]}}")+
		classKind("classes."+group, "{claimKinds: [{name: parteds."+group+"}, {name: fittings."+group+"}]}")+
		class(group, "Class", "only", "")+"spec: {tenant: 'p4ss://internal host'}\n")
	w.awaitClasses(t, "classes."+group, 1)
	w.awaitClaims(t, "parteds."+group)
	w.awaitClaims(t, "fittings."+group)
	for name, tc := range map[string]struct{ reason, kind, spec, want string }{
		"Printable": {"We should escape what no terminal shows.", "Parted", `{tenant: "a\e[2J\n::error::b\u202e"}`, `x1b[2J\\n::error::b`},
		"NoValues":  {"We should say that an expression failed and why, without a value of the class.", "Fitting", "{size: 1}", "no such key"},
	} {
		t.Run(name, func(t *testing.T) {
			_, warnings := w.warned(t, "apiVersion: "+group+"/v1\nkind: "+tc.kind+"\nmetadata: {namespace: default, generateName: told-}\nspec: "+tc.spec+"\n")
			require.Len(t, warnings, 1, tc.reason)
			assert.Contains(t, warnings[0], tc.want, tc.reason)
			assert.NotContains(t, warnings[0], "p4ss", tc.reason)
			assert.NotRegexp(t, `[[:cntrl:]]|\x{202e}`, warnings[0], tc.reason)
		})
	}
}
