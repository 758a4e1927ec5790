package race

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/classbind/classbind/api/v1beta1"
)

const (
	// forgers at once, and how long each pauses between two reviews at most.
	forgers      = 2
	forgersPause = 40 * time.Millisecond
	// invention is one of so many reviews: the creation of a class that is not there.
	// It holds a seat for a window, so that few of them let the race go on.
	invention = 400
)

// forger sends reviews that no API server sends straight to the replicas. It knows
// all classes, and from the Leases the uids of those that are in flight.
type forger struct {
	fleet    *Fleet
	lanes    []*lane
	admitted admitted
	client   *http.Client
}

// forge until the context ends.
func (f *Fleet) forge(ctx context.Context, lanes []*lane, r *report) {
	o := &forger{fleet: f, lanes: lanes, admitted: f.cluster.watchAdmitted(ctx), client: &http.Client{
		Timeout:   5 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, //nolint:gosec // It cares for nothing.
	}}
	defer o.client.CloseIdleConnections()
	for ctx.Err() == nil {
		pauseUpTo(ctx, forgersPause)
		review, err := o.review(ctx)
		if err != nil {
			continue // The class is gone.
		}
		if allowed, answered := o.send(ctx, review); answered {
			r.count(func() {
				if r.forged++; allowed {
					r.believed++
				}
			})
		}
	}
}

// review of any class of any kind: mostly of an update of what is stored, from its
// version or one nearby, or with the uid of what is in flight.
func (o *forger) review(ctx context.Context) (*admissionv1.AdmissionRequest, error) {
	l := anyOf(o.lanes)
	kind := anyOf(l.kinds.names())
	list, err := l.classes(kind).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var class unstructured.Unstructured
	operation := admissionv1.Update
	switch {
	case oneIn(invention) || len(list.Items) == 0:
		operation = admissionv1.Create
		class = *l.object(Class{kind, fmt.Sprint("forged-", below(1000))}, nil)
		class.SetUID(types.UID(anyOf(append(o.admitted.holders(0), uuid.NewString()))))
	default:
		class = anyOf(list.Items)
		switch below(8) {
		case 0:
			class.SetUID(types.UID(anyOf(append(o.admitted.holders(0), ""))))
		case 1:
			operation = admissionv1.Create
		case 2:
			class.SetResourceVersion(list.GetResourceVersion())
		case 3:
			class.SetResourceVersion("1" + class.GetResourceVersion())
		}
	}
	before := class.DeepCopy()
	before.SetAnnotations(nil)
	class.SetAnnotations(map[string]string{defaultAnnotation: "true"})
	resource := l.resource(kind)
	review := &admissionv1.AdmissionRequest{
		UID: types.UID(uuid.NewString()), Operation: operation, Name: class.GetName(), DryRun: new(oneIn(8)),
		Kind:     metav1.GroupVersionKind{Group: resource.Group, Version: resource.Version, Kind: kind},
		Resource: metav1.GroupVersionResource{Group: resource.Group, Version: resource.Version, Resource: resource.Resource},
	}
	if review.Object.Object = &class; operation == admissionv1.Update {
		review.OldObject.Object = before
	}
	return review, nil
}

// send it to any replica, without a certificate.
func (o *forger) send(ctx context.Context, review *admissionv1.AdmissionRequest) (allowed, answered bool) {
	body, err := json.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"}, Request: review,
	})
	if err != nil {
		return false, false
	}
	url := anyOf(o.fleet.replicas).process.URL + v1beta1.GuardPath
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return false, false
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := o.client.Do(request)
	if err != nil {
		return false, false
	}
	defer func() { _ = response.Body.Close() }()
	answer := &admissionv1.AdmissionReview{}
	if response.StatusCode != http.StatusOK || json.NewDecoder(response.Body).Decode(answer) != nil || answer.Response == nil {
		return false, response.StatusCode < http.StatusInternalServerError
	}
	return answer.Response.Allowed, true
}
