# make setup   install into .venv, with uv where it is installed, else with pip
# make demo    install, then compare plain fine-tuning with IsoBN over five seeds (4 to 8 minutes on 2 cores)
# make check   lint, types and the fast tests, before each commit (about 75 seconds on 2 cores)
# make test    lint, types and every test, SLURM included (about 18 minutes on 2 cores); see docs/development/testing.md
# make docs    build the documentation into build/site/index.html, without a network (about 15 seconds)
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Python keeps the compiled tests: without them, each process takes 7 seconds longer to collect.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest

# uv reads no configuration of pip's: tell it where pip finds packages.
pip_setting = $(shell $(PYTHON) -m pip config get $(1) 2>/dev/null)
find_links = $(or $(PIP_FIND_LINKS),$(call pip_setting,global.find-links))

.PHONY: setup demo docs lint types check test test-slurm test-others clean

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(None if (3, 11) <= sys.version_info < (3, 14) else "isobench needs Python 3.11 to 3.13; name one: make PYTHON=python3.12 ...")'
	if command -v uv >/dev/null; then \
	    uv venv --quiet --seed --allow-existing --python $(PYTHON) $(VENV) && \
	    uv pip install --quiet --python $(BIN)/python $(addprefix --find-links ,$(find_links)) -c constraints.txt -e '.[dev]'; \
	else \
	    $(PYTHON) -m venv $(VENV) && \
	    $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'; \
	fi
	touch $@

demo: setup
	$(BIN)/python -m isobench +experiment=glue_isobn -m calibration=none,isobn_paper seed=1,2,3,4,5

# A warning stops the build: a broken link or anchor, or a page that is nowhere in mkdocs.yml.
SITE := build/site
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --site-dir $(SITE)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: setup
	$(BIN)/mypy

check: lint types
	$(PYTEST) -n 2 --dist worksteal -m "not slow and not slurm and not browser"

test: lint types
	$(MAKE) --no-print-directory -j 2 test-slurm test-others

# The tests on SLURM mostly wait for jobs, with time limits: let the others take only what they leave of the processor.
test-slurm: setup
	$(BIN)/python -m pytest -m slurm

test-others: setup
	OMP_NUM_THREADS=1 nice -n 10 $(BIN)/python -m pytest -n 2 --dist loadgroup -m "not slurm"

clean:
	rm -rf $(VENV) build dist
