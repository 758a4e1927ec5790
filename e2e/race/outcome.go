package race

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/classbind/classbind/api/v1beta1"
)

// Outcome of a write that is to make a class default, or to have a claim use more of one.
type Outcome int

// The outcomes, in the order in which they are reported.
const (
	// Accepted by all.
	Accepted Outcome = iota
	// NamedDefault is a refusal by the guard that names a default.
	NamedDefault
	// NamedTime is a refusal by the guard that says when to try again.
	NamedTime
	// NamedNothing is a refusal by the guard that leaves the writer alone with it.
	NamedNothing
	// Full is the refusal of a claim for which its class has no room.
	Full
	// MaybeFull is the same, for now: reservations are in the way.
	MaybeFull
	// NoClass is a claim that is stored without one.
	NoClass
	// RefusedByOther is a refusal by the second webhook, of what the guard had admitted.
	RefusedByOther
	// Overtaken by another write of the same class: it is there, is gone, or has changed.
	Overtaken
	// Unanswered, as far as the writer can tell: a replica was killed, or time ran out.
	Unanswered
	// Unexpected is anything else.
	Unexpected

	outcomes
)

func (o Outcome) String() string {
	return [outcomes]string{
		"accepted", "refused naming the default", "refused with a time to retry", "refused without a way out",
		"refused by a full class", "told to try again by a full class", "stored without a class",
		"refused by the second webhook after the guard", "overtaken", "without an answer of the webhook", "refused for no known reason",
	}[o]
}

// inChaosOnly says that nothing but a fault around the guard explains it.
func (o Outcome) inChaosOnly() bool {
	return o == RefusedByOther || o == Overtaken || o == Unanswered
}

// guarded says that the guard refused it, so that it is certain that it was not admitted.
func (o Outcome) guarded() bool { return o == NamedDefault || o == NamedTime || o == NamedNothing }

var timeToRetry = regexp.MustCompile(`try again in [1-9]\d* s`)

// outcomeOf a write to a class. A default is one that was default at some moment
// of the round: to be refused for another is to be left alone with it.
func outcomeOf(err error, class Class, defaults map[Class]bool) Outcome {
	if err == nil {
		return Accepted
	}
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		if errors.Is(err, context.Canceled) {
			return Unexpected
		}
		return Unanswered // The connection broke, or time ran out.
	}
	code, message := status.Status().Code, status.Status().Message
	switch {
	case code == http.StatusForbidden && strings.Contains(message, v1beta1.GuardSuffix):
		if timeToRetry.MatchString(message) {
			return NamedTime
		}
		for other := range defaults {
			if other != class && strings.Contains(message, fmt.Sprintf("%q", other)) {
				return NamedDefault
			}
		}
		return NamedNothing
	case code == http.StatusForbidden && strings.Contains(message, saboteurName):
		return RefusedByOther
	case code == http.StatusForbidden && strings.Contains(message, "is full"):
		return Full
	case code == http.StatusTooManyRequests && strings.Contains(message, "is full"):
		return MaybeFull
	case code == http.StatusNotFound || code == http.StatusConflict:
		return Overtaken
	case code >= http.StatusInternalServerError:
		return Unanswered
	}
	return Unexpected
}

// tally counts outcomes.
type tally [outcomes]int

func (t tally) total() int {
	total := 0
	for _, n := range t {
		total += n
	}
	return total
}

// String has what there was of.
func (t tally) String() string {
	var parts []string
	for o, n := range t {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, Outcome(o)))
		}
	}
	return fmt.Sprintf("%d writes: %s", t.total(), strings.Join(parts, ", "))
}
