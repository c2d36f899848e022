# Two commands on a machine with Python 3.11 and make: `make demo`, `make test`.
# uv is used when it is there, else venv and pip.

PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
UV := $(shell command -v uv 2>/dev/null)
DEMO := demo-output

ifeq ($(UV),)
CREATE := $(PYTHON) -m venv $(VENV)
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
else
CREATE := $(UV) venv --quiet --allow-existing --python $(PYTHON) $(VENV)
INSTALL := $(UV) pip install --quiet --python $(BIN)/python
endif

.PHONY: help demo ui check test test-lab tests rules durations endurance test-slow test-deep test-newest test-lowest ui-test test-all test-reference goldens lint style format imports types bench record clean

help:
	@echo "make demo            install and run the main job: an accelerator for BERT-Large on 1,024 devices"
	@echo "make ui              open the demo's runs in MLflow"
	@echo "make check           for every change: ruff and the tests that take no time, in a minute and a half"
	@echo "make test            every check: ruff, mypy, import-linter, pytest, in JOBS=2 processes"
	@echo "make test-lab        installs the laboratory of lab/ beside the package, and runs its tests"
	@echo "make test-slow       the checks that take minutes"
	@echo "make endurance       2,000 damaged files a reader, 2,000 drawn plans, 100 drawn certificates forged, 30 kills a command: hours"
	@echo "make test-deep       property tests on newly drawn examples, ROUNDS=10 times over"
	@echo "make test-newest     the main job and the quick tests with the newest dependencies, on each of PYTHONS=\"3.11 3.13\""
	@echo "make test-lowest     the same with the lowest versions that pyproject.toml allows"
	@echo "make ui-test         a recorded study and its report, seen by a headless Chromium (skipped without one)"
	@echo "make test-all        test, test-slow and ui-test"
	@echo "make durations       runs all tests, and writes the list of those that make check leaves out"
	@echo "make test-reference  parameter and FLOP counts against transformers and torch (downloads gigabytes)"
	@echo "make goldens         what every command answers against what is kept in tests/goldens; WRITE=1 keeps it anew"
	@echo "make bench           the benchmarks of experiments/"
	@echo "make record          writes the records of experiments/ anew and says what moved: hours; ONLY=bert-large,certified/dense chooses"

$(BIN)/python:
	$(CREATE)

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing phaze-opt into $(VENV) (a minute or two the first time)"
	$(INSTALL) -c constraints.txt -e .
	@touch $@

# What commands of the README need: said once here, not again by each.
WARM_UP := PHAZE_OPT_QUIET=1 $(BIN)/phaze-opt

# A core is busy with it for a minute, in which `make test` looks at types.
$(VENV)/.compiled: $(VENV)/.installed
	@echo "compiling kernels: once, a minute or two; later runs load them"
	@$(WARM_UP) evaluate --model tiny --arch phaze-tpu-v4 --devices 8 --global-batch 16 --json > /dev/null
	@$(WARM_UP) evaluate --model tiny --arch num_tc=2,num_vc=1,tc_width=8,tc_depth=8,glb_mb=2,hbm_gb=32 \
		--devices 8 --global-batch 16 --as phaze --attention unfused --exclusivity type --json > /dev/null
	@$(WARM_UP) evaluate --model tiny --arch a100-80g --devices 8 --global-batch 16 --json > /dev/null
	@$(WARM_UP) evaluate --model tiny --arch phaze-tpu-v4 --devices 8 --global-batch 16 --as phaze --json > /dev/null
	@$(WARM_UP) search --model bert-large --devices 1024 --global-batch 4096 --trials 2 --no-tracking --no-range \
		--work-dir $(VENV)/warm-up --json > /dev/null
	@$(WARM_UP) certify --model tiny --devices 8 --global-batch 16 --as phaze --micro-batch 1 --hbm 32 --tp 1 \
		--no-tracking --work-dir $(VENV)/warm-up --json > /dev/null
	@$(BIN)/python -c 'from phaze_opt.certify.front import compile_ahead; compile_ahead()'
	@rm -rf $(VENV)/warm-up
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(INSTALL) -c constraints.txt -e ".[dev]"
	@touch $@

