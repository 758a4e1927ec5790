package webhookconfig

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/controller/registry"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
)

// policyServer is an API server that stores policies, and counts its calls.
type policyServer struct {
	*controllertest.Cached
	stored   map[string]map[string]client.Object // policies and bindings, by kind and name
	created  time.Time                           // of all CRDs
	listErr  error
	writeErr error
	fails    func(name string) error // of each creation, if set
	lists    int
	version  int
	did      []string
}

func (s *policyServer) Get(ctx context.Context, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if crd, ok := o.(*metav1.PartialObjectMetadata); ok && !s.created.IsZero() {
		crd.CreationTimestamp = metav1.NewTime(s.created)
		return nil
	}
	return s.Cached.Get(ctx, k, o, opts...)
}

// typeOf an object, or of those in a list.
func typeOf(o runtime.Object) string {
	return strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%T", o), "*v1."), "List")
}

func (s *policyServer) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	kind := typeOf(l)
	if s.stored[kind] == nil {
		return s.Cached.List(ctx, l, opts...)
	}
	if kind == "MutatingAdmissionPolicy" {
		s.lists++
	}
	if s.listErr != nil {
		return s.listErr
	}
	var all []runtime.Object
	for _, o := range s.stored[kind] {
		all = append(all, o)
	}
	return meta.SetList(l, all)
}

// Create stores a policy, which must be new, at the first version.
func (s *policyServer) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	if s.writeErr != nil {
		return s.writeErr
	}
	if s.fails != nil {
		if err := s.fails(o.GetName()); err != nil {
			return err
		}
	}
	if s.stored[typeOf(o)][o.GetName()] != nil {
		return apierrors.NewAlreadyExists(schema.GroupResource{}, o.GetName())
	}
	s.store(o)
	return nil
}

func (s *policyServer) store(o client.Object) {
	s.did = append(s.did, "write "+typeOf(o))
	s.version++
	o.SetResourceVersion(strconv.Itoa(s.version))
	s.stored[typeOf(o)][o.GetName()] = o
}

// Patch stores what the patch makes of what the writer has read, which must be what is stored.
func (s *policyServer) Patch(_ context.Context, o client.Object, p client.Patch, _ ...client.PatchOption) error {
	stored := s.stored[typeOf(o)][o.GetName()]
	data, err := p.Data(o)
	switch {
	case s.writeErr != nil:
		return s.writeErr
	case err != nil:
		return err
	case stored == nil:
		return apierrors.NewNotFound(schema.GroupResource{}, o.GetName())
	case !strings.Contains(string(data), fmt.Sprintf(`"resourceVersion":%q`, stored.GetResourceVersion())):
		return apierrors.NewConflict(schema.GroupResource{}, o.GetName(), errors.New("changed"))
	}
	s.store(o.DeepCopyObject().(client.Object))
	return nil
}

func (s *policyServer) Delete(_ context.Context, o client.Object, options ...client.DeleteOption) error {
	var given client.DeleteOptions
	given.ApplyOptions(options)
	if *given.Preconditions.ResourceVersion != s.stored[typeOf(o)][o.GetName()].GetResourceVersion() {
		return apierrors.NewConflict(schema.GroupResource{}, o.GetName(), errors.New("changed"))
	}
	s.did = append(s.did, "delete "+typeOf(o))
	delete(s.stored[typeOf(o)], o.GetName())
	return nil
}

// defaultPolicy is the policy of the claim kind with its binding, which must be there.
func (s *policyServer) defaultPolicy() (*admissionregistrationv1.MutatingAdmissionPolicy, *admissionregistrationv1.MutatingAdmissionPolicyBinding) {
	return s.stored["MutatingAdmissionPolicy"][policyName].(*admissionregistrationv1.MutatingAdmissionPolicy),
		s.stored["MutatingAdmissionPolicyBinding"][policyName].(*admissionregistrationv1.MutatingAdmissionPolicyBinding)
}

