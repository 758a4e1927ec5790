package controllertest

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PlanServer is an API server with plans, as an http.RoundTripper, so that it runs in a bubble of synctest.
type PlanServer struct {
	Delay time.Duration // of every answer

	mu      sync.Mutex
	Plans   map[string]string // the tier of each
	Version string            // that is served, empty if none is
	Refusal *metav1.Status    // of lists, watches and reads of plans
	Asked   []string          // paths of plans, without watches
	watches []chan string     // of events
}

// Set changes what the server does.
func (s *PlanServer) Set(change func(*PlanServer)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// Requests are the paths of plans that were asked for since the last call.
func (s *PlanServer) Requests() (asked []string) {
	s.Set(func(s *PlanServer) { asked, s.Asked = s.Asked, nil })
	return asked
}

func planJSON(name, tier string) string {
	return fmt.Sprintf(`{"apiVersion":"example.org/v1","kind":"Plan","metadata":{"namespace":"team","name":%q,"resourceVersion":"7"},`+
		`"spec":{"tier":%q,"size":3}}`, name, tier)
}

// Event tells all watches of a change.
func (s *PlanServer) Event(kind, name, tier string) {
	s.Set(func(s *PlanServer) {
		if s.Plans[name] = tier; kind == "DELETED" {
			delete(s.Plans, name)
		}
		for _, w := range s.watches {
			w <- fmt.Sprintf(`{"type":%q,"object":%s}`, kind, planJSON(name, tier))
		}
	})
}

// Serve plans, and no others, from now on.
func (s *PlanServer) Serve(plans ...string) {
	s.Set(func(s *PlanServer) {
		s.Version, s.Refusal, s.Plans = "v1", nil, map[string]string{}
		for _, name := range plans {
			s.Plans[name] = "gold"
		}
	})
}

// Refuse to list, watch and read plans from now on.
func (s *PlanServer) Refuse(code int32, reason metav1.StatusReason) {
	s.Set(func(s *PlanServer) { s.Refusal = Failure(code, reason) })
}

// RoundTrip answers a request.
func (s *PlanServer) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(s.Delay)
	s.mu.Lock()
	defer s.mu.Unlock()
	response := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: r}
	asAccepted := strings.NewReplacer()
	if strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadata") {
		asAccepted = strings.NewReplacer(`"example.org/v1","kind":"Plan`, `"meta.k8s.io/v1","kind":"PartialObjectMetadata`)
	}
	answer := func(o any) (*http.Response, error) {
		text, plain := o.(string)
		if !plain {
			body, err := json.Marshal(o)
			if err != nil {
				return nil, err
			}
			text = string(body)
		}
		if status, failed := o.(*metav1.Status); failed {
			response.StatusCode = int(status.Code)
		}
		response.Body = io.NopCloser(strings.NewReader(asAccepted.Replace(text)))
		return response, nil
	}
	notFound := Failure(http.StatusNotFound, metav1.StatusReasonNotFound)
	isPlans := strings.HasSuffix(r.URL.Path, "/plans") || strings.Contains(r.URL.Path, "/plans/")
	isWatch := r.URL.Query().Get("watch") != ""
	if isPlans && !isWatch {
		s.Asked = append(s.Asked, r.URL.Path)
	}
	switch {
	case isPlans && s.Refusal != nil:
		return answer(s.Refusal)
	case s.Version == "":
		return answer(notFound)
	case r.URL.Path == "/apis/example.org":
		return answer(APIGroup(s.Version))
	case r.URL.Path == "/apis/example.org/"+s.Version:
		return answer(APIResources(metav1.APIResource{Name: "plans", Kind: "Plan", Namespaced: true, Verbs: metav1.Verbs{"list", "watch"}}))
	case isWatch:
		stream, body := io.Pipe() // It stays open until the watch is stopped.
		response.Body = stream
		events := make(chan string, 10)
		s.watches = append(s.watches, events)
		if r.URL.Query().Get("sendInitialEvents") == "true" {
			for _, name := range slices.Sorted(maps.Keys(s.Plans)) {
				events <- fmt.Sprintf(`{"type":"ADDED","object":%s}`, planJSON(name, s.Plans[name]))
			}
			events <- `{"type":"BOOKMARK","object":{"apiVersion":"example.org/v1","kind":"Plan","metadata":{"resourceVersion":"7",` +
				`"annotations":{"k8s.io/initial-events-end":"true"}}}}`
		}
		go func() {
			for {
				select {
				case e := <-events:
					if _, err := asAccepted.WriteString(body, e); err != nil {
						return
					}
				case <-r.Context().Done():
					return
				}
			}
		}()
		return response, nil
	case strings.HasSuffix(r.URL.Path, "/plans"):
		var items []string
		for _, name := range slices.Sorted(maps.Keys(s.Plans)) {
			items = append(items, planJSON(name, s.Plans[name]))
		}
		const list = `{"apiVersion":"example.org/v1","kind":"PlanList","metadata":{"resourceVersion":"7"},"items":[%s]}`
		return answer(fmt.Sprintf(list, strings.Join(items, ",")))
	}
	name, found := strings.CutPrefix(r.URL.Path, "/apis/example.org/v1/namespaces/team/plans/")
	if tier, exists := s.Plans[name]; found && exists {
		return answer(planJSON(name, tier))
	}
	return answer(notFound)
}
