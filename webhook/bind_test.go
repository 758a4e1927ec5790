package webhook

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/access"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/fuzztest/reference"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/truncate"
)

// TestReviewGuards has a row for each guard clause, in their order. Each row would also be caught by the guard after it, so a guard that
// moves shows.
func TestReviewGuards(t *testing.T) {
	closed := selector.NewInventory()
	closed.SetClaimKind(newClaimKind())
	served := newInventory(newClaimKind(), index(sqlClasses, "gold tier=gold @default=true"))
	retired := newInventory(newClaimKind())
	retired.DeleteClaimKind(claimKindName)
	pinned := selector.NewInventory()
	pin := func(k *v1beta1.ClaimKind) *v1beta1.ClaimKind {
		k.Spec.Claims.Version = "v1beta1"
		return k
	}
	pinned.SetClaimKind(selector.NewClaimKind(pin(claimKindOf(claimKindName))))
	pinned.Open()
	faulty := newInventory(newClaimKind(func(s *v1beta1.ClaimKindSpec) { s.Choice.Seed.From = "Moon" }), index(sqlClasses, "gold"))
	onPurpose := newInventory(newClaimKind(func(s *v1beta1.ClaimKindSpec) {
		s.Reference.WhenEmpty, s.Choice.Seed.From = v1beta1.LeaveEmptyAlone, "Moon"
	}), index(sqlClasses, "gold"))

	type want struct {
		untouched string
		warnings  []string
		err       string
		status    int
	}
	unregistered, registered := asClaimKind(false, nil), asClaimKind(true, nil)
	other := newRequest(wantsGold, func(r *admissionv1.AdmissionRequest) { r.Resource.Resource = "mysqlinstances" })
	deletion := newRequest("", func(r *admissionv1.AdmissionRequest) { r.Operation = admissionv1.Delete })
	subresource := newRequest("", func(r *admissionv1.AdmissionRequest) { r.SubResource = "scale" })
	const notYet = `claim kind "%s" is not registered on this replica yet; try again in a moment`
	for name, tc := range map[string]struct {
		reason     string
		inventory  *selector.Inventory // served unless set
		registered func(context.Context, string) (*v1beta1.ClaimKind, error)
		request    *admissionv1.AdmissionRequest // newRequest(wantsGold) unless set
		claimKind  string                        // in the path; without it, that of the resource
		want       want
	}{
		"NotACreation": {
			reason:    "We should leave a deletion alone, even before we know any class.",
			inventory: closed,
			request:   deletion,
			want:      want{untouched: "NotACreation"},
		},
		"Subresource": {
			reason:    "We should leave a subresource alone, even before we know any class.",
			inventory: closed,
			request:   subresource,
			want:      want{untouched: "NotACreation"},
		},
		"Closed": {
			reason:    "We should not decide on part of the classes.",
			inventory: closed,
			want:      want{err: "not all registered classes have been listed yet; try again in a moment"},
		},
		"Unknown": {
			reason:     "We should not decide on a kind that another replica may know already.",
			request:    other,
			registered: registered,
			want:       want{err: fmt.Sprintf(notYet, "mysqlinstances.database.example.org")},
		},
		"NeverRegistered": {
			reason:     "We should leave claims alone whose kind is not registered.",
			request:    other,
			registered: unregistered,
			want:       want{untouched: "NotRegistered"},
		},
		"OtherResource": {
			reason:     "We should leave claims alone that are not those of the registration.",
			request:    other,
			registered: registered,
			claimKind:  claimKindName,
			want:       want{untouched: "NotRegistered"},
		},
		"OtherVersion": {
			reason:    "We should not read a claim by paths that are written for another version, and say what helps.",
			inventory: pinned,
			registered: func(context.Context, string) (*v1beta1.ClaimKind, error) {
				return pin(claimKindOf(claimKindName)), nil
			},
			want: want{err: `claim kind "postgresqlinstances.database.example.org": its paths are written for version "v1beta1" of ` +
				`postgresqlinstances.database.example.org, ` +
				`and the API server sends these claims as "v1": write the paths for a version that is served, and set spec.claims.version to it`},
		},
		"MalformedName": {
			reason:    "We should ask nobody for a name that no ClaimKind can have.",
			claimKind: "A b",
			want:      want{err: "path: must end with the name of a ClaimKind", status: http.StatusBadRequest},
		},
		"NotToldWhether": {
			reason:     "We should not say that a kind is not registered when we could not ask.",
			request:    other,
			registered: asClaimKind(false, errors.New("connection refused")),
			want:       want{err: "connection refused"},
		},
		"Retired": {
			reason:     "We should leave claims alone whose kind is registered no more.",
			inventory:  retired,
			registered: unregistered,
			want:       want{untouched: "NotRegistered"},
		},
		"Back": {
			reason:     "We should not decide on a kind that was registered again a moment ago.",
			inventory:  retired,
			registered: registered,
			want:       want{err: fmt.Sprintf(notYet, claimKindName)},
		},
		"Faulty": {
			reason:    "We should not bind by a registration that we do not understand.",
			inventory: faulty,
			want: want{
				err: `claim kind "postgresqlinstances.database.example.org" has the choice.seed.from "Moon", which this release of classbind does not know: ` +
					`set spec.choice.seed.from to one of Claim, Expression, Request, or upgrade classbind`,
			},
		},
		"NoObject": {
			reason:  "We should answer a caller that sends no object.",
			request: newRequest(""),
			want:    want{err: "request.object: must be set", status: http.StatusBadRequest},
		},
		"NotAnObject": {
			reason:  "We should answer a caller that sends something else.",
			request: newRequest(`["db"]`),
			want:    want{err: "request.object: must be an object", status: http.StatusBadRequest},
		},
		"NoOldObject": {
			reason:  "We should refuse an update without the old object.",
			request: newUpdate(``, `{}`),
			want:    want{err: "request.oldObject: must be set", status: http.StatusBadRequest},
		},
		"OldIsAList": {
			reason:  "We should say which of the two is wrong.",
			request: newUpdate(`[]`, `{}`),
			want:    want{err: "request.oldObject: must be an object", status: http.StatusBadRequest},
		},
		"ObjectIsText": {
			reason:  "We should say which of the two is wrong.",
			request: newUpdate(`{}`, `"text"`),
			want:    want{err: "request.object: must be an object", status: http.StatusBadRequest},
		},
		"BeingDeleted": {
			reason:  "We should leave a claim alone that is being deleted, whatever it asks for.",
			request: newRequest(`{"metadata":{"deletionTimestamp":"2020-01-01T00:00:00Z"},"spec":{` + mistyped + `}}`),
			want:    want{untouched: "BeingDeleted"},
		},
		"Explicit": {
			reason:  "We should leave an explicit claim alone, whatever its selector says: it may have been bound by it.",
			request: newRequest(`{"spec":{"classRef":{"name":"mine"},` + mistyped + `}}`),
			want:    want{untouched: "Settled"},
		},
		"ExplicitBesideEmpty": {
			reason:    "We should not warn of the selector of an explicit claim where others may be empty on purpose.",
			inventory: onPurpose,
			request:   newRequest(`{"spec":{"classRef":{"name":"mine"},"classSelector":{"matchLabels":{"tier":"gold"}}}}`),
			want:      want{untouched: "Settled"},
		},
		"Selected": {
			reason:    "We should warn of a selector that has no effect, whatever is wrong with the registration.",
			inventory: onPurpose,
			request:   newRequest(`{"spec":{"classRef":{"name":""},"classSelector":{"matchLabels":{"tier":"gold"}}}}`),
			want: want{
				untouched: "Settled",
				warnings: []string{
					`the class selector "tier=gold" has no effect, because the class reference .spec.classRef is empty on purpose: remove one of the two`,
				},
			},
		},
		"SelectedMalformed": {
			reason:    "We should not refuse a claim for a selector that has no effect.",
			inventory: onPurpose,
			request:   newRequest(`{"spec":{"classRef":{"name":""},` + mistyped + `}}`),
			want: want{
				untouched: "Settled",
				warnings: []string{
					"the class selector has no effect, because the class reference .spec.classRef is empty on purpose: remove one of the two",
				},
			},
		},
		"SelectedAtLength": {
			reason:    "We should not repeat a long selector.",
			inventory: onPurpose,
			request: newRequest(`{"spec":{"classRef":{"name":""},"classSelector":{"matchExpressions":[{"key":"a","operator":"In","values":["` +
				strings.Repeat("x", 63) + `","` + strings.Repeat("y", 63) + `"]}]}}}`),
			want: want{
				untouched: "Settled",
				warnings: []string{fmt.Sprintf(
					"the class selector %q has no effect, because the class reference .spec.classRef is empty on purpose: remove one of the two",
					truncate.String("a in ("+strings.Repeat("x", 63)+","+strings.Repeat("y", 63)+")", v1beta1.MaxShownBytes))},
			},
		},
		"SelectedByNothing": {
			reason:    "We should not warn of a selector that asks for nothing.",
			inventory: onPurpose,
			request:   newRequest(`{"spec":{"classRef":{"name":""},"classSelector":{}}}`),
			want:      want{untouched: "Settled"},
		},
	} {
		inBubble(t, name, func(t *testing.T) { // It may wait.
			binder := newBinder(t, cmp.Or(tc.inventory, served))
			request := cmp.Or(tc.request, newRequest(wantsGold))
			named := cmp.Or(tc.claimKind, request.Resource.Resource+".database.example.org")
			if tc.registered != nil {
				binder.ClaimKind = func(ctx context.Context, claimKind string) (*v1beta1.ClaimKind, error) {
					assert.Equal(t, named, claimKind, "We should ask for the ClaimKind that the path names.")
					return tc.registered(ctx, claimKind)
				}
			}
			begin := time.Now()
			response, err := binder.Review(at(t.Context(), named), request)
			if tc.want.err != "" {
				require.EqualError(t, err, tc.want.err, tc.reason)
				bad := &badRequest{}
				assert.Equal(t, tc.want.status != 0, errors.As(err, &bad), "%s Whose fault is it? %s", tc.reason, err)
				assert.Equal(t, tc.want.status, bad.status, tc.reason)
				assert.Nil(t, response, tc.reason)
				return
			}
			require.NoError(t, err, tc.reason)
			assert.Zero(t, time.Since(begin), "We should not keep a claim waiting that we leave alone.")
			assert.Equal(t, &admissionv1.AdmissionResponse{
				Allowed: true, Warnings: tc.want.warnings, AuditAnnotations: map[string]string{"reason": tc.want.untouched},
			}, response, tc.reason)
		})
	}
}

