package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/rules"
)

// TestComparePaths registers a claim kind while the schema of its claims changes.
func TestComparePaths(t *testing.T) {
	const name, crdPath = "claims.example.org", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/claims.example.org"
	crd := func(fields string) any {
		return json.RawMessage(
			`{"spec":{"versions":[{"name":"v1","schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object",` + fields + `}}}}}]}}`,
		)
	}
	answers := map[string]any{
		"/apis/example.org":    controllertest.APIGroup("v1"),
		"/apis/example.org/v1": controllertest.APIResources(metav1.APIResource{Name: "claims", Kind: "Claim", Verbs: metav1.Verbs{"create"}}),
	}
	resolver, err := cluster.NewResolver(controllertest.NewAPIServer(t, answers))
	require.NoError(t, err)
	k := controllertest.NewClaimKind(name)
	k.Spec.Reference, k.Spec.Selector.Path = v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.class"}, Form: v1beta1.Name}, ".spec.classSelector"
	cache := &exchanged{}
	r := newRegistration(cache, nil, resolver, nil)
	for i, step := range []struct {
		reason   string
		answer   any
		nonsense string
		again    time.Duration
		fault    string
		required []v1beta1.FieldPath
	}{
		{
			"We should bind claims whose schema has the field, whatever the status says.",
			crd(`"properties":{"class":{"type":"string"}}`), v1beta1.ReasonReferencePruned, RecheckSchemas, "", nil,
		},
		{
			"We should heed what the schema requires.", crd(`"required":["class"],"properties":{"class":{"type":"string","minLength":1}}`), "",
			RecheckSchemas, "",
			[]v1beta1.FieldPath{".spec.class"},
		},
		{"We should bind none that would lose its reference.", crd(`"properties":{}`), v1beta1.ReasonPathsValid, RecheckSchemas, v1beta1.ReasonReferencePruned, nil},
		{
			"We should keep to that while the API server does not answer.",
			controllertest.Failure(http.StatusForbidden, metav1.StatusReasonForbidden), "", RetryAfter, v1beta1.ReasonReferencePruned, nil,
		},
		{"We should bind claims that have no schema any more.", controllertest.Failure(http.StatusNotFound, metav1.StatusReasonNotFound), "", RetryAfter, "", nil},
	} {
		answers[crdPath] = step.answer
		k.Status = v1beta1.ClaimKindStatus{Required: []v1beta1.FieldPath{".spec.class"}, Conditions: []metav1.Condition{
			{Type: v1beta1.ConditionPathsValid, Status: metav1.ConditionFalse, Reason: step.nonsense},
		}}
		cache.Store(&controllertest.Cached{ClaimKinds: []v1beta1.ClaimKind{*k}})
		result, err := r.reconcileClaimKind(t.Context(), name)
		require.NoError(t, err, "%s (%d)", step.reason, i)
		assert.Equal(t, step.again, result.RequeueAfter, "%s (%d)", step.reason, i)
		paths, _ := r.PathsOf(k)
		assert.Equal(t, step.required, paths.Check.Required, "%s (%d)", step.reason, i)
		view, fault := selector.NewView(r.Inventory.ClaimKind(name), nil), ""
		if view.Fault != nil {
			fault = view.Fault.Reason
		}
		assert.Equal(t, step.fault, fault, "%s (%d)", step.reason, i)
		assert.Equal(t, len(step.required) > 0, view.Kind.Reader.Reference.Lacks(1) != "", "%s (%d)", step.reason, i)
	}
	k.Generation++
	_, known := r.PathsOf(k)
	assert.False(t, known, "We should not go by what the schema said of another registration.")
}

// TestListTooLong has the state say that a list without a namespace stops all claims.
func TestListTooLong(t *testing.T) {
	k := controllertest.NewClaimKind("claims.example.org")
	k.Spec.Classes.Related = []v1beta1.Related{{Name: "plans", Resource: "plans.example.org", Selector: &v1beta1.LabelSelector{}}}
	kind := selector.NewClaimKind(k)
	of := kind.RelatedKinds()[0]
	entry := unwatchedRelated(of, cluster.ErrUnsuitable, time.Time{})
	entry.objects = inventory.NewObjects(of, false, nil)
	r := &RelatedKinds{claimKinds: map[string]registeredClaimKind{k.Name: {kind: kind}}, related: map[rules.Key]*relatedKind{of.Key(): entry}}
	for i := range v1beta1.MaxRelatedListed + 1 {
		assert.NotEqual(t, v1beta1.ReasonTooLarge, r.RelatedState(k.Name).Reason)
		entry.objects = entry.objects.With("", fmt.Sprint(i), of.Fields.Project(map[string]any{}))
	}
	assert.Equal(t, v1beta1.ReasonTooLarge, r.RelatedState(k.Name).Reason)
	assert.True(t, entry.objects.IsCrowded(), "The listeners should learn of it.")
}

