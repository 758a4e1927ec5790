package ui

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/classbind/classbind/cmd/classbind/status"
)

// TestAge goes by the clock of its bubble.
func TestAge(t *testing.T) {
	t.Parallel()
	for took, pause := range map[time.Duration]time.Duration{
		time.Millisecond: 5 * time.Second,
		3 * time.Second:  15 * time.Second,
		7 * time.Minute:  30 * time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var began []time.Time
			c := newCache(nil, "classbind-system")
			c.read = func(ctx context.Context) (*snapshot, error) {
				s := &snapshot{at: time.Now(), status: &status.Report{}}
				began = append(began, s.at)
				select {
				case <-ctx.Done():
				case <-time.After(took):
				}
				return s, nil
			}
			go c.run(ctx)
			look := func() string {
				synctest.Wait()
				w := httptest.NewRecorder()
				newPages(c, "default").ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/", nil))
				synctest.Wait()
				_, age, _ := strings.Cut(w.Body.String(), `<span id="age">`)
				age, _, _ = strings.Cut(age, "<")
				return age
			}
			assert.Equal(t, took > 0, look() == "", "Before the first read, there is nothing to show.")
			time.Sleep(took + pause + time.Second)
			synctest.Wait()
			require.Len(t, began, 2, "The pause after a read of %s should be over.", took)
			assert.Equal(t, took+pause, began[1].Sub(began[0]), "The pause after a read of %s", took)

			time.Sleep(35*time.Minute - time.Second) // No page is open: one read at most begins, which was wanted before.
			synctest.Wait()
			reads := len(began)
			require.LessOrEqual(t, reads, 3)
			text := look()
			assert.Contains(t, text, " minutes ago, reading…", "We should say that what we show is old, and that we read.")
			assert.Len(t, began, reads+1, "We should read at once.")
			if took > 0 {
				assert.Contains(t, look(), "reading…", "We should say so while we read.")
			}
			time.Sleep(took)
			assert.Regexp(t, `^(0 seconds|3 seconds|7 minutes) ago$`, look())

			time.Sleep(time.Second)
			reads = len(began)
			c.reload()
			assert.Contains(t, look(), "ago"+map[bool]string{true: ", reading…"}[took > 0])
			assert.Len(t, began, reads+1, "We should reload without a pause.")
		})
	}
}

func TestReload(t *testing.T) {
	t.Parallel()
	for from, want := range map[string]string{
		"http://127.0.0.1:1/path/kind?name=a%26b&classes-page=2": "./kind?name=a%26b&classes-page=2", "http://127.0.0.1:1/path/": "./", "": "./",
		"https://evil.example/x": "./x", "//evil.example//evil.example": "./evil.example", "http://a/b\\c%0d%0aX:y": "./b%5Cc%0D%0AX:y", "%": "./",
	} {
		w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "POST", "/reload", nil)
		r.Header.Set("Referer", from)
		c := newCache(nil, "classbind-system")
		newPages(c, "default").ServeHTTP(w, r)
		assert.Equal(t, http.StatusSeeOther, w.Code)
		assert.Equal(t, want, strings.Replace(w.Header().Get("Location"), "././", "./", 1), "We should lead back to the page, and to no other host.")
		assert.Len(t, c.hurry, 1)
	}
}

