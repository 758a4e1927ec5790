package registry

import (
	"errors"

	ctrl "sigs.k8s.io/controller-runtime"
)

// Followed is a resource that is followed while the API server serves it.
type Followed struct {
	// Withdraw what is known, because the API server does not serve the resource.
	Withdraw func(why error)
	// Unanswered means that the API server did not say what it serves. What is known stays.
	Unanswered func(why error)
	// Follow the resource that was found. It is false if the API server answers the watch
	// with 404: it lists the resource, so one of the two is about to change.
	Follow func() (served bool, err error)
}

// LookedUp goes on after a look-up of the resource, and returns when to look it up again.
func (f Followed) LookedUp(err error) (ctrl.Result, error) {
	switch {
	case NotInstalledOrUnsuitable(err):
		f.Withdraw(err)
		return ctrl.Result{RequeueAfter: RetryAfter}, nil
	case errors.Is(err, ErrCRDNotServed):
		f.Unanswered(err)
		return ctrl.Result{RequeueAfter: RetryCRDAfter}, nil
	case err != nil:
		f.Unanswered(err)
		return ctrl.Result{}, err
	}
	if served, err := f.Follow(); err != nil || served {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: RetryCRDAfter}, nil
}