// TestListsOfNoNamespace refuses a list whose objects have a namespace, where the claims have none: it would be empty for ever.
func TestListsOfNoNamespace(t *testing.T) {
	for _, tc := range []struct{ claims, plans, refused bool }{{false, true, true}, {true, true, false}, {false, false, false}} {
		resolver, err := cluster.NewResolver(controllertest.NewAPIServer(t, map[string]any{
			"/apis/example.org": controllertest.APIGroup("v1"),
			"/apis/example.org/v1": controllertest.APIResources(
				metav1.APIResource{Name: "claims", Kind: "Claim", Namespaced: tc.claims, Verbs: metav1.Verbs{"create"}},
				metav1.APIResource{Name: "plans", Kind: "Plan", Namespaced: tc.plans, Verbs: metav1.Verbs{"list"}},
			),
			"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/claims.example.org": json.RawMessage(
				`{"spec":{"versions":[{"name":"v1","schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`),
		}))
		require.NoError(t, err)
		k, cache := controllertest.NewClaimKind("claims.example.org"), &exchanged{}
		k.Spec.Classes.Related = []v1beta1.Related{{Name: "plans", Resource: "plans.example.org", Selector: &v1beta1.LabelSelector{}}}
		cache.Store(&controllertest.Cached{ClaimKinds: []v1beta1.ClaimKind{*k}})
		kind := selector.NewClaimKind(k)
		paths := newRegistration(cache, nil, resolver, nil).ComparePaths(t.Context(), k, kind)
		require.NoError(t, paths.Err)
		kind.SetPaths(paths.Check)
		fault := fmt.Sprint(selector.NewView(kind, nil).Fault)
		assert.Equal(t, tc.refused, strings.Contains(fault, "spec.classes.related[plans].namespaceExpression: must be set"), "%v: %s", tc, fault)
	}
}

