package ui

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPageToken has a server on another port of the same host, such as that of another user. It tries all that it receives of a browser
// that has the page open, and its own page asks for ours in each way that a page has.
func TestPageToken(t *testing.T) {
	kubeconfig := t.TempDir() + "/kubeconfig" // of a cluster that does not answer
	require.NoError(t, os.WriteFile(kubeconfig, []byte("{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a}}], "+
		"clusters: [{name: a, cluster: {server: 'https://127.0.0.1:1'}}]}"), 0o600))
	u, b := startUI(t, kubeconfig), newTab(t)
	ours, err := url.Parse(u.url)
	require.NoError(t, err)
	token, open := path.Base(ours.Path), "http://"+ours.Host

	var mu sync.Mutex
	var received []*http.Request
	mallory := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		received = append(received, r)
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<p>Mallory")
	}))
	t.Cleanup(mallory.Close)

	for range 2 { // A browser that has a cookie sends it from the second request on.
		b.open(u.url, "The cluster cannot be read.")
		b.run(chromedp.Evaluate[chromedp.Void](fmt.Sprintf("location.assign(%q)", mallory.URL+"/by-script")))
		b.says("Mallory")
		b.open(u.url, "The cluster cannot be read.")
		b.run(chromedp.Evaluate[chromedp.Void](
			fmt.Sprintf("{const a = document.createElement('a'); a.href = %q; document.body.append(a); a.click()}", mallory.URL+"/by-link"),
		))
		b.says("Mallory")
		b.open(mallory.URL+"/typed", "Mallory")
		assert.Equal(t, "refused", eval[string](
			b, fmt.Sprintf("fetch(%q, {mode: 'no-cors', credentials: 'include'}).then(() => 'answered', () => 'refused')", open+"/"),
		))
		assert.NotContains(t, eval[string](b, "[document.referrer, document.cookie, window.name, history.length].join()"), token)
		b.run(chromedp.Evaluate[chromedp.Void](fmt.Sprintf("location.assign(%q)", open+"/"))) // with all that a browser adds by itself
		b.says("Open the URL that classbind ui printed.")
	}

	mu.Lock()
	defer mu.Unlock()
	paths := map[string]bool{}
	for _, r := range received {
		paths[r.URL.Path] = true
		assert.NotContains(t, fmt.Sprint(r.URL, r.Header), token, "We should send the token to no other port.")
		tries := []string{"/"}
		for _, values := range r.Header {
			for _, value := range values {
				if _, after, ok := strings.Cut(value, "="); ok {
					value = after
				}
				tries = append(tries, "/"+url.PathEscape(value)+"/", "/?token="+url.QueryEscape(value))
			}
		}
		for _, try := range tries {
			again, err := http.NewRequestWithContext(t.Context(), http.MethodGet, open+try, nil)
			require.NoError(t, err)
			again.Header = r.Header.Clone()
			again.Header.Del("Origin")
			answer, err := http.DefaultTransport.RoundTrip(again)
			require.NoError(t, err)
			_ = answer.Body.Close()
			assert.Equal(t, http.StatusUnauthorized, answer.StatusCode, "Nothing that another port receives should open the page: %s with %v", try, r.Header)
		}
	}
	assert.Subset(t, paths, map[string]bool{"/by-script": true, "/by-link": true, "/typed": true})
	t.Logf("%d requests to another port of the host, and none of what they had opens the page", len(received))
}
