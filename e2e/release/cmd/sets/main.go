// Command sets prints how many exported methods or fields each type of the product has, and which embedded field promotes how many of them.
// What Kubernetes gives to each of its API types, and what controller-gen writes, does not count. The largest set comes first.
package main

import (
	"fmt"
	"go/types"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

const module = "github.com/classbind/classbind/"

func main() {
	loaded, err := packages.Load(&packages.Config{Mode: packages.LoadTypes, Dir: ".."}, "./...")
	if err == nil && packages.PrintErrors(loaded) > 0 {
		err = fmt.Errorf("cannot load the packages of %s", module)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
	var sets []set
	for _, p := range loaded {
		for _, name := range p.Types.Scope().Names() {
			if t, ok := p.Types.Scope().Lookup(name).(*types.TypeName); ok && !t.IsAlias() && !strings.HasSuffix(p.Name, "test") {
				sets = append(sets, exported(strings.TrimPrefix(p.PkgPath, module)+"."+name, t))
			}
		}
	}
	slices.SortStableFunc(sets, func(a, b set) int { return b.size() - a.size() })
	for _, s := range sets {
		fmt.Println(s)
	}
}

type set struct {
	of              string
	methods, fields int
	promoted        map[string]int // by the embedded field
}

func (s set) size() int { return max(s.methods, s.fields) }

func (s set) String() string {
	parts := []string{fmt.Sprintf("%d %s: %d methods", s.size(), s.of, s.methods), fmt.Sprintf("%d fields", s.fields)}
	for _, by := range slices.Sorted(maps.Keys(s.promoted)) {
		parts = append(parts, fmt.Sprintf("%d by %s", s.promoted[by], by))
	}
	return strings.Join(parts, ", ")
}

func exported(name string, t *types.TypeName) set {
	s := set{of: name, promoted: map[string]int{}}
	members := map[string]bool{}
	collectFields(t.Type(), members, map[types.Type]bool{})
	for m := range types.NewMethodSet(pointer(t.Type())).Methods() {
		members[m.Obj().Name()] = true
	}
	for member := range members {
		obj, index, _ := types.LookupFieldOrMethod(t.Type(), true, t.Pkg(), member)
		if obj == nil || !obj.Exported() || strings.HasPrefix(member, "DeepCopy") {
			continue
		}
		if obj.Pkg() != nil && strings.Contains(obj.Pkg().Path(), "apis/meta/") { // The method of error has no package.
			continue
		}
		if _, ok := obj.(*types.Var); ok {
			s.fields++
		} else {
			s.methods++
		}
		if len(index) > 1 {
			s.promoted[t.Type().Underlying().(*types.Struct).Field(index[0]).Name()]++
		}
	}
	return s
}

// collectFields collects the names of all fields, at any depth of embedding.
func collectFields(t types.Type, names map[string]bool, seen map[types.Type]bool) {
	if p, ok := t.Underlying().(*types.Pointer); ok {
		t = p.Elem()
	}
	fields, ok := t.Underlying().(*types.Struct)
	if !ok || seen[t] {
		return
	}
	seen[t] = true
	for f := range fields.Fields() {
		names[f.Name()] = true
		if f.Embedded() {
			collectFields(f.Type(), names, seen)
		}
	}
}

// pointer returns the type whose method set has all methods of t.
func pointer(t types.Type) types.Type {
	if types.IsInterface(t) {
		return t
	}
	return types.NewPointer(t)
}
