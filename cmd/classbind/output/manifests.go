package output

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// manifests are the formats of commands that print nothing but manifests.
var manifests = []string{"yaml", "json"}

// AddManifests adds the flag to a command that prints manifests.
func (f *Format) AddManifests(c *cobra.Command) {
	c.Flags().StringVarP((*string)(f), "output", "o", manifests[0],
		"`format`: yaml with comments, or json, which is a List without comments")
	// It fails only for an unknown flag.
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(manifests, cobra.ShellCompDirectiveNoFileComp))
}

// ValidateManifests validates the flag of AddManifests.
func (f Format) ValidateManifests() error {
	if !slices.Contains(manifests, string(f)) {
		return fmt.Errorf("--output=%q: must be %s", string(f), strings.Join(manifests, " or "))
	}
	return nil
}

// PrintManifests prints YAML as it is, or as a List in JSON.
func (f Format) PrintManifests(out io.Writer, text string) error {
	if f != "json" {
		if _, err := io.WriteString(out, text); err != nil {
			return fmt.Errorf("cannot print: %w", err)
		}
		return nil
	}
	all := struct {
		metav1.TypeMeta `json:",inline"`
		Items           []any `json:"items"`
	}{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}}
	for document := range strings.SplitSeq("\n"+text, "\n---\n") {
		var object any
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			return fmt.Errorf("cannot print: %w", err)
		}
		if object != nil { // Else, it has comments alone.
			all.Items = append(all.Items, object)
		}
	}
	return f.Print(out, all, nil)
}