// TestReviewAwaits a claim kind that the API server knows already, and this replica does not.
func TestReviewAwaits(t *testing.T) {
	notHeardOf := errNotHeardOf(claimKindName).Error()
	bound := `[{"op":"add","path":"/spec/classRef","value":{"apiVersion":"example.org/v1","kind":"SQLClass","name":"gold"}}]`
	for name, tc := range map[string]struct {
		reason  string
		heardOf time.Duration // after the claim was created; 0, never
		fault   bool
		timeout time.Duration
		want    string // the patch, or the error
		after   time.Duration
	}{
		"InAMoment": {
			reason:  "We should bind a claim as soon as we have heard of its kind.",
			heardOf: 50 * time.Millisecond,
			want:    bound,
			after:   50 * time.Millisecond,
		},
		"InTheLastMoment": {reason: "We should wait while there is a good chance.", heardOf: 980 * time.Millisecond, want: bound, after: 980 * time.Millisecond},
		"TooLate": {
			reason:  "We should not keep the API server waiting for longer than a second.",
			heardOf: 1020 * time.Millisecond,
			want:    notHeardOf,
			after:   time.Second,
		},
		"Never": {reason: "We should not take a kind that we have not heard of for one that is not registered.", want: notHeardOf, after: time.Second},
		"NoTime": {
			reason:  "We should wait for no longer than the API server does.",
			heardOf: 200 * time.Millisecond,
			timeout: 100 * time.Millisecond,
			want:    notHeardOf,
			after:   100 * time.Millisecond,
		},
		"Fault": {
			reason:  "We should not bind a claim whose registration is at fault, however late we hear of it.",
			heardOf: 50 * time.Millisecond,
			fault:   true,
			want:    "does not know",
			after:   50 * time.Millisecond,
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			inventory := selector.NewInventory()
			inventory.SetClasses(index(sqlClasses, "gold tier=gold"))
			inventory.Open()
			binder := newBinder(t, inventory)
			binder.ClaimKind = asClaimKind(true, nil)
			kind := newClaimKind()
			if tc.fault {
				kind = newClaimKind(func(s *v1beta1.ClaimKindSpec) { s.Choice.Seed.From = "Moon" })
			}
			if tc.heardOf > 0 {
				time.AfterFunc(tc.heardOf, func() { inventory.SetClaimKind(kind) })
			}
			ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(tc.timeout, v1beta1.WebhookTimeoutSeconds*time.Second))
			defer cancel()
			begin := time.Now()
			response, err := byResource(binder)(ctx, newRequest(wantsGold))
			assert.InDelta(t, tc.after.Seconds(), time.Since(begin).Seconds(), 0.011, tc.reason)
			if tc.want != bound {
				require.ErrorContains(t, err, tc.want, tc.reason)
				assert.Nil(t, response, tc.reason)
				return
			}
			require.NoError(t, err, tc.reason)
			assert.JSONEq(t, tc.want, string(response.Patch), tc.reason)
		})
	}
}

