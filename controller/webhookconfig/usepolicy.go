package webhookconfig

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/claim"
	"github.com/classbind/classbind/selector/inventory"
)

// UsePolicies have API servers check who may use the class that a claim names. A stored one stays until there is another,
// or the ClaimKind no longer mentions use: without one, everybody may use every class.
var UsePolicies = PolicyKind{
	name: "ValidatingAdmissionPolicy", since: "1.30", controller: "use-policies", suffix: v1beta1.UseSuffix, enforces: true,
	lists: func() (policies, bindings client.ObjectList) {
		return &admissionregistrationv1.ValidatingAdmissionPolicyList{}, &admissionregistrationv1.ValidatingAdmissionPolicyBindingList{}
	},
	asks: func(k *v1beta1.ClaimKind) bool { return k.Spec.Classes.Use != nil },
	due:  (*Policies).dueUse,
}

func (p *Policies) dueUse(
	_ context.Context, k *v1beta1.ClaimKind, snapshot selector.Snapshot, all Configurations,
) (*duePolicy, PolicyOutcome, error) {
	view := snapshot[k.Name]
	switch fault := notEntered(k, view.Kind, all); {
	case view.Missing != nil: // Their kinds are not known either.
		return noPolicy(view.Missing)
	case view.Fault != nil && view.Fault.Reason == v1beta1.ReasonUnknownValue:
		return noPolicy(view.Fault)
	case fault != nil:
		return noPolicy(fault)
	}
	var revisions []string
	for _, kind := range view.MeantKinds() {
		revisions = append(revisions, registrationsText(view.Kind.Revision, kind.Name, kind.Revision))
	}
	entry := all.ClaimEntryOf(k)
	about := policyMeta(k, v1beta1.UseSuffix, strings.Join(revisions, "; "), all)
	policy := &duePolicy{
		&admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: about, Spec: useSpec(k, view, entry)},
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: about, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: about.Name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
			},
		},
	}
	if view.Kind.Use == v1beta1.UseByNamespace && isClusterScoped(entry) {
		return policy, PolicyOutcome{Fault: &inventory.Fault{Reason: v1beta1.ReasonNoNamespace, Text: noNamespace}}, nil
	}
	// A reference to a class kind that is not known would be of no registered kind.
	if len(view.Unread) > 0 && view.Kind.Reader.Reference.Form.NamesKind != claim.GroupAndKind {
		unread := view.Unread[0]
		return policy, PolicyOutcome{Fault: inventory.Faultf(unread.Reason,
			"a reference may mean a class of %q, which classbind cannot read, so that this is not checked", unread.Name)}, nil
	}
	return policy, PolicyOutcome{}, nil
}

// noNamespace is what mends a ClaimKind whose claims are in no namespace.
const noNamespace = "these claims have no namespace whose right could count: set classes.use.subject of the ClaimKind to Requester"

func isClusterScoped(e *Entry) bool {
	return slices.ContainsFunc(e.Rules, func(r rule) bool { return r.Scope != nil && *r.Scope == admissionregistrationv1.ClusterScope })
}

