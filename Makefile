# `make setup` once, then `make test`. Needs python3 (3.11 or later) with pip, and nothing else.
# Another interpreter: `make setup PYTHON=python3.12`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready

.PHONY: setup gym run test test-slow lint types format readmes clean

setup: $(STAMP)

# Built again when the requirements change, and not otherwise.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev,math,swarm]'
	touch $@

# For the tests of reasoning-gym; apart, because one of its dependencies needs a C compiler.
gym: setup
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[gym]'

run: setup
	$(BIN)/coterie run talk-to-solve

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# Half a minute of CPU and more, most of it for torch and transformers, so not part of the main job.
types: setup
	$(BIN)/pyright

# Eight minutes is the limit of the main job on two cores: seven for the tests, one for everything before them.
test: lint
	$(BIN)/pytest -m 'not slow and not gpu' --session-timeout=420

test-slow: setup
	$(BIN)/pytest -m 'slow and not gpu'

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The figures of the README files, anew from the records.
readmes: setup
	$(BIN)/python -m coterie.report.markdown recipes/*/README.md
	$(BIN)/python -m coterie.report.readme README.md

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis
