package ui

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/classbind/classbind/cmd/classbind/world"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/truncate"
)

// maxClaims limits the claims that are held of all kinds together. Each kind has an equal part.
const maxClaims = 100_000

// stored is a claim, and the class that it has.
type stored struct {
	Namespace, Name string
	Has             world.Place
}

func (s stored) String() string { return claimName{Namespace: s.Namespace, Name: s.Name}.String() }

// claimsBody is the Body of the claims of a kind, or of one class.
type claimsBody struct {
	*kind
	Class *class // Class is nil for all claims of the kind.
	Shown list[stored]
	// All is how many claims there are: not all of them are held.
	All int
	// Named is the claim whose name is searched for and that is not found. It may be one that is not held.
	Named *claimName
	// Largest share, of a class.
	Largest float64
}

// newClaims of a kind. A name that is searched for without a namespace is of that given.
func newClaims(u *url.URL, k *kind, held []stored, all int, namespace string) claimsBody {
	b := claimsBody{kind: k, All: all, Shown: newList(u, "claims", "claims", held, func(s stored) string {
		return s.String() + " " + s.Has.String()
	})}
	if words := strings.Fields(b.Shown.Query); b.Shown.Found == 0 && len(words) == 1 {
		of, name, found := strings.Cut(words[0], "/")
		switch {
		case !found && len(k.Stored) > 0 && k.Stored[0].Namespace == "": // The kind has no namespaces.
			of, name = "", words[0]
		case !found:
			of, name = namespace, words[0]
		}
		b.Named = &claimName{k.Name, of, name}
	}
	return b
}

func (p *pages) claims(s *page, r *http.Request) error {
	k, err := s.snapshot.find(r.URL.Query().Get("kind"))
	if err != nil {
		return err
	}
	s.Screen, s.Title, s.Body = "claims", "Claims of "+k.Name, newClaims(r.URL, k, k.Stored, k.Claims, p.namespace)
	return nil
}

func (p *pages) class(s *page, r *http.Request) error {
	query := r.URL.Query()
	k, err := s.snapshot.find(query.Get("kind"))
	if err != nil {
		return err
	}
	kind, namespace, name := query.Get("classkind"), query.Get("namespace"), query.Get("name")
	i := slices.IndexFunc(k.Classes, func(c *class) bool {
		return c.Class.ClassKind == kind && c.Class.Namespace == namespace && c.Class.Name == name
	})
	if i < 0 {
		return notFound(fmt.Sprintf("There is no class %q.", truncate.Printable(name)))
	}
	c := k.Classes[i]
	var held []stored
	for _, claim := range k.Stored {
		if claim.Has == c.Place {
			held = append(held, claim)
		}
	}
	b := newClaims(r.URL, k, held, c.Has, p.namespace)
	b.Class, b.Largest = c, max(c.Share, c.Expected)
	s.Screen, s.Title, s.Body = "class", c.String(), b
	return nil
}

// classURL is of a class of a claim kind.
func classURL(kind string, c selector.ClassName) string {
	return "class?" + url.Values{"kind": {kind}, "classkind": {c.ClassKind}, "namespace": {c.Namespace}, "name": {c.Name}}.Encode()
}

func claimURL(c claimName) string {
	return "claim?" + url.Values{"kind": {c.Kind}, "namespace": {c.Namespace}, "name": {c.Name}}.Encode()
}

// named is a claim of a kind.
func named(kind string, s stored) claimName { return claimName{kind, s.Namespace, s.Name} }

// parts of a name, between which a line may end.
func parts(name any) (all []string) {
	text := fmt.Sprint(name)
	for {
		at := strings.IndexAny(text, "/.") + 1
		if at == 0 {
			return append(all, text)
		}
		all, text = append(all, text[:at]), text[at:]
	}
}

// isCommand reports whether a shell can run what is to be done. Else it is prose, in which a command may be.
func isCommand(do string) bool {
	return (strings.HasPrefix(do, "kubectl ") || strings.HasPrefix(do, "classbind ")) &&
		!strings.Contains(do, "; ") && !strings.Contains(do, ", and ")
}
