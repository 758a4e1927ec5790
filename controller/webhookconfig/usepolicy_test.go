package webhookconfig

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
	"sigs.k8s.io/yaml"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/inventory"
)

// rights are what somebody may use, as RESOURCE/NAMESPACE/NAME. The authorizer fails a test that asks for anybody else.
type rights struct {
	t    *testing.T
	user user.DefaultInfo
	may  func(class string) bool
}

func (r rights) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	assert.Equal(r.t, "use", a.GetVerb())
	assert.Equal(r.t, r.user.Name, a.GetUser().GetName())
	assert.Subset(r.t, a.GetUser().GetGroups(), r.user.Groups, "We should ask for the group of the namespace.")
	resource := schema.GroupResource{Group: a.GetAPIGroup(), Resource: a.GetResource()}
	if r.may(fmt.Sprintf("%s/%s/%s", resource, a.GetNamespace(), a.GetName())) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// teamRights are those of the namespace team.
func teamRights(t *testing.T, may func(class string) bool) rights {
	t.Helper()
	return rights{t, user.DefaultInfo{Name: "system:serviceaccount:team:classbind.io", Groups: []string{"system:serviceaccounts:team"}}, may}
}

// usePolicy is one that an API server has compiled.
type usePolicy struct {
	conditions
	variables   []usePart
	validations []usePart
	messages    []usePart // without a program where there is no expression
}

type usePart struct {
	cel.Program
	text string // the name, or the message
}

// newUsePolicy compiles a policy as the oldest API server does.
func newUsePolicy(t *testing.T, s *admissionregistrationv1.ValidatingAdmissionPolicySpec) (p usePolicy) {
	t.Helper()
	env, err := environment.MustBaseEnvSet(version.MajorMinor(1, 31)).NewExpressionsEnv().Extend(
		cel.Variable("object", cel.DynType), cel.Variable("oldObject", cel.DynType), cel.Variable("request", cel.DynType))
	require.NoError(t, err)
	authorized := func() celEnvironment {
		with, err := env.Extend(cel.Variable("authorizer", library.AuthorizerType))
		require.NoError(t, err)
		return celEnvironment{with}
	}
	p.conditions = authorized().conditions(t, s.MatchConditions)
	for _, v := range s.Variables {
		ast, issues := authorized().Compile(v.Expression)
		require.NoError(t, issues.Err(), v.Expression)
		p.variables = append(p.variables, usePart{authorized().compile(t, v.Expression), "variables." + v.Name})
		env, err = env.Extend(cel.Variable("variables."+v.Name, ast.OutputType()))
		require.NoError(t, err)
	}
	for _, v := range s.Validations {
		assert.NotContains(t, v.Message, "\n")
		assert.Equal(t, metav1.StatusReasonForbidden, *v.Reason)
		p.validations = append(p.validations, usePart{authorized().compile(t, v.Expression), v.Expression})
		message := usePart{text: v.Message}
		if v.MessageExpression != "" {
			message.Program = celEnvironment{env}.compile(t, v.MessageExpression)
		}
		p.messages = append(p.messages, message)
	}
	return p
}

// refused returns what an API server says of the write of a claim in a namespace; empty, it lets it pass.
func (p usePolicy) refused(t *testing.T, before, now map[string]any, namespace string, who authorizer.UnconditionalAuthorizer) string {
	t.Helper()
	request := map[string]any{"operation": "CREATE", "userInfo": map[string]any{"username": "ann"}}
	variables := map[string]any{"object": now, "oldObject": nil, "request": request}
	if before != nil {
		variables["oldObject"], request["operation"] = before, "UPDATE"
	}
	if namespace != "" {
		request["namespace"] = namespace
	}
	variables["authorizer"] = library.NewAuthorizerVal(&user.DefaultInfo{Name: "ann"}, who)
	called, err := p.hold(variables)
	require.NoError(t, err, "%v: no condition may fail", now)
	if !called {
		return ""
	}
	eval := func(part usePart) any {
		out, _, err := part.ContextEval(t.Context(), variables)
		require.NoError(t, err, "%v: no expression may fail: %s", now, part.text)
		return out.Value()
	}
	for _, v := range p.variables {
		variables[v.text] = eval(v)
	}
	for i, v := range p.validations {
		switch message := p.messages[i]; {
		case eval(v) == true:
			continue
		case message.Program == nil:
			return message.text
		default:
			text := eval(message)
			require.IsType(t, "", text)
			assert.NotContains(t, text, "\n")
			return text.(string)
		}
	}
	return ""
}

