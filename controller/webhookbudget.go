package controller

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	admissionregistrationac "k8s.io/client-go/applyconfigurations/admissionregistration/v1"

	"github.com/classbind/classbind/api/v1alpha1"
)

const (
	// entryFieldsBytes and conditionFieldsBytes are what the API server records of
	// the fields of an entry, and of each of its match conditions, beside its name.
	entryFieldsBytes     = 640
	conditionFieldsBytes = 96
)

// sized is an entry that is to be in a webhook configuration.
type sized struct {
	kind    string // that is registered
	created time.Time
	present bool // in the configuration already
	bytes   int
}

// sizeOf an entry of a kind, with these match conditions: the bytes that are stored,
// or what the conditions take to compile, if that is more.
func sizeOf(kind string, entry any, conditions []admissionregistrationac.MatchConditionApplyConfiguration) (int, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // Expressions are full of &&, and etcd has no JSON.
	if err := e.Encode(entry); err != nil {
		return 0, fmt.Errorf("cannot encode the entry of %q: %w", kind, err)
	}
	compiled := 0
	for _, c := range conditions {
		compiled += compiledBytes(*c.Expression)
	}
	return max(b.Len()+len(kind)+entryFieldsBytes+len(conditions)*conditionFieldsBytes, compiled), nil
}

// compiledBytes are what an expression counts at least. The time in which an API
// server compiles it depends on how often it looks into a map, n times, and not on
// the length of the names: about 0.7 µs × n(n+100) of CPU, which is 14 ms for the
// deepest path of a claim (n = 100) and 180 ms for those of a class (n = 460).
// So counted, 1 MiB takes about 5 s.
func compiledBytes(expression string) int {
	n := strings.Count(expression, "[") // No name has it.
	return n * (n + 100) / 6
}

// leftOut are the kinds whose entries are too large, or do not fit beside those of
// kinds that were registered before, and why.
func leftOut(entries []sized) map[string]string {
	out := map[string]string{}
	slices.SortFunc(entries, func(a, b sized) int {
		return cmp.Or(a.created.Compare(b.created), strings.Compare(a.kind, b.kind))
	})
	total := 0
	for _, e := range entries {
		own, most := v1alpha1.MaxEntryBytes, v1alpha1.MaxEntriesBytes
		if e.present {
			own, most = v1alpha1.MaxGrownEntryBytes, v1alpha1.MaxGrownEntriesBytes
		}
		switch {
		case e.bytes > own:
			out[e.kind] = fmt.Sprintf("its entry in the webhook configuration would count as %d bytes, and %d are allowed: shorten the paths of the registration, or its namespaceSelector", e.bytes, own)
		case total+e.bytes > most:
			out[e.kind] = fmt.Sprintf("the webhook configuration has no room for its entry, which counts as %d bytes, beside those of kinds that were registered before, which count as %d of %d: shorten the paths and namespaceSelectors of registrations, or delete some", e.bytes, total, most)
		default:
			total += e.bytes
		}
	}
	return out
}

// leave entries out of a configuration, and have the status of those written of
// which that is news.
func (r *rounds) leave(out map[string]string, notify func(kind string)) {
	before := r.leftOut.Swap(&out)
	if before == nil {
		before = &map[string]string{}
	}
	changed := maps.Clone(out)
	maps.Copy(changed, *before)
	for kind := range changed {
		if (*before)[kind] != out[kind] {
			notify(kind)
		}
	}
}

// tooLarge is why a kind has no entry for want of room, empty if it is not for that.
func (r *rounds) tooLarge(kind string) string {
	if out := r.leftOut.Load(); out != nil {
		return (*out)[kind]
	}
	return ""
}
