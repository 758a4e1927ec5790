package ui

import (
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/classbind/classbind/e2e/classbind"
)

const (
	databases = "postgresqlinstances.database.crossplane.io"
	team      = "acme-team"
)

var (
	kindPath  = "/kind?" + url.Values{"name": {databases}}.Encode()
	classPath = func(name string) string {
		return "/class?" + url.Values{"kind": {databases}, "classkind": {"rdsinstanceclasses.database.aws.crossplane.io"}, "name": {name}}.Encode()
	}
	claimPath = func(name string) string {
		return "/claim?" + url.Values{"kind": {databases}, "namespace": {team}, "name": {name}}.Encode()
	}
)

// later are classes that came later than most claims.
const later = `
apiVersion: database.aws.crossplane.io/v1alpha2
kind: RDSInstanceClass
metadata:
  name: orders-standard
  labels: {stack: orders, region: eu-central-1}
  annotations: {classbind.io/weight: "3"}
specTemplate: {class: db.t2.small, masterUsername: masteruser, size: 20}
---
apiVersion: database.aws.crossplane.io/v1alpha2
kind: RDSInstanceClass
metadata:
  name: orders-fast
  labels: {stack: orders, region: eu-central-1}
  annotations: {classbind.io/weight: "2"}
specTemplate: {class: db.m4.xlarge, masterUsername: masteruser, size: 50}
---
apiVersion: database.aws.crossplane.io/v1alpha2
kind: RDSInstanceClass
metadata:
  name: orders-old
  labels: {stack: orders, region: eu-central-1}
  annotations: {classbind.io/cordoned: "true"}
specTemplate: {class: db.m1.small, masterUsername: masteruser, size: 10}
`

const newest = `
apiVersion: database.gcp.crossplane.io/v1alpha2
kind: CloudSQLInstanceClass
metadata:
  name: orders-arm
  labels: {stack: orders, region: eu-central-1}
  annotations: {classbind.io/weight: "3"}
specTemplate: {tier: db-custom-4-15360, region: europe-west3, storageType: PD_SSD, storageGB: 100}
`

func database(name, labels string) string {
	return fmt.Sprintf("---\napiVersion: database.crossplane.io/v1alpha1\nkind: PostgreSQLInstance\n"+
		"metadata: {namespace: %s, name: %s}\nspec: {classSelector: {matchLabels: {%s}}}\n", team, name, labels)
}

// orders are databases of shops.
func orders(count int) string {
	var all strings.Builder
	for i := range count {
		all.WriteString(database(fmt.Sprintf("orders-%03d", i), "stack: orders"))
	}
	return all.String()
}

// sampled is a world with classbind, the sample, and databases, some of which have no class.
func sampled(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	w := newWorld(t)
	w.install(t)
	w.serve(t)
	sample := filepath.Join(w.deploy, "samples", "crossplane")
	w.kubectl(t, "", "apply", "-k", filepath.Join(sample, "crds"))
	w.kubectl(t, "", "apply", "-k", sample)
	w.kubectl(t, later, "apply", "-f", "-")
	for _, kind := range []string{databases, "mysqlinstances.database.crossplane.io", "redisclusters.cache.crossplane.io"} {
		w.kubectl(t, "", "wait", "--for=condition=Ready", "claimkind/"+kind)
	}
	w.kubectl(t, "", "wait", "--for=jsonpath={.status.classes}=7", "claimkind/"+databases)
	w.kubectl(t, "", "apply", "-f", filepath.Join(sample, "claims.yaml"))
	w.kubectl(t, orders(180), "apply", "-f", "-")
	for _, name := range []string{"reports", "billing", "search"} {
		w.kubectl(t, database(name, "stack: "+name+", region: us-east-1"), "apply", "-f", "-")
	}
	w.kubectl(t, newest, "apply", "-f", "-")
	return w
}

