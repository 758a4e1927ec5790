// Command compare measures classbind beside other ways to give a claim a class, and writes the table of docs/compare.md.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/classbind/classbind/e2e/command"
	"github.com/classbind/classbind/e2e/compare"
)

func main() {
	klog.SetLogger(logr.Discard()) // What fails is an error here, too; what is interrupted is no news.
	ctrl.SetLogger(logr.Discard())
	s := compare.Settings{Progress: os.Stderr}
	pflag.IntVar(&s.Rounds, "rounds", 25, "rounds of 25 creates of each kind, for each number of clients")
	pflag.IntVar(&s.Draws, "draws", 2000, "draws of the chi-square test")
	pflag.IntVar(&s.Repeated, "repeated", 50, "claims that are created repeatedly")
	page := pflag.String("page", "", "document into which the table is written")
	pflag.Parse()
	command.Main(func(ctx context.Context) error {
		table, err := compare.Run(ctx, s)
		if err != nil {
			return err
		}
		fmt.Print(table)
		if *page == "" {
			return nil
		}
		return compare.Write(*page, table)
	})
}
