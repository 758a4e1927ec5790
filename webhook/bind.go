package webhook

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/access"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/fields"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/selector/near"
	"github.com/classbind/classbind/selector/truncate"
)

// registrationWait is how long a claim waits for this replica to learn of its kind.
const registrationWait = time.Second

var errNotListed = errors.New("not all registered classes have been listed yet; try again in a moment")

func errNotHeardOf(claimKind string) error {
	return fmt.Errorf("claim kind %q is not registered on this replica yet; try again in a moment", claimKind)
}

// Binder gives claims their class.
type Binder struct {
	// Snapshot returns what is known now; nil means nothing yet.
	Snapshot func() selector.Snapshot
	// ClaimKind asks the API server itself for a ClaimKind that the snapshot does not have, nil if there is none.
	ClaimKind func(ctx context.Context, name string) (*v1beta1.ClaimKind, error)
	// Decider decides on the claims.
	Decider *selector.Decider
	// Metrics count the answers; nil counts nothing.
	Metrics *Metrics
}

// Review binds a claim that is being created, by the ClaimKind in the path, and keeps one bound that is updated. It leaves alone any other
// operation, and a claim kind that is no longer registered; fails before all classes are known; waits for a kind that this replica has
// not seen yet; and leaves the rest to the Decider. To read a claim from an API server cannot fail. The review is logged and counted
// afterwards.
func (b *Binder) Review(ctx context.Context, request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
	v := &verdict{metrics: b.Metrics, log: logOf(ctx), request: request}
	arrivalOf(ctx).afterwards = v.record
	v.response, v.err = b.review(ctx, v)
	return v.response, v.err
}

// review sets what the verdict has beside the answer.
func (b *Binder) review(ctx context.Context, v *verdict) (_ *admissionv1.AdmissionResponse, err error) {
	request := v.request
	if !isWrite(request) {
		return untouched("NotACreation"), nil
	}
	if v.view, err = b.view(ctx, request.Resource); err != nil {
		return nil, err
	}
	view := v.view
	if view == nil {
		return untouched("NotRegistered"), nil
	}
	if len(request.Object.Raw) == 0 {
		return nil, malformed("request.object: must be set")
	}
	if request.Operation == admissionv1.Update {
		return restored(v)
	}
	if len(content.IsPathSegmentName(request.Name)) > 0 {
		return untouched("MalformedName"), nil // The API server refuses it, after the mutating webhooks.
	}
	object, err := view.Kind.Reader.DecodeValid(request.Object.Raw)
	if err != nil {
		return nil, malformed("request.object: %v", err)
	}
	in := view.Kind.Reader.Read(request.Namespace, request.Name, object)
	in.Converted = request.RequestResource != nil && request.RequestResource.Version != request.Resource.Version
	if err = readRequest(ctx, view.Kind, &in); err != nil {
		return nil, err
	}
	isOfUser := view.Kind.External != nil && request.Namespace == "" // So one user's claims hold up no other's at the chooser.
	if (view.Kind.Use == v1beta1.UseByRequester || isOfUser) && in.LeftAlone == "" {
		userInfo := arrivalOf(ctx).user
		if view.Kind.Use != v1beta1.UseByRequester { // However long it is, only the name is read.
			userInfo = fmt.Appendf(nil, `{"username":%s}`, cmp.Or(string(fields.Path{"username"}.Raw(userInfo)), `""`))
		}
		user, err := decodeUser(userInfo)
		if err != nil {
			return nil, err
		}
		if user.Username == "" {
			return nil, malformed("request.userInfo.username: must be set")
		}
		in.Requester = access.NewSubject(&user)
	}
	if v.decision, err = b.Decider.Decide(ctx, view, in, selector.Mode{DryRun: isDryRun(request)}); err != nil {
		return refuseClaim(request, nil, err)
	}
	response := answer(request, &v.decision)
	warnUnknown(response, request, func(key string) bool { return b.Snapshot().ReadsAnnotation(key) })
	return response, nil
}

var annotationPrefix = []byte(v1beta1.AnnotationPrefix)

// maxLooked limits the unknown annotations that are looked for in the old object: it may have thousands, and each costs a search.
const maxLooked = 8

