package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// event is one of test2json's: go doc test2json.
type event struct {
	Time                          time.Time
	Action, Package, Test, Output string
}

// test is one, or a part of one.
type test struct{ pkg, name string }

// shown is how many of the running tests are named.
const shown = 4

// summary says how far the tests are.
type summary struct {
	out     io.Writer
	verbose bool
	begin   time.Time

	passed, failed, skipped int
	// running since when. A test that waits for its turn does not run.
	running map[test]time.Time
	// logs of the tests that have not ended.
	logs map[test][]string
}

// take in an event.
func (s *summary) take(e event) {
	t := test{e.Package, e.Test}
	switch {
	case e.Action == "build-output", e.Action == "output" && s.verbose:
		s.print(e.Output)
	case e.Test == "":
		if e.Action == "output" && e.Output != "PASS\n" {
			s.print(e.Output)
		}
		return
	}
	switch e.Action {
	case "output":
		if !s.verbose {
			s.logs[t] = append(s.logs[t], e.Output)
		}
	case "run", "cont":
		s.running[t] = e.Time
	case "pause":
		delete(s.running, t)
	case "pass", "skip", "fail":
		s.end(t, e.Action)
	}
}

func (s *summary) end(t test, how string) {
	if how == "fail" {
		s.print(strings.Join(s.logs[t], ""))
	}
	delete(s.running, t)
	delete(s.logs, t)
	if strings.Contains(t.name, "/") { // It is counted with its test.
		return
	}
	switch how {
	case "pass":
		s.passed++
	case "skip":
		s.skipped++
	case "fail":
		s.failed++
	}
}

// say how far the tests are.
func (s *summary) say() {
	var oldest []test
	for _, t := range slices.SortedFunc(maps.Keys(s.running), func(a, b test) int {
		return cmp.Or(s.running[a].Compare(s.running[b]), cmp.Compare(a.name, b.name))
	}) {
		parent := slices.ContainsFunc(slices.Collect(maps.Keys(s.running)), func(o test) bool {
			return o.pkg == t.pkg && strings.HasPrefix(o.name, t.name+"/")
		})
		if !parent { // Its part says more.
			oldest = append(oldest, t)
		}
	}
	text := fmt.Sprintf("... %s: passed %d tests, failed %d, skipped %d",
		time.Since(s.begin).Round(time.Second), s.passed, s.failed, s.skipped)
	if len(oldest) == 0 {
		s.print(text + "; compiling\n")
		return
	}
	for i, t := range oldest[:min(shown, len(oldest))] {
		text += fmt.Sprintf("%s %s (%s)", [...]string{"; running", ","}[min(i, 1)], t.name, time.Since(s.running[t]).Round(time.Second))
	}
	if more := len(oldest) - shown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	s.print(text + "\n")
}

func (s *summary) print(text string) { _, _ = io.WriteString(s.out, text) }
