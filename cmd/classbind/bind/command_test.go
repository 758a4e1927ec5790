package bind

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/cmd/classbind/connect"
	"github.com/classbind/classbind/cmd/classbind/exit"
	"github.com/classbind/classbind/cmd/classbind/output"
	"github.com/classbind/classbind/cmd/classbind/world"
	"github.com/classbind/classbind/controller/latebinding"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
)

// TestReport prints each outcome in each format.
func TestReport(t *testing.T) {
	claims := []Claim{
		{Namespace: "team", Name: "a", Outcome: Bound, Reason: "MatchingClass", Class: &selector.ClassName{Kind: "Gold", Name: "b"}},
		{Name: "c", Outcome: Unmatched, Reason: "NoMatchingClass", Message: "no class\u202e"},
		{Namespace: "team", Name: "d", Outcome: LeftAlone, Reason: "Settled", Message: "it is"},
		{Namespace: "team", Name: "e", Outcome: Failed, Reason: "NotWritten", Message: "it failed"},
	}
	for name, tc := range map[string]struct {
		reason string
		most   int
		format string
		dryRun bool
		want   []string
		status int
	}{
		"All": {"We should say what became of each, with the worst exit status.", 4, "table", false, []string{
			"team/a: bound to Gold/b\n", "c: not bound (NoMatchingClass): no class\\u202e\n", "team/d: left alone (Settled): it is\n",
			"team/e: not bound (NotWritten): it failed\n", "1 bound, 1 without a class, 1 left alone, 1 failed; 0 had their class\n",
		}, exit.Failed},
		"Unmatched": {"We should show scripts that a claim has no class.", 2, "table", false, []string{"1 bound, 1 without a class, 0 left alone"}, exit.Found},
		"DryRun":    {"We should not say that anything was done.", 1, "table", true, []string{"had their class (dry run)\n"}, 0},
		"JSON": {
			"We should print an object for each.", 1, "json", true,
			[]string{"\"kind\": \"Claim\",\n", "\"dryRun\": true\n}\n{\n", "\"kind\": \"Summary\",\n"},
			0,
		},
		"YAML": {
			"We should print a document for each.", 1, "yaml", false,
			[]string{"---\napiVersion: bind.classbind.io/v1beta1\n", "kind: Claim\n", "---\napiVersion: bind.classbind.io/v1beta1\nbound: 1\n"},
			0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			o := &options{dryRun: map[bool]connect.DryRun{true: connect.ClientDryRun, false: connect.NoDryRun}[tc.dryRun], output: output.Format(tc.format)}
			r := &reporter{options: o, out: &out}
			for _, c := range claims[:tc.most] {
				c.DryRun = tc.dryRun
				r.print(&c)
			}
			assert.Equal(t, tc.status, exit.Status(r.end()), tc.reason)
			for _, want := range tc.want {
				assert.Contains(t, out.String(), want, tc.reason)
			}
		})
	}
}

func TestConcernsOne(t *testing.T) {
	answer := func(code int32) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Message: "no"}}
	}
	for name, tc := range map[string]struct {
		reason string
		err    error
		want   bool
	}{
		"Denied":       {"We should go on after a webhook has refused one claim.", answer(http.StatusForbidden), true},
		"Invalid":      {"We should go on after a claim that would be invalid.", answer(http.StatusUnprocessableEntity), true},
		"Removed":      {"We should go on after a claim whose reference was removed.", latebinding.ErrReferenceRemoved, true},
		"Throttled":    {"We should stop where the API server still asks to wait.", answer(http.StatusTooManyRequests), false},
		"Unauthorized": {"We should stop without a valid credential.", answer(http.StatusUnauthorized), false},
		"Down":         {"We should stop where a webhook is down: each claim would wait for it.", answer(http.StatusInternalServerError), false},
		"Unanswered":   {"We should stop without an answer.", errors.New("connection refused"), false},
	} {
		assert.Equal(t, tc.want, concernsOne(tc.err), "%s: %s", name, tc.reason)
	}
}

// TestSettledWithoutAClass reads claims with an empty reference of every form, which counts as one: that they have no class is their answer.
func TestSettledWithoutAClass(t *testing.T) {
	for _, form := range claim.Forms {
		k := &v1beta1.ClaimKind{ObjectMeta: metav1.ObjectMeta{Name: "claims.example.org"}}
		k.Spec.Reference = v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.ref"}, Form: form.Name, WhenEmpty: v1beta1.LeaveEmptyAlone}
		kind := selector.NewClaimKind(k)
		read := func(reference string) latebinding.Stored {
			s, err := latebinding.ReadStored(kind, []byte(`{"metadata":{"name":"mine","namespace":"a","uid":"1","resourceVersion":"1"},"spec":{"ref":`+reference+`}}`))
			require.NoError(t, err)
			return s
		}
		named, empty := `{"name":"gold"}`, `{"name":""}`
		if !form.IsObject {
			named, empty = `"gold"`, `""`
		}
		assert.True(t, read(named).Bound, form.Name)
		static := read(empty)
		assert.False(t, static.Bound, "%s: We should not say that it has a class.", form.Name)
		assert.Equal(t, claim.Settled, static.LeftAlone, form.Name)
	}
}

func TestSeveral(t *testing.T) {
	of := func(names ...string) (all []*binder) {
		for _, name := range names {
			kind := &selector.ClaimKind{}
			kind.Name = name
			all = append(all, &binder{kind: &world.Kind{View: &selector.View{Kind: kind}}})
		}
		return all
	}
	for name, tc := range map[string]struct {
		reason  string
		binders map[string][]*binder
		want    bool
	}{
		"One":        {"We should not name the only kind.", map[string][]*binder{"a": of("a.test.io")}, false},
		"OneOfTwo":   {"We should see that two words name one kind.", map[string][]*binder{"a": of("a.test.io"), "as": of("a.test.io")}, false},
		"TwoOfOne":   {"We should name the kinds of one word.", map[string][]*binder{"a": of("a.test.io", "b.test.io")}, true},
		"TwoOfWords": {"We should name the kinds of two words.", map[string][]*binder{"a": of("a.test.io"), "b": of("b.test.io")}, true},
	} {
		assert.Equal(t, tc.want, several(tc.binders), "%s: %s", name, tc.reason)
	}
}
