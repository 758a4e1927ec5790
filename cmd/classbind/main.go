// Command classbind binds claims to classes at admission.
package main

import (
	"fmt"
	"os"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/classbind/classbind/cmd/classbind/exit"
	"github.com/classbind/classbind/selector/truncate"
)

func main() {
	if err := execute(ctrl.SetupSignalHandler(), newCommand(os.Args[0], os.Args[1:]...)); err != nil {
		fmt.Fprintln(os.Stderr, "error:", truncate.PrintableLines(err.Error()))
		os.Exit(exit.Status(err))
	}
}
