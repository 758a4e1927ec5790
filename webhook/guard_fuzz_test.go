package webhook

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/fields"
	"github.com/classbind/classbind/selector/fuzztest/cost"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/truncate"
	"github.com/classbind/classbind/webhook/onedefault"
)

// FuzzGuard posts any bytes to /guard, with 10,000 classes behind it.
func FuzzGuard(f *testing.F) {
	for _, c := range guardSeeds() {
		f.Add([]byte(c.review()))
	}
	if !cost.Fuzzing() {
		f.Add([]byte(strings.Replace(guardSeeds()[0].review(), `"object":{`, `"object":{"a":`+strings.Repeat("[", 5000)+strings.Repeat("]", 5000)+`,`, 1)))
		f.Add([]byte(strings.Replace(guardSeeds()[0].review(), `"object":{`, `"object":{"a":"`+strings.Repeat("<", 1<<20)+`",`, 1)))
	}
	api := newPlainAPI(largeWorld())
	fuzzBodies(f, api.guards.Review, api.reset)
}

// FuzzGuardClass puts what the author of a class chooses into a review. It measures the cost with 10,000 classes, and compares the answer
// for 60 classes with the reference.
func FuzzGuardClass(f *testing.F) {
	for _, c := range guardSeeds() {
		f.Add(c.name, c.namespace, c.mark, c.oldMark, c.weight, c.oldWeight, c.which)
	}
	if !cost.Fuzzing() {
		f.Add("a", "n", "true", "", strings.Repeat("<", 750<<10), "1", byte(0))
		f.Add("a", strings.Repeat("n", 750<<10), strings.Repeat("<", 750<<10), "", "", "", byte(1))
	}
	meter, large, small := cost.NewMeter(f), newPlainAPI(largeWorld()), newPlainAPI(smallWorld())
	crowd, few := newPost(large.guards.Review), newPost(small.guards.Review)
	f.Fuzz(func(t *testing.T, name, namespace, mark, oldMark, weight, oldWeight string, which byte) {
		c := fuzzedClass{name, namespace, mark, oldMark, weight, oldWeight, which}
		body := c.review()
		large.stored, small.stored = &c, &c
		meter.Measure(t, len(body), func() {
			large.reset()
			crowd.ask(body)
		}, name, namespace, mark, oldMark, weight, oldWeight, which)
		crowd.check(t, len(body))
		if t.Failed() {
			return
		}
		small.reset()
		few.ask(body)
		few.check(t, len(body))
		want := small.world.judge(c)
		if few.status != http.StatusOK {
			if want != "malformed" {
				t.Errorf("We should answer %q, and not refuse the review: %d %s", want, few.status, few.answers.body.String())
			}
			return
		}
		var review struct {
			Response struct {
				Allowed bool
				Status  struct{ Code int }
			}
		}
		require.NoError(t, json.Unmarshal(few.answers.body.Bytes(), &review))
		code := review.Response.Status.Code
		got := map[bool]string{true: "allowed", false: strconv.Itoa(code)}[review.Response.Allowed]
		if got != want {
			t.Errorf("We should answer %q, and not %q: %s for %s", want, got, few.answers.body.String(), body)
		}
		if len(small.held()) > 0 && (want != "allowed" || c.which&dryRun != 0) {
			t.Errorf("We should leave nothing in flight of what is not admitted, and not %v", small.All)
		}
	})
}

// fuzzedClass is what its author chooses.
type fuzzedClass struct {
	name, namespace   string
	mark, oldMark     string
	weight, oldWeight string
	// which class kind, and other choices.
	which byte
}

const (
	updated  = 1 << 3
	deleting = 1 << 4
	// raced by another write: the class to create is stored already, and the class to update has another version.
	raced = 1 << 7
)

func (c *fuzzedClass) classKind() string { return []string{"as", "bs", "cs"}[int(c.which&7)%3] }

// within is its namespace, empty for a cluster-scoped kind.
func (c *fuzzedClass) within() string {
	if c.classKind() != "cs" {
		return ""
	}
	return cmp.Or(valid(c.namespace), "n")
}