// warnUnknown warns of an annotation with our prefix that nothing reads, mostly because it is misspelt. An object without any costs a
// search, and one whose annotations are known allocates nothing.
func warnUnknown(response *admissionv1.AdmissionResponse, request *admissionv1.AdmissionRequest, reads func(key string) bool) {
	if !bytes.Contains(request.Object.Raw, annotationPrefix) {
		return
	}
	unknown, looked := "", 0
	fields.EachName(fields.Path{"metadata", "annotations"}.Raw(request.Object.Raw), func(name []byte) {
		if unknown != "" || looked == maxLooked || !bytes.HasPrefix(name, annotationPrefix) ||
			slices.ContainsFunc(v1beta1.Annotations, func(key string) bool { return key == string(name) }) {
			return
		}
		looked++
		if key := string(name); !reads(key) && !bytes.Contains(request.OldObject.Raw, name) {
			unknown = key
		}
	})
	if unknown != "" {
		response.Warnings = append(response.Warnings, fmt.Sprintf("the annotation %q means nothing to classbind%s",
			truncate.String(unknown, v1beta1.MaxShownBytes), near.Annotation(unknown)))
	}
}

// view of the claims' kind, nil if it is not registered for such claims.
func (b *Binder) view(ctx context.Context, claims metav1.GroupVersionResource) (*selector.View, error) {
	claimKind, snapshot := arrivalOf(ctx).registration, b.Snapshot()
	if snapshot == nil {
		return nil, errNotListed
	}
	if view := snapshot[claimKind]; view != nil && view.Kind.Reader.Reads(claims) {
		return view, nil
	}
	if len(validation.IsDNS1123Subdomain(claimKind)) > 0 {
		return nil, malformed("path: must end with the name of a ClaimKind")
	}
	return b.await(ctx, claimKind, claims)
}

// await waits for the view of a claim kind that was just registered: the leader, which added the webhook, may have learned of it before
// this replica. It is nil for a kind that is not registered, and fails for claims of a version that is not read.
func (b *Binder) await(ctx context.Context, claimKind string, claims metav1.GroupVersionResource) (*selector.View, error) {
	ctx, cancel := WithDeadline(ctx)
	defer cancel()
	k, err := b.ClaimKind(ctx, claimKind)
	if err != nil || k == nil || k.Resource() != (schema.GroupResource{Group: claims.Group, Resource: claims.Resource}).String() {
		return nil, err
	}
	view := b.Snapshot()[claimKind]
	if view != nil && view.Kind.Revision == inventory.RevisionOf(k) && !view.Kind.Reader.Reads(claims) {
		return nil, fmt.Errorf("claim kind %q: its paths are written for version %q of %s, and the API server sends these claims as %q: "+
			"write the paths for a version that is served, and set spec.claims.version to it",
			k.Name, view.Kind.Reader.Version, k.Resource(), claims.Version)
	}
	err = wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, registrationWait, true, func(context.Context) (bool, error) {
		view = b.Snapshot()[claimKind]
		return view != nil && view.Kind.Reader.Reads(claims), nil
	})
	if wait.Interrupted(err) {
		return nil, errNotHeardOf(claimKind)
	}
	return view, err
}

// answer to the creation of a claim.
func answer(request *admissionv1.AdmissionRequest, d *selector.Decision) *admissionv1.AdmissionResponse {
	if d.Claim.LeftAlone != "" {
		response := untouched(d.Claim.LeftAlone)
		if d.Claim.Ignored != "" {
			response.Warnings = []string{d.Claim.Ignored}
		}
		return response
	}
	if len(d.Claim.Problems) > 0 {
		return invalid(request, d.Claim.Problems, d.Reason())
	}
	response := &admissionv1.AdmissionResponse{Allowed: true}
	warning := d.Warning()
	switch {
	case d.Denied():
		response = denied(apierrors.NewForbidden(resourceOf(request), request.Name, errors.New(warning)), d.Reason())
	case warning != "":
		response.Warnings = []string{warning}
	}
	if d.Class != nil {
		response.Patch = d.Patch()
		response.PatchType = new(admissionv1.PatchTypeJSONPatch)
	}
	response.AuditAnnotations = auditAnnotations(d)
	return response
}

func untouched(reason string) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Allowed: true, AuditAnnotations: map[string]string{"reason": reason}}
}

func denied(err *apierrors.StatusError, reason string) *admissionv1.AdmissionResponse {
	s := err.ErrStatus
	return &admissionv1.AdmissionResponse{
		Result: &metav1.Status{
			Status: metav1.StatusFailure, Code: s.Code, Reason: s.Reason, Message: s.Message, Details: s.Details,
		},
		AuditAnnotations: map[string]string{"reason": reason},
	}
}

// invalid refuses a request for what is wrong in it.
func invalid(request *admissionv1.AdmissionRequest, problems field.ErrorList, reason string) *admissionv1.AdmissionResponse {
	kind := schema.GroupKind{Group: request.Kind.Group, Kind: request.Kind.Kind}
	return denied(apierrors.NewInvalid(kind, request.Name, problems), reason)
}

