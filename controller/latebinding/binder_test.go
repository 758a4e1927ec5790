package latebinding

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/controller/registry"
)

// TestLateBinding has claims wait for a class in every way, and then adds the class.
func TestLateBinding(t *testing.T) {
	s := newClaimServer(t)
	s.set(t, "team-a/waits", wantsGold)
	s.set(t, "team-a/no-opinion", `{}`)
	s.set(t, "team-a/silver", `{"classSelector":{"matchLabels":{"tier":"silver"}}}`)
	s.set(t, "team-a/explicit", `{"classRef":{"apiVersion":"example.org/v1","kind":"Gold","name":"mine"}}`)
	s.set(t, "team-a/static", `{"resourceRef":{"name":"db"},"classSelector":{"matchLabels":{"tier":"gold"}}}`)
	s.set(t, "team-a/null", `{"classRef":null,"classSelector":{"matchLabels":{"tier":"gold"}}}`)
	s.set(t, "team-a/malformed", `{"classSelector":{"matchExpressions":[{"key":"tier","operator":"Foo"}]}}`)
	s.set(t, "team-a/ends", wantsGold, func(u *unstructured.Unstructured) { u.SetDeletionTimestamp(&metav1.Time{Time: time.Unix(1, 0)}) })
	s.set(t, "kube-system/ours-not", wantsGold)
	s.set(t, "classbind-system/nor-ours", wantsGold)
	s.set(t, "other/not-selected", wantsGold)
	k := lateClaimKind(func(k *v1beta1.ClaimKind) {
		k.Spec.Claims.NamespaceSelector = v1beta1.LabelSelector{MatchLabels: map[string]v1beta1.LabelValue{"team": "a"}}
	})
	r := newLateReplica(t, s, k, func(b *Binder) { b.Namespaces = namespaces{"team-a": {"team": "a"}, "other": {"team": "b"}} })
	r.lead(t)
	r.awaitCounts(t, ClaimCounts{Bound: 1, Waiting: 5})

	golds := []string{"gold-1 tier=gold", "gold-2 tier=gold", "gold-3 tier=gold"}
	r.registration.Inventory.SetClasses(labelled(r.golds, golds...))
	r.awaitCounts(t, ClaimCounts{Bound: 3, Waiting: 3})
	view := r.registration.Inventory.Snapshot()[lateKind]
	drawn := func(name string) string {
		claim := view.Kind.Reader.Read("team-a", name, map[string]any{
			"spec": map[string]any{"classSelector": map[string]any{"matchLabels": map[string]any{"tier": "gold"}}},
		})
		require.Empty(t, claim.Problems)
		return previewed(t, view, claim.Claim).Class.Name
	}
	assert.Equal(t, map[string]string{
		"team-a/waits": drawn("waits"), "team-a/null": drawn("null"), "team-a/explicit": "mine",
		"team-a/no-opinion": "", "team-a/silver": "", "team-a/static": "", "team-a/malformed": "", "team-a/ends": "",
		"kube-system/ours-not": "", "classbind-system/nor-ours": "", "other/not-selected": "",
	}, s.classes(), "We should bind the claims that are ours to bind and have a class, to the one that they would have got at admission.")

	r.registration.Inventory.SetClasses(controllertest.NewClasses(r.golds, map[string][]string{"main": {"default", "true"}}))
	r.awaitCounts(t, ClaimCounts{Bound: 4, Waiting: 2})
	assert.Equal(t, "main", s.classes()["team-a/no-opinion"], "We should bind a claim without an opinion when there is a default class.")

	s.set(t, "team-a/late", wantsGold)
	s.set(t, "team-a/silver", wantsGold)
	r.awaitCounts(t, ClaimCounts{Bound: 4, Waiting: 3})
	r.registration.Inventory.SetClasses(labelled(r.golds, golds...))
	r.awaitCounts(t, ClaimCounts{Bound: 6, Waiting: 1})
	s.set(t, "team-a/later", wantsGold)
	r.awaitCounts(t, ClaimCounts{Bound: 7, Waiting: 1})
	s.remove("team-a/later")
	s.remove("team-a/malformed")
	r.awaitCounts(t, ClaimCounts{Bound: 6})

	for claim, n := range s.patches {
		assert.Equal(t, 1, n, "We should write %s once.", claim)
	}
	eventually(t, "We should say to which class each claim was bound.", func(c *assert.CollectT) {
		notes := s.notes(v1beta1.EventBoundToClass)
		assert.Len(c, notes, 6)
		assert.Equal(c, "bound to Gold/"+drawn("waits")+", of 3 candidates", notes["team-a/waits"])
	})
}

