package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestSummary(t *testing.T) {
	const pkg = "example.org/pkg"
	begin := time.Now()
	events := []event{
		{Action: "build-output", Output: "# example.org/broken\n"},
		{Action: "run", Test: "TestPasses", Output: ""},
		{Action: "output", Test: "TestPasses", Output: "quiet\n"},
		{Action: "pass", Test: "TestPasses"},
		{Action: "run", Test: "TestFails"},
		{Action: "run", Test: "TestFails/One"},
		{Action: "output", Test: "TestFails/One", Output: "why\n"},
		{Action: "fail", Test: "TestFails/One"},
		{Action: "fail", Test: "TestFails"},
		{Action: "run", Test: "TestSkips"},
		{Action: "skip", Test: "TestSkips"},
		{Action: "run", Test: "TestWaits"},
		{Action: "pause", Test: "TestWaits"},
		{Action: "run", Test: "TestLong"},
		{Action: "run", Test: "TestLong/Part"},
		{Action: "output", Output: "PASS\n"},
		{Action: "output", Output: "FAIL\t" + pkg + "\t1.0s\n"},
	}
	for name, tc := range map[string]struct {
		reason  string
		verbose bool
		want    string
	}{
		"Quiet": {"We should print what failed, and the line of the package.", false, "# example.org/broken\nwhy\nFAIL\t" + pkg + "\t1.0s\n"},
		"Verbose": {
			"We should print all as it comes.", true,
			"# example.org/broken\nquiet\nwhy\nPASS\nFAIL\t" + pkg + "\t1.0s\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			s := &summary{out: &out, verbose: tc.verbose, begin: begin, running: map[test]time.Time{}, logs: map[test][]string{}}
			for _, e := range events {
				e.Package, e.Time = pkg, begin
				s.take(e)
			}
			assert.Equal(t, tc.want, out.String(), tc.reason)
			out.Reset()
			s.say()
			assert.Equal(t, "... 0s: passed 1 tests, failed 1, skipped 1; running TestLong/Part (0s)\n", out.String(),
				"We should name what runs, and not what waits for its turn.")
			for _, name := range []string{"a", "b", "c", "d", "e"} {
				s.take(event{Action: "run", Test: name, Package: pkg, Time: begin})
			}
			out.Reset()
			s.say()
			assert.Equal(t, "... 0s: passed 1 tests, failed 1, skipped 1; running TestLong/Part (0s), a (0s), b (0s), c (0s) and 2 more\n", out.String(),
				"We should name a few, those that run longest first.")
		})
	}
}
