"""Prune removes runs that nothing produces any more, in output folders only, and nothing that it can't judge."""

import os
import shutil
from dataclasses import asdict, replace

import pytest
import yaml
from helpers import make_config, make_record

from isobench import load_runs
from isobench.cli import prune
from isobench.cli.prune import judge_runs
from isobench.common.errors import UserError
from isobench.runs.folder import RunFolder, mark_output_folder
from isobench.runs.identity import identify
from isobench.runs.layout import MARKER_FILE
from isobench.runs.record_file import write_record_file
from isobench.sweep.rows import find_sweep_rows
from isobench.sweep.saved_commands import SweepCommand, save_command

FOREIGN = ["backup", "ab" * 8 + ".bak", "AB" * 8, "ab" * 7, "xy" * 8, ".git"]


def make_run(output_dir, key: str | None = None, seed: int = 1) -> RunFolder:
    """A finished run's folder, under the key of its settings or another one."""
    cfg = replace(make_config("tracking=none"), seed=seed, output_dir=str(output_dir))
    own_key = identify(cfg).key
    folder = RunFolder(str(output_dir), key or own_key)
    folder.path.mkdir(parents=True)
    (folder.path / "config.yaml").write_text(yaml.safe_dump(asdict(cfg), sort_keys=False))
    write_record_file(folder.result_file, make_record(cfg, key=own_key))
    return folder


def make_own_run(output_dir, seed: int = 1, grid=None) -> RunFolder:
    """Make a finished run of an experiment ``mine``, which isobench doesn't have and no remembered sweep asks for."""
    cfg = replace(make_config("tracking=none"), seed=seed, output_dir=str(output_dir))
    cfg = replace(cfg, experiment=replace(cfg.experiment, name="mine", grid=grid or {"embedded": [{"seed": [1, 2]}]}))
    folder = RunFolder(str(output_dir), identify(cfg).key)
    folder.path.mkdir(parents=True)
    (folder.path / "config.yaml").write_text(yaml.safe_dump(asdict(cfg), sort_keys=False))
    write_record_file(folder.result_file, make_record(cfg, key=identify(cfg).key))
    return folder


def files_of(folder) -> dict:
    return {path: path.lstat().st_size for path in folder.rglob("*")}


def test_a_folder_that_is_no_run_is_never_listed(tmp_path):
    for name in ["ab" * 8, *FOREIGN]:
        (tmp_path / "runs" / name).mkdir(parents=True)
    (tmp_path / "runs" / ("cd" * 8)).write_text("a file")
    orphans, ((folder, reason),), count = judge_runs(str(tmp_path))
    assert (orphans, count) == ([], 1)
    assert folder == tmp_path / "runs" / ("ab" * 8)
    assert reason == "its config can't be read, or is not valid in this version of isobench"


@pytest.mark.parametrize("content", [[], ["etc"], ["runs"], ["runs/backup", "runs/" + "AB" * 8]])
def test_a_folder_of_anything_else_is_refused(tmp_path, content):
    for name in content:
        (tmp_path / name).mkdir(parents=True)
    with pytest.raises(UserError, match="is no output folder of isobench, so nothing is removed there"):
        prune.prune([f"output_dir={tmp_path}"], yes=True)
    with pytest.raises(UserError, match="does not exist: nothing was run there"):
        prune.prune([f"output_dir={tmp_path}/none"], yes=True)


def test_a_folder_of_an_earlier_version_is_told_how_to_be_marked(tmp_path, capfd):
    output_dir = tmp_path / "my outputs"
    orphan = make_run(output_dir, "cd" * 32)
    before = files_of(tmp_path)
    with pytest.raises(UserError) as refusal:
        prune.prune([f"output_dir='{output_dir}'"], yes=True)
    message = str(refusal.value)
    assert message == (
        f"{output_dir} lacks the file {MARKER_FILE}, which earlier versions of isobench did not write, so nothing is "
        f"removed there; if isobench made this folder, run touch '{output_dir}/{MARKER_FILE}' and repeat this command"
    )
    assert files_of(tmp_path) == before
    assert os.system(message.split("run ")[-1].split(" and repeat")[0]) == 0  # the advice works as it is printed
    prune.prune([f"output_dir='{output_dir}'"], yes=True)
    assert not orphan.path.exists()
    assert "Removed 1." in capfd.readouterr().out


