package selector

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "k8s.io/apimachinery/pkg/util/json"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/fields"
	"github.com/classbind/classbind/selector/inventory"
)

// expressive is a world with expressions: one claim kind, one class kind and its classes.
type expressive struct {
	claims  *v1beta1.ClaimKind
	kind    *v1beta1.ClassKind
	classes []map[string]any
	// indexed reports whether the index has all classes. Otherwise, the last changed after it was made.
	indexed bool
}

func newExpressive(change func(*v1beta1.ClaimKindSpec, *v1beta1.ClassKindSpec)) *expressive {
	e := &expressive{claims: postgres(), kind: &v1beta1.ClassKind{
		ObjectMeta: metav1.ObjectMeta{Name: "pools.example.org"},
		Spec: v1beta1.ClassKindSpec{
			ClaimKinds: []v1beta1.ClaimKindLink{{Name: postgres().Name}},
			Default:    v1beta1.Source{Annotation: "example.org/default"},
			Weight:     v1beta1.Source{Annotation: "example.org/weight"},
		},
	}}
	change(&e.claims.Spec, &e.kind.Spec)
	return e
}

// with adds a class with this spec.
func (e *expressive) with(name string, spec map[string]any, annotations ...string) *expressive {
	metadata := map[string]any{"name": name, "labels": map[string]any{"all": "yes"}}
	if len(annotations) > 0 {
		all := map[string]any{}
		for pair := range slices.Chunk(annotations, 2) {
			all[pair[0]] = pair[1]
		}
		metadata["annotations"] = all
	}
	e.classes = append(e.classes, map[string]any{"metadata": metadata, "spec": spec})
	return e
}

func (e *expressive) withMany(n int, name string, spec map[string]any) {
	for i := range n {
		e.with(fmt.Sprintf(name, i), spec)
	}
}

