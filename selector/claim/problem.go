package claim

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/classbind/classbind/api/v1beta1"
)

// problems of a claim. No more are collected than are reported.
type problems struct {
	at   *field.Path
	list field.ErrorList
}

// add one, and report whether to look for more.
func (p *problems) add(err *field.Error) bool {
	if len(p.list) < v1beta1.MaxErrors {
		p.list = append(p.list, err)
		return true
	}
	last := len(p.list) - 1
	p.list[last] = field.Forbidden(p.at, fmt.Sprintf("there are more errors than these %d: correct them, and try again", last))
	return false
}

// tooMany is the error for more than limit of what, such as requirements.
func tooMany(at *field.Path, has any, limit int, what string) *field.Error {
	return &field.Error{
		Type: field.ErrorTypeTooMany, Field: at.String(), BadValue: has,
		Detail: fmt.Sprintf("must have at most %d %s", limit, what),
	}
}

// tooLong is the error for a selector with too many bytes; has is all that is known of
// their number.
func tooLong(at *field.Path, has string) *field.Error {
	return &field.Error{
		Type: field.ErrorTypeTooLong, Field: at.String(),
		Detail: fmt.Sprintf("has %s bytes, and must have at most %d", has, v1beta1.MaxSelectorBytes),
	}
}
