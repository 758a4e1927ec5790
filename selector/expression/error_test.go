package expression

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/selector/fields"
)

// TestErrorsTellNoValue has expressions fail for values of a class that the author of a claim must
// not see.
func TestErrorsTellNoValue(t *testing.T) {
	const secret = "p4ss://internal host"
	in := &Input{
		Claim: map[string]any{"spec": map[string]any{"size": "big", "list": []any{"a"}}},
		Class: NewFields(fields.Path{"spec"}).Project(map[string]any{"spec": map[string]any{
			"secret": secret, "number": int64(987654321), "sizes": map[string]any{"small": int64(1)}, "zero": int64(0), "most": int64(9223372036854775807),
		}}),
		Related: map[string]any{},
	}
	for text, want := range map[string]string{ //nolint:gosec // These are expressions, and no credentials.
		"claim.spec[class.spec.secret] == 'a'":                              "no such key",
		"class.spec.sizes[class.spec.secret] == 1":                          "no such key",
		"{'a': 1}[class.spec.secret] == 1":                                  "no such key",
		"class.spec.absent == 1":                                            "no such key: absent",
		"int(class.spec.secret) == 1":                                       "a value cannot be converted or is malformed",
		"double(class.spec.secret) == 1.0":                                  "a value cannot be converted or is malformed",
		"timestamp(class.spec.secret) == timestamp('2026-01-01T00:00:00Z')": "a value cannot be converted or is malformed",
		"duration(class.spec.secret) == duration('1s')":                     "a value cannot be converted or is malformed",
		"quantity(class.spec.secret).isGreaterThan(quantity('1'))":          "the quantity is too long, or out of range",
		"url(class.spec.secret).getHost() == 'a'":                           "a value cannot be converted or is malformed",
		"ip(class.spec.secret).family() == 4":                               "a value cannot be converted or is malformed",
		"cidr(class.spec.secret).prefixLength() == 4":                       "a value cannot be converted or is malformed",
		"claim.spec.list[class.spec.number] == 'a'":                         "an index is out of range",
		"class.spec.number / class.spec.zero == 1":                          "division by zero",
		"class.spec.most + class.spec.number == 1":                          "a number or a time is out of range",
		"class.spec.secret + class.spec.number == 'a'":                      "a value has the wrong type",
		"class.spec.secret.spec == 'a'":                                     "no such key: spec",
		"class.spec.secret":                                                 "must be true or false, is of type string",
	} {
		e, err := Compile(text, Bool, Scope{Variables: []string{Claim, Class}})
		require.NoError(t, err, text)
		_, err = e.Bool(in, &Budget{Left: 1_000_000})
		require.Error(t, err, text)
		assert.Equal(t, want, err.Error(), text)
		assert.NotContains(t, err.Error(), "p4ss", text)
		assert.NotContains(t, err.Error(), "987654321", text)
	}
	e, err := Compile("class.spec.sizes[class.spec.secret] == 1", Bool, Scope{Variables: []string{Class}})
	require.NoError(t, err)
	_, err = e.Bool(in, &Budget{Left: 1_000_000})
	assert.Contains(t, Detail(err), "p4ss", "We should tell those who can read the class.")
}
