# Everything starts here. `make demo` and `make test` set the project up by themselves.

PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed

# Tests on real data look here; without the folder they are skipped.
ifneq ($(wildcard ../shared/data),)
export SELFEXPRESS_DATA ?= $(abspath ../shared/data)
endif

.PHONY: demo test check test-slow test-gpu coverage test-properties crash-test fuzz \
  test-minimum audit build-check browser test-browser docs reproduce clean

demo: $(INSTALLED)
	$(BIN)/selfexpress demo --output demo-output

test: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile $(COVERAGE)
	$(BIN)/python -m pytest --doctest-modules --doctest-ignore-import-errors src/selfexpress -m ""
	$(BIN)/python -m pytest tests/distributed -m distributed

check: $(INSTALLED)
	$(BIN)/ruff format --check src reproduction tests examples
	$(BIN)/ruff check src reproduction tests examples
	$(BIN)/mypy
	$(BIN)/lint-imports

test-slow: $(INSTALLED)
	$(BIN)/python -m pytest -m slow

# The tests, and which lines of src/ they run; fails below the share in pyproject.toml.
coverage:
	$(MAKE) test COVERAGE="--cov --cov-report=term:skip-covered"

# Invariances on a hundred seeds.
test-properties: $(INSTALLED)
	SELFEXPRESS_TEST_SEEDS=0-99 $(BIN)/python -m pytest tests/properties

# A training killed a hundred times; writes a record.
crash-test: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python tests/reliability/crash.py --kills 100 --record

# A hundred thousand damaged files; writes a record.
fuzz: $(INSTALLED)
	$(BIN)/python tests/fuzz/run.py --inputs 100000 --record

# The oldest versions that pyproject.toml admits, on the oldest Python.
test-minimum: $(INSTALLED)
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv venv --quiet --clear --python 3.11 .venv-minimum
	$(BIN)/uv pip install --quiet --python .venv-minimum --resolution lowest-direct -e ".[dev]"
	OMP_NUM_THREADS=1 .venv-minimum/bin/python -m pytest -n 2 --dist loadfile \
	  -p no:cacheprovider \
	  -W default::DeprecationWarning -W default::PendingDeprecationWarning \
	  -W default::FutureWarning tests/unit tests/contracts tests/integration

# Known vulnerabilities of what is installed; needs PyPI's vulnerability service.
audit: $(INSTALLED)
	$(BIN)/python -m pip install --quiet pip-audit
	$(BIN)/pip-audit --local --skip-editable --strict

# The package as users get it: built, installed into an empty environment, used.
build-check: $(INSTALLED)
	$(BIN)/python -m pip install --quiet build
	rm -rf build/check
	$(BIN)/python -m build --outdir build/check/dist . > /dev/null
	$(PYTHON) -m venv build/check/venv
	build/check/venv/bin/python -m pip install --quiet -c constraints.txt build/check/dist/*.whl
	cd build/check && venv/bin/python ../../tests/reliability/installed.py

# What the tests of reports need: Playwright, the axe accessibility rules, and Debian's
# Chromium (as root). Without them these tests are skipped.
browser: $(INSTALLED)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[browser]"
	command -v chromium >/dev/null || { apt-get update -qq && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium; }

test-browser: browser
	SELFEXPRESS_NEED_BROWSER=1 $(BIN)/python -m pytest tests/browser -m ""

# The documentation, in docs/_build/index.html; runs every example of the gallery. A
# warning is an error.
docs: $(INSTALLED)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[docs]"
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build

# On a machine with a GPU; uses the Python at hand, so that nothing is installed there.
# Options of plugins that pytest lacks there would be errors.
GPU_TESTS = $(shell grep -rl "pytest.mark.gpu" tests)
test-gpu:
	PYTHONPATH=src $(PYTHON) -m pytest -m gpu -p no:cacheprovider -W ignore \
	  -o addopts= -o timeout=0 --import-mode=importlib $(GPU_TESTS)

# Every table and figure of the paper; goes on where it stopped. Days on a CPU: there,
# `make reproduce QUICK=--quick` shows small versions.
reproduce: $(INSTALLED)
	$(BIN)/python -m reproduction all $(QUICK)
	$(BIN)/python -m reproduction --document docs/reproduction.md

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[dev]"
	touch $(INSTALLED)

clean:
	rm -rf .venv demo-output docs/_build docs/gallery .pytest_cache .mypy_cache .ruff_cache