// useSpec has the API server refuse a claim whose reference names a class that the subject may not use, or one of a kind
// that is not registered. Where the form cannot distinguish kinds, all those that may be meant must be allowed. It looks at
// the object as it would be stored, after all webhooks.
func useSpec(k *v1beta1.ClaimKind, view *selector.View, entry *Entry) admissionregistrationv1.ValidatingAdmissionPolicySpec {
	r := newUseReader(k, view.Kind, entry)
	s := admissionregistrationv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: matchConstraints(entry, admissionregistrationv1.Create, admissionregistrationv1.Update),
		MatchConditions:  matchConditions(claim.UseConditions(k)),
		FailurePolicy:    new(admissionregistrationv1.Fail),
		Variables:        r.variables(),
	}
	refuse := func(unless, text, expression string) {
		v := admissionregistrationv1.Validation{Expression: unless, Message: text, Reason: new(metav1.StatusReasonForbidden)}
		if expression != "" {
			v.MessageExpression = expression + " + " + r.wayOut
		}
		s.Validations = append(s.Validations, v)
	}
	command := "classbind classes " + k.Name
	if view.Kind.Use == v1beta1.UseByNamespace && r.clusterScoped {
		refuse("false", noNamespace, "")
		return s
	}
	if r.IsList {
		const text = "the class references .%s are no list, or more than %d different ones"
		refuse(r.isShort(), fmt.Sprintf(text, r.Path, v1beta1.MaxListedReferences), "")
	}
	for _, e := range r.elements() {
		unless := func(expression string) string { return e.unless + expression }
		refuse(unless(e.isWellFormed()), fmt.Sprintf("the class reference %s has a value that is not a string", r.Path), "")
		isAny := []string{"false"}
		for _, of := range view.MeantKinds() {
			isAny = append(isAny, e.means(of))
		}
		const unregistered = "is of a kind that is not registered for these claims"
		refuse(unless("("+strings.Join(isAny, " || ")+")"),
			fmt.Sprintf("the class %s: %s lists those that can be used", unregistered, command),
			fmt.Sprintf(`%s"the class " + %s + " %s"`, e.at, e.class(), unregistered))
		for _, of := range view.MeantKinds() {
			verb := fmt.Sprintf("verb %s on %s", v1beta1.UseVerb, of.Resource().GroupResource())
			name := shown(e.variable("name"))
			if of.Namespaced {
				name = shown(e.namespaceOf(of) + ` + "/" + ` + e.variable("name"))
			}
			refuse(unless(fmt.Sprintf("!(%s) || %s", e.means(of), mayUse(view.Kind.Use, of, e.namespaceOf(of), e.variable("name")))),
				fmt.Sprintf("the class may not be used (%s): %s lists those that may", verb, command),
				fmt.Sprintf(`%s%s + " may not use the class " + %s + " (%s " + %s + ")"`, e.at, r.subject, e.class(), verb, name))
		}
	}
	return s
}

// mayUse is the CEL expression that reports whether a class may be used. Its namespace and its name are expressions, too.
func mayUse(subject v1beta1.UseSubject, of *inventory.ClassKind, namespace, name string) string {
	who, r := "authorizer", of.Resource()
	if subject == v1beta1.UseByNamespace {
		who = fmt.Sprintf("authorizer.serviceAccount(request.namespace, %q)", v1beta1.UseAccount)
	}
	return fmt.Sprintf("%s.group(%q).resource(%q).namespace(%s).name(%s).check(%q).allowed()",
		who, r.Group, r.Resource, namespace, name, v1beta1.UseVerb)
}

// useReader has the CEL expressions that read a claim's reference, as ClassReference.RefersTo does. A part that is
// missing is the empty string.
type useReader struct {
	*claim.ClassReference

	clusterScoped   bool
	namespace       string // of classes where the reference has none
	subject, wayOut string // expressions for messages: whose right is lacking, and what lists the classes
}

func newUseReader(k *v1beta1.ClaimKind, kind *selector.ClaimKind, entry *Entry) *useReader {
	r := &useReader{
		ClassReference: &kind.Reader.Reference,
		clusterScoped:  isClusterScoped(entry), namespace: "request.namespace",
		subject: `"user " + ` + shown("request.userInfo.username"),
		wayOut:  fmt.Sprintf(`": classbind classes %s -n " + request.namespace + " lists what it may use"`, k.Name),
	}
	if r.clusterScoped {
		r.namespace, r.wayOut = `""`, fmt.Sprintf(`": classbind classes %s lists what it may use"`, k.Name)
	}
	if kind.Reader.Reference.ClassNamespace != "" {
		r.namespace = strconv.Quote(kind.Reader.Reference.ClassNamespace)
	}
	if kind.Use == v1beta1.UseByNamespace {
		r.subject = `"namespace " + ` + shown("request.namespace")
	}
	return r
}

// useElement reads the only reference, or an element of a list.
type useElement struct {
	*useReader

	root   string // where the paths of its parts start
	suffix string // of its variables
	unless string // is true, with ||, if the list has no such element
	at     string // is, with +, the start of a message: which element that is
}

