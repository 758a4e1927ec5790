package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// answers are all that whoever is hostile is told in an attack.
type answers struct {
	mu       sync.Mutex
	statuses map[int]int // 0 is for none
	texts    map[int]string
	longest  int
	told     []string
}

// add an answer, warnings and all.
func (a *answers) add(status int, text string) {
	const shown = 400
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.statuses == nil {
		a.statuses, a.texts = map[int]int{}, map[int]string{}
	}
	a.statuses[status]++
	a.texts[status] = text[:min(len(text), shown)]
	if status >= http.StatusBadRequest { // What is created is repeated.
		a.longest = max(a.longest, len(text))
	}
	if i := strings.Index(text, secret); i >= 0 && len(a.told) < 5 {
		a.told = append(a.told, text[max(0, i-shown/2):min(len(text), i+shown/2)])
	}
}

// judge what the answers say, which are to have one of these statuses, and return
// what is wrong with them.
func (a *answers) judge(allowed []int) (wrong []string) {
	// longest refusal: it should not repeat all that was sent.
	const longest = 32 << 10
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, text := range a.told {
		wrong = append(wrong, fmt.Sprintf("it tells of others: …%s…", text))
	}
	for _, status := range slices.Sorted(maps.Keys(a.statuses)) {
		if !slices.Contains(allowed, status) {
			wrong = append(wrong, fmt.Sprintf("%d answers of status %d, the last: %s", a.statuses[status], status, a.texts[status]))
		}
	}
	if a.longest > longest {
		wrong = append(wrong, fmt.Sprintf("an answer is %d bytes long", a.longest))
	}
	return wrong
}

// String is the number of answers of each status.
func (a *answers) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var parts []string
	for _, status := range slices.Sorted(maps.Keys(a.statuses)) {
		parts = append(parts, fmt.Sprintf("%d×%d", a.statuses[status], status))
	}
	return strings.Join(parts, " ")
}

// author sends the API server what no client would.
type author struct {
	url    string
	client *http.Client
	to     func() *answers
}

func newAuthor(t *testing.T, w *world, name string, to func() *answers) *author {
	t.Helper()
	kubeconfig, err := w.plane.UserKubeconfig(name)
	require.NoError(t, err)
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	require.NoError(t, err)
	c, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	return &author{url: strings.TrimSuffix(config.Host, "/"), client: c, to: to}
}

// send a body, and keep the answer. Without one before the attack ends, it is
// none; without one in time, its status is 0.
func (a *author) send(ctx context.Context, method, path, contentType, body string) (status int, text string) {
	const inTime = 15 * time.Second
	limited, cancel := context.WithTimeout(ctx, inTime)
	defer cancel()
	status, text, err := exchange(limited, a.client, method, a.url+path, contentType, body)
	if ctx.Err() != nil {
		return status, text
	}
	if err != nil {
		text = err.Error()
	}
	a.to().add(status, text)
	return status, text
}

// exchange a request for an answer with its warnings.
func exchange(ctx context.Context, c *http.Client, method, url, contentType, body string) (status int, text string, err error) {
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Content-Type", contentType)
	response, err := c.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	var all bytes.Buffer
	for _, warning := range response.Header.Values("Warning") {
		all.WriteString(warning + "\n")
	}
	if _, err := io.Copy(&all, response.Body); err != nil {
		return 0, "", err
	}
	return response.StatusCode, all.String(), nil
}

// create an object of a kind in tenantA from its JSON. With dryRun, nothing is stored.
func (a *author) create(ctx context.Context, kind string, dryRun bool, object string) (int, string) {
	path := fmt.Sprintf("/apis/%s/v1/namespaces/%s/%ss", hostileGroup, tenantA, strings.ToLower(kind))
	if dryRun {
		path += "?dryRun=All"
	}
	return a.send(ctx, http.MethodPost, path, "application/json", object)
}

// claimOf a kind in tenantA as JSON, with its spec and its annotations.
func claimOf(kind, name, spec, annotations string) string {
	return fmt.Sprintf(`{"apiVersion":"%s/v1","kind":%q,"metadata":{"namespace":%q,"name":%q,"annotations":{%s}},"spec":{%s}}`,
		hostileGroup, kind, tenantA, name, annotations, spec)
}

// attackers do something again and again until the context ends, so many at once,
// each with a pause after it has. They are told which time of all it is.
func attackers(ctx context.Context, n int, pause time.Duration, do func(i int)) {
	var all sync.WaitGroup
	for first := range n {
		all.Go(func() {
			for i := first; ctx.Err() == nil; i += n {
				do(i)
				select {
				case <-ctx.Done():
				case <-time.After(pause):
				}
			}
		})
	}
	all.Wait()
}
