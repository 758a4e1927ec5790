package setdefault

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/cmd/classbind/exit"
	lookup "github.com/classbind/classbind/controller/cluster"
	"github.com/classbind/classbind/controller/controllertest"
	"github.com/classbind/classbind/selector/inventory"
)

var (
	errLost        = &url.Error{Op: "Patch", URL: "https://cluster", Err: errors.New("connection reset by peer")}
	errUnavailable = apierrors.NewServiceUnavailable("the server is going away")
	errRefused     = apierrors.NewForbidden(schema.GroupResource{Group: "test", Resource: "as"}, "new", errors.New("not this one"))
)

// fault is what happens to a write that is not a dry run.
type fault struct {
	// stored says that the write is stored in spite of the error.
	stored bool
	err    error
}

// TestMove moves the default from old to new while answers of the API server get lost, which a real one does not do on demand.
func TestMove(t *testing.T) {
	moved := []string{"as.test/old: no longer the default for claims.test", "as.test/new: the default for claims.test"}
	for name, tc := range map[string]struct {
		reason string
		// faults of the first writes, in order, by class; later writes have none.
		faults map[string][]fault
		// interrupted is the class after whose first write the command is.
		interrupted string
		timeout     time.Duration
		marked      string
		out         []string
		err         []string // its parts; none for success
	}{
		"NoFault":            {reason: "We should move the default.", marked: "new", out: moved},
		"LostUnmark":         {reason: "We should go on where the answer to the first write was lost, although it was stored.", faults: map[string][]fault{"old": {{stored: true, err: errLost}}}, marked: "new", out: moved},
		"LostMark":           {reason: "We should succeed where the answer to the last write was lost, although it was stored.", faults: map[string][]fault{"new": {{stored: true, err: errLost}}}, marked: "new", out: moved},
		"ShortlyUnavailable": {reason: "We should try again rather than leave the claim kind without a default.", faults: map[string][]fault{"new": {{err: errUnavailable}, {err: errLost}}}, marked: "new", out: moved},
		"Unavailable": {
			reason: "We should put the former default back where the new one cannot be marked.",
			faults: map[string][]fault{"new": repeat(errUnavailable)},
			marked: "old",
			err:    []string{"cannot mark as.test/new as the default: the server is going away\nas.test/old is the default again"},
		},
		"Refused": {reason: "We should not try again what was refused.", faults: map[string][]fault{"new": {{err: errRefused}}}, marked: "old", err: []string{"not this one\nas.test/old is the default again"}},
		"UnmarkRefused": {
			reason: "We should change nothing where the mark cannot be taken.",
			faults: map[string][]fault{"old": {{err: errRefused}}},
			marked: "old", err: []string{"cannot take the mark from as.test/old", "not this one\nnothing was changed"},
		},
		"PutBackUnavailable": {
			reason: "We should keep trying to put the former default back.",
			faults: map[string][]fault{"new": {{err: errRefused}}, "old": {{stored: true}, {err: errUnavailable}, {err: errLost}, {stored: true, err: errLost}}},
			marked: "old",
			err:    []string{"not this one\nas.test/old is the default again"},
		},
		"PutBackReverted": {
			reason: "We should not say that the former default is one again where a webhook takes the mark away.",
			faults: map[string][]fault{"new": {{err: errRefused}}, "old": {{stored: true}, {}}},
			err:    []string{"not this one\ncannot mark as.test/old as the default: the mark does not change"},
		},
		"PutBackRefused": {
			reason: "We should say how to put the former default back where we cannot.",
			faults: map[string][]fault{"new": {{err: errRefused}}, "old": {{stored: true}, {err: errRefused}}},
			err:    []string{"\ncannot mark as.test/old as the default: ", "; to mark it again, run: kubectl patch as.test old --type merge --patch '{\"metadata\":{\"annotations\":{\"default\":\"true\"}}}'"},
		},
		"PutBackNeverAvailable": {
			reason: "We should not try for ever.",
			faults: map[string][]fault{"new": {{err: errRefused}}, "old": append([]fault{{stored: true}}, repeat(errUnavailable)...)},
			err:    []string{"\ntimed out after 2m0s: cannot mark as.test/old as the default: the server is going away; to mark it again, run: kubectl"},
		},
		"InterruptedBetween": {
			reason:      "We should put the former default back when we are interrupted.",
			interrupted: "old",
			marked:      "old",
			err:         []string{"interrupted\nas.test/old is the default again"},
		},
		"InterruptedAfter": {
			reason:      "We should not put back what was moved when we are interrupted.",
			interrupted: "new",
			marked:      "new", out: moved,
			err: []string{"interrupted; the marks are set, but classbind has not confirmed it"},
		},
		"InterruptedInDoubt": {
			reason:      "We should look whether the last write was stored before we put anything back.",
			faults:      map[string][]fault{"new": {{stored: true, err: errLost}}},
			interrupted: "new",
			marked:      "new", out: moved,
			err: []string{"interrupted; the marks are set, but classbind has not confirmed it"},
		},
		"TimedOut": {
			reason: "We should put the former default back when time is over.", timeout: time.Second,
			faults: map[string][]fault{"new": repeat(errUnavailable)},
			marked: "old",
			err:    []string{"timed out after 1s: cannot mark as.test/new as the default: the server is going away\nas.test/old is the default again"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				writes := map[string]int{}
				m, out := newFakeMover(t, v1beta1.DefaultClass{Kind: "A", Name: "new"}, func(class string, store, read func() error) error {
					n := writes[class]
					writes[class]++
					f := fault{stored: true}
					if n < len(tc.faults[class]) {
						f = tc.faults[class][n]
					}
					switch {
					case f.stored:
						require.NoError(t, store())
					case f.err == nil: // A webhook reverts it.
						require.NoError(t, read())
					}
					if tc.interrupted == class {
						cancel()
					}
					return f.err
				})
				m.options.timeout = cmp.Or(tc.timeout, m.options.timeout)
				err := m.run(ctx)
				if tc.err == nil {
					require.NoError(t, err, tc.reason)
				}
				for _, part := range tc.err {
					require.ErrorContains(t, err, part, tc.reason)
				}
				classes, err := m.reader.Classes(t.Context(), fakeKind("A", "as.test", false).ClassKind)
				require.NoError(t, err)
				var marked []string
				classes.Each(func(c *inventory.Class) {
					if c.Default {
						marked = append(marked, c.Name)
					}
				})
				assert.Equal(t, tc.marked, strings.Join(marked, ", "), tc.reason)
				assert.Equal(t, strings.Join(tc.out, "\n"), strings.TrimSpace(out.String()), "We should say what was done.")
			})
		})
	}
}

