package webhook

import (
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/selector/fuzztest/cost"
)

// TestManyReviews posts more reviews than a fuzzer can, which looks at where each led: reviews of
// every kind, mutated at random, one in ten of them over 10,000 classes, and one in 1,000 with an
// expression over as many. REVIEWS is how many, each time others.
func TestManyReviews(t *testing.T) {
	reviews, seed, workers := 20_000, uint64(1), runtime.GOMAXPROCS(0)
	if n := os.Getenv("REVIEWS"); n != "" {
		var err error
		reviews, err = strconv.Atoi(n)
		require.NoError(t, err)
		seed = rand.Uint64() //nolint:gosec // It protects nothing.
	}
	var bodies []string
	for _, c := range bindSeeds() {
		if body := c.review(); len(body) < 4<<10 {
			bodies = append(bodies, body)
		}
	}
	bodies = append(bodies, wholeReview, asUpdate(boundToGold, "{}"))
	var all sync.WaitGroup
	meters := make([]*cost.Meter, workers)
	for i := range workers {
		meter := cost.NewMeter(t).OfCPU()
		meters[i] = meter
		all.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(i))) //nolint:gosec // It has to be reproducible.
			few, many := newPost(byResource(smallWorld().binder())), newPost(byResource(largeWorld().binder()))
			expressions := newPost(byResource(fitsWorld().binder()))
			for n := i; n < reviews && !t.Failed(); n += workers {
				if (n+1)%10_000_000 == 0 {
					t.Logf("%d reviews", n+1)
				}
				asked, body, check := few, "", few.check
				switch own := n / workers; {
				case own%1000 == 0:
					asked, body, check = expressions, randomFit(random), expressions.checkFit
				case own%10 == 1:
					asked, check = many, many.check
					fallthrough
				default:
					body = mutated(random, bodies)
				}
				meter.Measure(t, len(body), func() { asked.ask(body) })
				check(t, len(body))
				if meter.Largest().CPU.CPUShare() > 1 {
					t.Errorf("the review is %q", body)
				}
				for _, w := range []*world{smallWorld(), largeWorld()} {
					w.tally.Expire(time.Now().Add(time.Hour))
				}
			}
		})
	}
	all.Wait()
	var largest cost.Largest
	for _, meter := range meters {
		largest.Add(meter.Largest())
	}
	t.Logf("%d reviews, at most %s of CPU for %d bytes, %.0f%% of the budget", reviews, largest.CPU.CPU, largest.CPU.Length, 100*largest.CPU.CPUShare())
}

// mutated is one of the bodies with up to four changes that leave most of it.
func mutated(random *rand.Rand, bodies []string) string {
	body := []byte(bodies[random.IntN(len(bodies))])
	for range random.IntN(5) {
		at := random.IntN(len(body) + 1)
		length := min(random.IntN(1<<random.IntN(8)), len(body)-at)
		part := append([]byte(nil), body[at:at+length]...)
		switch random.IntN(4) {
		case 0:
			body = append(body[:at], body[at+length:]...)
		case 1:
			to := random.IntN(len(body) + 1)
			body = append(body[:to:to], append(part, body[to:]...)...)
		case 2:
			other := bodies[random.IntN(len(bodies))]
			from := random.IntN(len(other))
			part = []byte(other[from:min(len(other), from+random.IntN(64))])
			body = append(body[:at:at], append(part, body[at+length:]...)...)
		case 3:
			for i := range part {
				body[at+i] ^= byte(1) << random.IntN(8)
			}
		}
	}
	return string(body)
}

// randomFit is a claim whose values one of costlyFits walks.
func randomFit(random *rand.Rand) string {
	elements := []string{`""`, `"a98"`, `"zz"`, "[]", "{}", "1", `"1e3"`, `"2024-01-01T00:00:00Z"`}
	texts := []string{`"aab"`, `"Europe/Paris"`, `"` + strings.Repeat("a", random.IntN(16_000)) + `"`, `"http://a?` + strings.Repeat("a=b&", random.IntN(3_900)) + `"`}
	return fitReview(elements[random.IntN(len(elements))], texts[random.IntN(len(texts))], drawnByte(random), drawnByte(random))
}

func drawnByte(random *rand.Rand) byte { return byte(random.Uint32()) } //nolint:gosec // Its low bits will do.
