package setdefault

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/api/v1beta1"
	lookup "github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
)

// written are the classes of a cluster, each KIND/NAME or KIND/NAMESPACE/NAME of a kind KINDs.test, with @ZONE where it has that label.
// All but those that end in ! are marked.
type written []string

// Resolve is not called by views.
func (written) Resolve(context.Context, string, string, ...string) (lookup.Resource, error) {
	return lookup.Resource{}, lookup.ErrNotInstalled
}

func (w written) Classes(_ context.Context, kind *inventory.ClassKind) (*inventory.Classes, error) {
	var all []*inventory.Class
	for _, text := range w {
		text, unmarked := strings.CutSuffix(text, "!")
		text, zone, zoned := strings.Cut(text, "@")
		parts := strings.Split(text, "/")
		if parts[0]+"s.test" != kind.Name {
			continue
		}
		u := fakeClass(parts[len(parts)-1], !unmarked)
		if len(parts) == 3 {
			u.SetNamespace(parts[1])
		}
		if zoned {
			u.SetLabels(map[string]string{"zone": zone})
		}
		all = append(all, kind.NewClass(u, u.Object))
	}
	return inventory.NewClasses(kind, all), nil
}

// TestNewPlan has kinds of classes, of which those in capitals are namespaced, and the claim kinds that they serve.
func TestNewPlan(t *testing.T) {
	zones := &v1beta1.ClaimKind{ObjectMeta: metav1.ObjectMeta{Name: "zones.test"}, Spec: v1beta1.ClaimKindSpec{Classes: v1beta1.Classes{
		Partition: &v1beta1.Partition{Claim: "''", Class: "class.metadata.labels.zone"}, Fits: []v1beta1.Fit{{Name: "Database", Expression: "class.metadata.name != 'web'"}},
	}}}
	r := fakeRegistry([]string{"claims.test", "others.test", "thirds.test"})
	for name, spec := range map[string]v1beta1.ClaimKindSpec{
		"all.test":       {Classes: v1beta1.Classes{Namespaces: v1beta1.ClassNamespaces{From: v1beta1.FromAll}}},
		"named.test":     {Classes: v1beta1.Classes{Namespaces: v1beta1.ClassNamespaces{From: v1beta1.FromNames, Names: []v1beta1.NamespaceName{"platform"}}}},
		"exclusive.test": {Reference: v1beta1.Reference{Form: v1beta1.Name}},
		zones.Name:       zones.Spec,
	} {
		r.claimKinds[name] = selector.NewClaimKind(&v1beta1.ClaimKind{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec})
	}
	for name, serves := range map[string]string{
		"a": "claims", "b": "claims", "o": "others", "wide": "claims others", "odd": "others claims thirds", "NEAR": "claims named", "BOTH": "claims all",
		"free": "claims unregistered", "only": "unregistered", "first": "exclusive", "last": "claims exclusive", "absent": "exclusive", "hidden": "exclusive",
	} {
		k := fakeKind(name, name+"s.test", strings.ToUpper(name) == name)
		k.ClaimKinds = strings.Fields(strings.ReplaceAll(serves+" ", " ", ".test "))
		// Their names come before those of first and last, but classbind knows the classes of neither.
		k.leftOut = name == "absent" || name == "hidden"
		r.classKinds = append(r.classKinds, k)
	}
	for name, mark := range map[string]v1beta1.Source{"zoned": {Annotation: "default"}, "expressed": {Expression: "class.metadata.labels.zone != ''"}} {
		r.classKinds = append(r.classKinds, &classKind{ClassKind: inventory.NewClassKind(&v1beta1.ClassKind{
			ObjectMeta: metav1.ObjectMeta{Name: name + "s.test"}, Spec: v1beta1.ClassKindSpec{ClaimKinds: controllertest.Links(zones.Name), Default: mark},
		}, schema.GroupVersionKind{Group: "test", Version: "v1", Kind: name}, false, zones)})
	}
	type want struct {
		unmark, lose string
		err          []string // its parts
	}
	for name, tc := range map[string]struct {
		reason  string
		classes string // The first is the target.
		named   string
		without []string
		want    want
	}{
		"NoDefault":           {reason: "We should mark the class where there is no default.", classes: "a/new!", named: "claims"},
		"OneDefault":          {reason: "We should take the mark from the default of another kind.", classes: "a/new! b/old", named: "claims", want: want{unmark: "bs.test/old"}},
		"SeveralDefaults":     {reason: "We should take the mark from all of several.", classes: "a/new! b/old a/old", named: "claims", want: want{unmark: "as.test/old bs.test/old"}},
		"Already":             {reason: "We should have nothing to do for the only default.", classes: "a/new", named: "claims"},
		"AlreadyOneOfSeveral": {reason: "We should take the mark from another where the class is a default, too.", classes: "a/new b/old", named: "claims", want: want{unmark: "bs.test/old"}},
		"BothNamed":           {reason: "We should move the default of two claim kinds.", classes: "wide/new! wide/old", named: "claims others", want: want{unmark: "wides.test/old"}},
		"OneOfEach":           {reason: "We should take the mark from the default of each claim kind.", classes: "wide/new! a/old o/old", named: "claims others", want: want{unmark: "as.test/old os.test/old"}},
		"Gains":               {reason: "We should need no consent to give a claim kind its first default.", classes: "wide/new! a/old", named: "claims", want: want{unmark: "as.test/old"}},
		"TakesAnother": {
			reason: "We should refuse to replace the default of a claim kind that was not named.", classes: "wide/new! wide/old", named: "claims",
			want: want{err: []string{"\n  others.test: wides.test/new in the place of wides.test/old\n", "to agree, run: classbind set-default wides.test/new --for claims.test --for others.test"}},
		},
		"LeavesWithout": {
			reason: "We should refuse to take the only default of a claim kind that was not named.", classes: "a/new! wide/old", named: "claims",
			want: want{err: []string{"\n  others.test: no default in the place of wides.test/old\n", "classbind set-default as.test/new --for claims.test --leave-without-default others.test"}},
		},
		"TakesOneAndLeavesOne": {
			reason: "We should give one command that agrees to all.", classes: "wide/new! odd/old", named: "claims",
			want: want{err: []string{"  others.test: wides.test/new in the place of odds.test/old\n  thirds.test: no default in the place of odds.test/old\n", "--for claims.test --for others.test --leave-without-default thirds.test"}},
		},
		"LeavesWithoutAgreed":  {reason: "We should take the only default of a claim kind if the user agrees.", classes: "a/new! wide/old", named: "claims", without: []string{"others.test"}, want: want{unmark: "wides.test/old", lose: "others.test"}},
		"LeavesWithoutNothing": {reason: "We should accept the agreement even if nothing loses its default, so that a command can be run again.", classes: "a/new!", named: "claims", without: []string{"others.test"}},
		"LeavesAnother":        {reason: "We should take one of two defaults of a claim kind that was not named.", classes: "a/new! wide/old o/old", named: "claims", want: want{unmark: "wides.test/old"}},
		"Unregistered":         {reason: "We should not ask about a claim kind that nobody registered.", classes: "free/new! only/old free/old", named: "claims", want: want{unmark: "frees.test/old"}},
		"DefaultOfTheNamespace": {
			reason: "We should take the mark from the default of the class's own namespace, and from no other.", classes: "NEAR/team/new! NEAR/team/old NEAR/other/old a/old", named: "claims",
			want: want{unmark: "NEARs.test/team/old"},
		},
		"DefaultOfAllNamespaces": {reason: "We should leave the defaults of namespaces alone when the default for all namespaces moves.", classes: "a/new! NEAR/team/old b/old", named: "claims", want: want{unmark: "bs.test/old"}},
		"OneSeatOfAllNamespaces": {
			reason: "We should take the mark from a class of another namespace where there is one default for all.", classes: "BOTH/team/new! BOTH/other/old", named: "all claims", without: []string{"claims.test"},
			want: want{unmark: "BOTHs.test/other/old", lose: `claims.test in namespace "other"`},
		},
		"LeavesANamespaceWithout": {
			reason: "We should refuse to take the default of another namespace unless the user agrees.", classes: "BOTH/team/new! BOTH/other/old", named: "all",
			want: want{err: []string{"claims.test in namespace \"other\": no default in the place of BOTHs.test/other/old", "--leave-without-default claims.test"}},
		},
		"NotOffered": {
			reason: "We should refuse a class that no claim is offered.", classes: "NEAR/team/new!", named: "named",
			want: want{err: []string{`claims of named.test are not offered NEARs.test/team/new: choose another class, or see spec.classes.namespaces and spec.classes.fits`}},
		},
		"LeftOut": {
			reason: "We should refuse a class that no claim is offered, before anything is changed.", classes: "last/new! first/old", named: "exclusive",
			want: want{err: []string{`the classes of "lasts.test" are not offered to claims of "exclusive.test": a reference of the form Name cannot tell them from those of "firsts.test", whose name comes first`}},
		},
		"LeftOutOfAnother": {reason: "We should leave alone the default of a claim kind that is not offered the class.", classes: "last/new! first/old", named: "claims"},
		"FirstByName":      {reason: "We should mark a class that claims are offered, and leave alone the mark of one that they are not.", classes: "first/new! last/old", named: "exclusive"},
		"Partition":        {reason: "We should take the mark from the default of the same partition alone.", classes: "zoned/new@east! zoned/all@ zoned/east@east zoned/west@west", named: "zones", want: want{unmark: "zoneds.test/east"}},
		"PartitionOfAll":   {reason: "We should leave the defaults of partitions, and of none that is known, alone when that of the others moves.", classes: "zoned/new@! zoned/all@ zoned/east@east zoned/lost", named: "zones", want: want{unmark: "zoneds.test/all"}},
		"UnknownPartition": {
			reason: "We should refuse a class that would be nobody's default.", classes: "zoned/new!", named: "zones",
			want: want{err: []string{`cannot tell for which claims of zones.test zoneds.test/new would be the default: the expression spec.classes.partition.class of claim kind "zones.test" fails for "zoned/new": no such key: zone`}},
		},
		"DoesNotFit": {reason: "We should refuse a class that does not fit.", classes: "zoned/web@east!", named: "zones", want: want{err: []string{"claims of zones.test are not offered zoneds.test/web"}}},
		"ByExpression": {
			reason: "We should say that there is no mark.", classes: "expressed/new@east", named: "zones",
			want: want{err: []string{"expresseds.test/new has no mark to set: its ClassKind says in spec.default.expression which classes are default: class.metadata.labels.zone != ''"}},
		},
		"FromAnExpression": {
			reason: "We should say that there is no mark to take.", classes: "zoned/new@east! expressed/old@east", named: "zones",
			want: want{err: []string{"the default is expresseds.test/old, and has no mark to take: its ClassKind says in spec.default.expression which classes are default"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			classes := written(strings.Fields(tc.classes))
			kind, _, _ := strings.Cut(classes[0], "/")
			of, err := r.findClassKind(className{kind: kind + "s.test", namespace: strings.Repeat("team", strings.Count(classes[0], "/")-1)}, nil)
			require.NoError(t, err)
			targets, err := classes[:1].Classes(t.Context(), of.ClassKind)
			require.NoError(t, err)
			views, err := (&cluster{reader: classes}).views(t.Context(), r, of)
			require.NoError(t, err)
			named := strings.Fields(strings.ReplaceAll(tc.named+" ", " ", ".test "))
			p, err := newPlan(views, targets.All()[0], named, tc.without)
			if tc.want.err != nil {
				for _, part := range tc.want.err {
					require.ErrorContains(t, err, part, tc.reason)
				}
				return
			}
			require.NoError(t, err, tc.reason)
			unmark := strings.Fields(strings.ReplaceAll(list(p.unmark, nameOf), ",", ""))
			slices.Sort(unmark)
			assert.Equal(t, tc.want.unmark, strings.Join(unmark, " "), tc.reason)
			assert.Equal(t, tc.want.lose, list(p.lose, seatText), tc.reason)
		})
	}
	deleted := r.classKinds[0].NewClass(&metav1.ObjectMeta{Name: "new", DeletionTimestamp: new(metav1.Now())}, nil)
	_, err := newPlan(nil, deleted, nil, nil)
	require.ErrorContains(t, err, "/new is being deleted: choose another class")
}

func TestUnconfirmed(t *testing.T) {
	m, _ := newFakeMover(t, v1beta1.DefaultClass{Kind: "A", Name: "new"}, nil)
	class := func(name, namespace string) *plan {
		return &plan{
			target: fakeKind("A", "as.test", namespace != "", "claims.test").NewClass(&metav1.ObjectMeta{Namespace: namespace, Name: name}, nil),
			seats:  []inventory.Seat{{ClaimKind: "claims.test", Namespace: namespace}},
		}
	}
	partitioned := class("other", "")
	partitioned.seats[0].Partition = "a"
	assert.Empty(t, m.unconfirmed(t.Context(), partitioned), "We should not wait for the status to name the default of a partition.")
	assert.Len(t, m.unconfirmed(t.Context(), class("other", "")), 1, "We should wait for the status to name the default of all namespaces.")
	assert.Empty(t, m.unconfirmed(t.Context(), class("other", "team")), "We should not wait for the status to name the default of one.")
	m, _ = newFakeMover(t, v1beta1.DefaultClass{Kind: "A", Name: "new", Cordoned: true}, nil)
	assert.Empty(t, m.unconfirmed(t.Context(), class("new", "")), "We should see a default that is cordoned, of which we warned.")
	m, _ = newFakeMover(t, v1beta1.DefaultClass{Kind: "B", Namespace: "team", Name: "new"}, nil)
	assert.Equal(t, []string{`ClaimKind claims.test has status.defaults "B/team/new"`}, m.unconfirmed(t.Context(), class("new", "")), "We should say which class it names instead.")
}

func TestMarkPatch(t *testing.T) {
	for name, tc := range map[string]struct {
		reason    string
		source    v1beta1.Source
		namespace string
		unmark    string
		command   string
	}{
		"Ours": {
			reason: "We should write our own annotation, and remove that of Crossplane, too.", source: v1beta1.Source{Annotation: v1beta1.DefaultAnnotation},
			unmark:  `{"metadata":{"annotations":{"classbind.io/default":null,"resourceclass.crossplane.io/is-default-class":null}}}`,
			command: `kubectl patch as.test gold --type merge --patch '{"metadata":{"annotations":{"classbind.io/default":"true"}}}'`,
		},
		"Path": {
			reason: "We should write a field as a boolean.", namespace: "team",
			source:  v1beta1.Source{Path: ".spec.default"},
			unmark:  `{"spec":{"default":null}}`,
			command: `kubectl patch as.test gold --namespace team --type merge --patch '{"spec":{"default":true}}'`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			kind := inventory.NewClassKind(&v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: "as.test"}, Spec: v1beta1.ClassKindSpec{Default: tc.source}},
				fakeKind("A", "as.test", false).GroupVersionKind, tc.namespace != "")
			assert.JSONEq(t, tc.unmark, string(markPatch(kind, false)), tc.reason)
			c := kind.NewClass(&metav1.ObjectMeta{Namespace: tc.namespace, Name: "gold"}, nil)
			assert.Equal(t, tc.command, markCommand(c), "We should mark it with a command that does the same.")
		})
	}
}

