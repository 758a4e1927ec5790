package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/openapi"
	"github.com/classbind/classbind/selector/rules"
)

const (
	// RecheckSchemas is how often a schema is read again: one that is not a CRD's changes without an event.
	RecheckSchemas = 5 * time.Minute
	// checkTypesTimeout limits the reading of all schemas of one registration's expressions. What is not read by then is not checked.
	checkTypesTimeout = 10 * time.Second
)

// Paths are what the schema of a kind's claims says of its registration.
type Paths struct {
	Check selector.PathsCheck
	// Version of the claims for which the paths are written, and the last of these that was served.
	Version, served string
	// Err is why the schema cannot be read. The check of this revision and version stays meanwhile: where the API server removes the
	// reference, only another schema mends that. One of other paths says nothing of these.
	Err error
}

// ComparePaths of a registration with the schema of its claims. Every replica does that: a writer of the status must not stop claims.
func (r *Registration) ComparePaths(ctx context.Context, k *v1beta1.ClaimKind, kind *selector.ClaimKind) Paths {
	before, sameRevision := r.PathsOf(k)
	paths := Paths{Version: versionOf(ctx, r, k), served: before.served}
	found, err := r.LookUpClaims(ctx, k, "create")
	s := (*openapi.Schema)(nil)
	if err == nil {
		paths.Version, paths.served = found.Version, found.Version
		s, err = r.Resources.schema(ctx, k.Resource(), found)
	}
	paths.Err = err
	switch {
	case err == nil:
		paths.Check = selector.CheckPaths(kind, s)
		if !found.Namespaced {
			paths.Check.Problems = append(paths.Check.Problems, r.listsOfNoNamespace(ctx, kind)...)
		}
	case sameRevision && before.Version == paths.Version && !errors.Is(err, openapi.ErrNoSchema):
		paths.Check = before.Check
	}
	return paths
}

// listsOfNoNamespace says which lists would be empty for ever: the claims have no namespace, the objects have one, and nothing says which.
func (r *Registration) listsOfNoNamespace(ctx context.Context, kind *selector.ClaimKind) (problems []string) {
	for i := range kind.Rules.Related {
		of := &kind.Rules.Related[i]
		if !of.IsList() || of.ObjectNamespace != nil {
			continue
		}
		if found, err := r.Resources.lookUp(ctx, of.Kind.Resource, of.Kind.Version); err == nil && found.Namespaced {
			problems = append(problems, of.NeedsNamespace())
		}
	}
	return problems
}

// versionOf the claims for which the paths of a claim kind are written, empty if it is the one that the API server prefers.
func versionOf(ctx context.Context, r *Registration, k *v1beta1.ClaimKind) string {
	return cmp.Or(r.Resources.memory(ctx).VersionOf(k), r.RelatedKinds.claimKind(k.Name).paths.served)
}

// LookUpClaims is LookUp, in the version for which the paths are written. It is ErrUnsuitable, too, where no webhook can write the
// reference.
func (r *Registration) LookUpClaims(ctx context.Context, k *v1beta1.ClaimKind, verbs ...string) (cluster.Resource, error) {
	if err := cluster.CheckBindable(k); err != nil {
		return cluster.Resource{}, err
	}
	return r.Resources.lookUp(ctx, k.Resource(), versionOf(ctx, r, k), verbs...)
}

// recheckAfter is when the schema is to be read again.
func (p Paths) recheckAfter() time.Duration {
	switch {
	case errors.Is(p.Err, ErrCRDNotServed):
		return RetryCRDAfter
	case p.Err != nil:
		return RetryAfter
	}
	return RecheckSchemas
}

// PathsOf the revision of a claim kind, false if they are not compared yet.
func (r *Registration) PathsOf(k *v1beta1.ClaimKind) (Paths, bool) {
	known := r.RelatedKinds.claimKind(k.Name)
	return known.paths, known.kind != nil && known.kind.Revision == inventory.RevisionOf(k)
}

// Condition PathsValid of a claim kind.
func (p Paths) Condition(view *selector.View) metav1.Condition {
	condition := metav1.Condition{Type: v1beta1.ConditionPathsValid, Status: metav1.ConditionUnknown, Reason: v1beta1.ReasonSchemaUnknown}
	reason, problem := view.PathsProblem(p.Check)
	switch {
	case reason != "" && (p.Err == nil || selector.OfPaths(reason)):
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, reason, problem
	case p.Err != nil:
		if !errors.Is(p.Err, openapi.ErrNoSchema) {
			condition.Reason = ReasonFor(p.Err)
		}
		condition.Message = fmt.Sprintf("the paths cannot be compared with the schema of the claims: %v", p.Err)
	case p.Check.Unknown != "":
		condition.Message = p.Check.Unknown
	default:
		condition.Status, condition.Reason = metav1.ConditionTrue, v1beta1.ReasonPathsValid
		condition.Message = "the schema of the claims has the fields of every path"
		if len(p.Check.Absent) > 0 {
			condition.Message += ", but for the defaults " + strings.Join(p.Check.Absent, " and ") + ", which no claim needs"
		}
	}
	return condition
}

