package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// localClass in tenantA as JSON, with its labels and annotations.
func localClass(name, labels, annotations string) string {
	return fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"Local","metadata":{"namespace":%q,"name":%q,"labels":{%s},"annotations":{%s}}}`,
		hostileGroup, tenantA, name, labels, annotations)
}

// attractiveClass of tenantA has the labels that others ask for, and all the
// weight that there is, and is the default. Its author asks in every way what
// there is, and what he may not do.
func (b *besieged) attractiveClass(t *testing.T) {
	ctx := b.attack
	status, text := b.mallory.create(ctx, "Local", false, localClass("lure", `"pool":"common"`, `"resourceclass.crossplane.io/weight":"1000000"`))
	require.Equal(t, http.StatusCreated, status, text)
	status, text = b.mallory.create(ctx, "Local", false, localClass("lure-default", `"pool":"common"`, fmt.Sprintf("%q:%q", defaultMark, "true")))
	require.Equal(t, http.StatusCreated, status, text)
	defer b.kubectl(t, "delete", hostileResource("Local"), "--namespace="+tenantA, "lure", "lure-default")

	own := defaultClass("Local", "default-"+secret, nil)
	own.SetNamespace(honestNamespace)
	if err := b.honest.Create(t.Context(), own); assert.NoError(t, err, "We should let a tenant have a default of his own.") {
		defer func() { assert.NoError(t, b.honest.Delete(t.Context(), own)) }()
	} else {
		assert.NotContains(t, err.Error(), "lure", "We should not tell a tenant of the classes of another.")
	}
	asks := []string{
		"", `"classSelector":{}`, `"classSelector":{"matchLabels":{"pool":"common"}}`, `"classSelector":{"matchLabels":{"owner":"` + secret[:4] + `"}}`,
		`"classSelector":{"matchExpressions":[{"key":"owner","operator":"Exists"}]}`, `"classSelector":{"matchLabels":{"pool":"comon"}}`,
	}
	attackers(ctx, 2, 20*time.Millisecond, func(i int) {
		if i%7 == 6 {
			b.mallory.create(ctx, "Local", true, localClass("second-default", "", fmt.Sprintf("%q:%q", defaultMark, "true")))
			return
		}
		kind := []string{"AdmitClaim", "DenyClaim", "LaterClaim", "LeastClaim"}[i%4]
		b.mallory.create(ctx, kind, true, claimOf(kind, "asks", asks[i%len(asks)], ""))
	})
}

// movedClasses of tenantA are default, and their author moves them to another partition
// with each update. Each move takes a Lease.
func (b *besieged) movedClasses(t *testing.T) {
	ctx := b.attack
	const movers, inTime = 16, 5 * time.Second
	for i := range movers {
		status, text := b.mallory.create(ctx, "Part", false, strings.Replace(
			localClass(fmt.Sprint("moved-", i), fmt.Sprintf(`"part":"first-%d"`, i), fmt.Sprintf("%q:%q", defaultMark, "true")), `"Local"`, `"Part"`, 1))
		require.Equal(t, http.StatusCreated, status, text)
	}
	defer b.kubectl(t, "delete", hostileResource("Part"), "--namespace="+tenantA, "--all")
	var all sync.WaitGroup
	defer all.Wait()
	var moves atomic.Int64
	all.Go(func() {
		attackers(ctx, movers, time.Millisecond, func(i int) {
			status, _ := b.mallory.send(ctx, http.MethodPatch, fmt.Sprintf("/apis/%s/v1/namespaces/%s/parts/moved-%d", hostileGroup, tenantA, i%movers),
				string(types.MergePatchType), fmt.Sprintf(`{"metadata":{"labels":{"part":"p-%d"}}}`, i))
			if status == http.StatusOK {
				moves.Add(1)
			}
		})
	})
	rounds, slowest := 0, time.Duration(0)
	for ; ctx.Err() == nil; rounds++ {
		own := defaultClass("Part", fmt.Sprint("own-", secret, "-", rounds), map[string]string{"part": fmt.Sprint("own-", rounds)})
		own.SetNamespace(honestNamespace)
		begin := time.Now()
		require.NoError(t, b.honest.Create(t.Context(), own), "We should let a tenant have the first default of a partition.")
		slowest = max(slowest, time.Since(begin))
		require.NoError(t, b.honest.Delete(t.Context(), own))
	}
	t.Logf("%d moves; the honest tenant set a default %d times, in %s at most.", moves.Load(), rounds, slowest.Round(time.Millisecond))
	assert.Less(t, slowest, inTime, "We should not make him wait.")
}

// contestedClass serves two kinds of claim, one of which has a default. Four
// clients of its author mark it again and again, which is refused each time, while
// an admin makes another class the default of the other kind.
func (b *besieged) contestedClass(t *testing.T) {
	ctx := b.attack
	const inTime = 5 * time.Second
	second := defaultClass("Second", "second", nil)
	require.NoError(t, b.Create(t.Context(), second))
	contested, first := defaultClass("Shared", "contested", nil), defaultClass("First", "first", nil)
	contested.SetAnnotations(nil)
	first.SetAnnotations(nil)
	require.NoError(t, b.Create(t.Context(), contested))
	require.NoError(t, b.Create(t.Context(), first))

	mark := `{"metadata":{"annotations":{"` + defaultMark + `":"true"}}}`
	unmark := strings.Replace(mark, `"true"`, "null", 1)
	path := "/apis/" + hostileGroup + "/v1/shareds/contested"
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() {
		attackers(ctx, 4, time.Millisecond, func(int) {
			b.mallory.send(ctx, http.MethodPatch, path, string(types.MergePatchType), mark)
		})
	})
	rounds, slowest := 0, time.Duration(0)
	for ; ctx.Err() == nil; rounds++ {
		begin := time.Now()
		err := error(nil)
		for time.Since(begin) < inTime {
			if err = b.Patch(t.Context(), first, client.RawPatch(types.MergePatchType, []byte(mark))); err == nil {
				break
			}
			assert.True(t, apierrors.IsForbidden(err) || apierrors.IsConflict(err), "%v", err)
		}
		slowest = max(slowest, time.Since(begin))
		if !assert.NoError(t, err, "We should let the honest admin set a default that nobody else may have.") {
			break
		}
		require.NoError(t, b.Patch(t.Context(), first, client.RawPatch(types.MergePatchType, []byte(unmark))))
	}
	t.Logf("The honest admin set a default %d times, in %s at most.", rounds, slowest.Round(time.Millisecond))
}
