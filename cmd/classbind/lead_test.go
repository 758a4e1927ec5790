package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

// TestLeadershipGoesOn runs terms that fail at once, because a file is missing.
func TestLeadershipGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines []string
		log := funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})
		ctx, stop := context.WithCancel(logf.IntoContext(t.Context(), log))
		opened := make(chan struct{})
		s := &server{cluster: &rest.Config{TLSClientConfig: rest.TLSClientConfig{CAFile: "absent"}}, options: &options{}}
		l := &leadership{server: s, opened: opened}
		assert.False(t, l.NeedLeaderElection(), "We should run for the leadership on every replica.")
		ended := make(chan error, 1)
		go func() { ended <- l.Start(ctx) }()
		time.Sleep(time.Minute)
		require.Empty(t, lines, "We should not run for the leadership before we know all classes.")
		close(opened)
		time.Sleep(2500 * time.Millisecond)
		synctest.Wait()
		require.Empty(t, ended, "We should go on: this replica must keep answering.")
		require.Len(t, lines, 3, "We should run for the leadership again once a second.")
		assert.Contains(t, lines[2], "cannot connect to the cluster", "We should say what ended the term.")

		stop()
		synctest.Wait()
		require.NoError(t, <-ended, "We should end with the context.")
		assert.Len(t, lines, 3, "We should not complain of our own end.")
	})
}
