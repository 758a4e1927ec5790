package setdefault

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/cmd/classbind/connect"
	"github.com/classbind/classbind/cmd/classbind/world"
	lookup "github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
)

func TestNewPlan(t *testing.T) {
	var (
		a    = fakeKind("A", "as.test", false, "claims.test")
		b    = fakeKind("B", "bs.test", false, "claims.test")
		wide = fakeKind("Wide", "wides.test", false, "claims.test", "others.test")
		odd  = fakeKind("Odd", "odds.test", false, "others.test", "claims.test", "thirds.test")
		near = fakeKind("Near", "nears.test", true, "claims.test")
		both = fakeKind("Both", "boths.test", true, "claims.test", "all.test")
		free = fakeKind("Free", "frees.test", false, "claims.test", "unregistered.test")
		only = fakeKind("Only", "onlies.test", false, "unregistered.test")

		first = fakeKind("First", "firsts.test", false, "exclusive.test")
		last  = fakeKind("Last", "lasts.test", false, "claims.test", "exclusive.test")
		gone  = fakeKind("Gone", "a.test", false, "exclusive.test")
	)
	// The names of others come before those of first and last, but classbind knows no classes of it.
	gone.Err = lookup.ErrNotInstalled
	class := func(k *world.ClassKind, name string, marked bool) *storedClass {
		u := &unstructured.Unstructured{Object: map[string]any{}}
		u.SetName(name)
		if marked {
			u.SetAnnotations(map[string]string{"default": "true"})
		}
		return newStoredClass(k.ClassKind, u)
	}
	of := func(namespace string, c *storedClass) *storedClass {
		c.object.SetNamespace(namespace)
		return &storedClass{Class: c.Kind.NewClass(c.object, c.object.Object), object: c.object}
	}
	target := func(k *world.ClassKind) *storedClass { return class(k, "new", false) }
	old := func(k *world.ClassKind) *storedClass { return class(k, "old", true) }
	deleted := target(a)
	deleted.object.SetDeletionTimestamp(new(metav1.Now()))
	deleted = newStoredClass(a.ClassKind, deleted.object)

	type want struct {
		unmark     []string
		mark       bool
		gain, lose []string
		err        []string // its parts
	}
	for name, tc := range map[string]struct {
		reason   string
		target   *storedClass
		defaults []*storedClass
		named    []string // claims.test unless set
		without  []string
		want     want
	}{
		"NoDefault": {reason: "We should mark the class where there is no default.", target: target(a), want: want{mark: true}},
		"OneDefault": {
			reason:   "We should take the mark from the default of another kind.",
			target:   target(a),
			defaults: []*storedClass{old(b)},
			want:     want{mark: true, unmark: []string{"bs.test/old"}},
		},
		"SeveralDefaults": {
			reason:   "We should take the mark from all of several.",
			target:   target(a),
			defaults: []*storedClass{old(a), old(b)},
			want:     want{mark: true, unmark: []string{"as.test/old", "bs.test/old"}},
		},
		"Already": {reason: "We should have nothing to do for the only default.", target: class(a, "new", true)},
		"AlreadyOneOfSeveral": {
			reason:   "We should take the mark from another where the class is a default, too.",
			target:   class(a, "new", true),
			defaults: []*storedClass{old(b)},
			want:     want{unmark: []string{"bs.test/old"}},
		},
		"Unrelated": {
			reason:   "We should leave alone the default of a claim kind that the class does not serve.",
			target:   target(a),
			defaults: []*storedClass{class(only, "x", true)},
			want:     want{mark: true},
		},
		"BothNamed": {
			reason:   "We should move the default of two claim kinds.",
			target:   target(wide),
			defaults: []*storedClass{old(wide)},
			named:    []string{"claims.test", "others.test"},
			want:     want{mark: true, unmark: []string{"wides.test/old"}},
		},
		"TwoClassesOfTwoClaimKinds": {
			reason:   "We should take the mark from the default of each.",
			target:   target(wide),
			defaults: []*storedClass{old(a), class(fakeKind("O", "os.test", false, "others.test"), "old", true)},
			named:    []string{"claims.test", "others.test"},
			want:     want{mark: true, unmark: []string{"as.test/old", "os.test/old"}},
		},
		"Gains": {
			reason:   "We should say that a claim kind gets its first default.",
			target:   target(wide),
			defaults: []*storedClass{old(a)},
			want:     want{mark: true, unmark: []string{"as.test/old"}, gain: []string{"others.test"}},
		},
		"GainsUnregistered": {reason: "We should not speak of a claim kind that is not registered.", target: target(free), want: want{mark: true}},
		"TakesAnother": {
			reason: "We should refuse to replace the default of a claim kind that was not named.",
			target: target(wide), defaults: []*storedClass{old(wide)},
			want: want{err: []string{
				"\n  others.test: wides.test/new in the place of wides.test/old\n",
				"to agree, run: classbind set-default wides.test new --for claims.test --for others.test",
			}},
		},
		"SecondOfAnother": {
			reason: "We should refuse to make a second default of a claim kind that was not named.",
			target: target(wide), defaults: []*storedClass{old(a), class(fakeKind("O", "os.test", false, "others.test"), "old", true)},
			want: want{err: []string{"\n  others.test: wides.test/new in the place of os.test/old\n", "--for claims.test --for others.test"}},
		},
		"LeavesWithout": {
			reason: "We should refuse to take the only default of a claim kind that was not named.",
			target: target(a), defaults: []*storedClass{old(wide)},
			want: want{err: []string{
				"\n  others.test: no default in the place of wides.test/old\n",
				"classbind set-default as.test new --for claims.test --leave-without-default others.test",
			}},
		},
		"TakesOneAndLeavesOne": {
			reason: "We should give one command that agrees to all.",
			target: target(wide), defaults: []*storedClass{old(odd)},
			want: want{err: []string{
				"  others.test: wides.test/new in the place of odds.test/old\n  thirds.test: no default in the place of odds.test/old\n",
				"--for claims.test --for others.test --leave-without-default thirds.test",
			}},
		},
		"LeavesWithoutAgreed": {
			reason: "We should take the only default of a claim kind if the user agrees.",
			target: target(a), defaults: []*storedClass{old(wide)}, without: []string{"others.test"},
			want: want{mark: true, unmark: []string{"wides.test/old"}, lose: []string{"others.test"}},
		},
		"LeavesWithoutNothing": {
			reason:  "We should accept the agreement even if nothing loses its default, so that a command can be run again.",
			target:  target(a),
			without: []string{"others.test"},
			want:    want{mark: true},
		},
		"LeavesAnother": {
			reason: "We should take one of two defaults of a claim kind that was not named.",
			target: target(a), defaults: []*storedClass{old(wide), class(fakeKind("O", "os.test", false, "others.test"), "old", true)},
			want: want{mark: true, unmark: []string{"wides.test/old"}},
		},
		"LeavesUnregistered": {
			reason:   "We should not ask about a claim kind that is not registered.",
			target:   target(a),
			defaults: []*storedClass{old(free)},
			want:     want{mark: true, unmark: []string{"frees.test/old"}},
		},
		"TakesUnregistered": {
			reason: "We should say that a claim kind has to be registered before it can be named: its default is guarded already.",
			target: target(free), defaults: []*storedClass{class(only, "old", true)},
			want: want{err: []string{"unregistered.test: frees.test/new in the place of onlies.test/old (it is not registered: create its ClaimKind first)"}},
		},
		"AlreadyBesideAnother": {
			reason: "We should leave alone two defaults of a claim kind that was not named.",
			target: class(wide, "new", true), defaults: []*storedClass{class(fakeKind("O", "os.test", false, "others.test"), "old", true)},
		},
		"WithoutServed": {
			reason: "We should refuse to leave without a default a claim kind that gets one.",
			target: target(wide), without: []string{"others.test"},
			want: want{err: []string{`--leave-without-default="others.test": wides.test serves it, so it is not left without: name it with --for`}},
		},
		"DefaultOfTheNamespace": {
			reason: "We should take the mark from the default of the class's own namespace, and from no other.",
			target: of("team", target(near)), defaults: []*storedClass{of("team", old(near)), of("other", old(near)), old(a)},
			want: want{mark: true, unmark: []string{"nears.test/team/old"}},
		},
		"DefaultOfAllNamespaces": {
			reason: "We should leave the defaults of namespaces alone when the default for all namespaces moves.",
			target: target(a), defaults: []*storedClass{of("team", old(near)), old(b)}, want: want{mark: true, unmark: []string{"bs.test/old"}},
		},
		"OneSeatOfAllNamespaces": {
			reason:   "We should take the mark from a class of another namespace where there is one default for all.",
			target:   of("team", target(both)),
			defaults: []*storedClass{of("other", old(both))},
			named:    []string{"all.test", "claims.test"},
			without:  []string{"claims.test"},
			want:     want{mark: true, unmark: []string{"boths.test/other/old"}, lose: []string{`claims.test in namespace "other"`}},
		},
		"LeavesANamespaceWithout": {
			reason: "We should refuse to take the default of another namespace unless the user agrees.",
			target: of("team", target(both)), defaults: []*storedClass{of("other", old(both))}, named: []string{"all.test"},
			want: want{err: []string{"claims.test in namespace \"other\": no default in the place of boths.test/other/old", "--leave-without-default claims.test"}},
		},
		"NotNamed": {
			reason: "We should refuse a class that no claim is offered.",
			target: of("team", target(near)), named: []string{"named.test"},
			want: want{err: []string{`claims of named.test are offered no class of namespace "team": add it to spec.classes.namespaces.names`}},
		},
		"LeftOut": {
			reason: "We should refuse a class that no claim is offered, before anything is changed.",
			target: target(last), defaults: []*storedClass{old(first)}, named: []string{"exclusive.test"},
			want: want{err: []string{
				`the classes of "lasts.test" are not offered to claims of "exclusive.test": a reference of the form Name cannot distinguish them from ` +
					`those of "firsts.test", whose name comes first`,
			}},
		},
		"LeftOutOfAnother": {
			reason:   "We should leave alone the default of a claim kind that is not offered the class.",
			target:   target(last),
			defaults: []*storedClass{old(first)},
			want:     want{mark: true},
		},
		"FirstByName": {
			reason: "We should mark a class that claims are offered, and leave alone the mark of one that they are not.",
			target: target(first), defaults: []*storedClass{old(last)}, named: []string{"exclusive.test"}, want: want{mark: true},
		},
		"BeingDeleted": {
			reason: "We should refuse a class that is being deleted.",
			target: deleted,
			want:   want{err: []string{"as.test/new is being deleted: choose another class"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := fakeRegistry([]string{"claims.test", "others.test", "thirds.test"})
			for name, namespaces := range map[string]v1beta1.ClassNamespaces{
				"all.test": {From: v1beta1.FromAll}, "named.test": {From: v1beta1.FromNames, Names: []v1beta1.NamespaceName{"platform"}},
			} {
				r.claimKinds[name] = selector.NewClaimKind(&v1beta1.ClaimKind{
					ObjectMeta: metav1.ObjectMeta{Name: name},
					Spec:       v1beta1.ClaimKindSpec{Classes: v1beta1.Classes{Namespaces: namespaces}},
				})
			}
			r.claimKinds["exclusive.test"] = selector.NewClaimKind(&v1beta1.ClaimKind{
				ObjectMeta: metav1.ObjectMeta{Name: "exclusive.test"},
				Spec:       v1beta1.ClaimKindSpec{Reference: v1beta1.Reference{Form: v1beta1.Name}},
			})
			r.classKinds = []*world.ClassKind{gone, last, first}
			if tc.named == nil {
				tc.named = []string{"claims.test"}
			}
			p, err := newPlan(r, tc.target, tc.defaults, tc.named, tc.without)
			if tc.want.err != nil {
				for _, part := range tc.want.err {
					require.ErrorContains(t, err, part, tc.reason)
				}
				return
			}
			require.NoError(t, err, tc.reason)
			var unmark []string
			for _, c := range p.unmark {
				unmark = append(unmark, c.String())
			}
			var lose []string
			for _, seat := range p.lose {
				lose = append(lose, seatText(seat))
			}
			assert.Equal(t, tc.want, want{unmark: unmark, mark: p.mark, gain: p.gain, lose: lose}, tc.reason)
			assert.Equal(t, tc.named, p.claimKinds, "We should wait for what was named.")
			assert.Equal(t, len(unmark) == 0 && !p.mark, p.done())
		})
	}
}

// TestNewPlanOfPartitions moves the default of a zone to the class "new", from others whose names are their zones.
func TestNewPlanOfPartitions(t *testing.T) {
	claims := &v1beta1.ClaimKind{ObjectMeta: metav1.ObjectMeta{Name: "claims.test"}, Spec: v1beta1.ClaimKindSpec{
		Classes: v1beta1.Classes{
			Partition: &v1beta1.Partition{Claim: "''", Class: "class.metadata.labels.zone"},
			Fits:      []v1beta1.Fit{{Name: "Database", Expression: "class.metadata.name != 'web'"}},
		},
	}}
	newKind := func(kind, name string, mark v1beta1.Source) *world.ClassKind {
		return &world.ClassKind{ClassKind: inventory.NewClassKind(&v1beta1.ClassKind{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.ClassKindSpec{ClaimKinds: []v1beta1.ClaimKindLink{{Name: claims.Name}}, Default: mark},
		}, schema.GroupVersionKind{Group: "test", Version: "v1", Kind: kind}, false, claims)}
	}
	marked := newKind("A", "as.test", v1beta1.Source{Annotation: "default"})
	expressed := newKind("E", "es.test", v1beta1.Source{Expression: "class.metadata.labels.zone != ''"})
	class := func(k *world.ClassKind, name, zone string) *storedClass {
		u := &unstructured.Unstructured{Object: map[string]any{}}
		u.SetName(name)
		if zone != "unknown" {
			u.SetLabels(map[string]string{"zone": zone})
		}
		if name != "new" {
			u.SetAnnotations(map[string]string{"default": "true"})
		}
		return newStoredClass(k.ClassKind, u)
	}
	east, west, all := class(marked, "east", "east"), class(marked, "west", "west"), class(marked, "all", "")
	for name, tc := range map[string]struct {
		reason   string
		target   *storedClass
		defaults []*storedClass
		unmark   []string
		err      string
	}{
		"Taken": {
			"We should take the mark from the default of the same partition alone.",
			class(marked, "new", "east"),
			[]*storedClass{all, east, west},
			[]string{"as.test/east"},
			"",
		},
		"Free": {"We should take no mark where the partition has no default.", class(marked, "new", "north"), []*storedClass{all, east, west}, nil, ""},
		"OfAll": {
			"We should leave the defaults of partitions alone when that of the others moves.",
			class(marked, "new", ""),
			[]*storedClass{all, east},
			[]string{"as.test/all"},
			"",
		},
		"UnknownOther": {
			"We should leave a class alone that is nobody's default.", class(marked, "new", ""),
			[]*storedClass{class(marked, "lost", "unknown")},
			nil, "",
		},
		"Unknown": {
			"We should refuse a class that would be nobody's default.", class(marked, "new", "unknown"), nil, nil,
			`cannot determine for which claims of claims.test as.test/new would be the default: the expression spec.classes.partition.class of claim ` +
				`kind "claims.test" fails for "A/new": no such key: zone`,
		},
		"Unfit": {
			"We should refuse a class that can serve no claim.", class(marked, "web", "east"), nil, nil,
			"claims of claims.test get no class like as.test/web: choose another class, or see spec.classes.fits of the ClaimKind and spec.fits of " +
				"the ClassKind as.test",
		},
		"ByExpression": {
			"We should say that there is no mark.", class(expressed, "new", "east"),
			[]*storedClass{east},
			nil,
			"es.test/new has no mark to set: its ClassKind says in spec.default.expression which classes are default: class.metadata.labels.zone != ''",
		},
		"FromAnExpression": {
			"We should say that there is no mark to take.", class(marked, "new", "east"),
			[]*storedClass{class(expressed, "old", "east")},
			nil,
			"the default is es.test/old, and has no mark to take: its ClassKind says in spec.default.expression which classes are default: " +
				"class.metadata.labels.zone != ''; change es.test/old so that it is not, then try again",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := &registry{claimKinds: map[string]*selector.ClaimKind{claims.Name: selector.NewClaimKind(claims)}, classKinds: []*world.ClassKind{marked, expressed}}
			p, err := newPlan(r, tc.target, tc.defaults, []string{claims.Name}, nil)
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err, tc.reason)
				return
			}
			require.NoError(t, err, tc.reason)
			var unmark []string
			for _, c := range p.unmark {
				unmark = append(unmark, c.String())
			}
			assert.Equal(t, tc.unmark, unmark, tc.reason)
			assert.True(t, p.mark)
			assert.Empty(t, p.lose)
		})
	}
}

