// Package ui is the command that shows a cluster in a browser. cache reads the cluster, once for all who look. guard lets in only the
// person who ran the command. pages has a handler for each screen, list searches and pages what is long, and assets has the templates.
package ui

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/classbind/classbind/cmd/classbind/connect"
	"github.com/classbind/classbind/controller/cluster"
)

// Limits of what a browser, or whoever else reaches the port, may take.
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

// options are the flags of ui.
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
		Long: `Show claim kinds, classes and claims in a browser. The pages show what is broken, and
the actual and the expected share of each class. They show which claims wait, and why a
claim got its class. The page "What if" predicts the effect of a change, as classbind
simulate does.

The command serves the page on this machine, and prints its URL. It reads the cluster
with your kubeconfig and your rights, and changes nothing. The page works until the
command ends.

Anyone who knows the URL can read what you may read. A browser opens it once, then
keeps its token in a cookie. An address that other machines reach needs
--allow-remote, and the connection is not encrypted.

While a browser shows the page, the command reads all claims of the registered kinds,
page by page. It waits longer between two reads than a read takes.`,
		Example: `  # Show the cluster of the current context:
  classbind ui

  # On a port that stays the same:
  classbind ui --port 8080`,
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
	o.cluster.AddOwn(c, "`namespace` of classbind itself")
	return c
}

func (o *options) validate() error {
	switch ip := net.ParseIP(o.address); {
	case ip == nil:
		return fmt.Errorf("--address=%q: must be an IP address, such as 127.0.0.1", o.address)
	case !ip.IsLoopback() && !o.allowRemote:
		return fmt.Errorf("--address=%q: other machines reach this address, and whoever knows the URL can read what you may read: "+
			"leave out the flag, or add --allow-remote", o.address)
	}
	return nil
}

func (o *options) run(ctx context.Context, out, progress io.Writer) error {
	config, err := o.cluster.Config(progress, "")
	if err != nil {
		return err
	}
	namespace, err := o.cluster.OfContext()
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
	go cache.run(ctx)
	_, port, _ := net.SplitHostPort(listener.Addr().String()) // It is always HOST:PORT.
	guard := &guard{port: port, token: rand.Text(), remote: o.allowRemote, next: newPages(cache, namespace)}
	server := &http.Server{
		Handler: guard, ReadHeaderTimeout: headerTimeout, ReadTimeout: requestTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeaderBytes, BaseContext: func(net.Listener) context.Context { return ctx },
	}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	_, _ = fmt.Fprintf(out, "http://%s/?token=%s\n", listener.Addr(), guard.token)
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("cannot serve: %w", err)
	}
	return nil
}
