package explain

import (
	"errors"
	"slices"

	"github.com/spf13/pflag"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/cmd/classbind/world"
)

// identity is that of the flags --requester and --requester-group. It need not be that of --as, which reads the cluster.
type identity struct {
	user   string
	groups []string
}

func (i *identity) add(fs *pflag.FlagSet) {
	fs.StringVar(&i.user, "requester", "",
		"`user` who creates the claims, where the creator's right counts (classes.use.subject Requester); by default you")
	fs.StringArrayVar(&i.groups, "requester-group", nil, "`group` of the user of --requester; may be repeated")
}

// addTo what expressions see of who creates a claim. The user has the groups that the API server gives every user.
func (i *identity) addTo(s *world.Settings) error {
	switch {
	case i.user == "" && len(i.groups) > 0:
		return errors.New("--requester-group: name the user, too, with --requester")
	case i.user == "":
		return nil
	case s.Request != nil:
		return errors.New("--requester: --set says who creates the claim, too: leave out one or the other")
	}
	groups := slices.Clone(i.groups)
	if namespace, _, err := serviceaccount.SplitUsername(i.user); err == nil && len(groups) == 0 {
		groups = serviceaccount.MakeGroupNames(namespace)
	}
	if everyone := user.AllAuthenticated; i.user != user.Anonymous && !slices.Contains(groups, everyone) {
		groups = append(groups, everyone)
	}
	s.Request = world.RequestOf(&authenticationv1.UserInfo{Username: i.user, Groups: groups})
	return nil
}

// noteWithoutEffect notes that --requester has no effect on the claims of a kind, if so.
func (i *identity) noteWithoutEffect(item *Item, k *v1beta1.ClaimKind, usesRequest bool) {
	if use := k.Spec.Classes.Use; i.user != "" && !usesRequest && (use == nil || use.Subject != v1beta1.UseByRequester) {
		item.note("--requester has no effect: it does not matter who creates the claim")
	}
}
