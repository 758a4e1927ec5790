package ui

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
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
	for took, pause := range map[time.Duration]time.Duration{time.Millisecond: 5 * time.Second, 3 * time.Second: 15 * time.Second, 7 * time.Minute: 30 * time.Second} {
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

			time.Sleep(35*time.Minute - time.Second) // Nobody looks: one read at most begins, which was wanted before.
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
func registered(kinds int) map[string]any {
	type object = map[string]any
	const group, ours = "/apis/example.org/v1", "/apis/classbind.io/v1beta1"
	versions := func(name, version string) object {
		v := object{"groupVersion": name + "/" + version, "version": version}
		return object{"kind": "APIGroup", "apiVersion": "v1", "name": name, "versions": []object{v}, "preferredVersion": v}
	}
	served := func(plural, kind string) object {
		return object{"name": plural, "kind": kind, "namespaced": kind == "Claim", "verbs": []string{"create", "get", "list", "watch"}}
	}
	var resources, claimKinds, classKinds, links []object
	all := map[string]any{
		"/api": object{"kind": "APIVersions", "versions": []string{"v1"}}, "/api/v1": object{"kind": "APIResourceList", "groupVersion": "v1", "resources": []object{}},
		"/apis":              object{"kind": "APIGroupList", "apiVersion": "v1", "groups": []object{versions("classbind.io", "v1beta1"), versions("example.org", "v1")}},
		"/apis/classbind.io": versions("classbind.io", "v1beta1"), "/apis/example.org": versions("example.org", "v1"),
		ours: object{"kind": "APIResourceList", "groupVersion": "classbind.io/v1beta1", "resources": []object{served("claimkinds", "ClaimKind"), served("classkinds", "ClassKind")}},
	}
	for n := range kinds {
		claims, classes := fmt.Sprintf("claim%ds", n), fmt.Sprintf("class%ds", n)
		links = append(links, object{"name": claims + ".example.org"})
		resources = append(resources, served(claims, fmt.Sprint("Claim", n)), served(classes, fmt.Sprint("Class", n)))
		claimKinds = append(claimKinds, object{"metadata": object{"name": claims + ".example.org"}, "spec": object{
			"reference": object{"path": ".spec.classRef", "form": "ObjectReference"}, "selector": object{"path": ".spec.classSelector"},
			"choice": object{"strategy": "WeightedRandom", "seed": "Claim"}, "whenUnmatched": "Admit",
		}})
		classKinds = append(classKinds, object{"metadata": object{"name": classes + ".example.org"}})
		all[group+"/"+claims] = object{"apiVersion": "example.org/v1", "kind": fmt.Sprintf("Claim%dList", n), "metadata": object{}, "items": []object{{
			"apiVersion": "example.org/v1", "kind": fmt.Sprint("Claim", n), "metadata": object{"namespace": "team", "name": "a"}, "spec": object{"classSelector": object{}},
		}}}
		all[group+"/"+classes] = object{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": object{}, "items": []object{
			{"apiVersion": "example.org/v1", "kind": fmt.Sprint("Class", n), "metadata": object{"name": "only"}},
		}}
	}
	for _, k := range classKinds {
		k["spec"] = object{"claimKinds": links}
	}
	all[group] = object{"kind": "APIResourceList", "groupVersion": "example.org/v1", "resources": resources}
	all[ours+"/claimkinds"] = object{"apiVersion": "classbind.io/v1beta1", "kind": "ClaimKindList", "metadata": object{}, "items": claimKinds}
	all[ours+"/classkinds"] = object{"apiVersion": "classbind.io/v1beta1", "kind": "ClassKindList", "metadata": object{}, "items": classKinds}
	return all
}

// TestRequests counts those of one refresh.
func TestRequests(t *testing.T) {
	t.Parallel()
	refresh := func(kinds int) int {
		var mu sync.Mutex
		answers := registered(kinds)
		asked := map[string]int{}
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			asked[r.Method+" "+r.URL.Path]++
			w.Header().Set("Content-Type", "application/json")
			answer := answers[r.URL.Path]
			if answer == nil {
				w.WriteHeader(http.StatusNotFound)
				answer = map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
			}
			assert.NoError(t, json.NewEncoder(w).Encode(answer))
		}))
		defer server.Close()
		s, err := newCache(&rest.Config{Host: server.URL, QPS: -1}, "classbind-system").read(t.Context())
		require.NoError(t, err)
		require.Len(t, s.kinds, kinds)
		all := 0
		for what, times := range asked {
			all += times
			if strings.HasPrefix(what, "GET /apis/example.org/v1/") {
				assert.Equal(t, 1, times, "We should list each kind once: %s", what)
			}
			assert.LessOrEqual(t, times, 2, "Nothing should be asked for for each kind: %s", what)
		}
		for _, k := range s.kinds {
			require.NoError(t, k.Err)
			assert.Len(t, k.Classes, kinds)
			assert.Equal(t, []int{1, 1}, []int{k.Claims, k.Without})
		}
		return all
	}
	two, ten := refresh(2), refresh(10)
	t.Logf("%d requests for two kinds of claims and two of classes, and %d for ten of each", two, ten)
	assert.LessOrEqual(t, ten-two, 2*(8+8), "Each kind of claims or of classes should cost one list and one look at its schema.")
}

// TestMemo has answers that are not to be remembered.
func TestMemo(t *testing.T) {
	t.Parallel()
	times := map[string]int{}
	m := &memo{answers: map[string]answer{}}
	client := http.Client{Transport: m.before(roundTripper(func(r *http.Request) (*http.Response, error) {
		if times[r.URL.Path]++; r.URL.Path == "/broken" {
			return nil, errors.New("refused")
		}
		w := httptest.NewRecorder()
		w.WriteHeader(map[string]int{"/missing": 404, "/down": 503, "/busy": 429}[r.URL.Path] + map[bool]int{true: 200}[!slices.Contains([]string{"/missing", "/down", "/busy"}, r.URL.Path)])
		_, _ = w.WriteString(strings.Repeat("x", map[string]int{"/large": maxRemembered + 1, "/half": maxRemembered/2 + 1, "/other": maxRemembered/2 + 1}[r.URL.Path]))
		return w.Result(), nil
	}))}
	for range 3 {
		for _, path := range []string{"/kept", "/missing", "/down", "/busy", "/broken", "/large", "/half", "/other", "/apis/coordination.k8s.io/v1/namespaces/a/leases/b"} {
			if answer, err := client.Get("http://cluster" + path); err == nil { //nolint:noctx // Nothing is sent.
				_ = answer.Body.Close()
			}
		}
	}
	assert.Equal(t, map[string]int{
		"/kept": 1, "/missing": 1, "/half": 1, "/down": 3, "/busy": 3, "/broken": 3, "/large": 3, "/other": 3, "/apis/coordination.k8s.io/v1/namespaces/a/leases/b": 3,
	}, times, "We should remember what is final and small, and is not in a namespace.")
	m.end()
	_, err := client.Get("http://cluster/kept") //nolint:noctx,bodyclose // Nothing is sent.
	require.NoError(t, err)
	assert.Equal(t, 2, times["/kept"], "We should forget it after the read.")
}