func TestScreens(t *testing.T) {
	w := sampled(t)
	u, b := startUI(t, w.Kubeconfig), newTab(t)
	for _, tc := range []struct {
		screen, path, says string
		height             int64
	}{
		{"kinds", "/", databases, 900},
		{"kind", kindPath, "orders-standard", 850},
		{"class", classPath("orders-standard"), "Claims that have it", 850},
		{"claims", "/claims?kind=" + databases, "1 to 50 of 18", 850},
		{"claim", claimPath("orders-001"), "The decision, if the claim was created now", 900},
		{"unbound", claimPath("reports"), "The decision, if the claim was created now", 900},
	} {
		if tc.screen == "kinds" {
			b.open(u.url, "Claim kinds")
		}
		b.open(u.at(tc.path), tc.says)
		b.accessible(tc.screen)
		b.fits(tc.screen)
		if slices.Contains([]string{"kinds", "kind", "claim"}, tc.screen) {
			b.shoot("ui-"+tc.screen, tc.height)
		}
		if tc.screen == "unbound" {
			reason := "no class for this claim"
			assert.Equal(t, 1, strings.Count(strings.ToLower(b.text()), reason), "The reason should stand once:\n%s", b.text())
		}
		if tc.screen == "kind" {
			b.scheme("dark")
			b.shoot("ui-kind-dark", tc.height)
			b.scheme("light")
		}
	}

	b.open(u.at("/whatif"), "Predict")
	b.run(chromedp.SetValue("#changes", strings.Replace(newest, "stack: orders", "stack: search", 1)),
		chromedp.SetValue("#kind", databases), chromedp.Click("main button"))
	b.says("Who moves")
	assert.Contains(t, b.text(), "would get another class")
	b.accessible("whatif")
	b.fits("whatif")
	b.shoot("ui-whatif", 1180)
}

// TestManyKinds predicts a change of one of fifty kinds.
func TestManyKinds(t *testing.T) {
	t.Parallel()
	const kinds = 50
	w := newWorld(t)
	w.install(t)
	var crds, registrations, claims strings.Builder
	for i := range kinds {
		group := fmt.Sprintf("kind-%02d.test", i)
		crds.WriteString(classbind.CRD("Claim", "claims."+group, "Namespaced", classbind.AnySchema))
		crds.WriteString(classbind.CRD("Class", "classes."+group, "Cluster", classbind.AnySchema))
		fmt.Fprintf(&registrations, "---\napiVersion: classbind.io/v1beta1\nkind: ClaimKind\nmetadata: {name: claims.%[1]s}\n"+
			"---\napiVersion: classbind.io/v1beta1\nkind: ClassKind\nmetadata: {name: classes.%[1]s}\nspec: {claimKinds: [{name: claims.%[1]s}]}\n", group)
		fmt.Fprintf(&claims, "---\napiVersion: %[1]s/v1\nkind: Claim\nmetadata: {name: a, namespace: default}\nspec: {classSelector: {}}\n", group)
	}
	w.kubectl(t, crds.String(), "apply", "-f", "-")
	w.kubectl(t, registrations.String()+claims.String(), "apply", "-f", "-")
	u, b := startUI(t, w.Kubeconfig), newTab(t)
	b.open(u.url, fmt.Sprintf("claims.kind-%02d.test", kinds-1))
	b.fits("many kinds")
	b.open(u.at("/whatif"), "Predict")
	b.run(chromedp.SetValue("#changes", "apiVersion: kind-07.test/v1\nkind: Class\nmetadata: {name: new}\n"), chromedp.Click("main button"))
	b.says(fmt.Sprintf("%d kinds do not change", kinds-1))
	assert.Equal(t, 1, eval[int](b, "document.querySelectorAll('#answer section').length"), "We should show what changes alone.")
	assert.Contains(t, b.text(), "claims.kind-07.test")
	assert.NotContains(t, eval[string](b, "document.querySelector('#answer').innerText"), "claims.kind-08.test")
	assert.Less(t, eval[int](b, "document.documentElement.scrollHeight"), 1800, "Two screens should show it all.")
	b.accessible("a change among many kinds")
	b.run(chromedp.Click("summary"))
	assert.Contains(t, eval[string](b, "document.querySelector('#answer').innerText"), "claims.kind-08.test: 1 claim", "We should show all on demand.")
}

