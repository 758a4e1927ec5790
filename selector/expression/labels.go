package expression

import (
	"errors"
	"fmt"
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

// labelSelectorMatches is the function of expressions that Kubernetes does not have.
const labelSelectorMatches = "labelSelectorMatches"

// ours are the functions that the API server does not know.
var ours = []string{labelSelectorMatches}

// labelSelectors adds labelSelectorMatches(selector, labels). The selector is a LabelSelector as Kubernetes writes it: an empty one
// matches all labels, and null none.
func labelSelectors() cel.EnvOption {
	matched := cel.MapType(cel.StringType, cel.StringType)
	never := func(ref.Val, ref.Val) ref.Val { return types.False }
	return cel.Function(labelSelectorMatches,
		cel.Overload("label_selector_matches", []*cel.Type{cel.MapType(cel.StringType, cel.DynType), matched}, cel.BoolType,
			cel.BinaryBinding(selects)),
		cel.Overload("null_label_selector_matches", []*cel.Type{cel.NullType, matched}, cel.BoolType, cel.BinaryBinding(never)))
}

func selects(by, these ref.Val) ref.Val {
	content, err := contentOf(by)
	if err != nil { // As cel-go says where it comes across the same key first.
		return types.NewErr("no such overload: %w", err)
	}
	s := &metav1.LabelSelector{}
	// A misspelt field must not become a selector that matches everything.
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(content, s, true); err != nil {
		return types.NewErr(invalidSelector+": %w", err)
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return types.NewErr(invalidSelector+": %w", err)
	}
	set, err := labelsOf(these)
	if err != nil {
		return types.WrapErr(err)
	}
	return types.Bool(selector.Matches(set))
}

// contentOf a map as JSON is decoded.
func contentOf(v ref.Val) (map[string]any, error) {
	if c, ok := v.(*content); ok {
		return c.fields, nil
	}
	value, err := decoded(v)
	if err != nil {
		return nil, err
	}
	fields, ok := value.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("must be a map, is of type %s", v.Type().TypeName())
	}
	return fields, nil
}

func labelsOf(v ref.Val) (labels.Set, error) {
	content, err := contentOf(v)
	if err != nil {
		return nil, err
	}
	set := make(labels.Set, len(content))
	for key, value := range content {
		text, ok := value.(string)
		if !ok {
			return nil, errors.New("no such overload: labels must be strings") // As cel-go says where it comes across the same label first.
		}
		set[key] = text
	}
	return set, nil
}

// IsPortable reports whether the API server can evaluate the expression, too.
func (e *Expression) IsPortable() bool {
	portable := true
	walk(e.ast, func(part ast.NavigableExpr) {
		if part.Kind() == ast.CallKind && slices.Contains(ours, part.AsCall().FunctionName()) {
			portable = false
		}
	})
	return portable
}
