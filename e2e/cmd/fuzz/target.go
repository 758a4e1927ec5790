package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/classbind/classbind/selector/fuzztest/cost"
)

// command of a compiled test, which is interrupted when the context ends.
func (p *tested) command(ctx context.Context, name string, arguments ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, name, arguments...) //nolint:gosec // It runs a test that was just built.
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	c.WaitDelay = 10 * time.Second
	c.Dir, c.Stderr = p.folder, os.Stderr
	// The snapshots of thousands of classes are all garbage collection would look at.
	c.Env = append(os.Environ(), "GOGC=400")
	return c
}

// fuzz a target, and measure the worst inputs again without instrumentation.
func (p *tested) fuzz(ctx context.Context, target string) error {
	fmt.Printf("==> %s\n", target)
	begin := time.Now()
	costs := filepath.Join(p.costs, target)
	if err := os.Mkdir(costs, 0o700); err != nil {
		return fmt.Errorf("cannot make a folder for the costs: %w", err)
	}
	c := p.command(ctx, p.instrumented, "-test.run=^$", "-test.fuzz=^"+target+"$", "-test.fuzztime="+p.time,
		"-test.fuzzminimizetime=1s", "-test.fuzzcachedir="+p.kept)
	c.Env = append(c.Env, cost.Directory+"="+costs)
	output, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	c.Stderr = c.Stdout // Package testing reports its progress there.
	if err := c.Start(); err != nil {
		return fmt.Errorf("cannot start: %w", err)
	}
	executions, late := follow(output, os.Stdout)
	if err := c.Wait(); err != nil && !late {
		return errors.Join(ctx.Err(), fmt.Errorf("%s: %w", target, err))
	}
	fmt.Printf("%s: %d executions, %.0f a second\n", target, executions, float64(executions)/time.Since(begin).Seconds())
	return p.measure(ctx, target, costs)
}

var (
	executed = regexp.MustCompile(`^fuzz: elapsed: .*, execs: (\d+) `)
	failed   = regexp.MustCompile(`Failing input written|panic:`)
	overdue  = regexp.MustCompile(`^\s+context deadline exceeded$`)
)

// follow what a target prints, and return how many inputs it has tried. It is late where its time ended while it tried one, which package
// testing takes for a failure, and it found nothing else.
func follow(output io.Reader, to io.Writer) (executions int64, late bool) {
	lines := bufio.NewReader(output)
	found := false
	for {
		line, err := lines.ReadString('\n')
		if progress := executed.FindStringSubmatch(line); progress != nil {
			executions, _ = strconv.ParseInt(progress[1], 10, 64)
		} else {
			_, _ = io.WriteString(to, line)
		}
		found = found || failed.MatchString(line)
		late = late || overdue.MatchString(strings.TrimRight(line, "\n"))
		if err != nil {
			return executions, late && !found
		}
	}
}

// measure the worst inputs as the product would meet them: they are put among those of the target for as long.
func (p *tested) measure(ctx context.Context, target, costs string) error {
	worst, err := cost.Read(costs, target)
	if err != nil {
		return err
	}
	if worst.CPU.Input == "" {
		return nil // What it does is no work for an author of claims or classes, and not measured.
	}
	among := filepath.Join(p.folder, "testdata", "fuzz", target)
	if err := os.MkdirAll(among, 0o750); err != nil {
		return fmt.Errorf("cannot make a folder for inputs: %w", err)
	}
	for name, input := range map[string]string{"worst-cpu": worst.CPU.Input, "worst-bytes": worst.Bytes.Input} {
		if input == "" {
			continue // Its memory has no budget.
		}
		file := filepath.Join(among, name)
		if err := os.WriteFile(file, []byte(input), 0o600); err != nil {
			return fmt.Errorf("cannot write an input: %w", err)
		}
		defer os.Remove(file) //nolint:errcheck // It is there again with the next run.
	}
	defer os.Remove(among) //nolint:errcheck // It stays where it has inputs that were found.
	again, err := os.MkdirTemp(p.costs, "again-")
	if err != nil {
		return fmt.Errorf("cannot make a folder for the costs: %w", err)
	}
	c := p.command(ctx, p.plain, "-test.run=^"+target+"$/^worst-")
	c.Env, c.Stdout = append(c.Env, cost.Directory+"="+again), os.Stdout
	if err := c.Run(); err != nil {
		return errors.Join(ctx.Err(), fmt.Errorf("%s: the worst inputs: %w", target, err))
	}
	largest, err := cost.Read(again, target)
	if err != nil {
		return err
	}
	fmt.Printf("%s: at most %v of CPU (%.0f%% of the budget, for %d bytes) and %d bytes allocated (%.0f%%, for %d)\n\n", target,
		largest.CPU.CPU.Round(time.Microsecond), 100*largest.CPU.CPUShare(), largest.CPU.Length,
		largest.Bytes.Bytes, 100*largest.Bytes.BytesShare(), largest.Bytes.Length)
	return nil
}