// TestLateBindingOfWhatHasChanged writes claims that have changed since they were seen.
func TestLateBindingOfWhatHasChanged(t *testing.T) {
	s := newClaimServer(t)
	for i := range 4 {
		s.set(t, fmt.Sprintf("team-a/claim-%d", i), wantsGold)
	}
	r := newLateReplica(t, s, lateClaimKind())
	r.awaitCounts(t, ClaimCounts{Waiting: 4})
	s.mu.Lock()
	s.deaf = true
	s.mu.Unlock()
	s.set(t, "team-a/claim-0", `{"classRef":{"name":"mine"}}`)
	s.set(t, "team-a/claim-1", `{"classSelector":{"matchLabels":{"tier":"silver"}}}`)
	s.set(t, "team-a/claim-2", `{"note":"changed","classSelector":{"matchLabels":{"tier":"gold"}}}`)
	s.mu.Lock() // Deleted and created again under the same name.
	s.claims["team-a/claim-3"] = nil
	s.mu.Unlock()
	s.set(t, "team-a/claim-3", `{"resourceRef":{"name":"db"}}`)
	r.registration.Inventory.SetClasses(labelled(r.golds, "gold tier=gold"))
	r.lead(t)
	eventually(t, "We should try to write what we have seen.", func(c *assert.CollectT) {
		assert.GreaterOrEqual(c, s.tried(), 4)
	})
	assert.Equal(t, map[string]string{"team-a/claim-0": "mine", "team-a/claim-1": "", "team-a/claim-2": "", "team-a/claim-3": ""}, s.classes(),
		"We should write no claim that is not any more what we have seen.")
	s.catchUp()
	eventually(t, "We should look again at what has changed.", func(c *assert.CollectT) {
		assert.Equal(c, map[string]string{"team-a/claim-0": "mine", "team-a/claim-1": "", "team-a/claim-2": "gold", "team-a/claim-3": ""}, s.classes())
	})
	assert.Equal(t, map[string]int{"team-a/claim-2": 1}, s.patches, "We should write only that one, once.")
}

// TestLeaderDies ends a term half way, and another replica goes on.
func TestLeaderDies(t *testing.T) {
	s := newClaimServer(t)
	const claims = 300
	for i := range claims {
		s.set(t, fmt.Sprintf("team-a/claim-%d", i), wantsGold)
	}
	s.delay = time.Millisecond
	first, second := newLateReplica(t, s, lateClaimKind(), func(b *Binder) { b.Rate = 100 }), newLateReplica(t, s, lateClaimKind())
	second.awaitCounts(t, ClaimCounts{Waiting: claims})
	for _, r := range []*lateReplica{first, second} {
		r.registration.Inventory.SetClasses(labelled(r.golds, "gold-1 tier=gold", "gold-2 tier=gold"))
	}
	end := first.lead(t)
	eventually(t, "We should begin.", func(c *assert.CollectT) { assert.Greater(c, s.bound(), 100) })
	// A leader that does not know that its term is over goes on for a moment beside the next.
	second.lead(t)
	end()
	second.awaitCounts(t, ClaimCounts{Bound: claims})
	assert.Equal(t, claims, s.bound(), "We should bind all claims in the end.")
	for claim, n := range s.patches {
		assert.Equal(t, 1, n, "We should write %s once.", claim)
	}
}

// TestNamespacesUnreadable has a cache of namespaces that fills late.
func TestNamespacesUnreadable(t *testing.T) {
	s := newClaimServer(t)
	known := namespaces{}
	for i := range 10 {
		s.set(t, fmt.Sprintf("team-%d/waits", i), wantsGold)
		known[fmt.Sprintf("team-%d", i)] = map[string]string{"team": strconv.Itoa(i % 2)}
	}
	k := lateClaimKind(func(k *v1beta1.ClaimKind) {
		k.Spec.Claims.NamespaceSelector = v1beta1.LabelSelector{MatchLabels: map[string]v1beta1.LabelValue{"team": "0"}}
		k.Spec.Choice.Strategy = v1beta1.LeastClaims
	})
	cache := lateCache{known, &atomic.Int64{}, &atomic.Int64{}}
	r := newLateReplica(t, s, k, func(b *Binder) { b.Namespaces = cache })
	r.registration.Inventory.SetClasses(labelled(r.golds, "gold tier=gold"))
	r.awaitCounts(t, ClaimCounts{Waiting: 10})
	r.lead(t)
	eventually(t, "We should say what we cannot read.", func(c *assert.CollectT) {
		require.ErrorContains(c, r.claims.LateProblem(lateKind), "cannot read the labels of namespaces: ")
		n, _ := r.claims.CountsOf(lateKind)
		assert.Equal(c, 10, n.Waiting, "We should not take what we cannot read for what is not selected.")
		assert.NoError(c, r.claims.Problem(lateKind), "We should count the claims all the same.")
	})
	assert.Less(t, cache.reads.Load(), int64(5), "We should wait for one read alone in each round.")
	cache.filled.Store(1)
	r.awaitCounts(t, ClaimCounts{Bound: 5})
	assert.NoError(t, r.claims.LateProblem(lateKind), "We should say that all is well.")
}

