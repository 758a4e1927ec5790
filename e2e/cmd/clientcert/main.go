// Command clientcert makes the certificate with which an API server calls webhooks,
// for drivers of clusters: clientcert DIR SEEN WEBHOOK, as the package says.
package main

import (
	"fmt"
	"os"

	"github.com/classbind/classbind/e2e/clientcert"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: clientcert DIR SEEN WEBHOOK")
		os.Exit(2)
	}
	if _, err := clientcert.Write(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}
