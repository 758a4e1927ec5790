// Package access says whose right to use a class counts, and what roles and bindings say of it beforehand.
// Whether somebody has the right, only the API server knows: it may ask other authorizers, too.
package access

import (
	"fmt"
	"slices"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/truncate"
)

// Subject is a user as an authenticator describes him.
type Subject struct {
	User, UID string
	Groups    []string
	Extra     map[string][]string

	namespace string // that it stands for; empty, it is a user
}

// NewSubject is the user of a request.
func NewSubject(u *authenticationv1.UserInfo) *Subject {
	s := &Subject{User: u.Username, UID: u.UID, Groups: u.Groups, Extra: map[string][]string{}}
	for name, values := range u.Extra {
		s.Extra[name] = values
	}
	return s
}

const serviceAccounts = "system:serviceaccounts"

// OfNamespace stands for a namespace, as authorizer.serviceAccount of the API server's CEL does: see v1beta1.UseAccount.
func OfNamespace(namespace string) *Subject {
	return &Subject{
		User:   "system:serviceaccount:" + namespace + ":" + v1beta1.UseAccount,
		Groups: []string{serviceAccounts, serviceAccounts + ":" + namespace}, namespace: namespace,
	}
}

// Class that somebody may use or not.
type Class struct {
	Resource        schema.GroupVersionResource
	Namespace, Name string
}

// String reads in a sentence: namespace "team" or user "ann".
func (s *Subject) String() string {
	kind, name := "user", s.User
	if s.namespace != "" {
		kind, name = "namespace", s.namespace
	}
	return fmt.Sprintf("%s %q", kind, truncate.String(name, v1beta1.MaxShownBytes))
}

// Key is the same for two subjects only if an authorizer cannot distinguish them.
func (s *Subject) Key() string { return fmt.Sprintf("%q %q %q %q", s.User, s.UID, s.Groups, s.Extra) }

// Role is what is kept of a Role or a ClusterRole: its rules that have to do with the use of anything.
type Role struct {
	Namespace, Name string // A ClusterRole has no namespace.
	rules           []rbacv1.PolicyRule
}

// NewRole reads a role, whose rules it keeps.
func NewRole(namespace, name string, rules []rbacv1.PolicyRule) Role {
	r := Role{Namespace: namespace, Name: name}
	for _, rule := range rules {
		if len(rule.Resources) > 0 && hasOrAll(rule.Verbs, v1beta1.UseVerb) {
			r.rules = append(r.rules, rule)
		}
	}
	return r
}

// Size is the number of rules that are kept, and of the names of classes in them.
func (r Role) Size() int {
	n := len(r.rules)
	for _, rule := range r.rules {
		n += len(rule.ResourceNames)
	}
	return n
}

// Binding is what is kept of a RoleBinding or a ClusterRoleBinding.
type Binding struct {
	Namespace, Name string // A ClusterRoleBinding has no namespace.
	subjects        []string
	role            roleKey
}

type roleKey struct{ namespace, name string }

// NewBinding reads a binding.
func NewBinding(namespace, name string, subjects []rbacv1.Subject, to rbacv1.RoleRef) Binding {
	b := Binding{Namespace: namespace, Name: name, role: roleKey{name: to.Name}}
	if to.Kind == "Role" {
		b.role.namespace = namespace
	}
	for _, s := range subjects {
		switch s.Kind {
		case rbacv1.UserKind:
			b.subjects = append(b.subjects, user(s.Name))
		case rbacv1.GroupKind:
			b.subjects = append(b.subjects, group(s.Name))
		case rbacv1.ServiceAccountKind:
			b.subjects = append(b.subjects, user("system:serviceaccount:"+s.Namespace+":"+s.Name))
		}
	}
	return b
}

// Size is the number of subjects.
func (b Binding) Size() int { return len(b.subjects) }

func user(name string) string  { return "User/" + name }
func group(name string) string { return "Group/" + name }

// Grants are what all roles and bindings allow. They do not change. Nil Grants know nothing.
type Grants struct {
	of map[string][]grant

	mu     sync.Mutex          // guards recent
	recent map[string]*Granted // by Subject.Key, which several decisions ask for
	names  int                 // of all recent
}

// grant of a role to a subject, in one namespace or, if that is empty, everywhere.
type grant struct {
	namespace string
	rules     []rbacv1.PolicyRule
}

// NewGrants puts roles and bindings together.
func NewGrants(roles []Role, bindings []Binding) *Grants {
	rules := map[roleKey][]rbacv1.PolicyRule{}
	for _, r := range roles {
		if len(r.rules) > 0 {
			rules[roleKey{r.Namespace, r.Name}] = r.rules
		}
	}
	g := &Grants{of: map[string][]grant{}}
	for _, b := range bindings {
		if granted := rules[b.role]; granted != nil {
			for _, s := range b.subjects {
				g.of[s] = append(g.of[s], grant{b.Namespace, granted})
			}
		}
	}
	return g
}

// Of returns what a subject is granted. It is nil, which may be anything, where the grants are not known.
func (g *Grants) Of(s *Subject) *Granted {
	if g == nil || s == nil {
		return nil
	}
	key := s.Key()
	g.mu.Lock()
	defer g.mu.Unlock()
	if known := g.recent[key]; known != nil {
		return known
	}
	all := &Granted{grants: slices.Clone(g.of[user(s.User)]), classes: map[schema.GroupResource]classes{}}
	for _, name := range s.Groups {
		all.grants = append(all.grants, g.of[group(name)]...)
	}
	size := 1
	for _, granted := range all.grants {
		size += 1 + Role{rules: granted.rules}.Size()
	}
	if g.names += size; g.recent == nil || g.names > v1beta1.MaxRecentRoleNames {
		g.recent, g.names = map[string]*Granted{}, size
	}
	g.recent[key] = all
	return all
}

// Granted is what one subject may use by roles.
type Granted struct {
	grants []grant

	mu      sync.Mutex // guards classes
	classes map[schema.GroupResource]classes
}

// classes of one resource, by their namespace or everywhere: all, or those of these names.
type classes map[string]struct {
	all   bool
	names map[string]bool
}

// Allows reports whether a role allows to use a class. It is true of nil.
func (g *Granted) Allows(resource schema.GroupResource, namespace, name string) bool {
	if g == nil {
		return true
	}
	g.mu.Lock()
	granted, known := g.classes[resource]
	if !known {
		granted = g.classesOf(resource)
		g.classes[resource] = granted
	}
	g.mu.Unlock()
	in := granted[namespace]
	if in.all || in.names[name] || namespace == "" {
		return in.all || in.names[name]
	}
	everywhere := granted[""]
	return everywhere.all || everywhere.names[name]
}

func (g *Granted) classesOf(resource schema.GroupResource) classes {
	all := classes{}
	for _, granted := range g.grants {
		for _, rule := range granted.rules {
			if !hasOrAll(rule.APIGroups, resource.Group) || !hasOrAll(rule.Resources, resource.Resource) {
				continue
			}
			in := all[granted.namespace]
			in.all = in.all || len(rule.ResourceNames) == 0
			if in.names == nil {
				in.names = map[string]bool{}
			}
			for _, name := range rule.ResourceNames {
				in.names[name] = true
			}
			all[granted.namespace] = in
		}
	}
	return all
}

func hasOrAll(values []string, value string) bool {
	return slices.Contains(values, value) || slices.Contains(values, rbacv1.VerbAll)
}
