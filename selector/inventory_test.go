package selector

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/inventory"
)

const databases, queues, topics = "databases.example.org", "queues.example.org", "topics.example.org"

// claimKindOf has a name, and else what postgres has.
func claimKindOf(name string) *ClaimKind {
	k := postgres()
	k.Name = name
	return NewClaimKind(k)
}

// step is a change of an inventory.
type step func(*Inventory)

func register(claimKind string) step {
	return func(i *Inventory) { i.SetClaimKind(claimKindOf(claimKind)) }
}

func retireDatabases(i *Inventory) { i.DeleteClaimKind(databases) }

// set the classes of a kind to one.
func set(classKind, class string, claimKinds ...string) step {
	return func(i *Inventory) {
		kind := newKind(classKind, classKind[:1], claimKinds...)
		i.SetClasses(inventory.NewClasses(kind, []*inventory.Class{{Kind: kind, Name: class}}))
	}
}

func drop(i *Inventory) { i.DeleteClasses("as") }

func miss(classKind, why string, claimKinds ...string) step {
	return func(i *Inventory) { i.SetMissing(classKind, claimKinds, why) }
}

func known(classKind string) step { return func(i *Inventory) { i.ClearMissing(classKind) } }

func TestInventory(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		do     []step
		want   map[string][]string // the classes of each view
	}{
		"Empty": {reason: "We should show that nothing is registered", want: map[string][]string{}},
		"ClaimKindWithoutClasses": {
			reason: "We should have an empty view of a claim kind that no class kind serves",
			do:     []step{register(databases)},
			want:   map[string][]string{databases: {}},
		},
		"ClassesWithoutClaimKind": {
			reason: "We should know no claim kind that is not registered, whoever serves it",
			do:     []step{set("as", "gold", databases)},
			want:   map[string][]string{},
		},
		"ClassesFirst": {
			reason: "We should put them together in whichever order they come",
			do:     []step{set("as", "gold", databases), register(databases)},
			want:   map[string][]string{databases: {"a/gold"}},
		},
		"SeveralKinds": {
			reason: "We should offer the classes of every class kind to every claim kind that it serves",
			do:     []step{register(databases), register(queues), set("bs", "gold", databases, queues), set("as", "gold", databases, topics)},
			want:   map[string][]string{databases: {"a/gold", "b/gold"}, queues: {"b/gold"}},
		},
		"ClassesReplaced": {
			reason: "We should put the new classes in the place of the old",
			do:     []step{register(databases), set("as", "gold", databases), set("as", "silver", databases)},
			want:   map[string][]string{databases: {"a/silver"}},
		},
		"ClassKindMoves": {
			reason: "We should take the classes from the claim kind that they serve no more",
			do:     []step{register(databases), register(queues), set("as", "gold", databases), set("bs", "gold", databases), set("as", "gold", queues)},
			want:   map[string][]string{databases: {"b/gold"}, queues: {"a/gold"}},
		},
		"ClassesDeleted": {
			reason: "We should offer no class of a kind that is gone",
			do:     []step{register(databases), register(queues), set("as", "gold", databases, queues), set("bs", "gold", databases), drop},
			want:   map[string][]string{databases: {"b/gold"}, queues: {}},
		},
		"ClaimKindRetired": {
			reason: "We should know no more of a claim kind that is registered no more than of one that never was",
			do:     []step{register(databases), register(queues), set("as", "gold", databases, queues), retireDatabases}, want: map[string][]string{queues: {"a/gold"}},
		},
		"ClassesOfRetiredClaimKind": {
			reason: "We should not bring a claim kind back for its classes",
			do:     []step{register(databases), retireDatabases, set("as", "gold", databases)},
			want:   map[string][]string{},
		},
		"ClaimKindBack": {
			reason: "We should offer all classes again when a claim kind comes back",
			do:     []step{register(databases), set("as", "gold", databases), retireDatabases, set("bs", "gold", databases), register(databases)},
			want:   map[string][]string{databases: {"a/gold", "b/gold"}},
		},
		"UnknownDeleted": {reason: "We should not mind what is not there", do: []step{retireDatabases, drop}, want: map[string][]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			opened, closed := NewInventory(), NewInventory()
			opened.Open()
			for _, do := range tc.do {
				do(opened)
				do(closed)
			}
			assert.Equal(t, tc.want, shown(opened.Snapshot()), tc.reason)
			assert.Nil(t, closed.Snapshot(), "We should show nothing before we know everything")
			closed.Open()
			assert.Equal(t, tc.want, shown(closed.Snapshot()), tc.reason)
			for _, k := range []string{databases, queues, topics} {
				assert.Equal(t, tc.want[k] != nil, closed.ClaimKind(k) != nil, tc.reason)
			}
		})
	}
}

