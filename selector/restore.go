package selector

import (
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/selector/brief"
)

// Reasons for what is done about the update of a claim, beside those to leave a claim alone.
const (
	// Restored says that the update removed the class reference, and gets it back.
	Restored = "Restored"
	// UnbindAllowed says that the claim kind allows that.
	UnbindAllowed = "UnbindAllowed"
	// NotBound says that there was no class reference before, either.
	NotBound = "NotBound"
	// OtherReference says that the update sets a part of the reference, without the name, to
	// something else, or adds fields that its form does not have. Of a claim that is created, it
	// drops the classes that do not agree.
	OtherReference = "OtherReference"
	// ReferenceTooLong says that the reference is longer than v1alpha1.MaxReferenceBytes.
	ReferenceTooLong = "ReferenceTooLong"
	// Malformed says that something on the way to the reference is not an object.
	Malformed = "Malformed"
)

// Restoration is what is done about an update of a claim.
type Restoration struct {
	// Reason is Restored, or why the update is left alone.
	Reason string
	// Class is the name in the class reference that was restored.
	Class string
	// Patch puts the reference back; nil leaves the update alone.
	Patch []byte
}

// Restore puts the class reference back that an update has removed from a claim: the whole
// value that was stored. Of a reference that the update has without a name, it puts back the
// fields of its form: that is what a server-side apply leaves, if it gives up a reference whose
// other fields another manager owns. One that counts as none to bindWhen, such as a default of
// the schema, it replaces. The old and the new object are valid JSON.
func (k *ClaimKind) Restore(stored, updated []byte) (r Restoration, err error) {
	before, err := k.DecodeValid(stored)
	if err != nil {
		return r, fmt.Errorf("oldObject: %w", err)
	}
	object, err := k.DecodeValid(updated)
	if err != nil {
		return r, fmt.Errorf("object: %w", err)
	}
	if r.Reason = k.keeps(before, object); r.Reason != "" {
		return r, nil
	}
	value := k.storedReference(stored)
	if len(value) > v1alpha1.MaxReferenceBytes {
		return Restoration{Reason: ReferenceTooLong}, nil
	}
	to, _ := k.refersTo(before)
	if k.unsettled(object) {
		parents := min(k.parents(object), len(k.classRef)-1)
		return Restoration{Reason: Restored, Class: to.name, Patch: Patch(k.addReference(parents, value))}, nil
	}
	whole := scan{json: value} // A field in it may be longer than what is read of a claim.
	fields, _ := whole.readAll(1, maxSelectorDepth).(map[string]any)
	given, problems := k.given(object)
	if len(problems) > 0 || given != nil && !given.agreesWith(to) || !k.emptyIsUnset && k.addsFields(updated, fields) {
		return Restoration{Reason: OtherReference}, nil
	}
	r = Restoration{Reason: Restored, Class: to.name}
	if parents := k.parents(object); parents < len(k.classRef) {
		r.Patch = Patch(k.addReference(parents, value))
		return r, nil
	}
	r.Patch = Patch(k.addFields(nil, given, func(field string) string {
		text, _ := fields[field].(string)
		return text
	})...)
	return r, nil
}

// keeps says why an update is left alone; empty, it is not. What the claim asks for does not
// matter, because it has its class. A place of skipIfSet matters only if the update sets it:
// the controllers of a bound claim set it as well.
func (k *ClaimKind) keeps(before, object map[string]any) (why string) {
	metadata, _ := object["metadata"].(map[string]any)
	switch {
	case k.allowsUnbind:
		return UnbindAllowed
	case metadata["deletionTimestamp"] != nil:
		return BeingDeleted
	case k.isNamed(object):
		return Settled
	}
	for _, p := range k.settledBy[1:] { // The first is the reference.
		was, _ := p.lookup(before)
		if is, _ := p.lookup(object); is != nil && was == nil {
			return Settled
		}
	}
	if why := k.without(object); why != "" && why != NoSelector {
		return why
	}
	if _, err := k.classRef.lookup(object); err != nil {
		return Malformed
	}
	if !k.isNamed(before) {
		return NotBound
	}
	return ""
}

// addsFields reports whether the reference of an update has other fields than the form and these:
// the author refers in another way now.
func (k *ClaimKind) addsFields(updated []byte, before map[string]any) bool {
	whole := scan{json: k.storedReference(updated)}
	now, _ := whole.readAll(1, maxSelectorDepth).(map[string]any)
	for name := range now {
		if _, had := before[name]; !had && !slices.Contains(k.form.fields, name) {
			return true
		}
	}
	return false
}

// storedReference is the whole class reference, as it stands in JSON.
func (k *ClaimKind) storedReference(raw []byte) jsontext.Value {
	d := fieldReader{scan: scan{json: raw}, objects: make([]map[string]any, k.referencePlan.size)}
	d.read(k.referencePlan)
	if !d.whole.isPostponed() {
		return nil
	}
	return d.whole.raw
}

// Warning tells the author of an update what became of the reference, and what helps. It is
// empty if the update is left alone.
func (r *Restoration) Warning(k *ClaimKind) string {
	switch r.Reason {
	case Restored:
		return fmt.Sprintf("the update removes the class reference %s, and classbind keeps it (class %q): "+
			"to unbind the claim, delete it and create it again; to allow such updates, set spec.onUnbind of claimkind/%s to Allow",
			k.classRef, brief.Text(r.Class, v1alpha1.MaxShownBytes), k.Name)
	case ReferenceTooLong:
		return fmt.Sprintf("the update removes the class reference %s, and classbind does not keep it, because it is longer than %d bytes",
			k.classRef, v1alpha1.MaxReferenceBytes)
	}
	return ""
}