// TestReviewOfConvertedClaims leaves to the API server what it refuses: it validates a claim by the schema of the version in which it was
// sent.
func TestReviewOfConvertedClaims(t *testing.T) {
	requiring := newClaimKind()
	requiring.SetPaths(selector.PathsCheck{Required: []v1beta1.FieldPath{".spec.classRef"}})
	binder := newBinder(t, newInventory(requiring, index(sqlClasses, "silver tier=silver")))
	for sent, allowed := range map[string]bool{"v1": false, "v1beta1": true} {
		response, err := byResource(binder)(t.Context(), newRequest(wantsGold, func(r *admissionv1.AdmissionRequest) {
			r.RequestResource = &metav1.GroupVersionResource{Group: r.Resource.Group, Version: sent, Resource: r.Resource.Resource}
		}))
		require.NoError(t, err)
		assert.Equal(t, allowed, response.Allowed, "sent as %s", sent)
		assert.Equal(t, allowed, len(response.Warnings) == 1, "We should warn of what we do not refuse, sent as %s.", sent)
	}
}

// result of a claim.
type result struct {
	// refused reports whether the claim is malformed, or, with unmatched, that there is no class for it.
	refused, unmatched bool
	// class as a log has it; empty if the claim gets none.
	class string
	// among reports whether the class may be any of these, as by turns.
	among []string
	// either reports whether the claim may also be refused, because it is close to a limit.
	either bool
}

// allows reports whether a result that was seen is right.
func (r result) allows(got result) bool {
	switch {
	case r.either && got.refused && !got.unmatched:
		return true
	case r.refused != got.refused || r.unmatched != got.unmatched:
		return false
	case len(r.among) > 0:
		return slices.Contains(r.among, got.class)
	}
	return r.class == got.class
}

// decide on a claim as docs/claims.md says, slowly and with none of the product's code: Kubernetes' own code reads and matches the
// selector.
func (w *world) decide(c fuzzedClaim) result {
	name := c.name
	if c.which&generated != 0 {
		name = ""
	}
	namespace := valid(c.namespace)
	switch {
	case namespace != "" && len(validation.IsDNS1123Label(namespace)) > 0, len(valid(name)) > v1beta1.MaxNameBytes:
		return result{refused: true} // No API server sends such a name.
	case len(content.IsPathSegmentName(valid(name))) > 0:
		return result{} // The API server refuses it.
	}
	var object struct {
		Metadata struct{ Annotations map[string]string }
		Spec     struct{ ClassSelector json.RawMessage }
	}
	if err := json.Unmarshal([]byte(c.object()), &object); err != nil {
		return result{refused: true}
	}
	var anything any
	if len(object.Spec.ClassSelector) > 0 && json.Unmarshal(object.Spec.ClassSelector, &anything) != nil {
		return result{refused: true} // Numbers beyond a float64, which JSON itself allows.
	}
	selector, err := reference.Of(anything, object.Metadata.Annotations)
	if err != nil {
		return result{refused: true}
	}
	r := w.choose(c, selector.Selector)
	r.either = selector.MayBeRefused
	return r
}

func (w *world) choose(c fuzzedClaim, selector labels.Selector) result {
	kind := w.claimKinds[c.claimKind()]
	weighted := kind.Choice.Strategy != v1beta1.Random && kind.Choice.Strategy != v1beta1.RoundRobin
	claimNamespace, claimName := valid(c.namespace), valid(c.name)
	seed := xxhash.Sum64String(c.claimKind() + "." + worldGroup + "/" + claimNamespace + "/" + claimName)
	if c.which&generated != 0 || claimName == "" {
		seed = 1
	}
	best, bestWeight, bestKey := result{}, int64(0), 0.0
	for _, class := range w.candidates(c, selector) {
		if weighted && class.weight == 0 {
			continue
		}
		u := referenceUniform(seed, xxhash.Sum64String(class.group+"/"+class.kind+"/"+class.namespace+"/"+class.name))
		key, rank := -math.Log(u), int64(0)
		switch kind.Choice.Strategy {
		case v1beta1.WeightedRandom, v1beta1.LeastClaims:
			key /= float64(class.weight)
		case v1beta1.HighestWeight:
			rank = class.weight
		default:
		}
		if kind.Choice.Strategy == v1beta1.RoundRobin {
			best.among = append(best.among, class.String())
		}
		if best.class == "" || rank > bestWeight || rank == bestWeight && key < bestKey {
			best.class, bestWeight, bestKey = class.String(), rank, key
		}
	}
	if best.class == "" && kind.WhenUnmatched == v1beta1.Deny {
		return result{refused: true, unmatched: true}
	}
	return best
}