// TestChecksOfOtherRevisions changes a claim kind while nothing can be read of the schema of its claims.
func TestChecksOfOtherRevisions(t *testing.T) {
	const name, crdPath = "claims.example.org", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/claims.example.org"
	const schema = `{"spec":{"versions":[{"name":"v1","schema":{"openAPIV3Schema":{"type":"object","required":["spec"],"properties":{"spec":` +
		`{"type":"object","required":["ref"],"properties":{"ref":{"type":"object","required":["name","major"],"properties":` +
		`{"name":{"type":"string"},"kind":{"type":"string","enum":["Other"]},"major":{"type":"integer"}}}}}}}}}]}}`
	failures := map[string]func(answers map[string]any){
		"Forbidden": func(a map[string]any) {
			a[crdPath] = controllertest.Failure(http.StatusForbidden, metav1.StatusReasonForbidden)
		},
		"Unavailable": func(a map[string]any) {
			a[crdPath] = controllertest.Failure(http.StatusInternalServerError, metav1.StatusReasonInternalError)
		},
		"Malformed": func(a map[string]any) { a[crdPath] = json.RawMessage(`[]`) },
		"NotFound":  func(a map[string]any) { delete(a, "/apis/example.org"); delete(a, "/apis/example.org/v1") },
		"NoAnswer": func(a map[string]any) {
			a["/apis/example.org"] = controllertest.Failure(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
		},
	}
	changes := map[string]struct {
		change func(*v1beta1.ClaimKind)
		keeps  bool
	}{
		"Nothing":   {func(*v1beta1.ClaimKind) {}, true},
		"Status":    {func(k *v1beta1.ClaimKind) { k.Status.Version = "v1" }, true},
		"Path":      {func(k *v1beta1.ClaimKind) { k.Generation, k.Spec.Reference.Path = 2, ".spec.class" }, false},
		"Form":      {func(k *v1beta1.ClaimKind) { k.Generation, k.Spec.Reference.Form = 2, v1beta1.LocalObjectReference }, false},
		"Selector":  {func(k *v1beta1.ClaimKind) { k.Generation, k.Spec.Selector.Path = 2, ".spec.selector" }, false},
		"SkipIfSet": {func(k *v1beta1.ClaimKind) { k.Generation, k.Spec.Claims.SkipIfSet = 2, nil }, false},
		"Version":   {func(k *v1beta1.ClaimKind) { k.Generation, k.Spec.Claims.Version = 2, "v2" }, false},
		"Created":   {func(k *v1beta1.ClaimKind) { k.UID = "again" }, false},
	}
	for failureName, fail := range failures {
		for changeName, tc := range changes {
			t.Run(failureName+"/"+changeName, func(t *testing.T) {
				answers := map[string]any{
					"/apis/example.org":    controllertest.APIGroup("v1"),
					"/apis/example.org/v1": controllertest.APIResources(metav1.APIResource{Name: "claims", Kind: "Claim", Verbs: metav1.Verbs{"create"}}),
					crdPath:                json.RawMessage(schema),
				}
				resolver, err := cluster.NewResolver(controllertest.NewAPIServer(t, answers))
				require.NoError(t, err)
				k := controllertest.NewClaimKind(name)
				k.Generation = 1
				k.Spec.Reference = v1beta1.Reference{
					Place: v1beta1.Place{Path: ".spec.ref"}, Form: v1beta1.KindReference,
				}
				cache := &exchanged{}
				r := newRegistration(cache, nil, resolver, nil)
				check := func() (*selector.ClaimKind, Paths) {
					cache.Store(&controllertest.Cached{ClaimKinds: []v1beta1.ClaimKind{*k}})
					_, err := r.reconcileClaimKind(t.Context(), name)
					require.NoError(t, err)
					paths, known := r.PathsOf(k)
					require.True(t, known, "We should know for which revision the paths were compared.")
					return r.Inventory.ClaimKind(name), paths
				}
				kind, before := check()
				require.NoError(t, before.Err)
				require.NotEmpty(t, before.Check.Required)
				require.NotNil(t, kind.Reader.Reference.LacksCompany(1), "The schema requires what only the author can give.")
				k = k.DeepCopy()
				fail(answers)
				tc.change(k)
				kind, after := check()
				require.Error(t, after.Err)
				if tc.keeps {
					assert.Equal(t, before.Check, after.Check, "We should keep what the schema said of this revision.")
					return
				}
				assert.Zero(t, after.Check, "We should know nothing of what the schema says of the new registration.")
				assert.Empty(t, kind.Reader.Reference.Lacks(1), "We should refuse no claim for a field of another path.")
				assert.Nil(t, kind.Reader.Reference.LacksCompany(1), "We should refuse no claim for a field of another reference.")
				assert.Nil(t, selector.NewView(kind, nil).Fault)
				fresh := selector.NewClaimKind(k)
				assert.Zero(t, r.ComparePaths(t.Context(), k, fresh).Check, "Nor should the warning at its admission.")
			})
		}
	}
}

func TestLateBindingChanged(t *testing.T) {
	kind := func(generation int64, late metav1.ConditionStatus) *v1beta1.ClaimKind {
		k := controllertest.NewClaimKind("claims.example.org")
		k.Generation, k.Status.Version = generation, string(late)
		k.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionLateBinding, Status: late}}
		return k
	}
	for _, tc := range []struct {
		reason string
		after  *v1beta1.ClaimKind
		want   bool
	}{
		{"We should promise nothing that late binding cannot keep.", kind(1, metav1.ConditionFalse), true},
		{"We should follow a new registration.", kind(2, metav1.ConditionTrue), true},
		{"We should do nothing for another status, of which there are many.", kind(1, metav1.ConditionUnknown), false},
	} {
		assert.Equal(t, tc.want, lateBindingChanged.Update(event.UpdateEvent{ObjectOld: kind(1, metav1.ConditionTrue), ObjectNew: tc.after}), tc.reason)
	}
	assert.True(t, lateBindingChanged.Create(event.CreateEvent{Object: kind(1, "")}), "We should look at a kind that is new.")
}

