package explain

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/cmd/classbind/exit"
	"github.com/classbind/classbind/cmd/classbind/world"
	lookup "github.com/classbind/classbind/controller/cluster"
)

type object = map[string]any

const (
	claimKindsPath = "/apis/classbind.io/v1beta1/claimkinds"
	classKindsPath = "/apis/classbind.io/v1beta1/classkinds"
	resourcesPath  = "/apis/example.org/v1"
	fastPath       = resourcesPath + "/fastclasses"
	slowPath       = resourcesPath + "/slowclasses"
	claimsPath     = resourcesPath + "/namespaces/team/databases"
	namespacePath  = "/api/v1/namespaces/team"
	openAPIPath    = "/openapi/v3/apis/example.org/v1"
	crdPath        = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/databases.example.org"
)

// apiServer answers discovery and lists, and forbids everything else.
type apiServer struct {
	answers map[string]any // by path, field selector and continue token; an int is a status

	mu       sync.Mutex
	accepted map[string]string // Accept headers by path
	asked    map[string]int    // how often, by path
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := r.URL.Path
	for _, parameter := range []string{"continue", "fieldSelector"} {
		if v := r.URL.Query().Get(parameter); v != "" {
			key += "?" + v
		}
	}
	s.mu.Lock()
	s.accepted[r.URL.Path] = r.Header.Get("Accept")
	s.asked[r.URL.Path]++
	s.mu.Unlock()
	answer, ok := s.answers[key]
	status, failure := answer.(int)
	switch {
	case r.Method != http.MethodGet || !ok && strings.Count(r.URL.Path, "/") > 3:
		status, failure = http.StatusForbidden, true
	case !ok:
		status, failure = http.StatusNotFound, true
	}
	w.Header().Set("Content-Type", "application/json")
	if failure {
		w.WriteHeader(status)
		reason := map[int]metav1.StatusReason{403: metav1.StatusReasonForbidden, 404: metav1.StatusReasonNotFound, 503: metav1.StatusReasonServiceUnavailable}[status]
		answer = metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
			Status:   metav1.StatusFailure,
			Code:     int32(status),
			Reason:   reason,
			Message:  string(reason),
		}
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func group(name string, versions ...string) object {
	g := object{"kind": "APIGroup", "apiVersion": "v1", "name": name}
	var all []object
	for _, v := range versions {
		all = append(all, object{"groupVersion": name + "/" + v, "version": v})
	}
	g["versions"], g["preferredVersion"] = all, all[0]
	return g
}

func resources(groupVersion string, all ...object) object {
	return object{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": groupVersion, "resources": all}
}

func served(plural, kind string, namespaced bool, verbs ...string) object {
	return object{"name": plural, "kind": kind, "namespaced": namespaced, "verbs": verbs}
}

func list(apiVersion, kind string, items ...any) object {
	return object{"apiVersion": apiVersion, "kind": kind, "metadata": object{"resourceVersion": "1"}, "items": append([]any{}, items...)}
}

func metadataList(items ...any) object {
	return list("meta.k8s.io/v1", "PartialObjectMetadataList", items...)
}

func registration(kind, name string, spec, status object) object {
	return object{"apiVersion": "classbind.io/v1beta1", "kind": kind, "metadata": object{"name": name}, "spec": spec, "status": status}
}

func class(kind, name, tier string) object {
	return object{"apiVersion": "example.org/v1", "kind": kind, "metadata": object{"name": name, "labels": object{"tier": tier}}, "spec": object{"weight": 3}}
}

// claimKinds has one, with this in its spec.
func claimKinds(spec string, status object) object {
	merged, err := jsonpatch.MergePatch(
		[]byte(
			`{"reference": {"path": ".spec.classRef", "form": "ObjectReference"}, "selector": {"path": ".spec.classSelector"},
			"claims": {"skipIfSet": [{"path": ".spec.resourceRef"}],
		"namespaceSelector": {}}, "classes": {}, "choice": {"strategy": "WeightedRandom", "seed": {"from": "Claim"}}, "whenUnmatched": "Admit",
		"admission": {"failurePolicy": "Fail"}}`,
		), []byte(cmp.Or(spec, "{}")),
	)
	changed := object{}
	if err := errors.Join(err, json.Unmarshal(merged, &changed)); err != nil {
		panic(err)
	}
	return list("classbind.io/v1beta1", "ClaimKindList", registration("ClaimKind", "databases.example.org", changed, status))
}

// serve an API, to which the file config leads, beside other files. It returns the address.
func serve(t *testing.T, api http.Handler, files map[string]string) string {
	t.Helper()
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	files["config"] = kubeconfig(server.URL)
	t.Chdir(write(t, files))
	return server.URL
}

func classKindSpec(weight object) object {
	return object{"claimKinds": []object{{"name": "databases.example.org"}}, "default": object{"annotation": "default"}, "weight": weight}
}

// minimalCRD says the least.
func minimalCRD(name, kind, scope string) string {
	_, group, _ := strings.Cut(name, ".")
	return fmt.Sprintf(`{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": %q}, "spec": `+
		`{"group": %q, "scope": %q, "names": {"kind": %q}, "versions": [{"name": "v1", "served": true}]}}`, name, group, scope, kind)
}

func condition(status, reason string) object {
	return object{
		"conditions": []object{{"type": "Ready", "status": status, "reason": reason, "message": "as it is", "lastTransitionTime": "2026-01-01T00:00:00Z"}},
	}
}

// boundClaim is the stored claim with a class, which a field manager has written.
func boundClaim(class, manager string) object {
	c := storedClaim("v1", "silver")
	c["spec"].(object)["classRef"] = object{"apiVersion": "example.org/v1", "kind": "FastClass", "name": class}
	fields := object{"f:spec": object{"f:classRef": object{"f:apiVersion": object{}, "f:kind": object{}, "f:name": object{}}}}
	c["metadata"].(object)["managedFields"] = []object{{
		"manager": manager, "operation": "Update", "apiVersion": "example.org/v1", "fieldsType": "FieldsV1", "fieldsV1": fields,
	}}
	return c
}

func storedClaim(version, tier string) object {
	return object{
		"apiVersion": "example.org/" + version, "kind": "Database", "metadata": object{"namespace": "team", "name": "stored"},
		"spec": object{"classSelector": object{"matchLabels": object{"tier": tier}}, "unknown": 1},
	}
}

// newAPIServer serves two class kinds. Metadata is enough for the fast ones; the slow ones have their weight in a field.
func newAPIServer(change func(answers map[string]any)) *apiServer {
	groups := object{"kind": "APIGroupList", "apiVersion": "v1", "groups": []object{group("classbind.io", "v1beta1"), group("example.org", "v1", "v1beta1")}}
	s := &apiServer{accepted: map[string]string{}, asked: map[string]int{}, answers: map[string]any{
		"/api":               object{"kind": "APIVersions", "versions": []string{"v1"}},
		"/api/v1":            resources("v1", served("namespaces", "Namespace", false, "list", "watch")),
		"/apis":              groups,
		"/apis/classbind.io": group("classbind.io", "v1beta1"),
		"/apis/example.org":  group("example.org", "v1", "v1beta1"),
		resourcesPath: resources(
			"example.org/v1", served("databases", "Database", true, "create"), served("fastclasses", "FastClass", false, "list", "watch"),
			served("slowclasses", "SlowClass", false, "list", "watch"),
		),
		"/apis/classbind.io/v1beta1": resources(
			"classbind.io/v1beta1", served("claimkinds", "ClaimKind", false, "list"), served("classkinds", "ClassKind", false, "list"),
		),
		claimKindsPath: claimKinds("", object{}),
		classKindsPath: list("classbind.io/v1beta1", "ClassKindList",
			registration("ClassKind", "fastclasses.example.org", classKindSpec(object{"annotation": "weight"}), condition("True", "Served")),
			registration("ClassKind", "slowclasses.example.org", classKindSpec(object{"path": ".spec.weight"}), condition("True", "Served"))),
		openAPIPath:            published(databaseSchema),
		claimsPath + "/stored": storedClaim("v1", "silver"),
		fastPath:               metadataList(class("FastClass", "a", "gold"), class("FastClass", "b", "silver")),
		slowPath:               list("example.org/v1", "SlowClassList", class("SlowClass", "c", "gold")),
	}}
	change(s.answers)
	return s
}

func TestExplainCluster(t *testing.T) {
	classKinds := func(slow object) object {
		return list("classbind.io/v1beta1", "ClassKindList",
			registration("ClassKind", "fastclasses.example.org", classKindSpec(object{"annotation": "weight"}), object{}),
			registration("ClassKind", "slowclasses.example.org", classKindSpec(object{"path": ".spec.weight"}), slow))
	}
	pruned := object{"conditions": []object{
		{"type": "PathsValid", "status": "False", "reason": "ReferencePruned", "message": "as it is", "lastTransitionTime": "2026-01-01T00:00:00Z"},
	}}
	const fastAlone = "* FastClass/a   1        100%\n"
	const planPath = "/apis/example.org/v1/namespaces/team/plans/standard"
	plan := object{"apiVersion": "example.org/v1", "kind": "Plan", "metadata": object{"name": "standard"}, "spec": object{"tier": "silver"}}
	fast, slow := served("fastclasses", "FastClass", false, "list", "watch"), served("slowclasses", "SlowClass", false, "list", "watch")
	serving := func(all ...object) object {
		return resources("example.org/v1", append(all, served("databases", "Database", true, "create"))...)
	}
	relatingTo := func(related string) object {
		return claimKinds(`{"classes": {"related": [{"name": "plan", "resource": "plans.example.org", `+related+`}],
			"fits": [{"name": "Plan", "expression": "class.metadata.labels.tier == related.plan.spec.tier && class.kind == 'FastClass'",
			"message": "of another plan"}]}}`, object{})
	}
	relating := object{
		claimKindsPath: relatingTo(`"nameExpression": "'standard'"`),
		resourcesPath:  serving(fast, slow, served("plans", "Plan", true, "get", "list", "watch")),
	}
	capacity := classKindSpec(object{"annotation": "weight"})
	capacity["capacity"] = []any{object{"name": "size", "total": object{"annotation": "classbind.io/capacity"}}}
	limited := class("FastClass", "a", "gold")
	limited["metadata"].(object)["annotations"] = object{"classbind.io/capacity": "5"}
	holdsFive := object{
		claimKindsPath: claimKinds(`{"classes": {"usage": [{"name": "size", "expression": "claim.metadata.labels.size"}]}}`, object{}),
		classKindsPath: list("classbind.io/v1beta1", "ClassKindList", registration("ClassKind", "fastclasses.example.org", capacity, object{})),
		fastPath:       metadataList(limited),
	}
	using := func(sizes ...int) object { // Claims of FastClass/a, in all namespaces.
		all := list("example.org/v1", "DatabaseList")
		for i, size := range sizes {
			all["items"] = append(all["items"].([]any), object{
				"metadata": object{
					"namespace":       fmt.Sprint("team-", i),
					"name":            "c",
					"uid":             fmt.Sprint(i),
					"resourceVersion": "1",
					"labels":          object{"size": fmt.Sprint(size)},
				},
				"spec": object{"classRef": object{"apiVersion": "example.org/v1", "kind": "FastClass", "name": "a"}},
			})
		}
		return object{"/apis/example.org/v1/databases": all}
	}
	sized := strings.Replace(goldClaim, `"metadata": {`, `"metadata": {"labels": {"size": "2"}, `, 1)
	team := func(labels object) object {
		return object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": "team", "labels": labels, "annotations": object{"tier": "gold"}}}
	}
	pinned := func(version string) object {
		return object{
			claimsPath + "/stored":               storedClaim("v1", "lost"),
			"/apis/admissionregistration.k8s.io": group("admissionregistration.k8s.io", "v1"),
			"/apis/admissionregistration.k8s.io/v1": resources(
				"admissionregistration.k8s.io/v1", served("validatingwebhookconfigurations", "ValidatingWebhookConfiguration", false, "get"),
			),
			"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/" + v1beta1.ClassConfiguration: object{
				"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object{
					"name":        v1beta1.ClassConfiguration,
					"annotations": object{v1beta1.MemoryAnnotation: fmt.Sprintf(`{"versions": {"databases.example.org": %q}}`, version)},
				},
			},
			"/apis/example.org/v1beta1":                                   resources("example.org/v1beta1", served("databases", "Database", true, "create")),
			"/apis/example.org/v1beta1/namespaces/team/databases/stored":  storedClaim("v1beta1", "silver"),
			"/apis/example.org/v1alpha1/namespaces/team/databases/stored": http.StatusNotFound,
		}
	}
	firstPage := metadataList(class("FastClass", "a", "gold"))
	firstPage["metadata"] = object{"resourceVersion": "1", "continue": "next"}
	dated := registration("ClassKind", "fastclasses.example.org", classKindSpec(object{"annotation": "weight"}), object{})
	dated["metadata"].(object)["creationTimestamp"] = "2026-01-01T00:00:00Z"
	selecting := claimKinds(`{"claims": {"namespaceSelector": {"matchLabels": {"bind": "yes"}}}}`, object{})
	for name, tc := range map[string]struct {
		reason string
		// base and answers are in the place of those that the server has else; without nil ones.
		base, answers object
		claim         string // goldClaim unless set
		with          string // the content of new.yaml
		args          []string
		status        int
		want          []string // parts of what is printed
	}{
		"AsItIs": {
			reason: "We should read weights from the annotation and from the field.",
			want:   []string{"Database team/mine: bound to ", "SlowClass/c   3        75%\n", "FastClass/a   1        25%\n", "FastClass/b   tier=gold   tier=silver"},
		},
		"Pages": {
			reason:  "We should read all pages of a long list.",
			answers: object{fastPath: firstPage, fastPath + "?next": metadataList(class("FastClass", "z", "gold"))},
			want:    []string{"one of 3 classes", "FastClass/z   1        20%"},
		},
		"NotPermittedToClassbind": {
			reason:  "We should offer the classes that we read, and say what the status says.",
			answers: object{classKindsPath: classKinds(condition("False", "NotPermitted"))},
			want: []string{
				"one of 2 classes",
				"Note:    classbind may know other classes of slowclasses.example.org than these, by the status (NotPermitted): as it is",
			},
		},
		"Stale": {
			reason:  "We should read stale classes, and say that classbind may know other ones.",
			answers: object{classKindsPath: classKinds(condition("False", "Stale"))},
			want:    []string{"one of 2 classes", "Note:    classbind may know other classes of slowclasses.example.org than these, by the status (Stale): as it is"},
		},
		"NotInstalled": {
			reason:  "We should leave out a kind that is not installed, and say so.",
			answers: object{resourcesPath: serving(fast)},
			want:    []string{fastAlone, "the classes of slowclasses.example.org are left out, as classbind does: the API server serves no such resource"},
		},
		"Full": {
			reason: "We should count what the claims of the cluster use.", base: holdsFive, answers: using(1, 3), claim: sized,
			status: exit.Found, want: []string{"full: 4 of 5 size, and this claim uses 2"},
		},
		"Room": {
			reason: "We should offer a class that has room.", base: holdsFive, answers: using(1, 2), claim: sized, want: []string{fastAlone},
		},
		"FullBesideANewClass": {
			reason: "We should count a class that files add as empty.",
			base:   holdsFive, answers: using(5), claim: sized,
			with: `{apiVersion: example.org/v1, kind: FastClass, metadata: {name: b, labels: {tier: gold}, annotations: {classbind.io/capacity: "2"}}}`,
			want: []string{"bound to FastClass/b", "full: 5 of 5 size, and this claim uses 2"},
		},
		"ClaimsForbidden": {
			reason: "We should say that we do not know how much is taken.", base: holdsFive, claim: sized,
			want: []string{fastAlone, `not all is known that is taken of each class of fastclasses.example.org: cannot list the claims of "databases.example.org"`},
		},
		"ListForbidden": {
			reason: "We should name the right to see all objects of a namespace.",
			answers: object{
				claimKindsPath: claimKinds(`{"classes": {"related": [{"name": "plans", "resource": "plans.example.org", "selector": {}}],
					"fits": [{"name": "Plan", "expression": "related.plans.all(p, p.spec.tier != 'none')"}]}}`, object{}),
				resourcesPath: serving(fast, slow, served("plans", "Plan", true, "get", "list", "watch")),
			},
			status: exit.Failed, want: []string{"cannot list plans.example.org, at which expressions look: you need the right to list them"},
		},
		"NamespaceNotSelected": {
			reason:  "We should leave alone the claims of a namespace that is not selected.",
			answers: object{claimKindsPath: selecting, namespacePath: team(nil)},
			want:    []string{"Database team/mine: left alone", `the claim kind selects namespaces by "bind=yes", which "team" does not match`},
		},
		"NamespaceForbidden": {
			reason:  "We should not guess whether a namespace is selected.",
			answers: object{claimKindsPath: selecting},
			status:  exit.Failed,
			want:    []string{`cannot read the namespace "team"`, "say what it has with --set namespace.labels.KEY=VALUE"},
		},
		"NamespaceSet": {
			reason:  "We should take what is said of a namespace that may not be read.",
			args:    []string{"--set", "namespace.labels.bind=yes"},
			answers: object{claimKindsPath: selecting},
			want:    []string{"Database team/mine: bound to "},
		},
		"NamespaceUnsettled": {
			reason:  "We should decide on nothing without an answer.",
			args:    []string{"--set", "namespace.labels.bind=yes"},
			answers: object{claimKindsPath: selecting, namespacePath: http.StatusServiceUnavailable},
			status:  exit.Failed,
			want:    []string{`cannot read the namespace "team"`},
		},
		"Forbidden": {
			reason:  "We should not decide on part of the classes.",
			answers: object{slowPath: http.StatusForbidden},
			status:  exit.Failed,
			want:    []string{`error: claim.yaml, document 1: cannot list the classes of "slowclasses.example.org": `},
		},
		"Unavailable": {
			reason:  "We should not take a group that does not answer for one that is not installed.",
			answers: object{"/apis/example.org": http.StatusServiceUnavailable},
			status:  exit.Failed,
			want:    []string{`cannot determine whether claim kind "databases.example.org" is that of the claim`},
		},
		"Field": {
			reason: "We should read the schema of the cluster.",
			claim:  strings.ReplaceAll(goldClaim, "classSelector", "classselector"),
			status: exit.Failed,
			want:   []string{"Database team/mine: mistaken", "spec.classselector: the schema has no such field: did you mean spec.classSelector?"},
		},
		"Version": {
			reason: "We should ask the cluster which versions it serves.",
			claim:  strings.ReplaceAll(goldClaim, "example.org/v1", "example.org/v9"),
			status: exit.Failed,
			want:   []string{"apiVersion: the API server does not serve Database of example.org/v9: set apiVersion to example.org/v1"},
		},
		"NoSchema": {
			reason:  "We should say that we cannot check fields.",
			answers: object{openAPIPath: nil},
			want:    []string{"bound to", "Note:    the fields of the claim are not checked against the schema: cannot read the schema of example.org/v1"},
		},
		"Stored": {
			reason: "We should read a claim by its kind, as kubectl does, and not refuse what is stored.",
			args:   []string{"Database/stored"}, status: exit.Found,
			want: []string{
				"Database team/stored: stored without a class; created now, it would get FastClass/b\n",
				"  Do:      classbind bind databases.example.org stored --namespace team\n",
			},
		},
		"StoredBound": {
			reason:  "We should say which class a claim has, that it would get the same today, and why.",
			args:    []string{"Database/stored"},
			answers: object{claimsPath + "/stored": boundClaim("b", "classbind")},
			want: []string{
				"Database team/stored: has FastClass/b, and would get the same today\n  Because: the only class that matches the selector \"tier=silver\"\n",
				"\n  CANDIDATE     WEIGHT   ODDS\n* FastClass/b   ",
			},
		},
		"StoredBoundOtherwise": {
			reason:  "We should say that it would get another class today.",
			args:    []string{"Database/stored"},
			answers: object{claimsPath + "/stored": boundClaim("a", "classbind")},
			want: []string{
				"Database team/stored: has FastClass/a; created now, it would get FastClass/b\n",
				`its class "FastClass/a" does not match its selector`,
			},
		},
		"StoredBoundToNothing": {
			reason:  "We should say that its class is not there.",
			args:    []string{"Database/stored"},
			answers: object{claimsPath + "/stored": boundClaim("gone", "classbind")},
			want: []string{
				"Database team/stored: has a class; created now, it would get FastClass/b\n", "is not there: create the class",
			},
		},
		"StoredByItsAuthor": {
			reason:  "We should say who chose, where that is not classbind.",
			args:    []string{"Database/stored"},
			answers: object{claimsPath + "/stored": boundClaim("a", "kubectl")},
			want:    []string{"Database team/stored: has FastClass/a\n  Because: its author, or who restored it, set .spec.classRef; --unbound "},
		},
		"StoredMisspeltKind": {
			reason: "We should say which kind was meant.",
			args:   []string{"Databse/stored"},
			status: exit.Failed,
			want:   []string{`"Databse/stored": no ClaimKind registers "Databse": did you mean Database?`},
		},
		"StoredPinned": {
			reason: "We should have the API server convert the claim.",
			base:   pinned("v1beta1"),
			args:   []string{"Database/stored"},
			status: exit.Found,
			want:   []string{"Database team/stored: stored without a class; created now, it would get FastClass/b\n"},
		},
		"StoredNotServed": {
			reason: "We should say that nobody can read the claim, and not that it is not there.",
			base:   pinned("v1alpha1"),
			args:   []string{"Database/stored"},
			status: exit.Failed,
			want:   []string{`cannot get the claim "Database/stored": the API server does not serve the version for which the paths are written, "v1alpha1"`},
		},
		"StoredAmbiguous": {
			reason: "We should ask which of two kinds of one name is meant.",
			args:   []string{"Database/stored"}, status: exit.Failed,
			with: documents(`{"apiVersion": "classbind.io/v1beta1", "kind": "ClaimKind", "metadata": {"name": "databases.new.org"}, "spec": {}}`,
				minimalCRD("databases.new.org", "Database", "Namespaced")),
			want: []string{`"Database" may be any of databases.example.org, databases.new.org: name one of them`},
		},
		"WithClass": {
			reason: "We should put a class on top of the cluster's, and in the place of one of its name.",
			with:   documents(goldClass, `{"apiVersion": "example.org/v1", "kind": "FastClass", "metadata": {"name": "a", "labels": {"tier": "bronze"}}}`),
			want:   []string{"one of 2 classes that match", "FastClass/gold", "SlowClass/c"},
		},
		"WithKinds": {
			reason: "We should put registrations on top of the cluster's, with a kind that only the files define.",
			with: documents(`{"apiVersion": "classbind.io/v1beta1", "kind": "ClaimKind", "metadata": {"name": "databases.example.org"}, "spec": `+
				`{"choice": {"strategy": "HighestWeight"}}}`,
				`{"apiVersion": "classbind.io/v1beta1", "kind": "ClassKind", "metadata": {"name": "newclasses.example.org"}, "spec": {"claimKinds": `+
					`[{"name": "databases.example.org"}]}}`,
				minimalCRD("newclasses.example.org", "NewClass", "Cluster"),
				`{"apiVersion": "example.org/v1", "kind": "NewClass", "metadata": {"name": "heavy", "labels": {"tier": "gold"}, "annotations": `+
					`{"resourceclass.crossplane.io/weight": "7"}}}`),
			want: []string{"Database team/mine: bound to NewClass/heavy", "one of 3 classes", "HighestWeight takes it"},
		},
		"WithKindAgain": {
			reason:  "We should know what the cluster says of a class kind that the files have, too.",
			answers: object{classKindsPath: classKinds(condition("False", "NotPermitted"))},
			claim:   strings.ReplaceAll(goldClaim, "gold", "none"), status: exit.Found,
			with: strings.ReplaceAll(classKind, "fastclasses", "slowclasses"),
			want: []string{"classbind may know other classes of slowclasses.example.org than these, by the status (NotPermitted): as it is"},
		},
		"WithWrongPath": {
			reason: "We should compare the paths of the files with the schema of the cluster.",
			with:   strings.Replace(claimKind, "}}", `}, "spec": {"reference": {"path": ".spec.clasRef"}}}`, 1),
			status: exit.Failed, want: []string{
				"Database team/mine: cannot be decided",
				"the API server would remove the reference to its class: reference.path: the schema has no field .spec.clasRef (did you mean .spec.classRef?): ",
			},
		},
		"ReferencePruned": {
			reason:  "We should see for ourselves whether the schema has the paths, as the server does.",
			answers: object{claimKindsPath: claimKinds("", pruned)},
			want:    []string{"Database team/mine: bound to "},
		},
		"PathsNotCompared": {reason: "We should say that we cannot compare the paths.", answers: object{openAPIPath: nil}, want: []string{
			"bound to",
			"Note:    the paths of the registration are not compared with the schema of the claims: cannot read the schema of example.org/v1",
		}},
		"RelatedForbidden": {
			reason: "We should not guess what is in an object that may not be read, and say how to go on.",
			base:   relating,
			status: exit.Failed,
			want:   []string{`cannot read plans.example.org "standard", which the claim names: Forbidden; `, "say what it has with --set related.plan.PATH=VALUE"},
		},
		"RelatedSet": {
			reason: "We should take what is said of an object that may not be read.",
			args:   []string{"--set", "related.plan.spec.tier=gold"},
			base:   relating,
			want:   []string{"bound to FastClass/a", "Related: plan is plans.example.org team/standard"},
		},
		"Related": {
			reason: "We should read an object that the claim names.",
			base:   relating, answers: object{planPath: plan},
			status: exit.Found, want: []string{
				"Related: plan is plans.example.org team/standard",
				"FastClass/a   of another plan   class.metadata.labels.tier == related.plan.spec.tier",
				`class.metadata.labels.tier = "gold", related.plan.spec.tier = "silver"`,
			},
		},
		"RelatedGone": {
			reason: "We should say that there is no such object.",
			base:   relating, answers: object{planPath: http.StatusNotFound},
			status: exit.Found,
			want: []string{
				"Related: plan is absent: there is no plans.example.org team/standard",
				"not judged, because an expression fails: ", "no related.plan.spec.tier",
			},
		},
		"RelatedMisnamed": {
			reason:  "We should take an object for absent that cannot be there.",
			base:    relating,
			answers: object{claimKindsPath: relatingTo(`"nameExpression": "'a/b'"`)},
			status:  exit.Found,
			want:    []string{"Related: plan is absent: there is no plans.example.org team/a/b"},
		},
		"RelatedVersionNotServed": {
			reason: "We should not take objects for absent that are there in another version.",
			base:   relating, answers: object{claimKindsPath: relatingTo(`"nameExpression": "'standard'", "version": "v2"`)},
			status: exit.Failed, want: []string{"cannot be decided", `"plans.example.org/v2"`, "set the version of the related object"},
		},
		"RelatedNotServed": {
			reason:  "We should take an object of a kind that is not installed as absent.",
			base:    relating,
			answers: object{resourcesPath: serving(fast, slow)},
			status:  exit.Found,
			want:    []string{"Related: plan is absent: there is no plans.example.org "},
		},
		"Namespace": {
			reason: "We should read the namespace at which an expression looks, once.",
			answers: object{
				namespacePath: team(nil),
				claimKindsPath: claimKinds(
					`{"classes": {"fits": [{"name": "Tenant", "expression": "class.metadata.labels.tier == namespaceObject.metadata.annotations.tier"}]}}`,
					object{},
				),
			},
			want: []string{"bound to "},
		},
		"NamespaceOfClassKind": {
			reason: "We should read the namespace at which a class kind alone looks.",
			answers: object{
				namespacePath: team(nil),
				classKindsPath: list("classbind.io/v1beta1", "ClassKindList", registration("ClassKind", "fastclasses.example.org", object{
					"claimKinds": []object{{"name": "databases.example.org"}},
					"default":    object{"annotation": "default"},
					"weight":     object{"annotation": "weight"},
					"fits":       []object{{"name": "Tenant", "expression": "namespaceObject.metadata.annotations.tier == 'gold' && claim.metadata.name != 'a'"}},
				}, condition("True", "Served"))),
			},
			want: []string{"bound to "},
		},
		"NamespaceOfClassKindAgainst": {
			reason: "We should show what such an expression saw.",
			answers: object{
				namespacePath: team(nil),
				classKindsPath: list("classbind.io/v1beta1", "ClassKindList", registration("ClassKind", "fastclasses.example.org", object{
					"claimKinds": []object{{"name": "databases.example.org"}},
					"default":    object{"annotation": "default"},
					"weight":     object{"annotation": "weight"},
					"fits":       []object{{"name": "Tenant", "expression": "namespaceObject.metadata.annotations.tier == class.metadata.name"}},
				}, condition("True", "Served"))),
			},
			status: exit.Found,
			want:   []string{`namespaceObject.metadata.annotations.tier = "gold"`},
		},
		"WithoutClassbind": {
			reason: "We should say what is missing in a cluster without classbind.",
			answers: object{
				"/apis":                      object{"kind": "APIGroupList", "apiVersion": "v1", "groups": []object{}},
				"/apis/classbind.io":         nil,
				"/apis/classbind.io/v1beta1": nil,
			},
			status: exit.Failed, want: []string{"error: the cluster does not know ClaimKinds: no matches for kind", "; install classbind: " + lookup.InstallPage},
		},
	} {
		t.Run(name, func(t *testing.T) {
			api := newAPIServer(func(answers map[string]any) {
				maps.Copy(answers, tc.base)
				maps.Copy(answers, tc.answers)
				maps.DeleteFunc(answers, func(_ string, answer any) bool { return answer == nil })
			})
			serve(t, api, map[string]string{"claim.yaml": cmp.Or(tc.claim, goldClaim), "new.yaml": tc.with})
			args := append([]string{"--kubeconfig", "config"}, tc.args...)
			if tc.with != "" {
				args = append(args, "--with", "new.yaml")
			}
			if !slices.ContainsFunc(tc.args, func(a string) bool { return strings.Contains(a, "/") }) {
				args = append(args, "-f", "claim.yaml")
			}
			got := run(t, "", args...)
			assert.Equal(t, tc.status, got.status, "%s: %s", tc.reason, got.stderr)
			for _, part := range tc.want {
				assert.Contains(t, got.stdout+got.stderr, part, tc.reason)
			}
			if tc.status == 0 {
				assert.Empty(t, got.stderr, tc.reason)
				for path, accept := range api.accepted {
					assert.Equal(t, path == fastPath, strings.Contains(accept, "PartialObjectMetadata"),
						"We should read metadata alone where it is enough, and only there: %s", path)
				}
			}
		})
	}
}

// statuses have each field of a status in turn as somebody may forge it, and each condition.
func statuses[T any](t *testing.T) map[string]object {
	all := map[string]object{}
	of := reflect.TypeFor[T]()
	for i := range of.NumField() {
		v, f := reflect.New(of).Elem(), of.Field(i)
		switch forged := v.Field(i); f.Type.Kind() {
		case reflect.Bool:
			forged.SetBool(true)
		case reflect.Int32:
			forged.SetInt(7)
		case reflect.String:
			forged.SetString("v1beta1")
		case reflect.Pointer:
			forged.Set(reflect.New(f.Type.Elem()))
		case reflect.Slice:
			forged.Set(reflect.MakeSlice(f.Type, 1, 1))
			if f.Type.Elem().Kind() == reflect.String {
				forged.Index(0).SetString(".spec.forged")
			}
		default:
			t.Fatalf("We should forge %s, too.", f.Name)
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(v.Addr().Interface())
		require.NoError(t, err)
		all[f.Name] = content
	}
	names, err := parser.ParseFile(token.NewFileSet(), "../../../api/v1beta1/names.go", nil, 0)
	require.NoError(t, err)
	ast.Inspect(names, func(n ast.Node) bool {
		spec, is := n.(*ast.ValueSpec)
		if !is || !strings.HasPrefix(spec.Names[0].Name, "Condition") {
			return true
		}
		name, _ := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		for _, status := range []string{"True", "False", "Unknown"} {
			forged := condition(status, v1beta1.ReasonNotPermitted)
			forged["conditions"].([]object)[0]["type"] = name
			all[name+status] = forged
		}
		return true
	})
	require.Greater(t, len(all), 40)
	return all
}

// TestNoStatusIsBelieved forges each field of the status of both kinds.
func TestNoStatusIsBelieved(t *testing.T) {
	claim := strings.ReplaceAll(goldClaim, `"classSelector": {"matchLabels": {"tier": "gold"}}`, `"classSelector": {}`)
	ofClaims, ofClasses, answers := statuses[v1beta1.ClaimKindStatus](t), statuses[v1beta1.ClassKindStatus](t), map[string]any{}
	serve(t, newAPIServer(func(a map[string]any) { answers = a }), map[string]string{"claim.yaml": claim})
	config, err := clientcmd.BuildConfigFromFlags("", "config")
	require.NoError(t, err)
	decided := func() (all []string) {
		for _, args := range [][]string{{"-f", "claim.yaml"}, {"classes", "Database"}} {
			command := NewCommand()
			if args[0] == "classes" {
				command, args = NewClassesCommand(), args[1:]
			}
			out := &strings.Builder{}
			command.SetOut(out)
			command.SetErr(io.Discard)
			command.SetArgs(append(args, "--kubeconfig", "config", "-o", "json"))
			_ = command.ExecuteContext(t.Context())
			report := struct{ Items []map[string]any }{}
			require.NoError(t, json.Unmarshal([]byte(out.String()), &report), out)
			for _, item := range report.Items {
				delete(item, "notes")
				all = append(all, fmt.Sprint(item))
			}
		}
		bound, err := world.BindableKinds(t.Context(), config, "classbind-system", "Database") // As bind does.
		require.NoError(t, err)
		w, err := world.OfCluster(t.Context(), config, "classbind-system", "") // As simulate does.
		require.NoError(t, err)
		simulated, err := w.Simulated(t.Context(), "databases.example.org")
		require.NoError(t, err)
		for _, k := range append(bound, simulated) {
			r, err := k.Read(t.Context(), []byte(strings.Replace(claim, `"name": "mine"`, `"namespace": "team", "name": "mine"`, 1)))
			require.NoError(t, err)
			to, why, err := r.Decide(t.Context(), 1)
			all = append(all, fmt.Sprint(k.Resource, len(k.View.Classes), to, why, err))
		}
		return all
	}
	want := decided()
	require.Len(t, want, 4)
	claimKinds, classKinds := answers[claimKindsPath].(object)["items"].([]any), answers[classKindsPath].(object)["items"].([]any)
	forge := func(what string, all []any, statuses map[string]object) {
		for name, status := range statuses {
			for _, registration := range all {
				registration.(object)["status"] = status
			}
			assert.Equal(t, want, decided(), "We should not believe %s of a %s.", name, what)
		}
		for _, registration := range all {
			delete(registration.(object), "status")
		}
	}
	forge("ClaimKind", claimKinds, ofClaims)
	forge("ClassKind", classKinds, ofClasses)
}

func TestExplainAsksOnce(t *testing.T) {
	api := newAPIServer(func(a map[string]any) {
		a[claimKindsPath] = claimKinds(`{"claims": {"namespaceSelector": {"matchLabels": {"bind": "yes"}}}}`, object{})
		a[namespacePath] = object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": "team", "labels": object{"bind": "yes"}}}
	})
	serve(t, api, map[string]string{"claims.yaml": documents(goldClaim, goldClaim, goldClaim)})
	got := run(t, "", "-f", "claims.yaml", "--kubeconfig", "config")
	assert.Zero(t, got.status, got.stderr)
	assert.Equal(t, 3, strings.Count(got.stdout, "bound to "))
	for _, path := range []string{namespacePath, claimKindsPath, fastPath} {
		assert.Equal(t, 1, api.asked[path], path)
	}
}

// published is a schema of a CRD as the API server publishes it for every user.
func published(schema string) object {
	const metadata = `{"description": "Metadata.", "allOf": [{"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}]}`
	return object{
		"components": object{"schemas": object{"Database": json.RawMessage(strings.Replace(schema, `"metadata": {"type": "object"}`, `"metadata": `+metadata, 1))}},
	}
}

func kubeconfig(url string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: here, clusters: [{name: here, cluster: {server: %q}}],
contexts: [{name: here, context: {cluster: here, user: me, namespace: team}}], users: [{name: me, user: {}}]}`, url)
}
