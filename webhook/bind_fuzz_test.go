package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/fuzztest/cost"
	"github.com/classbind/classbind/selector/fuzztest/reference"
)

// binder of a world. Its live reads find no class.
func (w *world) binder() *Binder {
	nothing := map[*selector.ClaimKind]*selector.View{}
	for _, view := range w.inventory.Snapshot() {
		nothing[view.Kind] = selector.NewView(view.Kind, nil)
	}
	b := &Binder{Snapshot: w.inventory.Snapshot, ClaimKind: asClaimKind(false, nil), Decider: &selector.Decider{Fresh: func() uint64 { return 1 }, Now: time.Now}}
	b.Decider.Live = func(_ context.Context, v *selector.View, _ claim.Claim) (*selector.View, error) {
		return nothing[v.Kind], nil
	}
	return b
}

// FuzzBind posts any bytes to /bind, with 10,000 classes behind it.
func FuzzBind(f *testing.F) {
	for _, c := range bindSeeds() {
		if body := c.review(); len(body) < 4<<10 || !cost.Fuzzing() {
			f.Add([]byte(body))
		}
	}
	for _, body := range []string{"", "null", "[]", `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":null}`, wholeReview, asUpdate(boundToGold, "{}")} {
		f.Add([]byte(body))
	}
	if !cost.Fuzzing() {
		f.Add(bytes.Repeat([]byte("["), 1<<20))
		f.Add([]byte(`{"kind":"` + strings.Repeat("<", 1<<20) + `"}`))
	}
	meter, w := cost.NewMeter(f), largeWorld()
	a := newPost(byResource(w.binder()))
	f.Fuzz(func(t *testing.T, body []byte) {
		text := string(body)
		meter.Measure(t, len(text), func() { a.ask(text) }, body)
		a.check(t, len(text))
		w.tally.Expire(time.Now().Add(time.Hour))
	})
}

// FuzzBindClaim puts what the author of a claim chooses into a review. It measures the
// cost with 10,000 classes, and compares the answer for 60 classes with the reference.
func FuzzBindClaim(f *testing.F) {
	for _, c := range bindSeeds() {
		if len(c.selector)+len(c.annotation) < 4<<10 || !cost.Fuzzing() {
			f.Add([]byte(c.selector), c.annotation, []byte(c.element), c.times, c.namespace, c.name, c.which)
		}
	}
	meter, large, small := cost.NewMeter(f), largeWorld(), smallWorld()
	crowd, few := newPost(byResource(large.binder())), newPost(byResource(small.binder()))
	f.Fuzz(func(t *testing.T, selector []byte, annotation string, element []byte, times byte, namespace, name string, which byte) {
		c := fuzzedClaim{string(selector), annotation, string(element), times, namespace, name, which}
		body := c.review()
		meter.Measure(t, len(body), func() { crowd.ask(body) }, selector, annotation, element, times, namespace, name, which)
		crowd.check(t, len(body))
		if t.Failed() {
			return
		}
		large.tally.Expire(time.Now().Add(time.Hour))
		small.tally.Expire(time.Now().Add(time.Hour))
		few.ask(body)
		few.check(t, len(body))
		if strings.Contains(c.selector+c.element, `\u`) {
			return // One decoder replaces half a surrogate, the other refuses it.
		}
		want := small.decide(c)
		if got := answered(t, few); !want.allows(got) {
			t.Errorf("We should decide as the reference does: want %v, got %v for %s", want, got, short(body))
		}
	})
}

// fuzzedClaim is what its author chooses.
type fuzzedClaim struct {
	// selector is JSON, or a program.
	selector   string
	annotation string
	// element of the selector's list, or else of the annotation, repeated by times.
	element string
	times   byte

	namespace, name string
	// which claim kind, and other choices.
	which byte
}

const (
	dryRun    = 1 << 5
	generated = 1 << 6
)

func (c *fuzzedClaim) claimKind() string { return worldClaimKinds[int(c.which)%len(worldClaimKinds)] }