// candidates before weights count. A claim without a selector gets a default of its own namespace, if there is one that it may get.
func (w *world) candidates(c fuzzedClaim, selector labels.Selector) (all []*plainClass) {
	namespace, kind := valid(c.namespace), w.claimKinds[c.claimKind()]
	var own []*plainClass
	for i := range w.classes {
		class := &w.classes[i]
		switch {
		case class.terminating, class.cordoned, !w.offers(c.claimKind(), namespace, class):
		case selector != nil && !selector.Matches(labels.Set(class.labels)):
		case selector == nil && !class.isDefault:
		default:
			all = append(all, class)
			if class.namespace != "" && (class.weight > 0 || kind.Choice.Strategy == v1beta1.Random || kind.Choice.Strategy == v1beta1.RoundRobin) {
				own = append(own, class)
			}
		}
	}
	if selector == nil && len(own) > 0 && w.from[c.claimKind()] == "SameAsClaim" {
		return own
	}
	return all
}

// referenceUniform is the draw of docs/claims.md: a number in (0,1), from both arguments.
func referenceUniform(seed, class uint64) float64 {
	mix := func(z uint64) uint64 {
		z += 0x9e3779b97f4a7c15
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		return z ^ z>>31
	}
	return (float64(mix(mix(seed)^class)>>12) + 0.5) / (1 << 52)
}

func (c *plainClass) String() string {
	if c.namespace == "" {
		return c.kind + "/" + c.name
	}
	return c.kind + "/" + c.namespace + "/" + c.name
}

// valid is the text after JSON, without invalid UTF-8.
func valid(text string) (back string) {
	quoted, _ := json.Marshal(text)
	_ = json.Unmarshal(quoted, &back)
	return back
}

const claimKindName = "postgresqlinstances.database.example.org"

// newClaimKind has the defaults that the schema gives it, but for what is changed.
func newClaimKind(change ...func(*v1beta1.ClaimKindSpec)) *selector.ClaimKind {
	return selector.NewClaimKind(newRegistration(change...))
}

func newRegistration(change ...func(*v1beta1.ClaimKindSpec)) *v1beta1.ClaimKind {
	k := &v1beta1.ClaimKind{
		ObjectMeta: metav1.ObjectMeta{Name: claimKindName},
		Spec: v1beta1.ClaimKindSpec{
			Claims:        v1beta1.Claims{SkipIfSet: []v1beta1.Place{{Path: ".spec.resourceRef"}}},
			Reference:     v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.classRef"}, Form: v1beta1.ObjectReference},
			Selector:      v1beta1.ClassSelector{Path: ".spec.classSelector"},
			Classes:       v1beta1.Classes{Namespaces: v1beta1.ClassNamespaces{From: v1beta1.FromAll}},
			Choice:        v1beta1.Choice{Strategy: v1beta1.WeightedRandom, Seed: v1beta1.Seed{From: v1beta1.SeedClaim}},
			WhenUnmatched: v1beta1.Admit,
		},
	}
	for _, f := range change {
		f(&k.Spec)
	}
	return k
}

func newClassKind(plural, kind string, namespaced bool) *inventory.ClassKind {
	return inventory.NewClassKind(&v1beta1.ClassKind{
		ObjectMeta: metav1.ObjectMeta{Name: plural + ".example.org"},
		Spec: v1beta1.ClassKindSpec{
			ClaimKinds: []v1beta1.ClaimKindLink{{Name: claimKindName}},
			Default:    v1beta1.Source{Annotation: "default"},
			Weight:     v1beta1.Source{Annotation: "weight"},
		},
	}, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: kind}, namespaced)
}

// newClassKindFor the expressions of a claim kind.
func newClassKindFor(claims *v1beta1.ClaimKind) *inventory.ClassKind {
	return inventory.NewClassKind(&v1beta1.ClassKind{
		ObjectMeta: metav1.ObjectMeta{Name: "sqlclasses.example.org"}, Spec: v1beta1.ClassKindSpec{ClaimKinds: []v1beta1.ClaimKindLink{{Name: claims.Name}}},
	}, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "SQLClass"}, false, claims)
}

var (
	sqlClasses = newClassKind("sqlclasses", "SQLClass", false)
	rdsClasses = newClassKind("rdsclasses", "RDSClass", true)
)

// index of classes, each a name and then "key=value" labels and "@key=value" annotations.
func index(kind *inventory.ClassKind, classes ...string) *inventory.Classes {
	all := make([]*inventory.Class, len(classes))
	for i, text := range classes {
		fields := strings.Fields(text)
		m := &metav1.ObjectMeta{Name: fields[0], Labels: map[string]string{}, Annotations: map[string]string{}}
		if kind.Namespaced {
			m.Namespace = "aws"
		}
		for _, f := range fields[1:] {
			key, value, _ := strings.Cut(f, "=")
			if annotation, ok := strings.CutPrefix(key, "@"); ok {
				m.Annotations[annotation] = value
			} else {
				m.Labels[key] = value
			}
		}
		all[i] = kind.NewClass(m, nil)
	}
	return inventory.NewClasses(kind, all)
}

func newInventory(kind *selector.ClaimKind, classes ...*inventory.Classes) *selector.Inventory {
	i := selector.NewInventory()
	i.SetClaimKind(kind)
	for _, x := range classes {
		i.SetClasses(x)
	}
	i.Open()
	return i
}

// newBinder asks the API server nothing: a test that needs to replaces that.
func newBinder(t *testing.T, i *selector.Inventory) *Binder {
	t.Helper()
	return &Binder{
		Snapshot: i.Snapshot,
		ClaimKind: func(context.Context, string) (*v1beta1.ClaimKind, error) {
			assert.Fail(t, "We should not ask the API server for a claim kind that the snapshot has.")
			return nil, errors.New("no look-up")
		},
		Decider: &selector.Decider{
			Deadline: Deadline,
			Fresh:    func() uint64 { return 1 },
			Now:      time.Now,
		},
	}
}

