package registry

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/classbind/classbind/api/v1beta1"
)

// Memory is what was served, by which replicas start. The leader keeps it in the ValidatingWebhookConfiguration: others may write a status.
type Memory struct {
	// Versions of the claims for which the paths of claim kinds are written, by the names of the claim kinds. They are those in which the
	// API server served the claims: a version that it prefers later may have other fields.
	Versions map[string]string `json:"versions,omitempty"`
	// ClassKinds are the names of those whose classes were offered to claims, sorted. Without them, no claim that they serve is bound.
	ClassKinds []string `json:"classKinds,omitempty"`
	unread     bool     // It could not be read, so every kind may have been served.
}

// MemoryOf a configuration, empty if nothing was written yet.
func MemoryOf(configuration metav1.Object) *Memory {
	m := &Memory{}
	if json.Unmarshal([]byte(configuration.GetAnnotations()[v1beta1.MemoryAnnotation]), m) != nil {
		return &Memory{}
	}
	return m
}

// memory as this replica knows it.
func (r *Resources) memory(ctx context.Context) *Memory {
	c := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if r.reader != nil {
		// From the cache. Where there is none, nothing was served.
		err := r.reader.Get(ctx, client.ObjectKey{Name: v1beta1.ClassConfiguration}, c)
		if client.IgnoreNotFound(err) != nil {
			if ctx.Err() == nil {
				logf.FromContext(ctx).Error(err, "Cannot read what was served before, so each kind is taken for one that was")
			}
			return &Memory{unread: true}
		}
	}
	return MemoryOf(c)
}

// VersionOf the claims for which the paths of a claim kind are written, empty if it is the one that the API server prefers.
func (m *Memory) VersionOf(k *v1beta1.ClaimKind) string {
	return cmp.Or(k.Spec.Claims.Version, m.Versions[k.Name])
}

// ServedClaims reports whether claims of a kind were bound.
func (m *Memory) ServedClaims(k *v1beta1.ClaimKind) bool { return m.unread || m.Versions[k.Name] != "" }

// ServedClasses reports whether the classes of a kind were offered to claims.
func (m *Memory) ServedClasses(name string) bool {
	return m.unread || slices.Contains(m.ClassKinds, name)
}

// Served reports whether the classes of a kind were offered to claims.
func (r *Resources) Served(ctx context.Context, k *v1beta1.ClassKind) bool {
	return r.memory(ctx).ServedClasses(k.Name)
}

// Remember what is served now, beside what was, as the MemoryAnnotation has it.
func (r *Registration) Remember(before *Memory, claimKinds []v1beta1.ClaimKind, classKinds []v1beta1.ClassKind) (string, error) {
	now := &Memory{Versions: map[string]string{}}
	for i := range claimKinds {
		k := &claimKinds[i]
		if version := cmp.Or(r.RelatedKinds.claimKind(k.Name).paths.served, before.Versions[k.Name]); version != "" {
			now.Versions[k.Name] = version
		}
	}
	for i := range classKinds {
		k := &classKinds[i]
		if r.mayOffer(k, before) {
			now.ClassKinds = append(now.ClassKinds, k.Name)
		}
	}
	slices.Sort(now.ClassKinds)
	text, err := json.Marshal(now)
	if err != nil {
		return "", fmt.Errorf("cannot encode what is served: %w", err)
	}
	return string(text), nil
}

// mayOffer reports whether the classes of a kind are offered, or were and will be once they are known, or no longer ignored.
func (r *Registration) mayOffer(k *v1beta1.ClassKind, before *Memory) bool {
	return r.offered(k) || before.ServedClasses(k.Name) && !r.ClassKinds.State(k.Name).gone()
}

// Guarded reports whether classes of a kind may be default classes. Ones that a starting leader does not know yet, or ignored ones, may.
func (r *Registration) Guarded(ctx context.Context, k *v1beta1.ClassKind) bool {
	return r.mayOffer(k, r.Resources.memory(ctx))
}

// offered reports whether the classes of a kind are offered to claims of one of the kinds that it serves.
func (r *Registration) offered(k *v1beta1.ClassKind) bool {
	classes := r.ClassKinds.State(k.Name).Classes
	if classes == nil {
		return false
	}
	snapshot, refused := r.Inventory.Snapshot(), false
	for _, name := range classes.Kind.ClaimKinds {
		if view := snapshot[name]; view != nil {
			if view.FaultOf(k.Name) == nil {
				return true
			}
			refused = true
		}
	}
	return !refused
}
