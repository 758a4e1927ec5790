package latebinding

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/fields"
	"github.com/classbind/classbind/selector/truncate"
)

const (
	pageTimeout  = time.Minute      // of one page of a list, as kube-apiserver's own
	applyTimeout = 30 * time.Second // of one write of a claim's class
)

// Client reads claims as bytes, one at a time, and writes their classes. Authors decide how large a claim is: decoded whole, it takes fifty
// times its length, and a page of such claims more memory than a replica may have.
type Client struct {
	rest rest.Interface
	once bool // A write is not sent again after the delay that the API server asks for.
	dry  bool // The API server tries a write, and stores nothing.
}

// NewClient returns a Client of a cluster.
func NewClient(config *rest.Config) (Client, error) {
	config = cluster.WithMaxDepth(config)
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion() // It decodes the API server's errors.
	c, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return Client{}, fmt.Errorf("cannot make a client for claims: %w", err)
	}
	return Client{rest: c}, nil
}

func claimPath(of schema.GroupVersionResource, namespace string, name ...string) []string {
	path := []string{"/apis", of.Group, of.Version}
	if of.Group == "" {
		path = []string{"/api", of.Version}
	}
	if namespace != "" {
		path = append(path, "namespaces", namespace)
	}
	return append(append(path, of.Resource), name...)
}

func (c Client) stream(
	ctx context.Context, of schema.GroupVersionResource, namespace string, o metav1.ListOptions,
) (io.ReadCloser, *jsontext.Decoder, error) {
	body, err := c.rest.Get().AbsPath(claimPath(of, namespace)...).
		SpecificallyVersionedParams(&o, scheme.ParameterCodec, schema.GroupVersion{Version: "v1"}).Stream(ctx)
	if err != nil {
		return nil, nil, err
	}
	return body, jsontext.NewDecoder(body, asStored), nil
}

// asStored accepts what the API server accepts in an object.
var asStored = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// list reads all claims of all namespaces, page by page. It fails if that takes so long
// that the API server forgets the version of the first page.
func (c Client) list(ctx context.Context, of schema.GroupVersionResource, each func(raw []byte) error) (version string, err error) {
	o := metav1.ListOptions{Limit: v1beta1.LateListPage}
	for {
		page, err := c.Page(ctx, of, "", o, each)
		if err != nil || page.Continue == "" {
			return page.ResourceVersion, err
		}
		o.Continue = page.Continue
	}
}

// Pages calls each for all claims of a namespace, or of all, and after at the end of each page, when no response is open. If it
// takes so long that the API server forgets the version of the first page, the rest is as it is then.
func (c Client) Pages(
	ctx context.Context, of schema.GroupVersionResource, namespace string, each func(raw []byte) error, after func() error,
) error {
	o := metav1.ListOptions{Limit: v1beta1.LateListPage}
	for {
		page, err := c.Page(ctx, of, namespace, o, each)
		status := apierrors.APIStatus(nil)
		if apierrors.IsResourceExpired(err) && errors.As(err, &status) && status.Status().Continue != "" {
			o.Continue = status.Status().Continue
			continue
		}
		if err == nil {
			err = after()
		}
		if err != nil || page.Continue == "" {
			return err
		}
		o.Continue = page.Continue
	}
}

// Page reads one page of a list. The bytes passed to each are valid until its next call.
func (c Client) Page(
	ctx context.Context, of schema.GroupVersionResource, namespace string, o metav1.ListOptions, each func(raw []byte) error,
) (page metav1.ListMeta, err error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	body, decoder, err := c.stream(ctx, of, namespace, o)
	if err != nil {
		return page, truncate.Error(err)
	}
	defer func() { _ = body.Close() }()
	list := struct {
		Metadata *metav1.ListMeta `json:"metadata"`
		Items    elements         `json:"items"`
	}{&page, each}
	if err := json.UnmarshalDecode(decoder, &list, asStored); err != nil {
		return page, fmt.Errorf("cannot read a list of %q: %w", of.Resource, truncate.Error(err))
	}
	if list.Metadata == nil {
		return page, fmt.Errorf("cannot read a list of %q: it has no metadata", of.Resource)
	}
	return page, nil
}

// elements of an array are passed on one by one, and not kept.
type elements func(raw []byte) error

// UnmarshalJSONFrom is called by package json.
func (e *elements) UnmarshalJSONFrom(decoder *jsontext.Decoder) error {
	if decoder.PeekKind() != jsontext.KindBeginArray {
		return decoder.SkipValue()
	}
	if _, err := decoder.ReadToken(); err != nil {
		return err
	}
	for decoder.PeekKind() != jsontext.KindEndArray {
		raw, err := decoder.ReadValue()
		if err != nil {
			return err
		}
		if err := (*e)(raw); err != nil {
			return err
		}
	}
	_, err := decoder.ReadToken()
	return err
}

