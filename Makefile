# Everything starts here. `make demo` and `make test` set the project up by themselves.

PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed

# Tests on real data look here; without the folder they are skipped.
ifneq ($(wildcard ../shared/data),)
export SELFEXPRESS_DATA ?= $(abspath ../shared/data)
endif

.PHONY: demo test check test-slow test-gpu clean

demo: $(INSTALLED)
	$(BIN)/selfexpress demo --output demo-output

test: $(INSTALLED)
	$(BIN)/python -m pytest
	$(BIN)/python -m pytest --doctest-modules src/selfexpress -m ""

check: $(INSTALLED)
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/mypy
	$(BIN)/lint-imports

test-slow: $(INSTALLED)
	$(BIN)/python -m pytest -m slow

# On a machine with a GPU; uses the Python at hand, so that nothing is installed there.
test-gpu:
	PYTHONPATH=src $(PYTHON) -m pytest -m gpu -p no:cacheprovider

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[dev]"
	touch $(INSTALLED)

clean:
	rm -rf .venv demo-output .pytest_cache .mypy_cache .ruff_cache
