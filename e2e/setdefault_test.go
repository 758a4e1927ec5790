package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
)

const moveGroup = "move.test"

// mover is a world in which defaults are moved.
type mover struct{ *world }

// TestSetDefault runs the command as an admin would, and the commands that refusals print.
func TestSetDefault(t *testing.T) {
	notInPods(t, "The command needs the kubeconfig of an admin.")
	w := mover{sharedWorld(t)}
	w.resources(t, "Claim claims.move.test Namespaced", "Other others.move.test Namespaced",
		"A as.move.test Cluster", "B bs.move.test Cluster", "Wide wides.move.test Cluster", "Field fields.move.test Namespaced")
	w.apply(t, vendor(moveGroup)+claimKind("claims.move.test", "{classes: {namespaces: {from: All}}}")+claimKind("others.move.test", "{}")+
		serving("as.move.test", "claims.move.test")+serving("bs.move.test", "claims.move.test")+
		serving("wides.move.test", "claims.move.test", "others.move.test")+
		classKind("fields.move.test", "{claimKinds: [{name: claims.move.test}], default: {path: .spec.default}}"))
	for _, kind := range []string{"A", "B", "Wide"} {
		w.awaitGuard(t, moveGroup, kind, strings.ToLower(kind)+"s.move.test")
	}
	w.awaitGuardOf(t, "fields.move.test", class(moveGroup, "Field", "probe", "namespace: default, annotations: {resourceclass.crossplane.io/weight: x}, "))

	t.Run("Moves", func(t *testing.T) {
		w.reset(t, "A/old", "B/new")
		const said = "as.move.test/old: no longer the default for claims.move.test%[1]s\nbs.move.test/new: the default for claims.move.test%[1]s\n"
		assert.Equal(t, fmt.Sprintf(said, " (dry run)"), w.shell(t, "classbind set-default B/new --for=claims.move.test --dry-run"))
		assert.Equal(t, "as.move.test/old", w.marked(t), "We should write nothing.")

		assert.Equal(t, fmt.Sprintf(said, ""), w.shell(t, "classbind set-default b/new --for=claims.move.test"))
		assert.Equal(t, "bs.move.test/new", w.marked(t))
		k := &v1beta1.ClaimKind{}
		require.NoError(t, w.Get(t.Context(), client.ObjectKey{Name: "claims.move.test"}, k))
		assert.Equal(t, []v1beta1.DefaultClass{{Kind: "B", Name: "new"}}, k.Status.Defaults, "We should have waited for the status.")
		assert.Equal(t, "bs.move.test/new", *w.lease(t, "default.claims.move.test").Spec.HolderIdentity, "We should have asked the guard.")
	})

	t.Run("NotNamed", func(t *testing.T) {
		w.reset(t, "Wide/old", "Wide/new")
		_, stderr, _ := w.classbind(t, "set-default", "Wide/new", "--for=claims.move.test", "--kubeconfig="+w.plane.Kubeconfig)
		require.Contains(t, stderr, "others.move.test: wides.move.test/new in the place of wides.move.test/old",
			"We should not take the default from a claim kind that was not named.")
		w.shell(t, commandIn(t, stderr, `to agree, run: (.*)`))
		assert.Equal(t, "wides.move.test/new", w.marked(t))
	})

	const ours, kubectls = `to move the default, run: (classbind .*?);`, `only, run: (kubectl .*)`
	for name, tc := range map[string]struct{ old, class, pattern, want string }{
		"Ours":         {"A/old", "B/new", ours, "bs.move.test/new"},
		"Kubectl":      {"A/old", "B/new", kubectls, ""},
		"KubectlField": {"Field/default/old", "B/new", kubectls, ""},
		"OursOfTwo":    {"Wide/old", "Wide/new", ours, "wides.move.test/new"},
		"OursLeaves":   {"Wide/old", "B/new", ours, "bs.move.test/new"},
	} {
		t.Run("CommandOfTheGuard/"+name, func(t *testing.T) {
			w.reset(t, tc.old, tc.class)
			err := w.annotate(t, map[string]string{"B/new": "bs.move.test", "Wide/new": "wides.move.test"}[tc.class], "new", defaultMark+"=true")
			require.ErrorContains(t, err, "is the default class for")
			w.shell(t, commandIn(t, err.Error(), tc.pattern))
			assert.Equal(t, tc.want, w.marked(t), "We should be refused with a command that works.")
		})
	}
	t.Run("CommandOfTheGuard/AtCreation", func(t *testing.T) {
		w.reset(t, "A/old")
		said := w.refuses(t, class(moveGroup, "B", "new", isDefault), "is the default class for")
		require.NoError(t, w.Create(t.Context(), classNamed("B/new")))
		w.shell(t, commandIn(t, said, `create this class without its mark, then run: (classbind .*?);`))
		assert.Equal(t, "bs.move.test/new", w.marked(t), "We should be refused with a command that works.")
	})
}

