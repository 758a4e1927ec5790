package latebinding

import (
	"errors"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/controller/loop"
	"github.com/classbind/classbind/selector/truncate"
)

// panicText tells an author about a panic. The details are in our log.
const panicText = "classbind failed because of a bug: see its log"

// textFor is the text of an error for the author of a claim.
func textFor(err error) string {
	if errors.Is(err, loop.ErrPanic) {
		return panicText
	}
	return truncate.String(truncate.Error(err).Error(), v1alpha1.MaxMessageBytes)
}
