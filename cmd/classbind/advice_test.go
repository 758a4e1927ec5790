package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestStandardInputOnce names standard input twice, with all flags of every command that read files.
func TestStandardInputOnce(t *testing.T) {
	commands := 0
	for _, c := range newCommand("classbind").Commands() {
		var files []string
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if _, isFile := f.Annotations[cobra.BashCompFilenameExt]; isFile && f.Value.Type() == "stringArray" && f.Name != "with" { // It goes without --offline.
				files = append(files, "--"+f.Name+"=-")
			}
		})
		if len(files) < 2 {
			continue
		}
		commands++
		_, err := run(t, append([]string{c.Name()}, files...)...)
		require.ErrorContains(t, err, "standard input can be read once", "classbind %s %v", c.Name(), files)
	}
	assert.Equal(t, 2, commands, "explain and simulate")
}

// advised are the commands of others in texts of ours, with what these are filled in with as x, and where each is run. A new one needs a line.
var advised = map[string]string{
	"kubectl annotate":                                       "TestSetDefault", // of the guard, as the next one
	"kubectl patch x --type json --patch '[{":                "TestSetDefault",
	"kubectl patch x --type merge --patch 'x'":               "TestMarkPatch",
	"kubectl apply -k deploy":                                "install.md",
	"kubectl apply -k deploy/components/policies":            "TestPoliciesNotPermitted",
	"kubectl get -o yaml --show-managed-fields":              "explain.md",
	"kubectl annotate classkind x x=true":                    "TestOneBadClassKind",
	"kubectl annotate classkind x x-":                        "TestOneBadClassKind",
	"kubectl create clusterrole classbind-roles --verb=list": "use.md",
	"kubectl label clusterrole classbind-roles x=true":       "use.md",
	"kubectl create clusterrole x --verb=get":                "TestClassKindsNotPermitted",
	"kubectl label clusterrole x x=true":                     "TestClassKindsNotPermitted",
	// They only show something, need a decision of people, or a broken installation.
	"kubectl annotate x":                                                              "",
	"kubectl annotate x x-":                                                           "",
	"kubectl auth can-i list claimkinds.classbind.io":                                 "",
	"kubectl delete lease x --namespace x":                                            "",
	"kubectl delete secret --namespace x x":                                           "",
	"kubectl describe certificates --namespace":                                       "",
	"kubectl describe claimkind x shows admins what to do":                            "",
	"kubectl describe pods --namespace x --selector app.kubernetes.io/name=classbind": "",
	"kubectl describe x":                                                              "",
	"kubectl edit x":                                                                  "",
	"kubectl get claimkinds":                                                          "",
	"kubectl get claimkinds.classbind.io":                                             "",
	"kubectl logs with the same":                                                      "",
	"kubectl rollout undo --namespace x deployment/x":                                 "",
	"kubectl scale --namespace x deployment/x --replicas=2":                           "",
	"kubectl --dry-run":                                                               "",
}

var (
	commands = regexp.MustCompile("(classbind [a-z-]+|kubectl [a-z]+)[^;,:`()\"]*")
	verb     = regexp.MustCompile(`%(\[\d\])?[a-z]`)
)

// TestAdvice finds the commands in the texts of the product, but for those of helps, which are documents. Our own have the commands and flags
// that are named.
func TestAdvice(t *testing.T) {
	root, found := newCommand("classbind"), 0
	require.NoError(t, filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == "e2e":
			return fs.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		ast.Inspect(file, func(n ast.Node) bool {
			e, _ := n.(ast.Expr)
			text, isText := textOf(e)
			if isText && strings.Count(text, "\n") > 2 {
				return false
			}
			for _, command := range commands.FindAllString(verb.ReplaceAllString(text, "x"), -1) {
				words := strings.Fields(command)
				if words[0] == "kubectl" {
					_, known := advised[strings.Join(words, " ")]
					assert.True(t, known || words[1] == "takes" || words[1] == "classbind", "%s: %q", path, command)
					continue
				}
				c, _, err := root.Find(words[1:2])
				if err != nil || c == root {
					continue // It is a sentence about classbind.
				}
				found++
				for _, word := range words[2:] {
					name, _, _ := strings.Cut(strings.TrimLeft(word, "-"), "=")
					isFlag := strings.HasPrefix(word, "-") && name != ""
					known := c.Flags().Lookup(name) != nil || len(name) == 1 && c.Flags().ShorthandLookup(name) != nil
					assert.True(t, !isFlag || known, "%s: %q has no flag %s", path, command, word)
				}
			}
			return !isText
		})
		return err
	}))
	assert.Greater(t, found, 20)
}

// textOf a string, or of several that are added up. What is no literal is x.
func textOf(e ast.Expr) (text string, isText bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			text, _ = strconv.Unquote(e.Value)
			return text, true
		}
	case *ast.BinaryExpr:
		if e.Op == token.ADD {
			x, ok := textOf(e.X)
			y, also := textOf(e.Y)
			if !ok && also {
				x = "x"
			} else if ok && !also {
				y = "x"
			}
			return x + y, ok || also
		}
	}
	return "", false
}