// reset deletes all classes and makes others, the first of which is the default. It marks it in an update, whose outcome the guard knows
// once it is deleted again.
func (w mover) reset(t *testing.T, classes ...string) {
	for kind := range strings.FieldsSeq("A B Field Wide") {
		namespace := map[string]string{"Field": "default"}[kind]
		require.NoError(t, w.DeleteAllOf(t.Context(), object(moveGroup, kind, ""), client.InNamespace(namespace)))
	}
	for _, name := range classes {
		require.NoError(t, w.Create(t.Context(), classNamed(name)))
	}
	patch := metadataPatch("annotations", defaultMark+"=true")
	if strings.HasPrefix(classes[0], "Field/") {
		patch = `{"spec":{"default":true}}`
	}
	eventually(t, func(c *attempt) { // Once nothing is in flight.
		require.NoError(c, w.Patch(t.Context(), classNamed(classes[0]), client.RawPatch(types.MergePatchType, []byte(patch))))
	})
}

// classNamed KIND/NAME or KIND/NAMESPACE/NAME.
func classNamed(text string) *unstructured.Unstructured {
	parts := strings.Split(text, "/")
	c := object(moveGroup, parts[0], parts[len(parts)-1])
	if len(parts) == 3 {
		c.SetNamespace(parts[1])
	}
	return c
}

// shell runs a command that must not fail, with classbind and kubectl on the PATH, and returns what it prints to standard output.
func (w mover) shell(t *testing.T, text string) string {
	cmd := exec.CommandContext(t.Context(), "sh", "-c", text) //nolint:gosec // It runs the commands that classbind prints.
	cmd.Env = append(os.Environ(), "KUBECONFIG="+w.plane.Kubeconfig, "GORACE=atexit_sleep_ms=0",
		"PATH="+filepath.Dir(command)+":"+w.plane.Assets+":"+os.Getenv("PATH"))
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	require.NoError(t, err, text)
	return string(out)
}

func commandIn(t *testing.T, text, pattern string) string {
	found := regexp.MustCompile(pattern).FindStringSubmatch(text)
	require.Len(t, found, 2, text)
	return found[1]
}

// marked are the classes that have a mark of a default.
func (w mover) marked(t *testing.T) string {
	var found []string
	for kind := range strings.FieldsSeq("A B Field Wide") {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: moveGroup, Version: "v1", Kind: kind + "List"})
		require.NoError(t, w.List(t.Context(), list))
		for i := range list.Items {
			u := &list.Items[i]
			annotations := u.GetAnnotations()
			if at(u, "spec", "default") == true || annotations[v1beta1.DefaultAnnotation] == "true" || annotations[v1beta1.CrossplaneDefaultAnnotation] == "true" {
				found = append(found, strings.ToLower(kind)+"s.move.test/"+path.Join(u.GetNamespace(), u.GetName()))
			}
		}
	}
	return strings.Join(found, " ")
}
