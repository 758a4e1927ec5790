package setdefault

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/cmd/classbind/connect"
	lookup "github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/rules"
	"github.com/classbind/classbind/selector/truncate"
)

type cluster struct {
	api    client.Client
	reader connect.Reader
}

func (c *cluster) registry(ctx context.Context) (*registry, error) {
	claimKinds, classKinds, err := connect.Registrations(ctx, c.api)
	if err != nil {
		return nil, err
	}
	r := &registry{claimKinds: map[string]*selector.ClaimKind{}, lookUp: func(k *selector.ClaimKind) lookup.Resource {
		found, _ := c.reader.Resolve(ctx, k.Resource.String(), k.Version)
		return found
	}}
	for i := range claimKinds {
		r.claimKinds[claimKinds[i].Name] = selector.NewClaimKind(&claimKinds[i], rules.Serving(&claimKinds[i], classKinds)...)
	}
	for i := range classKinds {
		k := &classKinds[i]
		found, err := c.reader.Resolve(ctx, k.Name, "", "list")
		kind := &classKind{
			ClassKind: inventory.NewClassKind(k, found.GroupVersionKind, found.Namespaced, rules.Served(k, claimKinds)...),
			found:     found, err: err, leftOut: errors.Is(err, lookup.ErrNotInstalled),
		}
		if why := connect.LeftOut(k); err == nil && why != nil {
			kind.err, kind.leftOut = errors.New(why.Message), true
		}
		r.classKinds = append(r.classKinds, kind)
	}
	return r, nil
}

// views of all claim kinds whose default may change with that of a claim kind that a class kind serves: its own, and
// those that share a class kind with them.
func (c *cluster) views(ctx context.Context, r *registry, of *classKind) (selector.Snapshot, error) {
	own, all := sets.New(of.ClaimKinds...), sets.New[string]()
	for _, k := range r.classKinds {
		if own.HasAny(k.ClaimKinds...) {
			all.Insert(k.ClaimKinds...)
		}
	}
	serving := map[string][]*inventory.Classes{}
	for _, k := range r.classKinds {
		if k.leftOut || !all.HasAny(k.ClaimKinds...) {
			continue
		}
		if k.err != nil {
			return nil, fmt.Errorf("cannot tell whether a class of %s is the default: %w", k, k.err)
		}
		classes, err := c.reader.Classes(ctx, k.ClassKind)
		if err != nil {
			return nil, fmt.Errorf("%w; one of them may be the default", err)
		}
		for _, name := range k.ClaimKinds {
			serving[name] = append(serving[name], classes)
		}
	}
	views := selector.Snapshot{}
	for name, classes := range serving {
		if k := r.claimKinds[name]; k != nil {
			views[name] = selector.NewView(k, classes)
		}
	}
	return views, nil
}

// object that a class is read from.
func object(kind *inventory.ClassKind, namespace, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind.GroupVersionKind)
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

func (c *cluster) class(ctx context.Context, kind *inventory.ClassKind, namespace, name string) (*inventory.Class, error) {
	u := object(kind, namespace, name)
	if err := c.api.Get(ctx, client.ObjectKeyFromObject(u), u); err != nil {
		return nil, truncate.Error(err)
	}
	return kind.NewClass(u, u.Object), nil
}

// errMarkReverted says that the API server accepted the write, but stored the mark as it was before.
var errMarkReverted = errors.New("the mark does not change, because the schema or a webhook changes it back: " +
	"see spec.default of the ClassKind")

// setMark marks a class as the default, or removes the mark. The request is not interrupted once it is sent, so that its outcome is known.
func (c *cluster) setMark(ctx context.Context, class *inventory.Class, marked, dryRun bool) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	options := []client.PatchOption{client.FieldOwner(v1beta1.CommandFieldManager)}
	if dryRun {
		options = append(options, client.DryRunAll)
	}
	u, patch := object(class.Kind, class.Namespace, class.Name), client.RawPatch(types.MergePatchType, markPatch(class.Kind, marked))
	err := c.api.Patch(context.WithoutCancel(ctx), u, patch, options...)
	if err == nil && class.Kind.NewClass(u, u.Object).Default != marked {
		err = errMarkReverted
	}
	return err
}

// markPatch is a merge patch that marks a class as the default in the first of the places, or removes what is in any of them.
func markPatch(kind *inventory.ClassKind, marked bool) []byte {
	patch, places := map[string]any{}, kind.DefaultMark.Places()
	var value any
	if marked {
		places, value = places[:1], "true"
		if kind.DefaultMark.Path != "" {
			value = true
		}
	}
	for _, place := range places {
		_ = unstructured.SetNestedField(patch, value, place.Names()...) // It fails only below a string, where no mark can be.
	}
	text, _ := json.Marshal(patch) // It has strings and booleans alone.
	return text
}

// markCommand is the kubectl command that marks a class as the default.
func markCommand(c *inventory.Class) string {
	return fmt.Sprintf("kubectl patch %s --type merge --patch '%s'", c.Arguments(), markPatch(c.Kind, true))
}

// inFlight says that the guard refused a mark because another class may still become the default.
func inFlight(err error) bool {
	seconds, wait := apierrors.SuggestsClientDelay(err)
	return apierrors.IsForbidden(err) && wait && seconds > 0
}

// refusedByGuard says that the guard refused a mark, for whatever reason.
func refusedByGuard(err error, kind *inventory.ClassKind) bool {
	denial := fmt.Sprintf("admission webhook %q denied the request", kind.Name+v1beta1.GuardSuffix)
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), denial)
}

// unanswered says that the outcome of a request is unknown, or that the API server may accept it soon.
func unanswered(err error) bool {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return status.Status().Code >= http.StatusInternalServerError || status.Status().Code == http.StatusTooManyRequests
	}
	var transport *url.Error
	return errors.As(err, &transport) || errors.Is(err, context.DeadlineExceeded)
}
