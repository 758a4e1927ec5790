package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	klabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
)

type trial struct {
	*installedPreset
	kind v1beta1.ClaimKind
	// base is the example's claim without an opinion.
	base    *unstructured.Unstructured
	classes []*unstructured.Unstructured // that the claim is offered
	// byDefault is the default class, if the example has one, and bySelector one that others' labels do not fit.
	byDefault, bySelector *unstructured.Unstructured
}

func (i *installedPreset) newTrial(t *testing.T, k v1beta1.ClaimKind) *trial {
	x := &trial{installedPreset: i, kind: k}
	x.findBase(t)
	x.findClasses(t)
	return x
}

// try all checks of a ClaimKind, and return its row of the table.
func (i *installedPreset) try(t *testing.T, k v1beta1.ClaimKind) (row string) {
	x, reference := i.newTrial(t, k), k.Spec.Reference
	field := "`" + cmp.Or(string(reference.Path), string(reference.Label), string(reference.Annotation)) + "`"
	x.awaitCalls(t)
	t.Run("Example", x.example)
	var skipped []string
	for _, c := range presetChecks {
		t.Run(c.name, func(t *testing.T) {
			defer func() {
				if t.Skipped() {
					skipped = append(skipped, c.name)
				}
			}()
			c.run(x, t)
		})
	}
	return "| " + strings.Join([]string{i.name, x.base.GetKind(), i.version[k.Resource()], field, strings.Join(skipped, ", ")}, " | ") + " |\n"
}

func (x *trial) findBase(t *testing.T) {
	for _, claim := range x.claims {
		if claim.GetName() == "by-default" && x.place(t, claim.Unstructured) == x.kind.Resource() {
			x.base = claim.Unstructured
		}
	}
	require.NotNil(t, x.base, "We should have an example of a claim without a selector.")
}

func (x *trial) claim(name string) *unstructured.Unstructured {
	claim := x.base.DeepCopy()
	claim.SetName(strings.Split(x.kind.Name, ".")[0] + "-" + name)
	return claim
}

// bindable is a claim that gets a class, which it returns: the default class, or, where the example has none, the one that it selects.
func (x *trial) bindable(t *testing.T, name string) (claim, class *unstructured.Unstructured) {
	if x.byDefault == nil {
		return x.selecting(t, x.claim(name)), x.bySelector
	}
	return x.claim(name), x.byDefault
}

func (x *trial) findClasses(t *testing.T) {
	namespaces := []string{"", x.base.GetNamespace()}
	if from := x.kind.Spec.Classes.Namespaces; len(from.Names) > 0 {
		namespaces = []string{""}
		for _, name := range from.Names {
			namespaces = append(namespaces, string(name))
		}
	}
	x.classes = nil
	for name, k := range x.classKinds {
		if !k.Serves(&x.kind) {
			continue
		}
		for _, class := range x.installedPreset.classes[name] {
			if !slices.Contains(namespaces, class.GetNamespace()) {
				continue
			}
			x.classes = append(x.classes, class)
			value, _, err := unstructured.NestedFieldNoCopy(class.Object, v1beta1.Place{Path: k.Spec.Default.Path, Annotation: k.Spec.Default.Annotation}.Names()...)
			require.NoError(t, err)
			if value == true || value == "true" {
				require.Nil(t, x.byDefault, "We should have one default class in the example.")
				x.byDefault = class
			}
		}
	}
	for _, class := range x.classes {
		if class != x.byDefault && len(x.labels(class)) > 0 {
			x.bySelector = class
		}
	}
	require.NotNil(t, x.bySelector, "We should have a class in the example that its labels tell from the others.")
}

// labels of a class that no other has.
func (x *trial) labels(class *unstructured.Unstructured) map[string]string {
	labels := maps.Clone(class.GetLabels())
	for _, other := range x.classes {
		if other != class {
			maps.DeleteFunc(labels, func(key, value string) bool { return other.GetLabels()[key] == value })
		}
	}
	return labels
}

// selecting adds a selector: in the field if the kind has one.
func (x *trial) selecting(t *testing.T, claim *unstructured.Unstructured) *unstructured.Unstructured {
	labels := x.labels(x.bySelector)
	if path := x.kind.Spec.Selector.Path; path != ".spec.classSelector" {
		require.NoError(t, unstructured.SetNestedStringMap(claim.Object, labels, append(path.Names(), "matchLabels")...))
		return claim
	}
	selector := map[string]string{string(x.kind.Spec.Selector.Annotation): klabels.Set(labels).String()}
	claim.SetAnnotations(klabels.Merge(claim.GetAnnotations(), selector))
	return claim
}

