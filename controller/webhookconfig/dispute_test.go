package webhookconfig

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/controllertest"
)

// contested is an API server with one configuration, which keeps what others own when the leader applies.
type contested struct {
	client.Client
	Configuration
	version, writes int
}

func (c *contested) stores() {
	c.version++
	c.ResourceVersion = strconv.Itoa(c.version)
}

func (c *contested) Apply(_ context.Context, o runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	applied := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if err := json.Unmarshal(text, applied); err != nil {
		return err
	}
	for i := range applied.Webhooks {
		if e := &applied.Webhooks[i]; entryNamed(c.Webhooks, e.Name) != nil {
			stored := entryNamed(c.Webhooks, e.Name)
			if e.ObjectSelector == nil {
				e.ObjectSelector = stored.ObjectSelector
			}
			for _, condition := range stored.MatchConditions {
				if !slices.ContainsFunc(e.MatchConditions, func(c admissionregistrationv1.MatchCondition) bool { return c.Name == condition.Name }) {
					e.MatchConditions = append(e.MatchConditions, condition)
				}
			}
		}
	}
	if !equality.Semantic.DeepEqual(c.Webhooks, applied.Webhooks) {
		c.writes++
		c.stores()
	}
	c.Webhooks = applied.Webhooks
	stored := *applied
	stored.ResourceVersion = c.ResourceVersion
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&stored)
	if err != nil {
		return err
	}
	reflect.ValueOf(o).Elem().FieldByName("Unstructured").Interface().(*unstructured.Unstructured).Object = content
	return nil
}

// Patch removes the entries that are not due.
func (c *contested) Patch(_ context.Context, o client.Object, p client.Patch, _ ...client.PatchOption) error {
	data, err := p.Data(o)
	if err != nil {
		return err
	}
	c.Webhooks = slices.DeleteFunc(c.Webhooks, func(e Entry) bool { return strings.Contains(string(data), strconv.Quote(e.Name)) })
	c.stores()
	o.SetResourceVersion(c.ResourceVersion)
	return nil
}

// byOthers are changes of an entry by another client, by field. What is kept stays.
var byOthers = map[string]struct {
	change func(*Entry)
	kept   bool
}{
	"Name":         {change: func(e *Entry) { e.Name = "other.test" }},
	"ClientConfig": {change: func(e *Entry) { e.ClientConfig.CABundle = []byte("other") }},
	"Rules":        {change: func(e *Entry) { e.Rules = nil }},
	"FailurePolicy": {change: func(e *Entry) {
		e.FailurePolicy = new(admissionregistrationv1.Ignore)
	}},
	"MatchPolicy": {change: func(e *Entry) { e.MatchPolicy = new(admissionregistrationv1.Exact) }},
	"NamespaceSelector": {kept: true, change: func(e *Entry) {
		e.NamespaceSelector = e.NamespaceSelector.DeepCopy()
		term := metav1.LabelSelectorRequirement{Key: "control-plane", Operator: metav1.LabelSelectorOpDoesNotExist}
		has := func(t metav1.LabelSelectorRequirement) bool { return t.Key == term.Key }
		if !slices.ContainsFunc(e.NamespaceSelector.MatchExpressions, has) {
			e.NamespaceSelector.MatchExpressions = append([]metav1.LabelSelectorRequirement{term}, e.NamespaceSelector.MatchExpressions...)
		}
		metav1.AddLabelToSelector(e.NamespaceSelector, "managed", "no")
	}},
	"NamespaceSelector, fewer": {change: func(e *Entry) { e.NamespaceSelector = &metav1.LabelSelector{} }},
	"ObjectSelector": {kept: true, change: func(e *Entry) {
		e.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"managed": "no"}}
	}},
	"SideEffects":             {change: func(e *Entry) { e.SideEffects = new(admissionregistrationv1.SideEffectClassUnknown) }},
	"TimeoutSeconds":          {change: func(e *Entry) { e.TimeoutSeconds = new(int32(30)) }},
	"AdmissionReviewVersions": {change: func(e *Entry) { e.AdmissionReviewVersions = []string{"v1beta1"} }},
	"MatchConditions": {kept: true, change: func(e *Entry) {
		other := admissionregistrationv1.MatchCondition{Name: "other", Expression: "true"}
		if !slices.Contains(e.MatchConditions, other) {
			e.MatchConditions = append(slices.Clone(e.MatchConditions), other)
		}
	}},
	"MatchConditions, fewer": {change: func(e *Entry) { e.MatchConditions = nil }},
	"ReinvocationPolicy": {change: func(e *Entry) {
		e.ReinvocationPolicy = new(admissionregistrationv1.IfNeededReinvocationPolicy)
	}},
}

