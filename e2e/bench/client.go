package bench

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
)

// client posts reviews to a webhook as kube-apiserver does to one behind a Service:
// over TLS and HTTP/1.1, with a connection for each request in flight, which is kept
// and used again, the last one first. net/http does that in kube-apiserver, too.
type client struct {
	url  string // https://host:port
	http http.Client
}

// newClient of a webhook, whose certificate is for the config to trust, with at most
// so many requests in flight.
func newClient(url string, config *tls.Config, inFlight int) *client {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	return &client{url: url, http: http.Client{
		Transport: &http.Transport{
			TLSClientConfig: config, Protocols: protocols, MaxConnsPerHost: inFlight, MaxIdleConnsPerHost: inFlight,
		},
		Timeout: patience,
	}}
}

// Close the connections, which are idle.
func (c *client) Close() { c.http.CloseIdleConnections() }

// Post a body to a path with the headers of kube-apiserver, and return that of the
// answer. An answer other than 200 is an error.
func (c *client) Post(ctx context.Context, path string, body []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json, */*")
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "kube-apiserver-admission")
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %s: %s", response.Status, answer)
	}
	return answer, err
}
