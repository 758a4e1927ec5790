// Command classbind binds claims to classes at admission.
package main

import (
	"fmt"
	"os"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/classbind/classbind/selector/truncate"
)

func main() {
	if err := newCommand(os.Args[0], os.Args[1:]...).ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "error:", truncate.PrintableLines(err.Error()))
		os.Exit(exitStatus(err))
	}
}
