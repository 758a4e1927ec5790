// Command kube is etcd, kube-apiserver and kubectl in one file. The name it is
// called by says which it is, so that three links to it are a folder of
// control-plane binaries as envtest expects them (KUBEBUILDER_ASSETS). One file
// because the three share most of their code: linked once, it is built in half
// the time and takes half the space.
//
// As etcd and kube-apiserver it ends soon after the process that started it.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	kubeapiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() {
	switch name := filepath.Base(os.Args[0]); name {
	case "etcd":
		go exitWithParent()
		etcdmain.Main(os.Args)
	case "kube-apiserver":
		go exitWithParent()
		os.Exit(cli.Run(kubeapiserver.NewAPIServerCommand()))
	case "kubectl":
		// RunNoErrOutput, because CheckErr prints: kubectl's own main does the same.
		if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
			kubectlutil.CheckErr(err)
		}
	default:
		fmt.Fprintf(os.Stderr, "error: %q is not one of etcd, kube-apiserver, kubectl: call this file by one of those names\n", name)
		os.Exit(2)
	}
}

// exitWithParent keeps a test that is killed from leaving a control plane behind. A
// signal of the kernel (PR_SET_PDEATHSIG) would be neater, but is the parent's to set up,
// which envtest does not, and fires when the parent's thread ends, not its process.
func exitWithParent() {
	for parent := os.Getppid(); os.Getppid() == parent; {
		time.Sleep(time.Second)
	}
	os.Exit(1)
}