// repeated is the element many times: authors can easily make texts long.
func (c *fuzzedClaim) repeated(separator string) string {
	const doubling, most = 240, 128 << 10
	n := 1
	if c.times > doubling {
		n = 1 << (c.times - doubling)
	}
	if most := most / (len(c.element) + 1); n > most {
		n = max(1, most)
	}
	return strings.Repeat(c.element+separator, n-1) + c.element
}

// object of the claim, as JSON.
func (c *fuzzedClaim) object() string {
	spec, metadata := "{}", map[string]any{"namespace": c.namespace}
	switch {
	case c.element == "" && c.selector != "":
		spec = `{"classSelector":` + reference.SelectorJSON(c.selector) + `}`
	case c.element != "" && c.selector != "":
		element := fuzzedClaim{element: reference.RequirementJSON(c.element), times: c.times}
		spec = `{"classSelector":{"matchExpressions":[` + element.repeated(",") + `]}}`
	case c.element != "":
		c.annotation = c.repeated("")
	}
	if c.annotation != "" {
		metadata["annotations"] = map[string]string{v1beta1.ClassSelectorAnnotation: c.annotation}
	}
	if c.which&generated != 0 {
		metadata["generateName"] = c.name
	} else {
		metadata["name"] = c.name
	}
	text, _ := json.Marshal(metadata)
	return `{"metadata":` + string(text) + `,"spec":` + spec + `}`
}

func (c *fuzzedClaim) review() string { return c.reviewOf(c.object()) }

