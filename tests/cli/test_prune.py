"""Prune removes runs that no plan has, in output folders only, and nothing that it can't read."""

import json
import os
import shutil
from dataclasses import replace

import pytest
from helpers import fails, make_config, make_record

from isobench.cli import prune
from isobench.cli.prune import find_orphans
from isobench.common.errors import UserError
from isobench.common.files import add_json_checksum
from isobench.runs.folder import RunFolder, mark_output_folder
from isobench.runs.identity import identify
from isobench.runs.plan import Plan, write_plan
from isobench.runs.state import Heartbeat


def prune_all(output_dir) -> None:
    prune.prune([f"output_dir='{output_dir}'"], yes=True)


def config_of(output_dir, seed: int):
    return replace(make_config("tracking=none"), seed=seed, output_dir=str(output_dir))


def make_run(output_dir, seed: int = 1) -> RunFolder:
    """A finished run's folder, which no plan has."""
    cfg = config_of(output_dir, seed)
    folder = RunFolder(str(output_dir), identify(cfg).key)
    folder.write_record(make_record(cfg, key=folder.key))
    return folder


def plan_seeds(output_dir, *seeds: int) -> None:
    """Write the plan of a command with these seeds, which replaces the one before."""
    configs = [config_of(output_dir, seed) for seed in seeds]
    write_plan(output_dir, Plan(None, ["a command"], [(cfg, identify(cfg)) for cfg in configs]))


DAMAGES = {
    "changed": lambda file: file.write_text(file.read_text().replace('"seed":[1]', '"seed":[2]')),
    "truncated": lambda file: os.truncate(file, file.stat().st_size // 2),
    "newer": lambda file: file.write_text(file.read_text().replace('"format":1', '"format":9')),
    "a folder": lambda file: file.unlink() or file.mkdir(),
    "a broken link": lambda file: file.unlink() or file.symlink_to("nowhere"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_plan_removes_nothing_and_its_command_mends_it(tmp_path, damage):
    planned, orphan, _ = (make_run(tmp_path, seed) for seed in (1, 2, 3))
    plan_seeds(tmp_path, 1)
    (file,) = (tmp_path / "plans").iterdir()
    write_plan(tmp_path, Plan("another", ["a command"], [(cfg := config_of(tmp_path, 3), identify(cfg))]))
    DAMAGES[damage](file)
    with pytest.raises(UserError):
        prune_all(tmp_path)
    assert planned.path.exists()
    if damage != "a folder":  # which no file can replace
        plan_seeds(tmp_path, 1)
        prune_all(tmp_path)
        assert (planned.path.exists(), orphan.path.exists()) == (True, False)


def test_plans_that_are_missing_or_name_no_run_remove_nothing(tmp_path):
    run = make_run(tmp_path, 1)
    plan_seeds(tmp_path, 1)
    plans = tmp_path / "plans"
    (file,) = plans.iterdir()
    content = json.loads(file.read_text())
    del content["checksum"]
    states = [
        lambda: plan_seeds(tmp_path, 2),  # of other runs alone, such as one from another output folder
        lambda: file.write_text(json.dumps(add_json_checksum(content | {"runs": []}))),
        file.unlink,  # an empty folder
        plans.rmdir,
        lambda: plans.write_text("a file"),
    ]
    for change in states:
        change()
        with fails():
            prune_all(tmp_path)
        assert run.path.exists()


def test_a_folder_that_is_no_run_is_never_listed(tmp_path):
    make_run(tmp_path, 1)
    plan_seeds(tmp_path, 1)
    for name in ["ab" * 8, "backup", "ab" * 8 + ".bak", "AB" * 8, "ab" * 7, "xy" * 8, ".git"]:
        (tmp_path / "runs" / name).mkdir(parents=True)
    (tmp_path / "runs" / ("cd" * 8)).write_text("a file")
    orphans, ((folder, _),) = find_orphans(str(tmp_path))
    assert orphans == []
    assert folder == tmp_path / "runs" / ("ab" * 8)


def test_without_its_mark_or_any_plan_nothing_is_removed(tmp_path):
    output_dir = tmp_path / "my outputs"
    run = make_run(output_dir)
    for _ in range(2):
        with fails():
            prune_all(output_dir)
        mark_output_folder(output_dir)
    assert run.path.exists()
    make_run(output_dir, 2)
    plan_seeds(output_dir, 2)
    prune_all(output_dir)
    assert not run.path.exists()


def test_what_cannot_be_read_is_named_and_kept(tmp_path, capfd):
    plan_seeds(tmp_path, 1)
    make_run(tmp_path, 1)
    orphan, unfinished, *damaged = (make_run(tmp_path, seed) for seed in range(2, 7))
    damaged[0].result_file.write_text("{")
    damaged[1].result_file.write_bytes(orphan.result_file.read_bytes())  # another run's
    damaged[2].result_file.unlink()
    os.mkfifo(damaged[2].result_file)
    unfinished.result_file.unlink()
    with pytest.raises(KeyboardInterrupt), Heartbeat(unfinished.path):
        raise KeyboardInterrupt
    shutil.copytree(orphan.path, tmp_path / "elsewhere")
    (tmp_path / "runs" / ("a5" * 8)).symlink_to(tmp_path / "elsewhere")
    prune_all(tmp_path)
    assert capfd.readouterr().out.count("is kept because it can't be read") == 4
    assert not any(folder.path.exists() for folder in (orphan, unfinished))
    assert all(folder.path.exists() for folder in damaged)
    assert (tmp_path / "elsewhere" / "result.json").exists()


def test_without_a_terminal_nothing_is_removed(tmp_path):
    mark_output_folder(tmp_path)
    make_run(tmp_path, 9)
    plan_seeds(tmp_path, 9)
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "array-1.json").write_text("[1]")  # damaged: it keeps no command from working
    orphan = make_run(tmp_path)
    prune.prune([f"output_dir={tmp_path}"], yes=False)
    assert orphan.path.exists()