// TestFaultIsOver checks that a fault of writing ends with the claim that had it, though none was written.
func TestFaultIsOver(t *testing.T) {
	for name, breaks := range map[string]func(*claimServer){
		"Refused": func(s *claimServer) { s.refuse("patch", http.StatusForbidden) },
		"ReferenceRemoved": func(s *claimServer) {
			s.prune("team-a", true)
			s.set(t, "team-b/waits", `{"classSelector":{"matchLabels":{"tier":"none"}}}`) // It goes on waiting.
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newClaimServer(t)
			s.set(t, "team-a/waits", wantsGold)
			breaks(s)
			others := len(s.claims) - 1
			r := newLateReplica(t, s, lateClaimKind())
			r.registration.Inventory.SetClasses(labelled(r.golds, "gold tier=gold"))
			r.lead(t)
			eventually(t, "We should say what is the matter.", func(c *assert.CollectT) { assert.Error(c, r.claims.LateProblem(lateKind)) })
			s.remove("team-a/waits")
			r.awaitCounts(t, ClaimCounts{Waiting: others})
			assert.NoError(t, r.claims.LateProblem(lateKind), "We should not go on about a claim that has gone.")
		})
	}
}

func TestTermsOverlap(t *testing.T) {
	s := newClaimServer(t)
	r := newLateReplica(t, s, lateClaimKind())
	first, next := r.binder, &Binder{
		Claims:     r.claims,
		Events:     r.binder.Events,
		Namespaces: namespaces{},
		Rate:       1,
		Decider:    r.binder.Decider,
		interval:   time.Millisecond,
	}
	w := r.claims.watches()[lateKind]
	serves := func(b *Binder, reason string) {
		eventually(t, reason, func(c *assert.CollectT) {
			w.own(func(s *claimState) {
				assert.True(c, s.binder == b) //nolint:testifylint // Same would print a binder that runs.
			})
		})
	}
	old := r.lead(t)
	serves(first, "We should lead.")
	r.binder = next
	end := r.lead(t)
	serves(next, "We should begin the next term.")
	old()
	serves(next, "We should not end the next term with the last.")
	end()
	serves(nil, "We should end with the last term.")
}

// TestLateBindingRefused has the right to list the claims, but not to write them.
func TestLateBindingRefused(t *testing.T) {
	s := newClaimServer(t)
	for i := range 50 {
		s.set(t, fmt.Sprintf("team-a/claim-%d", i), wantsGold)
	}
	s.refuse("patch", http.StatusForbidden)
	r := newLateReplica(t, s, lateClaimKind())
	r.registration.Inventory.SetClasses(labelled(r.golds, "gold tier=gold"))
	r.lead(t)
	eventually(t, "We should say that we may not, and name no claim.", func(c *assert.CollectT) {
		why := r.claims.LateProblem(lateKind)
		assert.True(c, apierrors.IsForbidden(why))
		assert.EqualError(c, why, "claims.example.org is forbidden: the API server does not let classbind patch any")
	})
	assert.Never(
		t, func() bool { return s.tried() > lateWorkers }, lateRound, lateRound/10,
		"We should not try one claim after the other where none may be written.",
	)

	s.refuse("patch", 0)
	w := r.claims.watches()[lateKind]
	_, _, paused := w.waits(waitingItem{})
	assert.Positive(t, paused, "We should try again after a while.")
	w.own(func(s *claimState) {
		s.paused, s.binder = time.Time{}, nil // It is over, as is the term.
	})
	r.awaitCounts(t, ClaimCounts{Bound: 50})
	assert.NoError(t, r.claims.LateProblem(lateKind), "We should say that all is well.")
}