func TestCopy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.install(t)
	u, b := startUI(t, w.Kubeconfig), newTab(t)
	b.open(u.url, "No ClaimKind is registered, so classbind binds no claim.")
	b.run(chromedp.Evaluate[chromedp.Void]("window.copied = ''; navigator.clipboard.writeText = async (text) => { window.copied = text; }"),
		chromedp.Click("button.copy"))
	b.says("Copied")
	assert.Equal(t, eval[string](b, "document.querySelector('button.copy').previousElementSibling.innerText"), eval[string](b, "window.copied"))
}

func TestLive(t *testing.T) {
	w := sampled(t)
	u, b := startUI(t, w.Kubeconfig), newTab(t)
	b.open(u.url, "Claim kinds")
	b.open(u.at(kindPath), team+"/reports")
	b.run(chromedp.Focus("#waiting + .scroll a, #waiting ~ .scroll a"))
	focused := eval[string](b, "document.activeElement.getAttribute('href')")
	w.kubectl(t, database("archive", "stack: archive"), "apply", "-f", "-")
	b.says(team + "/archive")
	assert.Equal(t, focused, eval[string](b, "document.activeElement.getAttribute('href')"), "What has the focus should keep it.")

	b.run(chromedp.SendKeys("#find", "half-typed"))
	version := eval[string](b, "document.getElementById('main').dataset.version")
	w.kubectl(t, database("attic", "stack: attic"), "apply", "-f", "-")
	other := newTab(t) // It sees when the cluster was read again.
	other.open(u.url, "Claim kinds")
	other.open(u.at(kindPath), team+"/attic")
	assert.Equal(t, version, eval[string](b, "document.getElementById('main').dataset.version"))
	assert.Equal(t, "half-typed", eval[string](b, "document.getElementById('find').value"), "We should not lose what somebody types.")

	other.run(chromedp.Evaluate[chromedp.Void]("window.stays = document.getElementById('main').dataset.version"), chromedp.Click("#reload button"))
	other.run(chromedp.Poll[chromedp.Void]("document.getElementById('main').dataset.version !== window.stays"))
	assert.Regexp(t, `^As of [0-9:]{8}, \d+ (seconds?|minutes?) ago`, eval[string](other, "document.getElementById('as-of').innerText"))

	require.NoError(t, u.end())
	b.says("Not connected.")
}

// TestKeyboard reaches everything without a mouse, and sees where it is.
func TestKeyboard(t *testing.T) {
	w := sampled(t)
	u, b := startUI(t, w.Kubeconfig), newTab(t)
	b.open(u.url, databases)
	press := func(keys ...string) {
		t.Helper()
		for _, key := range keys {
			b.run(chromedp.KeyEvent(key))
		}
	}
	active := func() string {
		return eval[string](b, "(document.activeElement.innerText || document.activeElement.id || document.activeElement.tagName).trim()")
	}
	press(kb.Tab)
	assert.Equal(t, "Skip to the content", active(), "The first stop should lead over the navigation.")
	press(kb.Enter, kb.Tab)
	// tabTo an element, seeing each on the way.
	tabTo := func(text string) {
		t.Helper()
		for range 60 {
			outline := eval[string](b, "getComputedStyle(document.activeElement).outlineStyle")
			require.NotEqual(t, "none", outline, "It should be seen where the focus is: %s", active())
			if active() == text {
				return
			}
			press(kb.Tab)
		}
		require.Fail(t, "The keyboard should reach it.", text)
	}
	tabTo(databases)
	press(kb.Enter)
	b.says("Claims without a class")
	press(kb.Tab)
	tabTo("find")
	press("orders-001", kb.Enter)
	b.says("1 to 1 of 1 found in")
	press(kb.Tab)
	tabTo(team + "/orders-001")
	press(kb.Enter)
	b.says("The decision, if the claim was created now")
	press(kb.Tab, kb.Tab)
	tabTo("What if")
	press(kb.Enter)
	b.says("Add or replace")
	press(kb.Tab)
	tabTo("remove")
	press("RDSInstanceClass/orders-fast", kb.Tab, kb.Enter)
	b.says("would get another class")
}