// at is the context of a review that came to the path of a registration.
func at(ctx context.Context, registration string) context.Context {
	return context.WithValue(ctx, arrivalKey{}, &arrival{at: time.Now(), registration: registration})
}

// named has claims reviewed by the ClaimKind whose name is their resource.
func named(b *Binder) Reviewer {
	return func(ctx context.Context, r *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		arrivalOf(ctx).registration = resourceOf(r).String()
		return b.Review(ctx, r)
	}
}

// byResource does the same, and at once what is to be done afterwards.
func byResource(b *Binder) Reviewer {
	return func(ctx context.Context, r *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		arrived := arrivalOf(ctx)
		ctx = context.WithValue(ctx, arrivalKey{}, arrived)
		response, err := named(b)(ctx, r)
		arrived.afterwards()
		arrived.afterwards = nil
		return response, err
	}
}

func claimKindOf(name string) *v1beta1.ClaimKind {
	return &v1beta1.ClaimKind{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// asClaimKind has every ClaimKind, or none.
func asClaimKind(registered bool, err error) func(context.Context, string) (*v1beta1.ClaimKind, error) {
	return func(_ context.Context, name string) (*v1beta1.ClaimKind, error) {
		if !registered {
			return nil, err
		}
		return claimKindOf(name), err
	}
}

func newRequest(object string, change ...func(*admissionv1.AdmissionRequest)) *admissionv1.AdmissionRequest {
	group, resource := "database.example.org", "postgresqlinstances"
	r := &admissionv1.AdmissionRequest{
		UID:       types.UID("5e1f"),
		Kind:      metav1.GroupVersionKind{Group: group, Version: "v1", Kind: "PostgreSQLInstance"},
		Resource:  metav1.GroupVersionResource{Group: group, Version: "v1", Resource: resource},
		Namespace: "team-a", Name: "db",
		Operation: admissionv1.Create,
		Object:    runtime.RawExtension{Raw: []byte(object)},
	}
	for _, f := range change {
		f(r)
	}
	return r
}

const (
	wantsGold = `{"spec":{"classSelector":{"matchLabels":{"tier":"gold"}}}}`
	mistyped  = `"classSelector":{"matchExpressions":[{"key":"tier","operator":"Foo"}]}`
)

// newUpdate from one object to another.
func newUpdate(before, object string) *admissionv1.AdmissionRequest {
	return newRequest(object, func(r *admissionv1.AdmissionRequest) {
		r.Operation, r.OldObject.Raw = admissionv1.Update, []byte(before)
	})
}

const boundToGold = `{"spec":{"classRef":{"name":"gold"}}}`

func TestReviewOfUpdates(t *testing.T) {
	missing := newInventory(newClaimKind())
	missing.SetMissing("sqlclasses.example.org", []string{claimKindName}, "not listed yet")
	for name, tc := range map[string]struct {
		reason    string
		inventory *selector.Inventory
		request   *admissionv1.AdmissionRequest
		want      string
		patch     string
		counted   string
	}{
		"Unbound": {
			reason: "We should put back the reference.", inventory: newInventory(newClaimKind(), index(sqlClasses, "silver @default=true")),
			request: newUpdate(boundToGold, `{"spec":{}}`), want: claim.Restored,
			patch: `[{"op":"add","path":"/spec/classRef","value":{"name":"gold"}}]`, counted: "restored",
		},
		"ClassesMissing": {
			reason:    "We should need no class for that.",
			inventory: missing,
			request:   newUpdate(boundToGold, `{"spec":{}}`),
			want:      claim.Restored,
			patch:     `[{"op":"add","path":"/spec/classRef","value":{"name":"gold"}}]`,
			counted:   "restored",
		},
		"NeverBound": {
			reason:    "We should bind no claim that is updated.",
			inventory: newInventory(newClaimKind(), index(sqlClasses, "silver @default=true")),
			request:   newUpdate(`{}`, `{}`),
			want:      claim.NotBound,
			counted:   "untouched",
		},
		"Changed": {
			reason:    "We should allow another class.",
			inventory: newInventory(newClaimKind()),
			request:   newUpdate(boundToGold, `{"spec":{"classRef":{"name":"silver"}}}`),
			want:      claim.Settled,
			counted:   "untouched",
		},
		"Allowed": {
			reason:    "We should leave a claim alone for which the API server still has an entry from before.",
			inventory: newInventory(newClaimKind(func(s *v1beta1.ClaimKindSpec) { s.Reference.OnUnbind = v1beta1.AllowUnbind })),
			request:   newUpdate(boundToGold, `{}`), want: claim.UnbindAllowed, counted: "untouched",
		},
	} {
		inDryRunToo(t, name, tc.request, func(t *testing.T, request *admissionv1.AdmissionRequest) {
			binder := newBinder(t, tc.inventory)
			binder.Metrics = NewMetrics(tc.inventory.Snapshot)
			got := mustReview(t, byResource(binder), request)
			assert.True(t, got.Allowed, tc.reason)
			assert.Equal(t, map[string]string{"reason": tc.want}, got.AuditAnnotations, tc.reason)
			assert.Equal(t, tc.patch, string(got.Patch), tc.reason)
			assert.Equal(t, tc.patch != "", len(got.Warnings) == 1, "We should inform the author of what we keep, and of nothing else.")
			want := map[string]float64{}
			if request.DryRun == nil {
				want[fmt.Sprintf(decided, tc.counted)] = 1
			}
			assert.Equal(t, want, counted(t, binder.Metrics), tc.reason)
		})
	}
}

// Expressions see the user of the review, and only where they look is it read.
func TestExpressionsSeeWhoAsks(t *testing.T) {
	const group = `'gold-users' in request.userInfo.groups`
	for name, tc := range map[string]struct {
		reason   string
		bindWhen v1beta1.Expression
		userInfo string
		code     int
		want     string // in the answer
	}{
		"InGroup":    {"We should show the groups to an expression.", group, `{"groups":["a","gold-users"]}`, http.StatusOK, `"patch"`},
		"NotInGroup": {"We should go by what it says.", group, `{"groups":["a"]}`, http.StatusOK, claim.NotYet},
		"NoGroups":   {"We should refuse a claim on which an expression fails.", group, `{"username":"jane"}`, http.StatusOK, "no such key: groups"},
		"Malformed":  {"We should refuse what no API server sends.", group, `{"groups":7}`, http.StatusBadRequest, "request.userInfo"},
		"All": {
			"We should show all that is known of who asks.",
			`request.userInfo.uid == '7' && request.userInfo.extra.scopes == ['x'] && !has(request.userInfo.groups)`,
			`{"username":"jane","uid":"7","groups":[],"extra":{"scopes":["x"]},"realm":1}`, http.StatusOK, `"patch"`,
		},
		"TooLong": {
			"We should not decode more than we said.", group,
			`{"username":"` + strings.Repeat("x", v1beta1.MaxUserInfoBytes) + `"}`, http.StatusBadRequest, "request.userInfo: must have at most",
		},
		"Unread": {"We should not read what no expression looks at.", "", `{"groups":7}`, http.StatusOK, `"patch"`},
	} {
		t.Run(name, func(t *testing.T) {
			inventory := newInventory(newClaimKind(func(s *v1beta1.ClaimKindSpec) { s.Claims.When = tc.bindWhen }), index(sqlClasses, "gold tier=gold"))
			require.Nil(t, inventory.Snapshot()[claimKindName].Fault)
			body := strings.Replace(asBody(t, newRequest(wantsGold)), `"userInfo":{}`, `"userInfo":`+tc.userInfo, 1)
			require.Contains(t, body, tc.userInfo)
			w := posted(&Handler{Review: named(newBinder(t, inventory))}, body)
			assert.Equal(t, tc.code, w.Code, tc.reason)
			assert.Contains(t, w.Body.String(), tc.want, tc.reason)
		})
	}
}

// The right of the requester counts, of the namespace where the kind says so, and of no one else.
func TestWhoMayUse(t *testing.T) {
	const jane = `{"username":"jane","uid":"5e1f","groups":["a","b"],"extra":{"scopes":["x"]}}`
	for name, tc := range map[string]struct {
		reason, userInfo string
		subject          v1beta1.UseSubject
		code             int
		want             *access.Subject // that is asked about
		answer           string
	}{
		"Requester": {
			"We should ask about who asks, with all that is known of him.",
			jane, v1beta1.UseByRequester, http.StatusOK,
			&access.Subject{User: "jane", UID: "5e1f", Groups: []string{"a", "b"}, Extra: map[string][]string{"scopes": {"x"}}}, `"patch"`,
		},
		"Namespace": {"We should ask about the namespace, whoever asks.", jane, v1beta1.UseByNamespace, http.StatusOK, access.OfNamespace("team-a"), `"patch"`},
		"NoName": {
			"We should ask about nobody in the place of who asks.", `{"groups":["a"]}`, v1beta1.UseByRequester, http.StatusBadRequest, nil,
			"request.userInfo.username: must be set",
		},
		"Malformed": {"We should refuse what no API server sends.", `{"groups":7}`, v1beta1.UseByRequester, http.StatusBadRequest, nil, "request.userInfo"},
		"NotAsked":  {"We should ask nothing where all may use all.", `{"groups":7}`, "", http.StatusOK, nil, `"patch"`},
	} {
		t.Run(name, func(t *testing.T) {
			known := newInventory(newClaimKind(func(s *v1beta1.ClaimKindSpec) {
				if tc.subject != "" {
					s.Classes.Use = &v1beta1.Use{Subject: tc.subject}
				}
			}), index(sqlClasses, "gold tier=gold"))
			binder, asked := newBinder(t, known), (*access.Subject)(nil)
			binder.Decider.Gates = []selector.Test{{
				Of: func(k *selector.ClaimKind) bool { return k.Use != "" },
				Drops: func(_ context.Context, c selector.Subject, _ *inventory.Class) (bool, error) {
					asked = c.View.Kind.UserOf(c.Claim)
					return false, nil
				},
			}}
			body := strings.Replace(asBody(t, newRequest(wantsGold)), `"userInfo":{}`, `"userInfo":`+tc.userInfo, 1)
			w := posted(&Handler{Review: named(binder)}, body)
			assert.Equal(t, tc.code, w.Code, tc.reason)
			assert.Contains(t, w.Body.String(), tc.answer, tc.reason)
			assert.Equal(t, tc.want, asked, tc.reason)
		})
	}
}

// TestChooserUnavailable has a chooser that too many claims ask, for claims with a namespace and without.
func TestChooserUnavailable(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, namespace string
		ownDoing          bool
		code              int
		key               string
	}{
		"OwnDoing": {
			reason:    "We should refuse what other claims of the namespace cause: 503 would let it pass with failurePolicy Ignore.",
			namespace: "team-a",
			ownDoing:  true,
			code:      http.StatusTooManyRequests,
			key:       "team-a",
		},
		"Busy":        {reason: "We should let the failurePolicy decide else.", namespace: "team-a", code: http.StatusServiceUnavailable, key: "team-a"},
		"NoNamespace": {reason: "We should have its author stand for it.", ownDoing: true, code: http.StatusTooManyRequests, key: "jane"},
	} {
		t.Run(name, func(t *testing.T) {
			binder := newBinder(t, newInventory(newClaimKind(func(s *v1beta1.ClaimKindSpec) {
				s.Choice.Strategy = v1beta1.ExternalStrategy
				s.Choice.External = &v1beta1.External{Host: "chooser.example.org:443", WhenUnavailable: v1beta1.UnavailableFail}
			}), index(sqlClasses, "gold tier=gold")))
			binder.Decider.Choose = func(_ context.Context, q *selector.Question) selector.Answer {
				assert.Equal(t, tc.key, q.Key)
				return selector.Answer{Outcome: selector.ChooserUnavailable, Unavailable: v1beta1.ReasonBusy, OwnDoing: tc.ownDoing}
			}
			request := newRequest(wantsGold)
			request.Namespace = tc.namespace
			userInfo := `"userInfo":{"groups":["` + strings.Repeat("x", v1beta1.MaxUserInfoBytes) + `"],"username":"jane"}` // Only its name matters.
			w := posted(&Handler{Review: named(binder)}, strings.Replace(asBody(t, request), `"userInfo":{}`, userInfo, 1))
			code := w.Code
			if review := (admissionv1.AdmissionReview{}); code == http.StatusOK {
				require.NoError(t, json.Unmarshal(w.Body.Bytes(), &review))
				code = int(review.Response.Result.Code)
			}
			assert.Equal(t, tc.code, code, tc.reason)
		})
	}
}

func TestCheck(t *testing.T) {
	named := func(kind, name string) string {
		return `{"spec":{"size":2,"classRef":{"apiVersion":"example.org/v1","kind":"` + kind + `","name":"` + name + `"}}}`
	}
	inNamespace := func(namespace, name string) string {
		return `{"spec":{"size":2,"classRef":{"apiVersion":"example.org/v1","kind":"RDSClass","namespace":"` + namespace + `","name":"` + name + `"}}}`
	}
	own := func(s *v1beta1.ClaimKindSpec) { s.Classes.Namespaces.From = v1beta1.FromSameAsClaim }
	fits := func(s *v1beta1.ClaimKindSpec) {
		s.Classes.Fits = []v1beta1.Fit{{Name: "Size", Expression: "class.metadata.name == 'gold' || claim.spec.size < 2", Message: "too small"}}
	}
	delayed := func(s *v1beta1.ClaimKindSpec) { s.Claims.When = "claim.spec.size > 5" }
	rebinds := func(s *v1beta1.ClaimKindSpec) { s.Claims.When = "claim.spec.classRef.name == 'default'" }
	for name, tc := range map[string]struct {
		reason  string
		kind    func(*v1beta1.ClaimKindSpec)
		request *admissionv1.AdmissionRequest
		want    string
		code    int32
		message string
	}{
		"There": {reason: "We should allow a class that the draw could give.", request: newRequest(named("SQLClass", "gold")), want: "MayHaveClass"},
		"NotThere": {
			reason:  "We should refuse a class that is not there.",
			request: newRequest(named("SQLClass", "lead")),
			want:    "NotFound",
			code:    http.StatusForbidden,
			message: `it names the class "SQLClass/lead", which is not there: name another class, or leave it out (classbind explain -f FILE --unbound lists`,
		},
		"New": {reason: "We should read a class that we do not know yet.", request: newRequest(named("SQLClass", "new")), want: "MayHaveClass"},
		"Cordoned": {
			reason:  "We should refuse a class that is cordoned.",
			request: newRequest(named("SQLClass", "closed")),
			want:    "Cordoned",
			code:    http.StatusForbidden,
			message: `which is cordoned`,
		},
		"Mended": {reason: "We should read a class again that may have been mended.", request: newRequest(named("SQLClass", "mended")), want: "MayHaveClass"},
		"Gone": {
			reason:  "We should not say of a class what it was.",
			request: newRequest(named("SQLClass", "gone")),
			want:    "NotFound",
			code:    http.StatusForbidden,
			message: "not there",
		},
		"Weightless": {
			reason:  "We should allow a class that only the draw does not give.",
			request: newRequest(named("SQLClass", "weightless")),
			want:    "MayHaveClass",
		},
		"OtherKind": {
			reason:  "We should refuse a class of another kind.",
			request: newRequest(named("Secret", "gold")),
			want:    "OtherKind",
			code:    http.StatusForbidden,
			message: `"Secret/gold", which is of a kind`,
		},
		"Offered": {reason: "We should allow a class that is offered to all namespaces.", request: newRequest(inNamespace("aws", "wide")), want: "MayHaveClass"},
		"NotOffered": {
			reason:  "We should refuse a class of another namespace.",
			kind:    own,
			request: newRequest(inNamespace("aws", "wide")),
			want:    "NotOffered",
			code:    http.StatusForbidden,
			message: "in a namespace whose classes",
		},
		"NotTold": {
			reason:  "We should not report whether it is there.",
			kind:    own,
			request: newRequest(inNamespace("aws", "none")),
			want:    "NotOffered",
			code:    http.StatusForbidden,
			message: "in a namespace whose classes",
		},
		"Fits": {reason: "We should allow a class that fits.", kind: fits, request: newRequest(named("SQLClass", "gold")), want: "MayHaveClass"},
		"Unfit": {
			reason:  "We should refuse a class that does not fit.",
			kind:    fits,
			request: newRequest(named("SQLClass", "silver")),
			want:    "Size",
			code:    http.StatusForbidden,
			message: "too small",
		},
		"Unnamed": {reason: "We should leave alone a claim that names no class.", request: newRequest(`{"spec":{"size":2}}`), want: "NotBound"},
		"Settled": {
			reason:  "We should leave alone a claim that is not ours.",
			request: newRequest(`{"spec":{"resourceRef":{},"classRef":{"name":"lead"}}}`),
			want:    "MayHaveClass",
		},
		"NotYet": {
			reason:  "We should leave alone a claim that is not ours yet.",
			kind:    delayed,
			request: newRequest(named("SQLClass", "lead")),
			want:    "MayHaveClass",
		},
		"NotDefault": {
			reason:  "We should check a reference that counts as one.",
			kind:    rebinds,
			request: newRequest(named("SQLClass", "lead")),
			want:    "NotFound",
			code:    http.StatusForbidden,
			message: "not there",
		},
		"Same": {
			reason:  "We should let an update pass that does not touch the reference, whatever became of the class.",
			request: newUpdate(named("SQLClass", "lead"), named("SQLClass", "lead")),
			want:    "SameReference",
		},
		"Changed": {
			reason:  "We should check a reference that an update changes.",
			request: newUpdate(named("SQLClass", "gold"), named("SQLClass", "lead")),
			want:    "NotFound",
			code:    http.StatusForbidden,
			message: "not there",
		},
		"First": {
			reason:  "We should check a reference that an update adds.",
			request: newUpdate(`{}`, named("SQLClass", "closed")),
			want:    "Cordoned",
			code:    http.StatusForbidden,
			message: "cordoned",
		},
		"SubResource": {
			reason:  "We should leave alone the status.",
			request: newRequest(named("SQLClass", "lead"), func(r *admissionv1.AdmissionRequest) { r.SubResource = "status" }),
			want:    "NotACreationOrUpdate",
		},
	} {
		t.Run(name, func(t *testing.T) {
			registration := newRegistration(func(s *v1beta1.ClaimKindSpec) { s.Reference.Explicit = v1beta1.CheckExplicit })
			if tc.kind != nil {
				tc.kind(&registration.Spec)
			}
			sql := newClassKindFor(registration)
			all := inventory.NewClasses(sql, []*inventory.Class{
				newNamed(sql, "gold"), newNamed(sql, "silver"), newNamed(sql, "closed", v1beta1.CordonedAnnotation, "true"),
				newNamed(sql, "weightless", "weight", "0"), newNamed(sql, "mended", v1beta1.CordonedAnnotation, "true"),
				newNamed(sql, "gone", v1beta1.CordonedAnnotation, "true"),
			})
			classes := []*inventory.Classes{all}
			if len(registration.Spec.Classes.Fits) == 0 { // The others are compiled for no expression.
				classes = append(classes, index(rdsClasses, "wide"))
			}
			b := newBinder(t, newInventory(selector.NewClaimKind(registration), classes...))
			b.Decider.Class = func(_ context.Context, _ string, kind *inventory.ClassKind, _, name string) (*inventory.Class, error) {
				switch name {
				case "new", "mended":
					return newNamed(kind, name), nil
				case "gone":
					return nil, nil
				}
				return all.Find("", name), nil
			}
			got, err := b.Check(at(t.Context(), claimKindName), tc.request)
			require.NoError(t, err, tc.reason)
			assert.Equal(t, tc.want, got.AuditAnnotations["reason"], tc.reason)
			assert.Equal(t, tc.code == 0, got.Allowed, tc.reason)
			assert.Empty(t, got.Patch, "A validating webhook changes nothing.")
			if tc.code != 0 {
				assert.Equal(t, tc.code, got.Result.Code, tc.reason)
				assert.Contains(t, got.Result.Message, tc.message, tc.reason)
			}
		})
	}
}

// newNamed is a class with annotations.
func newNamed(kind *inventory.ClassKind, name string, annotations ...string) *inventory.Class {
	m := &metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}
	for pair := range slices.Chunk(annotations, 2) {
		m.Annotations[pair[0]] = pair[len(pair)-1]
	}
	return kind.NewClass(m, map[string]any{"metadata": map[string]any{"name": name}})
}

