package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/classbind"
	"github.com/classbind/classbind/e2e/controlplane"
	"github.com/classbind/classbind/e2e/race"
)

const isDefault = `annotations: {resourceclass.crossplane.io/is-default-class: "true"}, `

// awaitGuard waits until the API server asks about the classes of a kind that has its weight in an annotation.
func (w *world) awaitGuard(t testing.TB, group, kind, classKind string) {
	w.awaitGuardOf(t, classKind, class(group, kind, "probe", "annotations: {resourceclass.crossplane.io/weight: x}, "))
}

// awaitGuardOf waits for the same with a class of the kind whose weight is malformed: the API server knows of a new webhook a little later
// than of the entry for it.
func (w *world) awaitGuardOf(t testing.TB, classKind, malformed string) {
	w.awaitCondition(t, &v1beta1.ClassKind{}, classKind, v1beta1.ConditionGuarded, metav1.ConditionTrue, "")
	w.awaitRefused(t, malformed, "is invalid", "We should see the API server call the webhook.")
}

func (w *world) lease(t *testing.T, name string) *coordinationv1.Lease {
	l := &coordinationv1.Lease{}
	err := w.Get(t.Context(), client.ObjectKey{Namespace: classbind.Namespace, Name: name}, l)
	require.NoError(t, client.IgnoreNotFound(err))
	return l
}

