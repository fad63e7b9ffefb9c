# The front door. Every target sets up what it needs on a bare machine with Python 3.11, git, Node and apt.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= $(shell tools/python.sh)
BIN := .venv/bin
SCRIPTS := src/flightlog/web/static/vendor/htmx.js
export PIP_DISABLE_PIP_VERSION_CHECK := 1
PIP := $(BIN)/python -m pip --quiet install --no-input --require-hashes

.PHONY: help install run test coverage check bench golden docs man promises soak soak-whole lock plugin prices picture sbom wheel clean

help: ## Show the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

# Without the pages' scripts it begins again, as the pages advise; `make run` does not wait for npm a second time.
install: ## Make .venv/bin/flightlog and its other names
	@test -e $(SCRIPTS) || rm -f .venv/.run
	@$(MAKE) --no-print-directory .venv/.run

run: .venv/.run ## The main job: what your own sessions say
	$(BIN)/flightlog up

test: .venv/.dev ## Run every test
	tools/install_agents.sh
	tools/install_browser.sh
	tools/install_terminal.sh
	tools/install_judges.sh
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not soak"
	tools/try_wheel.sh

coverage: .venv/.dev ## Which files the tests run too few lines of (95 % in the core, 85 % elsewhere)
	$(BIN)/python -m tools.coverage_limits

check: .venv/.dev ## Style, types, import contracts
	$(BIN)/ruff check src tests tools
	$(BIN)/ruff format --check src tests tools
	$(BIN)/mypy
	MYPYPATH=src:. $(BIN)/mypy --explicit-package-bases -p tools.bench -p tools.soak -p tools.promises -p tools.docs
	$(BIN)/lint-imports --no-cache

bench: .venv/.dev ## Measure against the named peers and floors, and print one table
	$(BIN)/python -m tools.bench

golden: .venv/.dev ## Write the golden files again; review the diff
	FLIGHTLOG_GOLDEN=write $(BIN)/python -m pytest -q tests -k golden

docs: .venv/.dev ## Write the reference again from the source; review the diff
	$(BIN)/python -m tools.docs.reference

man: .venv/.dev ## Write a man page for every command, below build/man
	$(BIN)/python -m tools.docs.man build/man

promises: .venv/.dev ## Break each promise on purpose, in a copy, and see its test fail
	tools/install_agents.sh
	$(BIN)/python -m tools.promises $(ONLY)

soak: .venv/.dev ## The slow tests, with a table of them
	mkdir -p .bench
	$(BIN)/python -m pytest -q -m soak --junitxml=.bench/soak.xml || true
	$(BIN)/python -m tools.soak.table .bench/soak.xml

soak-whole: .venv/.dev ## Everything at once for 30 minutes, with kills; MINUTES=1 is a short one
	tools/install_agents.sh
	$(BIN)/python -m tools.soak --minutes $${MINUTES:-30}

lock: .venv/.dev ## Pin the requirement files again
	for name in run build extras scale dev judges; do \
	  $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --upgrade --generate-hashes --no-emit-index-url \
	    --no-annotate --no-header --output-file requirements/$$name.txt requirements/$$name.in; done

plugin: .venv/.dev ## Write the generated part of the plugin again
	$(BIN)/python -m tools.build_plugin

prices: .venv/.dev ## Compile the price table again
	$(BIN)/python tools/compile_prices.py

picture: .venv/.dev ## Draw the README's pictures from real runs of the demos
	tools/install_agents.sh
	tools/install_browser.sh
	$(BIN)/python tools/draw_picture.py docs/session.png
	$(BIN)/python tools/draw_picture.py docs/rewind.svg

sbom: .venv/.dev ## Write what a release consists of, below build (CycloneDX)
	$(BIN)/python -m tools.sbom build/flightlog.cdx.json

wheel: .venv/.dev ## Build the wheel
	rm -rf dist
	$(BIN)/python -m build --wheel --no-isolation --outdir dist . >/dev/null

clean: ## Remove what the other targets made
	rm -rf .venv .tools build dist .bench .mypy_cache .pytest_cache .ruff_cache .hypothesis

.venv/bin/python:
	@python="$(PYTHON)"; test -n "$$python"; "$$python" -m venv .venv

.venv/.run: .venv/bin/python requirements/run.txt requirements/extras.txt requirements/build.txt pyproject.toml tools/web/package-lock.json tools/web/build_hook.py
	$(PIP) -r requirements/run.txt -r requirements/extras.txt -r requirements/build.txt
	$(BIN)/python -m pip --quiet install --no-input --no-deps --no-build-isolation --editable .
	@test -e $(SCRIPTS) || echo "npm failed: the pages will have no charts and no live filters; to try again: make install" >&2
	@touch $@

.venv/.dev: .venv/.run requirements/scale.txt requirements/dev.txt
	$(PIP) -r requirements/scale.txt -r requirements/dev.txt
	@touch $@