$(VENV)/.installed-lab: lab/pyproject.toml $(VENV)/.installed-dev
	$(INSTALL) --no-deps -e lab
	@touch $@

$(VENV)/.installed-ui: $(VENV)/.installed-dev
	$(INSTALL) -c constraints.txt -e ".[dev,ui-test]"
	@touch $@

$(VENV)/.installed-onnx: $(VENV)/.installed-dev
	$(INSTALL) -c constraints.txt -e ".[dev,onnx]"
	@touch $@

$(VENV)/.installed-reference: $(VENV)/.installed-dev
	$(INSTALL) -c constraints.txt -e ".[dev,reference]"
	@touch $@

demo: $(VENV)/.compiled
	@mkdir -p $(DEMO)
	$(BIN)/phaze-opt search --model bert-large --devices 1024 --global-batch 4096 --trials 60 --work-dir $(DEMO)

ui: $(VENV)/.installed
	$(BIN)/phaze-opt ui --work-dir $(DEMO)

lint: style types

style: format imports

format: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

imports: $(VENV)/.installed-dev
	$(BIN)/lint-imports

types: $(VENV)/.installed-dev
	$(BIN)/mypy

# Tests start hundreds of processes: each would compile all modules where no bytecode is written.
check test test-lab tests durations test-slow endurance test-deep: export PYTHONDONTWRITEBYTECODE :=

JOBS ?= 2
PYTEST := $(BIN)/pytest -q -n $(JOBS) --dist loadfile --no-loadscope-reorder

check: $(VENV)/.installed-dev $(VENV)/.compiled
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(PYTEST) -m "not long and not slow and not reference and not ui"

# import-linter and mypy take one core for most of a minute: beside the tests, which take what is left, all end sooner.
test: format
	@$(MAKE) --no-print-directory -j 2 tests rules

rules: imports types

tests: $(VENV)/.installed-dev $(VENV)/.compiled
	$(PYTEST)

durations: $(VENV)/.installed-dev $(VENV)/.compiled
	$(PYTEST) --write-long-tests

test-slow: $(VENV)/.installed-dev $(VENV)/.compiled
	$(BIN)/pytest -m slow

endurance: $(VENV)/.installed-onnx $(VENV)/.compiled
	DRAWN=2000 MUTANTS=2000 TRUNCATIONS=1000 KILLS=30 LONG_TRIALS=100000 CERTIFICATES=100 FORGERIES=6 $(PYTEST) -m "slow or not slow" tests/endurance

test-lab: $(VENV)/.installed-lab $(VENV)/.compiled
	$(PYTEST) lab/tests

ROUNDS ?= 10

test-deep: $(VENV)/.installed-dev $(VENV)/.compiled
	@for round in $$(seq $(ROUNDS)); do \
		echo "round $$round of $(ROUNDS)"; \
		$(BIN)/pytest -q -m "hypothesis and not slow and not reference and not ui" \
			--hypothesis-profile=drawn --hypothesis-seed=random || exit 1; \
	done

PYTHONS ?= 3.11 3.13

test-newest test-lowest:
	$(PYTHON) tests/dependencies/try_versions.py $(@:test-%=%) $(PYTHONS) --jobs $(JOBS)

ui-test: $(VENV)/.installed-ui
	$(BIN)/pytest -m ui tests/ui

test-all: test test-slow ui-test

test-reference: $(VENV)/.installed-reference
	$(BIN)/pytest -m reference

goldens: $(VENV)/.installed-dev $(VENV)/.compiled
	$(BIN)/python tests/goldens/goldens.py --jobs $(JOBS) $(if $(WRITE),--write)

bench: $(VENV)/.installed-dev $(VENV)/.compiled
	@for script in experiments/*/bench*.py; do echo "$$script"; $(BIN)/python $$script || exit 1; done

record: $(VENV)/.installed-dev $(VENV)/.compiled
	$(BIN)/python experiments/record.py $(ONLY)

clean:
	rm -rf $(VENV) .venv-newest-* .venv-lowest-* $(DEMO) record-output build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache
