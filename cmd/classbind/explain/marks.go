package explain

import (
	"bytes"
	"context"
	"encoding/json"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/cmd/classbind/world"
	"github.com/classbind/classbind/deploy/kinds"
	"github.com/classbind/classbind/selector/near"
)

var presetMark = regexp.MustCompile(regexp.QuoteMeta(v1beta1.PresetAnnotation) + `: ([\w-]+@[0-9a-f]+)`)

// presetMarks are the marks of all objects of this command's presets.
var presetMarks = sync.OnceValue(func() sets.Set[string] {
	files, _ := fs.Glob(kinds.Files, "*/*.yaml") // Neither fails: the files are a part of the command.
	marks := sets.New[string]()
	for _, file := range files {
		text, _ := kinds.Files.ReadFile(file)
		for _, mark := range presetMark.FindAllSubmatch(text, -1) {
			marks.Insert(string(mark[1]))
		}
	}
	return marks
})

// marks finds annotations of ours that nothing reads, classes without a name, and copies of presets that are not those of this command. A
// copy may have another name.
func (l *linter) marks(ctx context.Context, objects []world.Document) {
	classKinds := map[schema.GroupKind]*v1beta1.ClassKind{}
	for i := range l.ClassKinds {
		if found, err := l.Resolve(ctx, l.ClassKinds[i].Name, ""); err == nil {
			classKinds[found.GroupKind()] = &l.ClassKinds[i]
		}
	}
	var registered []byte // what registrations may name
	for _, k := range l.ClaimKinds {
		spec, _ := json.Marshal(k.Spec)
		registered = append(registered, spec...)
	}
	for _, k := range l.ClassKinds {
		spec, _ := json.Marshal(k.Spec)
		registered = append(registered, spec...)
	}
	for i := range objects {
		d := &objects[i]
		gvk := d.GroupVersionKind()
		kind := classKinds[gvk.GroupKind()]
		if d.GetName() == "" && slices.ContainsFunc(l.ClassKinds, func(k v1beta1.ClassKind) bool { return world.IsOf(k.Name, gvk) }) {
			l.find(ruleRefused, d, "metadata", noName)
		}
		unread := slices.ContainsFunc(l.unread.UnsortedList(), func(name string) bool { return world.IsOf(name, gvk) })
		for _, key := range []string{
			v1beta1.DefaultAnnotation, v1beta1.WeightAnnotation, v1beta1.CapacityAnnotation, v1beta1.CordonedAnnotation,
		} {
			switch _, has := d.GetAnnotations()[key]; {
			case has && kind == nil && len(l.ClassKinds) > 0 && !unread:
				l.find(ruleMeaningless, d, key, "the annotation %s means nothing: no file has a ClassKind for the kind", key)
			case has && kind != nil && !reads(kind, key):
				l.find(ruleMeaningless, d, key, "the annotation %s means nothing: the ClassKind %q does not read it", key, kind.Name)
			}
		}
		for key := range d.GetAnnotations() {
			isKnown := !strings.HasPrefix(key, v1beta1.AnnotationPrefix) || slices.Contains(v1beta1.Annotations, key) ||
				kind != nil && reads(kind, key)
			if !isKnown && !bytes.Contains(registered, []byte(key)) {
				l.find(ruleUnknown, d, key, "the annotation %s means nothing to classbind%s", key, near.Annotation(key))
			}
		}
		const key = v1beta1.PresetAnnotation
		mark := d.GetAnnotations()[key]
		if preset, _, _ := strings.Cut(mark, "@"); mark != "" && !presetMarks().Has(mark) {
			l.find(ruleOutdated, d, key, "it is from another edition of the preset %q: compare it with \"classbind kinds %[1]s\", and "+
				"take over what changed, with the annotation %[2]s", preset, key)
		}
	}
}

// reads reports whether a ClassKind reads an annotation of classes.
func reads(k *v1beta1.ClassKind, key string) bool {
	sources := []v1beta1.Source{k.Spec.Default, k.Spec.Weight}
	for i := range k.Spec.Capacity {
		for _, limit := range k.Spec.Capacity[i].Limits() {
			if limit != nil {
				sources = append(sources, *limit)
			}
		}
	}
	return key == v1beta1.CordonedAnnotation || slices.ContainsFunc(sources, func(s v1beta1.Source) bool {
		return s.Expression != "" || slices.ContainsFunc(s.Places(), func(p v1beta1.Place) bool { return string(p.Annotation) == key })
	})
}
