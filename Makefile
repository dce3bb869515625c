# The commands of a contributor; CONTRIBUTING.md says in which order.

GO       ?= go
FUZZTIME ?= 20000x
PROBES   ?= 10000
LINT     := .cache/bin/golangci-lint
LINT_VERSION := v2.15.0
NFPM     := .cache/bin/nfpm
NFPM_VERSION := v2.45.2
COMPOSE_VERSION := v2.32.4
NVIDIA   ?= 470 525 535 545 550 555 570 580 595

export CGO_ENABLED ?= 0

.PHONY: all build pages test race lint vet fuzz bench lint-corpus shape docs check day steady soak gpu-check check-kubernetes release compose nvidia amd clean

all: build test

build: ## the programs, in bin/
	$(GO) build -trimpath -o bin/ ./cmd/gpuard ./cmd/gpuard-view

pages: ## pictures of the page of gpuard serve in a browser, in dist/pages, and what is tried there by keyboard and judged by rules
	mkdir -p dist/pages
	GPUARD_GATES=chromium GPUARD_PICTURES=$(CURDIR)/dist/pages $(GO) test -tags browser -count 1 -run 'TestPictures|TestKeyboard|TestUpdates|TestTouch|TestRendering|TestAccessible' ./internal/ui/web
	GPUARD_GATES=chromium GPUARD_PICTURES=$(CURDIR)/dist/pages $(GO) test -tags browser -count 1 -run TestServeBrowser ./cmd/gpuard

test: ## what a fresh machine runs
	$(GO) test ./...

# The tests of core start no goroutines, as the layout test says, so there is nothing to find; who calls it from several is here.
race: ## needs a C compiler: the race detector is linked by it
	CGO_ENABLED=1 $(GO) test -race $$($(GO) list ./... | grep -v /internal/core/)

vet:
	$(GO) vet ./...

lint: $(LINT)
	$(LINT) run --allow-parallel-runners ./...

# A marker of the version in the name: a raised LINT_VERSION installs again.
$(LINT): .cache/bin/golangci-lint-$(LINT_VERSION)
	ln -sf golangci-lint-$(LINT_VERSION) $@

.cache/bin/golangci-lint-$(LINT_VERSION):
	rm -f .cache/bin/golangci-lint
	GOBIN=$(CURDIR)/.cache/bin $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION)
	mv .cache/bin/golangci-lint $@

# A count and not a duration: a duration that ends in the middle of a call fails with
# "context deadline exceeded" and no input (golang/go issue 75804).
fuzz: ## every target, FUZZTIME each
	@folders=$$(grep -rlE --include='*_test.go' '^func Fuzz' cmd internal test | xargs -n 1 dirname | sort -u) && test -n "$$folders" && printf '%s\n' $$folders | xargs -L 1 -P 2 .ci/fuzz $(FUZZTIME)

bench: build ## beside other programs, in one run; with BEFORE=COMMIT beside the gpuard of that
ifdef BEFORE
	rm -rf .cache/before && mkdir -p .cache/before
	git archive $(BEFORE) | tar -x -C .cache/before
	cd .cache/before && CGO_ENABLED=0 $(GO) build -trimpath -o gpuard ./cmd/gpuard
	GPUARD_BEFORE=$(CURDIR)/.cache/before/gpuard $(GO) test ./bench -run '^$$' -bench Before -benchtime 1x -count 1
else
	$(GO) test ./bench -run '^$$' -bench . -benchtime 1x -count 1
endif

lint-corpus: build ## gpuard lint over unpacked repositories in DIR: findings by code, speed, and what changed since the last run
	@$(GO) run ./test/lintcorpus bin/gpuard "$(DIR)" .cache/lint-corpus.json

shape: ## sizes, uses between files, shared structs, names and words
	@$(GO) run ./test/shape $(BEFORE)

docs: ## reference pages made from the code
	$(GO) test ./internal/ui/commands ./internal/entry -run TestDocs -update
	$(GO) test ./cmd/gpuard -run TestPromisesPage -update

check: vet lint test race ## before a change is proposed
	$(MAKE) fuzz FUZZTIME=2000x