func TestInventoryMissing(t *testing.T) {
	const fault = `the classes of "as", which were offered to claims of "databases.example.org" before, are not known yet (to go on without ` +
		`them, run: kubectl annotate classkind as classbind.io/ignored=true): no answer`
	for name, tc := range map[string]struct {
		reason string
		do     []step
		want   map[string]string // the text of each fault
	}{
		"Missing": {
			reason: "We should bind no claim of the kinds that a missing class kind serves, and those of others.",
			do:     []step{miss("as", "no answer", databases)},
			want:   map[string]string{databases: fault},
		},
		"ClassesOfAnother": {
			reason: "We should not take another class kind's classes for those that are missing.",
			do:     []step{miss("as", "no answer", databases), set("bs", "gold", databases), set("bs", "gold", databases)},
			want:   map[string]string{databases: fault},
		},
		"ClaimKindLater": {
			reason: "We should remember what is missing for a claim kind that is registered later, or anew.",
			do:     []step{retireDatabases, miss("as", "no answer", databases), register(databases)},
			want:   map[string]string{databases: fault},
		},
		"Found": {
			reason: "We should bind claims again once the classes are known, of claim kinds that they serve no more, too.",
			do:     []step{miss("as", "no answer", databases, topics), set("as", "gold", databases)},
			want:   map[string]string{},
		},
		"Known": {
			reason: "We should know better than one who says that classes are missing which are here.",
			do:     []step{set("as", "gold", databases), miss("as", "no answer", databases)},
			want:   map[string]string{},
		},
		"Deleted": {
			reason: "We should wait no more for a class kind that is registered no more.",
			do:     []step{miss("as", "no answer", databases), drop},
			want:   map[string]string{},
		},
		"Cleared": {
			reason: "We should wait no more when we are told to.",
			do:     []step{miss("as", "no answer", databases), known("as"), known("unknown")},
			want:   map[string]string{},
		},
		"Changed": {
			reason: "We should go by what the class kind serves now, and say why it is missing now.",
			do:     []step{miss("as", "not looked up yet", topics), miss("as", "no answer", databases)},
			want:   map[string]string{databases: fault},
		},
		"Two": {
			reason: "We should name the first while two are missing.",
			do:     []step{miss("bs", "refused", databases), miss("as", "no answer", databases)},
			want:   map[string]string{databases: fault},
		},
	} {
		t.Run(name, func(t *testing.T) {
			i := NewInventory()
			for _, name := range []string{databases, queues, topics} {
				register(name)(i)
			}
			i.Open()
			for _, do := range tc.do {
				do(i)
			}
			faults := map[string]string{}
			for name, view := range i.Snapshot() {
				assert.Equal(t, view.Fault, view.Missing, tc.reason)
				if view.Fault != nil {
					assert.Equal(t, v1beta1.ReasonClassKindMissing, view.Fault.Reason)
					faults[name] = view.Fault.Text
				}
			}
			assert.Equal(t, tc.want, faults, tc.reason)
		})
	}
}

