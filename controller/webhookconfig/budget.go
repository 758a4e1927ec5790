package webhookconfig

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/classbind/classbind/api/v1beta1"
)

const (
	// entryFieldsBytes and conditionFieldsBytes are what the API server stores in
	// managedFields for an entry, and for each of its match conditions, beside its name.
	entryFieldsBytes     = 640
	conditionFieldsBytes = 96
)

// sizeOf returns what an entry counts: the bytes that are stored, or what its match conditions take to compile, if that is more.
func sizeOf(kind string, entry *Entry) (int, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // Expressions are full of &&, and etcd does not store JSON.
	if err := e.Encode(entry); err != nil {
		return 0, fmt.Errorf("cannot encode the entry of %q: %w", kind, err)
	}
	compiled := 0
	for _, c := range entry.MatchConditions {
		compiled += compiledBytes(c)
	}
	return max(b.Len()+len(kind)+entryFieldsBytes+len(entry.MatchConditions)*conditionFieldsBytes, compiled), nil
}

// compiledBytes is what an expression counts at least. The time that an API server takes to compile it depends on n, the number of its map
// look-ups, and not on the length of the names: about 0.7 µs × n(n+100) of CPU, which is 14 ms for the deepest path of a claim (n = 100)
// and 180 ms for those of a class (n = 460). Counted like this, 1 MiB takes about 5 s. An author of claims.when looks up by dots, too, and
// calls functions.
func compiledBytes(c admissionregistrationv1.MatchCondition) int {
	n := strings.Count(c.Expression, "[") // No name contains it.
	if isBindWhen(c) {
		n += strings.Count(c.Expression, ".") + strings.Count(c.Expression, "(")
	}
	return n * (n + 100) / 6
}

// leftOut returns the kinds whose entries are too large, or do not fit into their
// configuration beside those that are there and those of kinds that come first by name, each with the reason.
func leftOut(due []dueEntry, current Configurations) (out map[string]string, err error) {
	rank := func(e dueEntry) (rank int) {
		if e.optional {
			rank += 2
		}
		if current.Entry(e.in, e.Name) == nil { // It takes no room of a kind that is served.
			rank++
		}
		return rank
	}
	due = slices.SortedFunc(slices.Values(due), func(a, b dueEntry) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(a.kind, b.kind))
	})
	out = map[string]string{}
	totals := map[string]int{}
	for _, e := range due {
		size, err := sizeOf(e.kind, &e.Entry)
		if err != nil {
			return nil, err
		}
		own, most := v1beta1.MaxEntryBytes, v1beta1.MaxEntriesBytes
		if current.Entry(e.in, e.Name) != nil {
			own, most = v1beta1.MaxGrownEntryBytes, v1beta1.MaxGrownEntriesBytes
		}
		switch total := totals[e.in]; {
		case size > own:
			out[e.kind] = fmt.Sprintf("its entry in the webhook configuration would count as %d bytes, and %d are allowed: "+
				"shorten the paths of the registration, or the namespaceSelector of a ClaimKind", size, own)
		case total+size > most:
			out[e.kind] = fmt.Sprintf("the webhook configuration has no room for its entry, which counts as %d bytes, "+
				"beside those that are there or come first by name, which count as %d of %d: "+
				"shorten the paths and namespaceSelectors of registrations, or delete some", size, total, most)
		default:
			totals[e.in] += size
		}
	}
	return out, nil
}
