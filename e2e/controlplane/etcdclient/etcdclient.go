// Package etcdclient reads and writes what API servers store. It is apart from the
// control plane, because its libraries take long to compile.
package etcdclient

import (
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// dialTimeout is what etcd may take to answer on a busy machine.
const dialTimeout = time.Minute

// New client of the etcd at a URL.
func New(url string) (*clientv3.Client, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{url}, DialTimeout: dialTimeout})
	if err != nil {
		return nil, fmt.Errorf("cannot make a client of etcd: %w", err)
	}
	return client, nil
}