func TestInventorySharesChanges(t *testing.T) {
	i := NewInventory()
	i.Open()
	var names []string
	for _, name := range []string{"databases.example.org", "queues.example.org"} {
		i.SetClaimKind(claimKindOf(name))
		names = append(names, name)
	}
	kind := newKind("as", "A", names...)
	classes := inventory.NewClasses(kind, []*inventory.Class{{Kind: kind, Name: "gold"}})
	i.SetClasses(classes)
	classes = classes.With(&inventory.Class{Kind: kind, Name: "silver"})
	i.ChangeClass(classes, "", "silver")
	one, other := i.Snapshot()[names[0]], i.Snapshot()[names[1]]
	assert.Equal(t, []*inventory.Classes{classes}, one.Classes)
	assert.Same(t, one.Classes[0], other.Classes[0], "We should hold classes, and their index, once for all claim kinds.")
}

// Class kinds move between two claim kinds while classes are chosen: each snapshot must
// show each of them in one place, and all of them once all are known.
func TestInventoryRaces(t *testing.T) {
	const moves, readers = 300, 4
	claimKinds := []string{"databases.example.org", "queues.example.org"}
	classKinds := []string{"as", "bs", "cs"}
	i := NewInventory()
	setClasses := func(classKind, claimKind string) {
		kind := newKind(classKind, "Class", claimKind)
		i.SetClasses(inventory.NewClasses(kind, []*inventory.Class{
			{Kind: kind, Name: "gold", Labels: inventory.NewLabels(map[string]string{"tier": "gold"}), Weight: 1},
		}))
	}
	for _, k := range claimKinds {
		register(k)(i)
	}
	for _, k := range classKinds {
		setClasses(k, claimKinds[0])
	}
	i.Open()

	var writing, reading sync.WaitGroup
	var written atomic.Bool
	for _, k := range classKinds {
		writing.Go(func() {
			for n := range moves {
				setClasses(k, claimKinds[n%2])
			}
		})
	}
	writing.Go(func() {
		for n := range moves {
			register(claimKinds[n%2])(i)
			i.SetClaimKind(NewClaimKind(postgres()))
			i.DeleteClaimKind(postgres().Name)
			i.DeleteClasses("unknown")
		}
	})
	for range readers {
		reading.Go(func() {
			for last := false; !last; {
				last = written.Load()
				s := i.Snapshot()
				seen := map[string]int{}
				for _, k := range claimKinds {
					for _, x := range s[k].Classes {
						assert.Contains(t, x.Kind.ClaimKinds, k, "We should offer no class to a claim kind that it does not serve")
						seen[x.Kind.Name]++
					}
					d := choose(s[k], nthClaim(0), 0)
					assert.Equal(t, len(s[k].Classes), d.Candidates)
				}
				if !assert.Equal(t, map[string]int{"as": 1, "bs": 1, "cs": 1}, seen, "We should move a class kind at once") {
					return
				}
			}
		})
	}
	writing.Wait()
	written.Store(true)
	reading.Wait()

	final := claimKinds[(moves-1)%2]
	assert.Equal(t, []string{"Class/gold", "Class/gold", "Class/gold"}, shown(i.Snapshot())[final], "We should end with all in %q", final)
}

// shown returns the classes of each view.
func shown(s Snapshot) map[string][]string {
	all := map[string][]string{}
	for k, v := range s {
		var classes []*inventory.Class
		for _, x := range v.Classes {
			classes = append(classes, x.All()...)
		}
		all[k] = append([]string{}, names(classes)...)
	}
	return all
}

