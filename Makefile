# `make` lists what there is to do. CI=true adds to `make test` what takes longer.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -X github.com/f4ee788f/quota/internal/version.version=$(VERSION)
TOOLS := $(CURDIR)/bin/tools

# The version comes from git above; a clone that belongs to another user must build too.
export GOFLAGS := $(GOFLAGS) -buildvcs=false

# Go says nothing while it compiles.
BUILDING = @echo 'compiling: seconds, or some minutes the first time, while modules are fetched too'

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## quota-server, quota-agent, quotactl and loadtest into bin/, linked statically
	@mkdir -p bin
	$(BUILDING)
	CGO_ENABLED=0 $(GO) build -ldflags '$(LDFLAGS)' -o bin/ ./cmd/... ./loadtest

.PHONY: demo
demo: ## server, gateway and upstream in one go: three tenants, a plan change, the books compared
	$(BUILDING)
	@echo 'then the demo runs for half a minute, and ends with "demo: ok"'
	@CGO_ENABLED=0 $(GO) run ./loadtest/demo

.PHONY: demo-llm
demo-llm: ## a gateway for language models: tokens, money, streams that end with their budget
	$(BUILDING)
	@CGO_ENABLED=0 $(GO) run ./examples/llm-gateway

.PHONY: run
run: build ## keep a server up with the example policy
	@scripts/run

.PHONY: test
test: ## vet and every test, with the race detector, on real engines
	@scripts/test

.PHONY: sim
sim: ## the simulation, against one ideal limiter; writes loadtest/sim/report and a summary into docs (ARGS=-check only compares)
	$(BUILDING)
	@$(GO) run ./loadtest/sim/cmd/sim $(ARGS)

.PHONY: seeds
seeds: ## windows, logs, strict limits and outages in the simulation, from SEEDS=n seeds (20: some ten minutes): none above its bound
	@mkdir -p bin
	$(BUILDING)
	@$(GO) build -o bin/sim ./loadtest/sim/cmd/sim
	@for seed in $$(seq $(or $(SEEDS),20)); do for section in Windows Sliding Strict Outages; do \
	  line=$$(bin/sim -only $$section -seed $$seed | tail -n 1) || true; \
	  echo "seed $$seed, $$section: $$line"; \
	  [[ $$line == *' ok '*' over_bound=0' ]]; \
	done; done

.PHONY: chaos
chaos: ## real processes, faults from SEED=n, then the ledger held to the gateways' own counts
	$(BUILDING)
	@$(GO) run ./loadtest/chaos -seed $(or $(SEED),1) $(ARGS)

.PHONY: bench
bench: ## decisions against other limiters and against one atomic add, on 1 and 2 cores
	$(BUILDING)
	@cd loadtest/bench && $(GO) test -run '^$$' -bench . -benchmem -cpu 1,2 $(ARGS) ./...

.PHONY: bench-decision
bench-decision: ## decisions beside peers and floors in one run; the rows also into bin/bench-decision.json
	@mkdir -p bin
	@cd loadtest/bench && $(GO) run ./decision -json $(CURDIR)/bin/bench-decision.json $(ARGS)

.PHONY: curves
curves: build ## how costs grow with tenants, gateways, limits, demand, ε and live buckets; writes loadtest/bench/curves/report (ARGS="-part 100" only tries; "-engines=false" needs no engines)
	@cd loadtest/bench && $(GO) run ./curves -report $(CURDIR)/loadtest/bench/curves/report -loadtest $(CURDIR)/bin/loadtest $(ARGS)

.PHONY: bench-peers
bench-peers: build ## decisions beside peers: in process, and over a socket beside a Redis bucket for each request (ARGS="-turn 1s")
	@cd loadtest/bench && $(GO) run ./decision -json $(CURDIR)/bin/bench-decision.json
	@cd loadtest/bench && $(GO) run ./socket -bin $(CURDIR)/bin -json $(CURDIR)/bin/bench-socket.json $(ARGS)

.PHONY: bench-ledger
bench-ledger: ## report rows from gRPC to the roll-ups, the ledger's size, a database that was away (ARGS="-only intake")
	$(BUILDING)
	@$(GO) run ./loadtest/books $(ARGS)

.PHONY: bench-reports
bench-reports: ## reports from a ledger of 10,000 tenants' hours of a year; takes 16 GB (ARGS="-days 62")
	$(BUILDING)
	@$(GO) run ./loadtest/books -only reports $(ARGS)

.PHONY: bench-renewal
bench-renewal: ## a renewal on the server, and the Redis store beside bare EVALSHA on one cluster
	$(GO) test -run '^$$' -bench BenchmarkRenew$$ -count 3 $(ARGS) ./internal/server/leasing
	$(GO) test -run '^$$' -bench BenchmarkBesideBare -benchtime 50x -count 3 $(ARGS) ./internal/lease/redisstore
	$(GO) test -run '^$$' -bench BenchmarkCrowd -short -benchtime 150x -count 3 $(ARGS) ./internal/lease/redisstore

# Five million decisions a second for a minute; five and a half are asked for, because a loop without reserve falls short
# in some seconds. 100 gateways, 10,000 tenants, a fifth of them beyond their limit.
HEADLINE = --gateways 100 --tenants 10000 --distribution zipf --rate 5500000 --saturated 20 --burst 120s --cold 50 --changes 2s \
  --warm 60s --duration 60s --report-interval 30s

.PHONY: loadtest
loadtest: build ## the headline load on real engines (JSON=FILE HTML=FILE; ARGS="--gateways 20 …" for another load)
	@bin/loadtest $(if $(ARGS),$(ARGS),$(HEADLINE)) $(if $(JSON),--json $(JSON)) $(if $(HTML),--html $(HTML))

.PHONY: lint
lint: $(TOOLS)/golangci-lint ## gofmt, go vet and the linters of .golangci.yml
	@unformatted=$$(gofmt -l $$(git ls-files --cached --others --exclude-standard '*.go')); \
	  [ -z "$$unformatted" ] || { printf 'not gofmt-ed:\n%s\n' "$$unformatted"; exit 1; }
	@for module in . proto/quota internal/core pkg/client; do \
	  (cd "$$module" && $(GO) vet ./... && $(TOOLS)/golangci-lint run ./...) || exit 1; done

.PHONY: generate
generate: $(TOOLS)/buf ## Go from proto/, with the tools of tools/go.mod
	cd proto && PATH="$(TOOLS):$$PATH" buf lint && PATH="$(TOOLS):$$PATH" buf generate

$(TOOLS)/golangci-lint: tools/lint/go.mod
	@echo 'building golangci-lint; this takes a minute or two, once'
	@cd tools/lint && GOBIN=$(TOOLS) $(GO) install tool

$(TOOLS)/buf: tools/go.mod
	@echo 'building buf and its plugins; this takes a minute or two, once'
	@cd tools && GOBIN=$(TOOLS) $(GO) install tool
