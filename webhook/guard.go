package webhook

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/webhook/onedefault"
)

// Guard keeps at most one default class per claim kind.
type Guard struct {
	// Snapshot is what is known now; nil, nothing yet.
	Snapshot func() selector.Snapshot
	// ClassKind as it is registered now; nil, it is not.
	ClassKind func(ctx context.Context, name string) (*selector.ClassKind, error)
	// Registered asks the API server itself whether there is a ClaimKind, where
	// the snapshot has none.
	Registered func(ctx context.Context, claimKind string) (bool, error)
	// Class as it is stored now; nil, it is not.
	Class func(ctx context.Context, kind *selector.ClassKind, namespace, name string) (metav1.Object, *selector.Class, error)
	// Leases of classbind's own namespace.
	Leases coordinationclient.LeaseInterface
	// Window in which the API server may still store what was admitted.
	Window time.Duration
	// Now is the clock.
	Now func() time.Time
	// Metrics count the answers; nil, nothing does.
	Metrics *Metrics

	sightings onedefault.Sightings
}

// Review validates the class that is to be created or updated. In this order,
// it leaves alone whatever else is asked for, a class kind that is registered no
// more, and a class that is being deleted; refuses a weight that cannot be read,
// unless the class has it already; leaves alone a class that does not become
// default; cannot answer before all classes are known; leaves alone a class for
// which no claim kind is registered; answers the creation of a class that is
// there already as the API server would; and admits the class as a default if
// there is no other, and none in the making.
func (g *Guard) Review(ctx context.Context, request *admissionv1.AdmissionRequest) (response *admissionv1.AdmissionResponse, err error) {
	var kind *selector.ClassKind
	defer func() {
		if !isDryRun(request) {
			g.Metrics.judged(kind, response, err)
		}
	}()

	update := request.Operation == admissionv1.Update
	if request.Operation != admissionv1.Create && !update || request.SubResource != "" {
		return untouched("NotACreationOrUpdate"), nil
	}
	ctx, cancel := inTime(ctx)
	defer cancel()
	kind, err = g.ClassKind(ctx, schema.GroupResource{Group: request.Resource.Group, Resource: request.Resource.Resource}.String())
	if err != nil {
		return nil, err
	}
	if kind == nil {
		return untouched("NotRegistered"), nil
	}
	object, class, err := decodeClass(kind, "object", request.Object.Raw)
	if err != nil {
		return nil, err
	}
	var old unstructured.Unstructured
	before := &selector.Class{}
	if update {
		if old, before, err = decodeClass(kind, "oldObject", request.OldObject.Raw); err != nil {
			return nil, err
		}
	}
	switch {
	case class.Terminating:
		return untouched("BeingDeleted"), nil
	case class.WeightErr != nil && !sameError(class.WeightErr, before.WeightErr):
		return denied(apierrors.NewInvalid(kind.GroupVersionKind.GroupKind(), class.Name, field.ErrorList{class.WeightErr}), "MalformedWeight"), nil
	case !class.Default:
		return untouched("NotDefault"), nil
	case before.Default:
		return untouched("DefaultAlready"), nil
	}
	snapshot := g.Snapshot()
	if snapshot == nil {
		return nil, errNotListed
	}
	claimKinds, err := g.claimKinds(ctx, snapshot, kind)
	if err != nil {
		return nil, err
	}
	if len(claimKinds) == 0 {
		return untouched("NoClaimKind"), nil
	}
	if !update && isKnown(snapshot[claimKinds[0]], class) {
		// It would hold the Leases for a window, and could not be stored.
		stored, _, err := g.Class(ctx, kind, class.Namespace, class.Name)
		if err != nil {
			return nil, err
		}
		if stored != nil {
			return denied(apierrors.NewAlreadyExists(kind.Resource().GroupResource(), class.Name), "AlreadyExists"), nil
		}
	}
	protocol := &onedefault.Protocol{Store: &onedefault.Cluster{Leases: g.Leases, Live: g.live, Sightings: &g.sightings}, Now: g.Now}
	refusal, err := protocol.Admit(ctx, &onedefault.Request{
		Holder:     onedefault.Holder{Class: named(class), UID: object.GetUID(), Base: old.GetResourceVersion()},
		ClaimKinds: claimKinds,
		Known:      knownDefaults(snapshot, claimKinds),
		Window:     g.Window,
		DryRun:     isDryRun(request),
	})
	if err != nil {
		return nil, err
	}
	response = &admissionv1.AdmissionResponse{Allowed: true, AuditAnnotations: map[string]string{"reason": "OneDefault"}}
	if refusal != nil {
		if response, err = g.refused(ctx, request, class, refusal); err != nil {
			return nil, err
		}
		response.AuditAnnotations["inTheWay"] = refusal.Class.String()
	}
	logr.FromContextOrDiscard(ctx).Info("Decided on a default class",
		"class", class.String(), "claimKinds", claimKinds, "requestUID", string(request.UID), "operation", string(request.Operation),
		"allowed", response.Allowed, "reason", response.AuditAnnotations["reason"], "inTheWay", response.AuditAnnotations["inTheWay"],
		"dryRun", isDryRun(request))
	return response, nil
}

