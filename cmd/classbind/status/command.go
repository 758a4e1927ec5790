// Package status is the command that reports whether an installation of classbind works: installation reads what all sections need, each
// other file checks one or two sections, and report prints what they found.
package status

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/classbind/classbind/cmd/classbind/connect"
	"github.com/classbind/classbind/cmd/classbind/exit"
	"github.com/classbind/classbind/cmd/classbind/output"
	"github.com/classbind/classbind/controller/cluster"
)

// sections in the order in which they are printed. A new section is a new row.
var sections = []struct {
	name  string
	check func(context.Context, *installation, *Section)
}{
	{"replicas", checkReplicas},
	{"certificates", checkCertificates},
	{"webhook entries", checkEntries},
	{"kinds", checkKinds},
	{"claims", checkClaims},
}

// options are the flags of status.
type options struct {
	output  output.Format
	cluster connect.Flags
}

const (
	long = `Report whether classbind works in this cluster: its replicas, certificates and
webhook entries, the registered kinds, and the claims.
Each finding says where it is, what is broken, and what to do. Findings that
follow from another are not repeated. Notes report what may be intended.
The command changes nothing.

The findings about kinds are conditions, which kubectl shows, too. The last leader
wrote them, and their messages say what to do. The section replicas reports whether
there is a leader.

The command reads with your rights. It lists what you are not allowed to read, which
does not count as broken. It reads all claims of the registered kinds, page by page,
and counts the claims that are stored without a class.

The exit status is 0 if the command found nothing broken, 1 if something is broken,
and 2 if the cluster did not answer, or the command fails.`

	examples = `  # What is broken, and what to do about it?
  classbind status

  # What is broken, for a program:
  classbind status -o json | jq -c '.sections[].findings[]?'`
)

// NewCommand returns the command status.
func NewCommand() *cobra.Command {
	o := &options{}
	c := &cobra.Command{
		Use:     "status",
		Short:   "Report whether an installation works, and what to fix",
		Long:    long,
		Example: examples,
		Args:    cobra.ArbitraryArgs, // The command refuses them with its own status.
	}
	exit.Run(c, func(args []string) error {
		if len(args) > 0 {
			return fmt.Errorf("status takes no arguments; there are %q", args)
		}
		if err := errors.Join(o.output.Validate(), connect.Validate(c.Flags())); err != nil {
			return err
		}
		return o.run(c.Context(), c.OutOrStdout(), c.ErrOrStderr())
	})
	o.output.Add(c)
	o.cluster.Add(c)
	o.cluster.AddOwn(c, "`namespace` of classbind itself")
	return c
}

func (o *options) run(ctx context.Context, out, progress io.Writer) error {
	config, err := o.cluster.Config(progress, "")
	if err != nil {
		return err
	}
	report, err := Read(ctx, config, o.cluster.Own, progress)
	if err != nil {
		return err
	}
	if err := o.output.Print(out, report, report.table); err != nil {
		return err
	}
	return report.exit()
}

// Read a cluster, and check all sections. own is the namespace of classbind.
func Read(ctx context.Context, config *rest.Config, own string, progress io.Writer) (*Report, error) {
	c, err := connect.New(cluster.WithMaxDepth(config),
		corev1.AddToScheme, appsv1.AddToScheme, coordinationv1.AddToScheme, admissionregistrationv1.AddToScheme)
	if err != nil {
		return nil, err
	}
	i := &installation{api: c.API, reader: c.Reader, own: own, now: time.Now(), renewal: renewal, progress: progress}
	if err := i.read(ctx); err != nil {
		return nil, err
	}
	return i.report(ctx), nil
}

// report checks all sections of what was read.
func (i *installation) report(ctx context.Context) *Report {
	r := &Report{TypeMeta: metav1.TypeMeta{APIVersion: Version, Kind: "Report"}}
	for _, section := range sections {
		s := &Section{Name: section.name}
		section.check(ctx, i, s)
		s.end()
		r.Sections = append(r.Sections, s)
	}
	return r
}
