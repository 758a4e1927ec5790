package bench

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/progress"
)

// bindPath is classbind's, with the time that kube-apiserver adds to it.
func bindPath(claimKind string) string {
	return fmt.Sprintf("%s%s?timeout=%ds", v1beta1.BindPath, claimKind, v1beta1.WebhookTimeoutSeconds)
}

// freeClaim is of a kind that nobody registers, the webhook of constantClaim does
// nothing, and the API server itself binds a policyClaim.
const (
	freeClaim     = "ClaimFree"
	constantClaim = "ClaimConstant"
	policyClaim   = "ClaimPolicy"
)

// distinct reviews are sent in turn.
const distinct = 400

// many is a cluster with many classes of many kinds, and classbind serving it.
type many struct {
	*cluster
	settings Settings
	kinds    kinds
	replica  *replica
	trusted  *tls.Config // classbind
	reviews  []poolClaim
}

// startMany returns once classbind knows all of the classes.
func startMany(ctx context.Context, command string, s Settings) (_ *many, err error) {
	m := &many{settings: s, kinds: kinds{
		classes: numbered("Class", s.ClassKinds), claims: numbered("Claim", s.ClaimKinds),
		unregistered: []string{freeClaim, constantClaim},
	}}
	if s.runs(partCreate) {
		m.kinds.defaulted = policyClaim
	}
	if s.runs(partStorm) {
		m.kinds.unregistered = append(m.kinds.unregistered, m.freeClasses()...)
	}
	if m.reviews, err = reviews(m.kinds.claims, distinct, s.Classes/s.Matches); err != nil {
		return nil, err
	}
	if m.cluster, err = newCluster(ctx, command, s.Progress); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.stop())
		}
	}()
	if err := m.install(ctx, m.kinds); err != nil {
		return nil, err
	}
	err = m.fill(ctx, 0, s.Classes, func(i int) class { return pooled(i, m.kinds.classes, s.Matches) })
	if err != nil {
		return nil, err
	}
	return m, m.startReplica(ctx)
}

// startReplica returns once it knows all of the classes, and every claim of the
// reviews has as many to choose from as it should have.
func (m *many) startReplica(ctx context.Context) error {
	err := progress.During(m.progress, "starting classbind", func() (err error) {
		if m.replica, _, err = m.serve(ctx); err != nil {
			return err
		}
		return m.kubectl(ctx, "", "wait", "--for=condition=Ready", "claimkinds,classkinds", "--all", "--timeout=60s")
	})
	if err != nil {
		return err
	}
	if m.trusted, err = m.trust(ctx); err != nil {
		return err
	}
	c := newClient(m.replica.URL, m.trusted, 1)
	defer c.Close()
	for _, review := range m.reviews {
		answer, err := ask(ctx, c, bindPath(review.claimKind), review.body)
		if err != nil {
			return err
		}
		if got, want := answer.AuditAnnotations["candidates"], strconv.Itoa(m.settings.Matches); got != want {
			return fmt.Errorf("a claim has %q classes to choose from, not %s: %s", got, want, review.body)
		}
	}
	return nil
}

// freeClasses are kinds of class that nobody registers, as many as are registered.
func (m *many) freeClasses() []string { return numbered("Free", m.settings.ClassKinds) }

// stop everything that runs.
func (m *many) stop() error {
	var err error
	if m.replica != nil {
		err = m.replica.stop()
	}
	return errors.Join(err, m.Stop())
}

// bound is classbind as a target.
func (m *many) bound() *target {
	return &target{
		url: m.replica.URL, path: bindPath, tls: m.trusted, process: &m.replica.process,
		inFlight: m.settings.Connections, reviews: m.reviews,
	}
}

// ask posts a review and reads the answer, which is to have a patch.
func ask(ctx context.Context, c *client, path string, review []byte) (*admissionv1.AdmissionResponse, error) {
	body, err := c.Post(ctx, path, review)
	if err != nil {
		return nil, fmt.Errorf("cannot ask for a class: %w", err)
	}
	answer := admissionv1.AdmissionReview{}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("cannot read an answer: %w", err)
	}
	if r := answer.Response; r == nil || !r.Allowed || len(r.Patch) == 0 {
		return nil, fmt.Errorf("the claim is not bound: %s", body)
	}
	return answer.Response, nil
}
