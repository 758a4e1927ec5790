package webhookconfig

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/certs/certtest"
	"github.com/classbind/classbind/controller/controllertest"
)

// secrets are a live reader of nothing but Secrets: the data of each, by "namespace/name".
type secrets map[string]map[string][]byte

func (s secrets) Get(_ context.Context, k client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	if secret, ok := o.(*corev1.Secret); ok && s[k.String()] != nil {
		secret.Data = s[k.String()]
		return nil
	}
	return apierrors.NewNotFound(schema.GroupResource{}, k.Name)
}

func (s secrets) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("unexpected")
}

// newCA returns a CA in PEM, which expires in a day or at the given time.
func newCA(t *testing.T, notAfter ...time.Time) []byte {
	t.Helper()
	if len(notAfter) == 0 {
		return certtest.NewCA(t).PEM()
	}
	return (&certtest.Pair{}).Sign(t, &x509.Certificate{IsCA: true, BasicConstraintsValid: true, NotAfter: notAfter[0]}).PEM()
}

func TestTrust(t *testing.T) {
	begin := time.Now().Truncate(time.Second) // As the times of certificates are.
	pem := map[string][]byte{
		"a": newCA(t), "b": newCA(t), "c": newCA(t),
		"brief":   newCA(t, begin.Add(time.Hour)),
		"garbage": []byte("PEM"), "nothing": nil,
		"broken": []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
	}
	pem["broken, a and text"] = slices.Concat(pem["broken"], pem["a"], pem["garbage"])
	pem["a and b"] = slices.Concat(pem["a"], pem["b"])
	all := func(names []string) (all [][]byte) {
		for _, n := range names {
			all = append(all, pem[n])
		}
		return all
	}
	type names []string
	// round of the configurator: the time since the one before, the CAs of the Secrets, and the bundles of the entries.
	type round struct {
		after            time.Duration
		current, carried names
		want             names
	}
	for name, tc := range map[string]struct {
		reason string
		rounds []round
	}{
		"None":  {"We should trust nobody before there is a CA.", []round{{0, nil, nil, nil}, {time.Second, names{"nothing", "nothing"}, nil, nil}}},
		"First": {"We should trust the first CA, and it alone.", []round{{0, names{"a"}, nil, names{"a"}}, {time.Second, names{"a"}, names{"a"}, names{"a"}}}},
		"Rotation": {"We should trust the old CA and the new one until the overlap is over.", []round{
			{0, names{"a"}, names{"a"}, names{"a"}},
			{time.Hour, names{"b"}, names{"a"}, names{"a", "b"}},
			{overlap - 1, names{"b"}, names{"a and b"}, names{"a", "b"}},
			{1, names{"b"}, names{"a and b"}, names{"b"}},
		}},
		"StillCarried": {"We should not trust a CA again because an entry has not been written yet, or was read before it was.", []round{
			{0, names{"a"}, names{"a"}, names{"a"}},
			{time.Second, names{"b"}, names{"a"}, names{"a", "b"}},
			{overlap, names{"b"}, names{"a and b"}, names{"b"}},
			{time.Second, names{"b"}, names{"a and b", "b"}, names{"b"}},
			{overlap, names{"b"}, names{"a and b"}, names{"b"}},
			{time.Second, names{"b"}, names{"b"}, names{"b"}},
		}},
		"AddedByHand": {"We should allow for a CA that an entry carries, and that we do not know: a leader before us may have written it.", []round{
			{0, names{"b"}, names{"b", "a"}, names{"a", "b"}},
			{overlap - 1, names{"b"}, names{"a and b"}, names{"a", "b"}},
			{1, names{"b"}, names{"a and b"}, names{"b"}},
			{time.Second, names{"b"}, names{"b"}, names{"b"}},
			{time.Hour, names{"b"}, names{"a and b"}, names{"a", "b"}},
		}},
		"NoEntries": {"We should trust the old CA though no entry carried it: a replica that was about to be called serves a certificate of it.", []round{
			{0, names{"a"}, nil, names{"a"}},
			{time.Second, names{"b"}, nil, names{"a", "b"}},
			{time.Second, names{"c"}, nil, names{"a", "b", "c"}},
			{overlap - time.Second, names{"c"}, nil, names{"b", "c"}},
			{time.Second, names{"c"}, nil, names{"c"}},
		}},
		"Returns": {"We should trust a CA that returns for as long as it stays, and allow for it anew when it goes.", []round{
			{0, names{"a"}, names{"a"}, names{"a"}},
			{time.Second, names{"b"}, names{"a"}, names{"a", "b"}},
			{time.Second, names{"a"}, names{"a and b"}, names{"a", "b"}},
			{overlap, names{"a"}, names{"a and b"}, names{"a"}},
			{time.Second, names{"b"}, names{"a"}, names{"a", "b"}},
			{overlap - 1, names{"b"}, names{"a and b"}, names{"a", "b"}},
			{1, names{"b"}, names{"a and b"}, names{"b"}},
		}},
		"SecretGone": {"We should trust a CA for a while whose Secret is gone, and then nobody.", []round{
			{0, names{"a"}, names{"a"}, names{"a"}},
			{time.Second, names{"nothing"}, names{"a"}, names{"a"}},
			{overlap - 1, names{"nothing"}, names{"a"}, names{"a"}},
			{1, names{"nothing"}, names{"a"}, nil},
			{time.Second, names{"b"}, names{"a"}, names{"b"}},
		}},
		"TwoSecrets": {"We should trust the CAs of both modes for as long as both are there: replicas of both may be called while the mode is changed.", []round{
			{0, names{"a", "nothing"}, names{"a"}, names{"a"}},
			{time.Second, names{"a", "b"}, names{"a"}, names{"a", "b"}},
			{2 * overlap, names{"a", "b"}, names{"a and b"}, names{"a", "b"}},
			{time.Second, names{"nothing", "b"}, names{"a and b"}, names{"a", "b"}},
			{overlap, names{"nothing", "b"}, names{"a and b"}, names{"b"}},
		}},
		"Expired": {"We should leave out a CA that has expired, wherever it is from.", []round{
			{0, names{"brief", "a"}, nil, names{"a", "brief"}},
			{time.Hour - 1, names{"a"}, names{"brief"}, names{"a", "brief"}},
			{1, names{"a"}, names{"brief"}, names{"a"}},
			{time.Second, names{"a", "brief"}, names{"brief"}, names{"a"}},
			{time.Second, names{"brief"}, nil, names{"a"}},
		}},
		"Garbage": {"We should leave out what is no certificate: nobody could trust it.", []round{
			{0, names{"garbage", "a"}, names{"broken"}, names{"a"}},
			{time.Second, names{"broken"}, names{"garbage", "a"}, names{"a"}},
			{overlap, names{"garbage"}, names{"garbage"}, nil},
		}},
		"PartlyGarbage": {"We should trust what is a certificate beside what is none, as those do who verify.", []round{
			{0, names{"broken, a and text"}, nil, names{"a"}},
			{time.Second, names{"b"}, names{"broken, a and text"}, names{"a", "b"}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			trust, now := &trust{}, begin
			for i, r := range tc.rounds {
				now = now.Add(r.after)
				got := trust.bundle(now, all(r.current), all(r.carried))
				has := parse([][]byte{got})
				var trusted names
				for _, n := range []string{"a", "b", "c", "brief"} {
					for der := range parse(all(names{n})) {
						if has[der] != nil {
							trusted = append(trusted, n)
						}
					}
				}
				assert.Equal(t, r.want, trusted, "%s Round %d.", tc.reason, i)
				assert.Equal(t, len(r.want), bytes.Count(got, []byte("BEGIN")), "%s Round %d.", tc.reason, i)
			}
		})
	}
}

func TestBundles(t *testing.T) {
	// carrying has an entry for each bundle.
	carrying := func(suffix string, bundles ...string) *admissionregistrationv1.MutatingWebhookConfiguration {
		c := configurationWith("", slices.Repeat([]string{"a" + suffix}, len(bundles))...)
		for i, b := range bundles {
			c.Webhooks[i].ClientConfig.CABundle = []byte(b)
		}
		return c
	}
	claims := func(bundles ...string) *admissionregistrationv1.MutatingWebhookConfiguration {
		return carrying(v1beta1.BindSuffix, bundles...)
	}
	classes := func(suffix string, bundles ...string) *admissionregistrationv1.ValidatingWebhookConfiguration {
		c := guardingWith()
		for _, e := range carrying(suffix, bundles...).Webhooks {
			c.Webhooks = append(c.Webhooks, admissionregistrationv1.ValidatingWebhook{Name: e.Name, ClientConfig: e.ClientConfig})
		}
		return c
	}
	const guard = v1beta1.GuardSuffix
	refused := errors.New("connection refused")
	for name, tc := range map[string]struct {
		reason string
		reader client.Reader
		want   []string
		err    error
	}{
		"NotDeployed":  {reason: "We should find none where nothing is deployed.", reader: &controllertest.Cached{}},
		"ClassesAlone": {reason: "We should do with the other one, too.", reader: &controllertest.Cached{Guarding: classes(guard, "a")}, want: []string{"a"}},
		"Distinct": {
			reason: "We should have each once: there may be thousands of entries.",
			reader: &controllertest.Cached{Configuration: claims("a", "b", "a"), Guarding: classes(guard, "b", "c", "c")}, want: []string{"a", "b", "c"},
		},
		"Deletions": {
			reason: "We should not pass over the entries for deletions.",
			reader: &controllertest.Cached{Guarding: classes(v1beta1.DeletionSuffix, "a")},
			want:   []string{"a"},
		},
		"Registrations": {
			reason: "We should not pass over the entry for registrations.",
			reader: &controllertest.Cached{Guarding: classes(v1beta1.RegistrationEntry, "a")},
			want:   []string{"a"},
		},
		"First": {
			reason: "We should not pass over the entries of claims that we are asked about first.",
			reader: &controllertest.Cached{Configuration: claims("a"), First: claims("b"), Guarding: classes(guard, "c")}, want: []string{"a", "b", "c"},
		},
		"Empty": {
			reason: "We should not pass over an entry without a bundle, whose calls fail.",
			reader: &controllertest.Cached{Configuration: claims("a", "")},
			want:   []string{"", "a"},
		},
		"NotOurs": {
			reason: "We should pass over an entry that somebody else has put there: it calls somebody else.",
			reader: &controllertest.Cached{Configuration: carrying(".example.org", "a")},
		},
		"Refused": {reason: "We should not say that there is none when we could not look.", reader: &controllertest.Cached{Err: refused}, err: refused},
	} {
		t.Run(name, func(t *testing.T) {
			bundles, _, err := Bundles(t.Context(), tc.reader)
			require.ErrorIs(t, err, tc.err, tc.reason)
			var got []string
			for _, b := range bundles {
				got = append(got, string(b))
			}
			slices.Sort(got)
			assert.Equal(t, tc.want, got, tc.reason)
		})
	}
}

func TestBundlesWritten(t *testing.T) {
	long, short := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	managed := func(times ...time.Time) (all []metav1.ManagedFieldsEntry) {
		for _, at := range times {
			all = append(all, metav1.ManagedFieldsEntry{Time: &metav1.Time{Time: at}})
		}
		return all
	}
	for name, tc := range map[string]struct {
		reason         string
		first, classes []metav1.ManagedFieldsEntry
		empty          bool
		want           time.Time
	}{
		"Newest":    {reason: "We should find the last write of any manager.", first: managed(short, long), classes: managed(long), want: short},
		"OfAny":     {reason: "We should find the last write of any configuration.", first: managed(long), classes: managed(long, short), want: short},
		"NoManager": {reason: "We should not guess where somebody removed the managed fields.", first: managed(long)},
		"NoTime":    {reason: "We should not guess where a manager has no time.", first: managed(long), classes: []metav1.ManagedFieldsEntry{{Manager: "a"}}},
		"WithoutEntries": {
			reason:  "We should not look at a configuration that calls nobody.",
			first:   managed(long),
			classes: managed(short),
			empty:   true,
			want:    long,
		},
	} {
		t.Run(name, func(t *testing.T) {
			reader := &controllertest.Cached{
				First: &admissionregistrationv1.MutatingWebhookConfiguration{
					ObjectMeta: metav1.ObjectMeta{ManagedFields: tc.first}, Webhooks: []admissionregistrationv1.MutatingWebhook{{}},
				},
				Guarding: &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{ManagedFields: tc.classes}},
			}
			if !tc.empty {
				reader.Guarding.Webhooks = []admissionregistrationv1.ValidatingWebhook{{}}
			}
			_, written, err := Bundles(t.Context(), reader)
			require.NoError(t, err)
			assert.Equal(t, tc.want, written, tc.reason)
		})
	}
}
