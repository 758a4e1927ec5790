package race

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestOutcomeOf(t *testing.T) {
	answered := func(code int32, message string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Message: message}}
	}
	const guard = `admission webhook "as.race.test.guard.classbind.io" denied the request: as.race.test "mine" is forbidden: `
	for name, tc := range map[string]struct {
		reason string
		err    error
		want   Outcome
	}{
		"Accepted": {"We should know what was accepted.", nil, Accepted},
		"Default":  {"We should find the default that is named.", answered(403, guard+`"A/theirs" is the default class for "xs.race.test" already`), NamedDefault},
		"Time": {
			"We should find the time that is named.", answered(403, guard+`"as.race.test/new" is being made the default class: try again in 42 s`),
			NamedTime,
		},
		"NoTime":     {"We should not take 0 s for a time.", answered(403, guard+`try again in 0 s`), NamedNothing},
		"NotDefault": {"We should not be content with a class that was never default.", answered(403, guard+`"A/other" is the default class`), NamedNothing},
		"Itself":     {"We should not be content with the class itself.", answered(403, guard+`"A/mine" is the default class`), NamedNothing},
		"Other":      {"We should know the second webhook.", answered(403, `admission webhook "`+saboteurName+`" denied the request`), RefusedByOther},
		"Exists":     {"We should know a class that is there already.", answered(409, guard+"already exists"), Overtaken},
		"Gone":       {"We should know a class that is gone.", answered(404, "not found"), Overtaken},
		"Killed":     {"We should know a webhook that did not answer.", answered(500, `failed calling webhook "as.race.test.guard.classbind.io": EOF`), Unanswered},
		"Broken":     {"We should know an API server that did not answer.", errors.New("stream error"), Unanswered},
		"Malformed":  {"We should expect no other refusal.", answered(422, guard+"invalid"), Unexpected},
		"Forbidden":  {"We should expect no refusal by others.", answered(403, "no such right"), Unexpected},
		"Cancelled":  {"We should not blame the API server for what we ended.", context.Canceled, Unexpected},
	} {
		t.Run(name, func(t *testing.T) {
			defaults := map[Class]bool{{"A", "mine"}: true, {"A", "theirs"}: true}
			assert.Equal(t, tc.want, outcomeOf(tc.err, Class{"A", "mine"}, defaults), tc.reason)
		})
	}
}