// TestRememberVersions registers a claim kind whose status is nonsense.
func TestRememberVersions(t *testing.T) {
	const name = "claims.example.org"
	for tcName, tc := range map[string]struct {
		reason           string
		spec, remembered string
		served           []string // the first is preferred
		read, want       string
	}{
		"Preferred":    {"We should read the version that the API server prefers.", "", "", []string{"v1"}, "v1", "v1"},
		"Remembered":   {"We should keep to it.", "", "v1", []string{"v2", "v1"}, "v1", "v1"},
		"Set":          {"We should follow the version of the spec.", "v2", "v1", []string{"v1", "v2"}, "v2", "v2"},
		"SetToNone":    {"We should not remember what is not served: it may be a mistake.", "v9", "v1", []string{"v1"}, "v9", "v1"},
		"NotServed":    {"We should take no other version: the paths are not written for it.", "", "v1", []string{"v2"}, "v1", "v1"},
		"NotInstalled": {"We should remember nothing before the resource is served.", "", "", nil, "", ""},
	} {
		t.Run(tcName, func(t *testing.T) {
			answers := map[string]any{}
			for _, version := range tc.served {
				answers["/apis/example.org"] = controllertest.APIGroup(tc.served...)
				answers["/apis/example.org/"+version] = controllertest.APIResources(metav1.APIResource{Name: "claims", Kind: "Claim", Verbs: metav1.Verbs{"create"}})
			}
			resolver, err := cluster.NewResolver(controllertest.NewAPIServer(t, answers))
			require.NoError(t, err)
			k := controllertest.NewClaimKind(name)
			k.Spec.Claims.Version, k.Status.Version = tc.spec, "v2"
			before := `{}`
			if tc.remembered != "" {
				before = `{"versions":{"` + name + `":"` + tc.remembered + `"}}`
			}
			configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{
				Name: v1beta1.ClassConfiguration, Annotations: map[string]string{v1beta1.MemoryAnnotation: before},
			}}
			r := newRegistration(&controllertest.Cached{ClaimKinds: []v1beta1.ClaimKind{*k}, Guarding: configuration}, nil, resolver, nil)
			_, err = r.reconcileClaimKind(t.Context(), name)
			require.NoError(t, err)
			assert.Equal(t, tc.read, r.Inventory.ClaimKind(name).Reader.Version, tc.reason)
			now, err := r.Remember(MemoryOf(configuration), []v1beta1.ClaimKind{*k}, nil)
			require.NoError(t, err)
			configuration.Annotations[v1beta1.MemoryAnnotation] = now
			assert.Equal(t, tc.want, MemoryOf(configuration).Versions[name], tc.reason)
		})
	}
}

// TestRememberClasses has a class kind whose status says the opposite.
func TestRememberClasses(t *testing.T) {
	const name = "golds.example.org"
	notPermitted := &inventory.Fault{Reason: v1beta1.ReasonNotPermitted}
	for tcName, tc := range map[string]struct {
		reason string
		before bool
		state  *registered
		want   bool
	}{
		"NotPermitted": {"We should remember what was offered, though it cannot be read now.", true, unfollowed(notPermitted), true},
		"NeverOffered": {"We should not take for offered what never was.", false, unfollowed(notPermitted), false},
		"NoAnswer":     {"We should remember it while nobody answers.", true, unfollowed(errors.New("no answer")), true},
		"Gone":         {"We should forget what is not installed any more.", true, unfollowed(cluster.ErrNotInstalled), false},
	} {
		t.Run(tcName, func(t *testing.T) {
			r := newRegistration(&controllertest.Cached{}, nil, cluster.Resolver{}, nil)
			r.ClassKinds.kinds[name] = tc.state
			before := &Memory{}
			if tc.before {
				before.ClassKinds = []string{name}
			}
			k := v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1beta1.ClassKindStatus{Served: !tc.before}}
			assert.Equal(t, tc.before, before.ServedClasses(k.Name), "We should act on no status.")
			now, err := r.Remember(before, nil, []v1beta1.ClassKind{k})
			require.NoError(t, err)
			assert.Equal(t, tc.want, strings.Contains(now, name), tc.reason)
		})
	}
}

// TestUnreadMemory has a cache that cannot determine what was served: nothing that was is narrowed for it.
func TestUnreadMemory(t *testing.T) {
	r := newRegistration(&controllertest.Cached{Err: errors.New("refused")}, nil, cluster.Resolver{}, nil)
	k := &v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: "golds.example.org"}}
	assert.True(t, r.Resources.Served(t.Context(), k), "We should wait for its classes.")
	assert.True(t, r.Guarded(t.Context(), k), "We should go on guarding them.")
	assert.True(t, r.Resources.memory(t.Context()).ServedClaims(controllertest.NewClaimKind("claims.example.org")), "We should wait for what its claims name.")
}
