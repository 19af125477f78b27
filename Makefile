# Two commands: `make run` plays the scene and keeps serving, `make test` runs every check.
# Python packages go into .venv from the lock files (hashes are checked); nothing is installed elsewhere.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ONCE ?=
export PYTHONDONTWRITEBYTECODE := 1

.PHONY: run test lint types layers tests bench clean

run: $(VENV)/run.stamp
	$(BIN)/lakeproof demo $(if $(ONCE),--once)

test: lint types layers tests

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/dev.stamp
	$(BIN)/mypy

layers: $(VENV)/dev.stamp
	$(BIN)/lint-imports

tests: $(VENV)/dev.stamp
	$(BIN)/pytest

bench: $(VENV)/dev.stamp
	$(BIN)/python bench/append.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(VENV)/bin/python:
	@echo "making a virtual environment in $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Lakeproof needs Python 3.11 or newer: run make PYTHON=python3.12, say"; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(VENV)/run.stamp: requirements.lock pyproject.toml | $(VENV)/bin/python
	@echo "installing the packages of requirements.lock into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/dev.stamp: requirements-dev.lock $(VENV)/run.stamp
	@echo "installing the packages of requirements-dev.lock into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@touch $@
