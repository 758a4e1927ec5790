package ui

import (
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
)

// headers are of every answer, errors included.
var headers = map[string]string{
	"Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; " +
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
	"Cache-Control":                "no-store",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Referrer-Policy":              "same-origin",
	"X-Content-Type-Options":       "nosniff",
	"X-Frame-Options":              "DENY",
}

// guard lets in only the person who ran the command.
type guard struct {
	port, token string
	// remote allows other addresses than loopback.
	remote bool
	next   http.Handler
}

// ServeHTTP refuses, in this order: a name that another site has pointed here, a page of another site, a method that writes, and
// whoever does not know the token.
func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for name, value := range headers {
		w.Header().Set(name, value)
	}
	origin, safe := r.Header.Get("Origin"), r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case !g.serves(r.Host):
		http.Error(w, "This is not the host that classbind ui serves: open the URL that it printed.", http.StatusMisdirectedRequest)
		return
	case !safe && r.Method != http.MethodPost:
		w.Header().Set("Allow", "GET, HEAD, POST")
		http.Error(w, "This page is to read.", http.StatusMethodNotAllowed)
		return
	case origin != "http://"+r.Host && (origin != "" || !safe):
		http.Error(w, "Another site asks for this page.", http.StatusForbidden)
		return
	}
	name := "classbind-ui-" + g.port // Cookies are of a host, whatever the port.
	if token := r.URL.Query().Get("token"); safe && g.knows(token) {
		http.SetCookie(w, &http.Cookie{ //nolint:gosec // It cannot be Secure: the page has no TLS, and is served on loopback.
			Name: name, Value: token, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode,
		})
		http.Redirect(w, r, "/", http.StatusSeeOther) // Never to a path of the request, which may name another host.
		return
	}
	if cookie, err := r.Cookie(name); err != nil || !g.knows(cookie.Value) {
		http.Error(w, "Open the URL that classbind ui printed. If you came by a link to it, reload this page.", http.StatusUnauthorized)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBodyBytes)
	g.next.ServeHTTP(w, r)
}

func (g *guard) knows(token string) bool {
	return subtle.ConstantTimeCompare([]byte(token), []byte(g.token)) == 1
}

// serves reports whether a Host is ours. Of names, that is localhost alone: anybody can point another one here.
func (g *guard) serves(host string) bool {
	name, port, err := net.SplitHostPort(host)
	if err != nil || port != g.port {
		return false
	}
	ip, err := netip.ParseAddr(name)
	return name == "localhost" || err == nil && (g.remote || ip.IsLoopback())
}