// TestOthersMayChangeEachField has another client change each field of an entry, at once after each write of ours, for ten minutes.
func TestOthersMayChangeEachField(t *testing.T) {
	for _, of := range []reflect.Type{reflect.TypeFor[admissionregistrationv1.MutatingWebhook](), reflect.TypeFor[admissionregistrationv1.ValidatingWebhook]()} {
		for f := range of.Fields() {
			assert.Contains(t, byOthers, f.Name, "%s has a field of which we do not say what we do if another client changes it.", of)
		}
	}
	k := claimKind("a.example.org")
	rule := servedRule(k.Resource(), cluster.Resource{GroupVersionKind: schema.GroupVersionKind{Version: "v1"}, Namespaced: true})
	const in = v1beta1.LastConfiguration
	for field, by := range byOthers {
		t.Run(field, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &contested{Configuration: Configuration{ObjectMeta: metav1.ObjectMeta{Name: in, UID: "c0ffee"}}}
				w := &Configurator{Client: server}
				due := []dueEntry{{Entry: w.claimEntry(&k, *rule, []byte("ca"), ""), in: in, kind: k.Name}}
				round := func() {
					t.Helper()
					current := server.Configuration
					current.Webhooks = slices.Clone(current.Webhooks)
					require.NoError(t, w.write(t.Context(), &w.claims, Configurations{in: &current}, []string{in}, due, nil))
				}
				notes := 0
				w.claims.OnChange(t.Context(), func(string) { notes++ })
				round()
				interfere := func() {
					changed := *server.Webhooks[0].DeepCopy()
					if by.change(&changed); reflect.DeepEqual(changed, server.Webhooks[0]) {
						return
					}
					server.Webhooks = []Entry{changed}
					server.ManagedFields = []metav1.ManagedFieldsEntry{
						{Manager: v1beta1.FieldManager, Time: new(metav1.Now()), FieldsV1: metav1.NewFieldsV1(`{"f:webhooks":{}}`)},
						{Manager: "admissionsenforcer", Time: new(metav1.Now()), FieldsV1: metav1.NewFieldsV1(`{"f:webhooks":{}}`)},
						{Manager: "kubectl", Time: new(metav1.Now()), FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{}}`)},
					}
					server.stores()
				}
				for end := time.Now().Add(10 * time.Minute); time.Now().Before(end); {
					interfere()
					round()
					writes := server.writes
					interfere()
					round() // The event of a write, after which the other writes again.
					assert.Equal(t, writes, server.writes, "We should pause before we put it back again.")
					if want := `the field manager "admissionsenforcer"`; field != "MatchConditions" {
						assert.Contains(t, w.claims.Others(k.Name), want, "We should say who it is.")
					}
					time.Sleep(max(w.claims.again, 100*time.Millisecond))
				}
				assert.LessOrEqual(t, server.writes, 12, "We should not load the API server.")
				assert.LessOrEqual(t, notes, 2, "We should say it once.")
				if by.kept {
					assert.Equal(t, 1, server.writes, "We should not fight about what we can live with.")
				} else {
					assert.GreaterOrEqual(t, server.writes, 8, "We should go on putting it back.")
				}

				due[0].ClientConfig.CABundle = []byte("next")
				interfere()
				round()
				assert.Equal(t, "next", string(server.Webhooks[0].ClientConfig.CABundle), "We should write at once what changes on our side.")
				if by.kept {
					before := *server.Webhooks[0].DeepCopy()
					by.change(&before)
					assert.Equal(t, before, server.Webhooks[0], "We should keep what others added.")
				}
				time.Sleep(2 * v1beta1.MaxDisputePause)
				round()
				round()
				if !by.kept {
					assert.Empty(t, w.claims.Others(k.Name), "We should no longer speak of it once it is over.")
					assert.Equal(t, w.claims.written[in], server.Webhooks)
				}
			})
		})
	}
}

// TestValidatingEntries reads all fields of an entry of classes, because somebody may change each.
func TestValidatingEntries(t *testing.T) {
	e := (&Configurator{}).claimEntry(new(claimKind("a.example.org")), *servedRule("a.example.org", cluster.Resource{
		GroupVersionKind: schema.GroupVersionKind{Version: "v1"},
		Namespaced:       true,
	}), []byte("ca"), "")
	e.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	text, err := json.Marshal(e)
	require.NoError(t, err)
	var validating admissionregistrationv1.ValidatingWebhook
	require.NoError(t, json.Unmarshal(text, &validating))
	v := reflect.ValueOf(validating)
	for i := range v.NumField() {
		require.False(t, v.Field(i).IsZero(), "The test should set %s.", v.Type().Field(i).Name)
	}
	c := &controllertest.Cached{Guarding: guardingWith()}
	c.Guarding.Webhooks = []admissionregistrationv1.ValidatingWebhook{validating}
	read, err := ReadConfigurations(t.Context(), c, v1beta1.ClassConfiguration)
	require.NoError(t, err)
	e.ReinvocationPolicy = nil
	assert.Equal(t, []Entry{e}, read[v1beta1.ClassConfiguration].Webhooks)
}

// Terms that we wrote ourselves go when they are no longer due.
func TestKeepTerms(t *testing.T) {
	in := func(labels string, keys ...string) *metav1.LabelSelector {
		s, err := metav1.ParseToLabelSelector(labels)
		require.NoError(t, err)
		for _, key := range keys {
			s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpExists})
		}
		return s
	}
	for name, tc := range map[string]struct {
		reason                   string
		due, wrote, stored, want *metav1.LabelSelector
	}{
		"Same":     {"We should change nothing.", in("", "a"), in("", "a"), in("", "a"), in("", "a")},
		"Added":    {"We should keep what others added, in their order.", in("", "a"), in("", "a"), in("", "x", "a"), in("", "x", "a")},
		"Replaced": {"We should take our own away.", in("", "b"), in("", "a"), in("", "a", "x"), in("", "x", "b")},
		"Removed":  {"We should put back our own.", in("", "a", "b"), in("", "a", "b"), in("", "b", "x"), in("", "b", "x", "a")},
		"Labels":   {"We should do the same for labels.", in("b=1"), in("a=1"), in("a=1,x=1"), in("b=1,x=1")},
		"Value":    {"We should put back the value of our label.", in("a=1"), in("a=1"), in("a=2"), in("a=1")},
		"None":     {"We should take none for none.", nil, nil, &metav1.LabelSelector{}, nil},
		"Emptied":  {"We should put back what is gone.", in("", "a"), in("", "a"), &metav1.LabelSelector{}, in("", "a")},
	} {
		t.Run(name, func(t *testing.T) {
			got := keepTerms(tc.due, tc.wrote, tc.stored)
			assert.Equal(t, metav1.FormatLabelSelector(tc.want), metav1.FormatLabelSelector(got), tc.reason)
		})
	}
}
