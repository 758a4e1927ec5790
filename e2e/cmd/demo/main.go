// Command demo shows classbind at work: on a real control plane, with the samples of deploy/samples/crossplane, it creates one claim after
// the other and prints what class each got and why.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/yaml"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/e2e/classbind"
	"github.com/classbind/classbind/e2e/command"
	"github.com/classbind/classbind/e2e/controlplane"
	"github.com/classbind/classbind/e2e/progress"
)

func main() {
	keep := flag.Bool("keep", false, "leave everything running after the claims, until interrupted")
	flag.Parse()
	command.Main(func(ctx context.Context) error { return run(ctx, *keep) })
}

func run(ctx context.Context, keep bool) (err error) {
	step("Starting etcd and kube-apiserver")
	plane, err := controlplane.Start(ctx, controlplane.Options{Progress: os.Stdout, Audit: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, plane.Stop()) }()

	step("Compiling classbind (a first time, for a minute or two)")
	var binary string
	err = progress.During(os.Stdout, "compiling", func() (err error) {
		binary, err = classbind.Build(ctx, plane.Dir)
		return err
	})
	if err != nil {
		return err
	}
	deploy, err := classbind.Deploy(ctx)
	if err != nil {
		return err
	}

	step("Applying deploy/ and starting classbind with the rights of its ServiceAccount, for this API server alone")
	kubeconfigs, err := classbind.Install(ctx, plane, deploy, "policies")
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(plane.Dir, "classbind.log"))
	if err != nil {
		return err
	}
	defer func() {
		if text, _ := os.ReadFile(log.Name()); err != nil && ctx.Err() == nil {
			err = fmt.Errorf("%w\nclassbind's log:\n%s", err, text)
		}
		_ = log.Close()
	}()
	server, err := classbind.Start(binary, kubeconfigs[0], log, plane.Clients.Flags()...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()

	if err := show(ctx, plane, filepath.Join(deploy, "samples", "crossplane")); err != nil {
		return err
	}
	if keep {
		step("Running until you interrupt it; in another shell:")
		fmt.Printf("\nexport KUBECONFIG='%s' PATH='%s':'%s':\"$PATH\"\nkubectl get claim --namespace acme-team\n"+
			"classbind explain PostgreSQLInstance/gitlab-database --namespace acme-team --unbound\ntail -f %s\ncurl %s\n\n"+
			"There are no nodes, and classbind runs beside the cluster: its Deployment stays at 0 of 2 pods, and\n"+
			"kubectl delete -k deploy needs --wait=false, because nothing ends namespaces.\n\n",
			plane.Kubeconfig, plane.Assets, filepath.Dir(binary), log.Name(), server.MetricsURL)
		<-ctx.Done()
	}
	step("Cleaning up")
	return nil
}

var started = time.Now()

func step(text string) {
	fmt.Printf("==> %s (%.1f s)\n", text, time.Since(started).Seconds())
}

// policyKind is the claim kind of the samples to which the API server itself gives the default
// class, and policyPause how long it takes to notice: it looks for policies every second.
const (
	policyKind  = "mysqlinstances.database.crossplane.io"
	policyPause = 1500 * time.Millisecond
)

// show what classbind does: register the kinds of the samples and create their claims.
func show(ctx context.Context, plane *controlplane.ControlPlane, samples string) error {
	step("Applying deploy/samples/crossplane: CRDs, registrations and classes")
	for _, args := range [][]string{
		{"apply", "-k", filepath.Join(samples, "crds")},
		{"wait", "--for=condition=Established", "crd", "--all", "--timeout=30s"},
		{"apply", "-k", samples},
		{"wait", "--for=condition=Ready", "claimkinds,classkinds", "--all", "--timeout=30s"},
		{"wait", "--for=condition=DefaultedByPolicy", "claimkinds", policyKind, "--timeout=30s"},
	} {
		if _, _, err := plane.Kubectl(ctx, nil, args...); err != nil {
			return err
		}
	}
	out, _, err := plane.Kubectl(ctx, nil, "get", "claimkinds,classkinds")
	if err != nil {
		return err
	}
	fmt.Println(out)
	time.Sleep(policyPause)

	step("Creating the claims of deploy/samples/crossplane/claims.yaml")
	return createClaims(ctx, plane, filepath.Join(samples, "claims.yaml"))
}

func createClaims(ctx context.Context, plane *controlplane.ControlPlane, file string) error {
	text, err := os.ReadFile(file) //nolint:gosec // It is one of our samples.
	if err != nil {
		return err
	}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		claim, stored := &unstructured.Unstructured{}, &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &claim.Object); err != nil {
			return fmt.Errorf("cannot read %q: %w", file, err)
		}
		_, warnings, err := plane.Kubectl(ctx, strings.NewReader(document), "apply", "-f", "-")
		if err != nil {
			return err
		}
		if claim.GetKind() == "Namespace" {
			continue
		}
		resource := fmt.Sprintf("%s.%s.%s", claim.GetKind(), claim.GroupVersionKind().Version, claim.GroupVersionKind().Group)
		out, _, err := plane.Kubectl(ctx, nil, "get", resource, claim.GetName(), "--namespace", claim.GetNamespace(), "-o", "json")
		if err != nil {
			return err
		}
		if err := stored.UnmarshalJSON([]byte(out)); err != nil {
			return err
		}
		why, err := reason(plane.AuditLog, claim, stored)
		if err != nil {
			return err
		}
		spec := []byte("none")
		if claim.Object["spec"] != nil {
			if spec, err = json.Marshal(claim.Object["spec"]); err != nil {
				return err
			}
		}
		fmt.Printf("\n%s/%s\n  spec    %s\n  before  %s\n  after   %s\n  why     %s\n",
			claim.GetKind(), claim.GetName(), spec, classRef(claim), classRef(stored), why)
		for line := range strings.Lines(warnings) {
			fmt.Printf("  %s", line)
		}
	}
	return nil
}

func classRef(claim *unstructured.Unstructured) string {
	ref, found, _ := unstructured.NestedStringMap(claim.Object, "spec", "classRef")
	if !found {
		return "no class"
	}
	return fmt.Sprintf("%s %s/%s", ref["apiVersion"], ref["kind"], ref["name"])
}

// reason is what classbind annotated in the API server's audit log, if it was asked.
func reason(auditLog string, claim, stored *unstructured.Unstructured) (string, error) {
	f, err := os.Open(auditLog) //nolint:gosec // The control plane has just written it.
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	events := json.NewDecoder(f)
	for {
		e := auditv1.Event{}
		if err := events.Decode(&e); errors.Is(err, io.EOF) {
			return "", fmt.Errorf("the audit log does not have the creation of %q", claim.GetName())
		} else if err != nil {
			return "", fmt.Errorf("cannot read the audit log: %w", err)
		}
		// Names are unique among the samples, whatever their kind.
		if e.Verb != "create" || e.ObjectRef == nil || e.ObjectRef.Name != claim.GetName() {
			continue
		}
		var why []string
		for key, value := range e.Annotations {
			if webhook, name, _ := strings.Cut(key, "/"); strings.HasSuffix(webhook, v1beta1.BindSuffix) {
				why = append(why, name+"="+value)
			}
		}
		switch {
		case why == nil && classRef(stored) != classRef(claim):
			return "the API server did not ask: it gave the default class itself, by the policy " + policyKind + v1beta1.PolicySuffix, nil
		case why == nil:
			return "the API server did not ask: the claim says itself what it wants", nil
		}
		slices.Sort(why)
		return strings.Join(why, ", "), nil
	}
}
