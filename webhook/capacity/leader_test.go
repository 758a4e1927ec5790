package capacity

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
)

// counted are claims as a test says.
type counted struct {
	usage  map[string]selector.Usage // by class
	landed map[string]bool           // by uid
	lists  int
}

func (c *counted) Usage(class *inventory.Class, writes []selector.Write) (u selector.Usage, known bool) {
	u, known = c.usage[class.Name]
	u.Shown = map[selector.Write]bool{}
	for _, w := range writes {
		u.Shown[w] = c.landed[w.UID]
	}
	return u, known
}

func (c *counted) List(context.Context, *inventory.ClassKind) (func(*inventory.Class) selector.Usage, error) {
	c.lists++
	return func(class *inventory.Class) selector.Usage { return c.usage[class.Name] }, nil
}

func (c *counted) Landed(_ context.Context, w selector.Write) (bool, error) {
	return c.landed[w.UID], nil
}

func TestLeader(t *testing.T) {
	const window = time.Minute
	s, claims := newAPIServer(t), &counted{usage: map[string]selector.Usage{"old": {Used: 3}, "new": {}}, landed: map[string]bool{}}
	ledgers := &Ledgers{Client: s, Live: s, Namespace: "classbind"}
	old, added := newClass("old", 5), newClass("new", 2)
	added.Kind = old.Kind
	classes := []*inventory.Class{old}
	asked, unknown := false, false
	l := &Leader{
		Ledgers: ledgers, Claims: claims, Window: window,
		Snapshot: func() selector.Snapshot {
			all := inventory.NewClasses(old.Kind, classes)
			return selector.Snapshot{"claims": {Offer: inventory.Offer{All: []*inventory.Classes{all}}}}
		},
		Asked:   func(context.Context, *inventory.ClassKind) (bool, error) { return asked, nil },
		Unknown: func(context.Context, string) (bool, error) { return unknown, nil },
	}
	now := time.Now()
	round := func(after time.Duration) {
		t.Helper()
		now = now.Add(after)
		require.NoError(t, l.round(t.Context(), now))
	}
	open := func(c *inventory.Class) bool {
		e := ledgers.load(nameOf(c))
		return e != nil && e.Open
	}

	round(0)
	round(window)
	assert.False(t, open(old), "We should open no ledger before API servers ask about all writes.")
	asked = true
	round(0)
	round(window - 1)
	assert.False(t, open(old), "We should wait for what may be in flight since before they asked.")
	round(1)
	assert.True(t, open(old))
	assert.Equal(t, int64(3), ledgers.load(nameOf(old)).Used, "We should count the claims that are there.")

	classes = append(classes, added)
	round(1)
	round(1)
	assert.True(t, open(added), "We should open the ledger of a new class at once: no claim can be in flight for it.")
	lists := claims.lists
	round(1)
	assert.Equal(t, lists, claims.lists, "We should list claims only for ledgers that are closed.")

	for _, uid := range []string{"stored", "failed"} {
		refusal, err := ledgers.Reserve(t.Context(), old, writeBy(uid), 1, false)
		require.NoError(t, err)
		require.Nil(t, refusal)
	}
	claims.usage["old"], claims.landed["stored"] = selector.Usage{Used: 4}, true
	round(1)
	e := ledgers.load(nameOf(old))
	assert.Equal(t, [2]int64{4, 1}, [2]int64{e.Used, e.reserved}, "We should count a claim that is stored in place of its reservation.")
	round(window - 1)
	assert.Equal(t, int64(1), ledgers.load(nameOf(old)).reserved, "We should keep what may yet be stored.")
	round(1)
	assert.Equal(t, int64(0), ledgers.load(nameOf(old)).reserved, "We should end what was not stored.")

	require.NoError(t, s.Delete(t.Context(), ledgers.load(nameOf(added)).object))
	ledgers.forget(ledgers.load(nameOf(added)).object)
	round(1)
	round(window - 1)
	assert.False(t, open(added), "We should wait for what may be in flight of a ledger that was deleted.")
	round(1)
	assert.True(t, open(added))

	unknown, classes = true, nil
	all := l.Snapshot
	l.Snapshot = func() selector.Snapshot { return selector.Snapshot{} }
	round(1)
	assert.True(t, open(old), "We should keep the ledgers of a kind whose classes are not known.")
	l.Snapshot, unknown, classes = all, false, []*inventory.Class{old}
	round(1)
	assert.Nil(t, ledgers.load(nameOf(added)), "We should delete the ledger of a class that is gone.")
	left := &v1beta1.LedgerList{}
	require.NoError(t, s.List(t.Context(), left))
	assert.Len(t, left.Items, 1)
}
