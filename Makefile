# What is done with this repository. Needed beforehand: python3 (3.11 to 3.13) and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Tests wait for child processes, disks and clocks: one worker more than cores keeps the cores busy.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
# The fast tests compile thousands of programs to run each once: XLA spends half as long on them without its fused loops
# and LLVM's passes, and less again where it cuts no program into parts. The slow tests, the examples among them,
# compile as users do, but for programs that run once and of which no bits are compared: tests/engine/hurry.py.
COMPILE_FAST := --xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=0 \
  --xla_cpu_parallel_codegen_split_count=1
# Their matrices are small: of NumPy's, SciPy's and scikit-learn's, threads that wait for each other take ten times the
# CPU of the one that has work.
ONE_THREAD := OPENBLAS_NUM_THREADS=1
# Tests that must not be skipped when they are named here (a missing extra would skip them).
export DRIVETRAIN_REQUIRE ?=

.PHONY: help install demo test test-fast test-slow test-gpu beam attack lint format bench bench-compare lock wheel clean

help:  ## What there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

install: $(STAMP)  ## Make .venv with every extra and the development tools

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14) and "drivetrain needs Python 3.11 to 3.13; set PYTHON=python3.12, say")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[all]' --group dev
	touch $@

demo: $(STAMP)  ## The whole job on real data: raw flights in, a served-ready model out
	$(BIN)/drivetrain run examples/flights

test: $(STAMP)  ## Lint, types, layers and the fast tests, side by side (8 minutes at most)
	$(MAKE) --no-print-directory --jobs 2 lint test-fast

test-fast: $(STAMP) | tests/__pycache__
	XLA_FLAGS="$(COMPILE_FAST) $$XLA_FLAGS" $(ONE_THREAD) \
	  $(BIN)/python -m pytest -m 'not slow and not gpu' --numprocesses $(WORKERS) --dist loadfile

# pytest rewrites the assertions of each test module and keeps them: in a new clone once here, where every worker would
# do it at the same time.
tests/__pycache__: | $(STAMP)
	-$(BIN)/python -m pytest --collect-only --quiet > /dev/null

test-slow: $(STAMP)  ## The rest: crashes, whole runs, Beam workers
	$(BIN)/python -m pytest -m 'slow and not gpu' --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder

test-gpu: $(STAMP)  ## What needs a GPU (pip install 'jax[cuda13]'), then the engine's tests with every stage on it
	JAX_PLATFORMS=cuda,cpu XLA_PYTHON_CLIENT_PREALLOCATE=false DRIVETRAIN_REQUIRE=gpu $(BIN)/python -m pytest -m gpu
	JAX_PLATFORMS=cuda,cpu XLA_PYTHON_CLIENT_PREALLOCATE=false JAX_DEFAULT_MATMUL_PRECISION=highest DRIVETRAIN_STAGES=gpu \
	  $(BIN)/python -m pytest -m 'not gpu' --numprocesses 4 --dist loadfile tests/engine

beam: $(STAMP)  ## Fetch Prism, Flink and Spark (go, java, mvn), and run all that runs on Beam
	.ci/beam/fetch prism flink spark
	DRIVETRAIN_CONFORMANCE=all DRIVETRAIN_REQUIRE=beam,prism,flink,spark $(BIN)/python -m pytest -m 'beam or prism or flink or spark'

attack: $(STAMP)  ## Attack with new seeds for MINUTES (30), or those of SEED again; ATTACKS names which, of tests/attack
	$(BIN)/python -m drivetrain.tests.attack --minutes $(or $(MINUTES),30) $(if $(SEED),--seed $(SEED)) $(ATTACKS)

lint: $(STAMP)  ## ruff, mypy --strict, import-linter, names
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python .ci/check_names.py

format: $(STAMP)  ## Put the code into its shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)  ## The figures, each against a reference measured in the same run; added to the ledger
	$(BIN)/python benchmarks/flights.py
	$(BIN)/python benchmarks/data.py
	$(BIN)/python benchmarks/detection.py
	$(BIN)/python benchmarks/engine.py
	$(BIN)/python benchmarks/evaluation.py
	$(BIN)/python benchmarks/passes.py
	$(BIN)/python benchmarks/orchestration.py
	$(BIN)/python benchmarks/scheduler.py
	$(BIN)/python benchmarks/serving.py
	$(BIN)/python benchmarks/store.py
	$(BIN)/python benchmarks/training.py

bench-compare: $(STAMP)  ## What the newest figures are worse in than those before by a fifth or more
	$(BIN)/python benchmarks/ledger.py

lock: $(STAMP)  ## Resolve constraints.txt anew for Python 3.11 to 3.13
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --universal --python-version 3.11 --all-extras --group dev --no-header --no-annotate --upgrade --output-file constraints.txt pyproject.toml

wheel: $(STAMP)  ## Build the wheel from a clean tree
	rm -rf build
	$(BIN)/python -m build --wheel

clean:  ## Remove what was built, keep the runs
	rm -rf build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