func (e *expressive) view() *View {
	kind := inventory.NewClassKind(e.kind, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Pool"}, false, e.claims)
	classes := inventory.NewClasses(kind, nil)
	for _, content := range e.classes {
		metadata := content["metadata"].(map[string]any)
		meta := &metav1.ObjectMeta{Name: metadata["name"].(string), Labels: map[string]string{"all": "yes"}, Annotations: map[string]string{}}
		annotations, _ := metadata["annotations"].(map[string]any)
		for key, value := range annotations {
			meta.Annotations[key] = value.(string)
		}
		classes = classes.With(kind.NewClass(meta, content))
	}
	if e.indexed {
		classes = inventory.NewClasses(kind, classes.All())
	}
	return NewView(NewClaimKind(e.claims, e.kind), []*inventory.Classes{classes})
}

// decide on a claim with this spec.
func (e *expressive) decide(t *testing.T, spec map[string]any) (Decision, error) {
	t.Helper()
	view := e.view()
	in := view.Kind.Reader.Read("team", "db", map[string]any{
		"kind": "PostgreSQLInstance", "metadata": map[string]any{"name": "db", "namespace": "team"}, "spec": spec,
	})
	return new(Decider).Decide(t.Context(), view, in, Mode{})
}

func (e *expressive) decided(t *testing.T, spec map[string]any) Decision {
	t.Helper()
	d, err := e.decide(t, spec)
	require.NoError(t, err)
	return d
}

func all(spec map[string]any) map[string]any {
	spec["classSelector"] = map[string]any{"matchLabels": map[string]any{"all": "yes"}}
	return spec
}

func TestFits(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		change func(*v1beta1.ClaimKindSpec, *v1beta1.ClassKindSpec)
		claim  map[string]any
		// class that the claim gets, empty for none, and why none.
		class, dropped, problem string
		candidates              int
	}{
		"Equality": {
			reason:     "We should give the class that equals",
			change:     fits("class.spec.driver == claim.spec.driver"),
			claim:      all(map[string]any{"driver": "b"}),
			class:      "Pool/b",
			candidates: 1,
		},
		"EqualityMirrored": {
			reason:     "We should read an equality in both directions",
			change:     fits("claim.spec.size == class.spec.size"),
			claim:      all(map[string]any{"size": float64(2)}),
			class:      "Pool/b",
			candidates: 1,
		},
		"EqualityInWhole": {
			reason: "We should read an equality in a field that another expression needs as a whole",
			change: fits("class.spec.driver == claim.spec.driver", "class.spec.size() >= claim.spec.least"),
			claim:  all(map[string]any{"driver": "b", "least": int64(1)}), class: "Pool/b", candidates: 1,
		},
		"EqualityOfAbsent": {
			reason:  "We should give none if the claim's side fails",
			change:  fits("class.spec.driver == claim.spec.driver"),
			claim:   all(map[string]any{}),
			dropped: "ExpressionError=3",
		},
		"Class": {
			reason:     "We should not know a class that serves no claim",
			change:     fits("class.spec.driver != 'a' && class.spec.size > 0"),
			claim:      all(map[string]any{}),
			class:      "Pool/b",
			candidates: 1,
		},
		"Claim": {
			reason:  "We should drop all classes for what is said of the claim",
			change:  fits("claim.spec.size > 3"),
			claim:   all(map[string]any{"size": int64(1)}),
			dropped: "FitA=3",
		},
		"ClaimFails": {
			reason:  "We should refuse a claim about which an expression fails",
			change:  fits("claim.spec.size > 3"),
			claim:   all(map[string]any{}),
			problem: "spec.size: Invalid value: the expression spec.classes.fits[FitA].expression of claim kind",
		},
		"Both": {
			reason:     "We should compare claim and class",
			change:     fits("claim.spec.size <= class.spec.size"),
			claim:      all(map[string]any{"size": int64(2)}),
			class:      "Pool/b",
			candidates: 1,
			dropped:    "ExpressionError=1,FitA=1",
		},
		"Division": {
			reason:     "We should drop a class for which an expression fails",
			change:     fits("10 / (class.spec.size - claim.spec.size) > 0"),
			claim:      all(map[string]any{"size": int64(1)}),
			class:      "Pool/b",
			candidates: 1,
			dropped:    "ExpressionError=2",
		},
		"MapForList": {
			reason:  "We should drop what has another type",
			change:  fits("class.spec.size in claim.spec.sizes"),
			claim:   all(map[string]any{"sizes": "none"}),
			dropped: "ExpressionError=3",
		},
		"OfClassKind": {
			reason:     "We should heed the fits of the class kind",
			change:     specs(`{}`, `{fits: [{name: "Driver", expression: "class.spec.driver == claim.spec.driver && class.spec.size > 0"}]}`),
			claim:      all(map[string]any{"driver": "b"}),
			class:      "Pool/b",
			candidates: 1,
		},
		"OfferWhen": {
			reason:     "We should not offer what the class kind does not",
			change:     specs(`{}`, `{offerWhen: "class.spec.size > 1"}`),
			claim:      all(map[string]any{}),
			class:      "Pool/b",
			candidates: 1,
			dropped:    "NotOffered=2",
		},
		"LowestScore": {
			reason: "We should give the cheapest, and none without a price",
			change: specs(`{choice: {strategy: LowestScore, score: "class.spec.size * claim.spec.nodes"}}`, `{}`),
			claim:  all(map[string]any{"nodes": int64(3)}), class: "Pool/a", candidates: 2, dropped: "NoScore=1",
		},
		"HighestScore": {
			reason:     "We should give the best",
			change:     specs(`{choice: {strategy: HighestScore, score: "double(class.spec.size) - 10.5"}}`, `{}`),
			claim:      all(map[string]any{}),
			class:      "Pool/b",
			candidates: 2,
			dropped:    "NoScore=1",
		},
		"Selector": {
			reason: "We should take the selector of an expression",
			change: specs(`{selector: {expression: "'all=' + claim.spec.all"}, classes: {fits: [{name: "B", expression: "class.spec.driver == 'b'"}]}}`, `{}`),
			claim:  map[string]any{"all": "yes"}, class: "Pool/b", candidates: 1,
		},
		"SelectorMap": {
			reason: "We should take a map of labels, too",
			change: specs(`{selector: {expression: "{'all': claim.spec.all}"}, classes: {fits: [{name: "B", expression: "class.spec.driver == 'b'"}]}}`, `{}`),
			claim:  map[string]any{"all": "yes"}, class: "Pool/b", candidates: 1,
		},
		"SelectorMalformed": {
			reason:  "We should refuse a claim whose selector is none",
			change:  specs(`{selector: {expression: "claim.spec.all"}}`, `{}`),
			claim:   map[string]any{"all": "a=b="},
			problem: "spec.selector.expression",
		},
		"SelectorMalformedOrNone": {
			reason:  "We should not take a malformed selector for none",
			change:  specs(`{selector: {expression: "claim.spec.all", whenAbsent: LeaveAlone}}`, `{}`),
			claim:   map[string]any{"all": "a=b="},
			problem: "spec.selector.expression",
		},
		"TooLong": {
			reason:  "We should refuse a claim with a field that is too long",
			change:  fits("class.spec.driver == claim.spec.driver"),
			claim:   all(map[string]any{"driver": fields.LongText{Length: 1 << 20}}),
			problem: "spec.driver: Too long",
		},
	} {
		t.Run(name, func(t *testing.T) {
			world := newExpressive(tc.change).with("a", map[string]any{"driver": "a", "size": int64(1)}).
				with("b", map[string]any{"driver": "b", "size": int64(2)}).with("c", map[string]any{"driver": "c"})
			for _, world.indexed = range []bool{false, true} {
				require.Nil(t, world.view().Fault)
				d := world.decided(t, tc.claim)
				if tc.problem != "" {
					require.NotEmpty(t, d.Claim.Problems, tc.reason)
					assert.Contains(t, d.Claim.Problems[0].Error(), tc.problem, tc.reason)
					assert.Empty(t, d.Claim.LeftAlone, tc.reason)
					continue
				}
				require.Empty(t, d.Claim.Problems, tc.reason)
				assert.Equal(t, tc.class, nameOf(d.Class), tc.reason)
				assert.Equal(t, tc.candidates, d.Candidates, tc.reason)
				assert.Equal(t, tc.dropped, d.DroppedText(), tc.reason)
			}
		})
	}
}

