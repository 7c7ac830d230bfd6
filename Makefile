# The house's commands. Each sets up what it needs, in this folder, and nothing else.
PYTHON ?= python3
PORT ?= 8501
SCENARIO ?= kimi-k2-2048xh800
PRESET ?= nano

DEV := .venv#      everything: the simulator, the app, the reference's torch, the checks
APP := .venv-app#  what a planner installs: no torch; also the proof that none is needed
TRAIN := .venv-train#  what the reference trainer needs

empty :=
comma := ,
ifdef PIP_FIND_LINKS # uv does not read pip's settings
export UV_FIND_LINKS ?= $(subst $(empty) $(empty),$(comma),$(strip $(PIP_FIND_LINKS)))
endif
# One thread per process: two test workers on two cores leave none for torch's spinning threads.
export OMP_NUM_THREADS ?= 1
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
# Images set this. Every process would then compile the source of all that it imports again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help app train measure test check lint types layers suite verify answers screenshots clean
help: ## say what each command does
	@sed -n 's/^\([a-z]*\):.*## /make \1|/p' Makefile | column -t -s '|'

app: $(APP)/.stamp ## set up, answer $(SCENARIO), serve the app (PORT=8501)
	@$(APP)/bin/twin run $(SCENARIO)
	@$(APP)/bin/python -m twin.ui run app.py --server.port $(PORT)

train: $(TRAIN)/.stamp ## set up torch, train the reference (PRESET=nano)
	@$(TRAIN)/bin/python -m reference.train $(PRESET)

measure: $(TRAIN)/.stamp ## set up torch, measure this GPU machine in 30 minutes; again goes on (MEASURE=--plan: only says what)
	@$(TRAIN)/bin/python -m reference.measure.day $(MEASURE)

test: ## set up, then everything CI checks; ends with pytest's summary line
	@$(MAKE) --no-print-directory -j2 lint layers $(APP)/.stamp
	@$(MAKE) --no-print-directory -j2 types suite

# Pyright is one thread for two minutes, so tests run beside it.
suite: $(DEV)/.stamp $(APP)/.stamp
	@$(DEV)/bin/pytest -n auto --maxprocesses 8 --dist loadscope --no-loadscope-reorder \
	  --durations=40 --durations-min=3

check: lint types layers ## style, types and import layers; seconds

lint: $(DEV)/.stamp
	@$(DEV)/bin/ruff check --quiet .
	@$(DEV)/bin/ruff format --check .

types: $(DEV)/.stamp # silent where all is well: the last line of `make test` is pytest's
	@told=$$($(DEV)/bin/pyright) || { echo "$$told"; exit 1; }

layers: $(DEV)/.stamp
	@$(DEV)/bin/lint-imports --no-logo

verify: $(DEV)/.stamp $(APP)/.stamp ## slow tests and benchmarks, one at a time
	@$(DEV)/bin/uv pip install --quiet --python $(DEV)/bin/python --editable '.[dev,ray]' # a real cluster
	@$(DEV)/bin/pytest -s -m "slow or benchmark"

answers: $(DEV)/.stamp ## predict all published rows again, and write the README's table of them
	@$(DEV)/bin/twin validate --quiet --leave-one-out --answers scenarios/published/answers.json
	@$(DEV)/bin/python -m tests.evidence.validate.readme

screenshots: $(DEV)/.stamp ## draw the pictures in docs/images with a real Chromium
	@$(DEV)/bin/python -m tests.browser.screenshots

clean: ## remove the environments and every cache
	rm -rf $(DEV) $(APP) dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# $(1) the environment, $(2) the extra: uv where it works, pip where it does not.
define environment
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
	  "Python 3.11 or newer is needed, this is " + sys.version.split()[0] + ": make PYTHON=python3.12 ...")'
	@echo "Setting up $(1)"
	@test -x $(1)/bin/python || $(PYTHON) -m venv $(1)
	@{ $(1)/bin/python -m pip install -qq uv && \
	   $(1)/bin/uv pip install --quiet --python $(1)/bin/python --editable '.[$(2)]'; } || \
	  $(1)/bin/python -m pip install -qq --editable '.[$(2)]'
	@$(1)/bin/python -m twin.compiled.build
	@touch $(1)/.stamp
endef

$(DEV)/.stamp: pyproject.toml
	$(call environment,$(DEV),dev)

$(APP)/.stamp: pyproject.toml
	$(call environment,$(APP),ui)

$(TRAIN)/.stamp: pyproject.toml
	$(call environment,$(TRAIN),reference)
