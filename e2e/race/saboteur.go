package race

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	saboteurName = "saboteur.race.test"
	// sabotagePatience is how long the guard has to admit what the saboteur has picked. What it refuses waits that long for nothing.
	sabotagePatience = 400 * time.Millisecond
)

// saboteur is the second webhook. It refuses a third of the writes that the guard has admitted, and holds up others.
//
// The API server asks all validating webhooks at once and waits for all, so a refusal that comes after the guard's answer is one that waits
// for it: the saboteur watches the Leases for the class's uid.
type saboteur struct {
	lanes    map[string]*lane // by API group
	request  time.Duration    // the API servers' longest
	admitted *admitted
}

// sabotage what is written to the lanes, until it is stopped and the context ends. stop reports whether all went well.
func (c *Cluster) sabotage(ctx context.Context, lanes []*lane) (stop func() error, err error) {
	s := &saboteur{lanes: map[string]*lane{}}
	for _, l := range lanes {
		s.lanes[l.group], s.request = l, l.timing.Request
	}
	if s.admitted, err = c.watchAdmitted(ctx); err != nil {
		return nil, err
	}
	becomesDefault := fmt.Sprintf(`has(object.metadata.annotations) && %[1]q in object.metadata.annotations && `+
		`object.metadata.annotations[%[1]q] == "true"`, defaultAnnotation)
	end, err := c.askToo(ctx, lanes, becomesDefault, s.review)
	if err != nil {
		return nil, err
	}
	return func() error {
		end()
		return s.admitted.error()
	}, nil
}

// reviewer answers the reviews of API servers.
type reviewer func(context.Context, *review) *admissionv1.AdmissionResponse

type review = admissionv1.AdmissionRequest

// askToo has the API servers ask a second webhook about what is written to the lanes, where that meets a CEL expression, until it ends.
func (c *Cluster) askToo(ctx context.Context, lanes []*lane, condition string, review reviewer) (end func(), err error) {
	var groups []string
	for _, l := range lanes {
		groups = append(groups, l.group)
	}
	server := httptest.NewTLSServer(review)
	webhooks := c.kubernetes.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	_, err = webhooks.Create(ctx, &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: saboteurName},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: saboteurName,
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL:      &server.URL,
				CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
				Rule:       admissionregistrationv1.Rule{APIGroups: groups, APIVersions: []string{"*"}, Resources: []string{"*"}},
			}},
			MatchConditions:         []admissionregistrationv1.MatchCondition{{Name: "condition", Expression: condition}},
			SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
			FailurePolicy:           new(admissionregistrationv1.Fail),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		server.Close()
		return nil, fmt.Errorf("cannot configure the second webhook: %w", err)
	}
	return func() {
		server.CloseClientConnections()
		server.Close()
	}, nil
}

// ServeHTTP is called by the API servers.
func (do reviewer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	review := &admissionv1.AdmissionReview{}
	if err := json.NewDecoder(r.Body).Decode(review); err != nil || review.Request == nil {
		http.Error(w, "this is no AdmissionReview", http.StatusBadRequest)
		return
	}
	response := do(r.Context(), review.Request)
	response.UID = review.Request.UID
	review.Request, review.Response = nil, response
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}

func (s *saboteur) review(ctx context.Context, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	allowed := &admissionv1.AdmissionResponse{Allowed: true}
	refuse, hold := oneIn(3), oneIn(4) && request.Name != nextName // That one is timed.
	if !refuse && !hold || !s.awaitGuard(ctx, request) {
		return allowed
	}
	if refuse {
		return refusal()
	}
	pauseUpTo(ctx, s.request) // Others see it in flight for as long as the API server lets it be.
	return allowed
}

func refusal() *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{
		Result: &metav1.Status{Code: http.StatusForbidden, Message: "a third of what was admitted is refused"},
	}
}

// awaitGuard waits until the guard has written the Lease of every claim kind for
// this request: for this class, and after the version that is to be updated.
func (s *saboteur) awaitGuard(ctx context.Context, request *admissionv1.AdmissionRequest) bool {
	object, old := &metav1.PartialObjectMetadata{}, &metav1.PartialObjectMetadata{}
	if json.Unmarshal(request.Object.Raw, object) != nil {
		return false
	}
	base := uint64(0)
	if request.OldObject.Raw != nil {
		var err error
		if json.Unmarshal(request.OldObject.Raw, old) != nil || old.Annotations[defaultAnnotation] == "true" {
			return false
		}
		if base, err = strconv.ParseUint(old.ResourceVersion, 10, 64); err != nil {
			return false
		}
	}
	claimKinds := len(s.lanes[request.Kind.Group].kinds[request.Kind.Kind])
	return wait.PollUntilContextTimeout(ctx, 5*time.Millisecond, sabotagePatience, true, func(context.Context) (bool, error) {
		return s.admitted.after(base, string(object.UID)) == claimKinds, nil
	}) == nil
}