func decodeClass(kind *selector.ClassKind, name string, raw []byte) (unstructured.Unstructured, *selector.Class, error) {
	u := unstructured.Unstructured{}
	if err := json.Unmarshal(raw, &u.Object); err != nil {
		return u, nil, malformed("request.%s: must be an object: %v", name, err)
	}
	if u.GetName() == "" || u.GetUID() == "" {
		return u, nil, malformed("request.%s: must have a name and a uid", name)
	}
	return u, kind.NewClass(&u, u.Object), nil
}

func sameError(a, b *field.Error) bool { return b != nil && a.Error() == b.Error() }

func named(c *selector.Class) onedefault.Class {
	return onedefault.Class{Kind: c.Kind.Name, Namespace: c.Namespace, Name: c.Name}
}

// claimKinds are those that the class kind serves and that are registered, in
// the order of their names.
func (g *Guard) claimKinds(ctx context.Context, snapshot selector.Snapshot, kind *selector.ClassKind) ([]string, error) {
	var names []string
	for _, name := range slices.Sorted(slices.Values(kind.ClaimKinds)) {
		if snapshot[name] != nil {
			names = append(names, name)
			continue
		}
		registered, err := g.Registered(ctx, name)
		if err != nil {
			return nil, err
		}
		if registered {
			return nil, errNotHeardOf(name)
		}
	}
	return names, nil
}

// isKnown says whether the inventory has a class of that name.
func isKnown(view *selector.View, c *selector.Class) bool {
	return slices.ContainsFunc(view.Classes, func(x *selector.Classes) bool {
		return x.Kind.Name == c.Kind.Name && x.Has(c.Namespace, c.Name)
	})
}

// knownDefaults may have been made before anybody guarded them.
func knownDefaults(snapshot selector.Snapshot, claimKinds []string) map[string][]onedefault.Class {
	known := map[string][]onedefault.Class{}
	for _, name := range claimKinds {
		for _, c := range snapshot[name].Defaults() {
			known[name] = append(known[name], named(c))
		}
	}
	return known
}

// live is a class as it counts for a claim kind now.
func (g *Guard) live(ctx context.Context, claimKind string, c onedefault.Class) (onedefault.Live, error) {
	kind, err := g.ClassKind(ctx, c.Kind)
	if err != nil || kind == nil {
		return onedefault.Live{}, err
	}
	object, class, err := g.Class(ctx, kind, c.Namespace, c.Name)
	if err != nil || object == nil {
		return onedefault.Live{}, err
	}
	return onedefault.Live{
		UID: object.GetUID(), Version: object.GetResourceVersion(),
		Default: class.Default && !class.Terminating && slices.Contains(kind.ClaimKinds, claimKind),
	}, nil
}

// refused says which class is in the way, and what to do about it.
func (g *Guard) refused(ctx context.Context, request *admissionv1.AdmissionRequest, class *selector.Class, r *onedefault.Refusal) (*admissionv1.AdmissionResponse, error) {
	resource := class.Kind.Resource().GroupResource()
	itself := r.Class == named(class)
	if r.RetryAfter > 0 {
		seconds := int32((r.RetryAfter + time.Second - 1) / time.Second)
		what := fmt.Sprintf("%q is being made the default class for %q and may yet be stored", r.Class, r.ClaimKind)
		if itself {
			what = fmt.Sprintf("an earlier request to make %q the default class for %q may yet be stored", r.Class, r.ClaimKind)
		}
		refusal := apierrors.NewForbidden(resource, class.Name, fmt.Errorf("%s: try again in %d s", what, seconds))
		refusal.ErrStatus.Details.RetryAfterSeconds = seconds
		return denied(refusal, "DefaultInFlight"), nil
	}
	if itself { // It was created a moment ago by somebody else.
		return denied(apierrors.NewAlreadyExists(resource, class.Name), "AlreadyExists"), nil
	}
	kind, err := g.ClassKind(ctx, r.Class.Kind)
	if err != nil {
		return nil, err
	}
	if kind == nil {
		return nil, fmt.Errorf("class kind %q was deleted a moment ago; try again", r.Class.Kind)
	}
	other := &selector.Class{Kind: kind, Namespace: r.Class.Namespace, Name: r.Class.Name}
	return denied(apierrors.NewForbidden(resource, class.Name,
		fmt.Errorf("%q is the default class for %q already: %s", other, r.ClaimKind, wayOut(request, class, other, r.ClaimKind))), "SecondDefault"), nil
}

// wayOut is how to move the default, with our command and with kubectl's.
func wayOut(request *admissionv1.AdmissionRequest, class, other *selector.Class, claimKind string) string {
	first := "run"
	if request.Operation == admissionv1.Create {
		first = "create this class without its mark, then run"
	}
	return fmt.Sprintf("to move the default, %s: classbind set-default %s --for %s; to take it from %q and no more, run: %s",
		first, named(class), claimKind, other, unmark(other))
}

// unmark is the command that takes the mark of a default from a class.
func unmark(c *selector.Class) string {
	object := c.Kind.Name + " " + c.Name
	if c.Namespace != "" {
		object += " --namespace " + c.Namespace
	}
	mark := c.Kind.DefaultMark
	if mark.Path == "" {
		return fmt.Sprintf("kubectl annotate %s %s-", object, mark.Annotation)
	}
	return fmt.Sprintf("kubectl patch %s --type json --patch '[{\"op\":\"remove\",\"path\":%q}]'", object, mark.Path.JSONPointer())
}
