// Command assets downloads or builds etcd, kube-apiserver and kubectl, unless they are there,
// and prints the folder that holds them: what KUBEBUILDER_ASSETS is for.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/classbind/classbind/e2e/assets"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	dir, err := assets.Dir(ctx, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
	fmt.Println(dir)
}
