"""Plans of an output folder: what is written is read again; nothing is filled in (or imported: test_find_runs.py)."""

from dataclasses import replace
from functools import cache

import orjson
import pytest
from bundle_tools import write_signed_json

from isobench.runs.plan import Plan, format_plan, parse_plan, read_intact_plans, read_plans, read_runs, write_plan
from isobench.sweep.planning import compose_sweep, plan_runs


@cache
def make_plan(*settings: str, experiment: str | None = "glue_isobn") -> Plan:
    arguments = [f"+experiment={experiment}"] if experiment else ["calibration=none,cosine"]
    with compose_sweep([*arguments, "optimization.epochs=1", *settings]) as parts:
        runs = [(run.cfg, run.identity) for run in plan_runs(*parts)]
    return Plan(experiment, ["python -m isobench " + " ".join(arguments)], runs)


def test_a_plan_is_read_as_it_was_written(tmp_path):
    plan = make_plan("seed=1,2")
    write_plan(tmp_path, plan)
    (read,) = read_plans(tmp_path)
    assert len(read.runs) == 6
    assert read.runs == [(replace(cfg, output_dir=str(tmp_path)), identity) for cfg, identity in plan.runs]
    assert (read.experiment, read.commands) == (plan.experiment, plan.commands)
    assert parse_plan(format_plan(plan)) == plan
    assert len({id(cfg.task) for cfg, _ in read.runs}) == 1
    write_plan(tmp_path, make_plan(experiment=None))
    assert [plan.experiment for plan in read_plans(tmp_path)] == ["glue_isobn", None]
    assert [plan.experiment for plan in read_plans(tmp_path, "glue_isobn")] == ["glue_isobn"]


@pytest.mark.slow
def test_the_same_command_replaces_its_plan_and_another_one_adds_its_own(tmp_path, monkeypatch):
    first = make_plan()
    file = write_plan(tmp_path, first)
    assert write_plan(tmp_path, replace(first, runs=first.runs[:1])) == file
    assert [len(plan.runs) for plan in read_plans(tmp_path)] == [1]
    assert write_plan(tmp_path, replace(first, commands=["another"])) != file
    monkeypatch.chdir(tmp_path)  # its relative paths may mean other files here
    assert write_plan(tmp_path, first) != file


def test_an_imported_plan_of_the_same_command_replaces_no_plan_of_other_runs(tmp_path):
    mine = make_plan()
    theirs = replace(mine, runs=mine.runs[:1])
    write_plan(tmp_path, mine)
    for plan in (theirs, theirs, mine):
        write_plan(tmp_path, plan, is_imported=True)
    assert sorted(len(plan.runs) for plan in read_plans(tmp_path)) == [1, 3, 3]


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("runs", [{"key": "k", "settings": {}, "data": -1, "weights": 0}]),
        ("runs", [{"key": "k", "settings": {}, "data": 0, "weights": 0}] * 2),
        ("settings", {"seed": ["${oc.env:HOME}"]}), ("settings", {"task": [{"name": "../../etc"}]}),
    ],
)  # fmt: skip
def test_a_plan_that_was_changed_is_refused_in_one_line(tmp_path, entry, value):
    file = write_plan(tmp_path, make_plan())
    write_signed_json(file, orjson.loads(file.read_bytes()) | {entry: value})
    plans, (trouble,) = read_intact_plans(tmp_path)
    assert (plans, str(file) in trouble) == ([], True)


def test_a_damaged_plan_hides_no_other_plan_and_none_of_its_runs(tmp_path, capfd):
    kept, damaged = make_plan(), replace(make_plan(), experiment="other", commands=["other"])
    write_plan(tmp_path, kept)
    file = write_plan(tmp_path, damaged)
    whole = file.read_bytes()
    for text in (whole.replace(b'"seed":[', b'"seed":[2,'), b"", b"[]", b"null", whole[:-20]):
        file.write_bytes(text)
        assert [plan.experiment for plan in read_intact_plans(tmp_path)[0]] == [kept.experiment]
    assert {run.folder.key for run in read_runs(str(tmp_path), kept.experiment)} == {run[1].key for run in kept.runs}
    assert [plan.experiment for plan in read_plans(tmp_path)] == [kept.experiment]
    err = capfd.readouterr().err
    assert (err.count("\n"), err.count(str(file))) == (1, 1)
