package webhookconfig

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/registry"
)

// ClaimConfigurations are the names of the MutatingWebhookConfigurations, which have the entries of claim kinds.
var ClaimConfigurations = []string{v1beta1.FirstConfiguration, v1beta1.LastConfiguration}

// allConfigurations are these, and the ValidatingWebhookConfiguration with the entries of class kinds.
var allConfigurations = append(slices.Clip(ClaimConfigurations), v1beta1.ClassConfiguration)

// Entry of either kind of configuration. A ValidatingWebhook has the same fields, but for the reinvocation policy.
type Entry = admissionregistrationv1.MutatingWebhook

// Configuration of webhooks, of either kind.
type Configuration struct {
	metav1.ObjectMeta
	Webhooks []Entry
}

// Configurations by name. One that does not exist is absent.
type Configurations map[string]*Configuration

// ReadConfigurations returns those with these names that exist.
func ReadConfigurations(ctx context.Context, reader client.Reader, names ...string) (Configurations, error) {
	all := Configurations{}
	for _, name := range names {
		c := &admissionregistrationv1.MutatingWebhookConfiguration{}
		classes := &admissionregistrationv1.ValidatingWebhookConfiguration{}
		var err error
		if name == v1beta1.ClassConfiguration {
			err = reader.Get(ctx, client.ObjectKey{Name: name}, classes)
			c.ObjectMeta = classes.ObjectMeta
		} else {
			err = reader.Get(ctx, client.ObjectKey{Name: name}, c)
		}
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("cannot get the webhook configuration: %w", err)
		}
		for _, e := range classes.Webhooks {
			c.Webhooks = append(c.Webhooks, Entry{
				Name: e.Name, ClientConfig: e.ClientConfig, Rules: e.Rules, FailurePolicy: e.FailurePolicy, MatchPolicy: e.MatchPolicy,
				NamespaceSelector: e.NamespaceSelector, ObjectSelector: e.ObjectSelector, SideEffects: e.SideEffects,
				TimeoutSeconds: e.TimeoutSeconds, AdmissionReviewVersions: e.AdmissionReviewVersions, MatchConditions: e.MatchConditions,
			})
		}
		all[name] = &Configuration{c.ObjectMeta, c.Webhooks}
	}
	return all, nil
}

// ClaimEntry returns the entry of a claim kind, nil if there is none. While its order changes, there may be two, which are alike.
func (all Configurations) ClaimEntry(claimKind string) *Entry {
	name := claimKind + v1beta1.BindSuffix
	return cmp.Or(all.Entry(v1beta1.FirstConfiguration, name), all.Entry(v1beta1.LastConfiguration, name))
}

// ClaimEntryOf returns the entry of a ClaimKind in the configuration of its order, nil if there is none.
func (all Configurations) ClaimEntryOf(k *v1beta1.ClaimKind) *Entry {
	return all.Entry(k.Spec.Admission.Order.Configuration(), k.Name+v1beta1.BindSuffix)
}

// ClassEntry returns the entry of a class kind for its creations and updates, nil if there is none.
func (all Configurations) ClassEntry(classKind string) *Entry {
	return all.Entry(v1beta1.ClassConfiguration, classKind+v1beta1.GuardSuffix)
}

// Entry returns the one with a name in one configuration, nil if there is none.
func (all Configurations) Entry(configuration, name string) *Entry {
	return entryNamed(cmp.Or(all[configuration], &Configuration{}).Webhooks, name)
}

// Entries returns those of all configurations.
func (all Configurations) Entries() (entries []Entry) {
	for _, c := range all {
		entries = append(entries, c.Webhooks...)
	}
	return entries
}

// dueEntry is an entry that a configuration should have.
type dueEntry struct {
	Entry
	in       string // the name of the configuration
	kind     string // the registered kind; of a deletion entry, the entry's name
	optional bool   // It gives way to all others.
}

// write writes the entries that are due and have room into the configurations with these names. Of two configurations, one that is not
// there, or cannot be written, does not keep the other from being written. Otherwise, it returns why the entries are incomplete.
func (w *Configurator) write(
	ctx context.Context, e *Entries, current Configurations, names []string, due []dueEntry, incomplete error,
) error {
	out, err := leftOut(due, current)
	if err != nil {
		return err
	}
	e.leftOut.Set(out)
	due = slices.DeleteFunc(due, func(e dueEntry) bool { return out[e.kind] != "" })
	others := map[string]string{}
	e.again = 0
	var errs []error
	for _, in := range names {
		errs = append(errs, w.writeConfiguration(ctx, e, in, current, due, others))
	}
	e.others.Set(others)
	for _, err := range errs {
		if wait := (*retryLater)(nil); err != nil && !errors.As(err, &wait) {
			return err
		}
	}
	return cmp.Or(append(errs, incomplete)...)
}