// useClasses are classes of kinds that some forms of reference cannot distinguish.
func useClasses() (all []*inventory.Classes) {
	for name, kind := range map[string]schema.GroupVersionKind{
		"golds.example.org": {Group: "example.org", Version: "v1", Kind: "Gold"},
		"teams.example.org": {Group: "example.org", Version: "v1", Kind: "Team"},
		"golds.others.org":  {Group: "others.org", Version: "v2", Kind: "Gold"},
		"secrets":           {Version: "v1", Kind: "Secret"},
	} {
		k := &v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.ClassKindSpec{ClaimKinds: controllertest.Links("claims.example.org")}}
		all = append(all, inventory.NewClasses(inventory.NewClassKind(k, kind, name != "golds.example.org"), nil))
	}
	return all
}

// useKind is a claim kind with the reference .spec.ref, and the entry by which its claims are bound.
func useKind(form v1beta1.ReferenceForm, change func(*v1beta1.ClaimKindSpec)) (*v1beta1.ClaimKind, *Entry) {
	k := controllertest.NewClaimKind("claims.example.org")
	k.Spec.Reference = v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.ref"}, Form: form}
	k.Spec.Classes.Use = &v1beta1.Use{Subject: v1beta1.UseByNamespace}
	k.Spec.Classes.Precedence = v1beta1.PrecedenceListed
	k.Spec.Classes.Kinds = []v1beta1.ClassKindLink{{Name: "teams.example.org"}, {Name: "golds.example.org"}, {Name: "golds.others.org"}, {Name: "secrets"}}
	change(&k.Spec)
	scope := admissionregistrationv1.NamespacedScope
	return k, &Entry{Rules: []rule{*newRule("claims.example.org", []string{"v1"}, &scope)}}
}

// references have each value in each of these fields, beside each of others.
func references(form *claim.Form) []any {
	values := map[string][]any{
		"apiVersion": {"", nil, "example.org/v1", "example.org/v1/v2", "others.org/v2", "v1", "/v1", "none.org/v1", int64(5)},
		"apiGroup":   {"", nil, "example.org", "others.org", "none.org", int64(5)},
		"group":      {"", nil, "example.org", "others.org", "none.org", true},
		"kind":       {"", "Gold", "Team", "Secret", "None", []any{"Gold"}},
		"namespace":  {"", nil, "shared", map[string]any{}},
		"name":       {"", nil, "x", int64(5), []any{"x"}},
		"flag":       {"", nil, "true", true, false},
	}
	if len(form.Parts) == 1 && !form.IsObject {
		return append(values["name"], map[string]any{"name": "x"})
	}
	all := []any{map[string]any{}}
	for i := range form.Parts {
		field := form.Parts[i].Field()
		for _, reference := range all {
			for _, value := range values[field] {
				with := maps.Clone(reference.(map[string]any))
				with[field] = value
				all = append(all, with)
			}
		}
	}
	return append(all, "x", []any{"x"}, int64(5), nil, map[string]any{"more": "x"})
}