// TestLateBindingDenied has another webhook deny a few claims, with any code, and then none.
func TestLateBindingDenied(t *testing.T) {
	s := newClaimServer(t)
	codes := []int{http.StatusForbidden, http.StatusNotFound, http.StatusUnprocessableEntity, http.StatusBadRequest}
	for i, code := range codes {
		team := fmt.Sprintf("team-%d", i)
		s.refuse("patch "+team, code)
		for j := range 10 {
			s.set(t, fmt.Sprintf("%s/claim-%d", team, j), `{"classSelector":{}}`)
			s.set(t, fmt.Sprintf("team-a/claim-%d-%d", i, j), `{"classSelector":{}}`)
		}
	}
	r := newLateReplica(t, s, lateClaimKind())
	r.registration.Inventory.SetClasses(labelled(r.golds, "gold"))
	r.lead(t)
	r.awaitCounts(t, ClaimCounts{Bound: 40, Waiting: 40})
	require.NoError(t, r.claims.LateProblem(lateKind), "We should go on with the others.")
	eventually(t, "We should have tried all.", func(c *assert.CollectT) { assert.GreaterOrEqual(c, s.tried(), 80) })
	for i := range codes {
		s.refuse(fmt.Sprintf("patch team-%d", i), 0)
	}
	r.awaitCounts(t, ClaimCounts{Bound: 80}) // Though none of the claims has changed.
}

// TestReferenceRefused has a rule that lets no claim of one team get its reference later. They have waited for a class, and said so.
func TestReferenceRefused(t *testing.T) {
	s := newClaimServer(t)
	for i := range 10 {
		s.set(t, fmt.Sprintf("team-a/claim-%d", i), wantsGold)
		s.set(t, fmt.Sprintf("team-b/claim-%d", i), wantsGold)
	}
	s.refuse("invalid team-b", http.StatusUnprocessableEntity)
	r := newLateReplica(t, s, lateClaimKind(), func(b *Binder) { b.retry = 10 * time.Millisecond })
	r.lead(t)
	r.awaitCounts(t, ClaimCounts{Waiting: 20})
	w := r.claims.watches()[lateKind]
	w.own(func(s *claimState) {
		s.waiting.each(func(c *waitingClaim) { c.notified = true })
	})
	r.registration.Inventory.SetClasses(labelled(r.golds, "gold tier=gold"))
	r.awaitCounts(t, ClaimCounts{Bound: 10, Waiting: 10})
	const why = `the API server refuses to add the reference to its class to a claim that waits (spec: Invalid value: "object": classRef cannot ` +
		`be added after creation): ` +
		"create the claim again, or correct the rule"
	eventually(t, "We should say why, to those who read the ClaimKind and to each author, and name no claim.", func(c *assert.CollectT) {
		require.EqualError(c, r.claims.LateProblem(lateKind), why)
		assert.Equal(c, v1beta1.ReasonReferenceRefused, registry.ReasonFor(r.claims.LateProblem(lateKind)))
		notes := s.notes(v1beta1.EventReferenceRefused)
		assert.Len(c, notes, 10)
		assert.Equal(c, "bound to no class: "+why, notes["team-b/claim-7"])
	})
	s.set(t, "team-a/late", wantsGold)
	r.awaitCounts(t, ClaimCounts{Bound: 11, Waiting: 10})
	require.Error(t, r.claims.LateProblem(lateKind), "We should not turn green because another claim was bound.")

	s.remove("team-b/claim-9")
	s.refuse("invalid team-b", 0)
	r.awaitCounts(t, ClaimCounts{Bound: 20})
	eventually(t, "We should say that all is well once the rule is gone.", func(c *assert.CollectT) {
		assert.NoError(c, r.claims.LateProblem(lateKind))
	})
	w.own(func(s *claimState) { assert.Zero(t, s.waiting.refused) })
}

// TestBackOff tries a claim that is refused each time.
func TestBackOff(t *testing.T) {
	limiter := newLateLimiter(lateRetry)
	var total time.Duration
	tries := 0
	for ; total < 2*time.Hour; tries++ {
		total += limiter.When(waitingItem{"team-a", "1"})
	}
	assert.Equal(t, 10*time.Minute, limiter.When(waitingItem{"team-a", "1"}), "We should try it every ten minutes in the end.")
	assert.Less(t, tries, 25, "We should not try it all the time.")
	assert.Equal(t, time.Second, limiter.When(waitingItem{"team-a", "2"}), "We should try others as if nothing had happened.")
}