// TestGuard has one replica, whose calls it counts.
func TestGuard(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplane.Options{})
	const window = 4 * time.Second
	r := w.serve(t, "--in-flight-window="+window.String())
	w.resources(t, "Red reds.guard.test Cluster", "Blue blues.guard.test Namespaced", "Old olds.guard.test Cluster")
	w.install(t, vendor("guard.test")+
		claimKind("claims.guard.test", "{classes: {namespaces: {from: All}}}")+
		serving("reds.guard.test", "claims.guard.test")+
		classKind("blues.guard.test", "{claimKinds: [{name: claims.guard.test}], default: {path: .spec.default}, weight: {path: .spec.weight}}"))
	w.awaitGuard(t, "guard.test", "Red", "reds.guard.test")
	blue := func(name, spec string) string {
		return class("guard.test", "Blue", name, "namespace: default, ") + "spec: " + spec + "\n"
	}
	w.awaitGuardOf(t, "blues.guard.test", blue("probe", "{weight: x}"))
	asked := func() int {
		return must(r.Answered(t.Context(), v1beta1.GuardPath))(t)
	}

	t.Run("Spared", func(t *testing.T) {
		before := asked()
		w.apply(t, class("guard.test", "Red", "plain", "")+class("guard.test", "Red", "no-default", `annotations: {resourceclass.crossplane.io/is-default-class: "false"}, `)+
			blue("plain", "{default: false}")+blue("text", "none")+blue("nothing", "{default: null, weight: null}"))
		require.NoError(t, w.label(t, "reds.guard.test", "plain", "tier=gold"))
		require.NoError(t, w.annotate(t, "reds.guard.test", "plain", "classbind.io/cordoned=true"))
		require.NoError(t, w.annotate(t, "reds.guard.test", "plain", "classbind.io/cordoned-"))
		w.kubectl(t, "delete", "red", "plain")
		assert.Equal(t, before, asked(), "We should not be asked about classes that get neither a mark nor a weight, or a cordon that can be read.")

		w.apply(t, class("guard.test", "Red", "weighted", `annotations: {resourceclass.crossplane.io/weight: "5"}, `)+blue("weighted", "{weight: 5}"))
		assert.Equal(t, before+2, asked(), "We should be asked about a weight.")
		w.kubectl(t, "label", "red,blue", "weighted", "tier=gold")
		require.NoError(t, w.annotate(t, "reds.guard.test", "weighted", "resourceclass.crossplane.io/weight-"))
		assert.Equal(t, before+2, asked(), "We should not be asked about an update that changes no weight, or takes it away.")
		assert.Empty(t, w.lease(t, "default.claims.guard.test").Name, "We should write no Lease for any of these.")
	})

	t.Run("MalformedMark", func(t *testing.T) {
		const cordoned, marked = "classbind.io/cordoned", "resourceclass.crossplane.io/is-default-class"
		annotated := func(key, value string) string {
			return class("guard.test", "Red", "nearly", fmt.Sprintf("annotations: {%s: %q}, ", key, value))
		}
		const warning = `metadata.annotations[%s]: Invalid value: %q: must be true or false, and counts as false`
		for _, key := range []string{cordoned, marked} {
			_, warnings := w.warned(t, annotated(key, "True"), client.DryRunAll)
			assert.Equal(t, []string{fmt.Sprintf(warning, key, "True")}, warnings, "We should warn the author of a class that has nothing else to look at.")
		}
		w.apply(t, class("guard.test", "Red", "nearly", ""))
		warned := func(args ...string) string {
			_, stderr, err := w.Kubectl(t.Context(), nil, args...)
			require.NoError(t, err)
			return stderr
		}
		for _, key := range []string{cordoned, marked} {
			assert.Contains(t, warned("annotate", "red", "nearly", key+"=yes"), fmt.Sprintf(warning, key, "yes"), "We should warn of an update.")
			require.NoError(t, w.annotate(t, "reds.guard.test", "nearly", key+"-"))
		}
		require.NoError(t, w.annotate(t, "reds.guard.test", "nearly", marked+"=yes"))
		before := asked()
		assert.Empty(t, warned("label", "red", "nearly", "tier=gold"), "We should not warn again.")
		assert.Empty(t, warned("annotate", "--overwrite", "red", "nearly", marked+"=false"), "We should not stop anybody who takes a mark away.")
		w.kubectl(t, "delete", "red", "nearly")
		assert.Equal(t, before, asked(), "We should not be asked.")
	})

	t.Run("MalformedWeight", func(t *testing.T) {
		_, _, err := w.create(t, class("guard.test", "Red", "malformed", `annotations: {resourceclass.crossplane.io/weight: "-3"}, `))
		refusedWith(t, err, http.StatusUnprocessableEntity, "metadata.annotations[resourceclass.crossplane.io/weight]", "must be an integer from 0 to 1000000")
		_, _, err = w.create(t, blue("malformed", "{weight: much}"))
		refusedWith(t, err, http.StatusUnprocessableEntity, "spec.weight")
		for what, weights := range map[string][]string{"Red": {"-1", "-0", "+5", "010", "1e3", " 5", "1.5"}, "Blue": {"-1", "1.5", "-0.5", "1000001", `"+5"`, "true"}} {
			for _, weight := range weights {
				manifest, err := blue("malformed", "{weight: "+weight+"}"), error(nil)
				if what == "Red" {
					manifest = class("guard.test", "Red", "malformed", fmt.Sprintf("annotations: {resourceclass.crossplane.io/weight: %q}, ", weight))
					err = w.annotate(t, "reds.guard.test", "weighted", "resourceclass.crossplane.io/weight="+weight)
				} else {
					err = w.patch(t, "blues.guard.test", "weighted", `{"spec":{"weight":`+weight+`}}`)
				}
				require.ErrorContains(t, err, "must be an integer from 0 to 1000000", "We should refuse a malformed weight in an update.")
				_, _, err = w.create(t, manifest)
				refusedWith(t, err, http.StatusUnprocessableEntity, "weight", "Invalid value: ", "must be an integer from 0 to 1000000")
			}
		}
	})

	t.Run("DryRun", func(t *testing.T) {
		w.created(t, class("guard.test", "Red", "dry", isDefault), client.DryRunAll)
		assert.Empty(t, w.lease(t, "default.claims.guard.test").Name, "We should write nothing in a dry run.")
	})

	t.Run("FailsAfterwards", func(t *testing.T) {
		// A quota is checked after all webhooks. No controller is here to fill in its status.
		w.apply(t, "apiVersion: v1\nkind: ResourceQuota\nmetadata: {namespace: default, name: none}\nspec: {hard: {count/blues.guard.test: 0}}\n")
		w.kubectl(t, "patch", "resourcequota", "none", "--subresource=status", "--type=merge", "-p",
			`{"status":{"hard":{"count/blues.guard.test":"0"},"used":{"count/blues.guard.test":"0"}}}`)
		w.awaitRefused(t, blue("unstorable", "{}"), "exceeded quota", "")
		w.refuses(t, blue("unstorable", "{default: true}"), "exceeded quota")
		_, _, err := w.create(t, class("guard.test", "Red", "next", isDefault)) // Before the window is over.
		w.kubectl(t, "delete", "resourcequota", "none")
		refusedWith(t, err, http.StatusForbidden, `"blues.guard.test/default/unstorable" is being made the default class for "claims.guard.test"`)
		seconds := apierrors.APIStatus(nil)
		require.ErrorAs(t, err, &seconds)
		assert.Regexp(t, `try again in [1-4] s`, err.Error(), "We should say when to try again.")
		assert.Positive(t, seconds.Status().Details.RetryAfterSeconds)
		wait := time.Duration(seconds.Status().Details.RetryAfterSeconds) * time.Second
		require.EventuallyWithT(t, func(c *attempt) {
			_, _, err := w.create(t, blue("next", "{default: true}"))
			require.NoError(c, err)
		}, wait+5*time.Second, 100*time.Millisecond, "We should accept the next default after the time that we gave.")
		held := w.lease(t, "default.claims.guard.test")
		assert.Equal(t, "blues.guard.test/default/next", *held.Spec.HolderIdentity)
	})

	t.Run("SecondDefault", func(t *testing.T) {
		_, _, err := w.create(t, class("guard.test", "Red", "second", isDefault))
		refusedWith(t, err, http.StatusForbidden, `"Blue/default/next"`, `"claims.guard.test"`, "classbind set-default reds.guard.test/second --for claims.guard.test", "kubectl patch blues.guard.test next --namespace default")
		err = w.annotate(t, "reds.guard.test", "weighted", "resourceclass.crossplane.io/is-default-class=true")
		require.ErrorContains(t, err, `"Blue/default/next" is the default class`, "We should refuse an update that makes a second default.")
		_, _, err = w.create(t, class("guard.test", "Red", "second", isDefault), client.DryRunAll)
		refusedWith(t, err, http.StatusForbidden, `"Blue/default/next"`)
		_, _, err = w.Kubectl(t.Context(), strings.NewReader(class("guard.test", "Red", "second", isDefault)), "apply", "--server-side", "-f", "-")
		require.ErrorContains(t, err, `"Blue/default/next" is the default class`, "We should refuse a class that an apply creates.")
		generated, _, err := w.create(t, "apiVersion: guard.test/v1\nkind: Red\nmetadata: {"+isDefault+"generateName: generated-}\n")
		refusedWith(t, err, http.StatusForbidden, `"Blue/default/next"`)
		assert.Empty(t, generated.GetName())
	})

	t.Run("Ratchet", func(t *testing.T) {
		before, held := asked(), w.lease(t, "default.claims.guard.test").ResourceVersion
		require.NoError(t, w.label(t, "blues.guard.test", "next", "tier=gold"))
		assert.Equal(t, before, asked(), "We should not be asked about a label.")
		require.NoError(t, w.patch(t, "blues.guard.test", "next", `{"spec":{"weight":7}}`))
		assert.Greater(t, asked(), before, "We should be asked about the weight, by an API server that patches what is no longer stored more than once.")
		assert.Equal(t, held, w.lease(t, "default.claims.guard.test").ResourceVersion, "We should write no Lease for a class that is default already.")
	})

	t.Run("AlreadyThere", func(t *testing.T) {
		_, _, err := w.create(t, blue("next", "{default: true}"))
		assert.True(t, apierrors.IsAlreadyExists(err), "We should answer as the API server would: %v", err)
	})

	t.Run("Terminating", func(t *testing.T) {
		require.NoError(t, w.patch(t, "blues.guard.test", "next", `{"metadata":{"finalizers":["guard.test/stay"]}}`))
		w.kubectl(t, "delete", "blue", "next", "--wait=false")
		_, _, err := w.create(t, class("guard.test", "Red", "heir", isDefault))
		require.NoError(t, err, "We should not count a default that is being deleted.")
		require.NoError(t, w.patch(t, "blues.guard.test", "next", `{"metadata":{"finalizers":null},"spec":{"default":false}}`))
	})

	t.Run("CommandOfTheRefusal", func(t *testing.T) {
		_, _, err := w.create(t, blue("third", "{default: true}"))
		require.Error(t, err)
		command := regexp.MustCompile(`run: kubectl (\S.*)$`).FindStringSubmatch(err.Error())
		require.NotNil(t, command, err.Error())
		w.kubectl(t, strings.Fields(command[1])...)
		_, _, err = w.create(t, blue("third", "{default: true}"))
		require.NoError(t, err, "We should accept the next default at once after the command that the refusal gave.")
	})

	t.Run("TwoAllTheSame", func(t *testing.T) {
		w.apply(t, class("guard.test", "Old", "legacy", isDefault))
		w.apply(t, serving("olds.guard.test", "claims.guard.test"))
		w.awaitGuard(t, "guard.test", "Old", "olds.guard.test")
		w.awaitCondition(t, &v1beta1.ClaimKind{}, "claims.guard.test", v1beta1.ConditionSingleDefault, metav1.ConditionFalse, "2 classes")
		metrics := must(r.Metrics(t.Context()))(t)
		assert.Contains(t, string(metrics), `classbind_default_classes{claim_kind="claims.guard.test"} 2`)
		require.NoError(t, w.patch(t, "blues.guard.test", "third", `{"spec":{"default":false}}`))
		_, _, err := w.create(t, class("guard.test", "Red", "fourth", isDefault))
		refusedWith(t, err, http.StatusForbidden, `"Old/legacy" is the default class`)
		w.kubectl(t, "delete", "old", "legacy")
		_, _, err = w.create(t, class("guard.test", "Red", "fourth", isDefault))
		require.NoError(t, err, "We should accept a default at once when the one that no Lease knew is gone.")
	})

	t.Run("VersionsComeAndGo", func(t *testing.T) {
		crd := func(patch string) { w.kubectl(t, "patch", "crd", "reds.guard.test", "--type=json", "-p", patch) }
		crd(`[{"op":"add","path":"/spec/versions/-","value":{"name":"v2","served":true,"storage":false,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}}]`)
		var writers sync.WaitGroup
		over := make(chan struct{})
		for i := range 4 {
			writers.Go(func() {
				for j := 0; ; j++ {
					select {
					case <-over:
						return
					default:
					}
					_, _, err := w.create(t, blue(fmt.Sprintf("switch-%d-%d", i, j), "{default: true}"))
					assert.Error(t, err, "We should not take a class for gone whose version is.")
				}
			})
		}
		for i := range 12 {
			crd(fmt.Sprintf(`[{"op":"replace","path":"/spec/versions/1/served","value":%t}]`, i%2 == 1))
		}
		close(over)
		writers.Wait()
		w.awaitRefused(t, blue("switched", "{default: true}"), `"Red/fourth" is the default class`, "")
	})

	t.Run("ListAndWatchAlone", func(t *testing.T) {
		w.apply(t, strings.Replace(vendor("guard.test"), "[get, list, watch]", "[list, watch]", 1))
		eventually(t, func(c *attempt) {
			_, _, err := w.Kubectl(t.Context(), nil, "--kubeconfig", w.kubeconfig, "get", "red", "fourth")
			require.Error(c, err)
		})
		_, _, err := w.create(t, blue("fifth", "{default: true}"))
		refusedWith(t, err, http.StatusForbidden, `"Red/fourth" is the default class`)
	})
}

