package explain

import (
	"cmp"
	"context"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/cmd/classbind/connect"
)

// completeClaim completes KIND/NAME with what the cluster has. Without a cluster, or where claims are those
// of files, it offers nothing.
func (o *options) completeClaim(c *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	const nothing = cobra.ShellCompDirectiveNoFileComp
	if len(o.claims)+len(o.classes) > 0 {
		return nil, nothing
	}
	ctx, cancel := context.WithTimeout(c.Context(), connect.CompletionTimeout)
	defer cancel()
	config, err := o.cluster.Config(io.Discard, "")
	if err != nil {
		return nil, nothing
	}
	connect.Until(ctx, config)
	cluster, err := newCluster(config)
	if err != nil {
		return nil, nothing
	}
	kind, _, named := strings.Cut(typed, "/")
	if !named {
		return cluster.completeKinds(ctx), nothing | cobra.ShellCompDirectiveNoSpace
	}
	namespace, err := o.cluster.Namespace()
	if err != nil {
		return nil, nothing
	}
	return cluster.completeNames(ctx, kind, cmp.Or(o.namespace, namespace)), nothing
}

// completeKinds returns the start of a claim for each registered kind, once: its kind, or its resource
// where the kind alone means that of another group.
func (c *cluster) completeKinds(ctx context.Context) []cobra.Completion {
	claimKinds, _, err := c.registrations(ctx)
	if err != nil {
		return nil
	}
	mapper := c.mapper()
	var kinds []cobra.Completion
	for i := range claimKinds {
		resource := claimKinds[i].Resource()
		registered, err := mappingOf(mapper, resource)
		if err != nil {
			continue
		}
		kind := registered.GroupVersionKind.Kind
		if meant, err := mappingOf(mapper, kind); err != nil || meant.Resource != registered.Resource {
			kind = resource
		}
		if offered := kind + "/"; !slices.Contains(kinds, offered) {
			kinds = append(kinds, offered)
		}
	}
	return kinds
}

func (c *cluster) completeNames(ctx context.Context, kind, namespace string) []cobra.Completion {
	mapping, err := mappingOf(c.mapper(), kind)
	if err != nil {
		return nil
	}
	list, err := c.claimsOf(mapping, namespace).List(ctx, metav1.ListOptions{Limit: connect.MaxCompletions})
	if err != nil {
		return nil
	}
	var names []cobra.Completion
	for i := range list.Items {
		names = append(names, kind+"/"+list.Items[i].GetName())
	}
	return names
}
