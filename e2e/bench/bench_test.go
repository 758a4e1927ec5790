package bench

import (
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// tiny settings with which parts take seconds. What they find says nothing.
func tiny(t *testing.T, args ...string) Settings {
	t.Helper()
	s := Settings{Progress: io.Discard}
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	s.AddFlags(fs)
	require.NoError(t, fs.Parse(append([]string{"--rounds=1", "--round=100ms", "--connections=2"}, args...)))
	s.Classes, s.ClassKinds, s.ClaimKinds, s.Matches = 100, 3, 2, 5
	s.Creates, s.Changes, s.Claims = 4, 20, 50
	s.Held, s.SingleChanges = 100, 2
	require.NoError(t, s.Validate())
	return s
}

func TestManyClasses(t *testing.T) {
	if testing.Short() {
		t.Skip("make test-all runs it.")
	}
	t.Parallel()
	r, err := Run(t.Context(), tiny(t, "--only=webhook,create,storm"))
	require.NoError(t, err)
	require.NotNil(t, r.Webhook)
	for name, served := range map[string]Served{"do-nothing": r.Webhook.DoNothing, "classbind": r.Webhook.Classbind} {
		assert.Positive(t, served.PerSecond, name)
		assert.Positive(t, served.P50Millis, name)
		assert.LessOrEqual(t, served.P50Millis, served.P99Millis, name)
		assert.Greater(t, served.RSSBytes, int64(1<<20), name)
	}
	assert.InDelta(t, r.Webhook.Classbind.PerSecond/r.Webhook.DoNothing.PerSecond, r.Webhook.ThroughputRatio, 1e-9, "Of one round, the ratio of medians is that of the round.")
	assert.InDelta(t, 1650, r.Webhook.ReviewBytes, 150, "We should send reviews of the size that kube-apiserver sends.")

	require.NotNil(t, r.Create)
	for _, clients := range clientsOfCreates {
		for _, sort := range sorts("") {
			assert.Positive(t, r.Create.of(sort.asked, sort.reference, clients).P50Millis, sort.String())
		}
	}
	require.NotNil(t, r.Storm)
	assert.Zero(t, r.Storm.Quiet.ChangesPerSecond)
	assert.InDelta(t, 50, r.Storm.Here.PerSecond, 25, "We should send as many claims as are due.")
	assert.Positive(t, r.Storm.Elsewhere.PerSecond)
	assert.Nil(t, r.Scale)

	var text bytes.Buffer
	r.Print(&text)
	assert.Len(t, r.Verdicts, len(measures), "We should judge every part that ran.")
	assert.Regexp(t, `\n +throughput +\d+\.\d{3}  at least 1\.3 `, text.String())
}

func TestHeldClasses(t *testing.T) {
	if testing.Short() {
		t.Skip("make test-all runs it.")
	}
	t.Parallel()
	r, err := Run(t.Context(), tiny(t, "--only=scale"))
	require.NoError(t, err)
	assert.Nil(t, r.Webhook)
	require.NotNil(t, r.Scale)
	require.Len(t, r.Scale.Sizes, 1)
	assert.Equal(t, 100, r.Scale.Sizes[0].Classes)
	assert.Positive(t, r.Scale.Sizes[0].HeapBytes)
	assert.Positive(t, r.Scale.Sizes[0].ReadySeconds)
	assert.Len(t, r.Scale.Claims, len(rates))
	assert.Equal(t, 2, r.Scale.Changed.Changes)
}

func TestSettings(t *testing.T) {
	parse := func(args ...string) *Settings {
		s := &Settings{}
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		s.AddFlags(fs)
		require.NoError(t, fs.Parse(args))
		return s
	}
	s := parse()
	require.NoError(t, s.Validate(), "We should have defaults that are valid.")
	assert.Equal(t, 2*time.Second, s.Round)
	assert.True(t, s.runs(partScale), "We should run all parts by default.")
	s = parse("--only=webhook,create")
	require.NoError(t, s.Validate())
	assert.True(t, s.runs(partCreate, partStorm))
	assert.False(t, s.runs(partStorm, partScale))

	err := parse("--only=webhook,nothing", "--rounds=0", "--connections=0", "--round=1ms").Validate()
	require.EqualError(t, err, `--only=nothing: must be some of webhook, create, storm, scale
--rounds=0: must be at least 1
--connections=0: must be at least 1
--round=1ms: must be at least 50ms`, "We should say all that is wrong.")
}

func TestSizes(t *testing.T) {
	for held, want := range map[int][]int{
		100: {100}, 150: {100, 150}, 10_000: {100, 10_000}, 100_000: {100, 10_000, 100_000},
	} {
		assert.Equal(t, want, (&Settings{Held: held}).sizes())
	}
}
