package status

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/controller/latebinding"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/openapi"
)

// TestSetDefaults has classes that are marked default. Each is written KIND/NAME or KIND/NAMESPACE/NAME, where the claim
// kind has partitions with @PARTITION, and maybe with "cordoned" or "plain", without the mark.
func TestSetDefaults(t *testing.T) {
	gold := func(names string) (all []v1beta1.DefaultClass) {
		for _, name := range names {
			all = append(all, v1beta1.DefaultClass{Kind: "Gold", Name: string(name)})
		}
		return all
	}
	for name, tc := range map[string]struct {
		reason   string
		classes  []string
		want     string // as conditionText has it
		defaults []v1beta1.DefaultClass
		counts   [3]int32 // of all, and of the seats of namespaces and partitions that have any
	}{
		"None": {
			reason: "We should say what becomes of a claim without a selector where there is no default.", classes: []string{"Gold/a plain"},
			want: "True/NoDefault: a claim without a selector finds no class",
		},
		"One": {
			reason: "We should name the default class.", classes: []string{"Gold/a", "Gold/b plain"},
			want: "True/OneDefault: a claim without a selector gets the default class", defaults: gold("a"), counts: [3]int32{1, 0, 0},
		},
		"Several": {
			reason: "We should name the default classes of all kinds in their order, and say what would help.", classes: []string{"Silver/a", "Gold/b", "Gold/a"},
			want:     "False/SeveralDefaults: a claim without a selector gets one of 3 classes; leave the mark on one of Gold/a, Gold/b, Silver/a",
			defaults: append(gold("ab"), v1beta1.DefaultClass{Kind: "Silver", Name: "a"}),
			counts:   [3]int32{3, 0, 0},
		},
		"Many": {
			reason:   "We should list the first, and count all.",
			classes:  strings.Fields("Gold/a Gold/b Gold/c Gold/d Gold/e Gold/f Gold/g Gold/h Gold/i Gold/j Gold/k Gold/l Gold/m Gold/n Gold/o Gold/p Gold/q Silver/a"),
			want:     "False/SeveralDefaults: a claim without a selector gets one of 18 classes; leave the mark on one of Gold/a, Gold/b, Gold/c, Gold/d and 14 more",
			defaults: gold("abcdefghijklmnop"),
			counts:   [3]int32{18, 0, 0},
		},
		"SeveralOfNamespaces": {
			reason:  "We should name the namespaces that have several, and the classes of one.",
			classes: []string{"Near/one/a", "Near/two/a", "Near/two/b", "Near/three/a", "Near/three/b"},
			want: `False/SeveralDefaults: a claim in namespace "three" without a selector gets one of 2 classes; leave the mark on one of Near/three/a, Near/three/b; ` +
				`so it is in 1 more namespaces or partitions`, counts: [3]int32{0, 3, 0},
		},
		"Cordoned": {
			reason: "We should say that the default class is cordoned, and what would help.", classes: []string{"Gold/a cordoned"},
			want: "True/DefaultCordoned: no claim gets the default class Gold/a, which is cordoned: offer it again: kubectl annotate " +
				"golds.example.org a classbind.io/cordoned-, " +
				"or move the default: classbind set-default CLASS --for claims.example.org", defaults: []v1beta1.DefaultClass{{Kind: "Gold", Name: "a", Cordoned: true}},
			counts: [3]int32{1, 0, 0},
		},
		"PartitionsInNamespaces": {
			reason: "We should count namespaces and partitions apart.", classes: []string{"Gold/a@", "Near/team/b@", "Near/team/c@east", "Near/other/d@east"},
			want: "True/OneDefault: a claim without a selector gets the default class", defaults: gold("a"), counts: [3]int32{1, 1, 2},
		},
		"UnknownPartition": {
			reason: "We should take a class of no known partition for no default.", classes: []string{"Gold/a@", "Gold/b"},
			want: "True/OneDefault: a claim without a selector gets the default class", defaults: gold("a"), counts: [3]int32{1, 0, 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := controllertest.NewClaimKind("claims.example.org")
			if strings.Contains(tc.classes[0], "@") {
				k.Spec.Classes.Partition = &v1beta1.Partition{Claim: "''", Class: "class.metadata.labels.zone"}
			}
			kinds, classes := map[string]*inventory.ClassKind{}, map[string][]*inventory.Class{}
			for _, name := range []string{"Silver", "Near", "Gold"} {
				kinds[name] = inventory.NewClassKind(&v1beta1.ClassKind{
					ObjectMeta: metav1.ObjectMeta{Name: strings.ToLower(name) + "s.example.org"},
					Spec:       v1beta1.ClassKindSpec{ClaimKinds: []v1beta1.ClaimKindLink{{Name: k.Name}}, Default: v1beta1.Source{Annotation: "default"}},
				}, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: name}, name == "Near", k)
			}
			for _, text := range tc.classes {
				text, mark, _ := strings.Cut(text, " ")
				path, partition, known := strings.Cut(text, "@")
				names := strings.Split(path, "/")
				o := &metav1.ObjectMeta{Name: names[len(names)-1], Labels: map[string]string{}}
				if known {
					o.Labels["zone"] = partition
				}
				if len(names) == 3 {
					o.Namespace = names[1]
				}
				o.Annotations = map[string]string{"default": strconv.FormatBool(mark != "plain"), v1beta1.CordonedAnnotation: strconv.FormatBool(mark == "cordoned")}
				classes[names[0]] = append(classes[names[0]], kinds[names[0]].NewClass(o, nil))
			}
			var all []*inventory.Classes
			for _, name := range []string{"Silver", "Near", "Gold"} { // In no order.
				all = append(all, inventory.NewClasses(kinds[name], classes[name]))
			}
			c := setDefaults(k, selector.NewView(selector.NewClaimKind(k), all))
			assert.Equal(t, tc.want, conditionText(&c), tc.reason)
			assert.Equal(t, tc.defaults, k.Status.Defaults, tc.reason)
			counts := [3]int32{k.Status.DefaultCount, k.Status.NamespaceDefaults, k.Status.PartitionDefaults}
			assert.Equal(t, tc.counts, counts, tc.reason)
		})
	}
}

