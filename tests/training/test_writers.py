"""Check that every writer keeps the file that it locked, so that it is never taken for what a killed process left."""

import os
from functools import partial

import numpy as np
import pytest
import torch

from isobench.common.files import write_atomic
from isobench.common.temporaries import remove_abandoned
from isobench.common.tidy import write_rows
from isobench.data.cache import load_cached_arrays, save_cached_arrays
from isobench.models.tokenization import read_learned_tokenizer, train_tokenizer
from isobench.training.checkpoint import CheckpointFiles
from isobench.training.predictions import write_examples


def write_figure(file):
    from matplotlib.figure import Figure

    write_atomic(file, partial(Figure().savefig, format="png"))


def write_checkpoint(folder):
    CheckpointFiles(folder, "key").save_checkpoint({"x": torch.ones(3)}, folder / "x.ckpt")


WRITERS = {
    "arrays": lambda folder: save_cached_arrays({"ids": np.arange(5)}, folder / "x.safetensors"),
    "predictions": lambda folder: write_examples(folder / "x.parquet", {"dev": {"prediction": [1.0, 2.0]}}),
    "checkpoint": write_checkpoint,
    "tokenizer": lambda folder: train_tokenizer(iter(["a text"]), 300, folder / "x.json"),
    "rows": lambda folder: write_rows(folder, "x", [{"a": 1}]),
    "figure": lambda folder: write_figure(folder / "x.png"),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_that_is_being_written_stays_locked(tmp_path, monkeypatch, name):
    flush, looks = os.fsync, []

    def look_as_another_process_does(handle):
        looks.append(sorted(path.name for path in tmp_path.iterdir() if path.suffix == ".tmp"))
        remove_abandoned(tmp_path)
        flush(handle)

    monkeypatch.setattr(os, "fsync", look_as_another_process_does)
    WRITERS[name](tmp_path)
    assert any(looks)
    written = {path.name for path in tmp_path.iterdir()}
    assert written
    assert all(path.startswith("x.") for path in written)


def test_what_was_written_is_read_and_a_slower_writers_rest_is_removed(tmp_path):
    """Two processes wrote the same file, one was faster, and the other was killed."""
    for name in ("x.safetensors", "x.json"):
        (tmp_path / f".{name}.0a1b2c3d.tmp").write_text("half")
    WRITERS["arrays"](tmp_path)
    (tmp_path / ".x.safetensors.0a1b2c3e.tmp").write_text("half")
    assert load_cached_arrays(tmp_path / "x.safetensors", lambda arrays: arrays["ids"].tolist()) == [0, 1, 2, 3, 4]
    WRITERS["tokenizer"](tmp_path)
    (tmp_path / ".x.json.0a1b2c3e.tmp").write_text("half")
    assert read_learned_tokenizer(tmp_path / "x.json").encode("a").tokens
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.json", "x.safetensors"]
