# Everything that a person or CI does here. Each target sets up .venv itself when it is missing or stale.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
# Of the tests: two more than two cores, since tests wait for processes and lines.
WORKERS ?= 4
# Of 19,000 modules that are installed, a run loads a fifth: the first process that loads one compiles and keeps it, also
# where a machine forbids it.
export PYTHONDONTWRITEBYTECODE =

.DEFAULT_GOAL := help
.PHONY: help setup kernels demo demo-parties test check gate faults lint types contracts docs bench clean

help: ## Show what can be made.
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: $(STAMP) ## Make .venv with exact versions, and compile the kernels.

kernels: $(STAMP) ## Compile the kernels again if their sources changed, and print their hashes.
	@$(BIN)/python -m securevfl_crypto.engine.build

$(STAMP): pyproject.toml crypto/pyproject.toml psi/pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "securevfl needs Python 3.11 or later; set PYTHON=…")'
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt \
		hatchling editables llvmlite ziglang torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt \
		--no-build-isolation --editable ./crypto --editable ./psi --editable '.[dev]'
	touch $@

demo: kernels ## Run the main job and show its report (ARGS=--full for the whole table).
	$(BIN)/securevfl demo $(ARGS)

demo-parties: kernels ## Three processes over mutual TLS: train plain and sealed, kill one, resume, audit, serve.
	$(BIN)/python examples/demo_parties.py $(ARGS)

# Tests start many processes: what they load of this checkout is compiled once, before.
test: kernels ## Run the tests.
	$(BIN)/python -m compileall -q securevfl psi crypto tests/support tests/mutations tests/fuzz benchmarks tools examples
	@# Each worker takes a half and helps the other at the end, so that what a file's tests share is mostly made once.
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

check: kernels ## Lint, types, import contracts, docs, faults, tests, the gate: what CI runs.
	@# Each of these uses one core, the long ones first. The gate asks no clock: it runs beside the tests, on what they
	@# leave of the cores while they wait.
	$(MAKE) -j 2 $(if $(filter output-sync,$(.FEATURES)),--output-sync=target) lint types faults docs contracts
	$(MAKE) -j 2 test gate PATIENT='OMP_NUM_THREADS=1 nice -n 5'

gate: kernels ## Hold every claim of privacy against attacks, two minutes (ARGS=--whole for all cells, most of an hour).
	$(PATIENT) $(BIN)/python -m benchmarks.gate $(or $(ARGS),--quick)

faults: kernels ## Harm parties at every phase, ten faults and known bugs put back (ARGS="--minutes 60" for the whole matrix).
	$(BIN)/python -m benchmarks.faults $(or $(ARGS),--quick)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy
	$(BIN)/mypy --config-file tools/mypy-names.ini examples benchmarks tools

contracts: $(STAMP)
	$(BIN)/lint-imports

docs: $(STAMP) ## Build the documentation site, strictly (quietly, it would not see its own warnings).
	$(BIN)/mkdocs build --strict

bench: kernels ## Run the benchmarks, hours; what lacks a file or a package is skipped (ARGS=--quick for minutes).
	$(BIN)/python -m benchmarks.everything $(ARGS)

clean: ## Remove what was made.
	rm -rf $(VENV) crypto/securevfl_crypto/engine/ahead site runs build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
