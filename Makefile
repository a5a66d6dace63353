# make demo   install, then compare plain fine-tuning with IsoBN over five seeds (about 6 minutes on 2 cores)
# make test   install, then run the whole test suite: two files at a time, then those on a throw-away SLURM,
#             whose timing wants the machine to itself (about 9 minutes on 2 cores)
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: setup demo test clean

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(None if (3, 11) <= sys.version_info < (3, 14) else "isobench needs Python 3.11 to 3.13; name one: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: setup
	$(BIN)/python -m isobench +experiment=glue_isobn -m seed=1,2,3,4,5

test: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --ignore=tests/sweep/test_slurm.py
	$(BIN)/python -m pytest tests/sweep/test_slurm.py

clean:
	rm -rf $(VENV) build dist