// TestUsePolicyAgrees has the policy and classbind read the same references: a claim must be allowed to use all classes
// that the reference may mean, and there must be one.
func TestUsePolicyAgrees(t *testing.T) {
	namespaces := map[string]v1beta1.ClassNamespaces{"Claim": {}, "Names": {From: v1beta1.FromNames, Names: []v1beta1.NamespaceName{"platform"}}}
	all := map[string]v1beta1.Reference{
		"Defaults": {Place: v1beta1.Place{Path: ".spec.ref"}, Parts: []v1beta1.ReferencePart{
			{Is: v1beta1.NamePart, Place: v1beta1.Place{Path: ".spec.ref.name"}},
			{Is: v1beta1.KindPart, Place: v1beta1.Place{Path: ".spec.ref.kind"}, Default: "Gold"},
			{Is: v1beta1.GroupPart, Place: v1beta1.Place{Path: ".spec.ref.group"}, Default: "example.org"},
		}},
		"Flag": {Place: v1beta1.Place{Path: ".spec.ref"}, Parts: []v1beta1.ReferencePart{
			{Is: v1beta1.NamePart, Place: v1beta1.Place{Path: ".spec.ref.name"}},
			{Is: v1beta1.FlagPart, Place: v1beta1.Place{Path: ".spec.ref.flag"}, Of: "Gold", Default: "Team"},
		}},
		"AmongOthers": {Parts: []v1beta1.ReferencePart{
			{Is: v1beta1.NamespacePart, Place: v1beta1.Place{Path: ".spec.ref.namespace"}},
			{Is: v1beta1.NamePart, Place: v1beta1.Place{Path: ".spec.ref.name"}},
		}},
	}
	for _, form := range claim.Forms {
		all[string(form.Name)] = v1beta1.Reference{Place: v1beta1.Place{Path: ".spec.ref"}, Form: form.Name}
	}
	for name, reference := range all {
		for from, in := range namespaces {
			t.Run(name+from, func(t *testing.T) {
				t.Parallel()
				k, entry := useKind("", func(s *v1beta1.ClaimKindSpec) { s.Classes.Namespaces, s.Reference = in, reference })
				view := selector.NewView(selector.NewClaimKind(k), useClasses())
				require.Len(t, view.All, 4)
				spec := useSpec(k, view, entry)
				v := newUsePolicy(t, &spec)
				var mayUse []func(string) bool
				mayUse = append(mayUse, func(string) bool { return true }, func(string) bool { return false })
				for _, s := range view.All {
					mayUse = append(mayUse, func(class string) bool { return strings.HasPrefix(class, s.Kind.Name+"/") })
				}
				count := map[string]int{}
				for _, reference := range references(view.Kind.Reader.Reference.Form) {
					object := map[string]any{"metadata": map[string]any{}, "spec": map[string]any{"ref": reference}}
					expected, uses := expectedOf(view, object, reference)
					for _, may := range mayUse {
						want := expected
						if want == "checked" && slices.ContainsFunc(uses, func(class string) bool { return !may(class) }) {
							want = "refused"
						}
						count[want]++
						got := v.refused(t, nil, object, "team", teamRights(t, may))
						require.Equal(t, want == "refused", got != "", "%v: %s", reference, got)
					}
				}
				for _, sort := range []string{"none", "checked", "refused"} {
					assert.Positive(t, count[sort], "We should try references of each sort: %v", count)
				}
			})
		}
	}
}

// expectedOf a reference is empty if it names no class, refused if it names none that can be, or the classes that it may mean.
func expectedOf(view *selector.View, object map[string]any, reference any) (expected string, uses []string) {
	fields, isObject := reference.(map[string]any)
	form := view.Kind.Reader.Reference.Form
	among := !form.IsObject && len(form.Parts) > 1 // Then what is no object has no parts.
	switch {
	case reference == nil, reference == "" && !form.IsObject, among && !isObject,
		isObject && (form.IsObject || among) && (fields["name"] == nil || fields["name"] == ""):
		return "none", nil
	case isObject != (form.IsObject || among):
		return "refused", nil
	}
	for i := range form.Parts {
		value := fields[form.Parts[i].Field()]
		_, isText := value.(string)
		_, isFlag := value.(bool)
		if isObject && value != nil && isText != (form.Parts[i].Type() == "string") || isFlag && form.Parts[i].Type() == "string" {
			return "refused", nil
		}
	}
	if _, isText := reference.(string); !isText && !isObject {
		return "refused", nil
	}
	to, _ := view.Kind.Reader.Reference.RefersTo(object)
	for s, in := range view.Kind.Demand.Named(view.All, "team", to) {
		uses = append(uses, s.Kind.Name+"/"+in+"/"+to.Name)
	}
	if len(uses) == 0 {
		return "refused", nil
	}
	return "checked", uses
}

