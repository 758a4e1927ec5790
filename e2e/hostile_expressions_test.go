package e2e

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fitKinds of claim are served by Zoned alone, whose classes are costly to judge for a claim of
// many zones.
var fitKinds = map[string]string{
	"FitClaim":     fmt.Sprintf(fitSpec, "Admit"),
	"DenyFitClaim": fmt.Sprintf(fitSpec, "Deny"),
}

const (
	fitSpec = `{whenUnmatched: %s, failurePolicy: Ignore, fits: [{name: Zone, ` +
		`expression: "(has(claim.spec.zones) ? claim.spec.zones : ['zone-1']).exists(z, z in class.spec.zones)"}]}`
	// ownSpec offers a class of a namespace only if no zone is there twice.
	ownSpec = `{claimKinds: [%s], offerWhen: "!has(class.spec) || class.spec.zones.all(a, class.spec.zones.exists_one(b, a == b))"}`
)

// zones as JSON: each is the zone with its number for #.
func zones(n int, zone string) string {
	list := make([]string, n)
	for i := range list {
		list[i] = strconv.Quote(strings.ReplaceAll(zone, "#", strconv.Itoa(i)))
	}
	return `"zones":[` + strings.Join(list, ",") + `]`
}

// zonedClasses are 25 with a few zones, and as many with all that a class may have.
func (b *besieged) zonedClasses(t *testing.T) {
	t.Helper()
	var manifest strings.Builder
	for i := range 25 {
		for name, zones := range map[string]string{"common-few": zones(20, "zone-#"), "common-many": zones(990, "a#")} {
			_, _ = fmt.Fprintf(&manifest, "---\n{\"apiVersion\":\"%s/v1\",\"kind\":\"Zoned\",\"metadata\":{\"name\":\"%s-%d\",\"labels\":{\"pool\":\"common\"}},\"spec\":{%s}}\n",
				hostileGroup, name, i, zones)
		}
	}
	b.apply(t, manifest.String())
}

// longClaims are dry runs of claims that are as costly as they can be: in one kind, Deny has to hold
// although classbind may be passed by.
func (b *besieged) longClaims(t *testing.T) {
	ctx := b.attack
	long := []string{zones(5000, ""), zones(1800, "b#"), zones(1000, "none-#")}
	attackers(ctx, 10, 0, func(i int) {
		kind := []string{"FitClaim", "DenyFitClaim"}[i%2]
		status, text := b.mallory.create(ctx, kind, true, claimOf(kind, "long", `"classSelector":{"matchLabels":{"pool":"common"}},`+long[i%len(long)], ""))
		if kind == "DenyFitClaim" && ctx.Err() == nil {
			assert.NotEqual(t, http.StatusCreated, status, "We should refuse a claim that gets no class, whatever it costs: %.400s", text)
		}
	})
}

// costlyClasses of the attacker are costly when they change. They are read for each empty claim.
func (b *besieged) costlyClasses(t *testing.T) {
	ctx := b.attack
	const count = 20
	object := func(i int) string {
		return strings.TrimSuffix(localClass(fmt.Sprint("costly-", i), `"pool":"costly"`, ""), "}") + `,"spec":{` + zones(990, "a#") + "}}"
	}
	for i := range count {
		status, text := b.mallory.create(ctx, "Local", false, object(i))
		require.Equal(t, http.StatusCreated, status, text)
	}
	defer b.kubectl(t, "delete", hostileResource("Local"), "--namespace="+tenantA, "--selector=pool=costly")
	attackers(ctx, 4, 20*time.Millisecond, func(i int) {
		if i%4 == 0 {
			b.mallory.send(ctx, http.MethodPatch, fmt.Sprintf("/apis/%s/v1/namespaces/%s/locals/costly-%d", hostileGroup, tenantA, i/4%count),
				"application/merge-patch+json", fmt.Sprintf(`{"metadata":{"labels":{"now":"%d"}}}`, i))
			return
		}
		b.mallory.create(ctx, "DenyClaim", true, claimOf("DenyClaim", "costly", `"classSelector":{"matchLabels":{"pool":"costly"}}`, ""))
	})
}