def test_what_cannot_be_judged_is_named_and_kept(tmp_path, capfd):
    mark_output_folder(tmp_path)
    kept = make_run(tmp_path)
    orphan = make_run(tmp_path, "cd" * 32)
    damaged = {name * 8: make_run(tmp_path, name * 32) for name in ("a1", "a2", "a3", "a4")}
    damaged["a1" * 8].result_file.write_text("{")
    (damaged["a2" * 8].path / "config.yaml").write_text("[")
    (damaged["a3" * 8].path / "config.yaml").unlink()
    damaged["a4" * 8].result_file.unlink()
    os.mkfifo(damaged["a4" * 8].result_file)
    shutil.copytree(orphan.path, tmp_path / "elsewhere")
    (tmp_path / "runs" / ("a5" * 8)).symlink_to(tmp_path / "elsewhere")
    prune.prune([f"output_dir={tmp_path}"], yes=True)
    out = capfd.readouterr().out
    assert out.count("can't be judged, so it is kept") == 5
    assert "1 run that nothing produces any more" in out
    assert not orphan.path.exists()
    assert kept.result_file.exists()
    assert all(folder.path.exists() for folder in damaged.values())
    assert (tmp_path / "elsewhere" / "result.json").exists()
    prune.prune([f"output_dir={tmp_path}"], yes=True)
    assert "5 runs of 6 in" in capfd.readouterr().out


def test_a_run_whose_config_was_changed_is_kept(tmp_path, capfd):
    """Change a digit of the config, which gives another key: the run's result must not be removed because of it."""
    mark_output_folder(tmp_path)
    folder = make_run(tmp_path)
    cfg = replace(make_config("tracking=none"), seed=1, output_dir=str(tmp_path))
    folder.write_config(asdict(cfg))
    file = folder.path / "config.yaml"
    assert judge_runs(str(tmp_path)) == ([], [], 1)
    intact = file.read_text()
    for old, new in (("seed: 1\n", "seed: 2\n"), ("lr: ", "lr: 1"), ("scale: embedded", "scale: embeddee")):
        assert old in intact
        file.write_text(intact.replace(old, new, 1))
        assert judge_runs(str(tmp_path)) == (
            [],
            [(folder.path, "its config.yaml was changed, or is another run's")],
            1,
        )
        with pytest.raises(UserError, match="none of the runs"):
            find_sweep_rows([f"output_dir={tmp_path}"])
        assert f"left out: {folder.path}: its config.yaml was changed" in capfd.readouterr().err
        with pytest.raises(
            UserError, match=r"config.yaml is damaged or was changed: remove the folder to run again$"
        ):
            load_runs(tmp_path)
    prune.prune([f"output_dir={tmp_path}"], yes=True)
    assert folder.result_file.exists()


def test_runs_whose_configs_were_exchanged_are_kept(tmp_path):
    """Exchange two configs: each is intact, but gives another key than that of its folder."""
    mark_output_folder(tmp_path)
    files = []
    for seed in (1, 2):
        folder = make_run(tmp_path, seed=seed)
        folder.write_config(asdict(replace(make_config("tracking=none"), seed=seed, output_dir=str(tmp_path))))
        files.append(folder.path / "config.yaml")
    assert judge_runs(str(tmp_path)) == ([], [], 2)
    first, second = (file.read_bytes() for file in files)
    files[0].write_bytes(second)
    files[1].write_bytes(first)
    orphans, unjudged, _ = judge_runs(str(tmp_path))
    assert (len(orphans), len(unjudged)) == (0, 2)


def test_status_names_what_prune_names(tmp_path, capfd):
    mark_output_folder(tmp_path)
    for name in ("a1", "a2"):
        (make_run(tmp_path, name * 32).path / "config.yaml").write_text("[")
    with pytest.raises(UserError, match=r"none of the runs in .* can be shown, for the reasons above"):
        find_sweep_rows([f"output_dir={tmp_path}"])
    err = capfd.readouterr().err
    assert f"left out: {tmp_path}/runs/{'a1' * 8} and 1 more run: its config can't be read" in err
    make_run(tmp_path, "cd" * 32)
    kept = make_run(tmp_path)
    _, rows = find_sweep_rows([f"output_dir={tmp_path}"])
    assert [row.folder.path for row in rows] == [kept.path]
    assert "its settings have another key now (isobench prune lists it)" in capfd.readouterr().err