// TestUnread has class kinds whose classes have never been known.
func TestUnread(t *testing.T) {
	const databases = "databases.example.org"
	k := postgres()
	k.Name = databases
	i := NewInventory()
	i.SetClaimKind(NewClaimKind(k))
	i.Open()
	warning := func(object map[string]any) string {
		t.Helper()
		view := i.Snapshot()[databases]
		d := decided(t, new(Decider), view, view.Kind.Reader.Read("default", "claim", object), Mode{})
		return d.Warning()
	}
	anyClass := map[string]any{"spec": map[string]any{"classSelector": map[string]any{}}}

	i.SetUnread("as", []string{databases}, v1beta1.ReasonNotPermitted)
	assert.Contains(t, warning(anyClass), `: the classes of no class kind that serves it are known; classbind decided without the classes of "as" (NotPermitted)`)
	assert.NotContains(t, warning(anyClass), "create a ClassKind", "We should not advise to do what is done.")

	b := newKind("bs", "b", databases)
	i.SetClasses(inventory.NewClasses(b, []*inventory.Class{{Kind: b, Name: "gold", Weight: 1}}))
	assert.Equal(t, `classbind decided without the classes of "as" (NotPermitted), which it cannot read: kubectl describe claimkind `+
		`databases.example.org shows admins what to do`,
		warning(anyClass), "We should bind a claim to what is known, and say that this is not all.")

	i.SetUnread("bs", []string{databases}, v1beta1.ReasonNotSynced)
	assert.Len(t, i.Snapshot()[databases].Unread, 1, "We should not forget classes that are known.")
	i.SetMissing("as", []string{databases}, "no answer")
	assert.Empty(t, i.Snapshot()[databases].Unread, "We should say once what is not known.")
	i.SetUnread("as", []string{databases}, v1beta1.ReasonNotPermitted)
	assert.NotNil(t, i.Snapshot()[databases].Missing, "We should not go on without classes that were offered.")

	i.DeleteClasses("as")
	assert.Empty(t, warning(anyClass), "We should say nothing of a class kind that is not registered any more.")
	assert.Contains(t, warning(map[string]any{}), "set spec.classSelector or the annotation classbind.io/class-selector")
	i.SetClaimKind(withPaths(k, PathsCheck{SelectorAbsent: true}))
	assert.Contains(t, warning(map[string]any{}), ": set the annotation classbind.io/class-selector", "We should name no field that the claim does not have.")
}

// TestIgnored has claims decided on without the classes of a kind, whatever else is said of these, until that ends.
func TestIgnored(t *testing.T) {
	ignore := func(i *Inventory) { i.Ignore("as", []string{databases}) }
	missing, bound := `): no answer`, `"as" (Ignored), which an admin has it ignore: kubectl describe claimkind databases.example.org`
	for name, tc := range map[string]struct {
		reason        string
		do            []step
		fault, unread string // parts of the texts
		classes       int
	}{
		"Known":   {"We should offer none of them.", []step{set("as", "gold", databases), ignore}, "", bound, 0},
		"Missing": {"We should bind claims again.", []step{miss("as", "no answer", databases), ignore}, "", bound, 0},
		"Withheld": {
			"Whatever is wrong with the registration.",
			[]step{func(i *Inventory) { i.Withhold("as", []string{databases}, "no answer") }, ignore},
			"", bound, 0,
		},
		"MissingYet": {"A replica that starts may wait for them no more.", []step{ignore, miss("as", "no answer", databases)}, "", bound, 0},
		"Others":     {"We should offer those of others.", []step{set("bs", "gold", databases), set("as", "gold", databases), ignore}, "", bound, 1},
		"Unread": {
			"We should say why they are not known, once they are not ignored any more.",
			[]step{ignore, func(i *Inventory) { i.SetUnread("as", []string{databases}, "NotSynced") }},
			"",
			`"as" (NotSynced), which it cannot read`, 0,
		},
		"Again": {
			"We should bind none until they are known again.",
			[]step{ignore, func(i *Inventory) { i.Withhold("as", []string{databases}, "no answer") }},
			missing, "", 0,
		},
		"Back":       {"We should offer them.", []step{ignore, set("as", "gold", databases)}, "", "", 1},
		"Deleted":    {"We should forget them.", []step{ignore, drop}, "", "", 0},
		"ClearedToo": {"We should say so to each author, whoever waits for them no more.", []step{ignore, known("as")}, "", bound, 0},
	} {
		t.Run(name, func(t *testing.T) {
			i := NewInventory()
			register(databases)(i)
			i.Open()
			for _, do := range tc.do {
				do(i)
			}
			view, fault := i.Snapshot()[databases], ""
			if view.Fault != nil {
				fault = view.Fault.Text
			}
			assert.Contains(t, fault, tc.fault, tc.reason)
			assert.Equal(t, tc.fault == "", fault == "", tc.reason)
			assert.Contains(t, view.UnreadText(), tc.unread, tc.reason)
			assert.Equal(t, tc.unread == "", view.UnreadText() == "", tc.reason)
			assert.Equal(t, tc.classes, view.Len(), tc.reason)
			assert.Equal(t, tc.fault != "" || tc.unread == bound, view.Incomplete() != nil, "We should let no other class become default where one of them may be.")
		})
	}
}

