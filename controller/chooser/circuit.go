package chooser

import (
	"cmp"
	"sync"
	"time"

	"github.com/classbind/classbind/api/v1beta1"
)

// messageRest is how long a change of the message alone is not reported again: it may have the port of each connection.
const messageRest = time.Minute

// namespaceRest is how long the circuit of a namespace stays open, at least: a good status says nothing about its claims.
const namespaceRest = 30 * time.Second

// circuit keeps claims from waiting for a chooser that does not answer. It opens after MaxChooserFailures calls that fail, or that time out
// and are of two namespaces at least. Status alone closes it. A namespace has a circuit of its own, which its timeouts open. The author of
// claims without one counts as a namespace. It is not known of stored claims: these have one circuit, and wait while it is open.
type circuit struct {
	mu     sync.Mutex // guards all below
	polled bool
	status State // by the last Status
	// notified is the last that was reported as changed, at notifiedAt.
	notified   State
	notifiedAt time.Time
	open       bool
	// statuses are failed calls of Status, and failures of Rank: an answer to one ends no row of the other.
	statuses, failures int
	timeouts           run
	answers            int // to claims, of any namespace
	of                 map[string]*namespaceCircuit
}

// run of timeouts without an answer between them.
type run struct {
	length  int
	first   string // its namespace
	several bool   // namespaces
}

// namespaceCircuit is open from MaxChooserFailures timeouts in a row on.
type namespaceCircuit struct {
	timeouts int
	last     time.Time
	answers  int // until the first of them
}

// refuses returns why no call may be made for a namespace; empty, one may.
func (c *circuit) refuses(namespace string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch of := c.of[namespace]; {
	case c.open:
		return v1beta1.ReasonCircuitOpen
	case of != nil && of.timeouts >= v1beta1.MaxChooserFailures:
		return v1beta1.ReasonNamespaceCircuitOpen
	}
	return ""
}

// hangs reports whether the chooser has answered none since the first timeout of a namespace, so that the fault may be its own. An answer
// to this namespace would have ended its circuit.
func (c *circuit) hangs(namespace string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.of[namespace]
	return of != nil && of.answers == c.answers
}

// called records the end of a call for a namespace.
func (c *circuit) called(namespace, reason string, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch reason {
	case v1beta1.ReasonConnection:
		c.failures++
	case v1beta1.ReasonTimeout:
		c.timeouts.length++
		c.timeouts.first = cmp.Or(c.timeouts.first, namespace)
		isOther := namespace != "" && namespace != c.timeouts.first // Without one, the author may be the same.
		c.timeouts.several = c.timeouts.several || isOther
		of := c.of[namespace]
		if of == nil {
			of = &namespaceCircuit{answers: c.answers}
			c.of[namespace] = of
		}
		of.timeouts, of.last = of.timeouts+1, now
	default: // It answered, maybe with a failure.
		if reason == "" {
			c.answers++
		}
		c.failures, c.timeouts = 0, run{}
		delete(c.of, namespace)
	}
	c.open = c.open || c.statuses+c.failures >= v1beta1.MaxChooserFailures ||
		c.timeouts.several && c.timeouts.length >= v1beta1.MaxChooserFailures
}

// record the outcome of Status, and report whether it differs from what was reported last, and in its reason.
func (c *circuit) record(s State, now time.Time) (changed, inReason bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	inReason = !c.polled || c.status.Reason != s.Reason
	if changed = inReason || c.notified != s && now.Sub(c.notifiedAt) >= messageRest; changed {
		c.notified, c.notifiedAt = s, now
	}
	c.polled, c.status = true, s
	if s.Reason != "" {
		c.statuses++
		c.open = c.open || c.statuses+c.failures >= v1beta1.MaxChooserFailures
		return changed, inReason
	}
	c.open, c.statuses, c.failures, c.timeouts = false, 0, 0, run{}
	for namespace, of := range c.of {
		if now.Sub(of.last) >= namespaceRest {
			delete(c.of, namespace)
		}
	}
	return changed, inReason
}

func (c *circuit) lastStatus() (State, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status, c.polled
}
