# Every target makes .venv first if it is missing. Only Python >= 3.11 and make have to be installed.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
TABLE ?=
PROFILE ?= small
NAME ?= amazon670k
FROM ?=
CLASSES ?=

# Python keeps what it compiles, even where the environment says otherwise: tests and plans start it hundreds of times.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup test test-all reproduce publish data bench docs lint clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  make reproduce TABLE=lns_table2 PROFILE=small|medium|paper"
	@echo "  make data NAME=amazon670k [FROM=DIR]"
	@echo "  make bench [CLASSES=131072,670091,6700910]"

setup: $(STAMP) ## create .venv with the package versions that were tested, and compile kernels ahead
	@$(PY) -m runner.training.ahead || true
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: Python 3.11 or newer is needed; set PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PY) scripts/lock.py entries pip setuptools > $(VENV)/first.txt
	$(PY) -m pip install --quiet --no-deps --require-hashes --requirement $(VENV)/first.txt
	$(PY) scripts/lock.py cpu-builds > $(VENV)/cpu.txt
	@$(PY) -m pip install --quiet --no-deps --require-hashes --requirement $(VENV)/cpu.txt 2> $(VENV)/cpu.log \
		|| echo "torch for the CPU alone is not offered where pip looks, or not for this Python; the usual build is taken"
	$(call INSTALL,dev)
	$(PY) -W ignore -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

# The packages of an extra: versions and hashes are those of constraints.txt. Only Linux on x86-64 is tested, so elsewhere
# HASHES is no: versions are the same, but files are not verified, unless HASHES=yes is given.
HASHES ?= $(if $(filter Linux-x86_64,$(shell uname -s)-$(shell uname -m)),yes,no)
UNVERIFIED := HASHES=no: versions are those of constraints.txt, but the files are not verified; HASHES=yes verifies them
define INSTALL
	@if [ "$(HASHES)" = no ]; then echo "$(UNVERIFIED)" >&2; fi
	$(PY) scripts/lock.py requirements $(1) > $(VENV)/requirements.txt
	$(PY) scripts/lock.py constraints --hashes $(HASHES) > $(VENV)/constraints.txt
	$(PY) -m pip install --quiet --no-build-isolation --constraint $(VENV)/constraints.txt --requirement $(VENV)/requirements.txt
endef

# A worker takes a series of neighbouring tests, so that two workers seldom compile the same kernels at the same time.
PYTEST := $(PY) -m pytest --numprocesses auto --dist worksteal

test: $(STAMP) ## run the tests that are not marked slow
	$(PYTEST) -m "not slow"

.PHONY: test-slow
test-slow: $(STAMP)
	$(PYTEST) -m slow --durations 25 --durations-min 5

test-all: $(STAMP) ## run every test, with full cross products and million-draw statistics
	$(PYTEST)

# These are tests of the output layer's kernels. test-targets runs them as on processors without AMX, with AVX2 at most,
# and with SSE2 at most; test-all runs them for this machine's processor, so a target that can do as much is left out.
# Sapphirerapids stands for no AMX, because a processor that is named here gets none.
HAS = $(shell grep -m 1 -o -w $(1) /proc/cpuinfo 2>/dev/null)
TARGETS := $(if $(call HAS,amx_bf16),sapphirerapids,) $(if $(call HAS,avx512f),haswell,) generic
TARGET_TESTS := tests/reference/test_target.py tests/reference/test_products_by_numpy.py \
	tests/reference/test_full_softmax_by_torch.py tests/reference/test_codewords_by_numpy.py \
	tests/numerics/test_full_softmax.py tests/numerics/test_kept_gradients.py tests/numerics/test_threads.py
.PHONY: test-targets
test-targets: $(STAMP) ## run the output layer's tests as on lesser processors (without AMX, AVX2, SSE2)
	@for cpu in $(TARGETS); do \
		echo "kernels for $$cpu"; \
		NUMBA_CPU_NAME=$$cpu $(PYTEST) -m "not slow" $(TARGET_TESTS) || exit 1; \
	done

reproduce: $(STAMP) ## make the runs that tables need and render them (TABLE, PROFILE)
	$(PY) scripts/reproduce.py $(TABLE) --profile $(PROFILE)

publish: $(STAMP) ## replace committed tables by those rendered last (TABLE, PROFILE)
	$(PY) scripts/publish_tables.py $(TABLE) --profile $(PROFILE)

data: $(STAMP) ## download and prepare a data set (NAME, FROM)
	$(PY) scripts/prepare_dataset.py $(NAME) $(if $(FROM),--from $(FROM))

.PHONY: generated
generated: $(STAMP) ## write what follows from classes and conf/: options, the first page, look and golden curve of a new sampler
	$(PY) scripts/add_methods.py
	$(PY) scripts/make_options.py
	$(PY) scripts/make_log_index.py
	$(PY) scripts/make_levels.py
	$(PY) scripts/make_first_page.py
	$(PY) tests/config/write_defaults.py
	$(PY) tests/golden/regenerate.py --missing

bench: $(STAMP) ## measure the training steps of all methods, side by side (CLASSES)
	$(PY) scripts/bench.py output_layer $(if $(CLASSES),classes=$(CLASSES))
	$(PY) scripts/bench.py example_steps

.PHONY: bench-gpu
bench-gpu: $(STAMP) ## check and measure the torch engine on a GPU, in ten minutes
	$(PY) scripts/bench_gpu.py

.PHONY: bench-scale
bench-scale: $(STAMP) ## measure split runs on this machine, and predict those of many machines
	$(PY) scripts/bench.py ranks
	$(PY) scripts/bench.py scale

.PHONY: release
release: $(STAMP) ## build wheel and source distribution in dist/, and try the wheel by each supported Python at hand
	$(PY) scripts/check_release.py

DOCS := $(VENV)/.docs
$(DOCS): $(STAMP)
	$(call INSTALL,docs)
	@touch $@

docs: $(DOCS) ## build the pages of docs/ as a site in site/
	$(VENV)/bin/mkdocs build --strict

lint: $(STAMP) ## run ruff and mypy
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

AUDIT := $(VENV)/.audit
$(AUDIT): $(STAMP)
	$(call INSTALL,audit)
	@touch $@

.PHONY: audit lock
audit: $(AUDIT) ## look for known vulnerabilities of the locked packages
	$(PY) scripts/lock.py audit

lock: ## write constraints.txt anew for the versions that it has (needs uv; UPGRADE=1 takes the newest)
	$(PYTHON) scripts/lock.py write $(if $(UPGRADE),--upgrade)

clean: ## remove .venv and caches; keep runs and prepared data
	rm -rf $(VENV) site .numba_cache .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
