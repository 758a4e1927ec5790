package ui

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/cmd/classbind/explain"
	"github.com/classbind/classbind/cmd/classbind/simulate"
	"github.com/classbind/classbind/cmd/classbind/status"
	"github.com/classbind/classbind/selector"
)

const hostile = "<img src=x onerror=alert(1)>"

func TestGuard(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason               string
		method, host, target string
		origin, cookie       string
		remote               bool
		want                 int
	}{
		"with the cookie":    {reason: "We should let in who has the token.", cookie: "secret", want: http.StatusOK},
		"IPv6":               {reason: "We should serve each loopback address.", host: "[::1]:8080", cookie: "secret", want: http.StatusOK},
		"localhost":          {reason: "We should serve the name of loopback.", host: "localhost:8080", cookie: "secret", want: http.StatusOK},
		"with the token":     {reason: "We should keep the token in a cookie, and not in the URL.", target: "/?token=secret", want: http.StatusSeeOther},
		"without a token":    {reason: "We should refuse who does not know the token.", want: http.StatusUnauthorized},
		"with another token": {reason: "We should refuse another token.", target: "/?token=other", want: http.StatusUnauthorized},
		"another cookie":     {reason: "We should refuse another cookie.", cookie: "other", want: http.StatusUnauthorized},
		"another name":       {reason: "We should refuse a name that somebody pointed here.", host: "evil.example:8080", cookie: "secret", want: http.StatusMisdirectedRequest},
		"another port":       {reason: "We should refuse another port.", host: "127.0.0.1:80", cookie: "secret", want: http.StatusMisdirectedRequest},
		"another address":    {reason: "We should serve loopback alone.", host: "192.0.2.1:8080", cookie: "secret", want: http.StatusMisdirectedRequest},
		"remote":             {reason: "We should serve another address if that is allowed.", host: "192.0.2.1:8080", remote: true, cookie: "secret", want: http.StatusOK},
		"another origin":     {reason: "We should refuse what another site asks for.", origin: "http://evil.example", cookie: "secret", want: http.StatusForbidden},
		"null origin":        {reason: "We should refuse a page without an origin.", origin: "null", cookie: "secret", want: http.StatusForbidden},
		"own origin":         {reason: "We should answer our own form.", method: http.MethodPost, origin: "http://127.0.0.1:8080", cookie: "secret", want: http.StatusOK},
		"POST, no origin":    {reason: "We should refuse a form of nobody knows where.", method: http.MethodPost, cookie: "secret", want: http.StatusForbidden},
		"token by POST":      {reason: "We should take a token from a link alone.", method: http.MethodPost, origin: "http://127.0.0.1:8080", target: "/?token=secret", want: http.StatusUnauthorized},
		"PUT":                {reason: "We should refuse to write.", method: http.MethodPut, cookie: "secret", want: http.StatusMethodNotAllowed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			served := false
			g := &guard{port: "8080", token: "secret", remote: tc.remote, next: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served = true })}
			r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
			if tc.target != "" {
				r.URL, _ = url.Parse(tc.target)
			}
			if tc.method != "" {
				r.Method = tc.method
			}
			if r.Host = "127.0.0.1:8080"; tc.host != "" {
				r.Host = tc.host
			}
			if tc.origin != "" {
				r.Header.Set("Origin", tc.origin)
			}
			if tc.cookie != "" {
				r.AddCookie(&http.Cookie{Name: "classbind-ui-8080", Value: tc.cookie}) //nolint:gosec // A request has no attributes.
			}
			w := httptest.NewRecorder()
			g.ServeHTTP(w, r)
			assert.Equal(t, tc.want, w.Code, tc.reason)
			assert.Equal(t, tc.want == http.StatusOK, served, tc.reason)
			for name, value := range headers {
				assert.Equal(t, value, w.Header().Get(name), "Every answer should have our headers.")
			}
			if tc.want == http.StatusSeeOther {
				cookie := w.Result().Cookies()[0]
				assert.True(t, cookie.HttpOnly && cookie.SameSite == http.SameSiteStrictMode, tc.reason)
				assert.Equal(t, "/", w.Header().Get("Location"), tc.reason)
			}
		})
	}
}

// show a path of a cache in a state.
func show(t *testing.T, s state, target string) (int, string) {
	t.Helper()
	c := newCache(nil, "classbind-system")
	c.state = s
	w := httptest.NewRecorder()
	newPages(c, "default").ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", target, nil))
	return w.Code, w.Body.String()
}