// policyWorld has the claim kind claims.example.org with the defaulting Policy, and its entry.
type policyWorld struct {
	*policyServer
	writer    *Policies
	inventory *selector.Inventory
	kind      *inventory.ClassKind
	notified  []string
}

const policyName = "claims.example.org" + v1beta1.PolicySuffix

func newPolicyWorld(t *testing.T) *policyWorld {
	t.Helper()
	k := claimKind("claims.example.org", func(k *v1beta1.ClaimKind) {
		k.Spec.Admission.Defaulting = v1beta1.DefaultingPolicy
	})
	s := &policyServer{
		Cached: &controllertest.Cached{
			ClaimKinds: []v1beta1.ClaimKind{k}, ClassKinds: []v1beta1.ClassKind{classKind("golds.example.org", "", k.Name)},
			Configuration: configurationWith(v1beta1.LastConfiguration),
		},
		stored: map[string]map[string]client.Object{
			"MutatingAdmissionPolicy": {}, "MutatingAdmissionPolicyBinding": {}, "ValidatingAdmissionPolicy": {}, "ValidatingAdmissionPolicyBinding": {},
		},
	}
	s.Configuration.Webhooks = []admissionregistrationv1.MutatingWebhook{{
		Name:              k.Name + v1beta1.BindSuffix,
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}},
		MatchPolicy:       new(admissionregistrationv1.Equivalent),
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{"example.org"}, APIVersions: []string{"v1"}, Resources: []string{"claims"}},
		}},
	}}
	registration := newConfigurator(t, s.Cached, nil).Registration
	world := &policyWorld{policyServer: s, inventory: registration.Inventory, kind: controllertest.NewClassKind("golds.example.org", "Gold")}
	world.inventory.SetClasses(controllertest.NewClasses(world.kind, map[string][]string{"gold": {"default", "true"}, "other": nil}))
	world.writer = &Policies{Kind: DefaultPolicies, Registration: registration, Client: s, Live: s}
	world.writer.OnChange(t.Context(), func(claimKind string) { world.notified = append(world.notified, claimKind) })
	return world
}

func (p *policyWorld) round(t *testing.T) {
	t.Helper()
	p.roundOf(t, false)
}

// roundOf is one after which there may be more to do in a moment, if it is incomplete.
func (p *policyWorld) roundOf(t *testing.T, isIncomplete bool) {
	t.Helper()
	p.did = nil
	result, err := p.writer.reconcile(t.Context())
	require.NoError(t, err)
	again := policyCheckEvery // We should wait for changes.
	if isIncomplete {
		again = registry.RetryCRDAfter
	}
	require.Equal(t, again, result.RequeueAfter)
}

// missClasses has a class kind that is not known.
func (p *policyWorld) missClasses() {
	p.inventory.SetMissing("silvers.example.org", []string{"claims.example.org"}, "it is down")
}

// checkNow makes the next round compare the policies with those that are stored.
func (p *policyWorld) checkNow() { p.writer.compared.at = time.Now().Add(-policyCheckEvery) }

func (p *policyWorld) outcome(t *testing.T) PolicyOutcome {
	t.Helper()
	o, known := p.writer.Outcome("claims.example.org")
	require.True(t, known)
	return o
}

func (p *policyWorld) reason(t *testing.T) string {
	t.Helper()
	o := p.outcome(t)
	require.NotNil(t, o.Fault)
	return o.Fault.Reason
}

var (
	writesBoth  = []string{"write MutatingAdmissionPolicy", "write MutatingAdmissionPolicyBinding"}
	removesBoth = []string{"delete MutatingAdmissionPolicyBinding", "delete MutatingAdmissionPolicy"}
)