def test_a_command_marks_its_output_folder(tmp_path):
    command = SweepCommand(None, ["seed=1"], str(tmp_path))
    assert save_command(str(tmp_path), command)
    assert (tmp_path / MARKER_FILE).is_file()
    (tmp_path / MARKER_FILE).unlink()
    assert save_command(str(tmp_path), command) is None  # remembered before, by an earlier version
    assert (tmp_path / MARKER_FILE).is_file()


def test_a_run_marks_its_output_folder_and_leaves_nothing_if_it_cannot_start(tmp_path):
    folder = RunFolder(str(tmp_path / "outputs"), "ab" * 32)
    with pytest.raises(UserError, match="as meant"), folder.lock():
        raise UserError("as meant")
    assert not (tmp_path / "outputs").exists()
    with folder.lock():
        assert (tmp_path / "outputs" / MARKER_FILE).is_file()
        (folder.path / "result.json").write_text("{}")
    other = RunFolder(str(tmp_path / "outputs"), "cd" * 32)
    with pytest.raises(UserError, match="as meant"), other.lock():
        raise UserError("as meant")
    assert (tmp_path / "outputs" / MARKER_FILE).is_file()


def test_a_lock_that_links_to_another_file_leaves_that_file_alone(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    folder = RunFolder(str(tmp_path), "ab" * 32)
    folder.path.mkdir(parents=True)
    (folder.path / "lock").symlink_to(victim)
    with pytest.raises(UserError, match="can't be written"), folder.lock():
        pass
    assert victim.read_text() == "precious"


@pytest.mark.parametrize(
    "jobs", ["x", "null", "[1]", '{"launcher": "local", "job": "1", "runs": {"1": 7}, "submitted": 1.0}']
)
def test_without_a_terminal_nothing_is_removed(tmp_path, capfd, jobs):
    mark_output_folder(tmp_path)
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "local-1.json").write_text(jobs)  # damaged: it keeps no command from working
    orphan = make_run(tmp_path, "cd" * 32)
    prune.prune([f"output_dir={tmp_path}"], yes=False)
    assert "Not removed: --yes removes them." in capfd.readouterr().out
    assert orphan.path.exists()


@pytest.mark.parametrize("file", ["mine.yaml", "another.yaml"])
def test_runs_of_the_users_own_experiment_are_judged_by_its_file(tmp_path, capfd, file):
    """Check also that without the experiment's folder the runs can't be judged and are kept."""
    output_dir = tmp_path / "outputs"
    run, changed = make_own_run(output_dir), make_own_run(output_dir, 2, {"embedded": [{"seed": [2]}]})
    mark_output_folder(output_dir)
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    name = "name: mine, " if file == "another.yaml" else ""
    text = f"# @package _global_\nexperiment: {{{name}grid: {{embedded: [{{seed: [1, 2]}}]}}}}\n"
    (tmp_path / "conf" / "experiment" / file).write_text(text)
    prune.prune([f"output_dir={output_dir}"], yes=True)
    out = capfd.readouterr().out
    assert out.count("can't be judged, so it is kept") == 2
    assert out.count("(experiment mine): add --config-dir=FOLDER with experiment/mine.yaml") == 2
    prune.prune(["--config-dir", str(tmp_path / "conf"), f"output_dir={output_dir}"], yes=True)
    out = capfd.readouterr().out
    assert "seed 2 (experiment mine): the experiment has changed" in out
    assert (run.path.exists(), changed.path.exists()) == (True, False)


def test_a_remembered_sweep_with_a_folder_of_configs_asks_for_that_folder(tmp_path):
    output_dir = tmp_path / "outputs"
    make_own_run(output_dir)
    mark_output_folder(output_dir)
    save_command(str(output_dir), SweepCommand("mine", ["--config-dir", "conf", "+experiment=mine"], str(tmp_path)))
    with pytest.raises(UserError, match=f"add --config-dir={tmp_path}/conf if you trust that folder"):
        prune.prune([f"output_dir={output_dir}"], yes=True)
