package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
)

// journal is a ResponseWriter and the sink of a log. It notes what comes when.
type journal struct {
	answers
	metrics *Metrics
	panics  bool
	steps   []string
}

func (j *journal) Write(p []byte) (int, error) {
	j.step("answer")
	if j.panics {
		panic(http.ErrAbortHandler)
	}
	return j.answers.Write(p)
}

func (j *journal) FlushError() error {
	j.step("flush")
	return nil
}

// step notes how many claims have been counted before.
func (j *journal) step(what string) {
	decided := make(chan prometheus.Metric, outcomes)
	j.metrics.decisions.Collect(decided)
	j.steps = append(j.steps, fmt.Sprint(what, " ", len(decided) > 0))
}

// sink of the log.
type sink func()

func (s sink) Write(p []byte) (int, error) {
	s()
	return len(p), nil
}

func TestAnswersFirst(t *testing.T) {
	refused := func(context.Context, *selector.View, claim.Claim) (*selector.View, error) {
		return nil, errors.New("refused")
	}
	for name, tc := range map[string]struct {
		reason  string
		class   string
		proto   int
		panics  bool
		review  string
		want    []string
		counted string
	}{
		"Bound": {
			reason: "We should send the answer, then log and then count the decision.", class: "gold tier=gold region=us-east-1", proto: 1,
			want: []string{"answer false", "flush false", "log false"}, counted: "bound",
		},
		"BoundOverHTTP2": {
			reason: "We should not send two packets over HTTP/2.", class: "gold tier=gold region=us-east-1", proto: 2,
			want: []string{"answer false", "log false"}, counted: "bound",
		},
		"Failed": {
			reason: "We should answer first where we cannot decide, too.", class: "silver tier=silver", proto: 1,
			want: []string{"answer false", "flush false", "log false"}, counted: "unavailable",
		},
		"Restored": {
			reason: "We should answer an update first, too.", class: "silver tier=silver", proto: 1,
			review: strings.NewReplacer(`"CREATE"`, `"UPDATE"`, `"oldObject":null`, `"oldObject":`+boundToGold).Replace(wholeReview),
			want:   []string{"answer false", "flush false", "log false"}, counted: "restored",
		},
		"Panic": {
			reason: "We should log and count a decision whose answer could not be sent.", class: "gold tier=gold region=us-east-1", proto: 1, panics: true,
			want: []string{"answer false", "log false"}, counted: "bound",
		},
		"DryRun": {
			reason: "We should log a dry run, and not count it.", class: "gold tier=gold region=us-east-1", proto: 1,
			review: strings.Replace(wholeReview, `"dryRun":false`, `"dryRun":true`, 1),
			want:   []string{"answer false", "flush false", "log false"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inventory := newInventory(newClaimKind(), index(sqlClasses, tc.class))
			binder := newBinder(t, inventory)
			binder.Decider.Live, binder.Metrics = refused, NewMetrics(inventory.Snapshot)
			j := &journal{answers: answers{header: http.Header{}}, metrics: binder.Metrics, panics: tc.panics}
			review := wholeReview
			if tc.review != "" {
				review = tc.review
			}
			r := httptest.NewRequest(http.MethodPost, "/bind", strings.NewReader(review))
			r.Header.Set("Content-Type", "application/json")
			r.ProtoMajor = tc.proto
			serve := func() { (&Handler{Review: named(binder), Log: newLog(sink(func() { j.step("log") }))}).ServeHTTP(j, r) }
			if tc.panics {
				assert.PanicsWithError(t, http.ErrAbortHandler.Error(), serve, tc.reason)
			} else {
				serve()
			}
			assert.Equal(t, tc.want, j.steps, tc.reason)
			all := counted(t, binder.Metrics)
			for outcome := range outcomes {
				want := 0.0
				if outcomeNames[outcome] == tc.counted {
					want = 1
				}
				assert.InDelta(t, want, all[fmt.Sprintf(decided, outcomeNames[outcome])], 0, tc.reason)
			}
		})
	}
}

// TestNobodyWaitsForTheLog of a replica that is told to end while its log is stuck.
func TestNobodyWaitsForTheLog(t *testing.T) {
	stuck, unstuck, log := make(chan struct{}), make(chan struct{}), bytes.Buffer{}
	h := newHandler(io.MultiWriter(sink(func() { close(stuck); <-unstuck }), &log))
	whole := NewServer(ServerOptions{})
	whole.Register("/", h) // It wraps the ResponseWriter.
	server := httptest.NewTLSServer(whole.mux)
	defer server.Close()
	response, err := server.Client().Post(server.URL, "application/json", strings.NewReader(wholeReview))
	require.NoError(t, err, "We should answer while the log is stuck.")
	answer, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	assert.Contains(t, string(answer), `"patch"`, "We should send the whole answer while the log is stuck.")
	assert.Equal(t, "HTTP/1.1", response.Proto, "This is the protocol of an API server that speaks to a Service.")
	<-stuck // The line comes after the answer.

	soon, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, server.Config.Shutdown(soon), context.DeadlineExceeded, "We should not end before the decision is logged.")
	close(unstuck)
	require.NoError(t, server.Config.Shutdown(t.Context()))
	assert.Equal(t, 1, strings.Count(log.String(), "Reviewed a claim"), "We should log each decision once.")
}

func TestEveryRefusalIsToldOnce(t *testing.T) {
	told := 0
	posted(&Handler{Review: func(context.Context, string, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, func(), error) {
		return nil, func() { told++ }, malformed("refused")
	}}, goodReview)
	assert.Equal(t, 1, told, "We should do once what is to be done afterwards.")
}
