package status

import (
	"context"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1alpha1"
)

// deploymentLabels are those of classbind's Deployment in deploy/.
var deploymentLabels = client.MatchingLabels{"app.kubernetes.io/name": "classbind"}

// checkReplicas says whether replicas answer, and one leads.
func checkReplicas(ctx context.Context, i *installation, s *Section) {
	deployments := &appsv1.DeploymentList{}
	if err := i.api.List(ctx, deployments, client.InNamespace(i.own), deploymentLabels); err != nil {
		s.unread("the Deployments of "+i.own, err)
	}
	var summary []string
	ready := int32(0)
	for n := range deployments.Items {
		d := &deployments.Items[n]
		ready += d.Status.ReadyReplicas
		summary = append(summary, deploymentState(d, s))
	}
	leader, live, err := i.leader(ctx)
	where := "leases/" + i.own + "/" + v1alpha1.LeaderLease
	switch {
	case err != nil:
		s.unread("the Lease "+where, err)
	case live:
		summary = append(summary, "the leader is "+leader)
	case leader == "" && ready > 0: // With --leader-elect=false, there is no Lease.
		summary = append(summary, "no Lease of a leader")
	default:
		summary = append(summary, "no leader")
		s.found(where, "start a replica, or see the log of those that run: "+logsCommand(i.own),
			"no replica leads, so nobody keeps the entries, the status and the CA%s", lastLeader(leader))
	}
	s.Summary = strings.Join(summary, ", ")
}

// deploymentState is a summary of a Deployment.
func deploymentState(d *appsv1.Deployment, s *Section) string {
	version := ""
	if containers := d.Spec.Template.Spec.Containers; len(containers) > 0 {
		version = ", of " + containers[0].Image
	}
	wanted, ready := ptr.Deref(d.Spec.Replicas, 1), d.Status.ReadyReplicas
	where := "deployments/" + d.Namespace + "/" + d.Name
	switch {
	case d.Status.ObservedGeneration == 0: // No controller has seen it, as beside a bare control plane.
		return "the cluster does not run the Deployment " + d.Name
	case wanted == 0:
		s.found(where, fmt.Sprintf("kubectl scale --namespace %s deployment/%s --replicas=2", d.Namespace, d.Name), "it is scaled to 0")
	case ready == 0:
		s.found(where, logsCommand(d.Namespace), "no replica is ready, of %d", wanted)
	case ready < wanted:
		s.found(where, logsCommand(d.Namespace), "only %d of %d replicas are ready", ready, wanted)
	}
	return fmt.Sprintf("%d of %d ready%s", ready, wanted, version)
}

func logsCommand(namespace string) string {
	return "kubectl describe pods --namespace " + namespace + " --selector app.kubernetes.io/name=classbind, and kubectl logs with the same"
}

// leader is the holder of the Lease, empty without one. live says that it still holds it.
func (i *installation) leader(ctx context.Context) (name string, live bool, err error) {
	lease := &coordinationv1.Lease{}
	err = i.api.Get(ctx, client.ObjectKey{Namespace: i.own, Name: v1alpha1.LeaderLease}, lease)
	if apierrors.IsNotFound(err) {
		return "", false, nil
	}
	name = ptr.Deref(lease.Spec.HolderIdentity, "")
	if err != nil || name == "" || lease.Spec.RenewTime == nil {
		return name, false, err
	}
	lasts := time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second
	return name, i.now.Before(lease.Spec.RenewTime.Add(lasts)), nil
}

func lastLeader(name string) string {
	if name == "" {
		return ""
	}
	return "; the last that led was " + name
}
