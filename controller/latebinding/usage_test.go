package latebinding

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
)

func TestUsages(t *testing.T) {
	hard := &v1beta1.ClassKind{Spec: v1beta1.ClassKindSpec{Capacity: &v1beta1.Capacity{Enforcement: v1beta1.Hard}}}
	kind := selector.NewClaimKind(lateClaimKind(func(k *v1beta1.ClaimKind) { k.Spec.Classes.Usage = "claim.spec.size" }), hard)
	kind.Tally = &selector.Tally{}
	w := newLateWatchOf(t, kind)
	golds := inventory.NewClassKind(hard, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Gold"}, false)
	gold := labelled(golds, "gold").Find("", "gold")
	claim := func(uid, version int, class string, size int) {
		addClaim(t, w, fmt.Appendf(nil, `{"metadata":{"namespace":"team-a","name":"c%d","uid":%q,"resourceVersion":"%d"},`+
			`"spec":{"size":%d,"classRef":{"apiVersion":"example.org/v1","kind":"Gold","name":%q}}}`, uid, uidOf(uid), version, size, class))
	}
	usage := func() (int64, map[string]int64) {
		u := newUsage()
		w.state.usages.addTo(&u, kind.CountedAs(gold))
		return u.Used, u.Namespaces
	}
	shows := func(uid int, base string) bool {
		return w.state.usages.shows(selector.Write{UID: string(uidOf(uid)), Base: base})
	}
	claim(1, 11, "gold", 3)
	claim(2, 12, "iron", 5)
	used, namespaces := usage()
	assert.Equal(t, int64(3), used, "We should count the claims of the class.")
	assert.Equal(t, map[string]int64{"team-a": 3}, namespaces)
	assert.True(t, shows(1, ""), "We should know a claim that was created.")
	assert.True(t, shows(1, "10"), "We should know that an earlier version was updated.")
	assert.False(t, shows(1, "11"), "We should not know what becomes of an update of the version that we saw.")
	assert.False(t, shows(3, ""))

	claim(1, 13, "gold", 7)
	claim(2, 14, "gold", 1)
	used, _ = usage()
	assert.Equal(t, int64(8), used, "We should count claims as they are now.")
	w.Remove(&claimSeen{seenVersion: seenVersion{uid: uidOf(1), version: "15"}})
	claim(2, 16, "iron", 1)
	used, namespaces = usage()
	assert.Equal(t, int64(0), used, "We should take off claims that are gone, or have another class.")
	assert.Empty(t, namespaces)
	assert.True(t, shows(1, "13"), "We should know that nothing comes of an update of a claim that is gone.")
	assert.Equal(t, uint64(16), w.state.usages.version)

	for i := range 2*maxGone + 1 {
		w.state.usages.remove(types.UID(fmt.Sprint("gone-", i)), 20)
	}
	assert.LessOrEqual(t, len(w.state.usages.gone)+len(w.state.usages.goneBefore), 2*maxGone, "We should remember only so many that are gone.")
	assert.True(t, w.state.usages.shows(selector.Write{UID: fmt.Sprint("gone-", 2*maxGone)}))
	w.Replace(nil)
	assert.True(t, shows(2, "16"), "We should know that a claim is gone that is not listed any more.")
}
