package status

import (
	"context"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
)

const (
	mutating   = "mutatingwebhookconfigurations"
	validating = "validatingwebhookconfigurations/" + v1beta1.ClassConfiguration
)

// checkEntries reports whether the API server asks classbind about every registered kind. What an entry
// says is for the leader, which undoes every edit.
func checkEntries(_ context.Context, i *installation, s *Section) {
	if known(i.claimEntriesErr, mutating, s) {
		for _, name := range []string{v1beta1.FirstConfiguration, v1beta1.LastConfiguration} {
			if i.claimEntries[name] == nil {
				notDeployed(mutating+"/"+name, s)
			}
		}
		for n := range i.claimKinds {
			k := &i.claimKinds[n]
			in, ready := k.Spec.Admission.Order.Configuration(), isTrue(k.Status.Conditions, v1beta1.ConditionReady)
			if ready && i.claimEntries[in] != nil && i.claimEntries.ClaimEntry(k.Name) == nil {
				s.found(mutating+"/"+in, missingEntry("claimkind/"+k.Name), "claims of %s are not bound: it has no entry", k.Name)
			}
		}
	}
	if known(i.classEntriesErr, validating, s) {
		for n := range i.classKinds {
			k := &i.classKinds[n]
			guards := func(e admissionregistrationv1.ValidatingWebhook) bool { return e.Name == k.Name+v1beta1.GuardSuffix }
			if isTrue(k.Status.Conditions, v1beta1.ConditionGuarded) && !slices.ContainsFunc(i.classEntries.Webhooks, guards) {
				s.found(validating, missingEntry("classkind/"+k.Name),
					"a second default class of %s is not refused: it has no entry", k.Name)
			}
		}
	}
	count := func(entries int, err error, of string) string {
		if client.IgnoreNotFound(err) != nil {
			return notRead + " " + of
		}
		return fmt.Sprintf("%d %s", entries, of)
	}
	ofClasses := slices.DeleteFunc(slices.Clone(i.classEntries.Webhooks), func(e admissionregistrationv1.ValidatingWebhook) bool {
		return e.Name == v1beta1.RegistrationEntry
	})
	s.Summary = count(len(i.claimEntries.Entries()), i.claimEntriesErr, "for claims") + ", " +
		count(len(ofClasses), i.classEntriesErr, "for classes")
}

// isTrue leaves it to the section of kinds to say why a condition is not.
var isTrue = meta.IsStatusConditionTrue

// known reports whether a webhook configuration was read.
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
