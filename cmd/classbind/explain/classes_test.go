package explain

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/classbind/classbind/cmd/classbind/exit"
	"github.com/classbind/classbind/cmd/classbind/world"
	"github.com/classbind/classbind/selector/claim"
)

// reviewer is an API server with an authorizer.
type reviewer struct {
	*apiServer
	// allowed are classes by user, and by group.
	allowed map[string][]string
	// alone reports whether questions about others are forbidden.
	alone bool

	mu       sync.Mutex
	reviewed map[string]int // by user and class
}

const (
	me       = "me"
	ofTeam   = "system:serviceaccounts:team"
	selfUser = `{"username": "me", "uid": "7", "groups": ["staff", "system:authenticated"], "extra": {"scopes": ["all"]}}`
)

func (s *reviewer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	review, _, _ := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil) // It may be Protobuf.
	answer := func(kind string, status any) {
		w.Header().Set("Content-Type", "application/json")
		group, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/apis/"), "/")
		_ = json.NewEncoder(w).Encode(object{"apiVersion": group + "/v1", "kind": kind, "status": status})
	}
	switch review := review.(type) {
	case *authenticationv1.SelfSubjectReview:
		answer("SelfSubjectReview", object{"userInfo": json.RawMessage(selfUser)})
	case *authorizationv1.SelfSubjectAccessReview:
		answer("SelfSubjectAccessReview", object{"allowed": s.allows(review.Spec.ResourceAttributes, me, "staff", "system:authenticated")})
	case *authorizationv1.SubjectAccessReview:
		if s.alone {
			s.apiServer.ServeHTTP(w, r)
			return
		}
		answer("SubjectAccessReview", object{"allowed": s.allows(review.Spec.ResourceAttributes, append(review.Spec.Groups, review.Spec.User)...)})
	default:
		s.apiServer.ServeHTTP(w, r)
	}
}

func (s *reviewer) allows(to *authorizationv1.ResourceAttributes, who ...string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reviewed[fmt.Sprintf("%s %s %s.%s/%s", who, to.Verb, to.Resource, to.Group, to.Name)]++
	return slices.ContainsFunc(who, func(who string) bool { return slices.Contains(s.allowed[who], to.Name) })
}

// newReviewer has a claim kind whose claims need the right of a subject; empty, they need none.
func newReviewer(subject string, allowed map[string][]string, spec string) *reviewer {
	kinds := claimKinds(spec, object{})
	if subject != "" {
		kinds["items"].([]any)[0].(object)["spec"].(object)["classes"].(object)["use"] = object{"subject": subject}
	}
	return &reviewer{allowed: allowed, reviewed: map[string]int{}, apiServer: newAPIServer(func(a map[string]any) { a[claimKindsPath] = kinds })}
}

