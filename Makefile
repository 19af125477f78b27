# Two commands: `make run` plays the scene and keeps serving, `make test` runs every check.
# `make test PACKAGE=gateway` checks and tests one package: its folder, and those of its name in testkit/ and tests/.
# Four packages of tests are asked for by name: real engines (Spark, Trino and others), detection, the scene and kills take
# minutes, a large download and a long build: `make test PACKAGE=engines`. Real servers (Nessie, Glue, Iceberg's own,
# Kafka), `make test PACKAGE=upstreams`, whole installations, `make test PACKAGE=installations`, and pages in Chromium and
# Firefox, `make test PACKAGE=browsers`, take a minute or two.
# Python packages go into .venv from the lock files (hashes are checked). Two things are installed elsewhere, and only if
# they are missing and apt-get is there to be used by root: a Java 17, for Spark, and for tests of pages Chromium and Firefox.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ONCE ?=
PROCESSES ?= 4
# Where this is set, every process of a test compiles all modules anew, and pytest rewrites all tests in each of its own.
unexport PYTHONDONTWRITEBYTECODE
PACKAGE ?=
CHECKS := lint types layers $(if $(filter-out ledger spark_detect,$(PACKAGE)),,compiled)
APART := browsers engines installations upstreams
PACKAGES := $(filter-out __pycache__,$(notdir $(patsubst %/,%,$(wildcard tests/*/))))
FOLDERS := $(if $(PACKAGE),$(wildcard $(PACKAGE) testkit/$(PACKAGE) tests/$(PACKAGE)))
# On a terminal pip shows each package and how far it is; elsewhere (CI, a pipe) it prints errors alone.
QUIET := $(shell test -t 2 || echo --quiet)
INSTALL := $(BIN)/python -m pip install $(QUIET) --disable-pip-version-check --require-hashes
COMPILE := $(VENV)/tools/bin/uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --quiet

APT = { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "installing $(1) with apt-get"; \
	    apt-get install --yes --quiet=2 --no-install-recommends $(1) \
	      || { apt-get update --quiet=2 && apt-get install --yes --quiet=2 --no-install-recommends $(1); } \
	      || echo "it could not be installed; what needs it says so"; \
	  else echo "no $(1): tests of pages say so, everything else works without it"; fi; }

.PHONY: run test checks compiled lint types layers tests vulnerabilities locks bench campaigns java chromium rust clean

run: $(VENV)/run.stamp java
	$(BIN)/lakeproof demo $(if $(ONCE),--once)

# Types are checked beside the tests: these are collected by one process, and a second core would have nothing to do.
test:
	$(if $(filter-out $(PACKAGES),$(PACKAGE)),$(error PACKAGE is '$(PACKAGE)', expected one of: $(PACKAGES)))
	@$(MAKE) --no-print-directory --jobs=2 $(filter-out types,$(CHECKS))
	@$(MAKE) --no-print-directory --jobs=2 types tests

checks: $(CHECKS)

# numba keeps what it compiles next to the source. Compiled once, during the checks, no test process waits for it.
compiled: $(VENV)/dev.stamp
	$(BIN)/python -m testkit.compiled_code

lint: $(VENV)/dev.stamp
	$(BIN)/ruff check $(or $(FOLDERS),.)
	$(BIN)/ruff format --check $(or $(FOLDERS),.)

types: $(VENV)/dev.stamp
	$(BIN)/mypy $(FOLDERS)

layers: $(VENV)/dev.stamp
	$(BIN)/lint-imports

# A virtual machine of Spark starts in half the time with it. What takes a minute to make is made once.
$(VENV)/archive.stamp: $(VENV)/dev.stamp | java
	@echo "writing down which classes Spark loads, once"
	@$(BIN)/python -m testkit.spark_detect.class_archive
	@touch $@

# Built before the tests, it shows how far it is, and no test is slowed down by the compiler.
rust: $(VENV)/dev.stamp
	@$(BIN)/python -m testkit.servers.iceberg_rust_program

tests: $(VENV)/dev.stamp java $(if $(filter browsers,$(PACKAGE)),chromium) $(if $(filter engines,$(PACKAGE)),rust) $(if $(filter-out engines installations spark_detect,$(PACKAGE)),,$(VENV)/archive.stamp)
	$(BIN)/pytest --processes=$(PROCESSES) $(if $(PACKAGE),tests/$(PACKAGE),$(APART:%=--ignore=tests/%))

# Measured figures, about two hours. Each bench writes bench/results/<name>.json, the last one docs/measured.md.
bench: $(VENV)/dev.stamp java
	$(BIN)/python -m bench.append
	$(BIN)/python -m bench.prove
	$(BIN)/python -m bench.receipts
	$(BIN)/python -m bench.verify --large
	$(BIN)/python -m bench.erasure
	$(BIN)/python bench/scan.py
	$(BIN)/python bench/stream.py
	$(BIN)/python bench/detect_latency.py
	$(BIN)/python bench/detect_kills.py
	$(BIN)/python -m bench.rebuild --entries 1000000
	$(BIN)/python -m bench.noisy_neighbour
	$(BIN)/python -m bench.gateway
	$(BIN)/python -m bench.policies
	$(BIN)/python -m bench.replay
	$(BIN)/python -m bench.listing
	$(BIN)/python -m bench.looking
	$(BIN)/python -m testkit.measured_page

# Long searches for faults, about a working day. The tests run small ones of the same.
campaigns: $(VENV)/campaigns.stamp java
	$(BIN)/python -m bench.forks --trials 1000
	$(BIN)/python -m bench.faults
	$(BIN)/python -m bench.writers
	$(BIN)/python -m bench.crash
	$(BIN)/python -m bench.idempotency
	$(BIN)/python -m bench.access_rules
	$(BIN)/python -m bench.tamper --instances 10000
	$(BIN)/python -m bench.round_trips --events 10000000
	$(BIN)/python bench/fuzz.py --seconds 600
	$(BIN)/python -m bench.mutation
	$(BIN)/python -m testkit.measured_page

# Fails if a locked package is known to be vulnerable. Succeeds, and says so, if no database can be reached.
vulnerabilities: $(VENV)/tools.stamp
	$(VENV)/tools/bin/python .ci/vulnerabilities.py requirements/*.lock

# Writes every lock file again from pyproject.toml; a locked version that still fits stays.
locks: $(VENV)/tools.stamp
	$(COMPILE) pyproject.toml --extra demo --group build --group dev -o requirements/dev.lock
	$(COMPILE) pyproject.toml -c requirements/dev.lock --extra demo --group build -o requirements/demo.lock
	$(COMPILE) pyproject.toml -c requirements/dev.lock --extra streams --extra detect --group build -o requirements/production.lock
	$(COMPILE) pyproject.toml -c requirements/dev.lock --extra audit --group build -o requirements/audit.lock
	$(COMPILE) pyproject.toml --extra demo --group build --group dev --group campaigns -o requirements/campaigns.lock
	$(COMPILE) --group environment -o requirements/environment.lock
	$(COMPILE) --group tools -o requirements/tools.lock

java: $(VENV)/run.stamp
	@$(BIN)/python -m spark_detect.driver.java || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "installing openjdk-17-jre-headless with apt-get"; \
	    apt-get install --yes --quiet=2 --no-install-recommends openjdk-17-jre-headless \
	      || { apt-get update --quiet=2 && apt-get install --yes --quiet=2 --no-install-recommends openjdk-17-jre-headless; } \
	      || echo "it could not be installed; what needs it says so"; \
	  else echo "everything else works without it"; fi; }

chromium:
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || $(call APT,chromium)
	@command -v firefox-esr >/dev/null || command -v firefox >/dev/null || $(call APT,firefox-esr)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(VENV)/bin/python:
	@echo "making a virtual environment in $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Lakeproof needs Python 3.11 or newer: run make PYTHON=python3.12, say"; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(VENV)/environment.stamp: requirements/environment.lock | $(VENV)/bin/python
	@echo "bringing pip and setuptools of $(VENV) up to date"
	@$(INSTALL) -r requirements/environment.lock
	@touch $@

$(VENV)/run.stamp: requirements/demo.lock pyproject.toml $(VENV)/environment.stamp
	@echo "installing the $$(grep -c == requirements/demo.lock) packages of requirements/demo.lock into $(VENV), once:"
	@echo "  about 0.7 GB to fetch, 1.5 GB on disk, 3 to 10 minutes; the largest are PySpark, which is built here, and PyArrow"
	@$(INSTALL) -r requirements/demo.lock
	@echo "installed: $$(du -sh $(VENV) | cut -f1) in $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/dev.stamp: requirements/dev.lock $(VENV)/run.stamp
	@echo "installing what the tests need (requirements/dev.lock) into $(VENV): 0.5 GB on disk, a minute or two"
	@$(INSTALL) -r requirements/dev.lock
	@touch $@

$(VENV)/campaigns.stamp: requirements/campaigns.lock $(VENV)/dev.stamp
	@echo "installing the packages of requirements/campaigns.lock into $(VENV)"
	@$(INSTALL) -r requirements/campaigns.lock
	@touch $@

# In an environment of their own: tools that look for vulnerabilities should not bring any along.
$(VENV)/tools.stamp: requirements/tools.lock $(VENV)/environment.stamp
	@echo "installing the packages of requirements/tools.lock into $(VENV)/tools"
	@$(BIN)/python -m venv $(VENV)/tools
	@$(VENV)/tools/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/tools.lock
	@touch $@