func (r *useReader) elements() (all []useElement) {
	if !r.IsList {
		return []useElement{{useReader: r, root: "object"}}
	}
	for i := range v1beta1.MaxListedReferences {
		root := fmt.Sprintf("variables.element%d", i)
		all = append(all, useElement{r, root, strconv.Itoa(i), fmt.Sprintf("variables.left%d.size() == 0 || ", i), r.placeOf(root)})
	}
	return all
}

// listed are CEL expressions for lists of the references in a list: its elements, or what they have at each place within.
func (r *useReader) listed() string {
	if len(r.Within) == 0 {
		return "[variables.listed]"
	}
	var all []string
	for i := range r.Within {
		w := &r.Within[i]
		list := fmt.Sprintf("variables.listed.filter(r, %s).map(r, %s)", isIn(w, "r"), w.Path.At("r"))
		if !w.IsList {
			list = "[" + list + "]"
		} else if len(w.Below) > 0 {
			list += fmt.Sprintf(".map(l, l.filter(e, %s).map(e, %s))", w.Below.IsSet("e"), w.Below.At("e"))
		}
		all = append(all, list)
	}
	return strings.Join(all, " + ")
}

// isIn reports whether an element has a reference at a place within, or a list of them.
func isIn(w *claim.Within, element string) string {
	if w.IsList {
		return fmt.Sprintf("%s && type(%s) == list", w.Path.IsSet(element), w.Path.At(element))
	}
	return w.Path.IsSet(element)
}

// placeOf a reference is the CEL expression for the path of the first element that has it, and a colon.
func (r *useReader) placeOf(reference string) string {
	path := fmt.Sprintf(`".%s[" + string(variables.listed.indexOf(r)) + "]`, r.Path)
	if len(r.Within) == 0 {
		return fmt.Sprintf(`variables.listed.filter(r, r == %s).map(r, %s: ")[0] + `, reference, path)
	}
	var all []string
	for i := range r.Within {
		w := &r.Within[i]
		has, at := fmt.Sprintf("%s == %s", w.Path.At("r"), reference), fmt.Sprintf(`%s.%s: "`, path, w.Path)
		if w.IsList {
			is := fmt.Sprintf("e == %s", reference)
			if len(w.Below) > 0 {
				is = fmt.Sprintf("%s && %s == %s", w.Below.IsSet("e"), w.Below.At("e"), reference)
			}
			has = fmt.Sprintf("%s.exists(e, %s)", w.Path.At("r"), is)
			at = fmt.Sprintf(`%s.%s[" + string(%[3]s.indexOf(%[3]s.filter(e, %[4]s)[0])) + "]`, path, w.Path, w.Path.At("r"), is)
			if len(w.Below) > 0 {
				at += "." + w.Below.String()
			}
			at += `: "`
		}
		all = append(all, fmt.Sprintf("variables.listed.filter(r, %s && %s).map(r, %s)", isIn(w, "r"), has, at))
	}
	return fmt.Sprintf("(%s)[0] + ", strings.Join(all, " + "))
}

// isShort is true of a list that is checked whole.
func (r *useReader) isShort() string {
	return fmt.Sprintf("type(%s) == list && variables.left%d.size() == 0", r.Path.At("object"), v1beta1.MaxListedReferences)
}

// variable of the policy with what a part says.
func (e *useElement) variable(name string) string { return "variables." + name + e.suffix }

