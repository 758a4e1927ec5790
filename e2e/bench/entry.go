package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/classbind/classbind/api/v1beta1"
)

// entry of classbind's for a kind of claim.
func (m *many) entry(ctx context.Context, kind string) (entry admissionregistrationv1.MutatingWebhook, err error) {
	configurations := m.clientset.AdmissionregistrationV1().MutatingWebhookConfigurations()
	c, err := configurations.Get(ctx, v1beta1.LastConfiguration, metav1.GetOptions{})
	if err != nil {
		return entry, fmt.Errorf("cannot see how classbind is called: %w", err)
	}
	i := slices.IndexFunc(c.Webhooks, func(e admissionregistrationv1.MutatingWebhook) bool {
		return e.Name == resource(kind)+v1beta1.BindSuffix
	})
	if i < 0 {
		return entry, fmt.Errorf("classbind is not called for %s", kind)
	}
	return c.Webhooks[i], nil
}

// awaitWebhook until the API server knows of that of a kind, which it does a little later than it is stored.
func (m *many) awaitWebhook(ctx context.Context, kind string) error {
	manifest, err := json.Marshal(claim(kind, "probe", namespace, askingFor(poolLabels(0, map[string]string{}))))
	if err != nil {
		return err
	}
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		answer, err := m.createClaim(ctx, kind, manifest, true)
		return bytes.Contains(answer, []byte(`"classRef"`)), err
	})
	if err != nil {
		return fmt.Errorf("the API server does not call the webhook of %s: %w", kind, err)
	}
	return nil
}

// awaitPolicy until the API server itself binds claims of a kind: until one is bound and classbind is not called.
func (m *many) awaitPolicy(ctx context.Context, kind string) error {
	err := m.kubectl(ctx, "", "wait", "--for=condition="+v1beta1.ConditionDefaultedByPolicy, "claimkinds", resource(kind), "--timeout=60s")
	if err != nil {
		return err
	}
	manifest, err := json.Marshal(claim(kind, "probe", namespace, nil))
	if err != nil {
		return err
	}
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		before, err := m.calls(ctx)
		if err != nil {
			return false, err
		}
		answer, err := m.createClaim(ctx, kind, manifest, true)
		if err != nil {
			return false, err
		}
		after, err := m.calls(ctx)
		return after == before && bytes.Contains(answer, []byte(`"classRef"`)), err
	})
	if err != nil {
		return fmt.Errorf("the API server does not bind claims of %s: %w", kind, err)
	}
	return nil
}

// calls that classbind has answered about claims.
func (m *many) calls(ctx context.Context) (int, error) {
	return m.replica.Answered(ctx, v1beta1.BindPath+"{name}")
}