// TestUsePolicyOfLists has the policy check every element of a list.
func TestUsePolicyOfLists(t *testing.T) {
	k, entry := useKind("", func(s *v1beta1.ClaimKindSpec) {
		s.Reference = v1beta1.Reference{
			Place: v1beta1.Place{Path: ".spec.refs"},
			List:  v1beta1.ListWhenAbsent,
			Parts: []v1beta1.ReferencePart{
				{Is: v1beta1.KindPart, Place: v1beta1.Place{Path: ".spec.refs.kind"}, Default: "Gold"},
				{Is: v1beta1.GroupPart, Place: v1beta1.Place{Path: ".spec.refs.group"}, Default: "example.org"},
				{Is: v1beta1.NamePart, Place: v1beta1.Place{Path: ".spec.refs.name"}},
			},
		}
	})
	view := selector.NewView(selector.NewClaimKind(k), useClasses())
	spec := useSpec(k, view, entry)
	v := newUsePolicy(t, &spec)
	rights := teamRights(t, func(class string) bool { return class == "golds.example.org//mine" })
	const mine, theirs = `{name: mine}`, `{name: theirs}`
	numbered := func(n int) (all string) {
		for i := range n {
			all += fmt.Sprintf("{name: mine, section: s%d}, ", i)
		}
		return all
	}
	for reason, tc := range map[string]struct {
		refs string
		want string // of the message, empty if the claim is let through
	}{
		"We should have nothing to check in an empty list.": {refs: `[]`},
		"We should let a class pass that may be used.":      {refs: "[" + mine + "]"},
		"We should check the first element.":                {refs: "[" + theirs + "]", want: `.spec.refs[0]: namespace "team" may not use the class "Gold/theirs"`},
		"We should check the second element.":               {refs: "[" + mine + "," + theirs + "]", want: `may not use the class "Gold/theirs"`},
		"We should check the kind of each.":                 {refs: "[" + mine + ", {name: mine, kind: None}]", want: "not registered"},
		"We should let as many pass as are checked.":        {refs: "[" + numbered(v1beta1.MaxListedReferences) + "]"},
		"We should check equal elements once.":              {refs: "[" + strings.Repeat(mine+",", 2*v1beta1.MaxListedReferences) + "]"},
		"We should check the last of them.": {
			refs: "[" + numbered(v1beta1.MaxListedReferences-1) + theirs + "]",
			want: `.spec.refs[7]: namespace "team" may not use the class "Gold/theirs"`,
		},
		"We should refuse more than we check.":                     {refs: "[" + numbered(v1beta1.MaxListedReferences+1) + "]", want: "more than 8 different ones"},
		"We should refuse what is no list.":                        {refs: mine, want: "no list"},
		"We should refuse an element that is not a reference.":     {refs: "[" + mine + ", 5]", want: "not a string"},
		"We should refuse a name that is not a string.":            {refs: "[{name: 5}]", want: "not a string"},
		"We should refuse a class without a name: it is not mine.": {refs: "[" + mine + ", {}]", want: "may not use"},
	} {
		object := map[string]any{"metadata": map[string]any{}}
		spec := map[string]any{}
		require.NoError(t, yaml.Unmarshal([]byte("refs: "+tc.refs), &spec))
		object["spec"] = spec
		got := v.refused(t, nil, object, "team", rights)
		if tc.want == "" {
			assert.Empty(t, got, reason)
		} else {
			assert.Contains(t, got, tc.want, reason)
		}
	}
}

