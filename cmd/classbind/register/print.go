package register

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/cmd/classbind/kinds"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/truncate"
)

// isExpression matches the fields of an object as an expression writes them, and isName the name of an object.
var (
	isExpression = regexp.MustCompile(`^[A-Za-z0-9_.?]+$`)
	isName       = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)
)

// manifest of the registrations: the reference is at the first of the places. registered are ClassKinds that stay as they are.
func (s search) manifest(name string, places []place, registered []v1beta1.ClassKind) (string, error) {
	p, of := places[0], s.of
	spec, claims, selects := map[string]any{}, map[string]any{}, map[string]any{}
	r := p.reference()
	reference := map[string]any{"path": r.Path, "label": r.Label, "annotation": r.Annotation, "form": r.Form}
	if len(r.Parts) > 0 {
		reference["parts"] = r.Parts
	}
	if r.List != "" {
		reference["list"] = r.List
	}
	maps.DeleteFunc(reference, func(_ string, value any) bool { return fmt.Sprint(value) == "" })
	comments, confused := s.guesses(places)
	if name != of.name {
		claims["resource"] = of.name
		last, _, _ := strings.Cut(name, ".")
		selects["annotation"] = "classbind.io/" + last + "-selector"
		comments = append(comments, fmt.Sprintf("Another ClaimKind, or that of a preset, has the name %s.", of.name))
	}
	if !p.path.IsKey() {
		comments = append(comments, s.describe(p, spec, claims, reference, selects)...)
	}
	var linked []any
	var objects []any
	rules := map[string][]string{}
	if preset, err := kinds.ClaimKind(name); err != nil {
		return "", err
	} else if preset != nil {
		preset, _, _ := strings.Cut(preset.Annotations[v1beta1.PresetAnnotation], "@")
		comments = append(comments, fmt.Sprintf(
			"The preset %s registers these claims, and knows more of them: classbind kinds %[1]s.", preset))
	}
	for _, class := range s.classes {
		linked = append(linked, map[string]any{"name": class.name})
		plural, group, _ := strings.Cut(class.name, ".")
		rules[group] = append(rules[group], plural)
		if slices.ContainsFunc(registered, func(k v1beta1.ClassKind) bool { return k.Name == class.name }) {
			comments = append(comments, fmt.Sprintf("The ClassKind %s is registered already, and stays as it is.", class.name))
			continue
		}
		preset, err := kinds.ClassKind(class.name)
		if err != nil {
			return "", err
		}
		classSpec := any(map[string]any{})
		if preset != nil { // If it is there, ours takes nothing from it.
			if !slices.ContainsFunc(preset.Spec.ClaimKinds, func(l v1beta1.ClaimKindLink) bool { return l.Name == name }) {
				preset.Spec.ClaimKinds = append(preset.Spec.ClaimKinds, v1beta1.ClaimKindLink{Name: name})
			}
			classSpec = preset.Spec
		}
		objects = append(objects, registration("ClassKind", class.name, classSpec))
	}
	offered := map[string]any{"kinds": linked}
	if confused {
		offered["precedence"] = v1beta1.PrecedenceListed
	}
	spec["claims"], spec["reference"], spec["selector"], spec["classes"] = claims, reference, selects, offered
	maps.DeleteFunc(spec, func(_ string, value any) bool { part, ok := value.(map[string]any); return ok && len(part) == 0 })
	var role []any
	for _, group := range slices.Sorted(maps.Keys(rules)) {
		role = append(role, map[string]any{
			"apiGroups": []string{group}, "resources": rules[group], "verbs": []string{"get", "list", "watch"},
		})
	}
	clusterRole := map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "rules": role,
		"metadata": map[string]any{"name": "classbind-" + name, "labels": map[string]any{v1beta1.AggregateLabel: "true"}},
	}
	// Each needs those before it.
	objects = slices.Concat([]any{clusterRole}, objects, []any{registration("ClaimKind", name, spec)})
	var b strings.Builder
	for _, comment := range comments {
		b.WriteString("# " + truncate.Printable(comment) + "\n") // It has names of a vendor.
	}
	for i, object := range objects {
		text, err := yaml.Marshal(object)
		if err != nil {
			return "", err
		}
		if i > 0 {
			b.WriteString("---\n")
		}
		b.Write(text)
	}
	return b.String(), nil
}

