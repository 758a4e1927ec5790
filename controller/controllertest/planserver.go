package controllertest

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/selector/recovered"
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

// Event sends a change to all watches.
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

// Cut all watches, and refuse new ones.
func (s *PlanServer) Cut(code int32, reason metav1.StatusReason) {
	s.Set(func(s *PlanServer) {
		for _, w := range s.watches {
			close(w)
		}
		s.watches, s.Refusal = nil, Failure(code, reason)
	})
}

// RoundTrip answers a request.
func (s *PlanServer) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(s.Delay)
	s.mu.Lock()
	defer s.mu.Unlock()
	as := strings.NewReplacer()
	if strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadata") {
		as = strings.NewReplacer(`"example.org/v1","kind":"Plan`, `"meta.k8s.io/v1","kind":"PartialObjectMetadata`)
	}
	isPlans := strings.HasSuffix(r.URL.Path, "/plans") || strings.Contains(r.URL.Path, "/plans/")
	isWatch := r.URL.Query().Get("watch") != ""
	if isPlans && !isWatch {
		s.Asked = append(s.Asked, r.URL.Path)
	}
	name, isPlan := strings.CutPrefix(r.URL.Path, "/apis/example.org/v1/namespaces/team/plans/")
	var answer any // Nil is that there is nothing.
	switch tier, exists := s.Plans[name]; {
	case isPlans && s.Refusal != nil:
		answer = s.Refusal
	case s.Version == "":
	case r.URL.Path == "/apis/example.org":
		answer = APIGroup(s.Version)
	case r.URL.Path == "/apis/example.org/"+s.Version:
		answer = APIResources(metav1.APIResource{Name: "plans", Kind: "Plan", Namespaced: true, Verbs: metav1.Verbs{"list", "watch"}})
	case isWatch:
		return s.watch(r, as), nil
	case strings.HasSuffix(r.URL.Path, "/plans"):
		var items []string
		for _, name := range slices.Sorted(maps.Keys(s.Plans)) {
			items = append(items, planJSON(name, s.Plans[name]))
		}
		const list = `{"apiVersion":"example.org/v1","kind":"PlanList","metadata":{"resourceVersion":"7"},"items":[%s]}`
		answer = json.RawMessage(as.Replace(fmt.Sprintf(list, strings.Join(items, ","))))
	case isPlan && exists:
		answer = json.RawMessage(as.Replace(planJSON(name, tier)))
	}
	recorder := httptest.NewRecorder()
	err := write(recorder, answer)
	response := recorder.Result()
	response.Request = r
	return response, err
}

// watch plans. The stream stays open until the watch is stopped.
func (s *PlanServer) watch(r *http.Request, as *strings.Replacer) *http.Response {
	stream, body := io.Pipe()
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
		defer recovered.Here()
		for {
			select {
			case e, isOpen := <-events:
				if !isOpen {
					_ = body.Close() // It has no error.
				}
				if _, err := as.WriteString(body, e); err != nil || !isOpen {
					return
				}
			case <-r.Context().Done():
				return
			}
		}
	}()
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: r, Body: stream}
}
