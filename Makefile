# Run `make` to see what there is. .ci/run calls the same targets.

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
FUZZTIME ?= 30s
# The crash tests build and kill a real server, and measure times: the race detector has no say there.
NO_RACE := /test/crash$$|/bench$$

export CGO_ENABLED := 0

.DEFAULT_GOAL := help
.PHONY: help services services-stop build test test-short lint vuln fuzz bench soak docs docs-check

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {gsub(/\$$\$$/, "$$", $$2); printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

services: ## install and start PostgreSQL, MariaDB and MySQL for the tests; then: eval "$$(scripts/services env)"
	scripts/services start

services-stop: ## stop them
	scripts/services stop

build: ## build bin/posthouse, a static binary that knows its version
	go build -trimpath -ldflags '-s -w -X github.com/posthouse/posthouse/internal/telemetry.version=$(VERSION)' -o bin/posthouse ./cmd/posthouse

test: ## run every test, on every database, with the race detector; starts the databases it needs
	scripts/services run scripts/test '$(NO_RACE)'

test-short: ## run the tests in their short form, without the race detector and the crash tests
	scripts/services run sh -c 'go test -short $$(go list ./... | grep -vE "$(NO_RACE)")'

lint: ## check format, linters, go.mod and shell syntax
	scripts/lint

vuln: ## look for known vulnerabilities in what is linked, without network beyond the module proxy
	scripts/vuln

fuzz: ## run every fuzz target for FUZZTIME (30s)
	scripts/fuzz $(FUZZTIME)

bench: ## measure throughput and latency beside a bare handler, as a table and as JSON
	scripts/services install bench
	scripts/services run go run ./bench

soak: ## run the long form of the crash tests (hours)
	POSTHOUSE_SOAK=1 scripts/services run go test ./test/crash -count=1 -timeout 0 -v

docs: ## regenerate what is generated: reference documents and the like
	go generate ./...

docs-check: ## fail when a generated file is not what its source says
	scripts/docs-check
