package chooser

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	chooserv1 "github.com/classbind/classbind/api/chooser/v1"
	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/cmd/classbind/output"
	"github.com/classbind/classbind/controller/chooser"
	"github.com/classbind/classbind/selector/truncate"
)

// Version is the version of reports. New fields keep it; any other change needs a new version.
const Version = "chooser.classbind.io/v1beta1"

// Report is what "classbind chooser check" prints with -o json or yaml.
type Report struct {
	metav1.TypeMeta `json:",inline"`
	Findings        []finding `json:"findings"`
}

// finding is what came of one question.
type finding struct {
	Name    string `json:"name"`
	Holds   bool   `json:"holds"`
	Message string `json:"message,omitempty"` // why it does not
}

func (r *Report) table() string {
	rows := [][]string{{"HOLDS", "WHAT", "WHY NOT"}}
	for _, f := range r.Findings {
		rows = append(rows, []string{map[bool]string{true: "yes", false: "no"}[f.Holds], f.Name, f.Message})
	}
	return output.Columns(rows...)
}

// check asks a chooser.
type check struct {
	*options

	client chooserv1.ChooserClient
	// seen is the epoch in the last answer to Status, which each question has.
	seen string
}

// all that must hold. Each question is asked once, in this order.
func (c *check) all(ctx context.Context) (findings []finding, err error) {
	for _, one := range []struct {
		name string
		ask  func(context.Context) error
	}{
		{"Status answers with an epoch", func(ctx context.Context) error { _, err := c.epoch(ctx); return err }},
		{"the epoch stays the same while the data do", c.sameEpoch},
		{"Rank orders one candidate", func(ctx context.Context) error { _, err := c.rank(ctx, c.question(1)); return err }},
		{"Rank orders 100 candidates", func(ctx context.Context) error {
			_, err := c.rank(ctx, c.question(v1beta1.MaxChooserCandidates))
			return err
		}},
		{"the same question has the same answer", func(ctx context.Context) error {
			return c.sameAnswer(ctx, func(*chooserv1.RankRequest) {})
		}},
		{"unknown fields are ignored", func(ctx context.Context) error { return c.sameAnswer(ctx, addUnknownField) }},
		{"the epoch of an answer is that of Status", c.epochOfAnswer},
		{"a question without candidates is answered or refused", func(ctx context.Context) error {
			return c.answersInTime(ctx, c.question(0))
		}},
		{"a claim without fields is answered or refused", func(ctx context.Context) error {
			question := c.question(2)
			question.Claim = "{}"
			return c.answersInTime(ctx, question)
		}},
		{"Status still answers", func(ctx context.Context) error { _, err := c.epoch(ctx); return err }},
	} {
		err := one.ask(ctx)
		if ctx.Err() != nil { // The chooser is not to blame.
			return nil, errors.New("interrupted")
		}
		f := finding{Name: one.name, Holds: err == nil}
		if err != nil {
			f.Message = truncate.String(err.Error(), v1beta1.MaxMessageBytes)
		}
		findings = append(findings, f)
	}
	return findings, nil
}

func (c *check) epoch(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, v1beta1.MaxChooserTimeout)
	defer cancel()
	answer, err := c.client.Status(ctx, &chooserv1.StatusRequest{})
	if err == nil && len(answer.GetEpoch()) > v1beta1.MaxChooserEpochBytes {
		err = fmt.Errorf("the epoch has %d bytes: at most %d are allowed", len(answer.GetEpoch()), v1beta1.MaxChooserEpochBytes)
	}
	c.seen = answer.GetEpoch()
	return c.seen, err
}

func (c *check) sameEpoch(ctx context.Context) error {
	first, err := c.epoch(ctx)
	if err != nil {
		return err
	}
	second, err := c.epoch(ctx)
	if err == nil && first != second {
		err = fmt.Errorf("it was %q, and is %q now", first, second)
	}
	return err
}