func TestUnconfirmed(t *testing.T) {
	m := &mover{cluster: &cluster{Cluster: &world.Cluster{API: fakeRegistrations{}}}}
	class := func(name, namespace string) *plan {
		u := fakeClass(name, true)
		u.SetNamespace(namespace)
		return &plan{
			target: newStoredClass(fakeKind("A", "as.test", namespace != "", "claims.test").ClassKind, u),
			seats:  []inventory.Seat{{ClaimKind: "claims.test", Namespace: namespace}},
		}
	}
	partitioned := class("other", "")
	partitioned.seats[0].Partition = "a"
	assert.Empty(t, m.unconfirmed(t.Context(), partitioned), "We should not wait for the status to name the default of a partition.")
	assert.Len(t, m.unconfirmed(t.Context(), class("other", "")), 1, "We should wait for the status to name the default of all namespaces.")
	assert.Empty(t, m.unconfirmed(t.Context(), class("other", "team")), "We should not wait for the status to name the default of one.")
	m.API = fakeRegistrations{seen: v1beta1.DefaultClass{Kind: "A", Name: "new", Cordoned: true}}
	assert.Empty(t, m.unconfirmed(t.Context(), class("new", "")), "We should see a default that is cordoned, of which we warned.")
	m.API = fakeRegistrations{seen: v1beta1.DefaultClass{Kind: "B", Namespace: "team", Name: "new"}}
	assert.Equal(
		t, []string{`ClaimKind claims.test has status.defaults "B/team/new" and SingleDefault True`},
		m.unconfirmed(t.Context(), class("new", "")), "We should say which class it names instead.",
	)
}

