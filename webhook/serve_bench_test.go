package webhook

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
)

const wholeReview = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"705ab4f5-6393-11e8-b7cc-42010a800002",` +
	`"kind":{"group":"database.example.org","version":"v1","kind":"PostgreSQLInstance"},"resource":{"group":"database.example.org","version":"v1","resource":"postgresqlinstances"},` +
	`"requestKind":{"group":"database.example.org","version":"v1","kind":"PostgreSQLInstance"},"requestResource":{"group":"database.example.org","version":"v1","resource":"postgresqlinstances"},` +
	`"name":"gitlab-database","namespace":"acme-team","operation":"CREATE",` +
	`"userInfo":{"username":"system:serviceaccount:flux-system:kustomize-controller","uid":"b1b8a7c2-5f0e-4c3b-9f55-0c7f6a1f2d3e","groups":["system:serviceaccounts","system:serviceaccounts:flux-system","system:authenticated"]},` +
	`"object":{"apiVersion":"database.example.org/v1","kind":"PostgreSQLInstance","metadata":{"name":"gitlab-database","namespace":"acme-team","creationTimestamp":null,` +
	`"labels":{"app.kubernetes.io/name":"gitlab","team":"acme"},"managedFields":[{"manager":"kustomize-controller","operation":"Apply","apiVersion":"database.example.org/v1","time":"2026-11-21T12:00:00Z","fieldsType":"FieldsV1",` +
	`"fieldsV1":{"f:metadata":{"f:labels":{"f:app.kubernetes.io/name":{},"f:team":{}}},"f:spec":{"f:classSelector":{},"f:engineVersion":{},"f:storageGB":{},"f:writeConnectionSecretToRef":{}}}}]},` +
	`"spec":{"classSelector":{"matchLabels":{"tier":"gold","region":"us-east-1"}},"engineVersion":"16","storageGB":20,"writeConnectionSecretToRef":{"name":"gitlab-database"}}},` +
	`"oldObject":null,"dryRun":false,"options":{"kind":"PatchOptions","apiVersion":"meta.k8s.io/v1","force":true,"fieldManager":"kustomize-controller"}}}`

func benchReviewer(b *testing.B) Reviewer {
	f, err := os.Create(b.TempDir() + "/log")
	if err != nil {
		b.Fatal(err)
	}
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewJSONHandler(f, nil)))
	var golds []string
	for i := range 10 {
		golds = append(golds, fmt.Sprintf("gold-%d tier=gold region=us-east-1", i))
	}
	inventory := newInventory(newClaimKind(), index(sqlClasses, append(golds, "silver tier=silver region=us-east-1")...))
	binder := &Binder{Snapshot: inventory.Snapshot, Fresh: func() uint64 { return 1 }, Metrics: NewMetrics(inventory.Snapshot), Now: time.Now}
	return Reviewer(binder.Review)
}

func BenchmarkServeHTTP(b *testing.B) {
	reviewer := benchReviewer(b)
	body := bytes.NewReader([]byte(wholeReview))
	b.ReportAllocs()
	for b.Loop() {
		body.Reset([]byte(wholeReview))
		r := httptest.NewRequest(http.MethodPost, "/bind", body)
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		reviewer.ServeHTTP(w, r)
		if w.Code != 200 {
			b.Fatal(w.Body.String())
		}
	}
}

func BenchmarkDecodeClaim(b *testing.B) {
	kind := newClaimKind()
	raw := []byte(wholeReview[bytes.Index([]byte(wholeReview), []byte(`"object":`))+9 : bytes.Index([]byte(wholeReview), []byte(`,"oldObject"`))])
	b.ReportAllocs()
	for b.Loop() {
		if _, err := kind.Decode(raw); err != nil {
			b.Fatal(err)
		}
	}
}
