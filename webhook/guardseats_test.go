package webhook

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/classbind/classbind/api/v1beta1"
	"github.com/classbind/classbind/selector"
	"github.com/classbind/classbind/selector/inventory"
	"github.com/classbind/classbind/webhook/onedefault"
)

// tenants is a world where each tenant has a default class, which must be a database.
type tenants struct {
	*apiServer
	claims  *v1beta1.ClaimKind
	classes *v1beta1.ClassKind
}

func newTenants(change ...func(*v1beta1.ClassKindSpec)) *tenants {
	w := &tenants{apiServer: newAPIServer(), claims: newRegistration(func(s *v1beta1.ClaimKindSpec) {
		s.Classes.Partition = &v1beta1.Partition{Claim: "claim.metadata.namespace", Class: "class.spec.tenant"}
		s.Classes.Fits = []v1beta1.Fit{{Name: "Database", Expression: "class.spec.database && class.metadata.name == claim.spec.name"}}
	})}
	w.classes = &v1beta1.ClassKind{ObjectMeta: metav1.ObjectMeta{Name: "tenantclasses.example.org"}, Spec: v1beta1.ClassKindSpec{
		ClaimKinds: []v1beta1.ClaimKindLink{{Name: claimKindName}}, Default: v1beta1.Source{Annotation: "default"}, Weight: v1beta1.Source{Annotation: "weight"},
	}}
	for _, f := range change {
		f(&w.classes.Spec)
	}
	w.kinds[w.classes.Name] = w.kind(w.claims)
	return w
}

func (w *tenants) kind(claimKinds ...*v1beta1.ClaimKind) *inventory.ClassKind {
	return inventory.NewClassKind(w.classes, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "TenantClass"}, false, claimKinds...)
}

// inventory of the class gold, if it is stored.
func (w *tenants) inventory(t *testing.T) *selector.Inventory {
	t.Helper()
	kind, all := w.kinds[w.classes.Name], []*inventory.Class(nil)
	_, gold, err := w.class(t.Context(), kind, "", "gold")
	require.NoError(t, err)
	if gold != nil {
		all = append(all, gold)
	}
	return newInventory(selector.NewClaimKind(w.claims, w.classes), inventory.NewClasses(kind, all))
}

// tenantClass has fields of its spec as JSON.
func tenantClass(name, metadata, spec string) string {
	return object(name, metadata, `,"spec":{`+spec+`}`)
}

func partitionLease(partition string) string {
	return onedefault.LeaseName(inventory.Seat{ClaimKind: claimKindName, Partition: partition})
}

