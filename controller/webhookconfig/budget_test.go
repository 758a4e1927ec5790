package webhookconfig

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/controller/registry"
)

func TestLeftOut(t *testing.T) {
	const share, most = v1beta1.MaxEntriesBytes / 32, v1beta1.MaxEntryBytes
	// sized is an entry that counts as so many bytes.
	sized := func(kind string, bytes int) dueEntry {
		e := dueEntry{Entry: Entry{Name: kind, ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: new("")}}, in: "c", kind: kind}
		size, err := sizeOf(kind, &e.Entry)
		require.NoError(t, err)
		e.ClientConfig.URL = new(strings.Repeat("a", bytes-size))
		return e
	}
	// of returns n entries with this share of the room, by name.
	of := func(n int) (entries []dueEntry) {
		for i := range n {
			entries = append(entries, sized(fmt.Sprintf("k%02d", i), share))
		}
		return entries
	}
	changed := func(entries []dueEntry, change func(*dueEntry)) []dueEntry {
		for i := range entries {
			change(&entries[i])
		}
		slices.Reverse(entries)
		return entries
	}
	optional := sized("a-optional", share)
	optional.optional = true
	const fit, grown = v1beta1.MaxEntriesBytes / share, v1beta1.MaxGrownEntriesBytes / share
	for name, tc := range map[string]struct {
		reason  string
		entries []dueEntry
		present bool // in the configuration already
		want    []string
	}{
		"None":       {reason: "We should leave out none of none."},
		"Fit":        {reason: "We should leave out nothing that fits.", entries: of(fit)},
		"OneTooMany": {reason: "We should leave out the last by name.", entries: of(fit + 1), want: []string{fmt.Sprintf("k%02d", fit)}},
		"InAnyOrder": {
			reason:  "We should go by their names, in whichever order they come.",
			entries: changed(of(fit+1), func(*dueEntry) {}),
			want:    []string{fmt.Sprintf("k%02d", fit)},
		},
		"Apart":   {reason: "We should have room in another configuration.", entries: append(of(fit), changed(of(1), func(e *dueEntry) { e.in = "other" })...)},
		"Present": {reason: "We should not take out for a CA bundle what was there before.", entries: of(grown), present: true},
		"PresentLimit": {
			reason:  "We should have a limit for what was there before, too.",
			entries: of(grown + 1),
			present: true,
			want:    []string{fmt.Sprintf("k%02d", grown)},
		},
		"Newcomer": {
			reason:  "We should take nothing out for one that was not there, though its name comes first.",
			entries: append(of(grown), sized("a-new", share)),
			present: true,
			want:    []string{"a-new"},
		},
		"TooLarge": {
			reason:  "We should leave out alone what is too large by itself, though its name comes first.",
			entries: []dueEntry{sized("large", most+1), sized("largest", most)}, want: []string{"large"},
		},
		"Grown": {
			reason:  "We should not take out for a CA bundle what was there before, and have a limit for it.",
			entries: []dueEntry{sized("grown", v1beta1.MaxGrownEntryBytes), sized("more", v1beta1.MaxGrownEntryBytes+1)}, present: true, want: []string{"more"},
		},
		"Optional": {
			reason:  "We should leave out what can be done without, though its name comes first.",
			entries: append(of(fit), optional),
			want:    []string{"a-optional"},
		},
		"SmallOneFits": {
			reason:  "We should leave out no more than has to be.",
			entries: append(of(fit-1), sized("large", share+1), sized("small", share)),
			want:    []string{"large"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			current := Configurations{}
			if tc.present {
				current["c"] = &Configuration{}
				for _, e := range slices.DeleteFunc(slices.Clone(tc.entries), func(e dueEntry) bool { return e.kind == "a-new" }) {
					current["c"].Webhooks = append(current["c"].Webhooks, e.Entry)
				}
			}
			got, err := leftOut(tc.entries, current)
			require.NoError(t, err)
			for _, why := range got {
				assert.Less(t, len(why), 512, "We should say why in few words.")
			}
			assert.Equal(t, tc.want, slices.Sorted(maps.Keys(got)), tc.reason)
		})
	}
}

// large gives a claim kind the longest paths that its schema allows.
func large(k *v1beta1.ClaimKind) {
	for i := range 16 {
		path := v1beta1.FieldPath(strings.Repeat("."+strings.Repeat("a", 24), 9) + fmt.Sprintf(".%024d", i))
		k.Spec.Claims.SkipIfSet = append(k.Spec.Claims.SkipIfSet, v1beta1.Place{Path: path})
	}
}

