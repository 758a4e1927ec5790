package ui

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	databases = "postgresqlinstances.database.crossplane.io"
	team      = "acme-team"
)

var (
	kindPath  = "/kind?" + url.Values{"name": {databases}}.Encode()
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
	w := newWorld(t)
	w.install(t)
	w.serve(t)
	sample := filepath.Join(w.deploy, "samples", "crossplane")
	w.kubectl(t, "", "apply", "-k", filepath.Join(sample, "crds"))
	w.kubectl(t, "", "wait", "--for=condition=Established", "crd", "--all")
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
		{"claim", claimPath("orders-001"), "The decision, if the claim was created now", 900},
	} {
		if tc.screen == "kinds" {
			b.open(u.url, "Claim kinds")
		}
		b.open(u.at(tc.path), tc.says)
		b.accessible(tc.screen)
		b.shoot("ui-"+tc.screen, tc.height)
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
	b.shoot("ui-whatif", 1250)
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

	b.run(chromedp.SendKeys("#name", "half-typed"))
	version := eval[string](b, "document.getElementById('main').dataset.version")
	w.kubectl(t, database("attic", "stack: attic"), "apply", "-f", "-")
	other := newTab(t) // It sees when the cluster was read again.
	other.open(u.url, "Claim kinds")
	other.open(u.at(kindPath), team+"/attic")
	assert.Equal(t, version, eval[string](b, "document.getElementById('main').dataset.version"))
	assert.Equal(t, "half-typed", eval[string](b, "document.getElementById('name').value"), "We should not lose what somebody types.")

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
	tabTo("namespace")
	press(team, kb.Tab, "orders-001", kb.Enter)
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
