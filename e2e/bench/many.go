package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/classbind/classbind/e2e/progress"
)

// freeClaim is of a kind that nobody registers, the webhook of constantClaim does nothing, and the API server itself binds a policyClaim.
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
	replica *replica
	reviews []poolClaim
}

// startMany returns once classbind knows all of the classes.
func startMany(ctx context.Context, command string, s Settings) (_ *many, err error) {
	k := kinds{
		classes: numbered("Class", s.ClassKinds), claims: numbered("Claim", s.ClaimKinds),
		unregistered: []string{freeClaim, constantClaim},
	}
	if s.runs(partCreate) {
		k.defaulted = policyClaim
	}
	if s.runs(partStorm) {
		k.unregistered = append(k.unregistered, freeClasses(s)...)
	}
	m := &many{}
	if m.reviews, err = reviews(k.claims, distinct, s.Classes/s.Matches); err != nil {
		return nil, err
	}
	if m.cluster, err = newCluster(ctx, command, s, k); err != nil {
		return nil, err
	}
	if err = m.fill(ctx, 0, s.Classes, func(i int) class { return pooled(i, k.classes, s.Matches) }); err == nil {
		err = m.startReplica(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, m.stop())
	}
	return m, nil
}

// startReplica returns once it knows all of the classes, and every claim of the reviews has as many to choose from as it should have.
func (m *many) startReplica(ctx context.Context) error {
	err := progress.During(m.settings.Progress, "starting classbind", func() (err error) {
		if m.replica, err = m.serve(ctx); err != nil {
			return err
		}
		return m.awaitRegistrations(ctx)
	})
	if err != nil {
		return err
	}
	for i := range m.reviews {
		answer, _, err := m.bound().ask(ctx, i)
		if err != nil {
			return err
		}
		if got, want := answer.AuditAnnotations["candidates"], strconv.Itoa(m.settings.Matches); got != want {
			return fmt.Errorf("a claim has %q classes to choose from, not %s: %s", got, want, m.reviews[i].body)
		}
	}
	return nil
}

// freeClasses are kinds of class that nobody registers, as many as are registered.
func freeClasses(s Settings) []string { return numbered("Free", s.ClassKinds) }

// stop everything that runs.
func (m *many) stop() error {
	var err error
	if m.replica != nil {
		err = m.replica.stop()
	}
	return errors.Join(err, m.Stop())
}

// bound is classbind as a target.
func (m *many) bound() *target { return m.replica.target(m.settings, m.reviews) }

// ask posts the i-th review and reads the answer, which has so many bytes and is to have a patch.
func (t *target) ask(ctx context.Context, i int) (answer *admissionv1.AdmissionResponse, size int, err error) {
	c := t.connect(1)
	defer c.CloseIdleConnections()
	body, err := t.post(ctx, c, i)
	if err != nil {
		return nil, 0, err
	}
	review := admissionv1.AdmissionReview{}
	if err := json.Unmarshal(body, &review); err != nil {
		return nil, 0, fmt.Errorf("cannot read an answer: %w", err)
	}
	if r := review.Response; r == nil || !r.Allowed || len(r.Patch) == 0 {
		return nil, 0, fmt.Errorf("the claim is not bound: %s", body)
	}
	return review.Response, len(body), nil
}

// rounds of so many things that are compared, in turn one way and the other. The first of each, in which it warms up, is none that counts.
func (m *many) rounds(things int, do func(i, round int) error) error {
	for n := range m.settings.Rounds + 1 {
		for i := range things {
			if n%2 == 1 {
				i = things - 1 - i
			}
			if err := do(i, n); err != nil {
				return err
			}
		}
	}
	return nil
}
