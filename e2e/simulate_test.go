package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// simulation is what "classbind simulate -o json" prints of one ClaimKind.
type simulation struct {
	ClaimKind             string
	Claims, Unpredictable int
	Rows                  []struct {
		simulatedPlace `json:",inline"`
		Before, After  struct{ Low, High int }
	}
	Moves []struct {
		From, To simulatedPlace
		Count    int
		Claims   []string
	}
}

type simulatedPlace struct {
	Class   struct{ Kind, Name string }
	Outcome string
}

func (p simulatedPlace) class() string {
	if p.Class.Name == "" {
		return ""
	}
	return p.Class.Kind + "/" + p.Class.Name
}

var simulatedKinds = map[string]string{
	"Named": "{choice: {strategy: WeightedRandom}}",
	"Fresh": "{choice: {strategy: WeightedRandom, seed: Request}}",
	"Least": "{choice: {strategy: LeastClaims}}",
	"Round": "{choice: {strategy: RoundRobin}}",
}

// TestSimulate predicts random changes, applies them, and creates the claims anew.
func TestSimulate(t *testing.T) {
	t.Parallel()
	notInPods(t, "The command needs the kubeconfig of an admin.")
	const group, classes = "simulate.test", 200
	changes, claims := 20, 5000
	if testing.Short() {
		changes, claims = 3, 600
	}
	w, random := sharedWorld(t), rand.New(rand.NewPCG(1, 2)) //nolint:gosec // It has to be reproducible.
	kinds := slices.Sorted(maps.Keys(simulatedKinds))
	resources, registrations, names := []string{"Class classes." + group + " Cluster"}, "", []string{}
	for _, kind := range kinds {
		name := strings.ToLower(kind) + "s." + group
		resources = append(resources, kind+" "+name+" Namespaced")
		registrations += claimKind(name, simulatedKinds[kind])
		names = append(names, name)
	}
	w.resources(t, resources...)
	world := map[string]string{} // The manifests of all classes.
	some := func() string {
		labels := fmt.Sprintf("labels: {a: '%d', b: '%d'}, annotations: {classbind.io/weight: '%d'", random.IntN(8), random.IntN(5), random.IntN(6))
		if random.IntN(20) == 0 {
			labels += ", classbind.io/cordoned: 'true'"
		}
		return labels + "}, "
	}
	for i := range classes {
		name := fmt.Sprintf("class-%d", i)
		world[name] = class(group, "Class", name, some())
	}
	world["class-0"] = class(group, "Class", "class-0", "annotations: {classbind.io/default: 'true'}, ")
	// A class that is offered from each change on shows when the replica knows it.
	offers := func(change int, without string) string {
		return classKind("classes."+group, fmt.Sprintf("{claimKinds: [{name: %s}], offerWhen: \"!('change' in class.metadata.labels) && "+
			"class.metadata.name != '%s' || class.metadata.?labels.?change.orValue('') == '%d'\"}", strings.Join(names, "}, {name: "), without, change))
	}
	var all strings.Builder
	for _, name := range slices.Sorted(maps.Keys(world)) {
		all.WriteString(world[name])
	}
	w.apply(t, lateVendor(group)+registrations+offers(0, "")+all.String())
	for _, name := range names {
		w.awaitClaims(t, name)
	}
	w.awaitClasses(t, "classes."+group, classes)

	made := make([]*unstructured.Unstructured, claims)
	for i := range made {
		made[i] = object(group, kinds[i%len(kinds)], fmt.Sprintf("claim-%d", i))
		made[i].SetNamespace("default")
		labels := map[string]any{"a": fmt.Sprint(random.IntN(9))} // Of one value, there is no class.
		if i%3 == 0 {
			labels["b"] = fmt.Sprint(random.IntN(5))
		}
		if i%10 != 0 {
			made[i].Object["spec"] = map[string]any{"classSelector": map[string]any{"matchLabels": labels}}
		}
	}
	create := func() map[string]map[string]string {
		got := make([]string, claims)
		concurrently(t, claims, func(i int) error {
			claim := made[i].DeepCopy()
			err := w.Create(t.Context(), claim)
			got[i] = classOf(claim)
			return err
		})
		of := map[string]map[string]string{}
		for i, claim := range made {
			name := strings.ToLower(claim.GetKind()) + "s." + group
			if of[name] == nil {
				of[name] = map[string]string{}
			}
			of[name]["default/"+claim.GetName()] = got[i]
		}
		return of
	}
	was, certain, moved, spread := create(), 0, 0, 0
	for change := 1; change <= changes; change++ {
		changed, removed, unoffered := map[string]bool{}, []string{}, ""
		for range 1 + random.IntN(10) {
			name := fmt.Sprintf("class-%d", 1+random.IntN(classes+20)) // Some are new.
			world[name], changed[name] = class(group, "Class", name, some()), true
		}
		marker := fmt.Sprintf("change-%d", change)
		world[marker], changed[marker] = class(group, "Class", marker, fmt.Sprintf("labels: {change: '%d'}, ", change)), true
		for _, name := range slices.Sorted(maps.Keys(world)) {
			if !changed[name] && strings.HasPrefix(name, "class-") && random.IntN(40) == 0 {
				removed = append(removed, name)
				delete(world, name)
			}
		}
		if change%2 == 0 {
			unoffered = fmt.Sprintf("class-%d", random.IntN(classes))
		}
		manifest := ""
		for _, name := range slices.Sorted(maps.Keys(changed)) {
			manifest += world[name]
		}
		manifest += offers(change, unoffered)
		file := filepath.Join(t.TempDir(), "change.yaml")
		require.NoError(t, os.WriteFile(file, []byte(manifest), 0o600))
		args := []string{"simulate", "-f", file, "-o", "json", "--kubeconfig=" + w.plane.Kubeconfig}
		for _, name := range removed {
			args = append(args, "--remove=Class."+group+"/"+name)
		}
		out, stderr, _, err := w.classbind(t.Context(), append(args, names...)...)
		require.NoError(t, err)
		report := struct{ Kinds []simulation }{}
		require.NoError(t, json.Unmarshal([]byte(out), &report), "%s%s", out, stderr)
		require.Len(t, report.Kinds, len(kinds))

		for _, name := range removed {
			require.NoError(t, client.IgnoreNotFound(w.Delete(t.Context(), object(group, "Class", name))))
		}
		w.apply(t, manifest)
		w.awaitBound(t, fmt.Sprintf("apiVersion: %s/v1\nkind: Named\nmetadata: {namespace: default, name: probe}\nspec: {classSelector: {matchLabels: {change: '%d'}}}\n", group, change),
			"Class/"+marker, "We should know the change.")
		concurrently(t, claims, func(i int) error { return w.Delete(t.Context(), made[i].DeepCopy()) })
		got := create()
		for _, k := range report.Kinds {
			require.Equal(t, len(got[k.ClaimKind]), k.Claims)
			counts := map[string]int{}
			for _, class := range got[k.ClaimKind] {
				counts[class]++
			}
			want := maps.Clone(was[k.ClaimKind])
			for _, m := range k.Moves {
				require.Len(t, m.Claims, m.Count, "We should name all claims.")
				for _, claim := range m.Claims {
					want[claim] = m.To.class()
				}
				moved += m.Count
			}
			if k.Unpredictable == 0 {
				assert.Equal(t, want, got[k.ClaimKind], "%s, change %d: each claim should get the class that we predicted.", k.ClaimKind, change)
				certain += k.Claims
			}
			for _, row := range k.Rows {
				n := counts[row.class()]
				assert.True(t, row.After.Low <= n && n <= row.After.High, "%s, change %d: %d claims have the class %q, and not %d to %d",
					k.ClaimKind, change, n, row.class(), row.After.Low, row.After.High)
				delete(counts, row.class())
				spread++
			}
			for class, n := range counts {
				assert.LessOrEqual(t, n, 16, "%s, change %d: no claim was expected to get %q.", k.ClaimKind, change, class)
			}
		}
		was = got
	}
	t.Logf("%d changes: %d classes of claims came true, %d moves, and %d numbers were within their intervals", changes, certain, moved, spread)
	assert.Positive(t, moved)
}
