package main

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// replica has more claims each time it is scraped: bound three times as many as it refuses.
func replica(t *testing.T) (url string) {
	t.Helper()
	var scrapes atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := scrapes.Add(1)
		for outcome, count := range map[string]int64{"bound": 3 * n, "unmatched_denied": n, "malformed": 0} {
			_, _ = fmt.Fprintf(w, "classbind_decisions_total{claim_kind=\"claims.example.org\",outcome=%q,strategy=\"Random\"} %d\n", outcome, count)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestPictureOfARun(t *testing.T) {
	d, err := readDashboard(component)
	require.NoError(t, err)
	p, err := d.panel("Claims by outcome")
	require.NoError(t, err)
	const every = 20 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), 50*every)
	defer cancel()
	r, err := record(ctx, t.TempDir(), every, []string{replica(t), replica(t)})
	require.NoError(t, err)
	defer func() { assert.NoError(t, r.db.Close()) }()

	lines, err := r.ask(t.Context(), p)
	require.NoError(t, err)
	require.Len(t, lines, 3)
	mean := func(l line) float64 {
		sum := 0.0
		for _, v := range l.points {
			sum += v
		}
		return sum / float64(len(l.points))
	}
	assert.Equal(t, "bound", lines[0].name)
	assert.Equal(t, "unmatched_denied", lines[2].name)
	assert.InEpsilon(t, 3*mean(lines[2]), mean(lines[0]), 0.01, "We should show rates as they are to each other.")
	assert.InEpsilon(t, 2*3/every.Seconds(), mean(lines[0]), 0.3, "We should add the replicas up.")

	picture, err := draw(p, lines)
	require.NoError(t, err)
	assert.Contains(t, picture, ">Claims by outcome</text>")
	assert.Contains(t, picture, ">bound</text>")
	assert.NotContains(t, picture, "malformed", "We should leave out what did not happen.")
	assert.NotContains(t, picture, "NaN")
	decoder := xml.NewDecoder(strings.NewReader(picture))
	for {
		_, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err, "We should write XML.")
	}
}

func TestNothingToShow(t *testing.T) {
	_, err := draw(panel{Title: "Claims by outcome"}, []line{{name: "bound", points: map[int64]float64{0: 0, 1000: 0}}})
	require.EqualError(t, err, `the panel "Claims by outcome" has nothing to show: let more happen, and for longer`)
	_, err = dashboard{Panels: []panel{{Title: "One"}, {Title: "Two"}}}.panel("Three")
	require.EqualError(t, err, `there is no panel "Three": take one of ["One" "Two"]`)
}

func TestNobodyThere(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	_, err := record(t.Context(), t.TempDir(), time.Millisecond, []string{server.URL})
	require.EqualError(t, err, "cannot scrape "+server.URL+": 404 Not Found", "We should not wait for a replica that is not there from the beginning.")
}

func TestNiceUnit(t *testing.T) {
	for number, want := range map[float64]float64{4: 1, 7: 1, 10: 2, 19: 2, 20: 5, 39: 5, 40: 10, 120: 20, 0.00047: 0.0001} {
		assert.InEpsilon(t, want, niceUnit(number), 1e-9, "%v", number)
		assert.LessOrEqual(t, number/niceUnit(number), 10.0, "We should not draw more lines than can be told apart.")
	}
}

func TestFormat(t *testing.T) {
	for _, tc := range []struct {
		value      float64
		unit, want string
	}{{0, "s", "0"}, {5e-6, "s", "5 µs"}, {0.02, "s", "20 ms"}, {1.5, "s", "1.5 s"}, {150, "reqps", "150/s"}, {7, "short", "7"}} {
		assert.Equal(t, tc.want, format(tc.value, tc.unit))
	}
}