// TestUnknownAnnotations has claims and classes with annotations of ours that nothing reads, or that something does.
func TestUnknownAnnotations(t *testing.T) {
	selected := newClaimKind(func(s *v1beta1.ClaimKindSpec) { s.Selector.Annotation = "classbind.io/my-selector" })
	kind := inventory.NewClassKind(&v1beta1.ClassKind{
		ObjectMeta: metav1.ObjectMeta{Name: sqlClasses.Name},
		Spec:       v1beta1.ClassKindSpec{ClaimKinds: []v1beta1.ClaimKindLink{{Name: claimKindName}}, Weight: v1beta1.Source{Annotation: "classbind.io/my-weight"}},
	}, sqlClasses.GroupVersionKind, false)
	b := newBinder(t, newInventory(selected, index(kind, "gold tier=gold")))
	for _, tc := range []struct{ annotations, want string }{
		{`"classbind.io/classselector":"a=b"`, `the annotation "classbind.io/classselector" means nothing to classbind: did you mean classbind.io/class-selector?`},
		{`"a":"b","classbind.io\\/wieght":"2"`, ""}, // An escape that is never written.
		{`"classbind.io/wieght":"2","classbind.io/what":""`, `the annotation "classbind.io/wieght" means nothing to classbind: did you mean classbind.io/weight?`},
		{`"classbind.io/what":{"classbind.io/x":1}`, `the annotation "classbind.io/what" means nothing to classbind`},
		{`"classbind.io/my-selector":"tier=gold"`, ""},
		{`"classbind.io/my-weight":"2"`, ""},
		{`"classbind.io/preset":"a@b"`, ""},
		{`"note":"classbind.io/x"`, ""},
		{`"example.org/classbind.io/x":""`, ""},
	} {
		request, got := newRequest(`{"metadata":{"annotations":{`+tc.annotations+`},"labels":{"classbind.io/y":""}},"spec":{"classbind.io/z":""}}`), ""
		for _, warning := range mustReview(t, byResource(b), request).Warnings {
			if strings.HasPrefix(warning, "the annotation ") {
				got += warning
			}
		}
		assert.Equal(t, tc.want, got, tc.annotations)
	}
	assert.Len(t, mustReview(
		t, newAPIServer().guard(newInventory(newClaimKind())).Review,
		newGuardRequest(sqlClasses, "", object("silver", `,"annotations":{"classbind.io/wieght":"2"}`, "")),
	).Warnings, 1, "We should warn of one on a class.")
	many, looked := newRequest(`{"metadata":{"annotations":{`+strings.Repeat(`"classbind.io/x":"",`, 1000)+`"classbind.io/x":""}}}`), 0
	warnUnknown(&admissionv1.AdmissionResponse{}, many, func(string) bool { looked++; return true })
	assert.Equal(t, maxLooked, looked, "We should look for a few, however many there are.")
	for _, key := range v1beta1.Annotations {
		request, response := newRequest(`{"metadata":{"annotations":{"`+key+`":""}}}`), &admissionv1.AdmissionResponse{}
		assert.Zero(t, testing.AllocsPerRun(10, func() {
			warnUnknown(response, request, func(key string) bool { return b.Snapshot().ReadsAnnotation(key) })
		}), key)
		assert.Empty(t, response.Warnings)
	}
}
