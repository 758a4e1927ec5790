package selector

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/fields"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/rules"
)

// expressive is a world with expressions: one claim kind, one class kind and its classes.
type expressive struct {
	claims  *v1beta1.ClaimKind
	kind    *v1beta1.ClassKind
	classes []map[string]any
	// indexed views answer as an inventory does.
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

func (e *expressive) view() *View {
	kind := inventory.NewClassKind(e.kind, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Pool"}, false, e.claims)
	var classes []*inventory.Class
	for _, content := range e.classes {
		metadata := content["metadata"].(map[string]any)
		meta := &metav1.ObjectMeta{Name: metadata["name"].(string), Labels: map[string]string{"all": "yes"}, Annotations: map[string]string{}}
		annotations, _ := metadata["annotations"].(map[string]any)
		for key, value := range annotations {
			meta.Annotations[key] = value.(string)
		}
		classes = append(classes, kind.NewClass(meta, content))
	}
	claimKind := NewClaimKind(e.claims, e.kind)
	if e.indexed {
		return newView(claimKind, []*inventory.Classes{inventory.NewClasses(kind, classes)})
	}
	return NewView(claimKind, []*inventory.Classes{inventory.NewClasses(kind, classes)})
}

// decide on a claim with this spec.
func (e *expressive) decide(t *testing.T, spec map[string]any) (Decision, error) {
	t.Helper()
	view := e.view()
	in := view.Kind.Read("team", "db", map[string]any{
		"kind": "PostgreSQLInstance", "metadata": map[string]any{"name": "db", "namespace": "team"}, "spec": spec,
	})
	return new(Decider).Decide(t.Context(), view, in, Admit)
}

func all(spec map[string]any) map[string]any {
	spec["classSelector"] = map[string]any{"matchLabels": map[string]any{"all": "yes"}}
	return spec
}

type fitCase struct {
	reason string
	world  *expressive
	claim  map[string]any
	// class that the claim gets, empty for none, and why none.
	class, dropped, problem string
	candidates              int
}

func fits(expressions ...string) func(*v1beta1.ClaimKindSpec, *v1beta1.ClassKindSpec) {
	return func(s *v1beta1.ClaimKindSpec, _ *v1beta1.ClassKindSpec) {
		for i, e := range expressions {
			s.Classes.Fits = append(s.Classes.Fits, v1beta1.Fit{Name: "Fit" + string(rune('A'+i)), Expression: v1beta1.Expression(e)})
		}
	}
}

func fitCases() map[string]fitCase {
	three := func(e *expressive) *expressive {
		return e.with("a", map[string]any{"driver": "a", "size": int64(1)}).
			with("b", map[string]any{"driver": "b", "size": int64(2)}).
			with("c", map[string]any{"driver": "c"})
	}
	return map[string]fitCase{
		"Equality": {
			reason: "We should give the class that equals", world: three(newExpressive(fits("class.spec.driver == claim.spec.driver"))),
			claim: all(map[string]any{"driver": "b"}), class: "Pool/b", candidates: 1,
		},
		"EqualityMirrored": {
			reason: "We should read an equality in both directions", world: three(newExpressive(fits("claim.spec.size == class.spec.size"))),
			claim: all(map[string]any{"size": float64(2)}), class: "Pool/b", candidates: 1,
		},
		"EqualityInWhole": {
			reason: "We should read an equality in a field that another expression needs as a whole",
			world:  three(newExpressive(fits("class.spec.driver == claim.spec.driver", "class.spec.size() >= claim.spec.least"))),
			claim:  all(map[string]any{"driver": "b", "least": int64(1)}), class: "Pool/b", candidates: 1,
		},
		"EqualityOfAbsent": {
			reason: "We should give none if the claim's side fails", world: three(newExpressive(fits("class.spec.driver == claim.spec.driver"))),
			claim: all(map[string]any{}), dropped: "ExpressionError=3",
		},
		"Class": {
			reason: "We should not know a class that serves no claim", world: three(newExpressive(fits("class.spec.driver != 'a' && class.spec.size > 0"))),
			claim: all(map[string]any{}), class: "Pool/b", candidates: 1,
		},
		"Claim": {
			reason: "We should drop all classes for what is said of the claim", world: three(newExpressive(fits("claim.spec.size > 3"))),
			claim: all(map[string]any{"size": int64(1)}), dropped: "FitA=3",
		},
		"ClaimFails": {
			reason: "We should refuse a claim about which an expression fails", world: three(newExpressive(fits("claim.spec.size > 3"))),
			claim: all(map[string]any{}), problem: "spec.size: Invalid value: the expression spec.classes.fits[FitA].expression of claim kind",
		},
		"Both": {
			reason: "We should compare claim and class", world: three(newExpressive(fits("claim.spec.size <= class.spec.size"))),
			claim: all(map[string]any{"size": int64(2)}), class: "Pool/b", candidates: 1, dropped: "ExpressionError=1,FitA=1",
		},
		"Division": {
			reason: "We should drop a class for which an expression fails", world: three(newExpressive(fits("10 / (class.spec.size - claim.spec.size) > 0"))),
			claim: all(map[string]any{"size": int64(1)}), class: "Pool/b", candidates: 1, dropped: "ExpressionError=2",
		},
		"MapForList": {
			reason: "We should drop what has another type", world: three(newExpressive(fits("class.spec.size in claim.spec.sizes"))),
			claim: all(map[string]any{"sizes": "none"}), dropped: "ExpressionError=3",
		},
		"OfClassKind": {
			reason: "We should heed the fits of the class kind",
			world: three(newExpressive(func(_ *v1beta1.ClaimKindSpec, s *v1beta1.ClassKindSpec) {
				s.Fits = []v1beta1.Fit{{Name: "Driver", Expression: "class.spec.driver == claim.spec.driver && class.spec.size > 0"}}
			})),
			claim: all(map[string]any{"driver": "b"}), class: "Pool/b", candidates: 1,
		},
		"OfferWhen": {
			reason: "We should not offer what the class kind does not",
			world: three(newExpressive(func(_ *v1beta1.ClaimKindSpec, s *v1beta1.ClassKindSpec) {
				s.OfferWhen = "class.spec.size > 1"
			})),
			claim: all(map[string]any{}), class: "Pool/b", candidates: 1, dropped: "NotOffered=2",
		},
		"LowestScore": {
			reason: "We should give the cheapest, and none without a price",
			world: three(newExpressive(func(s *v1beta1.ClaimKindSpec, _ *v1beta1.ClassKindSpec) {
				s.Choice.Strategy, s.Choice.Score = v1beta1.LowestScore, "class.spec.size * claim.spec.nodes"
			})),
			claim: all(map[string]any{"nodes": int64(3)}), class: "Pool/a", candidates: 2, dropped: "NoScore=1",
		},
		"HighestScore": {
			reason: "We should give the best",
			world: three(newExpressive(func(s *v1beta1.ClaimKindSpec, _ *v1beta1.ClassKindSpec) {
				s.Choice.Strategy, s.Choice.Score = v1beta1.HighestScore, "double(class.spec.size) - 10.5"
			})),
			claim: all(map[string]any{}), class: "Pool/b", candidates: 2, dropped: "NoScore=1",
		},
		"Selector": {
			reason: "We should take the selector of an expression",
			world: three(newExpressive(func(s *v1beta1.ClaimKindSpec, _ *v1beta1.ClassKindSpec) {
				s.Selector.Expression, s.Classes.Fits = "'all=' + claim.spec.all", []v1beta1.Fit{{Name: "B", Expression: "class.spec.driver == 'b'"}}
			})),
			claim: map[string]any{"all": "yes"}, class: "Pool/b", candidates: 1,
		},
		"SelectorMap": {
			reason: "We should take a map of labels, too",
			world: three(newExpressive(func(s *v1beta1.ClaimKindSpec, _ *v1beta1.ClassKindSpec) {
				s.Selector.Expression, s.Classes.Fits = "{'all': claim.spec.all}", []v1beta1.Fit{{Name: "B", Expression: "class.spec.driver == 'b'"}}
			})),
			claim: map[string]any{"all": "yes"}, class: "Pool/b", candidates: 1,
		},
		"SelectorMalformed": {
			reason: "We should refuse a claim whose selector is none",
			world: three(newExpressive(func(s *v1beta1.ClaimKindSpec, _ *v1beta1.ClassKindSpec) {
				s.Selector.Expression = "claim.spec.all"
			})),
			claim: map[string]any{"all": "a=b="}, problem: "spec.selector.expression",
		},
		"SelectorMalformedOrNone": {
			reason: "We should not take a malformed selector for none",
			world: three(newExpressive(func(s *v1beta1.ClaimKindSpec, _ *v1beta1.ClassKindSpec) {
				s.Selector.Expression, s.Selector.WhenAbsent = "claim.spec.all", v1beta1.NoSelectorLeaveAlone
			})),
			claim: map[string]any{"all": "a=b="}, problem: "spec.selector.expression",
		},
		"TooLong": {
			reason: "We should refuse a claim with a field that is too long",
			world:  three(newExpressive(fits("class.spec.driver == claim.spec.driver"))),
			claim:  all(map[string]any{"driver": fields.LongText{Length: 1 << 20}}), problem: "spec.driver: Too long",
		},
	}
}

func TestFits(t *testing.T) {
	for name, tc := range fitCases() {
		t.Run(name, func(t *testing.T) {
			for _, tc.world.indexed = range []bool{false, true} {
				require.Nil(t, tc.world.view().Fault)
				d, err := tc.world.decide(t, tc.claim)
				require.NoError(t, err)
				if tc.problem != "" {
					require.NotEmpty(t, d.Claim.Problems, tc.reason)
					assert.Contains(t, d.Claim.Problems[0].Error(), tc.problem, tc.reason)
					assert.Empty(t, d.Claim.LeftAlone, tc.reason)
					continue
				}
				require.Empty(t, d.Claim.Problems, tc.reason)
				class := ""
				if d.Class != nil {
					class = d.Class.String()
				}
				assert.Equal(t, tc.class, class, tc.reason)
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
			d, err := world.decide(t, map[string]any{"tenant": tenant})
			require.NoError(t, err)
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
	world := newExpressive(func(s *v1beta1.ClaimKindSpec, _ *v1beta1.ClassKindSpec) {
		s.Classes.Partition = &v1beta1.Partition{Claim: "'a'", Class: "'a'"}
	}).with("a", nil, "example.org/default", "true")
	for _, world.indexed = range []bool{false, true} {
		d, err := world.decide(t, nil)
		require.NoError(t, err)
		require.NotNil(t, d.Class, d.Warning())
		assert.Len(t, d.View.DefaultsOf(inventory.Seat{ClaimKind: d.View.Kind.Name, Partition: "a"}), 1, "The guard should know the default.")
	}
}

func TestBindWhen(t *testing.T) {
	const decided = "claim.spec.classRef.name == 'default'"
	cases := map[string]struct {
		reason, expression string
		spec               map[string]any
		leftAlone, problem string
	}{
		"True":      {"We should bind when it is true", "claim.spec.ready", map[string]any{"ready": true}, "", ""},
		"False":     {"We should wait while it is false", "claim.spec.ready", map[string]any{"ready": false}, claim.NotYet, ""},
		"Fails":     {"We should refuse what it fails for", "claim.spec.ready", map[string]any{}, "", "no such key"},
		"Bound":     {"We should leave a bound claim alone", "true || claim.spec.ready", map[string]any{"classRef": map[string]any{"name": "a"}}, claim.Settled, ""},
		"Decided":   {"We should bind what has the default of its schema", decided, map[string]any{"classRef": map[string]any{"name": "default"}}, "", ""},
		"Replaced":  {"We should not ask for what the default of the schema says", decided, map[string]any{"classRef": map[string]any{"kind": "Other", "name": "default"}}, "", ""},
		"Other":     {"We should keep the reference of an author", decided, map[string]any{"classRef": map[string]any{"name": "own"}}, claim.NotYet, ""},
		"Elsewhere": {"We should leave alone what is settled otherwise", decided, map[string]any{"resourceRef": map[string]any{"name": "x"}}, claim.Settled, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			world := newExpressive(func(s *v1beta1.ClaimKindSpec, _ *v1beta1.ClassKindSpec) {
				s.Claims.When, s.Reference.WhenEmpty = v1beta1.Expression(tc.expression), v1beta1.BindEmpty
			}).
				with("a", map[string]any{})
			if tc.leftAlone != claim.Settled {
				tc.spec = all(tc.spec)
			}
			d, err := world.decide(t, tc.spec)
			require.NoError(t, err)
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
		d, err := world.decide(t, spec)
		require.NoError(t, err)
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

func TestInvalidExpressions(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(*v1beta1.ClaimKindSpec, *v1beta1.ClassKindSpec)
		field  string
		text   string
	}{
		"Syntax":  {"We should find what is no expression", fits("class.spec."), "spec.classes.fits[FitA].expression", "no viable alternative"},
		"Type":    {"We should want a truth", fits("'yes'"), "spec.classes.fits[FitA].expression", "must be true or false"},
		"Unknown": {"We should know all variables", fits("klass.spec.x"), "spec.classes.fits[FitA].expression", "klass"},
		"Request": {
			"We should not ask who asks for a claim that waits",
			func(s *v1beta1.ClaimKindSpec, _ *v1beta1.ClassKindSpec) {
				s.WhenUnmatched, s.Claims.When = v1beta1.BindLater, "request.userInfo.username == 'a'"
			}, "spec.claims.when", "request",
		},
		"Related": {
			"We should know the objects", func(s *v1beta1.ClaimKindSpec, _ *v1beta1.ClassKindSpec) { s.Claims.When = "related.plan.x" },
			"spec.claims.when", "plan",
		},
		"Status": {
			"We should not take the default from the status",
			func(_ *v1beta1.ClaimKindSpec, s *v1beta1.ClassKindSpec) {
				s.Default = v1beta1.Source{Expression: "class.status.default"}
			},
			"spec.default.expression", "status",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			e := newExpressive(tc.change)
			invalid := slices.Concat(rules.NewForClaims(e.claims).Invalid, rules.InvalidOfClasses(e.kind))
			require.Len(t, invalid, 1, tc.reason)
			assert.Equal(t, tc.field, invalid[0].Field, tc.reason)
			assert.Contains(t, invalid[0].Error(), tc.text, tc.reason)
			assert.Contains(t, invalid[0].Err.Caret(), "^")
			if fault := NewClaimKind(e.claims).fault; fault != nil {
				_, err := e.decide(t, map[string]any{})
				require.EqualError(t, err, e.view().Fault.Text, tc.reason)
				assert.Equal(t, v1beta1.ReasonInvalidExpression, fault.Reason)
			}
		})
	}
}

// TestManyFits of many class kinds: they share a filter when there are too many.
func TestManyFits(t *testing.T) {
	e := newExpressive(func(s *v1beta1.ClaimKindSpec, _ *v1beta1.ClassKindSpec) {
		s.Choice.Strategy, s.Choice.Score = v1beta1.LowestScore, "class.spec.price"
	})
	var classKinds []*v1beta1.ClassKind
	for i := range 4 {
		k := e.kind.DeepCopy()
		k.Name = fmt.Sprintf("pools-%d.example.org", i)
		for j := range 8 {
			k.Spec.Fits = append(k.Spec.Fits, v1beta1.Fit{Name: fmt.Sprintf("Fit-%d-%d", i, j), Expression: "class.spec.size != 0 || claim.spec.size == 0"})
		}
		classKinds = append(classKinds, k)
	}
	classKinds[3].Spec.Fits[7].Expression = "claim.spec.size <= class.spec.size"
	var classes []*inventory.Classes
	for _, k := range classKinds {
		kind := inventory.NewClassKind(k, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Pool"}, false, e.claims)
		classes = append(classes, inventory.NewClasses(kind, nil))
	}
	kind := classes[3].Kind
	meta := &metav1.ObjectMeta{Name: "small", Labels: map[string]string{"all": "yes"}}
	classes[3] = classes[3].With(kind.NewClass(meta, map[string]any{"spec": map[string]any{"size": int64(1), "price": int64(1)}}))
	meta = &metav1.ObjectMeta{Name: "priceless", Labels: meta.Labels}
	classes[3] = classes[3].With(kind.NewClass(meta, map[string]any{"spec": map[string]any{"size": int64(9)}}))
	view := NewView(NewClaimKind(e.claims, classKinds...), classes)
	require.Nil(t, view.Fault)
	in := view.Kind.Read("team", "db", map[string]any{"spec": all(map[string]any{"size": int64(5)})})
	d, err := new(Decider).Decide(t.Context(), view, in, Admit)
	require.NoError(t, err)
	assert.Nil(t, d.Class, "We should heed the last fit, too")
	assert.Equal(t, "OtherFit=1,NoScore=1", d.DroppedText())
}

// TestSameFits proves that a claim kind stays the same if its class kinds are listed in another
// order, and not if a filter would say something else.
func TestSameFits(t *testing.T) {
	kind := func(name, fit, message string) *v1beta1.ClassKind {
		return &v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.ClassKindSpec{
			Fits: []v1beta1.Fit{{Name: fit, Expression: "claim.spec.a == class.spec.a", Message: message}},
		}}
	}
	a, b := kind("as.example.org", "A", "other"), kind("bs.example.org", "B", "other")
	assert.Equal(t, NewClaimKind(postgres(), a, b).LinkedFits, NewClaimKind(postgres(), b, a).LinkedFits, "A cache lists in any order")
}