// Get returns a claim as it is now, nil if there is none. It reads a list of one, because classbind may list claims already.
func (c Client) Get(ctx context.Context, of schema.GroupVersionResource, namespace, name string) (claim []byte, err error) {
	one := metav1.SingleObject(metav1.ObjectMeta{Name: name}) // It escapes the name.
	_, err = c.Page(ctx, of, namespace, one, func(raw []byte) error {
		claim = append([]byte(nil), raw...)
		return nil
	})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return claim, err
}

// eventReader reads the object of an event from its JSON.
type eventReader func(event apiwatch.EventType, raw []byte) (runtime.Object, error)

// watch streams claims. It calls read for each before it receives the next.
func (c Client) watch(
	ctx context.Context, of schema.GroupVersionResource, o metav1.ListOptions, read eventReader,
) (apiwatch.Interface, error) {
	o.Watch = true
	body, decoder, err := c.stream(ctx, of, "", o)
	if err != nil {
		return nil, err
	}
	reporter := apierrors.NewClientErrorReporter(http.StatusInternalServerError, http.MethodGet, "ClientWatchDecoding")
	return apiwatch.NewStreamWatcher(&claimEvents{decoder, body, read}, reporter), nil
}

// claimEvents decodes the events of a watch.
type claimEvents struct {
	decoder *jsontext.Decoder
	body    io.Closer
	read    eventReader
}

// Decode returns the next event.
func (e *claimEvents) Decode() (apiwatch.EventType, runtime.Object, error) {
	raw, err := e.decoder.ReadValue()
	if err != nil {
		return "", nil, err
	}
	event := struct {
		Type   apiwatch.EventType `json:"type"`
		Object jsontext.Value     `json:"object"`
	}{}
	if err := json.Unmarshal(raw, &event, asStored); err != nil {
		return "", nil, err
	}
	if event.Type == apiwatch.Error {
		status := &metav1.Status{}
		return event.Type, status, stdjson.Unmarshal(event.Object, status)
	}
	object, err := e.read(event.Type, event.Object)
	return event.Type, object, err
}

// Close closes the connection.
func (e *claimEvents) Close() { _ = e.body.Close() }

// WriteClass adds the reference to its class to the claim of a decision, as it was seen, and returns the claim
// and its new version. A claim that has changed since stays as it is: see IsOutdated.
func (c Client) WriteClass(
	ctx context.Context, of schema.GroupVersionResource, uid types.UID, version string, d *selector.Decision,
) (object map[string]any, now string, err error) {
	name, kind := d.Claim.Name, d.View.Kind
	patch := d.Patch(fields.Test("/metadata/uid", string(uid)), fields.Test("/metadata/resourceVersion", version))
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	after, err := c.patch(ctx, of, d.Claim.Namespace, name, patch)
	if err != nil {
		return nil, "", fmt.Errorf("cannot write the class of %q: %w", name, err)
	}
	head, err := readHead(after)
	if err == nil {
		object, err = kind.Reader.DecodeValid(after)
	}
	switch {
	case err != nil:
		return nil, "", fmt.Errorf("cannot read %q, whose class was written: %w", name, err)
	case !kind.Reader.Reference.NamesClass(object):
		return nil, "", fmt.Errorf("cannot write the class of %q at .%s: %w", name, kind.Reader.Reference.Path, ErrReferenceRemoved)
	}
	return object, head.Metadata.ResourceVersion, nil
}

// DryRun returns a client whose writes the API server tries, and does not store.
func (c Client) DryRun() Client {
	c.dry = true
	return c
}

func (c Client) patch(ctx context.Context, of schema.GroupVersionResource, namespace, name string, patch []byte) ([]byte, error) {
	request := c.rest.Patch(types.JSONPatchType).AbsPath(claimPath(of, namespace, name)...).Param("fieldManager", v1beta1.FieldManager)
	if c.once {
		request = request.MaxRetries(0)
	}
	if c.dry {
		request = request.Param("dryRun", metav1.DryRunAll)
	}
	result := request.Body(patch).Do(ctx)
	if err := result.Error(); err != nil {
		return nil, truncate.Error(err)
	}
	return result.Raw()
}

// claimHead is the metadata that is read of every object.
type claimHead struct {
	Metadata struct {
		UID             types.UID `json:"uid"`
		Namespace       string    `json:"namespace"`
		Name            string    `json:"name"`
		GenerateName    string    `json:"generateName"`
		ResourceVersion string    `json:"resourceVersion"`
		Annotations     struct {
			InitialEventsEnd string `json:"k8s.io/initial-events-end"`
		} `json:"annotations"`
	} `json:"metadata"`
}

func readHead(raw []byte) (head claimHead, err error) {
	if err := json.Unmarshal(raw, &head, asStored); err != nil {
		return head, fmt.Errorf("cannot read the metadata of a claim: %w", err)
	}
	if head.Metadata.ResourceVersion == "" {
		return head, errors.New("cannot read the metadata of a claim: it has no resourceVersion")
	}
	return head, nil
}