// TestTooManyEntries has more and larger registrations than etcd takes in one object.
func TestTooManyEntries(t *testing.T) {
	ca := newCA(t)
	c := &controllertest.Cached{Configuration: configurationWith(v1beta1.LastConfiguration)}
	for i := range 40 {
		c.ClaimKinds = append(c.ClaimKinds, claimKind(fmt.Sprintf("kind%02d", i), large, ofResource(
			"a.example.org", v1beta1.FieldPath(fmt.Sprintf(".spec.ref%02d", i)),
		),
			func(k *v1beta1.ClaimKind) { k.CreationTimestamp = metav1.Unix(int64(100-i), 0) })) // The last by name is the oldest.
	}
	w := newConfigurator(t, c, ca)
	var notified []string
	w.ClaimEntries().OnChange(t.Context(), func(kind string) { notified = append(notified, kind) })

	assert.Zero(t, roundOfClaims(t, w), "We should not look again and again: nothing changes by that.")
	require.Len(t, c.Applied, 1, "We should write the others.")
	entries := c.Applied[0].Webhooks
	assert.Less(t, len(entries), len(c.ClaimKinds), "We should leave some out.")
	assert.Greater(t, len(entries), 10, "We should leave out no more than has to be.")
	for _, e := range entries {
		assert.Equal(t, ca, e.ClientConfig.CABundle, "We should write the CA.")
	}
	assert.Equal(t, "kind00.bind.classbind.io", entries[0].Name, "We should keep the first by name.")
	fit, out := len(entries), len(c.ClaimKinds)-len(entries)
	assert.Equal(t, fmt.Sprintf("kind%02d.bind.classbind.io", fit-1), entries[fit-1].Name, "We should leave out the last by name, though they are the oldest.")
	for i := range c.ClaimKinds {
		assert.Equal(t, i >= fit, w.claims.TooLarge(c.ClaimKinds[i].Name) != "", "We should say of which kinds there is no entry.")
	}
	assert.Len(t, notified, out, "We should have the status of those written.")

	roundOfClaims(t, w)
	assert.Len(t, notified, out, "We should have it written once.")

	c.ClaimKinds = c.ClaimKinds[:fit]
	roundOfClaims(t, w)
	for i := range c.ClaimKinds {
		assert.Empty(t, w.claims.TooLarge(c.ClaimKinds[i].Name), "We should leave out none where all fit.")
	}
	assert.Len(t, notified, 2*out)
}

// TestRulesInTime has more kinds whose API server does not answer than a round can look up.
func TestRulesInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, before := time.Now(), &rule{}
		rules, err := rulesOf(t.Context(), make([]v1beta1.ClassKind, 500), func(ctx context.Context, _ *v1beta1.ClassKind) (*rule, error) {
			select {
			case <-ctx.Done():
			case <-time.After(registry.LookUpTimeout):
			}
			return before, context.DeadlineExceeded
		})
		waits := (*retryLater)(nil)
		require.ErrorAs(t, err, &waits, "We should look again.")
		assert.True(t, waits.oneEntry)
		assert.Less(t, time.Since(start), roundTimeout/2, "We should leave the time to write the entries.")
		for _, r := range rules {
			assert.Same(t, before, r, "We should keep what was there before.")
		}
	})
}

// TestSizeOf compares our estimate for the fields of an entry with what an API server records.
func TestSizeOf(t *testing.T) {
	converter := applyconfigurations.NewTypeConverter(scheme.Scheme)
	w := Address{Namespace: "classbind-system", Service: "classbind"}
	largest := claimKind(strings.Repeat("a", 200)+".example.org", large)
	largest.Spec.Claims.NamespaceSelector = v1beta1.LabelSelector{MatchLabels: map[string]v1beta1.LabelValue{"team": "a", "tier": "gold"}}
	for name, k := range map[string]*v1beta1.ClaimKind{"Small": new(claimKind("claims.example.org")), "Large": &largest} {
		for _, w.URL = range []string{"", "https://localhost:9443"} {
			e := w.claimEntry(k, rule{}, newCA(t), "")
			size, err := sizeOf(k.Name, &e)
			require.NoError(t, err)
			configuration := &admissionregistrationv1.MutatingWebhookConfiguration{
				TypeMeta: metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "MutatingWebhookConfiguration"}, Webhooks: []Entry{e},
			}
			value, err := converter.ObjectToTyped(configuration)
			require.NoError(t, err)
			set, err := value.ToFieldSet()
			require.NoError(t, err)
			fields, err := set.ToJSON()
			require.NoError(t, err)
			t.Logf("%s: %d bytes are reckoned; etcd stores %d and %d of fields", name, size, configuration.Size(), len(fields))
			assert.Greater(t, size, configuration.Size()+len(fields), "We should reckon no less than what is stored.")
			assert.Less(t, size, 2*(configuration.Size()+len(fields)), "We should not leave out what would fit.")
		}
	}
}

// TestSizeOfDeep fills a configuration with entries. The times are what an API server's
// code took to compile one of them, on a busy machine.
func TestSizeOfDeep(t *testing.T) {
	const writing = 34 * time.Second // The API server's limit for a write.
	w := Address{Namespace: "classbind-system", Service: "classbind"}
	deep := v1beta1.FieldPath(strings.Repeat(".a", 10))
	claims := controllertest.NewClaimKind("claims.example.org")
	claims.Spec.Claims.SkipIfSet = slices.Repeat([]v1beta1.Place{{Path: deep}}, 16)
	classes := classKind("classes.example.org", "")
	classes.Spec.Default, classes.Spec.Weight = v1beta1.Source{Path: deep}, v1beta1.Source{Path: deep}
	for name, tc := range map[string]struct {
		entry    Entry
		measured time.Duration // to compile it
	}{
		"Claims":  {w.claimEntry(claims, rule{}, newCA(t), ""), 16 * 13 * time.Millisecond},
		"Classes": {w.classEntry(&classes, nil, rule{}, newCA(t)), 212 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			size, err := sizeOf(claims.Name, &tc.entry)
			require.NoError(t, err)
			fit, grown := v1beta1.MaxEntriesBytes/size, v1beta1.MaxGrownEntriesBytes/size
			t.Logf("%d bytes; %d fit, which take %s, or %s grown", size, fit, time.Duration(fit)*tc.measured, time.Duration(grown)*tc.measured)
			assert.Less(t, time.Duration(grown)*tc.measured, writing/4, "We should not have the API server compile the deepest kinds until it gives up.")
			assert.GreaterOrEqual(t, fit, 10, "We should leave out no more than has to be.")
			assert.LessOrEqual(t, size, v1beta1.MaxEntryBytes, "We should have room for one.")
		})
	}
}