// conditionText is STATUS/REASON: MESSAGE, and empty for no condition.
func conditionText(c *metav1.Condition) string {
	if c == nil || c.Type == "" {
		return ""
	}
	return fmt.Sprintf("%s/%s: %s", c.Status, c.Reason, c.Message)
}

func TestClassConditions(t *testing.T) {
	golds := controllertest.NewClassKind("golds.example.org", "Gold")
	var over []*inventory.Class
	for _, name := range []string{"f", "e", "d", "c", "b", "a"} {
		labels := map[string]string{"a": strings.Repeat("x", v1beta1.MaxClassLabelBytes)}
		over = append(over, golds.NewClass(&metav1.ObjectMeta{Name: name, Labels: labels}, nil))
	}
	annotated := func(classes map[string][]string) *inventory.Classes { return controllertest.NewClasses(golds, classes) }
	for name, tc := range map[string]struct {
		reason  string
		classes *inventory.Classes
		want    string // its type, and then as conditionText has it
	}{
		"LabelsIndexed": {
			"We should complain of nothing where all labels are held.", annotated(map[string][]string{"a": nil}),
			"LabelsIndexed=True/LabelsIndexed: no class has too many labels",
		},
		"TooManyLabels": {
			"We should name a few of the classes, whoever makes how many of them.", inventory.NewClasses(golds, over),
			"LabelsIndexed=False/TooManyLabels: classes with more than 64 labels, or 8192 bytes of them, which no claim is offered: Gold/a, Gold/b, " +
				"Gold/c, Gold/d and 2 more",
		},
		"NoWeights": {"We should complain of nothing where there is nothing.", annotated(nil), "WeightsValid=True/WeightsValid: every weight can be read"},
		"Weights": {
			"We should take a weight that is absent for a valid one.", annotated(map[string][]string{"a": nil, "b": {"weight", "0"}, "c": {"weight", "1000000"}}),
			"WeightsValid=True/WeightsValid: every weight can be read",
		},
		"MalformedWeights": {
			"We should say what malformed weights count as, and what is wrong with the first.",
			annotated(map[string][]string{"a": nil, "b": {"weight", "much"}, "c": {"weight", "-1"}, "d": {"weight", "1000001"}}),
			`WeightsValid=False/MalformedWeight: classes with a malformed weight, which counts as 1, or as 0 if it is negative: Gold/b, Gold/c, ` +
				`Gold/d; the first: metadata.annotations[weight]: Invalid value: "much": must be an integer from 0 to 1000000, in plain digits`,
		},
		"Marks": {
			"We should complain of nothing where every mark can be read.", annotated(map[string][]string{"a": nil, "b": {"default", "false"}}),
			"MarksValid=True/MarksValid: every mark is true or false",
		},
		"MalformedMarks": {
			"We should count and name the classes, and say what is wrong with the first.",
			annotated(map[string][]string{"b": {"default", "1"}, "a": {v1beta1.CordonedAnnotation, "yes"}, "c": {v1beta1.CordonedAnnotation, "true"}}),
			`MarksValid=False/MalformedMark: classes with a mark that is neither true nor false: Gold/a, Gold/b; the first: ` +
				`metadata.annotations[classbind.io/cordoned]: Invalid value: "yes": must be true or false, and counts as false`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			kind, _, _ := strings.Cut(tc.want, "=")
			got := last((&Writer{}).classConditions(&v1beta1.ClassKind{}, tc.classes), kind)
			assert.Equal(t, tc.want, kind+"="+conditionText(&got), tc.reason)
		})
	}
}