func TestDefaultsOfPartitions(t *testing.T) {
	const mark = "example.org/default"
	world := newExpressive(func(s *v1beta1.ClaimKindSpec, _ *v1beta1.ClassKindSpec) {
		s.Classes.Partition = &v1beta1.Partition{
			Claim: "has(claim.spec.tenant) ? claim.spec.tenant : ''",
			Class: "has(class.spec.tenant) ? class.spec.tenant : ''",
		}
		s.Classes.Fits = []v1beta1.Fit{{Name: "Kind", Expression: "!has(class.spec.of) || class.spec.of == 'Postgres'"}}
	}).
		with("a", map[string]any{"tenant": "a"}, mark, "true").
		with("b", map[string]any{"tenant": "b"}, mark, "true").
		with("rest", map[string]any{}, mark, "true").
		with("other", map[string]any{"of": "Bucket", "tenant": "a"}, mark, "true").
		with("broken", map[string]any{"tenant": int64(1)}, mark, "true")
	for tenant, want := range map[string]string{"a": "Pool/a", "b": "Pool/b", "c": "Pool/rest", "": "Pool/rest"} {
		for _, world.indexed = range []bool{false, true} {
			d := world.decided(t, map[string]any{"tenant": tenant})
			require.NotNil(t, d.Class, "tenant %q: %s", tenant, d.Warning())
			assert.Equal(t, want, d.Class.String(), "We should give the default of the partition (%q)", tenant)
			assert.Equal(t, 1, d.Candidates)
		}
	}
	view := world.view()
	bySeat := view.DefaultsBySeat()
	for partition, want := range map[string]string{"a": "Pool/a", "b": "Pool/b", "": "Pool/rest"} {
		classes := bySeat[inventory.Seat{ClaimKind: view.Kind.Name, Partition: partition}]
		require.Len(t, classes, 1, "We should keep the seats of partitions apart (%q)", partition)
		assert.Equal(t, want, classes[0].String())
		assert.Equal(t, classes, view.DefaultsOf(inventory.Seat{ClaimKind: view.Kind.Name, Partition: partition}))
	}
}

// TestDefaultOfAConstantPartition has a partition that looks at nothing in a class.
func TestDefaultOfAConstantPartition(t *testing.T) {
	world := newExpressive(specs(`{classes: {partition: {claim: "'a'", class: "'a'"}}}`, `{}`)).with("a", nil, "example.org/default", "true")
	for _, world.indexed = range []bool{false, true} {
		d := world.decided(t, nil)
		require.NotNil(t, d.Class, d.Warning())
		assert.Len(t, d.View.DefaultsOf(inventory.Seat{ClaimKind: d.View.Kind.Name, Partition: "a"}), 1, "The guard should know the default.")
	}
}

func TestBindWhen(t *testing.T) {
	const decided = "claim.spec.classRef.name == 'default'"
	for name, tc := range map[string]struct {
		reason, expression string
		spec               map[string]any
		leftAlone, problem string
	}{
		"True":    {"We should bind when it is true", "claim.spec.ready", map[string]any{"ready": true}, "", ""},
		"False":   {"We should wait while it is false", "claim.spec.ready", map[string]any{"ready": false}, claim.NotYet, ""},
		"Fails":   {"We should refuse what it fails for", "claim.spec.ready", map[string]any{}, "", "no such key"},
		"Bound":   {"We should leave a bound claim alone", "true || claim.spec.ready", map[string]any{"classRef": map[string]any{"name": "a"}}, claim.Settled, ""},
		"Decided": {"We should bind what has the default of its schema", decided, map[string]any{"classRef": map[string]any{"name": "default"}}, "", ""},
		"Replaced": {
			"We should not ask for what the default of the schema says", decided,
			map[string]any{"classRef": map[string]any{"kind": "Other", "name": "default"}},
			"", "",
		},
		"Other":     {"We should keep the reference of an author", decided, map[string]any{"classRef": map[string]any{"name": "own"}}, claim.NotYet, ""},
		"Elsewhere": {"We should leave alone what is settled otherwise", decided, map[string]any{"resourceRef": map[string]any{"name": "x"}}, claim.Settled, ""},
	} {
		t.Run(name, func(t *testing.T) {
			world := newExpressive(func(s *v1beta1.ClaimKindSpec, _ *v1beta1.ClassKindSpec) {
				s.Claims.When = v1beta1.Expression(tc.expression)
			}).
				with("a", map[string]any{})
			if tc.leftAlone != claim.Settled {
				tc.spec = all(tc.spec)
			}
			d := world.decided(t, tc.spec)
			assert.Equal(t, tc.leftAlone, d.Claim.LeftAlone, tc.reason)
			if tc.problem != "" {
				require.NotEmpty(t, d.Claim.Problems, tc.reason)
				assert.Contains(t, d.Claim.Problems[0].Error(), tc.problem, tc.reason)
				return
			}
			assert.Equal(t, tc.leftAlone == "", d.Class != nil, tc.reason)
		})
	}
}

