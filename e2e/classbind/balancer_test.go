package classbind

import (
	"io"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestBalancer(t *testing.T) {
	b, err := NewBalancer()
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	// dial returns what the backend says, which is its name, and then nothing.
	dial := func() string {
		conn, err := net.Dial("tcp", strings.TrimPrefix(b.URL, "https://"))
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		text, err := io.ReadAll(conn)
		require.NoError(t, err)
		return string(text)
	}
	assert.Empty(t, dial(), "We should end a connection that there is no backend for.")

	listeners := map[string]net.Listener{}
	for _, name := range []string{"a", "b", "c"} {
		l, err := net.Listen("tcp", "localhost:0")
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		listeners[name] = l
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = io.WriteString(conn, name)
				_ = conn.Close()
			}
		}()
		b.Add(l.Addr().String())
	}
	four := func() string { return dial() + dial() + dial() + dial() }
	assert.Contains(t, []string{"abca", "bcab", "cabc"}, four(), "We should take the backends in turn.")
	require.NoError(t, listeners["b"].Close())
	assert.NotContains(t, four()+four(), "b", "We should pass over one that does not accept.")
	b.Remove(listeners["c"].Addr().String())
	assert.Equal(t, "aaaa", four(), "We should not use one that is removed.")
}

func TestBalancerCut(t *testing.T) {
	b, err := NewBalancer()
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.Close() })
	l, err := net.Listen("tcp", "localhost:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "a") // and nothing more, until the other side ends.
		}
	}()
	b.Add(l.Addr().String())
	for range 2 {
		conn, err := net.Dial("tcp", strings.TrimPrefix(b.URL, "https://"))
		require.NoError(t, err)
		_, err = conn.Read(make([]byte, 1))
		require.NoError(t, err, "We should hand on connections after a cut.")
		b.Cut()
		_, err = conn.Read(make([]byte, 1))
		require.Error(t, err, "We should end a connection that is open.")
		require.NoError(t, conn.Close())
	}
}