func (x *trial) reference(t require.TestingT, claim *unstructured.Unstructured) any {
	value, _, err := unstructured.NestedFieldCopy(claim.Object, x.kind.Spec.Reference.Names()...)
	require.NoError(t, err)
	return x.comparable(value)
}

// comparable reference: the namespace of the claim says nothing, and some schemas lack it.
func (x *trial) comparable(reference any) any {
	if fields, ok := reference.(map[string]any); ok && fields["namespace"] == x.base.GetNamespace() {
		delete(fields, "namespace")
	}
	return reference
}

// begun are the fields of a reference that the author of the base gives.
func (x *trial) begun() map[string]any {
	fields, _, _ := unstructured.NestedMap(x.base.Object, x.kind.Spec.Reference.Names()...) // A Name has none.
	if fields == nil {
		fields = map[string]any{}
	}
	return fields
}

// formOf a reference, empty for one that is a list of parts.
func formOf(r *v1beta1.Reference) v1beta1.ReferenceForm {
	if len(r.Parts) > 0 {
		return ""
	}
	return cmp.Or(r.Form, v1beta1.ObjectReference)
}

// referenceTo a class, in the form of the kind.
func (x *trial) referenceTo(class *unstructured.Unstructured) any {
	kind := class.GroupVersionKind()
	fields := x.begun()
	fields["name"] = class.GetName()
	for _, part := range x.kind.Spec.Reference.Parts {
		switch at := part.Names(); part.Is {
		case v1beta1.GroupPart:
			fields[at[len(at)-1]] = kind.Group
		case v1beta1.KindPart:
			fields[at[len(at)-1]] = kind.Kind
		default: // The preset has no other.
		}
	}
	switch formOf(&x.kind.Spec.Reference) {
	case v1beta1.Name:
		return class.GetName()
	case v1beta1.ObjectReference:
		fields["apiVersion"], fields["kind"] = kind.GroupVersion().String(), kind.Kind
	case v1beta1.TypedObjectReference, v1beta1.TypedLocalObjectReference:
		fields["apiGroup"], fields["kind"] = kind.Group, kind.Kind
	case v1beta1.GroupKindReference:
		fields["group"], fields["kind"] = kind.Group, kind.Kind
	case v1beta1.KindReference:
		fields["kind"] = kind.Kind
	case v1beta1.NamespacedReference, v1beta1.LocalObjectReference:
	}
	switch formOf(&x.kind.Spec.Reference) {
	case v1beta1.ObjectReference, v1beta1.TypedObjectReference, v1beta1.NamespacedReference:
		if class.GetNamespace() != x.base.GetNamespace() && class.GetNamespace() != "" {
			fields["namespace"] = class.GetNamespace()
		}
	default: // These carry none.
	}
	return fields
}

func (x *trial) created(t *testing.T, claim *unstructured.Unstructured) *unstructured.Unstructured {
	stored := claim.DeepCopy()
	require.NoError(t, x.Create(t.Context(), stored))
	x.deleteAfter(t, stored)
	return stored
}