// TestRace is the short form of make race. It has the machine to itself, because a request that is starved takes longer than the API
// servers are given here. That the judge would see a double default is tested beside it.
func TestRace(t *testing.T) {
	testRace(t, race.ShortScenarios(), map[string]int{"race": 12, "partitions": 12, "twins": 12, "forger": 12, "chaos": 6})
}

// TestCapacityRace is the same for capacities. That the auditor would see too much is tested beside it.
func TestCapacityRace(t *testing.T) {
	testRace(t, race.ShortCapacityScenarios(), map[string]int{"capacity": 30, "capacity-chaos": 60})
}

func testRace(t *testing.T, scenarios []race.Scenario, rounds map[string]int) {
	long(t)
	notInPods(t, "It needs control planes of its own, with replicas as processes beside them.")
	timing := scenarios[0].Timing
	commands := race.Commands{0: command}
	require.NoError(t, commands.Build(t.Context(), t.TempDir(), timing, os.Stderr))
	cluster := must(race.NewCluster(t.Context(), 2, timing.Request, os.Stderr))(t)
	t.Cleanup(func() { assert.NoError(t, cluster.Stop()) })
	fleet := must(cluster.Deploy(t.Context(), 3, timing, commands))(t)
	t.Cleanup(func() { assert.NoError(t, fleet.Stop(), "We should see the replicas end well.") })
	for _, s := range scenarios {
		t.Run(s.Name, func(t *testing.T) {
			result := must(fleet.Race(t.Context(), s, rounds[s.Name], 16))(t)
			assert.Equal(t, race.Result{Rounds: rounds[s.Name]}, result, "We should see no violation, and every loser told why.")
		})
	}
}