// TestUsePolicyWithin has the policy check the references within the elements of a list, those of DRA.
func TestUsePolicyWithin(t *testing.T) {
	k, entry := useKind("", func(s *v1beta1.ClaimKindSpec) {
		s.Reference = v1beta1.Reference{
			Place: v1beta1.Place{Path: ".spec.devices.requests"}, List: v1beta1.ListCheckOnly, Form: v1beta1.Name,
			Within: []v1beta1.ElementPath{".exactly.deviceClassName", ".firstAvailable[*].deviceClassName", ".others[*]"},
		}
	})
	kinds := slices.DeleteFunc(useClasses(), func(s *inventory.Classes) bool { return s.Kind.Namespaced })
	spec := useSpec(k, selector.NewView(selector.NewClaimKind(k), kinds), entry)
	v := newUsePolicy(t, &spec)
	rights := teamRights(t, func(class string) bool { return strings.Contains(class, "//mine") })
	exactly := func(class string) string { return "{exactly: {deviceClassName: " + class + "}}, " }
	many := func(n int) (all string) {
		for i := range n {
			all += exactly(fmt.Sprintf("mine-%d", i))
		}
		return all
	}
	for reason, tc := range map[string]struct{ requests, want string }{
		"We should have nothing to check without requests.": {},
		"We should let classes pass that may be used.":      {requests: exactly("mine") + "{firstAvailable: [{deviceClassName: mine}]}, {others: [mine]}"},
		"We should check the second request.": {
			requests: exactly("mine") + exactly("theirs"),
			want:     `.spec.devices.requests[1].exactly.deviceClassName: namespace "team" may not use the class "theirs"`,
		},
		"We should check the second alternative.": {
			requests: exactly("mine") + "{firstAvailable: [{deviceClassName: mine}, {deviceClassName: theirs}]}",
			want:     `.spec.devices.requests[1].firstAvailable[1].deviceClassName: namespace "team" may not use the class "theirs"`,
		},
		"We should check strings in a list.": {
			requests: exactly("mine") + "{others: [mine, theirs]}",
			want:     `.spec.devices.requests[1].others[1]: namespace "team" may not use the class "theirs"`,
		},
		"We should name the first that has the class.": {
			requests: "{firstAvailable: [{deviceClassName: theirs}]}, " + exactly("mine") + exactly("theirs"),
			want:     `.spec.devices.requests[2].exactly.deviceClassName: namespace`,
		},
		"We should check many requests of one class.":   {requests: strings.Repeat(exactly("mine"), 32)},
		"We should check as many classes as we say.":    {requests: many(v1beta1.MaxListedReferences)},
		"We should refuse more classes than we check.":  {requests: many(v1beta1.MaxListedReferences + 1), want: "more than 8 different ones"},
		"We should refuse a name that is not a string.": {requests: "{exactly: {deviceClassName: 5}}", want: "not a string"},
		"We should skip what is absent.":                {requests: "{}, {exactly: null}, {exactly: {}}, {firstAvailable: null}, {firstAvailable: [{}]}"},
	} {
		requests := map[string]any{}
		require.NoError(t, yaml.Unmarshal([]byte("requests: ["+tc.requests+"]"), &requests))
		object := map[string]any{"metadata": map[string]any{}, "spec": map[string]any{"devices": requests}}
		if got := v.refused(t, nil, object, "team", rights); tc.want == "" {
			assert.Empty(t, got, reason)
		} else {
			assert.Contains(t, got, tc.want, reason)
		}
	}
}

func TestUsePolicyMessages(t *testing.T) {
	claim := func(reference any) map[string]any {
		return map[string]any{"metadata": map[string]any{}, "spec": map[string]any{"ref": reference}}
	}
	const list = `: classbind classes claims.example.org -n team lists what it may use`
	long := strings.Repeat("ü\n", 5000)
	for name, tc := range map[string]struct {
		reason    string
		form      v1beta1.ReferenceForm
		subject   v1beta1.UseSubject
		cluster   bool
		reference any // Gold/x by default
		want      string
	}{
		"Namespace": {
			reason: "We should name the verb, the class and the command.",
			want:   `namespace "team" may not use the class "Gold/x" (verb use on golds.example.org "x")` + list,
		},
		"Requester": {
			reason:  "We should name the user.",
			subject: v1beta1.UseByRequester,
			want:    `user "ann" may not use the class "Gold/x" (verb use on golds.example.org "x")` + list,
		},
		"ClusterScoped": {
			reason: "We should name no namespace where there is none.", subject: v1beta1.UseByRequester, cluster: true,
			want: `user "ann" may not use the class "Gold/x" (verb use on golds.example.org "x"): classbind classes claims.example.org lists what it may use`,
		},
		"ClusterScopedOfNamespace": {reason: "We should let no claim pass whose right cannot be known.", cluster: true, want: noNamespace},
		"Namespaced": {
			reason: "We should name the namespace of the class.", form: v1beta1.TypedObjectReference,
			reference: map[string]any{"apiGroup": "example.org", "kind": "Team", "namespace": "shared", "name": "x"},
			want:      `namespace "team" may not use the class "Team/x" (verb use on teams.example.org "shared/x")` + list,
		},
		"Name": {
			reason: "We should ask about all kinds, and name the first.", form: v1beta1.Name, reference: "x",
			want: `namespace "team" may not use the class "x" (verb use on golds.example.org "x")` + list,
		},
		"Unregistered": {
			reason: "We should let no other kind pass.", reference: map[string]any{"apiVersion": "none.org/v1", "kind": "None", "name": "x"},
			want: `the class "None/x" is of a kind that is not registered for these claims` + list,
		},
		"NotAString": {
			reason:    "We should let no other type pass.",
			reference: map[string]any{"name": int64(5)},
			want:      "the class reference spec.ref has a value that is not a string",
		},
		"Long": {
			reason: "We should keep the answer short, and in one line.", form: v1beta1.LocalObjectReference,
			reference: map[string]any{"name": long},
			want: fmt.Sprintf(`namespace "team" may not use the class "%[1]s" (verb use on golds.example.org "%[1]s")`+list,
				strings.Repeat(`ü\n`, v1beta1.MaxShownBytes/2)+"..."),
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.subject, tc.form = cmp.Or(tc.subject, v1beta1.UseByNamespace), cmp.Or(tc.form, v1beta1.ObjectReference)
			if tc.reference == nil {
				tc.reference = map[string]any{"apiVersion": "example.org/v1", "kind": "Gold", "name": "x"}
			}
			k, entry := useKind(tc.form, func(s *v1beta1.ClaimKindSpec) { s.Classes.Use.Subject = tc.subject })
			namespace, who := "team", teamRights(t, func(string) bool { return false })
			if tc.subject == v1beta1.UseByRequester {
				who.user = user.DefaultInfo{Name: "ann"}
			}
			if tc.cluster {
				namespace, entry.Rules[0].Scope = "", new(admissionregistrationv1.ClusterScope)
			}
			spec := useSpec(k, selector.NewView(selector.NewClaimKind(k), useClasses()), entry)
			assert.Equal(t, tc.want, newUsePolicy(t, &spec).refused(t, nil, claim(tc.reference), namespace, who), tc.reason)
		})
	}
}

