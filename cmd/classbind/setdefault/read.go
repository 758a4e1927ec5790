package setdefault

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/cmd/classbind/world"
	lookup "github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/rules"
	"github.com/classbind/classbind/selector/truncate"
)

// writeTimeout is the API server's default timeout for a request.
const writeTimeout = time.Minute

type cluster struct {
	*world.Cluster
	// marks writes, and waits longer for an answer than classes, which reads.
	classes, marks dynamic.Interface
}

func newCluster(config *rest.Config) (c *cluster, err error) {
	c = &cluster{}
	if c.Cluster, err = world.Connect(config); err != nil {
		return nil, err
	}
	patient := rest.CopyConfig(config)
	patient.Timeout = writeTimeout // Less would leave the outcome of a write unknown.
	if c.classes, err = dynamic.NewForConfig(config); err == nil {
		c.marks, err = dynamic.NewForConfig(patient)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot make a client for classes: %w", err)
	}
	return c, nil
}

func (c *cluster) registry(ctx context.Context) (*registry, error) {
	w, err := c.World(ctx, "")
	if err != nil {
		return nil, err
	}
	r := &registry{claimKinds: map[string]*selector.ClaimKind{}, lookUp: func(k *selector.ClaimKind) lookup.Resource {
		found, _ := c.Kinds.Resolve(ctx, k.Reader.Resource.String(), k.Reader.Version)
		return found
	}}
	for i := range w.ClaimKinds {
		k := &w.ClaimKinds[i]
		r.claimKinds[k.Name] = selector.NewClaimKind(k, rules.Serving(k, w.ClassKinds)...)
	}
	for i := range w.ClassKinds {
		r.classKinds = append(r.classKinds, w.ClassKind(ctx, &w.ClassKinds[i]))
	}
	return r, nil
}

func (c *cluster) resource(kind *inventory.ClassKind, namespace string) dynamic.ResourceInterface {
	return c.classes.Resource(kind.Resource()).Namespace(namespace)
}

func (c *cluster) class(ctx context.Context, kind *inventory.ClassKind, namespace, name string) (*storedClass, error) {
	object, err := c.resource(kind, namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, truncate.Error(err)
	}
	return newStoredClass(kind, object), nil
}

// defaults returns the classes of the kinds that are marked and not being deleted.
func (c *cluster) defaults(ctx context.Context, kinds []*world.ClassKind) ([]*storedClass, error) {
	var defaults []*storedClass
	for _, k := range kinds {
		if world.NotServed(k.Err) {
			continue
		}
		if k.Err != nil {
			return nil, fmt.Errorf("cannot determine whether a class of %s is the default: %w", k.Name, k.Err)
		}
		list := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return c.resource(k.ClassKind, metav1.NamespaceAll).List(ctx, o)
		})
		err := list.EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
			object, _ := o.(*unstructured.Unstructured) // The list is an UnstructuredList.
			if class := newStoredClass(k.ClassKind, object); class.Default && !class.Terminating {
				defaults = append(defaults, class)
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("cannot list the classes of %s, where one may be the default: %w", k.Name, truncate.Error(err))
		}
	}
	return defaults, nil
}

// errMarkReverted means that the API server accepted the write, but stored the mark as it was before.
var errMarkReverted = errors.New("the mark does not change, because the schema or a webhook changes it back: " +
	"see spec.default of the ClassKind")

// setMark sets the mark of a class at the version that was read, or removes it if it is empty.
// The request is not interrupted once it is sent, so that its outcome is known.
func (c *cluster) setMark(ctx context.Context, class *storedClass, to mark, dryRun bool) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	patch := class.markPatch(class.object.GetResourceVersion(), to)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	o := metav1.PatchOptions{FieldManager: v1beta1.CommandFieldManager}
	if dryRun {
		o.DryRun = []string{metav1.DryRunAll}
	}
	object, err := c.marks.Resource(class.Kind.Resource()).Namespace(class.Namespace).Patch(ctx, class.Name, types.MergePatchType, patch, o)
	if err == nil && newStoredClass(class.Kind, object).Default != (len(to) > 0) {
		err = errMarkReverted
	}
	return err
}

// inFlight reports whether the guard refused a mark because another class may still become the default.
func inFlight(err error) bool {
	seconds, wait := apierrors.SuggestsClientDelay(err)
	return apierrors.IsForbidden(err) && wait && seconds > 0
}

// refusedByGuard reports whether the guard refused a mark, for whatever reason.
func refusedByGuard(err error, kind *inventory.ClassKind) bool {
	denial := fmt.Sprintf("admission webhook %q denied the request", kind.Name+v1beta1.GuardSuffix)
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), denial)
}

// unanswered reports whether the outcome of a request is unknown, or the API server may accept it soon.
func unanswered(err error) bool {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return status.Status().Code >= http.StatusInternalServerError || status.Status().Code == http.StatusTooManyRequests
	}
	var transport *url.Error
	return errors.As(err, &transport) || errors.Is(err, context.DeadlineExceeded)
}

type storedClass struct {
	*inventory.Class
	object *unstructured.Unstructured
}

func newStoredClass(kind *inventory.ClassKind, object *unstructured.Unstructured) *storedClass {
	return &storedClass{Class: kind.NewClass(object, object.Object), object: object}
}

// String returns RESOURCE/NAME, as kubectl takes it, or RESOURCE/NAMESPACE/NAME. It
// distinguishes kinds with one name in several groups; Class does not.
func (c *storedClass) String() string {
	return className{kind: c.Kind.Name, namespace: c.Namespace, name: c.Name}.String()
}

// claimKinds returns the claim kinds that the class serves, sorted.
func (c *storedClass) claimKinds() []string { return slices.Sorted(slices.Values(c.Kind.ClaimKinds)) }

// mark has a value for each place where a class may be marked as the default, nil for none. An empty one means that the class is not.
type mark []any

func (c *storedClass) defaultMark() mark {
	if c.Kind.DefaultMark.Path != "" {
		return mark{true}
	}
	return mark{"true"}
}

func (c *storedClass) mark() (present mark) {
	for _, place := range c.Kind.DefaultMark.Places() {
		value, _, _ := unstructured.NestedFieldCopy(c.object.Object, place.Names()...)
		present = append(present, value)
	}
	return present
}

// markPatch is a merge patch that sets the mark of a version of the class, or of any if that is empty. An empty mark removes what is in any
// place, and another leaves the places alone that it does not have.
func (c *storedClass) markPatch(version string, to mark) []byte {
	patch := map[string]any{}
	if version != "" {
		patch["metadata"] = map[string]any{"resourceVersion": version}
	}
	places := c.Kind.DefaultMark.Places()
	if len(to) == 0 {
		to = make(mark, len(places))
	}
	for i, value := range to {
		_ = unstructured.SetNestedField(patch, value, places[i].Names()...) // It fails only below a string, where no mark can be.
	}
	text, _ := json.Marshal(patch) // It has strings and booleans alone.
	return text
}

// markCommand is the kubectl command that marks the class as default.
func (c *storedClass) markCommand() string {
	return fmt.Sprintf("kubectl patch %s --type merge --patch '%s'", c.Arguments(), c.markPatch("", c.defaultMark()))
}
