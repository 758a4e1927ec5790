# Every tool runs at a pinned version from its own module; none is in go.mod.
CONTROLLER_GEN = go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.23.0
BUF            = go run github.com/bufbuild/buf/cmd/buf@v1.75.0
CRD_REF_DOCS   = go run github.com/elastic/crd-ref-docs@v0.3.0
HELM_DOCS      = go run github.com/norwoodj/helm-docs/cmd/helm-docs@v1.14.2
GOLANGCI_LINT  = go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
KUBE_API_LINT  = go run sigs.k8s.io/kube-api-linter/cmd/golangci-lint-kube-api-linter@v0.0.0-20260716143926-092fe0c72997
ACTIONLINT     = go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
COSIGN         = go run github.com/sigstore/cosign/v3/cmd/cosign@v3.1.3
CRANE          = go run github.com/google/go-containerregistry/cmd/crane@v0.22.1
GOTESTSUM      = go run gotest.tools/gotestsum@v1.13.0
GOVULNCHECK    = go run golang.org/x/vuln/cmd/govulncheck@v1.9.0

# The race detector needs a C compiler. Without one, the tests run without it. It makes tests many times slower: make test-all has it.
RACE := $(if $(filter 1,$(shell go env CGO_ENABLED)),-race)
# Always build and test Kubernetes without cgo: other flags would build it again.
E2E := cd e2e && CGO_ENABLED=0
# The linter vets. go test would vet all dependencies, too, of which one is Kubernetes.
NO_VET := -vet=off
# go test that prints each test when it ends, because those of one package take minutes. Another GOTESTSUM_FORMAT prints
# less: standard-quiet is that of go test.
export GOTESTSUM_FORMAT ?= testname
E2E_TEST = $(E2E) $(GOTESTSUM) --hide-summary=skipped -- $(NO_VET)
# The demonstration replaces the shell, so that a signal to make reaches it; go run would not pass it on.
DEMO := cd e2e && export CGO_ENABLED=0 && ./quietly go build -v -o ../bin/demo ./cmd/demo && exec ../bin/demo
MONITORING := cd e2e/monitoring && CGO_ENABLED=0
DOCS := cd e2e/docs && CGO_ENABLED=0
CRDS_MODULE := cd e2e/crds && CGO_ENABLED=0
CERT_MANAGER := cd e2e/certmanager && CGO_ENABLED=0
UI := cd e2e/ui && CGO_ENABLED=0
# IMAGE is built by make image with CONTAINER_ENGINE, and written by make image-archive to bin/classbind.tar.
IMAGE ?= localhost/classbind:dev
CONTAINER_ENGINE ?= docker

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this help
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# cmd/assets imports little, so it starts soon and can print progress while it gets the rest. It takes the first of
# these: KUBEBUILDER_ASSETS, a folder; what envtest has stored; a download as envtest makes it; a build from source.
# ENVTEST_INDEX is another index of envtest's releases, or off.
.PHONY: control-plane
control-plane: ## Get etcd, kube-apiserver and kubectl, once: make control-plane ENVTEST_INDEX=off
	@echo "==> Looking for etcd, kube-apiserver and kubectl"
	@$(E2E) go run ./cmd/assets

.PHONY: demo
demo: control-plane ## Show classbind at work on a control plane of its own, then clean up
	@echo "==> Compiling the demonstration (a first time, for a minute or two)"
	@$(DEMO)

.PHONY: run
run: control-plane ## Do the same, and leave it running with a kubeconfig to play with
	@echo "==> Compiling the demonstration (a first time, for a minute or two)"
	@$(DEMO) --keep

# Static, for an image that has nothing else, and without debug information. It shares what is compiled with the
# demonstration, which -trimpath would prevent; an image gets no path of the machine that built it.
.PHONY: build
build: ## Build bin/classbind; VERSION names it where git cannot: make build VERSION=v0.1.0
	@echo "==> Compiling classbind (a first time, for some minutes, less after make demo)"
	@CGO_ENABLED=0 e2e/quietly go build -v $(TRIMPATH) -ldflags="-s -w $(if $(VERSION),-X main.releaseVersion=$(VERSION))" -o bin/classbind ./cmd/classbind

