"""A sweep's plan: composed as Hydra would, checked, keyed, forecast; shown by dry_run, status and prune."""

import itertools
import os
import time
from dataclasses import asdict

import pytest
from helpers import make_config, make_record

from isobench.common.files import write_json
from isobench.config.command_line import Override
from isobench.config.schema import to_config
from isobench.runs.folder import PROGRESS_FILE, RunFolder
from isobench.runs.run import Run
from isobench.runs.state import Submission, add_state, describe_process
from isobench.sweep.compose import Composer
from isobench.sweep.planning import compose_sweep

AXES = {
    "scale": ["scale=embedded", "scale=paper"],
    "task": ["task=rte", "task=stsb", "task=sst2"],
    "calibration": ["calibration=none", "calibration=isobn_paper"],
    "value": [
        "optimization.lr=1e-5", "optimization.lr=3", "optimization.patience=null", "seeds.order=7", "seed=12",
        "task.train_samples=64", "task.dev_splits=[validation]", "data.root='a b'", "output_dir=x-y",
        "optimization.drop_last=true", "trainer.precision=bf16-mixed", "head.dropout=0.25",
        "checkpoint.minutes=1.5", "encoder.path=a/b", "+encoder.revision=abc", "tracking=none", "task.name=other",
        "optimization=isobn_released", "seeds={init:3}", "~optimization.clip", "data.root=${oc.env:HOME}",
        "task.max_length=128", "task.as_classes=6", "head=huggingface",
    ],
}  # fmt: skip


@pytest.mark.slow
def test_the_fast_composition_is_hydras():
    """Every third pair of values, over all choices of groups; where Hydra refuses, so does the fast way."""
    with compose_sweep(["+experiment=glue_isobn", "-m"]) as (loader, base, _):
        composer = Composer(loader, base)
        groups = list(itertools.product(AXES["scale"], AXES["task"], AXES["calibration"]))
        for number, pair in enumerate(list(itertools.combinations(AXES["value"], 2))[::3]):
            texts = [*groups[number % len(groups)], *pair]
            run = list(map(Override.parse, texts))
            try:
                expected = asdict(to_config(loader.load_sweep_config(base, texts)))
            except Exception as error:
                with pytest.raises(type(error)):
                    composer.compose(run)
                continue
            assert asdict(composer.compose(run)) == expected, run


@pytest.mark.slow
def test_choices_in_independent_groups_are_composed_one_at_a_time(tmp_path):
    """Only where the options hold nothing but settings of their groups."""
    for group, name, text in (
        ("head", "far", "# @package _global_\nencoder: {pooling: mean}\n"),
        ("head", "linked", "dropout: ${optimization.warmup}\n"),
        ("encoder", "nested", "defaults: [minilm, _self_]\nlayer: 3\n"),
    ):
        (tmp_path / group).mkdir(exist_ok=True)
        (tmp_path / group / f"{name}.yaml").write_text(text)
    with compose_sweep([f"--config-dir={tmp_path}", "-m"]) as (loader, base, _):
        composer = Composer(loader, base)
        grid = itertools.product(
            ["task=cola"], ["encoder=distilbert-quire", "encoder=nested"],
            ["head=isobn", "head=far", "head=linked"], ["seed=2", "optimization.warmup=0.2"],
        )  # fmt: skip
        for texts in grid:
            overrides = tuple(map(Override.parse, texts))
            assert composer.compose(overrides) == composer.compose_with_hydra(overrides).cfg, overrides
        assert composer.parse_choice(Override("task", "cola")) == ("task", "cola")
        others = ("head=far", "head=linked", "encoder=nested", "seed=2")
        assert not any(map(composer.parse_choice, map(Override.parse, others)))


def beat(folder: RunFolder, **more) -> None:
    folder.path.mkdir(parents=True, exist_ok=True)
    now = time.time()
    state = {
        "state": "training", "step": 3, "steps": 9, "host": "a", "machine": describe_process().machine,
        "job": None, "log": None, "pid": os.getpid(), "since": now, "updated": now, "attempt": 1, "share": 1, **more,
    }  # fmt: skip
    write_json(folder.path / PROGRESS_FILE, state, owner=folder.path.name)


def test_a_runs_state_is_told_from_record_heartbeat_and_queue(tmp_path):
    folder, now = RunFolder(str(tmp_path), "ab" * 32), time.time()
    row = Run(make_config(), folder, None)

    def states() -> list[str]:
        """Without a job, with one submitted now, with one submitted later."""
        queues = [{}, *({"ab" * 8: Submission("12", [], at)} for at in (now, now + 9))]
        return [add_state(row, queue).state for queue in queues]

    assert states() == ["missing", "queued", "queued"]
    beat(folder)
    assert states() == ["running"] * 3
    for gone in ({"updated": time.time() - 90}, {"pid": 2**22 + 1}, {"state": "interrupted"}):
        beat(folder, **gone)
        assert states() == ["interrupted", "queued", "queued"]
    beat(folder, machine="elsewhere", pid=2**22 + 1)
    assert states()[0] == "running"
    (folder.path / PROGRESS_FILE).write_text("{")
    assert states()[0] == "missing"
    row.record = make_record(row.cfg, failure={"name": "crash", "message": "x"})
    folder.result_file.write_text("{}")
    os.utime(folder.result_file, (now + 5, now + 5))
    assert states() == ["failed", "failed", "queued"]  # to be tried again where it was submitted after the failure
    row.record = make_record(row.cfg)
    assert states() == ["done"] * 3
    row.record, row.trouble = None, "damaged"
    assert states()[0] == "damaged"


def test_the_wrong_clock_of_another_machine_neither_hides_nor_keeps_a_run(tmp_path):
    """Its file's own time decides then; on this machine its clock and its processes do."""
    folder = RunFolder(str(tmp_path), "ab" * 32)
    row, now = Run(make_config(), folder, None), time.time()

    def state(file_time: float | None = None, **more) -> str:
        beat(folder, **more)
        if file_time is not None:
            os.utime(folder.path / PROGRESS_FILE, (file_time, file_time))
        return add_state(row, {}).state

    for updated in (now - 3600, now + 86400):
        assert state(machine="elsewhere", updated=updated) == "running"  # written just now
        assert state(now - 120, machine="elsewhere", updated=updated) == "interrupted"
        assert state(now + 86400, machine="elsewhere", updated=updated) == "interrupted"
        assert state(updated=updated) == "interrupted"  # on this machine
        assert state(updated, machine="elsewhere") == "running"  # the file server's clock is wrong
        assert state(updated) == "running"
