// Command fuzz runs every fuzz target of the root module, one after the other,
// and prints how many inputs each tried and the most that one of them cost.
package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/classbind/classbind/e2e/command"
)

func main() {
	f := &fuzzing{}
	pflag.StringVar(&f.time, "time", "1m", "how long each target runs, or how many inputs it tries, such as 1000x")
	only := pflag.String("only", "", "pattern of the targets to run, all of them if empty")
	pflag.Parse()
	command.Main(func(ctx context.Context) error { return f.run(ctx, *only) })
}

func (f *fuzzing) run(ctx context.Context, only string) error {
	wanted, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("cannot read --only: %w", err)
	}
	if f.module, err = filepath.Abs(".."); err != nil {
		return err
	}
	f.built = filepath.Join(f.module, "bin", "fuzz")
	if f.costs, err = os.MkdirTemp("", "fuzz-costs-"); err != nil {
		return fmt.Errorf("cannot make a folder for the costs: %w", err)
	}
	defer os.RemoveAll(f.costs) //nolint:errcheck // It is among the temporary ones.

	all, err := f.find(ctx, wanted)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return fmt.Errorf("no target matches --only=%q", only)
	}
	var failed []string
	for _, folder := range slices.Sorted(maps.Keys(all)) {
		p, err := f.build(ctx, folder)
		if err != nil {
			return err
		}
		for _, target := range all[folder] {
			if ctx.Err() != nil {
				break
			}
			if err := p.fuzz(ctx, target); err != nil && ctx.Err() == nil {
				fmt.Println(err)
				failed = append(failed, target)
			}
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("failed: %s; what go test has written into testdata/fuzz is the input, to be committed with the repair",
			strings.Join(failed, ", "))
	}
	return ctx.Err()
}

// fuzzing of the targets of a module.
type fuzzing struct {
	module string
	time   string
	// built has the tests and what was found to be of interest by earlier runs.
	built string
	// costs are where the targets write them.
	costs string
}

// find the wanted targets by folder, in the files that are named for having some.
func (f *fuzzing) find(ctx context.Context, wanted *regexp.Regexp) (map[string][]string, error) {
	grep := exec.CommandContext(ctx, "git", "grep", "--untracked", "-E", `^func Fuzz\w+\(f \*testing\.F\)`, "--", "*_fuzz_test.go")
	grep.Dir = f.module
	out, err := grep.Output()
	if err != nil {
		return nil, fmt.Errorf("cannot look for fuzz targets: %w", err)
	}
	all := map[string][]string{}
	for line := range strings.Lines(string(out)) { // PATH:func NAME(f *testing.F) {
		path, declared, _ := strings.Cut(line, ":func ")
		name, _, _ := strings.Cut(declared, "(")
		if folder := filepath.Join(f.module, filepath.Dir(path)); wanted.MatchString(name) {
			all[folder] = append(all[folder], name)
		}
	}
	return all, nil
}

// tested is the compiled tests of a package, twice: with the instrumentation by which the fuzzer sees where an input has led, and without.
type tested struct {
	*fuzzing

	folder                    string
	instrumented, plain, kept string
}

// instrumented are our own packages, and the one that reads the text of a selector. go test -fuzz does it to all there are: then to look at
// the counters takes fifty times as long as to try an input.
var instrumented = []string{
	"-gcflags=github.com/classbind/classbind/...=-d=libfuzzer",
	"-gcflags=k8s.io/apimachinery/pkg/labels=-d=libfuzzer",
}

func (f *fuzzing) build(ctx context.Context, folder string) (*tested, error) {
	relative, err := filepath.Rel(f.module, folder)
	if err != nil {
		return nil, err
	}
	name := filepath.Join(f.built, strings.ReplaceAll(relative, string(filepath.Separator), "-"))
	p := &tested{fuzzing: f, folder: folder, instrumented: name + ".fuzz", plain: name + ".test", kept: name + "-corpus"}
	for output, flags := range map[string][]string{p.instrumented: instrumented, p.plain: nil} {
		build := exec.CommandContext(ctx, "go", append(append([]string{"test", "-c", "-o", output}, flags...), ".")...) //nolint:gosec // What it builds is ours.
		build.Dir, build.Stderr = folder, os.Stderr
		if err := build.Run(); err != nil {
			return nil, errors.Join(ctx.Err(), fmt.Errorf("cannot build the tests of %q: %w", relative, err))
		}
	}
	return p, nil
}