func TestWhyNotWritten(t *testing.T) {
	denied := func(message string) error { // By a webhook, in kube-apiserver's words.
		status := apierrors.NewForbidden(schema.GroupResource{}, "", nil).ErrStatus
		status.Message = `admission webhook "other" denied the request: ` + message
		return apierrors.FromObject(&status)
	}
	claims, kind := schema.GroupResource{Group: "example.org", Resource: "claims"}, schema.GroupKind{Group: "example.org", Kind: "Claim"}
	for name, tc := range map[string]struct {
		reason                 string
		err                    error
		outdated, unauthorized bool
	}{
		"TestFails": {
			"We should know that the claim has changed.",
			apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", "testing value failed", 0, false),
			true, false,
		},
		"Gone": {"We should know that the claim has gone.", apierrors.NewNotFound(claims, "db"), true, false},
		"Invalid": {
			"We should try again what the schema refuses: it may change.",
			apierrors.NewInvalid(kind, "db", field.ErrorList{field.Required(field.NewPath("spec"), "")}), false, false,
		},
		"Conflict": {"We should try again where two writes met.", apierrors.NewConflict(claims, "db", errors.New("changed")), false, false},
		"Unauthorized": {
			"We should know that we may write no claim.",
			apierrors.NewForbidden(claims, "db", errors.New(`User "classbind" cannot patch resource "claims" in API group "example.org" in the namespace "team-a"`)),
			false, true,
		},
		"Denied": {
			"We should take a webhook's word for one claim alone.",
			apierrors.NewForbidden(claims, "db", errors.New(`admission webhook "other" denied the request`)), false, false,
		},
		"Denied403": {
			"We should know a webhook's word by whatever it quotes.",
			denied(`claims.example.org "db" is forbidden: User "classbind" cannot patch resource "claims" in API group "example.org"`), false,
			false,
		},
		"Quoted": {"We should know a policy's word by whatever it quotes.", apierrors.NewForbidden(claims, "db", errors.New(
			`ValidatingAdmissionPolicy 'other' denied request: "db" is forbidden: User "classbind" cannot patch resource "claims"`,
		)), false, false},
		"ClusterScope": {"We should know that we may write no claim.", apierrors.NewForbidden(claims, "db", errors.New(
			`User "system:serviceaccount:a:b" cannot patch resource "claims" in API group "example.org" at the cluster scope: no`,
		)), false, true},
		"Unreachable": {"We should try again where there is no answer.", errors.New("connection refused"), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			err := fmt.Errorf("cannot write: %w", tc.err)
			assert.Equal(t, [2]bool{tc.outdated, tc.unauthorized}, [2]bool{IsOutdated(err), IsUnauthorized(err)}, tc.reason)
		})
	}
}

// TestClaimsOnTheWayIn lists in pages if the API server streams no list, and retries if it refuses.
func TestClaimsOnTheWayIn(t *testing.T) {
	s := newClaimServer(t)
	const claims = 1200
	for i := range claims {
		s.set(t, fmt.Sprintf("team-a/claim-%d", i), wantsGold)
	}
	s.refuse("watchlist", http.StatusUnprocessableEntity)
	s.refuse("list", http.StatusForbidden)
	r := newLateReplica(t, s, lateClaimKind(func(k *v1beta1.ClaimKind) { k.Spec.Choice.Strategy = v1beta1.LeastClaims }))
	eventually(t, "We should say that we may not list the claims.", func(c *assert.CollectT) {
		_, known := r.claims.CountsOf(lateKind)
		assert.False(c, known)
		assert.True(c, apierrors.IsForbidden(r.claims.LateProblem(lateKind)))
		assert.True(c, apierrors.IsForbidden(r.claims.Problem(lateKind)))
	})
	require.NoError(t, r.claims.Ready(time.Now()), "We should not hold up a replica for what we are refused.")
	s.refuse("list", 0)
	r.awaitCounts(t, ClaimCounts{Waiting: claims})
	assert.Equal(t, claims/v1beta1.LateListPage, s.pages, "We should list by pages.")
	eventually(t, "We should say that all is well.", func(c *assert.CollectT) { assert.NoError(c, r.claims.LateProblem(lateKind)) })
}

func TestLateBindingRate(t *testing.T) {
	s := newClaimServer(t)
	const claims, rate = 500, 200
	for i := range claims {
		s.set(t, fmt.Sprintf("team-%d/claim-%d", i%10, i), wantsGold)
	}
	r := newLateReplica(t, s, lateClaimKind(), func(b *Binder) { b.Rate = rate })
	r.awaitCounts(t, ClaimCounts{Waiting: claims})
	r.registration.Inventory.SetClasses(labelled(r.golds, "gold tier=gold"))
	begin := time.Now()
	r.lead(t)
	r.awaitCounts(t, ClaimCounts{Bound: claims})
	assert.GreaterOrEqual(t, time.Since(begin), (claims-2*rate)*time.Second/rate, "We should keep to the rate.")
}