// TestReplacedReference replaces the default of a schema by the reference to a class that has
// no namespace, and whose group is that of the core.
func TestReplacedReference(t *testing.T) {
	for form, want := range map[v1beta1.ReferenceForm]string{
		v1beta1.NamespacedReference:  `{"name":"a","more":1,"apiGroup":"other"}`,
		v1beta1.TypedObjectReference: `{"kind":"Pool","name":"a","more":1}`,
	} {
		world := newExpressive(func(s *v1beta1.ClaimKindSpec, _ *v1beta1.ClassKindSpec) {
			s.Claims.When, s.Reference.Form = "claim.spec.classRef.name == 'default'", form
		}).with("a", map[string]any{})
		reference := map[string]any{"namespace": "other", "name": "default", "more": int64(1), "apiGroup": "other"}
		spec := all(map[string]any{"classRef": reference})
		d := world.decided(t, spec)
		d.Class.Kind.GroupVersionKind.Group = ""
		patch, err := jsonpatch.DecodePatch(d.Patch())
		require.NoError(t, err)
		object, err := json.Marshal(map[string]any{"spec": spec})
		require.NoError(t, err)
		object, err = patch.Apply(object)
		require.NoError(t, err)
		var got struct {
			Spec struct{ ClassRef json.RawMessage }
		}
		require.NoError(t, json.Unmarshal(object, &got))
		assert.JSONEq(t, want, string(got.Spec.ClassRef), "We should leave nothing of another reference (%s)", form)
	}
}

