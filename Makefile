# The one front door. `make demo` and `make test` work on a fresh machine with Python 3.11 and make.

PYTHON ?= $(firstword $(shell command -v python3.11) $(shell command -v python3))
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/installed
DEMO   := demo
STORE  := $(DEMO)/store

.PHONY: help install demo prove test test-ray test-store test-plain test-long test-long-runs test-long-jobs check explore chaos gpu bench clean

help:            ## what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 14

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))" || { echo "raykit needs Python 3.11 or newer: make PYTHON=..." >&2; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

install: $(STAMP) ## make .venv with everything

demo: $(STAMP)   ## train the bundled job on a local Ray; RATE=36 CEILING=0.5 price it, and it ends paused
ifdef RATE
	$(BIN)/python -m jobs.demo --root $(DEMO)/paid --rate $(RATE) $(if $(CEILING),--ceiling $(CEILING))
else
	$(BIN)/python -m jobs.demo --root $(STORE)
endif

prove: $(STAMP)  ## kill that run five times at random moments: the two final digests are equal
	$(BIN)/python -m jobs.prove --root $(DEMO)/prove

# What `make test` leaves to other targets, and what `make test-long` takes of it.
QUICK := not slow and not long and not gpu
LONG  := long and not slow and not gpu

test: $(STAMP)   ## the suite, in three lanes at once: under ten minutes on two cores
	@$(MAKE) --no-print-directory -j3 --output-sync=target test-ray test-store test-plain

test-ray: $(STAMP)
	$(BIN)/python -m pytest -m "ray and $(QUICK)" tests/e2e tests/security

test-store: $(STAMP)
	$(BIN)/python -m pytest -m "not ray and $(QUICK)" tests/crash tests/store tests/sim

test-plain: $(STAMP)
	$(BIN)/python -m pytest -m "not ray and $(QUICK)" --ignore tests/crash --ignore tests/store --ignore tests/sim

test-long: $(STAMP) ## whole runs that are killed, paused and gone on with, each of a minute or more; in two lanes
	@$(MAKE) --no-print-directory -j2 --output-sync=target test-long-runs test-long-jobs

JOBS := tests/e2e/test_dashboard.py tests/e2e/test_jobs.py tests/e2e/test_search.py tests/e2e/test_search_training.py

test-long-runs: $(STAMP)
	$(BIN)/python -m pytest -m "$(LONG)" --timeout 600 tests $(JOBS:%=--ignore %)

test-long-jobs: $(STAMP)
	$(BIN)/python -m pytest -m "$(LONG)" --timeout 600 $(JOBS)

check: $(STAMP)  ## lint, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

explore: $(STAMP) ## other examples for every property, each time
	$(BIN)/python -m pytest -m "hypothesis and not slow and not long and not gpu" --hypothesis-profile explore --timeout 600

chaos: $(STAMP)  ## the large kill counts
	$(BIN)/python -m pytest -m "slow and not gpu" --timeout 1800

gpu: $(STAMP)    ## what can be measured on an accelerator here, in under six minutes, and what was skipped
	$(BIN)/python scripts/gpu_checks.py

bench: $(STAMP)  ## everything that is measured, as ratios in one run
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,bench]'
	$(BIN)/python -m benchmarks.run

clean:           ## remove what this file made
	rm -rf $(VENV) $(DEMO)
