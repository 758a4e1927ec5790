package selector

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/inventory"
)

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
		d, err := (&Decider{}).Decide(t.Context(), view, view.Kind.Read("default", "claim", object), Admit)
		require.NoError(t, err)
		return d.Warning()
	}
	anyClass := map[string]any{"spec": map[string]any{"classSelector": map[string]any{}}}

	i.SetUnread("as", []string{databases}, v1beta1.ReasonNotPermitted)
	assert.Contains(t, warning(anyClass), `: the classes of no class kind that serves it are known; classbind decided without the classes of "as" (NotPermitted)`)
	assert.NotContains(t, warning(anyClass), "create a ClassKind", "We should not advise to do what is done.")

	b := newKind("bs", "b", databases)
	i.SetClasses(inventory.NewClasses(b, []*inventory.Class{{Kind: b, Name: "gold", Weight: 1}}))
	assert.Equal(t, `classbind decided without the classes of "as" (NotPermitted), which it cannot read: kubectl describe claimkind databases.example.org tells admins what to do`,
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
