package status

import (
	"context"
	"fmt"
	"slices"
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

func (i *installation) readReplicas(ctx context.Context) {
	deployments := &appsv1.DeploymentList{}
	i.deploymentsErr = i.api.List(ctx, deployments, client.InNamespace(i.Own), ownLabels)
	i.deployments = deployments.Items
	lease := i.readLease(ctx)
	lasts := time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second
	switch renewed := lease.Spec.RenewTime; {
	case i.leader == "" || renewed == nil:
	case i.now.Before(renewed.Add(lasts)):
		i.leads = true
	default: // Or the clock here is ahead of the leader's.
		_, _ = fmt.Fprintf(i.progress, "the Lease of the leader is not renewed, by the clock here: looking again in %s\n", i.renewal)
		select {
		case <-time.After(i.renewal):
			again := i.readLease(ctx)
			i.leads = i.leader != "" && !again.Spec.RenewTime.Equal(renewed)
		case <-ctx.Done():
		}
	}
}

// renewal is longer than a leader takes to renew its Lease, which is 2 s.
const renewal = 3 * time.Second

// readLease of the leader, empty if there is none.
func (i *installation) readLease(ctx context.Context) *coordinationv1.Lease {
	lease := &coordinationv1.Lease{}
	err := i.api.Get(ctx, client.ObjectKey{Namespace: i.Own, Name: v1beta1.LeaderLease}, lease)
	i.leaderErr = client.IgnoreNotFound(err)
	i.leader = ptr.Deref(lease.Spec.HolderIdentity, "")
	return lease
}

// issuer says who issues the certificates, as --certs of the Deployment does. It is empty if there is no Deployment that can be read.
func (i *installation) issuer() string {
	if len(i.deployments) == 0 {
		return ""
	}
	for _, d := range i.deployments {
		for _, c := range d.Spec.Template.Spec.Containers {
			arguments := strings.Join(slices.Concat(c.Command, c.Args), "=") // A value may be an argument of its own.
			if strings.Contains(arguments, "--certs="+certManager) {
				return certManager
			}
		}
	}
	return selfSigned
}

func checkReplicas(ctx context.Context, i *installation, s *Section) {
	var summary []string
	if i.deploymentsErr != nil {
		summary = append(summary, "Deployment "+notRead)
		s.unread("the Deployments of "+i.Own, i.deploymentsErr)
	}
	pods := &corev1.PodList{}
	if err := i.api.List(ctx, pods, client.InNamespace(i.Own), ownLabels); err != nil {
		s.unread("the Pods of "+i.Own, err)
	}
	for _, d := range i.deployments {
		summary = append(summary, deploymentState(&d, pods.Items, s))
	}
	where := "leases/" + i.Own + "/" + v1beta1.LeaderLease
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
		s.found(where, "start a replica, or see the log of those that run: "+logsCommand(i.Own),
			"no replica leads, so the entries, the status and the CA are not kept up to date%s", last)
	}
	s.Summary = strings.Join(summary, ", ")
}

func (i *installation) ready() (ready int32) {
	for _, d := range i.deployments {
		ready += d.Status.ReadyReplicas
	}
	return ready
}

// needsNoLease reports whether replicas are ready though none ever led: with --leader-elect=false, there is no Lease.
func (i *installation) needsNoLease() bool { return i.leader == "" && i.ready() > 0 }

func deploymentState(d *appsv1.Deployment, pods []corev1.Pod, s *Section) string {
	wanted, ready := ptr.Deref(d.Spec.Replicas, 1), d.Status.ReadyReplicas
	where := "deployments/" + d.Namespace + "/" + d.Name
	switch {
	case d.Status.ObservedGeneration == 0: // No controller has seen it, as beside a bare control plane.
		return "the cluster does not run the Deployment " + d.Name
	case wanted == 0:
		s.found(where, fmt.Sprintf("kubectl scale --namespace %s deployment/%s --replicas=2", d.Namespace, d.Name), "it is scaled to 0")
	case ready == 0:
		s.found(where, logsCommand(d.Namespace), "no replica is ready, of %d%s", wanted, waiting(pods))
	case isStuck(d):
		s.found(where, logsCommand(d.Namespace)+"; or go back: kubectl rollout undo --namespace "+d.Namespace+" deployment/"+d.Name,
			"its rollout does not go on: %d of %d replicas are updated%s", d.Status.UpdatedReplicas, wanted, waiting(pods))
	case ready < wanted && (wanted-ready > unavailable || waiting(pods) != ""):
		s.found(where, logsCommand(d.Namespace), "only %d of %d replicas are ready%s", ready, wanted, waiting(pods))
	case ready < wanted:
		s.note("only %d of %d replicas are ready, as in a drain: if it stays so, %s", ready, wanted, logsCommand(d.Namespace))
	}
	state := fmt.Sprintf("%d of %d ready", ready, wanted)
	updated := d.Status.ObservedGeneration >= d.Generation && d.Status.UpdatedReplicas == d.Status.Replicas
	if image := imageOf(d.Spec.Template.Spec.Containers); image != "" && updated {
		state += ", of " + image
	}
	return state
}

// unavailable is how many replicas the PodDisruptionBudget of deploy/ lets a drain take at a time.
const unavailable = 1

// isStuck reports whether the Deployment's controller gave a rollout up.
func isStuck(d *appsv1.Deployment) bool {
	return slices.ContainsFunc(d.Status.Conditions, func(c appsv1.DeploymentCondition) bool {
		return c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse && c.Reason == "ProgressDeadlineExceeded"
	})
}

// waiting is the reason why a container of the pods does not run, with a colon before it. A pod that is being made has none.
func waiting(pods []corev1.Pod) string {
	usual := []string{"", "ContainerCreating", "PodInitializing"}
	for _, p := range pods {
		for _, c := range p.Status.ContainerStatuses {
			if w := c.State.Waiting; w != nil && !slices.Contains(usual, w.Reason) {
				return fmt.Sprintf(": pod %s: %s", p.Name, w.Reason)
			}
		}
	}
	return ""
}

// imageOf classbind, which may have another container beside it.
func imageOf(containers []corev1.Container) string {
	for _, c := range containers {
		if c.Name == "classbind" || len(containers) == 1 {
			return c.Image
		}
	}
	return ""
}

func logsCommand(namespace string) string {
	return "kubectl describe pods --namespace " + namespace + " --selector app.kubernetes.io/name=classbind, and kubectl logs with the same"
}
