package status

import (
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/cmd/classbind/exit"
	"github.com/classbind/classbind/cmd/classbind/output"
	"github.com/classbind/classbind/selector/truncate"
)

// Version is the version of reports. New fields keep it; any other change needs a new version.
const Version = "status.classbind.io/v1beta1"

// Report is what "classbind status" prints with -o json or yaml.
type Report struct {
	metav1.TypeMeta `json:",inline"`
	// Sections are always the same, in the same order.
	Sections []*Section `json:"sections"`
}

// State of a section.
type State string

const (
	// OK sections have no findings, and everything in them was read.
	OK State = "OK"
	// Broken sections have findings.
	Broken State = "Broken"
	// Unknown sections have no findings, but something in them could not be read.
	Unknown State = "Unknown"
)

// Section is one part of an installation.
type Section struct {
	Name    string `json:"name"`
	State   State  `json:"state"`
	Summary string `json:"summary"`
	// Findings are what is broken.
	Findings []Finding `json:"findings,omitempty"`
	// Notes are what people may want to know, and may well be meant.
	Notes []string `json:"notes,omitempty"`
	// Unbound counts the claims that are stored without a class, by the name of their ClaimKind.
	Unbound map[string]int `json:"unbound,omitempty"`
	// Unread is what could not be read.
	Unread []Unread `json:"unread,omitempty"`
	// Failed are why claims could not be read, by the name of their ClaimKind.
	Failed map[string]error `json:"-"`

	// unanswered is an error of the cluster, which is not that a right is missing.
	unanswered error
}

// Finding is something that is broken.
type Finding struct {
	// Where it is: RESOURCE/NAME or RESOURCE/NAMESPACE/NAME, or several with commas.
	Where string `json:"where"`
	// What is broken.
	What string `json:"what"`
	// Do mends it. It is empty where What contains that.
	Do string `json:"do,omitempty"`
}

// Unread is something that could not be read.
type Unread struct {
	// What could not be read, as in "the Secret", and Why not.
	What string `json:"what"`
	Why  string `json:"why"`
}

// notRead is what a summary says instead of numbers.
const notRead = "not read"

func (s *Section) found(where, do, format string, args ...any) {
	s.Findings = append(s.Findings, Finding{Where: where, What: fmt.Sprintf(format, args...), Do: do})
}

func (s *Section) note(format string, args ...any) {
	s.Notes = append(s.Notes, fmt.Sprintf(format, args...))
}

// unread reports whether something could not be read; what is as in "the Secret".
func (s *Section) unread(what string, err error) {
	if !apierrors.IsForbidden(err) {
		s.unanswered = err
	}
	s.Unread = append(s.Unread, Unread{What: what, Why: truncate.Error(err).Error()})
}

// exit returns an error unless nothing is broken and the cluster answered.
func (r *Report) exit() error {
	broken := 0
	var unanswered error
	for _, s := range r.Sections {
		broken += len(s.Findings)
		unanswered = errors.Join(unanswered, s.unanswered)
	}
	switch {
	case unanswered != nil:
		return errors.New("the cluster did not answer everything")
	case broken > 0:
		return exit.Finding(errors.New(output.Count(broken, "broken thing")))
	}
	return nil
}

func (r *Report) table() string {
	rows := [][]string{{"SECTION", "STATE", "SUMMARY"}}
	for _, s := range r.Sections {
		rows = append(rows, []string{s.Name, string(s.State), s.Summary})
	}
	var out, notes, unread strings.Builder
	out.WriteString(output.Columns(rows...))
	for _, s := range r.Sections {
		for _, f := range s.Findings {
			fmt.Fprintf(&out, "\n%s: %s\n", truncate.Printable(f.Where), truncate.Printable(f.What))
			if f.Do != "" {
				fmt.Fprintf(&out, "  Do: %s\n", truncate.Printable(f.Do))
			}
		}
		for _, note := range s.Notes {
			fmt.Fprintf(&notes, "\nNote: %s\n", truncate.Printable(note))
		}
		for _, u := range s.Unread {
			fmt.Fprintf(&unread, "  %s\n", truncate.Printable(u.What+": "+u.Why))
		}
	}
	if unread.Len() > 0 {
		notes.WriteString("\nNot read (have somebody run this who may read it, or run it again):\n")
	}
	return out.String() + notes.String() + unread.String()
}
