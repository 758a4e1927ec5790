package race

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/classbind/classbind/e2e/classbind"
	"github.com/classbind/classbind/e2e/controlplane"
	"github.com/classbind/classbind/e2e/progress"
)

// Cluster is a control plane with deploy/ applied, and the harness's clients of it.
type Cluster struct {
	*controlplane.ControlPlane

	progress io.Writer
	// Of each API server.
	dynamic     []dynamic.Interface
	kubeconfigs []string // of classbind's ServiceAccount
	kubernetes  kubernetes.Interface
}

// NewCluster starts one with so many API servers. The request timeout is theirs; 0, the default.
func NewCluster(ctx context.Context, apiServers int, requestTimeout time.Duration, to io.Writer) (*Cluster, error) {
	o := controlplane.Options{Progress: to, APIServers: apiServers, ConnectionPerWebhookCall: true}
	if requestTimeout > 0 {
		o.APIServerFlags = map[string]string{"request-timeout": requestTimeout.String()}
	}
	c := &Cluster{progress: to}
	err := progress.During(to, "starting etcd and API servers", func() (err error) {
		if c.ControlPlane, err = controlplane.Start(ctx, o); err == nil {
			err = c.setUp(ctx)
		}
		return err
	})
	if err != nil && c.ControlPlane != nil {
		err = errors.Join(err, c.Stop())
	}
	return c, err
}

// withoutRetry takes away the header by which clients try again by themselves what is answered with 429.
type withoutRetry struct{ http.RoundTripper }

func (w withoutRetry) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := w.RoundTripper.RoundTrip(r)
	if err == nil {
		response.Header.Del("Retry-After")
	}
	return response, err
}

func (c *Cluster) setUp(ctx context.Context) (err error) {
	deploy, err := classbind.Deploy(ctx)
	if err != nil {
		return err
	}
	if c.kubeconfigs, err = classbind.Install(ctx, c.ControlPlane, deploy); err != nil {
		return err
	}
	for _, config := range c.Configs {
		config = rest.CopyConfig(config)
		config.WarningHandlerWithContext = rest.NoWarnings{}
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return withoutRetry{next} })
		d, err := dynamic.NewForConfig(config)
		if err != nil {
			return fmt.Errorf("cannot make a client: %w", err)
		}
		c.dynamic = append(c.dynamic, d)
	}
	c.kubernetes, err = kubernetes.NewForConfig(c.Config)
	return err
}
