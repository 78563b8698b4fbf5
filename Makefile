# Every target makes .venv when it is missing, and installs again when pyproject.toml or constraints.txt has changed.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help demo test long soak lint package docs tables bench clean

help: ## show this list
	@sed -n 's/^\([a-z]*\):.*## /make \1\t/p' $(MAKEFILE_LIST)

demo: $(VENV)/.installed-lab ## the peak experiment, quick (no evidence): what Std, Ort and RR learn, as a page
	$(BIN)/racecar run peaks --quick --seeds 1 --out out/demo
	$(BIN)/racecar report out/demo

# Without files of bytecode each worker would take seven seconds more to compile all tests again.
test: $(VENV)/.installed-test ## run the tests on two workers (ARGS="-k name" narrows them)
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal --timeout 600 -m 'not soak' $(ARGS)

long: $(VENV)/.installed-test ## run the tests that make test leaves out because each takes many seconds
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal --timeout 600 -m soak $(ARGS)

soak: $(VENV)/.installed-test ## run the tests that draw examples at random, with many more and other examples, and the longest
	HYPOTHESIS_PROFILE=soak OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -m 'hypothesis or soak' $(ARGS)

lint: $(VENV)/.installed-dev ## ruff check, ruff format --check, mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy src

package: $(VENV)/.installed-dev ## build wheel and sdist (dist/), and try both in empty environments
	$(BIN)/python .ci/package.py

docs: $(VENV)/docs/.installed ## build the documentation as a site (build/site/index.html), without the network
	NO_MKDOCS_2_WARNING=1 $(VENV)/docs/bin/mkdocs build --strict --quiet

tables: $(VENV)/.installed-test ## make the tables of README.md and docs/ again, from records and code (make test sees that they are)
	$(BIN)/python -m benchmarks.tables

bench: $(VENV)/.installed-lab ## time the reverse pass on this machine's CPU, beside one written by hand
	$(BIN)/python -m benchmarks.bench --device cpu $(ARGS)

clean: ## remove .venv, caches and build artefacts (never out/ or data/)
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One stamp per extra of pyproject.toml; it lives in the environment and goes with it.
$(VENV)/.installed-%: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e ".[$*]"
	@touch $@

# The site is built from the sources alone, in an environment of its own: nothing of its tools is seen by the tests.
$(VENV)/docs/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m venv $(VENV)/docs
	$(VENV)/docs/bin/python -m pip install --disable-pip-version-check -c constraints.txt $$($(BIN)/python -c \
	    'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"])')
	@touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "racecar needs Python 3.11 or newer, and '$(PYTHON)' is not. Name another one: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }
