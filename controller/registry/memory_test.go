package registry

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/selector/inventory"
)

// TestRememberVersions registers a claim kind whose status is nonsense.
func TestRememberVersions(t *testing.T) {
	const name = "claims.example.org"
	for tcName, tc := range map[string]struct {
		reason           string
		spec, remembered string
		served           []string // the first is preferred
		read, want       string
	}{
		"Preferred":    {"We should read the version that the API server prefers.", "", "", []string{"v1"}, "v1", "v1"},
		"Remembered":   {"We should keep to it.", "", "v1", []string{"v2", "v1"}, "v1", "v1"},
		"Set":          {"We should follow the version of the spec.", "v2", "v1", []string{"v1", "v2"}, "v2", "v2"},
		"SetToNone":    {"We should not remember what is not served: it may be a mistake.", "v9", "v1", []string{"v1"}, "v9", "v1"},
		"NotServed":    {"We should take no other version: the paths are not written for it.", "", "v1", []string{"v2"}, "v1", "v1"},
		"NotInstalled": {"We should remember nothing before the resource is served.", "", "", nil, "", ""},
	} {
		t.Run(tcName, func(t *testing.T) {
			answers := map[string]any{}
			for _, version := range tc.served {
				answers["/apis/example.org"] = controllertest.APIGroup(tc.served...)
				answers["/apis/example.org/"+version] = controllertest.APIResources(metav1.APIResource{Name: "claims", Kind: "Claim", Verbs: metav1.Verbs{"create"}})
			}
			resolver, err := cluster.NewResolver(controllertest.NewAPIServer(t, answers))
			require.NoError(t, err)
			k := controllertest.NewClaimKind(name)
			k.Spec.Claims.Version, k.Status.Version = tc.spec, "v2"
			before := `{}`
			if tc.remembered != "" {
				before = `{"versions":{"` + name + `":"` + tc.remembered + `"}}`
			}
			configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{
				Name: v1beta1.ClassConfiguration, Annotations: map[string]string{v1beta1.MemoryAnnotation: before},
			}}
			r := newRegistration(&controllertest.Cached{ClaimKinds: []v1beta1.ClaimKind{*k}, Guarding: configuration}, nil, resolver, nil)
			_, err = r.reconcileClaimKind(t.Context(), name)
			require.NoError(t, err)
			assert.Equal(t, tc.read, r.Inventory.ClaimKind(name).Version, tc.reason)
			now, err := r.Remember(MemoryOf(configuration), []v1beta1.ClaimKind{*k}, nil)
			require.NoError(t, err)
			configuration.Annotations[v1beta1.MemoryAnnotation] = now
			assert.Equal(t, tc.want, MemoryOf(configuration).Versions[name], tc.reason)
		})
	}
}

// TestRememberClasses has a class kind whose status says the opposite.
func TestRememberClasses(t *testing.T) {
	const name = "golds.example.org"
	notPermitted := &inventory.Fault{Reason: v1beta1.ReasonNotPermitted}
	for tcName, tc := range map[string]struct {
		reason string
		before bool
		state  *registered
		want   bool
	}{
		"NotPermitted": {"We should remember what was offered, though it cannot be read now.", true, unfollowed(notPermitted), true},
		"NeverOffered": {"We should not take for offered what never was.", false, unfollowed(notPermitted), false},
		"NoAnswer":     {"We should remember it while nobody answers.", true, unfollowed(errors.New("no answer")), true},
		"Gone":         {"We should forget what is not installed any more.", true, unfollowed(cluster.ErrNotInstalled), false},
	} {
		t.Run(tcName, func(t *testing.T) {
			r := newRegistration(&controllertest.Cached{}, nil, cluster.Resolver{}, nil)
			r.kinds[name] = tc.state
			before := &Memory{}
			if tc.before {
				before.ClassKinds = []string{name}
			}
			k := v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1beta1.ClassKindStatus{Served: !tc.before}}
			assert.Equal(t, tc.before, before.ServedClasses(&k), "We should act on no status.")
			now, err := r.Remember(before, nil, []v1beta1.ClassKind{k})
			require.NoError(t, err)
			assert.Equal(t, tc.want, strings.Contains(now, name), tc.reason)
		})
	}
}