// registered are an API server's answers for as many claim kinds, each of which all of as many kinds of classes serve.
func registered(kinds int) map[string]string {
	const group, ours = "/apis/example.org/v1", "/apis/classbind.io/v1beta1"
	versions := func(name, version string) string {
		return fmt.Sprintf(`{"kind": "APIGroup", "apiVersion": "v1", "name": %[1]q, "versions": [{"groupVersion": "%[1]s/%[2]s", "version": %[2]q}],
			"preferredVersion": {"groupVersion": "%[1]s/%[2]s", "version": %[2]q}}`, name, version)
	}
	resources := func(version string, all ...string) string {
		return fmt.Sprintf(`{"kind": "APIResourceList", "groupVersion": %q, "resources": [%s]}`, version, strings.Join(all, ","))
	}
	served := func(plural, kind string) string {
		return fmt.Sprintf(`{"name": %q, "kind": %q, "namespaced": %t, "verbs": ["create", "get", "list", "watch"]}`, plural, kind, strings.HasPrefix(
			plural, "claim",
		))
	}
	list := func(version, kind string, items ...string) string {
		return fmt.Sprintf(`{"apiVersion": %q, "kind": "%sList", "metadata": {}, "items": [%s]}`, version, kind, strings.Join(items, ","))
	}
	all := map[string]string{
		"/api":               `{"kind": "APIVersions", "versions": ["v1"]}`,
		"/api/v1":            resources("v1"),
		ours:                 resources("classbind.io/v1beta1", served("claimkinds", "ClaimKind"), served("classkinds", "ClassKind")),
		"/apis/classbind.io": versions("classbind.io", "v1beta1"), "/apis/example.org": versions("example.org", "v1"),
		"/apis": `{"kind": "APIGroupList", "apiVersion": "v1", "groups": [` + versions("classbind.io", "v1beta1") + "," + versions("example.org", "v1") + `]}`,
	}
	var kindsServed, claimKinds, classKinds, links []string
	for n := range kinds {
		links = append(links, fmt.Sprintf(`{"name": "claim%ds.example.org"}`, n))
	}
	for n := range kinds {
		claims, classes := fmt.Sprintf("claim%ds", n), fmt.Sprintf("class%ds", n)
		kindsServed = append(kindsServed, served(claims, fmt.Sprint("Claim", n)), served(classes, fmt.Sprint("Class", n)))
		claimKinds = append(
			claimKinds,
			fmt.Sprintf(`{"metadata": {"name": "%s.example.org"}, "spec": {"reference": {"path": ".spec.classRef", "form": "ObjectReference"},
			"selector": {"path": ".spec.classSelector"}, "choice": {"strategy": "WeightedRandom", "seed": {"from": "Claim"}}, "whenUnmatched": "Admit"}}`, claims),
		)
		classKinds = append(classKinds, fmt.Sprintf(`{"metadata": {"name": "%s.example.org"}, "spec": {"claimKinds": [%s]}}`, classes, strings.Join(links, ",")))
		all[group+"/"+claims] = list("example.org/v1", fmt.Sprint("Claim", n), `{"metadata": {"namespace": "team", "name": "a"}, "spec": {"classSelector": {}}}`)
		all[group+"/"+classes] = list("meta.k8s.io/v1", "PartialObjectMetadata", fmt.Sprintf(
			`{"apiVersion": "example.org/v1", "kind": "Class%d", "metadata": {"name": "only"}}`, n,
		))
	}
	all[group] = resources("example.org/v1", kindsServed...)
	all[ours+"/claimkinds"], all[ours+"/classkinds"] = list("classbind.io/v1beta1", "ClaimKind", claimKinds...), list(
		"classbind.io/v1beta1", "ClassKind", classKinds...,
	)
	return all
}

// TestRequests counts those of one refresh.
func TestRequests(t *testing.T) {
	t.Parallel()
	refresh := func(kinds int) (asked map[string]int, all int) {
		var mu sync.Mutex
		answers := registered(kinds)
		asked = map[string]int{}
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			asked[r.Method+" "+r.URL.Path]++
			w.Header().Set("Content-Type", "application/json")
			answer := answers[r.URL.Path]
			if answer == "" {
				w.WriteHeader(http.StatusNotFound)
				answer = `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}`
			}
			_, _ = io.WriteString(w, answer)
		}))
		defer server.Close()
		s, err := newCache(&rest.Config{Host: server.URL, QPS: -1}, "classbind-system").read(t.Context())
		require.NoError(t, err)
		require.Len(t, s.kinds, kinds)
		for what, times := range asked {
			all += times
			if strings.HasPrefix(what, "GET /apis/example.org/v1/") {
				assert.Equal(t, 1, times, "We should list each kind once: %s", what)
			}
		}
		for _, k := range s.kinds {
			require.NoError(t, k.Err)
			assert.Len(t, k.Classes, kinds)
			assert.Equal(t, []int{1, 1}, []int{k.Claims, k.Without})
		}
		return asked, all
	}
	few, two := refresh(2)
	many, ten := refresh(10)
	for what, times := range few {
		assert.Equal(t, times, many[what], "Nothing should be asked for for each kind: %s", what)
	}
	t.Logf("%d requests for two kinds of claims and two of classes, and %d for ten of each", two, ten)
	assert.LessOrEqual(t, ten-two, 2*(8+8), "Each kind of claims or of classes should cost one list and one look at its schema.")
}
