package registry

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
)

// exchanged is a cache whose content the test replaces.
type exchanged struct {
	atomic.Pointer[controllertest.Cached]
}

func (e *exchanged) Get(ctx context.Context, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	return e.Load().Get(ctx, k, o, opts...)
}

func (e *exchanged) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	return e.Load().List(ctx, l, opts...)
}

// TestOpening starts a replica where golds and bads serve databases, golds serve queues, and bads do not answer.
func TestOpening(t *testing.T) {
	const databases, queues = "databases.example.org", "queues.example.org"
	golds, bads := controllertest.NewClassKind("golds.example.org", "Gold"), controllertest.NewClassKind("bads.example.org", "Bad")
	golds.ClaimKinds, bads.ClaimKinds = []string{databases, queues}, []string{databases}
	served := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{
		Name: v1beta1.ClassConfiguration, Annotations: map[string]string{v1beta1.MemoryAnnotation: `{"classKinds":["bads.example.org","golds.example.org"]}`},
	}}
	classKind := func(k *inventory.ClassKind) v1beta1.ClassKind {
		return v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: k.Name}, Spec: v1beta1.ClassKindSpec{ClaimKinds: controllertest.Links(k.ClaimKinds...)}}
	}
	whole := &controllertest.Cached{
		Guarding:   served,
		ClaimKinds: []v1beta1.ClaimKind{*controllertest.NewClaimKind(databases), *controllertest.NewClaimKind(queues)},
		ClassKinds: []v1beta1.ClassKind{classKind(golds), classKind(bads)},
	}
	withoutBads := &controllertest.Cached{Guarding: served, ClaimKinds: whole.ClaimKinds, ClassKinds: whole.ClassKinds[:1]}
	moved := &controllertest.Cached{
		Guarding:   served,
		ClaimKinds: whole.ClaimKinds,
		ClassKinds: []v1beta1.ClassKind{classKind(golds), classKind(&inventory.ClassKind{Name: bads.Name, ClaimKinds: []string{queues}})},
	}

	// running is a replica that starts.
	type running struct {
		*Registration
		reader *exchanged
	}
	found := func(r running, k *inventory.ClassKind) {
		entry := watchedKind(k, watching(nil), nil, false)
		r.ClassKinds.mu.Lock()
		r.ClassKinds.kinds[k.Name] = entry
		r.ClassKinds.mu.Unlock()
		r.ClassKinds.publish(entry, controllertest.NewClasses(k, map[string][]string{"a": nil}), nil)
	}
	withGolds, withBads := func(r running) { found(r, golds) }, func(r running) { found(r, bads) }
	refuse := func(r running) { r.ClassKinds.unanswered(bads.Name, bads.ClaimKinds, ErrCRDNotServed) }
	// withGoldsAnd has something happen later.
	withGoldsAnd := func(after time.Duration, do func(running)) func(running) {
		return func(r running) {
			withGolds(r)
			if after == 0 {
				do(r)
			} else {
				time.AfterFunc(after, func() { do(r) })
			}
		}
	}
	stores := func(c *controllertest.Cached) func(running) { return func(r running) { r.reader.Store(c) } }
	ofDatabases, patience := []string{databases}, v1beta1.StartPatience

	for name, tc := range map[string]struct {
		reason string
		known  []string               // claim kinds, both unless set
		cache  *controllertest.Cached // whole unless set
		before func(running)          // it starts
		after  func(running)          // it has been open for a moment
		opens  time.Duration          // negative means never
		faults []string               // the claim kinds with a fault when it opens
		later  []string               // the same, two seconds later
	}{
		"Complete": {reason: "We should open at once when all is there.", before: withGoldsAnd(0, withBads)},
		"Late":     {reason: "We should wait for what comes a moment later.", before: withGoldsAnd(10*time.Second, withBads), opens: 10 * time.Second},
		"Missing": {
			reason: "We should bind no claim of the kinds alone that a class kind serves which does not answer.",
			before: withGolds,
			opens:  patience,
			faults: ofDatabases,
			later:  ofDatabases,
		},
		"NothingLookedUp": {
			reason: "We should name every claim kind that waits for classes.",
			opens:  patience,
			faults: []string{databases, queues},
			later:  []string{databases, queues},
		},
		"Found": {
			reason: "We should bind claims again once the classes are there.",
			before: withGolds,
			after:  withBads,
			opens:  patience,
			faults: ofDatabases,
		},
		"Unregistered": {
			reason: "We should wait no more for what is registered no more.",
			before: withGolds,
			after:  stores(withoutBads),
			opens:  patience,
			faults: ofDatabases,
		},
		"RegisteredForAnother": {
			reason: "We should go by what the missing class kind serves now.",
			before: withGolds,
			after:  stores(moved),
			opens:  patience,
			faults: ofDatabases,
			later:  []string{queues},
		},
		"RegisteredSince": {
			reason: "We should not wait for a class kind that is registered once we are open.",
			cache:  withoutBads,
			before: withGolds,
			after:  stores(whole),
		},
		"RefusedForGood": {
			reason: "We should believe a refusal that lasts, when it has.",
			before: withGoldsAnd(time.Second, refuse),
			opens:  patience,
			faults: ofDatabases,
		},
		"RefusedSince": {
			reason: "We should not believe a refusal at once, though we open meanwhile.",
			before: withGoldsAnd(20*time.Second, refuse), opens: patience, faults: ofDatabases, later: ofDatabases,
		},
		"AtFaultSince": {
			reason: "We should bind no claim without classes that were offered, once it turns out that their registration is at fault.",
			before: withGolds, opens: patience, faults: ofDatabases, later: ofDatabases,
			after: func(r running) {
				faulty := *bads
				faulty.Fault = &inventory.Fault{Reason: v1beta1.ReasonInvalidExpression, Text: "it does not compile"}
				r.ClassKinds.reject(&faulty, true)
			},
		},
		"ClaimKindNeverRegistered": {
			reason: "We should not wait for ever for a claim kind that cannot be registered.",
			known:  []string{queues},
			before: withGoldsAnd(0, withBads),
			opens:  patience,
		},
		"RegistrationsUnknown": {
			reason: "We should not open before we know what is registered.",
			cache:  &controllertest.Cached{ListErr: errors.New("refused")},
			opens:  -1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				reader := &exchanged{}
				reader.Store(cmp.Or(tc.cache, whole))
				r := running{newRegistration(reader, nil, cluster.Resolver{}, nil), reader}
				if tc.known == nil {
					tc.known = []string{databases, queues}
				}
				for _, name := range tc.known {
					k := controllertest.NewClaimKind(name)
					k.Spec.Choice.Strategy, k.Spec.Reference.Form = v1beta1.Random, v1beta1.ObjectReference
					r.Inventory.SetClaimKind(selector.NewClaimKind(k))
				}
				if tc.before != nil {
					tc.before(r)
				}
				var notified atomic.Int32
				r.ClassKinds.changed.Add(ctx, func(*inventory.ClassKind) { notified.Add(1) })
				faults := func() (names []string) {
					for _, name := range []string{databases, queues} {
						if view := r.Inventory.Snapshot()[name]; view != nil && view.Fault != nil {
							assert.Equal(t, v1beta1.ReasonClassKindMissing, view.Fault.Reason)
							names = append(names, name)
						}
					}
					return names
				}
				start := time.Now()
				ended := make(chan error)
				go func() { ended <- r.Opening.openWhenComplete(ctx) }()
				defer func() {
					stop()
					require.NoError(t, <-ended)
				}()
				if tc.opens < 0 {
					time.Sleep(time.Hour)
					require.Error(t, r.Opening.Ready(ctx), tc.reason)
					assert.Nil(t, r.Inventory.Snapshot(), tc.reason)
					return
				}
				if tc.opens > 0 {
					synctest.Wait()
					require.Error(t, r.Opening.Ready(ctx), "We should not be ready before we are open.")
				}
				<-r.Opening.Opened()
				assert.InDelta(t, tc.opens, time.Since(start), float64(openingInterval), tc.reason)
				require.NoError(t, r.Opening.Ready(ctx), tc.reason)
				assert.Equal(t, tc.faults, faults(), tc.reason)
				before := notified.Load()
				if tc.after != nil {
					tc.after(r)
				}
				time.Sleep(2 * missingInterval)
				synctest.Wait()
				assert.Equal(t, tc.later, faults(), tc.reason)
				if len(tc.faults) != len(tc.later) {
					assert.Greater(t, notified.Load(), before, "We should have the status written when that changes.")
				}
				if name == "RefusedSince" {
					time.Sleep(RefusalGrace)
					synctest.Wait()
					assert.Empty(t, faults(), "We should believe it when it has lasted.")
				}
			})
		})
	}
}
