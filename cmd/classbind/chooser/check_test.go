package chooser

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	chooserv1 "github.com/classbind/classbind/api/chooser/v1"
)

// fake is a chooser. It counts the calls, from 1.
type fake struct {
	epoch           func(call int) string
	answer          func(call int, r *chooserv1.RankRequest) (*chooserv1.RankResponse, error)
	statuses, ranks int
}

func (f *fake) Status(context.Context, *chooserv1.StatusRequest, ...grpc.CallOption) (*chooserv1.StatusResponse, error) {
	f.statuses++
	return &chooserv1.StatusResponse{Epoch: f.epoch(f.statuses)}, nil
}

func (f *fake) Rank(_ context.Context, r *chooserv1.RankRequest, _ ...grpc.CallOption) (*chooserv1.RankResponse, error) {
	f.ranks++
	return f.answer(f.ranks, r)
}

func order(ids ...string) *chooserv1.RankResponse {
	return &chooserv1.RankResponse{Epoch: "1", Answer: &chooserv1.RankResponse_Order{Order: &chooserv1.Order{Ids: ids}}}
}

func TestCheck(t *testing.T) {
	same := func(int) string { return "1" }
	// alternating answers in turn, such as at random.
	alternating := func(validFor time.Duration, epochs ...string) func(int, *chooserv1.RankRequest) (*chooserv1.RankResponse, error) {
		return func(call int, _ *chooserv1.RankRequest) (*chooserv1.RankResponse, error) {
			answer := order([]string{"0", "1"}[call%2], "0")
			answer.ValidFor = durationpb.New(validFor)
			answer.Epoch = epochs[call%len(epochs)]
			return answer, nil
		}
	}
	always := func(answer *chooserv1.RankResponse, err error) func(int, *chooserv1.RankRequest) (*chooserv1.RankResponse, error) {
		return func(int, *chooserv1.RankRequest) (*chooserv1.RankResponse, error) { return answer, err }
	}
	const (
		one, hundred  = "Rank orders one candidate", "Rank orders 100 candidates"
		twice, fields = "the same question has the same answer", "unknown fields are ignored"
		epoch         = "the epoch of an answer is that of Status"
	)
	for name, tc := range map[string]struct {
		reason string
		epoch  func(call int) string
		answer func(call int, r *chooserv1.RankRequest) (*chooserv1.RankResponse, error)
		fails  []string
		says   string // says is in each message.
		not    string // not is in no message.
	}{
		"Unknown": {
			reason: "We should ignore unknown identifiers, as classbind does.",
			answer: always(order("unknown", "01", "0", "0"), nil),
		},
		"AllUnknown": {
			reason: "We should read identifiers as classbind does.",
			answer: always(order("00", "+1"), nil),
			fails:  []string{one, hundred, twice, fields, epoch},
			says:   `the order has no candidate, but "00"`,
		},
		"Random": {
			reason: "We should allow another answer where none is cached.",
			answer: alternating(0, "1"),
		},
		"RandomAndCached": {
			reason: "We should find another answer where one is cached.",
			answer: alternating(time.Second, "1"),
			fails:  []string{twice, fields},
			says:   "the second answer differs from the first, and valid_for is set",
		},
		"NewData": {
			reason: "We should allow another answer for new data.",
			epoch:  func(call int) string { return []string{"1", "1", "1", "1", "2", "2"}[min(call, 6)-1] },
			answer: alternating(time.Second, "1", "2"),
		},
		"ChangingValidity": {
			reason: "We should compare no more than the answers.",
			answer: func(call int, _ *chooserv1.RankRequest) (*chooserv1.RankResponse, error) {
				answer := order("0")
				answer.ValidFor = durationpb.New(time.Duration(call) * time.Second)
				return answer, nil
			},
		},
		"Epoch": {
			reason: "We should find an answer that has not the epoch of Status.",
			answer: func(_ int, r *chooserv1.RankRequest) (*chooserv1.RankResponse, error) {
				answer := order("0")
				answer.Epoch = r.GetEpoch() + "0"
				return answer, nil
			},
			fails: []string{epoch},
			says:  `it is "10", and that of Status "1"`,
		},
		"Empty": {
			reason: "We should name the fields of an answer.",
			answer: always(&chooserv1.RankResponse{}, nil),
			fails:  []string{one, hundred, twice, fields, epoch},
			says:   "neither an order, nor no_class, nor no_opinion",
		},
		"Question": {
			reason: "We should advise to ask something else where the question may be wrong.",
			answer: always(nil, status.Error(codes.InvalidArgument, "what?")),
			fails:  []string{one, hundred, twice, fields, epoch},
			says:   "--claim and --class",
		},
		"Permission": {
			reason: "We should not blame the question.",
			answer: always(nil, status.Error(codes.PermissionDenied, "who?")),
			fails:  []string{one, hundred, twice, fields, epoch},
			says:   "who?",
			not:    "--claim",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{epoch: tc.epoch, answer: tc.answer}
			if f.epoch == nil {
				f.epoch = same
			}
			c := &check{client: f, options: &options{claim: "{}", classes: []string{"{}"}, timeout: time.Second}}
			var fails []string
			findings, err := c.all(t.Context())
			require.NoError(t, err)
			for _, finding := range findings {
				if finding.Holds {
					continue
				}
				fails = append(fails, finding.Name)
				assert.Contains(t, finding.Message, tc.says, tc.reason)
				if tc.not != "" {
					assert.NotContains(t, finding.Message, tc.not, tc.reason)
				}
			}
			require.Equal(t, tc.fails, fails, tc.reason)
		})
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	f := &fake{epoch: func(int) string { cancel(); return "1" }}
	_, err := (&check{client: f, options: &options{timeout: time.Second}}).all(ctx)
	require.EqualError(t, err, "interrupted", "We should not say that the chooser breaks the contract.")
	assert.Zero(t, f.ranks, "We should ask no more.")
}
