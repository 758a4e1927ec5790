// Package kinds is the command that lists the presets of deploy/kinds, and prints them for kubectl.
package kinds

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/cmd/classbind/output"
	"github.com/classbind/classbind/deploy/kinds"
)

// NewCommand returns the command kinds.
func NewCommand() *cobra.Command {
	example, format := false, output.Format("")
	c := &cobra.Command{
		Use:   "kinds [NAME...]",
		Short: "List or print presets, which register the kinds of known projects",
		Long: `List the presets, which register the kinds of known projects, or print some of them for
kubectl. A preset has ClaimKinds, ClassKinds, and the ClusterRole that lets classbind
read the classes. It is a folder of deploy/kinds, whose README says what is bound,
what is not, and why. The command needs no cluster.

If several presets use the same classes, the ClassKind is in a separate preset. The
column NEEDS and a note on standard error name it. With names, -o yaml is the default,
and -o json prints a List that kubectl takes, too. Apply presets in any order. Delete
a preset that others need after you have deleted all of these.

With --examples, the command prints the example of each preset instead: classes, objects
that claims name, and claims that get the classes. Apply an example when the preset is
ready, in a cluster for tests: its classes name drivers and controllers that do not
exist, and some are defaults.`,
		Example: `  # Which presets are there?
  classbind kinds

  # Bind Gateways:
  classbind kinds gateway-api | kubectl apply -f -

  # Two presets that use the same classes, and what both need:
  classbind kinds kueue-queues kueue jobset | kubectl apply -f -

  # Stop binding Jobs, but not JobSets:
  classbind kinds kueue | kubectl delete -f -

  # Print classes and claims to try it out:
  classbind kinds gateway-api --examples`,
		ValidArgsFunction: complete,
		RunE: func(c *cobra.Command, names []string) error {
			if example && len(names) == 0 {
				return errors.New("--examples: name a preset, such as classbind kinds gateway-api --examples")
			}
			if example && format == "table" && c.Flags().Changed("output") {
				return errors.New(`--output="table": examples are manifests: it must be yaml or json`)
			}
			if err := format.Validate(); err != nil {
				return err
			}
			if len(names) > 0 && !c.Flags().Changed("output") {
				format = "yaml"
			}
			return run(c.OutOrStdout(), c.ErrOrStderr(), names, example, format)
		},
	}
	format.Add(c)
	c.Flags().BoolVar(&example, "examples", false, "print the examples, such as classes and claims, instead of the registrations")
	return c
}

func run(out, progress io.Writer, names []string, example bool, format output.Format) error {
	presets, err := readPresets()
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return format.Print(out, listOf(presets), func() string { return list(presets) })
	}
	if presets, err = find(presets, names); err != nil {
		return err
	}
	text, err := manifestOf(presets, example)
	if err != nil {
		return err
	}
	_, _ = io.WriteString(progress, notes(presets))
	if format == "table" {
		return format.Print(out, nil, func() string { return list(presets) })
	}
	return format.PrintManifests(out, string(text))
}

// Version is the version of the list for programs. New fields keep it; any other change needs a new version.
const Version = "kinds.classbind.io/v1beta1"

// List is what "classbind kinds" prints with -o json or yaml.
type List struct {
	metav1.TypeMeta `json:",inline"`
	Items           []Listed `json:"items"` // Items are sorted by name.
}

// Listed is a preset in a List.
type Listed struct {
	Name       string   `json:"name"`
	Summary    string   `json:"summary"`
	Needs      []string `json:"needs,omitempty"` // Needs are the presets that it is applied with.
	ClaimKinds []string `json:"claimKinds,omitempty"`
}

func listOf(presets []preset) List {
	all := List{TypeMeta: metav1.TypeMeta{APIVersion: Version, Kind: "List"}}
	for _, p := range presets {
		all.Items = append(all.Items, Listed{p.name, p.summary, p.needs, p.claimKinds})
	}
	return all
}

func list(presets []preset) string {
	rows := [][]string{{"NAME", "SUMMARY", "NEEDS", "CLAIM KINDS"}}
	for _, p := range presets {
		rows = append(rows, []string{p.name, p.summary, strings.Join(p.needs, ","), strings.Join(p.claimKinds, ",")})
	}
	return output.Columns(rows...)
}

// complete offers the presets that are not named yet.
func complete(_ *cobra.Command, named []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	presets, err := readPresets()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var left []cobra.Completion
	for _, p := range presets {
		if !slices.Contains(named, p.name) {
			left = append(left, cobra.CompletionWithDesc(p.name, p.summary))
		}
	}
	return left, cobra.ShellCompDirectiveNoFileComp
}

// exampleFiles are in the order in which they are applied. An example has some of them.
var exampleFiles = []string{"example/classes.yaml", "example/related.yaml", "example/claims.yaml"}

// separator of the documents in a preset.
const separator = "---\n"

// preset is a folder of deploy/kinds.
type preset struct {
	name string
	// summary is the first line of its README.
	summary string
	// claimKinds are the names of its ClaimKinds.
	claimKinds []string
	// classKinds are the names of its ClassKinds.
	classKinds []string
	// named are the class kinds that its ClaimKinds name.
	named []string
	// needs are the presets that have those of them which it has not: several presets use these, and none may take them
	// along when it is deleted. users are the presets that need this one.
	needs, users []string
}

