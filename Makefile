PYTHON ?= python3
ARGS ?=

# A command imports hundreds of modules, and the tests run hundreds of commands: what Python has compiled is kept.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-full test-engines lint unit pythons coverage services servers bench docs lock dist sbom audit clean

help: ## list what make can do
	@echo "make TARGET, where TARGET is one of:"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1	\2/p' Makefile | expand -t 16

setup: ## make .venv: locked packages, Java, jars (quick when nothing changed)
	@$(PYTHON) scripts/setup.py

demo: ## load a small shop into DuckDB and Delta, twice, and show what changed (sets up only what it needs)
	@$(PYTHON) scripts/setup.py demo
	@bash scripts/demo.sh

test: setup services ## lint, types, layers and the tests against real servers, without those marked full (ARGS=--shuffle)
	@.venv/bin/python scripts/check.py lint tests -- $(ARGS)

test-full: servers ## every test, also the long ones; ends with the promises of docs/guarantees.md that were proven (hours)
	@.venv/bin/python scripts/check.py lint everything -- $(ARGS)

test-engines: setup services ## the batch contract in both lanes on an embedded session, a warm engine and a cluster of two workers (an hour)
	@.venv/bin/python scripts/check.py engines -- $(ARGS)

lint: setup ## ruff, mypy, the layers, retired words and generated pages
	@.venv/bin/python scripts/check.py lint

unit: setup ## only the tests that need neither Spark nor a server
	@.venv/bin/python scripts/check.py unit -- $(ARGS)

pythons: setup ## the tests of `make unit` on every supported Python that uv finds here (ARGS=3.12 for one)
	@.venv/bin/python scripts/pythons.py $(ARGS)

coverage: setup ## the tests of `make unit`, with the share of the code they reach; below the floor it fails
	@.venv/bin/python scripts/check.py coverage -- $(ARGS)

services: setup ## bring the databases of the tests to this machine
	@.venv/bin/python scripts/check.py services

servers: setup ## also build the object stores and the collector of the tests (minutes, once); without them their tests are skipped
	@.venv/bin/python -m tests.services build

bench: setup services ## measure against the peers and write docs/benchmarks.md (ARGS="--only start --repeats 3", --list)
	@.venv/bin/python -m bench $(ARGS)

docs: setup ## write the generated pages of docs and the diagrams of ARCHITECTURE.md anew
	@.venv/bin/python scripts/docs.py

lock: setup ## choose the packages of the lock files anew (ARGS=--upgrade for the newest)
	@bash scripts/lock.sh $(ARGS)

dist: setup ## build the wheel and the source distribution into dist/
	@.venv/bin/python -m hatchling build -t wheel -t sdist

sbom: setup ## list every installed package in dist/sbom.json (CycloneDX)
	@mkdir -p dist
	@.venv/bin/uv tool run --from 'cyclonedx-bom>=7,<8' cyclonedx-py environment --of JSON -o dist/sbom.json .venv/bin/python
	@echo "dist/sbom.json"

audit: setup ## look for known vulnerabilities of the installed packages (asks a service on the network)
	@mkdir -p dist
	@.venv/bin/uv pip freeze --exclude-editable >dist/installed.txt
	@.venv/bin/uv tool run --from 'pip-audit>=2.9,<3' pip-audit --strict --no-deps --disable-pip -r dist/installed.txt

clean: ## remove what setup and the tools made
	@rm -rf .venv .demo build dist .coverage .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