func TestSetConditions(t *testing.T) {
	var conditions []metav1.Condition
	setConditions(&conditions, 1, metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Served", Message: "well"})
	require.Len(t, conditions, 1)
	since := conditions[0].LastTransitionTime
	require.False(t, since.IsZero(), "We should say since when.")

	setConditions(&conditions, 2, metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Stale", Message: "old"})
	assert.Equal(t, []metav1.Condition{
		{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Stale", Message: "old", ObservedGeneration: 2, LastTransitionTime: since},
	}, conditions, "We should keep the time of the last transition, and say which generation we have seen.")

	setConditions(&conditions, 2, metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Stale", Message: "x" + strings.Repeat("é", 20000)})
	message := conditions[0].Message
	assert.LessOrEqual(t, utf8.RuneCountInString(message), 32768, "We should cut a message that the schema would refuse.")
	assert.Greater(t, len(message), 32000, "We should cut no more than we have to.")
	assert.True(t, utf8.ValidString(message), "We should not cut a character in two.")

	setConditions(&conditions, 3, last(conditions, "Ready"), last(conditions, "Other"), met("New", "New", "new"))
	require.Len(t, conditions, 2, "We should write nothing that does not apply.")
	assert.Equal(t, [2]int64{3, 2}, [2]int64{conditions[0].ObservedGeneration, conditions[1].ObservedGeneration}, "We should keep what was written before.")
	setConditions(&conditions, 3, met("New", "New", "new"))
	assert.Len(t, conditions, 1, "We should remove what nobody writes any more.")
}

// writtenReady is the condition Ready that was written for generation 7, as STATUS/REASON, or empty if nothing was written.
func writtenReady(t *testing.T, c *controllertest.Cached) string {
	t.Helper()
	if len(c.Updated) == 0 {
		return ""
	}
	require.Len(t, c.Updated, 1, "We should write once.")
	var conditions []metav1.Condition
	switch o := c.Updated[0].(type) {
	case *v1beta1.ClassKind:
		conditions = o.Status.Conditions
	case *v1beta1.ClaimKind:
		conditions = o.Status.Conditions
	}
	ready := last(conditions, v1beta1.ConditionReady)
	assert.EqualValues(t, 7, ready.ObservedGeneration)
	return string(ready.Status) + "/" + ready.Reason
}

// fixed is a registration with one state of all class kinds, and one of all related objects. Every resource can only be created.
type fixed struct {
	registration
	classKinds
	relatedKinds
	of      registry.State
	related registry.State
	paths   *registry.Paths // nil if they are not compared yet
	served  bool
}

func (f fixed) in(w *Writer) *Writer {
	w.Registration, w.ClassKinds, w.RelatedKinds, w.Resources = f, f, f, f
	return w
}

func (f fixed) Served(context.Context, *v1beta1.ClassKind) bool { return f.served }

func (f fixed) State(string) registry.State { return f.of }

func (f fixed) RelatedState(string) registry.State { return f.related }

func (f fixed) ClassesRelatedState(string) registry.State { return registry.State{} }

func (fixed) LookUpClaims(_ context.Context, _ *v1beta1.ClaimKind, verbs ...string) (cluster.Resource, error) {
	if !slices.Equal(verbs, []string{"create"}) {
		return cluster.Resource{}, cluster.ErrUnsuitable
	}
	return cluster.Resource{}, nil
}

func (f fixed) PathsOf(*v1beta1.ClaimKind) (paths registry.Paths, known bool) {
	return ptr.Deref(f.paths, paths), f.paths != nil
}

// said is what became of all entries.
type said struct {
	entries
	problem, tooLarge, others string
}

func (s said) Problem() string { return s.problem }

func (s said) TooLarge(string) string { return s.tooLarge }

func (s said) Others(string) string { return s.others }

// servedState is of golds.example.org, without classes.
func servedState(uid types.UID, generation int64) registry.State {
	return registry.State{
		Reason:   v1beta1.ReasonServed,
		Classes:  controllertest.NewClasses(controllertest.NewClassKind("golds.example.org", "Gold"), nil),
		Revision: inventory.Revision{UID: uid, Generation: generation},
	}
}

// reconcileClassKind is one round of a class kind in a state, with a problem of all entries, if any.
func reconcileClassKind(t *testing.T, c *controllertest.Cached, state registry.State, problem string) (ctrl.Result, error) {
	t.Helper()
	served := meta.IsStatusConditionTrue(c.ClassKinds[0].Status.Conditions, v1beta1.ConditionReady)
	s := fixed{of: state, served: served}.in(&Writer{Claims: watched{}, ClassEntries: said{problem: problem}, Client: c})
	return s.reconcileClassKind(t.Context(), c.ClassKinds[0].Name)
}

func TestReconcileClassKindStatus(t *testing.T) {
	const name = "golds.example.org"
	refused := func(since time.Time) registry.State {
		return registry.State{Reason: v1beta1.ReasonNotPermitted, Revision: inventory.Revision{UID: "5e1f", Generation: 7}, Refused: true, Since: since}
	}
	notLookedUp := registry.State{Reason: v1beta1.ReasonNotSynced}
	long := time.Now().Add(-2 * registry.RefusalGrace)
	for tcName, tc := range map[string]struct {
		reason string
		ready  bool // before
		state  registry.State
		again  time.Duration
		want   string // as writtenReady has it
	}{
		"Watched": {reason: "We should say what became of this generation.", state: servedState("5e1f", 7), want: "True/Served"},
		"PredecessorWatched": {
			reason: "We should not say of this object what is known of one that was deleted, and look again.",
			state:  servedState("c0ffee", 7),
			again:  registry.RetryCRDAfter,
		},
		"NotWatched": {
			reason: "We should say why there is no watch, which has nothing to do with the generation.", state: registry.State{Reason: v1beta1.ReasonNotInstalled},
			want: "False/NotInstalled",
		},
		"NotLookedUp": {reason: "We should say that we have not looked at a new one yet.", state: notLookedUp, want: "False/NotSynced"},
		"NotLookedUpYetReady": {
			reason: "We should not say that classes are offered that this leader does not have.",
			ready:  true,
			state:  notLookedUp,
			want:   "False/NotSynced",
		},
		"JustRefused": {reason: "Nor where the API server has just refused them.", ready: true, state: refused(time.Now()), want: "False/NotPermitted"},
		"Ignored": {
			reason: "Nor where an admin has them ignored.",
			ready:  true,
			state:  registry.State{Reason: v1beta1.ReasonIgnored, Message: "ignored"},
			want:   "False/Ignored",
		},
		"Refused": {
			reason: "We should say that we may not list what we could list before.",
			ready:  true,
			state:  refused(long),
			want:   "False/NotPermitted",
		},
	} {
		t.Run(tcName, func(t *testing.T) {
			k := v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "5e1f", Generation: 7}}
			if tc.ready {
				k.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionReady, Status: metav1.ConditionTrue}}
			}
			c := &controllertest.Cached{ClassKinds: []v1beta1.ClassKind{k}}
			result, err := reconcileClassKind(t, c, tc.state, "")
			require.NoError(t, err, tc.reason)
			assert.Equal(t, ctrl.Result{RequeueAfter: tc.again}, result, tc.reason)
			assert.Equal(t, tc.want, writtenReady(t, c), tc.reason)
			if tc.ready && tc.want != "" {
				ready := last(c.Updated[0].(*v1beta1.ClassKind).Status.Conditions, v1beta1.ConditionReady)
				says := strings.HasSuffix(ready.Message, "run: kubectl annotate classkind golds.example.org classbind.io/ignored=true")
				assert.Equal(t, tc.state.Reason != v1beta1.ReasonIgnored, says, "We should say how to go on without the classes: %s", ready.Message)
			}
		})
	}
}

