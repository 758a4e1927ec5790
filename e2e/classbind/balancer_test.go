package classbind

import (
	"io"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

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
