PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.PHONY: run test lint mutants bench clean

run: $(VENV)/.installed            ## set up, then run the main job
	$(BIN)/outrider sim

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

clean:
	rm -rf $(VENV) build dist out .mypy_cache .pytest_cache .ruff_cache .hypothesis