func TestClasses(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, subject, want, err string
		spec                       string // of the ClaimKind
		allowed                    map[string][]string
		alone                      bool
		answers                    object
		args                       []string
		status                     int
	}{
		"Free": {reason: "We should list all where no right is needed.", want: `databases.example.org in team: a claim may get 3 of 3 classes

  CLASS         LABELS        WEIGHT   ODDS
  SlowClass/c   tier=gold     3        60%
  FastClass/a   tier=gold     1        20%
  FastClass/b   tier=silver   1        20%
`},
		"Namespace": {reason: "We should ask about the namespace.", subject: "Namespace", allowed: map[string][]string{
			ofTeam: {"a", "c"},
		}, want: `databases.example.org in team: a claim may get 2 of 3 classes
  Asked:   which classes namespace "team" may use

  CLASS         LABELS        WEIGHT   ODDS   WHY NOT
  SlowClass/c   tier=gold     3        75%
  FastClass/a   tier=gold     1        25%
  FastClass/b   tier=silver   1               not allowed for the claim
`},
		"OtherNamespace": {
			reason: "We should ask about the namespace that is named, and exit with another status where it gets nothing.", subject: "Namespace",
			allowed: map[string][]string{ofTeam: {"a", "c"}}, args: []string{"-n", "other"}, status: exit.Found,
			want: "databases.example.org in other: a claim may get 0 of 3 classes\n  Asked:   which classes namespace \"other\" may use\n",
			err:  "error: a claim may get none of the classes\n",
		},
		"NamespaceAs": {
			reason:  "We should say that it does not matter who creates the claim.",
			subject: "Namespace",
			allowed: map[string][]string{ofTeam: {"a"}},
			args:    []string{"--requester", "jane"},
			want: "may get 1 of 3 classes\n  Asked:   which classes namespace \"team\" may use\n  Note:    --requester has no effect: it does not matter who " +
				"creates the claim\n",
		},
		"Requester": {
			reason:  "We should ask about whoever runs the command.",
			subject: "Requester",
			allowed: map[string][]string{"staff": {"b"}},
			want:    "a claim may get 1 of 3 classes\n  Asked:   which classes user \"me\" may use\n",
		},
		"RequesterAlone": {
			reason:  "We should ask about ourselves where we may not ask about others.",
			subject: "Requester",
			allowed: map[string][]string{me: {"b"}},
			alone:   true,
			want:    "  FastClass/b   tier=silver   1        100%\n",
		},
		"RequesterAs": {
			reason:  "We should ask about another user.",
			subject: "Requester",
			allowed: map[string][]string{"jane": {"a"}, me: {"b"}},
			args:    []string{"--requester", "jane"},
			want: "  Asked:   which classes user \"jane\" may use\n\n  CLASS         LABELS        WEIGHT   ODDS   WHY NOT\n  FastClass/a   " +
				"tier=gold     1        100%\n",
		},
		"Groups": {
			reason:  "We should ask with groups.",
			subject: "Requester",
			allowed: map[string][]string{"dev": {"a"}, "ops": {"b"}},
			args:    []string{"--requester", "jane", "--requester-group", "dev", "--requester-group", "ops"},
			want:    "a claim may get 2 of 3 classes\n",
		},
		"Authenticated": {
			reason:  "We should give every user the group that the API server gives.",
			subject: "Requester",
			allowed: map[string][]string{"system:authenticated": {"a"}},
			args:    []string{"--requester", "jane", "--requester-group", "dev"},
			want:    "a claim may get 1 of 3 classes\n",
		},
		"ServiceAccount": {
			reason:  "We should give a ServiceAccount its groups.",
			subject: "Requester",
			allowed: map[string][]string{ofTeam: {"a"}},
			args:    []string{"--requester", "system:serviceaccount:team:robot"},
			want:    "a claim may get 1 of 3 classes\n",
		},
		"OthersAlone": {
			reason:  "We should say which right is lacking.",
			subject: "Namespace",
			alone:   true,
			status:  exit.Failed,
			err:     "you need the right to create subjectaccessreviews.authorization.k8s.io to ask about others: ",
		},
		"GroupAlone": {
			reason: "We should need a user for a group, as kubectl does.",
			args:   []string{"--requester-group", "dev"},
			status: exit.Failed,
			err:    "--requester-group: name the user, too, with --requester",
		},
		"Expressions": {
			reason: "We should judge what looks at no claim, and name the rest.",
			spec: `{"claims": {"when": "claim.metadata.name == 'x'"}, "classes": {"fits": [
				{"name": "Tenant", "expression": "class.metadata.labels.tier == namespaceObject.metadata.labels.tier", "message": "of another tenant"},
				{"name": "Size", "expression": "claim.spec.size == class.metadata.labels.size"}]}}`,
			answers: object{
				"/api/v1/namespaces/team": object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": "team", "labels": object{"tier": "gold"}}},
			},
			want: `databases.example.org in team: a claim may get 2 of 3 classes
  Note:    these expressions need a claim, and come on top: claims.when, classes.fits[Size]; classbind explain -f FILE judges them

  CLASS         LABELS        WEIGHT   ODDS   WHY NOT
  SlowClass/c   tier=gold     3        75%
  FastClass/a   tier=gold     1        25%
  FastClass/b   tier=silver   1               of another tenant
`,
		},
		"Score": {
			reason: "We should not report odds that depend on the claim.",
			spec: `{"choice": {"strategy": "HighestScore", "score": "claim.spec.size == class.metadata.labels.tier ? 1 : 2", ` +
				`"seed": {"from": "Expression", "expression": "claim.spec.size"}}}`,
			want: "  FastClass/b   tier=silver   1        ?\n  The odds depend on the score of each class, which may depend on the claim.\n",
		},
		"Request": {
			reason:  "We should judge by who creates the claim, where that is said.",
			subject: "Requester", allowed: map[string][]string{"staff": {"a", "b", "c"}},
			spec: `{"classes": {"fits": [{"name": "User", "expression": "request.userInfo.uid == '7' && class.metadata.name != 'b'"}]}}`,
			want: "a claim may get 2 of 3 classes\n",
		},
		"RequestUnknown": {
			reason: "We should judge no requester where nobody is named.",
			spec:   `{"classes": {"fits": [{"name": "User", "expression": "request.userInfo.username == 'jane'"}]}}`,
			want:   "a claim may get 3 of 3 classes\n  Note:    these expressions need a claim, and come on top: classes.fits[User]; ",
		},
		"Invalid": {
			reason: "We should list nothing for a registration at fault.",
			status: exit.Failed,
			err:    `cannot list the classes for claims of "databases.example.org": `,
			spec:   `{"classes": {"fits": [{"name": "A", "expression": "claim."}]}}`,
		},
		"Excluded": {
			reason: "We should say that no claim there is bound.",
			args:   []string{"-n", "kube-system"},
			status: exit.Found,
			want:   "databases.example.org in kube-system: a claim may get 0 of 0 classes\n  Because: claims in kube-system are never bound\n",
			err:    "may get none",
		},
		"Cordoned": {
			reason: "We should say why a claim may not get a class that it is offered.",
			answers: object{"/apis/example.org/v1/slowclasses": list("example.org/v1", "SlowClassList", object{
				"apiVersion": "example.org/v1",
				"kind":       "SlowClass",
				"metadata":   object{"name": "c", "annotations": object{"classbind.io/cordoned": "true"}},
				"spec":       object{"weight": 3},
			})},
			want: "  SlowClass/c   <none>        3               cordoned\n",
		},
		"Default": {
			reason: "We should mark the default class.",
			answers: object{"/apis/example.org/v1/slowclasses": list("example.org/v1", "SlowClassList", object{
				"apiVersion": "example.org/v1", "kind": "SlowClass", "metadata": object{"name": "c", "annotations": object{"default": "true"}}, "spec": object{"weight": 3},
			})},
			want: "  SlowClass/c (default)   <none>        3        60%\n",
		},
		"Unknown": {
			reason: "We should say which kind is not registered.",
			args:   []string{"-n", "team"},
			status: exit.Failed,
			err:    `no ClaimKind registers "Databse": did you mean Database?`,
		},
		"JSON": {
			reason: "We should print JSON.", subject: "Namespace", allowed: map[string][]string{ofTeam: {"a", "c"}}, args: []string{"-o", "json"},
			want: `            "tier": "silver"
          },
          "weight": 1,
          "dropped": {
            "reason": "NotAllowed",
            "message": "not allowed for the claim"
          }
`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			api := newReviewer(tc.subject, tc.allowed, tc.spec)
			api.alone = tc.alone
			maps.Copy(api.answers, tc.answers)
			serve(t, api, map[string]string{})
			kind := "databases"
			if name == "Unknown" {
				kind = "Databse"
			}
			got := execute(t, NewClassesCommand(), "", append([]string{kind, "--kubeconfig", "config"}, tc.args...)...)
			assert.Equal(t, tc.status, got.status, "%s: %s", tc.reason, got.stderr)
			assert.Contains(t, got.stdout, tc.want, tc.reason)
			assert.Contains(t, got.stderr, tc.err, tc.reason)
			if tc.err == "" {
				assert.Empty(t, got.stderr)
			}
			for question, times := range api.reviewed {
				assert.Equal(t, 1, times, "We should ask about a class once: %s", question)
			}
		})
	}
}

