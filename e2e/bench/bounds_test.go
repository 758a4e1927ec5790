package bench

import (
	"bytes"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// measuredReport has all measures well within their bounds.
func measuredReport() *Report {
	c := &Create{}
	for _, clients := range clientsOfCreates {
		for _, s := range sorts("") {
			c.Creates = append(c.Creates, Created{Asked: s.asked, Reference: s.reference, Clients: clients, P50Millis: 2})
		}
		c.at(askedDoNothing, false, clients).AddedMillis = 1
	}
	return &Report{Webhook: &Webhook{ThroughputRatio: 2, P99Ratio: .5}, Create: c, Storm: &Storm{P99Ratio: 1}}
}

func (c *Create) at(asked string, reference bool, clients int) *Created {
	for i := range c.Creates {
		if of := &c.Creates[i]; of.Asked == asked && of.Reference == reference && of.Clients == clients {
			return of
		}
	}
	return nil
}

func TestBounds(t *testing.T) {
	bounds, err := readBounds(boundsFile)
	require.NoError(t, err, "We should have a bound with a reason for every measure, and no other.")
	within := measuredReport()
	within.judge(bounds)
	require.NoError(t, within.Missed())
	assert.Len(t, within.Verdicts, len(measures))

	for name, tc := range map[string]struct {
		reason       string
		met, missing func(*Report)
		want         string
	}{
		"throughput": {
			"We should answer more claims than a webhook that does nothing.",
			func(r *Report) { r.Webhook.ThroughputRatio = 1.3 }, func(r *Report) { r.Webhook.ThroughputRatio = 1.299 },
			"throughput is 1.299, not at least 1.3",
		},
		"p99": {
			"We should answer even the slowest sooner.",
			func(r *Report) { r.Webhook.P99Ratio = .9 }, func(r *Report) { r.Webhook.P99Ratio = .901 },
			"p99 is 0.901, not at most 0.9",
		},
		"create-1": {
			"We should compare what is added with the create itself.",
			func(r *Report) { r.Create.at(askedClassbind, false, 1).BeyondDoNothingMillis = .06 },
			func(r *Report) { r.Create.at(askedClassbind, false, 1).BeyondDoNothingMillis = .062 },
			"create-1 is 0.031, not at most 0.03",
		},
		"create-8": {
			"We should judge by as many clients.",
			func(r *Report) { r.Create.at(askedClassbind, false, 8).BeyondDoNothingMillis = .06 },
			func(r *Report) { r.Create.at(askedClassbind, false, 8).BeyondDoNothingMillis = .062 },
			"create-8 is 0.031, not at most 0.03",
		},
		"policy-1": {
			"We should want a policy to add half as much as a webhook.",
			func(r *Report) { r.Create.at(askedPolicy, false, 1).AddedMillis = .5 },
			func(r *Report) { r.Create.at(askedPolicy, false, 1).AddedMillis = .51 },
			"policy-1 is 0.510, not at most 0.5",
		},
		"policy-8": {
			"We should want less than as much.",
			func(r *Report) { r.Create.at(askedPolicy, false, 8).AddedMillis = .99 },
			func(r *Report) { r.Create.at(askedPolicy, false, 8).AddedMillis = 1 },
			"policy-8 is 1.000, not below 1",
		},
		"reference-1": {
			"We should judge claims with a reference by milliseconds.",
			func(r *Report) { r.Create.at(askedClassbind, true, 1).AddedMillis = .15 },
			func(r *Report) { r.Create.at(askedClassbind, true, 1).AddedMillis = .151 },
			"reference-1 is 0.151, not at most 0.15",
		},
		"storm": {
			"We should compare with the storm elsewhere.",
			func(r *Report) { r.Storm.P99Ratio = 2 }, func(r *Report) { r.Storm.P99Ratio = math.NaN() },
			"storm is NaN, not at most 2",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := measuredReport()
			tc.met(r)
			r.judge(bounds)
			require.NoError(t, r.Missed(), tc.reason)
			tc.missing(r)
			r.judge(bounds)
			require.EqualError(t, r.Missed(), "classbind misses bounds: "+tc.want, tc.reason)
			var text bytes.Buffer
			r.Print(&text)
			assert.Contains(t, text.String(), "MISSED", tc.reason)
		})
	}
}

func TestPartsThatDidNotRun(t *testing.T) {
	bounds, err := readBounds(boundsFile)
	require.NoError(t, err)
	r := measuredReport()
	r.Create, r.Storm, r.Webhook.ThroughputRatio, r.Webhook.P99Ratio = nil, nil, 1, 1
	r.judge(bounds)
	require.Len(t, r.Verdicts, 2, "We should judge only what was measured.")
	assert.EqualError(t, r.Missed(), "classbind misses bounds: throughput is 1.000, not at least 1.3; p99 is 1.000, not at most 0.9",
		"We should name all that are not met.")
}