// TestHostile has names that nobody could give to an object today.
func TestHostile(t *testing.T) {
	t.Parallel()
	k := &kind{Name: hostile, Claims: 1, Without: 1, Notes: []string{hostile}, Findings: []status.Finding{{Where: hostile, What: hostile, Do: hostile}}}
	k.Waiting = []waiting{{claimName{hostile, hostile, hostile}, hostile, hostile}}
	k.Classes = []*class{{
		Row:    simulate.Row{Place: explain.Place{Class: selector.ClassName{Kind: hostile, Namespace: hostile, Name: hostile}}},
		Labels: hostile, Marks: []string{hostile}, Problems: []string{hostile}, Capacity: "1,500",
	}}
	s := &snapshot{at: time.Now(), kinds: []*kind{k}, status: &status.Report{Sections: []*status.Section{{
		Name: hostile, State: status.Broken, Summary: hostile, Notes: []string{hostile}, Findings: k.Findings,
	}}}}
	for _, target := range []string{"/", "/kind?name=" + url.QueryEscape(hostile), "/kind?name=x" + url.QueryEscape(hostile), "/whatif?remove=" + url.QueryEscape(hostile)} {
		_, text := show(t, state{version: 1, snapshot: s, err: errors.New(hostile)}, target)
		assert.NotContains(t, text, "<img", target)
		if strings.HasPrefix(target, "/kind?name=%3C") {
			assert.Contains(t, text, "1,500", "We should show the capacity.")
		}
		assert.Contains(t, text, "&lt;img src=x onerror=alert(1)&gt;", target)
	}
}

// TestStates are those in which there is nothing to see.
func TestStates(t *testing.T) {
	t.Parallel()
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "claimkinds"}, "", errors.New("no"))
	empty := &snapshot{at: time.Now(), status: &status.Report{}}
	for name, tc := range map[string]struct {
		state  state
		target string
		status int
		text   string
	}{
		"not read yet": {state{}, "/", http.StatusOK, "The page appears when all claims are read."},
		"no rights":    {state{err: forbidden}, "/", http.StatusBadGateway, "You do not have the rights to read what is registered."},
		"not readable": {state{err: errors.New("refused")}, "/", http.StatusBadGateway, "The cluster cannot be read."},
		"nothing":      {state{snapshot: empty}, "/", http.StatusOK, "ClaimKind"},
		"stale":        {state{snapshot: empty, err: errors.New("refused")}, "/", http.StatusOK, "<strong>Stale.</strong> Not read since"},
		"no such kind": {state{snapshot: empty}, "/kind?name=x", http.StatusNotFound, "There is no ClaimKind"},
		"no such page": {state{snapshot: empty}, "/x", http.StatusNotFound, "There is no such page."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, text := show(t, tc.state, tc.target)
			assert.Equal(t, tc.status, code)
			assert.Contains(t, text, tc.text)
		})
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	all := make([]int, 120)
	for i := range all {
		all[i] = i
	}
	text := func(i int) string { return "row-" + count(i) + " A" }
	u := &url.URL{Path: "/kind", RawQuery: "name=x&rows-page=3&other-search=y"}
	l := newList(u, "rows", "rows", all, text)
	assert.Equal(t, []int{101, 120, 120}, []int{l.First, l.Last, l.Found})
	assert.Empty(t, l.Next)
	assert.Equal(t, "/kind?name=x&other-search=y&rows-page=2#rows", l.Previous)
	for query, want := range map[string]int{"rows-search=row-11": 11, "rows-search=A+119": 1, "rows-search=none": 0, "rows-page=-1": 50, "rows-page=x": 50, "rows-page=99": 20} {
		u.RawQuery = query
		l := newList(u, "rows", "rows", all, text)
		assert.Len(t, l.Rows, want, query)
	}
}

func TestAddress(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"127.0.0.1": "", "::1": "", "0.0.0.0": "other machines reach this address", "192.0.2.1": "other machines reach this address", "localhost": "must be an IP address",
	} {
		err := (&options{address: address}).validate()
		if want == "" {
			require.NoError(t, err, address)
		} else {
			require.ErrorContains(t, err, want, address)
		}
		if strings.Contains(want, "other") {
			require.NoError(t, (&options{address: address, allowRemote: true}).validate())
		}
	}
}