func TestMarkPatch(t *testing.T) {
	for name, tc := range map[string]struct {
		reason    string
		source    v1beta1.Source
		namespace string
		mark      string
		unmark    string
		command   string
	}{
		"Annotation": {
			reason:  "We should write an annotation as text.",
			source:  v1beta1.Source{Annotation: "example.org/default"},
			mark:    `{"metadata":{"annotations":{"example.org/default":"true"},"resourceVersion":"7"}}`,
			unmark:  `{"metadata":{"annotations":{"example.org/default":null},"resourceVersion":"7"}}`,
			command: `kubectl patch as.test gold --type merge --patch '{"metadata":{"annotations":{"example.org/default":"true"}}}'`,
		},
		"Ours": {
			reason: "We should write our own annotation, and remove that of Crossplane, too.", source: v1beta1.Source{Annotation: v1beta1.DefaultAnnotation},
			mark:    `{"metadata":{"annotations":{"classbind.io/default":"true"},"resourceVersion":"7"}}`,
			unmark:  `{"metadata":{"annotations":{"classbind.io/default":null,"resourceclass.crossplane.io/is-default-class":null},"resourceVersion":"7"}}`,
			command: `kubectl patch as.test gold --type merge --patch '{"metadata":{"annotations":{"classbind.io/default":"true"}}}'`,
		},
		"Path": {
			reason: "We should write a field as a boolean.", namespace: "team",
			source: v1beta1.Source{Path: ".spec.default"},
			mark:   `{"metadata":{"resourceVersion":"7"},"spec":{"default":true}}`, unmark: `{"metadata":{"resourceVersion":"7"},"spec":{"default":null}}`,
			command: `kubectl patch as.test gold --namespace team --type merge --patch '{"spec":{"default":true}}'`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			kind := inventory.NewClassKind(&v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: "as.test"}, Spec: v1beta1.ClassKindSpec{Default: tc.source}},
				fakeKind("A", "as.test", false).GroupVersionKind, tc.namespace != "")
			u := &unstructured.Unstructured{Object: map[string]any{}}
			u.SetNamespace(tc.namespace)
			u.SetName("gold")
			u.SetResourceVersion("7")
			c := newStoredClass(kind, u)
			assert.JSONEq(t, tc.mark, string(c.markPatch("7", c.defaultMark())), tc.reason)
			assert.JSONEq(t, tc.unmark, string(c.markPatch("7", nil)), tc.reason)
			assert.Equal(t, tc.command, c.markCommand(), "We should give a command that does the same.")
		})
	}
}

