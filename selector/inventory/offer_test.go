package inventory

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/rules"
)

// claimKind is a ClaimKind with little more than the CRD's defaults.
func claimKind() *v1beta1.ClaimKind {
	return &v1beta1.ClaimKind{ObjectMeta: metav1.ObjectMeta{Name: "claims.example.org"}, Spec: v1beta1.ClaimKindSpec{
		Reference: v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.classRef"}, Form: v1beta1.ObjectReference},
		Selector:  v1beta1.ClassSelector{Path: ".spec.classSelector"},
	}}
}

func newDemand(k *v1beta1.ClaimKind) *Demand {
	compiled := rules.NewForClaims(k)
	d := NewDemand(k, claim.NewReader(k, compiled), compiled)
	return &d
}

func newOffer(k *v1beta1.ClaimKind, classes ...*Classes) *Offer {
	o, _ := NewOffer(newDemand(k), slices.Clone(classes), nil)
	return &o
}

const (
	defaultAnnotation = "resourceclass.crossplane.io/is-default-class"
	weightAnnotation  = "resourceclass.crossplane.io/weight"
)

// newKind is a cluster-scoped ClassKind with the CRD's defaults.
func newKind(name, kind string) *ClassKind {
	k := &v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: crossplaneClassKind()}
	return NewClassKind(k, schema.ParseGroupResource(name).WithVersion("v1").GroupVersion().WithKind(kind), false)
}

func crossplaneClassKind() v1beta1.ClassKindSpec {
	return v1beta1.ClassKindSpec{
		Default: v1beta1.Source{Annotation: defaultAnnotation},
		Weight:  v1beta1.Source{Annotation: weightAnnotation},
	}
}

func names(classes []*Class) (all []string) {
	for _, c := range classes {
		all = append(all, c.String())
	}
	slices.Sort(all)
	return all
}

