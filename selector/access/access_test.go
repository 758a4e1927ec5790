package access

import (
	"testing"

	"github.com/stretchr/testify/assert"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func rule(verb, group, resource string, names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: []string{verb}, APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: names}
}

func subject(kind, name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: kind, Name: name, Namespace: "team"}
}

func TestGrants(t *testing.T) {
	golds, stores := schema.GroupResource{Group: "test", Resource: "golds"}, schema.GroupResource{Group: "test", Resource: "stores"}
	team := subject("Group", "system:serviceaccounts:team")
	everywhere := func(to rbacv1.Subject, rules ...rbacv1.PolicyRule) *Grants {
		return NewGrants([]Role{NewRole("", "role", rules)},
			[]Binding{NewBinding("", "binding", []rbacv1.Subject{to}, rbacv1.RoleRef{Kind: "ClusterRole", Name: "role"})})
	}
	in := func(namespace, roleKind string) *Grants {
		of := ""
		if roleKind == "Role" {
			of = namespace
		}
		return NewGrants([]Role{NewRole(of, "role", []rbacv1.PolicyRule{rule("use", "test", "stores", "a"), rule("use", "test", "golds")})},
			[]Binding{NewBinding(namespace, "binding", []rbacv1.Subject{team}, rbacv1.RoleRef{Kind: roleKind, Name: "role"})})
	}
	for name, tc := range map[string]struct {
		why             string
		grants          *Grants
		of              *Subject
		resource        schema.GroupResource
		namespace, name string
		want            bool
	}{
		"Unknown":   {"We should take all for possible where nothing is known.", nil, OfNamespace("team"), golds, "", "a", true},
		"None":      {"We should allow nothing without a role.", NewGrants(nil, nil), OfNamespace("team"), golds, "", "a", false},
		"Named":     {"We should allow what a role names.", everywhere(team, rule("use", "test", "golds", "b", "a")), OfNamespace("team"), golds, "", "a", true},
		"OtherName": {"We should allow no other name.", everywhere(team, rule("use", "test", "golds", "b")), OfNamespace("team"), golds, "", "a", false},
		"All":       {"We should allow all where a role names none.", everywhere(team, rule("use", "test", "golds")), OfNamespace("team"), golds, "", "a", true},
		"Wildcards": {"We should know wildcards.", everywhere(team, rule("*", "*", "*")), OfNamespace("team"), golds, "", "a", true},
		"Union": {
			"We should put rules together.", everywhere(team, rule("use", "test", "golds", "b"), rule("use", "test", "golds", "a")),
			OfNamespace("team"), golds, "", "a", true,
		},
		"OtherVerb":  {"We should ask for the verb use.", everywhere(team, rule("get", "test", "golds")), OfNamespace("team"), golds, "", "a", false},
		"OtherGroup": {"We should ask for the group of the class.", everywhere(team, rule("use", "other", "golds")), OfNamespace("team"), golds, "", "a", false},
		"OtherResource": {
			"We should ask for the resource of the class.", everywhere(team, rule("use", "test", "stores")), OfNamespace("team"), golds, "", "a",
			false,
		},
		"OtherNamespace": {
			"We should allow nothing to another namespace.", everywhere(team, rule("use", "test", "golds")), OfNamespace("other"), golds, "", "a",
			false,
		},
		"AllNamespaces": {
			"We should know the group of all ServiceAccounts.",
			everywhere(subject("Group", "system:serviceaccounts"), rule("use", "test", "golds")), OfNamespace("other"), golds, "", "a", true,
		},
		"OneAccount": {
			"We should not take one ServiceAccount for its namespace.",
			everywhere(subject("ServiceAccount", "default"), rule("use", "test", "golds")), OfNamespace("team"), golds, "", "a", false,
		},
		"Account": {
			"We should know ServiceAccounts by name.", everywhere(subject("ServiceAccount", "robot"), rule("use", "test", "golds")),
			&Subject{User: "system:serviceaccount:team:robot"}, golds, "", "a", true,
		},
		"User": {"We should know users.", everywhere(subject("User", "ann"), rule("use", "test", "golds")), &Subject{User: "ann"}, golds, "", "a", true},
		"NotAGroup": {
			"We should not take a user for a group.", everywhere(subject("Group", "ann"), rule("use", "test", "golds")), &Subject{User: "ann"},
			golds, "", "a", false,
		},
		"InNamespace":   {"We should allow classes in the namespace of the binding.", in("team", "Role"), OfNamespace("team"), stores, "team", "a", true},
		"ByClusterRole": {"We should know bindings of a ClusterRole in a namespace.", in("team", "ClusterRole"), OfNamespace("team"), stores, "team", "a", true},
		"InAnother":     {"We should allow no classes in another namespace.", in("team", "Role"), OfNamespace("team"), stores, "other", "a", false},
		"InNone": {
			"We should allow no classes without a namespace by a binding in one.",
			in("team", "ClusterRole"), OfNamespace("team"), golds, "", "a", false,
		},
		"FromEverywhere": {
			"We should allow classes in each namespace by a binding without one.",
			everywhere(team, rule("use", "test", "stores", "a")), OfNamespace("team"), stores, "other", "a", true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			granted := tc.grants.Of(tc.of)
			for range 2 { // The second time, it is remembered.
				assert.Equal(t, tc.want, granted.Allows(tc.resource, tc.namespace, tc.name), tc.why)
			}
		})
	}
}

func TestSubjectKey(t *testing.T) {
	all := []*Subject{
		OfNamespace("a"),
		OfNamespace("b"),
		{User: "a"},
		{User: "a", UID: "b"},
		{User: "a", Groups: []string{"b"}},
		{User: "a", Groups: []string{"b", "c"}},
		{User: "a", Groups: []string{`b""c`}},
		{User: `a""b`},
		{User: "a", Extra: map[string][]string{"b": {"c"}}},
		{User: "a", Extra: map[string][]string{"b": {"c", "d"}}},
		{User: "a", Groups: []string{`b"=["c"]`}},
	}
	keys := map[string]bool{}
	for _, s := range all {
		keys[s.Key()] = true
	}
	assert.Len(t, keys, len(all), "We should never take one subject for another.")
}