// readPresets returns all presets, sorted by name.
func readPresets() ([]preset, error) {
	folders, err := fs.ReadDir(kinds.Files, ".")
	if err != nil {
		return nil, fmt.Errorf("cannot read the presets: %w", err)
	}
	presets := make([]preset, len(folders))
	for i, f := range folders {
		if presets[i], err = readPreset(f.Name()); err != nil {
			return nil, fmt.Errorf("cannot read the preset %q: %w", f.Name(), err)
		}
	}
	link(presets)
	return presets, nil
}

func link(presets []preset) {
	for i := range presets {
		for j := range presets {
			p, other := &presets[i], &presets[j]
			has := func(name string) bool { return slices.Contains(other.classKinds, name) }
			if i != j && slices.ContainsFunc(p.named, has) {
				p.needs, other.users = append(p.needs, other.name), append(other.users, p.name)
			}
		}
	}
}

func readPreset(name string) (preset, error) {
	p := preset{name: name}
	readme, err := kinds.Files.ReadFile(path.Join(name, "README.md"))
	if err != nil {
		return p, err
	}
	title, _, _ := strings.Cut(string(readme), "\n")
	p.summary = strings.TrimPrefix(title, "# ")
	text, err := manifestOf([]preset{p}, false)
	if err != nil {
		return p, err
	}
	for document := range bytes.SplitSeq(text, []byte(separator)) {
		o := registration{}
		if err := yaml.Unmarshal(document, &o); err != nil {
			return p, err
		}
		switch o.Kind {
		case "ClaimKind":
			p.claimKinds = append(p.claimKinds, o.Name)
			for _, named := range o.Spec.Classes.Kinds {
				p.named = append(p.named, named.Name)
			}
		case "ClassKind":
			p.classKinds = append(p.classKinds, o.Name)
		}
	}
	return p, nil
}

// ClaimKind of a name that a preset has, nil if none has it. Its annotation names the preset.
func ClaimKind(name string) (*v1beta1.ClaimKind, error) {
	return known[v1beta1.ClaimKind]("ClaimKind", name)
}

// ClassKind of a name that a preset has, nil if none has it.
func ClassKind(name string) (*v1beta1.ClassKind, error) {
	return known[v1beta1.ClassKind]("ClassKind", name)
}

func known[T any](kind, name string) (*T, error) {
	presets, err := readPresets()
	if err != nil {
		return nil, err
	}
	for _, p := range presets {
		text, err := manifestOf([]preset{p}, false)
		if err != nil {
			return nil, err
		}
		for document := range bytes.SplitSeq(text, []byte(separator)) {
			o := registration{}
			if err := yaml.Unmarshal(document, &o); err != nil {
				return nil, err
			}
			if o.Kind == kind && o.Name == name {
				found := new(T)
				return found, yaml.Unmarshal(document, found)
			}
		}
	}
	return nil, nil
}

// find the presets with these names, sorted: those that need others come last.
func find(presets []preset, names []string) ([]preset, error) {
	var found []preset
	var unknown []string
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		i := slices.IndexFunc(presets, func(p preset) bool { return p.name == name })
		if i < 0 {
			unknown = append(unknown, fmt.Sprintf("%q", name))
			continue
		}
		found = append(found, presets[i])
	}
	if len(unknown) == 0 {
		slices.SortStableFunc(found, func(a, b preset) int { return cmp.Compare(len(a.needs), len(b.needs)) })
		return found, nil
	}
	var all []string
	for _, p := range presets {
		all = append(all, p.name)
	}
	return nil, fmt.Errorf("there is no preset %s: name one of %s", strings.Join(unknown, ", "), strings.Join(all, ", "))
}

// notes say what belongs to presets that are printed, and is not printed itself.
func notes(presets []preset) string {
	var b strings.Builder
	absent := func(names []string) string {
		return strings.Join(slices.DeleteFunc(slices.Clone(names), func(name string) bool {
			return slices.ContainsFunc(presets, func(p preset) bool { return p.name == name })
		}), ", ")
	}
	for _, p := range presets {
		if needs := absent(p.needs); needs != "" {
			fmt.Fprintf(&b, "note: %s needs %s, too, which other presets also need: apply both, and delete %[2]s last\n", p.name, needs)
		}
		if users := absent(p.users); users != "" {
			fmt.Fprintf(&b, "note: %s is also for %s: delete it last\n", p.name, users)
		}
	}
	return b.String()
}

// manifestOf the presets, or of their examples, as one YAML stream.
func manifestOf(presets []preset, example bool) ([]byte, error) {
	var texts [][]byte
	for _, p := range presets {
		files := exampleFiles
		if !example {
			kustomization := struct {
				Resources []string `json:"resources"`
			}{}
			text, err := kinds.Files.ReadFile(path.Join(p.name, "kustomization.yaml"))
			if err == nil {
				err = yaml.Unmarshal(text, &kustomization)
			}
			if err != nil {
				return nil, err
			}
			files = kustomization.Resources
		}
		for _, file := range files {
			text, err := kinds.Files.ReadFile(path.Join(p.name, file))
			switch {
			case example && errors.Is(err, fs.ErrNotExist):
			case err != nil:
				return nil, err
			default:
				texts = append(texts, text)
			}
		}
	}
	return bytes.Join(texts, []byte(separator)), nil
}

// registration is what presets need of one.
type registration struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Classes struct {
			Kinds []v1beta1.ClassKindLink `json:"kinds"`
		} `json:"classes"`
	} `json:"spec"`
}
