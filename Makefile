PYTHON ?= python3
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint unit services servers bench docs lock clean

help: ## list what make can do
	@echo "make TARGET, where TARGET is one of:"
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  \1	\2/p' Makefile | expand -t 14

setup: ## make .venv: locked packages, Java, jars (quick when nothing changed)
	@$(PYTHON) scripts/setup.py

demo: setup ## load a small shop into DuckDB and Delta, twice, and show what changed
	@bash scripts/demo.sh

test: setup services ## everything: lint, types, layers and all tests against real servers
	@.venv/bin/python scripts/check.py lint tests -- $(ARGS)

lint: setup ## ruff, mypy and the layers
	@.venv/bin/python scripts/check.py lint

unit: setup ## only the tests that need neither Spark nor a server
	@.venv/bin/python scripts/check.py unit -- $(ARGS)

services: setup ## bring the databases of the tests to this machine
	@.venv/bin/python scripts/check.py services

servers: setup ## also build the object stores and the collector of the tests (minutes, once); without them their tests are skipped
	@.venv/bin/python -m tests.services build

bench: setup services ## measure against the peers and write docs/benchmarks.md (ARGS="--only start --repeats 3", --list)
	@.venv/bin/python -m bench $(ARGS)

docs: setup ## write the generated pages of docs anew
	@.venv/bin/python scripts/docs.py

lock: setup ## choose the packages of requirements.lock anew (ARGS=--upgrade for the newest)
	@bash scripts/lock.sh $(ARGS)

clean: ## remove what setup and the tools made
	@rm -rf .venv .demo build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
