package near

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestName(t *testing.T) {
	for name, tc := range map[string]struct {
		a, b string
		want bool
	}{
		"Same":       {"classRef", "classRef", false},
		"Case":       {"classref", "classRef", true},
		"LeftOut":    {"clasRef", "classRef", true},
		"Swapped":    {"calssRef", "classRef", true},
		"Two":        {"clasSelctor", "classSelector", true},
		"Three":      {"clsSelctor", "classSelector", false},
		"TwoOfNine":  {"dtabses", "databases", false},
		"TwoOfTen":   {"dtastors", "datastores", true},
		"TwoOfEight": {"claimRef", "classRef", false},
		"Short":      {"spce", "spec", true},
		"Shorter":    {"vms", "vm", false},
		"ShortCase":  {"DBS", "dbs", true},
		"Empty":      {"", "a", false},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.want, Name(tc.a, slices.Values([]string{tc.b})) != "", "%q and %q", tc.a, tc.b)
		})
	}
}

func TestNameOfMany(t *testing.T) {
	others := []string{"b", "longer than a typing error explains"} // They are not compared.
	for i := range maxComparisons - 1 {
		others = append(others, fmt.Sprintf("a-%04d", i))
	}
	assert.Equal(t, "storage", Name("storge", slices.Values(append(others, "storage"))), "We should compare the name with so many.")
	others = append(others, "a-last")
	assert.Empty(t, Name("storge", slices.Values(append(others, "storage"))), "We should not compare it with more, which takes too long.")
	assert.Equal(t, "a-last", Name("a-lsat", slices.Values(append(others, "storage"))), "We should say what we know by then.")
}

func TestEdits(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"gold", "gold", 0}, {"glod", "gold", 1}, {"us-east1", "us-east-1", 1}, {"kitten", "sitting", 3}} {
		assert.Equal(t, tc.want, edits(tc.a, tc.b), "%q to %q", tc.a, tc.b)
		assert.Equal(t, tc.want, edits(tc.b, tc.a), "%q to %q", tc.b, tc.a)
	}
}