func TestStatusWriteFails(t *testing.T) {
	resource := schema.GroupResource{Group: "classbind.io", Resource: "classkinds"}
	refused := errors.New("connection refused")
	for name, tc := range map[string]struct {
		reason string
		err    error
		again  time.Duration
		want   error
	}{
		"Conflict": {
			reason: "We should take it for no fault that somebody was faster, and look again.",
			err:    apierrors.NewConflict(resource, "golds.example.org", errors.New("the object has been modified")), again: statusDelay,
		},
		"NotFound": {reason: "We should take it for no fault that it was deleted.", err: apierrors.NewNotFound(resource, "golds.example.org")},
		"Refused":  {reason: "We should say that we cannot write.", err: refused, want: refused},
	} {
		t.Run(name, func(t *testing.T) {
			c := &controllertest.Cached{UpdateErr: tc.err, ClassKinds: []v1beta1.ClassKind{{ObjectMeta: metav1.ObjectMeta{Name: "golds.example.org", Generation: 7}}}}
			result, err := reconcileClassKind(t, c, registry.State{Reason: v1beta1.ReasonNotInstalled}, "")
			require.ErrorIs(t, err, tc.want, tc.reason)
			assert.Equal(t, ctrl.Result{RequeueAfter: tc.again}, result, tc.reason)
			assert.Len(t, c.Updated, 1)
		})
	}
}

