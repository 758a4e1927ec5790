package bench

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestPrint(t *testing.T) {
	r := &Report{
		Go: "go1.26.0", CPUs: 2, LoadAverage: .25,

		Webhook: &Webhook{
			Classes: 10_000, ClassKinds: 50, ClaimKinds: 20, Matches: 10, ReviewBytes: 1600, DoNothingAnswerBytes: 450, ClassbindAnswerBytes: 449,
			DoNothing: Served{PerSecond: 8000, P50Millis: 1, P99Millis: 4, CPUMicros: 150, RSSBytes: 32 << 20},
			Classbind: Served{PerSecond: 12_000, P50Millis: .5, P99Millis: 3, CPUMicros: 80, RSSBytes: 64 << 20},

			ThroughputRatio: 1.5, P50Ratio: .5, P99Ratio: .75, CPURatio: .53,
		},
		Create: &Create{Creates: []Created{
			{Asked: askedNobody, Clients: 1, P50Millis: 2, P99Millis: 3},
			{Asked: askedClassbind, Clients: 1, P50Millis: 3.25, P99Millis: 5, AddedMillis: 1.25},
		}},
		Verdicts: []Verdict{
			{Bound: "throughput", Limit: "at least 1.3", Value: 1.5, Met: true},
			{Bound: "p99", Limit: "at most 0.9", Value: .9123, Met: false},
		},
	}
	var text bytes.Buffer
	r.Print(&text)
	assert.Equal(t, `2 CPUs for all of it, go1.26.0; the load average was 0.2 before

webhook: the same reviews for both; 10000 classes of 50 kinds, 20 kinds of claim, 10 matches a claim
(reviews of 1600 bytes, answers of 450 and of 449; medians of rounds, ratios of rounds side by side)
              requests/s  p50 ms  p99 ms  CPU µs  RSS MiB
  do-nothing        8000    1.00    4.00     150     32.0
   classbind       12000    0.50    3.00      80     64.0
       ratio        1.50    0.50    0.75    0.53     2.00

create: claims through the API server (added to the p50 of those about which nobody is asked, turn by turn)
      asked  has a reference  clients  p50 ms  p99 ms  added ms
     nobody                         1    2.00    3.00    +0.000
  classbind                         1    3.25    5.00    +1.250

bounds: what was measured, beside what bounds.yaml asks for
       bound  measured         limit  verdict
  throughput     1.500  at least 1.3      met
         p99     0.912   at most 0.9   MISSED
`, text.String())

	text.Reset()
	(&Report{}).Print(&text)
	assert.Equal(t, "0 CPUs for all of it, ; the load average was 0.0 before\n", text.String(), "We should make nothing up.")
}
