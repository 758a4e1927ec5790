package ui

import (
	"cmp"
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

	"github.com/classbind/classbind/cmd/classbind/simulate"
	"github.com/classbind/classbind/cmd/classbind/status"
	"github.com/classbind/classbind/cmd/classbind/world"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/selector"
)

const hostile = "<img src=x onerror=alert(1)>"

func TestGuard(t *testing.T) {
	t.Parallel()
	const ok, refused = http.StatusOK, http.StatusUnauthorized
	for name, tc := range map[string]struct {
		reason               string
		method, host, target string
		header               http.Header
		remote               bool
		want                 int
	}{
		"with the token":     {reason: "We should let in who has the token.", want: ok},
		"another name":       {reason: "We should refuse a name that somebody pointed here.", host: "evil.example:8080", want: http.StatusMisdirectedRequest},
		"remote":             {reason: "We should serve another address if that is allowed.", host: "192.0.2.1:8080", remote: true, want: ok},
		"without a token":    {reason: "We should refuse who does not know the token.", target: "/", want: refused},
		"with another token": {reason: "We should refuse another token.", target: "/other/kind", want: refused},
		"with more":          {reason: "We should refuse what begins with the token.", target: "/secrets/", want: refused},
		"with a part":        {reason: "We should refuse a part of the token.", target: "/secre/", want: refused},
		"after a slash":      {reason: "We should refuse another path.", target: "//secret/", want: refused},
		"in the query":       {reason: "We should take the token in the path alone.", target: "/?token=secret", want: refused},
		"as a cookie": {
			reason: "We should take nothing that a browser sends to each port.",
			target: "/",
			header: http.Header{"Cookie": {"classbind-ui-8080=secret"}},
			want:   refused,
		},
		"as a password": {
			reason: "We should take nothing that a browser sends by itself.",
			target: "/",
			header: http.Header{"Authorization": {"Bearer secret"}},
			want:   refused,
		},
		"another origin": {
			reason: "We should refuse what another site asks for.",
			header: http.Header{"Origin": {"http://evil.example"}},
			want:   http.StatusForbidden,
		},
		"another port": {
			reason: "We should refuse another site of this host.",
			header: http.Header{"Origin": {"http://127.0.0.1:8081"}},
			want:   http.StatusForbidden,
		},
		"null origin":     {reason: "We should refuse a page without an origin.", header: http.Header{"Origin": {"null"}}, want: http.StatusForbidden},
		"own origin":      {reason: "We should answer our own form.", method: http.MethodPost, header: http.Header{"Origin": {"http://127.0.0.1:8080"}}, want: ok},
		"POST, no origin": {reason: "We should refuse a form of nobody knows where.", method: http.MethodPost, want: http.StatusForbidden},
		"POST, no token": {
			reason: "We should refuse a form without the token.",
			method: http.MethodPost,
			target: "/",
			header: http.Header{"Origin": {"http://127.0.0.1:8080"}},
			want:   refused,
		},
		"PUT": {reason: "We should refuse to write.", method: http.MethodPut, want: http.StatusMethodNotAllowed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen := ""
			g := &guard{port: "8080", token: "secret", remote: tc.remote, next: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = r.URL.Path })}
			r := httptest.NewRequestWithContext(
				t.Context(), cmp.Or(tc.method, "GET"), "http://"+cmp.Or(tc.host, "127.0.0.1:8080")+cmp.Or(tc.target, "/secret/kind"), nil,
			)
			if tc.header != nil {
				r.Header = tc.header
			}
			w := httptest.NewRecorder()
			g.ServeHTTP(w, r)
			assert.Equal(t, tc.want, w.Code, tc.reason)
			assert.Equal(t, tc.want == ok, seen == "/kind", tc.reason)
			for name, value := range headers {
				assert.Equal(t, value, w.Header().Get(name), "Every answer should have our headers.")
			}
			assert.Empty(t, w.Result().Cookies(), "We should set no cookie, which other ports of this host get.")
		})
	}
	hosts := map[string]bool{ // with a loopback address or name
		"127.0.0.1": true, "127.1.2.3": true, "[::1]": true, "localhost": true, "LOCALHOST": true, "[::ffff:127.0.0.1]": true,
		"192.0.2.1": false, "evil.example": false, "localhost.evil.example": false, "127.0.0.1.evil.example": false, "": false, "::1": false, "[::1": false,
	}
	for _, port := range []string{"80", "8080", "443"} {
		for _, suffix := range []string{"", ":", ":80", ":8080", ":443", ":080", ":80:80", ":x"} {
			ours := suffix == ":"+port || port == "80" && (suffix == "" || suffix == ":")
			for host, loopback := range hosts {
				assert.Equal(t, ours && loopback, (&guard{port: port}).serves(host+suffix), "a browser's Host %q for port %s", host+suffix, port)
			}
		}
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

// TestHostile has names that no object can have today.
func TestHostile(t *testing.T) {
	t.Parallel()
	k := &kind{Name: hostile, Claims: 1, Without: 1, Notes: []string{hostile}, Findings: []status.Finding{{Where: hostile, What: hostile, Do: hostile}}}
	k.Waiting = []waiting{{claimName{hostile, hostile, hostile}, hostile, hostile}}
	named := selector.ClassName{ClassKind: hostile, Kind: hostile, Namespace: hostile, Name: hostile}
	k.Stored = []stored{{hostile, hostile, world.Place{Class: named}}}
	k.Classes = []*class{{
		Row:    simulate.Row{Place: world.Place{Class: named}, Has: 1},
		Labels: hostile, Marks: []string{hostile}, Problems: []string{hostile}, Capacity: "1,500",
	}}
	s := &snapshot{at: time.Now(), kinds: []*kind{k}, status: &status.Report{Sections: []*status.Section{{
		Name: hostile, State: status.Broken, Summary: hostile, Notes: []string{hostile}, Findings: k.Findings,
	}}}}
	for _, target := range []string{
		"/", "/kind?name=" + url.QueryEscape(hostile), "/kind?name=x" + url.QueryEscape(hostile), "/whatif?remove=" + url.QueryEscape(hostile),
		"/" + classURL(hostile, named), "/claims?kind=" + url.QueryEscape(hostile),
		"/claims?kind=" + url.QueryEscape(hostile) + "&claims-search=" + url.QueryEscape("<img/src=x/onerror=alert(1)>"),
	} {
		_, text := show(t, state{version: 1, snapshot: s, err: errors.New(hostile)}, target)
		assert.NotContains(t, text, "<img", target)
		if strings.HasPrefix(target, "/kind?name=%3C") {
			assert.Contains(t, text, "1,500", "We should show the capacity.")
		}
		assert.Contains(t, text, "&lt;img src=x onerror=alert(1)&gt;", target)
	}
}

func TestClaims(t *testing.T) {
	t.Parallel()
	small := selector.ClassName{ClassKind: "classes.a", Kind: "Class", Name: "small"}
	of := func(c selector.ClassName) world.Place { return world.Place{Class: c} }
	elsewhere := small
	elsewhere.ClassKind = "classes.b"
	k := &kind{Name: "claims.a", Claims: 5, Classes: []*class{
		{Row: simulate.Row{Place: of(small), Has: 3}, Capacity: "3 of 6 claims"},
		{Row: simulate.Row{Place: of(elsewhere)}},
	}, Stored: []stored{
		{"web", "first", of(small)},
		{"web", "second", of(small)},
		{"shop", "third", of(elsewhere)},
		{"shop", "fourth", world.Place{Outcome: world.WithoutClass}},
	}}
	wide := &kind{Name: "claims.b", Claims: 1, Stored: []stored{{"", "first", of(small)}}}
	s := &snapshot{at: time.Now(), kinds: []*kind{k, wide}, status: &status.Report{}}
	for name, tc := range map[string]struct {
		reason    string
		target    string
		has, lack []string
	}{
		"All": {
			reason: "We should list the claims that are held with their classes, and give how many there are.",
			target: "/claims?kind=claims.a",
			has:    []string{"web/<wbr>first", "shop/<wbr>fourth", "without a class", "These are the first 4 of 5"},
		},
		"Search": {
			reason: "We should find a claim by a part of its name.",
			target: "/claims?kind=claims.a&claims-search=fou",
			has:    []string{"shop/<wbr>fourth"},
			lack:   []string{"web/<wbr>first", "not listed here"},
		},
		"NotHeld": {
			reason: "We should lead to a claim that is not held.",
			target: "/claims?kind=claims.a&claims-search=web/fifth",
			has:    []string{"claim?kind=claims.a&amp;name=fifth&amp;namespace=web", "None of 4 claims has these words."},
		},
		"NotHeldInTheNamespace": {
			reason: "We should look for a name without a namespace in that of the flag.",
			target: "/claims?kind=claims.a&claims-search=fifth",
			has:    []string{"claim?kind=claims.a&amp;name=fifth&amp;namespace=default", "look for default/fifth"},
		},
		"NotHeldWithoutNamespaces": {
			reason: "We should look for a claim that is in no namespace.",
			target: "/claims?kind=claims.b&claims-search=fifth",
			has:    []string{"claim?kind=claims.b&amp;name=fifth&amp;namespace=\"", "look for fifth"},
		},
		"Class": {
			reason: "We should list the claims of one class alone, although another kind has a class of the same name.",
			target: "/" + classURL("claims.a", small),
			has:    []string{"web/<wbr>first", "web/<wbr>second", "These are the first 2 of 3", "3 of 6 claims"},
			lack:   []string{"shop/<wbr>third", "shop/<wbr>fourth"},
		},
		"Unused": {
			reason: "We should say that a class has no claim.",
			target: "/" + classURL("claims.a", elsewhere),
			has:    []string{"No claim of this kind has the class."},
		},
		"Gone": {
			reason: "We should say that a class is not there.",
			target: "/" + classURL("claims.a", selector.ClassName{ClassKind: "classes.a", Name: "large"}),
			has:    []string{"There is no class &#34;large&#34;."},
		},
		"Links": {
			reason: "We should link a class to its claims, and a kind to all of them.",
			target: "/kind?name=claims.a",
			has:    []string{`href="class?classkind=classes.a&amp;kind=claims.a`, `href="claims?kind=claims.a"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, text := show(t, state{version: 1, snapshot: s}, tc.target)
			for _, want := range tc.has {
				assert.Contains(t, text, want, tc.reason)
			}
			for _, unwanted := range tc.lack {
				assert.NotContains(t, text, unwanted, tc.reason)
			}
		})
	}
}

// TestDo has a button for each command, and a link for a page.
func TestDo(t *testing.T) {
	t.Parallel()
	for do, want := range map[string]string{
		"kubectl get pods": "<code>kubectl get pods</code> <button",
		"kubectl describe pods, and kubectl logs with the same": "Do:</span> \nkubectl describe pods, and kubectl logs with the same </p>",
		"kubectl logs a; or go back: kubectl rollout undo":      "Do:</span> \nkubectl logs a; or go back: kubectl rollout undo </p>",
		"start a replica":                        "Do:</span> \nstart a replica </p>",
		"apply it again: " + cluster.InstallPage: `apply it again: <a href="` + cluster.InstallPage + `">` + cluster.InstallPage + "</a> </p>",
	} {
		s := &snapshot{status: &status.Report{Sections: []*status.Section{{Findings: []status.Finding{{What: "broken", Do: do}}}}}}
		_, text := show(t, state{version: 1, snapshot: s}, "/")
		assert.Contains(t, text, want, do)
	}
}

func TestParts(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []string{"Class/", "a.", "b-c/", "d"}, parts("Class/a.b-c/d"), "A line should end after a slash or a dot.")
	assert.Equal(t, []string{"plain"}, parts("plain"))
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
	assert.Equal(t, "?name=x&other-search=y&rows-page=2#rows", l.Previous)
	for query, want := range map[string]int{
		"rows-search=row-11": 11,
		"rows-search=A+119":  1,
		"rows-search=none":   0,
		"rows-page=-1":       50,
		"rows-page=x":        50,
		"rows-page=99":       20,
	} {
		u.RawQuery = query
		l := newList(u, "rows", "rows", all, text)
		assert.Len(t, l.Rows, want, query)
	}
}

func TestAddress(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"127.0.0.1": "",
		"::1":       "",
		"0.0.0.0":   "other machines reach this address",
		"192.0.2.1": "other machines reach this address",
		"localhost": "must be an IP address",
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
