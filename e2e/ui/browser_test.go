package ui

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The accessibility checks, as npm publishes them.
const (
	axeVersion   = "4.14.1"
	axeIntegrity = "sha512-FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
)

var screenshots = flag.String("screenshots", "", "`folder` to write the pictures of the documents to")

// tab of a browser. Whatever the page reports as an error fails the test.
type tab struct {
	context.Context

	t *testing.T

	mu     sync.Mutex
	errors []string
}

func newTab(t *testing.T) *tab {
	t.Helper()
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath(chromium(t)), chromedp.NoSandbox, chromedp.WindowSize(1280, 900), chromedp.WSURLReadTimeout(time.Minute))
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	b := &tab{Context: ctx, t: t}
	require.NoError(t, chromedp.Listen(ctx, func(event any) {
		if e, ok := event.(*page.EventJavascriptDialogOpening); ok {
			b.report("a dialog: " + e.Message)
		}
	}))
	messages := chromedp.Console(ctx)
	go func() {
		for m, err := range messages {
			switch {
			case err != nil:
				return
			case m.IsException(), m.Type == "error" && m.Source != "network":
				b.report(m.String())
			}
		}
	}()
	b.run(chromedp.Navigate("about:blank"))
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		assert.Empty(t, b.errors, "The page should report no error.")
	})
	return b
}

// chromium is the path of the browser.
func chromium(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "./chromium").Output()
	require.NoError(t, err, "Chromium should be installed: make test-ui does that.")
	return strings.TrimSpace(string(out))
}

func (b *tab) report(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.errors = append(b.errors, text)
}

func (b *tab) run(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.Context, patience)
	defer cancel()
	require.NoError(b.t, chromedp.Do(ctx, actions...))
}

// open a page, and wait until it says something.
func (b *tab) open(url, says string) {
	b.t.Helper()
	b.run(chromedp.Navigate(url))
	b.says(says)
}

// says waits until the page has a text, without reloading it.
func (b *tab) says(text string) {
	b.t.Helper()
	var shown string
	if !assert.Eventually(b.t, func() bool {
		shown, _ = chromedp.Run(b.Context, chromedp.Evaluate[string]("document.body.innerText")) // The page may be between two.
		return strings.Contains(shown, text)
	}, patience, 50*time.Millisecond) {
		require.FailNow(b.t, fmt.Sprintf("The page should say %q.", text), shown)
	}
}

func (b *tab) text() string {
	b.t.Helper()
	return eval[string](b, "document.body.innerText")
}

// eval returns the value of a script.
func eval[T any](b *tab, script string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.Context, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
	require.NoError(b.t, err)
	return value
}

// scheme is light or dark.
func (b *tab) scheme(scheme string) {
	b.t.Helper()
	_, err := chromedp.Call(b.Context, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	require.NoError(b.t, err)
}

// size of the window.
func (b *tab) size(width, height int64) {
	b.t.Helper()
	b.run(chromedp.EmulateViewport(width, height))
}

// fits proves that the page needs no scrolling to the side, and that no word of a table is broken, from a telephone to a large screen.
func (b *tab) fits(screen string) {
	b.t.Helper()
	const split = `(() => {
  const words = [];
  const walk = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  for (let n = walk.nextNode(); n; n = walk.nextNode()) {
    if (!n.parentElement.closest("table")) continue;
    for (const m of n.data.matchAll(/[A-Za-z0-9]+/g)) {
      const range = document.createRange();
      range.setStart(n, m.index);
      range.setEnd(n, m.index + m[0].length);
      if (new Set([...range.getClientRects()].filter((r) => r.width > 0).map((r) => r.top)).size > 1) words.push(m[0]);
    }
  }
  return words;
})()`
	const wide = `(width) => [...document.querySelectorAll("body *")].filter((e) => !e.closest(".scroll > *, .skip") && ` +
		`e.getBoundingClientRect().right > width).map((e) => e.outerHTML.slice(0, 200))`
	for _, width := range []int64{360, 800, 1600} {
		b.size(width, 900)
		assert.Empty(b.t, eval[[]string](b, fmt.Sprintf("(%s)(%d)", wide, width)), "%s: the page should fit in %d pixels", screen, width)
		assert.Empty(b.t, eval[[]string](b, split), "%s: no word should be broken in %d pixels", screen, width)
	}
	b.size(1280, 900)
}

// shoot a picture for the documents, if they are to be made.
func (b *tab) shoot(name string, height int64) {
	b.t.Helper()
	if *screenshots == "" {
		return
	}
	b.size(1100, height)
	defer b.size(1280, 900)
	picture, err := chromedp.Run(b.Context, chromedp.CaptureScreenshot())
	require.NoError(b.t, err)
	require.NoError(b.t, os.MkdirAll(*screenshots, 0o755)) //nolint:gosec // Everybody may see them.
	require.NoError(b.t, os.WriteFile(filepath.Join(*screenshots, name+".png"), picture, 0o600))
	assert.Less(b.t, len(picture), 150<<10, "A picture of the documents should be small: %s", name)
}

// accessible has axe-core look at the page, in light and dark.
func (b *tab) accessible(screen string) {
	b.t.Helper()
	type violation struct {
		ID, Impact, Help string
		Nodes            []struct{ HTML, FailureSummary string }
	}
	script, err := axe()
	require.NoError(b.t, err)
	for _, scheme := range []string{"light", "dark"} {
		b.scheme(scheme)
		b.run(chromedp.Evaluate[chromedp.Void](script))
		found := eval[[]violation](b, "axe.run().then((r) => r.violations)")
		checked := eval[int](b, "axe.run().then((r) => r.passes.length)")
		assert.Greater(b.t, checked, 10, "axe-core should have looked at the page.")
		for _, v := range found {
			assert.NotContains(b.t, []string{"serious", "critical"}, v.Impact, "%s, %s: %s: %+v", screen, scheme, v.Help, v.Nodes)
			b.t.Logf("axe-core: %s, %s: %s: %s: %+v", screen, scheme, v.Impact, v.Help, v.Nodes)
		}
		b.t.Logf("axe-core: %s, %s: %d rules pass, %d do not", screen, scheme, checked, len(found))
	}
	b.scheme("light")
}

// axe is the script, which npm gets once for each version.
var axe = sync.OnceValues(func() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "classbind", "axe-core-"+axeVersion)
	script := filepath.Join(dir, "package", "axe.min.js")
	if text, err := os.ReadFile(script); err == nil { //nolint:gosec // It is in our cache.
		return string(text), nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // Everybody may read it.
		return "", err
	}
	pack := exec.Command("npm", "pack", "--json", "axe-core@"+axeVersion)
	pack.Dir = dir
	out, err := pack.Output()
	if err != nil {
		return "", fmt.Errorf("cannot get axe-core: %w", err)
	}
	var packed []struct{ Filename, Integrity string }
	if err := json.Unmarshal(out, &packed); err != nil || len(packed) != 1 {
		return "", fmt.Errorf("cannot read what npm says: %w: %s", err, out)
	}
	if packed[0].Integrity != axeIntegrity {
		return "", fmt.Errorf("axe-core %s is not what it was: %s", axeVersion, packed[0].Integrity)
	}
	unpack := exec.Command("tar", "-xzf", packed[0].Filename, "package/axe.min.js") //nolint:gosec // npm has named it.
	unpack.Dir = dir
	if out, err := unpack.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot unpack axe-core: %w: %s", err, out)
	}
	text, err := os.ReadFile(script) //nolint:gosec // It is in our cache.
	return string(text), err
})
