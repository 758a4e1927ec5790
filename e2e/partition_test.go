package e2e

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/controlplane"
)

// TestPartitions has a default class for each driver, as of VolumeSnapshotClasses.
func TestPartitions(t *testing.T) {
	t.Parallel()
	w := &mover{world: newWorld(t, controlplane.Options{})}
	w.serve(t, "--in-flight-window=4s")
	w.resources(t, "Claim claims.parts.test Namespaced", "Snap snaps.parts.test Cluster", "Tier tiers.parts.test Cluster")
	w.apply(t, vendor("parts.test")+
		claimKind("claims.parts.test", `{classes: {partition: {claim: "has(claim.spec.driver) ? claim.spec.driver : ''", class: class.driver}, fits: [{name: Ready, expression: "!has(class.retired) || !class.retired"}]}}`)+
		classKind("snaps.parts.test", "{claimKinds: [{name: claims.parts.test}]}")+
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
	refused := func(t *testing.T, err error, code int32, part string) {
		status := apierrors.APIStatus(nil)
		require.ErrorAs(t, err, &status)
		assert.Equal(t, code, status.Status().Code, "%v", err)
		require.ErrorContains(t, err, part)
	}

	w.apply(t, snap("all", isDefault, "driver: ''")+snap("disk", isDefault, "driver: disk.csi")+snap("file", isDefault, "driver: file.csi"))
	assert.Equal(t, `claim kind "claims.parts.test" in partition "disk.csi"`,
		w.lease(t, "default-of.1684d030f4570057c6230dcd8a4283f9.claims.parts.test").Annotations[v1beta1.SeatAnnotation], "We should have a Lease for each partition.")

	t.Run("SecondInOne", func(t *testing.T) {
		_, _, err := w.create(t, snap("disk-2", isDefault, "driver: disk.csi"))
		refused(t, err, http.StatusForbidden, `"Snap/disk" is the default class for "claims.parts.test" in partition "disk.csi" already`)
		_, _, err = w.create(t, tier("disk-3", "disk.csi", "standard"))
		refused(t, err, http.StatusForbidden, `"Snap/disk" is the default class for "claims.parts.test" in partition "disk.csi" already`)
	})
	t.Run("Moved", func(t *testing.T) {
		eventually(t, func(c *attempt) { // The entry may have been written before there was the ClaimKind.
			err := patch("file", `{"driver":"disk.csi"}`)
			require.ErrorContains(c, err, `"Snap/disk" is the default class for "claims.parts.test" in partition "disk.csi" already`)
		})
		require.NoError(t, patch("file", `{"driver":"nfs.csi"}`), "We should let a default move to where there is none.")
		_, _, err := w.create(t, snap("file-2", isDefault, "driver: nfs.csi"))
		refused(t, err, http.StatusForbidden, `"Snap/file" is the default class for "claims.parts.test" in partition "nfs.csi" already`)
		require.NoError(t, patch("file", `{"driver":"file.csi"}`), "We should let it move back.")
	})
	t.Run("ServesNoMore", func(t *testing.T) {
		require.NoError(t, patch("file", `{"retired":true}`))
		w.apply(t, snap("file-3", isDefault, "driver: file.csi"))
		refused(t, patch("file", `{"retired":null}`), http.StatusForbidden, `"Snap/file-3" is the default class for "claims.parts.test" in partition "file.csi" already`)
		w.kubectl(t, "delete", "snap", "file-3")
		require.NoError(t, patch("file", `{"retired":null}`))
	})
	t.Run("Unknown", func(t *testing.T) {
		const text = `the expression spec.classes.partition.class of claim kind "claims.parts.test" fails for "Snap/lost": no such key: driver`
		_, _, err := w.create(t, snap("lost", isDefault, ""))
		refused(t, err, http.StatusUnprocessableEntity, text)
		w.apply(t, snap("lost", isDefault, "driver: lost.csi"))
		require.NoError(t, patch("lost", `{"driver":null}`), "We should let a default lose its seat.")
		refused(t, patch("lost", `{"driver":"disk.csi"}`), http.StatusForbidden, `in partition "disk.csi" already`)
	})
	t.Run("ByExpression", func(t *testing.T) {
		w.apply(t, tier("smb", "smb.csi", "standard")+tier("smb-2", "smb.csi", "gold"))
		c := classNamed("Tier/smb-2")
		c.SetAPIVersion("parts.test/v1")
		err := w.Patch(t.Context(), c, client.RawPatch(types.MergePatchType, []byte(`{"tier":"standard"}`)))
		refused(t, err, http.StatusForbidden, `"Tier/smb" is the default class for "claims.parts.test" in partition "smb.csi" already`)
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