steady: ## the suite 20 times: quiet, beside busy loops, with one processor, shuffled; about an hour
	.ci/steady

day: ## a day of updates of the page of gpuard serve, as fast as they go: processor time and memory; three minutes
	GPUARD_SOAK=1 $(GO) test -count 1 -timeout 30m -v -run TestDayOfUpdates ./internal/ui/web

soak: ## the same tests with large numbers
	GPUARD_SOAK=1 $(GO) test -count 1 -timeout 4h ./...

# recorded.txt.gz and recorded.json are for internal/core/visible/testdata, whose tests read every table there;
# differences.txt says where the driver and our reading disagree, and fails the run. frameworks.txt says what the frameworks
# that are installed here do when they are imported, shares.txt what becomes of jobs that take more than their share.
gpu-check: build ## on a machine with a GPU: the gated tests, and recordings that can become fixtures
	mkdir -p dist/gpu-check
	nvidia-smi -q -x > dist/gpu-check/nvidia-smi.xml
	bin/gpuard status --record > dist/gpu-check/machine.json
	bin/gpuard status
	GPUARD_GATES=gpu GPUARD_PROBES=$(PROBES) GPUARD_RECORD=$(CURDIR)/dist/gpu-check $(GO) test -count 1 -timeout 2h -run '^(TestDriverAgrees|TestFrameworks)$$' -v ./internal/app/explain
	GPUARD_GATES=gpu GPUARD_RECORD=$(CURDIR)/dist/gpu-check $(GO) test -count 1 -run '^TestSharesOnHardware$$' -v ./cmd/gpuard
	GPUARD_GATES=gpu $(GO) test -count 1 ./...
	bin/gpuard explain --probe

# The programs are those of Kubernetes itself, built from its module: 5 min on two cores and 3 GB of build cache, once.
# Its store is etcd: apt-get install etcd-server. GPUARD_RECORD=$PWD/internal/host/kube/testdata also makes the recordings of
# kubectl that the other tests play.
check-kubernetes: build ## a real API server, scheduler and controllers, and a kubelet that runs pods as processes here
	cd test/cluster && $(GO) build $(SPARING) -o ../../.cache/kubernetes/ tool
	cd test/cluster && GPUARD_KUBERNETES=$(CURDIR)/.cache/kubernetes GPUARD=$(CURDIR)/bin/gpuard $(GO) test $(SPARING) -count 1 -timeout 15m -v .

# With exactly the Go of go.mod, which is downloaded where another is installed: another one makes other bytes.
release: $(NFPM) ## VERSION=v1.2.3: archives, packages and checksums for amd64 and arm64, in dist/release
	GOTOOLCHAIN=go$$($(GO) list -m -f '{{.GoVersion}}') $(GO) run -trimpath ./cmd/release -version "$(VERSION)" -nfpm $(NFPM)

nvidia: ## NVIDIA's own libraries of these drivers, for the tests that ask them; needs apt-get
	test/nvidia/fetch .cache/nvidia $(NVIDIA)

amd: ## AMD's own runtimes of these versions of HIP, for the tests that ask them; needs apt-get
	test/amd/fetch .cache/amd $(AMD)

compose: .cache/bin/docker-compose-$(COMPOSE_VERSION) ## root: the plugin of docker for the tests of projects
	install -D $< /usr/local/lib/docker/cli-plugins/docker-compose

.cache/bin/docker-compose-$(COMPOSE_VERSION):
	GOBIN=$(CURDIR)/.cache/bin $(GO) install github.com/docker/compose/v2/cmd@$(COMPOSE_VERSION)
	mv .cache/bin/cmd $@

$(NFPM): .cache/bin/nfpm-$(NFPM_VERSION)
	ln -sf nfpm-$(NFPM_VERSION) $@

.cache/bin/nfpm-$(NFPM_VERSION):
	GOBIN=$(CURDIR)/.cache/bin $(GO) install github.com/goreleaser/nfpm/v2/cmd/nfpm@$(NFPM_VERSION)
	mv .cache/bin/nfpm $@

clean:
	rm -rf bin dist .cache bench/out