// TestUnreadForAnother has a class kind, which is known, serve another claim kind.
func TestUnreadForAnother(t *testing.T) {
	i := NewInventory()
	i.Open()
	for _, name := range []string{"databases", "queues"} {
		k := postgres()
		k.Name, k.Spec.Claims.Resource = name, name
		i.SetClaimKind(NewClaimKind(k))
	}
	i.SetClasses(inventory.NewClasses(newKind("as.example.org", "A", "databases"), nil))
	i.SetUnread("as.example.org", []string{"databases", "queues"}, v1beta1.ReasonNotSynced)
	assert.Empty(t, i.Snapshot()["databases"].Unread, "We should offer the classes as before.")
	assert.Equal(t, []UnreadKind{{Name: "as.example.org", Reason: v1beta1.ReasonNotSynced}}, i.Snapshot()["queues"].Unread, "We should say what is not read yet.")
	i.SetClasses(inventory.NewClasses(newKind("as.example.org", "A", "databases", "queues"), nil))
	assert.Empty(t, i.Snapshot()["queues"].Unread)
	assert.Len(t, i.Snapshot()["queues"].Classes, 1)
}

// TestInventoryOfANewcomer which no reference can distinguish from a class kind whose name comes first.
func TestInventoryOfANewcomer(t *testing.T) {
	k := postgres()
	k.Spec.Reference.Form = v1beta1.LocalObjectReference
	i := NewInventory()
	i.SetClaimKind(NewClaimKind(k))
	i.Open()
	first, newcomer := newKind("as", "a", k.Name), newKind("bs", "b", k.Name)
	classes := func(kind *inventory.ClassKind, names ...string) *inventory.Classes {
		var all []*inventory.Class
		for _, n := range names {
			all = append(all, kind.NewClass(&metav1.ObjectMeta{Name: n}, nil))
		}
		return inventory.NewClasses(kind, all)
	}
	shows := func(reason string, want ...string) {
		t.Helper()
		view := i.Snapshot()[k.Name]
		require.Nil(t, view.Fault, reason)
		assert.Equal(t, map[string][]string{k.Name: want}, shown(i.Snapshot()), reason)
	}
	i.SetClasses(classes(newcomer, "new"))
	shows("We should offer what is alone.", "b/new")
	i.SetClasses(classes(first, "old"))
	shows("We should offer the first by name, whichever is known first.", "a/old")
	i.SetClasses(classes(newcomer, "new", "newer"))
	shows("We should not offer a change of the newcomer's.", "a/old")
	assert.NotNil(t, i.Snapshot()[k.Name].FaultOf("bs"))
	i.SetClasses(classes(first, "old", "other"))
	shows("We should offer a change of the first one's.", "a/old", "a/other")
	assert.NotNil(t, i.Snapshot()[k.Name].FaultOf("bs"), "We should remember who is left out.")
	i.DeleteClasses("as")
	shows("We should offer the newcomer once it is alone.", "b/new", "b/newer")
	assert.Nil(t, i.Snapshot()[k.Name].FaultOf("bs"))
}