.PHONY: image
image: ## Build the image IMAGE with CONTAINER_ENGINE (docker)
	$(CONTAINER_ENGINE) build --tag $(IMAGE) .

# GOOS and GOARCH of the caller are for the binary, not for the program that packs it.
.PHONY: image-archive
image-archive: TRIMPATH := -trimpath
image-archive: build ## Write the same image to bin/classbind.tar, without a container engine
	$(E2E) GOOS= GOARCH= go run ./release/cmd/image --output ../bin/classbind.tar $(IMAGE) ../bin/classbind

.PHONY: generate
generate: ## Generate deepcopy functions, CRDs, the protocol of choosers, the marks of presets, the table of the chart's values, and parts of docs/
	CGO_ENABLED=0 $(CONTROLLER_GEN) object crd paths=./api/... output:crd:dir=deploy/crd
	@cd api && CGO_ENABLED=0 $(BUF) generate
	@CGO_ENABLED=0 $(CRD_REF_DOCS) --source-path=api/v1beta1 --config=api/crd-ref-docs.yaml --renderer=markdown --output-path=docs/api-reference.md --log-level=error
	@printf '\n## Limits\n\n<!-- limits, from api/v1beta1/limits.go by make generate -->\n<!-- end of limits -->\n' >> docs/api-reference.md
	@printf '\n## Names\n\nOthers may rely on these, as [The API](api.md) promises.\n\n<!-- names, from the code by make generate -->\n<!-- end of names -->\n' >> docs/api-reference.md
	@CGO_ENABLED=0 $(HELM_DOCS) --chart-search-root=deploy/chart --sort-values-order=file --log-level=error
	@CGO_ENABLED=0 go test $(NO_VET) -run 'TestSecurity$$|TestNames$$' ./api/v1beta1 -update
	@CGO_ENABLED=0 go test $(NO_VET) -run 'TestMarks$$' ./deploy/kinds -update
	@$(E2E) go test $(NO_VET) -run 'TestPages$$' ./release/published -update

.PHONY: lint
lint: ## Lint all modules but e2e/certmanager, whose many libraries make test-all compiles, and the workflows of GitHub
	CGO_ENABLED=0 $(ACTIONLINT)
	CGO_ENABLED=0 $(GOLANGCI_LINT) run
	CGO_ENABLED=0 $(KUBE_API_LINT) run --config api/kube-api-linter.yaml ./api/...
	$(E2E) $(GOLANGCI_LINT) run --config ../.golangci.yml
	$(MONITORING) $(GOLANGCI_LINT) run --config ../../.golangci.yml
	$(CRDS_MODULE) $(GOLANGCI_LINT) run --config ../../.golangci.yml
	$(DOCS) $(GOLANGCI_LINT) run --config ../../.golangci.yml
	$(UI) $(GOLANGCI_LINT) run --config ../../.golangci.yml

.PHONY: unit
unit: ## Run the tests that need no control plane, but for the long ones
	@CGO_ENABLED=0 go test $(NO_VET) -short -timeout 1h ./...

.PHONY: promql
promql: ## Have Prometheus' own parser read the alerts and the dashboard
	@$(MONITORING) go test $(NO_VET) ./...

# -count=1, because a cached result does not see a file that is new.
.PHONY: docs
docs: ## Check the links, the sentences and the lengths of the documents
	$(DOCS) go test $(NO_VET) -count=1 ./...
	$(E2E) go test $(NO_VET) -count=1 ./release/published

# It asks vuln.go.dev, or the database of VULNDB. No part of make check, which needs nothing but a module proxy. A workflow runs it for each
# change, and every night.
.PHONY: vuln
vuln: ## Look for known vulnerabilities that classbind's code reaches: make vuln VULNDB=https://vuln.go.dev
	CGO_ENABLED=0 $(GOVULNCHECK) $(if $(VULNDB),-db=$(VULNDB)) ./...

