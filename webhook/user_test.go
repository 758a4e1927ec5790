package webhook

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/claim"
)

func TestRequestFacts(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, userInfo, want, err string
	}{
		"All": {
			reason:   "We should show all that is known of who asks.",
			userInfo: `{"username":"jane","uid":"5e1f","groups":["a","b"],"extra":{"scopes":["x"]}}`,
			want:     `{"userInfo":{"username":"jane","uid":"5e1f","groups":["a","b"],"extra":{"scopes":["x"]}}}`,
		},
		"Empty":    {reason: "We should take what is empty for absent, as the API server does.", userInfo: `{"username":"","groups":[],"extra":{}}`, want: `{"userInfo":{}}`},
		"None":     {reason: "We should take no user for one of whom nothing is known.", want: `{"userInfo":{}}`},
		"Unknown":  {reason: "We should pass over fields of the future.", userInfo: `{"username":"jane","realm":{"a":1}}`, want: `{"userInfo":{"username":"jane"}}`},
		"NotAnObj": {reason: "We should refuse what no API server sends.", userInfo: `["jane"]`, err: "request.userInfo: "},
		"NotAList": {reason: "We should refuse groups that are no list.", userInfo: `{"groups":"admins"}`, err: "request.userInfo: "},
		"TooLong": {
			reason:   "We should not decode more than we said.",
			userInfo: `{"username":"` + strings.Repeat("x", v1beta1.MaxUserInfoBytes) + `"}`,
			err:      fmt.Sprintf("request.userInfo: must have at most %d bytes", v1beta1.MaxUserInfoBytes),
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := requestFacts([]byte(tc.userInfo))
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err, tc.reason)
				bad := &badRequest{}
				require.ErrorAs(t, err, &bad, "We should say that the caller is at fault.")
				return
			}
			require.NoError(t, err, tc.reason)
			text, err := json.Marshal(got)
			require.NoError(t, err)
			assert.JSONEq(t, tc.want, string(text), tc.reason)
		})
	}
}

// Expressions see the user of the review, and only where they look is it read.
func TestExpressionsSeeWhoAsks(t *testing.T) {
	const group = `'gold-users' in request.userInfo.groups`
	for name, tc := range map[string]struct {
		reason   string
		bindWhen v1beta1.Expression
		userInfo string
		code     int
		want     string // in the answer
	}{
		"InGroup":    {"We should show the groups to an expression.", group, `{"groups":["a","gold-users"]}`, http.StatusOK, `"patch"`},
		"NotInGroup": {"We should go by what it says.", group, `{"groups":["a"]}`, http.StatusOK, claim.NotYet},
		"NoGroups":   {"We should refuse a claim on which an expression fails.", group, `{"username":"jane"}`, http.StatusOK, "no such key: groups"},
		"Malformed":  {"We should refuse what no API server sends.", group, `{"groups":7}`, http.StatusBadRequest, "request.userInfo"},
		"Unread":     {"We should not read what no expression looks at.", "", `{"groups":7}`, http.StatusOK, `"patch"`},
	} {
		t.Run(name, func(t *testing.T) {
			inventory := newInventory(newClaimKind(func(s *v1beta1.ClaimKindSpec) { s.Claims.When = tc.bindWhen }), index(sqlClasses, "gold tier=gold"))
			require.Nil(t, inventory.Snapshot()[claimKindName].Fault)
			body := strings.Replace(asBody(t, newRequest(wantsGold)), `"userInfo":{}`, `"userInfo":`+tc.userInfo, 1)
			require.Contains(t, body, tc.userInfo)
			w := posted(&Handler{Review: named(newBinder(t, inventory))}, body)
			assert.Equal(t, tc.code, w.Code, tc.reason)
			assert.Contains(t, w.Body.String(), tc.want, tc.reason)
		})
	}
}
