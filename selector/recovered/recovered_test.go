package recovered

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// TestRecovered has one bad element among others in each kind of goroutine and loop. All others have their turn, and the panic is logged by
// the process's logger, and counted.
func TestRecovered(t *testing.T) {
	errNotYetThere := errors.New("not yet there")
	require.ErrorIs(t, Do(func() error { return errNotYetThere }), errNotYetThere, "We should pass an error on.")
	for name, run := range map[string]func(ctx context.Context, element func(int)){
		"Do": func(_ context.Context, element func(int)) {
			for i := range 3 {
				_ = Do(func() error { element(i); return nil })
			}
		},
		"Func": func(_ context.Context, element func(int)) {
			var all errgroup.Group
			for i := range 3 {
				all.Go(Func(func() error { element(i); return nil }))
			}
			assert.ErrorIs(t, all.Wait(), ErrPanic, "We should return it as an error.")
		},
		"Here": func(_ context.Context, element func(int)) {
			var all sync.WaitGroup
			for i := range 3 {
				all.Go(func() { defer Here(); element(i) })
			}
			all.Wait()
		},
		"Again": func(ctx context.Context, element func(int)) {
			i := -1
			require.ErrorIs(t, Again(ctx, func(context.Context) error {
				for i++; i < 3; i++ {
					element(i)
				}
				return errNotYetThere
			}), errNotYetThere)
		},
		"Rounds": func(ctx context.Context, element func(int)) {
			ctx, cancel := context.WithTimeout(ctx, 2500*time.Millisecond)
			defer cancel()
			i := -1
			Rounds(ctx, func(context.Context) { i++; element(i) }, time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				before, logger := Panics(), slog.Default()
				slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
				defer slog.SetDefault(logger)
				var mu sync.Mutex
				done := map[int]bool{}
				run(t.Context(), func(i int) {
					if i == 1 {
						panic("a poisoned claim")
					}
					mu.Lock()
					defer mu.Unlock()
					done[i] = true
				})
				assert.Equal(t, map[int]bool{0: true, 2: true}, done, "We should go on with the next.")
				assert.Equal(t, before+1, Panics(), "We should count it.")
				assert.Contains(t, log.String(), "panic: a poisoned claim", "We should log it.")
				assert.Contains(t, log.String(), "recovered_test.go", "We should log its stack.")
			})
		})
	}
	assert.ErrorIs(t, Do(func() error { panic(Do(func() error { panic("inner") })) }), ErrPanic, "We should know a panic that goes on.")
}

// mentions reports whether a node refers to this package.
func mentions(n ast.Node) (found bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		s, is := n.(*ast.SelectorExpr)
		if is {
			x, isName := s.X.(*ast.Ident)
			found = found || isName && x.Name == "recovered"
		}
		return true
	})
	return found
}

// isRecovered reports whether what runs in a goroutine is a call of this package, or a function that begins with one.
func isRecovered(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.CallExpr:
		return mentions(e.Fun)
	case *ast.FuncLit:
		return len(e.Body.List) > 0 && mentions(e.Body.List[0])
	}
	return false
}

// unguarded are the places of a file where a panic would end the process, or where nothing is logged.
func unguarded(set *token.FileSet, file *ast.File) (places []string) {
	add := func(n ast.Node, what string) {
		places = append(places, fmt.Sprintf("%s: %s", set.Position(n.Pos()), what))
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			if !isRecovered(n.Call) && !isRecovered(n.Call.Fun) {
				add(n, "go without recovered")
			}
		case *ast.CallExpr:
			s, is := n.Fun.(*ast.SelectorExpr)
			if !is {
				return true
			}
			on, _ := s.X.(*ast.Ident)
			switch name := s.Sel.Name; {
			case name == "FromContextOrDiscard":
				add(n, "a manager's context has no logger of logr")
			case name == "Go" && len(n.Args) == 1 && !isRecovered(n.Args[0]):
				add(n, "Go without recovered")
			case name == "AfterFunc":
				if f, is := n.Args[1].(*ast.FuncLit); is && !isRecovered(f) {
					add(n, "AfterFunc without recovered")
				}
			case strings.HasPrefix(name, "Until") && on != nil && on.Name == "wait", strings.HasPrefix(name, "JitterUntil"):
				add(n, "a loop that a panic ends: use recovered.Rounds")
			case name == "Add" && on != nil && on.Name == "mgr" && !strings.HasPrefix(nameOf(n.Args[0]), "loop."):
				add(n, "a runnable that a panic ends: use loop.Again or loop.Everywhere")
			}
		}
		return true
	})
	return places
}

// nameOf a function that is called, as PACKAGE.NAME.
func nameOf(e ast.Expr) string {
	if call, is := e.(*ast.CallExpr); is {
		if s, is := call.Fun.(*ast.SelectorExpr); is {
			if x, is := s.X.(*ast.Ident); is {
				return x.Name + "." + s.Sel.Name
			}
		}
	}
	return ""
}

// TestEveryGoroutineRecovers looks at the whole product.
func TestEveryGoroutineRecovers(t *testing.T) {
	set, goroutines := token.NewFileSet(), 0
	for _, root := range []string{"api", "certs", "cmd", "controller", "selector", "webhook"} {
		require.NoError(t, filepath.WalkDir(filepath.Join("..", "..", root), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "selector/recovered/") {
				return err
			}
			file, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
			if err == nil {
				assert.Empty(t, unguarded(set, file))
				ast.Inspect(file, func(n ast.Node) bool {
					if mentioned, is := n.(*ast.SelectorExpr); is && mentions(mentioned) {
						goroutines++
					}
					return true
				})
			}
			return err
		}))
	}
	assert.Greater(t, goroutines, 30, "We should find those that are there.")
}

// TestUnguarded finds what TestEveryGoroutineRecovers is there to find.
func TestUnguarded(t *testing.T) {
	for text, want := range map[string]int{
		"go f()": 1, "go func() { f() }()": 1, "g.Go(f)": 1, "g.Go(func() error { return f() })": 1, "time.AfterFunc(d, func() { f() })": 1,
		"wait.UntilWithContext(ctx, f, d)": 1, "mgr.Add(r)": 1, "logr.FromContextOrDiscard(ctx)": 1,
		"go recovered.Rounds(ctx, f, d)": 0, "go func() { defer recovered.Here(); f() }()": 0, "g.Go(recovered.Func(f))": 0, "mgr.Add(loop.Again(r))": 0,
		"g.Go(func() { _ = recovered.Again(ctx, f) })": 0, "time.AfterFunc(d, func() { defer recovered.Here(); f() })": 0,
	} {
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, "a.go", "package a\nfunc a() { "+text+" }", 0)
		require.NoError(t, err)
		assert.Len(t, unguarded(set, file), want, "We should judge %s.", text)
	}
}
