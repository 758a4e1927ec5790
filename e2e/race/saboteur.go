package race

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"strconv"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

const (
	saboteurName = "saboteur.race.test"
	// sabotagePatience is how long the guard has to admit what the saboteur has picked. What it refuses waits that long for nothing.
	sabotagePatience = 400 * time.Millisecond
)

// sabotage what is written to the lanes until it is stopped: a second webhook refuses a third of it, and holds up a part of the rest for as
// long as an API server lets it.
//
// The API server asks all validating webhooks at once and waits for all, so a refusal that comes after the guard's answer is one that waits
// for it: the saboteur watches the Leases for the class's uid.
func (c *Cluster) sabotage(ctx context.Context, lanes []*lane) (stop func(), err error) {
	condition := fmt.Sprintf(`has(object.metadata.annotations) && %[1]q in object.metadata.annotations && `+
		`object.metadata.annotations[%[1]q] == "true"`, defaultAnnotation)
	of := map[string]*lane{}
	var groups []string
	for _, l := range lanes {
		of[l.group], groups = l, append(groups, l.group)
	}
	leases := c.watchAdmitted(ctx)
	review := func(ctx context.Context, r admission.Request) admission.Response {
		l := of[r.Kind.Group]
		refuse, hold := oneIn(3), oneIn(4) && r.Name != nextName // That one is timed.
		switch {
		case !refuse && !hold, !leases.awaitGuard(ctx, &r, len(l.kinds[r.Kind.Kind])):
		case refuse:
			return admission.Denied("a third of what was admitted is refused")
		default:
			pauseUpTo(ctx, l.scenario.Timing.Request) // Others see it in flight for as long as the API server lets it be.
		}
		return admission.Allowed("")
	}
	server := httptest.NewTLSServer(&admission.Webhook{Handler: admission.HandlerFunc(review)})
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

// awaitGuard waits until the guard has written the Leases of so many claim kinds for this request: for this class, and after the version
// that is to be updated.
func (a admitted) awaitGuard(ctx context.Context, request *admission.Request, claimKinds int) bool {
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
	return wait.PollUntilContextTimeout(ctx, 5*time.Millisecond, sabotagePatience, true, func(context.Context) (bool, error) {
		written := 0
		for _, uid := range a.holders(base) {
			if uid == string(object.UID) {
				written++
			}
		}
		return written == claimKinds, nil
	}) == nil
}
