# Everything a developer or a user of the source needs. `make help` lists it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
NATIVE := setup.py pyproject.toml $(wildcard fermix/native/*.c)
FAST := not slow and not model and not frozen and not proof

.PHONY: help run check test proof fix build smoke bench model clean

help: ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

run: $(VENV)/.run ## install if needed and open Fermix (ARGS='ask "…"' for one question)
	@$(BIN)/fermix start >&2
	@$(BIN)/fermix $(ARGS)

check: $(VENV)/.dev ## format, lint, types, import contracts, house tests, fast tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports
	$(BIN)/pytest -q -m "$(FAST)"

test: check ## check, then every other test but the long runs and the frozen ones
	$(BIN)/pytest -q -m "(slow or model) and not frozen and not proof"

proof: $(VENV)/.dev ## the long runs: kills, fuzzing, growth
	$(BIN)/pytest -q -m proof --timeout 3600

fix: $(VENV)/.dev ## format and apply safe fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

build: ## the frozen program in dist/fermix
	$(PYTHON) packaging/build.py

model: $(VENV)/.run ## the local models for the tests that need them, in build/models
	@mkdir -p -m 700 build
	@ln -sfn install/models build/models
	@FERMIX_HOME=$(CURDIR)/build/install $(BIN)/fermix model fetch --voice || echo "nothing listens here: its tests are skipped"
	@FERMIX_HOME=$(CURDIR)/build/install $(BIN)/fermix model fetch

smoke: $(VENV)/.dev ## the tests of dist/fermix, and every whole-product flow with it
	@test -x dist/fermix || { echo "dist/fermix is not built: make build" >&2; exit 1; }
	$(BIN)/pytest -q -m frozen
	FERMIX_PROGRAM=$(CURDIR)/dist/fermix XDG_CACHE_HOME=$(CURDIR)/build/cache \
	  timeout 1800 $(BIN)/pytest -q -m "not proof" tests/flows

bench: $(VENV)/.dev ## speed and memory, one JSON object a line
	@$(BIN)/python -m bench

clean: ## remove what was built
	rm -rf $(VENV) build dist *.egg-info fermix/native/*.so

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Fermix needs Python 3.11 or later; set PYTHON=… to one" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "Python lacks venv: install the python3-venv package" >&2; exit 1; }

# The local model's engine has ready-made packages for most machines; without one Fermix still works with a provider.
$(VENV)/.run: $(VENV)/bin/python $(NATIVE)
	@echo "installing Fermix into $(VENV) …" >&2
	@$(BIN)/pip install -q --disable-pip-version-check --only-binary xllamacpp -e '.[local]' || \
	  { echo "no engine for the local model on this machine; installing without it" >&2; \
	    $(BIN)/pip install -q --disable-pip-version-check -e .; }
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	@echo "installing the tools of development …" >&2
	@$(BIN)/pip install -q --disable-pip-version-check -e '.[dev]'
	@touch $@