// TestReviewedAsStored has hostile classes take the same seat when they are reviewed, stored
// and watched. Otherwise they would become default beside another.
func TestReviewedAsStored(t *testing.T) {
	claims := postgres()
	class := func(metadata, rest string) string {
		return `{"apiVersion":"example.org/v1","kind":"Pool","metadata":{"name":"a","uid":"1","resourceVersion":"7",` +
			`"annotations":{"default":"true"` + metadata + `}}` + rest + `}`
	}
	nested := strings.Repeat(`{"a":`, 60) + `"zone"` + strings.Repeat("}", 60)
	var manyLabels strings.Builder
	for i := range v1beta1.MaxClassLabels + 10 {
		fmt.Fprintf(&manyLabels, `"l%d":"",`, i)
	}
	objects := map[string]string{
		"Plain":        class("", `,"spec":{"zone":"a","more":{"zone":"a"}}`),
		"Escaped":      class("", `,"spec":{"zone":"`+strings.Repeat(`\u003c`, 5000)+`"}`),
		"JustLong":     class("", `,"spec":{"zone":"`+strings.Repeat(`z`, 16<<10-20)+`"}`),
		"TooLong":      class("", `,"spec":{"zone":"`+strings.Repeat(`z`, 16<<10)+`"}`),
		"MuchTooLong":  class("", `,"spec":{"zone":"`+strings.Repeat(`z`, 200<<10)+`"}`),
		"LongBeside":   class(`,"z":"`+strings.Repeat("z", 200<<10)+`"`, `,"spec":{"zone":"a","more":"`+strings.Repeat(`z`, 200<<10)+`"}`),
		"Nested":       class("", `,"spec":{"zone":"a","more":`+nested+`}`),
		"NestedLists":  class("", `,"spec":{"zone":"a","more":`+strings.Repeat("[", 60)+`"zone"`+strings.Repeat("]", 60)+`}`),
		"ListInTheWay": class("", `,"spec":[{"zone":"a"}]`),
		"TextInTheWay": class("", `,"spec":"zone"`),
		"NullInTheWay": class("", `,"spec":null`),
		"Null":         class("", `,"spec":{"zone":null}`),
		"Number":       class("", `,"spec":{"zone":1,"more":[1.5,9223372036854775808,-0,1e300]}`),
		"Absent":       class("", ``),
		"Labelled":     `{"metadata":{"name":"a","annotations":{"default":"true"},"labels":{"zone":"a"}}}`,
		"ManyLabels": `{"metadata":{"name":"a","annotations":{"default":"true"},"labels":{` +
			manyLabels.String() + `"zone":"a"}}}`,
		"Annotated": class(`,"zone":"`+strings.Repeat(`\u003c`, 50)+`"`, ``),
	}
	for name, tc := range map[string]struct{ partition, fit v1beta1.Expression }{
		"Field":       {partition: "class.spec.zone"},
		"Whole":       {partition: "class.spec.exists(k, k == 'zone') ? class.spec.zone : ''"},
		"Deep":        {partition: "(type(class.spec.more) == map ? 'map' : '') + class.spec.zone"},
		"Fit":         {partition: "''", fit: "has(class.spec.more) || class.spec.zone == 'a'"},
		"Optional":    {partition: "class.?spec.?zone.orValue('none')"},
		"Annotations": {partition: "class.metadata.annotations.exists(k, k == 'zone') ? class.metadata.annotations.zone : 'none'"},
		"Label":       {partition: "class.metadata.labels.?zone.orValue('none')"},
		"Annotation":  {partition: "class.metadata.annotations.?zone.orValue('')"},
		"Metadata":    {partition: "class.metadata.?uid.orValue('') + class.metadata.name + class.kind"},
	} {
		t.Run(name, func(t *testing.T) {
			claims.Spec.Classes.Partition, claims.Spec.Classes.Fits = &v1beta1.Partition{Claim: "''", Class: tc.partition}, nil
			if tc.fit != "" {
				claims.Spec.Classes.Fits = []v1beta1.Fit{{Name: "Fit", Expression: tc.fit}}
			}
			k := &v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: "pools.example.org"}, Spec: v1beta1.ClassKindSpec{
				ClaimKinds: []v1beta1.ClaimKindLink{{Name: claims.Name}}, Default: v1beta1.Source{Annotation: "default"}, Weight: v1beta1.Source{Annotation: "weight"},
			}}
			kind := inventory.NewClassKind(k, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Pool"}, false, claims)
			claimKind := NewClaimKind(claims, k)
			require.Nil(t, NewClaimKind(claims).fault)
			told := 0
			for what, text := range objects {
				_, reviewed, err := kind.DecodeValid([]byte(text))
				require.NoError(t, err, what)
				u := &unstructured.Unstructured{}
				require.NoError(t, kjson.Unmarshal([]byte(text), &u.Object), what)
				content := u.Object
				if kind.MetadataOnly() {
					content = nil
				}
				stored := kind.NewClass(u, content)
				require.True(t, reviewed.Default, "%s: We should see the mark, whatever is beside it.", what)
				require.True(t, stored.Default, what)
				want, offered, err := claimKind.Demand.SeatOf(stored)
				got, reviewedOffered, reviewedErr := claimKind.Demand.SeatOf(reviewed)
				assert.Equal(t, want, got, "%s: We should find the seat that the class will have.", what)
				assert.Equal(t, offered, reviewedOffered, what)
				assert.Equal(t, err == nil, reviewedErr == nil, "%s: %v, %v", what, err, reviewedErr)
				if err == nil && offered {
					told++
				}
			}
			assert.Positive(t, told, "We should try classes that have a seat.")
		})
	}
}

// TestStatusSeatsNobody because an update of the status is not guarded.
func TestStatusSeatsNobody(t *testing.T) {
	e := newExpressive(specs(`{classes: {fits: [{name: "Accepted", expression: "class.status.accepted && class.spec.size > 0"}]}}`, `{}`))
	view := e.with("a", map[string]any{"size": int64(1)}).view()
	class := view.Classes[0].All()[0]
	_, offered, err := view.Kind.Demand.SeatOf(class)
	require.NoError(t, err)
	assert.True(t, offered, "We should keep the seat for a class whose status may change unseen.")

	e.claims.Spec.Classes.Partition = &v1beta1.Partition{Claim: "''", Class: "class.status.zone"}
	fault := NewClaimKind(e.claims).fault
	require.NotNil(t, fault)
	assert.Equal(t, v1beta1.ReasonInvalidExpression, fault.Reason)
	assert.Contains(t, fault.Text, "spec.classes.partition.class: line 1, column 1: must not look at class.status")
	_, err = e.decide(t, map[string]any{})
	require.EqualError(t, err, fault.Text, "We should decide nothing by an invalid expression.")
}

