// Package command is the frame of the commands of e2e. It imports little, so that they start soon.
package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// Main runs a command until it ends or is interrupted. The process ends with 1 where there is an error, which is printed.
func Main(run func(ctx context.Context) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	if err != nil && ctx.Err() != nil {
		err = errors.New("interrupted; everything is stopped")
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}