// NotEnforced ends the message about a claim kind that was never served.
const NotEnforced = "; it was never served, so until then claims are created as if it were not registered"

// Servable reports whether a claim kind may have an entry in the webhook configuration.
func (r *Registration) Servable(ctx context.Context, k *v1beta1.ClaimKind) bool {
	view := r.Inventory.Snapshot()[k.Name]
	return view != nil && view.Kind.Revision == inventory.RevisionOf(k) && Unservable(ctx, r, k, view) == nil
}

// looker knows what the API server says of claims.
type looker interface {
	PathsOf(k *v1beta1.ClaimKind) (Paths, bool)
	LookUpClaims(ctx context.Context, k *v1beta1.ClaimKind, verbs ...string) (cluster.Resource, error)
}

// Unservable is why a claim kind gets no entry in the webhook configuration, nil if it may have one: it must not stop claims unserved.
func Unservable(ctx context.Context, r looker, k *v1beta1.ClaimKind, view *selector.View) *inventory.Fault {
	if view.Fault != nil {
		return view.Fault
	}
	paths, known := r.PathsOf(k)
	condition := paths.Condition(view)
	_, err := r.LookUpClaims(ctx, k, "create")
	switch {
	case err != nil:
		return &inventory.Fault{Reason: ReasonFor(err), Text: err.Error()}
	case len(view.Classes) == 0 && len(view.Unread) > 0:
		return &inventory.Fault{Reason: v1beta1.ReasonNoClassKind, Text: "classbind can read the classes of no class kind that serves it" +
			": see the condition " + v1beta1.ConditionClassKindsRead + NotEnforced}
	case len(view.Classes) == 0:
		return &inventory.Fault{Reason: v1beta1.ReasonNoClassKind, Text: "no class kind serves it: " +
			"create a ClassKind for it, which names it in spec.claimKinds or which it names in spec.classes.kinds, " +
			"or install its CRD" + NotEnforced}
	case !known:
		return &inventory.Fault{Reason: v1beta1.ReasonNotSynced, Text: "its paths are not compared with the schema of the claims yet"}
	case condition.Status == metav1.ConditionUnknown && condition.Reason != v1beta1.ReasonSchemaUnknown,
		condition.Reason == v1beta1.ReasonAllReferencesRefused:
		return &inventory.Fault{Reason: condition.Reason, Text: condition.Message + NotEnforced}
	}
	return nil
}

// Types are what the schemas say of the expressions of a registration.
type Types struct {
	// Mistyped are the expressions that fail by the schemas of what they look at.
	Mistyped []rules.Invalid
	// Read are the resources whose schemas were asked for.
	Read map[string]bool
	// Err is why a schema could not be read, so that more may be mistyped. A resource that is not served has none.
	Err error
}

// Types checks the expressions of a registration. It reads MaxCheckedSchemas at most, which are in memory together: others are not known.
func (r *Registration) Types(ctx context.Context, registration client.Object) Types {
	ctx, cancel := context.WithTimeout(ctx, checkTypesTimeout)
	defer cancel()
	types := Types{Read: map[string]bool{}}
	of := func(name, version string) (s *openapi.Schema) {
		if types.Read[name] = true; len(types.Read) > v1beta1.MaxCheckedSchemas {
			return nil
		}
		found, err := r.Resources.lookUp(ctx, name, version)
		if err == nil {
			s, err = r.Resources.schema(ctx, name, found)
		}
		if err == nil {
			return s
		}
		if !NotInstalledOrUnsuitable(err) && !errors.Is(err, openapi.ErrNoSchema) {
			types.Err = err
		}
		return nil
	}
	schemas := openapi.Source{
		Of: of, OfClaims: func(k *v1beta1.ClaimKind) *openapi.Schema { return of(k.Resource(), versionOf(ctx, r, k)) },
	}
	claimKinds, classKinds, err := List(ctx, r.Resources.reader)
	if err != nil {
		return Types{Err: err}
	}
	switch k := registration.(type) {
	case *v1beta1.ClaimKind:
		if k.Spec.HasExpressions() {
			types.Mistyped = schemas.MistypedOfClaims(ctx, k, rules.Serving(k, classKinds))
		}
	case *v1beta1.ClassKind:
		if k.Spec.HasExpressions() {
			types.Mistyped = schemas.MistypedOfClasses(ctx, k, rules.Served(k, claimKinds))
		}
	}
	return types
}
