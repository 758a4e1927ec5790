// Package access says whose right to use a class counts, and what roles and bindings say of it beforehand.
// Whether somebody has the right, only the API server knows: it may ask other authorizers, too.
package access

import (
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/truncate"
)

// Subject is a user as an authenticator tells of him.
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

// OfNamespace is the subject that stands for a namespace. It is the same that authorizer.serviceAccount of the
// API server's CEL makes: see v1beta1.UseAccount.
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

// Key is the same for two subjects only if an authorizer cannot tell them apart.
func (s *Subject) Key() string { return fmt.Sprintf("%q %q %q %q", s.User, s.UID, s.Groups, s.Extra) }
