"""What carrying out one run says about errors."""

import traceback

import pytest
from helpers import make_config

from isobench.training import execute


def test_a_traceback_names_its_run(monkeypatch):
    def fail(*_):
        raise ValueError("as meant")

    monkeypatch.setattr(execute, "train_if_needed", fail)
    monkeypatch.setenv("ISOBENCH_DEBUG", "1")
    with pytest.raises(ValueError, match="as meant") as raised:
        execute.execute_run(make_config("seed=3"))
    assert "in the run rotten_tomatoes minilm none seed 3" in "".join(traceback.format_exception(raised.value))