// TestServingClasses proves that an inventory, which looks at what changes alone, has the
// classes and the decisions of a view that is made again, and finds what a scan finds.
func TestServingClasses(t *testing.T) {
	const mark = "example.org/default"
	e := newExpressive(func(s *v1beta1.ClaimKindSpec, k *v1beta1.ClassKindSpec) {
		s.Classes.Fits = []v1beta1.Fit{
			{Name: "Serves", Expression: "class.spec.size > 1"},
			{Name: "Driver", Expression: "class.spec.driver == claim.spec.driver && class.spec.size <= claim.spec.most"},
		}
		s.Classes.Partition = &v1beta1.Partition{Claim: "claim.spec.driver", Class: "class.spec.driver"}
		k.OfferWhen = "class.spec.size != 3"
	})
	plain := postgres()
	plain.Name, plain.Spec.Claims.Resource = "plain.example.org", "plain.example.org"
	e.kind.Spec.ClaimKinds = append(e.kind.Spec.ClaimKinds, v1beta1.ClaimKindLink{Name: plain.Name})
	kind := inventory.NewClassKind(e.kind, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Pool"}, false, e.claims, plain)
	r := rand.New(rand.NewPCG(17, 1)) //nolint:gosec // It has to be reproducible.
	specs := map[*inventory.Class]map[string]any{}
	class := func() *inventory.Class {
		spec := map[string]any{"driver": string("abc"[r.IntN(3)])}
		if r.IntN(8) > 0 {
			spec["size"] = int64(r.IntN(5))
		}
		meta := &metav1.ObjectMeta{Name: fmt.Sprintf("class-%d", r.IntN(20)), Labels: map[string]string{"all": "yes"}}
		if r.IntN(3) == 0 {
			meta.Annotations = map[string]string{mark: "true"}
		}
		c := kind.NewClass(meta, map[string]any{"spec": spec})
		specs[c] = spec
		return c
	}
	// scan counts the classes that fit a claim, each by itself.
	scan := func(classes *inventory.Classes, claim map[string]any) (count int) {
		for _, c := range classes.All() {
			size, has := specs[c]["size"].(int64)
			if has && size > 1 && size != 3 && size <= claim["most"].(int64) && specs[c]["driver"] == claim["driver"] {
				count++
			}
		}
		return count
	}
	i := NewInventory()
	i.SetClaimKind(NewClaimKind(e.claims, e.kind))
	i.SetClaimKind(NewClaimKind(plain, e.kind))
	i.Open()
	classes := inventory.NewClasses(kind, nil)
	for step := range 2000 {
		c := class()
		if r.IntN(4) == 0 {
			classes = classes.Without("", c.Name)
		} else {
			classes = classes.With(c)
		}
		i.ChangeClass(classes, "", c.Name)
		assert.Equal(t, classes.All(), i.Snapshot()[plain.Name].Classes[0].All(), "We should keep others' classes apart (%d)", step)
		view := i.Snapshot()[e.claims.Name]
		fresh := NewView(view.Kind, []*inventory.Classes{classes})
		require.Equal(t, fresh.Classes[0].All(), view.Classes[0].All(), "We should serve the same classes (%d)", step)
		require.Equal(t, fresh.DefaultsBySeat(), view.DefaultsBySeat(), "We should have the same defaults (%d)", step)
		for seat, defaults := range fresh.DefaultsBySeat() {
			require.Equal(t, defaults, view.DefaultsOf(seat), "We should find the defaults of a partition (%d)", step)
		}
		spec := map[string]any{"driver": string("abc"[r.IntN(3)]), "most": int64(r.IntN(5))}
		asks := r.IntN(2) == 0
		if asks {
			spec = all(spec)
		}
		object := map[string]any{"metadata": map[string]any{"name": "db"}, "spec": spec}
		var texts [2]string
		for n, v := range []*View{view, fresh} {
			d := decided(t, new(Decider), v, v.Kind.Reader.Read("team", "db", object), Mode{})
			texts[n] = fmt.Sprint(d.Class, d.Candidates, d.DroppedText(), d.Warning(), d.Reason())
			if asks {
				require.Equal(t, scan(classes, spec), d.Candidates, "We should find what a scan finds (%d)", step)
			}
		}
		require.Equal(t, texts[1], texts[0], "We should decide the same (%d)", step)
	}
}

// TestBudget proves who pays for expressions that cost too much.
func TestBudget(t *testing.T) {
	numbers := make([]any, 200)
	for i := range numbers {
		numbers[i] = int64(i)
	}
	const costly = "claim.spec.n.all(a, claim.spec.n.all(b, claim.spec.n.all(c, a + b + c < 1000)))"
	refused := map[string]struct {
		reason  string
		world   *expressive
		classes int
	}{
		"OneEvaluation": {
			"We should refuse a claim that makes a class costly",
			newExpressive(fits("claim.spec.n.all(a, claim.spec.n.all(b, a + b < class.spec.size))")), 1,
		},
		"Many": {
			"We should refuse a claim that makes many classes costly together",
			newExpressive(fits("claim.spec.n.all(a, a > class.spec.size || a < 100)")), 5000,
		},
		"Claim": {"We should refuse a claim that is costly itself", newExpressive(fits(costly)), 1},
		"ClassKind": {
			"We should do so for an expression of a class kind, too",
			newExpressive(specs(`{}`, `{fits: [{name: Costly, expression: "`+costly+`"}]}`)), 1,
		},
		"Score": {
			"We should refuse a claim that makes scores costly",
			newExpressive(specs(`{choice: {strategy: LowestScore, score: "claim.spec.n.filter(a, a < class.spec.size).size()"}}`, `{}`)), 5000,
		},
		"BindWhen": {"We should refuse it as soon as it is read", newExpressive(specs(`{claims: {when: "`+costly+`"}}`, `{}`)), 1},
	}
	for name, tc := range refused {
		t.Run(name, func(t *testing.T) {
			tc.world.withMany(tc.classes, "class-%d", map[string]any{"size": int64(1000)})
			view := tc.world.view()
			d := &Decider{Waits: NewInventory().Waits}
			in := view.Kind.Reader.Read("team", "db", map[string]any{"spec": all(map[string]any{"n": numbers})})
			got := decided(t, d, view, in, Mode{})
			require.Len(t, got.Claim.Problems, 1, tc.reason)
			assert.Equal(t, "spec.n", got.Claim.Problems[0].Field, "We should name the long field.")
			assert.Nil(t, got.Class)
			assert.Equal(t, NotWaited, got.Waited, "We should not wait for classes for a claim that is refused.")
		})
	}
	t.Run("DrawnAmongMany", func(t *testing.T) {
		world, cheap := newExpressive(fits("claim.spec.n.all(a, a < class.spec.size)")), newExpressive(fits("true"))
		for i := range 1000 {
			size := int64(1000)
			if i%2 == 0 {
				size = 0
			}
			world.with(fmt.Sprintf("class-%d", i), map[string]any{"size": size})
			if size > 0 {
				cheap.with(fmt.Sprintf("class-%d", i), map[string]any{"size": size})
			}
		}
		view := world.view()
		for i := range 20 {
			name := fmt.Sprintf("db-%d", i)
			object := func() map[string]any { return map[string]any{"spec": all(map[string]any{"n": numbers})} }
			got := decided(t, new(Decider), view, view.Kind.Reader.Read("team", name, object()), Mode{})
			other := cheap.view()
			want := decided(t, new(Decider), other, other.Kind.Reader.Read("team", name, object()), Mode{})
			require.NotNil(t, got.Class)
			assert.Equal(t, want.Class.Name, got.Class.Name, "We should draw the class that is drawn without a limit.")
			assert.Positive(t, got.Skipped, "We should not judge the classes that cannot be drawn.")
		}
	})
	t.Run("CostlyClasses", func(t *testing.T) {
		const count = 1000
		for name, change := range map[string]func(*v1beta1.ClaimKindSpec, *v1beta1.ClassKindSpec){
			"Draw":  fits("class.spec.n.all(a, class.spec.n.all(b, a + b < claim.spec.size))"),
			"Score": specs(`{choice: {strategy: LowestScore, score: "class.spec.n.map(a, class.spec.n.map(b, a + b + claim.spec.size)).size()"}}`, `{}`),
		} {
			world := newExpressive(change)
			world.withMany(count, "costly-%d", map[string]any{"n": numbers})
			world.with("zz-good", map[string]any{"n": []any{}})
			d := world.decided(t, all(map[string]any{"size": int64(1000)}))
			require.NotNil(t, d.Class, name)
			assert.Equal(t, "zz-good", d.Class.Name, "A class should pay for itself, however many there are: %s", name)
			assert.Equal(t, count, d.Skipped+d.Dropped[d.View.Kind.free])
			assert.Zero(t, d.Unjudged)
		}
	})
	t.Run("CostlyClassBesideLongClaim", func(t *testing.T) {
		world := newExpressive(fits("class.spec.n.all(a, class.spec.n.all(b, a + b < claim.spec.size)) && claim.spec.note != ''")).
			with("costly", map[string]any{"n": numbers[:60]}).with("good", map[string]any{"n": numbers[:2]})
		d := world.decided(t, all(map[string]any{"size": int64(1000), "note": strings.Repeat("x", 2000)}))
		require.Empty(t, d.Claim.Problems, "One class should not refuse a claim for its longer fields.")
		require.NotNil(t, d.Class)
		assert.Equal(t, "good", d.Class.Name)
		assert.Equal(t, reasonCostly+"=1", d.DroppedText())
	})
	t.Run("TooManyClasses", func(t *testing.T) {
		world := newExpressive(fits("claim.spec.size > class.spec.size + 1 || claim.spec.size * 2 > class.spec.size * 2 + 1"))
		world.withMany(20_000, "class-%d", map[string]any{"size": int64(1000)})
		_, err := world.decide(t, all(map[string]any{"size": int64(10)}))
		require.ErrorContains(t, err, "simplify them", "We should say that it is nobody's fault but the registration's.")
	})
	t.Run("Class", func(t *testing.T) {
		world := newExpressive(
			specs(`{}`, `{offerWhen: "class.spec.n.all(a, class.spec.n.all(b, class.spec.n.all(c, a + b + c < 1000)))"}`),
		).with("costly", map[string]any{"n": numbers}).with("cheap", map[string]any{"n": numbers[:3]})
		d := world.decided(t, all(map[string]any{}))
		require.NotNil(t, d.Class)
		assert.Equal(t, "cheap", d.Class.Name, "We should drop a class that costs too much, and no other")
		assert.Equal(t, "NotOffered=1", d.DroppedText())
	})
	t.Run("Default", func(t *testing.T) {
		world := newExpressive(specs(`{}`, `{offerWhen: "class.status.n.all(a, class.status.n.all(b, class.status.n.all(c, a + b + c < 1000)))", `+
			`default: {annotation: "", expression: "class.spec.size == 1"}}`)).with("costly", map[string]any{"size": int64(1)})
		world.classes[0]["status"] = map[string]any{"n": numbers}
		class := world.view().Classes[0].All()[0]
		assert.NotEmpty(t, class.OfferErr)
		assert.True(t, class.Default, "We should not let the status move a seat by what it costs")
	})
	t.Run("Explain", func(t *testing.T) {
		world := newExpressive(fits("claim.spec.n.all(a, a < class.spec.size)"))
		world.withMany(600, "class-%d", map[string]any{"size": int64(1000)})
		view := world.view()
		in := view.Kind.Reader.Read("team", "db", map[string]any{"spec": all(map[string]any{"n": numbers})})
		e, err := new(Decider).Explain(t.Context(), view, in)
		require.NoError(t, err)
		assert.Equal(t, 600, e.Decision.Candidates+e.Decision.Skipped, "We should judge the first that may be drawn.")
		assert.Len(t, e.Candidates, 600, "We should explain all.")
	})
}

// TestUnlinked proves that claims wait where kinds do not know yet what they need of each other.
func TestUnlinked(t *testing.T) {
	e := newExpressive(fits("class.spec.driver == claim.spec.driver"))
	e.kind.Spec.Fits = []v1beta1.Fit{{Name: "Size", Expression: "class.spec.size < claim.spec.size"}}
	gvk := schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Pool"}
	ofNamespace := e.kind.DeepCopy()
	ofNamespace.Spec.Fits[0].Expression += " && namespaceObject.metadata.name == 'a'"
	knowing, ignorant := inventory.NewClassKind(e.kind, gvk, false, e.claims), inventory.NewClassKind(e.kind, gvk, false)
	for name, tc := range map[string]struct {
		claims *ClaimKind
		kind   *inventory.ClassKind
		fault  bool
	}{
		"Linked":      {NewClaimKind(e.claims, e.kind), knowing, false},
		"Classes":     {NewClaimKind(e.claims, e.kind), ignorant, true},
		"Claims":      {NewClaimKind(e.claims), knowing, true},
		"Unneeded":    {NewClaimKind(postgres(), e.kind), ignorant, false},
		"Namespace":   {NewClaimKind(e.claims, e.kind), inventory.NewClassKind(ofNamespace, gvk, false, e.claims), true},
		"OfNamespace": {NewClaimKind(e.claims, ofNamespace), inventory.NewClassKind(ofNamespace, gvk, false, e.claims), false},
	} {
		v := NewView(tc.claims, []*inventory.Classes{inventory.NewClasses(tc.kind, nil)})
		assert.Equal(t, tc.fault, v.Fault != nil, name)
		if tc.fault {
			assert.Equal(t, v1beta1.ReasonNotSynced, v.Fault.Reason, name)
			assert.Contains(t, v.Fault.Text, "read again")
		}
	}
}

// TestListedAgain proves that a list judges no class again that has not changed.
func TestListedAgain(t *testing.T) {
	e := newExpressive(fits("class.spec.size > 1"))
	kind := inventory.NewClassKind(e.kind, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Pool"}, false, e.claims)
	class := func(name string) *inventory.Class {
		return kind.NewClass(&metav1.ObjectMeta{Name: name}, map[string]any{"spec": map[string]any{"size": int64(2)}})
	}
	a, b := class("a"), class("b")
	i := NewInventory()
	i.SetClaimKind(NewClaimKind(e.claims, e.kind))
	i.SetClasses(inventory.NewClasses(kind, []*inventory.Class{a, b}))
	i.Open()
	view := i.views[e.claims.Name]
	require.Equal(t, 2, view.Classes[0].Len())
	view.Classes = []*inventory.Classes{view.Classes[0].Without("", "a")} // As if it had been judged otherwise, which no judgement would repeat.
	i.SetClasses(inventory.NewClasses(kind, []*inventory.Class{a, b, class("c")}))
	got := i.Snapshot()[e.claims.Name].Classes[0]
	assert.Nil(t, got.Find("", "a"), "We should not judge a class again that has not changed.")
	assert.NotNil(t, got.Find("", "b"))
	assert.NotNil(t, got.Find("", "c"), "We should judge a class that is new.")
	i.SetClasses(inventory.NewClasses(kind, []*inventory.Class{class("a"), b}))
	assert.NotNil(t, i.Snapshot()[e.claims.Name].Classes[0].Find("", "a"), "We should judge a class that has changed.")
}
