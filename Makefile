PYTHON ?= python3

VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
KERAS_VENV := .venv-keras
KERAS_STAMP := $(KERAS_VENV)/.installed
KERAS_PYTHON ?= $(shell command -v python3.11 || echo "$(PYTHON)")
PIP := -m pip install --disable-pip-version-check --progress-bar off
# Tests that start processes and servers also wait for them: one more than there are processors.
WORKERS := $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
dots := awk '/^ *(Collecting|Downloading|Building|Installing)/ { printf "."; fflush() } END { print "" }'

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Else each of the thousand processes that tests start compiles our modules anew.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: help run check test test-node test-images node-where-it-can control-plane keras components bench clean lint

step = @echo "==> $(1)"

help: ## Show this list
	@echo "Usage: make <target> [PYTHON=python3.11]"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' Makefile

run: $(STAMP) ## Train a model with a privacy budget, from sample reviews to a report
	$(call step,Product/LSTM: from sample reviews to a report. Two to three minutes)
	@$(VENV)/bin/privatekube demo

check: lint ## Format, lint, types, import contracts and fast tests; needs no server
	$(call step,Fast tests)
	@$(PY) -m pytest -q -n auto --dist worksteal -m "not slow and not server" --hypothesis-profile=quick

test: lint control-plane keras ## All that check does, then every test
	$(call step,All tests that need no server)
	@$(PY) -m pytest -q -n $(WORKERS) --dist worksteal -m "not server"
	$(call step,All tests on real Kubernetes API servers and a real Prometheus: some minutes)
	@$(PY) -m pytest -q -m "server and not node" -n $(WORKERS) --maxprocesses=4 --dist loadfile --no-loadscope-reorder
	@$(MAKE) --no-print-directory node-where-it-can

test-node: $(STAMP) ## Run components and the scheduler in real pods; needs root on Linux
	$(call step,Components and the scheduler in real pods: some minutes)
	@$(PY) -m pytest -q -m "node and not images"

test-images: $(STAMP) ## The same for the images with PyTorch and TensorFlow: 8 GB, once
	$(call step,Training in real pods: the first time minutes to build the images)
	@$(PY) -m pytest -q -m images

# The last lines of `make test` say what was left out, if anything was; in CI nothing may be.
node-where-it-can:
	@if [ -n "$${CI:-}" ] || reason=$$($(PY) -m tests.node 2>&1); then $(MAKE) --no-print-directory test-node; \
	else echo "==> Left out: tests in real pods (make test-node). $$reason."; fi

control-plane: $(STAMP) ## Build the Kubernetes control plane of the tests from Go modules, once
	$(call step,Kubernetes control plane)
	@$(PY) -m tests.kubernetes.control_plane build

keras: $(KERAS_STAMP) ## Make the environment of its own that TensorFlow Privacy needs, once

components: $(STAMP) ## Compile the Kubeflow components anew, after a change of the library
	$(call step,Components)
	@$(PY) components/compile.py

bench: $(STAMP) control-plane ## Run the benchmarks
	$(call step,Benchmarks)
	@$(PY) -m benchmarks

clean: ## Remove the virtual environments, caches and build output
	$(call step,Removing $(VENV) and $(KERAS_VENV) and caches and build output)
	@rm -rf $(VENV) $(KERAS_VENV) build dist *.egg-info .benchmarks .hypothesis
	@rm -rf .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find . -name .git -prune -o -type d -name __pycache__ -prune -exec rm -rf {} +

lint: $(STAMP)
	$(call step,Format (to fix: $(VENV)/bin/ruff format))
	@$(PY) -m ruff format --check .
	$(call step,Lint)
	@$(PY) -m ruff check .
	$(call step,Types)
	@$(PY) -m mypy
	$(call step,Import contracts)
	@$(VENV)/bin/lint-imports --no-logo

# Touched last, so that an install that broke off is done again.
$(STAMP): setup.cfg pyproject.toml
	@command -v "$(PYTHON)" >/dev/null || { \
	  echo "There is no '$(PYTHON)' here. Install Python 3.11 or 3.12, or name one: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 13))' || { \
	  echo "PrivateKube needs Python 3.11 or 3.12, but '$(PYTHON)' is $$("$(PYTHON)" -V 2>&1). Name another: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "'$(PYTHON)' cannot make virtual environments. Install its venv module (on Debian and Ubuntu the package python3-venv)." >&2; exit 1; }
	$(call step,Making $(VENV) with $$("$(PYTHON)" -V))
	@"$(PYTHON)" -m venv $(VENV)
	$(call step,Installing PrivateKube and its tools into $(VENV): a minute the first time)
	@$(PY) $(PIP) -e '.[dev]' | $(dots)
	@touch $@

# TensorFlow and kfp want different protobufs. What runs a component needs none, so kfp comes
# without what it depends on.
$(KERAS_STAMP): setup.cfg pyproject.toml | $(STAMP)
	@"$(KERAS_PYTHON)" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || { \
	  echo "TensorFlow 2.15 needs Python 3.11, but '$(KERAS_PYTHON)' is $$("$(KERAS_PYTHON)" -V 2>&1). Name one: make keras KERAS_PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(call step,Making $(KERAS_VENV) with $$("$(KERAS_PYTHON)" -V))
	@"$(KERAS_PYTHON)" -m venv $(KERAS_VENV)
	$(call step,Installing PrivateKube and TensorFlow Privacy into $(KERAS_VENV): some minutes the first time)
	@$(KERAS_VENV)/bin/python $(PIP) -e '.[keras]' | $(dots)
	@$(KERAS_VENV)/bin/python $(PIP) --no-deps 'kfp>=2.17,<2.18' | $(dots)
	@touch $@
