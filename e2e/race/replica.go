package race

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/classbind"
)

// startTimeout is for a replica, one whose clock is ahead included.
const startTimeout = 90 * time.Second

// replica is one of a fleet. After a kill it is another process.
type replica struct {
	fleet *Fleet

	name, command string
	skew          time.Duration
	server        *rest.Config // the API server that it uses
	kubeconfig    string
	flags         []string
	log           *os.File

	process *classbind.Process
}

// start the replica, and hand connections to it once it is ready, as a Service would. Of two hosts with different clocks, the one that is
// behind does not trust a certificate that the other has just made, so wait until they trust each other's.
func (r *replica) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	host := strings.Trim(strings.TrimPrefix(r.server.Host, "https:"), "/")
	if err := trusted(ctx, host, r.server.CAData, r.skew); err != nil {
		return fmt.Errorf("%s cannot trust the API server: %w", r.name, err)
	}
	var err error
	if r.process, err = classbind.Start(r.command, r.kubeconfig, r.log, r.flags...); err != nil {
		return err
	}
	if err = r.process.Ready(ctx); err != nil {
		return fmt.Errorf("%s: %w", r.name, err)
	}
	secret, err := r.fleet.cluster.kubernetes.CoreV1().Secrets(classbind.Namespace).Get(ctx, v1beta1.CASecret, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if err = trusted(ctx, r.address(), secret.Data[corev1.ServiceAccountRootCAKey], 0); err != nil {
		return fmt.Errorf("the API servers cannot trust %s: %w", r.name, err)
	}
	r.fleet.balancer.Add(r.address())
	return nil
}

// trusted waits until a server's certificate is valid by a clock that is ahead by the skew.
func trusted(ctx context.Context, address string, ca []byte, skew time.Duration) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	dialer := &tls.Dialer{Config: &tls.Config{
		RootCAs: roots, MinVersion: tls.VersionTLS12,
		Time: func() time.Time { return time.Now().Add(skew) },
	}}
	return eventually(ctx, "shake hands with "+address, func() error {
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

func (r *replica) address() string { return strings.TrimPrefix(r.process.URL, "https://") }

// kill the replica in the middle of whatever it does, and start it again, which goes on if the context ends meanwhile.
func (r *replica) kill(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	r.process.Kill()
	r.fleet.balancer.Remove(r.address())
	err := r.start(ctx)
	for try := 1; err != nil && try < 5; try++ { // Its port was free when chosen, and may have been taken since.
		r.process.Kill()
		err = r.start(ctx)
	}
	return err
}

func (r *replica) stop() error {
	errs := []error{r.log.Close()}
	if r.process != nil {
		if err := r.process.Stop(); err != nil {
			errs = append(errs, fmt.Errorf("%s did not end well: %w", r.name, err))
		}
	}
	return errors.Join(errs...)
}