// reviewOf another object than its own.
func (c *fuzzedClaim) reviewOf(object string) string {
	name := c.name
	if c.which&generated != 0 {
		name = ""
	}
	namespace, _ := json.Marshal(c.namespace)
	quoted, _ := json.Marshal(name)
	return fmt.Sprintf(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"5e1f","kind":{"group":%[1]q,"version":"v1","kind":"Claim"},`+
		`"resource":{"group":%[1]q,"version":"v1","resource":%[2]q},"name":%[3]s,"namespace":%[4]s,"operation":"CREATE","dryRun":%[5]t,"object":%[6]s}}`,
		worldGroup, c.claimKind(), quoted, namespace, c.which&dryRun != 0, object)
}

// bindSeeds are claims of every outcome, and known attacks.
func bindSeeds() []fuzzedClaim {
	list := func(n int, element string) string {
		return `{"matchExpressions":[` + strings.TrimSuffix(strings.Repeat(element+",", n), ",") + `]}`
	}
	var absent, unequal []string // Each key is another, and long.
	for i := range 64 {
		absent = append(absent, fmt.Sprintf(`{"key":"e%d","operator":"DoesNotExist"}`, i))
		unequal = append(unequal, fmt.Sprintf(`{"key":"%skey-9%02d","operator":"NotIn","values":["x"]}`, reference.LongPrefix, i))
	}
	var seeds []fuzzedClaim
	for which := range byte(len(worldClaimKinds)) { //nolint:gosec // There are few.
		seeds = append(seeds,
			fuzzedClaim{namespace: "team-a", name: "db", which: which},
			fuzzedClaim{selector: `{}`, namespace: "team-a", name: "db", which: which | dryRun},
			fuzzedClaim{selector: `{"matchLabels":{"a":"1","tier":"gold"}}`, namespace: "team-a", name: "db", which: which | generated},
			fuzzedClaim{annotation: "a in (1,2),b!=x,!c", namespace: "team-b", name: "db", which: which},
			fuzzedClaim{selector: "\x00\x01\x02", namespace: "n", name: "db", which: which},
		)
	}
	for _, selector := range []string{
		`null`, `[]`, `7`, `1e999`, `-0`, `"a=1"`, `{"matchLabels":null,"matchExpressions":null}`, `{"matchExpressions":[null]}`, `{"matchLabels":{"a":null}}`,
		`{"matchLabels":{"a":"1","a":"2"}}`, `{"matchLabels":{"a":"1"},"matchLabels":{"b":"2"}}`, `{"unknown":1}`, `{"matchLabels":{"a":1}}`,
		`{"matchExpressions":[{"key":"a","operator":"Foo"}]}`, `{"matchExpressions":[{"key":"a","operator":"In"}]}`, `{"matchExpressions":[{"key":"a","operator":"In","values":[null]}]}`,
		strings.Repeat("[", 5000) + strings.Repeat("]", 5000), strings.Repeat(`{"a":`, 9000) + "1" + strings.Repeat("}", 9000),
		list(4000, `{}`), list(3500, `{"key":"","operator":""}`), list(8000, `{"key":"a","operator":"DoesNotExist"}`), list(64, `{"key":"a","operator":"DoesNotExist"}`),
		list(2<<20/40, `{"key":"a","operator":"In","values":["1"]}`),
		`{"matchExpressions":[{"key":"a","operator":"In","values":["` + strings.Repeat(`1","`, 500_000) + `"]}]}`,
		list(1, strings.Join(absent, ",")), list(1, strings.Join(unequal, ",")), `{"matchLabels":{"a":"` + strings.Repeat(`\u003c`, 750<<10) + `"}}`,
		`{"matchLabels":{"a":"` + strings.Repeat("<", 750<<10) + `"}}`, `{"` + strings.Repeat("<", 750<<10) + `":1}`, `"` + strings.Repeat("<", 750<<10) + `"`,
	} {
		seeds = append(seeds, fuzzedClaim{selector: selector, namespace: "team-a", name: "db"})
	}
	for _, annotation := range []string{
		" ", "a", "!a", "a>1", "a==1,a=2", "a notin (", "\xff", "a=\u2028", strings.Repeat("!a,", 85_000) + "!a", "a in (" + strings.Repeat("1,", 100_000) + "2)",
		strings.Repeat("a=1,", 1<<19) + "b", strings.Repeat("!a,", 63) + "!a", reference.LongPrefix + "key-049", strings.Repeat("<", 750<<10),
	} {
		seeds = append(seeds, fuzzedClaim{annotation: annotation, namespace: "team-a", name: "db"})
	}
	for _, times := range []byte{0, 246, 250, 255} {
		seeds = append(seeds,
			fuzzedClaim{element: "!a,", times: times, namespace: "team-a", name: "db"},
			fuzzedClaim{selector: "{}", element: "{}", times: times, namespace: "team-a", name: "db"},
			fuzzedClaim{selector: "{}", element: "\x05\x03\x00", times: times, namespace: "team-a", name: "db", which: 3},
			fuzzedClaim{selector: "null", element: `{"key":"","operator":""}`, times: times, namespace: "team-a", name: "db"})
	}
	return append(seeds,
		fuzzedClaim{selector: `{}`, annotation: "a", namespace: "team-a", name: "db"},
		fuzzedClaim{selector: `{}`, namespace: strings.Repeat("n", 300), name: strings.Repeat("<", 300)},
		fuzzedClaim{namespace: strings.Repeat("\xff", 300), name: "db"},
		fuzzedClaim{namespace: "team-a", name: strings.Repeat("\xff", 300)},
		fuzzedClaim{namespace: "team-a", name: strings.Repeat("\xff", 300), which: generated},
		fuzzedClaim{annotation: "a in (" + strings.Repeat(",", 1500) + ")", namespace: "team-a", name: "db"})
}

func answered(t *testing.T, a *post) result {
	t.Helper()
	if a.status >= 400 {
		return result{refused: true}
	}
	var review struct {
		Response struct {
			Allowed          bool
			AuditAnnotations map[string]string
			Patch            []byte
			Status           struct{ Code int }
		}
	}
	require.NoError(t, json.Unmarshal(a.answers.body.Bytes(), &review))
	r := review.Response
	if !r.Allowed && (r.Status.Code < 400 || r.Status.Code >= 500) {
		t.Errorf("We should refuse a claim for what its author did: status %d", r.Status.Code)
	}
	if (r.AuditAnnotations["class"] == "") != (len(r.Patch) == 0) {
		t.Errorf("We should patch the claim that has a class %q, and no other: %s", r.AuditAnnotations["class"], r.Patch)
	}
	return result{refused: !r.Allowed, unmatched: !r.Allowed && r.Status.Code == 403, class: r.AuditAnnotations["class"]}
}