func TestClassOf(t *testing.T) {
	golds, nears := newKind("golds.example.org", "Gold"), newKind("nears.example.org", "Near")
	nears.Namespaced = true
	all := []*Classes{
		NewClasses(golds, []*Class{golds.NewClass(&metav1.ObjectMeta{Name: "gold"}, nil)}),
		NewClasses(nears, []*Class{nears.NewClass(&metav1.ObjectMeta{Namespace: "team", Name: "near"}, nil)}),
	}
	type object = map[string]any
	for name, tc := range map[string]struct {
		reason    string
		As        v1beta1.ReferenceForm
		names     []v1beta1.NamespaceName
		reference any
		want      string
		found     bool
	}{
		"NoReference": {"We should miss nothing where nothing is named.", v1beta1.Name, nil, nil, "", false},
		"EmptyName":   {"We should miss nothing where no class is meant.", v1beta1.Name, nil, "", "", false},
		"There":       {"We should find a class by its name.", v1beta1.Name, nil, "gold", "", true},
		"Gone": {
			"We should miss a class that is not there.", v1beta1.LocalObjectReference, nil,
			object{"name": "silver"},
			"golds.example.org/silver",
			false,
		},
		"ByKind": {
			"We should miss a class that is there in another kind alone.",
			v1beta1.TypedLocalObjectReference, nil,
			object{"apiGroup": "example.org", "kind": "Near", "name": "gold"},
			"nears.example.org/team/gold", false,
		},
		"OwnNamespace": {
			"We should look in the claim's namespace for a reference without one.",
			v1beta1.TypedLocalObjectReference, nil,
			object{"apiGroup": "example.org", "kind": "Near", "name": "near"},
			"", true,
		},
		"NamespaceOfTheKind": {
			"We should look where the controller of the claim looks.", v1beta1.TypedLocalObjectReference,
			[]v1beta1.NamespaceName{"other"},
			object{"apiGroup": "example.org", "kind": "Near", "name": "near"},
			"nears.example.org/other/near", false,
		},
		"Namespace": {
			"We should look in the namespace of the reference.", v1beta1.ObjectReference, nil,
			object{"apiVersion": "example.org/v1", "kind": "Near", "namespace": "other", "name": "near"},
			"nears.example.org/other/near", false,
		},
		"ClusterScoped": {
			"We should find a class without a namespace in whatever version.",
			v1beta1.ObjectReference, nil,
			object{"apiVersion": "example.org/v1beta1", "kind": "Gold", "name": "gold"},
			"", true,
		},
		"ClusterScopedAndGone": {
			"We should name a class without a namespace.", v1beta1.ObjectReference, nil,
			object{"apiVersion": "example.org/v1", "kind": "Gold", "name": "silver"},
			"golds.example.org/silver", false,
		},
		"KindAlone": {"We should find a class by its Kind and name.", v1beta1.KindReference, nil, object{"kind": "Near", "name": "near"}, "", true},
		"OtherKindAlone": {
			"We should miss a class that is there in another Kind alone.",
			v1beta1.KindReference, nil,
			object{"kind": "Gold", "name": "near"},
			"golds.example.org/near", false,
		},
		"NoNamespaceStored": {
			"We should look in the claim's namespace where the reference has none.",
			v1beta1.ObjectReference, nil,
			object{"apiVersion": "example.org/v1", "kind": "Near", "name": "near"},
			"", true,
		},
		"KindThatIsNotKnown": {
			"We should say nothing of a kind that we do not know.", v1beta1.ObjectReference, nil,
			object{"apiVersion": "example.org/v1", "kind": "Iron", "name": "gold"},
			"", false,
		},
		"ReferenceOfOtherShape": {"We should say nothing of a reference that names no class.", v1beta1.ObjectReference, nil, "gold", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			k := claimKind()
			k.Spec.Reference.Form = tc.As
			if tc.names != nil {
				k.Spec.Classes.Namespaces = v1beta1.ClassNamespaces{From: v1beta1.FromNames, Names: tc.names}
			}
			k.Spec.Claims.SkipIfSet = []v1beta1.Place{{Path: ".spec.volumeName"}}
			claim := map[string]any{"spec": map[string]any{"classRef": tc.reference}}
			class, missing := newDemand(k).ClassOf(all, "team", claim)
			assert.Equal(t, tc.want, missing, tc.reason)
			assert.Equal(t, tc.found, class != nil, tc.reason)
			claim["spec"].(map[string]any)["volumeName"] = "mine"
			_, missing = newDemand(k).ClassOf(all, "team", claim)
			assert.Empty(t, missing, "We should miss no class of a claim that has what it needs.")
		})
	}
}

func TestSeatOf(t *testing.T) {
	const name = "claims.example.org"
	all := Seat{ClaimKind: name}
	names := v1beta1.ClassNamespaces{From: v1beta1.FromNames, Names: []v1beta1.NamespaceName{"platform", "shared"}}
	cases := map[string]struct {
		reason     string
		namespaces v1beta1.ClassNamespaces
		class      string // its namespace
		want       Seat
		offered    bool
	}{
		"Absent": {
			"We should take the claim's own namespace for what is absent",
			v1beta1.ClassNamespaces{},
			"team",
			Seat{ClaimKind: name, Namespace: "team"},
			true,
		},
		"SameAsClaim": {
			"We should give each namespace a seat of its own",
			v1beta1.ClassNamespaces{From: v1beta1.FromSameAsClaim},
			"team",
			Seat{ClaimKind: name, Namespace: "team"},
			true,
		},
		"SameAsClaimClusterScope": {"We should give classes without a namespace one seat", v1beta1.ClassNamespaces{From: v1beta1.FromSameAsClaim}, "", all, true},
		"All": {
			"We should give all namespaces one seat where claims of all are offered them",
			v1beta1.ClassNamespaces{From: v1beta1.FromAll},
			"team", all, true,
		},
		"AllClusterScope":   {"We should give all classes one seat", v1beta1.ClassNamespaces{From: v1beta1.FromAll}, "", all, true},
		"Names":             {"We should give the named namespaces one seat", names, "shared", all, true},
		"NamesClusterScope": {"We should give classes without a namespace the same seat", names, "", all, true},
		"NotNamed":          {"We should give no seat to what no claim is offered", names, "team", all, false},
		"AnotherRelease": {
			"We should take the narrowest for what we do not know",
			v1beta1.ClassNamespaces{From: "Selector"},
			"team",
			Seat{ClaimKind: name, Namespace: "team"},
			true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			k := claimKind()
			k.Spec.Classes.Namespaces = tc.namespaces
			seat, offered, err := newDemand(k).SeatOf(&Class{Kind: newKind("classes.example.org", "Class"), Namespace: tc.class})
			require.NoError(t, err)
			assert.Equal(t, tc.offered, offered, tc.reason)
			if offered {
				assert.Equal(t, tc.want, seat, tc.reason)
			}
		})
	}
}

