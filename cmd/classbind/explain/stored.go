package explain

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector/brief"
)

// stored reads the claims that the arguments name, KIND/NAME each. KIND is what kubectl takes: a
// kind, a resource or a short name, with or without its group. A claim is read in the version for which the
// paths of its ClaimKind are written, so that the API server converts it, as it does for the webhook.
func (c *cluster) stored(ctx context.Context, args []string, namespace string) ([]document, error) {
	mapper := c.mapper()
	claimKinds, _, err := c.registrations(ctx)
	if err != nil {
		return nil, err
	}
	var claims []document
	for _, arg := range args {
		kind, name, _ := strings.Cut(arg, "/")
		mapping, err := mappingOf(mapper, kind)
		if meta.IsNoMatchError(err) {
			return nil, fmt.Errorf("%q: the API server serves no %q: name a kind or a resource, as kubectl does", arg, kind)
		}
		if err != nil {
			return nil, fmt.Errorf("%q: cannot look up the kind: %w", arg, brief.Error(err))
		}
		asWritten := *mapping
		asWritten.Resource.Version = readVersion(claimKinds, mapping.Resource)
		claim, err := c.claimsOf(&asWritten, namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) && asWritten.Resource != mapping.Resource { // The version may not be served.
			claim, err = c.claimsOf(mapping, namespace).Get(ctx, name, metav1.GetOptions{})
		}
		if err != nil {
			return nil, fmt.Errorf("cannot get the claim %q: %w", arg, brief.Error(err))
		}
		claims = append(claims, document{Unstructured: *claim, where: "the cluster"})
	}
	return claims, nil
}

// readVersion is that of the first ClaimKind of a resource, and without one the preferred.
func readVersion(claimKinds []v1alpha1.ClaimKind, preferred schema.GroupVersionResource) string {
	for i := range claimKinds {
		if k := &claimKinds[i]; k.Resource() == preferred.GroupResource().String() {
			return cmp.Or(k.ReadVersion(), preferred.Version)
		}
	}
	return preferred.Version
}

// mapper looks up kinds, and remembers them.
func (c *cluster) mapper() meta.RESTMapper {
	cached := memory.NewMemCacheClient(c.discovery)
	return restmapper.NewShortcutExpander(restmapper.NewDeferredDiscoveryRESTMapper(cached), cached, nil)
}

func (c *cluster) claimsOf(mapping *meta.RESTMapping, namespace string) dynamic.ResourceInterface {
	all := c.objects.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return all
	}
	return all.Namespace(namespace)
}

func mappingOf(mapper meta.RESTMapper, text string) (*meta.RESTMapping, error) {
	versioned, grouped := schema.ParseResourceArg(strings.ToLower(text))
	kind, err := mapper.KindFor(grouped.WithVersion(""))
	if err != nil && versioned != nil {
		kind, err = mapper.KindFor(*versioned)
	}
	if err != nil {
		return nil, err
	}
	return mapper.RESTMapping(kind.GroupKind(), kind.Version)
}