// TestUsePolicyUpdates has updates of claims by somebody who may use nothing.
func TestUsePolicyUpdates(t *testing.T) {
	const gold = `{"metadata":{},"spec":{"ref":{"apiVersion":"example.org/v1","kind":"Gold","name":"x"}}}`
	for name, tc := range map[string]struct {
		reason, before, now string
		want                bool
	}{
		"Other":   {"We should let others write what does not touch the reference.", gold, strings.Replace(gold, `{}`, `{"labels":{"a":"b"}}`, 1), false},
		"Changed": {"We should check another class.", gold, strings.Replace(gold, `"x"`, `"y"`, 1), true},
		"Kind":    {"We should check another kind.", gold, strings.Replace(gold, `"Gold"`, `"Team"`, 1), true},
		"Added":   {"We should check the first class.", `{"metadata":{},"spec":{}}`, gold, true},
		"Begun":   {"We should check the first name.", `{"metadata":{},"spec":{"ref":{"kind":"Gold"}}}`, gold, true},
		"Removed": {"We should check no class that is gone.", gold, `{"metadata":{}}`, false},
		"Skipped": {
			"We should not be dodged by a field that settles the claim.", `{"metadata":{},"spec":{"volume":"v"}}`,
			strings.Replace(gold, `"ref"`, `"volume":"v","ref"`, 1), true,
		},
		"Deleting": {
			"We should not be dodged by a claim that a finalizer holds.", `{"metadata":{}}`,
			strings.Replace(gold, `{}`, `{"deletionTimestamp":"2026-01-01T00:00:00Z"}`, 1), true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			k, entry := useKind(v1beta1.ObjectReference, func(s *v1beta1.ClaimKindSpec) {
				s.Claims.SkipIfSet, s.Claims.When = []v1beta1.Place{{Path: ".spec.volume"}}, "false"
			})
			spec := useSpec(k, selector.NewView(selector.NewClaimKind(k), useClasses()), entry)
			got := newUsePolicy(t, &spec).refused(t, object(t, tc.before), object(t, tc.now), "team", teamRights(t, func(string) bool { return false }))
			assert.Equal(t, tc.want, got != "", "%s %s", tc.reason, got)
		})
	}
}