// TestPartitions has a default class for each driver, as of VolumeSnapshotClasses.
func TestPartitions(t *testing.T) {
	t.Parallel()
	w := &mover{world: newWorld(t, controlplane.Options{})}
	w.serve(t, "--in-flight-window=4s")
	w.resources(t, "Snap snaps.parts.test Cluster", "Tier tiers.parts.test Cluster")
	w.install(t, vendor("parts.test")+
		claimKind("claims.parts.test", `{classes: {partition: {claim: "has(claim.spec.driver) ? claim.spec.driver : ''", class: class.driver}, fits: [{name: Ready, expression: "!has(class.retired) || !class.retired"}]}}`)+
		serving("snaps.parts.test", "claims.parts.test")+
		classKind("tiers.parts.test", `{claimKinds: [{name: claims.parts.test}], default: {expression: "class.tier == 'standard'"}}`))
	w.awaitGuard(t, "parts.test", "Snap", "snaps.parts.test")
	w.awaitGuard(t, "parts.test", "Tier", "tiers.parts.test")
	snap := func(name, metadata, fields string) string {
		return class("parts.test", "Snap", name, metadata) + fields + "\n"
	}
	tier := func(name, driver, tier string) string {
		return class("parts.test", "Tier", name, "") + fmt.Sprintf("driver: %s\ntier: %s\n", driver, tier)
	}
	patch := func(name, patch string) error {
		c := classNamed("Snap/" + name)
		c.SetAPIVersion("parts.test/v1")
		return w.Patch(t.Context(), c, client.RawPatch(types.MergePatchType, []byte(patch)))
	}

	w.apply(t, snap("all", isDefault, "driver: ''")+snap("disk", isDefault, "driver: disk.csi")+snap("file", isDefault, "driver: file.csi"))
	assert.Equal(t, `claim kind "claims.parts.test" in partition "disk.csi"`,
		w.lease(t, "default-of.1684d030f4570057c6230dcd8a4283f9.claims.parts.test").Annotations[v1beta1.SeatAnnotation], "We should have a Lease for each partition.")

	t.Run("SecondInOne", func(t *testing.T) {
		_, _, err := w.create(t, snap("disk-2", isDefault, "driver: disk.csi"))
		refusedWith(t, err, http.StatusForbidden, `"Snap/disk" is the default class for "claims.parts.test" in partition "disk.csi" already`)
		_, _, err = w.create(t, tier("disk-3", "disk.csi", "standard"))
		refusedWith(t, err, http.StatusForbidden, `"Snap/disk" is the default class for "claims.parts.test" in partition "disk.csi" already`)
	})
	t.Run("Moved", func(t *testing.T) {
		eventually(t, func(c *attempt) { // The entry may have been written before there was the ClaimKind.
			err := patch("file", `{"driver":"disk.csi"}`)
			require.ErrorContains(c, err, `"Snap/disk" is the default class for "claims.parts.test" in partition "disk.csi" already`)
		})
		require.NoError(t, patch("file", `{"driver":"nfs.csi"}`), "We should let a default move to where there is none.")
		_, _, err := w.create(t, snap("file-2", isDefault, "driver: nfs.csi"))
		refusedWith(t, err, http.StatusForbidden, `"Snap/file" is the default class for "claims.parts.test" in partition "nfs.csi" already`)
		require.NoError(t, patch("file", `{"driver":"file.csi"}`), "We should let it move back.")
	})
	t.Run("ServesNoMore", func(t *testing.T) {
		require.NoError(t, patch("file", `{"retired":true}`))
		w.apply(t, snap("file-3", isDefault, "driver: file.csi"))
		refusedWith(t, patch("file", `{"retired":null}`), http.StatusForbidden, `"Snap/file-3" is the default class for "claims.parts.test" in partition "file.csi" already`)
		w.kubectl(t, "delete", "snap", "file-3")
		require.NoError(t, patch("file", `{"retired":null}`))
	})
	t.Run("Unknown", func(t *testing.T) {
		const text = `the expression spec.classes.partition.class of claim kind "claims.parts.test" fails for "Snap/lost": no such key: driver`
		_, _, err := w.create(t, snap("lost", isDefault, ""))
		refusedWith(t, err, http.StatusUnprocessableEntity, text)
		w.apply(t, snap("lost", isDefault, "driver: lost.csi"))
		require.NoError(t, patch("lost", `{"driver":null}`), "We should let a default lose its seat.")
		refusedWith(t, patch("lost", `{"driver":"disk.csi"}`), http.StatusForbidden, `in partition "disk.csi" already`)
	})
	t.Run("ByExpression", func(t *testing.T) {
		w.apply(t, tier("smb", "smb.csi", "standard")+tier("smb-2", "smb.csi", "gold"))
		c := classNamed("Tier/smb-2")
		c.SetAPIVersion("parts.test/v1")
		err := w.Patch(t.Context(), c, client.RawPatch(types.MergePatchType, []byte(`{"tier":"standard"}`)))
		refusedWith(t, err, http.StatusForbidden, `"Tier/smb" is the default class for "claims.parts.test" in partition "smb.csi" already`)
	})
	t.Run("Bound", func(t *testing.T) {
		for driver, want := range map[string]string{"disk.csi": "Snap/disk", "file.csi": "Snap/file", "smb.csi": "Tier/smb", "none.csi": "Snap/all"} {
			w.awaitBound(t, "apiVersion: parts.test/v1\nkind: Claim\nmetadata: {namespace: default, generateName: c-}\nspec: {driver: "+driver+"}\n", want, "We should bind a claim to the default of its partition, or to that of all.")
		}
	})
	t.Run("Status", func(t *testing.T) {
		w.awaitKind(t, "claims.parts.test", "", func(c *attempt, k *v1beta1.ClaimKind) {
			require.Equal(c, []v1beta1.DefaultClass{{Kind: "Snap", Name: "all"}}, k.Status.Defaults)
			require.EqualValues(c, 3, k.Status.PartitionDefaults, "We should count the partitions that have a default.")
		})
	})
}

