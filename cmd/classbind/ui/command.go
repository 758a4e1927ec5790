// Package ui is the command that shows a cluster in a browser. cache reads the cluster, once for all who look. guard lets in only the
// person who ran the command. pages has a handler for each screen, list searches and pages what is long, and assets has the templates.
package ui

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/classbind/classbind/cmd/classbind/connect"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/selector/recovered"
)

// Limits of what a browser, or another client of the port, may take.
const (
	headerTimeout  = 5 * time.Second
	requestTimeout = 30 * time.Second // to send a request
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 16 << 10
	// maxBodyBytes is for a change that somebody pastes.
	maxBodyBytes = 1 << 20
	// maxStreams are the pages that are kept up to date at once. Those beyond are to be reloaded.
	maxStreams = 16
)

type options struct {
	address     string
	port        uint16
	allowRemote bool
	cluster     connect.Flags
}

// NewCommand returns the command ui.
func NewCommand() *cobra.Command {
	o := &options{}
	c := &cobra.Command{
		Use:   "ui",
		Short: "Show claim kinds, classes and claims in a browser",
		Long: `Show claim kinds, classes and claims in a browser: what is broken, which claims wait,
why a claim got its class, and what a change would do.

The command serves the page on this machine until it ends, and prints its URL. It reads
the cluster with your kubeconfig and your rights, and changes nothing. Anyone who knows
the URL can read what you may read. An address that other machines reach needs
--allow-remote, and the connection is not encrypted.`,
		Example: `  # Show the cluster of the current context, and print the URL:
  classbind ui`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := errors.Join(o.validate(), connect.Validate(c.Flags())); err != nil {
				return err
			}
			return o.run(c.Context(), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	c.Flags().StringVar(&o.address, "address", "127.0.0.1", "`IP` address to serve on")
	c.Flags().Uint16Var(&o.port, "port", 0, "`port` to serve on; 0 chooses a free port")
	c.Flags().BoolVar(&o.allowRemote, "allow-remote", false, "allow an address that other machines reach")
	o.cluster.Add(c)
	o.cluster.AddNamespace(c, "`namespace` of claims and of changes that name none; without it the kubeconfig's")
	o.cluster.AddOwn(c, "`namespace` of classbind itself")
	return c
}

func (o *options) validate() error {
	switch ip := net.ParseIP(o.address); {
	case ip == nil:
		return fmt.Errorf("--address=%q: must be an IP address, such as 127.0.0.1", o.address)
	case !ip.IsLoopback() && !o.allowRemote:
		return fmt.Errorf("--address=%q: other machines reach this address, and anyone who knows the URL can read what you may read: "+
			"leave out the flag, or add --allow-remote", o.address)
	}
	return nil
}

func (o *options) run(ctx context.Context, out, progress io.Writer) error {
	config, err := o.cluster.Config(progress, "")
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(o.address, strconv.Itoa(int(o.port))))
	if err != nil {
		return fmt.Errorf("cannot listen: %w; choose another address with --port", err)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	cache := newCache(cluster.WithMaxDepth(config), o.cluster.Own)
	go func() { _ = recovered.Again(ctx, func(ctx context.Context) error { cache.run(ctx); return nil }) }()
	_, port, _ := net.SplitHostPort(listener.Addr().String()) // It is always HOST:PORT.
	pages := newPages(cache, cmp.Or(o.cluster.Namespace, o.cluster.OfContext))
	guard := &guard{port: port, token: rand.Text(), remote: o.allowRemote, next: pages}
	server := &http.Server{
		Handler: guard, ReadHeaderTimeout: headerTimeout, ReadTimeout: requestTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeaderBytes, BaseContext: func(net.Listener) context.Context { return ctx },
	}
	context.AfterFunc(ctx, func() { defer recovered.Here(); _ = server.Close() })
	_, _ = fmt.Fprintf(out, "http://%s/%s/\n", listener.Addr(), guard.token)
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("cannot serve: %w", err)
	}
	return nil
}

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

// guard lets in requests whose path begins with the token, and takes it off: the links of the pages are relative. A browser sends a cookie
// to every port of a host, whatever serves there. A path it sends to this port alone: the Referrer-Policy keeps it from other origins.
type guard struct {
	port, token string
	// remote allows other addresses than loopback.
	remote bool
	next   http.Handler
}

// ServeHTTP refuses, in this order: a name that another site has pointed here, a page of another site, a method that writes, and
// clients that do not know the token.
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
	token, _, below := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if !below || subtle.ConstantTimeCompare([]byte(token), []byte(g.token)) != 1 {
		http.Error(w, "Open the URL that classbind ui printed.", http.StatusUnauthorized)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBodyBytes)
	http.StripPrefix("/"+token, g.next).ServeHTTP(w, r)
}

// serves reports whether a Host is ours. Of names, that is localhost alone: anybody can point another one here.
func (g *guard) serves(host string) bool {
	name, port, err := net.SplitHostPort(host)
	if err != nil { // Browsers leave out the port that http has by itself.
		name, port, err = net.SplitHostPort(host + ":80")
	}
	if err != nil || cmp.Or(port, "80") != g.port {
		return false
	}
	ip, err := netip.ParseAddr(name)
	return strings.EqualFold(name, "localhost") || err == nil && (g.remote || ip.IsLoopback())
}
