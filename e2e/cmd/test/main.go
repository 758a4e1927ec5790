// Command test runs go test with the arguments that it is given. It prints what go test prints
// without -v: a line for each package, and what a test logged that failed, as soon as it fails.
// Every few seconds it says how far the tests are, which go test never does.
//
// With -v among the arguments it prints what tests log that pass, too. With -C DIR before them, it
// runs go test in another folder.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"time"
)

// every is how often it says how far the tests are.
const every = 20 * time.Second

func main() {
	signal.Ignore(os.Interrupt) // go test has it, too. It ends, and what it says until then is printed.
	err := run(os.Args[1:])
	if exit := (&exec.ExitError{}); errors.As(err, &exit) {
		os.Exit(max(1, exit.ExitCode()))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	dir := ""
	if len(args) > 1 && args[0] == "-C" {
		dir, args = args[1], args[2:]
	}
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...) //nolint:gosec // It runs the tests that it is told to.
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	lines := make(chan []byte)
	go func() {
		defer close(lines)
		for in := bufio.NewReader(out); ; {
			line, err := in.ReadBytes('\n')
			if len(line) > 0 {
				lines <- line
			}
			if err != nil {
				return
			}
		}
	}()
	s := &summary{
		out: os.Stdout, verbose: slices.Contains(args, "-v"), begin: time.Now(), running: map[test]time.Time{}, logs: map[test][]string{},
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case line, more := <-lines:
			if !more {
				return cmd.Wait()
			}
			e := event{}
			if json.Unmarshal(line, &e) != nil {
				e = event{Action: "build-output", Output: string(line)} // It is none of go test's events.
			}
			s.take(e)
		case <-tick.C:
			s.say()
		}
	}
}
