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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/classbind/classbind/cmd/classbind/connect"
	"github.com/classbind/classbind/cmd/classbind/output"
	"github.com/classbind/classbind/cmd/classbind/world"
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

// NewCommand returns the command status.
func NewCommand() *cobra.Command {
	var format output.Format
	var flags connect.Flags
	c := &cobra.Command{
		Use:   "status",
		Short: "Report whether an installation works, and what to fix",
		Long: `Report whether classbind works in this cluster: its replicas, certificates and
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
and 2 if the cluster did not answer, or the command fails.`,
		Example: `  # What is broken, and what to do about it?
  classbind status

  # What is broken, for a program:
  classbind status -o json`,
	}
	c.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return fmt.Errorf("status takes no arguments; there are %q", args)
		}
		if err := errors.Join(format.Validate(), connect.Validate(c.Flags())); err != nil {
			return err
		}
		config, err := flags.Config(c.ErrOrStderr(), "")
		if err != nil {
			return err
		}
		cluster, err := world.Connect(config)
		if err != nil {
			return err
		}
		w, err := cluster.World(c.Context(), flags.Own)
		if err != nil {
			return err
		}
		report, err := Read(c.Context(), w, c.ErrOrStderr(), nil)
		if err != nil {
			return err
		}
		if err := format.Print(c.OutOrStdout(), report, report.table); err != nil {
			return err
		}
		return report.exit()
	}
	format.Add(c)
	flags.Add(c)
	flags.AddOwn(c, "`namespace` of classbind itself")
	return c
}

// Read a cluster, and check all sections. It calls visit, unless that is nil, with each claim and the name of its ClaimKind.
func Read(ctx context.Context, w *world.World, progress io.Writer, visit func(claimKind string, claim []byte)) (*Report, error) {
	i := &installation{World: w, api: w.Cluster.API, now: time.Now(), renewal: renewal, progress: progress, visit: visit}
	return i.report(ctx)
}

// report reads the installation, and checks all sections.
func (i *installation) report(ctx context.Context) (*Report, error) {
	if err := i.read(ctx); err != nil {
		return nil, err
	}
	r := &Report{TypeMeta: metav1.TypeMeta{APIVersion: Version, Kind: "Report"}}
	for _, section := range sections {
		s := &Section{Name: section.name, State: OK}
		section.check(ctx, i, s)
		switch {
		case len(s.Findings) > 0:
			s.State = Broken
		case len(s.Unread) > 0:
			s.State = Unknown
		}
		r.Sections = append(r.Sections, s)
	}
	return r, nil
}
