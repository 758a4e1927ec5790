package setdefault

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
)

func run(t *testing.T, args ...string) (out string, err error) {
	t.Helper()
	var b strings.Builder
	c := NewCommand()
	c.SilenceErrors, c.SilenceUsage = true, true // Like the root command.
	c.SetArgs(args)
	c.SetOut(&b)
	c.SetErr(&b)
	err = c.ExecuteContext(t.Context())
	return b.String(), err
}

func TestSetDefaultRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		args   []string
		want   string
	}{
		"Nothing": {reason: "We should say how the command goes.", want: "name one class, as in: classbind set-default KIND/NAME --for CLAIMKIND; there are 0 arguments"},
		"TwoClasses": {
			reason: "We should not guess which of two classes is meant.",
			args:   []string{"Class/gold", "Class/silver", "--for=claims"}, want: `there are 2 arguments: ["Class/gold" "Class/silver"]`,
		},
		"NoKind":       {reason: "We should refuse a name without a kind.", args: []string{"gold", "--for=claims"}, want: `"gold": must be KIND/NAME, or KIND/NAMESPACE/NAME for a namespaced class`},
		"TooManyParts": {reason: "We should refuse a name of four parts.", args: []string{"a/b/c/d", "--for=claims"}, want: `"a/b/c/d": must be KIND/NAME`},
		"EmptyKind":    {reason: "We should refuse an empty kind.", args: []string{"/gold", "--for=claims"}, want: `"/gold": must be KIND/NAME`},
		"EmptyName":    {reason: "We should refuse an empty name.", args: []string{"Class/", "--for=claims"}, want: `"Class/": must be KIND/NAME`},
		"EmptyNamespace": {
			reason: "We should refuse an empty namespace.",
			args:   []string{"Class//gold", "--for=claims"}, want: `"Class//gold": must be KIND/NAME`,
		},
		"NoFor":         {reason: "We should ask for the claim kind, because a class may serve several.", args: []string{"Class/gold"}, want: "--for: name the claim kind"},
		"EmptyFor":      {reason: "We should refuse an empty --for, such as that of an unset variable.", args: []string{"Class/gold", "--for="}, want: "--for: name the claim kind"},
		"EmptyAmongFor": {reason: "We should refuse an empty name in a list.", args: []string{"Class/gold", "--for=claims,,others"}, want: `--for="claims,,others": must have no empty name`},
		"EmptyWithout": {
			reason: "We should refuse an empty name in the other list.",
			args:   []string{"Class/gold", "--for=claims", "--leave-without-default=others,"}, want: `--leave-without-default="others,": must have no empty name`,
		},
		"NoTimeout": {
			reason: "We should refuse a timeout of 0, which means forever to other commands.",
			args:   []string{"Class/gold", "--for=claims", "--timeout=0"}, want: `--timeout="0s": must be more than 0`,
		},
		"NegativeTimeout": {reason: "We should refuse a negative time.", args: []string{"Class/gold", "--for=claims", "--timeout=-1s"}, want: `--timeout="-1s": must be more than 0`},
		"TimeoutWithoutUnit": {
			reason: "We should refuse a time without its unit.",
			args:   []string{"Class/gold", "--for=claims", "--timeout=60"}, want: `invalid argument "60" for "--timeout" flag`,
		},
		"DryRunOfKubectl": {
			reason: "We should refuse kubectl's values of --dry-run, one of which, none, means to write.",
			args:   []string{"Class/gold", "--for=claims", "--dry-run=none"}, want: `invalid argument "none" for "--dry-run" flag`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := run(t, append([]string{"--kubeconfig=absent"}, tc.args...)...)
			require.ErrorContains(t, err, tc.want, tc.reason)
			assert.NotContains(t, err.Error(), "\n", "We should complain of nothing else.")
			assert.Empty(t, out, "We should leave it to main to print the error.")
		})
	}
}

func TestSetDefaultSaysEverythingAtOnce(t *testing.T) {
	_, err := run(t, "gold", "--timeout=0s")
	require.Error(t, err)
	assert.Len(t, strings.Split(err.Error(), "\n"), 3, "We should name all errors at once, so that nobody has to try three times: %v", err)
}

// TestSlowWrite has an API server that takes longer for a write than reads may.
func TestSlowWrite(t *testing.T) {
	const forReads = 50 * time.Millisecond
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(2 * forReads):
		case <-r.Context().Done():
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"apiVersion": "test/v1", "kind": "A", "metadata": {"name": "new"}}`))
	}))
	t.Cleanup(server.Close)
	c, err := newCluster(&rest.Config{Host: server.URL, Timeout: forReads})
	require.NoError(t, err)
	object := &unstructured.Unstructured{}
	object.SetName("new")
	err = c.setMark(t.Context(), newStoredClass(fakeKind("A", "as.test", false).ClassKind, object), nil, false)
	require.NoError(t, err, "We should know the outcome of a write.")
}
