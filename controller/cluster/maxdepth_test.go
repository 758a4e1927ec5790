package cluster

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/api/v1beta1"
)

// nested returns nested arrays around a value.
func nested(depth int, value string) string {
	return strings.Repeat("[", depth) + value + strings.Repeat("]", depth)
}

func TestShallow(t *testing.T) {
	const most = v1beta1.MaxDepth
	for name, tc := range map[string]struct{ reason, answer, want string }{
		"Flat":    {"We should leave alone what is not deep.", `{"a":[1,{"b":"c"}],"d":null} `, `{"a":[1,{"b":"c"}],"d":null} `},
		"Deepest": {"We should leave alone what is as deep as it may be.", nested(most, `1,"a"`), nested(most, `1,"a"`)},
		"Deeper":  {"We should have what is deeper be empty.", nested(most, `1,{"a":1},[],2`), nested(most, `1,{},[],2`)},
		"Deep": {
			"We should leave no more of what is much deeper.", `{"a":` + nested(10*most, `{"b":"c"}`) + `,"d":1}`,
			`{"a":` + nested(most, "") + `,"d":1}`,
		},
		"Texts": {
			"We should take no bracket in a text for one.", `{"[{\"[":"\\","]":"\\\"]}"}` + nested(most, `"[[["`),
			`{"[{\"[":"\\","]":"\\\"]}"}` + nested(most, `"[[["`),
		},
		"TextsBelow":   {"We should take no bracket in a text for one.", nested(most+1, `"]]]\"]\\",1`) + "2", nested(most+1, "") + "2"},
		"EndsInText":   {"We should pass on what is not JSON.", `not "found`, `not "found`},
		"ClosedTooOft": {"We should pass on what is not JSON.", `]]]{"a":1}`, `]]]{"a":1}`},
	} {
		t.Run(name, func(t *testing.T) {
			for way, from := range map[string]io.Reader{
				"whole":        strings.NewReader(tc.answer),
				"byte by byte": iotest.DataErrReader(iotest.OneByteReader(strings.NewReader(tc.answer))),
			} {
				got, err := io.ReadAll(&shallow{ReadCloser: io.NopCloser(from)})
				require.NoError(t, err)
				assert.Equal(t, tc.want, string(got), "%s (%s)", tc.reason, way)
			}
		})
	}
}
