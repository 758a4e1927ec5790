package inventory

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/rules"
	"github.com/classbind/classbind/selector/truncate"
)

// Revision of a registration. A registration that is created again has another uid.
type Revision struct {
	UID        types.UID
	Generation int64
}

// RevisionOf a ClaimKind or ClassKind.
func RevisionOf(registration metav1.Object) Revision {
	return Revision{UID: registration.GetUID(), Generation: registration.GetGeneration()}
}

// Fault of a registration: the reason of its Ready condition, and a text.
type Fault struct{ Reason, Text string }

// Faultf is a fault with a text as fmt formats it.
func Faultf(reason, format string, args ...any) *Fault {
	return &Fault{reason, fmt.Sprintf(format, args...)}
}

func (f *Fault) Error() string { return f.Text }

// FaultOf a registration with invalid expressions, nil if there are none.
func FaultOf(what, name string, invalid []rules.Invalid) *Fault {
	if len(invalid) == 0 {
		return nil
	}
	texts := make([]string, 0, v1beta1.MaxErrors)
	for _, i := range invalid[:min(len(invalid), v1beta1.MaxErrors)] {
		texts = append(texts, i.Error())
	}
	return Faultf(v1beta1.ReasonInvalidExpression, "%s %q: %s", what, name,
		truncate.String(strings.Join(texts, "; "), 2*v1beta1.MaxMessageBytes))
}