// writeConfiguration writes the entries that are due in a configuration. It keeps one that is due in the other configuration until that has
// it, so that claims are bound while the order of their kind changes. It adds to others what other clients do to entries.
func (w *Configurator) writeConfiguration(
	ctx context.Context, e *Entries, in string, all Configurations, due []dueEntry, others map[string]string,
) error {
	var entries []Entry
	for _, e := range due {
		if e.in == in || all.Entry(in, e.Name) != nil && all.Entry(e.in, e.Name) == nil {
			entries = append(entries, e.Entry)
		}
	}
	current := all[in]
	switch {
	case current == nil && len(entries) > 0:
		why := fmt.Sprintf("there is no %s %q: apply the manifests of classbind again: %s", kindOf(in), in, cluster.InstallPage)
		return &retryLater{why, registry.RetryAfter, false, false}
	case current == nil, len(entries) == 0 && len(current.Webhooks) == 0:
		return nil
	}
	wrote, known := e.written[in]
	kept, isNew := e.keep(ctx, wrote, entries, current, others), !known || !equality.Semantic.DeepEqual(entries, wrote)
	if e.pause(in, entries, others) && !isNew {
		return nil
	}
	if err := w.remove(ctx, current, entries); err != nil {
		return writeError(err)
	}
	// With the uid and the version that were read, the API server refuses to recreate an object that was deleted meanwhile, as in an
	// uninstallation, and to overwrite what another leader wrote.
	stored, err := apply(ctx, w.Client, &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: in, UID: current.UID, ResourceVersion: current.ResourceVersion}, Webhooks: kept,
	})
	if err != nil {
		return w.withoutRefused(ctx, writeError(err), kept)
	}
	if e.written == nil {
		e.written = map[string][]Entry{}
	}
	if e.written[in] = entries; !isNew && !equality.Semantic.DeepEqual(stored.Webhooks, current.Webhooks) {
		e.disputes.putBack(ctx, in, current.ManagedFields)
		e.pause(in, entries, others)
	}
	return nil
}

// remove deletes the entries that are not due. Applying only the others is not enough if somebody else owns an entry, too, such as a client
// that restored a backup: it would stay, with an old CA, and its kind would be refused for ever. It updates the resourceVersion.
func (w *Configurator) remove(ctx context.Context, current *Configuration, due []Entry) error {
	var entries []map[string]string
	for _, stored := range current.Webhooks {
		if !slices.ContainsFunc(due, func(e Entry) bool { return e.Name == stored.Name }) {
			entries = append(entries, map[string]string{"$patch": "delete", "name": stored.Name})
		}
	}
	if len(entries) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": current.UID, "resourceVersion": current.ResourceVersion},
		"webhooks": entries,
	})
	if err != nil {
		return fmt.Errorf("cannot encode the entries to remove: %w", err)
	}
	o := &metav1.PartialObjectMetadata{ObjectMeta: current.ObjectMeta}
	o.SetGroupVersionKind(admissionregistrationv1.SchemeGroupVersion.WithKind(kindOf(current.Name)))
	err = w.Client.Patch(ctx, o, client.RawPatch(types.StrategicMergePatchType, patch), client.FieldOwner(v1beta1.FieldManager))
	current.ResourceVersion = o.ResourceVersion
	return err
}

// apply writes a configuration of either kind, whose fields classbind owns, and returns what is stored.
func apply(
	ctx context.Context, to client.Client, c *admissionregistrationv1.MutatingWebhookConfiguration,
) (stored *admissionregistrationv1.MutatingWebhookConfiguration, err error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(c)
	if err != nil {
		return nil, fmt.Errorf("cannot encode %q: %w", c.Name, err)
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(admissionregistrationv1.SchemeGroupVersion.WithKind(kindOf(c.Name)))
	err = to.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(v1beta1.FieldManager), client.ForceOwnership)
	if err != nil {
		return nil, err
	}
	stored = &admissionregistrationv1.MutatingWebhookConfiguration{}
	return stored, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, stored)
}

// writeError classifies the error of a write.
func writeError(err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return &retryLater{"the webhook configuration has changed since it was read: " + err.Error(), 200 * time.Millisecond, false, true}
	}
	return fmt.Errorf("cannot write the webhook configuration: %w", err)
}

func kindOf(configuration string) string {
	if configuration == v1beta1.ClassConfiguration {
		return "ValidatingWebhookConfiguration"
	}
	return "MutatingWebhookConfiguration"
}