// TestDeletion has two replicas, which the API server asks one after the other. Claims are bound later,
// and counted for a strategy; who deletes their class is told, whichever replica is asked.
func TestDeletion(t *testing.T) {
	long(t)
	t.Parallel()
	const group, claims, orders, plain, classes = "deletion.test", "claims.deletion.test", "orders.deletion.test", "plains.deletion.test", "classes.deletion.test"
	w := newWorld(t, controlplane.Options{ConnectionPerWebhookCall: true})
	balancer, replicas := w.serveBehind(t, 2)
	w.resources(t, "Order "+orders+" Namespaced", "Plain "+plain+" Namespaced", "Other others.deletion.test Cluster")
	w.serves(t, lateVendor(group)+claimKind(claims, "{whenUnmatched: BindLater}")+claimKind(orders, "{choice: {strategy: LeastClaims}}")+claimKind(plain, "{}")+
		serving(classes, claims, orders, plain)+serving("others.deletion.test", plain)+
		tierClass(group, "gold")+tierClass(group, "silver")+tierClass(group, "bronze")+class(group, "Other", "gold", "labels: {tier: none}, "))
	bind := func(kind, name, tier string) {
		w.binds(t, ofKind(group, kind, name, "{classSelector: {matchLabels: {tier: "+tier+"}}}"), "Class/"+tier, "")
	}
	for _, name := range []string{"a", "b", "c"} {
		bind("Claim", name, "gold")
	}
	bind("Order", "a", "gold")
	bind("Plain", "a", "silver")

	// remove a class, or all that have a label, and return the warnings.
	remove := func(t require.TestingT, kind, name string, o ...client.DeleteOption) []string {
		var text []string
		require.NoError(t, w.Delete(context.WithValue(context.Background(), warnings{}, &text), object(group, kind, name), o...))
		return text
	}
	counted := func(n, reason string) {
		eventually(t, func(c *attempt) {
			assert.Equal(c, n, w.kubectl(t, "get", "classkind", classes, "-o", "jsonpath={.status.claims}"))
			assert.Equal(c, "3", w.kubectl(t, "get", "claimkind", claims, "-o", "jsonpath={.status.boundClaims}"))
		}, reason)
	}
	asked := func(r *replica) int { return must(r.Answered(t.Context(), v1beta1.DeletionPath))(t) }
	const theirs = `claims still refer to the class "Class/gold": 3 claims of claims.deletion.test, 1 claim of orders.deletion.test; create the class again, or delete these claims and create them again`
	for _, r := range replicas {
		for _, other := range replicas {
			balancer.Remove(strings.TrimPrefix(other.URL, "https://"))
		}
		balancer.Add(strings.TrimPrefix(r.URL, "https://"))
		balancer.Cut()
		before := asked(r)
		eventually(t, func(c *attempt) {
			require.Equal(c, []string{theirs}, remove(c, "Class", "gold", client.DryRunAll))
		}, "We should be warned by each replica.")
		assert.Greater(t, asked(r), before)
	}

	t.Run("Collection", func(t *testing.T) {
		var text []string
		require.NoError(t, w.DeleteAllOf(context.WithValue(t.Context(), warnings{}, &text), object(group, "Class", ""), client.DryRunAll))
		assert.Equal(t, []string{theirs}, text, "We should be warned of the class that has claims, and of no other.")
	})

	t.Run("Counted", func(t *testing.T) {
		counted("4", "We should have the number in the status.")
		assert.Empty(t, w.kubectl(t, "get", "classkind", "others.deletion.test", "-o", "jsonpath={.status.claims}"), "We should have no number where no claims are watched.")
		header, row, _ := strings.Cut(w.kubectl(t, "get", "classkind", classes), "\n")
		column := strings.Index(header, "CLAIMS")
		require.Positive(t, column, header)
		assert.Equal(t, "4", strings.Fields(row[column:])[0], "We should have the number in a column.")
	})

	t.Run("Deleted", func(t *testing.T) {
		before := asked(replicas[0]) + asked(replicas[1])
		assert.Empty(t, remove(t, "Class", "silver"), "We should not be warned of a class whose claims nobody watches.")
		assert.Empty(t, remove(t, "Other", "gold"))
		assert.Equal(t, before+1, asked(replicas[0])+asked(replicas[1]), "We should not be asked where no claims are watched.")
		_, stderr, err := w.Kubectl(t.Context(), nil, "delete", "class.deletion.test", "gold")
		require.NoError(t, err)
		assert.Contains(t, stderr, "Warning: "+theirs)
		assert.True(t, apierrors.IsNotFound(w.Get(t.Context(), client.ObjectKey{Name: "gold"}, object(group, "Class", "gold"))), "We should see the class gone.")
		counted("0", "We should count no claims of a class that is gone, which are bound all the same.")
		w.apply(t, class(group, "Class", "gold", ""))
		counted("4", "We should count them again with a class of its name.")
	})

	t.Run("NoAnswer", func(t *testing.T) {
		require.NoError(t, balancer.Close())
		balancer.Cut()
		assert.Empty(t, remove(t, "Class", "bronze"), "We should not hold up a deletion when no replica runs.")
	})
}