// TestClassesOfMany has more classes than one review at a time would get through in time.
func TestClassesOfMany(t *testing.T) {
	const many = 2000
	classes := make([]any, many)
	for i := range classes {
		classes[i] = class("FastClass", fmt.Sprintf("class-%04d", i), "gold")
	}
	api := newReviewer("Namespace", map[string][]string{ofTeam: {"class-1234"}}, "")
	api.answers["/apis/example.org/v1/fastclasses"] = list("meta.k8s.io/v1", "PartialObjectMetadataList", classes...)
	serve(t, api, map[string]string{"claim.yaml": goldClaim})
	got := execute(t, NewClassesCommand(), "", "Database", "--kubeconfig", "config")
	require.Zero(t, got.status, got.stderr)
	assert.Contains(t, got.stdout, "a claim may get 1 of 2001 classes\n", "We should ask about all.")
	assert.Len(t, api.reviewed, many+1)
}

// TestKindsUse binds claims as the command bind does, by the right of the namespace, for every creator of claims.
func TestKindsUse(t *testing.T) {
	for _, subject := range []string{"Namespace", "Requester"} {
		api := newReviewer(subject, map[string][]string{ofTeam: {"b"}, me: {"a"}}, "")
		kinds, err := world.BindableKinds(t.Context(), &rest.Config{Host: serve(t, api, map[string]string{})}, "classbind-system", "databases")
		require.NoError(t, err)
		for _, name := range []string{"one", "two"} {
			d, err := kinds[0].Decide(t.Context(), claim.Intake{Claim: claim.Claim{Namespace: "team", Name: name, Selector: labels.Everything()}})
			require.NoError(t, err)
			require.NotNil(t, d.Class)
			assert.Equal(t, "b", d.Class.Name, "We should bind to what the namespace may use.")
		}
		for question, times := range api.reviewed {
			assert.Equal(t, 1, times, "We should ask once for all claims of a namespace: %s", question)
		}
		api.alone = true
		_, err = kinds[0].Decide(t.Context(), claim.Intake{Claim: claim.Claim{Namespace: "other", Name: "db", Selector: labels.Everything()}})
		require.ErrorContains(t, err, "you need the right to create subjectaccessreviews", "We should bind no claim where nobody says what it may use.")
	}
}

