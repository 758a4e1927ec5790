package openapi

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/classbind/classbind/selector/expression"
)

// ofClass is the schema of a class, and the claim's of TestTypes.
const ofClass = `
type: object
properties:
  spec:
    type: object
    properties:
      tier: {type: string}
      maxSizeGiB: {type: integer}
      price: {type: number}
      shared: {type: boolean}
      size: {x-kubernetes-int-or-string: true}
      created: {type: string, format: date-time}
      parameters: {type: object, additionalProperties: {type: string}}
      free: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {known: {type: string}}}
      zones: {type: array, items: {type: object, properties: {name: {type: string}, racks: {type: integer}}}}
      by-zone: {type: object, additionalProperties: {type: object, properties: {racks: {type: integer}}}}
      tags: {type: array, items: {type: string}}
`

func schemaOf(t *testing.T, text string) *Schema {
	t.Helper()
	root, err := yaml.YAMLToJSON([]byte(text))
	require.NoError(t, err)
	return &Schema{root: json.RawMessage(root), structural: true}
}

func TestTypes(t *testing.T) {
	class := schemaOf(t, ofClass)
	for text, want := range map[string]string{
		"class.spec.maxSize >= 5": "line 1, column 11: the " +
			"schema has no field class.spec.maxSize: did you mean class.spec.maxSizeGiB?",
		"class.spce.tier == 'a'": "line 1, column 6: the schema " +
			"has no field class.spce: did you mean class.spec?",
		"true && class.spec['by_zone'].a.racks > 1": `line 1, column 19: the ` +
			`schema has no field class.spec.by_zone: did you mean class.spec["by-zone"]?`,
		"class.spec['by-zone'].a.racks > 1": "",
		"class.spec['by-zone'].a.rack > 1": `line 1, column 24: the ` +
			`schema has no field class.spec["by-zone"].a.rack: did you mean class.spec["by-zone"].a.racks?`,
		"class.spec.free.any.thing == 1 || class.spec.free.known": "line 1, column 50: expected " +
			"type 'bool' but found 'string'",
		"class.spec.free.known.more == 1": "line 1, column 22: " +
			"class.spec.free.known is of type string, and has no fields",
		"class.spec.zones.name == 'a'": "line 1, column 17: " +
			"class.spec.zones is a list: its elements have the fields",
		"class.spec.zones.exists(z, z.nam == 'a')": "line 1, column 29: the " +
			"schema has no field class.spec.zones[].nam: did you mean class.spec.zones[].name?",
		"class.spec.zones.exists(z, z.name > 3)": "line 1, column 35: found no " +
			"matching overload for '_>_' applied to '(string, int)'",
		"class.spec.zones[0].racks.startsWith('a')": "line 1, column 37: found no " +
			"matching overload for 'startsWith' applied to 'int.(string)'",
		"class.spec.zones.filter(class, class.any).size() > 0": "line 1, column 37: the " +
			"schema has no field class.spec.zones[].any",
		"class.spec.parameters.all(k, class.spec.parameters[k] > 3)": "line 1, column 55: found no " +
			"matching overload for '_>_' applied to '(string, int)'",
		"class.spec.parameters.anything == 'a'": "",
		"class.spec.tier > 3": "line 1, column 17: found no " +
			"matching overload for '_>_' applied to '(string, int)'",
		"class.spec.maxSizeGiB >= 0.5 && class.spec.price < 3":                                   "",
		"class.spec.tier == 3 || class.spec.shared == 'a'":                                       "", // Values of any types may be compared.
		"class.spec.tier in [1, 2]":                                                              "",
		"(class.spec.shared ? class.spec.tier : class.spec.price) == 1":                          "",
		"[class.spec.tier, class.spec.price].size() == 2 || [class.spec.tier + 'a'].size() == 1": "",
		"class.spec.tags.exists(class, class + 1 > 2)": "line 1, column 37: found no " +
			"matching overload for '_+_' applied to '(string, int)'",
		"class.spec.tags.map(t, t).exists(t, t == 1)": "",
		// A field that has() asks for may be missing.
		"has(class.spec.maxSize) && class.spec.maxSize > 3":                 "",
		"!('maxSize' in class.spec) || class.spec.maxSize > 3":              "",
		"class.spec.zones.all(z, has(z.nam) && z.nam == 'a')":               "",
		"class.?spec.maxSize.orValue(3) > 2":                                "",
		"class.spec.size == '5Gi' || class.spec.size + 1 > 3":               "",
		"class.spec.created.startsWith('2026')":                             "",
		"timestamp(class.spec.created) > timestamp('2026-01-01T00:00:00Z')": "",
		"class.metadata.labels.tier == 'a' && class.metadata.name > 'b'":    "",
		"class.metadata.lables.tier == 'a'": "line 1, column 15: the " +
			"schema has no field class.metadata.lables: did you mean class.metadata.labels?",
		"class.spec.tier in ['gold', class.spec.tier + '-x']":                                                       "", // All of a literal are of one type for CEL.
		"{'plan': class.spec.tier.lowerAscii(), 'env': 'prod'} != {}":                                               "",
		"{class.spec.tier + 'a': 1, 'b': 2}.size() == 2":                                                            "",
		"class.spec.?maxSize.hasValue() && class.spec.maxSize > 3":                                                  "",
		"class.spec.price * 2 > 3 || class.spec.price * 2.0 > 3.0":                                                  "", // A number may be an integer.
		strings.Repeat("''in dyn(", 40) + "{}" + strings.Repeat(")", 40):                                            "", // Each part is visited once.
		"{?'plan': has(class.spec.tier) ? optional.of(class.spec.tier.lowerAscii()) : optional.none()}.size() == 0": "",
		"class.spec.tier":               "line 1, column 1: must be true or false, is of type string",
		"class.spec.shared":             "",
		"related.plan.spec.tier > 3":    "line 1, column 24: found no matching overload for '_>_' applied to '(string, int)'",
		"related.plan.spec.tire == 'a'": "line 1, column 18: the schema has no field related.plan.spec.tire: did you mean related.plan.spec.tier?",
		"related.plans.all(p, p.spec.tier == 'a' && p.?spec.maxSize.orValue(3) > 2)": "",
		"related.plans.exists(p, p.spec.tier > 3)": "line 1, column 37: found no matching overload for " +
			"'_>_' applied to '(string, int)'",
		"related.plans.exists(p, p.spec.tire == 'a')": "line 1, column 31: the " +
			"schema has no field related.plans[].spec.tire: did you mean related.plans[].spec.tier?",
		"claim.spec.any == 1": "", // Its schema is not known.
		"labelSelectorMatches(class.spec.free, namespaceObject.metadata.labels)": "",
		"labelSelectorMatches(class.spec.tier, namespaceObject.metadata.labels)": "line 1, column 21: found no " +
			"matching overload for 'labelSelectorMatches' applied to '(string, dyn)'",
		"labelSelectorMatches(class.spec.free, namespaceObject.metadata.label)": "line 1, column 63: the " +
			"schema has no field namespaceObject.metadata.label: did you mean namespaceObject.metadata.labels?",
		"namespaceObject.metadata.name > 3": "line 1, column 31: found no matching overload for '_>_' applied to '(string, int)'",
		"namespaceObject.spec.any == 1":     "",
	} {
		e, err := expression.Compile(text, expression.Bool, expression.Scope{
			Variables: []string{expression.Claim, expression.Class, expression.Namespace, expression.Related}, Related: []string{"plan", "plans"},
			Lists: []string{"plans"},
		})
		require.NoError(t, err, text)
		err = e.CheckTypes(Types{"class": {class}, "claim": {nil}, "related.plan": {class}, "related.plans[]": {class}}.TypeOf)
		got := ""
		if err != nil {
			got = err.Error()
		}
		assert.Equal(t, want, got, text)
	}
}

func TestTypesOfSeveral(t *testing.T) {
	one, other := schemaOf(t, ofClass), schemaOf(
		t, `{type: object, properties: {spec: {type: object, properties: {tier: {type: integer}, size: {type: string}}}}}`,
	)
	for text, want := range map[string]string{
		"class.spec.maxSizeGiB > 3": "",
		"class.spec.tier > 3":       "",
		"class.spec.tiers > 3":      "line 1, column 11: the schema has no field class.spec.tiers: did you mean class.spec.tier?",
	} {
		e, err := expression.Compile(text, expression.Bool, expression.Scope{Variables: []string{expression.Class}})
		require.NoError(t, err)
		for _, all := range [][]*Schema{{one, other}, {other, one}} {
			err := e.CheckTypes(Types{"class": all}.TypeOf)
			assert.Equal(t, want != "", err != nil, "We should call a field wrong if no class has it: %s", text)
		}
		assert.NoError(t, e.CheckTypes(Types{"class": {one, other, nil}}.TypeOf), "We should not judge a kind that is not known.")
	}
}
