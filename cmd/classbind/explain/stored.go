package explain

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"

	"github.com/classbind/classbind/selector/brief"
)

// stored reads the claims that the arguments name, KIND/NAME each. KIND is what kubectl takes: a
// kind, a resource or a short name, with or without its group.
func (c *cluster) stored(ctx context.Context, args []string, namespace string) ([]document, error) {
	mapper := c.mapper()
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
		claim, err := c.claimsOf(mapping, namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("cannot get the claim %q: %w", arg, brief.Error(err))
		}
		claims = append(claims, document{Unstructured: *claim, where: "the cluster"})
	}
	return claims, nil
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
