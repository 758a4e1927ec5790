// Command bench measures classbind beside a webhook that does nothing, on a
// control plane of its own, and prints what each takes.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/classbind/classbind/e2e/bench"
)

func main() {
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
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := s.Validate(); err != nil {
				return err
			}
			s.Progress = c.ErrOrStderr()
			report, err := bench.Run(c.Context(), s)
			if err != nil {
				return err
			}
			if err := report.Save(s.JSON); err != nil {
				return err
			}
			report.Print(c.OutOrStdout())
			return nil
		},
		SilenceErrors: true, // main prints them.
		SilenceUsage:  true,
	}
	s.AddFlags(c.Flags())
	return c
}
