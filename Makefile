# Everything a newcomer or CI needs. Each target creates what it lacks in .venv.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: advise test lint format bench clean

# The README's question, answered.
advise: $(VENV)/.installed
	$(BIN)/mbridge-advisor advise --model deepseek-v3 --gpu H100 --gpus 256 --seq-length 4096

test: $(VENV)/.dev lint
	$(BIN)/python -m pytest -n auto --dist loadgroup

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/bench_search.py
	$(BIN)/python benchmarks/bench_estimates.py

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml hatch_build.py | $(VENV)/bin/python
	$(PIP) install --quiet -e .
	touch $@

$(VENV)/.dev: pyproject.toml hatch_build.py | $(VENV)/bin/python
	$(PIP) install --quiet -e '.[dev]'
	touch $(VENV)/.installed $@

clean:
	rm -rf $(VENV) dist build .mypy_cache .pytest_cache .ruff_cache .hypothesis
