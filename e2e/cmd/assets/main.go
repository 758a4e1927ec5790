// Command assets downloads or builds etcd, kube-apiserver and kubectl, unless they are there,
// and prints the folder that holds them: what KUBEBUILDER_ASSETS is for.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/classbind/classbind/e2e/assets"
	"github.com/classbind/classbind/e2e/command"
)

func main() {
	command.Main(func(ctx context.Context) error {
		dir, err := assets.Dir(ctx, os.Stderr)
		if err == nil {
			fmt.Println(dir)
		}
		return err
	})
}
