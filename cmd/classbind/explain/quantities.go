package explain

import (
	"maps"
	"slices"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/near"
	"github.com/classbind/classbind/selector/rules"
)

// usages finds the quantities that a ClaimKind names, and none of the ClassKinds that serve it has.
func (l *linter) usages(k *v1beta1.ClaimKind) {
	has := map[string]bool{}
	for _, ck := range rules.Serving(k, l.ClassKinds) {
		for _, of := range ck.Spec.Capacity {
			has[string(of.Name)] = true
		}
	}
	for _, of := range k.Spec.Classes.Usage {
		if name := string(of.Name); len(has) > 0 && !has[name] {
			l.find(ruleQuantity, l.registration("ClaimKind", k.Name), "spec.classes.usage",
				"no class kind of the files that serves it has the quantity %q in its capacity%s",
				name, near.Meant(name, slices.Sorted(maps.Keys(has))))
		}
	}
}

// capacities finds the quantities of a ClassKind of which no claim that it serves uses anything.
func (l *linter) capacities(k *v1beta1.ClassKind) {
	used, served := map[string]bool{v1beta1.ClaimsQuantity: true}, rules.Served(k, l.ClaimKinds)
	for _, claimKind := range served {
		for _, of := range claimKind.Spec.Classes.Usage {
			used[string(of.Name)] = true
		}
	}
	for _, of := range k.Spec.Capacity {
		if name := string(of.Name); len(served) > 0 && !used[name] {
			l.find(ruleQuantity, l.registration("ClassKind", k.Name), "spec.capacity",
				"no claim kind of the files says in classes.usage how much its claims use of the quantity %q: they use none%s",
				name, near.Meant(name, slices.Sorted(maps.Keys(used))))
		}
	}
}
