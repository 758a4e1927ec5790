package e2e

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/api/v1beta1"
)

// TestComposition has ClaimKinds name a class kind that names only one of them.
func TestComposition(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	const group, other = "composed.test", "composing.test"
	const classes, named, naming = "classes." + group, "claims." + group, "claims." + other
	w.register(t, group, "{}", class(group, "Class", "only", ""))
	w.resources(t, "Claim "+naming+" Namespaced")
	w.apply(t, lateVendor(other)+claimKind(naming, fmt.Sprintf("{classes: {kinds: [{name: %s}]}}", classes)))
	w.awaitClaims(t, naming)
	w.awaitBound(t, claim(other, "bound"), "Class/only", "We should offer the classes of a kind to the claims that name it.")
	w.awaitBound(t, claim(group, "bound"), "Class/only", "We should go on for the claims that the kind names.")

	w.apply(t, claimKind(naming, fmt.Sprintf("{classes: {kinds: [{name: %s}, {name: absents.%s}]}}", classes, other)))
	w.awaitCondition(t, &v1beta1.ClaimKind{}, naming, v1beta1.ConditionClassKindsRead, metav1.ConditionFalse, `"absents.composing.test": correct the name`)
	w.kubectl(t, "delete", "claimkind", named)
	w.apply(t, classKind(classes, "{}"))
	w.awaitCondition(t, &v1beta1.ClassKind{}, classes, v1beta1.ConditionClaimKindsRegistered, metav1.ConditionTrue, "")
	w.awaitBound(t, claim(other, "alone"), "Class/only", "We should need no name on the other side.")
	w.awaitGuard(t, group, "Class", classes)
	w.created(t, class(group, "Class", "first", isDefault))
	w.refuses(t, class(group, "Class", "second", isDefault), `is the default class for "`+naming+`"`, "We should guard the default of claims that name the kind.")

	w.apply(t, claimKind(naming, "{}"))
	w.awaitCondition(t, &v1beta1.ClassKind{}, classes, v1beta1.ConditionClaimKindsRegistered, metav1.ConditionFalse, "spec.classes.kinds")
	w.awaitBound(t, claim(other, "unserved"), "", "We should offer no classes that neither side names any more.")
}