// fakeKind returns a class kind of version v1, in the group of its name.
func fakeKind(kind, name string, namespaced bool, claimKinds ...string) *world.ClassKind {
	gvk := schema.ParseGroupResource(name).WithVersion("v1").GroupVersion().WithKind(kind)
	aliases := strings.ToLower(kind) + ",bc"
	return &world.ClassKind{Found: world.Resource{
		Resource: lookup.Resource{GroupVersionKind: gvk, Aliases: aliases},
	}, ClassKind: inventory.NewClassKind(&v1beta1.ClassKind{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1beta1.ClassKindSpec{
			ClaimKinds: controllertest.Links(claimKinds...),
			Default:    v1beta1.Source{Annotation: "default"},
			Weight:     v1beta1.Source{Annotation: "weight"},
		},
	}, gvk, namespaced)}
}

func fakeRegistry(claimKinds []string, classKinds ...*world.ClassKind) *registry {
	r := &registry{claimKinds: map[string]*selector.ClaimKind{}, classKinds: classKinds, lookUp: func(k *selector.ClaimKind) lookup.Resource {
		if k.Reader.Resource.Resource != "caches" {
			return lookup.Resource{}
		}
		return lookup.Resource{GroupVersionKind: k.Reader.Resource.WithVersion("v1").GroupVersion().WithKind("CacheKind"), Aliases: "cache,cch"}
	}}
	for _, name := range claimKinds {
		r.claimKinds[name] = selector.NewClaimKind(&v1beta1.ClaimKind{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return r
}

func TestFindClaimKinds(t *testing.T) {
	registered := []string{"caches.a.test", "databases.a.test", "databases.b.test", "pods"}
	for name, tc := range map[string]struct {
		reason     string
		registered []string
		texts      []string
		want       []string
		err        string
	}{
		"Name":   {reason: "We should take a full name.", registered: registered, texts: []string{"databases.b.test"}, want: []string{"databases.b.test"}},
		"Plural": {reason: "We should take a plural that is there once.", registered: registered, texts: []string{"caches"}, want: []string{"caches.a.test"}},
		"Core": {
			reason:     "We should take the name of a core kind.",
			registered: append([]string{"pods.a.test"}, registered...),
			texts:      []string{"pods"},
			want:       []string{"pods"},
		},
		"Kind": {
			reason:     "We should take the kind in any case, as for a class.",
			registered: registered,
			texts:      []string{"cachekind"},
			want:       []string{"caches.a.test"},
		},
		"Singular":  {reason: "We should take a singular name, as kubectl does.", registered: registered, texts: []string{"Cache"}, want: []string{"caches.a.test"}},
		"ShortName": {reason: "We should take a short name, as kubectl does.", registered: registered, texts: []string{"cch"}, want: []string{"caches.a.test"}},
		"KindGroup": {
			reason:     "We should take a kind with its group, as kubectl does.",
			registered: registered,
			texts:      []string{"CacheKind.a.test"},
			want:       []string{"caches.a.test"},
		},
		"Misspelt": {
			reason:     "We should say which name was meant.",
			registered: registered,
			texts:      []string{"CachKind"},
			err:        "or create its ClaimKind: did you mean CacheKind?",
		},
		"Twice": {
			reason:     "We should take several, sort them, and drop duplicates.",
			registered: registered,
			texts:      []string{"databases.a.test", "caches.a.test", "caches"},
			want:       []string{"caches.a.test", "databases.a.test"},
		},
		"None": {reason: "We should find nothing where nothing is named.", registered: registered},
		"Ambiguous": {
			reason:     "We should name those that a plural may mean.",
			registered: registered,
			texts:      []string{"databases"},
			err:        `--for="databases": may be any of databases.a.test, databases.b.test: name one in full`,
		},
		"Unknown": {
			reason:     "We should name what there is.",
			registered: registered,
			texts:      []string{"queues"},
			err:        `--for="queues": no such claim kind is registered: name one of caches.a.test, databases.a.test, databases.b.test, pods, or create its ClaimKind`,
		},
		"Group": {
			reason:     "We should not take half a name.",
			registered: registered,
			texts:      []string{"caches.a"},
			err:        `--for="caches.a": no such claim kind is registered`,
		},
		"Empty": {
			reason: "We should say where nothing is registered.",
			texts:  []string{"caches"},
			err:    `--for="caches": no claim kind is registered: create a ClaimKind`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := fakeRegistry(tc.registered).findClaimKinds("for", tc.texts)
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err, tc.reason)
				return
			}
			require.NoError(t, err, tc.reason)
			assert.Equal(t, tc.want, got, tc.reason)
		})
	}
}