.PHONY: check
check: generate ## Generate, lint, run the unit tests, and prove that generated files are up to date
	go mod tidy -diff
	cd e2e && go mod tidy -diff
	cd e2e/monitoring && go mod tidy -diff
	cd e2e/crds && go mod tidy -diff
	cd e2e/certmanager && go mod tidy -diff
	cd e2e/oldest && go mod tidy -diff
	cd e2e/docs && go mod tidy -diff
	cd e2e/ui && go mod tidy -diff
	cd api && CGO_ENABLED=0 $(BUF) lint && CGO_ENABLED=0 $(BUF) breaking --against chooser/baseline.binpb
	git diff --exit-code -- 'api/**/zz_generated.*' 'api/**/*.pb.go' 'deploy/crd/classbind.io_*' deploy/kinds deploy/chart/README.md docs/api-reference.md docs/install.md README.md
	@e2e/release/versions
	@e2e/release/subjects
	$(MAKE) size lint unit promql docs

.PHONY: size
size: ## Print how large classbind is, and hold it against bounds
	@e2e/release/size

# -count=1, because the tests run a command that they do not import: a cached result would prove nothing.
.PHONY: test
test: unit control-plane ## Run what shows that a change is sound
	@$(E2E_TEST) -short -count=1 -parallel 8 -timeout 3h ./...

# Attacks and rates run alone, because they measure.
.PHONY: test-all
test-all: control-plane ## Run all tests: explorations, races, presets, upgrades, releases and attacks, too
	$(CERT_MANAGER) $(GOLANGCI_LINT) run --config ../../.golangci.yml
	@go test $(RACE) -timeout 3h ./...
	@$(E2E_TEST) -count=1 -parallel 8 -timeout 6h -skip '^TestHostile$$' ./...
	$(MAKE) hostile test-ui

# It installs Chromium of the distribution where there is none. SHORT makes the large cluster smaller.
.PHONY: test-ui
test-ui: control-plane ## Look at the page of classbind ui with a real browser
	@e2e/ui/chromium > /dev/null
	@$(UI) go test $(NO_VET) -count=1 -parallel 4 -timeout 2h $(if $(SHORT),-short) .

.PHONY: screenshots
screenshots: control-plane ## Make the pictures of the documents
	@e2e/ui/chromium > /dev/null
	@$(UI) go test -count=1 -timeout 2h -run '^TestScreens$$' . -screenshots=$(CURDIR)/docs/images

# What Kubernetes itself decides: calls and their conditions, schemas and their rules, expressions, watches, certificates.
OLDEST := Outcome|Guard|Registration|Schema|PolicyNotServed|Explain|Status|Conditions|Order|Sticky|BindWhen|Related|Partitions
OLDEST := $(OLDEST)|References|Samples|Clients|ClaimKindsOfOneResource|VersionOfClaims|LateBindingLeaderKilled|MetricsSecure|Flows|Kinds
.PHONY: test-oldest
test-oldest: export KUBERNETES := oldest
test-oldest: control-plane ## Run the tests of what API servers do on the oldest Kubernetes that is supported
	@$(E2E_TEST) -count=1 -parallel 8 -timeout 3h -run '^Test($(OLDEST))$$' .

# CLUSTER is a driver that starts and stops a cluster, CERTS the certificates to test, RELEASE a version in dist/. See e2e/on-cluster.
.PHONY: e2e
e2e: export GOOS := linux
e2e: build ## Run the tests in pods, in a cluster of kind's: make e2e CERTS=self-signed CLUSTER=path/of/driver
	@e2e/on-cluster