// variables of the policy: what the parts say.
func (r *useReader) variables() (all []admissionregistrationv1.Variable) {
	add := func(name, expression string) {
		all = append(all, admissionregistrationv1.Variable{Name: name, Expression: expression})
	}
	if r.IsList {
		list := r.Path.At("object")
		add("listed", fmt.Sprintf("type(%s) == list ? %s : []", list, list))
		add("left0", fmt.Sprintf("(%s).filter(l, l.size() > 0)", r.listed()))
	}
	for i, e := range r.elements() {
		if r.IsList { // Equal references are one.
			add("element"+e.suffix, fmt.Sprintf("variables.left%d.size() > 0 ? variables.left%d[0][0] : null", i, i))
			const left = "variables.left%d.map(l, l.filter(r, r != variables.element%d)).filter(l, l.size() > 0)"
			add(fmt.Sprintf("left%d", i+1), fmt.Sprintf(left, i, i))
		}
		for i := range r.Form.Parts {
			part := &r.Form.Parts[i]
			switch text := textOf(part, e.root); part.Role {
			case v1beta1.NamePart:
				add("name"+e.suffix, text)
			case v1beta1.APIVersionPart:
				add("apiVersion"+e.suffix, text)
				version := e.variable("apiVersion")
				add("group"+e.suffix, fmt.Sprintf(`%s.contains("/") ? %s.split("/")[0] : ""`, version, version))
			case v1beta1.GroupPart:
				add("group"+e.suffix, text)
			case v1beta1.KindPart, v1beta1.FlagPart:
				add("kind"+e.suffix, text)
			case v1beta1.NamespacePart:
				add("classNamespace"+e.suffix, text) // CEL reserves namespace.
			}
		}
	}
	return all
}

// textOf a part is the CEL expression for what it says. One of another type counts as absent.
func textOf(part *claim.Part, root string) string {
	unset, value := part.Path.IsUnset(root), part.Path.At(root)
	if part.Role == v1beta1.FlagPart {
		return fmt.Sprintf("!(%s) && %s == true ? %q : %q", unset, value, part.Of, part.Default)
	}
	text := fmt.Sprintf(`%s || type(%s) != string ? "" : string(%s)`, unset, value, value)
	if part.Default != "" {
		text = fmt.Sprintf(`[%s].map(s, s == "" ? %q : s)[0]`, text, part.Default)
	}
	return text
}

// isWellFormed is true of a reference in which every part has its type, or is missing.
func (e *useElement) isWellFormed() string {
	var terms []string
	switch {
	case e.Form.IsObject && e.IsList:
		terms = append(terms, fmt.Sprintf("type(%s) == map", e.root))
	case e.Form.IsObject:
		terms = append(terms, fmt.Sprintf("type(%s) == map", e.Path.At(e.root)))
	}
	types := map[string]string{"string": "string", "boolean": "bool"}
	for i := range e.Form.Parts {
		part := &e.Form.Parts[i]
		terms = append(terms, fmt.Sprintf("(%s || type(%s) == %s)", part.Path.IsUnset(e.root), part.Path.At(e.root), types[part.Type()]))
	}
	return strings.Join(terms, " && ")
}

// means is true of a reference that may mean a class of this kind.
func (e *useElement) means(of *inventory.ClassKind) string {
	switch kind := of.GroupVersionKind; e.Form.NamesKind {
	case claim.GroupAndKind:
		return fmt.Sprintf("%s == %q && %s == %q", e.variable("group"), kind.Group, e.variable("kind"), kind.Kind)
	case claim.KindAlone:
		return fmt.Sprintf("%s == %q", e.variable("kind"), kind.Kind)
	case claim.NoKind:
	}
	return "true"
}

// namespaceOf the class of this kind that a reference means: see Demand.Named.
func (e *useElement) namespaceOf(of *inventory.ClassKind) string {
	switch {
	case !of.Namespaced:
		return `""`
	case e.Form.NamesNamespace:
		return fmt.Sprintf(`(%[1]s == "" ? %[2]s : %[1]s)`, e.variable("classNamespace"), e.namespace)
	}
	return e.namespace
}

// class as its author wrote it, for messages.
func (e *useElement) class() string {
	if e.Form.NamesKind == claim.NoKind {
		return shown(e.variable("name"))
	}
	return shown(fmt.Sprintf(`%s + "/" + %s`, e.variable("kind"), e.variable("name")))
}

// shown is the CEL expression for what a message shows of a string from outside.
func shown(expression string) string {
	return fmt.Sprintf(`[%s].map(s, strings.quote(size(s) > %d ? s.substring(0, %d) + "..." : s))[0]`,
		expression, v1beta1.MaxShownBytes, v1beta1.MaxShownBytes)
}
