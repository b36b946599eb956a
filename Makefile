VENV ?= .venv
BIN  := $(VENV)/bin
UV   := $(shell command -v uv 2>/dev/null)

IS_RIGHT := -c 'import sys; sys.exit(sys.version_info < (3, 11))'
PYTHON   ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p $(IS_RIGHT) 2>/dev/null && { echo $$p; break; }; done)

.PHONY: run run-real test test-compiled test-real test-ray on-ray lint mutants bench clean help

run: $(VENV)/.installed            ## set up, then run the main job
	$(BIN)/outrider sim

run-real: $(VENV)/.real            ## fetch a small real model and run it, with drafts and without
	$(BIN)/outrider models pull smollm2-135m
	$(BIN)/outrider generate --chat --compare \
	  'Repeat this JSON with "age" set to 31: {"name": "Ada", "age": 30, "city": "London", "tags": ["maths", "engines"]}'

test: $(VENV)/.installed           ## set up, then run the tests
	$(BIN)/pytest

PLANTS := tests/explore/test_planted.py tests/explore/test_campaign.py  # they replace methods, as no extension lets one

test-compiled: $(VENV)/.installed  ## compile what the engine spends its time in, then run the tests on it
	rm -rf build/compiled
	$(BIN)/python hatch_build.py build/compiled
	cd build/compiled && OUTRIDER_COMPILE=1 $(abspath $(BIN))/python -m pytest $(PLANTS:%=--ignore %)

test-real: $(VENV)/.real           ## draft in every way for the small real model; no text may be another
	$(BIN)/outrider models pull smollm2-135m
	$(BIN)/python -m tests.real_texts

test-ray:                          ## set up an environment with Ray, then run what stands on it
	$(MAKE) VENV=$(VENV)-ray on-ray

on-ray: $(VENV)/.ray
	$(BIN)/python -c 'import ray'
	$(BIN)/pytest tests/ray

lint: $(VENV)/.installed           ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

mutants: $(VENV)/.installed        ## plant known mistakes in copies of the code; every one must be caught
	$(BIN)/python -m tests.mutants

bench: $(VENV)/.installed          ## the figures of docs/performance.md
	$(BIN)/python -m benchmarks

clean:                             ## take away the environment and all that was made
	rm -rf $(VENV) $(VENV)-ray build dist out .mypy_cache .pytest_cache .ruff_cache .hypothesis

help:                              ## say what there is to make
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' Makefile

# An environment whose Python is too old, or not the one asked for, is made anew.
ifneq ($(shell $(BIN)/python $(IS_RIGHT) 2>/dev/null && echo yes),yes)
.PHONY: $(VENV)/.installed
else ifneq ($(filter command environment,$(origin PYTHON)),)
VERSION := -c 'import sys; print(sys.version_info[:3])'
ifneq ($(shell $(BIN)/python $(VERSION)),$(shell $(PYTHON) $(VERSION) 2>/dev/null))
.PHONY: $(VENV)/.installed
endif
endif

$(VENV)/.installed: pyproject.toml
	@test ! -e $(VENV) -o -e $(VENV)/pyvenv.cfg || { echo '$(VENV) is there, and no environment' >&2; exit 1; }
ifneq ($(UV),)
	rm -rf $(VENV)
	$(UV) venv --python '$(or $(PYTHON),>=3.11)' $(VENV)
	$(UV) pip install --python $(BIN)/python --editable '.[dev]'
else
	@test -n '$(PYTHON)' || { echo 'Python 3.11 or newer is needed, and none was found: make PYTHON=/path/to/python' >&2; exit 1; }
	@$(PYTHON) $(IS_RIGHT) || { echo 'Python 3.11 or newer is needed; $(PYTHON) is' \
	  "$$($(PYTHON) -V 2>&1): make PYTHON=/path/to/python" >&2; exit 1; }
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --editable '.[dev]'
endif
	touch $@

$(VENV)/.real: $(VENV)/.installed
ifneq ($(UV),)
	$(UV) pip install --python $(BIN)/python --editable '.[real,fast]'
else
	$(BIN)/python -m pip install --disable-pip-version-check --editable '.[real,fast]'
endif
	touch $@

$(VENV)/.ray: $(VENV)/.installed
ifneq ($(UV),)
	$(UV) pip install --python $(BIN)/python --editable '.[ray]'
else
	$(BIN)/python -m pip install --disable-pip-version-check --editable '.[ray]'
endif
	touch $@
