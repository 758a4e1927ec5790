package status

import (
	"context"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
)

// ownLabels are those of classbind's Deployment in deploy/, and of its pods.
var ownLabels = client.MatchingLabels{"app.kubernetes.io/name": "classbind"}

// clockSkew is how far the clock here may be ahead of the leader's.
const clockSkew = time.Minute

func (i *installation) readReplicas(ctx context.Context) {
	deployments := &appsv1.DeploymentList{}
	i.deploymentsErr = i.api.List(ctx, deployments, client.InNamespace(i.own), ownLabels)
	i.deployments = deployments.Items
	lease := &coordinationv1.Lease{}
	err := i.api.Get(ctx, client.ObjectKey{Namespace: i.own, Name: v1beta1.LeaderLease}, lease)
	i.leaderErr = client.IgnoreNotFound(err)
	i.leader = ptr.Deref(lease.Spec.HolderIdentity, "")
	if renewed := lease.Spec.RenewTime; i.leader != "" && renewed != nil {
		lasts := time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second
		i.leads = i.now.Before(renewed.Add(lasts + clockSkew))
	}
}

func checkReplicas(_ context.Context, i *installation, s *Section) {
	var summary []string
	if i.deploymentsErr != nil {
		summary = append(summary, "Deployment "+notRead)
		s.unread("the Deployments of "+i.own, i.deploymentsErr)
	}
	for _, d := range i.deployments {
		summary = append(summary, deploymentState(&d, s))
	}
	where := "leases/" + i.own + "/" + v1beta1.LeaderLease
	switch {
	case i.leaderErr != nil:
		summary = append(summary, "Lease "+notRead)
		s.unread("the Lease "+where, i.leaderErr)
	case i.leads:
		summary = append(summary, "the leader is "+i.leader)
	case i.needsNoLease():
		summary = append(summary, "no Lease of a leader")
	default:
		summary = append(summary, "no leader")
		if i.ready() == 0 && len(s.Findings) > 0 {
			break // Where none is ready, none leads.
		}
		last := ""
		if i.leader != "" {
			last = "; the last that led was " + i.leader
		}
		s.found(where, "start a replica, or see the log of those that run: "+logsCommand(i.own),
			"no replica leads, so nobody keeps the entries, the status and the CA%s", last)
	}
	s.Summary = strings.Join(summary, ", ")
}

func (i *installation) ready() (ready int32) {
	for _, d := range i.deployments {
		ready += d.Status.ReadyReplicas
	}
	return ready
}

// needsNoLease says that replicas are ready though none ever led: with --leader-elect=false, there is no Lease.
func (i *installation) needsNoLease() bool { return i.leader == "" && i.ready() > 0 }

func deploymentState(d *appsv1.Deployment, s *Section) string {
	wanted, ready := ptr.Deref(d.Spec.Replicas, 1), d.Status.ReadyReplicas
	where := "deployments/" + d.Namespace + "/" + d.Name
	if d.Status.ObservedGeneration == 0 { // No controller has seen it, as beside a bare control plane.
		return "the cluster does not run the Deployment " + d.Name
	}
	switch {
	case ready == 0:
		s.found(where, logsCommand(d.Namespace), "no replica is ready, of %d", wanted)
	case ready < wanted:
		s.note("only %d of %d replicas are ready, as in a drain: if it stays so, %s", ready, wanted, logsCommand(d.Namespace))
	}
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse {
			s.found(where, logsCommand(d.Namespace)+"; or go back: kubectl rollout undo --namespace "+d.Namespace+" deployment/"+d.Name,
				"its rollout does not go on: %s", c.Message)
		}
	}
	return fmt.Sprintf("%d of %d ready, of %s", ready, wanted, d.Spec.Template.Spec.Containers[0].Image)
}

func logsCommand(namespace string) string {
	return "kubectl describe pods --namespace " + namespace + " --selector app.kubernetes.io/name=classbind, and kubectl logs with the same"
}
