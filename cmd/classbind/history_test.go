package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
)

// versions are those of the API server's answers, in turn, and the last for ever. An empty one is no answer.
type versions struct {
	client.Reader
	t       *testing.T
	answers []string
}

func (v *versions) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := (&client.ListOptions{}).ApplyOptions(opts)
	assert.EqualValues(v.t, 1, o.Limit, "We should read little.")
	assert.Equal(v.t, &metav1.ListOptions{Limit: 1}, o.AsListOptions(), "We should ask for the newest state, and not for one that an API server has in its cache.")
	assert.IsType(v.t, &v1beta1.ClaimKindList{}, list, "We should compare versions of one resource alone.")
	answer := v.answers[0]
	if len(v.answers) > 1 {
		v.answers = v.answers[1:]
	}
	if answer == "" {
		return errors.New("connection refused")
	}
	list.SetResourceVersion(answer)
	return nil
}

func TestHistory(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		answers []string
		void    bool
	}{
		"Rest":          {reason: "We should go on where nothing changes.", answers: []string{"7"}},
		"Forward":       {reason: "We should go on where time goes on, and not compare versions as strings.", answers: []string{"7", "9", "10", "100", "100", "101"}},
		"Back":          {reason: "We should end when time went back.", answers: []string{"7", "100", "99"}, void: true},
		"FarBack":       {reason: "We should not compare versions as strings.", answers: []string{"100", "7"}, void: true},
		"BackInAnHour":  {reason: "We should compare with the last answer before the API server was away.", answers: append(append([]string{"100"}, make([]string, 18000)...), "99"), void: true},
		"Away":          {reason: "We should go on with what we know while the API server does not answer.", answers: []string{"100", ""}},
		"BackAndBeyond": {reason: "We should not wait for a second sign: time goes on from where it went back to.", answers: []string{"100", "7", "101"}, void: true},
		"Unordered":     {reason: "We should go on with a storage whose versions have no order.", answers: []string{"b", "a", "", "0a", "a"}},
		"NoVersion":     {reason: "We should not take an answer without a version for the past.", answers: []string{"7", "0", "7"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &history{reader: &versions{t: t, answers: tc.answers}}
				handler := h.handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
				require.NoError(t, h.ready(nil), "We should be ready before we have looked.")
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
				defer cancel()
				err := h.Start(ctx)
				answer := httptest.NewRecorder()
				handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil))
				if !tc.void {
					require.NoError(t, err, tc.reason)
					require.NoError(t, h.ready(nil), tc.reason)
					assert.Equal(t, http.StatusTeapot, answer.Code, tc.reason)
					return
				}
				require.ErrorIs(t, err, errHistory, tc.reason)
				require.NoError(t, ctx.Err(), tc.reason)
				require.ErrorIs(t, h.ready(nil), errHistory, "We should not be ready with what is void.")
				assert.Equal(t, http.StatusServiceUnavailable, answer.Code, "We should not decide on what is void.")
				assert.Contains(t, answer.Body.String(), "restored from a backup", "We should say why.")
			})
		})
	}
	assert.False(t, (&history{}).NeedLeaderElection(), "We should look on every replica.")
}