// fakeKind returns a class kind of version v1, in the group of its name.
func fakeKind(kind, name string, namespaced bool, claimKinds ...string) *classKind {
	gvk := schema.ParseGroupResource(name).WithVersion("v1").GroupVersion().WithKind(kind)
	aliases := strings.ToLower(kind) + ",bc"
	return &classKind{found: lookup.Resource{GroupVersionKind: gvk, Aliases: aliases}, ClassKind: inventory.NewClassKind(&v1beta1.ClassKind{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1beta1.ClassKindSpec{ClaimKinds: controllertest.Links(claimKinds...), Default: v1beta1.Source{Annotation: "default"}, Weight: v1beta1.Source{Annotation: "weight"}},
	}, gvk, namespaced)}
}

func fakeRegistry(claimKinds []string, classKinds ...*classKind) *registry {
	r := &registry{claimKinds: map[string]*selector.ClaimKind{}, classKinds: classKinds, lookUp: func(k *selector.ClaimKind) lookup.Resource {
		if k.Resource.Resource != "caches" {
			return lookup.Resource{}
		}
		return lookup.Resource{GroupVersionKind: k.Resource.WithVersion("v1").GroupVersion().WithKind("CacheKind"), Aliases: "cache,cch"}
	}}
	for _, name := range claimKinds {
		r.claimKinds[name] = selector.NewClaimKind(&v1beta1.ClaimKind{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return r
}

func TestFindClaimKinds(t *testing.T) {
	r := fakeRegistry([]string{"caches.a.test", "databases.a.test", "databases.b.test", "pods"})
	for name, tc := range map[string]struct {
		reason string
		texts  []string
		want   []string
		err    string
	}{
		"Several":   {reason: "We should take several by any of their names, sort them, and drop duplicates.", texts: []string{"databases.a.test", "cch", "CacheKind.a.test"}, want: []string{"caches.a.test", "databases.a.test"}},
		"None":      {reason: "We should find nothing where nothing is named."},
		"Ambiguous": {reason: "We should name those that a plural may mean.", texts: []string{"databases"}, err: `--for="databases": may be any of databases.a.test, databases.b.test: name one in full`},
		"Misspelt":  {reason: "We should name what there is, and what was meant.", texts: []string{"CachKind"}, err: `--for="CachKind": no such claim kind is registered: there are ["caches.a.test" "databases.a.test" "databases.b.test" "pods"], or create its ClaimKind: did you mean CacheKind?`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := r.findClaimKinds("for", tc.texts)
			if tc.err != "" {
				require.EqualError(t, err, tc.err, tc.reason)
				return
			}
			require.NoError(t, err, tc.reason)
			assert.Equal(t, tc.want, got, tc.reason)
		})
	}
}

func TestFindClassKind(t *testing.T) {
	notInstalled := fakeKind("", "absents.a.test", false, "caches.a.test")
	notInstalled.err = lookup.ErrNotInstalled
	registered := []*classKind{
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
		want   string
		err    string
	}{
		"ShortName":         {reason: "We should take a short name, as kubectl does, of the kind that serves the claim kind.", class: "BC/gold", of: []string{"databases.a.test", "caches.a.test"}, want: "bigclasses.a.test"},
		"Misspelt":          {reason: "We should say which name was meant.", class: "BigClas/gold", err: `"BigClas/gold": no such class kind is registered: there are ["absents.a.test" "bigclasses.a.test" "classes.a.test" "classes.b.test" "classes.c.test" "localclasses.a.test"], or create its ClassKind: did you mean BigClass?`},
		"Name":              {reason: "We should take the name of the ClassKind.", class: "classes.a.test/gold", want: "classes.a.test"},
		"NamespacedKind":    {reason: "We should take a namespaced class.", class: "LocalClass/team/gold", want: "localclasses.a.test"},
		"OneServes":         {reason: "We should take the only one of that kind that serves the claim kind.", class: "Class/gold", want: "classes.a.test"},
		"Ambiguous":         {reason: "We should name those that a kind may mean.", class: "Class/gold", of: []string{"queues.a.test"}, err: `"Class/gold": may be of any of ["classes.b.test" "classes.c.test"]: name one in the place of "Class"`},
		"NoneServesAll":     {reason: "We should say so even if each serves some of them.", class: "Class/gold", of: []string{"caches.a.test", "databases.a.test"}, err: `no class of ["classes.a.test" "classes.b.test" "classes.c.test"] serves all of ["caches.a.test" "databases.a.test"]: add them to spec.claimKinds`},
		"WithoutNamespace":  {reason: "We should ask for the namespace of a namespaced class.", class: "LocalClass/gold", err: `"LocalClass/gold": classes of localclasses.a.test are namespaced: name it LocalClass/NAMESPACE/gold`},
		"NeedlessNamespace": {reason: "We should refuse the namespace of a class that has none.", class: "BigClass/team/gold", err: `"BigClass/team/gold": classes of bigclasses.a.test have no namespace: name it BigClass/gold`},
		"NotInstalled":      {reason: "We should say that the kind is registered and not installed.", class: "absents/gold", err: `"absents/gold": no claim is offered classes of absents.a.test: the API server serves no such resource: install its CRD`},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := parseClassName(tc.class)
			require.NoError(t, err)
			assert.Equal(t, tc.class, c.String(), "We should print a class as it was named.")
			if tc.of == nil {
				tc.of = []string{"caches.a.test"}
			}
			got, err := fakeRegistry(nil, registered...).findClassKind(c, tc.of)
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err, tc.reason)
				return
			}
			require.NoError(t, err, tc.reason)
			assert.Equal(t, tc.want, got.Name, tc.reason)
		})
	}
}
