package e2e

import (
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1alpha1"
	"github.com/classbind/classbind/e2e/controlplane"
)

const setDefaultKinds = `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: stricts.move.test}
spec:
  group: move.test
  scope: Cluster
  names: {kind: Strict, plural: stricts}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: move-test-half}
rules:
- {apiGroups: [classbind.io], resources: [claimkinds, classkinds], verbs: [get, list]}
- {apiGroups: [move.test], resources: ["*"], verbs: [get, list]}
- {apiGroups: [move.test], resources: [as], verbs: [patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: move-test-half}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: move-test-half}
subjects: [{kind: User, name: half}]
`

// policy refuses the mark of a default.
const policy = `---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: move-test}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [move.test], apiVersions: [v1], operations: [UPDATE], resources: ["*"]}]
  validations: [{expression: "!has(object.metadata.annotations) || !('resourceclass.crossplane.io/is-default-class' in object.metadata.annotations)", message: no default}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: move-test}
spec: {policyName: move-test, validationActions: [Deny]}
`

// TestSetDefault runs the command as an admin would.
func TestSetDefault(t *testing.T) {
	t.Parallel()
	const window = 10 * time.Second
	w := &mover{world: newWorld(t, controlplane.Options{})}
	replica := w.start(t, "--in-flight-window="+window.String())
	require.NoError(t, replica.Ready(t.Context()))
	w.resources(t, "Claim claims.move.test Namespaced", "Other others.move.test Namespaced",
		"A as.move.test Cluster", "B bs.move.test Cluster", "Wide wides.move.test Cluster", "Plain plains.move.test Cluster", "Field fields.move.test Namespaced")
	w.apply(t, setDefaultKinds+vendor("move.test")+
		claimKind("claims.move.test", "{classNamespaces: {from: All}}")+claimKind("others.move.test", "{}")+
		classKind("as.move.test", "{claimKinds: [claims.move.test]}")+
		classKind("bs.move.test", "{claimKinds: [claims.move.test]}")+
		classKind("plains.move.test", "{claimKinds: [others.move.test]}")+
		classKind("wides.move.test", "{claimKinds: [claims.move.test, others.move.test]}")+
		classKind("stricts.move.test", "{claimKinds: [claims.move.test], default: {path: .spec.default}}")+
		classKind("fields.move.test", "{claimKinds: [claims.move.test], default: {path: .spec.default}}"))
	w.awaitGuard(t, "move.test", "A", "as.move.test")
	w.awaitGuard(t, "move.test", "B", "bs.move.test")
	w.awaitGuard(t, "move.test", "Wide", "wides.move.test")
	w.awaitGuard(t, "move.test", "Plain", "plains.move.test")
	w.awaitGuard(t, "move.test", "Strict", "stricts.move.test")
	w.awaitGuardOf(t, "fields.move.test", class("move.test", "Field", "probe", "namespace: default, annotations: {resourceclass.crossplane.io/weight: x}, "))
	w.hook.start(t, w.world)

	t.Run("Moves", func(t *testing.T) {
		w.reset(t, "A/old", "B/new")
		out, _, err := w.setDefault(t, "b/new", "--for=claims")
		require.NoError(t, err)
		assert.Equal(t, "as.move.test/old: no longer the default for claims.move.test\nbs.move.test/new: the default for claims.move.test\n", out)
		assert.Equal(t, "bs.move.test/new", w.marked(t))
		assert.Equal(t, "B/new True", w.status(t, "claims.move.test"), "We should have waited for the status.")
		assert.Equal(t, "bs.move.test/new", *w.lease(t, "default.claims.move.test").Spec.HolderIdentity, "We should have asked the guard.")

		versions := w.versions(t)
		out, _, err = w.setDefault(t, "bs.move.test/new", "--for=claims.move.test")
		require.NoError(t, err)
		assert.Equal(t, "bs.move.test/new: the default for claims.move.test already\n", out)
		assert.Equal(t, versions, w.versions(t), "We should write nothing where there is nothing to do.")
	})

	t.Run("DryRun", func(t *testing.T) {
		w.reset(t, "A/old", "B/new")
		versions := w.versions(t)
		out, _, err := w.setDefault(t, "B/new", "--for=claims", "--dry-run")
		require.NoError(t, err)
		assert.Equal(t, "as.move.test/old: no longer the default for claims.move.test (dry run)\nbs.move.test/new: the default for claims.move.test (dry run)\n", out)
		assert.Equal(t, versions, w.versions(t), "We should write nothing.")
	})

	t.Run("FirstDefault", func(t *testing.T) {
		w.reset(t, "", "Wide/new")
		out, _, err := w.setDefault(t, "Wide/new", "--for=claims")
		require.NoError(t, err)
		assert.Equal(t, "wides.move.test/new: the default for claims.move.test, and for others.move.test, which had none\n", out)
		assert.Equal(t, "wides.move.test/new", w.marked(t))
	})

	t.Run("TwoClaimKinds", func(t *testing.T) {
		w.reset(t, "Wide/old", "Wide/new")
		out, _, err := w.setDefault(t, "Wide/new", "--for=claims", "--for=others")
		require.NoError(t, err)
		assert.Equal(t, "wides.move.test/old: no longer the default for claims.move.test, others.move.test\n"+
			"wides.move.test/new: the default for claims.move.test, others.move.test\n", out)
		assert.Equal(t, "Wide/new True", w.status(t, "claims.move.test"))
		assert.Equal(t, "Wide/new True", w.status(t, "others.move.test"))
	})

	t.Run("NotNamed", func(t *testing.T) {
		w.reset(t, "Wide/old", "Wide/new", "A/new")
		versions := w.versions(t)
		_, _, err := w.setDefault(t, "Wide/new", "--for=claims")
		require.ErrorContains(t, err, "others.move.test: wides.move.test/new in the place of wides.move.test/old")
		assert.Equal(t, versions, w.versions(t), "We should not take the default from a claim kind that was not named.")
		_, err = w.shell(t, commandIn(t, err, `to agree, run: (.*)`))
		require.NoError(t, err, "We should give a command that works.")
		assert.Equal(t, "wides.move.test/new", w.marked(t))

		_, _, err = w.setDefault(t, "A/new", "--for=claims")
		require.ErrorContains(t, err, "others.move.test: no default in the place of wides.move.test/new")
		assert.Equal(t, "wides.move.test/new", w.marked(t), "We should not leave a claim kind without a default that was not named.")
		out, err := w.shell(t, commandIn(t, err, `to agree, run: (.*)`))
		require.NoError(t, err, "We should give a command that works.")
		assert.Contains(t, out, "others.move.test: no longer has a default\n")
		assert.Equal(t, "as.move.test/new", w.marked(t))
	})

	t.Run("Field", func(t *testing.T) {
		w.reset(t, "A/old", "Field/default/new")
		out, _, err := w.setDefault(t, "fields/default/new", "--for=claims")
		require.NoError(t, err)
		assert.Contains(t, out, "fields.move.test/default/new: the default for claims.move.test\n")
		assert.Equal(t, "true", w.kubectl(t, "get", "fields.move.test", "new", "-o", "jsonpath={.spec.default}"))
		assert.Equal(t, "Field/default/new True", w.status(t, "claims.move.test"))
		_, _, err = w.setDefault(t, "A/old", "--for=claims")
		require.NoError(t, err)
		assert.Equal(t, "{}", w.kubectl(t, "get", "fields.move.test", "new", "-o", "jsonpath={.spec}"), "We should remove the field.")
		assert.Equal(t, "A/old True", w.status(t, "claims.move.test"))
	})

	t.Run("CommandsOfTheGuard", func(t *testing.T) {
		const ours, kubectls = `to move the default, run: (classbind .*?);`, `and no more, run: (kubectl .*)`
		for name, tc := range map[string]struct{ old, class, pattern, want string }{
			"Ours":              {"A/old", "B/new", ours, "bs.move.test/new"},
			"OursForTwo":        {"Wide/old", "Wide/new", ours, "wides.move.test/new"},
			"OursLeavesWithout": {"Wide/old", "B/new", ours, "bs.move.test/new"},
			"Kubectl":           {"A/old", "B/new", kubectls, ""},
			"KubectlField":      {"Field/default/old", "B/new", kubectls, ""},
		} {
			t.Run(name, func(t *testing.T) {
				w.reset(t, tc.old, tc.class)
				kind, _, _ := strings.Cut(strings.ToLower(tc.class), "/")
				err := w.annotate(t, kind+"s.move.test", "new", "resourceclass.crossplane.io/is-default-class=true")
				require.ErrorContains(t, err, "is the default class for")
				_, err = w.shell(t, commandIn(t, err, tc.pattern))
				require.NoError(t, err, "We should be refused with a command that works.")
				assert.Equal(t, tc.want, w.marked(t))
			})
		}
		t.Run("AtCreation", func(t *testing.T) {
			w.reset(t, "A/old")
			_, _, err := w.create(t, class("move.test", "B", "new", isDefault))
			text := commandIn(t, err, `create this class without its mark, then run: (classbind .*?);`)
			require.NoError(t, w.Create(t.Context(), classNamed("B/new")))
			_, err = w.shell(t, text)
			require.NoError(t, err, "We should be refused with a command that works.")
			assert.Equal(t, "bs.move.test/new", w.marked(t))
		})
	})

	t.Run("RefusedBeforehand", func(t *testing.T) {
		w.reset(t, "A/old", "B/new", "Strict/new")
		versions := w.versions(t)
		half, err := w.plane.UserKubeconfig("half")
		require.NoError(t, err)
		for name, tc := range map[string]struct {
			args []string
			want string
		}{
			"Absent":        {[]string{"B/absent", "--for=claims"}, "there is no class B/absent: create it"},
			"NotPermitted":  {[]string{"B/new", "--for=claims", "--kubeconfig=" + half}, `cannot mark bs.move.test/new as the default: bs.move.test "new" is forbidden: User "half" cannot patch`},
			"DroppedInCRD":  {[]string{"Strict/new", "--for=claims"}, "cannot mark stricts.move.test/new as the default: the mark does not change"},
			"ClassKind":     {[]string{"C/new", "--for=claims"}, "no such class kind is registered"},
			"ClaimKind":     {[]string{"B/new", "--for=queues"}, "no such claim kind is registered"},
			"ContextAbsent": {[]string{"B/new", "--for=claims", "--context=lost"}, `"lost"`},
		} {
			t.Run(name, func(t *testing.T) {
				out, _, err := w.setDefault(t, tc.args...)
				require.ErrorContains(t, err, tc.want)
				assert.Empty(t, out)
				assert.Equal(t, versions, w.versions(t), "We should have written nothing.")
			})
		}
	})

	t.Run("RefusedByAPolicy", func(t *testing.T) {
		w.reset(t, "A/old", "B/new")
		w.apply(t, policy)
		defer func() {
			w.kubectl(t, "delete", "validatingadmissionpolicy,validatingadmissionpolicybinding", "move-test")
			require.EventuallyWithT(t, func(c *assert.CollectT) {
				err := w.annotate(t, "bs.move.test", "new", "resourceclass.crossplane.io/is-default-class=false", client.DryRunAll)
				require.NoError(c, err)
			}, patience, 100*time.Millisecond)
		}()
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			err := w.annotate(t, "bs.move.test", "new", "resourceclass.crossplane.io/is-default-class=false", client.DryRunAll)
			require.ErrorContains(c, err, "no default")
		}, patience, 100*time.Millisecond)
		versions := w.versions(t)
		_, _, err := w.setDefault(t, "B/new", "--for=claims")
		require.ErrorContains(t, err, "no default")
		assert.Equal(t, versions, w.versions(t), "We should find out before we write anything, although the guard would refuse it, too.")
	})

	t.Run("PutsBack", func(t *testing.T) {
		w.reset(t, "A/old", "B/new")
		var unmarked atomic.Bool
		w.hook.set(func(r *admissionv1.AdmissionRequest, c *unstructured.Unstructured) string {
			if c.GetName() == "old" && !isMarked(c) && !*r.DryRun {
				unmarked.Store(true)
			}
			if c.GetName() == "new" && unmarked.Load() {
				return "not yet"
			}
			return ""
		})
		out, _, err := w.setDefault(t, "B/new", "--for=claims")
		require.ErrorContains(t, err, "cannot mark bs.move.test/new as the default: admission webhook \"hook.move.test\" denied the request: not yet\nas.move.test/old is the default again")
		assert.Equal(t, "as.move.test/old: no longer the default for claims.move.test\nas.move.test/old: the default for claims.move.test again\n", out)
		assert.Equal(t, "as.move.test/old", w.marked(t))
		assert.Equal(t, "as.move.test/old", *w.lease(t, "default.claims.move.test").Spec.HolderIdentity, "We should have asked in a dry run, which holds nobody back.")
	})

	t.Run("PutsBackAfterTheWindow", func(t *testing.T) {
		w.reset(t, "Field/default/old", "B/new")
		w.hook.set(func(r *admissionv1.AdmissionRequest, c *unstructured.Unstructured) string {
			if c.GetName() == "new" && !*r.DryRun {
				return "not really"
			}
			return ""
		})
		_, progress, err := w.setDefault(t, "B/new", "--for=claims")
		require.ErrorContains(t, err, "not really\nfields.move.test/default/old is the default again")
		assert.Contains(t, progress, "fields.move.test/default/old is to get its mark back; to leave that to you, interrupt again")
		assert.Contains(t, progress, `waiting: admission webhook "fields.move.test.guard.classbind.io" denied the request`)
		assert.Equal(t, "fields.move.test/default/old", w.marked(t))
	})

	t.Run("AnotherWins", func(t *testing.T) {
		w.reset(t, "A/old", "Plain/old", "Wide/new", "B/rival")
		w.mark(t, "Plain/old")
		w.hook.set(func(r *admissionv1.AdmissionRequest, c *unstructured.Unstructured) string {
			if c.GetKind() == "Plain" && !isMarked(c) && !*r.DryRun { // A/old has lost its mark.
				err := w.annotate(t, "bs.move.test", "rival", "resourceclass.crossplane.io/is-default-class=true")
				assert.NoError(t, err)
			}
			return ""
		})
		out, _, err := w.setDefault(t, "Wide/new", "--for=claims,others")
		require.ErrorContains(t, err, `cannot mark wides.move.test/new as the default: admission webhook "wides.move.test.guard.classbind.io" denied the request`)
		require.ErrorContains(t, err, `"B/rival" is the default class for "claims.move.test" already`)
		require.ErrorContains(t, err, "\nas.move.test/old did not get its mark back: ")
		require.ErrorContains(t, err, "\nplains.move.test/old is the default again")
		assert.Contains(t, out, "plains.move.test/old: the default for others.move.test again\n")
		assert.Equal(t, "bs.move.test/rival plains.move.test/old", w.marked(t), "We should put back what we can, and leave the default alone that somebody else set.")
	})

	t.Run("Overtaken", func(t *testing.T) {
		w.reset(t, "A/old", "B/new")
		w.hook.set(func(r *admissionv1.AdmissionRequest, c *unstructured.Unstructured) string {
			if c.GetName() == "old" && !isMarked(c) && !*r.DryRun {
				err := w.label(t, "bs.move.test", "new", "tier=gold")
				assert.NoError(t, err)
			}
			return ""
		})
		out, _, err := w.setDefault(t, "B/new", "--for=claims")
		require.NoError(t, err, "We should read again what has changed, and go on.")
		assert.Equal(t, "as.move.test/old: no longer the default for claims.move.test\nbs.move.test/new: the default for claims.move.test\n", out)
		assert.Equal(t, "gold", w.kubectl(t, "get", "bs.move.test", "new", "-o", "jsonpath={.metadata.labels.tier}"), "We should overwrite nothing.")
	})

	t.Run("InFlight", func(t *testing.T) {
		for waited, attempt := false, 1; !waited; attempt++ { // The window is short: a busy machine may miss it.
			require.LessOrEqual(t, attempt, 10, "We should wait for what is in flight.")
			w.reset(t, "", "B/new")
			w.hook.set(refuseRival)
			_, _, err := w.create(t, class("move.test", "A", "rival", isDefault))
			require.ErrorContains(t, err, "no rivals")
			out, progress, err := w.setDefault(t, "B/new", "--for=claims")
			require.NoError(t, err)
			assert.Equal(t, "bs.move.test/new: the default for claims.move.test\n", out)
			waited = strings.Contains(progress, `"as.move.test/rival" is being made the default class`)
		}
		t.Run("TimesOut", func(t *testing.T) {
			w.reset(t, "", "B/new")
			w.hook.set(refuseRival)
			require.EventuallyWithT(t, func(c *assert.CollectT) {
				_, _, err := w.create(t, class("move.test", "A", "rival", isDefault))
				require.ErrorContains(c, err, "no rivals")
			}, patience, 100*time.Millisecond)
			versions := w.versions(t)
			_, _, err := w.setDefault(t, "B/new", "--for=claims", "--timeout=5s")
			require.ErrorContains(t, err, `timed out after 5s: cannot mark bs.move.test/new as the default`)
			assert.Equal(t, versions, w.versions(t), "We should have written nothing.")
		})
	})

	t.Run("Interrupted", func(t *testing.T) {
		w.reset(t, "A/old", "Plain/old", "Wide/new")
		w.mark(t, "Plain/old")
		w.hook.set(func(r *admissionv1.AdmissionRequest, c *unstructured.Unstructured) string {
			if c.GetKind() == "Plain" && !isMarked(c) && !*r.DryRun { // A/old has lost its mark.
				_, _, err := w.create(t, class("move.test", "A", "rival", isDefault))
				assert.ErrorContains(t, err, "no rivals") //nolint:testifylint // The server of the hook must not end here, but answer.
			}
			return refuseRival(r, c)
		})
		cmd := exec.CommandContext(t.Context(), command, "set-default", "Wide/new", "--for=claims,others")
		interrupted := &interrupter{cmd: cmd, at: "waiting: "}
		cmd.Stderr = interrupted
		out, _, err := w.finish(t, cmd)
		require.Error(t, err)
		assert.Contains(t, interrupted.String(), "error: interrupted: ")
		assert.Contains(t, interrupted.String(), "\nas.move.test/old is the default again\nplains.move.test/old is the default again")
		assert.Contains(t, out, "as.move.test/old: the default for claims.move.test again\nplains.move.test/old: the default for others.move.test again\n")
		assert.Equal(t, "as.move.test/old plains.move.test/old", w.marked(t), "We should put back what was taken.")
	})

	// From here on nobody guards anything.
	t.Run("WithoutClassbind", func(t *testing.T) {
		w.reset(t, "A/old", "B/new")
		require.NoError(t, replica.Stop())
		versions := w.versions(t)
		_, _, err := w.setDefault(t, "B/new", "--for=claims")
		require.ErrorContains(t, err, `failed calling webhook "bs.move.test.guard.classbind.io"`)
		assert.Equal(t, versions, w.versions(t), "We should have written nothing.")

		require.NoError(t, w.patch(t, "validatingwebhookconfigurations.admissionregistration.k8s.io", v1alpha1.ClassConfiguration, `{"webhooks":[]}`))
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			err := w.annotate(t, "bs.move.test", "new", "resourceclass.crossplane.io/is-default-class=true", client.DryRunAll)
			require.NoError(c, err)
		}, patience, 100*time.Millisecond)
		out, progress, err := w.setDefault(t, "B/new", "--for=claims", "--timeout=5s")
		require.ErrorContains(t, err, "timed out after 5s; the marks are set, but classbind has not confirmed it: ClaimKind claims.move.test has status.defaultClass")
		require.ErrorContains(t, err, "kubectl get claimkinds,classkinds")
		assert.Equal(t, "as.move.test/old: no longer the default for claims.move.test\nbs.move.test/new: the default for claims.move.test\n", out)
		assert.Equal(t, "bs.move.test/new", w.marked(t))
		assert.GreaterOrEqual(t, strings.Count(progress, "waiting for classbind to see it: ClaimKind claims.move.test"), 2, "We should tell of it every two seconds.")
	})
}
