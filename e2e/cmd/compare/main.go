// Command compare measures classbind beside other ways to give a claim a class, and writes the table of docs/compare.md.
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
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/classbind/classbind/e2e/compare"
)

func main() {
	klog.SetLogger(logr.Discard()) // What fails is an error here, too; what is interrupted is no news.
	ctrl.SetLogger(logr.Discard())
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
	s, page := compare.Settings{}, ""
	c := &cobra.Command{
		Use:   "compare",
		Short: "Measure classbind beside other ways to give a claim a class",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			s.Progress = c.ErrOrStderr()
			table, err := compare.Run(c.Context(), s)
			if err != nil {
				return err
			}
			_, _ = fmt.Fprint(c.OutOrStdout(), table)
			if page == "" {
				return nil
			}
			return compare.Write(page, table)
		},
		SilenceErrors: true, // main prints them.
		SilenceUsage:  true,
	}
	c.Flags().IntVar(&s.Rounds, "rounds", 25, "rounds of 25 creates of each kind, for each number of clients")
	c.Flags().IntVar(&s.Draws, "draws", 2000, "draws of the chi-square test")
	c.Flags().IntVar(&s.Repeated, "repeated", 50, "claims that are created repeatedly")
	c.Flags().StringVar(&page, "page", "", "document into which the table is written")
	return c
}
