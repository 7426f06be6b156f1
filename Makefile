# Two commands: `make demo` runs the main job, `make test` runs every check. Both set up .venv first.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PRODUCT := $(VENV)/.product
DEV := $(VENV)/.dev
DOCS := $(VENV)/.docs
REFERENCE := .venv-reference
TESTS ?= tests
WORKERS ?= $(shell nproc)

.DEFAULT_GOAL := help
.PHONY: chromium help setup demo test lint types imports pytest test-slow swarm golden bench bench-peers docs screenshots lock format wire clean

help:  ## what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

setup: $(DEV) $(DOCS)  ## create .venv with the pinned dependencies of the product, the tests and the site

# Every environment is made of lock files: $(call install,VENV,LOCK) adds one.
# Debian ships venv apart from python3; as root we can fetch it, otherwise we say what is missing.
PIP := -m pip install -q --disable-pip-version-check --no-deps
define install
@test -x $(1)/bin/pip || $(PYTHON) -m venv $(1) || { rm -rf $(1); \
  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
    apt-get update -q && apt-get install -qy python3-venv && $(PYTHON) -m venv $(1); \
  else echo "python3 cannot create a virtual environment: install python3-venv"; exit 1; fi; }
$(1)/bin/python $(PIP) --require-hashes -r $(2)
endef

$(PRODUCT): requirements/product.lock pyproject.toml
	$(call install,$(VENV),$<)
	$(BIN)/python $(PIP) --no-build-isolation -e .
	@touch $@

# An addition to the product, with the same pins: one .venv serves `make demo` and `make test`.
$(DEV): requirements/dev.lock $(PRODUCT)
	$(call install,$(VENV),$<)
	@touch $@

$(DOCS): requirements/docs.lock $(DEV)
	$(call install,$(VENV),$<)
	@touch $@

# Comparisons bring pins of their own.
$(REFERENCE)/.ready: requirements/reference.lock pyproject.toml
	$(call install,$(REFERENCE),$<)
	$(REFERENCE)/bin/python $(PIP) --no-build-isolation -e .
	@touch $@

demo: $(PRODUCT)  ## learn, forget and verify on a real data set; leaves a report in demo-out/
	$(BIN)/unweave demo --out demo-out

test: lint types imports pytest  ## format, lint, types, import directions, tests, README blocks

lint: $(DEV)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(DEV)
	$(BIN)/mypy

imports: $(DEV)
	$(BIN)/lint-imports

# The page's tests need a browser. As root we can fetch Debian's; otherwise the tests name what is missing.
chromium:
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  apt-get update -q && apt-get install -qy --no-install-recommends chromium; } || \
	  echo "no chromium: the tests of the page are skipped; install the package chromium"

pytest: $(DEV) $(DOCS) chromium
	$(BIN)/python -m pytest -n $(WORKERS) -m "not slow and not reference" -q $(TESTS)

test-slow: $(DEV) $(REFERENCE)/.ready  ## the full counts of the heavy tests, and comparisons
	$(BIN)/python -m pytest -n $(WORKERS) -m slow -q $(TESTS)
	$(REFERENCE)/bin/python -m pytest -m reference -q tests/reference

golden: $(REFERENCE)/.ready  ## recompute tests/golden with NumPyro and statsmodels
	$(REFERENCE)/bin/python -m tests.reference

SEEDS ?= 10000
START ?= 0
swarm: $(DEV)  ## SEEDS=… fault runs of the protocol; a failing seed is printed with its command
	$(BIN)/python -m tests.support.swarm --seeds $(SEEDS) --start $(START)

bench: $(DEV)  ## speed, as ratios within one run: a table and benchmarks/results.json
	$(BIN)/python -m benchmarks

# Other frameworks would drag our pins down: they live in an environment of their own.
PEERS := .venv-peers
$(PEERS)/.ready: benchmarks/peers/requirements.lock | $(DEV)
	$(call install,$(PEERS),$<)
	@touch $@

bench-peers: $(DEV) $(PEERS)/.ready  ## Flower's client round trip beside our durable hop
	$(PEERS)/bin/python benchmarks/peers/flower.py

docs: $(DOCS)  ## rewrite the pages that follow from the code, then build the site: site/index.html
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/build.py site

screenshots: $(DEV) chromium  ## draw docs/images/dashboard*.png and report.png from running networks
	$(BIN)/python docs/screenshots.py

format: $(DEV)  ## format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Locks carry hashes and no index address, and resolve for every supported Python.
UV ?= uv
LOCK := $(UV) pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
  --no-emit-find-links --no-annotate --no-header --no-emit-package unweave
lock:  ## resolve pyproject.toml into requirements/*.lock (needs uv; UV=… names it)
	$(LOCK) pyproject.toml --extra all --group build -o requirements/product.lock
	$(LOCK) --group dev -c requirements/product.lock -o requirements/dev.lock
	$(LOCK) --group docs -c requirements/product.lock -c requirements/dev.lock -o requirements/docs.lock
	$(LOCK) pyproject.toml --extra node --group build --group reference -o requirements/reference.lock

wire: $(DEV)  ## regenerate node/wire_pb2.py from wire.proto
	$(BIN)/python -m grpc_tools.protoc -I src --python_out=src --pyi_out=src src/unweave/node/wire/wire.proto

clean:  ## remove what the commands above made
	rm -rf $(VENV) $(REFERENCE) $(PEERS) .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache demo-out paper-out browser-out site
