package reference

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// LongPrefix is the beginning of some label keys.
const LongPrefix = "a-prefix-that-many-keys-have-in-common-so-that-to-compare-them-takes-long.example.org/"

// SelectorJSON returns the text itself if it is JSON. Otherwise, as for most texts of a
// fuzzer, the text is a program: each three bytes are a requirement.
func SelectorJSON(text string) string {
	if isJSON(text) {
		return text
	}
	var list []string
	for ; len(text) >= 3; text = text[3:] {
		list = append(list, requirement(text))
	}
	return `{"matchExpressions":[` + strings.Join(list, ",") + `]}`
}

// RequirementJSON returns one requirement.
func RequirementJSON(text string) string {
	if isJSON(text) {
		return text
	}
	return requirement(text + "\x00\x00\x00")
}

func isJSON(text string) bool { return json.Valid([]byte(text)) && utf8.ValidString(text) }

// requirement of three bytes: key, operator and values.
func requirement(program string) string {
	at := func(i int, of ...string) string { return of[int(program[i])%len(of)] }
	key := at(0, "a", "b", "c", "d", "tier", LongPrefix+"key-000", LongPrefix+"key-049", "e")
	operator, values := at(1, "In", "NotIn", "Exists", "DoesNotExist", "Foo"), ""
	if operator == "In" || operator == "NotIn" {
		values = at(2, `"1"`, `"1","2"`, `"x","x"`, `""`, `"gold"`, "", `"`+strings.Repeat("v", 60)+`0"`, `"1","2","3","x",""`)
	}
	return fmt.Sprintf(`{"key":%q,"operator":%q,"values":[%s]}`, key, operator, values)
}
