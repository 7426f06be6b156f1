# Two commands: `make demo` runs the main job, `make test` runs every check. Both set up .venv first.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
TESTS ?= tests
WORKERS ?= $(shell nproc)

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint types imports pytest test-slow swarm bench bench-peers docs lock format wire clean

help:  ## what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

setup: $(STAMP)  ## create .venv with the pinned dependencies

# Debian ships venv apart from python3; as root we can fetch it, otherwise we say what is missing.
$(STAMP): requirements.lock pyproject.toml
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -q && apt-get install -qy python3-venv && $(PYTHON) -m venv $(VENV); \
	  else echo "python3 cannot create a virtual environment: install python3-venv"; exit 1; fi; }
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --require-hashes -r requirements.lock
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: $(STAMP)  ## learn, forget and verify on a real data set; leaves plots in demo-out/
	$(BIN)/unweave demo --out demo-out

test: lint types imports pytest  ## format, lint, types, import directions, tests, README blocks

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(STAMP)
	$(BIN)/mypy

imports: $(STAMP)
	$(BIN)/lint-imports

pytest: $(STAMP)
	$(BIN)/python -m pytest -n $(WORKERS) -m "not slow" -q $(TESTS)

test-slow: $(STAMP)  ## the full counts of the heavy tests
	$(BIN)/python -m pytest -n $(WORKERS) -m slow -q $(TESTS)

SEEDS ?= 10000
START ?= 0
swarm: $(STAMP)  ## SEEDS=… fault runs of the protocol; a failing seed is printed with its command
	$(BIN)/python -m tests.support.swarm --seeds $(SEEDS) --start $(START)

bench: $(STAMP)  ## speed, as ratios within one run: a table and benchmarks/results.json
	$(BIN)/python -m benchmarks

# Other frameworks would drag our pins down: they live in an environment of their own.
PEERS := .venv-peers
$(PEERS)/.ready: benchmarks/peers/requirements.lock | $(STAMP)
	@test -x $(PEERS)/bin/pip || $(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install -q --disable-pip-version-check --no-deps --require-hashes -r $<
	@touch $@

bench-peers: $(STAMP) $(PEERS)/.ready  ## Flower's client round trip beside our durable hop
	$(PEERS)/bin/python benchmarks/peers/flower.py

docs: $(STAMP)  ## rewrite the pages that follow from the code: docs/cli.md, models.md, api.md, certificate.schema.json
	$(BIN)/python docs/generate.py

format: $(STAMP)  ## format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The lock carries hashes and no index address; it resolves for every supported Python.
lock:  ## resolve pyproject.toml into requirements.lock (needs uv)
	uv pip compile -q --universal --python-version 3.11 --all-extras --group dev --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --no-annotate --no-header --no-emit-package unweave \
	  pyproject.toml -o requirements.lock

wire: $(STAMP)  ## regenerate node/wire_pb2.py from wire.proto
	$(BIN)/python -m grpc_tools.protoc -I src --python_out=src --pyi_out=src src/unweave/node/wire/wire.proto

clean:  ## remove what the commands above made
	rm -rf $(VENV) $(PEERS) .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache demo-out paper-out
