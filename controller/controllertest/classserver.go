package controllertest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ClassServer answers every list and watch. It is an http.RoundTripper, so that it runs
// in a bubble of synctest.
type ClassServer struct{ answer atomic.Pointer[classAnswer] }

type classAnswer struct {
	class   string
	refusal *metav1.Status // instead of the class
}

// Serves a class of this name from now on.
func (s *ClassServer) Serves(class string) { s.answer.Store(&classAnswer{class: class}) }

// Refuses everything from now on.
func (s *ClassServer) Refuses(code int32, reason metav1.StatusReason) {
	s.answer.Store(&classAnswer{refusal: Failure(code, reason)})
}

// RoundTrip answers a request.
func (s *ClassServer) RoundTrip(r *http.Request) (*http.Response, error) {
	response := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: r}
	answer := s.answer.Load()
	if answer.refusal != nil {
		body, err := json.Marshal(answer.refusal)
		response.StatusCode, response.Body = int(answer.refusal.Code), io.NopCloser(strings.NewReader(string(body)))
		return response, err
	}
	const (
		list   = `{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadataList","metadata":{"resourceVersion":"7"},"items":[%s]}`
		events = `{"type":"ADDED","object":%s}{"type":"BOOKMARK","object":%s}`
		object = `{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":{"name":%q,"resourceVersion":"7"%s}}`
		synced = `,"annotations":{"k8s.io/initial-events-end":"true"}`
	)
	class := fmt.Sprintf(object, answer.class, "")
	if r.URL.Query().Get("watch") == "" {
		response.Body = io.NopCloser(strings.NewReader(fmt.Sprintf(list, class)))
		return response, nil
	}
	stream, body := io.Pipe() // It stays open until the watch is stopped.
	response.Body = stream
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		go func() { _, _ = fmt.Fprintf(body, events, class, fmt.Sprintf(object, "", synced)) }()
	}
	return response, nil
}
