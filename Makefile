.PHONY: setup lock train test test-slow test-gpu test-network coverage check bench storage-demo soak matrix wheel clean
.DEFAULT_GOAL := help

PYTHON ?= python3
BIN := .venv/bin
UV := $(BIN)/python -m uv
STAMP := .venv/.ready
ARGS ?=
SUITE ?= glob(*)
SYSTEM ?= yes
SEED ?= $(shell date +%s)
# Threads that wait for work sleep: OpenMP's would spin on the cores of the other tests. The many processes that tests
# start read what the first one has compiled. Three test processes: they wait for a third of their time. A test
# that hangs fails after ten minutes, and says where its threads stand.
TESTS := env -u PYTHONDONTWRITEBYTECODE OMP_WAIT_POLICY=passive $(BIN)/python -m pytest --randomly-seed=$(SEED)
ON_THREE := --numprocesses 3 --dist loadfile --no-loadscope-reorder --timeout 600

help: ## show what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(STAMP) ## create .venv, install the locked packages and what the operators need; SYSTEM=no: no system packages; SYSTEM=tests: a browser, too

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || \
	  { echo "Python 3.11 to 3.13 with venv is needed; name one with: make PYTHON=python3.12 setup"; exit 1; }
	@echo "Setting up .venv: a few minutes, and 6.5 GB of disk, most of it torch with CUDA"
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'uv>=0.9,<1'
	$(UV) pip install --quiet --compile-bytecode --python $(BIN)/python --require-hashes -r requirements.lock
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --editable .
	$(BIN)/python -m strobe.native $(if $(filter no,$(SYSTEM)),|| true,--install $(if $(filter tests,$(SYSTEM)),--tests))
	@touch $@

lock: ## renew requirements.lock from pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'uv>=0.9,<1'
	$(UV) pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --extra dev \
	  --custom-compile-command 'make lock' pyproject.toml --output-file requirements.lock

train: $(STAMP) ## train on the generated sample; ARGS="data=eurosat loader=skimage" passes overrides
	$(BIN)/python train.py $(ARGS)

test: $(STAMP) ## run the tests, on three processes and in random order; SEED=123 repeats an order; prints the time
	@bash -c 'time "$$@"' time $(TESTS) $(ON_THREE)

test-slow: $(STAMP) ## run the tests that `make test` leaves out because they take long; an hour
	$(TESTS) -m slow

test-gpu: $(STAMP) ## run the tests that need a CUDA device
	$(TESTS) -m gpu

test-network: $(STAMP) ## install the wheel beside the oldest and the newest Lightnings and torch, and attach; some gigabytes
	$(TESTS) -m network

coverage: $(STAMP) ## run the tests as `make test` does, and hold the lines they reach against a floor
	$(TESTS) $(ON_THREE) --cov

check: $(STAMP) ## lint, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(STAMP) ## run the quick mode of every benchmark suite; SUITE=loading ARGS="quick=false data=eurosat": one of them
	$(BIN)/python -m strobe.bench -m 'suite=$(SUITE)' quick=true $(ARGS)

storage-demo: $(STAMP) ## serve generated tiles, or FOLDER=..., as object storage on this machine, and say how to train from it
	$(BIN)/python -m strobe.app.storage $(FOLDER)

soak: $(STAMP) ## try faults on real trainings for ten minutes, or HOURS=1, and print what was lost, hung or left
	$(BIN)/python -m strobe.validation.soak $(if $(HOURS),--hours $(HOURS)) $(ARGS)

matrix: $(STAMP) ## run the tests with other Pythons, libraries and compilers; hours; ARGS="oldest-3.11 clang-3.11": only these
	$(BIN)/python -m strobe.validation.matrix $(ARGS)

wheel: $(STAMP) ## build dist/*.whl and the source distribution
	$(BIN)/python -m hatchling build

clean: ## remove caches and build leftovers; runs and data stay
	rm -rf .mypy_cache .ruff_cache .pytest_cache .coverage dist
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
