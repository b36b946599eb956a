PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.PHONY: run run-real test lint mutants bench clean

run: $(VENV)/.installed            ## set up, then run the main job
	$(BIN)/outrider sim

run-real: $(VENV)/.real            ## fetch a small real model and run it, with drafts and without
	$(BIN)/outrider models pull smollm2-135m
	$(BIN)/outrider generate --chat --compare \
	  'Repeat this JSON with "age" set to 31: {"name": "Ada", "age": 30, "city": "London", "tags": ["maths", "engines"]}'

test: $(VENV)/.installed           ## set up, then run the tests
	$(BIN)/pytest

lint: $(VENV)/.installed           ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

mutants: $(VENV)/.installed        ## plant known mistakes in copies of the code; every one must be caught
	$(BIN)/python -m tests.mutants

bench: $(VENV)/.installed          ## the figures of docs/performance.md
	$(BIN)/python -m benchmarks

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

$(VENV)/.real: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[real,fast]'
	touch $@

clean:
	rm -rf $(VENV) build dist out .mypy_cache .pytest_cache .ruff_cache .hypothesis