func TestDefaultsOf(t *testing.T) {
	wide, near := newKind("wides.example.org", "Wide"), newKind("nears.example.org", "Near")
	near.Namespaced = true
	classes := []*Classes{
		NewClasses(wide, []*Class{{Kind: wide, Name: "a", Default: true}, {Kind: wide, Name: "b"}}),
		NewClasses(near, []*Class{
			{Kind: near, Namespace: "team", Name: "a", Default: true},
			{Kind: near, Namespace: "team", Name: "b", Default: true},
			{Kind: near, Namespace: "team", Name: "leaving", Default: true, Terminating: true},
			{Kind: near, Namespace: "other", Name: "c", Default: true},
		}),
	}
	cases := map[string]struct {
		reason     string
		namespaces v1beta1.ClassNamespaces
		want       map[string][]string // by the namespace of the seat
	}{
		"SameAsClaim": {
			"We should distinguish the seats",
			v1beta1.ClassNamespaces{},
			map[string][]string{"": {"Wide/a"}, "team": {"Near/team/a", "Near/team/b"}, "other": {"Near/other/c"}},
		},
		"All": {
			"We should find all in one seat",
			v1beta1.ClassNamespaces{From: v1beta1.FromAll},
			map[string][]string{"": {"Near/other/c", "Near/team/a", "Near/team/b", "Wide/a"}},
		},
		"Names": {
			"We should leave out what no claim is offered",
			v1beta1.ClassNamespaces{From: v1beta1.FromNames, Names: []v1beta1.NamespaceName{"other"}},
			map[string][]string{"": {"Near/other/c", "Wide/a"}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			k := claimKind()
			k.Spec.Classes.Namespaces = tc.namespaces
			view := newOffer(k, classes...)
			got := map[string][]string{}
			for seat, defaults := range view.DefaultsBySeat() {
				assert.Equal(t, defaults, view.DefaultsOf(seat), tc.reason)
				got[seat.Namespace] = names(defaults)
			}
			assert.Equal(t, tc.want, got, tc.reason)
			assert.Empty(t, view.DefaultsOf(Seat{ClaimKind: k.Name, Namespace: "nobody"}), tc.reason)
		})
	}
}

// The guard asks for up to 64 seats in one review. A dry run by an author of classes in any namespace is enough for that.
func TestDefaultsOfOthersCostNothing(t *testing.T) {
	kind := newKind("as.example.org", "Class")
	kind.Namespaced = true
	classes := make([]*Class, 10_000)
	for i := range classes {
		classes[i] = &Class{Kind: kind, Namespace: fmt.Sprint("team-", i), Name: "gold", Default: true}
	}
	view := newOffer(claimKind(), NewClasses(kind, classes))
	for name, tc := range map[string]struct {
		reason    string
		namespace string
		want      []string
	}{
		"Namespace": {"We should not go through the classes of other namespaces.", "team-0", []string{"Class/team-0/gold"}},
		"None":      {"We should not go through the classes of namespaces for a seat that has none.", "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			get := func() []*Class {
				return view.DefaultsOf(Seat{ClaimKind: view.demand.reader.Name, Namespace: tc.namespace})
			}
			assert.Equal(t, tc.want, names(get()), tc.reason)
			assert.Less(t, testing.AllocsPerRun(1, func() { get() }), 50.0, tc.reason)
		})
	}
}
