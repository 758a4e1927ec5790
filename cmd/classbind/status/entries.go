package status

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/controller/webhookconfig"
	"github.com/classbind/classbind/selector"
)

const (
	mutating   = "mutatingwebhookconfigurations"
	validating = "validatingwebhookconfigurations/" + v1alpha1.ClassConfiguration
)

// checkEntries reports whether the API server asks classbind about every registered kind, by an entry
// without the edits of others. It ignores where entries are called: only the leader knows its flags, and
// it undoes such an edit.
func checkEntries(_ context.Context, i *installation, s *Section) {
	writer := &webhookconfig.Configurator{Namespace: i.own}
	if known(i.claimEntriesErr, mutating, s) {
		i.checkClaimEntries(writer, v1alpha1.FirstConfiguration, s)
		i.checkClaimEntries(writer, v1alpha1.LastConfiguration, s)
	}
	if known(i.classEntriesErr, validating, s) {
		i.checkClassEntries(writer, s)
	}
	count := func(entries int, err error, of string) string {
		if client.IgnoreNotFound(err) != nil {
			return notRead + " " + of
		}
		return fmt.Sprintf("%d %s", entries, of)
	}
	s.Summary = count(len(i.claimEntries.Entries()), i.claimEntriesErr, "for claims") + ", " +
		count(len(i.classEntries.Webhooks), i.classEntriesErr, "for classes")
}

// checkClaimEntries checks those of one configuration.
func (i *installation) checkClaimEntries(writer *webhookconfig.Configurator, configuration string, s *Section) {
	where := mutating + "/" + configuration
	if i.claimEntries[configuration] == nil {
		notDeployed(where, s)
		return
	}
	kept, changed := map[string]bool{}, edits{}
	for n := range i.claimKinds {
		k := &i.claimKinds[n]
		if due := k.Spec.Order.Configuration(); due != configuration {
			// Where the other configuration lacks the entry, that is found there.
			kept[k.Name+v1alpha1.BindSuffix] = i.claimEntries.Entry(due, k.Name) == nil
			continue
		}
		kept[k.Name+v1alpha1.BindSuffix] = true
		e, found := i.claimEntries.Entry(configuration, k.Name), i.served["claimkind/"+k.Name]
		switch {
		case found.err != nil: // The section of kinds says so.
		case e != nil:
			due, err := writer.StoredClaimEntry(k, found.Resource, nil)
			due.ClientConfig = e.ClientConfig
			if err == nil && webhookconfig.WithoutRefused(due, e) {
				s.note("claimkind/%s: the API server does not evaluate spec.bindWhen, so it calls classbind for every claim", k.Name)
			}
			changed.compare(e.Name, due, e, err, s)
		case i.claimEntries.EntryOf(k.Name) != nil:
			s.found(where, missingEntry("claimkind/"+k.Name),
				"claims of %s are bound in the order of the other configuration, which has the entry", k.Name)
		case meta.IsStatusConditionTrue(k.Status.Conditions, v1alpha1.ConditionReady): // Otherwise the section of kinds says why.
			s.found(where, missingEntry("claimkind/"+k.Name), "claims of %s are not bound: it has no entry", k.Name)
		}
	}
	changed.report(where, s)
	for _, e := range i.claimEntries[configuration].Webhooks {
		s.leftover(where, e.Name, kept)
	}
}

func (i *installation) checkClassEntries(writer *webhookconfig.Configurator, s *Section) {
	kept, changed := map[string]bool{}, edits{}
	for n := range i.classKinds {
		k := &i.classKinds[n]
		kept[k.Name+v1alpha1.GuardSuffix] = true
		e, found := webhookconfig.ClassEntryOf(&i.classEntries, k.Name), i.served["classkind/"+k.Name]
		switch {
		case found.err != nil: // The section of kinds says so.
		case e != nil:
			due, err := writer.StoredClassEntry(k, i.claimKinds, found.Resource, nil)
			due.ClientConfig = e.ClientConfig
			changed.compare(e.Name, due, e, err, s)
		case meta.IsStatusConditionTrue(k.Status.Conditions, v1alpha1.ConditionGuarded): // Otherwise the section of kinds says why.
			s.found(validating, missingEntry("classkind/"+k.Name), "a second default class of %s is not refused: it has no entry", k.Name)
		}
		if !webhookconfig.DeletionsReviewed(k, i.claimKinds) {
			continue
		}
		kept[k.Name+v1alpha1.DeletionSuffix] = true
		switch deletion := webhookconfig.DeletionEntryOf(&i.classEntries, k.Name); {
		case found.err != nil || e == nil: // That is said already, or it needs neither.
		case deletion == nil:
			s.found(validating, missingEntry("classkind/"+k.Name),
				"nobody is warned who deletes a class of %s that claims have: it has no entry", k.Name)
		default:
			due, err := writer.StoredDeletionEntry(k, found.Resource, nil)
			due.ClientConfig = deletion.ClientConfig
			changed.compare(deletion.Name, due, deletion, err, s)
		}
	}
	changed.report(validating, s)
	for _, e := range i.classEntries.Webhooks {
		s.leftover(validating, e.Name, kept)
	}
}

// known says whether a webhook configuration was read.
func known(err error, where string, s *Section) bool {
	switch {
	case apierrors.IsNotFound(err):
		notDeployed(where, s)
	case err != nil:
		s.unread(where, err)
	}
	return err == nil
}

func notDeployed(where string, s *Section) {
	s.found(where, "kubectl apply -k deploy", "there is no such configuration")
}

func missingEntry(registration string) string {
	return "the leader writes it: see the sections replicas and kinds, and kubectl describe " + registration
}

// edits are the names of entries by the fields that are not as classbind writes them.
type edits map[string][]string

// compare an entry with the one that is due. err says why that is not known.
func (c edits) compare(name string, due, entry any, err error, s *Section) {
	var fields []string
	if err == nil {
		fields, err = webhookconfig.Edited(due, entry)
	}
	switch {
	case err != nil:
		s.unread("the entry "+name, err)
	case len(fields) > 0:
		in := strings.Join(fields, ", ")
		c[in] = append(c[in], name)
	}
}

// report entries with equal edits together: whoever made them did so at once.
func (c edits) report(where string, s *Section) {
	for _, fields := range slices.Sorted(maps.Keys(c)) {
		text := "the entry %s is not as classbind writes it, in %s"
		if len(c[fields]) > 1 {
			text = "the entries %s are not as classbind writes them, in %s"
		}
		s.found(where, "undo the change, or let the leader undo it: see the section replicas; who made it says kubectl get "+
			where+" --show-managed-fields -o yaml", text, selector.List(c[fields]), fields)
	}
}

func (s *Section) leftover(where, entry string, kept map[string]bool) {
	if !kept[entry] {
		s.found(where, "the leader removes it: see the section replicas", "the entry %s is of no kind that is registered for it", entry)
	}
}
