package race

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/classbind/classbind/api/v1beta1"
)

// Outcome of a write that is to make a class default, as it is reported.
type Outcome string

// The outcomes.
const (
	Accepted       Outcome = "accepted"
	NamedDefault   Outcome = "refused naming the default"
	NamedTime      Outcome = "refused with a time to retry"
	NamedNothing   Outcome = "refused without a way out"
	RefusedByOther Outcome = "refused by the second webhook after the guard"
	// Overtaken by another write of the same class: it is there, is gone, or has changed.
	Overtaken Outcome = "overtaken"
	// Unanswered, as far as the writer knows: a replica was killed, or time ran out.
	Unanswered Outcome = "without an answer of the webhook"
	Unexpected Outcome = "refused for no known reason"
)

// inChaosOnly reports whether nothing but a fault around the guard explains it.
func (o Outcome) inChaosOnly() bool {
	return o == RefusedByOther || o == Overtaken || o == Unanswered
}

// guarded reports whether the guard refused it, so that it is certain that it was not admitted.
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
	case code == http.StatusNotFound || code == http.StatusConflict:
		return Overtaken
	case code >= http.StatusInternalServerError:
		return Unanswered
	}
	return Unexpected
}

// tally counts outcomes.
type tally map[Outcome]int

// total of the writes, and the outcomes that there were.
func (t tally) total() (total int, what string) {
	for _, o := range slices.Sorted(maps.Keys(t)) {
		total += t[o]
		what += fmt.Sprintf(", %d %s", t[o], o)
	}
	return total, fmt.Sprintf("%d writes%s", total, what)
}
