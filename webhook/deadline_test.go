package webhook

import (
	"context"
	"errors"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/expression"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/rules"
)

// unanswered is a call to an API server that does not answer.
func unanswered(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Hour):
		return errors.New("nobody answered for an hour")
	}
}

// A request is answered by its deadline, whatever the answer waits for, even if the
// body took part of the time.
func TestReviewsEndInTime(t *testing.T) {
	require.Less(t, deadline, v1beta1.WebhookTimeoutSeconds*time.Second, "We should give up before the API server does.")
	live := func(ctx context.Context, _ *selector.View, _ claim.Claim) (*selector.View, error) {
		return nil, unanswered(ctx)
	}
	claimKind := func(ctx context.Context, _ string) (*v1beta1.ClaimKind, error) { return nil, unanswered(ctx) }
	// after says, after this time, that a claim kind is registered.
	after := func(d time.Duration) func(context.Context, string) (*v1beta1.ClaimKind, error) {
		return func(_ context.Context, name string) (*v1beta1.ClaimKind, error) {
			time.Sleep(d)
			return claimKindOf(name), nil
		}
	}
	review, class := newRequest(wantsGold), newGuardRequest(rdsClasses, "", object("gold", markedInAWS, ""))
	binders := map[string]func(*Binder, *selector.Inventory){
		"Live": func(b *Binder, _ *selector.Inventory) { b.Decider.Live = live },
		"Related": func(b *Binder, i *selector.Inventory) {
			k := newClaimKind(func(s *v1beta1.ClaimKindSpec) { s.Claims.When = "namespace.metadata.labels.tenant == 'a'" })
			i.SetRelated(inventory.NewObjects(k.RelatedKinds()[0], false, nil))
			i.SetClaimKind(k)
			b.Decider.Related = func(ctx context.Context, _ string, _ *rules.Kind, _, _ string) (*expression.Object, error) {
				return nil, unanswered(ctx)
			}
		},
		"Costly": func(b *Binder, i *selector.Inventory) {
			setCostly(i)
			b.Decider.Costly = func(ctx context.Context, _ string) (func(), error) { return nil, unanswered(ctx) }
		},
		"Class": func(b *Binder, _ *selector.Inventory) {
			b.Decider.Class = func(ctx context.Context, _ string, _ *inventory.ClassKind, _, _ string) (*inventory.Class, error) {
				return nil, unanswered(ctx)
			}
		},
		"Admits": func(b *Binder, i *selector.Inventory) {
			i.SetClasses(index(sqlClasses, "gold tier=gold"))
			b.Decider.Gates = []selector.Gate{{Admits: func(ctx context.Context, _ selector.Mode, _ *selector.View, _ claim.Claim, _ *inventory.Class) (bool, error) {
				<-ctx.Done()
				return false, ctx.Err()
			}}}
		},
		"ClaimKind": func(b *Binder, i *selector.Inventory) {
			i.DeleteClaimKind(claimKindName)
			b.ClaimKind = claimKind
		},
		"await": func(b *Binder, i *selector.Inventory) {
			i.DeleteClaimKind(claimKindName)
			b.ClaimKind = after(time.Second)
		},
		"await, and then Live": func(b *Binder, i *selector.Inventory) {
			i.DeleteClaimKind(claimKindName)
			b.ClaimKind, b.Decider.Live = after(time.Second/2), live
			time.AfterFunc(2*time.Second, func() { i.SetClaimKind(newClaimKind()) })
		},
	}
	guards := map[string]func(*Guard, *selector.Inventory){
		"ClassKind": func(g *Guard, _ *selector.Inventory) {
			g.ClassKind = func(ctx context.Context, _ string) (*inventory.ClassKind, error) { return nil, unanswered(ctx) }
		},
		"ClaimKind": func(g *Guard, i *selector.Inventory) { i.DeleteClaimKind(claimKindName); g.ClaimKind = claimKind },
		"Class": func(g *Guard, i *selector.Inventory) {
			i.SetClasses(index(rdsClasses, "gold"))
			g.Class = func(ctx context.Context, _ *inventory.ClassKind, _, _ string) (metav1.Object, *inventory.Class, error) {
				return nil, nil, unanswered(ctx)
			}
		},
		"Namespace": func(g *Guard, _ *selector.Inventory) {
			g.Namespace = func(ctx context.Context, _ string) (bool, error) { return false, unanswered(ctx) }
		},
		"Leases": func(g *Guard, _ *selector.Inventory) { g.Leases = &slowLeases{takes: time.Hour} },
	}
	check := func(t *testing.T, review Reviewer, request *admissionv1.AdmissionRequest) {
		t.Helper()
		begin := time.Now()
		w := posted(&Handler{Review: review.Unnamed()}, "", func(r *http.Request) {
			r.Body, r.ContentLength = io.NopCloser(io.MultiReader(slow(time.Second), strings.NewReader(asBody(t, request)))), -1
		})
		assert.Equal(t, deadline, time.Since(begin))
		assert.Equal(t, http.StatusServiceUnavailable, w.Code, "We should say that we cannot answer: %s", w.Body)
	}
	for name, hang := range binders {
		t.Run("Binder."+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inventory := newInventory(newClaimKind(), index(sqlClasses))
				binder := newBinder(t, inventory)
				hang(binder, inventory)
				if name != "Class" {
					check(t, byResource(binder), review)
					return
				}
				check(t, func(ctx context.Context, r *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
					response, _, err := binder.Check(ctx, claimKindName, r)
					return response, err
				}, newRequest(`{"spec":{"classRef":{"apiVersion":"example.org/v1","kind":"SQLClass","name":"new"}}}`))
			})
		})
	}
	for name, hang := range guards {
		t.Run("Guard."+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inventory := newInventory(newClaimKind(), index(rdsClasses))
				guard := newAPIServer().guard(inventory)
				hang(guard, inventory)
				check(t, guard.Review, class)
			})
		})
	}
	waits := append(asking(reflect.TypeFor[Binder]()), asking(reflect.TypeFor[selector.Decider]())...)
	assert.Subset(t, binders, append(waits, asking(reflect.TypeFor[selector.Gate]())...), "We should know of all that a claim may wait for.")
	assert.Subset(t, guards, asking(reflect.TypeFor[Guard]()), "We should know of all that a class may wait for.")
}

// slow is a body that takes this time and is empty.
type slow time.Duration

func (s slow) Read([]byte) (int, error) {
	time.Sleep(time.Duration(s))
	return 0, io.EOF
}

// asking returns the fields that are functions with a context.
func asking(of reflect.Type) (names []string) {
	for _, field := range reflect.VisibleFields(of) {
		// Deadline asks nobody.
		if f := field.Type; f.Kind() == reflect.Func && f.NumIn() > 0 && f.In(0) == reflect.TypeFor[context.Context]() && field.Name != "Deadline" {
			names = append(names, field.Name)
		}
	}
	return names
}

// setCostly makes it costly to decide on claims of gold.
func setCostly(i *selector.Inventory) {
	costly := func(s *v1beta1.ClaimKindSpec) {
		const letters = "'abcdefghijklmnopqrstuvw'.split('')"
		s.Classes.Fits = []v1beta1.Fit{{Name: "Costly", Expression: letters + ".all(a, " + letters + ".all(b, claim.metadata.name + a + b != class.metadata.name))"}}
	}
	i.SetClaimKind(newClaimKind(costly))
	i.SetClasses(index(newClassKindFor(newRegistration(costly)), "a tier=gold", "b tier=gold", "c tier=gold", "d tier=gold", "e tier=gold", "f tier=gold", "g tier=gold"))
}
