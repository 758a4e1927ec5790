package connect

import (
	"fmt"
	"slices"
	"strings"
)

// Name is an object on the command line.
type Name struct{ Kind, Name string }

func (n Name) String() string { return n.Kind + "/" + n.Name }

// Names of objects, as kubectl takes them: KIND/NAME each, or one KIND and then each NAME.
func Names(args []string) (names []Name, err error) {
	if len(args) == 0 {
		return nil, nil
	}
	if kind := args[0]; !strings.Contains(kind, "/") {
		for _, name := range args[1:] {
			names = append(names, Name{kind, name})
		}
	} else {
		for _, arg := range args {
			kind, name, _ := strings.Cut(arg, "/")
			names = append(names, Name{kind, name})
		}
	}
	malformed := func(n Name) bool { return n.Kind == "" || n.Name == "" || strings.Contains(n.Name, "/") }
	if len(names) == 0 || slices.ContainsFunc(names, malformed) {
		return nil, fmt.Errorf("%q: must be KIND/NAME or KIND NAME; --namespace names the namespace", args)
	}
	return names, nil
}

// Kinds returns an error unless all arguments can be kinds.
func Kinds(args []string) error {
	for _, arg := range args {
		if arg == "" || strings.Contains(arg, "/") {
			return fmt.Errorf("%q: must be a kind, without a name", arg)
		}
	}
	return nil
}