// newUseWorld has the claim kind claims.example.org with classes.use, and its entry.
func newUseWorld(t *testing.T) *policyWorld {
	t.Helper()
	p := newPolicyWorld(t)
	p.ClaimKinds[0].Spec.Admission.Defaulting, p.ClaimKinds[0].Spec.Classes.Use = "", &v1beta1.Use{Subject: v1beta1.UseByNamespace}
	p.inventory.SetClaimKind(selector.NewClaimKind(&p.ClaimKinds[0]))
	p.writer.Kind = UsePolicies
	return p
}

var (
	writesUse  = []string{"write ValidatingAdmissionPolicy", "write ValidatingAdmissionPolicyBinding"}
	removesUse = []string{"delete ValidatingAdmissionPolicyBinding", "delete ValidatingAdmissionPolicy"}
)

func TestUsePolicies(t *testing.T) {
	const name = "claims.example.org" + v1beta1.UseSuffix
	p := newUseWorld(t)
	p.round(t)
	assert.Equal(t, writesUse, p.did, "We should write the policy before its binding.")
	assert.Equal(t, PolicyOutcome{}, p.outcome(t))
	policy := p.stored["ValidatingAdmissionPolicy"][name].(*admissionregistrationv1.ValidatingAdmissionPolicy)
	binding := p.stored["ValidatingAdmissionPolicyBinding"][name].(*admissionregistrationv1.ValidatingAdmissionPolicyBinding)
	assert.Equal(t, admissionregistrationv1.Fail, *policy.Spec.FailurePolicy)
	assert.Equal(t, []admissionregistrationv1.OperationType{"CREATE", "UPDATE"}, policy.Spec.MatchConstraints.ResourceRules[0].Operations)
	assert.Equal(t, map[string]string{"team": "a"}, policy.Spec.MatchConstraints.NamespaceSelector.MatchLabels, "We should check in the namespaces of the entry.")
	assert.EqualValues(t, "c0ffee", policy.OwnerReferences[0].UID, "We should have them go with the configuration.")
	assert.Equal(t, []admissionregistrationv1.ValidationAction{"Deny"}, binding.Spec.ValidationActions)

	p.round(t)
	assert.Empty(t, p.did)
	p.inventory.SetClasses(controllertest.NewClasses(p.kind, map[string][]string{"more": nil}))
	p.round(t)
	assert.Empty(t, p.did, "We should not write again for classes.")
	p.inventory.SetClasses(controllertest.NewClasses(controllertest.NewClassKind("silvers.example.org", "Silver"), nil))
	p.round(t)
	assert.Equal(t, writesUse, p.did, "We should write both for another kind.")

	p.Configuration.Webhooks[0].Rules[0].Scope = new(admissionregistrationv1.ClusterScope)
	p.round(t)
	assert.Equal(t, writesUse[:1], p.did, "We should have all claims refused where there is no namespace.")
	assert.Equal(t, v1beta1.ReasonNoNamespace, p.reason(t))
}

// TestDefaultMayBeUsed has a default that the namespace may use or not.
func TestDefaultMayBeUsed(t *testing.T) {
	for _, namespace := range []string{"", "shared"} {
		k, entry := useKind(v1beta1.ObjectReference, func(*v1beta1.ClaimKindSpec) {})
		class, params := newDefault(t, &v1beta1.ClassKindSpec{Default: v1beta1.Source{Annotation: "default"}},
			fmt.Sprintf(`{"metadata":{"namespace":%q,"name":"gold","annotations":{"default":"true"}}}`, namespace))
		spec := policySpec(k, selector.NewClaimKind(k), class, entry)
		env, err := newPolicyEnvironment(t).Extend(cel.Variable("authorizer", library.AuthorizerType), cel.Variable("request", cel.DynType))
		require.NoError(t, err)
		all := celEnvironment{env}.conditions(t, spec.MatchConditions)
		for _, may := range []bool{true, false} {
			who := teamRights(t, func(class string) bool { return may && class == "classes.example.org/"+namespace+"/gold" })
			holds, err := all.hold(map[string]any{
				"object": object(t, `{"metadata":{},"spec":{}}`), "params": params, "request": map[string]any{"namespace": "team"},
				"authorizer": library.NewAuthorizerVal(&user.DefaultInfo{Name: "ann"}, who),
			})
			require.NoError(t, err)
			assert.Equal(t, may, holds, "We should give no default that the claim may not use.")
		}
	}
}
