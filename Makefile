# Run `make` to see what there is. .ci/run calls the same targets.

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
FUZZTIME ?= 30s
# These build, kill and measure a real server: see scripts/test.
ALONE := /test/crash$$|/test/cluster$$|/test/load$$|/test/notify$$|/bench$$

export CGO_ENABLED := 0

.DEFAULT_GOAL := help
.PHONY: help services services-stop build test test-short lint vuln fuzz bench bench-queue conformance soak cluster docs docs-check

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {gsub(/\$$\$$/, "$$", $$2); printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

services: ## install and start the databases, Redis and pgbouncer for the tests; then: eval "$$(scripts/services env)"
	scripts/services start

services-stop: ## stop them
	scripts/services stop

build: ## build bin/posthouse, a static binary that knows its version
	go build -trimpath -ldflags '-s -w -X github.com/posthouse/posthouse/internal/telemetry.version=$(VERSION)' -o bin/posthouse ./cmd/posthouse

test: ## run every test on every database, then the short form with the race detector; starts the databases it needs
	scripts/services run scripts/test '$(ALONE)'

test-short: ## run the short form only, without the race detector and the crash tests
	scripts/services run sh -c 'go test -short $$(go list ./... | grep -vE "$(ALONE)")'

lint: ## check format, linters, go.mod and shell syntax
	scripts/lint

vuln: ## look for known vulnerabilities in what is linked, without network beyond the module proxy
	scripts/vuln

fuzz: ## run every fuzz target for FUZZTIME (30s)
	scripts/fuzz $(FUZZTIME)

bench: build ## measure throughput and latency beside a bare handler, as a table and as JSON; BENCH="-help" lists flags
	scripts/services install bench
	scripts/services run go run ./bench $(BENCH)

bench-notify: build ## measure accepting notifications beside pgbench, and how soon they are sent; BENCH="-help" lists flags
	scripts/services install bench
	scripts/services run go run ./bench -only accept,accept-http,sent $(BENCH)

bench-queue: ## measure how fast a backlog is worked off, beside River; BENCH="-help" lists flags
	scripts/services run sh -c 'cd bench/queue && go run . $(BENCH)'

cluster: build ## three instances and a load in one terminal: kill, freeze and restart them; PLAY="-help" lists flags
	scripts/services run go run ./playground $(PLAY)

conformance: ## try the cases in the folder CASES (error_responses.json, email_cases.json): kind × right and wrong
	@test -n "$(CASES)" || { echo "make conformance CASES=DIR names the folder" >&2; exit 2; }
	CASES=$(abspath $(CASES)) go test -count=1 -run Conformance -v ./internal/channel/... ./internal/template/...

soak: ## run the long form of the crash, cluster, load and notification tests (hours)
	POSTHOUSE_SOAK=1 scripts/services run go test -p 1 ./test/crash ./test/cluster ./test/load ./test/notify -count=1 -timeout 0 -v

docs: ## regenerate what is generated: reference documents and the like
	go generate ./...

docs-check: ## fail when a generated file is not what its source says
	scripts/docs-check