// question with so many candidates. It is a dry run, so that the chooser does not count it.
func (c *check) question(candidates int) *chooserv1.RankRequest {
	r := &chooserv1.RankRequest{ClaimKind: "claims.check.classbind.io", Revision: "1", Epoch: c.seen, Seed: 1, DryRun: true, Claim: c.claim}
	for i := range candidates {
		r.Candidates = append(r.Candidates, &chooserv1.Candidate{Id: strconv.Itoa(i), Fields: c.classes[i%len(c.classes)]})
	}
	return r
}

// rank asks a question, and checks the answer.
func (c *check) rank(ctx context.Context, question *chooserv1.RankRequest) (*chooserv1.RankResponse, error) {
	within, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	began := time.Now()
	answer, err := c.client.Rank(within, question)
	switch {
	case status.Code(err) == codes.DeadlineExceeded:
		return nil, fmt.Errorf("there was no answer within %s", c.timeout)
	case err != nil:
		err = fmt.Errorf("%w after %s", err, time.Since(began).Round(time.Millisecond))
		// Other codes do not blame the question.
		if slices.Contains([]codes.Code{codes.InvalidArgument, codes.FailedPrecondition, codes.Unknown, codes.Internal}, status.Code(err)) {
			err = fmt.Errorf("%w; name a claim and classes that it knows with --claim and --class", err)
		}
		return nil, err
	case len(answer.GetEpoch()) > v1beta1.MaxChooserEpochBytes:
		return nil, fmt.Errorf("the epoch has %d bytes: at most %d are allowed", len(answer.GetEpoch()), v1beta1.MaxChooserEpochBytes)
	case answer.GetAnswer() == nil:
		return nil, errors.New("the response has neither an order, nor no_class, nor no_opinion")
	}
	if order := answer.GetOrder(); order != nil {
		if len(order.GetIds()) == 0 {
			return nil, errors.New("the order is empty: answer no_opinion or no_class")
		}
		if known, _ := chooser.Positions(order, len(question.GetCandidates())); len(known) == 0 {
			return nil, fmt.Errorf("the order has no candidate, but %q", truncate.String(order.GetIds()[0], v1beta1.MaxShownBytes))
		}
	}
	return answer, nil
}

// sameAnswer asks the same question twice, the second time after a change. Only an answer that classbind may cache must stay the same.
func (c *check) sameAnswer(ctx context.Context, change func(*chooserv1.RankRequest)) error {
	question := c.question(10)
	first, err := c.rank(ctx, question)
	if err != nil {
		return err
	}
	change(question)
	second, err := c.rank(ctx, question)
	if err != nil || first.GetValidFor().AsDuration() <= 0 || first.GetNoClass() != nil || first.GetEpoch() != second.GetEpoch() {
		return err
	}
	if first.ValidFor, second.ValidFor = nil, nil; !proto.Equal(first, second) {
		return errors.New("the second answer differs from the first, and valid_for is set")
	}
	return nil
}

// addUnknownField of a later version to a question.
func addUnknownField(r *chooserv1.RankRequest) {
	const later = 1000
	r.ProtoReflect().SetUnknown(protowire.AppendString(protowire.AppendTag(nil, later, protowire.BytesType), "of a later version"))
}

func (c *check) epochOfAnswer(ctx context.Context) error {
	epoch, err := c.epoch(ctx)
	if err != nil {
		return err
	}
	answer, err := c.rank(ctx, c.question(1))
	if err != nil || answer.GetEpoch() == epoch {
		return err
	}
	if epoch, err = c.epoch(ctx); err == nil && answer.GetEpoch() != epoch { // The chooser may have got new data, as classbind allows.
		err = fmt.Errorf("it is %q, and that of Status %q", answer.GetEpoch(), epoch)
	}
	return err
}

// answersInTime asks an unusual question. Any answer or error will do, but for one that comes too late or closes the connection.
func (c *check) answersInTime(ctx context.Context, question *chooserv1.RankRequest) error {
	within, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	_, err := c.client.Rank(within, question)
	if status.Code(err) == codes.DeadlineExceeded {
		return fmt.Errorf("there was no answer within %s", c.timeout)
	}
	if status.Code(err) == codes.Unavailable {
		return err
	}
	return nil
}