// TestGuardOfSeats moves a class between the partitions of tenants a and b. The class gold
// is the default of b.
func TestGuardOfSeats(t *testing.T) {
	const (
		inA, inB, inC = `"tenant":"a","database":true`, `"tenant":"b","database":true`, `"tenant":"c","database":true`
		nowhere       = `"database":true`
		unfit         = `"tenant":"b","database":false`
		weighed       = `,"annotations":{"default":"true","weight":"2"}`
	)
	silver := func(metadata, spec string) string { return tenantClass("silver", metadata, spec) }
	taken := `tenantclasses.example.org "silver" is forbidden: "TenantClass/gold" is the default class for ` +
		`"postgresqlinstances.database.example.org" in partition "b" already: `
	type want struct {
		reason, lease, message, warning string
		code                            int32
	}
	for name, tc := range map[string]struct {
		reason        string
		before, after string
		want          want
	}{
		"CreatedElsewhere": {
			"We should let every partition have a default.", "", silver(marked, inA), want{reason: "OneDefault", lease: partitionLease("a")},
		},
		"CreatedInTheSame": {
			"We should let a partition have one default, and name it.", "", silver(marked, inB),
			want{reason: "SecondDefault", code: http.StatusForbidden, message: taken + "to move the default, create this class without its mark, then run: " +
				"classbind set-default tenantclasses.example.org/silver --for postgresqlinstances.database.example.org; " +
				`to take it from "TenantClass/gold" and no more, run: kubectl annotate tenantclasses.example.org gold default-`},
		},
		"Marked": {
			"We should let every partition have a default.", silver("", inA), silver(marked, inA), want{reason: "OneDefault", lease: partitionLease("a")},
		},
		"MarkedAndMoved": {
			"We should take the seat of the new object.", silver("", inB), silver(marked, inA), want{reason: "OneDefault", lease: partitionLease("a")},
		},
		"Moved": {
			"We should take a move to another partition for becoming default there.",
			silver(marked, inA), silver(marked, inC),
			want{reason: "OneDefault", lease: partitionLease("c")},
		},
		"MovedToTheSame": {
			"We should refuse a move to a partition that has a default; set-default would leave the class where it is.", silver(marked, inA), silver(marked, inB),
			want{reason: "SecondDefault", code: http.StatusForbidden, message: taken + `to take it from "TenantClass/gold", run: ` +
				"kubectl annotate tenantclasses.example.org gold default-; then try again"},
		},
		"MarkedAndMovedToTheSame": {
			"We should not advise to move a default to where the class is no more.", silver("", inA), silver(marked, inB),
			want{reason: "SecondDefault", code: http.StatusForbidden, message: taken + `to take it from "TenantClass/gold", run: ` +
				"kubectl annotate tenantclasses.example.org gold default-; then try again"},
		},
		"Stays": {
			"We should leave a default alone that stays in its seat, even if there are two.",
			silver(marked, inB), silver(weighed, inB+`,"more":1`),
			want{reason: "DefaultAlready"},
		},
		"Renamed": {
			"We should leave a default alone of which something else changes.", silver(marked, inB), silver(marked+`,"labels":{"a":"b"}`, inB), want{reason: "DefaultAlready"},
		},
		"ServesNoMore": {
			"We should let a class leave its seat.", silver(marked, inB), silver(marked, unfit), want{reason: "DefaultAlready"},
		},
		"ServesAgain": {
			"We should refuse a marked class that comes to serve where there is a default.", silver(marked, unfit), silver(marked, inB),
			want{reason: "SecondDefault", code: http.StatusForbidden, message: taken},
		},
		"ServesNobody": {
			"We should leave a class alone that serves nobody.", "", silver(marked, unfit), want{reason: "NoClaimKind"},
		},
		"Unknown": {
			"We should refuse a default nobody knows for whom.", "", silver(marked, nowhere),
			want{reason: "SeatUnknown", code: http.StatusUnprocessableEntity, message: `TenantClass.example.org "silver" is invalid: metadata.name: Invalid value: ` +
				`it cannot become default, because the claims that it would serve cannot be determined: the expression spec.classes.partition.class of claim kind ` +
				`"postgresqlinstances.database.example.org" fails for "TenantClass/silver": no such key: tenant`},
		},
		"UnknownUpdate": {
			"We should refuse to mark a class nobody knows for whom.", silver("", nowhere), silver(marked, nowhere),
			want{reason: "SeatUnknown", code: http.StatusUnprocessableEntity, message: "no such key: tenant"},
		},
		"UnknownFit": {
			"We should refuse a default if it cannot be determined whether it serves.", "", silver(marked, `"tenant":"a"`),
			want{reason: "SeatUnknown", code: http.StatusUnprocessableEntity, message: "the expression spec.classes.fits[Database].expression fails"},
		},
		"KnownNoMore": {
			"We should let a default lose its seat, and say so.", silver(marked, inB), silver(marked, nowhere),
			want{reason: "DefaultAlready", warning: "the class is marked default, but is the default of no claims, because its partition is unknown: " +
				`the expression spec.classes.partition.class of claim kind "postgresqlinstances.database.example.org" fails for "TenantClass/silver": no such key: tenant`},
		},
		"KnownAgain": {
			"We should refuse a marked class that gets the seat of another.", silver(marked, nowhere), silver(marked, inB),
			want{reason: "SecondDefault", code: http.StatusForbidden, message: taken},
		},
	} {
		var request *admissionv1.AdmissionRequest
		w := newTenants()
		request = newGuardRequest(w.kinds[w.classes.Name], tc.before, tc.after)
		inDryRunToo(t, name, request, func(t *testing.T, request *admissionv1.AdmissionRequest) {
			w := newTenants()
			w.apiServer.classes["tenantclasses.example.org//gold"] = tenantClass("gold", marked, inB)
			response, err := w.stores(request).guard(w.inventory(t)).Review(t.Context(), request)
			require.NoError(t, err, tc.reason)
			assert.Equal(t, tc.want.reason, response.AuditAnnotations["reason"], "%s: %+v", tc.reason, response.Result)
			assert.Equal(t, tc.want.code == 0, response.Allowed, tc.reason)
			assert.Equal(t, tc.want.code != 0, guardOutcomes[tc.want.reason] != "" && tc.want.reason != "OneDefault", "We should count what is refused.")
			if tc.want.code != 0 {
				assert.Equal(t, tc.want.code, response.Result.Code, tc.reason)
				assert.Contains(t, response.Result.Message, tc.want.message, tc.reason)
			}
			if tc.want.warning != "" {
				assert.Equal(t, []string{tc.want.warning}, response.Warnings, tc.reason)
			} else {
				assert.Empty(t, response.Warnings, tc.reason)
			}
			held := w.held()
			if tc.want.lease == "" || request.DryRun != nil {
				assert.Empty(t, held, "We should take no seat.")
				return
			}
			require.Contains(t, held, tc.want.lease, tc.reason)
			assert.Len(t, held, 1, tc.reason)
			assert.Equal(t, "tenantclasses.example.org/silver", *held[tc.want.lease].Spec.HolderIdentity)
		})
	}
}