func resourceOf(request *admissionv1.AdmissionRequest) schema.GroupResource {
	return schema.GroupResource{Group: request.Resource.Group, Resource: request.Resource.Resource}
}

// isWrite reports whether an object is created or updated, and no subresource of it.
func isWrite(request *admissionv1.AdmissionRequest) bool {
	return (request.Operation == admissionv1.Create || request.Operation == admissionv1.Update) && request.SubResource == ""
}

// auditAnnotations explain the decision in the API server's audit log.
func auditAnnotations(d *selector.Decision) map[string]string {
	annotations := map[string]string{
		"reason":     d.Reason(),
		"candidates": strconv.Itoa(d.Candidates),
		"strategy":   string(d.View.Kind.Strategy.Name),
	}
	if d.Class != nil {
		annotations["class"] = d.Class.String()
	}
	if d.Choice.Outcome != "" {
		annotations["chooser"] = d.Choice.String()
	}
	if d.Skipped > 0 {
		annotations["skipped"] = strconv.Itoa(d.Skipped)
	}
	if dropped := d.DroppedText(); dropped != "" {
		annotations["dropped"] = dropped
	}
	return annotations
}

// verdict is the outcome of a claim's review, and how it came about. It is logged after the answer: while the claim waits, to log it would
// take as long as to choose its class.
type verdict struct {
	metrics *Metrics
	log     logr.Logger
	request *admissionv1.AdmissionRequest

	// view is nil for a claim kind that is not known.
	view *selector.View
	// decision has no view if none was made.
	decision selector.Decision

	// response is nil with an error.
	response *admissionv1.AdmissionResponse
	err      error
}

// record logs at the level debug, and counts. Errors have lines of their own; dry runs are not counted.
func (v *verdict) record() {
	outcome := outcomeOf(&v.decision, v.response, v.err)
	if log := v.log.V(1); log.Enabled() && v.err == nil {
		log.Info("Reviewed a claim", "resource", v.request.Resource.Resource, "group", v.request.Resource.Group,
			"namespace", v.request.Namespace, "name", v.request.Name, "requestUID", string(v.request.UID),
			"outcome", outcome, "audit", v.response.AuditAnnotations, "dryRun", isDryRun(v.request))
	}
	if !isDryRun(v.request) && !isBadRequest(v.err) {
		v.metrics.reviewed(v.view, &v.decision, outcome)
	}
}

// isDryRun reports whether a request must have no effect beyond its answer.
func isDryRun(request *admissionv1.AdmissionRequest) bool {
	return request.DryRun != nil && *request.DryRun
}

// restored answers the update of a claim: it puts back a class reference that the update removes, and leaves alone all else. It asks for no
// class, so it does not matter whether these are known. What a forger says of the old object only comes back to him.
func restored(v *verdict) (*admissionv1.AdmissionResponse, error) {
	request, kind := v.request, v.view.Kind
	if len(request.OldObject.Raw) == 0 {
		return nil, malformed("request.oldObject: must be set")
	}
	r, err := kind.Reader.Restore(request.OldObject.Raw, request.Object.Raw)
	if err != nil {
		return nil, malformed("request.%v", err)
	}
	response := untouched(r.Reason)
	if warning := r.Warning(kind.Reader); warning != "" {
		response.Warnings = []string{warning}
	}
	if r.Patch != nil {
		response.Patch, response.PatchType = r.Patch, new(admissionv1.PatchTypeJSONPatch)
	}
	return response, nil
}

// readRequest sets what expressions see as request: the userInfo of an AdmissionRequest, with the fields that are set.
func readRequest(ctx context.Context, kind *selector.ClaimKind, in *claim.Intake) error {
	if in.Object == nil || !kind.Rules.UsesRequest() {
		return nil
	}
	user, err := decodeUser(arrivalOf(ctx).user)
	if err != nil {
		return err
	}
	facts, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&user)
	if err != nil {
		return malformed("request.userInfo: %v", err)
	}
	in.Request = map[string]any{"userInfo": facts}
	return nil
}

func decodeUser(userInfo []byte) (user authenticationv1.UserInfo, err error) {
	if len(userInfo) > v1beta1.MaxUserInfoBytes {
		return user, malformed("request.userInfo: must have at most %d bytes: the ClaimKind looks at it", v1beta1.MaxUserInfoBytes)
	}
	if len(userInfo) > 0 {
		if err := json.Unmarshal(userInfo, &user, jsontext.AllowDuplicateNames(true)); err != nil {
			return user, malformed("request.userInfo: %v", err)
		}
	}
	return user, nil
}
