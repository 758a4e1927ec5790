package cluster

import (
	"fmt"

	"github.com/classbind/classbind/api/v1beta1"
)

// CheckBindable returns why no webhook can write the reference of a claim kind, nil if one can. The admission plugin Priority runs before
// webhooks. It gives a pod without a PriorityClass the default priority, and refuses one whose priority is not that of its class.
func CheckBindable(k *v1beta1.ClaimKind) error {
	if k.Resource() == "pods" && k.Spec.Reference.Path == ".spec.priorityClassName" {
		return fmt.Errorf("%w: the API server sets the priority of a pod before it asks webhooks, by its PriorityClass or by "+
			"the default one, and it would refuse a pod that gets another class after that: mark a PriorityClass with globalDefault",
			ErrUnsuitable)
	}
	return nil
}
