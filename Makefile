# The whole developer manual. Every word sets up what it needs in .venv; `make` alone lists them.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# With LOCKED=1 an environment gets the versions in lock.txt. A uv.lock would name a registry in each of its lines.
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check $(if $(LOCKED),-c lock.txt)
DATA   := $(if $(PCLF_DATA),PCLF_DATA=$(abspath $(PCLF_DATA)),)

.DEFAULT_GOAL := help
PYTHONS := python3.11 python3.12 python3.13 python3.14
.PHONY: help demo serve test coverage check attack lowest versions lock bench reproduce docs refresh examples gpu spark clean

help:            ## list these words
	@grep -hE '^[a-z]+: .*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

demo: $(VENV)/.run            ## fit three demo catalogues and recommend across them
	@$(BIN)/pclf demo

serve: $(VENV)/.serve         ## the demo's catalogues as a service with a page, at http://127.0.0.1:8000/
	@$(BIN)/pclf serve --demo

test: $(VENV)/.dev            ## all tests but those of `make spark`
	@$(DATA) $(BIN)/python -m pytest -n 2 --dist worksteal -m "not spark"

coverage: $(VENV)/.dev        ## all tests, and the share of lines that they run
	@$(DATA) $(BIN)/python -m pytest -n 2 --dist worksteal -m "not spark" --cov=pclf --cov-report=term:skip-covered

check: $(VENV)/.dev           ## style and types, under a minute
	@$(BIN)/ruff check .
	@$(BIN)/mypy

attack: $(VENV)/.dev          ## hostile models, ratings and archives by the thousand: nothing dies, no change is silent
	@$(BIN)/python benchmarks/attack.py $(ATTACK)

# An environment of its own with the oldest versions that pyproject.toml promises.
lowest: .venv-lowest/.dev     ## all tests with the oldest versions of everything that pclf says it works with
	@$(DATA) .venv-lowest/bin/python -m pytest -n 2 --dist worksteal -p no:cacheprovider

versions:        ## all tests with every Python that is here, each in an environment of its own
	@found=; for python in $(PYTHONS); do \
	  $$python -c '' 2>/dev/null || { echo "== no $$python here"; continue; }; \
	  found=1; echo "== $$python"; \
	  $(MAKE) --no-print-directory VENV=.venv-$${python##*/} PYTHON=$$python test || exit 1; \
	done; test -n "$$found"

lock: $(VENV)/.dev            ## write lock.txt: the newest versions of all that development needs, on every system
	@$(PIP) uv
	@$(BIN)/uv pip compile --quiet --universal --upgrade --python-version 3.11 --extra dev --extra docs \
	  --no-header --no-annotate --no-emit-index-url --output-file lock.txt pyproject.toml

bench: $(VENV)/.dev           ## measure speed here; JSON lines under benchmarks/results
	@$(DATA) $(BIN)/pclf bench --out benchmarks/results

reproduce: $(VENV)/.dev       ## the paper's tables and figure, our accuracy, and their pages: half an hour
	@$(DATA) $(BIN)/python benchmarks/reproduction.py runs/reproduce
	@$(DATA) $(BIN)/python benchmarks/accuracy.py all

docs: $(VENV)/.docs           ## build the documentation into site/
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

refresh: $(VENV)/.docs        ## run every snippet of the documentation and write its output back
	@$(DATA) $(BIN)/python docs/refresh.py

examples: $(VENV)/.dev        ## run every example
	@for f in examples/*.py; do echo "== $$f"; $(DATA) $(BIN)/python $$f || exit 1; done

gpu: $(VENV)/.gpu             ## add PyTorch and Triton, so that `make test` covers the GPU engine

spark: $(VENV)/.spark         ## add PySpark (0.5 GB) and test the Spark engine on a cluster on loopback, where there is Java 17
	@$(BIN)/python -m pytest -m spark tests/test_spark.py

clean:           ## remove the environment and everything built
	rm -rf $(VENV) .venv-* site build dist .mypy_cache .ruff_cache .pytest_cache

$(VENV)/.run: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "pclf needs Python 3.11 or newer; found $$($(PYTHON) --version). Try: make PYTHON=python3.12 demo"; exit 1; }
	@echo "setting up $(VENV) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) -e .
	@touch $@

$(VENV)/.serve: $(VENV)/.run
	@$(PIP) -e '.[serve]'
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	@$(PIP) -e '.[dev]'
	@touch $@

$(VENV)/.docs: $(VENV)/.dev
	@$(PIP) -e '.[docs]'
	@touch $@

.venv-lowest/.dev: pyproject.toml
	@test -x .venv-lowest/bin/python || $(PYTHON) -m venv .venv-lowest
	@.venv-lowest/bin/python benchmarks/floors.py > .venv-lowest/floors.txt
	@.venv-lowest/bin/python -m pip install --quiet --disable-pip-version-check -c .venv-lowest/floors.txt -e '.[dev]'
	@touch $@

# The version is named because its CPU build is small where it is at hand; any torch of the extra will do.
$(VENV)/.gpu: $(VENV)/.dev
	@$(PIP) torch==2.13.0 triton
	@touch $@

$(VENV)/.spark: $(VENV)/.dev
	@$(PIP) -e '.[dev,spark]' 'pyspark[connect]'
	@touch $@