// describe adds to a ClaimKind what the schema says of claims and of the reference, and returns comments.
func (s search) describe(p place, spec, claims, reference, selects map[string]any) (comments []string) {
	c := selector.CheckPaths(p.claimKind(s.of), s.schema)
	f := s.schema.At(p.path)
	name := f
	if p.form.IsObject {
		name = s.schema.At(p.schemaPath().Below("name"))
	}
	if parent, alone := s.parent(p); !alone {
		reference["whenParentAbsent"] = v1beta1.LeaveClaimAlone
		comments = append(comments, fmt.Sprintf("A claim without %s is left alone: only its author can create it.", shown(parent)))
	} else if parent != nil {
		comments = append(comments, fmt.Sprintf(
			"A claim without %s gets it. If that is wrong, set whenParentAbsent: LeaveAlone.", shown(parent)))
	}
	if instead := s.instead(p); len(instead) > 0 {
		var skip []any
		for _, path := range instead {
			skip = append(skip, map[string]any{"path": path})
		}
		claims["skipIfSet"] = skip
		comments = append(comments, fmt.Sprintf("A claim with %s brings its own, and is left alone.", strings.Join(instead, " or ")))
	}
	if p.begun {
		reference["whenAbsent"] = v1beta1.LeaveAbsentAlone
		comments = append(comments, fmt.Sprintf(
			"The schema requires %s in the reference, which only an author can give. A claim without a reference is left alone.",
			strings.Join(c.Company, ", ")))
	}
	given := givenName(f.Schema.Default)
	if !p.begun && !p.isList && given == "" && name.Schema.Allows("") && !s.schema.Requires(p.path) { // "" may mean no class.
		reference["whenEmpty"] = v1beta1.LeaveEmptyAlone
	}
	if slices.Contains(c.Required, v1beta1.FieldPath(p.String())) {
		spec["whenUnmatched"] = v1beta1.Deny
		comments = append(comments, "The schema requires the reference, so a claim that no class matches is refused.")
	}
	if given != "" {
		at := "claim." + p.path[0] + ".?" + strings.Join(p.path[1:], ".") // All that follows is optional, too.
		if p.form.IsObject {
			at += ".name"
		}
		then := ": write spec.claims.when, or none is bound."
		if len(p.path) > 1 && isExpression.MatchString(at) && isName.MatchString(given) {
			claims["when"] = fmt.Sprintf("%s.orValue('') in ['', '%s']", at, given)
			then = ". It counts as no reference."
		}
		comments = append(comments, fmt.Sprintf(
			"The schema has a default, %q, which claims have before classbind sees them%s", given, then))
	}
	if before, ok := strings.CutSuffix(p.path[len(p.path)-1], "Ref"); ok {
		selectorPath := slices.Concat(p.path[:len(p.path)-1], []string{before + "Selector"})
		if s.schema.At(append(selectorPath, "matchLabels")).Is("object").Err == nil {
			selects["path"] = "." + strings.Join(selectorPath, ".")
		}
	}
	return comments
}

func registration(kind, name string, spec any) map[string]any {
	return map[string]any{"apiVersion": v1beta1.GroupVersion.String(), "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec}
}

// guesses that the first of the places rests on. With confused, a reference there may mean a class of several kinds.
func (s search) guesses(places []place) (comments []string, confused bool) {
	p, of, classes := places[0], s.of, s.classes
	form := p.claimKind(of).Reader.Reference.Form
	tied := len(places) > 1 && places[1].evidence == p.evidence
	if p.evidence > 0 && (p.evidence < sure || tied) {
		comments = append(comments, fmt.Sprintf("A guess: the reference of a claim is %s.", p))
	}
	var others []string
	for _, other := range places[1:] {
		if len(others) < maxOthers {
			others = append(others, other.String())
		}
	}
	if len(others) > 0 {
		comments = append(comments, fmt.Sprintf("Other fields that could be it: %s. Name one with --path.", strings.Join(others, ", ")))
	}
	for i, class := range classes {
		if class.Namespaced && !of.Namespaced {
			comments = append(comments, fmt.Sprintf(
				"Set spec.classes.namespaces of the ClaimKind: a %s has a namespace, and a %s has none.", class.Kind, of.Kind))
		}
		for _, other := range classes[:i] {
			if form.Confuses(class.GroupVersionKind, other.GroupVersionKind) {
				confused = true
				comments = append(comments, fmt.Sprintf(
					"A guess: a reference of the %s, which cannot distinguish a %s from a %s, means the first that has the name.",
					form, other.Kind, class.Kind))
			}
		}
	}
	return comments, confused
}

// givenName is the name of a class that the schema gives to claims without a reference.
func givenName(preset json.RawMessage) string {
	var name string
	if json.Unmarshal(preset, &name) == nil {
		return name
	}
	var reference struct{ Name string }
	_ = json.Unmarshal(preset, &reference) // There is none, or it has no name.
	return reference.Name
}
