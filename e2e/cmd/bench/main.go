// Command bench measures classbind beside a webhook that does nothing, on a control plane of its own, and prints what each takes.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/classbind/classbind/e2e/bench"
	"github.com/classbind/classbind/e2e/command"
)

const usage = `Measure classbind, as it is deployed, beside a webhook of controller-runtime's
that does nothing but answer a constant patch: the least that a webhook in Go
takes. What is compared is measured in turn, in rounds, since the machine has
other things to do, too.

  webhook  the same reviews over TLS and HTTP/1.1, which kube-apiserver speaks
           to Services, in a closed loop: throughput, latency and CPU of both
  create   claims through the API server, of kinds about which it calls: nothing,
           the policy that classbind writes, classbind, and the webhook that does
           nothing, on the same conditions as classbind
  storm    reviews at a steady rate while classes change all the time: those of
           classbind's kinds, and as many of others

Progress goes to standard error, and tables to standard output. In the end, each
bound of bounds.yaml stands beside what was measured, and beside the spread: how
far another run may be from this one by chance. The command fails when a measure
is beyond its bound by more than its spread.
`

func main() {
	klog.SetLogger(logr.Discard()) // What fails is an error here, too; what is interrupted is no news.
	s := bench.Settings{Progress: os.Stderr}
	s.AddFlags(pflag.CommandLine)
	pflag.Usage = func() { fmt.Fprint(os.Stderr, usage, "\n", pflag.CommandLine.FlagUsages()) }
	pflag.Parse()
	command.Main(func(ctx context.Context) error { return bench.Run(ctx, s, os.Stdout) })
}