// TestKindsWithChooser proves that bind does not bind claims without the chooser that decides on them.
func TestKindsWithChooser(t *testing.T) {
	api := newReviewer("Namespace", nil, "")
	api.answers[claimKindsPath].(object)["items"].([]any)[0].(object)["spec"].(object)["choice"] = object{"strategy": "External", "external": object{
		"host": "chooser.example.org:443", "fields": object{"class": []any{object{"path": ".metadata.name"}}},
	}}
	_, err := world.BindableKinds(t.Context(), &rest.Config{Host: serve(t, api, map[string]string{})}, "classbind-system", "databases")
	require.ErrorContains(t, err, "its chooser decides, and this command does not ask it: set whenUnmatched: BindLater")
}

// TestExplainUse explains claims that may not use all classes.
func TestExplainUse(t *testing.T) {
	const claimKindOfNamespaces = `{"apiVersion": "classbind.io/v1beta1", "kind": "ClaimKind", "metadata": {"name": "databases.example.org"}, ` +
		`"spec": {"classes": {"use": {"subject": "Namespace"}}}}`
	for name, tc := range map[string]struct {
		reason, subject string
		allowed         map[string][]string
		alone           bool
		args, want      []string
		status          int
	}{
		"Namespace": {
			reason:  "We should show the odds among those that the namespace may use, and what it may not.",
			subject: "Namespace",
			allowed: map[string][]string{ofTeam: {"a"}},
			want: []string{
				"Database team/mine: bound to FastClass/a\n", `Because: the only class that matches the selector "tier=gold" and that namespace "team" may use`,
				"* FastClass/a   1        100%\n", "  SlowClass/c   not allowed for the claim\n",
				"  FastClass/b   tier=gold   tier=silver, and is not allowed for the claim\n",
			},
		},
		"Set": {
			reason:  "We should take whom --set names for who creates the claim.",
			subject: "Requester",
			allowed: map[string][]string{"dev": {"c"}},
			args:    []string{"--set", "request.userInfo.username=jane", "--set", "request.userInfo.groups=dev"},
			want:    []string{"bound to SlowClass/c", `that user "jane" may use`},
		},
		"Both": {
			reason: "We should not pick one of two.",
			args:   []string{"--requester", "jane", "--set", "request.userInfo.username=joe"},
			status: exit.Failed,
			want:   []string{"--requester: --set says who creates the claim, too: leave out one or the other"},
		},
		"None": {
			reason:  "We should say what it may use.",
			subject: "Namespace",
			allowed: map[string][]string{ofTeam: {"b"}},
			status:  exit.Found,
			want: []string{
				`no class that namespace "team" may use matches the selector "tier=gold": it may use FastClass/b`,
				"  SlowClass/c   not allowed for the claim\n",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			api := newReviewer(tc.subject, tc.allowed, "")
			api.alone = tc.alone
			serve(t, api, map[string]string{"claim.yaml": goldClaim})
			got := run(t, "", append([]string{"-f", "claim.yaml", "--kubeconfig", "config"}, tc.args...)...)
			assert.Equal(t, tc.status, got.status, "%s: %s", tc.reason, got.stderr)
			for _, want := range tc.want {
				assert.Contains(t, got.stdout+got.stderr, want, tc.reason)
			}
		})
	}
	t.Run("Offline", func(t *testing.T) {
		got := offline(t, goldClaim, documents(claimKindOfNamespaces, classKind, goldClass))
		assert.Zero(t, got.status, got.stderr)
		assert.Contains(t, got.stdout, "Note:    who may use which class is not known without a cluster: all classes count as allowed (classes.use)")
		assert.NotContains(t, got.stdout, "may use\n")

		requesters := strings.Replace(claimKindOfNamespaces, "Namespace", "Requester", 1)
		got = offline(t, goldClaim, documents(requesters, classKind, goldClass), "--requester", "jane")
		assert.Zero(t, got.status, got.stderr)
		assert.NotContains(t, got.stdout, "no effect", "We should not call what is not known without effect.")
	})
}
