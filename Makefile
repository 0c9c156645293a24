# make demo · make test · make lint · make bench: each prepares .venv by itself.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin
STAMP := $(VENV)/.ready

.PHONY: demo test lint bench clean

demo: $(STAMP)
	@$(RUN)/profkit demo

test: $(STAMP) $(VENV)/.ready-test
	@echo "Running the tests (a few minutes)"
	@$(RUN)/python -m pytest -n 2

lint: $(STAMP) $(VENV)/.ready-lint
	@$(RUN)/ruff check . && $(RUN)/ruff format --check . && $(RUN)/mypy

bench: $(STAMP) $(VENV)/.ready-test
	@$(RUN)/python -m benchmarks.run

clean:
	rm -rf $(VENV)

$(STAMP): pyproject.toml
	@echo "Preparing $(VENV): Python packages for profkit (once, about a minute)"
	@$(PYTHON) -c 'import sys; sys.exit("profkit needs Python 3.11 or newer, and this is " + sys.version.split()[0] + ": call make PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'
	@$(PYTHON) -m venv $(VENV) || { echo "Cannot make a virtual environment: install the venv module (Debian: apt install python3-venv)"; exit 1; }
	@$(RUN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	@$(RUN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.ready-%: pyproject.toml $(STAMP)
	@echo "Preparing $(VENV): packages for '$*'"
	@$(RUN)/python -m pip install --quiet --disable-pip-version-check --group $*
	@touch $@
