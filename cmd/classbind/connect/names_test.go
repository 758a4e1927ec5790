package connect

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNames(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		args   []string
		want   []Name
		fails  bool
	}{
		"None":       {reason: "We should leave it to the command to ask for one."},
		"Slash":      {reason: "We should take KIND/NAME.", args: []string{"db/a"}, want: []Name{{"db", "a"}}},
		"Apart":      {reason: "We should take KIND NAME.", args: []string{"db", "a"}, want: []Name{{"db", "a"}}},
		"Several":    {reason: "We should take several names of a kind.", args: []string{"db", "a", "b"}, want: []Name{{"db", "a"}, {"db", "b"}}},
		"Kinds":      {reason: "We should take several kinds.", args: []string{"db/a", "cache/b"}, want: []Name{{"db", "a"}, {"cache", "b"}}},
		"KindAlone":  {reason: "We should ask for a name.", args: []string{"db"}, fails: true},
		"Mixed":      {reason: "We should not guess whether a word is a kind or a name.", args: []string{"db/a", "b"}, fails: true},
		"MixedAfter": {reason: "We should not take a kind for a part of a name.", args: []string{"db", "cache/a"}, fails: true},
		"Namespace":  {reason: "We should have one way to name a namespace.", args: []string{"db/team/a"}, fails: true},
		"EmptyName":  {reason: "We should refuse an unset variable.", args: []string{"db", ""}, fails: true},
		"EmptyKind":  {reason: "We should refuse an unset variable.", args: []string{"/a"}, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Names(tc.args)
			if tc.fails {
				require.ErrorContains(t, err, "must be KIND/NAME or KIND NAME", tc.reason)
				return
			}
			require.NoError(t, err, tc.reason)
			assert.Equal(t, tc.want, got, tc.reason)
		})
	}
}