# The toolchain of a release is that of go.mod, downloaded if it is not the one here: another writes other bytes.
RELEASE_COMMAND = cd e2e && GOOS= GOARCH= CGO_ENABLED=0 GOFLAGS= GOTOOLCHAIN=$(shell sed -n 's/^toolchain //p' go.mod) go run ./release/cmd/release

.PHONY: release
release: ## Build a release of this commit into dist/: make release VERSION=v0.1.0
	@$(RELEASE_COMMAND) build $(VERSION)

# e2e/release/publish has the settings: IMAGE, SIGN, REGISTRY_USER, REGISTRY_PASSWORD, GITHUB_TOKEN.
.PHONY: publish
publish: ## Push and sign the image of dist/, and create the release on GitHub: make publish VERSION=v0.1.0 SIGN=keyless
	@COSIGN='$(COSIGN)' CRANE='$(CRANE)' SIGN='$(SIGN)' IMAGE='$(if $(filter file,$(origin IMAGE)),,$(IMAGE))' e2e/release/publish $(VERSION)

# Run it alone, because it measures. ATTACK is one attack; without it, all run.
.PHONY: hostile
hostile: control-plane ## Attack classbind while honest claims are created: make hostile ATTACK=EmptyTerms
	@$(if $(filter PageToken,$(ATTACK)),,$(E2E) go test -v -count=1 -timeout 1h -run '^TestHostile$$/$(ATTACK)' .)
	@$(if $(filter-out PageToken,$(ATTACK)),,e2e/ui/chromium > /dev/null && $(UI) go test -v -count=1 -timeout 1h -run '^TestPageToken$$' .)

# Settings: REQUESTS of the model (3), ROUNDS of each scenario (2000), REPLICAS (3), APISERVERS (2), WRITERS (16).
.PHONY: race
race: control-plane ## Prove at length that there is one default: make race ROUNDS=200
	@echo "==> Exploring every interleaving of requests (three take a minute)"
	@REQUESTS=$${REQUESTS:-3} go test -v -timeout 24h -run TestEveryInterleaving ./webhook/onedefault
	@echo "==> Compiling the race (a first time, for half a minute)"
	@$(E2E) go run ./cmd/race $(if $(ROUNDS),--rounds=$(ROUNDS)) $(if $(REPLICAS),--replicas=$(REPLICAS)) \
	  $(if $(APISERVERS),--api-servers=$(APISERVERS)) $(if $(WRITERS),--writers=$(WRITERS))

# Settings: ONLY some parts (webhook,create), ROUNDS of each comparison (10), other flags of --help as FLAGS.
.PHONY: bench
bench: control-plane ## Measure beside a webhook that does nothing, and judge: make bench ONLY=webhook ROUNDS=20
	@echo "==> Compiling the measurement (a first time, for half a minute)"
	@$(E2E) go run ./cmd/bench $(if $(ONLY),--only=$(ONLY)) $(if $(ROUNDS),--rounds=$(ROUNDS)) $(FLAGS)

# Settings: the flags of --help as FLAGS.
.PHONY: compare
compare: control-plane ## Measure beside Kyverno and a MutatingAdmissionPolicy, and write the table of docs/compare.md
	@echo "==> Compiling the comparison (a first time, for half a minute)"
	@$(E2E) go run ./cmd/compare --page=../docs/compare.md $(FLAGS)

.PHONY: microbench
microbench: ## Run the Go benchmarks, for benchstat: make microbench COUNT=10
	@go test -run '^$$' -bench . -benchmem -count=$(or $(COUNT),1) ./selector ./selector/expression ./webhook

# ONLY is a pattern of targets (Bind). go test writes failing inputs into testdata/fuzz: commit them with the fix.
.PHONY: fuzz
fuzz: ## Try inputs for their outcome and their cost: make fuzz TIME=10m ONLY=Bind
	@$(E2E) go run ./cmd/fuzz --time=$(or $(TIME),1m) $(if $(ONLY),--only='$(ONLY)')

.PHONY: clean
clean: ## Remove what was built here, a release too, but not the cached control plane
	rm -rf bin dist
