package webhookconfig

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/truncate"
)

// disputes with other clients, by what they change of what the leader writes. It is put back at once, and the next time after a pause,
// which doubles: two writers that overwrite each other must not load the API server.
type disputes map[string]dispute

type dispute struct {
	who   string
	pause time.Duration
	until time.Time // when the pause ends
}

// left is how long not to put something back yet, and what to say of it.
func (all disputes) left(what string) (time.Duration, string) {
	d := all[what]
	if left := time.Until(d.until); left > 0 {
		return left, fmt.Sprintf("%s changes what classbind writes, which puts it back, but waits longer each time, up to %s",
			d.who, v1beta1.MaxDisputePause)
	}
	return 0, ""
}

// putBack begins the next pause. One that ended long ago does not count.
func (all *disputes) putBack(ctx context.Context, what string, by []metav1.ManagedFieldsEntry) {
	d := (*all)[what]
	if time.Since(d.until) > 2*v1beta1.MaxDisputePause {
		d.pause = v1beta1.MinDisputePause / 2
	}
	d.who, d.pause = lastOther(by), min(2*d.pause, v1beta1.MaxDisputePause)
	d.until = time.Now().Add(d.pause)
	if *all == nil {
		*all = disputes{}
	}
	(*all)[what] = d
	logf.FromContext(ctx).Info("Another client changed what classbind writes, which was put back",
		"object", what, "by", d.who, "nextAfter", d.pause)
}

// lastOther is the other field manager that last wrote the fields that we write, as an API server recorded it.
func lastOther(all []metav1.ManagedFieldsEntry) string {
	last := metav1.ManagedFieldsEntry{}
	for _, f := range all {
		fields := ""
		if f.FieldsV1 != nil {
			fields = f.FieldsV1.GetRawString()
		}
		isOurs := strings.Contains(fields, `"f:webhooks"`) || strings.Contains(fields, `"f:spec"`)
		if f.Manager != v1beta1.FieldManager && isOurs && !f.Time.Before(last.Time) {
			last = f
		}
	}
	if last.Manager == "" {
		return "another client" // Who only removes fields owns none.
	}
	return fmt.Sprintf("the field manager %q", truncate.String(last.Manager, v1beta1.MaxShownBytes))
}

// keep returns the entries that are due with the terms that others added to those that were written. It names their kinds.
func (e *Entries) keep(ctx context.Context, wrote, due []Entry, current *Configuration, others map[string]string) []Entry {
	kept := slices.Clone(due)
	for i, d := range due {
		stored, before := entryNamed(current.Webhooks, d.Name), entryNamed(wrote, d.Name)
		if stored == nil || before == nil {
			continue
		}
		kept[i].NamespaceSelector = keepTerms(d.NamespaceSelector, before.NamespaceSelector, stored.NamespaceSelector)
		kept[i].ObjectSelector = keepTerms(d.ObjectSelector, before.ObjectSelector, stored.ObjectSelector)
		if kind := registered(d.Name); !equality.Semantic.DeepEqual(kept[i], d) {
			others[kind] = lastOther(current.ManagedFields) + " adds terms to its selectors in the webhook configuration, which are kept"
			if e.Others(kind) != others[kind] {
				logf.FromContext(ctx).Info("Another client added terms to the selectors of an entry, which are kept",
					"entry", d.Name, "because", others[kind])
			}
		}
	}
	return kept
}

// pause reports whether not to put a configuration back yet, and says so of the kinds of its entries.
func (e *Entries) pause(in string, due []Entry, others map[string]string) bool {
	left, what := e.disputes.left(in)
	if left > 0 {
		e.again = cmp.Or(min(e.again, left), left)
		for _, d := range due {
			others[registered(d.Name)] = what
		}
	}
	return left > 0
}

// registered is the name of the kind that an entry is for.
func registered(entry string) string {
	for _, suffix := range ourSuffixes {
		entry = strings.TrimSuffix(entry, suffix)
	}
	return entry
}

func entryNamed(all []Entry, name string) *Entry {
	if i := slices.IndexFunc(all, func(e Entry) bool { return e.Name == name }); i >= 0 {
		return &all[i]
	}
	return nil
}

// keepTerms returns a selector with all terms that are due, and those of the stored one that we did not write. They stay in the stored
// order: another order would be a change.
func keepTerms(due, wrote, stored *metav1.LabelSelector) *metav1.LabelSelector {
	if stored == nil || len(stored.MatchExpressions)+len(stored.MatchLabels) == 0 {
		return due
	}
	due, wrote = cmp.Or(due, &metav1.LabelSelector{}), cmp.Or(wrote, &metav1.LabelSelector{})
	has := func(terms []metav1.LabelSelectorRequirement, term metav1.LabelSelectorRequirement) bool {
		return slices.ContainsFunc(terms, func(t metav1.LabelSelectorRequirement) bool { return equality.Semantic.DeepEqual(t, term) })
	}
	kept := stored.DeepCopy()
	kept.MatchExpressions = slices.DeleteFunc(kept.MatchExpressions, func(t metav1.LabelSelectorRequirement) bool {
		return has(wrote.MatchExpressions, t) && !has(due.MatchExpressions, t)
	})
	for _, term := range due.MatchExpressions {
		if !has(kept.MatchExpressions, term) {
			kept.MatchExpressions = append(kept.MatchExpressions, term)
		}
	}
	maps.DeleteFunc(kept.MatchLabels, func(label, _ string) bool { return wrote.MatchLabels[label] != "" })
	kept.MatchLabels = labels.Merge(kept.MatchLabels, due.MatchLabels)
	return kept
}