func (w *world) deleteAfter(t *testing.T, object client.Object) {
	// No controller is there to do what a finalizer asks for.
	unfinished := client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"finalizers": null}}`))
	t.Cleanup(func() {
		assert.NoError(t, client.IgnoreNotFound(w.Delete(context.Background(), object)))
		assert.NoError(t, client.IgnoreNotFound(w.Patch(context.Background(), object, unfinished)))
	})
}

// awaitCalls waits until the API server calls the webhook, a little later than the entry is there.
func (x *trial) awaitCalls(t *testing.T) {
	claim, class := x.bindable(t, "probe")
	eventually(t, func(c *attempt) {
		probe := claim.DeepCopy()
		require.NoError(c, x.Create(t.Context(), probe, client.DryRunAll))
		require.Equal(c, x.referenceTo(class), x.reference(c, probe))
	})
}

func (x *trial) example(t *testing.T) {
	for _, claim := range x.claims {
		if x.place(t, claim.Unstructured) != x.kind.Resource() {
			continue
		}
		got := x.reference(t, x.created(t, claim.Unstructured))
		if x.byDefault == nil && x.kind.Spec.Selector.WhenAbsent == v1beta1.NoSelectorAny && claim.GetName() == x.base.GetName() {
			continue // It may get any of them.
		}
		found := slices.IndexFunc(x.classes, func(class *unstructured.Unstructured) bool { return assert.ObjectsAreEqual(x.referenceTo(class), got) })
		if found < 0 {
			assert.Regexp(t, `\b(no|none)\b`, claim.comment, "We should bind %s: %v", claim.GetName(), got)
			continue
		}
		assert.Contains(t, claim.comment, x.classes[found].GetKind()+" "+x.classes[found].GetName(), claim.GetName())
	}
}

func (x *trial) unopinionated(t *testing.T) {
	switch {
	case x.byDefault != nil:
		assert.Equal(
			t, x.referenceTo(x.byDefault), x.reference(t, x.created(t, x.claim("default"))),
			"We should bind a claim without a selector to the default class.",
		)
	case x.kind.Spec.Selector.WhenAbsent == v1beta1.NoSelectorAny:
		assert.NotEmpty(t, x.reference(t, x.created(t, x.claim("default"))), "We should bind a claim without a selector to any class.")
	default:
		t.Skip("The example has no default class.")
	}
}

func (x *trial) selects(t *testing.T) {
	assert.Equal(
		t, x.referenceTo(x.bySelector), x.reference(t, x.created(t, x.selecting(t, x.claim("selector")))),
		"We should bind a claim to the class that it selects.",
	)
}

func (x *trial) explicitly(t *testing.T, name string) *unstructured.Unstructured {
	class := x.bySelector.DeepCopy()
	class.SetName("of-the-author")
	claim := x.claim(name)
	require.NoError(t, unstructured.SetNestedField(claim.Object, x.referenceTo(class), x.kind.Spec.Reference.Names()...))
	return claim
}

func (x *trial) explicit(t *testing.T) {
	claim := x.explicitly(t, "explicit")
	assert.Equal(t, x.reference(t, claim), x.reference(t, x.created(t, claim)), "We should leave the author's own reference alone.")
}

func (x *trial) empty(t *testing.T) {
	if !x.kind.Spec.Reference.EmptyIsUnset() {
		t.Skip("An empty reference is one.")
	}
	claim, class := x.bindable(t, "empty")
	empty := any("")
	if x.kind.Spec.Reference.Form != v1beta1.Name {
		fields := x.begun()
		fields["name"], empty = "", fields
	}
	require.NoError(t, unstructured.SetNestedField(claim.Object, empty, x.kind.Spec.Reference.Names()...))
	assert.Equal(t, x.referenceTo(class), x.reference(t, x.created(t, claim)), "We should bind a claim with an empty reference.")
}

func (x *trial) sticky(t *testing.T) {
	if x.kind.Spec.Reference.OnUnbind != v1beta1.RestoreReference {
		t.Skip("The preset allows it.")
	}
	claim, class := x.bindable(t, "sticky")
	bound := x.created(t, claim)
	require.Equal(t, x.referenceTo(class), x.reference(t, bound))
	// Some kinds cannot be replaced without what else the API server added.
	unbound := bound.DeepCopy()
	unbound.SetLabels(klabels.Merge(unbound.GetLabels(), klabels.Set{"replaced": "true"}))
	place := x.kind.Spec.Reference.Names()
	if former := x.reference(t, claim); former == nil {
		unstructured.RemoveNestedField(unbound.Object, place...)
	} else {
		require.NoError(t, unstructured.SetNestedField(unbound.Object, former, place...))
	}
	_, _, err := x.Kubectl(t.Context(), strings.NewReader(manifestOf(t, unbound)), "replace", "-f", "-")
	require.NoError(t, err)
	require.NoError(t, x.Get(t.Context(), client.ObjectKeyFromObject(bound), bound))
	assert.Equal(t, "true", bound.GetLabels()["replaced"])
	assert.Equal(t, x.referenceTo(class), x.reference(t, bound), "We should put the reference back that a replacement leaves out.")
}

func (x *trial) guard(t *testing.T) {
	first := x.byDefault
	if first == nil {
		first = x.marked(t, x.bySelector, "first")
		require.NoError(t, x.Create(t.Context(), first))
		x.deleteAfter(t, first)
	}
	second := x.marked(t, first, "second")
	assert.ErrorContains(t, x.refused(t, second), first.GetName())
}

// refused is the error for a second default class. The API server calls the webhook a little later than the entry is there.
func (w *world) refused(t *testing.T, second *unstructured.Unstructured) error {
	w.deleteAfter(t, second)
	eventually(t, func(c *attempt) {
		err := w.Create(t.Context(), second.DeepCopy(), client.DryRunAll)
		require.True(c, apierrors.IsForbidden(err), "%v", err)
	})
	err := w.Create(t.Context(), second)
	require.True(t, apierrors.IsForbidden(err), "We should refuse a second default class: %v", err)
	return err
}

func (x *trial) marked(t *testing.T, class *unstructured.Unstructured, name string) *unstructured.Unstructured {
	marked := class.DeepCopy()
	marked.SetName(name)
	marked.SetResourceVersion("")
	marked.SetUID("")
	k, found := x.classKinds[x.place(t, class)]
	require.True(t, found)
	var mark any = "true"
	if k.Spec.Default.Path != "" {
		mark = true
	}
	require.NoError(t, unstructured.SetNestedField(marked.Object, mark, v1beta1.Place{
		Path:       k.Spec.Default.Path,
		Annotation: k.Spec.Default.Annotation,
	}.Names()...))
	return marked
}

// explained compares what explain says of claims, of the cluster and of files, with what happens to them.
func (x *trial) explained(t *testing.T) {
	bound, _ := x.bindable(t, "bound")
	claims := []*unstructured.Unstructured{bound, x.selecting(t, x.claim("selected")), x.explicitly(t, "referring")}
	var manifests []string
	for _, claim := range claims {
		manifests = append(manifests, manifestOf(t, claim))
	}
	file := write(t, strings.Join(manifests, "---\n"))
	files := []string{"--recursive"}
	for _, folder := range x.folders {
		files = append(files, "--offline="+folder)
	}
	for name, version := range x.version {
		if !strings.HasPrefix(version, "Kubernetes") {
			files = append(files, "--offline="+filepath.Join(x.crds, name+".yaml"))
		}
	}
	for where, args := range map[string][]string{"Cluster": {"--kubeconfig=" + x.plane.Kubeconfig}, "Files": files} {
		t.Run(where, func(t *testing.T) {
			items := slices.DeleteFunc(x.explain(t, file, args...), func(item explanation) bool { return item.Claim.ClaimKind != x.kind.Name })
			require.Len(t, items, len(claims))
			for n, claim := range claims {
				if n == len(claims)-1 {
					assert.Equal(t, "LeftAlone", items[n].Outcome, "%+v", items[n])
					continue
				}
				assert.Equal(t, "Bound", items[n].Outcome, "%+v", items[n])
				want := items[n].Reference
				if written, ok := want.(map[string]any); ok {
					begun := x.begun()
					maps.Copy(begun, written)
					want = begun
				}
				explained := string(must(json.Marshal(x.comparable(want)))(t)) // Its numbers are of another type.
				assert.JSONEq(t, explained, string(must(json.Marshal(x.reference(t, x.created(t, claim))))(t)),
					"We should explain the reference that is written.")
			}
		})
	}
}

// appliedTwice a claim does not change. Some kinds are written a second time, with the same values, because the API
// server adds a default to what it stored: as often for a bound claim as for one that classbind never saw.
func (x *trial) appliedTwice(t *testing.T) {
	claim, class := x.bindable(t, "applied")
	first, second := x.applyTwice(t, claim)
	assert.Equal(t, x.referenceTo(class), x.reference(t, first), "We should bind a claim that is applied.")
	own, again := x.applyTwice(t, x.explicitly(t, "applied-explicit"))
	assert.Equal(t, own.GetResourceVersion() == again.GetResourceVersion(), first.GetResourceVersion() == second.GetResourceVersion(), "We should cause no write.")
	first.SetResourceVersion(second.GetResourceVersion())
	assert.Equal(t, first.Object, second.Object, "We should see no drift, and the same owners.")
}

func (x *trial) applyTwice(t *testing.T, claim *unstructured.Unstructured) (first, second *unstructured.Unstructured) {
	x.deleteAfter(t, claim)
	file := write(t, manifestOf(t, claim))
	var applied [2]*unstructured.Unstructured
	for n := range applied {
		x.kubectl(t, "apply", "--server-side", "-f", file)
		applied[n] = claim.DeepCopy()
		require.NoError(t, x.Get(t.Context(), client.ObjectKeyFromObject(claim), applied[n]))
	}
	x.kubectl(t, "diff", "--server-side", "-f", file)
	return applied[0], applied[1]
}

func (x *trial) differs(t *testing.T) {
	claim, class := x.bindable(t, "differs")
	x.deleteAfter(t, claim)
	file := write(t, manifestOf(t, claim))
	x.kubectl(t, "apply", "-f", file)
	x.kubectl(t, "diff", "-f", file)
	require.NoError(t, x.Get(t.Context(), client.ObjectKeyFromObject(claim), claim))
	assert.Equal(t, x.referenceTo(class), x.reference(t, claim))
}