func TestGuarded(t *testing.T) {
	const name = "golds.example.org"
	entries := func(classKinds ...string) *admissionregistrationv1.ValidatingWebhookConfiguration {
		c := &admissionregistrationv1.ValidatingWebhookConfiguration{}
		for _, k := range classKinds {
			c.Webhooks = append(c.Webhooks, admissionregistrationv1.ValidatingWebhook{Name: k + v1beta1.GuardSuffix})
		}
		return c
	}
	const guarded, unguarded = "a second default class, or a malformed weight, is refused", "the webhook configuration has no entry for it yet; " +
		"it gets one once it is ready"
	for tcName, tc := range map[string]struct {
		reason        string
		configuration *admissionregistrationv1.ValidatingWebhookConfiguration
		problem       string
		want          string // as conditionText has it
	}{
		"Guarded": {reason: "We should say that we are asked.", configuration: entries("others.example.org", name), want: "True/Configured: " + guarded},
		"GuardedSoFar": {
			reason: "We should say what is the matter, though we are asked.", configuration: entries(name), problem: "this replica does not serve yet",
			want: "True/Configured: " + guarded + "; the entries of the webhook configuration may be out of date: this replica does not serve yet",
		},
		"NoEntry": {
			reason:        "We should say that we are not asked about this kind.",
			configuration: entries("others.example.org"),
			want:          "False/NotConfigured: " + unguarded,
		},
		"NoConfiguration": {
			reason: "We should say why we are not asked.", problem: "there is none: install it",
			want: "False/NotConfigured: " + unguarded + "; the entries of the webhook configuration may be out of date: there is none: install it",
		},
	} {
		t.Run(tcName, func(t *testing.T) {
			c := &controllertest.Cached{
				Guarding:   tc.configuration,
				ClassKinds: []v1beta1.ClassKind{{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "5e1f", Generation: 7}}},
			}
			_, err := reconcileClassKind(t, c, servedState("5e1f", 7), tc.problem)
			require.NoError(t, err, tc.reason)
			require.Len(t, c.Updated, 1, tc.reason)
			got := meta.FindStatusCondition(c.Updated[0].(*v1beta1.ClassKind).Status.Conditions, v1beta1.ConditionGuarded)
			assert.Equal(t, tc.want, conditionText(got), tc.reason)
			assert.EqualValues(t, 7, got.ObservedGeneration)
		})
	}
	k := &v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: name}}
	s := &Writer{Client: &controllertest.Cached{Guarding: entries(name)}, ClassEntries: entriesWithout{kind: name + v1beta1.DeletionSuffix}}
	for onDelete, want := range map[v1beta1.OnDelete]string{
		v1beta1.WarnOfDeletion: "True/Configured: " + guarded,
		v1beta1.DenyDeletion:   "False/TooLarge: the deletion of a class that claims have is not refused: no room",
	} {
		k.Spec.OnDelete = onDelete
		c, err := s.guarded(t.Context(), k)
		require.NoError(t, err)
		assert.Equal(t, want, conditionText(&c), "We should not be green while classes in use may go.")
	}
}

