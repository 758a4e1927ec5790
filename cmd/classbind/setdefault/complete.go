package setdefault

import (
	"context"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/cmd/classbind/connect"
)

// addCompletion completes classes and claim kinds with what the cluster has. Without a cluster, it
// offers nothing.
func (o *options) addCompletion(c *cobra.Command) {
	c.ValidArgsFunction = func(c *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return o.completeClass(c.Context(), typed)
	}
	claimKinds := func(c *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(c.Context(), connect.CompletionTimeout)
		defer cancel()
		_, r := o.registered(ctx)
		return r.completeClaimKinds(args, typed), cobra.ShellCompDirectiveNoFileComp
	}
	o.cluster.Complete(c, map[string]cobra.CompletionFunc{
		"for": claimKinds, "leave-without-default": claimKinds, "timeout": cobra.NoFileCompletions,
	})
}

func (o *options) completeClass(ctx context.Context, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(ctx, connect.CompletionTimeout)
	defer cancel()
	cluster, r := o.registered(ctx)
	text, _, named := strings.Cut(typed, "/")
	if !named {
		return r.completeKinds(), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
	var classes []cobra.Completion
	for _, k := range r.classKinds {
		if !k.matches(text) || k.lookupErr != nil {
			continue
		}
		list, err := cluster.resource(k.ClassKind, metav1.NamespaceAll).List(ctx, metav1.ListOptions{Limit: connect.MaxCompletions})
		if err != nil {
			continue
		}
		for i := range list.Items {
			name := className{kind: text, namespace: list.Items[i].GetNamespace(), name: list.Items[i].GetName()}
			classes = append(classes, name.String())
		}
	}
	return classes, cobra.ShellCompDirectiveNoFileComp
}

// registered returns an empty registry where the cluster does not answer.
func (o *options) registered(ctx context.Context) (*cluster, *registry) {
	config, err := o.cluster.Config(io.Discard, "")
	if err != nil {
		return nil, &registry{}
	}
	connect.Until(ctx, config)
	c, err := newCluster(config)
	if err != nil {
		return nil, &registry{}
	}
	r, err := c.registry(ctx)
	if err != nil {
		return nil, &registry{}
	}
	return c, r
}

// completeKinds returns the start of a class for each kind: its kind, or its name where two have the same kind.
func (r *registry) completeKinds() []cobra.Completion {
	count := map[string]int{}
	for _, k := range r.classKinds {
		count[k.GroupVersionKind.Kind]++
	}
	var kinds []cobra.Completion
	for _, k := range r.classKinds {
		switch kind := k.GroupVersionKind.Kind; {
		case k.lookupErr != nil:
		case count[kind] > 1:
			kinds = append(kinds, k.Name+"/")
		default:
			kinds = append(kinds, kind+"/")
		}
	}
	return kinds
}

// completeClaimKinds returns those that the class of the arguments serves, if there is one, after those
// that are typed already.
func (r *registry) completeClaimKinds(args []string, typed string) []cobra.Completion {
	before := typed[:strings.LastIndexByte(typed, ',')+1]
	var claimKinds []cobra.Completion
	for _, name := range slices.Sorted(maps.Keys(r.claimKinds)) {
		serves := func(k *classKind) bool {
			text, _, _ := strings.Cut(args[0], "/")
			return k.matches(text) && k.serves(name)
		}
		if len(args) == 0 || slices.ContainsFunc(r.classKinds, serves) {
			claimKinds = append(claimKinds, before+name)
		}
	}
	return claimKinds
}
