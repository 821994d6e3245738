# Everything a newcomer or CI needs. Each target creates what it lacks in .venv.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

# What the oracle runs (tests/oracle): the wheels of one release, on a CPU, apart from everything else.
ORACLE_VENV ?= .venv-oracle
ORACLE_RELEASE ?= v0.3.1
ORACLE_WHEELS ?= megatron-core==0.16.1 megatron-bridge==0.3.1
ORACLE_NEEDS ?= torch==2.13.0 numpy packaging pyyaml omegaconf hydra-core einops
ORACLE_COUNT ?= 300

.PHONY: advise test test-oracle test-docs lint format bench docs docs-zh clean

# The README's question, answered.
advise: $(VENV)/.installed
	$(BIN)/mbridge-advisor advise --model deepseek-v3 --gpu H100 --gpus 256 --seq-length 4096

test: $(VENV)/.dev lint
	$(BIN)/python -m pytest -n auto --dist loadgroup

# Our rules against Megatron's own code.
test-oracle: $(VENV)/.dev $(ORACLE_VENV)/.installed
	MBRIDGE_ORACLE_PYTHON=$(abspath $(ORACLE_VENV))/bin/python MBRIDGE_ORACLE_RELEASE=$(ORACLE_RELEASE) \
		MBRIDGE_ORACLE_COUNT=$(ORACLE_COUNT) $(BIN)/python -m pytest tests/oracle

# The built site in Chromium (tools/install_browser.sh).
test-docs: docs docs-zh $(VENV)/.site
	MBRIDGE_SITE=$(abspath build/site) $(BIN)/python -m pytest tests/site -n 2

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

# The documentation site, English in build/site and Chinese in build/site/zh.
SPHINX = $(BIN)/sphinx-build --keep-going -j auto -q

docs: $(VENV)/.docs
	$(SPHINX) -W -b html -d build/doctrees/en docs build/site

docs-zh: $(VENV)/.docs
	$(SPHINX) -b gettext -d build/doctrees/gettext docs build/gettext
	$(BIN)/python tools/check_translation.py build/gettext/guides.pot docs/locale/zh_CN/LC_MESSAGES/guides.po
	$(SPHINX) -W -b html -d build/doctrees/zh -D language=zh_CN docs build/site/zh
	$(BIN)/python tools/check_translation.py build/site/zh

$(VENV)/.docs: pyproject.toml hatch_build.py | $(VENV)/bin/python
	$(PIP) install --quiet -e '.[docs]'
	touch $(VENV)/.installed $@

# Of the package with axe-core only the script is used, so it comes without playwright, which it wants.
$(VENV)/.site: pyproject.toml hatch_build.py | $(VENV)/bin/python
	$(PIP) install --quiet -e '.[site-tests]'
	$(PIP) install --quiet --no-deps axe-playwright-python==0.1.8
	touch $(VENV)/.installed $@

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml hatch_build.py | $(VENV)/bin/python
	$(PIP) install --quiet -e .
	touch $@

$(VENV)/.dev: pyproject.toml hatch_build.py | $(VENV)/bin/python
	$(PIP) install --quiet -e '.[dev]'
	touch $(VENV)/.installed $@

# The wheels want much that isn't read here (see the stand-ins in the worker), so they come without it.
$(ORACLE_VENV)/.installed: Makefile
	$(PYTHON) -m venv $(ORACLE_VENV)
	$(ORACLE_VENV)/bin/python -m pip --disable-pip-version-check install --quiet $(ORACLE_NEEDS)
	$(ORACLE_VENV)/bin/python -m pip --disable-pip-version-check install --quiet --no-deps $(ORACLE_WHEELS)
	touch $@

clean:
	rm -rf $(VENV) $(ORACLE_VENV) dist build .mypy_cache .pytest_cache .ruff_cache .hypothesis
