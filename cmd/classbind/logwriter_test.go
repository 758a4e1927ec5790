package main

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/selector/fuzztest/cost"
)

// console keeps what is written to it, unless it has an error.
type console struct {
	mu     sync.Mutex
	text   strings.Builder
	writes int
	err    error
}

func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writes++
	if c.err != nil {
		return 0, c.err
	}
	return c.text.Write(p)
}

func (c *console) written() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.writes
}

func (c *console) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.String()
}

func TestLogWriterWritesInOrder(t *testing.T) {
	out := &console{}
	w := newLogWriter(out)
	_, _ = fmt.Fprintln(w, "early")
	go w.run(logr.Discard())
	const workers, each = 8, 1000
	var working sync.WaitGroup
	for i := range workers {
		working.Go(func() {
			for n := range each {
				_, err := fmt.Fprintln(w, i, n)
				assert.NoError(t, err)
			}
		})
	}
	working.Wait()
	w.close()
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	require.Len(t, lines, 1+workers*each, "We should have written every line when we are closed.")
	assert.Equal(t, "early", lines[0], "We should keep what is written before we run.")
	next := [workers]int{}
	for _, line := range lines[1:] {
		var i, n int
		_, err := fmt.Sscan(line, &i, &n)
		require.NoError(t, err, line)
		require.Equal(t, next[i], n, "We should keep the order of lines.")
		next[i]++
	}
	assert.Zero(t, w.dropped.Load())

	_, _ = fmt.Fprintln(w, "late")
	assert.True(t, strings.HasSuffix(out.String(), "\nlate\n"), "We should write lines at once after the end.")
}

func TestLogWriterWritesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &console{}
		w := newLogWriter(out)
		go w.run(logr.Discard())
		for range 100 {
			_, _ = fmt.Fprintln(w, "hello")
		}
		synctest.Wait()
		assert.Zero(t, out.written(), "We should wait for more lines, to write them together.")
		w.close()
		assert.Equal(t, 1, out.written(), "We should write lines together.")
		assert.Equal(t, strings.Repeat("hello\n", 100), out.String())
	})
}

// blocked is a console whose writes block until a channel is closed.
type blocked struct {
	console
	until chan struct{}
}

func (b *blocked) Write(p []byte) (int, error) {
	<-b.until
	return b.console.Write(p)
}

func TestLogWriterDrops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &blocked{until: make(chan struct{})}
		w := newLogWriter(out)
		log, err := parse(t).logger(w)
		require.NoError(t, err)
		go w.run(log)
		line := strings.Repeat("a", 1<<10-1) + "\n"
		const more = 100
		for range maxWaitingBytes/len(line) + more {
			_, err := w.Write([]byte(line))
			require.NoError(t, err)
		}
		assert.EqualValues(t, more, w.dropped.Load(), "We should drop lines that nobody reads, rather than wait.")
		close(out.until)
		w.close()
		text := out.String()
		assert.Equal(t, maxWaitingBytes/len(line), strings.Count(text, line), "We should write all lines that we did not drop.")

		_, _ = fmt.Fprintln(w, "hello")
		assert.True(t, strings.HasSuffix(out.String(), "hello\n"), "We should write again when somebody reads.")
	})
}

func TestLogWriterSaysWhatItDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &console{err: errors.New("no space left on device")}
		w := newLogWriter(out)
		log, err := parse(t).logger(w)
		require.NoError(t, err)
		_, _ = fmt.Fprintln(w, "hello")
		_, _ = fmt.Fprintln(w, "hello")
		w.flush()
		out.err = nil
		_, _ = fmt.Fprintln(w, "again")
		go w.run(log)
		time.Sleep(time.Second)
		assert.Contains(t, out.String(), `"msg":"Dropped log lines that could not be written fast enough","lines":2}`, "We should say how many are missing.")
		assert.True(t, strings.HasPrefix(out.String(), "again\n"), "We should go on when we can.")
		w.close()
		assert.Equal(t, 1, strings.Count(out.String(), "Dropped"), "We should say it once.")
	})
}

// TestLogWriterAllocatesNothing proves that lines make no garbage.
func TestLogWriterAllocatesNothing(t *testing.T) {
	w := newLogWriter(&strings.Builder{})
	line := []byte("hello\n")
	allocs := cost.Allocs(func() {
		_, _ = w.Write(line)
		w.flush()
	})
	assert.Zero(t, allocs, "We should keep lines in the same memory.")
}
