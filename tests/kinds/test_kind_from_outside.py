"""A kind of task from outside (examples/kind): it trains, is scored, verified, trained again and reported."""

import json
import random
import sys
from dataclasses import replace

import pyarrow.parquet
import pytest
from helpers import ROOT, WORDS, check_done, fails, make_config

from isobench.config.schema import Task
from isobench.runs.grouping import find_varying_settings
from isobench.runs.identity import compute_key
from isobench.runs.run import Run
from isobench.tasks.kind import Kind, kind_of, load_kind

FOLDER = ROOT / "examples" / "kind"


@pytest.fixture(autouse=True)
def folder(monkeypatch):
    """Let Python find the folder, and forget its modules and its kind afterwards."""
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.setenv("PYTHONPATH", str(FOLDER), prepend=":")
    monkeypatch.setattr("isobench.tasks.kind._loaded", {})
    yield
    for name in ("tagging", "tagger"):
        sys.modules.pop(name, None)


@pytest.fixture
def files(tmp_path):
    """Sentences of the tiny encoder's words; film is an entity, and so are the words good and great together."""
    rng, paths = random.Random(0), {}
    for split, count in (("train", 200), ("validation", 20)):
        sentences = []
        for _ in range(count):
            words = rng.choices([word for word in WORDS if word not in ("good", "great")], k=rng.randint(3, 7))
            tags = ["B-WORK" if word == "film" else "O" for word in words]
            place = rng.randint(0, len(words))
            words[place:place], tags[place:place] = ["good", "great"], ["B-PRAISE", "I-PRAISE"]
            sentences.append("".join(f"{word}\t{tag}\n" for word, tag in zip(words, tags, strict=True)))
        paths[split] = tmp_path / f"{split}.tsv"
        paths[split].write_text("\n".join(sentences))
    return f"data.files={{train: {paths['train']}, validation: {paths['validation']}}}"


def test_f1_is_that_of_whole_entities():
    from tagging import Tagging, list_entities

    entities = [(0, 0, 2, "PER"), (0, 3, 4, "LOC"), (1, 1, 2, "PER")]
    assert list(list_entities(["B-PER I-PER O B-LOC", "O I-PER"])) == entities
    true, found = ["B-PER I-PER O B-LOC", "O O"], ["B-PER O O B-LOC", "B-LOC O"]
    assert Tagging().score(None, true, found) == {"entity_f1": 2 * 1 / (2 + 3)}  # one of two, and of three
    assert Tagging().score(None, true, true) == {"entity_f1": 1}
    assert Tagging().score(None, ["O"], ["O"]) == {"entity_f1": 0}


@pytest.fixture
def settings(tiny, cache, tmp_path, files):
    return [
        "--config-dir", str(FOLDER), "task=tagging", files, "encoder=local", f"encoder.path={tiny}", "data.root=null",
        f"data.cache={cache}", f"output_dir={tmp_path / 'outputs'}", "tracking=none",
    ]  # fmt: skip


@pytest.mark.slow
def test_it_trains_is_verified_and_reported(cli, tiny, tmp_path, settings):
    outputs = tmp_path / "outputs"
    own = ["calibration=none,isobn_paper", "seed=1,2", "optimization.epochs=10", "optimization.batch_size=8"]
    out, _ = check_done(cli(*settings, *own, "optimization.lr=3e-3", "-m"))
    records = [json.loads(file.read_text()) for file in outputs.glob("runs/*/result.json")]
    assert [record["status"] for record in records] == ["finished"] * 4
    assert min(record["best"]["score"] for record in records) > 0.5  # of a tiny encoder
    assert all(0 < record["best"]["isotropy"]["embedding/ev1"] < 1 for record in records)
    file = next(outputs.glob("runs/*/predictions.parquet"))
    assert pyarrow.parquet.read_schema(file).names == ["split", "index", "reference", "hypothesis"]
    assert "tagging (entity_f1)" in out
    assert "tagging" in next(outputs.glob("reports/*/report.html")).read_text()
    verify = ["verify", str(outputs), f"encoder.path={tiny}", "--trust", "--level", "2", "--retrain", "1"]
    assert "not checked:" not in check_done(cli(*verify))[0]


@pytest.mark.slow
def test_a_strangers_kind_is_not_imported(cli, tmp_path, settings, monkeypatch):
    outputs = tmp_path / "outputs"
    assert cli(*settings, "optimization.epochs=1")[0] == 0
    monkeypatch.setattr("isobench.tasks.kind._loaded", {})
    sys.modules.pop("tagging")
    assert "needs --trust" in "".join(check_done(cli("verify", str(outputs), "--level", "2")))
    for command in (["status"], ["report"]):
        assert cli(*command, f"output_dir={outputs}")[0] == 0
    assert "tagging" not in sys.modules


def test_a_kind_is_in_the_key_only_if_it_is_from_outside():
    cfg = make_config("task=rotten_tomatoes")
    keys = {compute_key(cfg, {}, {})}
    for version in (1, 2):
        task = replace(cfg.task, kind={"_target_": "tagging.Tagging", "version": version})
        keys.add(compute_key(replace(cfg, task=task), {}, {}))
        load_kind(task)
        assert kind_of(task).version == version
        assert compute_key(replace(cfg, task=task), {}, {}) in keys  # also without its code
    assert len(keys) == 3


class Graded(Kind):
    scored = ("task.kind.version",)


def test_runs_that_differ_in_what_their_kind_scores_are_never_mixed():
    cfg = make_config("task=rotten_tomatoes")
    tasks = [replace(cfg.task, kind={"_target_": f"{__name__}.Graded", "version": version}) for version in (1, 2)]
    other = replace(cfg, task=tasks[1], calibration=make_config("calibration=isobn_paper").calibration)
    runs = [Run(replace(cfg, task=tasks[0]), None, None), Run(other, None, None)]
    assert find_varying_settings(runs) == []
    load_kind(tasks[0])
    assert find_varying_settings(runs) == ["task.kind.version"]


@pytest.mark.parametrize(
    "kind",
    [
        {"_target_": "tagging.Taging"}, {"_target_": "collections.Counter"},
        {"_target_": "tagging.Tagging", "colour": 1}, {"version": 1},
    ],
)  # fmt: skip
def test_a_wrong_kind_is_refused(kind):
    task = Task(name="x", text=["words"], metrics=[], kind=kind)
    assert type(kind_of(task)) is Kind
    with fails():
        load_kind(task)