// TestDeletionDenied has a thousand claims, or a hundred with -short, which nobody watches until a class kind has onDelete Deny.
func TestDeletionDenied(t *testing.T) {
	const group, claims, classes, locals = "ondelete.test", "claims.ondelete.test", "classes.ondelete.test", "locals.ondelete.test"
	n := 1000
	if testing.Short() {
		n = 100
	}
	w := sharedWorld(t)
	w.resources(t, "Local "+locals+" Namespaced")
	w.register(t, group, "{}", tierClass(group, "gold"))
	w.createMany(t, group, n)
	set := func(kind, name, spec string) {
		require.NoError(t, w.patch(t, kind+".classbind.io", name, `{"spec":`+spec+`}`))
	}
	remove := func(c client.Client, kind, namespace string, o ...client.DeleteOption) (text []string, err error) {
		class := object(group, kind, "gold")
		class.SetNamespace(namespace)
		err = c.Delete(context.WithValue(context.Background(), warnings{}, &text), class, o...)
		return text, err
	}
	await := func(reason string, check func(*attempt, []string, error)) {
		eventually(t, func(c *attempt) {
			text, err := remove(w, "Class", "", client.DryRunAll)
			check(c, text, err)
		}, reason)
	}
	refer := fmt.Sprintf(`claims still refer to the class "Class/gold": %d claims of claims.ondelete.test; `, n)
	const remedy = `delete these claims first, or set spec.onDelete of the ClassKind "classes.ondelete.test" to Warn`
	denied := func(c *attempt, _ []string, err error) { refusedWith(c, err, http.StatusForbidden, refer+remedy) }
	deleted := func(c *attempt, text []string, err error) {
		require.NoError(c, err)
		require.Empty(c, text)
	}
	text := must(remove(w, "Class", "", client.DryRunAll))(t)
	require.Empty(t, text, "We should not be warned of claims that nobody watches.")

	set("classkinds", classes, `{"onDelete":"Deny"}`)
	await("We should be refused once the claims are counted.", denied)
	w.awaitKind(t, claims, "We should say that the claims are counted.", func(c *attempt, k *v1beta1.ClaimKind) {
		require.True(c, meta.IsStatusConditionTrue(k.Status.Conditions, v1beta1.ConditionClaimsCounted), "%v", k.Status.Conditions)
		require.EqualValues(c, n, *k.Status.BoundClaims)
	})
	set("classkinds", classes, `{"onDelete":"Allow"}`)
	await("We should neither be refused nor warned.", deleted)
	w.awaitKind(t, claims, "We should watch the claims no more.", func(c *attempt, k *v1beta1.ClaimKind) {
		require.Nil(c, k.Status.BoundClaims)
		require.Nil(c, meta.FindStatusCondition(k.Status.Conditions, v1beta1.ConditionClaimsCounted))
	})
	set("claimkinds", claims, `{"choice":{"strategy":"LeastClaims"}}`)
	set("classkinds", classes, `{"onDelete":"Warn"}`)
	await("We should be warned.", func(c *attempt, text []string, err error) {
		require.NoError(c, err)
		require.Equal(c, []string{refer + "create the class again, or delete these claims and create them again"}, text)
	})
	set("claimkinds", claims, `{"choice":{"strategy":"Random"}}`)
	set("classkinds", classes, `{"onDelete":"Deny"}`)
	await("We should be refused again.", denied)
	_, err := remove(w, "Class", "")
	require.True(t, apierrors.IsForbidden(err), "We should be refused for good: %v", err)
	concurrently(t, n, func(i int) error { // One request for all may time out.
		return w.Delete(t.Context(), unopinionated(group, fmt.Sprint("claim-", i)))
	})
	await("We should be let go once the claims are gone.", deleted)
	text = must(remove(w, "Class", ""))(t)
	require.Empty(t, text)

	t.Run("Namespace", func(t *testing.T) {
		w.namespaces(t, "doomed")
		w.apply(t, classKind(locals, "{onDelete: Deny, claimKinds: [{name: "+claims+"}]}")+class(group, "Local", "gold", "namespace: doomed, labels: {tier: gold}, "))
		w.awaitClasses(t, locals, 1)
		w.awaitBound(t, claimIn(group, "doomed", "a"), "Local/gold", "We should be offered the class.")
		w.binds(t, claimIn(group, "doomed", "a"), "Local/gold", "")
		eventually(t, func(c *attempt) {
			_, err := remove(w, "Local", "doomed", client.DryRunAll)
			require.True(c, apierrors.IsForbidden(err), "%v", err)
		}, "We should be refused.")
		controller := w.impersonating(t, "system:serviceaccount:kube-system:namespace-controller")
		text := must(remove(controller, "Local", "doomed"))(t, "We should not keep a namespace from going.")
		require.Empty(t, text)
	})
}
