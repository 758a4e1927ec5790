package claim

import (
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector/fields"
	"github.com/classbind/classbind/selector/truncate"
)

// Reasons for what is done about the update of a claim, beside those to leave a claim alone.
const (
	// Restored means that the update removed the class reference, and gets it back.
	Restored = "Restored"
	// UnbindAllowed means that the claim kind allows that.
	UnbindAllowed = "UnbindAllowed"
	// NotBound means that there was no class reference before, either.
	NotBound = "NotBound"
	// OtherReference means that the update sets a part of the reference, without the name, to something else, or adds fields that its form
	// does not have. Of a claim that is created, it drops the classes that do not agree.
	OtherReference = "OtherReference"
	// ReferenceTooLong means that the reference is longer than v1beta1.MaxReferenceBytes.
	ReferenceTooLong = "ReferenceTooLong"
	// Malformed means that something on the way to the reference is not an object.
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

// Restore puts the class reference back that an update has removed from a claim: the whole value that was stored. Of a reference that the
// update has without a name, it puts back the fields of its form: that is what a server-side apply leaves, if it gives up a reference whose
// other fields another manager owns. One that counts as absent to claims.when, such as a default of the schema, it replaces. The old and
// the new object are valid JSON.
func (r *Reader) Restore(stored, updated []byte) (res Restoration, err error) {
	before, err := r.DecodeValid(stored)
	if err != nil {
		return res, fmt.Errorf("oldObject: %w", err)
	}
	object, err := r.DecodeValid(updated)
	if err != nil {
		return res, fmt.Errorf("object: %w", err)
	}
	if r.allowsUnbind {
		return Restoration{Reason: UnbindAllowed}, nil
	}
	// What the claim asks for does not matter, because it has its class.
	if res.Reason, _, _ = r.leaveAloneReason(object, before); res.Reason != "" {
		return res, nil
	}
	if _, wrong := r.Reference.Path.Lookup(object); wrong != nil {
		return Restoration{Reason: Malformed}, nil //nolint:nilerr // It is the author's, and the API server reports it.
	}
	if !r.Reference.isNamed(before) {
		return Restoration{Reason: NotBound}, nil
	}
	had, whole, ok := r.Reference.stored(stored)
	if !ok {
		return Restoration{Reason: ReferenceTooLong}, nil
	}
	to, _ := r.Reference.RefersTo(before)
	res = Restoration{Reason: Restored, Class: to.Name}
	given, problems := r.Reference.given(object)
	parents := r.Reference.Parents(object)
	switch {
	case r.Reference.MayRebind(object):
		parents, given = min(parents, len(r.Reference.Path)-1), nil
	case len(problems) > 0, given != nil && !given.AgreesWith(to), !r.Reference.EmptyIsUnset && r.addsFields(updated, had):
		return Restoration{Reason: OtherReference}, nil
	}
	var operations []fields.Operation
	if parents < len(r.Reference.parent) && whole != nil {
		operations = append(operations, r.Reference.addObject(parents, whole))
	} else {
		written := r.Reference.partsOf(had)
		operations = r.Reference.add(operations, parents, given, &written)
	}
	res.Patch = fields.Patch(r.restoreDecision(before, object, operations)...)
	return res, nil
}

// stored is the reference that a claim had, and, of one that is an object, all of it. It is not ok if that is too long.
func (r *ClassReference) stored(claim []byte) (had map[string]any, whole jsontext.Value, ok bool) {
	if r.isWhole() {
		if whole = r.Path.Raw(claim); len(whole) > v1beta1.MaxReferenceBytes {
			return nil, nil, false
		}
		// A field in it may be longer than what is read of a claim.
		had, _ = fields.ReadWhole(whole, fields.MaxSelectorDepth).(map[string]any)
		return had, whole, true
	}
	had = map[string]any{}
	for i := range r.Form.Parts {
		part := &r.Form.Parts[i]
		value := part.Path.Raw(claim)
		if len(value) > v1beta1.MaxReferenceBytes {
			return nil, nil, false
		}
		had[part.Field()] = fields.ReadWhole(value, fields.MaxSelectorDepth)
	}
	return had, nil, true
}

// partsOf a reference that was stored.
func (r *ClassReference) partsOf(had map[string]any) (w Written) {
	for i := range r.Form.Parts {
		switch value := had[r.Form.Parts[i].Field()].(type) {
		case string:
			w[i] = value
		case bool:
			if value {
				w[i] = flagSet
			}
		}
	}
	return w
}

// restoreDecision appends what puts back the decision with which a claim was annotated. One that the update has stays.
func (r *Reader) restoreDecision(before, object map[string]any, to []fields.Operation) []fields.Operation {
	had, _ := decision.Lookup(before)
	text, _ := had.(string)
	if has, wrong := decision.Lookup(object); !r.Annotates || has != nil || wrong != nil {
		return to
	}
	annotations, _ := decision[:2].Lookup(object)
	_, isAnnotated := annotations.(map[string]any)
	return annotate(to, r.Reference.Path, isAnnotated, text)
}

// addsFields reports whether the reference of an update has other fields than the form and these: the author refers in another way now.
func (r *Reader) addsFields(updated []byte, before map[string]any) bool {
	now, _ := fields.ReadWhole(r.Reference.Path.Raw(updated), fields.MaxSelectorDepth).(map[string]any)
	for name := range now {
		if _, had := before[name]; !had && !r.Reference.Form.hasField(name) {
			return true
		}
	}
	return false
}

// Warning explains to the author of an update what became of the reference, and what helps. It is empty if the update is left alone.
func (r *Restoration) Warning(of *Reader) string {
	switch r.Reason {
	case Restored:
		return fmt.Sprintf("the update removes the class reference %s, and classbind keeps it (class %q): "+
			"to unbind the claim, delete it and create it again; to allow such updates, "+
			"set spec.reference.onUnbind of claimkind/%s to Allow",
			of.Reference.Path, truncate.String(r.Class, v1beta1.MaxShownBytes), of.Name)
	case ReferenceTooLong:
		return fmt.Sprintf("the update removes the class reference %s, and classbind does not keep it, because it is longer than %d bytes",
			of.Reference.Path, v1beta1.MaxReferenceBytes)
	}
	return ""
}