func TestFindClassKind(t *testing.T) {
	notInstalled := fakeKind("", "absents.a.test", false, "caches.a.test")
	notInstalled.Err = lookup.ErrNotInstalled
	registered := []*world.ClassKind{
		notInstalled,
		fakeKind("BigClass", "bigclasses.a.test", false, "caches.a.test", "databases.a.test"),
		fakeKind("Class", "classes.a.test", false, "caches.a.test"),
		fakeKind("Class", "classes.b.test", false, "databases.a.test", "queues.a.test"),
		fakeKind("Class", "classes.c.test", true, "queues.a.test"),
		fakeKind("LocalClass", "localclasses.a.test", true, "caches.a.test"),
	}
	for name, tc := range map[string]struct {
		reason string
		class  string
		of     []string // claim kinds; caches.a.test unless set
		none   bool     // registered
		want   string
		err    string
	}{
		"Kind":          {reason: "We should take the kind.", class: "BigClass/gold", want: "bigclasses.a.test"},
		"KindInAnyCase": {reason: "We should take the kind in any case, as kubectl does.", class: "bigclass/gold", want: "bigclasses.a.test"},
		"Plural":        {reason: "We should take the plural.", class: "bigclasses/gold", want: "bigclasses.a.test"},
		"Singular":      {reason: "We should take the kind with its group, as kubectl does.", class: "bigclass.a.test/gold", want: "bigclasses.a.test"},
		"ShortName": {
			reason: "We should take a short name, as kubectl does, of the kind that serves the claim kind.",
			class:  "BC/gold",
			of:     []string{"databases.a.test", "caches.a.test"},
			want:   "bigclasses.a.test",
		},
		"Misspelt":       {reason: "We should say which name was meant.", class: "BigClas/gold", err: "or create its ClassKind: did you mean BigClass?"},
		"Name":           {reason: "We should take the name of the ClassKind.", class: "classes.a.test/gold", want: "classes.a.test"},
		"NamespacedKind": {reason: "We should take a namespaced class.", class: "LocalClass/gold", want: "localclasses.a.test"},
		"OneServes":      {reason: "We should take the only one of that kind that serves the claim kind.", class: "Class/gold", want: "classes.a.test"},
		"Unknown": {
			reason: "We should name the registered class kinds.",
			class:  "Klass/gold",
			err:    `"Klass/gold": no such class kind is registered: KIND must be one of absents.a.test, bigclasses.a.test, classes.a.test,`,
		},
		"NoneRegistered": {
			reason: "We should say where there is none.",
			class:  "Class/gold",
			none:   true,
			err:    `"Class/gold": no class kind is registered: create a ClassKind`,
		},
		"Ambiguous": {
			reason: "We should name those that a kind may mean.",
			class:  "Class/gold",
			of:     []string{"queues.a.test"},
			err:    `"Class/gold": may be of any of classes.b.test, classes.c.test: name one in the place of "Class"`,
		},
		"DoesNotServe": {
			reason: "We should name the claim kind that the class kind does not serve.",
			class:  "classes.a.test/gold",
			of:     []string{"caches.a.test", "queues.a.test"},
			err:    `"classes.a.test/gold": classes.a.test does not serve queues.a.test: add it to spec.claimKinds of the ClassKind`,
		},
		"NoneServes": {
			reason: "We should name all candidates and what they do not serve.",
			class:  "Class/gold",
			of:     []string{"tables.a.test"},
			err:    `"Class/gold": none of classes.a.test, classes.b.test, classes.c.test serves tables.a.test`,
		},
		"NoneServesAll": {
			reason: "We should say so even if each serves some of them.",
			class:  "Class/gold",
			of:     []string{"caches.a.test", "databases.a.test"},
			err:    `none of classes.a.test, classes.b.test, classes.c.test serves caches.a.test and databases.a.test`,
		},
		"NotInstalled": {
			reason: "We should say that the kind is registered and not installed.",
			class:  "absents/gold",
			err:    `"absents/gold": cannot find its kind: the API server serves no such resource: install its CRD`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			names, err := connect.Names([]string{tc.class})
			require.NoError(t, err)
			if tc.of == nil {
				tc.of = []string{"caches.a.test"}
			}
			r := fakeRegistry(nil, registered...)
			if tc.none {
				r = fakeRegistry(nil)
			}
			got, err := r.findClassKind(names[0], tc.of)
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err, tc.reason)
				return
			}
			require.NoError(t, err, tc.reason)
			assert.Equal(t, tc.want, got.Name, tc.reason)
		})
	}
}

func TestRelated(t *testing.T) {
	r := fakeRegistry(nil,
		fakeKind("A", "as.test", false, "caches.test"),
		fakeKind("B", "bs.test", false, "caches.test", "databases.test"),
		fakeKind("C", "cs.test", false, "databases.test", "queues.test"),
		fakeKind("D", "ds.test", false, "queues.test"),
		fakeKind("E", "es.test", false),
	)
	assert.Equal(t, "as.test, bs.test, cs.test", list(r.related([]string{"caches.test"})),
		"We should look at the kinds that serve the claim kind, and at those that share another claim kind with them.")
}
