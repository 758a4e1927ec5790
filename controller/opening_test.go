package controller

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1alpha1"
)

func TestPending(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		ready  metav1.ConditionStatus // "" where no status was written yet
		state  string
		no     bool          // is the API server's answer
		age    time.Duration // of that answer
		want   bool
	}{
		"New":                {reason: "We should not wait for a kind that nobody has offered.", state: v1alpha1.ReasonNotSynced},
		"NeverReady":         {reason: "We should not wait for a kind that could not be offered before either.", ready: metav1.ConditionFalse, state: v1alpha1.ReasonNotSynced},
		"NotKnownWhether":    {reason: "We should take an unknown condition for one that is not true.", ready: metav1.ConditionUnknown, state: v1alpha1.ReasonNotSynced},
		"NotSynced":          {reason: "We should wait for what was offered before.", ready: metav1.ConditionTrue, state: v1alpha1.ReasonNotSynced, want: true},
		"NotSyncedForLong":   {reason: "We should wait for an answer for as long as it takes.", ready: metav1.ConditionTrue, state: v1alpha1.ReasonNotSynced, age: time.Hour, want: true},
		"JustRefused":        {reason: "We should not believe at once that we may not list what was listed before.", ready: metav1.ConditionTrue, state: v1alpha1.ReasonNotPermitted, no: true, want: true},
		"RefusedForAMoment":  {reason: "We should wait until the grace has passed.", ready: metav1.ConditionTrue, state: v1alpha1.ReasonNotPermitted, no: true, age: refusalGrace - 1, want: true},
		"RefusedForGood":     {reason: "We should believe a refusal that lasts, and keep no others waiting for it.", ready: metav1.ConditionTrue, state: v1alpha1.ReasonNotPermitted, no: true, age: refusalGrace},
		"RefusedAndNotReady": {reason: "We should not wait for a kind that was refused before.", ready: metav1.ConditionFalse, state: v1alpha1.ReasonNotPermitted, no: true},
		"JustNotServed":      {reason: "We should not believe at once that a CRD that is there is not served.", ready: metav1.ConditionTrue, state: v1alpha1.ReasonNotSynced, no: true, want: true},
		"NotServedForGood":   {reason: "We should believe that a CRD is not served if that lasts.", ready: metav1.ConditionTrue, state: v1alpha1.ReasonNotSynced, no: true, age: refusalGrace},
		"NotInstalled":       {reason: "We should believe that there is no such resource.", ready: metav1.ConditionTrue, state: v1alpha1.ReasonNotInstalled},
		"Unsuitable":         {reason: "We should believe that the resource is not suited.", ready: metav1.ConditionTrue, state: v1alpha1.ReasonUnsuitable},
		"Served":             {reason: "We should not wait for what is here.", ready: metav1.ConditionTrue, state: v1alpha1.ReasonServed},
		"Stale":              {reason: "We should not wait for news of what is here.", ready: metav1.ConditionTrue, state: v1alpha1.ReasonStale},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // For a clock that stands still.
				k := &v1alpha1.ClassKind{}
				if tc.ready != "" {
					k.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: tc.ready}}
				}
				assert.Equal(t, tc.want, pending(k, state{reason: tc.state, refused: tc.no, since: time.Now().Add(-tc.age)}), tc.reason)
			})
		})
	}
}
