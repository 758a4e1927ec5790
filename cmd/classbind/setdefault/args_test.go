package setdefault

import (
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
	registered := []string{"caches.a.test", "databases.a.test", "databases.b.test", "pods"}
	for name, tc := range map[string]struct {
		reason     string
		registered []string
		texts      []string
		want       []string
		err        string
	}{
		"Name":      {reason: "We should take a full name.", registered: registered, texts: []string{"databases.b.test"}, want: []string{"databases.b.test"}},
		"Plural":    {reason: "We should take a plural that is there once.", registered: registered, texts: []string{"caches"}, want: []string{"caches.a.test"}},
		"Core":      {reason: "We should take the name of a core kind.", registered: append([]string{"pods.a.test"}, registered...), texts: []string{"pods"}, want: []string{"pods"}},
		"Kind":      {reason: "We should take the kind in any case, as for a class.", registered: registered, texts: []string{"cachekind"}, want: []string{"caches.a.test"}},
		"Singular":  {reason: "We should take the singular name, as kubectl does.", registered: registered, texts: []string{"Cache"}, want: []string{"caches.a.test"}},
		"ShortName": {reason: "We should take a short name, as kubectl does.", registered: registered, texts: []string{"cch"}, want: []string{"caches.a.test"}},
		"KindGroup": {reason: "We should take a kind with its group, as kubectl does.", registered: registered, texts: []string{"CacheKind.a.test"}, want: []string{"caches.a.test"}},
		"Misspelt":  {reason: "We should say which name was meant.", registered: registered, texts: []string{"CachKind"}, err: "or create its ClaimKind: did you mean CacheKind?"},
		"Twice":     {reason: "We should take several, sort them, and drop duplicates.", registered: registered, texts: []string{"databases.a.test", "caches.a.test", "caches"}, want: []string{"caches.a.test", "databases.a.test"}},
		"None":      {reason: "We should find nothing where nothing is named.", registered: registered},
		"Ambiguous": {reason: "We should name those that a plural may mean.", registered: registered, texts: []string{"databases"}, err: `--for="databases": may be any of databases.a.test, databases.b.test: name one in full`},
		"Unknown":   {reason: "We should name what there is.", registered: registered, texts: []string{"queues"}, err: `--for="queues": no such claim kind is registered: name one of caches.a.test, databases.a.test, databases.b.test, pods, or create its ClaimKind`},
		"Group":     {reason: "We should not take half a name.", registered: registered, texts: []string{"caches.a"}, err: `--for="caches.a": no such claim kind is registered`},
		"Empty":     {reason: "We should say where nothing is registered.", texts: []string{"caches"}, err: `--for="caches": no claim kind is registered: create a ClaimKind`},
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
	notInstalled.lookupErr = lookup.ErrNotInstalled
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
		none   bool     // registered
		want   string
		err    string
	}{
		"Kind":              {reason: "We should take the kind.", class: "BigClass/gold", want: "bigclasses.a.test"},
		"KindInAnyCase":     {reason: "We should take the kind in any case, as kubectl does.", class: "bigclass/gold", want: "bigclasses.a.test"},
		"Plural":            {reason: "We should take the plural.", class: "bigclasses/gold", want: "bigclasses.a.test"},
		"Singular":          {reason: "We should take the kind with its group, as kubectl does.", class: "bigclass.a.test/gold", want: "bigclasses.a.test"},
		"ShortName":         {reason: "We should take a short name, as kubectl does, of the kind that serves the claim kind.", class: "BC/gold", of: []string{"databases.a.test", "caches.a.test"}, want: "bigclasses.a.test"},
		"Misspelt":          {reason: "We should say which name was meant.", class: "BigClas/gold", err: "or create its ClassKind: did you mean BigClass?"},
		"Name":              {reason: "We should take the name of the ClassKind.", class: "classes.a.test/gold", want: "classes.a.test"},
		"NamespacedKind":    {reason: "We should take a namespaced class.", class: "LocalClass/team/gold", want: "localclasses.a.test"},
		"OneServes":         {reason: "We should take the only one of that kind that serves the claim kind.", class: "Class/gold", want: "classes.a.test"},
		"Unknown":           {reason: "We should name the registered class kinds.", class: "Klass/gold", err: `"Klass/gold": no such class kind is registered: KIND must be one of absents.a.test, bigclasses.a.test, classes.a.test,`},
		"NoneRegistered":    {reason: "We should say where there is none.", class: "Class/gold", none: true, err: `"Class/gold": no class kind is registered: create a ClassKind`},
		"Ambiguous":         {reason: "We should name those that a kind may mean.", class: "Class/gold", of: []string{"queues.a.test"}, err: `"Class/gold": may be of any of classes.b.test, classes.c.test: name one in the place of "Class"`},
		"DoesNotServe":      {reason: "We should name the claim kind that the class kind does not serve.", class: "classes.a.test/gold", of: []string{"caches.a.test", "queues.a.test"}, err: `"classes.a.test/gold": classes.a.test does not serve queues.a.test: add it to spec.claimKinds of the ClassKind`},
		"NoneServes":        {reason: "We should name all candidates and what they do not serve.", class: "Class/gold", of: []string{"tables.a.test"}, err: `"Class/gold": none of classes.a.test, classes.b.test, classes.c.test serves tables.a.test`},
		"NoneServesAll":     {reason: "We should say so even if each serves some of them.", class: "Class/gold", of: []string{"caches.a.test", "databases.a.test"}, err: `none of classes.a.test, classes.b.test, classes.c.test serves caches.a.test and databases.a.test`},
		"WithoutNamespace":  {reason: "We should ask for the namespace of a namespaced class.", class: "LocalClass/gold", err: `"LocalClass/gold": classes of localclasses.a.test are namespaced: name it LocalClass/NAMESPACE/gold`},
		"NeedlessNamespace": {reason: "We should refuse the namespace of a class that has none.", class: "BigClass/team/gold", err: `"BigClass/team/gold": classes of bigclasses.a.test have no namespace: name it BigClass/gold`},
		"NotInstalled":      {reason: "We should say that the kind is registered and not installed.", class: "absents/gold", err: `"absents/gold": cannot find its kind: the API server serves no such resource: install its CRD`},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := parseClassName(tc.class)
			require.NoError(t, err)
			assert.Equal(t, tc.class, c.String(), "We should print a class as it was named.")
			if tc.of == nil {
				tc.of = []string{"caches.a.test"}
			}
			r := fakeRegistry(nil, registered...)
			if tc.none {
				r = fakeRegistry(nil)
			}
			got, err := r.findClassKind(c, tc.of)
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
