VENV ?= .venv
RUN := $(VENV)/bin
export VENV
.PHONY: setup quickstart test test-all soak web lint check bench clean

setup:            ## .venv with all that training and tests need; a second run does nothing
	@bash scripts/setup.sh

quickstart: setup ## train a small policy on FrozenLake and show the result (2 minutes on 2 cores)
	@name=quickstart; n=2; while [ -e runs/$$name ]; do name=quickstart-$$n; n=$$((n+1)); done; \
	$(RUN)/envhub train configs/quickstart.yaml run.name=$$name

test: setup       ## all tests but the slow ones
	@$(RUN)/python -m pytest -m "not slow"

test-all: setup web ## all tests
	@$(RUN)/python -m pytest

soak: setup       ## the server's load and fault tests and the scheduler's laws in full (hours)
	@ENVHUB_SOAK=1 $(RUN)/python -m pytest tests/soak tests/service/test_load.py tests/unit/rollout

web:              ## chromium, for the tests that look at pages
	@bash scripts/web.sh

lint: setup       ## format, style, types, floors
	@$(RUN)/ruff format --check . && $(RUN)/ruff check . && $(RUN)/mypy && $(RUN)/lint-imports

check: lint test  ## what a change must pass

bench: setup      ## the figures of benchmarks/RESULTS.md
	@bash benchmarks/quickstart.sh
	@$(RUN)/python benchmarks/environments.py
	@$(RUN)/python benchmarks/serve.py
	@$(RUN)/python benchmarks/scheduling.py

clean:            ## forget the virtual environment
	rm -rf $(VENV)