// newFakeMover moves the default to the class new, where the status has seen one already. write is called for each write of a class that is
// no dry run, and may store it, or read the class as it is.
func newFakeMover(t *testing.T, seen v1beta1.DefaultClass, write func(class string, store, read func() error) error) (m *mover, out *strings.Builder) {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, v1beta1.AddToScheme(scheme))
	claimKind := &v1beta1.ClaimKind{ObjectMeta: metav1.ObjectMeta{Name: "claims.test"}, Status: v1beta1.ClaimKindStatus{
		Defaults: []v1beta1.DefaultClass{seen}, Conditions: []metav1.Condition{{Type: v1beta1.ConditionSingleDefault, Status: metav1.ConditionTrue}},
	}}
	classKind := &v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: "as.test"}, Spec: v1beta1.ClassKindSpec{
		ClaimKinds: controllertest.Links("claims.test"), Default: v1beta1.Source{Annotation: "default"}, Weight: v1beta1.Source{Annotation: "weight"},
	}}
	objects := []client.Object{claimKind, classKind, fakeClass("old", true), fakeClass("new", false), fakeClass("third", false)}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			store := func() error { return c.Patch(ctx, o, patch, opts...) }
			switch {
			case slices.Contains(opts, client.PatchOption(client.DryRunAll)): // The fake answers with what is stored.
				data, err := patch.Data(o)
				*o.(*unstructured.Unstructured) = *fakeClass(o.GetName(), strings.Contains(string(data), "true"))
				return err
			case write == nil:
				return store()
			}
			return write(o.GetName(), store, func() error { return c.Get(ctx, client.ObjectKeyFromObject(o), o) })
		},
	}).Build()
	out = &strings.Builder{}
	return &mover{
		cluster: &cluster{api: api, reader: fakeReader{api}}, options: &options{claimKinds: []string{"claims.test"}, timeout: 2 * time.Minute},
		name: className{kind: "A", name: "new"}, out: out, progress: io.Discard,
	}, out
}

func TestOvertaken(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		marks  []string // the classes whose mark changes, in turn; none if the class is deleted
		want   string
	}{
		"Moved":    {"We should name the class that another command has marked.", []string{"third", "new"}, "as.test/new: the default for claims.test, but lost its mark meanwhile; the default is as.test/third now; to move it all the same, run this command again"},
		"Unmarked": {"We should say that nothing is the default.", []string{"new"}, "but lost its mark meanwhile; no class is the default now"},
		"Deleted":  {"We should take a class that is gone for one without a mark.", nil, "but lost its mark meanwhile; no class is the default now"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, _ := newFakeMover(t, v1beta1.DefaultClass{Kind: "A", Name: "old"}, nil)
				begin := time.Now()
				time.AfterFunc(time.Second, func() {
					if tc.marks == nil {
						assert.NoError(t, m.api.Delete(t.Context(), fakeClass("new", true))) //nolint:testifylint // This is another goroutine.
					}
					for _, name := range tc.marks {
						assert.NoError(t, m.setMark(t.Context(), fakeKind("A", "as.test", false).NewClass(fakeClass(name, false), nil), name != "new", false))
					}
				})
				err := m.run(t.Context())
				require.ErrorContains(t, err, tc.want, tc.reason)
				var status *exit.Error
				require.ErrorAs(t, err, &status)
				assert.Equal(t, 3, status.Status, "We should have a status of our own for it.")
				assert.LessOrEqual(t, time.Since(begin), time.Second+2*confirmInterval, "We should not wait for what will not come.")
			})
		})
	}
}

func repeat(err error) []fault { return slices.Repeat([]fault{{err: err}}, 1000) }

func fakeClass(name string, marked bool) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "test/v1", "kind": "A"}}
	u.SetName(name)
	if marked {
		u.SetAnnotations(map[string]string{"default": "true"})
	}
	return u
}

type fakeReader struct{ client.Reader }

func (fakeReader) Resolve(context.Context, string, string, ...string) (lookup.Resource, error) {
	return lookup.Resource{GroupVersionKind: schema.GroupVersionKind{Group: "test", Version: "v1", Kind: "A"}}, nil
}

func (f fakeReader) Classes(ctx context.Context, kind *inventory.ClassKind) (*inventory.Classes, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: "test", Version: "v1", Kind: "AList"})
	if err := f.List(ctx, list); err != nil {
		return nil, err
	}
	var all []*inventory.Class
	for i := range list.Items {
		all = append(all, kind.NewClass(&list.Items[i], list.Items[i].Object))
	}
	return inventory.NewClasses(kind, all), nil
}