// entriesWithout has no room for one entry.
type entriesWithout struct {
	said
	kind string
}

func (e entriesWithout) TooLarge(kind string) string {
	if kind == e.kind {
		return "no room"
	}
	return ""
}

func TestReconcileClaimKindStatus(t *testing.T) {
	const name = "claims.example.org"
	entry := []admissionregistrationv1.MutatingWebhook{{Name: name + v1beta1.BindSuffix}}
	objects := *controllertest.NewClaimKind(name)
	objects.Spec.Reference, objects.Spec.Selector.Path = v1beta1.Reference{
		Place: v1beta1.Place{Path: ".spec.classRef"},
		Form:  v1beta1.ObjectReference,
	}, ".spec.classSelector"
	for tcName, tc := range map[string]struct {
		reason  string
		closed  bool
		view    string // UID and generation, if these are others; a dash is none
		paths   *registry.Paths
		classes bool // of golds.example.org are known
		unread  bool // are those of silvers.example.org
		entries []admissionregistrationv1.MutatingWebhook
		said    said
		again   time.Duration // while nothing is written
		want    string        // as writtenReady has it
		message string        // within that of Ready
	}{
		"Viewed":    {reason: "We should say what became of this generation.", entries: entry, want: "True/Served", message: "claims are bound"},
		"Closed":    {reason: "We should say nothing before all is known, and look again.", closed: true, entries: entry, again: registry.RetryCRDAfter},
		"NotViewed": {reason: "We should say nothing of what we have not heard of, and look again.", view: "-", entries: entry, again: statusDelay},
		"PredecessorViewed": {
			reason:  "We should not say of this object what is known of one that was deleted, and look again.",
			view:    "c0ffee/7",
			entries: entry,
			again:   statusDelay,
		},
		"NoClassKind": {
			reason:  "We should not have claims stopped for which there can be no class.",
			want:    "False/NoClassKind",
			message: "claims are created as if it were not registered",
		},
		"ClassKindUnread": {
			reason: "We should say that the class kind cannot be read, and where the remedy stands.", unread: true,
			want: "False/NoClassKind", message: "see the condition ClassKindsRead",
		},
		"OneClassKindUnread": {
			reason:  "We should say so although claims are bound.",
			entries: entry,
			classes: true,
			unread:  true,
			want:    "True/Served",
			message: "claims are bound",
		},
		"NotCompared": {
			reason:  "We should not have claims stopped before the schema is known.",
			classes: true,
			want:    "False/NotSynced",
			message: "not compared with the schema",
		},
		"SchemaUnread": {
			reason: "We should not take a schema that cannot be read for one that does not exist.", classes: true, paths: &registry.Paths{Err: errors.New("no answer")},
			want: "False/NotSynced", message: "it was never served",
		},
		"AllReferencesRefused": {
			reason:  "We should not have the API server refuse claims for what we wrote into them.",
			classes: true, paths: &registry.Paths{Check: checkOf(t, objects, refusing)}, want: "False/AllReferencesRefused", message: "it was never served",
		},
		"NoSchema": {
			reason: "We should serve a kind that has no schema.", classes: true, paths: &registry.Paths{Err: openapi.ErrNoSchema},
			want: "False/NotConfigured", message: "no entry for it yet",
		},
		"NoEntry": {
			reason: "We should say why there is no entry, and look again.", classes: true, paths: &registry.Paths{},
			said:    said{problem: "this replica does not serve yet"},
			want:    "False/NotConfigured",
			message: "the webhook configuration has no entry for it yet; the entries of the webhook configuration may be out of date: this replica does not serve yet",
		},
		"Others": {
			reason: "We should say who else writes the entry.", classes: true, paths: &registry.Paths{}, said: said{others: "the enforcer adds terms"},
			want: "False/NotConfigured", message: "the webhook configuration has no entry for it yet; the enforcer adds terms",
		},
		"TooLarge": {
			reason: "We should say that there is no room for an entry, and look again.", said: said{tooLarge: "it would count as too many bytes"},
			want: "False/TooLarge", message: "claims are not bound: it would count as too many bytes",
		},
	} {
		t.Run(tcName, func(t *testing.T) {
			k := controllertest.NewClaimKind(name)
			k.UID, k.Generation = "5e1f", 7
			c := &controllertest.Cached{ClaimKinds: []v1beta1.ClaimKind{*k}, Configuration: &admissionregistrationv1.MutatingWebhookConfiguration{Webhooks: tc.entries}}
			inventory := selector.NewInventory()
			if tc.view != "-" {
				viewed := controllertest.NewClaimKind(name)
				uid, generation, _ := strings.Cut(cmp.Or(tc.view, "5e1f/7"), "/")
				viewed.UID, viewed.Generation = types.UID(uid), int64(generation[0]-'0')
				viewed.Spec.Choice.Strategy, viewed.Spec.Reference.Form = v1beta1.WeightedRandom, v1beta1.ObjectReference
				kind := selector.NewClaimKind(viewed)
				if tc.paths != nil {
					kind.SetPaths(tc.paths.Check)
				}
				inventory.SetClaimKind(kind)
			}
			if tc.classes {
				inventory.SetClasses(controllertest.NewClasses(controllertest.NewClassKind("golds.example.org", "Gold"), nil))
			}
			if tc.unread {
				inventory.SetUnread("silvers.example.org", []string{name}, v1beta1.ReasonNotPermitted)
			}
			if !tc.closed {
				inventory.Open()
			}
			s := fixed{paths: tc.paths}.in(&Writer{Snapshot: inventory.Snapshot, Claims: &latebinding.Claims{}, ClaimEntries: tc.said, Client: c})
			result, err := s.reconcileClaimKind(t.Context(), name)
			require.NoError(t, err, tc.reason)
			if strings.HasPrefix(tc.want, "False") {
				tc.again = registry.RetryAfter
			}
			assert.Equal(t, ctrl.Result{RequeueAfter: tc.again}, result, tc.reason)
			assert.Equal(t, tc.want, writtenReady(t, c), tc.reason)
			if tc.want != "" {
				conditions := c.Updated[0].(*v1beta1.ClaimKind).Status.Conditions
				assert.Contains(t, last(conditions, v1beta1.ConditionReady).Message, tc.message, tc.reason)
				read := last(conditions, v1beta1.ConditionClassKindsRead)
				assert.Equal(t, !tc.unread, read.Status == metav1.ConditionTrue, tc.reason)
				assert.Equal(t, tc.unread, strings.Contains(read.Message, `"silvers.example.org": `), tc.reason)
			}
		})
	}
}

func TestDescribeCheck(t *testing.T) {
	for explicit, want := range map[v1beta1.Explicit]string{
		v1beta1.AllowExplicit: "True/Served: bound",
		v1beta1.CheckExplicit: "False/TooLarge: claims are bound, but the classes that they name are not checked: no room",
	} {
		k, ready := controllertest.NewClaimKind("claims.example.org"), met(v1beta1.ConditionReady, v1beta1.ReasonServed, "bound")
		k.Spec.Reference.Explicit = explicit
		(&Writer{ClassEntries: said{tooLarge: "no room"}}).describeCheck(k, &ready)
		assert.Equal(t, want, conditionText(&ready), "We should not be green while claims may name any class.")
	}
}