func (c *fuzzedClass) object(mark, weight string, version int) string {
	annotations := map[string]string{}
	if mark != "" {
		annotations["default"] = mark
	}
	if weight != "" {
		annotations["weight"] = weight
	}
	metadata := map[string]any{"name": c.name, "uid": "5e1f", "resourceVersion": strconv.Itoa(version), "annotations": annotations}
	if namespace := c.within(); namespace != "" {
		metadata["namespace"] = namespace
	}
	if c.which&deleting != 0 {
		metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
	}
	text, _ := json.Marshal(map[string]any{"metadata": metadata})
	return string(text)
}

func (c *fuzzedClass) review() string {
	operation, old := "CREATE", "null"
	if c.which&updated != 0 {
		operation, old = "UPDATE", c.object(c.oldMark, c.oldWeight, 10)
	}
	name, _ := json.Marshal(c.name)
	namespace, _ := json.Marshal(c.within())
	return fmt.Sprintf(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"5e1f","kind":{"group":%[1]q,"version":"v1","kind":%[2]q},`+
		`"resource":{"group":%[1]q,"version":"v1","resource":%[3]q},"name":%[4]s,"namespace":%[5]s,"operation":%[6]q,"dryRun":%[7]t,"object":%[8]s,`+
		`"oldObject":%[9]s}}`,
		worldGroup, strings.ToUpper(c.classKind()[:1]), c.classKind(), name, namespace, operation, c.which&dryRun != 0, c.object(c.mark, c.weight, 10), old)
}

func guardSeeds() []fuzzedClass {
	var seeds []fuzzedClass
	for _, which := range []byte{0, 1, 2, updated, updated | 2, deleting, dryRun, updated | dryRun, raced, raced | updated, raced | updated | dryRun} {
		seeds = append(seeds,
			fuzzedClass{name: "gold", namespace: "team-a", mark: "true", which: which},
			fuzzedClass{name: "gold", mark: "true", oldMark: "true", which: which},
			fuzzedClass{name: "gold", mark: "TRUE", weight: "7", which: which},
			fuzzedClass{name: "gold", weight: "much", oldWeight: "more", which: which},
			fuzzedClass{name: "gold", mark: "true", weight: "much", oldWeight: "much", which: which},
			fuzzedClass{name: "gold", weight: "+5", oldWeight: "-1", which: which},
			fuzzedClass{name: "gold", weight: "010", oldWeight: "10", which: which},
			fuzzedClass{name: "class-00001", mark: "true", which: which},
			fuzzedClass{name: "class-00001", namespace: "team-b", mark: "true", which: which},
			fuzzedClass{name: "gold", mark: "true", weight: strings.Repeat("m", 200), oldWeight: strings.Repeat("m", 201), which: which},
			fuzzedClass{name: "gold", mark: "true", weight: strings.Repeat("m", 4000), oldWeight: strings.Repeat("m", 201), which: which},
			fuzzedClass{name: "a/b", mark: "true", which: which},
			fuzzedClass{name: strings.Repeat("n", 254), mark: "true", which: which},
			fuzzedClass{name: "gold", namespace: "a.b", mark: "true", which: which},
			fuzzedClass{name: "", which: which})
	}
	return seeds
}

// named reports whether the API server could store a class of that name and namespace.
func (c *fuzzedClass) named() bool {
	name := valid(c.name)
	return name != "" && len(name) <= 253 && name != "." && name != ".." && !strings.ContainsAny(name, "/%") &&
		(c.within() == "" || len(validation.IsDNS1123Label(c.within())) == 0)
}

func badWeight(weight string) bool {
	n, err := strconv.Atoi(weight)
	return weight != "" && (err != nil || n < 0 || n > 1_000_000 || strconv.Itoa(n) != weight)
}

// sameWeight reports whether both look the same in an error: it shows the beginning of a long weight, and an even longer one is not read.
func sameWeight(a, b string) bool {
	if unread(a) || unread(b) {
		return unread(a) && unread(b)
	}
	return truncate.String(valid(a), v1beta1.MaxShownBytes) == truncate.String(valid(b), v1beta1.MaxShownBytes)
}

func unread(weight string) bool {
	quoted, _ := json.Marshal(weight)
	return len(quoted) > fields.EscapeFactor*v1beta1.MaxNameBytes+len(`""`)
}

// judge a class as docs/one-default.md says, slowly and obviously.
func (w *world) judge(c fuzzedClass) string {
	update := c.which&updated != 0
	switch {
	case !c.named():
		return "malformed"
	case c.which&deleting != 0:
		return "allowed"
	case badWeight(c.weight) && (!update || !badWeight(c.oldWeight) || !sameWeight(c.weight, c.oldWeight)):
		return "422"
	case c.mark != "true", update && c.oldMark == "true":
		return "allowed"
	}
	class := &plainClass{plural: c.classKind(), namespace: c.within(), name: valid(c.name)}
	taken, seats := false, 0
	for _, claimKind := range worldClaimKinds {
		seat := w.seat(claimKind, class)
		if seat == "" {
			continue
		}
		seats++
		taken = taken || slices.ContainsFunc(w.classes, func(other plainClass) bool {
			return other.isDefault && !other.terminating && !other.is(class) && w.seat(claimKind, &other) == seat
		})
	}
	switch {
	case seats == 0:
		return "allowed"
	case c.which&raced != 0, !update && slices.ContainsFunc(w.classes, func(other plainClass) bool { return other.is(class) }):
		return "409"
	case taken:
		return "403"
	}
	return "allowed"
}

// is reports whether both are the same class, by their names.
func (c *plainClass) is(other *plainClass) bool {
	return c.plural == other.plural && c.namespace == other.namespace && c.name == other.name
}

// seat of a class as a default, empty if no claim of the kind is offered it.
func (w *world) seat(claimKind string, c *plainClass) string {
	switch {
	case !w.offers(claimKind, c.namespace, c):
		return ""
	case w.from[claimKind] == "SameAsClaim":
		return "of namespace " + c.namespace
	}
	return "of all"
}

// plainAPI is an API server that stores the classes of a world, the reviewed class as it was, and Leases.
type plainAPI struct {
	*apiServer
	world  *world
	stored *fuzzedClass
	// classes of the world by kind, namespace and name
	classes map[[3]string]*plainClass
	guards  *Guard
}

func newPlainAPI(w *world) *plainAPI {
	p := &plainAPI{apiServer: newAPIServer(), world: w, classes: map[[3]string]*plainClass{}}
	for _, view := range w.inventory.Snapshot() {
		for _, classes := range view.Classes {
			p.kinds[classes.Kind.Name] = classes.Kind
		}
	}
	for i := range w.classes {
		c := &w.classes[i]
		p.classes[[3]string{c.plural + "." + worldGroup, c.namespace, c.name}] = c
	}
	p.guards = &Guard{
		Snapshot: p.world.inventory.Snapshot, Leases: p.apiServer, Sightings: onedefault.NewSightings(), // Without a Window, nothing waits.
		ClassKind: func(_ context.Context, name string) (*inventory.ClassKind, error) { return p.kinds[name], nil },
		ClaimKind: asClaimKind(false, nil),
		Namespace: func(context.Context, string) (bool, error) { return true, nil },
		Class:     p.class,
	}
	return p
}

// reset to the state before any review.
func (p *plainAPI) reset() {
	clear(p.All)
	p.Done = nil
	p.guards.Sightings = onedefault.NewSightings()
}

func (p *plainAPI) class(_ context.Context, kind *inventory.ClassKind, namespace, name string) (metav1.Object, *inventory.Class, error) {
	if c := p.stored; c != nil && kind.Name == c.classKind()+"."+worldGroup && name == valid(c.name) && namespace == c.within() {
		switch {
		case c.which&updated != 0 && c.which&raced != 0:
			return decodeClass(kind, "object", []byte(c.object(c.oldMark, c.oldWeight, 11)))
		case c.which&updated != 0:
			return decodeClass(kind, "object", []byte(c.object(c.oldMark, c.oldWeight, 10)))
		case c.which&raced != 0:
			return decodeClass(kind, "object", []byte(c.object(c.mark, c.weight, 10)))
		}
	}
	if c := p.classes[[3]string{kind.Name, namespace, name}]; c != nil {
		meta := c.meta()
		meta.UID, meta.ResourceVersion, meta.Labels = "u", "1", nil
		return meta, kind.NewClass(meta, nil), nil
	}
	return nil, nil, nil
}