func TestPolicies(t *testing.T) {
	p := newPolicyWorld(t)
	p.round(t)
	assert.Equal(t, writesBoth, p.did, "We should write the policy before its binding.")
	assert.Equal(t, PolicyOutcome{Class: "Gold/gold"}, p.outcome(t))
	assert.Equal(t, []string{"claims.example.org"}, p.notified)
	policy, binding := p.defaultPolicy()
	assert.Equal(t, &admissionregistrationv1.ParamKind{APIVersion: "example.org/v1", Kind: "Gold"}, policy.Spec.ParamKind)
	assert.Equal(t, admissionregistrationv1.Ignore, *policy.Spec.FailurePolicy, "We should be asked where the policy fails.")
	constraints := policy.Spec.MatchConstraints
	assert.Equal(t, map[string]string{"team": "a"}, constraints.NamespaceSelector.MatchLabels, "We should bind in the namespaces of the entry.")
	require.Len(t, constraints.ResourceRules, 1)
	assert.Equal(t, []admissionregistrationv1.OperationType{admissionregistrationv1.Create}, constraints.ResourceRules[0].Operations, "We should bind no update.")
	require.Len(t, policy.OwnerReferences, 1)
	assert.EqualValues(t, "c0ffee", policy.OwnerReferences[0].UID, "We should have them go with the configuration.")
	assert.Equal(t, "gold", binding.Spec.ParamRef.Name)
	assert.Equal(t, admissionregistrationv1.AllowAction, *binding.Spec.ParamRef.ParameterNotFoundAction)

	p.round(t)
	assert.Empty(t, p.did)
	assert.Equal(t, 1, p.lists, "We should not even ask where nothing changed.")
	assert.Len(t, p.notified, 1)

	p.inventory.SetClasses(controllertest.NewClasses(p.kind, map[string][]string{"gold": nil, "other": {"default", "true"}}))
	p.round(t)
	assert.Equal(t, []string{"write MutatingAdmissionPolicyBinding"}, p.did, "We should move the binding alone.")
	_, binding = p.defaultPolicy()
	assert.Equal(t, "other", binding.Spec.ParamRef.Name)
	assert.Len(t, p.notified, 2)

	silver := controllertest.NewClassKind("silvers.example.org", "Silver")
	p.inventory.SetClasses(controllertest.NewClasses(p.kind, nil))
	p.inventory.SetClasses(controllertest.NewClasses(silver, map[string][]string{"other": {"default", "true"}}))
	p.round(t)
	assert.Equal(t, writesBoth, p.did, "We should write both for a class of another kind.")
	policy, binding = p.defaultPolicy()
	assert.Equal(t, "Silver", policy.Spec.ParamKind.Kind)

	policy.Spec.MatchConditions = nil
	binding.Spec.ParamRef.Name = "mine"
	p.checkNow()
	p.round(t)
	assert.Equal(t, writesBoth, p.did, "We should mend what somebody changed.")

	policies := p.stored["MutatingAdmissionPolicy"]
	for _, name := range []string{"mine" + v1beta1.PolicySuffix, "else"} {
		policies[name] = &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	p.inventory.SetClasses(controllertest.NewClasses(silver, map[string][]string{"other": {"default", "true", v1beta1.CordonedAnnotation, "true"}}))
	p.round(t)
	assert.Equal(t, append(removesBoth, "delete MutatingAdmissionPolicy"), p.did, "We should remove the binding first, and what nobody registers any more.")
	assert.Len(t, policies, 1, "We should leave alone what has another name.")
	assert.Equal(t, v1beta1.ReasonDefaultCordoned, p.reason(t))

	p.ClaimKinds = nil
	p.round(t)
	p.writer.compared.at = time.Now().Add(-time.Hour)
	lists := p.lists
	p.round(t)
	assert.Equal(t, lists, p.lists, "We should not ask again where nobody wants a policy.")
}

// TestPoliciesAfterChanges has something change once there is a policy: of a default, which must be right, and of use, which must not go
// while somebody asks for it.
func TestPoliciesAfterChanges(t *testing.T) {
	const unknown, noFault = "", "none"
	recompile := func(p *policyWorld) { p.inventory.SetClaimKind(selector.NewClaimKind(&p.ClaimKinds[0])) }
	noLongerAsk := func(p *policyWorld) {
		p.ClaimKinds[0].Spec.Admission.Defaulting, p.ClaimKinds[0].Spec.Classes.Use = "", nil
	}
	for name, tc := range map[string]struct {
		reason     string
		change     func(*policyWorld)
		stays      bool // whether that of a default does, and that of use
		useStays   bool
		incomplete bool
		ofDefault  string // the outcome
		ofUse      string
	}{
		"NotAskedFor": {reason: "We should remove what nobody asks for.", change: noLongerAsk},
		"Deleted":     {reason: "We should remove what is registered no more.", change: func(p *policyWorld) { p.ClaimKinds = nil }},
		"NotAskedForAfterKept": {reason: "We should remove what we kept once nobody asks for it.", change: func(p *policyWorld) {
			p.missClasses()
			p.round(t)
			noLongerAsk(p)
		}},
		"Missing": {
			reason:   "We should keep what there is, and the condition of the last leader, while a class kind is not known.",
			change:   (*policyWorld).missClasses,
			stays:    true,
			useStays: true,
		},
		"Changed": {
			reason: "We should not go by the paths of before until the inventory has heard of the change.",
			change: func(p *policyWorld) { p.ClaimKinds[0].Generation++ }, useStays: true, incomplete: true,
		},
		"ChangedAndMissing": {reason: "We should not go by the paths of before while a class kind is missing.", useStays: true, change: func(p *policyWorld) {
			p.ClaimKinds[0].Generation++
			recompile(p)
			p.missClasses()
		}},
		"ClassKindChanged": {reason: "We should not go by the mark of before while the class kind is at fault.", useStays: true, change: func(p *policyWorld) {
			p.ClassKinds[0].Generation++
			p.inventory.Withhold("golds.example.org", []string{"claims.example.org"}, "it is at fault")
		}},
		"Withdrawn": {reason: "We should not give a class whose kind does not serve the claims any more.", useStays: true, change: func(p *policyWorld) {
			p.ClassKinds = nil
			p.missClasses()
		}},
		"NotDue": {
			reason:    "We should remove what we kept once we know that it is not due.",
			useStays:  true,
			ofDefault: v1beta1.ReasonNeedsWebhook,
			ofUse:     noFault,
			change: func(p *policyWorld) {
				p.missClasses()
				p.round(t)
				p.ClaimKinds[0].Spec.Selector.WhenAbsent = v1beta1.NoSelectorAny
				recompile(p)
				p.inventory.ClearMissing("silvers.example.org")
			},
		},
		"MissingAndFaulty": {
			reason:    "We should keep it where there is another fault beside.",
			useStays:  true,
			ofDefault: v1beta1.ReasonInvalidExpression,
			ofUse:     v1beta1.ReasonClassKindMissing,
			change: func(p *policyWorld) {
				p.ClaimKinds[0].Spec.Classes.Fits = []v1beta1.Fit{{Name: "Bad", Expression: "nonsense("}}
				recompile(p)
				p.missClasses()
			},
		},
		"UnknownValue": {
			reason:    "We should keep it where another release knows more.",
			useStays:  true,
			ofDefault: v1beta1.ReasonUnknownValue,
			ofUse:     v1beta1.ReasonUnknownValue,
			change: func(p *policyWorld) {
				p.ClaimKinds[0].Spec.Classes.Use = &v1beta1.Use{Subject: "Another"}
				recompile(p)
			},
		},
		"Conflict": {
			reason:    "We should leave the claims to the first kind, also while we do not know all classes.",
			useStays:  true,
			ofDefault: v1beta1.ReasonConflict,
			ofUse:     v1beta1.ReasonConflict,
			change: func(p *policyWorld) {
				first := p.ClaimKinds[0].DeepCopy()
				first.Name, first.Spec.Claims.Resource, first.Spec.Classes.Use, first.Spec.Admission.Defaulting = "a.example.org", "claims.example.org", nil, ""
				p.ClaimKinds = append(p.ClaimKinds, *first)
				p.missClasses()
			},
		},
		"NoEntry": {
			reason: "We should need an entry, for what the policy leaves to us.", change: func(p *policyWorld) { p.Configuration.Webhooks = nil },
			useStays: true, incomplete: true, ofDefault: v1beta1.ReasonNotConfigured, ofUse: v1beta1.ReasonNotConfigured,
		},
		"EveryVersion": {
			reason: "We should need to know the version.", change: func(p *policyWorld) { p.Configuration.Webhooks[0].Rules[0].APIVersions = []string{anyVersion} },
			useStays: true, incomplete: true, ofDefault: v1beta1.ReasonNotConfigured, ofUse: v1beta1.ReasonNotConfigured,
		},
		"OtherVersion": {
			reason: "We should wait for the entry of the version for which the paths are written.", change: func(p *policyWorld) {
				p.ClaimKinds[0].Spec.Claims.Version = "v2"
				recompile(p)
			},
			useStays: true, incomplete: true, ofDefault: v1beta1.ReasonNotConfigured, ofUse: v1beta1.ReasonNotConfigured,
		},
		"NewCRD": {
			reason: "We should not have claims refused whose schema the API server does not know yet.", change: func(p *policyWorld) { p.created = time.Now() },
			useStays: true, incomplete: true, ofDefault: v1beta1.ReasonNotConfigured, ofUse: noFault,
		},
	} {
		for _, of := range []struct {
			name            string
			world           func(*testing.T) *policyWorld
			writes, removes []string
			stays           bool
			outcome         string
		}{
			{"OfDefault", newPolicyWorld, writesBoth, removesBoth, tc.stays, tc.ofDefault},
			{"OfUse", newUseWorld, writesUse, removesUse, tc.useStays, tc.ofUse},
		} {
			t.Run(name+of.name, func(t *testing.T) {
				p := of.world(t)
				p.round(t)
				require.Equal(t, of.writes, p.did)
				tc.change(p)
				p.roundOf(t, tc.incomplete && of.outcome != noFault)
				if of.stays {
					assert.Empty(t, p.did, tc.reason)
				} else {
					assert.Equal(t, of.removes, p.did, tc.reason)
				}
				o, known := p.writer.Outcome("claims.example.org")
				outcome := unknown
				switch {
				case known && o.Fault == nil:
					outcome = noFault
				case known:
					outcome = o.Fault.Reason
				}
				assert.Equal(t, of.outcome, outcome, tc.reason)
			})
		}
	}
}

// TestOneBadPolicy has the first of three policies fail.
func TestOneBadPolicy(t *testing.T) {
	for name, fail := range map[string]func() error{
		"Panic":   func() error { panic("a bug") },
		"Refused": func() error { return apierrors.NewInternalError(errors.New("a webhook is down")) },
	} {
		t.Run(name, func(t *testing.T) {
			p := newPolicyWorld(t)
			due, err := p.writer.due(t.Context())
			require.NoError(t, err)
			one := due.policies["claims.example.org"]
			for _, claimKind := range []string{"bad.example.org", "others.example.org"} {
				policy, binding := one.policy.DeepCopyObject().(client.Object), one.binding.DeepCopyObject().(client.Object)
				policy.SetName(claimKind)
				binding.SetName(claimKind)
				due.policies[claimKind] = duePolicy{policy, binding}
			}
			p.fails = func(name string) error {
				if name == "bad.example.org" {
					return fail()
				}
				return nil
			}
			_, err = p.writer.write(t.Context(), due, nil)
			require.Error(t, err, "We should try it again.")
			assert.Len(t, p.stored["MutatingAdmissionPolicyBinding"], 2, "We should write the others.")
		})
	}
}

// TestOneBadClaimKind has a panic where it learns which policy is due.
func TestOneBadClaimKind(t *testing.T) {
	p := newPolicyWorld(t)
	other := p.ClaimKinds[0]
	other.Name = "bad.example.org"
	p.ClaimKinds = append([]v1beta1.ClaimKind{other}, p.ClaimKinds...)
	p.inventory.SetClaimKind(selector.NewClaimKind(&other))
	p.writer.Kind.due = func(
		w *Policies, ctx context.Context, k *v1beta1.ClaimKind, s selector.Snapshot, all Configurations,
	) (*duePolicy, PolicyOutcome, error) {
		if k.Name == other.Name {
			panic("a bug")
		}
		return DefaultPolicies.due(w, ctx, k, s, all)
	}
	due, err := p.writer.due(t.Context())
	require.NoError(t, err)
	assert.Contains(t, due.policies, "claims.example.org", "We should write the others.")
	assert.Contains(t, due.kept, other.Name, "We should leave what it has.")
	assert.True(t, due.soon, "We should try it again.")
}

func TestPoliciesFail(t *testing.T) {
	resource := schema.GroupResource{Group: "admissionregistration.k8s.io", Resource: "mutatingadmissionpolicies"}
	for name, tc := range map[string]struct {
		reason      string
		list, apply error
		want        string // the reason
		wantErr     bool
	}{
		"NotServed": {
			reason: "We should do without where the API server is first.",
			list:   &meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: "MutatingAdmissionPolicy"}}, want: v1beta1.ReasonPolicyNotServed,
		},
		"NotServedAnyMore": {reason: "We should do without.", list: apierrors.NewNotFound(resource, ""), want: v1beta1.ReasonPolicyNotServed},
		"NotListed": {
			reason: "We should say which right is missing.",
			list:   apierrors.NewForbidden(resource, "", errors.New("no")),
			want:   v1beta1.ReasonNotPermitted,
		},
		"NotWritten": {
			reason: "We should say which right is missing.",
			apply:  apierrors.NewForbidden(resource, policyName, errors.New("must have get")),
			want:   v1beta1.ReasonNotPermitted,
		},
		"ClassNotReadable": {
			reason: "We should say which right is missing, as the API server does not refuse it with 403.",
			apply: apierrors.NewInvalid(schema.GroupKind{}, policyName, field.ErrorList{
				field.Forbidden(field.NewPath("spec", "paramKind"), `user must have "get" permission on all objects`),
			}),
			want: v1beta1.ReasonNotPermitted,
		},
		"Invalid": {
			reason: "We should say what the API server does not take.",
			apply:  apierrors.NewInvalid(schema.GroupKind{}, policyName, nil),
			want:   v1beta1.ReasonPolicyRefused,
		},
		"Down": {reason: "We should try again.", list: apierrors.NewInternalError(errors.New("down")), wantErr: true},
		"Busy": {reason: "We should try again.", apply: &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusTooManyRequests}}, wantErr: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPolicyWorld(t)
			p.listErr, p.writeErr = tc.list, tc.apply
			if tc.wantErr {
				_, err := p.writer.reconcile(t.Context())
				require.Error(t, err, tc.reason)
			} else {
				p.round(t)
				assert.Equal(t, tc.want, p.reason(t), tc.reason)
			}
			lists := p.lists
			if !tc.wantErr {
				p.round(t)
				assert.Equal(t, lists, p.lists, "We should not try again whenever a class changes.")
				assert.Equal(t, tc.want, p.reason(t), "We should remember why not.")
				if name == "NotListed" {
					assert.Contains(t, p.outcome(t).Fault.Text, "kubectl apply -k deploy/components/policies", "We should name what to install.")
				}
				p.checkNow()
			}
			p.listErr, p.writeErr = nil, nil
			p.round(t)
			assert.Equal(t, writesBoth, p.did, "We should write it once we can.")
			assert.Equal(t, "Gold/gold", p.outcome(t).Class)
		})
	}
}