// TestGuardOfDefaultExpressions moves classes by a field that the mark is made of.
func TestGuardOfDefaultExpressions(t *testing.T) {
	w := newTenants(func(s *v1beta1.ClassKindSpec) {
		s.Default = v1beta1.Source{Expression: "class.spec.tier == 'standard'"}
	})
	class := func(name, tier string) string {
		return tenantClass(name, "", fmt.Sprintf(`"tenant":"a","database":true,"tier":%q`, tier))
	}
	w.apiServer.classes["tenantclasses.example.org//gold"] = class("gold", "standard")
	kind, guard := w.kinds[w.classes.Name], w.guard(w.inventory(t))
	review := func(before, after string) *admissionv1.AdmissionResponse {
		request := newGuardRequest(kind, before, after)
		w.stores(request)
		response, err := guard.Review(t.Context(), request)
		require.NoError(t, err)
		return response
	}
	assert.Equal(t, "NotDefault", review("", class("silver", "other")).AuditAnnotations["reason"])
	refused := review(class("silver", "other"), class("silver", "standard"))
	assert.Equal(t, "SecondDefault", refused.AuditAnnotations["reason"], "We should refuse a class that becomes default by any field.")
	assert.True(t, strings.HasSuffix(refused.Result.Message, `in partition "a" already: to take it from "TenantClass/gold", run: `+
		`kubectl edit tenantclasses.example.org gold, and change what spec.default.expression of class kind "tenantclasses.example.org" looks at; then try again`),
		"We should say what to change: %s", refused.Result.Message)

	w.apiServer.classes["tenantclasses.example.org//gold"] = class("gold", "other")
	assert.Equal(t, "OneDefault", review(class("silver", "other"), class("silver", "standard")).AuditAnnotations["reason"], "We should read live whether another is default.")
	failed := review(class("silver", "standard"), tenantClass("silver", "", `"tenant":"a","database":true`))
	assert.Equal(t, "NotDefault", failed.AuditAnnotations["reason"], "We should count an error as false.")
	require.Len(t, failed.Warnings, 1)
	assert.Contains(t, failed.Warnings[0], "no such key: tier", "We should say that it does.")
}

// TestGuardOfWeightExpressions creates a class before it has a status.
func TestGuardOfWeightExpressions(t *testing.T) {
	w := newTenants(func(s *v1beta1.ClassKindSpec) {
		s.Weight = v1beta1.Source{Expression: "class.status.free"}
	})
	kind, guard := w.kinds[w.classes.Name], w.guard(w.inventory(t))
	silver := tenantClass("silver", "", `"tenant":"a","database":true`)
	response, err := guard.Review(t.Context(), newGuardRequest(kind, "", silver))
	require.NoError(t, err)
	assert.True(t, response.Allowed, "We should not ask an author for a status: %v", response.Result)
	require.Len(t, response.Warnings, 1)
	assert.Contains(t, response.Warnings[0], "spec.weight.expression of class kind tenantclasses.example.org fails: no such key: status, and counts as 1")

	response, err = guard.Review(t.Context(), newGuardRequest(kind, silver, silver))
	require.NoError(t, err)
	assert.Empty(t, response.Warnings, "We should not repeat it.")
}

// TestGuardOfUnreadFields does not judge a class that was read without what the expressions
// of a new ClaimKind look at.
func TestGuardOfUnreadFields(t *testing.T) {
	w := newTenants()
	i := w.inventory(t)
	w.kinds[w.classes.Name] = w.kind() // It does not know the ClaimKind yet.
	request := newGuardRequest(w.kinds[w.classes.Name], "", tenantClass("silver", marked, `"tenant":"a","database":true`))
	_, err := w.guard(i).Review(t.Context(), request)
	require.ErrorContains(t, err, "are being read again", "We should not take a field for absent that we did not read.")
	assert.Empty(t, w.done)

	request = newGuardRequest(w.kinds[w.classes.Name], tenantClass("silver", marked, `"tenant":"a","database":true`), tenantClass("silver", marked, `"tenant":"b","database":true`))
	_, err = w.stores(request).guard(i).Review(t.Context(), request)
	require.ErrorContains(t, err, "are being read again", "We should not take a field for unchanged that we did not read.")
}
