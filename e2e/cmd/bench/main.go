// Command bench measures classbind beside a webhook that does nothing, on a control plane of its own, and prints what each takes.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/classbind/classbind/e2e/bench"
)

func main() {
	klog.SetLogger(logr.Discard()) // What fails is an error here, too; what is interrupted is no news.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newCommand().ExecuteContext(ctx)
	if ctx.Err() != nil {
		err = errors.New("interrupted; everything is stopped")
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	s := bench.Settings{}
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure classbind beside a webhook that does nothing",
		Long: `Measure classbind, as it is deployed, beside a webhook of controller-runtime's
that does nothing but answer a constant patch: the least that a webhook in Go
takes. All parts run on control planes of their own, and what is compared is
measured in turn, in rounds, since the machine has other things to do, too.

  webhook  the same reviews over TLS and HTTP/1.1, which kube-apiserver speaks
           to Services, in a closed loop: throughput, latency, CPU and memory
           of both
  create   claims through the API server, of kinds about which are asked: nobody,
           the policy that classbind writes, classbind, and the webhook that does
           nothing, called as classbind is
  storm    reviews at a steady rate while classes change all the time: those of
           classbind's kinds, and as many of others
  scale    memory, start and CPU by classes and claims, and the CPU of changes

Progress goes to standard error, and tables to standard output. In the end, each
bound of bounds.yaml stands beside what was measured. The command fails when a
bound is not met.`,
		Example: `  # The comparison alone, for longer:
  bench --only=webhook --rounds=20

  # All of it, in fewer and shorter rounds:
  bench --rounds=2 --round=1s`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := s.Validate(); err != nil {
				return err
			}
			s.Progress = c.ErrOrStderr()
			report, err := bench.Run(c.Context(), s)
			if report == nil {
				return err
			}
			report.Print(c.OutOrStdout())
			return errors.Join(err, report.Missed())
		},
		SilenceErrors: true, // main prints them.
		SilenceUsage:  true,
	}
	s.AddFlags(c.Flags())
	return c
}
